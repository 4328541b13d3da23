"""Invert distribution functions: the one routine behind all quantiles and samples."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import torch
from torch import Tensor

from fourier_head._arrays import needs_sync
from fourier_head.fourier import series, spectrum, tails

Curve = Callable[[Tensor], tuple[Tensor, Tensor]]
"""A distribution function and its density at points of any shape that broadcasts with the levels."""

Part = Callable[[tuple[Tensor, ...]], Curve]
"""The curve at some of the points, named by their indices."""

FEW = 0.5
"""Share of points still unsolved below which they go on by themselves."""


def _rounds(dtype: torch.dtype, looking: bool) -> int:
    """Return how many points to try at most; where nobody looks at the errors, as many as are needed as a rule."""
    if looking:
        return 60
    return 12 if dtype == torch.float32 else 36


def _part_of_part(part: Part, where: tuple[Tensor, ...], some: tuple[Tensor, ...]) -> Curve:
    return part(tuple(index[some] for index in where))


@torch.no_grad()
def invert(
    curve: Curve,
    level: Tensor,
    low: Tensor,
    high: Tensor,
    start: Tensor,
    *,
    tolerance: float | None = None,
    noise: float = 0.0,
    part: Part | None = None,
) -> Tensor:
    """Return x with F(x) = level by Newton steps kept inside a shrinking bracket; bisection where they fail.

    Args:
        curve: F and its density.
        level: levels, of the shape of the result.
        low, high: points between which the results lie.
        start: first points to try.
        tolerance: relative error of the level, or of its distance to one, that is good enough; rounding unless given.
        noise: error of F from rounding; what is nearer to a level than this counts as found.
        part: gives the curve at some of the points, named by their indices, so that the last few go on without the
            others.

    Example:
        >>> cubic = lambda x: (x**3, 3 * x**2)
        >>> zero, one = torch.zeros(2), torch.ones(2)
        >>> invert(cubic, torch.tensor([0.125, 0.729]), zero, one, one / 2)
        tensor([0.5000, 0.9000])
    """
    # Under a tracer, or where looking would make the host wait, the number of rounds is fixed.
    looking, turn = not torch.compiler.is_compiling() and not needs_sync(level), 0
    eps = torch.finfo(start.dtype).eps
    tolerance = torch.finfo(level.dtype).eps if tolerance is None else tolerance
    # Relative to the nearer end, so that levels far out are as exact as those in the middle.
    enough = (tolerance * torch.minimum(level, 1 - level)).clamp_min(noise)
    x, step = start, high - low
    finest = eps * step
    while turn < _rounds(start.dtype, looking):
        value, density = curve(x)
        error, turn = value - level, turn + 1
        looking = looking and not needs_sync(error)  # a transform may have wrapped the curve and not the levels
        low, high = torch.where(error < 0, x, low), torch.where(error > 0, x, high)
        newton = error / density.clamp_min(torch.finfo(density.dtype).tiny)
        # A Newton step that leaves the bracket, or does not halve the last step, gives way to bisection.
        resolution = torch.maximum(finest, 2 * eps * x.abs())
        small = newton.abs() <= torch.maximum(0.5 * step, resolution)
        good = small & (x - newton >= low) & (x - newton <= high)
        new = torch.where(good, x - newton, (low + high) / 2)
        # What is found stays, so that no quantile depends on which others are asked for.
        done = (error.abs() <= enough) | (high - low <= resolution)
        new = torch.where(done, x, new)
        done = done | (good & (newton.abs() <= resolution))
        step = (new - x).abs()
        x = new
        if looking:
            left = ~done
            count = int(left.sum())
            if not count:
                break
            if part is not None and count < FEW * left.numel():
                where = left.nonzero(as_tuple=True)
                some = (t[where] for t in (level, low, high, x))
                fewer = functools.partial(_part_of_part, part, where)
                x[where] = invert(part(where), *some, tolerance=tolerance, noise=noise, part=fewer)
                break
    return x


@torch.no_grad()
def highest(height: Callable[[Tensor], Tensor], low: Tensor, high: Tensor) -> Tensor:
    """Return where a function that rises and then falls between two points is highest, by golden-section search.

    >>> low, high = torch.tensor([0.0, 1.0], dtype=torch.float64)
    >>> highest(lambda x: -((x - 0.3) ** 2), low, high).round(decimals=6)
    tensor(0.3000, dtype=torch.float64)
    """
    ratio = (math.sqrt(5) - 1) / 2
    # So often that of the bracket no more is left than rounding leaves of a peak.
    for _ in range(24 if low.dtype == torch.float32 else 40):
        left, right = high - ratio * (high - low), low + ratio * (high - low)
        keep_left = height(left) > height(right)
        low, high = torch.where(keep_left, low, left), torch.where(keep_left, right, high)
    return (low + high) / 2


def with_implicit_gradient(x: Tensor, residual: Tensor, density: Tensor) -> Tensor:
    r"""Return x, the solution of F(x) = level, with the gradients that follow from it.

    From :math:`F(x; \theta) = u` follow :math:`dx/du = 1/p(x)` and
    :math:`dx/d\theta = -(\partial F/\partial\theta) / p(x)`.

    Args:
        x: the solution, without gradient.
        residual: F(x) - level, with gradients to the parameters and the level.
        density: p(x), kept from zero.
    """
    return x - (residual - residual.detach()) / density.detach()


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
