"""The one way a study writes its folder: `summary.json`, `rows.csv`, `runs.json`, figures; and keeps finished runs."""

from __future__ import annotations

import csv
import io
import json
import math
import os
import re
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np

from fourier_head._files import write_atomically
from fourier_head.errors import UserError
from fourier_head.pages.charts import Chart
from fourier_head.pages.drawing import save_png
from fourier_head.tasks.runs import RunStore, hardware, plain_values, to_json, versions
from studies.common.report.summary import CHARTS, COLUMNS, SUMMARY, Row, Summary, read_summary


def row(metric: str, ours: float | None, **more: Any) -> Row:
    """Return one flat row: every standard key, null where it does not apply, and the study's own keys after them.

    >>> row("kl", 0.12, dataset="gaussian", head="linear", gamma=0.0)["gamma"]
    0.0
    """
    return dict.fromkeys(COLUMNS) | {"metric": metric, "ours": ours} | more


def aggregate(runs: Iterable[Mapping[str, Any]], metrics: Sequence[str], by: Sequence[str]) -> list[Row]:
    """Return one row per metric and group of runs: mean, deviation between seeds (n - 1) and their number.

    Args:
        runs: single runs, flat; a metric a run lacks, or that is not finite, is left out of its mean.
        metrics: keys to average.
        by: keys that name a group and go into its rows.

    >>> aggregate([{"head": "linear", "kl": 1.0}, {"head": "linear", "kl": 3.0}], ["kl"], ["head"])[0]["ours"]
    2.0
    """
    groups: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for run in runs:
        groups.setdefault(tuple(run.get(key) for key in by), []).append(run)
    rows = []
    for names, members in groups.items():
        for metric in metrics:
            values = [float(run[metric]) for run in members if run.get(metric) is not None]
            values = [value for value in values if math.isfinite(value)]
            if values:
                std = float(np.std(values, ddof=1)) if len(values) > 1 else None
                group = dict(zip(by, names, strict=True))
                rows.append(row(metric, float(np.mean(values)), std=std, seeds=len(values), **group))
    return rows


def circumstances(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return on which machines and with which versions runs were made, as each says, for `write_results`."""
    return {"hardware": "; and ".join(sorted({run["hardware"] for run in runs})), "versions": runs[0]["versions"]}


def commit() -> str | None:
    """Return the commit of this checkout, marked `-dirty` where its sources differ; None outside of one.

    A copy of the sources on another machine may be no checkout, or another one: there `SOURCE_COMMIT` says it.
    """
    if said := os.environ.get("SOURCE_COMMIT", "").strip():
        if not re.fullmatch(r"[0-9a-f]{7,64}(-dirty)?", said):
            raise UserError(f"SOURCE_COMMIT must be the hash of a commit, maybe with -dirty, got {said!r}.")
        return said
    root = Path(__file__).resolve().parents[2]

    def git(*words: str) -> str:
        done = subprocess.run(["git", "-C", str(root), *words], capture_output=True, text=True, check=True)
        return done.stdout.strip()

    try:
        git("ls-files", "--error-unmatch", "studies/__main__.py")  # copied into someone else's repository
        return git("rev-parse", "HEAD") + ("-dirty" if git("status", "--porcelain", "--", "src", "studies") else "")
    except (OSError, subprocess.CalledProcessError):
        return None


def sources_note(commit: str | None) -> list[str]:
    """Say in plain words where no commit has the sources behind a result.

    >>> sources_note("913cfc4")
    []
    """
    if commit is None:
        return ["Written where the sources were no checkout: no commit names them."]
    if commit.endswith("-dirty"):
        return [
            "Written by sources that were not committed yet: they differ from the commit named here, which is marked "
            "-dirty."
        ]
    return []


def _figures(output: Path) -> set[str]:
    """Return the names of the figures that an earlier study drew into its folder."""
    try:
        names = {str(chart["name"]) for chart in json.loads((output / CHARTS).read_text(encoding="utf-8"))}
    except (OSError, ValueError, TypeError, KeyError):
        return set()  # nothing there, or nothing that this library wrote
    return {name for name in names if Path(name).name == name}


def write_results(
    output: Path,
    rows: Sequence[Row],
    *,
    command: str,
    seconds: float,
    runs: Sequence[Mapping[str, Any]] = (),
    charts: Sequence[Chart] = (),
    gpu: bool = False,
    keep_runs: bool = False,
    quick: str | None = None,
    **extra: Any,
) -> Summary:
    """Write the folder of a study, `summary.json` last, and drop the finished runs kept for a restart.

    Args:
        output: the folder; its name is the study's name.
        rows: what `row` returns.
        command: that repeats the study, `options.Study.command`.
        seconds: how long the study took; where that is of runs, made now or before, say whose in `seconds_of`.
        runs: single runs, one object each, written to `runs.json` where there are any.
        charts: figures; each becomes a PNG and, interactive, part of the report.
        gpu: whether a graphics card did the work.
        keep_runs: whether runs are missing yet: those finished stay, and the same command goes on from them.
        quick: for a quick look, what was less than the study asks for; the report does not count its numbers.
        extra: more keys for `summary.json`, such as `notes`, a list of sentences the report prints.
    """
    keys = list(COLUMNS) + list(dict.fromkeys(key for one in rows for key in one if key not in COLUMNS))
    table = io.StringIO()
    writer = csv.DictWriter(table, keys, lineterminator="\n")
    writer.writeheader()
    writer.writerows(plain_values(rows))
    write_atomically(output / "rows.csv", table.getvalue())
    if runs:
        lines = ",\n".join(to_json(run).strip() for run in runs)  # one line a run: readable, and small differences
        write_atomically(output / "runs.json", f"[\n{lines}\n]\n")
    drawn_before = _figures(output)
    for chart in charts:
        write_atomically(output / f"{chart.name}.png", lambda path, chart=chart: save_png(chart, path))  # type: ignore[misc]
    if charts:
        lines = ",\n".join(to_json(chart.as_dict()).strip() for chart in charts)
        write_atomically(output / CHARTS, f"[\n{lines}\n]\n")
    else:
        (output / CHARTS).unlink(missing_ok=True)
    for name in drawn_before - {chart.name for chart in charts}:
        (output / f"{name}.png").unlink(missing_ok=True)
    header: dict[str, Any] = {
        "command": command,
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "commit": commit(),
        "hardware": hardware(gpu),
        "versions": versions(),
        "seconds": round(seconds, 2),
    }
    if quick is not None:
        header["quick"] = True
        extra["notes"] = [f"A quick look: {quick}.", *extra.get("notes", ())]
    elif said := sources_note(header["commit"]):
        extra["notes"] = [*said, *extra.get("notes", ())]
    body = ",\n".join("  " + to_json(one).strip() for one in rows)
    top = to_json(header | extra, indent=1).removesuffix("\n}\n")
    write_atomically(output / SUMMARY, f'{top},\n "rows": [\n{body}\n ]\n}}\n')
    if not keep_runs:
        RunStore(output).clear()
    return read_summary(output)
