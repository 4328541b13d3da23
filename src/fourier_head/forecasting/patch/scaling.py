"""Bring series of any level and unit to one scale, and fill their gaps."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from fourier_head.domains.maps import Affine, Asinh, ValueMap
from fourier_head.fourier.series import exporting

# With n values seen, a deviation below this share of the level over n says nothing: one value, or a constant series.
LEAST_DEVIATION = 0.3
# The unit of a series of zeros, or of nothing at all.
LEAST_SCALE = 1e-3
# Numbers below this one may have no reciprocal in float32.
TINY = 1e-30


def scale_of(context: Tensor, bend: bool = True, recent: int = 512) -> ValueMap:
    """Return the map of each context (..., C) by the mean and deviation of its values; NaN marks missing ones.

    A value of the age ``recent`` counts half, one of twice that age a fifth. Without ``bend`` the map is straight.

    >>> scale_of(torch.tensor([[torch.nan, 1.0, 3.0], [torch.nan, torch.nan, torch.nan]])).loc[:, 0]
    tensor([2.0000, 0.0000])
    """
    seen = ~context.isnan()
    values = torch.where(seen, context, 0)
    # Sums of huge values would overflow, of tiny ones vanish: work in units of the largest.
    unit = values.abs().amax(-1, keepdim=True).clamp_min(TINY)
    values = values / unit
    count = seen.sum(-1, keepdim=True)
    age = torch.arange(context.shape[-1] - 1, -1, -1, device=context.device) / recent
    weight = seen / (1 + age * age)
    total = weight.sum(-1, keepdim=True).clamp_min(TINY)
    mean = (values * weight).sum(-1, keepdim=True) / total
    deviation = torch.where(seen, values - mean, 0)
    std = ((deviation * deviation * weight).sum(-1, keepdim=True) / total).sqrt()
    least = LEAST_DEVIATION * mean.abs() / count.clamp_min(1)
    # ONNX has no hypot; in these units squares neither overflow nor vanish.
    scale = (std * std + least * least).sqrt() * unit
    return (Asinh if bend else Affine)(mean * unit, torch.where(scale > TINY, scale, LEAST_SCALE))


def fill_forward(x: Tensor) -> Tensor:
    """Replace each NaN by the last value before it; leading ones stay.

    >>> fill_forward(torch.tensor([torch.nan, 1.0, torch.nan, 2.0]))
    tensor([nan, 1., 1., 2.])
    """
    place = torch.arange(x.shape[-1], device=x.device).expand(x.shape)
    last = torch.where(x.isnan(), 0, place)
    if exporting():  # ONNX has no cumulative maximum: by strides of 1, 2, 4 and so on
        stride = 1
        while stride < x.shape[-1]:
            last = torch.maximum(last, functional.pad(last[..., :-stride], (stride, 0)))
            stride *= 2
    else:
        last = last.cummax(-1).values
    return x.gather(-1, last)
