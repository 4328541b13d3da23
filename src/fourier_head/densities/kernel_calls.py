"""What the kernels can tell of a Fourier density; every function returns None where they do not apply."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from fourier_head import kernels
from fourier_head._arrays import common_shape

if TYPE_CHECKING:
    from fourier_head.densities.fourier import FourierDensity


def coefficients(d: FourierDensity, *others: Tensor) -> Tensor | None:
    """Return coefficients (*batch, rows, L) of one square; None too where the spectrum is known or needed."""
    single = not d.squares or d.given.shape[-3] == 1
    if single and not d.blur and not d.has_spectrum and kernels.wanted(d.impl, d.given, *others):
        return d.given.squeeze(-3) if d.squares else d.given
    return None


def _source(d: FourierDensity, *others: Tensor) -> tuple[Tensor, bool] | None:
    """Return coefficients, or the spectrum where it is known or needed, and whether it is that."""
    a = coefficients(d, *others)
    if a is not None:
        return a, False
    return (d.spectrum, True) if kernels.wanted(d.impl, d.given, *others) else None


def _rows(a: Tensor) -> Tensor:
    return a.reshape(-1, *a.shape[-2:])


def log_density(d: FourierDensity, z: Tensor) -> Tensor | None:
    """Return the log-density at one point z of [-1, 1] per density."""
    a = coefficients(d, z) if z.shape == d.batch_shape else None
    if a is None:
        return None
    return kernels.log_density(_rows(a), z.reshape(-1), floor=d.floor).view(z.shape)


def cdf(d: FourierDensity, z: Tensor) -> Tensor | None:
    """Return the distribution function at points z of [-1, 1], without tails."""
    found = None if d.has_spectrum else _source(d, z)
    if found is None:
        return None

    def of_points(source: Tensor, z: Tensor) -> Tensor:
        points = z.reshape(-1, z.shape[-1])
        return kernels.distribution(_rows(source), points, floor=d.floor, spectra=found[1]).view(z.shape)

    return d.at_points(of_points, found[0], z.expand(common_shape(z.shape, d.batch_shape)))


def unit_quantiles(d: FourierDensity, level: Tensor) -> Tensor | None:
    """Return z with F(z) = level, tails included, for levels that have the shape of the batch or of samples of it."""
    found = _source(d, level)
    if found is None:
        return None
    options: dict[str, Any] = {"floor": d.floor, "tails": d.domain.tails, "spectra": found[1]}

    def of_levels(source: Tensor, level: Tensor) -> Tensor:
        return kernels.quantile(_rows(source), level.reshape(-1, level.shape[-1]), **options).view(level.shape)

    return d.at_points(of_levels, found[0], level)


def quantiles(d: FourierDensity, level: Tensor) -> Tensor | None:
    """Return the values (*level.shape, *batch) of a few levels, in order."""
    found = _source(d, level) if level.numel() <= kernels.FEW_LEVELS else None
    if found is None:
        return None
    line, placed = d.domain.affine, d.domain.affine_of_rows
    options: dict[str, Any] = {"floor": d.floor, "tails": d.domain.tails, "spectra": found[1]}
    if placed is not None and placed[0].dtype == torch.float64:
        placed = None  # such values have more digits than the kernels
    if placed is not None:
        loc, width = (number.expand(d.batch_shape).reshape(-1) for number in placed)
        options |= {"loc": loc, "width": width}
    values = kernels.ordered_quantiles(_rows(found[0]), level.reshape(-1), *(line or ()), **options)
    values = values.view(level.shape + d.batch_shape)
    return values if line or placed else d.domain.quantile_of_unit(values)


def sample(d: FourierDensity, sample_shape: Sequence[int], generator: torch.Generator | None) -> Tensor | None:
    """Return one value per density, drawn digit by digit."""
    a = coefficients(d) if math.prod(sample_shape) == 1 and not d.domain.tails else None
    if a is None or a.shape[-1] > kernels.FEW_COEFFICIENTS:
        return None
    z = kernels.coefficient_sample(_rows(a), floor=d.floor, generator=generator)
    return d.domain.from_unit(z.view(*sample_shape, *d.batch_shape))
