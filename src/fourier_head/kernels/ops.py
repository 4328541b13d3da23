"""Offer the losses to ``torch.compile`` as operators it need not look into."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
from torch import Tensor

from fourier_head.kernels import plan as plans
from fourier_head.kernels import resident, rowwise
from fourier_head.kernels.plan import Score
from fourier_head.kernels.rows import CONSTANTS, PER_POINT

_OPTIONS = ", ".join(f"{field.type} {field.name}" for field in dataclasses.fields(Score))
_NAMES = tuple(field.name for field in dataclasses.fields(Score))
_COUNT = len(_NAMES)
_NEEDS = "bool need_x, bool need_weight, bool need_bias"


@torch.library.custom_op(
    "fourier_head::loss",
    mutates_args=(),
    schema="(Tensor x, Tensor? weight, Tensor? bias, Tensor targets, Tensor? anchor, Tensor? offsets, "
    f"Tensor? class_weight, bool keep, bool whole, {_OPTIONS}) -> (Tensor, Tensor, Tensor)",
)
def _loss(
    x: Any, weight: Any, bias: Any, targets: Any, anchor: Any, offsets: Any, class_weight: Any, keep: Any, whole: Any,
    *options: Any,
) -> Any:  # fmt: skip
    score = Score(*options)
    if whole:
        return resident.forward(x, weight, bias, targets, offsets, class_weight, score, keep)
    loss, gradient, factor = rowwise.forward(x, weight, bias, targets, anchor, offsets, class_weight, score, keep)
    # No two results of an operator may be one tensor.
    return loss, gradient if keep else x.new_empty(0), factor


@_loss.register_fake
def _(
    x: Any, weight: Any, bias: Any, targets: Any, anchor: Any, offsets: Any, class_weight: Any, keep: Any, whole: Any,
    *options: Any,
) -> Any:  # fmt: skip
    score, tokens = Score(*options), x.shape[0]
    loss = x.new_empty(() if score.reduction != "none" else (tokens,), dtype=torch.float32)
    if not whole:
        gradient = x.new_empty((tokens, rowwise.padded(score.outputs)) if keep else 0)
        return loss, gradient, x.new_empty((), dtype=torch.float32)
    tile = plans.project_blocks(tokens, x.shape[1], score.length).tile
    lines = CONSTANTS.value + PER_POINT.value * score.points + plans.ceil_div(score.length, tile)
    y = x.new_empty((tokens if keep else 0, score.halves * score.padded), dtype=torch.float16)
    return loss, y, x.new_empty((lines if keep else 0, tokens), dtype=torch.int32)


@torch.library.custom_op(
    "fourier_head::loss_backward",
    mutates_args=(),
    schema="(Tensor upstream, Tensor x, Tensor? weight, Tensor? bias, Tensor kept, Tensor constants, "
    f"Tensor? offsets, bool whole, {_OPTIONS}, {_NEEDS}) -> (Tensor, Tensor, Tensor)",
)
def _gradients(
    upstream: Any, x: Any, weight: Any, bias: Any, kept: Any, constants: Any, offsets: Any, whole: Any, *options: Any
) -> Any:
    score, needs = Score(*options[:_COUNT]), options[_COUNT:]
    if whole:
        grads = resident.backward(upstream, x, weight, bias, kept, constants, offsets, score, needs, overwrite=False)
    else:
        grads = rowwise.backward(upstream, x, weight, bias, kept, constants, score, needs)
    # Operators return tensors, also where nothing is wanted, and none may be a part of another.
    return tuple(x.new_empty(0) if grad is None else grad.contiguous() for grad in grads)


@_gradients.register_fake
def _(
    upstream: Any, x: Any, weight: Any, bias: Any, kept: Any, constants: Any, offsets: Any, whole: Any, *options: Any
) -> Any:
    pairs = zip((x, weight, bias), options[_COUNT:], strict=True)
    return tuple(x.new_empty(0) if s is None or not need else x.new_empty(s.shape, dtype=s.dtype) for s, need in pairs)


def _setup(ctx: Any, inputs: Any, output: Any) -> None:
    x, weight, bias, _, _, offsets, _, _, *options = inputs
    ctx.save_for_backward(x, weight, bias, *output[1:], offsets)
    ctx.options = options  # whether rows stay on the chip first


def _backward(ctx: Any, upstream: Tensor, *_: Any) -> tuple[Tensor | None, ...]:
    needs = ctx.needs_input_grad[:3]
    grads = _gradients(upstream, *ctx.saved_tensors, *ctx.options, *needs)
    return (*(grad if need else None for grad, need in zip(grads, needs, strict=True)), *([None] * (6 + _COUNT)))


_loss.register_autograd(_backward, setup_context=_setup)


def row_loss(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, target: Tensor, anchor: Tensor | None,
    offsets: Tensor | None, class_weight: Tensor | None, score: Score, keep: bool, whole: bool,
) -> Tensor:  # fmt: skip
    """Return the loss of rows: ``whole`` ones stay on the chip, others a library's product has projected."""
    options = (getattr(score, name) for name in _NAMES)
    return _loss(x, weight, bias, target, anchor, offsets, class_weight, keep, whole, *options)[0]
