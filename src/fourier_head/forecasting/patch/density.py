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
from fourier_head._quadrature import legendre
from fourier_head.forecasting.patch.scaling import Scale
from fourier_head.scalar import ScalarDensity

CELLS = 256
"""Cells of the table from which quantiles start; a density of N harmonics needs some 8 N."""
OUTSIDE = 0.0005
"""Probability on either side of the central 99.9 %, which moments and the ranked score are those of."""


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

    def to(self, dtype: torch.dtype) -> ForecastDensity:
        """Return the same density in another dtype."""
        scale = self.scale._replace(loc=self.scale.loc.to(dtype), scale=self.scale.scale.to(dtype))
        return ForecastDensity(self.coefficients.to(dtype), self.loc.to(dtype), self.width.to(dtype), self.tails, scale)

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

    # --- summaries

    def moments(self) -> tuple[Tensor, Tensor]:
        """Return mean and variance of the central 99.9 % in float64, by quadrature over places.

        Where its ends lie in the tails no coefficient moves them, and the same places serve all densities: one product
        of matrices.
        """
        if self.tails * math.exp(-1) / 2 > OUTSIDE:
            end = math.log(self.tails / (2 * OUTSIDE))
            ends = self.loc.new_tensor([-end, end])
        else:
            ends = self._places(self.loc.new_tensor([OUTSIDE, 1 - OUTSIDE]).repeat(*self.batch_shape, 1))
        low, high = ends.to(_finest(ends)).unbind(-1)
        # Smooth between these corners: the Fourier density ends at -1 and 1, the tails have a kink at 0.
        corners = torch.stack([low, *(low.new_tensor(x).clamp(low, high) for x in (-1.0, 0.0, 1.0)), high], dim=-1)
        # Enough of them for the highest harmonic, half of which lies between two corners.
        t, w = (low.new_tensor(a) for a in legendre(max(24, self.coefficients.shape[-1] + 11)))
        half = corners.diff(dim=-1).unsqueeze(-1) / 2
        place, weight = (corners[..., :-1, None] + half * (1 + t)).flatten(-2), (half * w).flatten(-2)
        core = spectrum.density(self.spectrum, place.clamp(-1, 1)).to(place)
        core = torch.where(place.abs() < 1, core, 0.0)
        share = weight * ((1 - self.tails) * core + self.tails / 2 * torch.exp(-place.abs()))
        share = share / share.sum(-1, keepdim=True)
        scale = self.scale._replace(loc=self.scale.loc.unsqueeze(-1), scale=self.scale.scale.unsqueeze(-1))
        x = scale.from_unit(self.loc.unsqueeze(-1) + self.width.unsqueeze(-1) * place)
        mean = (share * x).sum(-1)
        return mean, (share * (x - mean.unsqueeze(-1)).square()).sum(-1)

    @property
    def mean(self) -> Tensor:
        """The mean of the central 99.9 %: exponential tails in u have none in x."""
        return self.moments()[0].to(self.loc.dtype)

    @property
    def variance(self) -> Tensor:
        """The variance of the central 99.9 %."""
        return self.moments()[1].to(self.loc.dtype)

    def entropy(self) -> Tensor:
        """Return the differential entropy in nats."""
        one = self.expand((1, *self.batch_shape))
        return mixed_entropy(one, self.loc.new_ones(1)).to(self.loc.dtype)

    @property
    def mode(self) -> Tensor:
        """The value of the highest density, to a 400th of the interval that holds 99.9 %."""
        ends = self.quantile(self.loc.new_tensor([OUTSIDE, 1 - OUTSIDE]))
        share = torch.linspace(0, 1, 401, dtype=self.loc.dtype, device=self.loc.device)
        x = ends[0] + share.reshape(-1, *(1,) * len(self.batch_shape)) * (ends[1] - ends[0])
        return x.gather(0, self.log_prob(x).argmax(0, keepdim=True)).squeeze(0)

    def crps(self, value: Tensor | float) -> Tensor:
        """Return the continuous ranked probability score of the central 99.9 %."""
        return crps_over_levels(self, value)


def mixed_entropy(densities: ForecastDensity, weights: Tensor) -> Tensor:
    """Return the entropy in nats of mixtures over the first dimension of a batch, by quadrature.

    Mixtures are smooth between the corners of all their parts. Averages of -log p over levels would see too little of
    the places where p is almost zero.
    """
    d = densities.expand(densities.batch_shape).to(_finest(densities.loc))
    place = d.loc.new_tensor(entropy_corners(d.coefficients.shape[-1] - 1, d.batch_shape[0]))
    x = d.scale.from_unit(d.loc + d.width * place.reshape(-1, *(1,) * len(d.batch_shape)))
    # In the unit of a density in the middle, where exponential tails stay exponential.
    middle = d[d.batch_shape[0] // 2].scale
    ends = middle.to_unit(x).flatten(0, 1).sort(0).values
    half = ends.diff(dim=0) / 2
    log_weights = weights.to(d.loc).log().reshape(-1, *(1,) * (len(d.batch_shape) - 1))
    total = torch.zeros_like(ends[0])
    for t, w in np.stack(legendre(8), 1).tolist():
        u = ends[:-1] + half * (1 + t)
        log_p = (d.log_prob(middle.from_unit(u).unsqueeze(1)) + log_weights).logsumexp(1)
        total = total - (w * half * (log_p + middle.log_slope(u)).exp() * log_p).sum(0)
    return total


@functools.lru_cache(maxsize=8)
def entropy_corners(harmonics: int, parts: int) -> tuple[float, ...]:
    """Return the places of each part of a mixture that bound the pieces; beyond 20 lie 2e-9 of the tails.

    Half a wave to a piece for one part; fewer for many, whose corners lie among each other and whose errors weigh less.
    """
    count = 2 * math.ceil(max(8, harmonics) / math.sqrt(parts))
    tail = (2.5, 7.0, 20.0)
    inside = (-1 + 2 * k / count for k in range(count + 1))
    return (*(-x for x in reversed(tail)), *inside, *tail)


def crps_over_levels(density: ScalarDensity, value: Tensor | float) -> Tensor:
    """Return the continuous ranked probability score, twice the pinball loss averaged over the central 99.9 %."""
    like, value = density._like, density._value(value)
    level, weight = (torch.as_tensor(a, dtype=like.dtype, device=like.device) for a in _level_quadrature())
    x = density.quantile(level)
    x = x.reshape(len(x), *(1,) * max(value.dim() - x.dim() + 1, 0), *x.shape[1:])
    level, weight = (a.reshape(-1, *(1,) * (x.dim() - 1)) for a in (level, weight))
    error = value - x
    return 2 * (weight * torch.maximum(level * error, (level - 1) * error)).sum(0)


def _finest(like: Tensor) -> torch.dtype:
    """Return the finest dtype that the device of a tensor has."""
    return torch.float32 if like.device.type == "mps" else torch.float64


def _laplace_cdf(v: Tensor) -> Tensor:
    half = torch.exp(-v.abs()) / 2
    return torch.where(v < 0, half, 1 - half)


@functools.lru_cache(maxsize=1)
def _level_quadrature() -> tuple[np.ndarray, np.ndarray]:
    """Return central levels and their weights: Gauss-Legendre in pieces that grow finer to the ends."""
    corners = np.array([OUTSIDE, 0.002, 0.01, 0.05, 0.25, 0.75, 0.95, 0.99, 0.998, 1 - OUTSIDE])
    x, w = legendre(12)
    half = np.diff(corners)[:, None] / 2
    levels, weights = (corners[:-1, None] + half * (1 + x)).ravel(), (half * w).ravel()
    return levels, weights / weights.sum()
