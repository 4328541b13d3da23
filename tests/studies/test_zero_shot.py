"""The study zero-shot at toy size: tiny sets, a tiny network; and the search for copies of test values."""

import json
import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from studies.common.benchmark_sets import read_evaluation_sets, relative_scores
from studies.zero_shot import leaks, rescaled, speed, tails
from studies.zero_shot.study import Settings, run

from fourier_head.errors import UserError
from fourier_head.forecasting.corpora.store import SeriesStore
from fourier_head.forecasting.evaluation import EvaluationSet, evaluate_seasonal_naive
from fourier_head.forecasting.patch.multiscale import MultiscaleConfig, MultiscaleForecaster
from fourier_head.forecasting.patch.pretrained import save_model

SHAPE = {"spans": (64,), "horizon": 64, "patch": 16, "width": 16, "layers": 1, "heads": 2}


def waves(count: int, length: int) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [10 + np.sin(np.arange(length) / 2) + rng.normal(0, 0.3, length) for _ in range(count)]


@pytest.fixture
def sets(tmp_path):
    folder = tmp_path / "eval"
    folder.mkdir()
    for name, freq in (("m1_yearly", "YE"), ("cif_2016", "ME")):
        rows = [{"id": f"{i}", "start": "", "freq": freq, "target": x} for i, x in enumerate(waves(3, 40))]
        pd.DataFrame(rows).to_parquet(folder / f"{name}.parquet")
    return folder


@pytest.fixture(autouse=True)
def small(tmp_path, monkeypatch):
    """Save a small forecaster as "mine", and measure few series."""
    torch.manual_seed(0)
    save_model(MultiscaleForecaster(MultiscaleConfig(**SHAPE)), tmp_path / "mine")
    monkeypatch.setattr(speed, "SERIES", {"cpu": 5})
    monkeypatch.setattr(speed, "HOURLY", 2)
    monkeypatch.setattr(speed, "REPEATS", 1)
    monkeypatch.setattr(tails, "SERIES", 3)
    monkeypatch.setattr(tails, "SAMPLES", 50)


def test_the_study_scores_a_forecaster(tmp_path, sets):
    (tmp_path / "scores.csv").write_text("dataset,model,MASE,WQL\nmonash_m1_yearly,seasonal-naive,2.0,0.5\n")
    settings = Settings(
        tmp_path / "zero-shot",
        evaluation=sets,
        published=tmp_path / "scores.csv",
        model=str(tmp_path / "mine"),
        device="cpu",
    )
    run(settings)
    content = json.loads((tmp_path / "zero-shot" / "summary.json").read_text())
    by = {(r["dataset"], r["model"], r["metric"]): r["ours"] for r in content["rows"] if "model" in r}
    naive = evaluate_seasonal_naive(read_evaluation_sets(sets))
    mase = [by[one["dataset"], "mine", "mase"] / one["mase"] for one in naive]
    assert by["verified", "mine", "relative_mase"] == pytest.approx(np.exp(np.mean(np.log(mase))))
    assert by["5 monthly series", "mine", "per_second"] > 0
    assert by["2 hourly series", "mine", "seconds"] > 0
    truth = {r["metric"]: r["truth"] for r in content["rows"] if r["dataset"] == "normal, 100 and 10"}
    assert truth["total_0.99"] == pytest.approx(1400 + 2.326 * 10 * 14**0.5, rel=0.002)
    assert truth["quantile_0.001"] == pytest.approx(100 - 30.9, abs=0.5)
    assert by["normal, 100 and 10", "mine", "quantile_0.999"] > by["normal, 100 and 10", "mine", "quantile_0.95"]
    assert {p.name for p in (tmp_path / "zero-shot").glob("*.png")} >= {"overview.png", "calibration.png"}
    beside = [r["published"] for r in content["rows"] if r.get("published")]
    assert beside == [2.0, 0.5]
    assert "--evaluation EVALUATION --published PUBLISHED " in content["command"]
    assert content["command"].endswith(" -o zero-shot")
    assert "/" not in content["command"].replace("fourier-head study", "").replace(str(tmp_path / "mine"), "")


def test_a_set_of_ones_own_is_scored_at_its_horizon(tmp_path, sets):
    for path in sets.iterdir():
        path.rename(path.with_name(f"own-{path.name}"))
    settings = Settings(tmp_path / "out", evaluation=sets, model=str(tmp_path / "mine"), device="cpu", quick=True)
    with pytest.raises(UserError, match="horizon must be given"):
        run(settings)
    summary = run(replace(settings, horizon=4))
    assert "--horizon 4" in summary.command
    scored = {r["dataset"]: r["ours"] for r in summary.rows if r["metric"] == "mase" and r.get("model") == "mine"}
    assert scored.keys() == {"own-m1_yearly", "own-cif_2016"}
    assert all(math.isfinite(score) for score in scored.values())
    assert summary.extra["notes"][0] == "A quick look: the first 50 series of each set."


def test_unknown_names_get_a_sentence(tmp_path, sets):
    with pytest.raises(UserError, match="neither a folder"):
        run(Settings(tmp_path, evaluation=sets, model="nowhere"))


def test_relative_scores_of_seasonal_naive_are_one(sets):
    naive = evaluate_seasonal_naive(read_evaluation_sets(sets))
    assert relative_scores(naive, naive)[0]["relative_mase"] == pytest.approx(1)


def test_copies_of_test_values_are_found_in_other_units_and_sums():
    rng = np.random.default_rng(0)
    truth = [100 + 10 * rng.normal(size=80).cumsum() for _ in range(4)]
    daily = np.repeat(truth[2] / 7, 7)  # whose weeks add up to the third
    hidden = [
        rng.normal(size=200),
        np.concatenate([rng.normal(size=30), np.round(3.7 * truth[0] - 1000, 1), rng.normal(size=9)]),
        np.round(truth[1][:-1] / 50, 1),  # without the last value, and hardly a digit left
        daily,
    ]
    store = SeriesStore.from_series(hidden, "hidden", period=[12, 12, 12, 7])
    tested = [EvaluationSet("tested", [x.astype(np.float32) for x in truth], 18, 12, "ME")]
    (row,) = rescaled.search(store, tested, leaks.versions)
    copies = row.pop("copies")
    assert row == {"dataset": "tested", "windows": 4, "forwards": 2, "backwards": 0, "from": {"hidden": 2}}
    assert {one["window"]: one["series"] for one in copies} == {0: "1", 2: "3"}
    (row,) = rescaled.search(store.select(torch.tensor([0])), tested, leaks.versions)
    assert row["forwards"] == 0


def test_the_search_names_series_by_their_ids(tmp_path, sets):
    series = [*np.random.default_rng(1).normal(size=(2, 90)), np.round(2.5 * waves(3, 40)[0] + 7, 2)]
    rows = [{"id": name, "freq": "ME", "target": x} for name, x in zip("abc", series, strict=True)]
    pd.DataFrame(rows).to_parquet(tmp_path / "hidden.parquet")
    out = tmp_path / "leaks.json"
    leaks.main(["--corpus", str(tmp_path / "hidden.parquet"), "--evaluation", str(sets), "--output", str(out)])
    found = json.loads(out.read_text())["rescaled"]["sets"]
    assert {(one["set"], one["series"]) for row in found for one in row["copies"]} == {("hidden", "c")}
