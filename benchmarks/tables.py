"""Score methods that predict distributions on the UCI tables: ``python -m benchmarks.tables --data FOLDER``.

FOLDER holds ``<set>.npz`` with X, y, train_index and test_index. Every method is fitted to the training rows of every
split with its usual settings, one thread each, and scored on the test rows. Each fit is a row of
``results/tables.csv``: negative log-likelihood, CRPS and root mean squared error in the units of the target, the share
of test rows in the central 90 % intervals and their mean width (sharpness), the seconds of the fit and those that its
processor worked, which other work on the machine does not change. Rows that are there already are not fitted again, so
a run can be stopped at any time and go on elsewhere; those of ours name a revision, and of each set the newest among
those with most splits counts. At the end means over the splits go to
``results/table-means.csv``, mean ranks and shares in the 90 % intervals over the sets to ``results/table-ranks.csv``
and, with the critical difference of Nemenyi's test, to ``results/tables.png``; ``results/table-published.csv`` has our
likelihoods beside those that others published for the same splits. With ``--only-fit`` these stay as they are.

Choices are made with ``--validation``: a tenth of the training part of each split is scored instead, and no test row is
looked at; rows go to ``results/table-choices.csv``. A run ends by itself after ``--seconds``.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import itertools
import math
import os
import time
from collections import defaultdict
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.figures import pyplot
from benchmarks.files import RESULTS, append, parser_of, read, write
from benchmarks.table_methods import METHODS, OURS, REVISIONS, Floats

SCORES = ("nll", "crps", "rmse", "coverage_90", "sharpness", "seconds", "processor_seconds")
COLUMNS = ("dataset", "method", "split", *SCORES, "hardware", "revision")
MEANS = ("dataset", "method", "splits", *SCORES[:5], "crps_error", "processor_seconds", "revision")
RANKS = ("method", "rank_crps", "rank_nll", "coverage_90", "off_90", "sets", "critical_difference", "revision")
SETS = ("yacht", "bostonHousing", "energy", "concrete", "wine-quality-red", "kin8nm", "power-plant", "naval", "protein")
PUBLISHED = {
    "PBP": (1.63, 2.57, 2.04, 3.16, 0.97, -0.90, 2.84, -3.73, 2.97),
    "MC dropout": (1.25, 2.40, 1.21, 2.93, 0.93, -1.14, 2.80, -4.45, 2.87),
    "Deep Ensembles": (1.18, 2.41, 1.38, 3.06, 0.94, -1.20, 2.79, -5.63, 2.83),
    "Concrete dropout": (1.75, 2.72, 2.30, 3.51, 1.70, -0.65, 2.75, -5.87, 2.81),
    "NGBoost": (0.20, 2.43, 0.60, 3.04, 0.91, -0.49, 2.79, -5.34, 2.81),
    "Deep Evidential": (1.03, 2.35, 1.39, 3.01, 0.89, -1.24, 2.81, -5.73, 2.63),
    "WEvidential": (0.16, 2.47, 0.53, 2.83, 0.95, -0.44, 2.60, -5.47, 2.70),
}
"""Mean negative log-likelihoods of test rows in the order of ``SETS``, as printed in Lakshminarayanan et al. (NeurIPS
2017) for PBP and Deep Ensembles, by the authors of the splits for MC dropout, by Matsubara (2024) for the others."""
NEMENYI = {2: 1.960, 3: 2.343, 4: 2.569, 5: 2.728, 6: 2.850, 7: 2.949, 8: 3.031, 9: 3.102, 10: 3.164}
"""Critical values at 5 % by the number of methods (Demsar, JMLR 2006)."""
Row = dict[str, str]


def score(X: Floats, y: Floats, test: Floats, truth: Floats, method: str, seed: int) -> dict[str, float]:
    """Fit a method to rows and return its scores on test rows, by the names of ``SCORES``."""
    start, worked = time.perf_counter(), time.process_time()
    predict = METHODS[method](X, y, seed)
    seconds, worked = time.perf_counter() - start, time.process_time() - worked
    return {**density_scores(predict(test), truth), "seconds": seconds, "processor_seconds": worked}


def density_scores(density: Any, truth: Floats) -> dict[str, float]:
    """Return how good densities of rows are, given what came."""
    low, high = density.interval(0.9).T
    return {
        "nll": -float(density.logpdf(truth).mean()),
        "crps": float(density.crps(truth).mean()),
        "rmse": float(np.sqrt(np.mean((density.mean() - truth) ** 2))),
        "coverage_90": float(np.mean((truth >= low) & (truth <= high))),
        "sharpness": float((high - low).mean()),
    }


def _task(folder: Path, name: str, method: str, split: int, validation: bool = False) -> Row:
    import torch

    from fourier_head.compare.results import hardware

    torch.set_num_threads(1)
    # The first fit of a process is not to pay for loading packages.
    ours = ("lightgbm", "fourier_head.integrations.scikit_learn", "fourier_head.tabular.boosting")
    for package in ours if method in OURS else (method,):
        with contextlib.suppress(ImportError):
            importlib.import_module(package.replace("-", "_"))
    with np.load(folder / f"{name}.npz") as table:
        X, y = table["X"], table["y"]
        rows, test = table["train_index"][split], table["test_index"][split]
    if validation:
        rows = np.random.default_rng(1000 + split).permutation(rows)
        rows, test = np.split(rows, [len(rows) - len(rows) // 10])
    found = score(X[rows], y[rows], X[test], y[test], method, split)
    row = {key: f"{value:.3g}" if "seconds" in key else f"{value:.6g}" for key, value in found.items()}
    of_fit = {"hardware": hardware(), "revision": REVISIONS.get(method, "")}
    return {"dataset": name, "method": method, "split": str(split), **row, **of_fit}


def newest(rows: list[Row]) -> list[Row]:
    """Return the rows of others, and for each set and method of ours those of one revision.

    It is the newest among those with most splits: where a revision hardly changes a set, it need not be fitted again.
    """
    fits: dict[tuple[str, str], dict[str, list[Row]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        fits[row["dataset"], row["method"]][row["revision"]].append(row)
    chosen = (max(found.items(), key=lambda pair: (len(pair[1]), pair[0]))[1] for found in fits.values())
    return [row for own in chosen for row in own]


def write_means(rows: list[Row], path: Path) -> None:
    """Write means over the splits there are of every set and method, the standard error of the CRPS, and seconds.

    Seconds are those that a processor worked, of the machine that has most of the rows.
    """
    machines = [row["hardware"] for row in rows]
    usual = max(set(machines), key=machines.count) if rows else ""
    lines: list[list[Any]] = []
    for name, method in itertools.product(SETS, METHODS):
        own = [row for row in rows if (row["dataset"], row["method"]) == (name, method)]
        if not own:
            continue
        means = (float(f"{np.mean([float(row[key]) for row in own]):.5g}") for key in SCORES[:5])
        crps = [float(row["crps"]) for row in own]
        error = f"{np.std(crps, ddof=1) / math.sqrt(len(crps)):.3g}" if len(crps) > 1 else ""
        worked = [float(row["processor_seconds"] or "nan") for row in own if row["hardware"] == usual]
        seconds = f"{np.mean(worked):.3g}" if worked else ""
        lines.append([name, method, len(own), *means, error, seconds, own[0]["revision"]])
    write(path, MEANS, lines)


def write_published(rows: list[Row], path: Path) -> None:
    """Write our mean likelihoods, over the splits there are, beside the published ones."""
    lines: list[list[Any]] = []
    for place, name in enumerate(SETS):
        ours = [float(row["nll"]) for row in rows if (row["dataset"], row["method"]) == (name, "fourier")]
        if ours:
            published = (values[place] for values in PUBLISHED.values())
            lines.append([name, len(ours), round(float(np.mean(ours)), 4), *published])
    write(path, ["dataset", "splits", "fourier", *PUBLISHED], lines)


def mean_scores(rows: list[Row], metric: str) -> tuple[list[str], list[str], Floats]:
    """Return methods, sets, and the mean over splits (sets, methods) of those that have all sets, all splits alike."""
    splits: dict[tuple[str, str], dict[str, float]] = defaultdict(dict)
    for row in rows:
        splits[row["dataset"], row["method"]][row["split"]] = float(row[metric])
    sets = [name for name in SETS if any(name == found for found, _ in splits)]
    methods = [m for m in METHODS if all((name, m) in splits for name in sets)]
    means = np.zeros((len(sets), len(methods)))
    for i, name in enumerate(sets):
        # Only splits that every method has.
        common = set.intersection(*(set(splits[name, m]) for m in methods)) if methods else set()
        for j, m in enumerate(methods):
            means[i, j] = np.mean([splits[name, m][split] for split in common])
    return methods, sets, means


def ranks(means: Floats) -> Floats:
    """Return mean ranks (methods,), one being the lowest score; equal ones share theirs.

    >>> ranks(np.array([[1.0, 2.0, 3.0], [1.0, 1.0, 0.5]]))
    array([1.75, 2.25, 2.  ])
    """
    below = (means[:, None, :] < means[:, :, None]).sum(2)
    same = (means[:, None, :] == means[:, :, None]).sum(2)
    return (below + (same + 1) / 2).mean(0)


def critical_difference(sets: int, methods: int) -> float:
    """Return how far apart mean ranks must be to differ at 5 % (Nemenyi)."""
    return NEMENYI[methods] * math.sqrt(methods * (methods + 1) / (6 * sets))


def summarise(path: Path) -> None:
    """Write mean ranks, print them, and draw them with their critical difference."""
    rows, table = newest(read(path)), {}
    write_means(rows, path.parent / "table-means.csv")
    write_published(rows, path.parent / "table-published.csv")
    for metric in ("crps", "nll"):
        methods, sets, means = mean_scores(rows, metric)
        if len(methods) < 2:
            return
        table[metric] = dict(zip(methods, ranks(means), strict=True))
    difference = critical_difference(len(sets), len(methods))
    shares = dict(zip(methods, mean_scores(rows, "coverage_90")[2].T, strict=True))
    lines: list[list[Any]] = []
    for method in sorted(methods, key=table["crps"].__getitem__):
        values = (round(table[metric][method], 3) for metric in table)
        revision = "+".join(sorted({row["revision"] for row in rows if row["method"] == method}))
        held = [round(float(x), 4) for x in (shares[method].mean(), np.abs(shares[method] - 0.9).mean())]
        lines.append([method, *values, *held, len(sets), round(difference, 3), revision])
        print(*lines[-1])
    write(path.parent / "table-ranks.csv", RANKS, lines)
    if importlib.util.find_spec("matplotlib"):
        draw(table, difference, path.with_suffix(".png"))


def draw(table: dict[str, dict[str, float]], difference: float, path: Path) -> None:
    """Draw mean ranks on a line for each score, and a bar under those that are not apart from the first."""
    figure, axes = pyplot().subplots(len(table), 1, figsize=(8, 2.8 * len(table)), squeeze=False)
    for axis, (metric, found) in zip(axes[:, 0], table.items(), strict=True):
        order = sorted(found, key=found.__getitem__)
        half = math.ceil(len(order) / 2)
        # Names stand at the sides, the outermost ranks nearest to the line, so that no line runs through a name.
        for depth, method in [*enumerate(order[:half]), *enumerate(order[half:][::-1])]:
            left, height = method in order[:half], -0.5 - 0.4 * depth
            end = 0.8 if left else len(order) + 0.2
            color = "tab:blue" if method == "fourier" else "grey"
            axis.plot([found[method]] * 2 + [end], [0, height, height], color=color)
            words, side = f" {method} {found[method]:.2f} ", "right" if left else "left"
            axis.annotate(words, (end, height), ha=side, va="center")
        first = found[order[0]]
        axis.plot([first, first + difference], [-0.15, -0.15], linewidth=4, color="tab:orange")
        title = f"mean rank, {metric.upper()} (bar: critical difference {difference:.2f})"
        axis.set(xlim=(0.8, len(order) + 0.2), ylim=(-0.6 - 0.4 * (half - 1), 0), yticks=[], title=title)
        axis.xaxis.tick_top()
        for side in ("left", "right", "bottom"):
            axis.spines[side].set_visible(False)
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--data", type=Path, help="folder with the npz files; without, only the summary is made")
    parser.add_argument("--sets", nargs="+", choices=SETS, default=list(SETS))
    parser.add_argument("--splits", type=int, default=20, help="how many of a set's splits (protein has five)")
    parser.add_argument("--first", type=int, default=0, help="number of the first split")
    parser.add_argument("--methods", nargs="+", choices=list(METHODS), default=list(METHODS))
    parser.add_argument("--jobs", type=int, default=1, help="processes, of one thread each")
    parser.add_argument("--seconds", type=float, default=math.inf, help="stop after so long")
    parser.add_argument("--validation", action="store_true", help="score a tenth of the training rows, for choices")
    parser.add_argument("--only-fit", action="store_true", help="add rows, and leave means, ranks and picture alone")
    parser.add_argument("--output", type=Path, help="results/tables.csv, or table-choices.csv with --validation")
    arguments = parser.parse_args()
    arguments.output = arguments.output or RESULTS / f"table{'-choices' if arguments.validation else 's'}.csv"
    os.environ["OMP_NUM_THREADS"] = "1"
    if arguments.data is not None:
        run(arguments)
    if not (arguments.validation or arguments.only_fit):
        summarise(arguments.output)


def run(arguments: argparse.Namespace) -> None:
    """Fit what is missing, several at a time."""
    start = time.perf_counter()
    known = {
        (row["dataset"], row["method"], int(row["split"]))
        for row in read(arguments.output)
        if row["revision"] == REVISIONS.get(row["method"], "")
    }
    tasks = []
    for split in range(arguments.first, arguments.first + arguments.splits):
        for name in arguments.sets:
            with np.load(arguments.data / f"{name}.npz") as table:
                if split >= len(table["train_index"]):
                    continue
            tasks += [(name, method, split) for method in arguments.methods if (name, method, split) not in known]
    missing: set[str] = set()
    pool = ProcessPoolExecutor(arguments.jobs)
    waiting = {pool.submit(_task, arguments.data, *task, arguments.validation): task for task in tasks}
    while waiting:
        left = start + arguments.seconds - time.perf_counter()
        done, _ = wait(waiting, timeout=None if left == math.inf else max(left, 0), return_when=FIRST_COMPLETED)
        for future in done:
            task = waiting.pop(future)
            try:
                row = future.result()
            except ImportError as error:
                missing.add(f"{task[1]}: {error}")
                continue
            except Exception as error:
                print(*task, type(error).__name__, error, flush=True)
                continue
            append(arguments.output, COLUMNS, (row[name] for name in COLUMNS))
            print(*row.values(), flush=True)
        if not done:
            print(f"stopped after {arguments.seconds:g} seconds; {len(waiting)} fits are left", flush=True)
            for process in list((pool._processes or {}).values()):
                process.terminate()
            break
    pool.shutdown(wait=False, cancel_futures=True)
    for words in sorted(missing):
        print("left out", words)


if __name__ == "__main__":
    main()
