"""Closed steps: times of the week or day at which a series never has a value, such as the Sundays of a shop."""

from __future__ import annotations

import numpy as np

from fourier_head.forecasting.calendars import Calendar, Timestamps

_DAY = 86400 * 10**9
WEEKS, DAYS = 4, 7
"""Weeks, or days, that a series must have: of fewer, a gap is a gap."""
CHANCE = 1e-4
"""Probability that a time without a value is there by chance, up to which it is none."""


def phases_of(times: Timestamps, calendar: Calendar) -> np.ndarray:
    """Return which step of a week each time is, or each working day; 0 where a calendar has no steps of a week.

    >>> phases_of(np.array(["2024-01-05", "2024-01-08", "2024-01-12"], "datetime64[ns]"), Calendar.of("B")).tolist()
    [4, 0, 4]
    """
    cycles = _cycles(calendar)
    if calendar.business_days:
        return (times.astype("datetime64[D]").astype(np.int64) + 3) % 7  # the first of 1970 was a Thursday
    return times.astype(np.int64) // calendar.nanoseconds % cycles[-1][0] if cycles else np.zeros(len(times), np.int64)


def closed_phases(values: np.ndarray, phases: np.ndarray, calendar: Calendar) -> np.ndarray | None:
    """Return at which phases of a day or week, by their numbers, a series has no value; None where there is no such.

    A time counts as closed where values are so frequent at the others that chance would hardly leave it without any.

    >>> week, days = np.array([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, np.nan]), np.arange(42) % 7
    >>> closed_phases(np.tile(week, 6), days, Calendar.of("D")).tolist()
    [False, False, False, False, False, False, True]
    >>> closed_phases(np.tile(week, 2), days[:14], Calendar.of("D")) is None
    True
    """
    there, out = ~np.isnan(values), np.zeros(1, dtype=bool)
    for cycle, fewest in _cycles(calendar):
        if len(values) < fewest * cycle:
            break
        came = np.bincount(phases % cycle, minlength=cycle)
        times = max(1, came.min())
        count = np.bincount(phases % cycle, there, minlength=cycle)
        share = count.sum() / (came[count > 0].sum() + 1)
        out = np.resize(out, cycle)
        if cycle * (1 - share) ** times < CHANCE:
            out = out | (count == 0)
    return out if out.any() else None


def _cycles(calendar: Calendar) -> list[tuple[int, int]]:
    """Return the steps of a day and of a week, where there are so many, and how often each must have come round."""
    if calendar.business_days == 1:
        return [(5, WEEKS)]
    if not calendar.nanoseconds or _DAY % calendar.nanoseconds:
        return []
    steps = _DAY // calendar.nanoseconds
    return [(steps, DAYS)] * (steps > 1) + [(7 * steps, WEEKS)]
