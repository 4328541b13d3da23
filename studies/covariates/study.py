"""The study covariates: the forecaster with and without what is known of the future, and gradient boosting."""

from __future__ import annotations

import functools
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Console

from fourier_head._devices import chosen_device
from fourier_head.forecasting.forecaster import Forecaster
from fourier_head.forecasting.frequency import natural_period
from fourier_head.forecasting.scores import DECILES, Forecast, series_errors
from fourier_head.tasks.engine import Task
from studies.common import options
from studies.common.benchmark_sets import geometric_mean
from studies.common.options import SILENT, option
from studies.common.report.summary import Row, Summary
from studies.common.results import row
from studies.covariates.tables import SOURCES, Source

if TYPE_CHECKING:
    import pandas as pd

METHODS = ("without", "with covariates", "gradient boosting")
QUICK = 1


@dataclass(frozen=True)
class Settings(options.TaskStudy):
    """What to forecast; each window of a table is a task."""

    study = "covariates"
    data: Path = option(help="Folder of training sets, parquet files in the Chronos format.")
    model: str = option("small", "Forecaster of the package, or a folder.", file=True)
    windows: int = option(6, "Windows of each series, one horizon after the other.", low=1)
    device: str = options.device(told=True)
    workers: int | None = options.workers(1, "Processes, each with the forecaster.")


def run(settings: Settings, console: Console = SILENT) -> Summary:
    """Forecast every window by every method and write the folder."""
    device = chosen_device(settings.device)
    # The last window of every table first, so that a run that is stopped has some of each.
    tasks = [
        Task(
            window_losses,
            {"table": source.name, "window": window, "model": settings.model, "device": device},
            f"{source.name}, window {window + 1}",
            resources={"data": str(settings.data)},
        )
        for window in range(QUICK if settings.quick else settings.windows)
        for source in SOURCES
    ]
    finished = settings.finish(tasks, console, "windows")
    order = {source.name: place for place, source in enumerate(SOURCES)}
    scored = (one for _, part in finished for one in part["losses"])
    runs = sorted(scored, key=lambda one: (order[one["dataset"]], one["window"]))
    missing = len(tasks) - len(finished)
    rows = _rows(runs)
    left_out = [f"{missing} of {len(tasks)} windows were not forecast for want of time."] if missing else []
    return settings.write(
        rows,
        runs=runs,
        gpu=device == "cuda",
        # `seconds` is this call's; windows finished before an interruption count here.
        core_seconds=round(sum(part["seconds"] for _, part in finished)),
        keep_runs=bool(missing),
        notes=[*left_out, *_notes(rows, runs)],
        quick="one window of each series",
    )


@functools.cache
def _forecaster(model: str, device: str) -> Forecaster:
    return Forecaster.from_pretrained(model, device)


def window_losses(table: str, window: int, model: str, device: str, data: str) -> dict[str, Any]:
    """Return the losses of every method on one window of a table, and the seconds they took."""
    begin = time.perf_counter()
    source = next(one for one in SOURCES if one.name == table)
    losses = _window(_forecaster(model, device), source, source.read(Path(data)), window)
    return {"losses": losses, "seconds": time.perf_counter() - begin}


def _window(forecaster: Forecaster, source: Source, table: pd.DataFrame, window: int) -> list[dict[str, Any]]:
    """Return the losses of every method on one window, which begins so many horizons before the end."""
    times = np.sort(table["time"].unique())
    cut, end = (times[len(times) - 1 - source.horizon * (window + more)] for more in (1, 0))
    past = table[table["time"] <= cut]
    future = table[(table["time"] > cut) & (table["time"] <= end)]
    known = future.drop(columns="y")
    target = np.stack([future.loc[future["id"] == name, "y"] for name in source.targets])
    plain = past[["id", "time", "y"]]
    columns: dict[str, Any] = {"id": "id", "time": "time", "target": "y", "freq": source.freq, "progress": False}
    beside: dict[str, Any] = {"future": known} if source.beside else {}
    found = forecaster.predict(past, source.horizon, **columns, **beside, holidays=source.country)
    boosted = [
        boosted_quantiles(
            past[past["id"] == name].drop(columns="id"), known[known["id"] == name].drop(columns="id"), source.freq
        )
        for name in source.targets
    ]
    quantiles = {
        "without": forecaster.predict(plain, source.horizon, **columns).quantiles(DECILES),
        "with covariates": found.quantiles(DECILES),
        "gradient boosting": np.stack(boosted),
    }
    contexts = [past.loc[past["id"] == name, "y"].to_numpy() for name in source.targets]
    out = []
    for method, each in quantiles.items():
        errors = series_errors(Forecast(each), target, contexts, natural_period(source.freq))
        inside = ((each[..., 0] <= target) & (target <= each[..., -1])).sum(1)
        for number, name in enumerate(source.targets):
            run: dict[str, Any] = {"dataset": source.name, "series": name, "window": window, "method": method}
            run |= {key: float(value[number]) for key, value in errors.items()}
            run["inside"] = int(inside[number])
            assert found.effects is not None
            run["way"] = found.effects.ways[number] if method == "with covariates" else None
            out.append(run)
    return out


def boosted_quantiles(past: pd.DataFrame, future: pd.DataFrame, freq: str) -> np.ndarray:
    """Return deciles (horizon, 9) of one series: a model for each, on values a horizon ago and before.

    Args:
        past: time, y and covariates of one series.
        future: the same without y.
        freq: of the steps.
    """
    import pandas as pd
    from sklearn.ensemble import HistGradientBoostingRegressor

    horizon, period = len(future), natural_period(freq)
    table = pd.concat([past, future], ignore_index=True)
    y = table["y"]
    season = period * -(-horizon // period)
    lags = {f"lag {lag}": y.shift(lag) for lag in (horizon, horizon + 1, season, season + period, season + 2 * period)}
    means = {f"mean of {size}": y.shift(horizon).rolling(size).mean() for size in (period, 4 * period)}
    time = table["time"].dt
    calendar = {"hour": time.hour, "weekday": time.weekday, "day of year": time.dayofyear}
    x = table.drop(columns=["y", "time"]).assign(**lags, **means, **calendar).to_numpy(dtype=float)
    known = (np.arange(len(table)) < len(past)) & y.notna().to_numpy()
    out = []
    for level in DECILES:
        model = HistGradientBoostingRegressor(loss="quantile", quantile=level, max_iter=100, random_state=0)
        out.append(model.fit(x[known], y[known]).predict(x[len(past) :]))
    return np.sort(np.stack(out, axis=-1), axis=-1)


def _rows(runs: list[dict[str, Any]]) -> list[Row]:
    import pandas as pd

    parts = ["scaled", "count", "loss", "size", "inside"]
    sums = pd.DataFrame(runs).groupby(["dataset", "method"], sort=False)[parts].sum()
    mase, wql, inside = sums["scaled"] / sums["count"], sums["loss"] / sums["size"], sums["inside"] / sums["count"]
    scores = pd.DataFrame({"mase": mase, "wql": wql, "coverage_80": inside})
    rows = [
        row(metric, float(value), dataset=name, head="fourier", protocol=method)
        for (name, method), own in scores.iterrows()
        for metric, value in own.items()
    ]
    for method in METHODS[1:]:
        ratios = scores.xs(method, level="method") / scores.xs("without", level="method")
        about = {"dataset": "all", "head": "fourier", "protocol": method}
        for metric in ("mase", "wql"):
            rows.append(row(f"relative_{metric}", geometric_mean(ratios[metric]), **about))
            rows.append(row(f"worst_{metric}", float(ratios[metric].max()), **about))
    return rows


def _notes(rows: list[Row], runs: list[dict[str, Any]]) -> list[str]:
    value = {(r["metric"], r["protocol"]): f"{r['ours']:.3f}" for r in rows if r["dataset"] == "all"}
    ways = [run["way"] for run in runs if run["method"] == "with covariates"]
    used = 1 - ways.count("none") / len(ways)
    ours, boosted = (
        [value[f"{kind}_{metric}", method] for kind in ("relative", "worst") for metric in ("wql", "mase")]
        for method in METHODS[1:]
    )
    return [
        f"With covariates WQL is {ours[0]} and MASE {ours[1]} times that of the same forecaster without (geometric "
        f"means over tables; at worst {ours[2]} and {ours[3]}); they were used in {used:.0%} of the forecasts. "
        f"Gradient boosting on lags, the same covariates and the calendar: {boosted[0]} and {boosted[1]}.",
        "The forecaster was trained on most of these series without their covariates; what counts is the difference.",
        "Weather is that which was measured, as a perfect weather forecast would have it, for both.",
    ]
