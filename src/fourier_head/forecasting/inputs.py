"""Read series in the forms people have them in: tables, arrays, pandas series, dictionaries, GluonTS data sets."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from contextlib import suppress
from numbers import Integral, Real
from os import PathLike
from typing import Any

import numpy as np
import pandas as pd
from torch import Tensor

from fourier_head.forecasting.calendars import Calendar
from fourier_head.forecasting.columns import (
    Columns,
    check_columns,
    guess_columns,
    guess_time,
    is_numeric,
    is_time,
    is_unread_time,
    join_dates,
)
from fourier_head.forecasting.dates import read_timestamps
from fourier_head.forecasting.series_set import AGGREGATES, NOWHERE, SeriesSet, label
from fourier_head.forecasting.time_names import folded
from fourier_head.forecasting.turned import numbered_steps, spread_times
from fourier_head.spellings import is_index, numbers, respell


def read_series(
    data: Any,
    *,
    freq: str | None = None,
    id: str | Sequence[str] | None = None,
    time: str | None = None,
    target: str | None = None,
    aggregate: str | None = None,
    fill: float | None = None,
    trim: bool = True,
) -> SeriesSet:
    """Return the series in what was given.

    Args:
        data: a long or wide DataFrame; an array (time,) or (series, time); a list of arrays or pandas Series; a
            dictionary of them by name; a pandas Series; a GluonTS data set. A set that was read stays as it is.
        freq: pandas frequency of all of them, found from the timestamps unless given.
        id, time, target: columns of a DataFrame, guessed unless given; ``guessed`` of the result says what was guessed.
        aggregate: what to make of several values at one time, or in one step of ``freq``: "sum" or "mean"; they are
            an error unless given.
        fill: what steps without a row become, such as 0 where a table holds only days with a sale; then all series go
            on to the last time of any. Missing unless given.
        trim: whether rows of a table after the last value of all series, as forms of the future have them, are left
            out.

    Example:
        >>> read_series({"a": [1, 2, 3], "b": [5.0, None]}, freq="ME").periods
        array([12, 12])
    """
    if isinstance(data, SeriesSet):
        return data
    if aggregate not in (None, *AGGREGATES):
        raise ValueError(f"aggregate must be 'sum' or 'mean', got {aggregate!r}.")
    if fill is not None and not (isinstance(fill, Real) and np.isfinite(fill)):
        raise ValueError(f"fill must be a finite number, got {fill!r}.")
    for what, name in (("time", time), ("target", target)):
        if not isinstance(name, Hashable):
            raise ValueError(f"{what} must be the name of one column, got {name!r:.60}.")
    calendar = None if freq is None else Calendar.of(freq)
    given = {"id": id, "time": time, "target": target, "freq": freq}
    out = SeriesSet(aggregate=aggregate, fill=fill, given=tuple(k for k, v in given.items() if v is not None))
    if isinstance(data, pd.Series) and isinstance(data.index, pd.MultiIndex):
        # Names and timestamps are in the index, as in a table.
        data = data.to_frame("target" if data.name is None else data.name)
    if isinstance(data, pd.DataFrame):
        _add_frame(out, data, calendar, id, time, target, trim)
    else:
        if (id, time, target) != (None, None, None):
            raise ValueError("id, time and target name columns of a DataFrame; the data is none.")
        names, items = _items(data)
        if all(type(one) is np.ndarray and one.ndim == 1 and one.dtype.kind in "fiub" for one in items):
            # Many arrays of numbers are read as one.
            out.add_untimed(names, _arrays(items), calendar)
        else:
            for name, one in zip(names, items, strict=True):
                _add_one(out, name, one, calendar)
    if not len(out):
        raise ValueError("there is nothing to forecast: the data holds no series.")
    out.finish()
    return out


def _items(data: Any) -> tuple[Sequence[Any], Sequence[Any]]:
    """Return names, which are numbers where there are none, and series."""
    if isinstance(data, Mapping):
        # One entry of a GluonTS data set, or series by name.
        if "target" in data and "start" in data:
            return [0], [data]
        return [number if name is None else name for number, name in enumerate(data)], list(data.values())
    if isinstance(data, Tensor):
        data = data.detach().cpu().double().numpy()
    if isinstance(data, np.ndarray):
        if data.ndim not in (1, 2):
            raise ValueError(f"an array must have shape (time,) or (series, time), got {tuple(data.shape)}.")
        return range(1 if data.ndim == 1 else len(data)), list(data[None] if data.ndim == 1 else data)
    if isinstance(data, pd.Series):
        return [0 if data.name is None else data.name], [data]
    if hasattr(data, "to_pandas"):
        # Tables of polars and others: going through one gives columns, which are no series.
        kind = f"{type(data).__module__.split('.')[0]} {type(data).__name__}"
        raise ValueError(
            f"data must be a pandas DataFrame, arrays or a GluonTS data set, got a {kind}; use to_pandas()."
        )
    if isinstance(data, (str, PathLike)):
        raise ValueError(f"data must be a table or numbers, got {str(data)!r}; pandas.read_csv reads a file.")
    if isinstance(data, bytes) or not isinstance(data, Iterable):
        raise ValueError(f"data must be a DataFrame, arrays or a GluonTS data set, got {type(data).__name__}.")
    items = list(data)
    if items and all(one is None or one is pd.NA or np.isscalar(one) or getattr(one, "ndim", 1) == 0 for one in items):
        items = [items]
    return range(len(items)), items


def _arrays(arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Return arrays of numbers as float64 arrays that are not those given, infinite values as missing."""
    if not arrays:
        return []
    together = np.concatenate(arrays, dtype=np.float64)
    together[~np.isfinite(together)] = np.nan
    ends = np.cumsum([len(one) for one in arrays]).tolist()
    return [together[start:end] for start, end in zip([0, *ends], ends, strict=False)]


def _array(name: Any, values: Any) -> np.ndarray:
    """Return one series as a float64 array of its own, infinite values as missing."""
    if isinstance(values, Tensor):
        values = values.detach().cpu().double().numpy()
    if isinstance(values, np.ma.MaskedArray):
        values = np.ma.filled(values.astype(np.float64), np.nan)
    if isinstance(values, np.ndarray) and values.dtype.kind in "mMc":
        raise ValueError(f"{label(name)} must hold numbers, got {values.dtype}.")
    try:
        array = np.array(values, dtype=np.float64)
    except (TypeError, ValueError):
        # Numpy does not know how pandas marks a missing number, nor tensors of half precision.
        try:
            array = np.array([np.nan if one is pd.NA else float(one) for one in values])
        except (TypeError, ValueError):
            raise ValueError(f"{label(name)} must hold numbers, got {values!r:.40}.") from None
    if array.ndim == 2 and 1 in array.shape:
        array = array.ravel()
    if array.ndim != 1:
        raise ValueError(f"{label(name)} must have one dimension, got shape {array.shape}.")
    array[~np.isfinite(array)] = np.nan
    return array


def _add_one(out: SeriesSet, name: Any, one: Any, given: Calendar | None) -> None:
    if isinstance(one, Mapping):
        _add_entry(out, name, one, given)
        return
    if not isinstance(one, pd.Series):
        out.add(name, _array(name, one), given)
        return
    values, times = numbers(one, f"the target {str(one.name)!r}", finite=True), None
    if isinstance(one.index, pd.PeriodIndex):
        given = given or Calendar.of(one.index.freqstr)
    if (dates := index_dates(one.index)) is not None:
        times, zone, utc = read_timestamps(dates)
        # Series of several zones have none in common, and timestamps as they are.
        if not len(out):
            out.zone, out.utc = zone, utc
        elif (zone, utc) != (out.zone, out.utc):
            out.zone = None
    out.add(name, values, given, times)


def _add_entry(out: SeriesSet, name: Any, entry: Mapping[str, Any], given: Calendar | None) -> None:
    """Add one entry of a GluonTS data set: a target, and the period or time it starts in."""
    if "target" not in entry:
        raise ValueError(f"{label(name)} must be numbers or have a 'target', got only {', '.join(map(str, entry))}.")
    values, start, times = _array(name, entry["target"]), entry.get("start"), None
    name = entry.get("item_id", name)
    if start is not None and len(values):
        first: Any = NOWHERE
        if isinstance(start, pd.Period):
            given = given or Calendar.of(start.freqstr)
            with suppress(pd.errors.OutOfBoundsDatetime):
                first = start.to_timestamp().to_datetime64().astype("datetime64[ns]")
        elif given is None:
            raise ValueError(f"{label(name)} starts at {start} without a frequency; give its freq.")
        else:
            first = np.datetime64(pd.Timestamp(start), "ns")
        # Long series of years leave the centuries that timestamps reach; such a series is forecast without dates.
        ahead = [first] if np.isnat(first) else given.after(first, len(values) - 1)
        times = None if np.isnat(ahead).any() else np.concatenate([[first], ahead])
    out.add(name, values, given, times)
    out.closed[-1] = None  # whoever scores such a data set wants every step


def index_dates(index: pd.Index) -> pd.Series | None:
    """Return an index as a column where it holds dates, or must have been meant to by its name; else None."""
    if isinstance(index, pd.MultiIndex) or (isinstance(index, pd.RangeIndex) and index.name is None):
        return None
    column = pd.Series(index, name="timestamp" if index.name is None else index.name)
    if index.name is None:
        # Numbers need a name to be dates, and here the name may be none that was given.
        return column if not pd.api.types.is_numeric_dtype(column) and is_time(column) else None
    return column if is_time(column) or is_unread_time(column) else None


def _add_frame(
    out: SeriesSet,
    frame: pd.DataFrame,
    given: Calendar | None,
    id: str | Sequence[str] | None,
    time: str | None,
    target: str | None,
    trim: bool,
) -> None:
    if not len(frame):
        raise ValueError("there is nothing to forecast: the table has no rows.")
    names = (id,) if isinstance(id, (str, Integral)) else tuple(id or ())
    if isinstance(frame.index, pd.PeriodIndex) and time is None:
        given = given or Calendar.of(frame.index.freqstr)
    in_index = isinstance(frame.index, pd.MultiIndex) or frame.index.name in names
    if in_index and not set(frame.columns) & set(frame.index.names):
        frame = frame.reset_index()
    if isinstance(frame.columns, pd.MultiIndex):
        frame, target = _with_plain_columns(frame, target)
    check_columns(frame, (*names, time, target))
    frame = frame.copy(deep=False)
    respell(frame)
    index = None if time is not None else index_dates(frame.index)
    if index is not None and (is_time(index) or not any(is_time(frame[c]) for c in frame.columns)):
        time = str(index.name)
        frame = frame.set_axis(frame.index.rename(time)).reset_index()
    elif time is None or folded(time) == "date":
        if time is None and target is None and (spread := spread_times(frame, names)) is not frame:
            # Neither column is one that can be named.
            out.given += ("target", "time")
            frame, out.spread = spread, len(set(frame.columns) - set(spread.columns))
        elif time is None and target is None and (steps := numbered_steps(frame, names, out.aggregate)) is not None:
            _add_steps(out, frame, steps, given)
            return
        # A date that was named stays joined with its time of day.
        joined = join_dates(frame, (*names, target))
        time = guess_time(joined, (*names, target)) if time is None else time
        # A column that is not in the table cannot be named.
        out.given += ("time",) if time is not None and time not in frame.columns else ()
        if not out.spread and (parts := [c for c in frame.columns if c not in joined.columns]):
            out.joined = tuple(map(str, parts if time not in frame.columns else [time, *parts]))
        out.whole_years = len(frame) - len(joined)
        frame = joined
    times = None
    if time is not None:
        # Blank rows, as spreadsheets leave them; where there are no dates, they are steps without a value.
        frame = frame.dropna(how="all")
        frame, out.without_time = _without_totals(frame, time)
        times, out.zone, out.utc = read_timestamps(frame[time])
    frame = frame.reset_index(drop=True)
    out.columns = columns = guess_columns(frame, names, time, target, times)
    out.name_columns, out.time_column = columns.names or ("id",), columns.time or "timestamp"
    out.target = columns.values[0] if len(columns.values) == 1 else None
    ignored = frame.drop(columns=[*columns.names, *columns.values, *([] if time is None else [time])])
    # An empty column without a name says nothing, nor does one that counts rows as pandas does.
    empty = [c for c in ignored if is_index(c) and (is_numeric(ignored[c]) or not ignored[c].notna().any())]
    out.ignored = tuple(str(c) for c in ignored if c not in empty)
    if out.fill is not None and times is not None:
        # Series with few rows do not tell how far steps are apart; the table does.
        given = given or Calendar.fitting(np.unique(times))
    values = {c: numbers(frame[c], f"the target {str(c)!r}", finite=True) for c in columns.values}
    if trim and times is not None and not out.aggregate:
        # Rows of a future that is to be forecast. Where some series go on, others count as missing there, and records
        # that are put together are no such rows.
        after = _after_all(times, list(values.values()))
        frame, times = frame.drop(index=after).reset_index(drop=True), np.delete(times, after)
        values, out.after = {c: np.delete(own, after) for c, own in values.items()}, len(after)
    groups: dict[Any, Any] = {None: slice(None)}
    if columns.names:
        by = columns.names[0] if len(columns.names) == 1 else list(columns.names)
        groups = frame.groupby(by, sort=False, dropna=False, observed=True).indices
    for column, all_values in values.items():
        for name, rows in groups.items():
            own = name if columns.names else column
            out.add(own, all_values[rows], given, None if times is None else times[rows])


def _add_steps(out: SeriesSet, frame: pd.DataFrame, steps: pd.DataFrame, given: Calendar | None) -> None:
    """Add series whose values are in the rows of a table; each ends with its last value.

    Args:
        frame: the table as it was given.
        steps: the values by the names of the series.
    """
    names = () if steps.index.names == [None] else tuple(steps.index.names)
    out.given += ("target",)
    out.columns, out.name_columns, out.target = Columns(names, None, ("value",)), names or ("id",), "value"
    out.steps = tuple(map(str, steps.columns))
    used = {*names, *steps.columns}
    out.ignored = tuple(str(c) for c in frame.columns if c not in used and not is_index(c))
    values = steps.to_numpy(np.float64)
    there = ~np.isnan(values)
    ends = np.where(there.any(axis=1), values.shape[1] - there[:, ::-1].argmax(axis=1), values.shape[1])
    rows = [row[:end] for row, end in zip(values, ends, strict=True)]
    out.add_untimed(steps.index.tolist() if names else ["value"], rows, given)


def _with_plain_columns(frame: pd.DataFrame, target: Any) -> tuple[pd.DataFrame, Any]:
    """Return a table whose columns had several names each, such as a price and the share it is of, and the target.

    Names that all of them have in common are left out. A target that several columns are called by is all of these.
    """
    names = frame.columns.to_list()
    several = {name for name in names if sum(part != "" for part in name) > 1}
    if target not in names and target in {name[0] for name in several}:
        names = [name for name in names if name[0] == target or name not in several]
        frame, target, several = frame[names], None, several & set(names)
    differ = [level for level, parts in enumerate(zip(*several, strict=True)) if len(set(parts)) > 1] or [0]
    parts = ([name[i] for i in differ] if name in several else [one for one in name if one != ""] for name in names)
    plain = [tuple(some) if len(some) != 1 else some[0] for some in parts]
    target = plain[names.index(target)] if target in names else target
    return frame.set_axis(pd.Index(plain, tupleize_cols=False), axis=1), target


def _without_totals(frame: pd.DataFrame, time: str) -> tuple[pd.DataFrame, str | None]:
    """Return a table without rows at its end that are of no time, totals or remarks, and what the first has for one."""
    end = frame[time].tail(5)
    dated = end.astype("string").str.contains(r"\d").fillna(False).to_numpy(dtype=bool)
    count = len(end) if not dated.any() else int(np.argmax(dated[::-1]))
    if not 0 < count < len(end) or len(frame) - count < 2:  # of two rows either may be the mistake
        return frame, None
    first = end.iloc[-count]
    return frame.iloc[: len(frame) - count], "" if pd.isna(first) else str(first)[:40]


def _after_all(times: np.ndarray, values: list[np.ndarray]) -> np.ndarray:
    """Return the rows that are later than the last one with a value; none where no row has any."""
    there = np.logical_or.reduce([~np.isnan(one) for one in values])
    return np.flatnonzero(times > times[there].max()) if there.any() else np.zeros(0, dtype=int)
