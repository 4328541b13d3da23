r"""The cross-entropy of few frequencies on a CPU: a table of cosines and the gradient in closed form.

Plain torch takes some forty operations on arrays so small that starting them is what they cost. Here
:math:`\ell = \log m + \log E - \log((1 - \epsilon)(R^2 + I^2) + \epsilon E)` takes both parts of A as products of the
outputs with rows of a table, and its gradient is those rows once more.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import torch
from torch import Tensor

from fourier_head.fourier import series
from fourier_head.kernels.devices import traced

# The most numbers in a table: one mebibyte, which a cache holds. Beyond it plain torch is as fast.
LARGEST = 1 << 18


def applies(x: Tensor, weight: Tensor | None, outputs: int, num_bins: int) -> bool:
    """Tell whether the loss of features and weights, or of 2 (N + 1) outputs, is in a table, unseen by any tracer."""
    tensors = [x] if weight is None else [x, weight]
    return (
        all(tensor.device.type == "cpu" and tensor.dtype == torch.float32 for tensor in tensors)
        and outputs <= 2 * num_bins
        and 2 * outputs * num_bins <= LARGEST
        and not torch.is_autocast_enabled("cpu")
        and not traced(*tensors)
    )


@functools.lru_cache(maxsize=8)
def _table(num_bins: int, length: int) -> Tensor:
    """Return (m, 2, 2 L): what the outputs [alpha, beta] are multiplied with for Re A and for Im A at every bin."""
    with torch.inference_mode(False):
        index = torch.arange(num_bins, device="cpu").view(-1, 1)
        cos, sin = series.phases_at_bins(index, num_bins, False, torch.float32)(length)
        cos, sin = cos[..., 0], sin[..., 0]
        return torch.stack([torch.cat([cos, sin], 1), torch.cat([-sin, cos], 1)], 1)


class _DirectLoss(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, outputs: Tensor, target: Tensor, num_bins: int, floor: float) -> Tensor:
        # The largest entry this way, not as a norm, which takes ten times as long on rows this short.
        scale = outputs.abs().amax(-1, keepdim=True).clamp_min_(1e-30).reciprocal_()
        y = outputs * scale
        basis = _table(num_bins, y.shape[-1] // 2).index_select(0, target)
        amplitude = torch.bmm(basis, y.unsqueeze(-1)).squeeze(-1)
        energy = torch.linalg.vecdot(y, y)
        total = energy + series.guard(y.dtype)
        mixed = torch.linalg.vecdot(amplitude, amplitude).mul_(1 - floor).add_(energy, alpha=floor)
        mixed += series.guard(y.dtype)
        ctx.save_for_backward(outputs, target, y, scale, basis, amplitude, total, mixed)
        ctx.options = num_bins, floor
        return (total / mixed).log_().add_(math.log(num_bins))

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        outputs, target, y, scale, basis, amplitude, total, mixed = ctx.saved_tensors
        num_bins, floor = ctx.options
        if torch.is_grad_enabled():
            # Someone wants the gradient of the gradient: plain torch has it.
            nll = -series.log_bin_mass(outputs.unflatten(-1, (2, -1)), target, num_bins, floor)
            return torch.autograd.grad(nll, outputs, upstream, create_graph=True)[0], None, None, None
        along = amplitude * (2 * (floor - 1) / mixed).unsqueeze(-1)
        grad = y * (2 / total - 2 * floor / mixed).unsqueeze(-1)
        for part in range(2):
            grad.addcmul_(basis[:, part], along[:, part, None])
        # The scale comes last: of coefficients that are all zero it is huge, and their gradient zero.
        return grad.mul_(upstream.unsqueeze(-1) * scale), None, None, None


def nll(outputs: Tensor, target: Tensor, num_bins: int, floor: float) -> Tensor:
    """Return -log y_t per token, as ``-series.log_bin_mass``, for bin ids already known to be good."""
    flat = outputs.reshape(-1, outputs.shape[-1])
    return _DirectLoss.apply(flat, target.reshape(-1), num_bins, floor).view(target.shape)
