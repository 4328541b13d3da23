"""Train members side by side: each on its own batches, each judged by the rows it leaves out."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from fourier_head.tabular.members import MemberNetwork, Weights

USUAL_STEPS, GROWTH = 640, 0.25
"""For up to a thousand rows; more have more, by this power."""
SMALL_BATCH, LARGE_BATCH = 64, 512
CHECKS = 40
WARM_UP = 0.03
"""Share of the steps in which the learning rate rises."""
AVERAGED = 0.1
"""The weights that count are a mean over about this share of the steps so far."""
PATIENCE = 0.15
"""Share of the steps after which a course that gets no better ends."""
DROP_FROM, DROP_ERRORS, DROP_LOSS, DROP_ROWS = 0.25, 5.0, 0.1, 800
"""After this share of the steps a kind of network is dropped that is so many standard errors and so much behind, if
there are enough held-out rows to tell; of fewer it costs little to keep."""
LONGEST_GRADIENT = 1.0
LEARNING_RATE = 1e-2
"""At its highest, unless given."""
MOST_DECAY, DECAY = 0.1, 100.0
PORTION = 1 << 22
"""Inputs of held-out rows that are looked at at once."""


def usual_decay(rows: int) -> float:
    """Return the weight decay unless given: less for more rows, as a prior weighs less the more data there is."""
    return min(MOST_DECAY, DECAY / rows)


@dataclass(frozen=True)
class Plan:
    """How long and in what portions to train."""

    steps: int
    batch: int
    per_epoch: int
    patience: int | None

    @classmethod
    def for_rows(
        cls, rows: int, epochs: int | None = None, batch: int | None = None, patience: int | str | None = "auto"
    ) -> Plan:
        """Plan a course for so many rows: epochs, rows in a batch and patience, in epochs, as they are told.

        >>> Plan.for_rows(277), Plan.for_rows(7000).batch
        (Plan(steps=640, batch=64, per_epoch=4, patience=96), 256)
        """
        if batch is None:
            batch = min(LARGE_BATCH, max(SMALL_BATCH, 1 << round(math.log2(max(1, rows / 30)))))
        batch = min(batch, rows)
        per_epoch = rows // batch
        steps = USUAL_STEPS * max(1, rows / 1000) ** GROWTH if epochs is None else epochs * per_epoch
        steps = max(1, math.ceil(steps))
        if isinstance(patience, str):
            return cls(steps, batch, per_epoch, math.ceil(PATIENCE * steps))
        return cls(steps, batch, per_epoch, None if patience is None else patience * per_epoch)

    @property
    def check_every(self) -> int:
        """Steps between two looks at the held-out rows."""
        return max(1, self.steps // CHECKS)

    @property
    def epochs(self) -> int:
        """Passes through the rows, the last one perhaps not whole."""
        return self.epoch(self.steps)

    def epoch(self, step: int) -> int:
        """Return in which pass through the rows a step lies."""
        return math.ceil(step / self.per_epoch)

    def rate(self, step: int) -> float:
        """Return the learning rate of a step as a share of the highest: up in a straight line, down along a cosine."""
        return min(1, step / (WARM_UP * self.steps)) * (1 + math.cos(math.pi * step / self.steps)) / 2


@dataclass
class Course:
    """How a training went: epochs and scores where it was checked, the best epoch, and the time it took."""

    history: list[tuple[int, float]] = field(default_factory=list)
    best_epoch: int = 0
    seconds: float = 0.0
    interrupted: bool = False


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

    What is judged, and kept, is a mean of the weights over the last steps. The members of a body are taken from one
    moment, the best for the rows left out by any of them: of the few that one member leaves out little can be told.
    Bodies that are far behind the best one are dropped on the way.

    Args:
        network: the members.
        columns: tensors with one entry per row; inputs first.
        weights: of the rows.
        held: parts of the rows; the members of a body leave out one after the other, and are judged by it.
        loss: called with outputs (members, rows, size) and entries of the other columns, returns (members, rows).
        plan: how long and in what portions.
        seed: of the order of the rows.
        learning_rate, weight_decay: of AdamW, the rate at its highest.
        leave_out: whether members learn nothing from the rows that judge them; there may be too few for that.
        progress: called after each look at the held-out rows with the epoch and the score.
    """
    random = torch.Generator().manual_seed(seed)
    bodies, start = [Weights(body) for body in network.bodies.values()], time.perf_counter()
    inputs, columns = [columns[0][:, :size].contiguous() for size in network.in_features], columns[1:]
    batches = _batches(len(weights), _of_members(network, held), plan.batch, random, leave_out)
    course, found = Course(), 0
    network.train()
    try:
        for step in range(1, plan.steps + 1):
            index = next(batches).to(weights.device)
            with torch.no_grad():
                picked = zip(bodies, network.picked(inputs, index), strict=True)
                outputs = torch.cat([body.outputs(x) for body, x in picked]).requires_grad_()
            losses = loss(outputs, *(column[index] for column in columns))
            # A sum, as torch loads symbolic algebra for gradients of many numbers: as long as the fit of a small table.
            total = torch.dot(losses.flatten(), weights[index].flatten().div_(index.shape[1]))
            (slopes,) = torch.autograd.grad(total, outputs)
            with torch.no_grad():
                for body, slope in zip(bodies, slopes.split(network.members), strict=True):
                    body.backward(slope)
                    body.clip(LONGEST_GRADIENT)
                Weights.step(bodies, learning_rate * plan.rate(step), weight_decay)
                for body in bodies:
                    body.mean.lerp_(body.now, max(1 / step, 1 / (1 + AVERAGED * step)))
            if step % plan.check_every and step != plan.steps:
                continue
            losses, weight = _held_losses(network, bodies, inputs, columns, weights, held, loss)
            scores = (losses * weight).sum(1) / weight.sum()
            for body, score in zip(bodies, scores.tolist(), strict=True):
                if score < body.best_score:
                    body.best.copy_(body.mean)
                    body.best_score, course.best_epoch, found = score, plan.epoch(step), step
            course.history.append((plan.epoch(step), float(scores.min())))
            kept = _still_good(losses, weight) if step >= DROP_FROM * plan.steps else list(range(len(bodies)))
            if len(kept) < len(bodies):
                names = list(network.bodies)
                network.keep([names[b] for b in kept])
                bodies, inputs = [bodies[b] for b in kept], [inputs[b] for b in kept]
                batches = _batches(len(weights), _of_members(network, held), plan.batch, random, leave_out)
            if progress is not None:
                progress(plan.epoch(step), float(scores.min()))
            if plan.patience is not None and step - found >= plan.patience:
                break
    except KeyboardInterrupt:
        course.interrupted = True
    for body in bodies:
        body.release()
    network.eval()
    course.seconds = time.perf_counter() - start
    return course


def _of_members(network: MemberNetwork, held: Sequence[Tensor]) -> list[Tensor]:
    """Return the rows that each member leaves out."""
    return [held[j % len(held)] for count in network.members for j in range(count)]


def _still_good(losses: Tensor, weight: Tensor) -> list[int]:
    """Return the bodies whose losses (bodies, held-out rows) are not far above those of the best one."""
    if losses.shape[1] < DROP_ROWS:
        return list(range(len(losses)))
    means = (losses * weight).sum(1) / weight.sum()
    behind = losses - losses[means.argmin()]
    error = behind.std(1) / math.sqrt(losses.shape[1])
    far = (means - means.min()) > torch.clamp_min(DROP_ERRORS * error, DROP_LOSS)
    return (~far).nonzero().flatten().tolist()


def _batches(
    rows: int, held: Sequence[Tensor], size: int, random: torch.Generator, leave_out: bool = True
) -> Iterator[Tensor]:
    """Yield rows (members, size) for ever: each member goes through those it learns from in an order of its own."""
    learned = []
    for out in held:
        kept = torch.ones(rows, dtype=torch.bool)
        if leave_out:
            kept[out] = False
        learned.append(kept.nonzero().squeeze(1))
    least = min(map(len, learned))
    size = min(size, least)
    while True:
        order = torch.stack([own[torch.randperm(len(own), generator=random)[:least]] for own in learned])
        yield from order[:, : least - least % size].split(size, dim=1)


@torch.no_grad()
def _held_losses(
    network: MemberNetwork,
    bodies: Sequence[Weights],
    inputs: Sequence[Tensor],
    columns: Sequence[Tensor],
    weights: Tensor,
    held: Sequence[Tensor],
    loss: Loss,
) -> tuple[Tensor, Tensor]:
    """Return losses (bodies, rows) of held-out rows under the mean weights, and the weights of these rows.

    A loss is the mean over the members that leave out the same row.
    """
    before = [body.take(body.mean) for body in bodies]
    network.eval()
    of_members = _of_members(network, held)
    longest = max(map(len, held))
    padded = torch.stack([torch.nn.functional.pad(out, (0, longest - len(out))) for out in of_members])
    portion = max(1, PORTION // (len(padded) * max(network.in_features)))
    parts = []
    for index in padded.to(weights.device).split(portion, 1):
        outputs = network(network.picked(inputs, index))
        parts.append(loss(outputs, *(column[index] for column in columns)).cpu().double())
    network.train()
    for body, old in zip(bodies, before, strict=True):
        body.take(old)
    found = [
        torch.cat([own[part :: len(held), : len(out)].mean(0) for part, out in enumerate(held)])
        for own in torch.cat(parts, 1).split(network.members)
    ]
    return torch.stack(found), weights.cpu()[torch.cat(list(held))].double()
