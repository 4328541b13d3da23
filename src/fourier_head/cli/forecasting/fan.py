"""Fan charts: the past, the median of the future, and nested intervals around it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fourier_head._clocks import Changes, changes_of
from fourier_head.forecasting.inputs import SeriesSet
from fourier_head.forecasting.results import Forecasts
from fourier_head.pages.charts import Chart, Mark, Panel, Series

BANDS = ((0.95, 0.2), (0.8, 0.38), (0.5, 0.6))
"""Shares of the outcomes, widest first, and how dense each is painted."""
LEVELS = (0.025, 0.1, 0.25, 0.5, 0.75, 0.9, 0.975)
SHOWN = 360
"""Values of the past drawn at most."""


def name_of(forecasts: Forecasts, number: int) -> str:
    """Return the name of a series in print."""
    name = forecasts.ids[number]
    if isinstance(name, tuple):
        return ", ".join(map(str, name))
    return f"Series {name + 1}" if isinstance(name, int) and forecasts.series.name_columns == ("id",) else str(name)


def panels(forecasts: Forecasts, count: int, label: str = "") -> list[Panel]:
    """Return a fan for each of the first series."""
    quantiles = first_quantiles(forecasts, count, LEVELS)
    return [_fan(forecasts, i, one, label) for i, one in enumerate(quantiles)]


def first_quantiles(forecasts: Forecasts, count: int, levels: Sequence[float]) -> np.ndarray:
    """Return the quantiles of the first series only: a page shows few of many."""
    return Forecasts(forecasts.density[:count], forecasts.series, forecasts.support[:count]).quantiles(levels)


def _fan(forecasts: Forecasts, number: int, quantiles: np.ndarray, label: str) -> Panel:
    values, horizon = forecasts.series.values[number], forecasts.horizon
    period = int(forecasts.series.periods[number])
    count = max(1, min(len(values), max(3 * horizon, 3 * period, 48), max(SHOWN, horizon)))
    past = values[-count:] if len(values) else np.array([np.nan])
    timed = not np.isnat(forecasts.series.last[number])
    then: Any
    soon: Any
    if timed:
        then, soon = (
            _seconds(t) for t in (forecasts.series.past(number, count), forecasts.series.future(number, horizon))
        )
    else:
        then, soon = np.arange(1 - count, 1), np.arange(1, horizon + 1)
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
    title = name_of(forecasts, number)
    mark = Mark(float(then[-1])) if count > 1 or timed else Mark(0.0)
    return Panel(
        series,
        title=title,
        clock=_clock(forecasts.series, number, count, horizon) if timed else (),
        x_label=_years(forecasts, number, count) if timed else "steps ahead",
        y_label="" if label == title else label,
        marks=[mark],
    )


def _key(named: Sequence[Series]) -> list[Series]:
    """Return the same names without values: a legend lists names as they first come, while lines go over bands."""
    return [replace(one, x=(), y=(), lower=None if one.lower is None else ()) for one in named]


def _years(forecasts: Forecasts, number: int, count: int) -> str:
    """Return the years that a chart of days or hours shows, whose axis names none; nothing for longer spans."""
    calendar = forecasts.series.calendars[number]
    if calendar is None or calendar.months:
        return ""
    ends = [forecasts.series.past(number, count)[0], forecasts.series.future(number, forecasts.horizon)[-1]]
    first, last = (int(str(end.astype("datetime64[Y]"))) for end in forecasts.series.local(np.array(ends)))
    if last - first > 1:
        return ""
    return f"{first}" if first == last else f"{first} to {last}"


def _clock(series: SeriesSet, number: int, count: int, horizon: int) -> Changes:
    """Return the clock that a chart shows: that of the zone of the series."""
    times = np.concatenate([series.past(number, count), series.future(number, horizon)])
    times = times[~np.isnat(times)]
    ahead = (series.local(times) - times) / np.timedelta64(1, "s")
    return changes_of(times, ahead) if ahead.any() else ()


def _seconds(times: np.ndarray) -> np.ndarray:
    return times.astype("datetime64[ns]").astype(np.int64) / 1e9


def charts(fans: Sequence[Panel]) -> list[tuple[str, Chart]]:
    """Return a file name and a chart of its own for each fan."""
    out: dict[str, Chart] = {}
    for panel in fans:
        slug = re.sub(r"[^a-z0-9]+", "-", panel.title.lower()).strip("-")[:60] or "series"
        name, number = slug, 2
        while name in out:
            name, number = f"{slug}-{number}", number + 1
        out[name] = Chart(name, panel.title, [panel], height=3.3)
    return list(out.items())
