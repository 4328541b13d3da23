"""Where the values live: maps between values and the unit variable z in [-1, 1], with what depends on the map.

A domain owns its mathematics: support, moments, quadrature, ranked score and tails. Those of this file are fixed;
`adaptive.py` has the one that a network moves and stretches.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor
from torch.distributions import constraints

from fourier_head.fourier import spectrum
from fourier_head.fourier.quadrature import double_exponential, legendre_pieces, legendre_rows, midpoints
from fourier_head.maps import Number, ValueMap, broadcast_shape, log_of

if TYPE_CHECKING:
    from fourier_head.bins import Bins
    from fourier_head.densities.fourier import FourierDensity


def fine_grid(resolution: int) -> int:
    """Return how many equal parts of [-1, 1] resolve the logarithm of a density of this resolution."""
    return max(2048, 1 << (8 * resolution - 1).bit_length())


Boundary = Literal["periodic", "reflect"]


class Domain:
    """A monotone map between values and z in [-1, 1]; parameters may be tensors that broadcast with the batch.

    What is written here holds for any smooth map, by quadrature; a subclass with closed forms has them instead.
    """

    support: constraints.Constraint = constraints.real
    boundary: ClassVar[Boundary] = "reflect"
    """What the two ends are to each other unless a head is told: strangers ("reflect") or neighbours ("periodic")."""
    tails: float = 0.0
    """Weight of the Laplace density in z that is mixed in and reaches beyond [-1, 1]."""
    place_outputs: int = 0
    """Numbers that a projection emits to place the domain."""
    pieces: int = 1
    """Parts of [-1, 1], equally long, between which the slope of the map jumps."""
    bins: Any = None
    """The ``Bins`` that came with the domain, or None."""
    bounded: bool = False
    """Whether the values have two ends."""
    wraps: bool = False
    """Whether a peak may lie across the ends."""
    numbers: ClassVar[tuple[str, ...]] = ()
    """Names of the parameters."""

    @property
    def shape(self) -> torch.Size:
        """Batch shape of the parameters."""
        return broadcast_shape(*(getattr(self, name) for name in self.numbers))

    @property
    def straight(self) -> tuple[float, float] | None:
        """The value at z = -1 and the length of a unit of z, where these are the same for all and all there is."""
        return None

    def apply(self, function: Callable[[Tensor], Tensor]) -> Domain:
        """Return the domain with a function applied to those of its parameters that are tensors."""
        other = copy.copy(self)
        for name in self.numbers:
            if isinstance(number := getattr(self, name), Tensor):
                setattr(other, name, function(number))
        return other

    @property
    def edges(self) -> Tensor | None:
        """Edges of bins laid over the values, where the bins are not equal parts of z."""
        return None

    def at_outputs(self, outputs: Tensor, map: ValueMap | None = None, anchor: Tensor | None = None) -> Domain:
        """Return the domain in the place that a projection gives it: this one, which does not move."""
        if map is not None or anchor is not None:
            raise ValueError(f"map and anchor are for heads with an Adaptive domain, not {self!r}")
        return self

    def contains(self, value: Tensor) -> Tensor:
        """Tell which values have a density."""
        return torch.isfinite(value)

    def to_unit(self, value: Tensor) -> Tensor:
        """Map values to z; values outside go to the nearest end."""
        raise TypeError(f"{type(self).__name__} does not define to_unit")

    def from_unit(self, z: Tensor) -> Tensor:
        """Map z to values."""
        raise TypeError(f"{type(self).__name__} does not define from_unit")

    def log_slope(self, value: Tensor) -> Tensor:
        """Return log dz/dvalue, which turns a log-density of z into one of the value."""
        raise TypeError(f"{type(self).__name__} does not define log_slope")

    def nearest(self, value: Tensor, map: ValueMap | None = None) -> Tensor:
        """Return values, those outside moved to the nearest end; NaN, which is in no domain, stays NaN."""
        return torch.where(self.contains(value), value, self.from_unit(self.to_unit(value)))

    def middle(self, value: Tensor, map: ValueMap | None = None) -> Tensor:
        """Return a value that is inside, in the shape of others."""
        return self.from_unit(torch.zeros_like(value))

    def start(self) -> Tensor:
        """Return the outputs that place the domain at the start of training, (place_outputs,)."""
        return torch.zeros(0)

    def state(self) -> Tensor | None:
        """Return what a state dict must hold of the domain, where anything was fitted to data."""
        return None

    def with_state(self, state: Tensor) -> Domain:
        """Return the domain as a state dict has it."""
        return self

    def check_bins(self) -> None:
        """Raise an error where bins cannot be laid over the domain without being told their edges."""

    def check_boundary(self, boundary: Boundary) -> None:
        """Raise an error where the ends cannot be what they are said to be."""

    def quantile_of_unit(self, z: Tensor) -> Tensor:
        """Map quantiles of z to those of values."""
        return self.from_unit(z)

    def keep_samples(self, sample: Tensor) -> Tensor:
        """Return samples, those that rounding has made infinite moved to where rounding begins."""
        return sample

    # --- quadrature

    def nodes(self, resolution: int) -> Tensor:
        """Return nodes in z and their weights, rows of a tensor, enough for this many harmonics over [-1, 1]."""
        return legendre_pieces((-1.0, 1.0), resolution)

    def values_at_nodes(self, z: Tensor, resolution: int) -> Tensor:
        """Return the values of ``nodes(resolution)``, given as z of shape (points, ...)."""
        return self.from_unit(z)

    def corners(self, count: int) -> Tensor:
        """Return z, in order, between which all densities are smooth: [-1, 1] in ``count`` pieces or a few more."""
        return torch.linspace(-1, 1, self.pieces * math.ceil(count / self.pieces) + 1, dtype=torch.float64)

    def nodes_beyond(self, z: Tensor, upper: Tensor, resolution: int) -> tuple[Tensor, Tensor]:
        """Return nodes (points, ...) between z and the upper end where ``upper``, else the lower one, and weights."""
        node, weight = (row.to(z).reshape(-1, *(1,) * z.dim()) for row in legendre_rows(resolution + 32))
        end = torch.where(upper, 1.0, -1.0).to(z)
        half = (end - z).abs() / 2
        limit = 1 - torch.finfo(z.dtype).eps
        return ((z + end) / 2 + half * node).clamp(-limit, limit), weight * half

    # --- moments and scores

    def mean(self, d: FourierDensity) -> Tensor:
        """Return the mean of a density over this domain."""
        return d.expect(lambda x: x)

    def variance(self, d: FourierDensity) -> Tensor:
        """Return the variance."""
        mean = self.mean(d)
        return d.expect(lambda x: (x - mean) ** 2)

    def entropy(self, d: FourierDensity) -> Tensor:
        """Return the entropy in nats, that of z by the midpoint rule on a grid finer than the harmonics."""
        _, log_prob = d.grid()
        return -(log_prob.exp() * log_prob).mean(0) * 2 - self.mean_log_slope(d)

    def mean_log_slope(self, d: FourierDensity) -> Tensor:
        """Return the expectation of the log-slope."""
        return d.expect(lambda x: self.log_slope(x))

    def crps_of_map(self, d: FourierDensity, value: Tensor) -> Tensor:
        """Return the score in the coordinate that training goes by: values, unless they are mapped first."""
        return self.crps(d, value)

    def crps(self, d: FourierDensity, value: Tensor) -> Tensor:
        r"""Return :math:`E|X - y| - \int F (1 - F)`, the expectation from the tail on the far side of the value."""
        z, weight, x = d.quadrature()
        slope = torch.exp(-self.log_slope(x))
        spread = (weight * slope * d.cdf_at(z) * d.survival_at(z)).sum(0)
        shape = torch.broadcast_shapes(value.shape, d.batch_shape)
        value = value.expand(shape)
        end = self.to_unit(value).to(z.dtype)
        upper = end > 0
        inner, weight = self.nodes_beyond(end, upper, d.resolution)
        slope = torch.exp(-self.log_slope(self.from_unit(inner)))
        tail = (weight * slope * torch.where(upper, d.survival_at(inner), d.cdf_at(inner))).sum(0)
        distance = value - self.mean(d)
        return torch.where(upper, distance, -distance) + 2 * tail - spread


class Interval(Domain):
    """The interval [low, high].

    >>> Interval(0, 10).to_unit(torch.tensor([0.0, 5.0, 10.0]))
    tensor([-1.,  0.,  1.])
    """

    bounded = True
    numbers = ("low", "high")

    def __init__(self, low: Number = -1.0, high: Number = 1.0):
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
    def straight(self) -> tuple[float, float] | None:
        if isinstance(self.low, Tensor) or isinstance(self.high, Tensor):
            return None
        return float(self.low), (self.high - self.low) / 2

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
        if not isinstance(period, Tensor) and not (period > 0 and math.isfinite(period)):
            raise ValueError(f"period must be positive and finite, got {period}")
        self.period, self.low = period, low

    def check_boundary(self, boundary: Boundary) -> None:
        if boundary == "reflect":
            raise ValueError("a circle has no walls: take boundary='periodic', or an Interval")

    def to_unit(self, value: Tensor) -> Tensor:
        turn = (value - self.low) / self.period
        return 2 * (turn - torch.floor(turn)) - 1

    def from_unit(self, z: Tensor) -> Tensor:
        turn = (z + 1) / 2
        return self.low + (turn - torch.floor(turn)) * self.period

    def quantile_of_unit(self, z: Tensor) -> Tensor:
        # The end of the arc is its beginning one turn on; taken for that, it would lie below all quantiles.
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
        if not isinstance(scale, Tensor) and not (scale > 0 and math.isfinite(scale)):
            raise ValueError(f"scale must be positive and finite, got {scale}")
        self.loc, self.scale = loc, scale

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
        return double_exponential(8 * resolution + 257)[:2]

    def corners(self, count: int) -> Tensor:
        # Beyond 16 lies nothing that float64 tells from nothing.
        return torch.linspace(-16, 16, 8 * count + 1, dtype=torch.float64).tanh()

    def values_at_nodes(self, z: Tensor, resolution: int) -> Tensor:
        # Exact at the far ends, where atanh(z) would cancel.
        x = double_exponential(8 * resolution + 257)[2].to(z).reshape(-1, *(1,) * (z.dim() - 1))
        return self.loc + self.scale * x.expand_as(z)

    def __repr__(self) -> str:
        return f"Line(loc={self.loc}, scale={self.scale})"


class BinnedInterval(Domain):
    """The interval covered by ``Bins`` of any widths, warped so that every bin has the same width in z."""

    bounded = True

    def __init__(self, bins: Bins):
        self.bins = bins
        self.low, self.high = float(bins.edges[0]), float(bins.edges[-1])
        self.pieces = bins.num_bins
        edges = np.asarray(bins.edges, dtype=np.float64)
        widths = np.diff(edges)
        bent = np.concatenate([[True], np.abs(np.diff(widths)) > 1e-9 * widths[1:], [True]])
        self.bends: tuple[float, ...] = tuple(np.linspace(-1, 1, len(edges))[bent].tolist())
        """The z where the warp bends; neighbouring bins of one width have none between them."""

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
        return legendre_pieces(self.bends, resolution)

    def crps(self, d: FourierDensity, value: Tensor) -> Tensor:
        """Integrate in the stretches where the warp is straight; all that depends on the value is closed form."""
        z, weight, x = d.quadrature()
        value = value.to(z.dtype).expand(torch.broadcast_shapes(value.shape, d.batch_shape))

        def integral_above(points: Tensor) -> Tensor:
            return d.at_points(lambda q, y: spectrum.cdf_integral_above(q, y, d.walls), d.spectrum, points)

        def slope(at: Tensor) -> Tensor:
            return torch.exp(-self.log_slope(at))

        square = (weight * slope(x) * d.cdf_at(z) ** 2).sum(0)
        corners = torch.tensor(self.bends, dtype=z.dtype, device=z.device)
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
        return square - 2 * above + (self.high - inside) + (value - inside).abs()

    def __repr__(self) -> str:
        return f"BinnedInterval({self.bins!r})"
