"""The grid of time a series lies on: which step a moment belongs to, and which moments come next."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np

from fourier_head.forecasting.frequency import frequency_of, natural_period, parse_frequency

Moments = np.ndarray
"""Moments in time, datetime64[ns]."""

_NANOSECONDS = {
    "second": 10**9,
    "minute": 60 * 10**9,
    "hour": 3600 * 10**9,
    "day": 86400 * 10**9,
    "week": 7 * 86400 * 10**9,
}
_MONTHS = {"month": 1, "quarter": 3, "year": 12}
_FINER = {"ms": 10**6, "L": 10**6, "us": 10**3, "U": 10**3, "ns": 1, "N": 1}
_DAY = _NANOSECONDS["day"]
_WORKING = re.compile(r"\d*\s*C?B(?:M|Q|Y|A)(?P<start>S)?E?(?:-|$)")
"""Frequencies whose months are named by their first or last working day."""
FIRST, LAST = (np.datetime64(end, "D") for end in ("1678-01-01", "2262-01-01"))
"""Days between which nanoseconds since 1970 fit into 64 bits."""


@dataclass(frozen=True)
class Calendar:
    """Say how far apart the values of a series are: so many months, business days or nanoseconds.

    Args:
        freq: the pandas alias it came from.
        months, business_days, nanoseconds: the step, two of them 0.

    Example:
        >>> calendar = Calendar.of("QE")
        >>> calendar.after(np.datetime64("2024-03-31", "ns"), 2).astype("datetime64[D]").astype(str).tolist()
        ['2024-06-30', '2024-09-30']
        >>> calendar.period
        4
    """

    freq: str
    months: int = 0
    business_days: int = 0
    nanoseconds: int = 0

    @classmethod
    def of(cls, freq: Any) -> Calendar:
        """Return the calendar of a pandas frequency, in old or new spelling; an offset of pandas says its own."""
        freq = str(getattr(freq, "freqstr", freq))
        known = parse_frequency(freq)
        if known is not None:
            count, unit = known
            if unit in _MONTHS:
                return cls(freq, months=count * _MONTHS[unit])
            if unit == "business day":
                return cls(freq, business_days=count)
            return cls(freq, nanoseconds=count * _NANOSECONDS[unit])
        fine = re.fullmatch(r"(\d*)\s*(\w+)", freq.strip())
        if fine is not None and fine[2] in _FINER:
            return cls(freq, nanoseconds=int(fine[1] or 1) * _FINER[fine[2]])
        raise ValueError(f"freq must be a pandas frequency such as 'h', 'D', 'W', 'ME', 'QE' or 'YE', got {freq!r}.")

    @classmethod
    def fitting(cls, moments: Moments) -> Calendar | None:
        """Return the calendar that fits ascending moments, None where there are too few to tell."""
        if len(moments) < 2:
            return None
        gaps = np.diff(moments.astype(np.int64))
        # Five working days and never a weekend: also where holidays are missing.
        working = bool(np.is_busday(moments.astype("datetime64[D]")).all())
        if int(np.median(gaps)) == _DAY and len(moments) > 9 and working:
            return cls.of("B")
        freq = frequency_of(moments) if gaps.min() >= 10**9 else None
        # Two days missing are no weekend where there are values on one.
        freq = "D" if freq == "B" and not working else freq
        if freq is not None:
            return _of_months(moments, freq) or cls.of(freq)
        step = int(np.median(gaps))
        return cls(f"{step}ns", nanoseconds=step) if step > 0 else None

    @property
    def period(self) -> int:
        """Steps per cycle, 1 where there is none."""
        return natural_period(self.freq)

    def numbers(self, moments: Moments) -> np.ndarray:
        """Return the step each moment belongs to, counted from any origin."""
        if self.months:
            return moments.astype("datetime64[M]").astype(np.int64) // self.months
        if self.business_days:
            days = np.busday_count(np.datetime64("1970-01-01"), moments.astype("datetime64[D]"))
            return days // self.business_days
        # From the first moment on, and to the nearest step: clocks are not exact.
        since = (moments - moments[0]).astype(np.int64) if len(moments) else np.zeros(0, np.int64)
        return (since + self.nanoseconds // 2) // self.nanoseconds

    def after(self, last: np.datetime64, steps: int, month_day: int | None = None) -> Moments:
        """Return the next moments after one, NaT where they are too far away for a moment.

        Arguments:
            last: the last moment of the series.
            steps: how many.
            month_day: the day that months are named by, 31 for the last one; unless given, as ``last`` has it.
        """
        ahead = np.arange(1, steps + 1)
        if self.months:
            day = last.astype("datetime64[D]")
            month = day.astype("datetime64[M]")
            first, end = _ends(month + ahead * self.months)
            working = _WORKING.match(self.freq)
            if working is not None and _on_working_day(last, working["start"]).all():
                days = _working_day(first, end, working["start"])
            else:
                days = np.minimum(first + (month_day or day_of_months(last)) - 1, end)
            return _at(days, last - day.astype("datetime64[ns]"))
        if self.business_days:
            day = last.astype("datetime64[D]")
            days = np.busday_offset(day, ahead * self.business_days, roll="backward")
            return _at(days, last - day.astype("datetime64[ns]"))
        return last + (ahead * self.nanoseconds).astype("timedelta64[ns]")


def day_of_months(moments: Moments | np.datetime64) -> int | None:
    """Return the day that months are named by, 31 where all are their last; None where it is now one, now another.

    >>> [day_of_months(np.array(days, "datetime64[ns]")) for days in (["2024-01-31", "2024-02-29"], ["2024-02-15"])]
    [31, 15]
    """
    days = np.atleast_1d(moments).astype("datetime64[D]")
    first, end = _ends(days.astype("datetime64[M]"))
    if (days == end).all():
        return 31
    latest = int((days - first).astype(int).max()) + 1
    # The 30th of February is its last day.
    return latest if (days == np.minimum(first + latest - 1, end)).all() else None


def _ends(months: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the first and the last days of months."""
    return months.astype("datetime64[D]"), (months + 1).astype("datetime64[D]") - 1


def _working_day(first: np.ndarray, end: np.ndarray, start: str | None) -> np.ndarray:
    """Return the first working days of months, or the last ones where ``start`` is empty."""
    return np.busday_offset(first, 0, "forward") if start else np.busday_offset(end, 0, "backward")


def _on_working_day(moments: Moments | np.datetime64, start: str | None) -> np.ndarray:
    days = np.atleast_1d(moments).astype("datetime64[D]")
    return days == _working_day(*_ends(days.astype("datetime64[M]")), start)


def _of_months(moments: Moments, freq: str) -> Calendar | None:
    """Return the calendar of moments that a plain frequency fits badly, None where it fits.

    Every second or sixth month is no number of days, every 30 days is no month, and months may be named by their first
    or last working day.
    """
    gaps: np.ndarray = np.diff(moments.astype("datetime64[M]").astype(np.int64))
    step, monthly = int(np.median(gaps)), bool(Calendar.of(freq).months)
    if step < 2 and not monthly:
        return None
    day = day_of_months(moments)
    if monthly:
        between = np.diff(moments).astype(np.int64).tolist()
        if (gaps == 0).any() and len(set(between)) == 1 and between[0] % _DAY == 0:
            return Calendar(f"{between[0] // _DAY}D", nanoseconds=between[0])
        if day is None and len(moments) > 2:
            kinds = ((None, f"B{freq}"), ("S", f"B{freq[0]}S"))
            return next((Calendar.of(kind) for start, kind in kinds if _on_working_day(moments, start).all()), None)
        return None
    clocks = np.unique(moments - moments.astype("datetime64[D]"))
    if (gaps % step).any() or day is None or len(clocks) > 1:
        return None
    return Calendar.of(f"{step // 12}YE" if step % 12 == 0 else f"{step}ME")


def _at(days: np.ndarray, clock: np.timedelta64) -> Moments:
    """Return the moments at a time of some days; nanoseconds do not reach all days, and would begin anew."""
    near = (days >= FIRST) & (days < LAST)
    return np.where(near, days, np.datetime64("NaT", "D")).astype("datetime64[ns]") + clock


def regular(moments: Moments, values: np.ndarray, calendar: Calendar, name: str) -> np.ndarray:
    """Return values on every step from the first moment to the last, NaN where none was seen.

    Arguments:
        moments: ascending.
        name: of the series, for the message where two values fall on one step.
    """
    place = calendar.numbers(moments)
    place = place - place[0]
    if len(place) == place[-1] + 1 and len(place) > 0 and bool((np.diff(place) == 1).all()):
        return values
    same = np.flatnonzero(np.diff(place) == 0)
    if len(same):
        first, second = (str(moments[same[0] + i].astype("datetime64[s]")) for i in (0, 1))
        raise ValueError(
            f"{name} has two values in one step of its frequency {calendar.freq!r}, at {first} and {second}; "
            "give another freq or one value per step."
        )
    if place[-1] > 100 * len(place) + 10_000:
        raise ValueError(
            f"{name} has {len(place)} values on {place[-1] + 1} steps of frequency {calendar.freq!r}; give its freq."
        )
    out = np.full(int(place[-1]) + 1, np.nan)
    out[place] = values
    return out
