"""Budgeted training: it ends where it should, and a run that was stopped goes on as if it had not been."""

import math
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from fourier_head.errors import UserError
from fourier_head.forecasting.checkpoints import load_tensors, recover_folder, replace_folder, save_tensors
from fourier_head.forecasting.corpora import SeriesStore
from fourier_head.forecasting.patch.model import PatchConfig
from fourier_head.forecasting.patch.recipe import Recipe, hold_out, prepare, train
from fourier_head.forecasting.patch.train import main
from fourier_head.forecasting.training import Training, TrainingSettings, rate
from fourier_head.forecasting.validation import Validation, group_of, validation_sets

TINY = PatchConfig(context=32, horizon=16, patch=8, width=16, layers=1, heads=2, frequencies=3, dropout=0.1)


def store(count: int = 12) -> SeriesStore:
    rng = np.random.default_rng(0)
    waves = [np.sin(np.arange(120) * 2 * np.pi / 12) * rng.random() + rng.normal(size=120) / 10 for _ in range(count)]
    return SeriesStore.from_series(waves, period=12)


def settings(folder: Path, **more: object) -> TrainingSettings:
    return TrainingSettings(folder, **{"batch": 8, "steps": 24, "log_every": 4, "average": 0.2, **more})


def weights(training: Training) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in training.module.parameters()])


def test_a_run_that_was_stopped_continues_equally(tmp_path) -> None:
    _, whole = prepare(Recipe(TINY), store(), settings(tmp_path / "whole"), "cpu")
    assert whole.run()
    _, first = prepare(Recipe(TINY), store(), settings(tmp_path / "parts", limit=1e-9, shard=1), "cpu")
    assert not first.run()
    assert first.step == 10  # the clock is looked at every ten steps
    _, second = prepare(Recipe(TINY), store(), settings(tmp_path / "parts"), "cpu")
    assert second.run()
    assert torch.equal(weights(whole), weights(second))
    for name, value in whole.average.weights.items():
        assert torch.equal(value, second.average.weights[name])
    assert [line["step"] for line in second.history] == [line["step"] for line in whole.history]
    assert [line["loss"] for line in second.history[3:]] == [line["loss"] for line in whole.history[3:]]


def test_training_learns_and_uses_the_average(tmp_path) -> None:
    lines: list[dict[str, float]] = []
    recipe = Recipe(PatchConfig(**{**TINY.__dict__, "dropout": 0.0}), {"real": 1.0}, augment=False)
    model, done = train(
        recipe, store(), settings(tmp_path, steps=150, batch=32, learning_rate=5e-3, log_every=10), "cpu", lines.append
    )
    assert done
    assert np.mean([line["loss"] for line in lines[-3:]]) < 0.7 * lines[0]["loss"]
    assert lines[-1]["progress"] == 1
    assert not model.training


def test_seconds_are_a_budget_over_all_runs(tmp_path) -> None:
    _, run = prepare(Recipe(TINY), store(), settings(tmp_path, steps=None, seconds=0.4), "cpu")
    assert run.run()
    assert run.spent >= 0.4
    step = run.step
    _, again = prepare(Recipe(TINY), store(), settings(tmp_path, steps=None, seconds=0.4), "cpu")
    assert again.run()
    assert again.step == step


def test_the_rate_rises_and_falls_to_zero() -> None:
    for schedule in ("linear", "cosine"):
        values = [rate(p, 0.1, schedule) for p in np.linspace(0, 1, 101)]
        assert values[0] == 0
        assert max(values) == pytest.approx(1)
        assert values[-1] == pytest.approx(0)
        assert np.all(np.diff(values[10:]) <= 1e-12)


def test_a_checkpoint_of_another_model_is_refused(tmp_path) -> None:
    prepare(Recipe(TINY), store(), settings(tmp_path, steps=1), "cpu")[1].run()
    other = PatchConfig(**{**TINY.__dict__, "width": 24})
    with pytest.raises(UserError, match="checkpoint of another model"):
        prepare(Recipe(other), store(), settings(tmp_path, steps=2), "cpu")[1].run()


@pytest.mark.parametrize("more", [{"steps": None}, {"seconds": 3.0}, {"batch": 0}, {"learning_rate": -1.0}])
def test_bad_settings_get_a_sentence(tmp_path, more: dict) -> None:
    with pytest.raises(ValueError, match="must be"):
        settings(tmp_path, **more)


def test_a_loss_that_is_no_number_stops_the_run(tmp_path) -> None:
    _, run = prepare(Recipe(TINY), store(), settings(tmp_path), "cpu")
    with torch.no_grad():
        next(run.module.parameters()).fill_(math.nan)
    with pytest.raises(UserError, match="the loss is nan at step 4"):
        run.run()


def test_tensors_are_cut_into_files_of_a_chosen_size(tmp_path) -> None:
    tensors = {"big": torch.randn(900_000), "small": torch.randn(3), "scalar": torch.tensor(2.0)}
    paths = save_tensors(tmp_path, "weights", tensors, shard=1)
    assert len(paths) > 3
    assert all(path.stat().st_size <= 1_001_000 for path in paths)
    for name, value in load_tensors(tmp_path, "weights").items():
        assert torch.equal(value, tensors[name])
    with pytest.raises(UserError, match="holds no other-0"):
        load_tensors(tmp_path, "other")


def test_a_folder_is_replaced_as_a_whole(tmp_path) -> None:
    place = tmp_path / "checkpoint"
    replace_folder(place, lambda folder: (folder / "a").write_text("1"))

    def broken(folder: Path) -> None:
        (folder / "a").write_text("2")
        raise RuntimeError

    with pytest.raises(RuntimeError):
        replace_folder(place, broken)
    assert (place / "a").read_text() == "1"
    place.rename(tmp_path / "checkpoint.old")  # killed between the two renames
    recover_folder(place)
    assert (place / "a").read_text() == "1"


def test_the_command_trains_stops_and_goes_on(tmp_path, capsys) -> None:
    words = ["--size", "tiny", "--batch", "4", "--device", "cpu", "--output", str(tmp_path), "--steps", "12"]
    assert main([*words, "--limit", "1e-9"]) == 0
    assert "goes on from here" in capsys.readouterr().out
    assert main(words) == 0
    assert capsys.readouterr().out.endswith("done\n")
    assert (tmp_path / "model" / "model.safetensors").exists()
    with pytest.raises(UserError, match="one of --steps and --seconds"):
        main(words[:-2])


def test_two_processes_train_one_model(tmp_path) -> None:
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node=2", "--master_port=29631"]
    command += ["-m", "fourier_head.forecasting.patch.train", "--size", "tiny", "--batch", "8", "--device", "cpu"]
    command += ["--output", str(tmp_path), "--steps", "12"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment)
    assert done.returncode == 0, done.stderr[-2000:]
    states = torch.load(tmp_path / "checkpoint" / "data.pt", weights_only=True)
    assert len(states) == 2
    assert not torch.equal(states[0]["stream"]["generator"], states[1]["stream"]["generator"])


def test_validation_sets_come_from_held_out_series_only() -> None:
    kept, held = hold_out(store(50))
    assert len(kept) == 48
    sets = validation_sets(held)
    assert [len(one) for one in sets] == [2]
    assert sets[0].horizon == 18
    assert group_of(sets[0].name) == "monthly"
    validation = Validation(sets)
    rows = [dict(row) for row in validation.naive.values()]
    assert validation.scores(rows)["all"]["mase"] == pytest.approx(1)
