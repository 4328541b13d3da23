"""The grid of time a series lies on: which step a time belongs to, and which times come next."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fourier_head.forecasting.frequency import alias_of_seconds, natural_period, parse_frequency

Timestamps = np.ndarray
"""An array of datetime64[ns]."""

_SECOND = 10**9
_DAY = 86400 * _SECOND
_NANOSECONDS = {"nanosecond": 1, "microsecond": 10**3, "millisecond": 10**6, "second": _SECOND}
_NANOSECONDS |= {"minute": 60 * _SECOND, "hour": 3600 * _SECOND, "day": _DAY, "week": 7 * _DAY}
_MONTHS = {"month": 1, "quarter": 3, "year": 12}
_USUAL = [size * _SECOND for size in (1, 5, 10, 15, 30, 60, 300, 600, 900, 1200, 1800)]
_USUAL += [size * 3600 * _SECOND for size in (1, 3, 6, 12, 24, 168)]
"""Steps that clocks and programs which take measurements are set to."""
ONE_DAY, ONE_MONTH = np.timedelta64(1, "D"), np.timedelta64(1, "M")
FIRST, LAST = (np.datetime64(end, "D") for end in ("1678-01-01", "2262-01-01"))
"""Days between which nanoseconds since 1970 fit into 64 bits."""


@dataclass(frozen=True)
class Calendar:
    """Say how far apart the values of a series are: so many months, halves of them, business days or nanoseconds.

    Args:
        freq: the pandas alias it came from.
        months, half_months, business_days, nanoseconds: the step, three of them 0. Halves begin on the 1st and the 15th
            ("SMS") or end on the 15th and the last day ("SME").

    Example:
        >>> calendar = Calendar.of("QE")
        >>> calendar.after(np.datetime64("2024-03-31", "ns"), 2).astype("datetime64[D]").astype(str).tolist()
        ['2024-06-30', '2024-09-30']
        >>> calendar.period
        4
    """

    freq: str
    months: int = 0
    half_months: int = 0
    business_days: int = 0
    nanoseconds: int = 0

    @classmethod
    def of(cls, freq: Any) -> Calendar:
        """Return the calendar of a pandas frequency, in old or new spelling; an offset of pandas says its own."""
        freq = str(getattr(freq, "freqstr", freq))
        count, unit = parse_frequency(freq) or (0, "")
        halves = count if unit == "half month" else 0
        if not count or (halves and freq.partition("-")[2] not in ("", "15")):
            raise ValueError(
                f"freq must be a pandas frequency such as 'h', 'D', 'W', 'ME', 'QE' or 'YE', got {freq!r}."
            )
        business = count if unit == "business day" else 0
        return cls(freq, count * _MONTHS.get(unit, 0), halves, business, count * _NANOSECONDS.get(unit, 0))

    @classmethod
    def fitting(cls, times: Timestamps) -> Calendar | None:
        """Return the calendar of ascending times, of which some may be missing; None where there are too few."""
        gaps = np.diff(times).astype(np.int64)
        step = int(np.median(gaps)) if len(gaps) else 0
        if step <= 0:
            return None
        if 13 * _DAY <= step <= 17 * _DAY and (freq := _frequency_of_halves(times)):
            return cls.of(freq)
        if step >= 28 * _DAY and (freq := _frequency_of_months(times, gaps)):
            return cls.of(freq)
        uneven = (np.abs(gaps / step - np.rint(gaps / step)) > 0.25).mean() > 0.1
        common = int(np.gcd.reduce(gaps))
        if uneven and (common % _DAY == 0 or (gaps == common).mean() > 0.05):
            # Rows for some steps only, such as days with a sale: all gaps are multiples of the step.
            step = common
        if step not in _USUAL and (gaps % step).any():
            step = _exact(step, times)
        # Five working days and never a weekend: also where holidays are missing.
        working = step == _DAY and bool(np.is_busday(times.astype("datetime64[D]")).all())
        if working and (len(times) > 9 or (len(times) > 5 and (gaps == 3 * _DAY).any())):
            return cls.of("B")
        return cls.of(alias_of_seconds(step // _SECOND) if step % _SECOND == 0 else f"{step}ns")

    @property
    def period(self) -> int:
        """Steps per cycle, 1 where there is none."""
        return natural_period(self.freq)

    def numbers(self, times: Timestamps) -> np.ndarray:
        """Return the step each time belongs to, counted from any origin."""
        if self.months:
            return times.astype("datetime64[M]").astype(np.int64) // self.months
        if self.half_months:
            days = times.astype("datetime64[D]")
            months = days.astype("datetime64[M]")
            late = days >= months.astype("datetime64[D]") + (14 if "SMS" in self.freq else 15) * ONE_DAY
            return (2 * months.astype(np.int64) + late) // self.half_months
        if self.business_days:
            days = np.busday_count(np.datetime64("1970-01-01"), times.astype("datetime64[D]"))
            return days // self.business_days
        # From the first time on, and to the nearest step: clocks are not exact.
        return ((times - times[:1]).astype(np.int64) + self.nanoseconds // 2) // self.nanoseconds

    def after(self, last: np.datetime64, steps: int, month_day: int | None = None) -> Timestamps:
        """Return the next times after one, NaT where they are too far away for a time.

        Args:
            last: the last time of the series.
            steps: how many; where negative, the ones before, latest first.
            month_day: the day that months are named by, 31 for the last one; unless given, as ``last`` has it.
        """
        ahead = np.arange(1, abs(steps) + 1) * np.sign(steps)
        if self.nanoseconds:
            return last + (ahead * self.nanoseconds).astype("timedelta64[ns]")
        day = last.astype("datetime64[D]")
        month, kind = day.astype("datetime64[M]"), self.freq.split("-")[0]
        if self.half_months:
            place = (self.numbers(np.atleast_1d(last)) + ahead) * self.half_months
            first, end = _ends((place // 2).astype("datetime64[M]"))
            starts = "SMS" in self.freq
            days = np.where(
                place % 2 == 0, first + (0 if starts else 14) * ONE_DAY, first + 14 * ONE_DAY if starts else end
            )
        elif self.business_days:
            days = np.busday_offset(day, ahead * self.business_days, roll="backward")
        elif "B" in kind and _working_day(month, "S" in kind) == day:
            days = _working_day(month + ahead * self.months, "S" in kind)
        else:
            first, end = _ends(month + ahead * self.months)
            days = np.minimum(first + ((month_day or day_of_months(last) or 1) - 1) * ONE_DAY, end)
        # Nanoseconds do not reach all days, and would begin anew.
        days = np.where((days >= FIRST) & (days < LAST), days, np.datetime64("NaT", "D"))
        return days.astype("datetime64[ns]") + (last - day.astype("datetime64[ns]"))


def _exact(step: int, times: Timestamps) -> int:
    """Return the usual step that moments which are not exact stand for, the same where there is none.

    >>> _exact(3601 * 10**9, np.array(["2024-01-01T08:00:00", "2024-01-01T09:00:02", "2024-01-01T10:00:01"], "M8[ns]"))
    3600000000000
    """
    near = next((usual for usual in _USUAL if abs(step - usual) <= usual / 50), step)
    place = np.rint((times - times[0]).astype(np.int64) / near)
    return step if (np.diff(place) == 0).any() else near


def day_of_months(times: Timestamps | np.datetime64) -> int | None:
    """Return the day that months are named by, 31 where all are their last; None where it is now one, now another.

    >>> [day_of_months(np.array(days, "datetime64[ns]")) for days in (["2024-01-31", "2024-02-29"], ["2024-02-15"])]
    [31, 15]
    """
    days = np.atleast_1d(times).astype("datetime64[D]")
    first, end = _ends(days.astype("datetime64[M]"))
    latest = 31 if (days == end).all() else int((days - first).astype(int).max()) + 1
    # The 30th of February is its last day.
    return latest if (days == np.minimum(first + (latest - 1) * ONE_DAY, end)).all() else None


def _ends(months: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the first and the last days of months."""
    return months.astype("datetime64[D]"), (months + ONE_MONTH).astype("datetime64[D]") - ONE_DAY


def _working_day(months: np.ndarray, start: bool) -> np.ndarray:
    """Return the first working days of months, or the last ones."""
    first, end = _ends(months)
    return np.busday_offset(first, 0, "forward") if start else np.busday_offset(end, 0, "backward")


def _frequency_of_halves(times: Timestamps) -> str | None:
    """Return the pandas alias of the halves of months that times are at, None where they are at none.

    >>> days = ["2024-01-15", "2024-01-31", "2024-02-15", "2024-02-29"]
    >>> _frequency_of_halves(np.array(days, "datetime64[ns]"))
    'SME'
    """
    days = times.astype("datetime64[D]")
    first, end = _ends(days.astype("datetime64[M]"))
    middle = days == first + 14 * ONE_DAY
    if len(days) < 4 or not middle.any():
        return None
    return "SMS" if (middle | (days == first)).all() else "SME" if (middle | (days == end)).all() else None


def _frequency_of_months(times: Timestamps, gaps: np.ndarray) -> str | None:
    """Return the pandas alias of the months, quarters or years that times are at, None where they are at none.

    They may be named by the same day or by their first or last working day, or be about as far apart.
    """
    days = times.astype("datetime64[D]")
    months = days.astype("datetime64[M]")
    step, day, kind = int(np.gcd.reduce(np.diff(months).astype(np.int64))), day_of_months(times), ""
    for named in (31, 1) if day is None and len(times) > 2 else ():
        if (_working_day(months, named == 1) == days).all():
            day, kind = named, "B"
    if day is None:
        usual = np.median(gaps) / _DAY
        step = 1 if 28 <= usual <= 31 else 3 if 89 <= usual <= 93 else 12 if 364 <= usual <= 367 else 0
        if len(gaps) > 1 and (gaps == gaps[0]).all():
            return None
    if not step or (np.diff(months.astype(np.int64) // step) == 0).any():
        return None
    unit, size = ("Y", 12) if step % 12 == 0 else ("Q", 3) if step == 3 else ("M", 1)
    return f"{step // size if step > size else ''}{kind}{unit}{'S' if day == 1 else 'E'}"


def may_be_set_back(times: np.ndarray) -> np.ndarray:
    """Tell which times are in an hour that local clocks may show twice: the night of a Sunday in autumn.

    >>> may_be_set_back(np.array(["2024-10-27T01", "2024-10-27T02", "2024-10-28T02"], "datetime64[ns]")).tolist()
    [True, True, False]
    """
    days = times.astype("datetime64[D]")
    clock = (times - days).astype(np.int64)
    month = times.astype("datetime64[M]").astype(np.int64) % 12 + 1
    night = (clock < 4 * 3600 * 10**9) & (days.astype(np.int64) % 7 == 3) & np.isin(month, (4, 9, 10, 11))
    return night & bool(clock.any())
