"""Search for test values in the training series: ``python -m studies.zero_shot.leaks --corpus TRAIN ...``.

Copies may be in other units or added up to a coarser step. So growth rates are compared, six in a row, of the values
that forecasts are scored on with those of every training series, as it is and summed over 3, 4, 12 and other numbers of
steps. The same test values read backwards say how many are found by chance. Copies that were rounded, or moved to
another zero, have other growth rates: ``rescaled`` looks for them by the shape of runs.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fourier_head._files import write_atomically
from fourier_head.forecasting.corpora.readers import LEFT_OUT, read_rows, read_store
from fourier_head.forecasting.corpora.store import SeriesStore
from fourier_head.forecasting.evaluation import EvaluationSet
from studies.common.benchmark_sets import read_evaluation_sets
from studies.zero_shot import rescaled
from studies.zero_shot.gift_eval import gift_configurations

RUN = 6
"""Growth rates in a row."""
DISTINCT = 4
"""Different ones among them at least: a few small counts repeat everywhere."""
DIGITS = 1e4
"""Rates are logarithms, compared after rounding to multiples of its inverse."""
SUMS = {1: (3, 12), 12: (1, 3, 12), 4: (1, 4), 7: (1, 7), 24: (1, 24), 48: (1, 2), 288: (1, 12)}
"""Steps that series of a period are summed over; those of other periods are compared as they are."""
FACTOR = np.uint64(0x9E3779B97F4A7C15)


def runs(values: np.ndarray) -> np.ndarray:
    """Return a number for every run of growth rates (n - 6,), 0 where one is not known or the run says too little.

    >>> x = np.array([3.0, 5, 4, 9, 2, 8, 7])
    >>> bool(runs(x) == runs(1000 * x)), runs(np.ones(9)).tolist()
    (True, [0, 0, 0])
    """
    if len(values) <= RUN:
        return np.zeros(0, dtype=np.uint64)
    with np.errstate(all="ignore"):
        rate = np.diff(np.log(np.where(values > 0, values, np.nan)))
    known = np.isfinite(rate)
    whole = np.round(np.where(known, rate, 0.0) * DIGITS).astype(np.int64)
    window = np.lib.stride_tricks.sliding_window_view(whole, RUN)
    ordered = np.sort(window, axis=1)
    rich = (np.diff(ordered, axis=1) != 0).sum(1) + 1 >= DISTINCT
    good = rich & np.lib.stride_tricks.sliding_window_view(known, RUN).all(1)
    number = np.zeros(len(window), dtype=np.uint64)
    with np.errstate(over="ignore"):
        for column in range(RUN):
            number = (number ^ window[:, column].astype(np.uint64)) * FACTOR
            number ^= number >> np.uint64(29)
    return np.where(good, number, np.uint64(0))


def summed(values: np.ndarray, steps: int) -> Iterable[np.ndarray]:
    """Yield the sums over blocks of so many steps, from every place a block can begin."""
    for first in range(steps):
        count = (len(values) - first) // steps
        if count > RUN:
            yield values[first : first + count * steps].reshape(count, steps).sum(1)


def versions(period: int, values: np.ndarray) -> Iterator[np.ndarray]:
    """Yield a series as it is and summed over the numbers of steps that suit its period."""
    for steps in SUMS.get(period, (1,)):
        yield from [values] if steps == 1 else summed(values, steps)


def search(store: SeriesStore, sets: Sequence[EvaluationSet]) -> list[dict[str, Any]]:
    """Return, for every evaluation set, how many of its test windows share a run with a training series.

    Args:
        store: the training series.
        sets: what forecasts are scored on.
    """
    wanted: dict[str, list[np.ndarray]] = {}
    for one in sets:
        for way, order in (("forwards", 1), ("backwards", -1)):
            wanted[f"{one.name}|{way}"] = [runs(np.asarray(x[-one.horizon :], np.float64)[::order]) for x in one.series]
    everything = np.unique(np.concatenate([x for group in wanted.values() for x in group] or [np.zeros(1, np.uint64)]))
    everything = everything[everything != 0]
    found: set[int] = set()
    origin: dict[int, str] = {}
    for i in range(len(store)):
        values = store.series(i).numpy().astype(np.float64)
        for part in versions(int(store.period[i]), values):
            own = runs(part)
            place = np.searchsorted(everything, own).clip(max=max(len(everything) - 1, 0))
            for number in own[everything[place] == own] if len(everything) else ():
                found.add(int(number))
                origin.setdefault(int(number), store.names[int(store.set_index[i])])
    rows = []
    for one in sets:
        row: dict[str, Any] = {"dataset": one.name, "windows": len(one)}
        for way in ("forwards", "backwards"):
            hits = [[int(n) for n in x if int(n) in found] for x in wanted[f"{one.name}|{way}"]]
            row[way] = sum(bool(hit) for hit in hits)
            if way == "forwards":
                named = [origin[n] for hit in hits for n in hit]
                row["from"] = {name: named.count(name) for name in sorted(set(named))}
        rows.append(row)
    return rows


def read_named(paths: Sequence[Path]) -> tuple[SeriesStore, list[str]]:
    """Return the training series of files or folders of parquet files with their ids, none where they are packed."""
    files = [file for path in paths for file in (sorted(path.glob("*.parquet")) if path.is_dir() else [path])]
    ids: list[str] = []
    for file in files:
        if file.suffix != ".safetensors":
            rows = read_rows(file, without=LEFT_OUT.get(file.stem, ()))
            ids += [one for one, length in zip(rows.ids, rows.lengths, strict=True) if length > 1]
    store = read_store(files)
    return store, ids if len(ids) == len(store) else []


def main(arguments: list[str] | None = None) -> None:
    """Search, write what was found and say it."""
    parser = argparse.ArgumentParser(prog="python -m studies.zero_shot.leaks", description=__doc__)
    parser.add_argument("--corpus", type=Path, nargs="+", required=True, help="training series")
    parser.add_argument("--evaluation", type=Path, required=True, help="folder of evaluation sets")
    parser.add_argument("--gift", type=Path, help="folder of GIFT-Eval")
    parser.add_argument("--period", type=int, nargs="+", help="search training series of so many steps per cycle only")
    parser.add_argument("--output", type=Path, default=Path("results/zero-shot/leaks.json"))
    given = parser.parse_args(arguments)
    sets = read_evaluation_sets(given.evaluation)
    if given.gift is not None:
        sets += [one.read()[0] for one in gift_configurations(given.gift)]
    store, ids = read_named(given.corpus)
    if given.period is not None:
        some = torch.isin(store.period, torch.tensor(given.period)).nonzero().flatten()
        store, ids = store.select(some), [ids[i] for i in some.tolist()] if ids else ids
    command = "python -m studies.zero_shot.leaks --corpus TRAIN --evaluation EVALUATION"
    command += " --gift GIFT" if given.gift else ""
    command += f" --period {' '.join(map(str, given.period))}" if given.period is not None else ""
    shapes = rescaled.search(store, sets, versions, ids)
    found = {"growth": search(store, sets), "shapes": shapes}
    totals = {
        kind: {key: sum(row[key] for row in rows) for key in ("windows", "forwards", "backwards")}
        for kind, rows in found.items()
    }
    out: dict[str, Any] = {"command": command, "series": len(store), "total": totals["growth"], "sets": found["growth"]}
    out["rescaled"] = {"total": totals["shapes"], "sets": [row for row in shapes if row["forwards"] + row["backwards"]]}
    write_atomically(given.output, json.dumps(out, indent=1) + "\n")
    for kind, total in totals.items():
        print(f"{kind}: {total['forwards']} of {total['windows']} test windows; {total['backwards']} read backwards")


if __name__ == "__main__":
    main()
