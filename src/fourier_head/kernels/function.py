"""Join the kernels to autograd: one function that forgets its coefficients once their gradient has been taken."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from fourier_head.kernels import launch
from fourier_head.kernels.plan import Plan


class FusedLoss(torch.autograd.Function):
    """Compute a loss of projected coefficients; the stored coefficients become their own gradient going back."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        target: Tensor,
        offsets: Tensor | None,
        class_weight: Tensor | None,
        plan: Plan,
        keep: bool,
    ) -> Tensor:
        loss, y, table, factors, wide = launch.forward(x, weight, bias, target, offsets, class_weight, plan, keep)
        ctx.save_for_backward(x, weight, bias, target, offsets, class_weight, y, table, factors, wide)
        ctx.plan = plan
        ctx.spent = False
        return loss

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, bias, target, offsets, class_weight, y, table, factors, wide = ctx.saved_tensors
        if ctx.spent:
            # A second pass over a retained graph: the first one has overwritten the coefficients.
            _, y, table, factors, _ = launch.forward(x, weight, bias, target, offsets, class_weight, ctx.plan, True)
        ctx.spent = True
        needs = tuple(ctx.needs_input_grad[:3])
        grads = launch.backward(upstream, x, weight, bias, y, table, factors, offsets, ctx.plan, needs, wide)
        return (*grads, None, None, None, None, None)
