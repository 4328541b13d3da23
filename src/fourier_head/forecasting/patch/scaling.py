"""Bring series of any level and unit to one scale, and back; and what a naive forecaster would say."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

# With n values seen, a deviation below this share of the level over n says nothing: one value, or a constant series.
LEAST_DEVIATION = 0.3
# The unit of a series of zeros, or of nothing at all.
LEAST_SCALE = 1e-3


class Scale(NamedTuple):
    r"""Map values to :math:`u = \mathrm{asinh}((x - m) / s)` and back, one m and s per series (..., 1).

    Where ``bend`` is False the map is straight, :math:`u = (x - m) / s`.
    """

    loc: Tensor
    scale: Tensor
    bend: bool = True

    def to_unit(self, x: Tensor) -> Tensor:
        """Return u of values; NaN stays NaN."""
        u = (x - self.loc) / self.scale
        return torch.asinh(u) if self.bend else u

    def from_unit(self, u: Tensor) -> Tensor:
        """Return the values of u."""
        # Beyond 30 lie values 5e12 deviations away: stay finite in float32.
        return self.loc + self.scale * (torch.sinh(u.clamp(-30, 30)) if self.bend else u)

    def log_slope(self, u: Tensor) -> Tensor:
        """Return log dx/du, without overflow."""
        straight = self.scale.log()
        return straight + u.abs() + torch.log1p(torch.exp(-2 * u.abs())) - math.log(2) if self.bend else straight


def scale_of(context: Tensor, bend: bool = True) -> Scale:
    """Return the scale of each context (..., C) from the values it has; NaN marks missing ones.

    >>> scale_of(torch.tensor([[torch.nan, 1.0, 3.0], [torch.nan, torch.nan, torch.nan]])).loc[:, 0]
    tensor([2., 0.])
    """
    seen = ~context.isnan()
    values = torch.where(seen, context, 0)
    # Sums of huge values would overflow, of tiny ones vanish: work in units of the largest.
    unit = values.abs().amax(-1, keepdim=True).clamp_min(1e-30)
    values = values / unit
    count = seen.sum(-1, keepdim=True)
    mean = values.sum(-1, keepdim=True) / count.clamp_min(1)
    deviation = torch.where(seen, values - mean, 0)
    std = ((deviation * deviation).sum(-1, keepdim=True) / count.clamp_min(1)).sqrt()
    least = LEAST_DEVIATION * mean.abs() / count.clamp_min(1)
    scale = torch.hypot(std, least) * unit
    return Scale(mean * unit, torch.where(scale > 1e-30, scale, LEAST_SCALE), bend)


def fill_forward(x: Tensor) -> Tensor:
    """Replace each NaN by the last value before it; leading ones stay.

    >>> fill_forward(torch.tensor([torch.nan, 1.0, torch.nan, 2.0]))
    tensor([nan, 1., 1., 2.])
    """
    place = torch.arange(x.shape[-1], device=x.device).expand(x.shape)
    last = torch.where(x.isnan(), 0, place).cummax(-1).values
    return x.gather(-1, last)


def seasonal_naive(context: Tensor, period: Tensor, horizon: int) -> Tensor:
    """Return the last cycle of each context (B, C), repeated: (B, horizon).

    Where a series is shorter than its period, or the period is 1, that is its last value; 0 where it has none.

    >>> seasonal_naive(torch.tensor([[1.0, 2.0, 3.0, 4.0]]), torch.tensor([2]), 3)
    tensor([[3., 4., 3.]])
    """
    filled = fill_forward(context)
    step = torch.arange(horizon, device=context.device)
    length = context.shape[-1]
    period = period.unsqueeze(-1).clamp_min(1)
    place = length - period + step % period
    value = filled.gather(-1, place.clamp_min(0))
    last = filled[..., -1:].nan_to_num(0.0)
    return torch.where((place < 0) | value.isnan(), last, value)
