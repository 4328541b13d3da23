"""Dates in their spellings: days before or after their month, months, quarters, whole numbers, seconds since 1970."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np

from fourier_head._clocks import Clock, changes_of
from fourier_head.forecasting.calendars import FIRST, LAST, Calendar

if TYPE_CHECKING:
    import pandas as pd

CLOCK = r"\d{1,2}:\d{2}(?::\d{2}(?:\.\d+)?)?"
"""A time of day."""
_YEAR = r"(?:1[5-9]|2[01])\d\d"
_WHOLE = ((_YEAR, "%Y"), (rf"{_YEAR}(?:0[1-9]|1[0-2])", "%Y%m"), (rf"{_YEAR}[01]\d[0-3]\d", "%Y%m%d"))
# 01.2016 and 2016.01, which a table reader takes for numbers: digits after the point, and the form of the date.
_POINTED = ((4, rf"(?:[1-9]|1[0-2])\.{_YEAR}", "%m.%Y"), (2, rf"{_YEAR}\.(?:0[1-9]|1[0-2])", "%Y.%m"))
# From 2001 to 2033: no year, month or day written as a number is as large.
_SINCE_1970 = (("s", 10**9, 2 * 10**9), ("ms", 10**12, 2 * 10**12))
# Year and month; the letters of a month are cut to three.
_QUARTERS = r"^(?P<year>\d{4})[- ]?Q(?P<month>[1-4])$"
_MONTHS = (
    (_QUARTERS, "%Y %m"),
    (r"^(?P<year>\d{4})(?:[./-]?M|[./-])(?P<month>\d{1,2})$", "%Y %m"),
    (r"^(?P<month>\d{1,2})[./-](?P<year>\d{4})$", "%Y %m"),
    (r"^(?P<month>[A-Za-z]{3})[a-z]*\.?[ '-]+(?P<year>\d{4})$", "%Y %b"),
    (r"^(?P<month>[A-Za-z]{3})[a-z]*\.?(?:-| ?')(?P<year>\d{2})$", "%y %b"),
)


_OFFSET = r":[\d.]+ *(?P<sign>[+-])(?P<hours>\d{2}):?(?P<minutes>\d{2})$"
"""What is after a time of day that tells its zone."""
_CHANGES_APART = 4 * 7 * 86400
"""Seconds before which clocks are not set again; offsets that change sooner are of several zones."""


class DateWarning(UserWarning):
    """Say that dates could be read in two ways."""


def _floats(column: pd.Series) -> pd.Series:
    """Return float64, NaN for what is no number; pandas has other kinds of missing numbers."""
    import pandas as pd

    numbers = pd.to_numeric(column, errors="coerce").to_numpy(dtype=np.float64, na_value=np.nan)
    return pd.Series(numbers, index=column.index)


def whole_number_dates(column: pd.Series) -> pd.Series | None:
    """Return the moments of dates written as whole numbers (2024, 202401, 20240131), None for other numbers."""
    import pandas as pd

    numbers = _floats(column)
    if not len(numbers) or not np.isfinite(numbers).all() or (numbers != numbers.round()).any():
        return None
    text = numbers.astype("int64").astype(str)
    for pattern, form in _WHOLE:
        if text.str.fullmatch(pattern).all():
            return pd.to_datetime(text, format=form, errors="coerce")
    return None


def number_dates(column: pd.Series) -> pd.Series | None:
    """Return the moments of dates that look like numbers: also 01.2016, and seconds or milliseconds since 1970."""
    import pandas as pd

    whole = whole_number_dates(column)
    if whole is not None:
        return whole
    numbers = _floats(column)
    if not len(numbers) or not np.isfinite(numbers).all():
        return None
    for digits, pattern, form in _POINTED:
        # The point must be there, and nothing beyond the digits.
        if (numbers.round(digits) == numbers).all():
            text = numbers.map(lambda value, digits=digits: f"{value:.{digits}f}")
            if text.str.fullmatch(pattern).all():
                return pd.to_datetime(text, format=form, errors="coerce")
    if (numbers == numbers.round()).all():
        for unit, low, high in _SINCE_1970:
            if ((numbers >= low) & (numbers < high)).all():
                return pd.to_datetime(numbers.astype("int64"), unit=unit)
    return None


def parse_dates(column: pd.Series) -> tuple[pd.Series, Any]:
    """Return moments, NaT where a date cannot be read, and a date whose day might as well be its month, if any is.

    Time zones stay as they come.
    """
    import pandas as pd

    if isinstance(column.dtype, pd.PeriodDtype):
        return column.dt.to_timestamp(), None
    if isinstance(column.dtype, pd.ArrowDtype) and column.dtype.kind == "M":
        zone = column.dt.tz
        column = column.astype("datetime64[ns]" if zone is None else pd.DatetimeTZDtype("ns", zone))
    if pd.api.types.is_datetime64_any_dtype(column):
        return column, None
    if pd.api.types.is_numeric_dtype(column):
        numbers = number_dates(column.dropna())
        return (pd.Series(pd.NaT, index=column.index) if numbers is None else numbers.reindex(column.index)), None
    # Tables of many series name every date many times: each is read once.
    places, different = pd.factorize(column.astype("string").str.strip())
    parsed, doubtful = _parse_different(pd.Series(different, dtype="string"))
    # What is missing has place -1, where there is nothing.
    return parsed.reindex(places).set_axis(column.index), doubtful


def _parse_different(text: pd.Series) -> tuple[pd.Series, Any]:
    numbers = number_dates(text)
    if numbers is not None:
        return numbers, None
    # The parser makes days of today's year or month of what names neither: a word such as May, a time such as 08:00.
    text = text.where(text.str.contains(r"\d") & ~text.str.fullmatch(CLOCK))
    months = _parse_months(text)
    if months is not None:
        return months, None
    day_first, doubtful = _day_first(text.dropna())
    return _parse_text(text, day_first), doubtful


def _parse_months(text: pd.Series) -> pd.Series | None:
    """Return the first days of months or quarters, None where most of the text is neither."""
    import pandas as pd

    first = text.dropna().head(200)
    for pattern, form in _MONTHS:
        if first.str.match(pattern).sum() > 0.5 * len(first):
            found = text.str.extract(pattern)
            month = found["month"]
            if pattern == _QUARTERS:
                month = (pd.to_numeric(month) * 3 - 2).astype("Int64").astype("string")
            return pd.to_datetime(found["year"] + " " + month, format=form, errors="coerce")
    return None


def _parse_text(text: pd.Series, day_first: bool) -> pd.Series:
    import pandas as pd

    with warnings.catch_warnings():
        # pandas says when it must guess a format row by row, and when zones differ; the result is checked here.
        warnings.simplefilter("ignore")
        try:
            parsed = pd.to_datetime(text, errors="coerce", dayfirst=day_first)
        except (ValueError, TypeError):
            parsed = None
        # Offsets that differ, as in summer and winter, are no one zone: some versions raise, some keep objects.
        if parsed is None or not pd.api.types.is_datetime64_any_dtype(parsed):
            parsed = pd.to_datetime(text, errors="coerce", dayfirst=day_first, utc=True)
        return parsed


def _day_first(text: pd.Series) -> tuple[bool, Any]:
    """Tell whether days come before months, and a date that shows the doubt where either may be meant.

    Points say so, and so does a number above 12. Else the reading counts that is evenly spaced: the first days of
    months, read the other way, are the first twelve days of every year.
    """
    if not text.head(200).str.match(r"^\d{1,2}[/.-]").any():
        return False, None
    if text.str.match(r"^\d{1,2}\.\d{1,2}\.\d{4}").all():
        return True, None
    parts = text.str.extract(r"^(\d{1,2})[/.-](\d{1,2})[/.-]\d{2,4}\b").dropna().astype(int)
    if (parts[0] > 12).any():
        return True, None
    differ = parts[0] != parts[1]
    if (parts[1] > 12).any() or not differ.any():
        return False, None
    month_first, day_first = (_filled(_parse_text(text, order)) for order in (False, True))
    if max(month_first, day_first) > 0.5 and max(month_first, day_first) > 2 * min(month_first, day_first):
        return day_first > month_first, None
    return False, text[differ.index[differ][0]]


def _filled(parsed: pd.Series) -> float:
    """Return the share of the steps from the first moment to the last that are there, 0 where some share a step."""
    if getattr(parsed.dt, "tz", None) is not None:
        parsed = parsed.dt.tz_convert("UTC").dt.tz_localize(None)
    times = np.unique(parsed.dropna().to_numpy().astype("datetime64[ns]"))
    calendar = Calendar.fitting(times)
    if calendar is None:
        return 0.0
    place = calendar.numbers(times)
    return 0.0 if (np.diff(place) == 0).any() else float(len(place) / (place[-1] - place[0] + 1))


def moments(column: pd.Series) -> tuple[np.ndarray, Any, bool]:
    """Return a column of dates as datetime64[ns] without a zone, the zone they were in, and whether they are universal.

    Dates with a zone become local ones where all share a time of day, so that days stay days when clocks change, and
    universal ones elsewhere. Where they have offsets of summer and winter, but no zone's name, the zone is a `Clock`.
    """
    import pandas as pd

    parsed, doubtful = parse_dates(column)
    bad = np.flatnonzero(parsed.isna().to_numpy())
    if len(bad):
        found = column.iloc[bad[0]]
        what = "nothing" if pd.isna(found) else repr(str(found)[:40])
        raise ValueError(f"the time column {str(column.name)!r} must hold dates, got {what} in row {bad[0] + 1}.")
    if doubtful is not None:
        read = parsed[(column.astype("string").str.strip() == doubtful).to_numpy(dtype=bool)].iloc[0]
        warnings.warn(
            f"the time column {str(column.name)!r} may be month first or day first: {doubtful!r} is read as "
            f"{read.date()}; write dates as year-month-day to be sure.",
            DateWarning,
            stacklevel=2,
        )
    zone, universal = getattr(parsed.dt, "tz", None), False
    if zone is not None:
        local = parsed.dt.tz_localize(None)
        clock = _clock_of_offsets(column, local) if str(zone) == "UTC" else None
        if clock is not None:
            zone, local = clock, pd.Series(clock.local(local.to_numpy().astype("datetime64[ns]")))
        universal = (local - local.dt.normalize()).nunique() > 1
        parsed = parsed.dt.tz_convert("UTC").dt.tz_localize(None) if universal else local
    times = parsed.to_numpy()
    days = times.astype("datetime64[D]")
    far = np.flatnonzero((days < FIRST) | (days >= LAST))
    if len(far):
        raise ValueError(
            f"the time column {str(column.name)!r} must hold dates from {FIRST} to {LAST - 1}, got {days[far[0]]} in "
            f"row {far[0] + 1}; without dates, steps are counted."
        )
    return times.astype("datetime64[ns]"), zone, universal


def _clock_of_offsets(column: pd.Series, times: pd.Series) -> Clock | None:
    """Return the clock that offsets such as +01:00 and +02:00 of one column are of, None where they are of no one.

    Arguments:
        column: dates as they were written.
        times: the same in universal time.
    """
    import pandas as pd

    if pd.api.types.is_datetime64_any_dtype(column) or pd.api.types.is_numeric_dtype(column):
        return None
    places, different = pd.factorize(column.astype("string").str.strip())
    parts = pd.Series(different, dtype="string").str.extract(_OFFSET)
    minutes = parts[["hours", "minutes"]].astype("Float64").fillna(0.0).to_numpy(dtype=np.float64) @ (60.0, 1.0)
    ahead = np.where(parts["sign"].eq("-").fillna(False), -60.0, 60.0) * minutes
    moments, first = np.unique(times.to_numpy().astype("datetime64[ns]"), return_index=True)
    at = ahead[places]
    offsets = at[first]
    if (offsets[np.searchsorted(moments, times.to_numpy())] != at).any():
        return None  # different ones at one moment
    changes = changes_of(moments, offsets)
    if len(changes) < 2 or (np.diff([start for start, _ in changes[1:]]) < _CHANGES_APART).any():
        return None
    return Clock(changes)
