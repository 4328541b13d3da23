"""Quantiles of densities on [-1, 1]: where their distribution functions, tails mixed in, reach given levels."""

from __future__ import annotations

import torch
from torch import Tensor

from fourier_head.fourier import series, spectrum, tails
from fourier_head.fourier.inversion import Curve, invert

FINER = 32
"""Parts of a cell of the first table, where a graph cannot search on."""


def curve_of(q: Tensor, walls: bool, weight: float) -> Curve:
    """Return the distribution function and density of spectra (..., rows, K), tails mixed in, at points (..., V)."""

    def curve(z: Tensor) -> tuple[Tensor, Tensor]:
        cdf, density = spectrum.cdf_and_density(q, z, walls)
        return tails.mix_curve(cdf, density, z, weight) if weight else (cdf, density)

    return curve


@torch.no_grad()
def unit_quantiles(q: Tensor, level: Tensor, walls: bool, weight: float) -> Tensor:
    """Return z in [-1, 1] with F(z) = level (..., V): from a table, a straight line within its cell, and Newton."""
    cells = 1 << max(6, (16 * q.shape[-1] - 1).bit_length())
    table = spectrum.cdf_grid(q, cells, walls)
    if weight:
        z = torch.linspace(-1, 1, cells + 1, dtype=q.dtype, device=q.device)
        table = tails.mix_cdf(table, z, weight)
    table = table.expand(*level.shape[:-1], cells + 1).contiguous()
    if series.exporting():  # ONNX has no binary search
        place = (table.unsqueeze(-2) < level.unsqueeze(-1)).sum(-1)
    else:
        place = torch.searchsorted(table, level.contiguous())
    cell = place.clamp(1, cells) - 1
    lower, upper = table.gather(-1, cell), table.gather(-1, cell + 1)
    low = -1 + 2 * cell.to(level.dtype) / cells
    high = low + 2 / cells
    start = low + (high - low) * ((level - lower) / (upper - lower).clamp_min(1e-30)).clamp(0, 1)
    if series.exporting():
        return _within(curve_of(q, walls, weight), level, low, high)

    def part(where: tuple[Tensor, ...]) -> Curve:
        rows = q.expand(*level.shape[:-1], *q.shape[-2:])[where[:-1]]
        some = curve_of(rows, walls, weight)

        def curve(z: Tensor) -> tuple[Tensor, Tensor]:
            cdf, density = some(z.unsqueeze(-1))
            return cdf.squeeze(-1), density.squeeze(-1)

        return curve

    noise = torch.finfo(level.dtype).eps
    return invert(curve_of(q, walls, weight), level, low, high, start, noise=noise, part=part)


def _within(curve: Curve, level: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """Return where a curve reaches levels (..., V) between two near points, by a finer table: few steps, no search."""
    share = torch.linspace(0, 1, FINER + 1, dtype=level.dtype, device=level.device)
    z = low.unsqueeze(-1) + (high - low).unsqueeze(-1) * share
    table = curve(z.flatten(-2))[0].unflatten(-1, (-1, FINER + 1))
    cell = (table < level.unsqueeze(-1)).sum(-1, keepdim=True).clamp(1, FINER) - 1
    lower, upper = (table.gather(-1, cell + more).squeeze(-1) for more in (0, 1))
    inside = ((level - lower) / (upper - lower).clamp_min(1e-30)).clamp(0, 1)
    return low + (high - low) * (cell.squeeze(-1) + inside) / FINER
