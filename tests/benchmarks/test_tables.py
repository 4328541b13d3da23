"""The summary of the benchmark of tables: which rows count, means, ranks."""

import csv

import numpy as np
import pytest

from benchmarks import table_methods, table_twins, tables


def fit(dataset, method, split, crps, revision="", hardware="usual", seconds="2"):
    """Return a row as a fit writes it."""
    scores = dict.fromkeys(tables.SCORES, "1") | {"crps": str(crps), "processor_seconds": seconds}
    about = {"dataset": dataset, "method": method, "split": str(split)}
    return about | scores | {"hardware": hardware, "revision": revision}


def test_the_newest_revision_with_most_splits_counts():
    old = [fit("yacht", "fourier", split, 1.0, "3") for split in range(3)]
    new = [fit("yacht", "fourier", 0, 0.5, "4")]
    others = [fit("yacht", "ngboost", 0, 2.0)]
    assert tables.newest([*old, *new, *others]) == [*old, *others]
    level = [fit("yacht", "fourier", split, 0.5, "4") for split in range(3)]
    assert tables.newest([*old, *level]) == level


def test_means_have_an_error_and_seconds_of_the_usual_machine(tmp_path):
    rows = [
        fit("yacht", "fourier", 0, 1.0, "3", seconds="4"),
        fit("yacht", "fourier", 1, 3.0, "3", seconds="6"),
        fit("yacht", "fourier", 2, 2.0, "3", "another", seconds="100"),
    ]
    tables.write_means(rows, tmp_path / "means.csv")
    with (tmp_path / "means.csv").open() as file:
        (found,) = csv.DictReader(file)
    assert (found["dataset"], found["method"], found["splits"], found["revision"]) == ("yacht", "fourier", "3", "3")
    assert float(found["crps"]) == 2.0
    assert float(found["crps_error"]) == pytest.approx(1 / 3**0.5, rel=1e-2)
    assert float(found["processor_seconds"]) == 5.0


def test_only_splits_that_every_method_has_are_compared():
    rows = [fit("yacht", "fourier", 0, 1.0), fit("yacht", "fourier", 1, 9.0), fit("yacht", "ngboost", 0, 2.0)]
    methods, sets, means = tables.mean_scores(rows, "crps")
    assert sets == ["yacht"]
    assert dict(zip(methods, means[0], strict=True)) == {"fourier": 1.0, "ngboost": 2.0}


def test_rows_that_training_has_are_scored_apart(monkeypatch):
    def remember(X, y, seed):
        known = {tuple(row): value for row, value in zip(X, y, strict=True)}

        def predict(rows):
            return table_methods.Normal(
                np.array([known.get(tuple(row), 100.0) for row in rows]), np.full(len(rows), 1e-6)
            )

        return predict

    monkeypatch.setitem(table_twins.METHODS, "memory", remember)
    # The third test row has the inputs of a training row, but another target, so it is no twin.
    X, y = np.array([[1.0], [2.0], [1.0], [3.0], [2.0]]), np.array([5.0, 6.0, 5.0, 7.0, 8.0])
    table = {"X": X, "y": y, "train_index": np.array([[0, 1]]), "test_index": np.array([[2, 3, 4]])}
    share, of_twins, of_others = table_twins.split_scores(table, "memory", 0)
    assert share == pytest.approx(1 / 3)
    assert of_twins == pytest.approx(0, abs=1e-5)
    assert of_others == pytest.approx((93 + 2) / 2, rel=1e-5)
