"""Train many small networks as one: every run of a kind is a slice of stacked tensors and advances in the same step."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

HIDDEN = (64, 32)


class StackedHead(Protocol):
    """Heads of R runs as pure functions of their projections (R, batch, outputs)."""

    out_features: int

    def initialise(self, weight: Tensor, bias: Tensor) -> list[Tensor]:
        """Adjust the first weights of the projection in place and return further parameters."""

    def losses(self, outputs: Tensor, target: Tensor, extra: Sequence[Tensor]) -> Tensor:
        """Return the loss of every token, (R, batch), regulariser included."""


@dataclass(frozen=True)
class Schedule:
    """How a stack is trained."""

    epochs: int
    batch: int
    rate: float
    cosine: bool = False
    clip: float | None = None

    def rate_at(self, share: float) -> float:
        """Return the learning rate after this share of the steps."""
        return self.rate * (1 + math.cos(math.pi * share)) / 2 if self.cosine else self.rate


class Stack:
    """R networks 2-64-32 with one kind of head.

    Args:
        head: the stacked heads.
        seeds: one per run; a run starts from the same weights whatever else is in the stack.
        device: where to train.
    """

    def __init__(self, head: StackedHead, seeds: Sequence[int], device: str = "cpu"):
        self.head, self.device = head, device
        sizes = [2, *HIDDEN, head.out_features]
        self.layers: list[tuple[Tensor, Tensor]] = []
        generators = [torch.Generator().manual_seed(seed) for seed in seeds]
        for inner, outer in itertools.pairwise(sizes):
            bound = 1 / math.sqrt(inner)  # as nn.Linear draws them
            drawn = [(2 * torch.rand(inner + 1, outer, generator=g) - 1) * bound for g in generators]
            both = torch.stack(drawn).to(device)
            self.layers.append((both[:, :inner].clone(), both[:, inner:].clone()))
        self.extra = head.initialise(*self.layers[-1])
        self.parameters = [t.requires_grad_() for layer in self.layers for t in layer]
        self.parameters += [t.requires_grad_() for t in self.extra]

    def outputs(self, x: Tensor) -> Tensor:
        """Return the projections (R, n, outputs) of inputs (R, n, 2)."""
        (w1, b1), (w2, b2), (w3, b3) = self.layers
        hidden = torch.relu(torch.baddbmm(b1, x, w1))
        hidden = torch.relu(torch.baddbmm(b2, hidden, w2))
        return torch.baddbmm(b3, hidden, w3)

    def train(
        self,
        inputs: Tensor,
        target: Tensor,
        data_of_run: Tensor,
        schedule: Schedule,
        order_seed: int = 0,
        report: Callable[[float], None] | None = None,
    ) -> None:
        """Train on inputs (D, n, 2) and targets (D, n) of D data sets; run r sees data set ``data_of_run[r]``."""
        optimizer = torch.optim.Adam(self.parameters, lr=schedule.rate, fused=True)
        order = torch.Generator().manual_seed(order_seed)
        count = inputs.shape[1]
        steps_per_epoch = -(-count // schedule.batch)
        for epoch in range(schedule.epochs):
            # Runs on the same data see it in the same order.
            shuffled = torch.rand(inputs.shape[0], count, generator=order).argsort(1).to(self.device)
            x = inputs.gather(1, shuffled.unsqueeze(-1).expand(-1, -1, 2))
            t = target.gather(1, shuffled)
            for step in range(steps_per_epoch):
                share = (epoch + step / steps_per_epoch) / schedule.epochs
                optimizer.param_groups[0]["lr"] = schedule.rate_at(share)
                rows = slice(step * schedule.batch, (step + 1) * schedule.batch)
                outputs = self.outputs(x[:, rows].index_select(0, data_of_run))
                loss = self.head.losses(outputs, t[:, rows].index_select(0, data_of_run), self.extra)
                optimizer.zero_grad(set_to_none=True)
                # Each run minimises its own mean; their sum has the gradients of all.
                loss.mean(1).sum().backward()
                if schedule.clip is not None:
                    self._clip(schedule.clip)
                optimizer.step()
            if report is not None:
                report((epoch + 1) / schedule.epochs)

    def _clip(self, largest: float) -> None:
        """Scale the gradient of each run to at most this norm."""
        gradients = [p.grad for p in self.parameters if p.grad is not None]
        norm = sum((g.flatten(1) ** 2).sum(1) for g in gradients).sqrt()  # type: ignore[union-attr]
        scale = (largest / norm.clamp_min(1e-12)).clamp_max(1)
        for g in gradients:
            g.mul_(scale.view(-1, *(1,) * (g.dim() - 1)))
