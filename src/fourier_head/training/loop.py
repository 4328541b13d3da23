"""Train within a budget of steps or seconds: accelerate underneath, checkpoints that continue the same run."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from fourier_head._devices import best_device
from fourier_head._files import recover_folder, replace_folder
from fourier_head.errors import UserError, needing
from fourier_head.training.averages import EMA, EarlyStopping
from fourier_head.training.data import Stream
from fourier_head.training.graphs import CapturedPass
from fourier_head.training.log import training_log
from fourier_head.training.processes import agreed, destroy_group_at_exit, rank_and_world
from fourier_head.training.settings import TrainingSettings

CHECKPOINT, WEIGHTS, STATE, DATA = "checkpoint", "model.safetensors", "state.pt", "data.pt"
"""Folder of a checkpoint within that of a training, and its files."""
CHECK_EVERY = 10
"""Steps between looks at the clock, at which many processes also agree on the time."""
Report = Callable[[dict[str, float]], None]


class Training:
    """A run: one module whose ``forward(*batch)`` is the loss, one stream of batches, one budget.

    Args:
        module: returns the loss of a batch; its parameters that want gradients are trained.
        stream: makes the stream of a process from its number; each must draw its own data.
        settings: how to train.
        device: where to train; the best device unless given. Many processes have one each.
        rates: learning rates of parameters that have one of their own.
        stopping: validation scores that decide when to stop and which weights to keep.

    Example:
        >>> from fourier_head.training.data import RandomStream
        >>> class Square(nn.Module):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.w = nn.Parameter(torch.ones(1))
        ...     def forward(self, x):
        ...         return ((self.w - x) ** 2).mean()
        >>> noise = lambda process: RandomStream(lambda g: (torch.randn(8, generator=g),), seed=process)
        >>> run = Training(Square(), noise, TrainingSettings(batch=8, steps=100), device="cpu")
        >>> run.run(), run.step
        (True, 100)
    """

    def __init__(
        self,
        module: nn.Module,
        stream: Callable[[int], Stream],
        settings: TrainingSettings,
        device: str | torch.device | None = None,
        *,
        rates: Mapping[nn.Parameter, float] | None = None,
        stopping: EarlyStopping | None = None,
    ):
        with needing("forecasting"):
            from accelerate import Accelerator
        # Precision and device are ours to set: accelerate allows one for all that a process ever trains.
        together = rank_and_world()[1] > 1
        self.accelerator = Accelerator(cpu=together and str(device) == "cpu", device_placement=False)
        destroy_group_at_exit()
        processes = self.accelerator.num_processes
        self.device = self.accelerator.device if processes > 1 else torch.device(device or best_device())
        if settings.batch % processes:
            raise UserError(f"batch must be a multiple of the {processes} processes, got {settings.batch}.")
        self.settings, self.stopping = settings, stopping
        self.module = module if _stays(module, self.device) else module.to(self.device)
        optimizer = _optimizer(module, settings, rates or {}, self.device.type == "cuda")
        self.ema = EMA(module, settings.ema) if settings.ema else None
        self.parallel, self.optimizer = self.accelerator.prepare(self.module, optimizer)
        self.stream = stream(self.accelerator.process_index)
        self.step, self.spent = 0, 0.0
        self.history: list[dict[str, float]] = []
        self._captured: CapturedPass | None = None

    # --- the loop

    def run(self, report: Report | None = None) -> bool:
        """Train until the budget or this run's limit is spent; return whether the budget is.

        Args:
            report: called with step, loss, learning rate, samples per second and progress every ``log_every`` steps.
        """
        self._resume()
        self._warm_up()
        with training_log(self.settings.output if self.accelerator.is_main_process else None) as write:
            for line in self._lines():
                self.history.append(line)
                write(line)
                if report is not None and self.accelerator.is_main_process:
                    report(line)
                    self.module.train()  # a report may have scored the module
        self._captured = None  # and with it the memory of a pass
        self.save()
        done = self.progress >= 1
        if self.stopping is not None:
            self.stopping.restore(self.module)
            done = True
        return done

    @property
    def progress(self) -> float:
        """The share of the budget spent."""
        if self.settings.steps is not None:
            return self.step / self.settings.steps
        assert self.settings.seconds is not None
        return self.spent / self.settings.seconds

    def _lines(self) -> Iterator[dict[str, float]]:
        settings = self.settings
        begin, before = time.monotonic(), self.spent
        saved, logged, logged_step = begin, begin, self.step
        running = torch.zeros((), device=self.device)
        self.module.train()
        stop = self.stopping is not None and self.stopping.validate(self.module, self.step)
        while self.progress < 1 and not stop:
            running += self._advance()
            self.step += 1
            if self.step % CHECK_EVERY == 0 or self.step == 1:
                self.spent = before + agreed(time.monotonic() - begin, self.device.type)
            if self.ema is not None and self.step % CHECK_EVERY == 0:
                self.ema.update(self.module, self.step, CHECK_EVERY)
            if self.stopping is not None and (self.step % self.stopping.every == 0 or self.progress >= 1):
                stop = self.stopping.validate(self.module, self.step)
            if self.step % settings.log_every == 0:
                loss = float(running) / (self.step - logged_step)
                if not math.isfinite(loss):
                    raise UserError(f"the loss is {loss} at step {self.step}; a lower learning_rate may help.")
                now = time.monotonic()
                yield {
                    "step": self.step,
                    "loss": loss,
                    "learning_rate": self.optimizer.param_groups[0]["lr"],
                    "samples_per_second": (self.step - logged_step) * settings.batch / max(now - logged, 1e-9),
                    "progress": self.progress,
                    "seconds": self.spent,
                }
                logged, logged_step = now, self.step
                running.zero_()
            if self.step % CHECK_EVERY == 0:
                elapsed = self.spent - before
                if settings.limit is not None and elapsed >= settings.limit:
                    return
                if elapsed - (saved - begin) >= settings.checkpoint_every:
                    self.save()
                    saved = begin + elapsed
        # A budget of steps may end between two looks at the clock.
        self.spent = before + agreed(time.monotonic() - begin, self.device.type)

    def _warm_up(self) -> None:
        """Run forward and backward some times without a step, capture them, and put data and random numbers back."""
        if not (self.settings.warmup_passes or self._captures):
            return
        before = self._data_state()
        self.module.train()
        for _ in range(self.settings.warmup_passes):
            self._compute(*next(self.stream))
            self.optimizer.zero_grad(set_to_none=True)
        if self._captures:
            self._capture(next(self.stream))
        self._restore_data(before)
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    @property
    def _captures(self) -> bool:
        return self.settings.graph and self.accelerator.num_processes == 1 and self.device.type == "cuda"

    def _capture(self, batch: tuple[Tensor, ...]) -> None:
        """Capture the pass over batches like this one; one that cannot be captured runs as before."""
        try:
            self._captured = CapturedPass(self._compute, self.module.parameters(), batch)
        except RuntimeError as problem:
            reason = str(problem).partition("\n")[0]
            warnings.warn(f"training goes on without a CUDA graph, which failed: {reason}", stacklevel=2)
            self.optimizer.zero_grad(set_to_none=True)

    def _compute(self, *batch: Any) -> Tensor:
        """Leave the gradients of a batch and return its loss."""
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.settings.precision == "bf16"):
            loss = self.parallel(*batch).float()
        self.accelerator.backward(loss)
        return loss.detach()

    def _advance(self) -> Tensor:
        share = self.settings.rate(self.progress if self.step else 0.0)
        for group in self.optimizer.param_groups:
            group["lr"] = group["peak"] * max(share, 1e-4)
        batch = next(self.stream)
        replay = self._captured is not None and self._captured.fits(batch)
        loss = (self._captured if replay else self._compute)(*batch)  # type: ignore[misc]
        if self.settings.clip:
            self.accelerator.clip_grad_norm_(self.module.parameters(), self.settings.clip)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return loss

    def use_ema(self) -> None:
        """Put the averaged weights, where there are any, into the module."""
        if self.ema is not None:
            self.module.load_state_dict(self.ema.weights, strict=False)

    # --- checkpoints

    @property
    def folder(self) -> Path:
        """Where the checkpoint is."""
        assert self.settings.output is not None
        return self.settings.output / CHECKPOINT

    def save(self) -> None:
        """Write a checkpoint beside the old one, then put it in its place; nothing without an output folder."""
        if self.settings.output is None:
            return
        from accelerate.utils import gather_object
        from safetensors.torch import save_model

        states = gather_object([self._data_state()])

        def write(folder: Path) -> None:
            save_model(self.module, str(folder / WEIGHTS))
            torch.save(states, folder / DATA)
            state = {"step": self.step, "seconds": self.spent, "history": self.history}
            state |= {"optimizer": self.optimizer.state_dict(), "ema": self.ema and self.ema.weights}
            torch.save(state, folder / STATE)

        if self.accelerator.is_main_process:
            replace_folder(self.folder, write)
        self.accelerator.wait_for_everyone()

    def _data_state(self) -> dict[str, Any]:
        """Return the state of this process's data and of the generators behind dropout."""
        state = {"stream": self.stream.state_dict(), "cpu": torch.get_rng_state()}
        if self.device.type == "cuda":
            state["cuda"] = torch.cuda.get_rng_state(self.device)
        return state

    def _restore_data(self, state: dict[str, Any]) -> None:
        self.stream.load_state_dict(state["stream"])
        torch.set_rng_state(state["cpu"])
        if "cuda" in state and self.device.type == "cuda":
            torch.cuda.set_rng_state(state["cuda"], self.device)

    def _resume(self) -> None:
        if self.settings.output is None:
            return
        from safetensors.torch import load_model

        recover_folder(self.folder)
        if not (self.folder / STATE).exists():
            return
        try:
            load_model(self.module, str(self.folder / WEIGHTS))
        except RuntimeError:
            raise UserError(
                f"{self.folder} holds a checkpoint of another model; choose another output folder or remove it."
            ) from None
        state = torch.load(self.folder / STATE, map_location=self.device, weights_only=True)
        self.optimizer.load_state_dict(state["optimizer"])
        if self.ema is not None:
            for name, value in state["ema"].items():
                self.ema.weights[name].copy_(value)
        states = torch.load(self.folder / DATA, map_location="cpu", weights_only=True)
        if self.accelerator.process_index < len(states):  # more processes than before: new ones start their own data
            try:
                self._restore_data(states[self.accelerator.process_index])
            except ValueError as error:
                raise UserError(
                    f"{self.folder} must be continued with the data, batch and number of processes it began with: "
                    f"{error}"
                ) from None
        self.step, self.spent, self.history[:] = state["step"], state["seconds"], state["history"]


class LossOf(nn.Module):
    """The loss of a module as a module of its own, which `Training` takes.

    Args:
        module: what is trained.
        loss: called with the module and the parts of a batch.
    """

    def __init__(self, module: nn.Module, loss: Callable[..., Tensor]):
        super().__init__()
        self.module, self._loss = module, loss

    def forward(self, *batch: Any) -> Tensor:
        return self._loss(self.module, *batch)


def seconds_spent(output: Path) -> float | None:
    """Return the seconds that the run of a folder has spent so far, None where there is no checkpoint."""
    recover_folder(output / CHECKPOINT)
    state = output / CHECKPOINT / STATE
    if not state.exists():
        return None
    return float(torch.load(state, map_location="cpu", weights_only=True, mmap=True)["seconds"])


def _stays(module: nn.Module, device: torch.device) -> bool:
    """Tell whether a module is there, every part of it, or may not be moved: quantised, or spread over devices."""
    if any(hasattr(part, "hf_device_map") or getattr(part, "is_quantized", False) for part in module.modules()):
        return True  # as transformers marks it
    places = {tensor.device for tensor in (*module.parameters(), *module.buffers())}
    return all(place.type == device.type and device.index in (None, place.index) for place in places)


def _optimizer(
    module: nn.Module, settings: TrainingSettings, rates: Mapping[nn.Parameter, float], fused: bool
) -> torch.optim.Optimizer:
    groups = _groups(module, settings, rates)
    if settings.optimizer == "adamw":
        return torch.optim.AdamW(groups, lr=settings.learning_rate, betas=settings.betas, fused=fused)
    from fourier_head.training.muon import Muon

    inner = {p for name, p in module.named_parameters() if p.dim() == 2 and "layers." in name}
    parts = [
        {**group, "params": own, "orthogonal": orthogonal}
        for group in groups
        for orthogonal in (True, False)
        if (own := [p for p in group["params"] if (p in inner) == orthogonal])
    ]
    return Muon(parts, lr=settings.learning_rate, betas=settings.betas)


def _groups(module: nn.Module, settings: TrainingSettings, rates: Mapping[nn.Parameter, float]) -> list[dict[str, Any]]:
    """Return groups of trained parameters by learning rate and weight decay."""
    groups: dict[tuple[float, float], list[nn.Parameter]] = {}
    for parameter in module.parameters():
        if parameter.requires_grad:
            # Matrices decay; biases, norms and other vectors do not.
            decay = settings.decay if parameter.dim() >= 2 else 0.0
            groups.setdefault((rates.get(parameter, settings.learning_rate), decay), []).append(parameter)
    if not groups:
        raise ValueError("no parameter of the model wants a gradient: add an adapter or unfreeze some")
    return [{"params": own, "peak": peak, "weight_decay": decay} for (peak, decay), own in groups.items()]
