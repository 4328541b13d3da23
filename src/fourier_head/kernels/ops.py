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
_GRADIENTS = "(Tensor, Tensor, Tensor)"


def _like(x: Tensor, sources: Any, needs: Any) -> tuple[Tensor, ...]:
    """Return empty gradients: operators return tensors, also where nothing is wanted."""
    return tuple(
        x.new_empty(s.shape, dtype=s.dtype) if need and s is not None else x.new_empty(0)
        for s, need in zip(sources, needs, strict=True)
    )


def _present(x: Tensor, grads: Any) -> tuple[Tensor, ...]:
    return tuple(x.new_empty(0) if grad is None else grad for grad in grads)


def _wanted(grads: Any, needs: Any) -> tuple[Tensor | None, ...]:
    return tuple(grad if need else None for grad, need in zip(grads, needs, strict=True))


# --- rows that stay on the chip -------------------------------------------------------------------------------------


@torch.library.custom_op(
    "fourier_head::fused_loss",
    mutates_args=(),
    schema="(Tensor x, Tensor weight, Tensor? bias, Tensor targets, Tensor? offsets, Tensor? class_weight, bool keep, "
    f"{_OPTIONS}) -> (Tensor, Tensor, Tensor)",
)
def _loss(x: Any, weight: Any, bias: Any, targets: Any, offsets: Any, class_weight: Any, keep: Any, *score: Any) -> Any:
    return resident.forward(x, weight, bias, targets, offsets, class_weight, Score(*score), keep)


@_loss.register_fake
def _(x: Any, weight: Any, bias: Any, targets: Any, offsets: Any, class_weight: Any, keep: Any, *options: Any) -> Any:
    score, tokens = Score(*options), x.shape[0]
    tile = plans.project_blocks(tokens, x.shape[1], score.length).tile
    lines = CONSTANTS.value + PER_POINT.value * score.points + plans.ceil_div(score.length, tile)
    reduce = score.reduction != "none"
    return (
        x.new_empty(() if reduce else (tokens,), dtype=torch.float32),
        x.new_empty((tokens if keep else 0, score.halves * score.padded), dtype=torch.float16),
        x.new_empty((lines if keep else 0, tokens), dtype=torch.int32),
    )


@torch.library.custom_op(
    "fourier_head::fused_loss_backward",
    mutates_args=(),
    schema="(Tensor upstream, Tensor x, Tensor weight, Tensor? bias, Tensor y, Tensor table, "
    f"Tensor? offsets, {_OPTIONS}, {_NEEDS}) -> {_GRADIENTS}",
)
def _gradients(upstream: Any, x: Any, weight: Any, bias: Any, y: Any, table: Any, offsets: Any, *options: Any) -> Any:
    score, needs = Score(*options[:_COUNT]), options[_COUNT:]
    grads = resident.backward(upstream, x, weight, bias, y, table, offsets, score, needs, overwrite=False)
    return _present(x, grads)


@_gradients.register_fake
def _(upstream: Any, x: Any, weight: Any, bias: Any, y: Any, table: Any, offsets: Any, *options: Any) -> Any:
    return _like(x, (x, weight, bias), options[_COUNT:])


def _setup(ctx: Any, inputs: Any, output: Any) -> None:
    x, weight, bias, _, offsets, _, _, *options = inputs
    _, y, table = output
    ctx.save_for_backward(x, weight, bias, y, table, offsets)
    ctx.options = options


def _backward(ctx: Any, upstream: Tensor, *_: Any) -> tuple[Tensor | None, ...]:
    x, weight, bias, y, table, offsets = ctx.saved_tensors
    needs = ctx.needs_input_grad[:3]
    grads = _gradients(upstream, x, weight, bias, y, table, offsets, *ctx.options, *needs)
    return (*_wanted(grads, needs), *([None] * (4 + _COUNT)))


_loss.register_autograd(_backward, setup_context=_setup)


# --- rows that a library's product has projected --------------------------------------------------------------------


@torch.library.custom_op(
    "fourier_head::row_loss",
    mutates_args=(),
    schema="(Tensor x, Tensor? weight, Tensor? bias, Tensor targets, Tensor? anchor, Tensor? offsets, "
    f"Tensor? class_weight, bool keep, {_OPTIONS}) -> (Tensor, Tensor, Tensor)",
)
def _row_loss(
    x: Any, weight: Any, bias: Any, targets: Any, anchor: Any, offsets: Any, class_weight: Any, keep: Any, *score: Any
) -> Any:
    loss, gradient, factor = rowwise.forward(
        x, weight, bias, targets, anchor, offsets, class_weight, Score(*score), keep
    )
    # No two results of an operator may be one tensor.
    return loss, gradient if keep else x.new_empty(0), factor


@_row_loss.register_fake
def _(
    x: Any, weight: Any, bias: Any, targets: Any, anchor: Any, offsets: Any, class_weight: Any, keep: Any, *options: Any
) -> Any:
    score, tokens = Score(*options), x.shape[0]
    return (
        x.new_empty(() if score.reduction != "none" else (tokens,), dtype=torch.float32),
        x.new_empty((tokens, rowwise.padded(score.outputs)) if keep else 0),
        x.new_empty((), dtype=torch.float32),
    )


@torch.library.custom_op(
    "fourier_head::row_loss_backward",
    mutates_args=(),
    schema="(Tensor upstream, Tensor x, Tensor? weight, Tensor? bias, Tensor gradient, Tensor factor, "
    f"{_OPTIONS}, {_NEEDS}) -> {_GRADIENTS}",
)
def _row_gradients(upstream: Any, x: Any, weight: Any, bias: Any, gradient: Any, factor: Any, *options: Any) -> Any:
    score, needs = Score(*options[:_COUNT]), options[_COUNT:]
    grads = rowwise.backward(upstream, x, weight, bias, gradient, factor, score, needs)
    # Neither may a result be a part of another tensor.
    return _present(x, [None if grad is None else grad.contiguous() for grad in grads])


@_row_gradients.register_fake
def _(upstream: Any, x: Any, weight: Any, bias: Any, gradient: Any, factor: Any, *options: Any) -> Any:
    return _like(x, (x, weight, bias), options[_COUNT:])


def _setup_rows(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.save_for_backward(*inputs[:3], *output[1:])
    ctx.options = inputs[8:]


def _backward_rows(ctx: Any, upstream: Tensor, *_: Any) -> tuple[Tensor | None, ...]:
    needs = ctx.needs_input_grad[:3]
    grads = _row_gradients(upstream, *ctx.saved_tensors, *ctx.options, *needs)
    return (*_wanted(grads, needs), *([None] * (5 + _COUNT)))


_row_loss.register_autograd(_backward_rows, setup_context=_setup_rows)


# --- what the package calls -----------------------------------------------------------------------------------------


def _options(score: Score) -> tuple[Any, ...]:
    return tuple(getattr(score, name) for name in _NAMES)


def fused_loss(
    x: Tensor, weight: Tensor, bias: Tensor | None, target: Tensor, offsets: Tensor | None,
    class_weight: Tensor | None, score: Score, keep: bool,
) -> Tensor:  # fmt: skip
    """Return the loss of rows that stay on the chip."""
    return _loss(x, weight, bias, target, offsets, class_weight, keep, *_options(score))[0]


def row_loss(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, target: Tensor, anchor: Tensor | None,
    offsets: Tensor | None, class_weight: Tensor | None, score: Score, keep: bool,
) -> Tensor:  # fmt: skip
    """Return the loss of rows that a library's product has projected."""
    return _row_loss(x, weight, bias, target, anchor, offsets, class_weight, keep, *_options(score))[0]
