"""What views are worth on series that no weight has seen: ``python -m studies.zero_shot.views CORPUS``.

The eleven sets that are left out of training (`whole`) and the 4 % of series held out of the others (`series`), several
windows of each, of steps of a minute or less: as far ahead as coarser views count, with ``--near`` as near as views of
the last values do. Scores are those of the forecaster over those of the same one without views.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fourier_head._files import write_atomically
from fourier_head.forecasting.coarser import coarser_step
from fourier_head.forecasting.corpora.readers import read_store
from fourier_head.forecasting.corpora.store import SeriesStore
from fourier_head.forecasting.evaluation import EvaluationSet, ScoreRow, evaluate
from fourier_head.forecasting.forecaster import Forecaster
from fourier_head.forecasting.rules import Rules
from fourier_head.forecasting.validation import CALIBRATION_SETS, hold_out, hold_out_sets, moves, validation_sets

WINDOWS = 8
"""Of each series."""


class Alone(Forecaster):
    """The forecaster without views."""

    def _moved(self, ruled: Rules, rolling: Any, half: bool) -> tuple[np.ndarray | None, np.ndarray | None]:
        return ruled.put_back()


def held_out(corpus: Sequence[Path]) -> dict[str, SeriesStore]:
    """Return the sets that are left out of training (`whole`), and series held out of the others (`series`)."""
    store, few = hold_out(read_store(corpus))
    return {"whole": hold_out_sets(store, CALIBRATION_SETS)[1], "series": few}


def windows(held: SeriesStore, most: int, longest: int, near: bool) -> list[EvaluationSet]:
    """Return sets of windows of held-out series that views concern, at most so many of each set."""
    out = []
    for one in validation_sets(held, most=most, longest=longest + 12 * 1024, far=True):
        if one.name.endswith("far") == near or coarser_step(one.freq) is None:
            continue
        earlier = [(k, past[: len(past) - k * one.horizon]) for past in one.series for k in range(WINDOWS)]
        kept = [(k, past[-longest - one.horizon :]) for k, past in earlier if len(past) >= 2 * one.horizon + 8]
        kept = [(k, past) for k, past in kept if k == 0 or moves(past, one.horizon)]
        series = [past for _, past in sorted(kept, key=lambda pair: pair[0])][:most]
        out.append(EvaluationSet(one.name, series or list(one.series), one.horizon, one.season, one.freq))
    return out


def ratios(scores: Iterable[ScoreRow], others: Iterable[ScoreRow]) -> list[dict[str, Any]]:
    """Return of each set the number of its windows, and MASE and WQL over others of the same sets; none is left 0."""
    found = []
    for own, base in zip(scores, others, strict=True):
        one = {key: own[key] / (base[key] or np.nan) for key in ("mase", "wql")}
        if all(0 < ratio < np.inf for ratio in one.values()):
            found.append({"set": own["dataset"], "windows": own["series"], **one})
    return found


def table(groups: dict[str, list[dict[str, Any]]]) -> str:
    """Return the comparison as lines of comma-separated values; a set counts by the root of its windows.

    ``low`` and ``high`` are the ends of 95 % of bootstraps over sets of WQL.

    >>> print(table({"whole": [{"windows": 4, "mase": 0.9, "wql": 0.8}, {"windows": 4, "mase": 1.0, "wql": 1.25}]}))
    held_out,sets,windows,mase,wql,low,high,sets_ahead
    whole,2,8,0.9487,1.0000,0.8000,1.2500,1
    """
    lines = ["held_out,sets,windows,mase,wql,low,high,sets_ahead"]
    for group, rows in groups.items():
        if rows:
            size, score = np.array([row["windows"] for row in rows]), np.array([[r["mase"], r["wql"]] for r in rows])
            mase, wql = np.exp(np.average(np.log(score), axis=0, weights=np.sqrt(size)))
            drawn = np.random.default_rng(0).integers(len(rows), size=(2000, len(rows)))
            means = np.exp((np.sqrt(size) * np.log(score[:, 1]))[drawn].sum(1) / np.sqrt(size)[drawn].sum(1))
            low, high = np.quantile(means, [0.025, 0.975])
            ends, ahead = f"{low:.4f},{high:.4f}", int((score[:, 1] < 1).sum())
            lines.append(f"{group},{len(rows)},{size.sum()},{mase:.4f},{wql:.4f},{ends},{ahead}")
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> None:
    """Compare and write the table."""
    parser = argparse.ArgumentParser(prog="python -m studies.zero_shot.views", description=__doc__)
    parser.add_argument("corpus", type=Path, nargs="+", help="packed series, or parquet files")
    parser.add_argument("--model", default="small")
    parser.add_argument("--most", type=int, default=36, help="windows of each set")
    parser.add_argument("--near", action="store_true", help="the usual horizon, not ten times as far")
    parser.add_argument("--output", type=Path, default=Path("results/zero-shot-held-out/views.csv"))
    given = parser.parse_args(arguments)
    forecaster = Forecaster.from_pretrained(given.model)
    groups = held_out(given.corpus)
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # seasons that a past does not show
        sets = {name: windows(held, given.most, forecaster.config.context, given.near) for name, held in groups.items()}
        found = {
            name: ratios(evaluate(forecaster, own), evaluate(Alone(forecaster.model), own))
            for name, own in sets.items()
        }
        text = table({**found, "both": [row for rows in found.values() for row in rows]})
    write_atomically(given.output, text + "\n")
    print(text)


if __name__ == "__main__":
    main()
