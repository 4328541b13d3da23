"""Windows of the past of a series: what a forecaster would have been given then, and what came after."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fourier_head.forecasting.series_set import SeriesSet

SHORTEST = 8
"""Values that must lie before a window."""


@dataclass(frozen=True)
class Windows:
    """Pasts of series, cut off at earlier moments, and what followed.

    Args:
        pasts: what was known, a series for each window.
        targets: what followed (windows, horizon), NaN where unknown.
        owner: the number of the series that each window is of (windows,).
        dropped: values that were cut off (windows,).
    """

    pasts: SeriesSet
    targets: np.ndarray
    owner: np.ndarray
    dropped: np.ndarray

    def __len__(self) -> int:
        return len(self.owner)


def cut(series: SeriesSet, numbers: Sequence[int] | np.ndarray, dropped: Sequence[int] | np.ndarray) -> SeriesSet:
    """Return some series, each without so many of its last values."""
    pairs = [(int(number), int(count)) for number, count in zip(numbers, dropped, strict=True)]
    fields = ("names", "calendars", "month_days", "first")
    chosen: dict[str, Any] = {field: [getattr(series, field)[number] for number, _ in pairs] for field in fields}
    values = [series.values[number][: len(series.values[number]) - count] for number, count in pairs]
    last = [series.future(number, -count)[-1] if count else series.last[number] for number, count in pairs]
    # What closed steps will be is asked of the end of a series alone.
    return replace(series, values=values, last=last, closed=[], **chosen)


def past_windows(series: SeriesSet, horizon: int, count: int, stride: int | None = None) -> Windows:
    """Return up to ``count`` windows of every series, the latest first: the last ends where the series does.

    A third of the series, and ``SHORTEST`` values, lie before each at least.

    Args:
        horizon: values of a window.
        stride: values from one window to the next; as far as the horizon, or less where a series is short, unless
            given.

    Example:
        >>> from fourier_head.forecasting.inputs import read_series
        >>> windows = past_windows(read_series([range(20)]), horizon=3, count=2)
        >>> windows.targets.tolist(), [len(one) for one in windows.pasts.values]
        ([[17.0, 18.0, 19.0], [14.0, 15.0, 16.0]], [17, 14])
    """
    owner, dropped = [], []
    for number, values in enumerate(series.values):
        room = len(values) - horizon - max(SHORTEST, len(values) // 3)
        if room < 0:
            continue
        step = stride or min(horizon, max(1, room // max(1, count - 1)))
        ends = horizon + step * np.arange(min(count, room // step + 1))
        owner += [number] * len(ends)
        dropped += ends.tolist()
    targets = [series.values[n][len(series.values[n]) - d :][:horizon] for n, d in zip(owner, dropped, strict=True)]
    array = np.stack(targets) if targets else np.zeros((0, horizon))
    return Windows(cut(series, owner, dropped), array, np.array(owner, dtype=int), np.array(dropped, dtype=int))
