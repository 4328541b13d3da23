"""Try methods on tables as people have them: ``python -m benchmarks.table_robustness``.

One table of 400 rows with a known law, and the same table with what goes wrong in practice: outliers among inputs or
targets, a column that is constant in training only, gaps, counts, heavy tails, very few rows. All are scored on 2000
clean test rows of the same law, in the units of the target. ``results/table-robustness.csv`` has a row for each
table and method: CRPS, negative log-likelihood, coverage of the 90 % intervals, seconds of the fit, hardware.
"""

from __future__ import annotations

import argparse
import csv
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.head import RESULTS
from benchmarks.table_methods import METHODS, Floats
from fourier_head.compare.results import hardware

Table = tuple[Any, Floats, Any, Floats]
ROWS, TEST_ROWS = 400, 2000


def law(X: Floats, random: np.random.Generator) -> Floats:
    """Return targets whose mean bends and whose deviation grows along the second column."""
    return np.sin(3 * X[:, 0]) + 0.5 * X[:, 1] + (0.2 + 0.15 * (X[:, 1] > 0)) * random.normal(size=len(X))


def _noise(draw: Callable[[np.random.Generator, Floats], Floats], rows: int = ROWS) -> Table:
    random = np.random.default_rng(0)
    X = random.uniform(-1, 1, (rows + TEST_ROWS, 4))
    y = draw(random, X)
    return X[:rows], y[:rows], X[rows:], y[rows:]


def clean(rows: int = ROWS) -> Table:
    """Return rows of the law, and test rows."""
    return _noise(lambda random, X: law(X, random), rows)


def tables() -> Iterator[tuple[str, Table]]:
    """Yield names and tables."""
    yield "clean", clean()
    X, y, T, t = clean()
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
    gaps = [np.where(np.random.default_rng(1).random(rows.shape) < 0.1, np.nan, rows) for rows in (X, T)]
    yield "a tenth missing", (gaps[0], y, gaps[1], t)
    yield "30 rows", clean(30)
    yield "10 rows", clean(10)
    yield "counts", _noise(lambda random, X: random.poisson(np.exp(1 + X[:, 0])).astype(float))
    yield "Student t, 2 degrees", _noise(lambda random, X: X[:, 0] + 0.5 * random.standard_t(2, len(X)))
    yield "lognormal", _noise(lambda random, X: np.exp(2 + X[:, 0] + 0.7 * random.normal(size=len(X))))
    yield "targets of 1e9 + 1e-2", _noise(lambda random, X: 1e9 + 0.01 * law(X, random))


def score(table: Table, method: str) -> dict[str, float]:
    """Fit a method and return its scores on the test rows."""
    X, y, T, t = table
    start = time.perf_counter()
    predict = METHODS[method](X, y, 0)
    seconds = time.perf_counter() - start
    density = predict(T)
    low, high = density.interval(0.9).T
    scores = density.crps(t).mean(), -density.logpdf(t).mean(), np.mean((t >= low) & (t <= high)), seconds
    return dict(zip(("crps", "nll", "coverage_90", "seconds"), map(float, scores), strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--methods", nargs="+", choices=list(METHODS), default=["fourier", "ngboost", "lightgbm"])
    parser.add_argument("--output", type=Path, default=RESULTS / "table-robustness.csv")
    arguments = parser.parse_args()
    with arguments.output.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["table", "method", "crps", "nll", "coverage_90", "seconds", "hardware"])
        for name, table in tables():
            for method in arguments.methods:
                try:
                    found = [f"{value:.4g}" for value in score(table, method).values()]
                except ImportError:
                    continue
                except Exception as error:  # what a method cannot do is part of what is shown
                    print(name, method, type(error).__name__, error)
                    found = ["", "", "", ""]
                writer.writerow([name, method, *found, hardware()])
                file.flush()
                print(name, method, *found, flush=True)


if __name__ == "__main__":
    main()
