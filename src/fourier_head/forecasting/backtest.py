"""Backtest: how good forecasts of one's own series would have been, beside the repetition of the last season."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from fourier_head.forecasting.evaluation import repeat_season
from fourier_head.forecasting.results import Forecasts, Predict
from fourier_head.forecasting.scores import (
    COVERAGES,
    Forecast,
    central_levels,
    coverages,
    observed_frequencies,
    series_errors,
)
from fourier_head.forecasting.series_set import SeriesSet
from fourier_head.forecasting.windows import Windows, past_windows


@dataclass(frozen=True)
class Backtest:
    """Scores of forecasts of earlier moments.

    Args:
        series: what was forecast; ``rows`` has one entry for each of them.
        windows: the pasts and what followed.
        forecasts: of the windows.
        rows: of each series that had a window: ``windows``, ``mase`` and ``wql``, the same of seasonal naive with
            ``naive_`` before them, and what share of the outcomes the central intervals held.
        overall: the same over all windows of all series.
    """

    series: SeriesSet
    windows: Windows
    forecasts: Forecasts
    rows: list[dict[str, Any]]
    overall: dict[str, float]

    @property
    def horizon(self) -> int:
        """Steps of a window."""
        return self.windows.targets.shape[1]

    def __repr__(self) -> str:
        return f"Backtest({len(self.rows):,} series, {len(self.windows):,} windows of {self.horizon} steps)"

    @property
    def words(self) -> str:
        """What came of it, in sentences."""
        all, steps = self.overall, "1 step" if self.horizon == 1 else f"{self.horizon} steps"
        # Series that only repeat their season have no unit of errors, and no share in this.
        known = [row for row in self.rows if np.isfinite(row["mase"]) and np.isfinite(row["naive_mase"])]
        out = f"In {len(self.windows):,} windows of {steps} of the past, "
        if all["naive_mase"] > 0:
            ratio = all["mase"] / all["naive_mase"]
            out += f"errors were {abs(1 - ratio):.0%} {'smaller' if ratio <= 1 else 'LARGER'} than those of repeating "
            out += f"the last season (MASE {all['mase']:.3f} against {all['naive_mase']:.3f})"
            if len(known) > 1:
                better = np.mean([row["mase"] <= row["naive_mase"] for row in known])
                out += f", and no larger in {better:.0%} of the series"
        elif all["naive_mase"] == 0:
            out += f"repeating the last season made no errors (MASE {all['mase']:.3f} here)"
        else:
            out += "values only repeated the season before, so that errors have no unit"
        held = ", ".join(f"{all[key]:.0%}" for key in COVERAGES)
        return f"{out}. Intervals meant to hold 50, 80 and 95 % of the outcomes held {held}."

    def to_frame(self) -> pd.DataFrame:
        """Return a table with a row for each series, under the names that the data has for them."""
        content = self.series.names_by_column([row["name"] for row in self.rows])
        keys = [key for key in self.overall if key != "series"]
        return pd.DataFrame(content | {key: [row[key] for row in self.rows] for key in keys})


def backtest(predict: Predict, series: SeriesSet, horizon: int, count: int, stride: int | None) -> Backtest:
    """Return the scores of up to ``count`` windows of every series.

    Args:
        stride: steps from one window to the next, see `past_windows`.
    """
    windows = past_windows(series, horizon, count, stride)
    if not len(windows):
        longest = max(map(len, series.values))
        raise ValueError(
            f"no series is long enough for a backtest of {horizon} steps: the longest has {longest} values, and at "
            "least a third of them, or 8, must lie before a window."
        )
    if np.isnan(windows.targets).all():
        raise ValueError("there is nothing to compare forecasts with: the windows of the past hold no value at all.")
    forecasts = predict(windows.pasts, horizon)
    levels = central_levels()
    ours = Forecast(forecasts.quantiles(levels), levels)
    naive = Forecast(np.repeat(_naive(windows)[..., None], 9, axis=-1))
    added: dict[str, np.ndarray] = {}
    for prefix, one in (("", ours), ("naive_", naive)):
        errors = series_errors(one, windows.targets, windows.pasts.values, windows.pasts.periods)
        added |= {prefix + key: value for key, value in errors.items()}
    rows = [
        {"name": series.names[number], **_row(added, ours, windows, np.flatnonzero(windows.owner == number))}
        for number in np.unique(windows.owner)
    ]
    overall = {"series": len(rows), **_row(added, ours, windows, np.arange(len(windows)))}
    return Backtest(series, windows, forecasts, rows, overall)


def _row(added: dict[str, np.ndarray], ours: Forecast, windows: Windows, some: np.ndarray) -> dict[str, float]:
    """Return the scores over some windows."""

    def ratio(above: str, below: str) -> float:
        size = float(added[below][some].sum())
        return float(added[above][some].sum()) / size if size else float("nan")

    row: dict[str, float] = {"windows": len(some)}
    for prefix in ("", "naive_"):
        row |= {f"{prefix}mase": ratio(f"{prefix}scaled", f"{prefix}count")}
        row |= {f"{prefix}wql": ratio(f"{prefix}loss", f"{prefix}size")}
    targets = windows.targets[some]
    if np.isnan(targets).all():
        return row | dict.fromkeys(COVERAGES, float("nan"))
    seen = observed_frequencies(Forecast(ours.quantiles[some], ours.levels), targets)
    return row | coverages(dict(zip(ours.levels, seen.tolist(), strict=True)))


def _naive(windows: Windows) -> np.ndarray:
    """Return the last season of each past, repeated (windows, horizon); the last known value where one is missing."""
    out = repeat_season(windows.pasts.values, windows.targets.shape[1], windows.pasts.periods)
    known = [past[~np.isnan(past)][-1:] for past in windows.pasts.values]
    last = np.array([float(one[0]) if len(one) else 0.0 for one in known])
    return np.where(np.isnan(out), last[:, None], out)
