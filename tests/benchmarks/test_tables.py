"""The summary of the benchmark of tables: which rows count, means, ranks."""

import csv

import pytest

from benchmarks import tables


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
