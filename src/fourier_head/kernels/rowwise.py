"""Losses of rows that a library's product has projected: one kernel makes loss and gradient, two products the rest."""

from __future__ import annotations

import functools
import math
from typing import Any

import torch
from torch import Tensor

from fourier_head.kernels import plan as plans
from fourier_head.kernels import tables
from fourier_head.kernels.forward import pad_kernel
from fourier_head.kernels.launch import INTERPRETED, Gradients, launch, no_gradients, product, sums_buffer
from fourier_head.kernels.likelihood import likelihood_kernel
from fourier_head.kernels.places import KINDS
from fourier_head.kernels.plan import Score, ceil_div, power_of_two_above
from fourier_head.kernels.ranked import ranked_kernel
from fourier_head.kernels.rows import PER_POINT
from fourier_head.kernels.scaling import scale_kernel

# Multiplications from which on a product takes weights padded to whole vectors: on an H200 the copy takes two
# microseconds and the host one launch more; a product of 2^30 takes seven less, one of 2^34 a hundred and thirty.
PADDED_FROM = 1 << 30
Saved = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]


def padded(outputs: int) -> int:
    """Return the length of rows in whole vectors, which wide loads and matrix products are fast on."""
    return -(-outputs // 8) * 8


def pads(tokens: int, width: int, outputs: int) -> bool:
    """Tell whether the weights are copied with rows of zeros after them."""
    return outputs % 8 != 0 and tokens * width * outputs >= PADDED_FROM


def blocks_of(score: Score) -> plans.Blocks:
    """Return the blocks of the kernel of a score."""
    # A few rows per warp: what is known of a row is kept by every thread that holds a part of it. As measured.
    tile = max(16, power_of_two_above(score.length))
    if score.kind == "crps":
        return plans.Blocks(rows=32 if tile <= 128 else 16, tile=tile, warps=4 if tile <= 64 else 8)
    return plans.Blocks(rows=8 if score.packets else 16, tile=min(32, tile))


@functools.lru_cache(maxsize=256)
def _constants(
    score: Score, half: bool, bias: bool, weighted: bool, keep: bool, sums: bool
) -> tuple[plans.Blocks, dict[str, Any], object]:
    """Return blocks and constants of the kernel of a score, in the order in which the kernel takes them, and a key."""
    blocks = blocks_of(score)
    shared: dict[str, Any] = {"TARGET": KINDS[score.target], "WALLS": score.walls, "PLACES": score.places}
    passes = {
        "REDUCE": score.reduction != "none",
        "MEAN": score.reduction == "mean",
        "GRAD": keep,
        "NEED_BIAS": sums,
    }
    sizes = {"APPROX": half and not INTERPRETED, "ROWS": blocks.rows, "TILE": blocks.tile}
    if score.kind == "crps":
        points = blocks.tile if score.walls else 2 * blocks.tile
        constants = shared | {"BIAS": bias} | passes
        constants |= {"APPROX": sizes.pop("APPROX"), "HALF": half} | sizes | {"POINTS": points}
        return blocks, constants, object()
    constants = shared | {
        "PACKETS": score.packets,
        "PACKET_LANES": power_of_two_above(max(score.packets, 1)),
        "ATOM_LANES": power_of_two_above(score.atoms) if score.atoms else 0,
        "BIAS": bias,
        "WEIGHTED": weighted,
    }
    constants |= passes | {"POINTS": score.points, "LANES": max(1, PER_POINT.value * score.points)} | sizes
    return blocks, constants, object()


@functools.lru_cache(maxsize=1024)
def _numbers(score: Score, tokens: int, y_stride: int) -> tuple[float, ...]:
    """Return the numbers that the kernel of a score takes, in its order."""
    stride, outputs = padded(score.outputs), score.outputs
    packets = score.coefficients
    atoms = packets + 4 * score.packets
    places = atoms + score.atoms
    gain, counts = score.gain(tokens), (float(tokens), float(power_of_two_above(tokens)))
    if score.kind == "crps":
        e, circular = score.tails, score.target == "circle"
        constant = 0.25 if circular else (1 - e) / 6 + e * (1 - e) * (math.exp(-1) - 7 / 6) - 0.75 * e * e
        return (
            tokens, score.length, outputs, y_stride, stride, places, score.floor, score.origin, score.unit, e,
            score.omega, gain, score.worth, constant, 0.0 if circular else 1.0, *counts,
        )  # fmt: skip
    return (
        tokens, score.length, outputs, y_stride, stride, packets, atoms, score.atoms, places, max(score.num_bins, 1),
        score.ignore_index, score.floor, score.units, score.origin, score.unit, score.tails, score.penalty, score.omega,
        gain, *counts,
    )  # fmt: skip


def _kind(tensor: Tensor | None) -> Any:
    """Return what a compiled kernel depends on in a tensor of the caller, which may be of any type and lie anywhere."""
    return None if tensor is None else (tensor.dtype, tensor.data_ptr() & 15)


def wide_of(x: Tensor, weight: Tensor) -> Tensor:
    """Return the weights as products take them: with rows of zeros after them where that pays."""
    if not pads(x.shape[0], x.shape[1], weight.shape[0]):
        return weight
    outputs, width = weight.shape
    rows, block = padded(outputs), min(1024, power_of_two_above(width))
    wide = weight.new_empty(rows, width)
    key = ("pad", block, weight.dtype, weight.data_ptr() & 15, weight.stride(0), width, outputs)
    numbers = (outputs, rows, width, weight.stride(0))
    launch(key, pad_kernel, (rows, ceil_div(width, block)), (weight, wide), numbers, {"BLOCK": block})
    return wide


def forward(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, target: Tensor, anchor: Tensor | None,
    offsets: Tensor | None, class_weight: Tensor | None, score: Score, keep: bool, sums: bool,
) -> Saved:  # fmt: skip
    """Return the loss and what the backward pass needs: gradients of rows, a factor, sums for the bias, weights.

    Without a weight, ``x`` are the outputs already. Without ``keep`` nothing of the size of the outputs is written.
    """
    tokens, outputs = x.shape[0], score.outputs
    reduce = score.reduction != "none"
    blocks, constants, kernel = _constants(
        score, x.dtype != torch.float32, bias is not None, class_weight is not None, keep, sums
    )
    programs, stride = ceil_div(tokens, blocks.rows), padded(outputs)
    loss = torch.empty((), device=x.device) if reduce else torch.empty(tokens, device=x.device)
    factor = torch.empty(1, device=x.device)
    gradient = torch.empty((tokens, stride), device=x.device, dtype=x.dtype) if keep else factor
    bias_sums = torch.empty((programs, stride), device=x.device) if sums else factor
    if tokens == 0:
        return loss.zero_(), gradient, factor.zero_(), bias_sums, x
    wide = x if weight is None else wide_of(x, weight)
    y = x if weight is None else product(x, wide)
    partial = sums_buffer(x, 4 * programs) if reduce else factor
    numbers = _numbers(score, tokens, y.stride(0))
    # The gradients of rows have the type of x.
    key = (kernel, x.dtype, weight is None, *map(_kind, (y, target, bias, anchor, class_weight)))
    results = (gradient, loss, partial, factor, bias_sums)
    if score.kind == "crps":
        dtype = torch.float32 if x.dtype == torch.float32 else torch.float16
        cosine, sine = tables.power_points(blocks.tile, constants["POINTS"], score.walls, dtype, x.device)
        terms = tables.ranked_terms(blocks.tile, score.length, score.walls, score.target == "circle", x.device)
        sources: tuple[Tensor | None, ...] = (y, bias, target, anchor, cosine, sine, terms)
        launch(key, ranked_kernel, (programs,), (*sources, *results), numbers, constants, num_warps=blocks.warps)
    else:
        sources = (y, bias, target, anchor, offsets, class_weight)
        launch(key, likelihood_kernel, (programs,), (*sources, *results), numbers, constants, num_warps=blocks.warps)
    return loss, gradient, factor, bias_sums, wide


def backward(
    upstream: Tensor, x: Tensor, weight: Tensor | None, bias: Tensor | None, gradient: Tensor, factor: Tensor,
    sums: Tensor, wide: Tensor, score: Score, needs: tuple[bool, bool, bool],
) -> Gradients:  # fmt: skip
    """Return the gradients of (x, weight, bias); the gradient of the rows is overwritten."""
    outputs, tokens = score.outputs, len(x)
    if tokens == 0:
        return no_gradients(x, weight, bias, needs)
    grad_bias = torch.empty_like(bias) if needs[2] and bias is not None else None
    kept = 1.0
    if score.reduction == "none":
        gradient.mul_(upstream.unsqueeze(1))
        if grad_bias is not None:
            grad_bias.copy_(gradient[:, :outputs].sum(0, dtype=torch.float32))
    else:
        if x.dtype == torch.float16:
            # Over a number of tokens its numbers would be lost in sums of products; the results bear it.
            kept = float(power_of_two_above(tokens)) if score.reduction == "mean" else 1.0
        blocks, extra = ceil_div(gradient.numel(), 4096), ceil_div(outputs, 32) if grad_bias is not None else 0
        constants = {"NEED_BIAS": grad_bias is not None, "GROUPS": 32, "COLUMNS": 32, "BLOCK": 4096}
        launch(
            ("scale", gradient.dtype, _kind(bias), _kind(upstream), grad_bias is None), scale_kernel, (blocks + extra,),
            (gradient, sums, grad_bias, upstream, factor),
            (gradient.numel(), blocks, gradient.shape[1], outputs, len(sums), kept), constants, num_warps=8,
        )  # fmt: skip
    real = gradient if wide.shape[0] == gradient.shape[1] else gradient[:, :outputs]
    if weight is None:
        return real if kept == 1.0 else real / kept, None, grad_bias
    grad_x = torch.mm(real, wide) if needs[0] else None
    grad_weight = torch.mm(real.t(), x) if needs[1] else None
    if kept != 1.0:
        grad_x, grad_weight = (None if grad is None else grad.div_(kept) for grad in (grad_x, grad_weight))
    if grad_weight is not None and len(grad_weight) != outputs:
        grad_weight = grad_weight[:outputs]
    return grad_x, grad_weight, grad_bias
