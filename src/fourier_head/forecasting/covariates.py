"""Columns beside the target: read on the grid of each series, past and future, as numbers that a regression takes."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from fourier_head.errors import needing
from fourier_head.forecasting.calendars import ONE_DAY
from fourier_head.forecasting.columns import join_dates
from fourier_head.forecasting.dates import parse_dates
from fourier_head.forecasting.inputs import index_dates, read_series
from fourier_head.forecasting.series_set import SeriesSet, in_print, label
from fourier_head.spellings import numbers, respell

_ROW = "the future"
"""What says that a row is there, and is named where two are."""
KINDS_AT_MOST = 30
"""Kinds of one categorical column that are told apart; rarer ones count as none of them."""
Feature = tuple[str, list[np.ndarray]]
"""A name, and the values of each series (its length + horizon,), NaN where unknown."""


def target_beside(data: Any, future: Any, covariates: Sequence[str] | None = None) -> str | None:
    """Return the one column of the data that is not known of the future, None where there are several or none."""
    columns = getattr(data, "columns", ())
    if not hasattr(future, "columns"):
        raise ValueError(f"future must be a DataFrame with times and covariates, got {type(future).__name__}.")
    left = [column for column in columns if column not in (covariates or ())]
    own = [column for column in left if column not in future.columns or bool(np.all(future[column].isna()))]
    return own[0] if len(own) == 1 else None


def read_covariates(
    series: SeriesSet,
    horizon: int,
    data: Any,
    future: Any = None,
    columns: Sequence[str] | None = None,
    holidays: str | None = None,
) -> tuple[tuple[str, ...], list[np.ndarray]]:
    """Return features of the columns of a table, and of the holidays of a country, of every step, past and future.

    These are their names and, of each series, values (its length + horizon, features), NaN where unknown.

    Args:
        series: what was read from ``data``.
        horizon: steps ahead.
        data: the long table.
        future: a table with the same names and times, of the steps to come; rows of ``data`` after its last value
            unless given. Columns that it lacks are known of the past only, and count with a delay of the horizon.
        columns: which ones; those that both tables have unless given.
        holidays: code of a country, such as "DE", or of a part of one, "DE-BY".
    """
    found: list[Feature] = []
    if future is not None or columns is not None:
        found += _table_columns(series, horizon, data, future, columns)
    if holidays is not None:
        found += _holiday_columns(series, horizon, holidays)
    if not found:
        raise ValueError("there are no covariates: name them, or give a future table that has columns of the data.")
    names, values = zip(*found, strict=True)
    return names, [np.stack(each, axis=1) for each in zip(*values, strict=True)]


def _table_columns(
    series: SeriesSet, horizon: int, data: Any, future: Any, wanted: Sequence[str] | None
) -> list[Feature]:
    if not isinstance(data, pd.DataFrame) or series.columns is None or series.columns.time is None:
        raise ValueError("covariates need a long table with a column of times as data.")
    if len(series.columns.values) > 1:
        raise ValueError("covariates need one target: name it as target; other columns may then be covariates.")
    if future is not None and not isinstance(future, pd.DataFrame):
        raise ValueError(f"future must be a DataFrame with times and covariates, got {type(future).__name__}.")
    keys, target = [*series.columns.names, series.columns.time], series.columns.values[0]
    data, future = (one if one is None else _as_read(one, series) for one in (data, future))
    known = set() if future is None else set(future.columns)
    if future is not None and (missing := [key for key in keys if key not in known]):
        raise ValueError(f"future must have the column {missing[0]!r} of the data.")
    if wanted is None:
        wanted = [column for column in data.columns if column in known and column not in (*keys, target)]
    if absent := [column for column in wanted if column not in data.columns]:
        raise ValueError(f"the data has no column {absent[0]!r}.")
    rows = _checked(data[[*keys, *wanted]], data, "")
    if future is not None:
        ahead = _checked(future[[*keys, *(c for c in wanted if c in known)]], data, " of the future")
        _check_kinds(rows, ahead, keys)
        rows = _joined(rows, ahead, keys)
        _check_reach(series, horizon, rows[keys])
    wanted = list(dict.fromkeys(wanted))
    ahead_of = {column: np.full(len(series), column in known) for column in wanted}
    if future is None and series.after:
        ahead_of = _known_ahead(series, horizon, rows, keys, wanted)
    out = []
    for column in wanted:
        for name, feature in _as_numbers(rows[column]):
            each = _on_grids(series, horizon, rows[keys].assign(**{name: feature}), name)
            pairs = zip(each, ahead_of[column], strict=True)
            out.append((name, [one if ahead else _delayed(one, horizon) for one, ahead in pairs]))
    return out


def _known_ahead(
    series: SeriesSet, horizon: int, rows: pd.DataFrame, keys: list[str], wanted: list[str]
) -> dict[str, np.ndarray]:
    """Return of which series (series,) each column is known of all steps to come, by rows after the last value.

    What is blank there is not known, unless the past has blanks as well.
    """
    there, short = _known_on_grids(series, horizon, rows[keys], np.ones(len(rows), dtype=bool)), {}
    out = {}
    for column in wanted:
        known = _known_on_grids(series, horizon, rows[keys], rows[column].notna().to_numpy())
        blank = any((a & ~b)[:-horizon].any() for a, b in zip(there, known, strict=True))
        count = np.array([one[-horizon:].sum() for one in known])
        if blank and count.any():
            count = np.array([one[-horizon:].sum() for one in there])
        out[column] = count == horizon
        if count.any() and not out[column].all():
            short[column] = count[~out[column]]
    if short:
        least, most = min(map(min, short.values())), max(map(len, short.values()))
        warnings.warn(
            f"the data has {', '.join(map(repr, map(str, short)))} of only {least} of the {horizon} steps to come of "
            f"{most} of {len(series)} series; there, what is known of the past alone counts.",
            stacklevel=5,
        )
    series.ahead = tuple(str(column) for column, known in out.items() if known.any())
    return out


def _known_on_grids(series: SeriesSet, horizon: int, keys: pd.DataFrame, known: np.ndarray) -> list[np.ndarray]:
    rows = keys.assign(**{_ROW: np.where(known, 1.0, np.nan)})
    return [~np.isnan(one) for one in _on_grids(series, horizon, rows, _ROW)]


def _as_read(table: pd.DataFrame, series: SeriesSet) -> pd.DataFrame:
    """Return a table with numbers in any spelling, and the times of the series from its index or several columns."""
    columns = series.columns
    assert columns is not None
    assert columns.time is not None
    table = table.copy(deep=False)
    respell(table)
    for column in table.columns[~table.columns.duplicated(keep=False)]:
        kind = pd.api.types.infer_dtype(table[column], skipna=True)
        if kind == "decimal":  # as data bases give them
            table[column] = table[column].astype(float)
        elif kind == "boolean" and column not in columns.names:  # 0 and 1 in the other table, perhaps
            table[column] = table[column].astype("boolean").astype(float)
    if columns.time not in table and index_dates(table.index) is not None:
        return table.set_axis(table.index.rename(columns.time)).reset_index()
    return join_dates(table, (*columns.names, *columns.values))


def _checked(rows: pd.DataFrame, data: pd.DataFrame, which: str) -> pd.DataFrame:
    """Return rows in which a column of numbers holds finite numbers; raise where one does not."""
    for column in rows.columns:
        if pd.api.types.is_numeric_dtype(data[column]) and not pd.api.types.is_bool_dtype(data[column]):
            numbers(rows[column], f"the column {str(column)!r}{which}", finite=True)
    return rows


def _joined(rows: pd.DataFrame, ahead: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    """Return rows of the past and of the future; what both have is as the past has it."""
    *names, time = keys
    if pd.api.types.is_datetime64_any_dtype(rows[time]) != pd.api.types.is_datetime64_any_dtype(ahead[time]):
        # Each is read in its own spelling.
        rows, ahead = (one.assign(**{time: parse_dates(one[time])[0]}) for one in (rows, ahead))
    zoned = [isinstance(one[time].dtype, pd.DatetimeTZDtype) for one in (rows, ahead)]
    if zoned[0] != zoned[1]:
        kind = "a time zone, as those of the data have" if zoned[0] else "no time zone, as those of the data have none"
        raise ValueError(f"times of the future must have {kind}.")
    for name in names:
        if not ahead[name].isin(rows[name]).any():  # such as 7 and "7"
            by_text = {str(one): one for one in rows[name].unique()}
            ahead = ahead.assign(**{name: [by_text.get(str(one), one) for one in ahead[name]]})
    known = pd.MultiIndex.from_frame(ahead[keys]).isin(pd.MultiIndex.from_frame(rows[keys]))
    return pd.concat([rows, ahead[~known]], ignore_index=True)


def _check_reach(series: SeriesSet, horizon: int, keys: pd.DataFrame) -> None:
    """Warn where a future has no rows for some of the steps to come; raise where it has none of a series."""
    there = _on_grids(series, horizon, keys.assign(**{_ROW: 1.0}), _ROW)
    missing = np.array([np.isnan(one[-horizon:]).sum() for one in there])
    if (missing == horizon).any():
        number = int((missing == horizon).argmax())
        begin, *_, end = np.resize(series.local(series.future(number, horizon)), max(2, horizon))
        raise ValueError(
            f"future has no row for {label(series.names[number])} from {in_print(begin)} to {in_print(end)}, which is "
            "what comes next."
        )
    if missing.any():
        warnings.warn(
            f"future has no row for {missing.max()} of the {horizon} steps of {np.count_nonzero(missing)} of "
            f"{len(series)} series; there, covariates count as what is usual.",
            stacklevel=4,
        )


def _check_kinds(rows: pd.DataFrame, ahead: pd.DataFrame, keys: list[str]) -> None:
    """Warn of words of the future, such as "Yes", that the past never had, and which therefore say nothing."""
    for column in ahead.columns.difference(keys, sort=False):
        if not pd.api.types.is_numeric_dtype(rows[column]):
            kinds = ahead[column].dropna().astype(str)
            if not (seen := kinds.isin(rows[column].dropna().astype(str))).all():
                warnings.warn(
                    f"the past never had {kinds[~seen].iloc[0]!r}, which the future has in {str(column)!r}; where the "
                    "future has what was never there, it counts as what is usual.",
                    stacklevel=5,
                )


def _as_numbers(column: pd.Series) -> list[tuple[str, pd.Series]]:
    """Return numbers as they are, and of anything else a column for each kind that is there often enough."""
    if pd.api.types.is_bool_dtype(column) or pd.api.types.is_numeric_dtype(column):
        return [(str(column.name), column.astype(float))]
    kinds = column.dropna().astype(str).value_counts()
    chosen = kinds[kinds >= 2].index[:KINDS_AT_MOST]
    if len(chosen) > 1 and column.notna().all():
        chosen = chosen[1:]  # the commonest kind is what others are compared with
    return [(f"{column.name}={kind}", (column.astype(str) == kind).astype(float)) for kind in chosen]


def _on_grids(series: SeriesSet, horizon: int, rows: pd.DataFrame, column: str) -> list[np.ndarray]:
    """Return a column on the steps of every series and of its future."""
    columns = series.columns
    assert columns is not None
    calendars = {one.freq for one in series.calendars if one is not None}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        read = read_series(
            rows,
            id=list(columns.names) or None,
            time=columns.time,
            target=column,
            freq=calendars.pop() if len(calendars) == 1 else None,
            aggregate=series.aggregate and "mean",
        )
    found = dict(zip(read.names if columns.names else [None] * len(read), range(len(read)), strict=True))
    out = []
    for number, name in enumerate(series.names):
        length = len(series.values[number]) + horizon
        values = np.full(length, np.nan)
        place = found.get(name if columns.names else None)
        if place is not None:
            own = read.values[place]
            calendar = read.calendars[place] or series.calendars[number]
            ahead = 0
            if calendar is not None:
                ahead = int(np.diff(calendar.numbers(np.array([series.first[number], read.first[place]])))[0])
            inside = own[max(0, -ahead) : max(0, length - ahead)]
            values[max(0, ahead) : max(0, ahead) + len(inside)] = inside
        out.append(values)
    return out


def _delayed(values: np.ndarray, steps: int) -> np.ndarray:
    return np.concatenate([np.full(steps, np.nan), values[:-steps]])


def _holiday_columns(series: SeriesSet, horizon: int, country: str) -> list[Feature]:
    """Return a feature for any holiday, for each one that there is, and for the days before and after any.

    Of few years each comes up once or twice, which is not believed; what holidays have in common is.
    """
    if not isinstance(country, str):
        raise ValueError(f"holidays must be the code of a country, such as 'DE' or 'US-CA', got {country!r}.")
    with needing("holidays"):
        import holidays as package
    if not series.timed:
        raise ValueError("holidays need series with dates.")
    times = [np.concatenate([series.past(i, len(x)), series.future(i, horizon)]) for i, x in enumerate(series.values)]
    moments = [series.local(one).astype("datetime64[D]") for one in times]
    years = {int(str(day)[:4]) for days in moments for day in (days[0], days[-1])}
    code, _, part = country.partition("-")
    try:
        named = package.country_holidays(code, subdiv=part or None, years=range(min(years), max(years) + 1))
    except (NotImplementedError, KeyError) as error:
        raise ValueError(f"holidays must be the code of a country, such as 'DE', got {country!r} ({error}).") from None
    days = {np.datetime64(day, "D"): name for day, name in named.items()}
    every = np.array(list(days))

    def on(some: np.ndarray) -> list[np.ndarray]:
        return [np.isin(own, some).astype(float) for own in moments]

    kinds = {kind: [day for day, name in days.items() if name == kind] for kind in dict.fromkeys(days.values())}
    out = [(f"holiday={kind}", on(np.array(mine))) for kind, mine in kinds.items()]
    out = [(name, each) for name, each in out if any(one[:-horizon].any() for one in each)]
    near = {"day before a holiday": every - ONE_DAY, "day after a holiday": every + ONE_DAY}
    return [*out, ("holiday", on(every)), *((name, on(np.setdiff1d(some, every))) for name, some in near.items())]
