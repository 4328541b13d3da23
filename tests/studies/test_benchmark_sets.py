"""The Chronos zero-shot benchmark: its sets as they are read, published scores, relative ones."""

import math

import numpy as np
import pytest
from studies.common.benchmark_sets import (
    BENCHMARK,
    geometric_mean,
    read_evaluation_sets,
    read_published_scores,
    relative_scores,
)

from fourier_head.errors import UserError
from fourier_head.forecasting.evaluation import SEASONAL_NAIVE, EvaluationSet, evaluate_seasonal_naive


def test_relative_scores_are_geometric_means_of_ratios():
    def row(model, dataset, status, mase, wql, error=None):
        return {"model": model, "dataset": dataset, "status": status, "mase": mase, "wql": wql, "interval_error": error}

    naive = [row("naive", "a", "verified", 2, 1), row("naive", "b", "verified", 1, 1), row("naive", "c", "own", 1, 1)]
    ours = [
        row("m", "a", "verified", 1.0, 0.5, 0.02),
        row("m", "b", "verified", 2.0, 0.5, 0.04),
        row("m", "c", "own", 8.0, 1.0, 0.0),
        row("m", "unknown", "verified", 100.0, 100.0),
    ]
    verified, everything = relative_scores(ours, naive)
    assert [(one["dataset"], one["sets"]) for one in (verified, everything)] == [("verified", 2), ("all", 3)]
    assert verified["relative_mase"] == pytest.approx(1.0)
    assert verified["relative_wql"] == pytest.approx(0.5)
    assert everything["relative_mase"] == pytest.approx(2.0)
    assert verified["interval_error"] == pytest.approx(0.03)
    assert math.isnan(geometric_mean([]))
    assert math.isnan(geometric_mean([1.0, 0.0]))


def write_set(path, **columns):
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    pq.write_table(pa.table(columns), path)


def test_sets_are_read_with_what_the_benchmark_knows_of_them(tmp_path):
    long = np.arange(30.0).tolist()
    write_set(tmp_path / "hospital.parquet", id=["x"], start=["2000-01-01"], freq=["ME"], target=[long])
    write_set(
        tmp_path / "mine.parquet", id=["x", "y"], start=["", ""], freq=["h", "h"], target=[[*long[:-1], None], [1.0]]
    )
    hospital, mine = read_evaluation_sets(tmp_path, horizon=3)
    assert (hospital.horizon, hospital.season, hospital.status, hospital.starts) == (12, 12, "verified", ["2000-01-01"])
    assert (mine.horizon, mine.season, mine.status, len(mine)) == (3, 24, "own", 1)
    assert np.isnan(mine.targets()[0, -1])
    assert mine.series[0].dtype == np.float32
    assert read_evaluation_sets(tmp_path, ["hospital"])[0].name == "hospital"


def test_infinite_values_of_a_set_are_missing(tmp_path):
    write_set(tmp_path / "mine.parquet", freq=["D"], target=[[0.0, math.inf, 2.0, 3.0, 4.0, -math.inf]])
    (naive,) = evaluate_seasonal_naive(read_evaluation_sets(tmp_path, horizon=2))
    assert (naive["mase"], naive["wql"]) == (1.0, 0.25)  # the scale is that of the only step between two values


def test_bad_folders_and_files_get_one_sentence(tmp_path):
    with pytest.raises(UserError, match="must be a folder of parquet files"):
        read_evaluation_sets(tmp_path / "nowhere")
    two = [[1.0, 2.0], [1.0, 2.0]]
    for columns, words in (
        ({"freq": ["h", None], "target": two}, "one frequency, got None, h"),
        ({"freq": ["h"], "target": ["text"]}, r"lists of numbers, .* got string"),
        ({"freq": ["h"], "value": [1.0]}, "has no column 'target': "),
        ({"freq": ["h"], "target": [[1.0]]}, "longer than the horizon of 1, got none"),
        ({"freq": ["h", "D"], "target": two}, "one frequency, got D, h"),
    ):
        write_set(tmp_path / "mine.parquet", **columns)
        with pytest.raises(UserError, match=words):
            read_evaluation_sets(tmp_path, horizon=1)
    with pytest.raises(UserError, match="horizon must be given for mine"):
        read_evaluation_sets(tmp_path)
    with pytest.raises(UserError, match="did you mean mine"):
        read_evaluation_sets(tmp_path, ["mime"])
    with pytest.raises(ValueError, match="longer than the horizon"):
        EvaluationSet("short", [np.zeros(3)], 3, 1)


def test_seasonal_naive_gives_the_published_scores_of_every_verified_set(shared):
    published = {
        row["dataset"]: row for row in read_published_scores(shared / "reference/seasonal_naive_zero_shot.csv")
    }
    verified = [name for name, known in BENCHMARK.items() if known.status == "verified"]
    sets = read_evaluation_sets(shared / "data/eval", verified)
    rows = evaluate_seasonal_naive(sets)
    assert len(rows) == 15
    for row in rows:
        for key in ("mase", "wql"):
            assert row[key] == pytest.approx(published[row["dataset"]][key], rel=1e-5), (row["dataset"], key)


def test_published_models_have_the_aggregates_everyone_quotes(shared):
    rows = read_published_scores(shared / "reference/chronos_published_zero_shot.csv")
    naive = [row for row in rows if row["model"] == SEASONAL_NAIVE]
    assert len(naive) == 20
    assert sum(row["status"] == "verified" for row in naive) == 15
    got = {(row["model"], row["dataset"]): row for row in relative_scores(rows, naive)}
    wanted = {
        "chronos-t5-mini": (0.890, 0.785),
        "chronos-t5-large": (0.827, 0.716),
        "chronos-bolt-mini": (0.883, 0.727),
        "chronos-bolt-base": (0.825, 0.698),
    }
    for model, (mase, wql) in wanted.items():
        row = got[model, "verified"]
        assert row["sets"] == 15
        assert (round(row["relative_mase"], 3), round(row["relative_wql"], 3)) == (mase, wql)
    other = read_published_scores(shared / "reference/seasonal_naive_zero_shot.csv")
    assert {(r["dataset"], r["mase"]) for r in other} == {(r["dataset"], r["mase"]) for r in naive}


def test_bad_tables_of_published_scores_get_one_sentence(tmp_path):
    with pytest.raises(UserError, match="cannot be read"):
        read_published_scores(tmp_path / "none.csv")
    table = tmp_path / "table.csv"
    for text, words in (
        ("", "table of published scores"),
        ("a,b\n1,2\n", "table of published scores"),
        ("dataset,score\nm5,1\n", "table of published scores"),
        ("dataset,model,MASE,WQL\nm5,x,1.0,much\n", "got 'much' for x on m5"),
        ("dataset,model,MASE,WQL\nm5,x,1.0\n", "got '' for x on m5"),
    ):
        table.write_text(text)
        with pytest.raises(UserError, match=words):
            read_published_scores(table)
    table.write_text(",x,x,y,y\nset,MASE,WQL,MASE,WQL\nm5,1.0,0.5,1.0,\n")
    assert [row["model"] for row in read_published_scores(table)] == ["x"]  # y has one of two scores


def test_the_registry_names_every_set_once():
    assert len({known.published for known in BENCHMARK.values()}) == len(BENCHMARK) == 20
