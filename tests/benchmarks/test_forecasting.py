"""The benchmark of forecasters at tiny shapes: its rows, its table, and that it stops in time."""

from dataclasses import replace

import pytest

from benchmarks import forecasting

SIZES = replace(forecasting.QUICK, runs=1)


def chosen(**about):
    """Return the only case that is about this."""
    (case,) = [c for c in forecasting.cases(SIZES, "cpu") if about.items() <= c.about.items()]
    return case


@pytest.mark.parametrize(
    "about",
    [
        {"model": "T5", "head": "fourier-8", "attention": "sdpa", "batch": 2},
        {"model": "transformers T5, eager", "batch": 2},
        {"model": "multiscale", "head": "fourier", "data": "drawn"},
        {"task": "forecasting", "model": "multiscale"},
        {"task": "forecasting", "model": "T5"},
    ],
    ids=lambda about: " ".join(map(str, about.values())),
)
def test_a_row_says_what_was_measured(about, monkeypatch):
    if "transformers" in about["model"]:
        pytest.importorskip("transformers")
    case = chosen(**about)
    monkeypatch.setattr(forecasting, "cases", lambda *_: [case])
    (row,) = forecasting.measured(SIZES, "cpu")
    assert about.items() <= row.items()
    rate = 1e3 * case.samples / row["median_ms"]
    assert row["samples_per_s"] == pytest.approx(rate, rel=0.01, abs=0.5)  # a whole number
    assert row["runs"] == 1
    assert str(row["model"]) in forecasting.table([row])


def test_a_case_that_fails_is_left_out_and_the_others_run(monkeypatch, capsys):
    def broken():
        raise RuntimeError("no such kernel")

    good = chosen(model="multiscale", head="none")
    monkeypatch.setattr(forecasting, "cases", lambda *_: [replace(good, make=broken), good])
    assert [row["head"] for row in forecasting.measured(SIZES, "cpu")] == ["none"]
    assert "failed: RuntimeError no such kernel" in capsys.readouterr().out


def test_a_case_that_fails_later_leaves_those_it_is_timed_with(monkeypatch, capsys):
    def breaking():
        steps = iter(range(1))
        return lambda: next(steps)  # the first step goes, the second does not

    good = chosen(task="forecasting", model="T5")
    bad = replace(good, about=good.about | {"head": "bad"}, make=breaking)
    monkeypatch.setattr(forecasting, "cases", lambda *_: [bad, good])
    assert [row["head"] for row in forecasting.measured(SIZES, "cpu")] == [good.about["head"]]
    assert "failed: StopIteration" in capsys.readouterr().out


def test_cases_that_differ_in_the_head_alone_are_timed_in_turn(monkeypatch):
    steps = []

    def case(head: str, batch: int) -> forecasting.Case:
        about = {"task": "forecasting", "model": "multiscale", "head": head, "batch": batch}
        return forecasting.Case(about, lambda: lambda: steps.append((head, batch)), batch)

    monkeypatch.setattr(forecasting, "cases", lambda *_: [case("a", 1), case("b", 1), case("a", 2)])
    assert len(list(forecasting.measured(replace(SIZES, runs=2), "cpu"))) == 3
    begun, timed = [("a", 1), ("b", 1)], [("a", 1), ("b", 1)] * 2
    assert steps == [*begun, *timed, *[("a", 2)] * 3]


def test_nothing_is_begun_that_would_pass_the_limit(capsys):
    assert list(forecasting.measured(SIZES, "cpu", limit=1.0)) == []
    assert capsys.readouterr().out.count("left out for lack of time") == len(forecasting.cases(SIZES, "cpu"))


def test_rows_are_picked_by_what_they_are_about(capsys):
    picked = list(forecasting.measured(SIZES, "cpu", only="Training T5 linear sdpa no graph 4"))
    assert [(row["head"], row["batch"], row["data"]) for row in picked] == [
        ("linear", 4, "half short"), ("linear", 4, "given")
    ]  # fmt: skip
    assert capsys.readouterr().out.count("a second") == 2


def test_graphs_come_first_and_only_where_there_is_a_gpu():
    cases = [case.about for case in forecasting.cases(SIZES, "cuda")]
    assert [(about["head"], about["graph"]) for about in cases[:4]] == [
        ("fourier-8", "graph"), ("linear", "graph"), ("fourier-8", "no graph"), ("linear", "no graph")
    ]  # fmt: skip
    assert all(case.about.get("graph") != "graph" for case in forecasting.cases(SIZES, "cpu"))
