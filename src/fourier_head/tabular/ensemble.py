"""Train members side by side: each on its own batches, each judged by the rows it leaves out."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fourier_head.tabular.members import MemberNetwork, clip_each
from fourier_head.tabular.network import Course

USUAL_STEPS = 800
"""For up to a thousand rows; more have more, by the fourth root."""
SMALL_BATCH, LARGE_BATCH = 64, 512
CHECKS = 50
WARM_UP = 0.03
"""Share of the steps in which the learning rate rises."""
AVERAGED = 0.1
"""The weights that count are a mean over about this share of the steps so far."""
PATIENCE = 0.3
"""Share of the steps after which a course that gets no better ends."""
LONGEST_GRADIENT = 1.0
PORTION = 1 << 22
"""Inputs of held-out rows that are looked at at once."""


@dataclass(frozen=True)
class Plan:
    """How long and in what portions to train."""

    steps: int
    batch: int
    per_epoch: int
    patience: int | None

    @classmethod
    def for_rows(
        cls,
        rows: int,
        epochs: int | None = None,
        batch: int | None = None,
        patience: int | str | None = "auto",
    ) -> Plan:
        """Plan a course for so many rows: epochs, rows in a batch and patience, in epochs, as they are told.

        >>> Plan.for_rows(277), Plan.for_rows(7000).batch
        (Plan(steps=800, batch=64, per_epoch=4, patience=240), 256)
        """
        if batch is None:
            batch = min(LARGE_BATCH, max(SMALL_BATCH, 1 << round(math.log2(max(1, rows / 30)))))
        batch = min(batch, rows)
        per_epoch = rows // batch
        steps = USUAL_STEPS * max(1, rows / 1000) ** 0.25 if epochs is None else epochs * per_epoch
        steps = max(1, math.ceil(steps))
        if isinstance(patience, str):
            return cls(steps, batch, per_epoch, math.ceil(PATIENCE * steps))
        return cls(steps, batch, per_epoch, None if patience is None else patience * per_epoch)

    def shortened(self, part: float) -> Plan:
        """Return a course of this part of the steps."""
        patience = None if self.patience is None else math.ceil(part * self.patience)
        return replace(self, steps=math.ceil(part * self.steps), patience=patience)

    @property
    def check_every(self) -> int:
        """Steps between two looks at the held-out rows."""
        return max(1, self.steps // CHECKS)

    def epoch(self, step: int) -> int:
        """Return in which pass through the rows a step lies."""
        return math.ceil(step / self.per_epoch)

    def rate(self, step: int) -> float:
        """Return the learning rate of a step as a share of the highest: up in a straight line, down along a cosine."""
        return min(1, step / (WARM_UP * self.steps)) * (1 + math.cos(math.pi * step / self.steps)) / 2


Loss = Callable[..., Tensor]


def fit(
    network: MemberNetwork,
    columns: Sequence[Tensor],
    weights: Tensor,
    held: Sequence[Tensor],
    loss: Loss,
    plan: Plan,
    *,
    seed: int,
    learning_rate: float,
    weight_decay: float,
    leave_out: bool = True,
    progress: Callable[[int, float], None] | None = None,
) -> Course:
    """Train with Adam, and leave the network in evaluation mode with the weights that predict held-out rows best.

    What is judged, and kept, is a mean of the weights over the last steps. All members are taken from one moment, the
    best for the rows left out by any of them: of the few that one member leaves out little can be told.

    Args:
        network: the members.
        columns: tensors with one entry per row; inputs first.
        weights: of the rows.
        held: rows that judge each member, which leaves them out.
        loss: called with entries of columns, (members, rows, ...), returns losses (members, rows).
        plan: how long and in what portions.
        seed: of the order of the rows.
        learning_rate, weight_decay: of AdamW, the rate at its highest.
        leave_out: whether members learn nothing from the rows that judge them; there may be too few for that.
        progress: called after each look at the held-out rows with the epoch and the score.
    """
    device, rows = weights.device, len(weights)
    random = torch.Generator().manual_seed(seed)
    parameters: list[Tensor] = list(network.parameters())
    optimizer = torch.optim.AdamW(parameters, lr=learning_rate, weight_decay=weight_decay, fused=True)
    mean, best = ([p.detach().clone() for p in parameters] for _ in range(2))
    batches = _batches(rows, held if leave_out else [torch.arange(0)] * len(held), plan.batch, random)
    course, found, start = Course(), 0, time.perf_counter()
    network.train()
    try:
        for step in range(1, plan.steps + 1):
            for group in optimizer.param_groups:
                group["lr"] = learning_rate * plan.rate(step)
            index = next(batches).to(device)
            value = (loss(*(column[index] for column in columns)) * weights[index]).mean(1).sum()
            optimizer.zero_grad()
            value.backward()
            clip_each(parameters, LONGEST_GRADIENT)
            optimizer.step()
            torch._foreach_lerp_(mean, [p.detach() for p in parameters], max(1 / step, 1 / (1 + AVERAGED * step)))
            if step % plan.check_every and step != plan.steps:
                continue
            with torch.no_grad():
                _swap(parameters, mean)
                network.eval()
                score = _score(columns, weights, held, loss)
                course.history.append((plan.epoch(step), score))
                if score < course.best_score:
                    torch._foreach_copy_(best, parameters)
                    course.best_score, course.best_epoch, found = score, plan.epoch(step), step
                network.train()
                _swap(parameters, mean)
            if progress is not None:
                progress(plan.epoch(step), score)
            if plan.patience is not None and step - found >= plan.patience:
                break
    except KeyboardInterrupt:
        course.interrupted = True
    with torch.no_grad():
        torch._foreach_copy_(parameters, best)
    network.eval()
    course.seconds = time.perf_counter() - start
    return course


def _swap(a: Sequence[Tensor], b: Sequence[Tensor]) -> None:
    for one, other in zip(a, b, strict=True):
        one.data, other.data = other.data, one.data


def _batches(rows: int, held: Sequence[Tensor], size: int, random: torch.Generator) -> Iterator[Tensor]:
    """Yield rows (members, size) for ever: each member goes through those it learns from in an order of its own."""
    learned = []
    for out in held:
        kept = torch.ones(rows, dtype=torch.bool)
        kept[out] = False
        learned.append(kept.nonzero().squeeze(1))
    least = min(map(len, learned))
    size = min(size, least)
    while True:
        order = torch.stack([own[torch.randperm(len(own), generator=random)[:least]] for own in learned])
        yield from order[:, : least - least % size].split(size, dim=1)


@torch.no_grad()
def over_held_out(columns: Sequence[Tensor], held: Sequence[Tensor], function: Loss) -> list[Tensor]:
    """Return what a function of entries of columns, (members, rows, ...), says of the rows that each leaves out."""
    longest = max(map(len, held))
    padded = torch.stack([torch.nn.functional.pad(out, (0, longest - len(out))) for out in held])
    portion = max(1, PORTION // (len(held) * columns[0].shape[-1]))
    parts = [
        function(*(column[index] for column in columns)) for index in padded.to(columns[0].device).split(portion, 1)
    ]
    return [values[: len(out)] for values, out in zip(torch.cat(parts, 1), held, strict=True)]


def _score(columns: Sequence[Tensor], weights: Tensor, held: Sequence[Tensor], loss: Loss) -> float:
    """Return the mean loss of held-out rows."""
    losses = torch.cat(over_held_out(columns, held, loss))
    weight = weights[torch.cat(list(held)).to(weights.device)]
    return float((losses * weight).double().sum() / weight.double().sum())
