"""The study zero-shot at toy size: tiny sets, a tiny network, two variants of the ablation."""

import json
import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from studies.common.benchmark_sets import read_evaluation_sets, relative_scores
from studies.zero_shot import ablation, leaks, rescaled, speed, tails
from studies.zero_shot.study import Settings, run

from fourier_head.errors import UserError
from fourier_head.forecasting.corpora import SeriesStore
from fourier_head.forecasting.evaluation import EvaluationSet, evaluate_seasonal_naive
from fourier_head.forecasting.patch.model import PatchConfig, PatchForecaster
from fourier_head.forecasting.patch.pretrained import save_model
from fourier_head.tasks import engine

SHAPE = {"context": 64, "horizon": 64, "patch": 16, "width": 16, "layers": 1, "heads": 2}


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


@pytest.fixture
def corpus(tmp_path):
    return SeriesStore.from_series(waves(30, 120), period=12).save(tmp_path / "corpus.safetensors")


@pytest.fixture
def train_small(tmp_path, monkeypatch):
    """Save a small forecaster as "mine"; return the training of variants, as small."""
    torch.manual_seed(0)
    save_model(PatchForecaster(PatchConfig(**SHAPE)), tmp_path / "mine")
    monkeypatch.setattr(speed, "SERIES", {"cpu": 5})
    monkeypatch.setattr(tails, "SERIES", 3)
    monkeypatch.setattr(tails, "SAMPLES", 50)
    real = ablation.run_variant

    def train(**given):
        return real(**given, model=SHAPE)

    monkeypatch.setattr(ablation, "run_variant", train)
    return train


@pytest.mark.usefixtures("train_small")
def test_the_study_scores_a_forecaster_and_its_variants(tmp_path, sets, corpus):
    (tmp_path / "scores.csv").write_text("dataset,model,MASE,WQL\nmonash_m1_yearly,seasonal-naive,2.0,0.5\n")
    settings = Settings(
        tmp_path / "zero-shot",
        evaluation=sets,
        published=tmp_path / "scores.csv",
        model=str(tmp_path / "mine"),
        corpus=corpus,
        variants="density,quantiles",
        steps=2,
        batch=4,
        device="cpu",
    )
    run(settings)
    content = json.loads((tmp_path / "zero-shot" / "summary.json").read_text())
    by = {(r["dataset"], r["model"], r["metric"]): r["ours"] for r in content["rows"] if "model" in r}
    naive = evaluate_seasonal_naive(read_evaluation_sets(sets))
    mase = [by[one["dataset"], "mine", "mase"] / one["mase"] for one in naive]
    assert by["verified", "mine", "relative_mase"] == pytest.approx(np.exp(np.mean(np.log(mase))))
    assert by["ablation", "quantiles", "held_out_wql"] > 0
    assert by["ablation", "density", "relative_wql"] > 0
    assert by["5 monthly series", "mine", "per_second"] > 0
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


@pytest.mark.usefixtures("train_small")
def test_a_set_of_ones_own_is_scored_at_its_horizon(tmp_path, sets, corpus):
    for path in sets.iterdir():
        path.rename(path.with_name(f"own-{path.name}"))
    settings = Settings(
        tmp_path / "out",
        evaluation=sets,
        model=str(tmp_path / "mine"),
        corpus=corpus,
        variants="density",
        steps=2,
        batch=4,
        device="cpu",
        quick=True,
    )
    with pytest.raises(UserError, match="horizon must be given"):
        run(settings)
    summary = run(replace(settings, horizon=4))
    assert "--horizon 4" in summary.command
    scored = {r["dataset"]: r["ours"] for r in summary.rows if r["metric"] == "mase" and r.get("model") == "mine"}
    assert scored.keys() == {"own-m1_yearly", "own-cif_2016"}
    assert all(math.isfinite(score) for score in scored.values())
    assert summary.extra["notes"][0] == "A quick look: the first 50 series of each set."


def test_variants_stop_at_the_time_limit_and_go_on(tmp_path, sets, corpus, train_small, monkeypatch):
    settings = Settings(
        tmp_path / "zero-shot",
        evaluation=sets,
        model=str(tmp_path / "mine"),
        corpus=corpus,
        steps=2,
        batch=4,
        device="cpu",
    )
    trained, clock = [], engine.time.time

    def variant(**given):
        trained.append(given["variant"])
        result = train_small(**given)
        monkeypatch.setattr(engine.time, "time", lambda: math.inf)  # time is up after the first
        return result

    monkeypatch.setattr(ablation, "run_variant", variant)
    settings = replace(settings, variants="density,quantiles", time_limit=60.0)
    first = run(settings)
    monkeypatch.setattr(engine.time, "time", clock)
    second = run(replace(settings, time_limit=None))
    assert "1 runs of variants are missing" in first.extra["notes"][-1]
    assert {r["model"] for r in first.rows if r["dataset"] == "ablation"} == {"density"}
    assert {r["model"] for r in second.rows if r["dataset"] == "ablation"} == {"density", "quantiles"}
    assert trained == ["density", "quantiles"]
    runs = json.loads((tmp_path / "zero-shot" / "runs.json").read_text())
    spent = [one["train_seconds"] for one in runs if "variant" in one]  # one of the first call, one of the second
    assert second.seconds == pytest.approx(sum(spent), abs=0.01)
    assert second.extra["seconds_of"] == "the training of all variants"


def test_variants_change_one_thing():
    base = ablation.recipe_of("density")
    for name in ablation.VARIANTS:
        recipe = ablation.recipe_of(name)
        assert name == "density" or recipe != base, name
        assert recipe.seed == base.seed


def test_variants_learn_something(corpus):
    few, many = (
        ablation.run_variant("density", 0, steps, 16, str(corpus), None, "cpu", SHAPE)["validation"]["mase"]
        for steps in (1, 60)
    )
    assert many < few


def test_unknown_names_get_a_sentence(tmp_path, sets):
    with pytest.raises(UserError, match="--variants names no wings"):
        run(Settings(tmp_path, evaluation=sets, variants="wings"))
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
