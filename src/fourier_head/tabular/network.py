"""Train a small network with a head on the rows of a table: body, schedule, and a loop that keeps the best weights."""

from __future__ import annotations

import copy
import itertools
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from fourier_head.heads import Head

if TYPE_CHECKING:
    from typing_extensions import Self

WIDTHS = (64, 64, 32)
LEARNING_RATE = 3e-3
FEWEST_STEPS, MOST_STEPS = 1600, 8000
USUAL_EPOCHS, MOST_EPOCHS = 20, 200


@dataclass(frozen=True)
class Schedule:
    """How long and in what portions to train."""

    epochs: int
    batch: int
    check_every: int

    @classmethod
    def for_rows(cls, rows: int, epochs: int | None = None, batch: int | None = None, quick: bool = False) -> Self:
        """Aim for some thousands of steps: few epochs of much data, many of little."""
        if batch is None:
            batch = min(128, max(16, 1 << int(math.log2(max(1, rows / 20)))))
        if epochs is None:
            per_epoch = math.ceil(rows / batch)
            steps = min(max(FEWEST_STEPS, USUAL_EPOCHS * per_epoch), MOST_STEPS)
            epochs = min(MOST_EPOCHS, max(3, math.ceil(steps / per_epoch)))
            epochs = max(2, epochs // 10) if quick else epochs
        return cls(epochs, batch, max(1, epochs // 50))


class Network(nn.Module):
    """Layers of these widths with SiLU between them, and a head."""

    def __init__(self, num_features: int, widths: Sequence[int], make_head: Callable[[int], Head]):
        super().__init__()
        sizes = (num_features, *widths)
        layers: list[nn.Module] = []
        for inner, outer in itertools.pairwise(sizes):
            layers += [nn.Linear(inner, outer), nn.SiLU()]
        self.body = nn.Sequential(*layers)
        self.head = make_head(sizes[-1])


@dataclass
class Course:
    """How a training went: epochs and scores where it was checked, the best of them, and the time it took."""

    history: list[tuple[int, float]] = field(default_factory=list)
    best_epoch: int = 0
    best_score: float = math.inf
    seconds: float = 0.0
    interrupted: bool = False


def fit(
    model: nn.Module,
    columns: Sequence[Tensor],
    loss: Callable[..., Tensor],
    score: Callable[[], float],
    schedule: Schedule,
    *,
    seed: int,
    learning_rate: float = LEARNING_RATE,
    weight_decay: float = 0.0,
    patience: int | None = None,
    interruptible: bool = False,
    progress: Callable[[int, float], None] | None = None,
) -> Course:
    """Train with Adam and a cosine schedule, and leave the model in evaluation mode with its best weights.

    Args:
        model: its parameters are trained.
        columns: tensors with one entry per row, on the model's device.
        loss: called with the entries of a batch of rows, one tensor for each column.
        score: what the weights are judged by, lower being better; called in evaluation mode.
        schedule: how long and in what portions.
        seed: of the order of the rows.
        learning_rate, weight_decay: of the optimiser; the decay does not mix with the gradients (AdamW).
        patience: stop when this many epochs brought no better score.
        interruptible: an interruption from the keyboard ends the training, not the program.
        progress: called after each epoch with the epochs done and the last score.
    """
    rows, device = len(columns[0]), columns[0].device
    optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate, weight_decay=weight_decay, fused=True)
    random = torch.Generator().manual_seed(seed)
    per_epoch = math.ceil(rows / schedule.batch)
    total, step = per_epoch * schedule.epochs, 0
    best, course, start = copy.deepcopy(model.state_dict()), Course(), time.perf_counter()
    try:
        for epoch in range(1, schedule.epochs + 1):
            model.train()
            order = torch.randperm(rows, generator=random).to(device)
            shuffled = [column[order] for column in columns]
            for i in range(per_epoch):
                batch = slice(i * schedule.batch, (i + 1) * schedule.batch)
                for group in optimizer.param_groups:
                    group["lr"] = learning_rate * (1 + math.cos(math.pi * step / total)) / 2
                value = loss(*(column[batch] for column in shuffled))
                optimizer.zero_grad()
                value.backward()
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                step += 1
            if epoch % schedule.check_every == 0 or epoch == schedule.epochs:
                model.eval()
                with torch.no_grad():
                    found = score()
                course.history.append((epoch, found))
                if found < course.best_score:
                    best, course.best_score, course.best_epoch = copy.deepcopy(model.state_dict()), found, epoch
            if progress is not None:
                progress(epoch, course.history[-1][1] if course.history else math.nan)
            if patience is not None and epoch - course.best_epoch >= patience:
                break
    except KeyboardInterrupt:
        if not interruptible:
            raise
        course.interrupted = True
    model.load_state_dict(best)
    model.eval()
    course.seconds = time.perf_counter() - start
    return course
