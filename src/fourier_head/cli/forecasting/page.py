"""The page of a forecast: fan charts to hover over and the numbers beside them, in one file that needs nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fourier_head.cli.forecasting.fan import file_names, first_names, first_quantiles, name_of
from fourier_head.forecasting.backtest import Backtest
from fourier_head.forecasting.results import Forecasts
from fourier_head.forecasting.scores import COVERAGES, INTERVALS
from fourier_head.forecasting.series_set import in_print
from fourier_head.pages.charts import Chart, Panel
from fourier_head.pages.embed import figure_html
from fourier_head.pages.frame import frame
from fourier_head.pages.templates import render
from fourier_head.pages.words import listed, short

ROWS = 2000
"""Series listed at most."""
SEARCHED = 20
"""Rows from which on a table has a field to search it."""


def build(forecasts: Forecasts, fans: Sequence[Panel], about: dict[str, Any]) -> str:
    """Return the page as text.

    Args:
        fans: the charts drawn, of the first series.
        about: title, table (file name), model, seconds, hardware, command, and maybe a section as backtest.
    """
    more = len(forecasts) - len(fans)
    caption = (
        "What was observed, then in blue the median of what may follow and the intervals that should hold 50, 80 and "
        "95 % of it. The dashed line is where the data end."
    )
    caption += f" The other {more} series are in {about['table']}." if more else ""
    chart = Chart("fans", "", fans, caption, columns=1 if len(fans) == 1 else 2)
    main = render(
        "cli/forecasting/page.html",
        lead=_lead(forecasts),
        read=_what_was_read(forecasts),
        beside=_beside_the_network(forecasts),
        figure=figure_html(chart),
        count=len(forecasts),
        SEARCHED=SEARCHED,
        **_table(forecasts),
        **({"backtest": ""} | about),
    )
    parts = {"forecasts": "Forecasts", "trust": "How good", "numbers": "Numbers", "how": "How it was made"}
    if not about.get("backtest"):
        del parts["trust"]
    return frame(about["title"], parts, main)


def index(title: str, rows: Sequence[dict[str, Any]], command: str) -> str:
    """Return the page over the forecasts of several files."""
    good = [row for row in rows if not row.get("error")]
    bad = len(rows) - len(good)
    values = {"total": sum(row["series"] for row in good), "good": count_files(len(good)), "command": command}
    failed = count_files(bad) if bad else ""
    main = render("cli/forecasting/index.html", title=title, rows=rows, bad=failed, **values)
    return frame(title, {"files": "Files"}, main)


def count_files(count: int) -> str:
    """Return a number of files in words.

    >>> count_files(1), count_files(3)
    ('1 file', '3 files')
    """
    return f"{count:,} file{'' if count == 1 else 's'}"


def _lead(forecasts: Forecasts) -> str:
    count = len(forecasts)
    what = "one series" if count == 1 else f"{count:,} series"
    steps = "the next step" if forecasts.horizon == 1 else f"the next {forecasts.horizon} steps"
    return f"What {steps} of {what} may bring: for every step a whole distribution, not a single number."


def _what_was_read(forecasts: Forecasts) -> str:
    timing = forecasts.series.timing
    note = "" if forecasts.series.timed else " Steps are numbered."
    return f"Read as {timing}.{note}" if timing != "no dates" else "No dates were found: steps are numbered."


def _beside_the_network(forecasts: Forecasts) -> str:
    used = forecasts.rules.used if forecasts.rules else {}
    parts = [f"{words} ({count:,} series)" for words, count in used.items()]
    return f"Beside the network: {listed(parts)}." if parts else ""


def _dates(forecasts: Forecasts, number: int, steps: Sequence[int]) -> list[str]:
    """Return when some steps of one series are, nothing where time is not known."""
    when = forecasts.series.local(forecasts.series.future(number, forecasts.horizon))
    return ["" if np.isnat(when[step]) else in_print(when[step]) for step in steps]


def _table(forecasts: Forecasts) -> dict[str, Any]:
    """Return the headings and rows of the numbers."""
    count = min(len(forecasts), ROWS)
    quantiles = first_quantiles(forecasts, count, (0.1, 0.5, 0.9))
    steps = [0] if forecasts.horizon == 1 else [0, forecasts.horizon - 1]
    dates = [_dates(forecasts, i, steps) for i in range(count)]
    # Series of one calendar share their dates, which then name the columns; else each number has its own.
    shared = all(one == dates[0] and all(one) for one in dates)
    headings = dates[0] if shared else ["Next step" if step == 0 else f"Step {step + 1}" for step in steps]
    names = first_names(forecasts, count)
    rows = []
    for i, (name, file) in enumerate(zip(names, file_names(names), strict=True)):
        known = forecasts.series.values[i]
        known = known[~np.isnan(known)]
        numbers = [[short(float(q)) for q in quantiles[i, step]] for step in steps]
        own = [""] * len(steps) if shared else dates[i]
        last = short(float(known[-1])) if len(known) else "–"
        rows.append(
            {"anchor": f"series-{file}", "name": name, "last": last, "cells": list(zip(numbers, own, strict=True))}
        )
    return {"headings": headings, "rows": rows}


WORST = 200
"""Series listed at most: those forecast worst, where there are more."""


def section(result: Backtest, file: str) -> str:
    """Return the section as HTML.

    Args:
        file: where every series is, beside the page.
    """
    worst = sorted(result.rows, key=lambda row: -_order(row))[:WORST]
    shown = [(name_of(row["name"]), row) for row in worst]
    values = {"result": result, "shown": shown, "file": file, "coverages": COVERAGES, "intervals": INTERVALS}
    return render("cli/forecasting/backtest.html", SEARCHED=SEARCHED, **values)


def _order(row: dict[str, float]) -> float:
    """Return how much worse than naive a series is, the sortable way."""
    ratio = row["mase"] / row["naive_mase"] if row["naive_mase"] else np.nan
    return float(np.nan_to_num(ratio, nan=-1.0))
