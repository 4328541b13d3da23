"""Invert the cumulative distribution of a spectrum, for quantiles and samples."""

from __future__ import annotations

import torch
from torch import Tensor

from fourier_head import kernels, series, spectrum
from fourier_head._arrays import widened


@torch.no_grad()
def _solve(q: Tensor, u: Tensor) -> Tensor:
    """Return z with F(z) = u by Newton steps kept inside a shrinking bracket; no host synchronisation."""
    cells = 1 << max(6, (8 * q.shape[-1] - 1).bit_length())
    grid = spectrum.cdf_grid(q, cells)
    grid = grid.expand(*u.shape[:-1], grid.shape[-1]).contiguous()
    if series.exporting():  # ONNX has no binary search
        place = (grid.unsqueeze(-2) < u.unsqueeze(-1)).sum(-1)
    else:
        place = torch.searchsorted(grid, u.contiguous())
    cell = place.clamp(1, cells) - 1
    lower, upper = grid.gather(-1, cell), grid.gather(-1, cell + 1)
    low = -1 + 2 * cell.to(u.dtype) / cells
    high = low + 2 / cells
    z = low + (high - low) * ((u - lower) / (upper - lower).clamp_min(1e-30)).clamp(0, 1)
    step = high - low
    resolution = 4 * torch.finfo(u.dtype).eps
    for _ in range(12 if u.dtype == torch.float32 else 36):
        value, density = spectrum.cdf_and_density(q, z)
        error = value - u
        low = torch.where(error < 0, z, low)
        high = torch.where(error > 0, z, high)
        newton = error / density.clamp_min(1e-30)
        # A Newton step that leaves the bracket, or does not halve the last step, gives way to bisection.
        small = newton.abs() <= (0.5 * step).clamp_min(resolution)
        good = small & (z - newton >= low) & (z - newton <= high)
        new = torch.where(good, z - newton, (low + high) / 2)
        step = (new - z).abs()
        z = new
    return z


def icdf_of_coefficients(a: Tensor, u: Tensor, floor: float) -> Tensor:
    """Return the quantiles z of levels (..., V) from coefficients (..., rows, L), by the kernels: no gradients."""
    z = kernels.coefficient_quantile(a.reshape(-1, *a.shape[-2:]), u.reshape(-1, u.shape[-1]), floor=floor)
    return z.view(u.shape)


def icdf(q: Tensor, u: Tensor, impl: str = "auto") -> Tensor:
    r"""Return the quantiles z of levels (..., V), with implicit gradients; by the kernels where none is wanted.

    From :math:`F(z; q) = u` follow :math:`dz/du = 1/p(z)` and :math:`dz/dq = -(\partial F / \partial q) / p(z)`.
    Levels at the ends give the ends of the interval.
    """
    q = widened(q)
    u = u.to(q.dtype)
    if kernels.wanted(impl, q, u):
        levels = u.expand(*q.shape[:-2], u.shape[-1]) if u.dim() < q.dim() else u
        spectra = q.expand(*levels.shape[:-1], *q.shape[-2:]).reshape(-1, *q.shape[-2:])
        return kernels.quantile(spectra, levels.reshape(-1, u.shape[-1])).view(levels.shape)
    z = _solve(q.detach(), u.detach())
    if torch.is_grad_enabled() and (q.requires_grad or u.requires_grad):
        with torch.no_grad():
            density = spectrum.density(q, z).clamp_min(1e-12)
        residual = spectrum.cdf(q, z) - u
        z = z - (residual - residual.detach()) / density
    return torch.where(u <= 0, -torch.ones_like(z), torch.where(u >= 1, torch.ones_like(z), z))
