"""Closed steps: times of the week or day at which a series never has a value, such as the Sundays of a shop."""

from __future__ import annotations

import numpy as np

from fourier_head.forecasting.calendars import Calendar

_DAY = 86400 * 10**9
WEEKS, DAYS = 4, 7
"""Weeks, or days, that a series must have: of fewer, a gap is a gap."""
CHANCE = 1e-4
"""Probability that a time without a value is there by chance, up to which it is none."""


def closed_phases(values: np.ndarray, calendar: Calendar) -> np.ndarray | None:
    """Return at which steps of a week or day a series has no value, from the step after its last on; None for none.

    A time counts as closed where values are so frequent at the others that chance would hardly leave it without any.

    >>> week = np.array([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, np.nan])
    >>> closed_phases(np.tile(week, 6)[:-3], Calendar.of("D")).tolist()
    [False, False, True, False, False, False, False]
    >>> closed_phases(np.tile(week, 2), Calendar.of("D")) is None
    True
    """
    there, out = ~np.isnan(values), np.zeros(1, dtype=bool)
    if there.all() or not there.any():
        return None
    for cycle, fewest in _cycles(calendar):
        times = len(values) // cycle
        if times < fewest:
            break
        phase = np.arange(len(values)) % cycle
        count = np.bincount(phase, there, minlength=cycle)
        share = count.sum() / ((count > 0)[phase].sum() + 1)
        out = np.resize(out, cycle)
        if cycle * (1 - share) ** times < CHANCE:
            out = out | (count == 0)
    return np.roll(out, -(len(values) % len(out))) if out.any() else None


def _cycles(calendar: Calendar) -> list[tuple[int, int]]:
    """Return the steps of a day and of a week, where there are so many, and how often each must have come round."""
    if calendar.business_days == 1:
        return [(5, WEEKS)]
    if not calendar.nanoseconds or _DAY % calendar.nanoseconds:
        return []
    steps = _DAY // calendar.nanoseconds
    return [(steps, DAYS)] * (steps > 1) + [(7 * steps, WEEKS)]
