"""Changes to windows that keep them plausible, each with a chance per row, on the device and composable.

What changes the law of a series (a trend, a clip, a shift) changes context and future alike; what spoils a record
(missing values, outliers) changes the context only: a forecaster should see through it. Time is never reversed: trends
and seasons would survive it, but decays after peaks become announcements of peaks.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from fourier_head.forecasting.corpora.windows import Windows, history, mean_scale, split_windows

Change = Callable[[Windows, torch.Generator | None], Windows]
"""Changes all rows of a batch."""


@dataclass(frozen=True)
class Augmentation:
    """Change a random share of rows."""

    change: Change
    share: float

    def __post_init__(self) -> None:
        if not 0 <= self.share <= 1:
            raise ValueError(f"share must lie in [0, 1], got {self.share}.")

    def __call__(self, windows: Windows, generator: torch.Generator | None = None) -> Windows:
        """Return the batch with about `share` of its rows changed."""
        if self.share == 0:
            return windows
        batch = len(windows.period)
        rows = round(self.share * batch)
        if 8 <= rows <= batch // 2:
            # Rows come in random order, so every n-th from a random one on is a fair choice, and the work is n times
            # less than changing all and keeping some.
            device = windows.period.device
            first = (torch.rand(1, device=device, generator=generator) * batch).long()
            index = (first + torch.arange(rows, device=device) * batch // rows) % batch
            changed = self.change(windows.rows(index), generator)
            return Windows(*(old.index_copy(0, index, new) for old, new in zip(windows, changed, strict=True)))
        hit = _uniform(windows, generator) < self.share
        changed = self.change(windows, generator)
        return Windows(
            torch.where(hit, changed.context, windows.context),
            torch.where(hit, changed.future, windows.future),
            torch.where(hit.squeeze(1), changed.period, windows.period),
        )


def _uniform(windows: Windows, generator: torch.Generator | None, low: float = 0.0, high: float = 1.0) -> Tensor:
    """One number per row, (B, 1)."""
    draw = torch.rand(len(windows.period), 1, device=windows.period.device, generator=generator)
    return low + (high - low) * draw


def _age(windows: Windows) -> Tensor:
    """Time relative to the first future step in units of each row's history, (B, C + H): -1 at its oldest value."""
    size = windows.context.shape[1]
    steps = torch.arange(-size, windows.future.shape[1], device=windows.period.device)
    return steps / history(windows.context).clamp_min(2)[:, None]


def _spread(context: Tensor) -> Tensor:
    """The deviation (B, 1) of what is there of each context."""
    there = ~context.isnan()
    count = there.sum(1, keepdim=True).clamp_min(1)
    filled = torch.where(there, context, 0.0)
    mean = filled.sum(1, keepdim=True) / count
    return (torch.where(there, context - mean, 0.0).square().sum(1, keepdim=True) / count).sqrt()


def sign_flip(windows: Windows, generator: torch.Generator | None) -> Windows:
    """Turn series upside down."""
    return Windows(-windows.context, -windows.future, windows.period)


def trend(windows: Windows, generator: torch.Generator | None) -> Windows:
    """Multiply series by a smooth trend: a line in the logarithm with one kink in the history, bounded by 1.5."""
    time = _age(windows).clamp_max(1.0)
    kink = _uniform(windows, generator, -1.0, 0.0)
    before = _uniform(windows, generator, -1.0, 1.0)
    after = _uniform(windows, generator, -1.0, 1.0)
    after = torch.where(_uniform(windows, generator) < 0.5, before, after)
    log = 0.75 * (before * torch.minimum(time, kink) + after * (time - kink).clamp_min(0.0))
    return split_windows(windows.values * torch.exp(log), windows.context.shape[1], windows.period)


def offset(windows: Windows, generator: torch.Generator | None) -> Windows:
    """Add a constant of up to 5 times the mean absolute value: levels far from zero, or round it."""
    added = _uniform(windows, generator, -0.2, 1.0) * 5.0 * mean_scale(windows.context)
    return Windows(windows.context + added, windows.future + added, windows.period)


def level_shift(windows: Windows, generator: torch.Generator | None) -> Windows:
    """Move the level at a moment of the history, by up to 3 deviations."""
    size = _uniform(windows, generator, -1.0, 1.0) * 3.0 * _spread(windows.context)
    values = windows.values + size * (_age(windows) >= _uniform(windows, generator, -1.0, 0.0))
    return split_windows(values, windows.context.shape[1], windows.period)


def shift_ahead(windows: Windows, generator: torch.Generator | None) -> Windows:
    """Move the level at a moment of the future, by up to 3 deviations: the farther ahead, the less is sure."""
    size = _uniform(windows, generator, -1.0, 1.0) * 3.0 * _spread(windows.context)
    steps = torch.arange(windows.future.shape[1], device=size.device)
    moved = steps >= _uniform(windows, generator) * windows.future.shape[1]
    return windows._replace(future=windows.future + size * moved)


def noise(windows: Windows, generator: torch.Generator | None) -> Windows:
    """Add white noise of up to half a deviation to context and future."""
    values = windows.values
    size = _uniform(windows, generator).square() * 0.5 * _spread(windows.context)
    noise = torch.randn(values.shape, device=values.device, generator=generator)
    return split_windows(values + size * noise, windows.context.shape[1], windows.period)


def spikes(windows: Windows, generator: torch.Generator | None) -> Windows:
    """Put outliers of several deviations into the context, at up to 3 % of its values."""
    context = windows.context
    where = torch.rand(context.shape, device=context.device, generator=generator)
    size = torch.randn(context.shape, device=context.device, generator=generator) * 4 * _spread(context)
    odd = where < 0.03 * _uniform(windows, generator)
    return windows._replace(context=torch.where(odd, context + size, context))


def odd_end(windows: Windows, generator: torch.Generator | None) -> Windows:
    """Replace the last value by one that lies up to 100 deviations away: a typing error, or a broken sensor."""
    size = 3.0 * (100.0 / 3.0) ** _uniform(windows, generator) * _spread(windows.context)
    size = torch.where(_uniform(windows, generator) < 0.3, -size, size)
    last = torch.arange(windows.context.shape[1], device=size.device) == windows.context.shape[1] - 1
    return windows._replace(context=torch.where(last, windows.context + size, windows.context))


def missing(windows: Windows, generator: torch.Generator | None) -> Windows:
    """Take values out of the context: single ones (up to 30 % of all) and one run; the last value may go too."""
    context = windows.context
    size = context.shape[1]
    single = torch.rand(context.shape, device=context.device, generator=generator)
    gone = single < 0.3 * _uniform(windows, generator).square()
    time = _age(windows)[:, :size]
    start = _uniform(windows, generator, -1.0, 0.0)
    length = _uniform(windows, generator).square() * 0.3
    run = (time >= start) & (time < start + length) & (_uniform(windows, generator) < 0.5)
    dropped = torch.where(gone | run, math.nan, context)
    # A context is never emptied: with fewer than two values left it stays as it was.
    enough = (~dropped.isnan()).sum(1, keepdim=True) >= 2
    return windows._replace(context=torch.where(enough, dropped, context))


def censor(windows: Windows, generator: torch.Generator | None) -> Windows:
    """Clip series from below or above at a value of their own, as stock that runs out or a meter at its end does."""
    context = windows.context
    # A bound by mean and deviation needs no sorting; the one from below mirrors the one from above.
    mean = context.nanmean(1, keepdim=True)
    bound = mean + _uniform(windows, generator, -0.5, 1.5) * _spread(context)
    above = _uniform(windows, generator) < 0.5
    floor = torch.where(above, -math.inf, 2 * mean - bound)
    ceiling = torch.where(above, bound, math.inf)
    values = torch.minimum(torch.maximum(windows.values, floor), ceiling)
    # A context without values has no bounds, and the row stays as it is.
    return split_windows(torch.where(mean.isnan(), windows.values, values), context.shape[1], windows.period)


def quantise(windows: Windows, generator: torch.Generator | None) -> Windows:
    """Round series to whole multiples of a step of up to a deviation, as counts and coarse gauges are."""
    step = (0.02 + _uniform(windows, generator).square()) * _spread(windows.context)
    values = windows.values
    rounded = torch.where(step > 0, (values / step).round() * step, values)
    return split_windows(rounded, windows.context.shape[1], windows.period)


def hide_period(windows: Windows, generator: torch.Generator | None) -> Windows:
    """Withhold the period, as when a user's series has no dates."""
    return windows._replace(period=torch.ones_like(windows.period))


DEFAULT: tuple[Augmentation, ...] = (
    Augmentation(trend, 0.1),
    Augmentation(offset, 0.05),
    Augmentation(level_shift, 0.05),
    Augmentation(noise, 0.05),
    Augmentation(quantise, 0.05),
    Augmentation(censor, 0.04),
    Augmentation(sign_flip, 0.1),
    Augmentation(spikes, 0.05),
    Augmentation(odd_end, 0.015),
    Augmentation(missing, 0.1),
    Augmentation(hide_period, 0.1),
)
"""A mild set: about half of the rows are changed by none of those that touch values."""
