"""Paired differences between arms of the forecasting study, with intervals over seeds and series."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fourier_head._files import write_atomically
from fourier_head.forecasting.evaluation import ScoreRow
from fourier_head.pages.charts import Chart, Mark, Panel, Series
from studies.common.intervals import t_interval
from studies.common.report.summary import Row
from studies.common.results import row

METRICS = {"mase": ("scaled", "count"), "wql": ("loss", "size")}
"""Scores of a set, and of what sums over its series they are quotients; see ``series_errors``."""
BLOCKS, DRAWS = 1000, 10_000
TIED = "linear-tied"
"""The linear head of the paper by its released configuration: its weights are those of the embedding."""
FILE = "errors.npz"
Run = tuple[str, int]


@dataclass(frozen=True)
class Errors:
    """What the series of every set add to its scores, for every arm and seed.

    Series of sets with more than a thousand are dealt out to so many blocks, which are drawn in their place: a file of
    all of them would be ten times as large, the intervals are the same.

    Args:
        runs: arm and seed.
        sets: for each set the sums by block: `scaled` and `loss` (runs, blocks), `count` and `size` (blocks,).
    """

    runs: tuple[Run, ...]
    sets: Mapping[str, Mapping[str, np.ndarray]]

    @classmethod
    def read(cls, paths: Mapping[Run, Path], before: Path) -> Errors | None:
        """Return the errors that scoring left in the folders of checkpoints, or, where these are gone, an earlier file.

        None where a run has neither: it was scored before errors were kept.
        """
        earlier = cls.load(before) if before.exists() else cls((), {})
        found = []
        for run, path in paths.items():
            if path.exists():
                with np.load(path) as file:
                    found.append({name: blocks(file[name]) for name in file.files})
            elif run in earlier.runs:
                found.append(earlier.of(run))
            else:
                return None
        names = [key.removesuffix(".count") for key in found[0] if key.endswith(".count")]
        sets = {}
        for name in names:
            own = {key: np.stack([one[f"{name}.{key}"] for one in found]) for key in ("scaled", "loss")}
            # Targets are the same for every arm.
            sets[name] = own | {key: found[0][f"{name}.{key}"] for key in ("count", "size")}
        return cls(tuple(paths), sets)

    def of(self, run: Run) -> dict[str, np.ndarray]:
        """Return the sums of one run, by set and kind."""
        row = self.runs.index(run)
        return {
            f"{name}.{key}": value[row] if value.ndim == 2 else value
            for name, own in self.sets.items()
            for key, value in own.items()
        }

    def save(self, path: Path) -> None:
        """Write all into one file."""
        arrays = {f"{name}.{key}": own[key].astype(np.float32) for name, own in self.sets.items() for key in own}
        arrays["runs"] = np.array([f"{arm} {seed}" for arm, seed in self.runs])
        write_atomically(path, lambda beside: np.savez_compressed(beside, **arrays))  # type: ignore[arg-type]

    @classmethod
    def load(cls, path: Path) -> Errors:
        """Read what `save` wrote."""
        with np.load(path) as file:
            found = {name: file[name] for name in file.files}
        runs = [text.rpartition(" ") for text in found.pop("runs").tolist()]
        sets: dict[str, dict[str, np.ndarray]] = {}
        for key, value in found.items():
            name, _, part = key.rpartition(".")
            sets.setdefault(name, {})[part] = value
        return cls(tuple((arm, int(seed)) for arm, _, seed in runs), sets)


def blocks(values: np.ndarray, most: int = BLOCKS) -> np.ndarray:
    """Return sums over series dealt out to at most so many blocks.

    >>> blocks(np.array([1.0, 2.0, 4.0, 8.0, 16.0]), 2)
    array([21., 10.])
    """
    return np.bincount(np.arange(len(values)) % most, values, min(len(values), most))


class Bootstrap:
    """Logarithms of the scores of all runs on sets whose series are drawn anew, the same ones for every run.

    Args:
        errors: of the runs.
        draws: how often.
    """

    def __init__(self, errors: Errors, draws: int = DRAWS):
        self.runs, self.sets, self.draws = errors.runs, list(errors.sets), draws
        rng = np.random.default_rng(0)
        self.logs = {metric: np.empty((draws + 1, len(self.sets), len(self.runs))) for metric in METRICS}
        for place, own in enumerate(errors.sets.values()):
            count = len(own["count"])
            weights = np.ones((draws + 1, count))  # the first: the series as they are
            weights[1:] = rng.multinomial(count, np.full(count, 1 / count), draws)
            for metric, (above, below) in METRICS.items():
                with np.errstate(divide="ignore", invalid="ignore"):  # a draw without any target of a small set
                    score = (weights @ own[above].T) / (weights @ own[below])[:, None]
                    self.logs[metric][:, place] = np.log(score)

    def compare(self, arm: str, other: str, metric: str, sets: Sequence[str]) -> dict[str, Any]:
        """Return how much larger the error of an arm is than another's, in percent, over the seeds of both.

        `low` and `high` hold 95 % of the draws of seeds and series; `std` is between the seeds. `t_low` to `t_high` is
        the 95 % interval by Student's t over the seeds alone, mostly wider where they are few: draws of three seeds
        know little of how seeds vary. `ahead` counts the pairs of a set and a seed in which the arm has the smaller
        error.
        """
        seeds = [seed for name, seed in self.runs if name == arm and (other, seed) in self.runs]
        if not seeds:
            raise ValueError(f"{arm} and {other} must have a seed in common, got none")
        mine, theirs = ([self.runs.index((name, seed)) for seed in seeds] for name in (arm, other))
        logs = self.logs[metric][:, [self.sets.index(name) for name in sets]]
        change = logs[:, :, mine] - logs[:, :, theirs]
        by_seed = np.nanmean(change, 1)  # over sets
        chosen = np.random.default_rng(0).integers(len(seeds), size=(self.draws, len(seeds)))
        drawn = np.take_along_axis(by_seed[1:], chosen, 1).mean(1)
        low, high = np.nanquantile(drawn, [0.025, 0.975])
        single = _percent(by_seed[0])
        _, student = t_interval(by_seed[0])
        t_low, t_high = map(float, _percent(np.array(student))) if student is not None else (None, None)
        return {
            "ours": float(_percent(by_seed[0].mean())),
            "std": float(single.std(ddof=1)) if len(seeds) > 1 else None,
            "seeds": len(seeds),
            "low": float(_percent(low)),
            "high": float(_percent(high)),
            "t_low": t_low,
            "t_high": t_high,
            "ahead": int((change[0] < 0).sum()),
            "pairs": int(change[0].size),
        }


def _percent(change: Any) -> Any:
    return 100 * np.expm1(change)


def comparisons(arms: Iterable[str]) -> list[tuple[str, str]]:
    """Return which arms are compared: each with linear, Fourier heads with a tied one, variants with what they vary.

    >>> comparisons(["linear", "linear-tied", "fourier-550"])
    [('linear-tied', 'linear'), ('fourier-550', 'linear'), ('fourier-550', 'linear-tied')]
    >>> comparisons(["fourier-550", "fourier-550-free"])
    [('fourier-550-free', 'fourier-550')]
    """
    names = list(dict.fromkeys(arms))
    out = [(name, "linear") for name in names if name != "linear" and "@" not in name and "linear" in names]
    out += [(name, TIED) for name in names if re.fullmatch(r"fourier-\d+", name) and TIED in names]
    for name in names:
        varied = re.fullmatch(r"(fourier-\d+)-[a-z]+", name)
        if varied and varied[1] in names:
            out.append((name, varied[1]))
    return out


def groups_of_sets(naive: Iterable[ScoreRow]) -> dict[str, list[str]]:
    """Return the sets over which differences are averaged: all, those not reconstructed, those verified, and each."""
    status = {one["dataset"]: one["status"] for one in naive}
    made = [name for name, one in status.items() if one == "reconstructed"]
    verified = [name for name, one in status.items() if one == "verified"]
    out = {"all": list(status)}
    if made and len(made) < len(status):
        out[f"without {', '.join(made)}"] = [name for name in status if name not in made]
    if verified:
        out["verified"] = verified
    return out | {name: [name] for name in status}


def paired_rows(
    errors: Errors, naive: Sequence[ScoreRow], about: Mapping[str, Mapping[str, Any]], draws: int = DRAWS
) -> list[Row]:
    """Return the differences of all comparisons, over groups of sets and on single ones, as rows."""
    bootstrap, groups = Bootstrap(errors, draws), groups_of_sets(naive)
    out = []
    for arm, other in comparisons(name for name, _ in errors.runs):
        described = {key: value for key, value in about.get(arm, {}).items() if key != "paper"}
        for dataset, sets in groups.items():
            for metric in METRICS:
                found = bootstrap.compare(arm, other, metric, sets)
                named = {"dataset": dataset, "model": arm, "against": other, "sets": len(sets)}
                out.append(row(f"{metric}_difference", found.pop("ours"), **(described | named | found)))
    return out


def paired_charts(rows: Sequence[Row]) -> list[Chart]:
    """Draw the differences to linear heads over all sets, with their intervals, where there are any."""
    shown = [one for one in rows if one.get("against") in ("linear", TIED)]
    groups = list(dict.fromkeys(one["dataset"] for one in shown if one["dataset"] == "all" or one["sets"] > 1))
    if not shown:
        return []
    panels = []
    for metric in METRICS:
        series = []
        for place, dataset in enumerate(groups):
            own = [one for one in shown if one["dataset"] == dataset and one["metric"] == f"{metric}_difference"]
            names = [_short(one) for one in own]
            below, means, above = np.array([[one["low"], one["ours"], one["high"]] for one in own]).T
            bars = {"error": above - means, "below": means - below}
            series.append(Series(dataset, names, means, f"curve-{place + 1}", "bars", **bars))
        panels.append(Panel(series, metric.upper(), "", "percent", marks=[Mark(0.0, "", "y")]))
    caption = "Error against that of the linear head of the same seed, 95 % intervals; below zero the arm is better."
    if any(one["against"] == TIED for one in shown):
        caption += " The last ones are against the linear head tied to the embedding, the paper's by its configuration."
    return [Chart("paired", "Differences to the linear head", panels, caption, columns=1)]


def _short(one: Row) -> str:
    name = one["model"].removeprefix("fourier-").removeprefix("linear-")
    return f"{name} against tied" if one["against"] == TIED else name
