"""Choose between models without the evaluation sets: forecasts of whole series held out of the training data."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np

from fourier_head.forecasting.corpora.store import SeriesStore
from fourier_head.forecasting.evaluation import ScoreRow, evaluate_seasonal_naive
from fourier_head.forecasting.evaluation_sets import EvaluationSet

# Steps ahead that people forecast, by the period of a series; finer than hourly: two days or what the model reaches.
HORIZONS = {1: 6, 4: 8, 5: 20, 7: 28, 12: 18, 24: 48, 52: 8}
GROUPS = {1: "yearly or none", 4: "quarterly", 5: "daily", 7: "daily", 12: "monthly", 24: "hourly", 52: "weekly"}
FREQUENCIES = {1: "YE", 4: "QE", 5: "B", 7: "D", 12: "ME", 24: "h", 48: "30min", 52: "W", 96: "15min", 144: "10min"}
SHORTEST = 8
"""Least length of the past that is left of a series."""


def validation_sets(held: SeriesStore, most: int = 100, longest: int = 2048) -> list[EvaluationSet]:
    """Return the held-out series as evaluation sets, one per training set and period.

    Args:
        held: what ``SeriesStore.split`` held out.
        most: series per set; more are left out.
        longest: values kept of a series, its end.
    """
    groups: dict[tuple[int, int], list[np.ndarray]] = {}
    for i in range(len(held)):
        period = int(held.period[i])
        series = held.series(i).cpu().numpy()[-longest:]
        members = groups.setdefault((int(held.set_index[i]), period), [])
        horizon = HORIZONS.get(period, 48)
        known = np.isfinite(series[:-horizon]).sum()
        moving = known >= SHORTEST and np.nanstd(series[:-horizon]) > 0 and np.isfinite(series[-horizon:]).any()
        if len(members) < most and moving:
            members.append(series)
    return [
        EvaluationSet(
            f"{held.names[index]}/{period}",
            members,
            HORIZONS.get(period, 48),
            # As GluonTS has it: days and weeks have no season in the scale of MASE.
            1 if period in (7, 52) else period,
            FREQUENCIES.get(period),
        )
        for (index, period), members in groups.items()
        if members
    ]


def group_of(name: str) -> str:
    """Return the kind of frequency of a validation set by its name.

    >>> group_of("favorita_daily/7"), group_of("uk_grid_30min/48")
    ('daily', 'finer')
    """
    return GROUPS.get(int(name.rpartition("/")[2]), "finer")


class Validation:
    """Score models by the geometric mean over sets of their scores relative to seasonal naive.

    A set counts by the root of its series, so that a set of two does not decide.
    """

    def __init__(self, sets: Sequence[EvaluationSet]):
        self.sets = list(sets)
        self.naive = {row["dataset"]: row for row in evaluate_seasonal_naive(self.sets)}

    def scores(self, rows: Iterable[ScoreRow]) -> dict[str, dict[str, float]]:
        """Return relative MASE and WQL of each kind of frequency and of all sets together, as ``all``."""
        logs: dict[str, dict[str, list[tuple[float, float]]]] = {}
        for row in rows:
            naive = self.naive[row["dataset"]]
            for key in ("mase", "wql"):
                if row[key] > 0 and naive[key] > 0 and math.isfinite(row[key]) and math.isfinite(naive[key]):
                    entry = (math.log(row[key] / naive[key]), math.sqrt(row["series"]))
                    for group in (group_of(row["dataset"]), "all"):
                        logs.setdefault(group, {}).setdefault(key, []).append(entry)
        return {
            group: {key: math.exp(_weighted_mean(entries)) for key, entries in by_key.items()}
            for group, by_key in logs.items()
        }


def _weighted_mean(entries: Sequence[tuple[float, float]]) -> float:
    values, weights = np.array(entries).T
    return float(np.average(values, weights=weights))
