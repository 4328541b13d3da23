"""Placed: an adaptive domain where the projection has put it, one place and width for each row."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor
from torch.distributions import constraints

from fourier_head._arrays import common_shape
from fourier_head.domains.domain import Domain
from fourier_head.domains.maps import ValueMap, broadcast_shape
from fourier_head.fourier import spectrum, tails
from fourier_head.fourier.quadrature import legendre, legendre_pieces

if TYPE_CHECKING:
    from fourier_head.bins import Bins
    from fourier_head.densities.fourier import FourierDensity

TAIL_INDEX = 5.0
"""Behind a curved map tails fall off like |x|^-5 or faster: mean, variance, skewness and kurtosis exist."""
TAIL_CORNERS = (1.0, 1.5, 2.5, 4.5, 8.5, 16.5, 32.5, 64.5)
"""Between these lie the nodes of quadrature in the tails; e^-64 of them lies beyond."""


class Placed(Domain):
    r"""An adaptive domain in its place: :math:`v = (map(x) - \mu) / w`, with tails beyond [-1, 1].

    Behind a curved map values would run away exponentially in the tails, and neither mean nor variance exist. Beyond
    the ends of the interval they go on as :math:`x = x_1 \pm \sigma (e^{\xi t} - 1) / \xi` with t = |v| - 1, a unit
    :math:`\sigma` of the values themselves (for asinh the slope dx/dv in the middle of the interval, for the logarithm
    at its end) and :math:`\xi` at most a fifth: generalised Pareto tails, whose first four moments exist.

    Args:
        loc, width: middle and half width of the interval, in units of the map.
        tails: weight of the tails.
        map: of the values.
        bins: laid over the values, where there are any.
    """

    boundary = "periodic"

    def __init__(self, loc: Tensor, width: Tensor, tails: float, map: ValueMap, bins: Bins | None = None):
        self.loc, self.width, self.tails, self.map, self.bins = loc, width, tails, map, bins

    @property
    def support(self) -> constraints.Constraint:  # type: ignore[override]
        return self.map.support

    @property
    def shape(self) -> torch.Size:
        return common_shape(broadcast_shape(self.loc, self.width), self.map.shape)

    def apply(self, function: Callable[[Tensor], Tensor]) -> Placed:
        return Placed(function(self.loc), function(self.width), self.tails, self.map.apply(function), self.bins)

    @property
    def edges(self) -> Tensor | None:
        if self.bins is None:
            return None
        inner = self.bins.edges[1:-1]
        return torch.cat([inner.new_tensor([-math.inf]), inner, inner.new_tensor([math.inf])])

    def contains(self, value: Tensor) -> Tensor:
        return self.map.support.check(value) & torch.isfinite(value)

    def _edge(self, side: int) -> tuple[Tensor, Tensor, Tensor]:
        """Return the value at the lower (-1) or upper (1) end, the unit of the tail, and the growth beyond it."""
        end, inner = (self.loc + side * place * self.width for place in (1.0, self.map.tail_place))
        unit = torch.exp(-self.map.log_slope(inner)) * self.width
        growth = self.width * self.map.growth
        # Where the map is not curved, values come nearer and nearer to an end, as those of the logarithm do to zero.
        growth = growth.clamp(1e-3, 1 / TAIL_INDEX) if self.map.curved[side > 0] else -growth
        return self.map.inverse(end), unit, growth

    def to_unit(self, value: Tensor) -> Tensor:
        v = (self.map.forward(value) - self.loc) / self.width
        for side, curved in zip((-1, 1), self.map.curved, strict=True):
            if curved:
                end, slope, growth = self._edge(side)
                far = (side * (value - end)).clamp_min(0) / slope
                v = torch.where(side * v > 1, side * (1 + torch.log1p(growth * far) / growth), v)
        return v

    def from_unit(self, z: Tensor) -> Tensor:
        value = self.map.inverse(self.loc + self.width * z)
        for side, curved in zip((-1, 1), self.map.curved, strict=True):
            if curved:
                end, slope, growth = self._edge(side)
                far = torch.expm1(growth * (side * z - 1).clamp_min(0)) / growth
                value = torch.where(side * z > 1, end + side * slope * far, value)
        return value

    def log_slope(self, value: Tensor) -> Tensor:
        u = self.map.forward(value)
        v = (u - self.loc) / self.width
        log_slope = self.map.log_slope(u) - self.width.log()
        for side, curved in zip((-1, 1), self.map.curved, strict=True):
            if curved:
                end, slope, growth = self._edge(side)
                far = (side * (value - end)).clamp_min(0) / slope
                log_slope = torch.where(side * v > 1, -slope.log() - torch.log1p(growth * far), log_slope)
        return log_slope

    # --- quadrature

    def nodes(self, resolution: int) -> Tensor:
        # Smooth between these corners: the Fourier density ends at -1 and 1, the tails have a kink at 0.
        beyond = _tail_nodes()
        return torch.cat([beyond.flip(1) * torch.tensor([[-1.0], [1.0]]), self._core(resolution), beyond], 1)

    @staticmethod
    def _core(resolution: int) -> Tensor:
        return legendre_pieces((-1.0, 0.0, 1.0), resolution)

    def corners(self, count: int) -> Tensor:
        beyond = torch.tensor(TAIL_CORNERS[1:], dtype=torch.float64)
        return torch.cat([-beyond.flip(0), super().corners(2 * math.ceil(count / 2)), beyond])

    def nodes_beyond(self, z: Tensor, upper: Tensor, resolution: int) -> tuple[Tensor, Tensor]:
        x, w = (torch.as_tensor(a).to(z).reshape(-1, *(1,) * (z.dim() + 1)) for a in legendre(resolution + 16))
        sign = torch.where(upper, 1.0, -1.0).to(z)
        corners = z.new_tensor((-1.0, 0.0, *TAIL_CORNERS)).reshape(-1, *(1,) * z.dim())
        # The corners that lie beyond z, on its side; those before it collapse to z and count nothing.
        ends = torch.maximum(corners, sign * z)
        half = ends.diff(dim=0) / 2
        return (sign * (ends[:-1] + half * (1 + x))).flatten(0, 1), (half * w).flatten(0, 1)

    # --- moments and scores

    @property
    def _straight_map(self) -> bool:
        return not any(self.map.curved)

    @property
    def affine_of_rows(self) -> tuple[Tensor, Tensor] | None:
        return (self.map.inverse(self.loc), self.map.scale * self.width) if self._straight_map else None

    def mean(self, d: FourierDensity) -> Tensor:
        """Return the mean; behind a curved map, whose tails have four moments, by quadrature."""
        if self._straight_map:
            return self.map.inverse(self.loc + self.width * (1 - self.tails) * spectrum.mean(d.spectrum, d.walls))
        # From the middle on: far from zero, the digits that matter would be lost to rounding of the probabilities.
        middle = self.map.inverse(self.loc)
        inside = d.expect(lambda x: x - middle, self._core(d.resolution))
        far = [end - middle + first for end, first, _ in self._beyond()]
        return middle + inside + tails.beyond(self.tails) * (far[0] + far[1])

    def variance(self, d: FourierDensity) -> Tensor:
        if self._straight_map:
            q = d.spectrum
            mean = (1 - self.tails) * spectrum.mean(q, d.walls)
            second = (1 - self.tails) * spectrum.second_moment(q, d.walls) + 2 * self.tails
            return (second - mean**2).clamp_min(0) * (self.width * self.map.scale) ** 2
        mean = self.mean(d)
        inside = d.expect(lambda x: (x - mean) ** 2, self._core(d.resolution))
        far = [(end - mean) ** 2 + 2 * (end - mean) * first + second for end, first, second in self._beyond()]
        return inside + tails.beyond(self.tails) * (far[0] + far[1])

    def _beyond(self) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Yield the lower and the upper end, and the first two moments of what lies beyond, counted from there."""
        for side in (-1, 1):
            end, slope, growth = self._edge(side)
            yield end, side * slope / (1 - growth), 2 * slope**2 / ((1 - growth) * (1 - 2 * growth))

    def entropy(self, d: FourierDensity) -> Tensor:
        """Return the entropy by quadrature in pieces; no grid has the tails."""
        return -d.expect_of_log(lambda _, log_prob: log_prob)

    def crps_of_map(self, d: FourierDensity, value: Tensor) -> Tensor:
        """Return the score in the coordinate of the map, in closed form."""
        off = self.map.forward(value) - self.loc
        far = TAIL_CORNERS[-1]
        v = (off / self.width).clamp(-far, far).to(self.loc.dtype)
        score = d.at_points(lambda q, y: spectrum.crps_with_tails(q, y, self.tails, d.walls), d.spectrum, v)
        # Beyond all tails it is a distance, in whose rounding the gradient of the width would be lost.
        return score * self.width + (off.abs() - far * self.width).clamp_min(0).to(score.dtype)

    def crps(self, d: FourierDensity, value: Tensor) -> Tensor:
        """Return the score: in closed form behind an affine map, else by quadrature."""
        return self.crps_of_map(d, value) * self.map.scale if self._straight_map else super().crps(d, value)

    def __repr__(self) -> str:
        return f"Placed(batch_shape={tuple(self.shape)}, tails={self.tails:g}, map={self.map.kind})"


def _tail_nodes() -> Tensor:
    """Return nodes of the upper tail and their weights, rows of a tensor."""
    x, w = legendre(10)
    ends = np.array(TAIL_CORNERS)
    half = np.diff(ends)[:, None] / 2
    return torch.from_numpy(np.stack([(ends[:-1, None] + half * (1 + x)).ravel(), (half * w).ravel()]))
