"""Train many small networks as one: every run of a kind is a slice of stacked tensors and advances in the same step.

The networks are so small that what surrounds the arithmetic decides their speed. So the backward pass of the body is
written out, all parameters lie in one buffer that one call of Adam updates, biases are rows of the weights (inputs have
a constant column), and every product goes into memory that is allocated once.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

HIDDEN = (64, 32)


class StackedHead(Protocol):
    """Heads of R runs as pure functions of their projections (R, batch, outputs).

    Targets are those of D data sets, (D, batch); run r is on data set r % D.
    """

    out_features: int

    def initialise(self, weight: Tensor, bias: Tensor) -> list[Tensor]:
        """Adjust the first weights of the projection in place and return further parameters, (R, ...) each."""

    def gradients(self, outputs: Tensor, target: Tensor, extra: Sequence[Tensor], out: Tensor) -> list[Tensor]:
        """Write the gradient of the loss in the outputs into ``out``, and return those in each of the extra parameters.

        The loss is the mean over the tokens of a run, summed over runs.
        """


@dataclass(frozen=True)
class Schedule:
    """How a stack is trained.

    Args:
        epochs, batch, rate: passes over the data, rows of a batch, learning rate of Adam.
        cosine: let the rate fall to zero along a cosine.
        clip: largest norm of the gradient of a run.
        jitter: half width of the uniform noise added to inputs, drawn anew in each epoch.
    """

    epochs: int
    batch: int
    rate: float
    cosine: bool = False
    clip: float | None = None
    jitter: float = 0.0

    def rate_at(self, share: float) -> float:
        """Return the learning rate after this share of the steps."""
        return self.rate * (1 + math.cos(math.pi * share)) / 2 if self.cosine else self.rate

    def shortened(self, epochs: int | None) -> Schedule:
        """Return the schedule with another number of epochs, where one is given."""
        return self if epochs is None else replace(self, epochs=epochs)


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
        drawn = []
        generators = [torch.Generator().manual_seed(seed) for seed in seeds]
        for inner, outer in itertools.pairwise(sizes):
            bound = 1 / math.sqrt(inner)  # as nn.Linear draws them
            layers = [(2 * torch.rand(inner + 1, outer, generator=g) - 1) * bound for g in generators]
            drawn.append(torch.stack(layers).to(device))
        extra = head.initialise(drawn[-1][:, :-1], drawn[-1][:, -1:])
        parts = [*drawn, *extra]
        self.parameters = torch.cat([p.flatten(1) for p in parts], dim=1)
        self.gradient = torch.zeros_like(self.parameters)
        self._shapes = [p.shape[1:] for p in parts]
        # Weights with the bias as their last row, (R, inputs + 1, outputs); then what else the heads learn.
        self.layers, self.extra = self._split(self.parameters)

    def _split(self, flat: Tensor) -> tuple[list[Tensor], list[Tensor]]:
        """Return views of a buffer like that of the parameters: of the three layers, of further parameters."""
        pieces = flat.split([shape.numel() for shape in self._shapes], dim=1)
        views = [piece.unflatten(1, shape) for piece, shape in zip(pieces, self._shapes, strict=True)]
        return views[:3], views[3:]

    def outputs(self, x: Tensor) -> Tensor:
        """Return the projections (R, n, outputs) of inputs (R, n, 2)."""
        hidden = x
        for layer in self.layers[:-1]:
            hidden = torch.relu(torch.baddbmm(layer[:, -1:], hidden, layer[:, :-1]))
        return torch.baddbmm(self.layers[-1][:, -1:], hidden, self.layers[-1][:, :-1])

    @torch.no_grad()
    def train(
        self,
        inputs: Tensor,
        target: Tensor,
        schedule: Schedule,
        order_seed: int = 0,
        report: Callable[[float], None] | None = None,
    ) -> None:
        """Train on inputs (D, n, 2) and targets (D, n) of D data sets; run r sees data set r % D."""
        if len(self.parameters) % len(inputs):
            raise ValueError(
                f"runs must be a multiple of the data sets, got {len(self.parameters)} runs and {len(inputs)} data sets"
            )
        self.parameters.grad = self.gradient
        optimizer = torch.optim.Adam([self.parameters], lr=schedule.rate, fused=True)
        order = torch.Generator().manual_seed(order_seed)
        count = inputs.shape[1]
        with_one = torch.cat([inputs, torch.ones_like(inputs[..., :1])], dim=-1)
        steps_per_epoch = -(-count // schedule.batch)
        passes: dict[int, _Pass] = {}
        for epoch in range(schedule.epochs):
            # Runs on the same data see it in the same order.
            shuffled = torch.rand(inputs.shape[0], count, generator=order).argsort(1).to(self.device)
            x = with_one.gather(1, shuffled.unsqueeze(-1).expand(-1, -1, 3))
            t = target.gather(1, shuffled)
            if schedule.jitter:
                noise = torch.rand(*x.shape[:2], 2, generator=order).to(self.device)
                x[..., :2] += (2 * noise - 1) * schedule.jitter
            for step in range(steps_per_epoch):
                share = (epoch + step / steps_per_epoch) / schedule.epochs
                optimizer.param_groups[0]["lr"] = schedule.rate_at(share)
                rows = slice(step * schedule.batch, (step + 1) * schedule.batch)
                batch = x[:, rows]
                if batch.shape[1] not in passes:  # the last batch of an epoch may be smaller
                    passes[batch.shape[1]] = _Pass(self, *batch.shape[:2])
                passes[batch.shape[1]].backward(batch, t[:, rows])
                if schedule.clip is not None:
                    # The gradient of each run, to at most this norm.
                    norm = torch.linalg.vector_norm(self.gradient, dim=1, keepdim=True)
                    self.gradient.mul_((schedule.clip / norm.clamp_min_(1e-12)).clamp_max_(1))
                optimizer.step()
            if report is not None:
                report((epoch + 1) / schedule.epochs)
        self.parameters.grad = None


class _Pass:
    """The memory of a forward and backward pass over batches of one size, and the pass itself."""

    def __init__(self, stack: Stack, datasets: int, batch: int):
        self.stack = stack
        runs = len(stack.parameters)

        def allocate(columns: int) -> Tensor:
            return torch.ones(runs, batch, columns, device=stack.device)

        first, second = HIDDEN
        # Each hidden layer has a constant column, for the bias of the next; it passes relu unchanged. Rows that are
        # not a power of two long also keep the columns of a matrix from falling into the same lines of the cache.
        self.hidden1, self.hidden2 = allocate(first + 1), allocate(second + 1)
        self.of_hidden1, self.of_hidden2 = allocate(first + 1), allocate(second + 1)
        self.outputs, self.of_outputs = allocate(stack.head.out_features), allocate(stack.head.out_features)
        self.x = torch.empty(1, datasets, batch, 3, device=stack.device)
        (w1, w2, w3), (of_layers, self.of_extra) = stack.layers, stack._split(stack.gradient)
        active1, active2 = self.hidden1[..., :first], self.hidden2[..., :second]
        of_active1, of_active2 = self.of_hidden1[..., :first], self.of_hidden2[..., :second]

        def by_data(t: Tensor) -> Tensor:  # inputs are shared by the runs on a data set
            return t.unflatten(0, (runs // datasets, datasets))

        self.to_hidden1 = _product(self.x, by_data(w1), by_data(active1))
        self.to_hidden2 = _product(self.hidden1, w2, active2)
        self.to_outputs = _product(self.hidden2, w3, self.outputs)
        self.to_layer3 = _product(self.hidden2.mT, self.of_outputs, of_layers[2])
        self.back_to_hidden2 = _product(self.of_outputs, w3.mT, self.of_hidden2)
        self.to_layer2 = _product(self.hidden1.mT, of_active2, of_layers[1])
        self.back_to_hidden1 = _product(of_active2, w2.mT, self.of_hidden1)
        self.to_layer1 = _product(self.x.mT, by_data(of_active1), by_data(of_layers[0]))

    def backward(self, x: Tensor, target: Tensor) -> None:
        """Write the gradients for one batch, x (D, batch, 3), into the buffer of the stack."""
        self.x[0] = x
        self.to_hidden1()
        self.hidden1.relu_()
        self.to_hidden2()
        self.hidden2.relu_()
        self.to_outputs()
        of_extra = self.stack.head.gradients(self.outputs, target, self.stack.extra, self.of_outputs)
        for place, value in zip(self.of_extra, of_extra, strict=True):
            place.copy_(value)
        self.to_layer3()
        self.back_to_hidden2()
        _through_relu(self.of_hidden2, self.hidden2)
        self.to_layer2()
        self.back_to_hidden1()
        _through_relu(self.of_hidden1, self.hidden1)
        self.to_layer1()


def _through_relu(gradient: Tensor, activation: Tensor) -> None:
    """Set the gradient to zero in place where the activation is."""
    torch.ops.aten.threshold_backward.grad_input(gradient, activation, 0, grad_input=gradient)


def _product(a: Tensor, b: Tensor, out: Tensor) -> Callable[[], object]:
    """Return what writes the products of stacked matrices, as they are when it is called, into ``out``.

    Without MKL torch takes 5 µs per matrix on top of the arithmetic, which is as much as a product of this size takes;
    numpy goes through the stack in C.
    """
    if a.device.type != "cpu" or torch.backends.mkl.is_available():
        return lambda: torch.matmul(a, b, out=out)
    left, right, result = a.numpy(), b.numpy(), out.numpy()
    return lambda: np.matmul(left, right, out=result)
