"""Series on regular grids of time, ready to be forecast, and what was done to bring them there."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import timezone
from typing import Any

import numpy as np
import pandas as pd

from fourier_head._clocks import Clock
from fourier_head.forecasting.calendars import Calendar, Timestamps, day_of_months, may_be_set_back
from fourier_head.forecasting.closed import closed_phases, phases_of
from fourier_head.forecasting.columns import Columns
from fourier_head.forecasting.dates import DateWarning
from fourier_head.forecasting.frequency import frequency_in_words

NOWHERE = np.datetime64("NaT", "ns")
AGGREGATES = ("sum", "mean")


@dataclass(repr=False)
class SeriesSet:
    """Hold series on regular grids, ready to be forecast.

    Args:
        names: of each series.
        values: of each, float64, oldest first, NaN where missing.
        calendars: of each, None where time is not known.
        last: time of each one's last value, NaT where time is not known.
        first: time of each one's first value.
        month_days: the day that the months of each are named by, 31 for their last.
        name_columns, time_column: what names and timestamps were called.
        target: what the values are called; None where the names say it.
        zone: the time zone that timestamps were given in, None where they had none.
        utc: whether timestamps are UTC, not that of the zone.
        columns: of the table that they were read from, None where there was none.
        given: which of id, time, target and freq were given; the others are guesses.
        ignored: columns of the table that are not used.
        joined: columns that times were put together from.
        spread: columns that were named by times, each of which holds the values of its time.
        steps: columns that were numbered, each of which holds the values of a step.
        whole_years: rows of whole years among those of their months or quarters, which are left out.
        after: rows after the last value of any series, which are left out.
        ahead: columns that count as known of the future because these rows have them.
        without_time: what stands for the time in the first of the rows at the end of a table that are left out.
        aggregate: what is made of several values at one time: "sum", "mean", or None for an error.
        fill: what steps without a value become, None for missing.
        closed: of each, at which phases of a week or day it never has a value, see `closed.py`; None for none.
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
    utc: bool = False
    columns: Columns | None = None
    given: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    joined: tuple[str, ...] = ()
    spread: int = 0
    steps: tuple[str, ...] = ()
    whole_years: int = 0
    after: int = 0
    ahead: tuple[str, ...] = ()
    without_time: str | None = None
    aggregate: str | None = None
    fill: float | None = None
    closed: list[np.ndarray | None] = field(default_factory=list)
    _count: Counter[str] = field(default_factory=Counter)

    def __repr__(self) -> str:
        return f"SeriesSet({len(self):,} series, {self.timing})"

    def __len__(self) -> int:
        return len(self.values)

    @property
    def timed(self) -> bool:
        """Whether every series knows when it was."""
        return not any(np.isnat(time) for time in self.last)

    @property
    def periods(self) -> np.ndarray:
        """Steps per cycle of each series."""
        return np.array([1 if one is None else one.period for one in self.calendars], dtype=np.int64)

    # --- what was read

    @property
    def timing(self) -> str:
        """What was read of the time: frequencies and the span of all series."""
        kinds = Counter(one.freq for one in self.calendars if one is not None).most_common()
        each = dict.fromkeys(frequency_in_words(freq) for freq, _ in kinds)
        words = ", ".join(each) if len(each) < 5 else f"{len(each)} frequencies"
        first, last = (np.array(side, dtype="datetime64[ns]") for side in (self.first, self.last))
        if np.isnat(last).all():
            return f"{words}, no dates" if words else "no dates"
        begin, end = self.local(np.array([np.nanmin(first), np.nanmax(last)]))
        span = f"{in_print(begin)} to {in_print(end)}"
        return f"{words}; {span}" if len(each) > 1 else f"{words}, {span}"

    @property
    def guessed(self) -> dict[str, str | list[str]]:
        """What was made of a table without being told: the arguments of `read_series` that would say the same."""
        if self.columns is None:
            return {}
        found = {
            "target": list(map(str, self.columns.values)),
            "time": [] if self.columns.time is None else [str(self.columns.time)],
            "id": list(map(str, self.columns.names)),
            "freq": list(dict.fromkeys(one.freq for one in self.calendars if one is not None)),
        }
        return {
            one: what[0] if len(what) == 1 else what for one, what in found.items() if what and one not in self.given
        }

    @property
    def notes(self) -> list[str]:
        """What a user should know of how a table was read, in sentences."""
        count, notes = self._count, []
        if self.ignored:
            columns = "column" if len(self.ignored) == 1 else "columns"
            notes.append(f"{columns} not used: {_listed(self.ignored)}.")
        if self.joined:
            notes.append(f"times are put together from the columns {' and '.join(map(repr, self.joined))}.")
        if self.spread:
            notes.append(f"{self.spread:,} columns are named by times and hold the values at these times.")
        if self.steps:
            columns = f"{len(self.steps):,} columns, from {self.steps[0]!r} to {self.steps[-1]!r},"
            notes.append(f"{columns} are numbered and taken for steps of the series in the rows, without dates.")
        if self.whole_years:
            what = "1 row is" if self.whole_years == 1 else f"{self.whole_years:,} rows are"
            notes.append(f"{what} of whole years, not of their parts, and left out.")
        if self.without_time is not None:
            notes.append(f"rows at the end of the table, from {self.without_time!r} on, have no time and are left out.")
        if self.after:
            what = "1 row is" if self.after == 1 else f"{self.after:,} rows are"
            known = f", with {_listed(self.ahead)} known" if self.ahead else ""
            notes.append(f"{what} left out, after the last value of all; forecasts begin there{known}.")
        if count["merged"]:
            what = "added to" if self.aggregate == "sum" else "averaged with"
            notes.append(f"{count['merged']:,} rows are {what} others of the same series and step.")
        if count["sampled"]:
            notes.append("the last step may not be over yet: then leave its rows out.")
        if count["set back"]:
            what = "1 value comes" if count["set back"] == 1 else f"{count['set back']:,} values come"
            what += " a second time in a night in which clocks are set back"
            notes.append(f"{what}; the mean counts (aggregate='sum' adds them up).")
        share = count["gaps"] / max(1, count["steps"])
        if count["gaps"] and self.fill is not None:
            notes.append(f"{count['gaps']:,} steps without a row ({share:.0%}) are filled with {self.fill:g}.")
        elif share > 0.1 and not count["negative"]:
            what = f"{share:.0%} of the steps have no row and count as missing"
            notes.append(f"{what}; if they mean that nothing was sold, give fill=0.")
        if closed := sum(one is not None for one in self.closed):
            what = f"{closed:,} of {len(self):,} series never {'has' if len(self) == 1 else 'have'} a value"
            notes.append(
                f"at some times of the week or day {what}; forecasts are empty there, and totals leave them out."
            )
        return notes

    def names_by_column(self, names: Sequence[Any] | None = None) -> dict[str, list[Any]]:
        """Return names of series, those of all unless given, by the columns they came from."""
        names, several = self.names if names is None else names, len(self.name_columns) > 1
        return {c: [name[i] if several else name for name in names] for i, c in enumerate(self.name_columns)}

    def only(self, number: int) -> SeriesSet:
        """Return one of the series by itself, with what is known of the table it came from."""
        each = ("names", "values", "calendars", "last", "month_days", "first", "closed")
        return replace(self, **{field: getattr(self, field)[number : number + 1] for field in each})

    # --- timestamps

    def local(self, times: Timestamps) -> Timestamps:
        """Return what clocks in the zone of the series show at its timestamps."""
        if self.zone is None or not self.utc:
            return times
        if isinstance(self.zone, Clock):
            return self.zone.local(times)
        there = pd.DatetimeIndex(times).tz_localize("UTC").tz_convert(self.zone)
        return there.tz_localize(None).to_numpy("datetime64[ns]")

    def local_end(self, number: int) -> np.datetime64:
        """Return what clocks in the zone of the series show at the last timestamp of one."""
        end: np.datetime64 = self.local(np.array([self.last[number]]))[0]
        return end

    def zoned(self, times: pd.DatetimeIndex) -> pd.DatetimeIndex:
        """Return timestamps as timestamps in the zone of the series."""
        zone = self.zone
        if zone is None:
            return times
        if isinstance(zone, Clock):
            zone = timezone(zone.utcoffset(None))  # whether and when it will be set again, past offsets do not say
        if self.utc:
            return times.tz_localize("UTC").tz_convert(zone)
        # Where clocks change, a time of day may come twice, or not at all.
        twice = np.ones(len(times), dtype=bool)
        return times.tz_localize(zone, ambiguous=twice, nonexistent="shift_forward")

    def future(self, number: int, horizon: int) -> Timestamps:
        """Return the timestamps that a forecast of one series is of; NaT where time is not known."""
        calendar = self.calendars[number]
        if calendar is None or np.isnat(self.last[number]):
            return np.full(abs(horizon), NOWHERE)
        return calendar.after(self.last[number], horizon, self.month_days[number])

    def undated_ahead(self, horizon: int) -> int:
        """Return how many of the steps to come lie beyond the dates that there are, at most over the series."""
        dated = (i for i, one in enumerate(self.calendars) if one is not None and not np.isnat(self.last[i]))
        latest = {self.calendars[i]: i for i in sorted(dated, key=lambda i: self.last[i])}
        return max((int(np.isnat(self.future(i, horizon)).sum()) for i in latest.values()), default=0)

    def closed_ahead(self, count: int, horizon: int) -> np.ndarray:
        """Return which of the steps to come (count, horizon) of the first series are closed."""
        out = np.zeros((count, horizon), dtype=bool)
        for number, phases in enumerate(self.closed[:count]):
            calendar = self.calendars[number]
            if phases is not None and calendar is not None:
                ahead = phases_of(self.local(self.future(number, horizon)), calendar)
                out[number] = phases[ahead % len(phases)]
        return out

    def past(self, number: int, count: int) -> Timestamps:
        """Return the timestamps of the last values of one series."""
        return np.concatenate([self.future(number, 1 - count)[::-1], [self.last[number]]])

    # --- adding series

    def add(self, name: Any, values: np.ndarray, calendar: Calendar | None, times: Timestamps | None = None) -> None:
        """Append a series.

        Args:
            calendar: of the series; found from the times unless given.
            times: of the values, in any order; with them, values are put on every step from the first to the last.
        """
        if times is None or not len(times):
            self.add_untimed([name], [values], calendar)
            return
        order = np.argsort(times, kind="stable")
        times, values = self._merged(name, times[order], values[order], calendar)
        # Where there are too few to tell, the calendar of the other series is put in once all are read.
        calendar = calendar or Calendar.fitting(times)
        values = values if calendar is None else self._on_grid(name, times, values, calendar)
        self.add_untimed([name], [values], calendar)
        self.first[-1], self.last[-1] = times[0], times[-1]
        self.month_days[-1] = None if np.isnat(times[0]) else day_of_months(times) or day_of_months(times[-1:])
        if calendar is not None and self.fill is None and np.isnan(values).any() and not np.isnat(times[0]):
            moments = self.local(self.past(len(self) - 1, len(values)))
            self.closed[-1] = closed_phases(values, phases_of(moments, calendar), calendar)

    def add_untimed(self, names: Sequence[Any], values: Sequence[np.ndarray], calendar: Calendar | None) -> None:
        """Append series without a time to count from; the calendar still tells their period."""
        self.names += names
        self.values += values
        self.calendars += [calendar] * len(values)
        self.month_days += [None] * len(values)
        self.first += [NOWHERE] * len(values)
        self.last += [NOWHERE] * len(values)
        self.closed += [None] * len(values)

    def _merged(
        self, name: Any, times: Timestamps, values: np.ndarray, given: Calendar | None
    ) -> tuple[Timestamps, np.ndarray]:
        """Return values of which no two are at one time, nor in one step where they are added up."""
        again = np.flatnonzero(times[1:] == times[:-1])
        sampled = bool(self.aggregate and given is not None and (np.diff(given.numbers(times)) == 0).any())
        if not len(again) and not sampled:
            return times, values
        how, what = self.aggregate, "merged"
        if how is None:
            if (np.diff(again) == 1).any() or not may_be_set_back(times)[again].all():
                when = in_print(self.local(times[again[:1]])[0])
                raise ValueError(
                    f"{label(name)} has several values at {when}; add them up with aggregate='sum', take their mean "
                    "with aggregate='mean', or name the columns that tell them apart as id."
                )
            how, what = "mean", "set back"
        table = pd.Series(values, index=pd.DatetimeIndex(times))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # frequencies in the spelling of old
            groups = table.resample(given.freq) if sampled and given is not None else table.groupby(level=0)
        merged = (groups.sum(min_count=1) if how == "sum" else groups.mean())[groups.size() > 0]
        self._count[what] += len(table) - len(merged)
        self._count["sampled"] += sampled
        return merged.index.to_numpy("datetime64[ns]"), merged.to_numpy()

    def _on_grid(self, name: Any, times: Timestamps, values: np.ndarray, calendar: Calendar) -> np.ndarray:
        """Return values on every step from the first time to the last."""
        place = calendar.numbers(times)
        place = place - place[0]
        same = np.flatnonzero(np.diff(place) == 0)
        if len(same):
            first, second = (str(times[same[0] + i].astype("datetime64[s]")) for i in (0, 1))
            hint = "give another freq, or say what to make of them with aggregate='sum' or aggregate='mean'"
            if self.aggregate:
                hint = "give the steps to put values together by, such as freq='D'"
            step = f"one step of its frequency {calendar.freq!r}"
            raise ValueError(f"{label(name)} has two values in {step}, at {first} and {second}; {hint}.")
        steps = int(place[-1]) + 1
        if steps > 100 * len(place) + 10_000:
            raise ValueError(
                f"{label(name)} has {len(place)} values on {steps} steps of frequency {calendar.freq!r}; give its freq."
            )
        four = calendar.freq == "4W"  # a calendar of 4, 4 and 5 weeks
        self._count["4-4-5"] += four and {*np.diff(times).astype("timedelta64[W]").astype(int)} == {4, 5}
        self._count["steps"] += steps
        self._count["gaps"] += steps - len(place)
        self._count["negative"] += int((values < 0).any())
        if steps == len(place):
            return values
        out = np.full(steps, np.nan if self.fill is None else float(self.fill))
        out[place] = values
        return out

    def finish(self) -> None:
        """Give series of one value the calendar that most others have; where gaps are filled, all end together."""
        if self._count["4-4-5"]:
            warnings.warn(
                "times lie 4 and 5 weeks apart, as no frequency has it: steps are put in, and forecasts have dates "
                "that your calendar has not; without dates, steps are counted.",
                DateWarning,
                stacklevel=3,
            )
        lonely = [i for i, c in enumerate(self.calendars) if c is None and not np.isnat(self.last[i])]
        if lonely:
            common = Counter(c for c in self.calendars if c is not None).most_common(1)
            if not common:
                raise ValueError(
                    f"the frequency of {label(self.names[lonely[0]])} cannot be told from one value; give its freq."
                )
            for i in lonely:
                self.calendars[i] = common[0][0]
        if self.fill is None or np.isnat(self.last).all():
            return
        end = np.nanmax(np.array(self.last))
        for i, calendar in enumerate(self.calendars):
            if calendar is None or np.isnat(self.last[i]):
                continue
            most = int(np.diff(calendar.numbers(np.array([self.last[i], end])))[0]) + 1
            ahead = self.future(i, most)
            ahead = ahead[ahead <= end]
            self.values[i] = np.concatenate([self.values[i], np.full(len(ahead), self.fill)])
            self.last[i] = ahead[-1] if len(ahead) else self.last[i]
            self._count["steps"] += len(ahead)
            self._count["gaps"] += len(ahead)


def _listed(columns: Sequence[str]) -> str:
    """Return columns in words, the first of many.

    >>> _listed(["a", "b"])
    "'a', 'b'"
    """
    return ", ".join([repr(one) for one in columns[:12]] + ["others"] * (len(columns) > 12))


def label(name: Any) -> str:
    """Return a series in words.

    >>> label("sales"), label(("north", 3)), label(None)
    ("series 'sales'", "series 'north, 3'", 'the series')
    """
    # Names may be numbers of numpy, which compare with a tuple value by value.
    if name is None or (isinstance(name, tuple) and not name):
        return "the series"
    text = ", ".join(map(str, name)) if isinstance(name, tuple) else str(name)
    return f"series {text!r}"


def in_print(time: np.datetime64) -> str:
    """Return a time in print, without its time of day where that is midnight.

    >>> in_print(np.datetime64("2024-01-31T08:00", "ns"))
    '2024-01-31 08:00'
    """
    text = str(time.astype("datetime64[s]"))
    return text.removesuffix("T00:00:00").removesuffix(":00").replace("T", " ")
