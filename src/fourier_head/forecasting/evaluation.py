"""Evaluate forecasters, and seasonal naive beside them, on series whose last values are held out."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import pandas as pd

from fourier_head.errors import is_whole
from fourier_head.forecasting.calendars import Calendar
from fourier_head.forecasting.scores import COVERAGES, DECILES, Forecast, score, series_errors


def repeat_season(contexts: Sequence[np.ndarray], horizon: int, season: int | np.ndarray) -> np.ndarray:
    """Return the last season of each series, repeated to the horizon, shape (series, horizon).

    A series shorter than the season, one for all or one each, repeats its last value; a missing value stays missing.

    Example:
        >>> repeat_season([np.array([1.0, 2.0, 3.0]), np.array([4.0])], horizon=3, season=2)
        array([[2., 3., 2.],
               [4., 4., 4.]])
    """
    length = np.array([len(one) for one in contexts])
    if (length == 0).any():
        raise ValueError("contexts must hold at least one value each, got an empty one")
    end = np.cumsum(length)
    lag = np.where(length >= season, season, 1)
    place = end[:, None] - lag[:, None] + np.arange(horizon) % lag[:, None]
    return np.concatenate(contexts).astype(np.float64)[place]


ScoreRow = dict[str, Any]
"""Scores of one model on one set, flat: model, dataset, status, series, horizon, season, mase, wql, coverage_50,
coverage_80, coverage_95, interval_error, pit, seconds."""

SEASONAL_NAIVE = "seasonal-naive"

Status = Literal["verified", "further", "partial", "reconstructed", "own"]
VERIFIED: tuple[Status, ...] = ("verified", "further")
"""Of sets that are the published ones; `further` ones belong to the benchmark alone and not to the paper's twenty."""


@dataclass(frozen=True)
class EvaluationSet:
    """Series of one frequency; the last `horizon` values of each are what a forecaster must predict.

    Args:
        name: of the set.
        series: arrays of different lengths, oldest value first, NaN where missing.
        horizon: number of values held out.
        season: steps per season, the lag of seasonal naive and of the scale of MASE.
        freq: pandas alias, None where unknown.
        status: whether the set is the published one; `own` for anything outside the benchmark.
        starts: timestamp of the first value of each series as text, empty where unknown.

    Example:
        >>> tiny = EvaluationSet("tiny", [np.arange(5.0), np.arange(3.0)], horizon=2, season=1)
        >>> tiny.contexts()
        [array([0., 1., 2.]), array([0.])]
        >>> tiny.targets()
        array([[3., 4.],
               [1., 2.]])
    """

    name: str
    series: Sequence[np.ndarray] = field(repr=False)
    horizon: int
    season: int
    freq: str | None = None
    status: Status = "own"
    starts: Sequence[str] = field(default=(), repr=False)

    def __post_init__(self) -> None:
        for name, value in (("horizon", self.horizon), ("season", self.season)):
            if not is_whole(value, 1):
                raise ValueError(f"{name} must be a whole number of at least 1, got {value!r}")
        if len(self.series) == 0:
            raise ValueError(f"series of {self.name} must not be empty")
        shortest = min(len(one) for one in self.series)
        if shortest <= self.horizon:
            raise ValueError(
                f"every series of {self.name} must be longer than the horizon of {self.horizon}, got one of {shortest}"
            )

    def contexts(self) -> list[np.ndarray]:
        """Return what a forecaster sees of each series."""
        return [one[: -self.horizon] for one in self.series]

    def entries(self, longest: int | None = None) -> list[Any]:
        """Return contexts as GluonTS has them, with the moment each starts at; plain ones where that is unknown.

        Args:
            longest: values kept of each, the last ones.

        Example:
            >>> tiny = EvaluationSet("tiny", [np.arange(5.0)], horizon=2, season=1, freq="D", starts=["2024-02-28"])
            >>> [entry | {"start": str(entry["start"])} for entry in tiny.entries(longest=2)]
            [{'target': array([1., 2.]), 'start': '2024-02-29T00:00:00.000000000'}]
        """
        contexts = [one[-longest:] for one in self.contexts()] if longest else self.contexts()
        if not (self.freq and any(self.starts)):
            return contexts
        calendar, entries = Calendar.of(self.freq), list[Any](contexts)
        firsts = pd.to_datetime(pd.Series(self.starts), errors="coerce", format="ISO8601").to_numpy("datetime64[ns]")
        for number, (one, context, first) in enumerate(zip(self.series, contexts, firsts, strict=True)):
            left_out = len(one) - self.horizon - len(context)
            moment = calendar.after(first, left_out)[-1] if left_out and not np.isnat(first) else first
            if not np.isnat(moment):
                entries[number] = {"target": context, "start": moment}
        return entries

    def targets(self) -> np.ndarray:
        """Return what it must predict, shape (series, horizon)."""
        return np.stack([one[-self.horizon :] for one in self.series])

    def __len__(self) -> int:
        return len(self.series)

    def head(self, count: int) -> EvaluationSet:
        """Return the set cut to its first series, for a quick look; its scores are no longer those of the set."""
        if count >= len(self.series):
            return self
        status: Status = "partial" if self.status in VERIFIED else self.status
        return replace(self, series=self.series[:count], starts=self.starts[:count], status=status)


Predictor = Callable[[list[np.ndarray], int, str | None], Any]
"""Takes contexts of different lengths, a horizon and a frequency, and forecasts all of them: a `Forecast`, or an array
or tensor of the nine deciles, (series, horizon, 9). Sample paths go through `Forecast.from_samples`. Cutting long
contexts and making batches is its own affair."""


def evaluate(
    forecaster: Predictor,
    sets: Iterable[EvaluationSet],
    *,
    model: str = "model",
    dated: bool = False,
    allow_missing: bool = False,
    report: Callable[[ScoreRow], None] | None = None,
    errors: dict[str, dict[str, np.ndarray]] | None = None,
) -> list[ScoreRow]:
    """Return one row of scores for each set.

    Args:
        forecaster: see `Predictor`.
        sets: what to forecast.
        model: its name in the rows.
        dated: whether the forecaster is told when series start, where that is known, see ``EvaluationSet.entries``.
        allow_missing: leave targets without a forecast (NaN) out instead of refusing them.
        report: called with each row as it is done.
        errors: filled, by the name of a set, with what each of its series adds to the scores, see `series_errors`.

    Example:
        >>> sets = [EvaluationSet("ramp", [np.arange(8.0)], horizon=2, season=1)]
        >>> row = evaluate(lambda pasts, horizon, freq: np.full((1, horizon, 9), pasts[0][-1]), sets)[0]
        >>> row["mase"], round(row["wql"], 6)
        (1.5, 0.230769)
    """
    rows = []
    for one in sets:
        contexts = one.contexts()
        seen = one.entries() if dated else contexts
        start = time.perf_counter()
        answer = forecaster(seen, one.horizon, one.freq)
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
    """Return the scores of seasonal naive, the last season again at every quantile, so WQL is `sum |y - f| / sum |y|`.

    Where a value of the last season is missing there is no forecast, and the target is left out: so come the published
    scores. Its point forecast has no intervals, so rows carry no coverage.
    """
    rows = []
    for one in sets:
        point = repeat_season(one.contexts(), one.horizon, one.season)
        naive = np.repeat(point[..., None], len(DECILES), axis=-1)
        rows += evaluate(lambda *_, naive=naive: naive, [one], model=SEASONAL_NAIVE, allow_missing=True)
    for row in rows:
        row |= dict.fromkeys([*COVERAGES, "interval_error", "pit"])
    return rows
