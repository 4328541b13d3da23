"""Small networks side by side on a CPU, with gradients in closed form."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn


def forward(x: Tensor, smooth: bool, weights: Sequence[Tensor]) -> tuple[Tensor, list[Tensor]]:
    """Return outputs (members, rows, size) of layers with SiLU or ReLU between them, and what ``backward`` needs.

    Args:
        x: (members, rows, inputs).
        smooth: whether it is SiLU.
        weights: of each layer its matrices (members, inputs, outputs) and biases (members, 1, outputs), in turn.
    """
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
    return x, kept


def backward(
    out: Tensor, kept: Sequence[Tensor], smooth: bool, weights: Sequence[Tensor], gradients: Sequence[Tensor]
) -> None:
    """Write the gradients of the weights, given those of the outputs, where they are wanted.

    Layer by layer autograd would lay out each gradient first and then add it to zeros, and its bookkeeping alone takes
    as long as the products of small layers.
    """
    for layer in reversed(range(len(weights) // 2)):
        x = kept[2 * layer if smooth else layer]
        torch.bmm(x.mT, out, out=gradients[2 * layer])
        torch.sum(out, 1, keepdim=True, out=gradients[2 * layer + 1])
        if layer:
            before = torch.bmm(out, weights[2 * layer].mT)
            if smooth:
                out = torch.ops.aten.silu_backward(before, kept[2 * layer - 1])
            else:
                out = torch.ops.aten.threshold_backward(before, x, 0)
