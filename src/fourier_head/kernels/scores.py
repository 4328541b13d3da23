"""Losses of rows by autograd, or by an operator where ``torch.compile`` looks on."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor

from fourier_head.kernels.plan import Score, is_resident

# Up to this many frequencies the spectrum that a ranked score needs stays on the chip.
RANKED_FREQUENCIES = 64


def row_scores(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    target: Tensor,
    score: Score,
    class_weight: Tensor | None = None,
    anchor: Tensor | None = None,
    offsets: Tensor | None = None,
) -> Tensor:
    """Return the loss that a ``Score`` describes, of arguments that fit it and each other.

    Args:
        x, weight, bias: of the projection, or without a weight its outputs, which lie in the order of ``Layout``.
        target: bin ids or values, (tokens,).
        score: which loss.
        class_weight: weights of bins and atoms.
        anchor: guesses of the values, for a domain with three outputs.
        offsets: shifts in [0, 1), (tokens,), of the points of the roughness, in place of random ones.
    """
    x, weight = match(x, weight)
    # Of tensors that are contiguous this costs less than asking them.
    target = target.contiguous()
    bias = bias if bias is None else bias.contiguous()
    anchor = anchor if anchor is None else anchor.contiguous()
    class_weight = class_weight if class_weight is None else class_weight.contiguous()
    if not score.points:
        offsets = None
    elif offsets is None:
        offsets = torch.rand(x.shape[0], device=x.device)
    whole = weight is not None and score.is_free and is_resident(x, score.length)
    function, ops = _loaded()
    if torch.compiler.is_compiling():
        wanted = any(tensor is not None and tensor.requires_grad for tensor in (x, weight, bias))
        keep = torch.is_grad_enabled() and wanted
        return ops.row_loss(x, weight, bias, target, anchor, offsets, class_weight, score, keep, whole)
    if x.is_cuda and x.device.index != torch._C._cuda_getDevice():
        with torch.cuda.device(x.device):  # wherever the caller is
            return row_scores(x, weight, bias, target, score, class_weight, anchor, offsets)
    if whole:
        return function.FusedLoss.apply(x, weight, bias, target, offsets, class_weight, score)
    return function.RowLoss.apply(x, weight, bias, target, anchor, offsets, class_weight, score)


@functools.cache
def _loaded() -> tuple[Any, Any]:
    """Return the modules that need triton: it is optional, and importing it takes a while."""
    from fourier_head.kernels import function, ops

    return function, ops


def match(x: Tensor, weight: Any) -> tuple[Tensor, Any]:
    """Return both in one type, that of autocast where it is on, with rows of unit stride, as the kernels read them."""
    if weight is None:
        return x if x.stride(-1) == 1 else x.contiguous(), None
    if torch.is_autocast_enabled(x.device.type):
        dtype = torch.get_autocast_dtype(x.device.type)
        x, weight = x.to(dtype), weight.to(dtype)
    elif weight.dtype != x.dtype:
        raise TypeError(f"weight: expected the type of x, {x.dtype}, got {weight.dtype}")
    x = x if x.stride(-1) == 1 else x.contiguous()
    return x, weight if weight.stride(-1) == 1 else weight.contiguous()
