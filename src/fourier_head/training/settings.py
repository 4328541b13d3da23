"""How to train: budget, learning rate, optimizer and what is kept."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Schedule = Literal["linear", "cosine"]


@dataclass(frozen=True)
class TrainingSettings:
    """How to train.

    Args:
        output: folder of checkpoints and logs; a checkpoint there is continued. Nothing is kept without one.
        batch: samples per step, over all processes.
        steps, seconds: the budget, one of the two. The learning rate falls by its end; with seconds, time spent in
            earlier runs counts.
        limit: stop this run after so many seconds at a checkpoint, to be continued by the same command.
        learning_rate, warmup: peak of the learning rate, and the share of the budget in which it rises to it.
        optimizer: "adamw", or "muon" for the matrices of modules called ``layers`` and AdamW for all else.
        schedule, final: how it falls, "linear" or "cosine", and the share of the peak that is left at the end.
        betas, decay, clip: of AdamW, and of the gradient's norm; 0 for no clipping.
        ema: half-life of an exponential moving average of the weights, as a share of the steps so far; 0 for none.
        precision: "bf16" or "no".
        checkpoint_every: seconds between checkpoints.
        log_every: steps between lines of the log.
        warmup_passes: passes over a batch before the clock starts, so that compiling is not part of the budget;
            neither weights nor data move.
        graph: whether to capture the loss and its gradients in a CUDA graph and replay it in every step, see
            ``graphs``; on one GPU with batches of one shape, else nothing changes.
    """

    output: Path | None = None
    batch: int = 1024
    steps: int | None = None
    seconds: float | None = None
    limit: float | None = None
    learning_rate: float = 1e-3
    warmup: float = 0.02
    optimizer: Literal["adamw", "muon"] = "adamw"
    schedule: Schedule = "linear"
    final: float = 0.0
    betas: tuple[float, float] = (0.9, 0.98)
    decay: float = 0.01
    clip: float = 1.0
    ema: float = 0.0
    precision: Literal["bf16", "no"] = "no"
    checkpoint_every: float = 120.0
    log_every: int = 50
    warmup_passes: int = 0
    graph: bool = False

    def __post_init__(self) -> None:
        if (self.steps is None) == (self.seconds is None):
            raise ValueError(f"one of steps and seconds must be given, got steps={self.steps}, seconds={self.seconds}")
        for name in ("batch", "steps", "seconds", "limit", "learning_rate", "log_every"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ValueError(f"{name} must be positive, got {value}")

    def rate(self, progress: float) -> float:
        """Return the share of the peak learning rate at a point of the budget."""
        return rate(progress, self.warmup, self.schedule, self.final)


def rate(progress: float, warmup: float, schedule: Schedule = "linear", final: float = 0.0) -> float:
    """Return the share of the peak learning rate at a point of the budget.

    >>> [round(rate(p, 0.1), 6) for p in (0.0, 0.05, 0.1, 0.55, 1.0)]
    [0.0, 0.5, 1.0, 0.5, 0.0]
    """
    if progress < warmup:
        return progress / warmup
    rest = min(1.0, (progress - warmup) / max(1 - warmup, 1e-9))
    fallen = rest if schedule == "linear" else (1 - math.cos(math.pi * rest)) / 2
    return 1 - (1 - final) * fallen
