"""The grid of time a series lies on: which step a moment belongs to, and which moments come next."""

from __future__ import annotations

import re
from dataclasses import dataclass

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
    def of(cls, freq: str) -> Calendar:
        """Return the calendar of a pandas frequency, in old or new spelling."""
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
        if int(np.median(gaps)) == _DAY and len(moments) > 9 and np.is_busday(moments.astype("datetime64[D]")).all():
            return cls.of("B")
        freq = frequency_of(moments) if gaps.min() >= 10**9 else None
        if freq is not None:
            return cls.of(freq)
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

    def after(self, last: np.datetime64, steps: int, end_of_month: bool | None = None) -> Moments:
        """Return the next moments after one.

        Arguments:
            last: the last moment of the series.
            steps: how many.
            end_of_month: whether months are named by their last day; unless given, that is so where ``last`` is one.
        """
        ahead = np.arange(1, steps + 1)
        if self.months:
            day = last.astype("datetime64[D]")
            month = day.astype("datetime64[M]")
            number = int((day - month.astype("datetime64[D]")).astype(int))
            if end_of_month is None:
                end_of_month = bool((day + 1).astype("datetime64[M]") != month)
            months = month + ahead * self.months
            length = ((months + 1).astype("datetime64[D]") - months.astype("datetime64[D]")).astype(int)
            days = months.astype("datetime64[D]") + (length - 1 if end_of_month else np.minimum(number, length - 1))
            return days.astype("datetime64[ns]") + (last - day.astype("datetime64[ns]"))
        if self.business_days:
            day = last.astype("datetime64[D]")
            days = np.busday_offset(day, ahead * self.business_days, roll="backward")
            return days.astype("datetime64[ns]") + (last - day.astype("datetime64[ns]"))
        return last + (ahead * self.nanoseconds).astype("timedelta64[ns]")


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
