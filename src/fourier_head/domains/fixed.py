"""Domains that stay where they are: an interval, a circle, the real line, bins of any widths."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor
from torch.distributions import constraints

from fourier_head._arrays import common_shape, widest
from fourier_head.domains.domain import Boundary, Domain, fine_grid
from fourier_head.domains.maps import Number, check_positive, log_of
from fourier_head.fourier import spectrum
from fourier_head.fourier.quadrature import double_exponential, legendre_pieces, midpoints

if TYPE_CHECKING:
    from fourier_head.bins import Bins
    from fourier_head.densities.fourier import FourierDensity


def _named(name: str, first: Number, second: Number) -> tuple[str, float, float] | None:
    """Return a formula of numbers, None for one of tensors."""
    if isinstance(first, Tensor) or isinstance(second, Tensor):
        return None
    return name, float(first), float(second)


class Interval(Domain):
    """The interval [low, high].

    >>> Interval(0, 10).to_unit(torch.tensor([0.0, 5.0, 10.0]))
    tensor([-1.,  0.,  1.])
    """

    bounded = True
    numbers = ("low", "high")

    def __init__(self, low: Number = -1.0, high: Number = 1.0):
        for end in (low, high):
            if isinstance(end, str):
                raise TypeError(f"low and high must be numbers, got {end!r}")
        if not isinstance(low, Tensor) and not isinstance(high, Tensor) and not -math.inf < low < high < math.inf:
            raise ValueError(f"low must be less than high, both finite, got low={low} and high={high}")
        self.low, self.high = low, high

    @property
    def support(self) -> constraints.Constraint:  # type: ignore[override]
        return constraints.interval(self.low, self.high)

    @property
    def half_width(self) -> Number:
        return (self.high - self.low) / 2

    @property
    def affine(self) -> tuple[float, float] | None:
        if isinstance(self.low, Tensor) or isinstance(self.high, Tensor):
            return None
        return float(self.low), (self.high - self.low) / 2

    @property
    def formula(self) -> tuple[str, float, float] | None:
        return None if self.affine is None else ("interval", *self.affine)

    def contains(self, value: Tensor) -> Tensor:
        return (value >= self.low) & (value <= self.high)

    def to_unit(self, value: Tensor) -> Tensor:
        return ((value - self.low) / self.half_width - 1).clamp(-1, 1)

    def from_unit(self, z: Tensor) -> Tensor:
        value = self.low + (z + 1) * self.half_width
        # Rounding may carry an end across itself, where the density is zero.
        if isinstance(self.low, Tensor) or isinstance(self.high, Tensor):
            low, high = (torch.as_tensor(end).to(value) for end in (self.low, self.high))
            return torch.minimum(torch.maximum(value, low), high)
        return value.clamp(self.low, self.high)

    def log_slope(self, value: Tensor) -> Tensor:
        return torch.zeros_like(value) - log_of(self.half_width)

    def nodes(self, resolution: int) -> Tensor:
        return midpoints(fine_grid(resolution))

    def mean(self, d: FourierDensity) -> Tensor:
        return self.from_unit(spectrum.mean(d.spectrum, d.walls))

    def variance(self, d: FourierDensity) -> Tensor:
        q = d.spectrum
        unit = (spectrum.second_moment(q, d.walls) - spectrum.mean(q, d.walls) ** 2).clamp_min(0)
        return unit * self.half_width**2

    def mean_log_slope(self, d: FourierDensity) -> Tensor:
        return self.log_slope(d.mean)

    def crps(self, d: FourierDensity, value: Tensor) -> Tensor:
        """Return the closed form; for values outside, the distance is added."""
        z = self.to_unit(value)
        beyond = (value - self.from_unit(z)).abs()
        score = d.at_points(lambda q, v: spectrum.crps(q, v, d.walls), d.spectrum, z)
        return score * self.half_width + beyond.to(score.dtype)

    def __repr__(self) -> str:
        return f"Interval({self.low}, {self.high})"


class Circle(Domain):
    """A circle of any period, cut at ``low``; values one period apart are the same point.

    >>> Circle(24.0).to_unit(torch.tensor([6.0, 30.0]))
    tensor([-0.5000, -0.5000])
    """

    boundary = "periodic"
    wraps = True
    numbers = ("period", "low")

    def __init__(self, period: Number = 2 * math.pi, low: Number = 0.0):
        check_positive("period", period)
        self.period, self.low = period, low

    def check_boundary(self, boundary: Boundary) -> None:
        if boundary == "reflect":
            raise ValueError("a circle has no walls: take boundary='periodic', or an Interval")

    @property
    def formula(self) -> tuple[str, float, float] | None:
        return _named("circle", self.low, self.period)

    def to_unit(self, value: Tensor) -> Tensor:
        cycles = (value - self.low) / self.period
        return 2 * (cycles - torch.floor(cycles)) - 1

    def from_unit(self, z: Tensor) -> Tensor:
        cycles = (z + 1) / 2
        return self.low + (cycles - torch.floor(cycles)) * self.period

    def quantile_of_unit(self, z: Tensor) -> Tensor:
        # The end of the arc is its beginning one period on; taken for that, it would lie below all quantiles.
        return torch.where(z >= 1, self.low + self.period, self.from_unit(z))

    def log_slope(self, value: Tensor) -> Tensor:
        return torch.zeros_like(value) + (math.log(2) - log_of(self.period))

    def nodes(self, resolution: int) -> Tensor:
        return midpoints(fine_grid(resolution))

    def mean(self, d: FourierDensity) -> Tensor:
        """Return the mean direction."""
        # E e^{i pi z} is the conjugate of q_1.
        q = self._first(d)
        return self.from_unit(torch.atan2(-q[..., 1], q[..., 0]) / math.pi)

    def variance(self, d: FourierDensity) -> Tensor:
        """Return the circular variance 1 - |E e^{i theta}|, as torch's VonMises has it."""
        return 1 - torch.linalg.vector_norm(self._first(d), dim=-1)

    @staticmethod
    def _first(d: FourierDensity) -> Tensor:
        q = d.spectrum
        return q[..., :, 0] if q.shape[-1] else q.new_zeros(*d.batch_shape, 2)

    def mean_log_slope(self, d: FourierDensity) -> Tensor:
        return self.log_slope(d.mean)

    def crps(self, d: FourierDensity, value: Tensor) -> Tensor:
        """Return the score with the distance along the circle, in closed form."""
        return d.at_points(spectrum.circular_crps, d.spectrum, self.to_unit(value)) * (self.period / 2)

    def __repr__(self) -> str:
        return f"Circle(period={self.period}, low={self.low})"


class Line(Domain):
    r"""The real line through :math:`z = \tanh((x - loc) / scale)`, as in the Fourier Basis Density Model.

    >>> Line(loc=1.0, scale=2.0).to_unit(torch.tensor([1.0, 3.0]))
    tensor([0.0000, 0.7616])
    """

    numbers = ("loc", "scale")

    def __init__(self, loc: Number = 0.0, scale: Number = 1.0):
        check_positive("scale", scale)
        self.loc, self.scale = loc, scale

    @property
    def formula(self) -> tuple[str, float, float] | None:
        return _named("line", self.loc, self.scale)

    def to_unit(self, value: Tensor) -> Tensor:
        return torch.tanh((value - self.loc) / self.scale)

    def from_unit(self, z: Tensor) -> Tensor:
        return self.loc + self.scale * torch.atanh(z)

    def log_slope(self, value: Tensor) -> Tensor:
        # log sech^2 without overflow: the density must not underflow to -inf where exp would.
        u = ((value - self.loc) / self.scale).abs()
        return 2 * (math.log(2) - u - torch.log1p(torch.exp(-2 * u))) - log_of(self.scale)

    def keep_samples(self, sample: Tensor) -> Tensor:
        # A level drawn so near to an end that z rounds to it would be infinitely far out.
        reach = self.scale * math.atanh(1 - torch.finfo(sample.dtype).eps / 2)
        last = (torch.as_tensor(end).to(sample) for end in (self.loc - reach, self.loc + reach))
        return sample.clamp(*last)

    def nodes(self, resolution: int) -> Tensor:
        return double_exponential(resolution)[:2]

    def corners(self, count: int) -> Tensor:
        # Beyond 16 lies nothing that float64 tells from nothing.
        return torch.linspace(-16, 16, 8 * count + 1, dtype=torch.float64).tanh()

    def values_at_nodes(self, z: Tensor, resolution: int) -> Tensor:
        # Exact at the far ends, where atanh(z) would cancel.
        x = double_exponential(resolution)[2].to(z).reshape(-1, *(1,) * (z.dim() - 1))
        return self.loc + self.scale * x.expand_as(z)

    def __repr__(self) -> str:
        return f"Line(loc={self.loc}, scale={self.scale})"


class BinnedInterval(Domain):
    """The interval covered by ``Bins`` of any widths, warped so that every bin has the same width in z."""

    bounded = wide_nodes = True

    def __init__(self, bins: Bins):
        self.bins = bins
        self.low, self.high = float(bins.edges[0]), float(bins.edges[-1])
        self.pieces = bins.num_bins
        edges = np.asarray(bins.edges, dtype=np.float64)
        widths = np.diff(edges)
        kinked = np.concatenate([[True], np.abs(np.diff(widths)) > 1e-9 * widths[1:], [True]])
        self.kinks: tuple[float, ...] = tuple(np.linspace(-1, 1, len(edges))[kinked].tolist())
        """The z where the slope of the warp changes; neighbouring bins of one width have none between them."""

    @property
    def support(self) -> constraints.Constraint:  # type: ignore[override]
        return constraints.interval(self.low, self.high)

    def contains(self, value: Tensor) -> Tensor:
        return (value >= self.low) & (value <= self.high)

    def to_unit(self, value: Tensor) -> Tensor:
        return self.bins.to_unit(value)

    def from_unit(self, z: Tensor) -> Tensor:
        return self.bins.from_unit(z)

    def log_slope(self, value: Tensor) -> Tensor:
        return self.bins.log_slope(value)

    def nodes(self, resolution: int) -> Tensor:
        return legendre_pieces(self.kinks, resolution)

    def values_at_nodes(self, z: Tensor, resolution: int) -> Tensor:
        # Rounded to float32, one near an edge would lie in the next bin, where the slope is another.
        return self.from_unit(widest(z))

    def mean(self, d: FourierDensity) -> Tensor:
        # From the middle on: far from zero, the digits that matter would be lost to rounding of the probabilities.
        middle = self.from_unit(d._like.new_zeros(()))
        return middle + d.expect(lambda x: x - middle)

    def crps(self, d: FourierDensity, value: Tensor) -> Tensor:
        """Integrate in the stretches where the warp is linear; all that depends on the value is closed form."""
        z, weight, x = d.quadrature()
        value = widest(value).expand(common_shape(value.shape, d.batch_shape))

        def integral_above(points: Tensor) -> Tensor:
            return d.at_points(lambda q, y: spectrum.cdf_integral_above(q, y, d.walls), d.spectrum, points)

        def slope(at: Tensor) -> Tensor:
            return torch.exp(-self.log_slope(at)).to(z.dtype)

        square = (weight * slope(x) * d.cdf_at(z) ** 2).sum(0)
        corners = torch.tensor(self.kinks, dtype=value.dtype, device=z.device)
        corner = corners.reshape(-1, *(1,) * len(d.batch_shape)).expand(-1, *d.batch_shape)
        beyond = integral_above(corner)
        parts = slope(self.from_unit((corner[1:] + corner[:-1]) / 2)) * (beyond[:-1] - beyond[1:])
        rest = torch.cat([parts.flip(0).cumsum(0).flip(0), torch.zeros_like(parts[:1])])  # from each corner upwards
        place = self.to_unit(value)
        inside = self.from_unit(place)
        piece = torch.searchsorted(corners, place.contiguous(), right=True).clamp(1, len(corners) - 1)
        batch = value.shape[value.dim() - len(d.batch_shape) :]
        flat = piece.reshape(math.prod(value.shape[: value.dim() - len(batch)]), *batch)
        at_corner, above_corner = (t.expand(-1, *batch).gather(0, flat).reshape(value.shape) for t in (beyond, rest))
        above = above_corner + slope(inside) * (integral_above(place) - at_corner)
        return square - 2 * above + ((self.high - inside) + (value - inside).abs()).to(z.dtype)

    def __repr__(self) -> str:
        return f"BinnedInterval({self.bins!r})"
