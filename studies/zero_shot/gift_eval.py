"""The GIFT-Eval benchmark: its 97 configurations from a download of it, or some of them rebuilt; its table of results.

A configuration is a rolling evaluation without retraining: window k of W ends (W - k) horizons before the end of a
series, everything before it is context. Data sets of several columns count as one series for each.

References:
    Aksu et al., GIFT-Eval: A Benchmark for General Time Series Forecasting Model Evaluation (2024).
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import compress
from pathlib import Path
from typing import Any

import numpy as np

from fourier_head.errors import UserError
from fourier_head.forecasting.corpora.readers import read_rows
from fourier_head.forecasting.evaluation import SEASONAL_NAIVE, EvaluationSet, ScoreRow, evaluate_seasonal_naive
from fourier_head.forecasting.frequency import parse_frequency, season_length
from fourier_head.forecasting.scores import (
    DECILES,
    Forecast,
    central_levels,
    coverages,
    interval_error,
    observed_frequencies,
    scales,
)
from studies.common.benchmark_sets import by_model, read_published_scores, relative_means
from studies.common.forecast_scores import CALIBRATION, RELATIVE
from studies.common.report.summary import Row
from studies.common.results import row

TEST_SHARE, MOST_WINDOWS = 0.1, 20
TERMS = {"short": 1, "medium": 10, "long": 15}
HORIZONS = {"month": 12, "week": 8, "day": 30, "hour": 48, "minute": 48, "second": 60}
M4_HORIZONS = {"year": 6, "quarter": 8, "month": 18, "week": 13, "day": 14, "hour": 48}
CHUNK = 2_000_000
"""About so many values are forecast at once."""

# Folders of the benchmark, by domain; those with a star are also forecast 10 and 15 times as far.
_FOLDERS = {
    "Econ/Fin": "m4_yearly/A m4_quarterly/Q m4_monthly/M m4_weekly/W m4_daily/D m4_hourly/H",
    "Energy": "electricity:15T* electricity:H* electricity:D electricity:W solar:10T* solar:H* solar:D solar:W "
    "ett1:15T* ett1:H* ett1:D ett1:W ett2:15T* ett2:H* ett2:D ett2:W",
    "Healthcare": "hospital/M covid_deaths/D us_births:D us_births:M us_births:W",
    "Nature": "saugeenday:D saugeenday:M saugeenday:W temperature_rain_with_missing/D kdd_cup_2018_with_missing:H* "
    "kdd_cup_2018_with_missing:D jena_weather:10T* jena_weather:H* jena_weather:D",
    "Sales": "car_parts_with_missing/M restaurant/D hierarchical_sales:D hierarchical_sales:W",
    "Transport": "LOOP_SEATTLE:5T* LOOP_SEATTLE:H* LOOP_SEATTLE:D SZ_TAXI:15T* SZ_TAXI:H M_DENSE:H* M_DENSE:D",
    "Web/CloudOps": "bitbrains_fast_storage:5T* bitbrains_fast_storage:H bitbrains_rnd:5T* bitbrains_rnd:H "
    "bizitobs_application/10S* bizitobs_service/10S* bizitobs_l2c:5T* bizitobs_l2c:H*",
}
_METRICS = ("MSE[mean]", "MSE[0.5]", "MAE[0.5]", "MASE[0.5]", "MAPE[0.5]", "sMAPE[0.5]", "MSIS", "RMSE[mean]",
            "NRMSE[mean]", "ND[0.5]", "mean_weighted_sum_quantile_loss")  # fmt: skip
COLUMNS = ("dataset", "model", *(f"eval_metrics/{name}" for name in _METRICS), "domain", "num_variates")
"""Of the benchmark's ``all_results.csv``."""


@dataclass(frozen=True)
class Configuration:
    """One of the 97: a data set, how far ahead, and over how many windows.

    Args:
        name: as in the benchmark's tables, ``bizitobs_l2c/5T/long``.
        path: parquet file, or folder of arrow files.
        term: "short", "medium" or "long".
        domain: of the data set.
        known: frequency, horizon, season and windows where a file says them; else they follow from the data.
    """

    name: str
    path: Path
    term: str
    domain: str
    known: Mapping[str, Any] | None = None

    def read(self) -> tuple[EvaluationSet, int]:
        """Return the windows as an evaluation set, and the number of columns of the data."""
        series, starts, freq, columns = _series(self.path)
        if self.known is not None:
            freq, horizon, windows = self.known["freq"], self.known["horizon"], self.known["windows"]
            longest = self.known.get("longest")
            kept = [longest is None or len(one) <= longest for one in series]
            series, starts = list(compress(series, kept)), list(compress(starts, kept))
        else:
            unit = (parse_frequency(freq) or (1, ""))[1]
            table = M4_HORIZONS if self.name.startswith("m4_") else HORIZONS
            if unit not in table:
                raise UserError(f"{self.path} must have a frequency that the benchmark knows, got {freq!r}.")
            horizon = TERMS[self.term] * table[unit]
            share = math.ceil(TEST_SHARE * min(map(len, series)) / horizon)
            windows = 1 if self.name.startswith("m4_") else min(max(1, share), MOST_WINDOWS)
        season = season_length(freq) if self.known is None else self.known["season"]
        cut = [one[: len(one) - k * horizon] for one in series for k in range(windows - 1, -1, -1)]
        begun = [start for start in starts for _ in range(windows)]
        return EvaluationSet(self.name, cut, horizon, season, freq, "verified", begun), columns


def gift_configurations(folder: str | Path) -> list[Configuration]:
    """Return the configurations that a folder holds: rebuilt ones, named by its ``configs.json``, or a download."""
    folder = Path(folder)
    if (folder / "configs.json").is_file():
        described = json.loads((folder / "configs.json").read_text(encoding="utf-8"))
        domains = {name: domain for name, _, domain, _ in _benchmark()}
        return [
            Configuration(one["config"], folder.parent / one["file"], one["config"].rpartition("/")[2],
                          domains.get(one["config"].rpartition("/")[0], ""), one)
            for one in described
        ]  # fmt: skip
    found = []
    for name, path, domain, far in _benchmark():
        if (folder / path).is_dir():
            terms = TERMS if far else ["short"]
            found += [Configuration(f"{name}/{term}", folder / path, term, domain) for term in terms]
    if not found:
        raise UserError(f"{folder} must hold configs.json or data sets of GIFT-Eval, got neither.")
    return found


def _benchmark() -> Iterator[tuple[str, str, str, bool]]:
    """Yield the name with its frequency, the folder, the domain, and whether there are medium and long terms."""
    for domain, folders in _FOLDERS.items():
        for one in folders.split():
            path, far = one.rstrip("*"), one.endswith("*")
            name, freq = path.replace(":", "/").split("/")
            # A colon divides folders; after a slash comes the frequency of a data set that has one folder only.
            pretty = {"saugeenday": "saugeen"}.get(name, name.removesuffix("_with_missing").lower())
            yield f"{pretty}/{freq}", path.replace(":", "/") if ":" in path else name, domain, far


def _series(path: Path) -> tuple[list[np.ndarray], list[str], str, int]:
    """Return all series of a parquet file or a folder of arrow files, their starts, frequency, and columns of each."""
    files = [path] if path.is_file() else sorted(path.glob("*.arrow"))
    if not files:
        raise UserError(f"{path} must be a parquet file or a folder of arrow files, got neither.")
    parts = [read_rows(file) for file in files]
    series = [one for part in parts for one in part.series()]
    starts = [start for part in parts for start in part.starts]
    return series, starts, str(parts[0].freqs[0]), parts[0].columns


def evaluate_gift(
    forecaster: Any,
    configurations: Iterable[Configuration],
    *,
    model: str = "model",
    report: Callable[[ScoreRow], None] | None = None,
) -> list[ScoreRow]:
    """Return one row of scores for each configuration, with all that ``all_results.csv`` asks for under ``gift``.

    Args:
        forecaster: a `Forecaster`, or what has a like ``predict``.
        configurations: which.
        model: its name in the rows.
        report: called with each row as it is done.
    """
    rows = []
    for one in configurations:
        data, columns = one.read()
        totals = _Totals()
        size = max(1, CHUNK // (data.horizon * 13))
        for start in range(0, len(data), size):
            rows_of = slice(start, start + size)
            part = replace(data, series=data.series[rows_of], starts=data.starts[rows_of])
            contexts, target = part.contexts(), part.targets().astype(np.float64)
            longest = getattr(getattr(forecaster, "config", None), "context", None)
            forecasts = forecaster.predict(part.entries(longest), data.horizon, freq=data.freq, progress=False)
            levels = central_levels()
            totals.add(
                Forecast(forecasts.quantiles(levels), levels), forecasts.mean, target, scales(contexts, data.season)
            )
        gift = totals.metrics()
        row: ScoreRow = {
            "model": model,
            "dataset": one.name,
            "status": "verified",
            "series": len(data),
            "horizon": data.horizon,
            "season": data.season,
            "mase": gift["MASE[0.5]"],
            "wql": gift["mean_weighted_sum_quantile_loss"],
            **totals.coverage(),
            "term": one.term,
            "gift": {**gift, "domain": one.domain, "num_variates": columns},
        }
        row["interval_error"] = interval_error(row)
        rows.append(row)
        if report is not None:
            report(row)
    return rows


class _Totals:
    """Sums over series, windows and steps from which every score of a configuration follows."""

    def __init__(self) -> None:
        self.sums: dict[str, float] = {}
        self.below: np.ndarray | float = 0.0
        self.levels: Sequence[float] = ()

    def add(self, forecast: Forecast, mean: np.ndarray, target: np.ndarray, scale: np.ndarray) -> None:
        """Count some of the series."""
        there = ~np.isnan(target)
        usable = there & (scale > 0)[:, None]
        unit = np.where(scale > 0, scale, 1.0)[:, None]
        middle, low, high = (forecast.at(level)[..., 0] for level in (0.5, 0.025, 0.975))
        y = np.where(there, target, 0.0)
        error = np.abs(y - middle)
        gap, levels = y[..., None] - forecast.at(*DECILES), np.asarray(DECILES)
        outside = np.maximum(low - y, 0) + np.maximum(y - high, 0)
        parts = {
            "count": there,
            "size": np.abs(y),
            "square_mean": (y - mean) ** 2,
            "square": error**2,
            "error": error,
            "share": np.divide(error, np.abs(y), out=np.zeros_like(y), where=y != 0),
            "nonzero": there & (y != 0),
            "both": np.divide(2 * error, np.abs(y) + np.abs(middle), out=np.zeros_like(y), where=error > 0),
            "loss": 2 * np.maximum(levels * gap, (levels - 1) * gap).mean(-1),
        }
        scaled = {"scaled": error / unit, "interval": (high - low + 2 / 0.05 * outside) / unit, "known": usable}
        for group, mask in ((parts, there), (scaled, usable)):
            for name, value in group.items():
                self.sums[name] = self.sums.get(name, 0.0) + float(np.where(mask, value, 0.0).sum())
        if there.any():
            self.below = self.below + observed_frequencies(forecast, target) * there.sum()
        self.levels = forecast.levels

    def metrics(self) -> dict[str, float]:
        """Return the scores by the benchmark's names."""
        s = self.sums
        count, size, known = max(s["count"], 1), s["size"] or math.nan, s["known"] or math.nan
        root = math.sqrt(s["square_mean"] / count)
        values = (s["square_mean"] / count, s["square"] / count, s["error"] / count, s["scaled"] / known,
                  s["share"] / max(s["nonzero"], 1), s["both"] / count, s["interval"] / known, root,
                  root / (size / count), s["error"] / size, s["loss"] / size)  # fmt: skip
        return dict(zip(_METRICS, values, strict=True))

    def coverage(self) -> dict[str, float]:
        """Return the shares of targets inside central intervals."""
        below = dict(zip(self.levels, np.asarray(self.below) / max(self.sums["count"], 1), strict=True))
        return coverages({level: float(share) for level, share in below.items()})


def gift_naive(configurations: Iterable[Configuration]) -> list[ScoreRow]:
    """Return the scores of seasonal naive: published where they are known, which relative scores divide by."""
    rows = []
    for one in configurations:
        known = (one.known or {}).get("published_seasonal_naive")
        if known is None:
            rows += evaluate_seasonal_naive([one.read()[0]])
        else:
            rows.append({"model": SEASONAL_NAIVE, "dataset": one.name, "status": "verified",
                         "mase": known[0], "wql": known[1]})  # fmt: skip
    return rows


def write_all_results(path: str | Path, rows: Iterable[ScoreRow]) -> Path:
    """Write the benchmark's table of results of what `evaluate_gift` returned."""
    with Path(path).open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        for row in rows:
            gift = row["gift"]
            writer.writerow(
                [row["dataset"], row["model"], *(gift[name] for name in (*_METRICS, "domain", "num_variates"))]
            )
    return Path(path)


GROUPS = {"gift": ("short", "medium", "long"), "gift_short": ("short",), "gift_long": ("medium", "long")}
"""Means over configurations, by their terms."""


def read_published(folder: Path) -> list[ScoreRow]:
    """Return the published scores that lie beside the configurations, none where there is no table."""
    table = folder / "published.csv"
    return read_published_scores(table) if table.is_file() else []


def relative(scores: Iterable[ScoreRow], naive: Iterable[ScoreRow]) -> Iterator[ScoreRow]:
    """Return relative scores of each model over all configurations, the short ones, and the medium and long ones.

    >>> naive = [{"dataset": "a/H/short", "mase": 2.0, "wql": 1.0}]
    >>> ours = [{"model": "m", "dataset": "a/H/short", "mase": 1.0, "wql": 0.5}]
    >>> [(one["dataset"], one["relative_mase"]) for one in relative(ours, naive)]
    [('gift', 0.5), ('gift_short', 0.5)]
    """
    scale = {one["dataset"]: one for one in naive}
    for model, members in by_model(scores, scale).items():
        for group, terms in GROUPS.items():
            if chosen := [one for one in members if one["dataset"].rpartition("/")[2] in terms]:
                yield {"model": model, "dataset": group} | relative_means(chosen, scale)


def rows(
    scores: Sequence[ScoreRow], naive: Sequence[ScoreRow], published: Sequence[ScoreRow], about: dict[str, Any]
) -> Iterator[Row]:
    """Return the rows of the study: means, each configuration of ours, and published means beside them."""
    for one in relative(scores, naive):
        keep = {"dataset": one["dataset"], "model": one["model"], "sets": one["sets"], **about}
        yield from (row(metric, one[metric], **keep) for metric in (*RELATIVE, *CALIBRATION))
    base = {one["dataset"]: one for one in naive}
    for one in scores:
        keep = {"dataset": one["dataset"], "model": one["model"], "status": one["status"], **about}
        for metric in ("mase", "wql", *CALIBRATION):
            other = base.get(one["dataset"], {}).get(metric)
            ratio = {"seasonal_naive": other, "relative": one[metric] / other} if other else {}
            yield row(metric, one[metric], **keep, **ratio)
    models = [one for one in published if one["model"] != SEASONAL_NAIVE]
    for one in relative(models, naive):
        keep = {"dataset": one["dataset"], "head": one["model"], "model": one["model"], "protocol": "published"}
        yield from (row(metric, None, **keep, sets=one["sets"], published=one[metric]) for metric in RELATIVE)
