"""Monotone maps of values, behind which an adaptive density lives: affine, asinh and logarithm."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import ClassVar

import torch
from torch import Tensor
from torch.distributions import constraints

from fourier_head._arrays import common_shape

Number = float | Tensor


def broadcast_shape(*numbers: Number) -> torch.Size:
    """Return the common shape of numbers and tensors."""
    first, *others = [n.shape for n in numbers if isinstance(n, Tensor)] or [torch.Size()]
    # Shapes are compared, not gathered in a set: those of an exported graph have no hash.
    return first if all(shape == first for shape in others) else common_shape(first, *others)


def log_of(x: Number) -> Number:
    """Return the logarithm of a number or tensor."""
    return torch.log(x) if isinstance(x, Tensor) else math.log(x)


def check_positive(name: str, number: Number) -> None:
    """Raise a clear error for a number that is no length; what a tensor holds is not looked at."""
    if not isinstance(number, Tensor) and not (number > 0 and math.isfinite(number)):
        raise ValueError(f"{name} must be positive and finite, got {number}")


class ValueMap:
    r"""Map values to a coordinate u by a formula and two numbers, one pair for all or one per row.

    Args:
        loc: the place that goes to zero.
        scale: the unit, positive.
    """

    kind: ClassVar[str]
    support: ClassVar[constraints.Constraint] = constraints.real
    curved: ClassVar[tuple[bool, bool]] = (False, False)
    """Whether values grow exponentially in u, towards the lower and the upper end."""
    tail_place: ClassVar[float] = 1.0
    """Where in its interval, from the middle 0 to the end 1, a density takes the unit of its tails from."""

    def __init__(self, loc: Number = 0.0, scale: Number = 1.0):
        check_positive("scale", scale)
        self.loc, self.scale = loc, scale

    @property
    def shape(self) -> torch.Size:
        return broadcast_shape(self.loc, self.scale)

    def apply(self, function: Callable[[Tensor], Tensor]) -> ValueMap:
        """Return the map with a function applied to those of its numbers that are tensors."""
        return type(self)(*(function(n) if isinstance(n, Tensor) else n for n in (self.loc, self.scale)))

    def forward(self, value: Tensor) -> Tensor:
        """Return u of values."""
        return (value - self.loc) / self.scale

    def inverse(self, u: Tensor) -> Tensor:
        """Return the values of u."""
        return self.loc + self.scale * u

    def log_slope(self, u: Tensor) -> Tensor:
        """Return log du/dvalue at u."""
        return torch.zeros_like(u) - log_of(self.scale)

    @property
    def growth(self) -> Number:
        """How fast values grow: like exp(growth u) far out."""
        return 1.0

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.loc}, {self.scale})"


class Affine(ValueMap):
    """The affine map u = (x - loc) / scale.

    >>> Affine(10.0, 2.0).forward(torch.tensor([8.0, 10.0]))
    tensor([-1.,  0.])
    """

    kind = "affine"


class Asinh(ValueMap):
    r"""Draw in values far from the middle: :math:`u = \mathrm{asinh}((x - loc) / scale)`.

    >>> Asinh(10.0, 2.0).inverse(torch.tensor([0.0, 1.0]))
    tensor([10.0000, 12.3504])
    """

    kind = "asinh"
    curved = (True, True)
    tail_place = 0.0  # at the ends of a wide interval the unit would be that of values which never occur

    def forward(self, value: Tensor) -> Tensor:
        return torch.asinh((value - self.loc) / self.scale)

    def inverse(self, u: Tensor) -> Tensor:
        # Beyond 30 lie values 5e12 units away: stay finite in float32.
        return self.loc + self.scale * torch.sinh(u.clamp(-30, 30))

    def log_slope(self, u: Tensor) -> Tensor:
        return math.log(2) - u.abs() - torch.log1p(torch.exp(-2 * u.abs())) - log_of(self.scale)


class Log(ValueMap):
    r"""The map of positive values :math:`u = (\log x - loc) / scale`.

    >>> Log().inverse(Log().forward(torch.tensor([0.5, 20.0])))
    tensor([ 0.5000, 20.0000])
    """

    kind = "log"
    support = constraints.positive
    curved = (False, True)

    def forward(self, value: Tensor) -> Tensor:
        return (value.clamp_min(torch.finfo(value.dtype).tiny).log() - self.loc) / self.scale

    def inverse(self, u: Tensor) -> Tensor:
        return torch.exp((self.loc + self.scale * u).clamp(-80, 80))

    def log_slope(self, u: Tensor) -> Tensor:
        return -(self.loc + self.scale * u) - log_of(self.scale)

    @property
    def growth(self) -> Number:
        return self.scale


MAPS: tuple[type[ValueMap], ...] = (Affine, Asinh, Log)
