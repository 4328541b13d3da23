"""The part of a forecast's page that says how good forecasts of the past would have been."""

from __future__ import annotations

import numpy as np

from fourier_head.cli.forecasting.fan import name_of
from fourier_head.cli.forecasting.page import SEARCHED
from fourier_head.forecasting.backtest import Backtest
from fourier_head.forecasting.scores import COVERAGES, INTERVALS
from fourier_head.pages.templates import render

ROWS = 200
"""Series listed at most: those forecast worst, where there are more."""


def section(result: Backtest, file: str) -> str:
    """Return the section as HTML.

    Args:
        file: where every series is, beside the page.
    """
    worst = sorted(result.rows, key=lambda row: -_order(row))[:ROWS]
    shown = [(name_of(row["name"]), row) for row in worst]
    values = {"result": result, "shown": shown, "file": file, "coverages": COVERAGES, "intervals": INTERVALS}
    return render("cli/forecasting/backtest.html", SEARCHED=SEARCHED, **values)


def _order(row: dict[str, float]) -> float:
    """Return how much worse than naive a series is, the sortable way."""
    ratio = row["mase"] / row["naive_mase"] if row["naive_mase"] else np.nan
    return float(np.nan_to_num(ratio, nan=-1.0))
