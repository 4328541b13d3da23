"""Score regressors on the UCI tables with the standard splits: ``python -m benchmarks.uci --data FOLDER``.

FOLDER holds ``<set>.npz`` with X, y, train_index and test_index. For each set, split and head a ``FourierRegressor`` is
fitted to the training rows with its default settings, the seed being the number of the split; the epoch is chosen on a
part of those rows. ``benchmarks/results/uci.csv`` gets mean and standard error over the splits of the test rows'
log-likelihood, CRPS and root mean squared error, in the units of the target.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from benchmarks.files import RESULTS, parser_of, read, save
from benchmarks.tables import density_scores
from fourier_head.compare.results import hardware
from fourier_head.integrations.scikit_learn import FourierRegressor

ARMS: dict[str, dict[str, str]] = {
    "fourier": {},
    "mixture": {"head": "mixture"},
    # What a mixture is usually trained on.
    "mixture-likelihood": {"head": "mixture", "loss": "likelihood"},
    "hl-gauss": {"head": "hl-gauss"},
    "linear": {"head": "linear"},
}
METRICS = ("log_likelihood", "crps", "rmse", "coverage_90")


def score(table: dict[str, np.ndarray], split: int, options: dict[str, str]) -> tuple[float, ...]:
    """Fit the training rows of a split and return the metrics of its test rows."""
    X, y = table["X"], table["y"]
    rows, test = table["train_index"][split], table["test_index"][split]
    model = FourierRegressor(**options, random_state=split).fit(X[rows], y[rows])  # type: ignore[arg-type]
    found = density_scores(model.predict_density(X[test]), y[test])
    return (-found["nll"], *(found[metric] for metric in METRICS[1:]))


def summary(name: str, arm: str, scores: list[tuple[float, ...]], seconds: float) -> dict[str, object]:
    """Return a row of the CSV: means and standard errors over splits."""
    values = np.array(scores)
    row: dict[str, object] = {"dataset": name, "head": arm, "splits": len(values)}
    for metric, column in zip(METRICS, values.T, strict=True):
        row[metric] = round(float(column.mean()), 4)
        error = float(column.std(ddof=1)) / len(column) ** 0.5 if len(column) > 1 else None
        row[f"{metric}_error"] = None if error is None else round(error, 4)
    return row | {"seconds_per_fit": round(seconds / len(values), 1), "hardware": hardware()}


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder with the npz files")
    parser.add_argument("--sets", nargs="+", help="names of sets; all in the folder unless given")
    parser.add_argument("--splits", type=int, default=20, help="how many of a set's splits")
    parser.add_argument("--heads", nargs="+", choices=list(ARMS), default=list(ARMS))
    parser.add_argument("--resume", action="store_true", help="keep what the CSV has of an interrupted run")
    arguments = parser.parse_args()
    rows: list[Mapping[str, object]] = [*read(RESULTS / "uci.csv")] if arguments.resume else []
    known = {(row["dataset"], row["head"], str(row["splits"])) for row in rows}
    for name in arguments.sets or sorted(path.stem for path in arguments.data.glob("*.npz")):
        table = dict(np.load(arguments.data / f"{name}.npz"))
        splits = range(min(arguments.splits, len(table["train_index"])))
        for arm in arguments.heads:
            if (name, arm, str(len(splits))) in known:
                continue
            start = time.perf_counter()
            scores = [score(table, split, ARMS[arm]) for split in splits]
            rows.append(summary(name, arm, scores, time.perf_counter() - start))
            print(*rows[-1].values(), flush=True)
            save(rows, "uci")


if __name__ == "__main__":
    main()
