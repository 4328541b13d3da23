"""Read series in the forms people have them in: tables, arrays, pandas series, dictionaries, GluonTS data sets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from fourier_head._clocks import Clock
from fourier_head.errors import needs_extra
from fourier_head.forecasting.calendars import Calendar, Moments, day_of_months, regular
from fourier_head.forecasting.columns import Columns, guess_columns, is_time, is_unread_time, join_dates, numbers
from fourier_head.forecasting.dates import moments
from fourier_head.forecasting.frequency import frequency_in_words

if TYPE_CHECKING:
    import pandas as pd

NOWHERE = np.datetime64("NaT", "ns")


@dataclass
class SeriesSet:
    """Hold series on regular grids, ready to be forecast.

    Args:
        names: of each series.
        values: of each, float64, oldest first, NaN where missing.
        calendars: of each, None where time is not known.
        last: moment of each one's last value, NaT where time is not known.
        first: moment of each one's first value.
        month_days: the day that the months of each are named by, 31 for their last.
        name_columns, time_column: what names and moments were called.
        target: what the values are called; None where the names say it.
        zone: the time zone that moments were given in, None where they had none.
        universal: whether moments are universal time, not that of the zone.
        columns: of the table that they were read from, None where there was none.
    """

    names: list[Any] = field(default_factory=list)
    values: list[np.ndarray] = field(default_factory=list)
    calendars: list[Calendar | None] = field(default_factory=list)
    last: list[np.datetime64] = field(default_factory=list)
    month_days: list[int | None] = field(default_factory=list)
    first: list[np.datetime64] = field(default_factory=list)
    name_columns: tuple[str, ...] = ("id",)
    time_column: str = "timestamp"
    target: str | None = None
    zone: Any = None
    universal: bool = False
    columns: Columns | None = None

    def __len__(self) -> int:
        return len(self.values)

    @property
    def timed(self) -> bool:
        """Whether every series knows when it was."""
        return not any(np.isnat(moment) for moment in self.last)

    @property
    def periods(self) -> np.ndarray:
        """Steps per cycle of each series."""
        # Few calendars, many series: each is worked out once.
        known = {one.freq: one.period for one in {one for one in self.calendars if one is not None}}
        return np.array([1 if one is None else known[one.freq] for one in self.calendars], dtype=np.int64)

    @property
    def timing(self) -> str:
        """What was read of the time: frequencies and the span of all series.

        >>> read_series({"a": [1, 2, 3]}, freq="ME").timing
        'monthly, no dates'
        """
        kinds = Counter(one.freq for one in self.calendars if one is not None)
        said = dict.fromkeys(frequency_in_words(freq) for freq, _ in kinds.most_common())
        words = ", ".join(said) if len(said) < 5 else f"{len(said)} frequencies"
        first, last = (np.array(side, dtype="datetime64[ns]") for side in (self.first, self.last))
        if np.isnat(last).all():
            return f"{words}, no dates" if words else "no dates"
        begin, end = self.local(np.array([np.nanmin(first), np.nanmax(last)]))
        span = f"{moment(begin)} to {moment(end)}"
        return f"{words}; {span}" if len(said) > 1 else f"{words}, {span}"

    def local(self, times: Moments) -> Moments:
        """Return what clocks in the zone of the series show at its moments."""
        if self.zone is None or not self.universal:
            return times
        if isinstance(self.zone, Clock):
            return self.zone.local(times)
        import pandas as pd

        there = pd.DatetimeIndex(times).tz_localize("UTC").tz_convert(self.zone)
        return there.tz_localize(None).to_numpy().astype("datetime64[ns]")

    def future(self, number: int, horizon: int) -> Moments:
        """Return the moments that a forecast of one series is of; NaT where time is not known."""
        calendar = self.calendars[number]
        if calendar is None or np.isnat(self.last[number]):
            return np.full(horizon, NOWHERE)
        return calendar.after(self.last[number], horizon, self.month_days[number])

    def past(self, number: int, count: int) -> Moments:
        """Return the moments of the last values of one series."""
        calendar = self.calendars[number]
        if calendar is None or np.isnat(self.last[number]):
            return np.full(count, NOWHERE)
        back = Calendar(calendar.freq, -calendar.months, -calendar.business_days, -calendar.nanoseconds)
        earlier = back.after(self.last[number], count - 1, self.month_days[number])
        return np.concatenate([earlier[::-1], [self.last[number]]])

    def add(self, name: Any, values: np.ndarray, calendar: Calendar | None, times: Moments | None) -> None:
        """Append a series; with times, its values are put on every step between the first and the last."""
        if times is None or calendar is None or not len(times):
            # Without a moment to count from, the calendar still tells the period.
            self._append(name, values, calendar if times is None else None, None)
            return
        self._append(name, regular(times, values, calendar, say(name)), calendar, times)

    def _append(self, name: Any, values: np.ndarray, calendar: Calendar | None, times: Moments | None) -> None:
        self.names.append(name)
        self.values.append(values)
        self.calendars.append(calendar)
        times = np.array([NOWHERE]) if times is None or not len(times) else times
        self.first.append(times[0])
        self.last.append(times[-1])
        self.month_days.append(None if np.isnat(times[0]) else day_of_months(times) or day_of_months(times[-1:]))


def say(name: Any) -> str:
    """Return a series in words.

    >>> say("sales"), say(("north", 3)), say(None)
    ("series 'sales'", "series 'north, 3'", 'the series')
    """
    # Names may be numbers of numpy, which compare with a tuple value by value.
    if name is None or (isinstance(name, tuple) and not name):
        return "the series"
    text = ", ".join(map(str, name)) if isinstance(name, tuple) else str(name)
    return f"series {text!r}"


def read_series(
    data: Any,
    *,
    freq: str | None = None,
    id: str | Sequence[str] | None = None,
    time: str | None = None,
    target: str | None = None,
) -> SeriesSet:
    """Return the series in what was given.

    Arguments:
        data: a long or wide DataFrame; an array (time,) or (series, time); a list of arrays or pandas Series; a
            dictionary of them by name; a pandas Series; a GluonTS data set.
        freq: pandas frequency of all of them, found from the timestamps unless given.
        id, time, target: columns of a DataFrame, guessed unless given.

    Example:
        >>> read_series({"a": [1, 2, 3], "b": [5.0, None]}, freq="ME").periods
        array([12, 12])
    """
    given = None if freq is None else Calendar.of(freq)
    if _is_pandas(data, "Series") and type(data.index).__name__ == "MultiIndex":
        # Names and moments are in the index, as in a table.
        data = data.to_frame("target" if data.name is None else data.name)
    if _is_pandas(data, "DataFrame"):
        out = _from_frame(data, given, id, time, target)
    else:
        if (id, time, target) != (None, None, None):
            raise ValueError("id, time and target name columns of a DataFrame; the data is none.")
        out = SeriesSet()
        for number, (name, one) in enumerate(_items(data)):
            _add_one(out, number if name is None else name, one, given)
    if not len(out):
        raise ValueError("there is nothing to forecast: the data holds no series.")
    _fill_calendars(out)
    return out


def _items(data: Any) -> Iterable[tuple[Any, Any]]:
    """Yield names (None: by number) and series."""
    if isinstance(data, Mapping):
        # One entry of a GluonTS data set, or series by name.
        return [(None, data)] if "target" in data and "start" in data else list(data.items())
    if isinstance(data, Tensor):
        data = data.detach().cpu().double().numpy()
    if isinstance(data, np.ndarray):
        if data.ndim > 2 or data.ndim == 0:
            raise ValueError(f"an array must have shape (time,) or (series, time), got {data.shape}.")
        return [(None, data)] if data.ndim == 1 else [(None, row) for row in data]
    if _is_pandas(data, "Series"):
        return [(data.name, data)]
    if hasattr(data, "to_pandas"):
        # Tables of polars and others: going through one gives columns, which are no series.
        kind = f"{type(data).__module__.split('.')[0]} {type(data).__name__}"
        raise ValueError(
            f"data must be a pandas DataFrame, arrays or a GluonTS data set, got a {kind}; use to_pandas()."
        )
    if isinstance(data, (str, bytes)) or not isinstance(data, Iterable):
        raise ValueError(f"data must be a DataFrame, arrays or a GluonTS data set, got {type(data).__name__}.")
    items = list(data)
    if items and all(one is None or np.isscalar(one) or _is_number(one) for one in items):
        return [(None, items)]
    return [(None, one) for one in items]


def _is_pandas(value: Any, kind: str) -> bool:
    """Tell whether a value is a DataFrame or Series, or of a kind made from it, without needing pandas to be there."""
    return any(one.__name__ == kind and one.__module__.split(".")[0] == "pandas" for one in type(value).__mro__)


def _is_number(value: Any) -> bool:
    """Tell whether a value is one number: also a tensor without dimensions, or what pandas puts for a missing one."""
    return (isinstance(value, (Tensor, np.ndarray)) and value.ndim == 0) or str(value) == "<NA>"


def _array(name: Any, values: Any) -> np.ndarray:
    """Return one series as a float64 array of its own, infinite values as missing."""
    if isinstance(values, Tensor):
        values = values.detach().cpu().double().numpy()
    if isinstance(values, np.ma.MaskedArray):
        values = np.ma.filled(values.astype(np.float64), np.nan)
    if isinstance(values, np.ndarray) and values.dtype.kind in "mMc":
        raise ValueError(f"{say(name)} must hold numbers, got {values.dtype}.")
    try:
        array = np.array(values, dtype=np.float64)
    except (TypeError, ValueError):
        array = _with_gaps(name, values)
    if array.ndim == 2 and 1 in array.shape:
        array = array.ravel()
    if array.ndim != 1:
        raise ValueError(f"{say(name)} must have one dimension, got shape {array.shape}.")
    array[~np.isfinite(array)] = np.nan
    return array


def _with_gaps(name: Any, values: Any) -> np.ndarray:
    """Return values that numpy takes for no numbers: pandas' own sign of a missing one, tensors of half precision."""
    try:
        each = [float(one) if isinstance(one, Tensor) else one for one in values]
        return np.array([np.nan if str(one) == "<NA>" else one for one in each], dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"{say(name)} must hold numbers, got something else.") from None


def _add_one(out: SeriesSet, name: Any, one: Any, given: Calendar | None) -> None:
    if isinstance(one, Mapping):
        _add_entry(out, name, one, given)
    elif _is_pandas(one, "Series"):
        import pandas as pd

        index = one.index
        values = numbers(one)
        if isinstance(index, pd.PeriodIndex):
            given = given or Calendar.of(index.freqstr)
        dates = _index_dates(index)
        if dates is not None:
            times, zone, universal = moments(dates)
            # Series of several zones have none in common, and moments as they are.
            if not len(out):
                out.zone, out.universal = zone, universal
            elif (zone, universal) != (out.zone, out.universal):
                out.zone = None
            _add_timed(out, name, times, values, given)
        else:
            out.add(name, values, given, None)
    else:
        out.add(name, _array(name, one), given, None)


def _add_entry(out: SeriesSet, name: Any, entry: Mapping[str, Any], given: Calendar | None) -> None:
    """Add one entry of a GluonTS data set: a target, and the period or moment it starts in."""
    if "target" not in entry:
        raise ValueError(f"{say(name)} must be numbers or have a 'target', got only {', '.join(map(str, entry))}.")
    values = _array(name, entry["target"])
    start = entry.get("start")
    name = entry.get("item_id", name)
    first: Any = NOWHERE
    if start is None or not len(values):
        out.add(name, values, given, None)
        return
    import pandas as pd

    if not isinstance(start, pd.Period):
        if given is None:
            raise ValueError(f"{say(name)} starts at {start} without a frequency; give its freq.")
        first = np.datetime64(pd.Timestamp(start), "ns")
    else:
        given = given or Calendar.of(start.freqstr)
        with suppress(pd.errors.OutOfBoundsDatetime):
            first = start.to_timestamp().to_datetime64().astype("datetime64[ns]")
    # Long series of years leave the centuries that moments reach; such a series is forecast without dates.
    times = None if np.isnat(first) else np.concatenate([[first], given.after(first, len(values) - 1)])
    out.add(name, values, given, None if times is None or np.isnat(times).any() else times)


def _add_timed(out: SeriesSet, name: Any, times: Moments, values: np.ndarray, given: Calendar | None) -> None:
    order = np.argsort(times, kind="stable")
    times, values = times[order], values[order]
    same = np.flatnonzero(times[1:] == times[:-1])
    if len(same):
        when = moment(out.local(times[same[:1]])[0])
        raise ValueError(f"{say(name)} has several values at {when}; give one value per moment.")
    calendar = given or Calendar.fitting(times)
    if calendar is None:
        # Too few moments to tell; what the other series have is put in once all are read.
        out._append(name, values, None, times)
        return
    out.add(name, values, calendar, times)


def moment(time: np.datetime64) -> str:
    """Return a moment in print, without its time of day where that is midnight.

    >>> moment(np.datetime64("2024-01-31T08:00", "ns"))
    '2024-01-31 08:00'
    """
    text = str(time.astype("datetime64[s]"))
    return text.removesuffix("T00:00:00").removesuffix(":00").replace("T", " ")


def _index_dates(index: Any) -> pd.Series | None:
    """Return an index as a column where it holds dates, or must have been meant to by its name; else None."""
    import pandas as pd

    if isinstance(index, (pd.MultiIndex, pd.RangeIndex)):
        return None
    column = pd.Series(index, name="timestamp" if index.name is None else index.name)
    # Numbers need a name to be dates, and here the name may be none that was given.
    if index.name is None and pd.api.types.is_numeric_dtype(column):
        return None
    return column if is_time(column) or (index.name is not None and is_unread_time(column)) else None


def _from_frame(
    frame: pd.DataFrame, given: Calendar | None, id: str | Sequence[str] | None, time: str | None, target: str | None
) -> SeriesSet:
    try:
        import pandas as pd
    except ImportError as error:
        raise needs_extra(error, "forecasting") from None
    if not len(frame):
        raise ValueError("there is nothing to forecast: the table has no rows.")
    if isinstance(frame.index, pd.PeriodIndex) and time is None:
        given = given or Calendar.of(frame.index.freqstr)
    names = (id,) if isinstance(id, str) else tuple(id or ())
    if isinstance(frame.index, pd.MultiIndex) and not set(frame.columns) & set(frame.index.names):
        frame = frame.reset_index()
    index = None if time is not None else _index_dates(frame.index)
    if index is not None and (is_time(index) or not any(is_time(frame[c]) for c in frame.columns)):
        time = str(index.name)
        frame = frame.set_axis(frame.index.rename(time)).reset_index()
    elif time is None:
        frame = join_dates(frame, (*names, target))
    columns = guess_columns(frame, id, time, target)
    out = SeriesSet(
        name_columns=columns.names or ("id",),
        time_column=columns.time or "timestamp",
        target=columns.values[0] if len(columns.values) == 1 else None,
        columns=columns,
    )
    times = None
    if columns.time is not None:
        times, out.zone, out.universal = moments(frame[columns.time])
    for column in columns.values:
        values = numbers(frame[column])
        if not columns.names:
            _add_rows(out, column, times, values, given)
            continue
        groups = frame.groupby(list(columns.names), sort=False, dropna=False, observed=True).indices
        for name, rows in groups.items():
            flat = name[0] if isinstance(name, tuple) and len(name) == 1 else name
            _add_rows(out, flat, None if times is None else times[rows], values[rows], given)
    return out


def _add_rows(out: SeriesSet, name: Any, times: Moments | None, values: np.ndarray, given: Calendar | None) -> None:
    if times is None:
        out.add(name, values, given, None)
    else:
        _add_timed(out, name, times, values, given)


def _fill_calendars(out: SeriesSet) -> None:
    """Give series of one value the calendar that most others have."""
    missing = [i for i, c in enumerate(out.calendars) if c is None and not np.isnat(out.last[i])]
    if not missing:
        return
    common = Counter(c for c in out.calendars if c is not None).most_common(1)
    if not common:
        raise ValueError(f"the frequency of {say(out.names[missing[0]])} cannot be told from one value; give its freq.")
    for i in missing:
        out.calendars[i] = common[0][0]
