"""Which column of a table is the time, which the value, which names the series."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import partial
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from pandas.api import types

from fourier_head.errors import did_you_mean
from fourier_head.forecasting.calendars import may_be_set_back
from fourier_head.forecasting.dates import CLOCK, even_share, number_dates, parse_dates, since_1970
from fourier_head.forecasting.time_names import folded, number_of_month
from fourier_head.spellings import first_values, is_index

TIMESTAMPS = ("timestamp", "time", "date", "datetime", "ds", "time_period")
TIMES = (*TIMESTAMPS, "day", "week", "month", "quarter", "year", "period", "hour", "ts", "unix", "epoch")
PARTS = ("year", "month", "day", "week", "quarter")
_JOINED = ((PARTS[:3], "-"), (("year", "month"), "-"), (("year", "week"), "-W"), (("year", "quarter"), "Q"))
CALENDAR = {*TIMES, "weekday", "dayofweek", "day_of_week", "dayofyear", "weekofyear", "is_weekend"}
TARGETS = (
    *("target", "value", "obs_value", "y", "values", "sales", "demand", "quantity", "count", "amount", "load", "price"),
    *("units", "sold", "qty", "revenue", "rev", "turnover", "close", "volume", "consumption", "visitors"),
    *("actual", "actuals", "observed"),
)
NAMES = (
    *("item_id", "unique_id", "series_id", "id", "series", "item", "key", "name", "sku", "store", "product", "symbol"),
    *("shop", "region", "country", "state", "city", "location", "site", "station", "category", "family", "department"),
    *("dept", "brand", "channel", "segment", "customer", "meter", "sensor", "device", "ticker", "warehouse", "branch"),
)
_LAST_WORDS = {"id", "key", "code", "nbr", "no", "nr", "num", "number", "name"}
"""Of columns that name something: store_nbr, ProductCode."""
_MOMENTS = {"time", "timestamp", "ts", "unix", "epoch"}
"""Words in the name of a column that may hold seconds since 1970."""
_MOST = 4
"""Columns that may name a series together."""
_LIKELY = 8
"""Columns that are tried together."""
_SLIPS = 0.03
"""Share of rows that may be there twice by mistake."""


class Columns(NamedTuple):
    """The columns that count: names of series (none: one series), time (None: steps in order), values.

    Several values without a column of names are several series side by side.
    """

    names: tuple[str, ...]
    time: str | None
    values: tuple[str, ...]


def guess_columns(
    frame: pd.DataFrame, names: tuple[str, ...], time: str | None, target: str | None, when: np.ndarray | None
) -> Columns:
    """Return the columns that are meant, by what was given, else by their names, else by what they hold.

    Args:
        names, target: what was given of them.
        time: the column of the time, None where there is none.
        when: the timestamps in it.

    Example:
        >>> days = ["2024-01-01", "2024-01-01", "2024-01-02", "2024-01-02"]
        >>> table = pd.DataFrame({"store_id": [1, 2, 1, 2], "date": days, "units": [5, 3, 6, 3]})
        >>> guess_columns(table, (), "date", None, np.array(days, dtype="datetime64[ns]"))
        Columns(names=('store_id',), time='date', values=('units',))
    """
    left = [c for c in frame.columns if c not in (*names, time, target) and not is_index(c)]
    left = [c for c in left if not is_time(frame[c])]
    numeric = [c for c in left if is_numeric(frame[c])]
    if not names:
        # The only numbers are what is to be forecast.
        some = [c for c in left if target is not None or len(numeric) > 1 or c not in numeric]
        names = guess_names(frame, some, numeric, when)
    if target is not None:
        return Columns(names, time, (target,))
    numeric = [c for c in numeric if c not in names]
    numeric = [c for c in numeric if not names_things(c) and (time is None or folded(c) not in CALENDAR)] or numeric
    if not numeric:
        words = [c for c in left if c not in names and frame[c].notna().any()]
        found = f"; {str(words[-1])!r} holds {str(frame[words[-1]].dropna().iloc[0])[:40]!r}" if words else ""
        raise ValueError(f"there is no numeric column to forecast; the columns are {_listed(frame.columns)}{found}.")
    best = [c for word in TARGETS for c in numeric if folded(c) == word][:1]
    if not best and len(numeric) > 1 and (names or time is None):
        best = [c for c in numeric if set(words_of(c)) & set(TARGETS)]
        if len(best) != 1:
            raise ValueError(
                f"several columns hold numbers ({_listed(numeric)}): name the one to forecast, such as "
                f"target={numeric[-1]!r}."
            )
    return Columns(names, time, tuple(best or numeric))


def guess_names(
    frame: pd.DataFrame, columns: Sequence[str], measures: Sequence[str], when: np.ndarray | None
) -> tuple[str, ...]:
    """Return the columns that name series; none where no two rows share a time, unless one is called a name.

    Args:
        columns: those that may.
        measures: those of them that hold numbers, which are names only where they are whole and no words will do.
        when: the times of the rows, None where there are none.
    """
    counts = {c: frame[c].nunique(dropna=False) for c in columns}
    alone = when is not None and bool((when == when[0]).all())
    # What is different in every row counts rows, as the id of many tables does.
    columns = [c for c in columns if counts[c] < len(frame) or (alone and c not in measures)]
    known = sorted((c for c in columns if folded(c) in NAMES), key=lambda c: NAMES.index(folded(c)))
    words = [c for c in columns if c not in measures and not types.is_bool_dtype(frame[c])]
    if when is None:
        return tuple(known[:1] or words)
    codes = pd.DataFrame({c: pd.factorize(frame[c], use_na_sentinel=False)[0] for c in columns})
    codes = codes.assign(when=when)[~may_be_set_back(when)]

    def apart(chosen: Sequence[str], slips: float = 0.0) -> bool:
        some = codes[[*chosen, "when"]]
        return all(part.duplicated().mean() <= slips for part in (some.head(20_000), some)) or not len(some)

    def whole(column: pd.Series) -> bool:
        values = pd.to_numeric(column, errors="coerce").dropna()
        return bool((values == values.round()).all())

    # What is called a name costs nothing, other words a little, and other whole numbers more: few of them are names.
    cost = {c: 0 if names_things(c) else 1 if c in words else 5 for c in columns}
    fit = [c for c in columns if c not in measures or (folded(c) not in TARGETS and whole(frame[c]))]
    likely = sorted(fit, key=lambda c: (cost[c], known.index(c) if c in known else len(known)))[:_LIKELY]
    sets = [some for size in range(1, _MOST + 1) for some in combinations(likely, size)]
    sets.sort(key=lambda some: (sum(cost[c] for c in some), len(some)))
    if not apart(()):
        # First by names alone; then a few rows may be there twice, rather than that the weather becomes a name.
        named = (some for some in sets if not any(cost[c] for c in some) and apart(some))
        nearly = (some for some in [(), *sets] if apart(some, _SLIPS))
        found = next(named, None) or next(nearly, tuple(known[:1] or words))
        if found:
            return tuple(c for c in columns if c in found)
    return tuple((known or [c for c in columns if counts[c] == 1 and names_things(c)])[:1])


def _listed(columns: Sequence[Any] | pd.Index) -> str:
    """Return the names of columns in print, of many the first and the last.

    >>> _listed(["a", "b"]), _listed([f"d_{i}" for i in range(1, 1942)])
    ('a, b', 'd_1, d_2, d_3, ..., d_1941; 1,941 in all')
    """
    if len(columns) <= 20:
        return ", ".join(map(str, columns)) or "none at all"
    return f"{', '.join(map(str, columns[:3]))}, ..., {columns[-1]}; {len(columns):,} in all"


def words_of(name: Any) -> list[str]:
    """Return the words of a column's name.

    >>> words_of("store_nbr"), words_of("InvoiceDate"), words_of("SKU")
    (['store', 'nbr'], ['invoice', 'date'], ['sku'])
    """
    return [word.casefold() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[^\W\d_A-Z]+", str(name))]


def names_things(name: Any) -> bool:
    """Tell whether a column is called after things that have series: store_nbr, Product, sensor id."""
    words = words_of(name)
    return folded(name) in NAMES or (len(words) > 1 and words[-1] in _LAST_WORDS)


def check_columns(frame: pd.DataFrame, wanted: Iterable[str | None]) -> None:
    """Raise where a column is not there, or two have one name."""
    if frame.columns.duplicated().any():
        twice = str(frame.columns[frame.columns.duplicated()][0])
        raise ValueError(f"columns must have different names, got {twice!r} twice.")
    for one in wanted:
        if one is not None and one not in frame.columns:
            raise ValueError(f"there is no column {one!r}; {did_you_mean(str(one), map(str, frame.columns))}")


def is_numeric(column: pd.Series) -> bool:
    """Tell whether most of what is there is numbers."""
    if column.dtype.kind in "bmM" or isinstance(column.dtype, (pd.PeriodDtype, pd.CategoricalDtype)):
        return False
    if column.dtype.kind in "iuf":
        return bool(column.notna().any())
    return bool(pd.to_numeric(first_values(column, 1000), errors="coerce").notna().mean() > 0.5)


def guess_time(frame: pd.DataFrame, taken: Iterable[str | None]) -> str | None:
    """Return the column that holds dates, or must have been meant to by its name; None where there is none."""
    columns = [c for c in frame.columns if c not in set(taken)]
    called = sorted((c for c in columns if folded(c) in TIMES), key=lambda c: TIMES.index(folded(c)))
    read = (c for c in (*called, *columns) if is_time(frame[c]))
    # What is called a date is one, even if it cannot be read: then that is the thing to say.
    return next(read, None) or next((c for c in called if is_unread_time(frame[c])), None)


def is_time(column: pd.Series) -> bool:
    """Tell whether a column holds dates; numbers do where they can be read so and the column is called a time."""
    if types.is_datetime64_any_dtype(column) or isinstance(column.dtype, pd.PeriodDtype):
        return True
    there = first_values(column, 20)
    if not len(there) or types.is_bool_dtype(column):
        return False
    if is_numeric(column):
        words = words_of(column.name)
        called = folded(column.name) in TIMES or words[-1:] in (["date"], ["week"], ["month"], ["year"])
        # What is called no time is one where it is as large as 20240131; most columns of numbers end here.
        if not called and not pd.to_numeric(there, errors="coerce").iloc[0] > 10**7:
            return False
        # The time of something may be short or long; what is as large as all that is since 1970 is a moment.
        read = since_1970 if not called and _MOMENTS & set(words) else partial(number_dates, called_time=called)
        # A look at a few saves the work on most.
        return all(read(some) is not None for some in (there, column.drop_duplicates().dropna()))
    return bool(parse_dates(there)[0].notna().mean() > 0.5)


def is_unread_time(column: pd.Series) -> bool:
    """Tell whether a column, none of dates that can be read, must have been meant as one by its name."""
    if types.is_bool_dtype(column) or folded(column.name) not in TIMES or not column.notna().any():
        return False
    values = pd.to_numeric(column.dropna(), errors="coerce")
    if values.isna().any():
        return True
    # Hours of a day and days of a week are numbers of their own right; steps counted from 0 or 1 say nothing new.
    steps = np.unique(values.to_numpy(dtype=np.float64))
    counted = steps[0] in (0, 1) and (len(steps) < 3 or np.allclose(np.diff(steps), steps[1] - steps[0]))
    return folded(column.name) in TIMESTAMPS and not counted


def join_dates(frame: pd.DataFrame, taken: Iterable[str | None]) -> pd.DataFrame:
    """Return the table with one column of timestamps where they are spread over several: date and time, year and month.

    Years with months, days, weeks or quarters are joined only where no other column holds dates.

    Args:
        taken: columns that mean something else.
    """
    taken = set(taken)
    return _join_clocks(_join_days(frame, taken), taken)


def _join_days(frame: pd.DataFrame, taken: set[str | None]) -> pd.DataFrame:
    """Return the table with days, months, weeks or quarters for years and their parts."""
    frame = _named_by_periods(frame, taken)
    named = {folded(c): c for c in frame.columns if c not in taken}
    if "date" in named or any(is_time(frame[c]) for c in frame.columns if folded(c) not in PARTS):
        return frame
    texts = ((part, _part(frame[named[part]], part)) for part in PARTS if part in named)
    written = {part: text for part, text in texts if text is not None}
    for parts, between in _JOINED:
        if not set(parts) <= set(written):
            continue
        dates = written[parts[0]].str.cat([written[part] for part in parts[1:]], sep=between)
        if parse_dates(dates)[0].notna().all():
            rest = frame.drop(columns=[named[part] for part in parts])
            rest.insert(0, "date", dates)
            return rest
    return frame


def _named_by_periods(frame: pd.DataFrame, taken: set[str | None]) -> pd.DataFrame:
    """Return the table with months or quarters for the periods beside its years, as labor statistics have them.

    M13 and Q05 are the mean of the year, which is no step of its own.

    >>> table = pd.DataFrame({"year": 2024, "period": ["M11", "M12", "M13"], "value": [3.0, 5.0, 4.0]})
    >>> _named_by_periods(table, set()).columns.tolist(), len(_named_by_periods(table, set()))
    (['year', 'month', 'value'], 2)
    """
    named = {folded(c): c for c in frame.columns if c not in taken}
    if "year" not in named or "period" not in named:
        return frame
    text = frame[named["period"]].astype("string").str.strip()
    for part, pattern, mean in (("month", r"M(?:0[1-9]|1[0-3])", "M13"), ("quarter", r"Q0[1-5]", "Q05")):
        if part not in named and text.str.fullmatch(pattern).fillna(False).all():
            return frame[text != mean].rename(columns={named["period"]: part})
    return frame


def _part(column: pd.Series, part: str) -> pd.Series | None:
    """Return the numbers of years, months, days, weeks or quarters as text: of 3, 3.0, M03, Mar, W3 and Q3; else None.

    >>> _part(pd.Series(["March", "apr"]), "month").tolist(), _part(pd.Series(["Q1", 2.0]), "quarter").tolist()
    (['3', '4'], ['1', '2'])
    """
    text = column.astype("string").str.strip()
    if part == "month":
        text = text.map(number_of_month, na_action="ignore").astype("string").fillna(text)
    text = text.str.extract(rf"^(?:{part[0]}(?=\d))?0*(\d+)(?:\.0*)?$", flags=re.IGNORECASE)[0]
    return None if text.isna().any() else text


def _join_clocks(frame: pd.DataFrame, taken: set[str | None]) -> pd.DataFrame:
    """Return the table with timestamps for days and times of day beside them."""
    named = {folded(c): c for c in frame.columns if c not in taken}
    clock = next((named[word] for word in ("time", "hour") if word in named), None)
    called = clock is not None
    if not called:
        clock = next((c for c in named.values() if _holds_clock(frame[c])), None)
    text = None if clock is None else _times_of_day(frame[clock])
    others = (c for word, c in named.items() if c != clock and word not in PARTS and is_time(frame[c]))
    date = None if text is None else named.get("date") or next(others, None)
    if date is None or not is_time(frame[date]):
        return frame
    days = frame[date].astype("string").str.strip()
    if days.str.contains(":").any():
        return frame  # they have times of their own
    if folded(clock) == "time" and is_numeric(frame[clock]) and not days.duplicated().any():
        return frame  # one number a day is what was measured, such as minutes
    moments = days.str.cat(text, sep=" ")
    if not called and even_share(parse_dates(moments)[0]) < 0.5:
        return frame  # such as when a shop opens
    return frame.assign(**{date: moments}).drop(columns=clock)


def _holds_clock(column: pd.Series) -> bool:
    """Tell whether a column of text holds different times of day."""
    if types.is_numeric_dtype(column):
        return False
    some = first_values(column, 50).astype("string")
    return bool(some.str.fullmatch(CLOCK).fillna(False).all() and some.nunique() > 1)


def _times_of_day(column: pd.Series) -> pd.Series | None:
    """Return times of day as text where a column holds them: as they are written, or of 13, 1300 and 1 PM.

    Hours from 1 to 24 are named by their ends.

    >>> [_times_of_day(pd.Series(some)).tolist() for some in ([1, 24], [30, 1300], ["1 PM", "12:30 am"])]
    [['00:00', '23:00'], ['00:30', '13:00'], ['1:00 PM', '12:30 am']]
    """
    text = column.astype("string").str.strip().str.replace(r"\.0+$|^[Hh](?=\d)|(?<=\d)[Hh]$", "", regex=True)
    if text.str.fullmatch(r"\d{1,4}").fillna(False).all():
        number = text.astype(int)
        if 24 < number.max() < 100:
            return None
        number = number * 100 if number.max() <= 24 else number
        text = number.map(lambda one: f"{one // 100:02d}:{one % 100:02d}").astype("string")
    text = text.str.replace(r"^(\d{1,2})(?= ?[AaPp]\.?[Mm])", r"\1:00", regex=True)
    if not text.str.fullmatch(rf"{CLOCK}(?: ?[AaPp]\.?[Mm]\.?)?").fillna(False).all():
        return None
    if text.str.startswith("24:").any():
        hours = text.str.split(":").str[0].astype(int) - 1
        text = hours.map("{:02d}".format) + text.str.replace(r"^\d+", "", regex=True)
    # There is no hour -1, nor one of 25.
    return text if text.str.match(r"(?:[01]?\d|2[0-3]):[0-5]").all() else None
