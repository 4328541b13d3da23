"""Evaluation sets: series whose last values are held out, and what is known of each set of the zero-shot benchmark."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np

from fourier_head.errors import UserError, did_you_mean, needs_extra
from fourier_head.forecasting.frequency import season_length

__all__ = ["BENCHMARK", "BenchmarkSet", "EvaluationSet", "Status", "read_evaluation_sets", "verified_names"]

Status = Literal["verified", "further", "partial", "reconstructed", "own"]
"""`further` sets are verified, too, but belong to the benchmark alone and not to the paper's twenty."""


@dataclass(frozen=True)
class BenchmarkSet:
    """A set of the Chronos zero-shot benchmark: its horizon, how far our copy is the published one, its name there."""

    horizon: int
    status: Status
    published: str


BENCHMARK: Mapping[str, BenchmarkSet] = {
    "australian_electricity": BenchmarkSet(48, "reconstructed", "monash_australian_electricity"),
    "car_parts": BenchmarkSet(12, "verified", "monash_car_parts"),
    "cif_2016": BenchmarkSet(12, "verified", "monash_cif_2016"),
    "covid_deaths": BenchmarkSet(30, "further", "monash_covid_deaths"),
    "fred_md": BenchmarkSet(12, "further", "monash_fred_md"),
    "hospital": BenchmarkSet(12, "verified", "monash_hospital"),
    "m1_monthly": BenchmarkSet(18, "verified", "monash_m1_monthly"),
    "m1_quarterly": BenchmarkSet(8, "verified", "monash_m1_quarterly"),
    "m1_yearly": BenchmarkSet(6, "verified", "monash_m1_yearly"),
    "m3_monthly": BenchmarkSet(18, "verified", "monash_m3_monthly"),
    "m3_quarterly": BenchmarkSet(8, "verified", "monash_m3_quarterly"),
    "m3_yearly": BenchmarkSet(6, "verified", "monash_m3_yearly"),
    "m4_quarterly_partial": BenchmarkSet(8, "partial", "m4_quarterly"),
    "m4_yearly": BenchmarkSet(6, "verified", "m4_yearly"),
    "m5_partial": BenchmarkSet(28, "partial", "m5"),
    "nn5_daily": BenchmarkSet(56, "verified", "nn5"),
    "nn5_weekly": BenchmarkSet(8, "verified", "monash_nn5_weekly"),
    "tourism_monthly": BenchmarkSet(24, "verified", "monash_tourism_monthly"),
    "tourism_quarterly": BenchmarkSet(8, "verified", "monash_tourism_quarterly"),
    "tourism_yearly": BenchmarkSet(4, "verified", "monash_tourism_yearly"),
}
"""The sets at hand. On verified ones seasonal naive gives the published scores; only these compare with published
numbers. Traffic and Weather, the other two of the paper's twenty, are not among them."""


def verified_names() -> list[str]:
    """Return the names of the sets whose scores compare with published ones.

    >>> len(verified_names())
    15
    """
    return [name for name, known in BENCHMARK.items() if known.status == "verified"]


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
        if isinstance(self.horizon, bool) or not isinstance(self.horizon, int) or self.horizon < 1:
            raise ValueError(f"horizon must be a whole number of at least 1, got {self.horizon!r}")
        if isinstance(self.season, bool) or not isinstance(self.season, int) or self.season < 1:
            raise ValueError(f"season must be a whole number of at least 1, got {self.season!r}")
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

    def targets(self) -> np.ndarray:
        """Return what it must predict, shape (series, horizon)."""
        return np.stack([one[-self.horizon :] for one in self.series])

    def __len__(self) -> int:
        return len(self.series)

    def head(self, count: int) -> EvaluationSet:
        """Return the set cut to its first series, for a quick look; its scores are no longer those of the set."""
        if count >= len(self.series):
            return self
        status: Status = "partial" if self.status in ("verified", "further") else self.status
        return EvaluationSet(
            self.name, self.series[:count], self.horizon, self.season, self.freq, status, self.starts[:count]
        )


def read_evaluation_sets(
    folder: str | Path, names: Iterable[str] | None = None, *, horizon: int | None = None
) -> list[EvaluationSet]:
    """Read a folder of parquet files, one set each, with the columns id, start, freq and target.

    Args:
        folder: where the files are.
        names: which sets, in this order; all that are there otherwise.
        horizon: number of held-out values of sets outside the benchmark, which knows its own.
    """
    folder = Path(folder)
    found = {path.stem: path for path in sorted(folder.glob("*.parquet"))}
    if not found:
        raise UserError(f"{folder} must be a folder of parquet files, got none there.")
    chosen = list(found) if names is None else list(names)
    for name in chosen:
        if name not in found:
            raise UserError(f"{folder} has no set {name!r}: {did_you_mean(name, found)}")
    return [_read_set(found[name], horizon) for name in chosen]


def _read_set(path: Path, horizon: int | None) -> EvaluationSet:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise needs_extra(error, "forecasting") from None

    name, known = path.stem, BENCHMARK.get(path.stem)
    if known is None and horizon is None:
        raise UserError(f"horizon must be given for {name}, which is no set of the benchmark.")
    try:
        table = pq.read_table(path)
        columns = {column: table[column] for column in ("freq", "target")}
        flat = columns["target"].combine_chunks()
        offsets = flat.offsets.to_numpy()
        values = flat.values.cast(pa.float32()).to_numpy(zero_copy_only=False)
    except KeyError as error:
        raise UserError(f"{path} must have the columns freq and target, got {error.args[0]}.") from None
    except (OSError, AttributeError, pa.ArrowException) as error:
        raise UserError(f"{path} must be a parquet file with a list of numbers in every target, got {error}.") from None
    freqs = set(columns["freq"].to_pylist())
    freq = freqs.pop() if len(freqs) == 1 else None
    if freqs and freq is None:
        raise UserError(f"{path} must hold series of one frequency, got {', '.join(sorted(map(str, freqs)))}.")
    starts = [str(start or "") for start in table["start"].to_pylist()] if "start" in table.column_names else []
    values = np.where(np.isfinite(values), values, np.float32(np.nan))  # infinite ones count as missing, as in training
    series = [values[a:b] for a, b in itertools.pairwise(offsets)]
    if known is not None:
        horizon = known.horizon
    assert horizon is not None
    kept = [i for i, one in enumerate(series) if len(one) > horizon]
    if len(kept) < len(series) and known is not None:
        raise UserError(f"{path} must hold series longer than the horizon of {horizon}, got shorter ones.")
    if not kept:
        raise UserError(f"{path} must hold series longer than the horizon of {horizon}, got none.")
    return EvaluationSet(
        name,
        [series[i] for i in kept],
        horizon,
        season_length(freq),
        freq or None,
        known.status if known else "own",
        [starts[i] for i in kept] if starts else [],
    )
