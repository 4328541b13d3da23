"""Several seasons at once: which periods a series has beside the one that is told, and its values at equal phases."""

from __future__ import annotations

import math

import torch
from torch import Tensor

SLOTS = 3
"""Periods per series: the one that is told and two more that follow from it."""
CYCLES = 8
"""Past cycles that are looked at, at the phase of each future step."""
SINGLE = 4
"""Of these, the last ones that are seen one by one; of all, the mean."""

LEAST_CORRELATION = 0.2
"""Of a series with itself one period before, for the period to count."""

FURTHER: dict[int, tuple[int, int]] = {
    7: (364, 1),  # days: the year, as whole weeks
    5: (260, 1),
    24: (168, 8736),  # hours: the week, and the year as whole weeks
    48: (336, 1),
    96: (672, 1),
    144: (1008, 1),
    288: (2016, 1),
    1440: (10080, 60),  # minutes: the week and the hour
    240: (5760, 4),
    360: (8640, 6),  # ten seconds: an hour is told; the day and the minute
    3600: (60, 1),
}
"""What else is periodic in a series of a period; 1 where there is nothing."""


def seasons_of(period: Tensor) -> Tensor:
    """Return the periods (B, 3) of series by the one that is told (B,), 1 where there is none.

    >>> seasons_of(torch.tensor([24, 12]))
    tensor([[  24,  168, 8736],
            [  12,    1,    1]])
    """
    more = [torch.ones_like(period) for _ in range(SLOTS - 1)]
    for told, further in FURTHER.items():
        known = period == told
        # Numbers, not tensors made of them: those would have to be copied to a GPU, and the host would wait each time.
        more = [torch.where(known, one, old) if one > 1 else old for one, old in zip(further, more, strict=True)]
    return torch.stack([period.clamp_min(1), *more], dim=-1)


def found_period(u: Tensor, longest: int = 2048) -> Tensor:
    """Return the period (B,) that each series (B, C) shows itself, 1 where it shows none: its autocorrelation's peak.

    A line is taken off first. Of peaks nearly as high as the highest, the first counts; at least two cycles must be
    there, and a correlation of ``LEAST_CORRELATION``.

    >>> time = torch.arange(100.0)
    >>> found_period(torch.stack([torch.sin(2 * torch.pi * time / 11) + 0.1 * time, 0.1 * time]))
    tensor([11,  1])
    """
    u = u[:, -longest:]
    there = (~u.isnan()).float()
    count = there.sum(-1, keepdim=True).clamp_min(1)
    time = torch.linspace(-1, 1, u.shape[-1], device=u.device) * there
    time = time - time.sum(-1, keepdim=True) / count * there
    x = torch.where(there > 0, u, 0.0)
    x = x - x.sum(-1, keepdim=True) / count * there
    x = x - (x * time).sum(-1, keepdim=True) / time.square().sum(-1, keepdim=True).clamp_min(1e-9) * time
    product, pairs = (
        torch.fft.irfft(torch.fft.rfft(one, 2 * u.shape[-1]).abs().square())[:, : u.shape[-1]] for one in (x, there)
    )
    alike = product / pairs.clamp_min(1) / (product[:, :1] / count).clamp_min(1e-6)
    lag = torch.arange(u.shape[-1], device=u.device)
    allowed = (lag >= 2) & (2 * lag <= count) & (pairs > 3)
    peak = torch.zeros_like(allowed)
    peak[:, 1:-1] = (alike[:, 1:-1] > alike[:, :-2]) & (alike[:, 1:-1] >= alike[:, 2:])
    alike = torch.where(allowed & peak, alike, 0.0)
    best = alike.amax(-1, keepdim=True)
    first = ((alike >= 0.9 * best) & (alike > 0)).int().argmax(-1)
    return torch.where(best.squeeze(-1) > LEAST_CORRELATION, first, 1)


def angles(time: Tensor, seasons: Tensor) -> Tensor:
    """Return sine and cosine of the place in each season (B, T, 6) at times (T,), the first future step being 0."""
    turn = torch.remainder(time.unsqueeze(-1), seasons.unsqueeze(1)) / seasons.unsqueeze(1)
    angle = 2 * math.pi * turn.float()
    return torch.cat([angle.sin(), angle.cos()], dim=-1)


def same_phase(u: Tensor, seasons: Tensor, steps: Tensor) -> tuple[Tensor, Tensor]:
    """Return the values of past cycles at the phase of future steps (B, T, 3, 8) and where there is one.

    Args:
        u: the past (B, C), NaN where missing.
        seasons: periods (B, 3).
        steps: future steps (T,), counted from 0.

    >>> past = torch.arange(8.0).unsqueeze(0)
    >>> values, there = same_phase(past, torch.tensor([[4, 1, 1]]), torch.tensor([0, 5]))
    >>> values[0, :, 0, :2], there[0, :, 0, :3]
    (tensor([[4., 0.],
            [5., 1.]]), tensor([[ True,  True, False],
            [ True,  True, False]]))
    """
    period = seasons[:, None, :, None]
    cycle = torch.arange(CYCLES, device=u.device)
    place = u.shape[-1] - period + steps[:, None, None] % period - cycle * period
    value = u.gather(-1, place.clamp_min(0).flatten(1)).view(place.shape)
    there = (place >= 0) & ~value.isnan()
    return torch.where(there, value, 0.0), there
