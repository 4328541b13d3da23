"""Budgeted training: it ends where it should, and a run that was stopped goes on as if it had not been."""

import math
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from fourier_head._files import recover_folder, replace_folder
from fourier_head.errors import UserError
from fourier_head.forecasting.corpora.mix import BatchStream, standard_corpus
from fourier_head.forecasting.corpora.store import SeriesStore
from fourier_head.forecasting.patch.multiscale import MultiscaleConfig, MultiscaleForecaster
from fourier_head.forecasting.patch.pretrained import load_model
from fourier_head.training.averages import EarlyStopping
from fourier_head.training.data import Epochs
from fourier_head.training.loop import STATE, WEIGHTS, Training
from fourier_head.training.settings import TrainingSettings, rate
from tests.two_processes import launch

TINY = {"spans": (32,), "horizon": 16, "patch": 8, "width": 16, "layers": 1, "heads": 2, "frequencies": 3}


class Windowed(torch.nn.Module):
    """The loss of a small network on windows of series."""

    def __init__(self, **shape: object):
        super().__init__()
        torch.manual_seed(0)
        self.model = MultiscaleForecaster(MultiscaleConfig(**{**TINY, "dropout": 0.1, **shape}))

    def forward(self, *windows: torch.Tensor) -> torch.Tensor:
        return self.model.loss(*windows)


def store(count: int = 12) -> SeriesStore:
    rng = np.random.default_rng(0)
    waves = [np.sin(np.arange(120) * 2 * np.pi / 12) * rng.random() + rng.normal(size=120) / 10 for _ in range(count)]
    return SeriesStore.from_series(waves, period=12)


def settings(folder: Path, **more: object) -> TrainingSettings:
    return TrainingSettings(folder, **{"batch": 8, "steps": 24, "log_every": 4, "ema": 0.2, **more})


def prepare(settings: TrainingSettings, shape: dict | None = None, **corpus: object) -> Training:
    """Return the training of a small network on windows of waves."""

    def stream(process: int) -> BatchStream:
        return BatchStream(standard_corpus(store(), 32, 16, **corpus), settings.batch, rank=process)

    return Training(Windowed(**(shape or {})), stream, settings, "cpu")


def weights(training: Training) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in training.module.parameters()])


def test_a_run_that_was_stopped_continues_equally(tmp_path) -> None:
    whole = prepare(settings(tmp_path / "whole"))
    assert whole.run()
    first = prepare(settings(tmp_path / "parts", limit=1e-9))
    assert not first.run()
    assert first.step == 10  # the clock is looked at every ten steps
    second = prepare(settings(tmp_path / "parts"))
    assert second.run()
    assert torch.equal(weights(whole), weights(second))
    for name, value in whole.ema.weights.items():
        assert torch.equal(value, second.ema.weights[name])
    assert [line["step"] for line in second.history] == [line["step"] for line in whole.history]
    assert [line["loss"] for line in second.history[3:]] == [line["loss"] for line in whole.history[3:]]


def test_training_learns_and_uses_the_average(tmp_path) -> None:
    lines: list[dict[str, float]] = []
    chosen = settings(tmp_path, steps=150, batch=32, learning_rate=5e-3, log_every=10)
    run = prepare(chosen, {"dropout": 0.0, "loss": "crps"}, shares={"real": 1.0}, steps=())
    assert run.run(lines.append)
    run.use_ema()
    model = run.module.model
    assert np.mean([line["loss"] for line in lines[-3:]]) < 0.7 * lines[0]["loss"]
    assert lines[-1]["progress"] == 1
    average = torch.load(tmp_path / "checkpoint" / STATE, weights_only=True)["ema"]
    last = load_file(tmp_path / "checkpoint" / WEIGHTS)
    for name, weight in model.named_parameters():
        assert torch.equal(weight, average[f"model.{name}"])
    assert any(not torch.equal(last[name], value) for name, value in average.items())


def test_seconds_are_a_budget_over_all_runs(tmp_path) -> None:
    run = prepare(settings(tmp_path, steps=None, seconds=0.4))
    assert run.run()
    assert run.spent >= 0.4
    step = run.step
    again = prepare(settings(tmp_path, steps=None, seconds=0.4))
    assert again.run()
    assert again.step == step


# --- warmup_passes and captured passes


class Line(torch.nn.Module):
    """A loss that counts its calls, with dropout and a parameter that it uses only sometimes, and never here."""

    def __init__(self, dropout: float = 0.0):
        super().__init__()
        torch.manual_seed(0)
        self.layer, self.dropout = torch.nn.Linear(6, 3), torch.nn.Dropout(dropout)
        self.unused = torch.nn.Parameter(torch.ones(2))
        self.calls = 0

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return (self.dropout(self.layer(x)) - y).square().mean()


class TwoLosses(Line):
    """One whose parameters are all used, as processes that exchange gradients expect."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return super().forward(x, y) + self.unused.square().sum()


class Points:
    """Batches of eight; every seventh is of five, as the rest of a data set is."""

    def __init__(self, process: int, device: str = "cpu", odd: bool = True):
        self.generator, self.device, self.odd, self.count = torch.Generator().manual_seed(process), device, odd, 0

    def __next__(self) -> tuple[torch.Tensor, torch.Tensor]:
        self.count += 1
        rows = 5 if self.odd and self.count % 7 == 0 else 8
        x = torch.randn(rows, 6, generator=self.generator).to(self.device)
        return x, x[:, :3].cumsum(1)

    def state_dict(self) -> dict:
        return {"generator": self.generator.get_state(), "count": self.count}

    def load_state_dict(self, state: dict) -> None:
        self.generator.set_state(state["generator"])
        self.count = state["count"]


@pytest.mark.parametrize("more", [{"warmup_passes": 3}, {"graph": True}])
def test_on_a_cpu_neither_warmup_passes_nor_graphs_change_a_run(tmp_path, more: dict) -> None:
    """Rehearsals move neither weights, data nor dropout; there is no graph, so every step calls the loss."""
    plain = Training(Line(0.5), Points, settings(tmp_path / "plain", steps=20), "cpu")
    run = Training(Line(0.5), Points, settings(tmp_path / "more", steps=20, **more), "cpu")
    for one in (plain, run):
        torch.manual_seed(1)
        assert one.run()
    assert torch.equal(weights(plain), weights(run))
    assert [line["loss"] for line in plain.history] == [line["loss"] for line in run.history]
    assert (plain.module.calls, run.module.calls) == (20, 20 + more.get("warmup_passes", 0))


def test_a_module_of_which_a_part_is_elsewhere_is_moved_unless_it_is_marked_as_spread(tmp_path) -> None:
    whole, spread = Line(), Line()
    spread.hf_device_map = {"layer": "meta", "": "cpu"}
    for module in (whole, spread):
        module.layer.to("meta")
        Training(module, Points, settings(tmp_path / "run", ema=0), "meta")
    assert {p.device.type for p in whole.parameters()} == {"meta"}
    assert {p.device.type for p in spread.parameters()} == {"meta", "cpu"}


def test_runs_of_several_precisions_follow_each_other_in_one_process(tmp_path) -> None:
    losses = []
    for precision in ("no", "bf16", "no"):
        run = Training(Line(), Points, settings(tmp_path / str(len(losses)), steps=5, precision=precision), "cpu")
        assert run.run()
        losses.append(weights(run))
    assert torch.equal(losses[0], losses[2])
    assert not torch.equal(losses[0], losses[1])


def on_gpu(module: Line, folder: Path, **more: object) -> Training:
    chosen = settings(folder, **{"steps": 20, "log_every": 1, "warmup_passes": 2, **more})
    return Training(module, lambda process: Points(process, "cuda"), chosen)


@pytest.mark.gpu
def test_replayed_steps_train_as_others_do_without_a_call_of_the_loss(tmp_path) -> None:
    plain, replayed = (on_gpu(Line(), tmp_path / str(graph), graph=graph, precision="bf16") for graph in (False, True))
    begin = weights(plain).clone()
    assert plain.run()
    assert replayed.run()
    assert plain.module.calls == 2 + 20
    assert replayed.module.calls == 2 + 3 + 2  # warmup_passes, the capture, and two batches of another shape
    losses = [[line["loss"] for line in run.history] for run in (plain, replayed)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)
    assert torch.allclose(weights(plain), weights(replayed), rtol=1e-4)
    assert not torch.allclose(weights(plain), begin, rtol=1e-2)


@pytest.mark.gpu
def test_dropout_is_new_in_every_replay_and_goes_on_after_a_stop(tmp_path) -> None:
    def start(folder: str, **more: object) -> Training:
        chosen = settings(tmp_path / folder, steps=20, warmup_passes=1, log_every=1, graph=True, **more)
        return Training(Line(dropout=0.5), lambda process: Points(process, "cuda", odd=False), chosen)

    whole = start("whole")
    whole._warm_up()
    batch = next(whole.stream)
    assert float(whole._captured(*batch)) != float(whole._captured(*batch))
    whole = start("whole")
    assert whole.run()
    assert not start("parts", limit=1e-9).run()
    second = start("parts")
    assert second.run()
    assert [line["loss"] for line in second.history] == [line["loss"] for line in whole.history]


@pytest.mark.gpu
def test_a_step_that_waits_for_the_device_is_not_captured(tmp_path) -> None:
    class Waiting(Line):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return super().forward(x, y) * (1 if float(x.sum()) > 0 else 2)

    class Breaking(Line):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            if torch.cuda.is_current_stream_capturing():
                torch.cuda.synchronize()
            return super().forward(x, y)

    for kind in (Waiting, Breaking):
        plain = on_gpu(kind(0.5), tmp_path / f"{kind.__name__}-plain", graph=False)
        run = on_gpu(kind(0.5), tmp_path / kind.__name__, graph=True)
        torch.cuda.manual_seed(1)
        assert plain.run()
        torch.cuda.manual_seed(1)
        with pytest.warns(UserWarning, match="without a CUDA graph"):
            assert run.run()
        assert torch.allclose(weights(plain), weights(run), rtol=1e-4)
        assert torch.isfinite(torch.randn(3, device="cuda")).all()  # the generator works again
        assert torch.cuda.current_stream() == torch.cuda.default_stream()


def test_the_best_weights_are_kept_and_training_stops_when_they_get_no_better() -> None:
    scores = iter([5.0, 3.0, 4.0, 4.5, 1.0])
    seen = []

    def score() -> float:
        assert not module.training
        seen.append(module.layer.weight.detach().clone())
        return next(scores)

    module = Line()
    stopping = EarlyStopping(score, every=4, patience=2)
    run = Training(module, Points, TrainingSettings(batch=8, steps=40, learning_rate=1e-2), "cpu", stopping=stopping)
    assert run.run()
    assert (run.step, stopping.best, stopping.steps) == (12, 4, [0, 4, 8, 12])
    assert torch.equal(module.layer.weight, seen[1])
    assert not torch.equal(seen[1], seen[3])


def test_every_row_comes_once_an_epoch_and_a_stopped_epoch_goes_on() -> None:
    rows = Epochs(7, 3, lambda chosen: (chosen,), seed=0)
    assert rows.steps == 3
    first, second = ([next(rows)[0] for _ in range(3)] for _ in range(2))
    for epoch in (first, second):
        assert [len(batch) for batch in epoch] == [3, 3, 1]
        assert sorted(torch.cat(epoch).tolist()) == list(range(7))
    assert torch.cat(first).tolist() != torch.cat(second).tolist()
    next(rows)
    again = Epochs(7, 3, lambda chosen: (chosen,), seed=5)
    again.load_state_dict(rows.state_dict())
    assert [next(again)[0].tolist() for _ in range(5)] == [next(rows)[0].tolist() for _ in range(5)]


def test_parameters_may_have_rates_of_their_own_and_frozen_ones_stay() -> None:
    module = Line()
    module.layer.weight.requires_grad_(False)
    before = [p.detach().clone() for p in module.parameters()]
    settings = TrainingSettings(batch=8, steps=3, learning_rate=1e-2, warmup=0.0, decay=0.0)
    run = Training(module, Points, settings, "cpu", rates={module.layer.bias: 0.1})
    assert run.run()
    moved = {name: (p - old).abs().max() for (name, p), old in zip(module.named_parameters(), before, strict=True)}
    assert moved["layer.weight"] == 0
    assert moved["layer.bias"] > 0.05
    with pytest.raises(ValueError, match="wants a gradient"):
        Training(module.requires_grad_(False), Points, settings, "cpu")


def test_the_rate_rises_and_falls_to_zero() -> None:
    for schedule in ("linear", "cosine"):
        values = [rate(p, 0.1, schedule) for p in np.linspace(0, 1, 101)]
        assert values[0] == 0
        assert max(values) == pytest.approx(1)
        assert values[-1] == pytest.approx(0)
        assert np.all(np.diff(values[10:]) <= 1e-12)


def test_a_checkpoint_of_another_model_is_refused(tmp_path) -> None:
    prepare(settings(tmp_path, steps=1)).run()
    with pytest.raises(UserError, match="checkpoint of another model"):
        prepare(settings(tmp_path, steps=2), {"width": 24}).run()


def test_a_checkpoint_of_other_data_is_refused(tmp_path) -> None:
    prepare(settings(tmp_path, steps=1)).run()
    with pytest.raises(UserError, match="batches of 8"):
        prepare(settings(tmp_path, steps=2, batch=4)).run()


def test_time_is_counted_to_the_last_step(tmp_path) -> None:
    """Also where a run ends before its second look at the clock."""

    class Slow(Line):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            time.sleep(0.03)
            return super().forward(x, y)

    run = Training(Slow(), Points, settings(tmp_path, steps=5), "cpu")
    assert run.run()
    assert run.spent >= 5 * 0.03


@pytest.mark.parametrize("more", [{"steps": None}, {"seconds": 3.0}, {"batch": 0}, {"learning_rate": -1.0}])
def test_bad_settings_get_a_sentence(tmp_path, more: dict) -> None:
    with pytest.raises(ValueError, match="must be"):
        settings(tmp_path, **more)


def test_a_loss_that_is_no_number_stops_the_run(tmp_path) -> None:
    run = prepare(settings(tmp_path))
    with torch.no_grad():
        next(run.module.parameters()).fill_(math.nan)
    with pytest.raises(UserError, match="the loss is nan at step 4"):
        run.run()


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


IN_EACH_PROCESS = """
import sys
import torch
import torch.distributed as dist
from fourier_head.forecasting.patch.pretrain import VARIANTS, Variant, main
from fourier_head.training.processes import agreed
from tests.forecasting.test_multiscale import SMALL_BUCKETS
from tests.training.gradients import check_gradients
from tests.training.test_training import TwoLosses, Training, TrainingSettings, Points

VARIANTS["recipe"] = Variant({"spans": (64, 640), "horizon": 256, "width": 24, "heads": 2}, {}, SMALL_BUCKETS)
main(sys.argv[1:])
assert dist.get_world_size() == 2
assert agreed(7.25 + dist.get_rank(), "cpu") == 7.25
run = Training(TwoLosses(), Points, TrainingSettings(batch=8, steps=3), "cpu")
assert run.run()
mine = run.module.layer.weight.detach()
all_of_them = [torch.empty_like(mine) for _ in range(2)]
dist.all_gather(all_of_them, mine)
assert torch.equal(*all_of_them)
assert not torch.equal(mine, TwoLosses().layer.weight)
check_gradients()
"""


def test_two_processes_train_one_model(tmp_path) -> None:
    # All that takes two processes in one go: starting them is what takes time.
    corpus = store().save(tmp_path / "corpus.safetensors")
    words = ["--corpus", str(corpus), "--size", "tiny", "--layers", "1", "--batch", "16", "--steps", "2"]
    words += ["--device", "cpu"]
    script = tmp_path / "script.py"
    script.write_text(IN_EACH_PROCESS)
    launch(str(script), *words, "--output", str(tmp_path))
    states = torch.load(tmp_path / "checkpoint" / "data.pt", weights_only=True)
    assert len(states) == 2
    assert not torch.equal(*(one["stream"]["0"]["generator"] for one in states))
    assert load_model(tmp_path / "model").config.horizon == 256


def test_a_process_group_is_destroyed_before_python_ends(tmp_path) -> None:
    program = """
import atexit
import torch.distributed as dist
from fourier_head.training.processes import destroy_group_at_exit
atexit.register(lambda: print("a group is left" if dist.is_initialized() else "gone"))
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
destroy_group_at_exit()
destroy_group_at_exit()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout) == (0, "gone\n"), done.stderr
