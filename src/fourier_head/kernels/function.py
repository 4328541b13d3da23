"""Join the kernels to autograd: functions that know the gradient of their loss, or how to make it of what they kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from fourier_head.kernels import resident, rowwise
from fourier_head.kernels.plan import Score

Backward = Callable[[Any, Tensor], tuple[Tensor | None, ...]]


def _once_differentiable(backward: Backward) -> Backward:
    """Refuse gradients of gradients as torch does, which takes a tenth of a step; without those there is no need to."""
    careful = torch.autograd.function.once_differentiable(backward)

    def chosen(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        return careful(ctx, upstream) if torch.is_grad_enabled() else backward(ctx, upstream)

    return chosen


class KernelFunction(torch.autograd.Function):
    """A function that asks once for functorch's transforms, where torch looks for their traces in every argument."""

    @classmethod
    def apply(cls, *args: Any) -> Tensor:
        if torch._C._are_functorch_transforms_active():
            return super().apply(*args)
        return super(torch.autograd.Function, cls).apply(*args)  # type: ignore[misc]


class FusedLoss(KernelFunction):
    """Project and evaluate in one kernel; the stored coefficients become their own gradient going back."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        target: Tensor,
        offsets: Tensor | None,
        class_weight: Tensor | None,
        score: Score,
    ) -> Tensor:
        keep = any(ctx.needs_input_grad)
        loss, y, table = resident.forward(x, weight, bias, target, offsets, class_weight, score, keep)
        ctx.save_for_backward(x, weight, bias, target, offsets, class_weight, y, table)
        ctx.score = score
        ctx.spent = False
        return loss

    @staticmethod
    @_once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, bias, target, offsets, class_weight, y, table = ctx.saved_tensors
        if ctx.spent:
            # A second pass over a retained graph: the first one has overwritten the coefficients.
            _, y, table = resident.forward(x, weight, bias, target, offsets, class_weight, ctx.score, True)
        ctx.spent = True
        needs = tuple(ctx.needs_input_grad[:3])
        grads = resident.backward(upstream, x, weight, bias, y, table, offsets, ctx.score, needs)
        return (*grads, None, None, None, None)


class RowLoss(KernelFunction):
    """Evaluate rows that a library's product has projected; the gradient of the rows is known from then on."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor | None,
        bias: Tensor | None,
        target: Tensor,
        anchor: Tensor | None,
        offsets: Tensor | None,
        class_weight: Tensor | None,
        score: Score,
    ) -> Tensor:
        keep = any(ctx.needs_input_grad)
        loss, *kept = rowwise.forward(x, weight, bias, target, anchor, offsets, class_weight, score, keep)
        ctx.save_for_backward(x, weight, bias, *kept)
        ctx.score = score
        return loss

    @staticmethod
    @_once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, bias, gradient, factor = ctx.saved_tensors
        needs = ctx.needs_input_grad[:3]
        grads = rowwise.backward(upstream, x, weight, bias, gradient, factor, ctx.score, needs)
        return (*grads, None, None, None, None, None)
