"""What the study trains on and is scored on: files, or small artificial sets for a quick look."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from fourier_head.errors import UserError
from fourier_head.forecasting.corpora.readers import read_store
from fourier_head.forecasting.corpora.store import SeriesStore
from fourier_head.forecasting.evaluation import EvaluationSet
from studies.common.benchmark_sets import read_evaluation_sets


def read_corpus(path: Path | None) -> SeriesStore | None:
    """Return the series to train on; None, artificial ones only, without a file or folder."""
    if path is None:
        return None
    if not path.exists():
        raise UserError(f"--corpus must be a file or folder of series, got {path}, which is not there.")
    return read_store([path])


def share_of(store: SeriesStore | None, share: float, seed: int) -> SeriesStore | None:
    """Return about a share of the series of every set, but one at least of each."""
    if store is None or share == 1.0:
        return store
    try:
        return store.split(1 - share, seed)[0]
    except ValueError as error:
        raise UserError(f"--corpus has no share of {share:g}: {error}") from None


def read_sets(folder: Path | None, most: int | None = None, horizon: int | None = None) -> list[EvaluationSet]:
    """Return the sets to score on, each cut to ``most`` series where given; ``horizon`` is that of one's own sets."""
    if folder is None:
        raise UserError("--evaluation must name the folder of evaluation sets; --quick makes do without.")
    sets = read_evaluation_sets(folder, horizon=horizon)
    return [one.head(most) for one in sets] if most is not None else sets


def artificial_sets(series: int = 12) -> list[EvaluationSet]:
    """Return two small sets of noisy seasons, one with a trend."""
    rng = np.random.default_rng(0)
    sets = []
    for name, period, trend, horizon in (("waves", 12, 0.0, 6), ("growth", 4, 0.05, 4)):
        made = []
        for _ in range(series):
            time = np.arange(60 + horizon)
            wave = np.sin(2 * np.pi * (time / period + rng.random())) + trend * time
            made.append((5 + wave + 0.2 * rng.standard_normal(len(time))).astype(np.float32))
        sets.append(EvaluationSet(name, made, horizon, period, {12: "ME", 4: "QE"}[period]))
    return sets
