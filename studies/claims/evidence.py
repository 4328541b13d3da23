"""Figures from committed results: one row as it stands, or pairs of runs with the same seed, with an interval."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from fourier_head.errors import UserError
from studies.common.intervals import t_interval, t_quantile

ROOT = Path(__file__).resolve().parents[2]
Selector = Mapping[str, Any]


@dataclass(frozen=True)
class Figure:
    """A number with its interval, of so many seeds, and where it comes from: a file and the rows of it.

    ``beside`` is the file of the rows it is compared with, where that is another; ``student`` the interval by Student's
    t over seeds alone, where ``interval`` is one of a bootstrap.
    """

    value: float
    interval: tuple[float, float] | None
    seeds: int | None
    file: str
    rows: tuple[Selector, ...]
    beside: tuple[str, tuple[Selector, ...]] | None = None
    student: tuple[float, float] | None = None

    @property
    def evidence(self) -> dict[str, Any]:
        """What `claims.json` says of where it comes from."""
        found: dict[str, Any] = {"file": self.file, "rows": [dict(row) for row in self.rows]}
        if self.beside is not None:
            found["beside"] = {"file": self.beside[0], "rows": [dict(row) for row in self.beside[1]]}
        return found


@lru_cache(maxsize=32)
def content(path: str) -> Any:
    """Return what a committed file of JSON holds."""
    try:
        return json.loads((ROOT / path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"{path} cannot be read as evidence: {error}.") from None


def choices(study: str) -> list[dict[str, Any]]:
    """Return what was tried on seeds of their own, as the summary of a study has it."""
    return list(content(f"results/{study}/summary.json")["choices"])


def objects(path: str) -> list[dict[str, Any]]:
    """Return the rows of a summary, or the runs of a list of runs."""
    found = content(path)
    return list(found["rows"] if isinstance(found, dict) else found)


def find(path: str, selector: Selector) -> list[dict[str, Any]]:
    """Return the objects of a file that have all of these values."""
    found = [one for one in objects(path) if all(one.get(key) == value for key, value in selector.items())]
    if not found:
        raise UserError(f"{path} has nothing with {dict(selector)}.")
    return found


def one_row(study: str, **selector: Any) -> Figure:
    """Return a row of a summary, which must be the only one with these values."""
    path = f"results/{study}/summary.json"
    found = find(path, selector)
    if len(found) > 1:
        raise UserError(f"{path} has {len(found)} rows with {selector}; say more.")
    row = found[0]
    interval = (row["low"], row["high"]) if "low" in row else None
    if interval is None and row.get("std") is not None and (row.get("seeds") or 0) > 1:
        half = t_quantile(row["seeds"] - 1) * row["std"] / math.sqrt(row["seeds"])
        interval = row["ours"] - half, row["ours"] + half
    student = (row["t_low"], row["t_high"]) if row.get("t_low") is not None else None
    return Figure(row["ours"], interval, row.get("seeds"), path, (selector,), student=student)


def paired(
    study: str,
    metric: str | Callable[[Mapping[str, Any]], float],
    ours: Selector,
    other: Selector,
    *,
    ratio: bool = False,
    over: Sequence[Selector] = ({},),
    beside: str | None = None,
) -> Figure:
    """Return the mean difference over seeds between two arms, or with ``ratio`` how many percent the first is larger.

    Args:
        study: whose `runs.json` has the runs.
        metric: key of a run, or what computes the number from it.
        ours, other: select the runs of either arm; they are paired by seed.
        ratio: compare logarithms, so that the interval is one of the ratio.
        over: further selectors over whose values a seed is averaged first, such as data sets.
        beside: the study that has the other arm's runs, if that is not the same one.
    """
    path = f"results/{study}/runs.json"
    its_path = path if beside is None else f"results/{beside}/runs.json"
    measure = (lambda run: float(run[metric])) if isinstance(metric, str) else metric

    def by_seed(file: str, selector: Selector, part: Selector) -> dict[int, float]:
        return {run["seed"]: measure(run) for run in find(file, {**selector, **part})}

    changes: dict[int, list[float]] = {}
    for part in over:
        mine, theirs = by_seed(path, ours, part), by_seed(its_path, other, part)
        for seed in mine.keys() & theirs.keys():
            change = math.log(mine[seed] / theirs[seed]) if ratio else mine[seed] - theirs[seed]
            changes.setdefault(seed, []).append(change)
    values = np.array([np.mean(one) for one in changes.values() if len(one) == len(over)])
    mean, interval = t_interval(values)
    if ratio:
        mean, interval = _percent(mean), None if interval is None else (_percent(interval[0]), _percent(interval[1]))
    if its_path != path:
        rows, theirs_rows = (tuple({**one, **part} for part in over) for one in (ours, other))
        return Figure(mean, interval, len(values), path, rows, (its_path, theirs_rows))
    rows = tuple({**one, **part} for part in over for one in (ours, other))
    return Figure(mean, interval, len(values), path, rows)


def _percent(change: float) -> float:
    return 100 * math.expm1(change)


def said(figure: Figure, form: str = ".3g") -> str:
    """Return a figure in words, with its interval where there is one; ``form`` is that of its numbers.

    >>> said(Figure(-0.12345, (-0.2, 0.054), 4, "", ())), said(Figure(1.25, (-0.5, 3.0), 4, "", ()), "+.1f")
    ('-0.123 (-0.2 to 0.054)', '+1.2 (-0.5 to +3.0)')
    """
    value = f"{figure.value:{form}}"
    return value if figure.interval is None else f"{value} ({figure.interval[0]:{form}} to {figure.interval[1]:{form}})"
