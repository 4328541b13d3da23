"""Evaluate forecasters on held-out windows of many sets, and compare them with seasonal naive as Chronos does."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from fourier_head.forecasting.evaluation_sets import EvaluationSet
from fourier_head.forecasting.scores import INTERVALS, Forecast, score, series_errors
from fourier_head.forecasting.seasonal_naive import SeasonalNaive

__all__ = [
    "SEASONAL_NAIVE",
    "Forecaster",
    "ScoreRow",
    "evaluate",
    "evaluate_seasonal_naive",
    "geometric_mean",
    "relative_means",
    "relative_scores",
]

ScoreRow = dict[str, Any]
"""Scores of one model on one set, flat: model, dataset, status, series, horizon, season, mase, wql, coverage_50,
coverage_80, coverage_95, interval_error, pit, seconds."""

SEASONAL_NAIVE = "seasonal-naive"


class Forecaster(Protocol):
    """Anything that takes contexts of different lengths, a horizon and a frequency, and forecasts all of them.

    It returns a `Forecast`, or an array or tensor of the nine deciles, shape (series, horizon, 9). Sample paths go
    through `Forecast.from_samples`. Cutting long contexts and making batches is its own affair.
    """

    def __call__(self, contexts: list[np.ndarray], horizon: int, freq: str | None) -> Any: ...


def evaluate(
    forecaster: Forecaster | Callable[[list[np.ndarray], int, str | None], Any],
    sets: Iterable[EvaluationSet],
    *,
    model: str = "model",
    allow_missing: bool = False,
    report: Callable[[ScoreRow], None] | None = None,
    errors: dict[str, dict[str, np.ndarray]] | None = None,
) -> list[ScoreRow]:
    """Return one row of scores for each set.

    Args:
        forecaster: see `Forecaster`.
        sets: what to forecast.
        model: its name in the rows.
        allow_missing: leave targets without a forecast (NaN) out instead of refusing them.
        report: called with each row as it is done.
        errors: filled, by the name of a set, with what each of its series adds to the scores, see `series_errors`.

    Example:
        >>> sets = [EvaluationSet("ramp", [np.arange(8.0)], horizon=2, season=1)]
        >>> row = evaluate(SeasonalNaive(season=1), sets)[0]
        >>> row["mase"], round(row["wql"], 6)
        (1.5, 0.230769)
    """
    rows = []
    for one in sets:
        contexts = one.contexts()
        start = time.perf_counter()
        answer = forecaster(contexts, one.horizon, one.freq)
        # Fetching the numbers waits for a GPU, so it belongs to the time taken.
        forecast = answer if isinstance(answer, Forecast) else Forecast(answer)
        seconds = time.perf_counter() - start
        row: ScoreRow = {
            "model": model,
            "dataset": one.name,
            "status": one.status,
            "series": len(one),
            "horizon": one.horizon,
            "season": one.season,
        }
        row |= score(forecast, one.targets(), contexts, one.season, allow_missing=allow_missing)
        row["seconds"] = seconds
        rows.append(row)
        if errors is not None:
            errors[one.name] = series_errors(forecast, one.targets(), contexts, one.season)
        if report is not None:
            report(row)
    return rows


def evaluate_seasonal_naive(sets: Iterable[EvaluationSet]) -> list[ScoreRow]:
    """Return the scores of seasonal naive, the baseline of `relative_scores`.

    Where a value of the last season is missing there is no forecast, and the target is left out: so come the published
    scores. Its point forecast has no intervals, so rows carry no coverage.
    """
    rows = []
    for one in sets:
        rows += evaluate(SeasonalNaive(one.season), [one], model=SEASONAL_NAIVE, allow_missing=True)
    for row in rows:
        row |= dict.fromkeys([*(f"coverage_{round(100 * share)}" for share in INTERVALS), "interval_error", "pit"])
    return rows


def geometric_mean(values: Iterable[float]) -> float:
    """Return the geometric mean of positive numbers.

    >>> round(geometric_mean([1.0, 4.0]), 6)
    2.0
    """
    logs = [math.log(value) if value > 0 else math.nan for value in values]
    return math.exp(sum(logs) / len(logs)) if logs else math.nan


def relative_scores(rows: Iterable[ScoreRow], baseline: Iterable[ScoreRow]) -> list[ScoreRow]:
    r"""Return geometric means over sets of score / baseline score, one row per model for each group of sets.

    .. math:: \exp \Big( \frac1D \sum_d \log \frac{\mathrm{score}_d}{\mathrm{baseline}_d} \Big)

    Groups are `verified`, `verified_17` where there are `further` verified ones, and `all`.
    Sets without a baseline score are left out; `sets` counts those that are in. A row also holds the means over sets
    of the coverages and of `interval_error`, and the sum of seconds.

    References:
        Ansari et al., Chronos: Learning the Language of Time Series (2024), section 5.4.
    """
    scale = {row["dataset"]: row for row in baseline}
    by_model: dict[str, list[ScoreRow]] = {}
    for row in rows:
        if row["dataset"] in scale:
            by_model.setdefault(row["model"], []).append(row)
    out = []
    for model, members in by_model.items():
        groups = {"verified": ("verified",), "verified_17": ("verified", "further"), "all": None}
        if not any(row["status"] == "further" for row in members):
            del groups["verified_17"]
        for which, statuses in groups.items():
            chosen = [row for row in members if statuses is None or row["status"] in statuses]
            if chosen:
                out.append({"model": model, "dataset": which} | relative_means(chosen, scale))
    return out


def relative_means(rows: Sequence[ScoreRow], scale: Mapping[str, ScoreRow]) -> ScoreRow:
    """Return the relative scores over some rows of one model, the means of their coverages and the sum of seconds."""
    row: ScoreRow = {"sets": len(rows)}
    for key in ("mase", "wql"):
        row[f"relative_{key}"] = geometric_mean(one[key] / scale[one["dataset"]][key] for one in rows)
    for key in (*(f"coverage_{round(100 * share)}" for share in INTERVALS), "interval_error"):
        values = [one[key] for one in rows if one.get(key) is not None]
        row[key] = float(np.mean(values)) if len(values) == len(rows) else None
    seconds = [one["seconds"] for one in rows if one.get("seconds") is not None]
    row["seconds"] = float(np.sum(seconds)) if len(seconds) == len(rows) else None
    return row
