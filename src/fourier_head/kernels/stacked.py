"""Small networks side by side on a CPU, with gradients in closed form."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable


class MemberLayers(torch.autograd.Function):
    """Layers of members in one piece, whose gradients are written where they are wanted.

    Layer by layer autograd would lay out each gradient first and then add it to zeros: for small layers that takes as
    long as the products.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, smooth: bool, gradients: Sequence[Tensor], *weights: Tensor) -> Tensor:
        kept = [x]
        for place in range(0, len(weights), 2):
            x = torch.baddbmm(weights[place + 1], x, weights[place])
            if place + 2 < len(weights):
                if smooth:  # whose slope is that of what came in
                    kept.append(x)
                    x = nn.functional.silu(x)
                else:
                    x = x.relu_()
                kept.append(x)
        ctx.save_for_backward(*kept, *weights[::2])
        ctx.smooth, ctx.gradients = smooth, gradients
        return x

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, out: Tensor) -> tuple[None, ...]:
        count = len(ctx.gradients) // 2
        kept, weights = ctx.saved_tensors[:-count], ctx.saved_tensors[-count:]
        for layer in reversed(range(count)):
            x = kept[2 * layer if ctx.smooth else layer]
            torch.bmm(x.mT, out, out=ctx.gradients[2 * layer])
            torch.sum(out, 1, keepdim=True, out=ctx.gradients[2 * layer + 1])
            if layer:
                before = torch.bmm(out, weights[layer].mT)
                if ctx.smooth:
                    out = torch.ops.aten.silu_backward(before, kept[2 * layer - 1])
                else:
                    out = torch.ops.aten.threshold_backward(before, x, 0)
        return (None,) * (3 + 2 * count)
