"""The study joint-paths: sums over the horizon from whole paths, beside paths of independent steps."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console

from fourier_head._devices import chosen_device
from fourier_head.errors import UserError
from fourier_head.forecasting.dependence import FREEDOM, KINDS, group_of, usual_weights
from fourier_head.forecasting.evaluation import EvaluationSet
from fourier_head.forecasting.forecaster import WINDOWS, Forecaster
from fourier_head.forecasting.inputs import read_series
from fourier_head.forecasting.results import Forecasts
from fourier_head.forecasting.scores import COVERAGES, INTERVALS, interval_error, scales
from fourier_head.forecasting.windows import past_windows
from studies.common import options
from studies.common.benchmark_sets import BENCHMARK, geometric_mean, read_evaluation_sets
from studies.common.options import SILENT, option
from studies.common.report.summary import Row, Summary
from studies.common.results import row

QUICK_SERIES = 10
JUDGED = 200
"""Paths of each series that energy and variogram scores compare: all pairs of them."""
PROTOCOLS = ("joint", "independent")


@dataclass(frozen=True)
class Settings(options.Study):
    """What to draw paths of: evaluation sets, or training series that were held out."""

    study = "joint-paths"
    evaluation: Path | None = option(None, "Folder of evaluation sets, parquet files in the Chronos format.")
    corpus: Path | None = option(
        None, "Training series instead: those held out are scored, and show what dependence is usual."
    )
    model: str = option("small", "Forecaster of the package, or a folder.", file=True)
    most: int = option(200, "Series of each set, spread over it.", low=1)
    paths: int = option(1000, "Drawn of each series.", low=20)
    freedom: int = option(FREEDOM, "Degrees of freedom of the copula, an even number; 0 for a Gaussian one.", low=0)
    device: str = options.device(told=True)


def run(settings: Settings, console: Console = SILENT) -> Summary:
    """Draw paths, score them and write the folder."""
    if settings.freedom % 2:
        raise UserError(f"--freedom must be an even number, got {settings.freedom}.")
    device = chosen_device(settings.device)
    forecaster = Forecaster.from_pretrained(settings.model, device)
    runs: list[dict[str, Any]] = []
    errors: dict[str, list[tuple[np.ndarray, int]]] = {}
    for one in _sets(settings):
        series = read_series(one.contexts(), freq=one.freq)
        forecasts = forecaster.predict(series, one.horizon, progress=False)
        found = replace(forecasts.dependence, freedom=settings.freedom or None)
        forecasts = Forecasts(forecasts.density, series, forecasts.support, found)
        runs += [_scores(one, forecasts, protocol, settings.paths) for protocol in PROTOCOLS]
        if settings.corpus is not None:
            windows = past_windows(series, min(one.horizon, forecaster.config.horizon), WINDOWS)
            if len(windows):
                past = forecaster.predict(windows.pasts, windows.targets.shape[1], progress=False)
                period = int(series.periods[0])
                entry = (past.normal_scores(windows.targets), period)
                errors.setdefault(group_of(period), []).append(entry)
        joint, apart = (f"{run['coverage_80']:.1%}" for run in runs[-2:])
        console.print(f"{one.name}: 80 % intervals of sums hold {joint}, of independent steps {apart}")
    rows = _rows(runs)
    for group, past_errors in errors.items():
        rows += [
            row("weight", float(weight), dataset=group, protocol=kind)
            for kind, weight in zip(KINDS, usual_weights(past_errors), strict=True)
        ]
    return settings.write(
        rows, runs=runs, gpu=device == "cuda", notes=_notes(rows), quick=f"{QUICK_SERIES} series of each set"
    )


def _sets(settings: Settings) -> list[EvaluationSet]:
    """Return what to forecast: at most so many series of each set, spread evenly over it."""
    if (settings.evaluation is None) == (settings.corpus is None):
        raise UserError("give --evaluation, a folder of evaluation sets, or --corpus, training series.")
    if settings.evaluation is not None:
        there = {path.stem for path in settings.evaluation.glob("*.parquet")}
        sets = read_evaluation_sets(settings.evaluation, [name for name in BENCHMARK if name in there])
    else:
        from fourier_head.forecasting.corpora.readers import read_store
        from fourier_head.forecasting.validation import hold_out, validation_sets

        assert settings.corpus is not None
        sets = validation_sets(hold_out(read_store(settings.corpus))[1], most=settings.most)
    most = QUICK_SERIES if settings.quick else settings.most
    out = []
    for one in sets:
        # A sum needs every step.
        whole = [series for series in one.series if np.isfinite(series[-one.horizon :]).all()]
        chosen = [whole[i] for i in np.unique(np.linspace(0, len(whole) - 1, min(most, len(whole))).astype(int))]
        if chosen:
            out.append(EvaluationSet(one.name, chosen, one.horizon, one.season, one.freq, one.status))
    return out


def _scores(one: EvaluationSet, forecasts: Forecasts, protocol: str, count: int) -> dict[str, Any]:
    """Return coverage of sums, and energy and variogram scores in units of each series' seasonal error."""
    drawn = forecasts.samples(count, torch.Generator().manual_seed(0), joint=protocol == "joint")
    level = level_of(drawn.sum(-1), one.targets().astype(float).sum(-1))
    run: dict[str, Any] = {"dataset": one.name, "protocol": protocol, "series": len(one), "horizon": one.horizon}
    held = (float((abs(level - 0.5) <= share / 2).mean()) for share in INTERVALS)
    run |= dict(zip(COVERAGES, held, strict=True))
    judged, outcome = in_seasonal_errors(one, drawn[:, :JUDGED])
    run["energy"] = float(energy_score(judged, outcome).mean())
    run["variogram"] = float(variogram_score(judged, outcome).mean())
    return run


def in_seasonal_errors(one: EvaluationSet, drawn: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return paths (series, paths, steps) and outcomes in units of each series' seasonal error, where it has one."""
    scale = scales(one.contexts(), one.season)[:, None]
    good = (np.isfinite(scale) & (scale > 0))[:, 0]
    return drawn[good] / scale[good, None], one.targets().astype(float)[good] / scale[good]


def level_of(sums: np.ndarray, total: np.ndarray) -> np.ndarray:
    """Return the share of sums (series, paths) below outcomes (series,), which stand for the middle of their jump."""
    total = total[:, None]
    return np.asarray(((sums < total).mean(1) + (sums <= total).mean(1)) / 2)


def _rows(runs: list[dict[str, Any]]) -> list[Row]:
    rows: list[Row] = []
    for run in runs:
        about = {"dataset": run["dataset"], "head": "fourier", "protocol": run["protocol"], "series": run["series"]}
        rows += [row(metric, run[metric], **about) for metric in (*COVERAGES, "energy", "variogram")]
    for protocol in PROTOCOLS:
        mine = [run for run in runs if run["protocol"] == protocol]
        mean = {metric: float(np.mean([run[metric] for run in mine])) for metric in COVERAGES}
        about = {"dataset": "all", "head": "fourier", "protocol": protocol, "series": sum(r["series"] for r in mine)}
        rows += [row(metric, value, **about) for metric, value in mean.items()]
        rows.append(row("interval_error", interval_error(mean), **about))
    joint, apart = ([run for run in runs if run["protocol"] == protocol] for protocol in PROTOCOLS)
    for metric in ("energy", "variogram"):
        ratios = [
            a[metric] / b[metric] for a, b in zip(joint, apart, strict=True) if a["horizon"] > 1 and b[metric] > 0
        ]
        rows.append(row(f"relative_{metric}", geometric_mean(ratios), dataset="all", head="fourier", protocol="joint"))
    return rows


def _notes(rows: list[Row]) -> list[str]:
    def value(metric: str, protocol: str) -> float:
        return next(r["ours"] for r in rows if (r["metric"], r["protocol"], r["dataset"]) == (metric, protocol, "all"))

    said = [", ".join(f"{value(metric, protocol):.1%}" for metric in COVERAGES) for protocol in PROTOCOLS]
    return [
        f"Intervals of sums over the horizon that should hold 50, 80 and 95 % hold {said[0]} (means over sets); with "
        f"steps drawn independently of each other, {said[1]}.",
        f"Energy and variogram scores are {value('relative_energy', 'joint'):.3f} and "
        f"{value('relative_variogram', 'joint'):.3f} times those of independent steps (geometric means over sets).",
    ]


def energy_score(samples: np.ndarray, outcome: np.ndarray) -> np.ndarray:
    r"""Return the energy score of samples (..., paths, steps) for outcomes (..., steps), lower is better.

    .. math:: \mathrm{E} \|X - y\| - \tfrac12 \mathrm{E} \|X - X'\|

    The second mean is over all pairs of different paths, without bias.

    >>> float(energy_score(np.array([[0.0, 0.0], [2.0, 0.0]]), np.array([0.0, 0.0])))
    0.0

    References:
        Gneiting and Raftery, Strictly Proper Scoring Rules, Prediction, and Estimation (2007).
    """
    count = samples.shape[-2]
    near = np.linalg.norm(samples - outcome[..., None, :], axis=-1).mean(-1)
    # |a - b|^2 by products: all pairs without an array of (paths, paths, steps).
    square = (samples**2).sum(-1)
    apart = square[..., :, None] + square[..., None, :] - 2 * samples @ np.swapaxes(samples, -1, -2)
    spread = np.sqrt(apart.clip(0)).sum((-1, -2)) / (count * (count - 1))
    return np.asarray(near - spread / 2)


def variogram_score(samples: np.ndarray, outcome: np.ndarray) -> np.ndarray:
    r"""Return the variogram score of samples (..., paths, steps) for outcomes (..., steps), lower is better.

    .. math:: \mathrm{mean}_{i < j} \big( |y_i - y_j|^{1/2} - \mathrm{E} |X_i - X_j|^{1/2} \big)^2

    >>> float(variogram_score(np.array([[0.0, 1.0], [4.0, 5.0]]), np.array([2.0, 3.0])))
    0.0

    References:
        Scheuerer and Hamill, Variogram-Based Proper Scoring Rules for Probabilistic Forecasts of Multivariate
        Quantities (2015).
    """
    steps = samples.shape[-1]
    first, second = np.triu_indices(steps, 1)
    total = np.zeros(outcome.shape[:-1])
    for i in range(steps - 1):  # a row of pairs at a time: few arrays of the size of the samples
        others = second[first == i]
        seen = np.abs(outcome[..., i, None] - outcome[..., others]) ** 0.5
        meant = (np.abs(samples[..., i, None] - samples[..., others]) ** 0.5).mean(-2)
        total += ((seen - meant) ** 2).sum(-1)
    return np.asarray(total / max(1, len(first)))
