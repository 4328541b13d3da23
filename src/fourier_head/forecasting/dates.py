"""Dates in their spellings: days before or after their month, months, quarters, weeks, whole numbers, since 1970."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
import pandas as pd
from pandas.tseries.api import guess_datetime_format

from fourier_head._clocks import Clock, changes_of
from fourier_head.forecasting.calendars import FIRST, LAST, ONE_DAY, Calendar
from fourier_head.forecasting.time_names import folded, in_english

CLOCK = r"\d{1,2}:\d{2}(?::\d{2}(?:\.\d+)?)?"
"""A time of day."""
_YEAR, _MONTH = r"(?:1[5-9]|2[01])\d\d", r"(?:0[1-9]|1[0-2])"
# Digits after the point (a reader of tables takes 01.2016 for a number), what the number looks like, and its format.
_NUMBERS = (
    (0, rf"{_YEAR}{_MONTH}[0-3]\d", "%Y%m%d"),
    (0, _YEAR + _MONTH, "%Y%m"),
    (0, _YEAR, "%Y"),
    (4, rf"(?:[1-9]|1[0-2])\.{_YEAR}", "%m.%Y"),
    (2, rf"{_YEAR}\.{_MONTH}", "%Y.%m"),
)
_PLAIN = re.compile(
    r"(?:\d{4}-\d\d-\d\d|\d{1,2}(?P<sign>[./-])\d{1,2}(?P=sign)\d{4})"
    r"(?:[ T]\d{1,2}:\d\d(?::[\d.]+)?(?: ?[+-]\d\d:?\d\d|Z)?)?"
)
"""A day, and maybe its time of day, as pandas reads it."""
_OFFSET = r"(?P<clock>:[\d.]+) *(?:[+-]\d{2}:?\d{2}|Z)$"
"""What is after a time of day that tells its zone."""
_CHANGES_APART = 4 * 7 * 86400
"""Seconds before which clocks are not set again; offsets that change sooner are of several zones."""


class DateWarning(UserWarning):
    """Say what whoever gave the dates should know: that they could be read in two ways, or do not reach far enough."""


def _first_day(form: str) -> Callable[[re.Match[str]], str]:
    """Return what writes the first day of a month or week, found in parts, as pandas reads it in any column."""
    return lambda found: str(pd.to_datetime("-".join([*found.groups(), "1"]), format=form, errors="coerce"))[:10]


# Spellings of months, quarters and weeks that pandas does not know, and what it does.
_SPELLINGS: tuple[tuple[str, Any], ...] = (
    (r" \([A-Z]{2,5}\)(?= |$)", ""),  # a zone by its name, as data of power have it in nights in which clocks are set
    # From one time to another, as weeks of pandas and data of power are written.
    (r"^(\d\S*\d(?: \d\S*\d)?|\d{1,2} [A-Za-z]{3,9}\.? \d{4})(?: [-–] |/(?=\d{4}-))\d.*$", r"\1"),
    (r"(?<=\d) ?[年月년월] ?(?=\d)", "-"),  # Chinese, Japanese and Korean
    (r"(?<=\d) ?[年月日년월일]", ""),
    (r"\bFY ?(?=\d{4})", ""),
    (r"\bFY ?(?=[0-6]\d(?:\D|$))", "20"),
    (r"\bFY ?(?=[7-9]\d(?:\D|$))", "19"),
    (r"^[QT]([1-4])\W*(\d{4})$", r"\2Q\1"),
    (r"(?i)^([1-4])(?:\.|st|nd|rd|th|er|e|º)? ?(?:quartal|quarter|trimestre)\W+(\d{4})$", r"\2Q\1"),
    (r"^Q([1-4])\W{1,2}(\d{2})$", r"\1Q\2"),
    (r"^(?:H1\W*(\d{4})|(\d{4})\W?[HS]1)$", r"\1\2-01"),
    (r"^(?:H2\W*(\d{4})|(\d{4})\W?[HS]2)$", r"\1\2-07"),
    (r"^(?:KW|CW|W|S) ?(\d{1,2})\W+(\d{4})$", _first_day("%V-%G-%u")),
    (r"^(\d{4})\W?Q([1-4])$", r"\1Q\2"),
    (r"^(\d{4})\W?W(\d{1,2})$", _first_day("%G-%V-%u")),
    (r"^(\d{4})(?:\W?M|[./])(\d{1,2})$", r"\1-\2"),
    (r"^0?(\d{1,2})[./-](\d{4})$", r"\2-\1"),
    (r"^(\d{4})([A-Za-z]{3})[a-z]*$", _first_day("%Y-%b-%d")),
    (r"^([A-Za-z]{3})[a-z]*(?:\W+|\.?-| ?')(\d{4})$", _first_day("%b-%Y-%d")),
    (r"^([A-Za-z]{3})[a-z]*(?:\.?-| ?')(\d{2})$", _first_day("%b-%y-%d")),
)
# What a week or a quarter is, its column says: 2024-1 and 202401 would be months.
_WEEKS = ("week", "year_week", "yearweek", "iso_week", "isoweek")
_SPELLED_UNDER: dict[str, tuple[tuple[str, Any], ...]] = {
    **dict.fromkeys(_WEEKS, ((r"^(\d{4})[-/. ](\d{1,2})$", r"\1-W\2"),)),
    "quarter": (
        (r"^(\d{4})[-/. ]([1-4])$", r"\1Q\2"),
        (r"^(\d{4})[-/. ](I{1,3}|IV)$", lambda found: f"{found[1]}Q{('I', 'II', 'III', 'IV').index(found[2]) + 1}"),
    ),
}


def number_dates(column: pd.Series, called_time: bool = True) -> pd.Series | None:
    """Return the timestamps of dates that look like numbers, None for other numbers.

    They are days such as 20240131 and, in a column that is called a time, also years, months (202401, 01.2016, and
    1949.083 for the second of a year) and seconds or parts of them since 1970; in one that is called weeks, 202401 is
    the first of a year.
    """
    numbers = pd.to_numeric(column, errors="coerce").astype("Float64").astype("float64")
    if not len(numbers) or not np.isfinite(numbers).all():
        return None
    if folded(column.name) in _WEEKS and numbers.between(150000, 220000).all():
        text = numbers.map("{:.0f}".format)
        weeks = pd.to_datetime(text + "-1", format="%G%V-%u", errors="coerce")
        return weeks.where(weeks.dt.strftime("%G%V") == text)  # week 53 of a year that has 52 is none of the next
    for digits, pattern, form in _NUMBERS if called_time else _NUMBERS[:1]:
        if not (numbers.round(digits) == numbers).all():
            continue
        text = numbers.map(f"{{:.{digits}f}}".format)
        if text.str.fullmatch(pattern).all():
            return pd.to_datetime(text, format=form, errors="coerce")
    if not called_time:
        return None
    months = (numbers * 12).round()
    apart = ((numbers * 12 - months).abs() < 0.06).all() and months.nunique() == numbers.nunique()
    if apart and numbers.between(1500, 2200).all():
        text = (months // 12).map("{:.0f}".format) + (months % 12 + 1).map("-{:02.0f}".format)
        return pd.to_datetime(text, format="%Y-%m", errors="coerce")
    return since_1970(numbers)


def since_1970(column: pd.Series) -> pd.Series | None:
    """Return the timestamps of seconds, or of thousandths, millionths and so on, since 1970; None for other numbers.

    >>> since_1970(pd.Series([1711321200.5, 1711321260.5])).tolist()[0], since_1970(pd.Series([10.0, 20.0]))
    (Timestamp('2024-03-24 23:00:00.500000'), None)
    """
    numbers = pd.to_numeric(column, errors="coerce").astype("Float64").astype("float64")
    for least in (1e9, 1e12, 1e15, 1e18):
        # From 2001 to 2033: no year, month or day written as a number is as large.
        if ((numbers >= least) & (numbers < 2 * least)).all():
            return pd.to_datetime((numbers * (1e15 / least)).round().astype("int64"), unit="us")
    return None


def parse_dates(column: pd.Series) -> tuple[pd.Series, Any]:
    """Return timestamps, NaT where a date cannot be read, and a date whose day might as well be its month, if any is.

    Time zones stay as they come; written offsets make UTC.
    """
    if isinstance(column.dtype, pd.PeriodDtype):
        return column.dt.to_timestamp(), None
    if isinstance(column.dtype, pd.ArrowDtype) and column.dtype.kind == "M":
        zone = getattr(column.dtype.pyarrow_dtype, "tz", None)  # days have none, nor a place for one
        column = column.astype("datetime64[ns]" if zone is None else pd.DatetimeTZDtype("ns", zone))
    if pd.api.types.is_datetime64_any_dtype(column):
        return column, None
    # Tables of many series name every date many times: each is read once.
    places, different = pd.factorize(column)
    text, doubtful = pd.Series(different, name=column.name, dtype=different.dtype).astype("string").str.strip(), None
    if (parsed := _parse_plain(text)) is None and (parsed := number_dates(text)) is None:
        # The parser makes days of today's year or month of what names neither: words such as May, times such as 08:00.
        text = in_english(text.where(text.str.contains(r"\d") & ~text.str.fullmatch(rf"{CLOCK}|[+-]?\d+(?:[.,]\d*)?")))
        other = text[~text.str.fullmatch(_PLAIN).fillna(True).astype(bool)]
        for pattern, spelling in (*_SPELLED_UNDER.get(folded(column.name), ()), *_SPELLINGS):
            other = other.str.replace(pattern, spelling, regex=True)
        text[other.index] = _over_new_year(other)
        # The end of a day is the begin of the next.
        ends = text.str.contains(r"[ T]24:00(?::00)?$").fillna(False).astype(bool)
        text = text.str.replace(r"(?<=[ T])24(?=:00(?::00)?$)", "00", regex=True)
        day_first, doubtful = _day_first(text.dropna())
        parsed = _parse_text(text, day_first)
        parsed = parsed.where(~ends, parsed + pd.Timedelta(days=1)) if ends.any() else parsed
    # What is missing has place -1, where there is nothing.
    return parsed.reindex(places).set_axis(column.index), doubtful


def _parse_plain(text: pd.Series) -> pd.Series | None:
    """Return the timestamps of dates that are all spelt like the first, None unless they can be read in one way.

    This takes a small part of the time that all other spellings take.

    >>> [_parse_plain(pd.Series([day, "2/1/2024"])) is None for day in ("13/1/2024", "1/13/2024", "1/1/2024")]
    [False, False, True]
    """
    plain = _PLAIN.fullmatch(text.iloc[0]) if len(text) else None
    if plain is None:
        return None
    orders, read = {".": (True,), None: (False,)}.get(plain["sign"], (False, True)), []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # pandas says where a day can only be first, or last
        forms = dict.fromkeys(guess_datetime_format(plain[0], order) for order in orders)
    for form in filter(None, forms):
        with suppress(ValueError):
            read.append(pd.to_datetime(text, format=form, utc="%z" in form))
    return read[0] if len(read) == 1 else None


def _over_new_year(text: pd.Series) -> pd.Series:
    """Return years that are written as 2023/24, which one alone may be a month of, by their first.

    >>> _over_new_year(pd.Series(["2010/11", "2011/12", "2012/13"])).tolist()
    ['2010-01', '2011-01', '2012-01']
    """
    years = text.dropna().str.extract(r"^(\d{4})[-/–](\d{2})$")
    if len(years) < 3 or years.isna().any(axis=None):
        return text
    first, second = years[0].astype(int), years[1].astype(int)
    return text if ((first + 1) % 100 != second).any() else (years[0] + "-01").reindex(text.index)


def _parse_text(text: pd.Series, day_first: bool) -> pd.Series:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # pandas says when it must guess a format row by row
        zoned = bool(text.str.contains(_OFFSET).any())
        return pd.to_datetime(text, errors="coerce", dayfirst=day_first, utc=zoned)


def _day_first(text: pd.Series) -> tuple[bool, Any]:
    """Tell whether days come before months, and a date that shows the doubt where either may be meant.

    Points say so, and so does a number above 12. Else the reading counts that is evenly spaced: the first days of
    months, read the other way, are the first twelve days of every year.
    """
    parts = text.str.extract(r"^(\d{1,2})([/.-])(\d{1,2})[/.-]\d{2,4}\b").dropna()
    first, second = parts[0].astype(int), parts[2].astype(int)
    differ, points = parts.index[first != second], (parts[1] == ".").all()
    if (first > 12).any() or (second > 12).any() or not len(differ) or points:
        return bool((first > 12).any() or (len(parts) and points)), None
    by_month, by_day = (even_share(_parse_text(text, order)) for order in (False, True))
    if max(by_month, by_day) > max(0.5, 2 * min(by_month, by_day)):
        return by_day > by_month, None
    return False, text[differ[0]]


def even_share(parsed: pd.Series) -> float:
    """Return the share of the steps from the first time to the last that are there, 0 where some share a step."""
    times = np.unique(pd.to_datetime(parsed.dropna(), utc=True).to_numpy("datetime64[ns]"))
    calendar = Calendar.fitting(times)
    place = np.zeros(2) if calendar is None else calendar.numbers(times)
    return 0.0 if (np.diff(place) == 0).any() else float(len(place) / (place[-1] - place[0] + 1))


def read_timestamps(column: pd.Series) -> tuple[np.ndarray, Any, bool]:
    """Return a column of dates as datetime64[ns] without a zone, the zone they were in, and whether they are UTC.

    Dates with a zone become local ones where all share a time of day, so that days stay days when clocks change, and
    UTC elsewhere. Where offsets are written, such as +01:00 and +02:00, the zone is a `Clock`.
    """
    called = f"the time column {str(column.name)!r}"
    parsed, doubtful = parse_dates(column)
    bad = np.flatnonzero(parsed.isna())
    if len(bad):
        found = column.iloc[bad[0]]
        what = "nothing" if pd.isna(found) else repr(str(found)[:40])
        count = pd.to_numeric(found, errors="coerce")
        hint = "; if spreadsheets count days so, write them as dates" if 20_000 < count < 80_000 else ""
        raise ValueError(f"{called} must hold dates, got {what} in row {bad[0] + 1}{hint}.")
    if doubtful is not None:
        read = parsed[(column.astype("string").str.strip() == doubtful).to_numpy(dtype=bool)].iloc[0]
        warnings.warn(
            f"{called} may be month first or day first: {doubtful!r} is read as {read.date()}; write dates as "
            "year-month-day to be sure.",
            DateWarning,
            stacklevel=2,
        )
    zone, utc = getattr(parsed.dt, "tz", None), False
    if zone is not None:
        local = parsed.dt.tz_localize(None).reset_index(drop=True)
        clock = None if column.dtype.kind == "M" else _clock_of_offsets(column, local)
        if clock is not None:
            zone, local = clock, pd.Series(clock.local(local.to_numpy("datetime64[ns]")))
        utc = (local - local.dt.normalize()).nunique() > 1
        parsed = parsed.dt.tz_convert("UTC").dt.tz_localize(None) if utc else local
    times = parsed.to_numpy()
    days = times.astype("datetime64[D]")
    far = np.flatnonzero((days < FIRST) | (days >= LAST))
    if len(far):
        raise ValueError(
            f"{called} must hold dates from {FIRST} to {LAST - ONE_DAY}, got {days[far[0]]} in row {far[0] + 1}; "
            "without dates, steps are counted."
        )
    return times.astype("datetime64[ns]"), zone, utc


def _clock_of_offsets(column: pd.Series, times: pd.Series) -> Clock | None:
    """Return the clock that the offsets written in a column are of, None where they are of no one.

    Args:
        column: dates as they were written.
        times: the same in UTC.
    """
    shown = parse_dates(column.astype("string").str.strip().str.replace(_OFFSET, r"\g<clock>", regex=True))[0]
    ahead = (shown.reset_index(drop=True) - times).dt.total_seconds()
    offsets = ahead.groupby(times).agg(["first", "nunique"])
    changes = changes_of(offsets.index.to_numpy("datetime64[ns]"), offsets["first"].to_numpy())
    apart = np.diff([start for start, _ in changes[1:]])
    # Different ones at one time, or in turns, are of several zones.
    return None if (offsets["nunique"] > 1).any() or (apart < _CHANGES_APART).any() else Clock(changes)
