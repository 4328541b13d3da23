"""Fan charts: the past, the median of the future, and nested intervals around it."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import replace
from datetime import date
from typing import Any

import numpy as np

from fourier_head._clocks import Changes, changes_of
from fourier_head.cli.forecasting.settings import LEVELS
from fourier_head.forecasting.results import Forecasts
from fourier_head.forecasting.series_set import SeriesSet
from fourier_head.pages.charts import Chart, Mark, Panel, Series

BANDS = ((0.95, 0.2), (0.8, 0.38), (0.5, 0.6))
"""Shares of the outcomes, widest first, and how dense each is painted."""
SHOWN = 360
"""Values of the past drawn at most, unless a season is longer."""
MOST = 3600
"""Values of the past drawn at most in any case: a day of minutes, an hour of seconds."""


def name_of(name: object, numbered: bool = True) -> str:
    """Return the name of a series in print; whole numbers are places in a list where series are ``numbered``.

    >>> name_of(("north", 3)), name_of(0), name_of(7, numbered=False), name_of("milk")
    ('north, 3', 'Series 1', '7', 'milk')
    """
    if isinstance(name, tuple):
        return ", ".join(map(str, name))
    return f"Series {name + 1}" if numbered and isinstance(name, int) else str(name)


def first_names(forecasts: Forecasts, count: int) -> list[str]:
    """Return the names of the first series in print."""
    numbered = forecasts.series.name_columns == ("id",)
    return [name_of(name, numbered) for name in forecasts.ids[:count]]


def panels(forecasts: Forecasts, count: int, label: str = "") -> list[Panel]:
    """Return a fan for each of the first series."""
    quantiles, names = first_quantiles(forecasts, count, LEVELS), first_names(forecasts, count)
    return [_fan(forecasts, i, title, one, label) for i, (title, one) in enumerate(zip(names, quantiles, strict=True))]


def first_quantiles(forecasts: Forecasts, count: int, levels: Sequence[float]) -> np.ndarray:
    """Return the quantiles of the first series only: a page shows few of many."""
    return Forecasts(forecasts.density[:count], forecasts.series, forecasts.support[:count]).quantiles(levels)


def _fan(forecasts: Forecasts, number: int, title: str, quantiles: np.ndarray, label: str) -> Panel:
    values, horizon = forecasts.series.values[number], forecasts.horizon
    period = int(forecasts.series.periods[number])
    count = max(3 * horizon, 3 * period, 48)
    count = max(1, min(len(values), count, max(SHOWN, horizon, min(period, MOST))))
    past = values[-count:] if len(values) else np.array([np.nan])
    timed = not np.isnat(forecasts.series.last[number])
    then: Any = np.arange(1 - count, 1)
    soon: Any = np.arange(1, horizon + 1)
    nowhere = np.zeros(horizon, dtype=bool)
    if timed:
        moments = forecasts.series.past(number, count), forecasts.series.future(number, horizon)
        nowhere = np.isnat(moments[1])  # beyond the dates that there are
        then, soon = (times.astype("datetime64[ns]").astype(np.int64) / 1e9 for times in moments)
    # Lines go on over closed steps: between two of them, one step alone would not be seen.
    there = ~(np.isnan(quantiles[:, 0]) | nowhere)
    soon, quantiles = soon[there], quantiles[there]
    # The fan opens at the last value that is known.
    x, lines = soon, quantiles
    if not np.isnan(past[-1]):
        x, lines = np.concatenate([then[-1:], soon]), np.concatenate([np.full((1, len(LEVELS)), past[-1]), quantiles])
    lonely = bool(np.isnan(past).any()) or count < 4
    observed = Series("observed", then, past, "ink", dots=lonely and count <= 60, time=timed)
    median = Series("median", x, lines[:, LEVELS.index(0.5)], "curve-1", time=timed)
    bands = []
    for share, opacity in BANDS:
        low, high = (LEVELS.index(round((1 + sign * share) / 2, 9)) for sign in (-1, 1))
        look: dict[str, Any] = {"colour": "curve-1", "kind": "band", "opacity": opacity}
        bands.append(Series(f"{100 * share:g} %", x, lines[:, high], lower=lines[:, low], time=timed, **look))
    series = [*_key([observed, median, *reversed(bands)]), *bands, median, observed]
    return Panel(
        series,
        title=title,
        clock=_clock(forecasts.series, number, count, horizon) if timed else (),
        x_label=_span(forecasts, number, count) if timed else "steps ahead",
        y_label="" if label == title else label,
        marks=[Mark(float(then[-1]))],
    )


def _key(named: Sequence[Series]) -> list[Series]:
    """Return the same names without values: a legend lists names as they first come, while lines go over bands."""
    return [replace(one, x=(), y=(), lower=None if one.lower is None else ()) for one in named]


def _span(forecasts: Forecasts, number: int, count: int) -> str:
    """Return what the axis of a chart leaves out: the days of minutes and hours, the years of days; or nothing."""
    calendar = forecasts.series.calendars[number]
    if calendar is None or calendar.months:
        return ""
    ends = [forecasts.series.past(number, count)[0], forecasts.series.future(number, forecasts.horizon)[-1]]
    local = forecasts.series.local(np.array(ends))
    return span_in_words(*(moment.astype("datetime64[D]").item() for moment in local))


def span_in_words(first: date, last: date) -> str:
    """Return the days of a span of up to a week, the years of one of up to two, and nothing of longer ones.

    >>> span_in_words(date(2024, 5, 3), date(2024, 5, 3)), span_in_words(date(2024, 4, 30), date(2024, 5, 2))
    ('3 May 2024', '30 April to 2 May 2024')
    >>> span_in_words(date(2024, 1, 1), date(2024, 5, 2)), span_in_words(date(2021, 1, 1), date(2024, 5, 2))
    ('2024', '')
    """
    if last.year - first.year > 1:
        return ""
    if (last - first).days > 7:
        return f"{first.year}" if first.year == last.year else f"{first.year} to {last.year}"
    begin = f"{first.day}"
    if first.month != last.month:
        begin += f" {first:%B}"
    if first.year != last.year:
        begin += f" {first.year}"
    end = f"{last.day} {last:%B %Y}"
    return end if first == last else f"{begin} to {end}"


def _clock(series: SeriesSet, number: int, count: int, horizon: int) -> Changes:
    """Return the clock that a chart shows: that of the zone of the series."""
    times = np.concatenate([series.past(number, count), series.future(number, horizon)])
    times = times[~np.isnat(times)]
    ahead = (series.local(times) - times) / np.timedelta64(1, "s")
    return changes_of(times, ahead) if ahead.any() else ()


def file_names(titles: Sequence[str]) -> list[str]:
    """Return a name for the file of each title, all different: letters of any script stay, what paths cannot hold goes.

    >>> file_names(["Köln / Süd", "日本 (東京)", "a:b", "A b", "???"])
    ['Köln-Süd', '日本-東京', 'a-b', 'A-b-2', 'series']
    """
    out: list[str] = []
    taken: set[str] = set()
    for title in titles:
        stem = re.sub(r"[\W_]+", "-", unicodedata.normalize("NFC", title)).strip("-")
        while len(stem.encode()) > 120:  # of the 255 bytes that a file's name may have
            stem = stem[:-1]
        stem = stem or "series"
        name, number = stem, 2
        while name.casefold() in taken:  # on some disks a and A are one
            name, number = f"{stem}-{number}", number + 1
        taken.add(name.casefold())
        out.append(name)
    return out


def charts(fans: Sequence[Panel]) -> list[tuple[str, Chart]]:
    """Return a file name and a chart of its own for each fan."""
    names = file_names([panel.title for panel in fans])
    return [(name, Chart(name, panel.title, [panel], height=3.3)) for name, panel in zip(names, fans, strict=True)]
