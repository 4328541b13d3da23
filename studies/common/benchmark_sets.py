"""The Chronos zero-shot benchmark: what is known of its sets, how they are read, published scores, relative ones."""

from __future__ import annotations

import csv
import math
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fourier_head.errors import UserError, did_you_mean
from fourier_head.forecasting.corpora.readers import read_rows
from fourier_head.forecasting.evaluation import SEASONAL_NAIVE, VERIFIED, EvaluationSet, ScoreRow, Status
from fourier_head.forecasting.frequency import season_length
from fourier_head.forecasting.scores import COVERAGES


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
    name, known = path.stem, BENCHMARK.get(path.stem)
    if known is not None:
        horizon = known.horizon
    if horizon is None:
        raise UserError(f"horizon must be given for {name}, which is no set of the benchmark.")
    rows = read_rows(path)
    freqs = sorted(map(str, set(rows.freqs)))
    if len(freqs) > 1:
        raise UserError(f"{path} must hold series of one frequency, got {', '.join(freqs)}.")
    freq = rows.freqs[0] or None
    kept = [(one, start) for one, start in zip(rows.series(), rows.starts, strict=True) if len(one) > horizon]
    if not kept or (known is not None and len(kept) < len(rows.lengths)):
        found = "shorter ones" if kept else "none"
        raise UserError(f"{path} must hold series longer than the horizon of {horizon}, got {found}.")
    series, starts = map(list, zip(*kept, strict=True))
    return EvaluationSet(name, series, horizon, season_length(freq), freq, known.status if known else "own", starts)


_OURS = {known.published: name for name, known in BENCHMARK.items() if known.status in VERIFIED}


def read_published_scores(path: str | Path) -> list[ScoreRow]:
    """Read a table of published scores: one row per model and set with model, dataset, status, mase and wql.

    Two layouts are understood, those in which the Chronos project publishes results: columns dataset (or config, as in
    GIFT-Eval), model, MASE, WQL with a line for each pair, or a line for each set under two lines of headings, models
    above and scores below.

    Verified sets carry our name and status. The others carry the status `published`: their scores are
    over series that we do not have, so nothing of ours compares with them.
    """
    path = Path(path)
    try:
        with path.open(newline="", encoding="utf-8") as file:
            lines = [line for line in csv.reader(file) if any(line)]
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}.") from None
    found = _long(lines) if lines and lines[0][0] in ("dataset", "config") else _wide(lines)
    if not found:
        raise UserError(f"{path} must be a table of published scores with MASE and WQL, got none of them.")
    rows: dict[tuple[str, str], ScoreRow] = {}
    for dataset, model, metric, text in found:
        name = _OURS.get(dataset, dataset)
        status = BENCHMARK[name].status if dataset in _OURS else "published"
        model = SEASONAL_NAIVE if model == "seasonal_naive" else model
        row = rows.setdefault((model, name), {"model": model, "dataset": name, "status": status})
        try:
            row[metric.lower()] = float(text)
        except ValueError:
            raise UserError(f"{path} must hold numbers, got {text!r} for {model} on {dataset}.") from None
    whole = [row for row in rows.values() if "mase" in row and "wql" in row]  # a cell may be empty
    return sorted(whole, key=lambda row: (row["model"], row["dataset"]))


def _long(lines: list[list[str]]) -> list[tuple[str, str, str, str]]:
    columns = ["dataset" if name == "config" else name.lower() for name in lines[0]]
    if not {"model", "mase", "wql"} <= set(columns):
        return []
    records = [dict(zip(columns, line, strict=False)) for line in lines[1:]]
    return [(one["dataset"], one["model"], key, one.get(key, "")) for one in records for key in ("mase", "wql")]


def _wide(lines: list[list[str]]) -> list[tuple[str, str, str, str]]:
    if len(lines) < 3:
        return []
    models, metrics = lines[0], lines[1]
    return [
        (line[0], model, metric, text)
        for line in lines[2:]
        for model, metric, text in zip(models, metrics, line, strict=False)
        if metric in ("MASE", "WQL") and text
    ]


def geometric_mean(values: Iterable[float]) -> float:
    """Return the geometric mean of positive numbers.

    >>> round(geometric_mean([1.0, 4.0]), 6)
    2.0
    """
    logs = [math.log(value) if value > 0 else math.nan for value in values]
    return math.exp(sum(logs) / len(logs)) if logs else math.nan


def by_model(rows: Iterable[ScoreRow], sets: Container[str]) -> dict[str, list[ScoreRow]]:
    """Return the rows of each model, of some sets only."""
    found: dict[str, list[ScoreRow]] = {}
    for row in rows:
        if row["dataset"] in sets:
            found.setdefault(row["model"], []).append(row)
    return found


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
    out = []
    for model, members in by_model(rows, scale).items():
        groups = {"verified": ("verified",), "verified_17": VERIFIED, "all": None}
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
    for key in (*COVERAGES, "interval_error"):
        values = [one[key] for one in rows if one.get(key) is not None]
        row[key] = float(np.mean(values)) if len(values) == len(rows) else None
    seconds = [one["seconds"] for one in rows if one.get("seconds") is not None]
    row["seconds"] = float(np.sum(seconds)) if len(seconds) == len(rows) else None
    return row
