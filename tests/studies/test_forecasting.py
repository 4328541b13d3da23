"""The forecasting study: arms by name, a quick run that is kept and gone on with, and what it writes."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from rich.console import Console
from studies.chronos import charts, runs, study
from studies.chronos.arms import GROUPS, PAPER, parse_arm, parse_arms
from studies.chronos.runs import Protocol, artificial_sets, errors_path, read_corpus, read_sets, run_arm, share_of
from studies.chronos.study import Settings, run
from studies.cli import app
from studies.common.forecast_scores import RELATIVE
from typer.testing import CliRunner

from fourier_head.errors import UserError
from fourier_head.forecasting.corpora.store import SeriesStore
from fourier_head.tasks.runs import RunStore
from fourier_head.version import __version__

# --- arms


def test_every_named_arm_can_be_built():
    protocol = Protocol(size="test", context=16, horizon=4, ids=1200)
    for name in (arm for group in GROUPS.values() for arm in group):
        arm = parse_arm(name)
        assert arm.label == name
        model, tokenizer = protocol.model(replace(arm, size="test"), 0)
        assert model.head.out_features == tokenizer.num_ids == 1200
    assert parse_arm("fourier-550-uniform").about["protocol"] == "uniform bins"
    assert parse_arm("fourier-550-free").gamma == 0
    assert parse_arm("fourier-64").gamma == 1e-6
    assert parse_arm("linear-tied").head.tied
    assert set(PAPER) <= set(GROUPS["paper"] + GROUPS["ablations"])


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("fourier", "there is|no arm 'fourier'"),
        ("linaer", "did you mean linear"),
        ("linear-packets", "nothing a linear head has"),
        ("fourier-64-tied", "no weights to tie"),
        ("linear@size=huge", "must be size="),
        ("linear@data=2", "a share up to 1"),
    ],
)
def test_bad_arms_get_one_sentence(text, sentence):
    with pytest.raises(UserError, match=sentence):
        parse_arms(text)


# --- data


def test_a_share_of_the_data_keeps_every_set():
    store = SeriesStore.from_series([np.arange(20.0) + i for i in range(100)])
    few = share_of(store, 0.1, 0)
    assert few is not None
    assert len(few) == 10
    assert share_of(store, 1.0, 0) is store
    assert share_of(None, 0.5, 0) is None


def test_a_corpus_that_does_not_do_gets_one_sentence(tmp_path):
    with pytest.raises(UserError, match=r"--corpus has no share of 0\.1"):
        share_of(SeriesStore.from_series([np.arange(50.0)]), 0.1, 0)
    short, protocol = SeriesStore.from_series([np.arange(20.0)] * 3), Settings(quick=True).protocol
    with pytest.raises(UserError, match="--recipe standard: no series is long enough"):
        run_arm(parse_arm("linear"), protocol, short, artificial_sets(2), 0, tmp_path, device="cpu")


def test_missing_files_get_one_sentence(tmp_path):
    with pytest.raises(UserError, match="--corpus must be"):
        read_corpus(tmp_path / "none")
    with pytest.raises(UserError, match="--evaluation must name"):
        read_sets(None)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"positions": "far"}, r"--positions must .*got far"),
        ({"init": -1.0}, "--init must be positive, got -1"),
        ({"size": "huge"}, "--size must be one of"),
        ({"learning_rate": -1.0}, "--learning-rate must be positive, got -1"),
        ({"device": "tpu"}, "--device must be"),
    ],
)
def test_bad_options_get_one_sentence(options, words):
    with pytest.raises(UserError, match=words):
        run(Settings(quick=True, **options))


def test_sets_of_ones_own_need_a_horizon(tmp_path):
    series = [{"id": "a", "start": "", "freq": "ME", "target": np.arange(30.0)}]
    pd.DataFrame(series).to_parquet(tmp_path / "mine.parquet")
    with pytest.raises(UserError, match="horizon must be given for mine"):
        read_sets(tmp_path)
    (one,) = read_sets(tmp_path, horizon=5)
    assert one.horizon == 5


# --- a quick run


@pytest.fixture(scope="module")
def settings(tmp_path_factory):
    folder = tmp_path_factory.mktemp("study")
    return Settings(output=folder / "forecasting", checkpoints=folder / "models", quick=True, seconds=1.0, device="cpu")


def test_a_quick_study_trains_scores_writes_and_is_not_repeated(settings):
    assert run(replace(settings, summarise=True)) is None  # nothing is finished, nothing is written
    summary = run(settings)
    assert summary is not None
    found = {(row["model"], row["metric"]): row for row in summary.rows if row["dataset"] == "all"}
    for model in ("linear", "fourier-16"):
        assert found[model, "relative_mase"]["sets"] == len(artificial_sets())
        assert found[model, "smoothness"]["ours"] > 0
        assert found[model, "samples"]["ours"] >= 32
        assert found[model, "relative_mase"]["paper"] is None  # other sets than the paper's
    assert found["fourier-16", "smoothness"]["frequencies"] == 16
    naive = [row for row in summary.rows if row["head"] == "seasonal_naive"]
    assert {row["dataset"] for row in naive} == {"waves", "growth"}
    assert "Scores are those of 20 sample paths that share out what may happen" in summary.extra["notes"][2]
    runs = json.loads((settings.output / "runs.json").read_text())
    assert [one["model"] for one in runs] == ["linear", "fourier-16"]
    for name in ("overview", "relative-mase", "relative-wql", "calibration", "next-token", "training"):
        assert (settings.output / f"{name}.png").stat().st_size > 1000
    assert summary.command == "python -m studies forecasting --seconds 1.0 --quick -o forecasting"

    again = run(replace(settings, summarise=True, device="cuda"))  # which may be elsewhere
    assert again is not None
    assert [row["ours"] for row in again.rows] == [row["ours"] for row in summary.rows]


def test_an_arm_stopped_at_its_limit_goes_on(tmp_path):
    protocol, sets = replace(Settings(quick=True).protocol, steps=30, batch=4), artificial_sets(2)
    arm, options = parse_arm("fourier-8"), {"device": "cpu"}
    assert run_arm(arm, protocol, None, sets, 0, tmp_path, **options, limit=0.01) is None
    before = torch.load(tmp_path / "checkpoint" / "state.pt", weights_only=True)
    assert 10 <= before["step"] < 30
    result = run_arm(arm, protocol, None, sets, 0, tmp_path, **options)
    assert result is not None
    assert result["steps"] == 30
    assert result["training_seconds"] > before["seconds"]
    assert len(result["scores"]) == 2
    assert (tmp_path / "model" / "config.json").exists()


def test_a_budget_of_steps_takes_the_place_of_seconds(tmp_path):
    settings = Settings(output=tmp_path / "out", checkpoints=tmp_path / "models", quick=True, steps=20, device="cpu")
    summary = run(replace(settings, first_seed=3))
    assert summary is not None
    results = json.loads((settings.output / "runs.json").read_text())
    assert [one["steps"] for one in results] == [20, 20]
    assert [x for x, _ in results[0]["curve"]] == [10, 20]
    assert "for 20 steps on" in summary.extra["notes"][1]
    assert summary.command == "python -m studies forecasting --steps 20 --first-seed 3 --quick -o out"
    assert (settings.output / "next-token.png").stat().st_size > 1000  # of the first seed there is


def test_weights_depend_on_the_budget_alone_that_counts():
    arm, protocol = parse_arm("linear"), Protocol()
    assert protocol.training(arm, 0, "") == replace(protocol, sampling="plain").training(arm, 0, "")
    assert "steps" not in protocol.training(arm, 0, "")
    assert "seconds" not in replace(protocol, steps=5).training(arm, 0, "")


def test_models_read_as_many_tokens_as_asked_and_start_as_asked():
    assert (Settings().protocol.context, Settings().protocol.lengths) == (512, (128, 512))
    assert Settings(context=96).protocol.lengths == (96,)
    model, _ = replace(Settings(context=200).protocol, size="test", ids=130).model(parse_arm("linear"), 0)
    assert (model.config.context, model.config.near, model.config.init) == (200, True, 0.15)
    model, _ = replace(Settings(positions="noise", init=0.3).protocol, size="test", ids=130).model(
        parse_arm("linear"), 0
    )
    assert (model.config.near, model.config.init) == (False, 0.3)


def test_a_trained_arm_is_scored_again_without_training(tmp_path, monkeypatch):
    protocol, sets = replace(Settings(quick=True).protocol, seconds=1.0, batch=4), artificial_sets(3)
    store = SeriesStore.from_series([np.arange(100.0) % 12 + i for i in range(4)], period=12)
    arm = parse_arm("linear@data=0.01")
    first = run_arm(arm, protocol, store, sets, 0, tmp_path, device="cpu")
    monkeypatch.setattr(runs, "train_arm", None)
    same, plain = (
        run_arm(arm, replace(protocol, sampling=how), store, sets, 0, tmp_path, device="cpu")
        for how in ("trimmed", "plain")
    )
    assert first is not None
    assert same is not None
    assert plain is not None
    assert first["share"] == 0.25  # every set keeps a series
    for one in (same, plain):
        assert {key: one[key] for key in ("steps", "curve", "loss")} == {
            key: first[key] for key in ("steps", "curve", "loss")
        }
    assert [row["mase"] for row in same["scores"]] == [row["mase"] for row in first["scores"]]
    assert [row["mase"] for row in plain["scores"]] != [row["mase"] for row in first["scores"]]


def test_arms_that_are_named_are_those_of_a_quick_look(settings):
    with pytest.raises(UserError, match="no arm ''"):
        run(replace(settings, arms=""))
    said = io.StringIO()
    run(replace(settings, arms="paper", summarise=True), Console(file=said, width=200))
    missing, _, further = said.getvalue().partition(" ")
    assert int(missing) >= 4  # of five, where an earlier test may have made one
    assert further == "runs are not finished; the same command without --summarise goes on from there.\n"


def test_processes_begin_an_arm_together_or_not_at_all(settings, monkeypatch):
    monkeypatch.setattr(study, "agreed", lambda _, device: 0.0)  # the first process has no time left
    assert run(replace(settings, arms="fourier-3")) is None
    monkeypatch.setattr(study, "agreed", lambda _, device: 27.0)
    limits = []
    monkeypatch.setattr(study, "run_arm", lambda *_, limit, **__: limits.append(limit))
    assert run(replace(settings, arms="fourier-3", limit=1.0)) is None
    assert limits == [27.0]


def test_the_linear_head_is_a_line_among_the_frequencies():
    arms = {name: parse_arm(name) for name in ("fourier-64", "fourier-550")}
    names = [*arms, "linear"]
    means = {(name, key): 0.1 * i for i, name in enumerate(names, 1) for key in (*RELATIVE, "smoothness")}
    for panel in charts.frequency_chart(arms, means).panels:
        fourier, linear = panel.series
        assert (list(fourier.x), list(fourier.y)) == ([64, 550], [0.1, 0.2])
        assert (list(linear.x), list(linear.y)) == ([64, 550], pytest.approx([0.3, 0.3]))


def test_an_interrupt_says_what_the_folder_of_checkpoints_keeps(tmp_path, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(study, "run", interrupt)
    RunStore(tmp_path).put("linear", {}, {})
    stopped = CliRunner().invoke(app, ["forecasting", "--quick", "--checkpoints", str(tmp_path)])
    assert stopped.exit_code == 130
    assert "1 finished runs are kept" in stopped.stderr


def test_a_run_without_time_for_an_arm_says_so_and_keeps_the_others(settings):
    run(replace(settings, arms="linear"))  # which an earlier test may have done
    said = io.StringIO()
    # Written into the folder of the runs, which stay.
    mixed = replace(settings, arms="linear,fourier-4", limit=1.0, output=settings.checkpoints, max_series=50)
    summary = run(mixed, Console(file=said, width=200))
    assert summary is not None
    assert "1 runs are not finished; --limit must be above 65 to leave time for training, got 1." in said.getvalue()
    assert any(note.endswith("on at most 50 series of each set.") for note in summary.extra["notes"])
    assert list(RunStore(settings.checkpoints).folder.glob("linear-*"))
    models = {row.get("model") for row in summary.rows if row["metric"] == "relative_mase"}
    assert models <= {"linear"}
    assert any("1 runs are not finished" in note for note in summary.extra["notes"])


def test_errors_by_series_add_up_to_the_scores_of_averaged_weights(tmp_path):
    protocol, sets = replace(Settings(quick=True).protocol, steps=20, batch=4), artificial_sets(3)
    arm, options = parse_arm("linear"), {"device": "cpu"}
    results = {}
    for average in (0.0, 0.2):
        chosen, folder = replace(protocol, average=average), tmp_path / str(average)
        result = run_arm(arm, chosen, None, sets, 0, folder, **options)
        assert result is not None
        errors = np.load(errors_path(folder, chosen))
        for row in result["scores"]:
            part = {key: errors[f"{row['dataset']}.{key}"] for key in ("scaled", "count", "loss", "size")}
            assert len(part["scaled"]) == 3
            assert part["scaled"].sum() / part["count"].sum() == pytest.approx(row["mase"], rel=1e-5)
            assert part["loss"].sum() / part["size"].sum() == pytest.approx(row["wql"], rel=1e-5)
        results[average] = result
    # One training, other weights in the end; what was trained without an average is found as before there was one.
    assert results[0.0]["curve"] == results[0.2]["curve"]
    assert results[0.0]["scores"] != results[0.2]["scores"]
    assert "average" not in protocol.training(arm, 0, "")
    assert replace(protocol, average=0.2).training(arm, 0, "")["average"] == 0.2


@pytest.mark.skipif(__version__ != "0.1.0", reason="runs of another version are made again")
def test_committed_runs_are_known_so_that_they_are_not_made_again():
    """Of the seeds of the table: the plan to finish them counts on it."""
    folder = Path(__file__).parents[2] / "results" / "forecasting-seeds"
    committed = json.loads((folder / "runs.json").read_text(encoding="utf-8"))
    assert len(committed) >= 18
    protocol = Settings(steps=2900, batch=256, average=0.06, seeds=3).protocol
    for one in committed:
        arm = parse_arm(one["model"])
        key = protocol.training(arm, one["seed"], "21633 series, 27150305 values") | protocol.scoring
        key |= {"sets": [[score["dataset"], score["series"]] for score in one["scores"]]}
        assert RunStore(folder).path(f"{arm.label}, seed {one['seed']}", key).stem == one["key"]
