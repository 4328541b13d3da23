"""Score test rows that training has, too, apart from the others: ``python -m benchmarks.table_twins --data FOLDER``.

Of the red wines many rows come more than once, so that a standard split has test rows with a twin in training, inputs
and target alike. Who remembers rows is right there, which says nothing of new ones. Each method is fitted as in
``benchmarks.tables``, and each split is a row of ``results/table-twins.csv``: the share of the test rows that have a
twin, the mean CRPS of these, and that of the others. A row of no split has the means over the splits. Rows of methods
that are not asked for stay as they are.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.files import RESULTS, parser_of, read, write
from benchmarks.table_methods import METHODS, Floats
from benchmarks.tables import SETS

COLUMNS = ("dataset", "method", "split", "twins", "crps_twins", "crps_others", "hardware")


def twins(rows: Floats, test: Floats) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Tell which test rows are equal to a training row in every column.

    >>> twins(np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([[3.0, 4.0], [3.0, 2.0]]))
    array([ True, False])
    """
    known = {tuple(row) for row in rows.tolist()}
    return np.array([tuple(row) in known for row in test.tolist()])


def split_scores(table: dict[str, Any], method: str, split: int) -> tuple[float, float, float]:
    """Fit a method to a split; return the share of twins, their CRPS and that of the other test rows."""
    X, y, rows, test = table["X"], table["y"], table["train_index"][split], table["test_index"][split]
    crps = METHODS[method](X[rows], y[rows], split)(X[test]).crps(y[test])
    both = np.column_stack([X, y])
    found = twins(both[rows], both[test])
    return float(found.mean()), float(crps[found].mean()), float(crps[~found].mean())


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder with the npz files")
    parser.add_argument("--set", choices=SETS, default="wine-quality-red")
    parser.add_argument("--splits", type=int, default=20)
    parser.add_argument(
        "--methods", nargs="+", choices=list(METHODS), default=["fourier", "quantile-forest", "lightgbm"]
    )
    parser.add_argument("--output", type=Path, default=RESULTS / "table-twins.csv")
    arguments = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    import torch

    from fourier_head.compare.results import hardware

    torch.set_num_threads(1)
    with np.load(arguments.data / f"{arguments.set}.npz") as file:
        table = {name: file[name] for name in file.files}
    lines: list[list[Any]] = []
    for method in arguments.methods:
        found = []
        for split in range(min(arguments.splits, len(table["train_index"]))):
            found.append(split_scores(table, method, split))
            lines.append([arguments.set, method, split, *(f"{value:.5g}" for value in found[-1]), hardware()])
            print(*lines[-1], flush=True)
        means = np.mean(found, axis=0)
        lines.append([arguments.set, method, "", *(f"{value:.5g}" for value in means), hardware()])
        print(*lines[-1], flush=True)
    known = read(arguments.output)
    asked = {(arguments.set, method) for method in arguments.methods}
    others = [[row[name] for name in COLUMNS] for row in known if (row["dataset"], row["method"]) not in asked]
    write(arguments.output, COLUMNS, [*others, *lines])


if __name__ == "__main__":
    main()
