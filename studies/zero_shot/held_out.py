"""Gather runs of the forecaster: ``python -m studies.zero_shot.held_out RUNS --output FOLDER``.

Each was made by ``python -m fourier_head.forecasting.patch.pretrain --choose --score --variant NAME --seed N``, which
leaves ``score.json``: scores on whole training sets that were held out, by kind of frequency.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from studies.common.report.summary import Row
from studies.common.results import aggregate, write_results

SCORES = {
    "mase": "relative_mase",
    "wql": "relative_wql",
    "interval_error": "interval_error",
    "coverage_80": "coverage_80",
}
"""Scores of a run, and what the results call them."""
ABOUT = ("steps", "seconds")


def read_runs(paths: Sequence[Path]) -> list[dict[str, Any]]:
    """Return the runs of folders with ``score.json`` anywhere below them, and of files that hold a list of runs."""
    runs = []
    for path in paths:
        if path.is_file():
            runs += json.loads(path.read_text(encoding="utf-8"))
        else:
            runs += [json.loads(file.read_text(encoding="utf-8")) for file in sorted(path.rglob("score.json"))]
    return sorted(runs, key=lambda run: (run["variant"] != "recipe", run["variant"], run["seed"]))


def rows(runs: Sequence[dict[str, Any]]) -> list[Row]:
    """Return means and deviations over seeds, by variant and kind of frequency; scores are relative to seasonal naive.

    >>> run = {"variant": "recipe", "seed": 0, "steps": 9, "seconds": 1.0, "all": {"mase": 0.7, "wql": 0.5}, "sets": {}}
    >>> [(one["dataset"], one["metric"], one["ours"]) for one in rows([run])][:2]
    [('all', 'relative_mase', 0.7), ('all', 'relative_wql', 0.5)]
    """
    flat = []
    for run in runs:
        for group, scores in run.items():
            if isinstance(scores, dict) and group != "sets":
                about = {key: run.get(key) for key in ABOUT} if group == "all" else {}
                named = {metric: scores.get(key) for key, metric in SCORES.items()}
                flat.append({"model": run["variant"], "dataset": group, "head": "fourier", **named, **about})
    metrics = [*SCORES.values(), *ABOUT]
    return aggregate(flat, metrics, ["dataset", "head", "model"])


def main(arguments: list[str] | None = None) -> None:
    """Read the runs and write the folder of their results."""
    parser = argparse.ArgumentParser(prog="python -m studies.zero_shot.held_out", description=__doc__)
    parser.add_argument("runs", type=Path, nargs="+", help="folders of runs, or files that hold a list of them")
    parser.add_argument("--output", type=Path, default=Path("results/zero-shot-held-out"))
    given = parser.parse_args(arguments)
    runs = read_runs(given.runs)
    if not runs:
        parser.error("no run with score.json was found.")
    machines = sorted({run["hardware"] for run in runs if "hardware" in run}) or ["not recorded"]
    note = (
        "Scores relative to seasonal naive, geometric means over whole training sets that no run was trained on; `far` "
        "is ten times the usual horizon of series of hours and finer ones. Small networks, many at a time on one card, "
        "each for the same time: single runs are in `runs.json`."
    )
    write_results(
        given.output,
        rows(runs),
        command="python -m studies.zero_shot.held_out RUNS",
        seconds=sum(run.get("seconds", 0.0) for run in runs),
        seconds_of="the training of all variants",
        runs=runs,
        # Those of the runs, which this command only gathers.
        hardware="; and ".join(machines),
        versions={"torch": ", ".join(sorted({run["torch"] for run in runs if "torch" in run}))},
        notes=[note],
    )


if __name__ == "__main__":
    main()
