"""Try methods on tables as people have them: ``python -m benchmarks.table_robustness --jobs 2``.

One table of 400 rows with a known law, and the same table with what goes wrong in practice: outliers among inputs or
targets, a column that is constant in training only, gaps, counts, heavy tails, very few rows. All are scored on 2000
clean test rows of the same law, in the units of the target. Each table is drawn several times.
``results/table-robustness.csv`` has a row for each table, method and draw: CRPS, negative log-likelihood, coverage of
the 90 % intervals, seconds of the fit, what a method said where it failed, hardware; ``results/table-robust-means.csv``
has the means over draws.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.files import RESULTS, append, parser_of, write
from benchmarks.table_methods import METHODS, Floats
from benchmarks.tables import score
from fourier_head.compare.results import hardware

Table = tuple[Any, Floats, Any, Floats]
Draw = Callable[[np.random.Generator, Floats], Floats]
ROWS, TEST_ROWS = 400, 2000
COLUMNS = ("table", "method", "draw", "crps", "nll", "coverage_90", "seconds", "error", "hardware")
MEANS = ("table", "method", "draws", "failed", "crps", "crps_error", "nll", "coverage_90", "seconds")


def law(X: Floats, random: np.random.Generator) -> Floats:
    """Return targets whose mean bends and whose deviation grows along the second column."""
    return np.sin(3 * X[:, 0]) + 0.5 * X[:, 1] + (0.2 + 0.15 * (X[:, 1] > 0)) * random.normal(size=len(X))


def _noise(draw: Draw, seed: int, rows: int = ROWS) -> Table:
    random = np.random.default_rng(seed)
    X = random.uniform(-1, 1, (rows + TEST_ROWS, 4))
    y = draw(random, X)
    return X[:rows], y[:rows], X[rows:], y[rows:]


def clean(rows: int = ROWS, seed: int = 0) -> Table:
    """Return rows of the law, and test rows."""
    return _noise(lambda random, X: law(X, random), seed, rows)


def tables(seed: int = 0) -> Iterator[tuple[str, Table]]:
    """Yield names and tables, of one draw."""
    noise = partial(_noise, seed=seed)
    yield "clean", clean(seed=seed)
    X, y, T, t = clean(seed=seed)
    wild = X.copy()
    wild[:3, 0] = 1e6
    yield "three inputs of 1e6", (wild, y, T, t)
    far = y.copy()
    far[:5] *= 1000
    yield "five targets times 1000", (X, far, T, t)
    lone = y.copy()
    lone[0] = 1e6
    yield "one target of 1e6", (X, lone, T, t)
    still, moved = (np.column_stack([rows, np.full(len(rows), value)]) for rows, value in ((X, 7.0), (T, 0.0)))
    yield "a column constant in training", (still, y, moved, t)
    gaps = [np.where(np.random.default_rng(seed + 1).random(rows.shape) < 0.1, np.nan, rows) for rows in (X, T)]
    yield "a tenth missing", (gaps[0], y, gaps[1], t)
    yield "30 rows", clean(30, seed)
    yield "10 rows", clean(10, seed)
    yield "counts", noise(lambda random, X: random.poisson(np.exp(1 + X[:, 0])).astype(float))
    yield "Student t, 2 degrees", noise(lambda random, X: X[:, 0] + 0.5 * random.standard_t(2, len(X)))
    yield "lognormal", noise(lambda random, X: np.exp(2 + X[:, 0] + 0.7 * random.normal(size=len(X))))
    yield "targets of 1e9 + 1e-2", noise(lambda random, X: 1e9 + 0.01 * law(X, random))


def row(name: str, method: str, draw: int) -> list[Any]:
    """Return the row of one table, method and draw; what a method cannot do is part of what is shown."""
    import torch

    torch.set_num_threads(1)
    table = dict(tables(draw))[name]
    try:
        with np.errstate(all="ignore"):
            every = score(*table, method, seed=0)
        scores = {key: every[key] for key in COLUMNS if key in every}
        lost = [key for key, value in scores.items() if not np.isfinite(value)]
        found = [*(f"{value:.4g}" for value in scores.values()), f"{' and '.join(lost)} not finite" if lost else ""]
    except ImportError:
        raise
    except Exception as error:
        found = ["", "", "", "", " ".join(f"{type(error).__name__}: {error}".split())[:120]]
    return [name, method, draw, *found, hardware()]


def write_means(rows: list[list[Any]], path: Path) -> None:
    """Write means over the draws in which a method did not fail, the standard error of the CRPS, and failures."""
    groups: dict[tuple[str, str], list[list[Any]]] = defaultdict(list)
    for own in rows:
        groups[own[0], own[1]].append(own[3:8])
    lines: list[list[Any]] = []
    for (name, method), found in groups.items():
        scores = np.array([own[:4] for own in found if not own[4]], dtype=np.float64)
        shown = ["", "", "", "", ""]
        if len(scores):
            crps, nll, held, seconds = (f"{mean:.4g}" for mean in scores.mean(0))
            error = f"{scores[:, 0].std(ddof=1) / np.sqrt(len(scores)):.2g}" if len(scores) > 1 else ""
            shown = [crps, error, nll, held, seconds]
        lines.append([name, method, len(found), len(found) - len(scores), *shown])
    write(path, MEANS, lines)


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--methods", nargs="+", choices=list(METHODS), default=["fourier", "ngboost", "lightgbm"])
    parser.add_argument("--tables", nargs="+", default=[name for name, _ in tables()])
    parser.add_argument("--draws", type=int, default=5, help="of each table")
    parser.add_argument("--jobs", type=int, default=1, help="processes, of one thread each")
    parser.add_argument("--output", type=Path, default=RESULTS / "table-robustness.csv")
    arguments = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    draws = range(arguments.draws)
    tasks = [(name, method, draw) for draw in draws for name in arguments.tables for method in arguments.methods]
    rows: list[list[Any]] = []
    arguments.output.unlink(missing_ok=True)
    with ProcessPoolExecutor(arguments.jobs) as pool:
        for future in [pool.submit(row, *task) for task in tasks]:
            try:
                rows.append(future.result())
            except ImportError:
                continue
            append(arguments.output, COLUMNS, rows[-1])
            print(*rows[-1], flush=True)
            write_means(rows, arguments.output.with_name("table-robust-means.csv"))


if __name__ == "__main__":
    main()
