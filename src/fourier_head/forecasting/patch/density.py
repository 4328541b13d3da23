"""ForecastDensity: the predictive distribution of one future value, a Fourier density with tails."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.distributions import Distribution, constraints

from fourier_head import series, spectrum
from fourier_head.forecasting.patch.scaling import Scale
from fourier_head.scalar import ScalarDensity

CELLS = 256
"""Cells of the table from which quantiles start; a density of N harmonics needs some 8 N."""


class ForecastDensity(ScalarDensity):
    r"""Represent the density of a future value.

    .. math:: u = \mathrm{asinh}\frac{x - m}{s}, \qquad
        p(u) = \frac{1 - \epsilon}{w} p_a\!\left(\frac{u - \mu}{w}\right) + \frac{\epsilon}{2 w} e^{-|u - \mu| / w}

    with the Fourier density p_a on [-1, 1]. The interval around the location is learned with it; the tails, a Laplace
    density of small weight, give every outcome a finite likelihood.

    Args:
        coefficients: of the Fourier density, (..., R, 2, N+1), the density a sum of R squares.
        loc, width: middle and half width of the interval in u, (...).
        tails: the weight epsilon.
        scale: how values become u.

    Example:
        >>> flat = torch.zeros(1, 2, 4)
        >>> zero, one, five, two = torch.tensor([0.0, 1.0, 5.0, 2.0])
        >>> d = ForecastDensity(flat, zero, one, 0.01, Scale(five, two))
        >>> d.quantile([0.25, 0.5])
        tensor([3.9554, 5.0000])
    """

    arg_constraints: ClassVar[dict[str, constraints.Constraint]] = {}
    support = constraints.real

    def __init__(self, coefficients: Tensor, loc: Tensor, width: Tensor, tails: float, scale: Scale):
        self.coefficients, self.loc, self.width, self.tails, self.scale = coefficients, loc, width, tails, scale
        shapes = (coefficients.shape[:-3], loc.shape, width.shape, scale.loc.shape)
        super().__init__(torch.broadcast_shapes(*shapes), validate_args=False)

    @property
    def _like(self) -> Tensor:  # type: ignore[override]
        return self.loc

    def expand(self, batch_shape: Sequence[int] | torch.Size, _instance: Distribution | None = None) -> ForecastDensity:
        """Return the same density for a larger batch, without copying."""
        shape = torch.Size(batch_shape)
        scale = self.scale._replace(loc=self.scale.loc.expand(shape), scale=self.scale.scale.expand(shape))
        coefficients = self.coefficients.expand(*shape, *self.coefficients.shape[-3:])
        return ForecastDensity(coefficients, self.loc.expand(shape), self.width.expand(shape), self.tails, scale)

    def __getitem__(self, index: object) -> ForecastDensity:
        """Return the densities of some series or steps."""
        full = self.expand(self.batch_shape)
        scale = full.scale._replace(loc=full.scale.loc[index], scale=full.scale.scale[index])  # type: ignore[index]
        return ForecastDensity(full.coefficients[index], full.loc[index], full.width[index], self.tails, scale)  # type: ignore[index]

    @functools.cached_property
    def spectrum(self) -> Tensor:
        """The coefficients q_k of the Fourier density."""
        return spectrum.of_coefficients(self.coefficients, squares=True)

    def _place(self, value: Tensor | float) -> Tensor:
        """Return the place (u - loc) / width of values."""
        return (self.scale.to_unit(self._value(value)) - self.loc) / self.width

    def log_prob_of_unit(self, u: Tensor) -> Tensor:
        """Return the log-density of u itself."""
        v = (u - self.loc) / self.width
        core = series.log_density(self.coefficients, v.clamp(-1, 1).unsqueeze(-1), 0.0, True).squeeze(-1)
        core = torch.where(v.abs() <= 1, core + math.log1p(-self.tails), -torch.inf)
        return torch.logaddexp(core, math.log(self.tails / 2) - v.abs()) - self.width.log()

    def log_prob(self, value: Tensor | float) -> Tensor:
        """Return the log-density."""
        u = self.scale.to_unit(self._value(value))
        return self.log_prob_of_unit(u) - self.scale.log_slope(u)

    def _cdf_of_place(self, v: Tensor) -> Tensor:
        core = spectrum.cdf(self.spectrum, v.clamp(-1, 1).unsqueeze(-1)).squeeze(-1)
        return (1 - self.tails) * core + self.tails * _laplace_cdf(v)

    def cdf(self, value: Tensor | float) -> Tensor:
        """Return P(X <= value)."""
        return self._cdf_of_place(self._place(value))

    def _icdf(self, level: Tensor) -> Tensor:
        shape = torch.broadcast_shapes(level.shape, self.batch_shape)
        batch = len(self.batch_shape)
        # Levels last: (*batch, points).
        points = level.expand(shape).reshape(-1, *shape[len(shape) - batch :]).movedim(0, -1).contiguous()
        v = self._places(points).movedim(-1, 0).reshape(shape)
        return self.scale.from_unit(self.loc + self.width * v)

    def _places(self, level: Tensor) -> Tensor:
        """Return v with F(v) = level (..., points): a table, a straight line within its cell, two Newton steps."""
        q = self.spectrum.expand(*level.shape[:-1], *self.spectrum.shape[-2:])
        z = torch.linspace(-1, 1, CELLS + 1, dtype=q.dtype, device=q.device)
        table = (1 - self.tails) * spectrum.cdf_grid(q, CELLS) + self.tails * _laplace_cdf(z)
        cell = (torch.searchsorted(table, level).clamp(1, CELLS) - 1).detach()
        low, high = table.gather(-1, cell), table.gather(-1, cell + 1)
        start = -1 + 2 * cell.to(q.dtype) / CELLS
        v = start + 2 / CELLS * ((level - low) / (high - low)).clamp(0, 1)
        for _ in range(2):
            core, slope = spectrum.cdf_and_density(q, v)
            error = (1 - self.tails) * core + self.tails * _laplace_cdf(v) - level
            slope = (1 - self.tails) * slope + self.tails * torch.exp(-v.abs()) / 2
            v = (v - error / slope).clamp(start, start + 2 / CELLS)
        edge = self.tails * math.exp(-1) / 2
        outside = (2 * torch.minimum(level, 1 - level) / self.tails).log()
        return torch.where(level < edge, outside, torch.where(level > 1 - edge, -outside, v))

    # --- summaries, by quadrature over levels: x(level) is smooth, and the tails are far out but light

    def _levels(self) -> tuple[Tensor, Tensor, Tensor]:
        nodes, weights = _level_quadrature()
        column = (-1, *(1,) * len(self.batch_shape))
        level, weight = (torch.as_tensor(a, dtype=self.loc.dtype, device=self.loc.device) for a in (nodes, weights))
        return level.reshape(column), weight.reshape(column), self.quantile(level)

    @property
    def mean(self) -> Tensor:
        """The mean of the central 99.9 %: exponential tails in u have none in x."""
        _, weight, x = self._levels()
        return (weight * x).sum(0)

    @property
    def variance(self) -> Tensor:
        """The variance of the central 99.9 %."""
        _, weight, x = self._levels()
        mean = (weight * x).sum(0)
        return (weight * (x - mean) ** 2).sum(0)

    def entropy(self) -> Tensor:
        """Return the differential entropy in nats: of the interval on a grid, of the tails in closed form."""
        column = (-1, *(1,) * len(self.batch_shape))
        v = series.bin_centers(2048, self.loc.dtype, self.loc.device).reshape(column)
        log_p = self.log_prob_of_unit(self.loc + self.width * v) + self.width.log()
        inside = -(2 / len(v)) * (log_p.exp() * log_p).sum(0)
        outside = self.tails * math.exp(-1) * (2 - math.log(self.tails / 2))
        _, weight, x = self._levels()
        stretch = (weight * self.scale.log_slope(self.scale.to_unit(x))).sum(0)
        return inside + outside + self.width.log() + stretch

    @property
    def mode(self) -> Tensor:
        """The value of the highest density, to a 400th of the interval that holds 99.9 %."""
        ends = self.quantile(self.loc.new_tensor([0.0005, 0.9995]))
        share = torch.linspace(0, 1, 401, dtype=self.loc.dtype, device=self.loc.device)
        x = ends[0] + share.reshape(-1, *(1,) * len(self.batch_shape)) * (ends[1] - ends[0])
        return x.gather(0, self.log_prob(x).argmax(0, keepdim=True)).squeeze(0)

    def crps(self, value: Tensor | float) -> Tensor:
        """Return the continuous ranked probability score, twice the pinball loss averaged over levels."""
        level, weight, x = self._levels()
        value = self._value(value)
        extra = value.dim() - len(self.batch_shape)
        for _ in range(max(extra, 0)):
            level, weight, x = level.unsqueeze(1), weight.unsqueeze(1), x.unsqueeze(1)
        error = value - x
        return 2 * (weight * torch.maximum(level * error, (level - 1) * error)).sum(0)


def _laplace_cdf(v: Tensor) -> Tensor:
    half = torch.exp(-v.abs()) / 2
    return torch.where(v < 0, half, 1 - half)


@functools.lru_cache(maxsize=1)
def _level_quadrature() -> tuple[np.ndarray, np.ndarray]:
    """Return levels in (0.0005, 0.9995) and their weights: Gauss-Legendre in pieces that grow finer to the ends."""
    corners = np.array([0.0005, 0.002, 0.01, 0.05, 0.25, 0.75, 0.95, 0.99, 0.998, 0.9995])
    x, w = np.polynomial.legendre.leggauss(12)
    half = np.diff(corners) / 2
    levels = (corners[:-1] + corners[1:])[:, None] / 2 + half[:, None] * x
    weights = (half[:, None] * w).ravel()
    return levels.ravel(), weights / weights.sum()
