"""Where the values live: maps between a domain of values and the unit variable z in [-1, 1]."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor
from torch.distributions import constraints

if TYPE_CHECKING:
    from fourier_head.bins import Bins

Number = float | Tensor


@runtime_checkable
class Domain(Protocol):
    """A monotone map between values and z in [-1, 1]; parameters may be tensors that broadcast with the batch."""

    @property
    def support(self) -> constraints.Constraint: ...

    @property
    def shape(self) -> torch.Size:
        """Batch shape of the parameters."""

    def contains(self, value: Tensor) -> Tensor: ...

    def to_unit(self, value: Tensor) -> Tensor:
        """Map values to z; values outside go to the nearest end."""

    def from_unit(self, z: Tensor) -> Tensor: ...

    def nearest(self, value: Tensor) -> Tensor:
        """Return values, those outside moved to the nearest end."""

    def log_slope(self, value: Tensor) -> Tensor:
        """Return log dz/dvalue, which turns a log-density of z into one of the value."""


def _shape(*numbers: Number) -> torch.Size:
    return torch.broadcast_shapes(*(n.shape for n in numbers if isinstance(n, Tensor))) if numbers else torch.Size()


def _log(x: Number) -> Number:
    return torch.log(x) if isinstance(x, Tensor) else math.log(x)


def _check_positive(name: str, x: Number) -> None:
    if not isinstance(x, Tensor) and not (x > 0 and math.isfinite(x)):
        raise ValueError(f"{name} must be positive and finite, got {x}")


class _Inside:
    """What every domain does the same way."""

    def nearest(self: Domain, value: Tensor) -> Tensor:
        # NaN is in no domain, and stays NaN on its way there and back.
        return torch.where(self.contains(value), value, self.from_unit(self.to_unit(value)))


class Interval(_Inside):
    """The interval [low, high].

    >>> Interval(0, 10).to_unit(torch.tensor([0.0, 5.0, 10.0]))
    tensor([-1.,  0.,  1.])
    """

    def __init__(self, low: Number = -1.0, high: Number = 1.0):
        if not isinstance(low, Tensor) and not isinstance(high, Tensor) and not -math.inf < low < high < math.inf:
            raise ValueError(f"low must be less than high, both finite, got low={low} and high={high}")
        self.low, self.high = low, high

    @property
    def support(self) -> constraints.Constraint:
        return constraints.interval(self.low, self.high)

    @property
    def shape(self) -> torch.Size:
        return _shape(self.low, self.high)

    @property
    def half_width(self) -> Number:
        return (self.high - self.low) / 2

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
        return torch.zeros_like(value) - _log(self.half_width)

    def __repr__(self) -> str:
        return f"Interval({self.low}, {self.high})"


class Circle(_Inside):
    """A circle of any period, cut at ``low``; values one period apart are the same point.

    >>> Circle(24.0).to_unit(torch.tensor([6.0, 30.0]))
    tensor([-0.5000, -0.5000])
    """

    support = constraints.real

    def __init__(self, period: Number = 2 * math.pi, low: Number = 0.0):
        _check_positive("period", period)
        self.period, self.low = period, low

    @property
    def shape(self) -> torch.Size:
        return _shape(self.period, self.low)

    def contains(self, value: Tensor) -> Tensor:
        return torch.isfinite(value)

    def to_unit(self, value: Tensor) -> Tensor:
        turn = (value - self.low) / self.period
        return 2 * (turn - torch.floor(turn)) - 1

    def from_unit(self, z: Tensor) -> Tensor:
        turn = (z + 1) / 2
        return self.low + (turn - torch.floor(turn)) * self.period

    def log_slope(self, value: Tensor) -> Tensor:
        return torch.zeros_like(value) + (math.log(2) - _log(self.period))

    def __repr__(self) -> str:
        return f"Circle(period={self.period}, low={self.low})"


class Line(_Inside):
    r"""The real line through :math:`z = \tanh((x - loc) / scale)`, as in the Fourier Basis Density Model.

    >>> Line(loc=1.0, scale=2.0).to_unit(torch.tensor([1.0, 3.0]))
    tensor([0.0000, 0.7616])
    """

    support = constraints.real

    def __init__(self, loc: Number = 0.0, scale: Number = 1.0):
        _check_positive("scale", scale)
        self.loc, self.scale = loc, scale

    @property
    def shape(self) -> torch.Size:
        return _shape(self.loc, self.scale)

    def contains(self, value: Tensor) -> Tensor:
        return torch.isfinite(value)

    def to_unit(self, value: Tensor) -> Tensor:
        return torch.tanh((value - self.loc) / self.scale)

    def from_unit(self, z: Tensor) -> Tensor:
        return self.loc + self.scale * torch.atanh(z)

    def log_slope(self, value: Tensor) -> Tensor:
        # log sech^2 without overflow: the density must not underflow to -inf where exp would.
        u = ((value - self.loc) / self.scale).abs()
        return 2 * (math.log(2) - u - torch.log1p(torch.exp(-2 * u))) - _log(self.scale)

    def __repr__(self) -> str:
        return f"Line(loc={self.loc}, scale={self.scale})"


class BinnedInterval(_Inside):
    """The interval covered by ``Bins`` of any widths, warped so that every bin has the same width in z."""

    def __init__(self, bins: Bins):
        self.bins = bins
        self.low, self.high = float(bins.edges[0]), float(bins.edges[-1])
        edges = np.asarray(bins.edges, dtype=np.float64)
        widths = np.diff(edges)
        bent = np.concatenate([[True], np.abs(np.diff(widths)) > 1e-9 * widths[1:], [True]])
        self.corners: tuple[float, ...] = tuple(np.linspace(-1, 1, len(edges))[bent].tolist())
        """The z where the warp bends; neighbouring bins of one width have none between them."""

    shape = torch.Size()

    @property
    def support(self) -> constraints.Constraint:
        return constraints.interval(self.low, self.high)

    def contains(self, value: Tensor) -> Tensor:
        return (value >= self.low) & (value <= self.high)

    def to_unit(self, value: Tensor) -> Tensor:
        return self.bins.to_unit(value)

    def from_unit(self, z: Tensor) -> Tensor:
        return self.bins.from_unit(z)

    def log_slope(self, value: Tensor) -> Tensor:
        return self.bins.log_slope(value)

    def __repr__(self) -> str:
        return f"BinnedInterval({self.bins!r})"
