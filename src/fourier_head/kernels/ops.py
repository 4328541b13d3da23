"""Offer the fused losses to ``torch.compile`` as operators it need not look into."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from fourier_head.kernels import launch
from fourier_head.kernels import plan as plans
from fourier_head.kernels.plan import Plan
from fourier_head.kernels.rows import CONSTANTS, PER_POINT

_OPTIONS = (
    "int num_bins, float floor, int ignore_index, str reduction, float penalty, int points, bool walls, bool keep"
)
_INPUTS = "Tensor x, Tensor weight, Tensor? bias, Tensor target, Tensor? offsets, Tensor? class_weight"
_SAVED = (
    "Tensor upstream, Tensor x, Tensor weight, Tensor? bias, Tensor y, Tensor table, Tensor factors, Tensor? offsets"
)


def _plan(num_bins: int, *options: Any) -> Plan:
    # Schemas know no optional sizes: no bins are zero bins.
    return Plan(num_bins or None, *options)


@torch.library.custom_op(
    "fourier_head::fused_loss", mutates_args=(), schema=f"({_INPUTS}, {_OPTIONS}) -> (Tensor, Tensor, Tensor, Tensor)"
)
def _loss(x: Any, weight: Any, bias: Any, target: Any, offsets: Any, class_weight: Any, *options: Any) -> Any:
    return launch.forward(x, weight, bias, target, offsets, class_weight, _plan(*options[:-1]), options[-1])[:4]


@_loss.register_fake
def _(x: Any, weight: Any, bias: Any, target: Any, offsets: Any, class_weight: Any, *options: Any) -> Any:
    plan, keep = _plan(*options[:-1]), options[-1]
    tokens = x.shape[0]
    harmonics = weight.shape[0] // plan.halves
    resident = plans.is_resident(x, harmonics)
    tile = (
        plans.project_blocks(tokens, x.shape[1], harmonics) if resident else plans.evaluate_blocks(tokens, harmonics)
    ).tile
    lines = CONSTANTS.value + PER_POINT.value * plan.points + plans.ceil_div(harmonics, tile)
    reduce = plan.reduction != "none"
    return (
        x.new_empty(() if reduce else (tokens,), dtype=torch.float32),
        x.new_empty(
            (tokens if keep or not resident else 0, plan.halves * plan.padded(harmonics)),
            dtype=torch.float16 if resident else torch.float32,
        ),
        x.new_empty((lines if keep else 0, tokens), dtype=torch.int32),
        x.new_empty(2 if reduce else 0, dtype=torch.float32),
    )


@torch.library.custom_op(
    "fourier_head::fused_loss_backward",
    mutates_args=(),
    schema=f"({_SAVED}, {_OPTIONS}, bool need_x, bool need_weight, bool need_bias) -> (Tensor, Tensor, Tensor)",
)
def _gradients(
    upstream: Any, x: Any, weight: Any, bias: Any, y: Any, table: Any, factors: Any, offsets: Any, *options: Any
) -> Any:
    plan, needs = _plan(*options[:-4]), options[-3:]
    grads = launch.backward(upstream, x, weight, bias, y, table, factors, offsets, plan, needs, overwrite=False)
    return tuple(x.new_empty(0) if grad is None else grad for grad in grads)


@_gradients.register_fake
def _(
    upstream: Any, x: Any, weight: Any, bias: Any, y: Any, table: Any, factors: Any, offsets: Any, *options: Any
) -> Any:
    needs = options[-3:]
    shapes = zip((x, weight, bias), needs, strict=True)
    return tuple(
        x.new_empty(s.shape, dtype=s.dtype) if need and s is not None else x.new_empty(0) for s, need in shapes
    )


def _setup(ctx: Any, inputs: Any, output: Any) -> None:
    x, weight, bias, _, offsets, _, *options = inputs
    _, y, table, factors = output
    ctx.save_for_backward(x, weight, bias, y, table, factors, offsets)
    ctx.options = options


def _backward(ctx: Any, upstream: Tensor, *_: Any) -> tuple[Tensor | None, ...]:
    x, weight, bias, y, table, factors, offsets = ctx.saved_tensors
    needs = ctx.needs_input_grad[:3]
    grads = _gradients(upstream, x, weight, bias, y, table, factors, offsets, *ctx.options, *needs)
    return (*(grad if need else None for grad, need in zip(grads, needs, strict=True)), *([None] * 11))


_loss.register_autograd(_backward, setup_context=_setup)


def fused_loss(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    target: Tensor,
    offsets: Tensor | None,
    class_weight: Tensor | None,
    plan: Plan,
    keep: bool,
) -> Tensor:
    """Return the loss through the operators above."""
    loss, *_ = _loss(
        x, weight, bias, target, offsets, class_weight, plan.num_bins or 0, plan.floor, plan.ignore_index,
        plan.reduction, plan.penalty, plan.points, plan.walls, keep,
    )  # fmt: skip
    return loss
