"""Compare copulas on series that no weight has seen: ``python -m studies.joint_paths.choice CORPUS``.

The series, the miss and the rule are those of ``results/joint-paths/plan.md``. The first copula is what the others are
compared with.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from fourier_head._files import write_atomically
from fourier_head.forecasting.corpora.readers import read_store
from fourier_head.forecasting.corpora.store import SeriesStore
from fourier_head.forecasting.dependence import USUAL, Dependence, group_of
from fourier_head.forecasting.evaluation import EvaluationSet
from fourier_head.forecasting.forecaster import Forecaster
from fourier_head.forecasting.inputs import read_series
from fourier_head.forecasting.results import Forecasts
from fourier_head.forecasting.scores import COVERAGES, INTERVALS
from fourier_head.forecasting.validation import (
    CALIBRATION_SETS,
    FREQUENCIES,
    HORIZONS,
    hold_out,
    hold_out_sets,
    moves,
    validation_sets,
)
from studies.joint_paths.study import energy_score, in_seasonal_errors, level_of, variogram_score

LEVELS = np.arange(5, 100, 5) / 100
SUMMED = {12: (3, 4), 7: (7, 52), 4: (4, 1)}
"""Period of series that are summed, over so many steps, to series of another period."""
JUDGED, RESAMPLED, LONGEST = 150, 1000, 2048
SCORES = ("crps", "energy", "variogram")
Scores = dict[str, np.ndarray]


def held_out_sets(store: SeriesStore, most: int = 200) -> Iterator[tuple[int, EvaluationSet]]:
    """Yield the period and the series of every set, and of sets summed to a coarser period."""
    rest, few = hold_out(store)
    parts = [(few, most)]
    if set(CALIBRATION_SETS) & set(rest.names):
        parts.append((hold_out_sets(rest, CALIBRATION_SETS)[1], most // 2))
    for held, count in parts:
        for one in validation_sets(held, most=count, longest=100_000):
            period = int(one.name.partition("/")[2])
            yield period, EvaluationSet(one.name, [x[-LONGEST:] for x in one.series], one.horizon, one.season, one.freq)
            if period in SUMMED:
                steps, period = SUMMED[period]
                summed = [x[len(x) % steps :].reshape(-1, steps).sum(1) for x in one.series]
                summed = [x for x in summed if len(x) > HORIZONS[period]]
                season = 4 if period == 4 else 1
                if summed:
                    yield period, EvaluationSet(one.name, summed, HORIZONS[period], season, FREQUENCIES[period])


def earlier(one: EvaluationSet, moments: int) -> Iterator[EvaluationSet]:
    """Yield the set as it was at several moments, a horizon apart, of the series whose last steps are all known."""
    h = one.horizon
    for moment in range(moments):
        cut = [x[: len(x) - moment * h] for x in one.series]
        known = [x for x in cut if len(x) > h and moves(x, h) and np.isfinite(x[-h:]).all()]
        if known:
            yield EvaluationSet(one.name, known, h, one.season, one.freq)


def scores_of(one: EvaluationSet, forecasts: Forecasts, paths: int) -> Scores:
    """Return of each series the level of its sum and, in units of its seasonal error, scores of sums and paths."""
    kept: list[np.ndarray] = []

    def keep(some: np.ndarray) -> np.ndarray:
        kept.append(some)
        return some.sum(-1)

    forecasts.of(keep, paths)
    drawn = np.concatenate(kept)
    some, outcome = in_seasonal_errors(one, drawn)
    return {
        "level": level_of(drawn.sum(-1), one.targets().astype(float).sum(-1)),
        "crps": energy_score(some.sum(-1, keepdims=True), outcome.sum(-1, keepdims=True)),
        "energy": energy_score(some[:, :JUDGED], outcome),
        "variogram": variogram_score(some[:, :JUDGED], outcome),
    }


def by_frequency(groups: np.ndarray, weights: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return the weighted means of values (sets, ...) over the sets of each frequency."""
    return np.stack([np.average(values[groups == g], axis=0, weights=weights[groups == g]) for g in np.unique(groups)])


def miss(groups: np.ndarray, weights: np.ndarray, coverage: np.ndarray) -> float:
    """Return how far the coverage (sets, levels) of frequencies is off, sets of a frequency weighted."""
    return float(np.abs(by_frequency(groups, weights, coverage) - LEVELS).mean())


def table(periods: Sequence[int], found: dict[str, list[Scores]]) -> str:
    """Return what copulas miss, how often less than the first one, what intervals hold and scores over the first's."""
    groups = np.array([list(USUAL).index(group_of(period)) for period in periods])
    first = next(iter(found.values()))
    weights = np.sqrt([len(one["level"]) for one in first])
    held = {
        name: np.stack([(np.abs(one["level"] - 0.5)[:, None] <= LEVELS / 2 + 1e-9).mean(0) for one in own])
        for name, own in found.items()
    }
    rng = np.random.default_rng(0)
    members = [np.flatnonzero(groups == group) for group in np.unique(groups)]
    draws = [np.concatenate([rng.choice(own, len(own)) for own in members]) for _ in range(RESAMPLED)]
    again = {name: np.array([miss(groups[d], weights[d], own[d]) for d in draws]) for name, own in held.items()}
    lines = [",".join(["copula,sets,windows,miss,lower", *COVERAGES, *SCORES])]
    for name, own in found.items():
        values = [miss(groups, weights, held[name]), float((again[name] < again[next(iter(found))]).mean())]
        for share in INTERVALS:
            inside = np.array([(np.abs(one["level"] - 0.5) <= share / 2).mean() for one in own])
            values.append(float(by_frequency(groups, weights, inside).mean()))
        for score in SCORES:
            mine, other = (np.array([x[score].sum() for x in many]) for many in (own, first))  # of the same series
            good = (mine > 0) & (other > 0)
            ratio = np.log(mine[good] / other[good])
            values.append(float(np.exp(by_frequency(groups[good], weights[good], ratio).mean())))
        count = sum(len(one["level"]) for one in own)
        lines.append(f"{name},{len(own)},{count}," + ",".join(f"{value:.4f}" for value in values))
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> None:
    """Compare and write the table."""
    parser = argparse.ArgumentParser(prog="python -m studies.joint_paths.choice", description=__doc__)
    parser.add_argument("corpus", type=Path, nargs="+", help="packed series, or parquet files")
    parser.add_argument("--model", default="small")
    parser.add_argument("--freedom", type=int, nargs="+", default=[0, 4, 6, 8, 12], help="0 for a Gaussian copula")
    parser.add_argument("--factor", type=float, default=1.0, help="of the correlations of all but the first")
    parser.add_argument("--paths", type=int, default=400)
    parser.add_argument("--moments", type=int, default=4, help="of each series")
    parser.add_argument("--output", type=Path, default=Path("results/joint-paths/choice.csv"))
    given = parser.parse_args(arguments)
    forecaster = Forecaster.from_pretrained(given.model)
    periods: list[int] = []
    found: dict[str, list[Scores]] = {str(freedom): [] for freedom in given.freedom}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # seasons that a past does not show
        for period, whole in held_out_sets(read_store(given.corpus)):
            parts: dict[str, list[Scores]] = {name: [] for name in found}
            for one in earlier(whole, given.moments):
                series = read_series(one.contexts(), freq=one.freq)
                forecasts = forecaster.predict(series, one.horizon, progress=False)
                fitted = forecasts.dependence
                for number, name in enumerate(found):
                    weights = fitted.weights * (given.factor if number else 1.0)
                    copula = Dependence(weights, fitted.periods, int(name) or None)
                    drawn = Forecasts(forecasts.density, series, forecasts.support, copula)
                    parts[name].append(scores_of(one, drawn, given.paths))
            if all(parts.values()):
                periods.append(period)
                for name, own in parts.items():
                    found[name].append({key: np.concatenate([part[key] for part in own]) for key in own[0]})
    text = table(periods, found)
    write_atomically(given.output, text + "\n")
    print(text)


if __name__ == "__main__":
    main()
