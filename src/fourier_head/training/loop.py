"""Train within a budget of steps or seconds: accelerate underneath, checkpoints that continue the same run."""

from __future__ import annotations

import json
import math
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

import torch
from torch import Tensor, nn

from fourier_head.errors import UserError, needs_extra
from fourier_head.training.checkpoints import CHECKPOINT
from fourier_head.training.graphs import CapturedPass
from fourier_head.training.log import TrainingLog
from fourier_head.training.processes import agreed, leave_at_exit

STATE, DATA = "state.json", "data.pt"
CHECK_EVERY = 10
"""Steps between looks at the clock, at which many processes also agree on the time."""


@dataclass(frozen=True)
class TrainingSettings:
    """How to train.

    Args:
        output: folder of checkpoints and logs; a checkpoint there is continued.
        batch: samples per step, over all processes.
        steps, seconds: the budget, one of the two. The learning rate falls to zero by its end; with seconds, time spent
            in earlier runs counts.
        limit: stop this run after so many seconds at a checkpoint, to be continued by the same command.
        learning_rate, warmup: peak of the learning rate, and the share of the budget in which it rises to it.
        schedule: how it falls: "linear" or "cosine".
        hold: share of the budget, after the rise, in which it stays at its peak before it falls.
        optimizer: "adamw", or "muon" for the matrices of modules called ``layers``.
        betas, decay, clip: of AdamW, and of the gradient's norm.
        average: share of the steps passed in which an exponential average of the weights, kept beside them, forgets
            half; 0 for none.
        precision: "bf16" or "no".
        compile: whether to compile the loss.
        checkpoint_every: seconds between checkpoints.
        shard: largest file of a checkpoint, in MB.
        log_every: steps between lines of the log.
        rehearsals: passes over a batch before the clock starts, so that compiling is not part of the budget; neither
            weights nor data move.
        graph: whether to capture the loss and its gradients after the rehearsals and replay them in every step, see
            ``graphs``; on one GPU with batches of one shape, else nothing changes.
    """

    output: Path
    batch: int = 1024
    steps: int | None = None
    seconds: float | None = None
    limit: float | None = None
    learning_rate: float = 1e-3
    warmup: float = 0.02
    schedule: Literal["linear", "cosine"] = "linear"
    hold: float = 0.0
    optimizer: Literal["adamw", "muon"] = "adamw"
    betas: tuple[float, float] = (0.9, 0.98)
    decay: float = 0.01
    clip: float = 1.0
    average: float = 0.0
    precision: Literal["bf16", "no"] = "no"
    compile: bool = False
    checkpoint_every: float = 120.0
    shard: int = 1000
    log_every: int = 50
    rehearsals: int = 0
    graph: bool = False

    def __post_init__(self) -> None:
        if (self.steps is None) == (self.seconds is None):
            raise ValueError(f"one of steps and seconds must be given, got steps={self.steps}, seconds={self.seconds}")
        for name in ("batch", "steps", "seconds", "limit", "learning_rate", "shard", "log_every"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ValueError(f"{name} must be positive, got {value}")


class Stream(Protocol):
    """What training draws from: batches on the device, tuples of tensors, for ever; see ``corpora.BatchStream``."""

    def __next__(self) -> Any: ...

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: dict[str, Any]) -> None: ...


def rate(progress: float, warmup: float, schedule: str = "linear", hold: float = 0.0) -> float:
    """Return the share of the peak learning rate at a point of the budget.

    >>> [round(rate(p, 0.1), 6) for p in (0.0, 0.05, 0.1, 0.55, 1.0)]
    [0.0, 0.5, 1.0, 0.5, 0.0]
    """
    if progress < warmup:
        return progress / warmup
    begin = warmup + hold
    rest = min(1.0, max(0.0, progress - begin) / max(1 - begin, 1e-9))
    return 1 - rest if schedule == "linear" else (1 + math.cos(math.pi * rest)) / 2


def _optimizer(module: nn.Module, settings: TrainingSettings, fused: bool) -> torch.optim.Optimizer:
    options: dict[str, Any] = {"lr": settings.learning_rate, "betas": settings.betas}
    if settings.optimizer == "muon":
        from fourier_head.training.muon import Muon

        named = list(module.named_parameters())
        inner = {name for name, p in named if p.dim() == 2 and "layers." in name}
        trunk, others = ([p for name, p in named if (name in inner) == wanted] for wanted in (True, False))
        return Muon(trunk, others, decay=settings.decay, **options)
    # Matrices decay; biases, norms and other vectors do not.
    groups = [
        {"params": [p for p in module.parameters() if p.dim() >= 2], "weight_decay": settings.decay},
        {"params": [p for p in module.parameters() if p.dim() < 2], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, **options, fused=fused)


class Average:
    """An exponential average of weights whose memory is a share of all that has passed."""

    def __init__(self, module: nn.Module, memory: float):
        self.memory = memory
        self.weights = {name: p.detach().clone() for name, p in module.named_parameters()}

    @torch.no_grad()
    def update(self, module: nn.Module, step: int, steps: int) -> None:
        """Move towards the weights; ``steps`` passed since the last time."""
        decay = 0.5 ** (steps / max(1.0, self.memory * step))
        own = list(self.weights.values())
        torch._foreach_lerp_(own, [p.detach() for p in module.parameters()], 1 - decay)

    def state(self) -> dict[str, Tensor]:
        return self.weights


class Training:
    """A run: one module whose ``forward(*batch)`` is the loss, one stream of batches, one budget.

    Args:
        module: returns the loss of a batch.
        stream: makes the stream of a process from its number; each must draw its own data.
        settings: how to train.
        device: "cpu" to stay there, else whatever accelerate finds.

    Example:
        >>> import tempfile
        >>> class Square(nn.Module):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.w = nn.Parameter(torch.ones(1))
        ...     def forward(self, x):
        ...         return ((self.w - x) ** 2).mean()
        >>> class Noise:
        ...     def __init__(self, seed):
        ...         self.generator = torch.Generator().manual_seed(seed)
        ...     def __next__(self):
        ...         return (torch.randn(8, generator=self.generator),)
        ...     def state_dict(self):
        ...         return {"generator": self.generator.get_state()}
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     run = Training(Square(), Noise, TrainingSettings(Path(folder), batch=8, steps=100), device="cpu")
        ...     done = run.run()
        >>> done, run.step
        (True, 100)
    """

    def __init__(
        self,
        module: nn.Module,
        stream: Callable[[int], Stream],
        settings: TrainingSettings,
        device: str | None = None,
    ):
        try:
            from accelerate import Accelerator
        except ImportError as error:
            raise needs_extra(error, "forecasting") from None
        # Precision is ours to set: accelerate allows one for all that a process ever trains.
        self.accelerator = Accelerator(cpu=device == "cpu")
        leave_at_exit()
        self.settings = settings
        if settings.batch % self.accelerator.num_processes:
            raise UserError(
                f"batch must be a multiple of the {self.accelerator.num_processes} processes, got {settings.batch}."
            )
        self.module = module.to(self.accelerator.device)
        optimizer = _optimizer(module, settings, self.accelerator.device.type == "cuda")
        self.average = Average(module, settings.average) if settings.average else None
        self.parallel, self.optimizer = self.accelerator.prepare(self.module, optimizer)
        self.loss_of = torch.compile(self.parallel) if settings.compile else self.parallel
        self.stream = stream(self.accelerator.process_index)
        self.step, self.spent = 0, 0.0
        self.history: list[dict[str, float]] = []
        self._captured: CapturedPass | None = None

    # --- the loop

    def run(self, report: Callable[[dict[str, float]], None] | None = None) -> bool:
        """Train until the budget or this run's limit is spent; return whether the budget is.

        Arguments:
            report: called with step, loss, learning rate, samples per second and progress every ``log_every`` steps.
        """
        self._resume()
        self._rehearse()
        with self._log() as write:
            for line in self._lines():
                write(line)
                if report is not None and self.accelerator.is_main_process:
                    report(line)
        self._captured = None  # and with it the memory of a pass
        self.save()
        return self.progress >= 1

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
        running = torch.zeros((), device=self.accelerator.device)
        self.module.train()
        while self.progress < 1:
            running += self._advance()
            self.step += 1
            if self.step % CHECK_EVERY == 0 or self.step == 1:
                self.spent = before + agreed(time.monotonic() - begin, self.accelerator.device.type)
            if self.average is not None and self.step % CHECK_EVERY == 0:
                self.average.update(self.module, self.step, CHECK_EVERY)
            if self.step % settings.log_every == 0:
                loss = float(running) / (self.step - logged_step)
                if not math.isfinite(loss):
                    raise UserError(f"the loss is {loss} at step {self.step}; a lower learning_rate may help.")
                now = time.monotonic()
                yield {
                    "step": self.step,
                    "loss": loss,
                    "learning_rate": self.optimizer.param_groups[0]["lr"],
                    "samples_per_second": (self.step - logged_step) * settings.batch / (now - logged),
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
        self.spent = before + agreed(time.monotonic() - begin, self.accelerator.device.type)

    def _rehearse(self) -> None:
        """Run forward and backward some times without a step, capture them, and put data and random numbers back."""
        if not (self.settings.rehearsals or self._captures):
            return
        before = self._data_state()
        self.module.train()
        for _ in range(self.settings.rehearsals):
            self._compute(*next(self.stream))
            self.optimizer.zero_grad(set_to_none=True)
        if self._captures:
            self._capture(next(self.stream))
        self.stream.load_state_dict(before["stream"])
        torch.set_rng_state(before["cpu"])
        if "cuda" in before:
            torch.cuda.set_rng_state(before["cuda"], self.accelerator.device)
            torch.cuda.synchronize(self.accelerator.device)

    @property
    def _captures(self) -> bool:
        alone = self.accelerator.num_processes == 1
        return self.settings.graph and alone and self.accelerator.device.type == "cuda"

    def _capture(self, batch: tuple[Tensor, ...]) -> None:
        """Capture the pass over batches like this one; one that cannot be captured runs as before."""
        try:
            self._captured = CapturedPass(self._compute, self.module.parameters(), batch)
        except RuntimeError as problem:
            reason = str(problem).partition("\n")[0]
            warnings.warn(f"training goes on without a CUDA graph, which failed: {reason}", stacklevel=2)
            self.optimizer.zero_grad(set_to_none=True)

    def _compute(self, *batch: Tensor) -> Tensor:
        """Leave the gradients of a batch and return its loss."""
        half = self.settings.precision == "bf16"
        with torch.autocast(self.accelerator.device.type, torch.bfloat16, enabled=half):
            loss = self.loss_of(*batch).float()
        self.accelerator.backward(loss)
        return loss.detach()

    def _advance(self) -> Tensor:
        settings = self.settings
        share = rate(self.progress if self.step else 0.0, settings.warmup, settings.schedule, settings.hold)
        for group in self.optimizer.param_groups:
            group["lr"] = settings.learning_rate * max(share, 1e-4)
        batch = next(self.stream)
        replay = self._captured is not None and self._captured.fits(batch)
        loss = (self._captured if replay else self._compute)(*batch)  # type: ignore[misc]
        if settings.clip:
            self.accelerator.clip_grad_norm_(self.module.parameters(), settings.clip)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return loss

    def use_average(self) -> None:
        """Put the averaged weights, where there are any, into the module."""
        if self.average is not None:
            self.module.load_state_dict(self.average.state(), strict=False)

    # --- the log

    def _log(self) -> Any:
        return TrainingLog(self.settings.output, self.history, self.accelerator.is_main_process)

    # --- checkpoints

    @property
    def folder(self) -> Path:
        """Where the checkpoint is."""
        return self.settings.output / CHECKPOINT

    def save(self) -> None:
        """Write a checkpoint beside the old one, then put it in its place."""
        states: list[Any] = [self._data_state()]
        if self.accelerator.num_processes > 1:
            mine, states = states[0], [None] * self.accelerator.num_processes
            torch.distributed.all_gather_object(states, mine)
        if not self.accelerator.is_main_process:
            self.accelerator.wait_for_everyone()
            return
        from fourier_head.training.checkpoints import replace_folder, save_tensors

        def write(folder: Path) -> None:
            save_tensors(folder, "weights", dict(self.module.state_dict()), self.settings.shard)
            if self.average is not None:
                save_tensors(folder, "average", self.average.state(), self.settings.shard)
            optimizer = self.optimizer.state_dict()
            moments = {f"{i}.{k}": v for i, s in optimizer["state"].items() for k, v in s.items()}
            save_tensors(folder, "optimizer", moments, self.settings.shard)
            torch.save(states, folder / DATA)
            state = {
                "step": self.step,
                "seconds": self.spent,
                "settings": {k: str(v) if isinstance(v, Path) else v for k, v in asdict(self.settings).items()},
                "history": self.history,
            }
            (folder / STATE).write_text(json.dumps(state), encoding="utf-8")

        replace_folder(self.folder, write)
        self.accelerator.wait_for_everyone()

    def _data_state(self) -> dict[str, Any]:
        """Return the state of this process's data and of the generators behind dropout."""
        state = {"stream": self.stream.state_dict(), "cpu": torch.get_rng_state()}
        if self.accelerator.device.type == "cuda":
            state["cuda"] = torch.cuda.get_rng_state(self.accelerator.device)
        return state

    def _resume(self) -> None:
        from fourier_head.training.checkpoints import load_tensors, recover_folder

        recover_folder(self.folder)
        if not (self.folder / STATE).exists():
            return

        state = json.loads((self.folder / STATE).read_text(encoding="utf-8"))
        try:
            self.module.load_state_dict(load_tensors(self.folder, "weights"))
        except RuntimeError:
            raise UserError(
                f"{self.folder} holds a checkpoint of another model; choose another output folder or remove it."
            ) from None
        if self.average is not None:
            for name, value in load_tensors(self.folder, "average").items():
                self.average.weights[name].copy_(value)
        moments: dict[int, dict[str, Tensor]] = {}
        for name, value in load_tensors(self.folder, "optimizer").items():
            index, key = name.split(".", 1)
            moments.setdefault(int(index), {})[key] = value
        optimizer = self.optimizer.state_dict()
        optimizer["state"] = moments
        self.optimizer.load_state_dict(optimizer)
        states = torch.load(self.folder / DATA, map_location="cpu", weights_only=True)
        if self.accelerator.process_index < len(states):  # more processes than before: new ones start their own data
            own = states[self.accelerator.process_index]
            try:
                self.stream.load_state_dict(own["stream"])
            except ValueError as error:
                raise UserError(
                    f"{self.folder} must be continued with the data, batch and number of processes it began with: "
                    f"{error}"
                ) from None
            torch.set_rng_state(own["cpu"])
            if "cuda" in own and self.accelerator.device.type == "cuda":
                torch.cuda.set_rng_state(own["cuda"], self.accelerator.device)
        self.step, self.spent, self.history[:] = state["step"], state["seconds"], state["history"]
