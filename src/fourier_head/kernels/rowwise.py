"""Losses of rows that a library's matrix product has projected: one kernel makes loss and gradient, autograd the rest."""

from __future__ import annotations

import functools
import math
from typing import Any

import torch
from torch import Tensor

from fourier_head.kernels import plan as plans
from fourier_head.kernels import tables
from fourier_head.kernels.combine import combine_kernel
from fourier_head.kernels.launch import INTERPRETED, Gradients, add_up, empty, launch, no_gradients, product
from fourier_head.kernels.likelihood import likelihood_kernel
from fourier_head.kernels.places import KINDS
from fourier_head.kernels.plan import Score, ceil_div, power_of_two_above
from fourier_head.kernels.ranked import ranked_kernel
from fourier_head.kernels.rows import PER_POINT


def blocks_of(score: Score) -> plans.Blocks:
    """Return the blocks of the kernel of a score."""
    # A few rows per warp: what is known of a row is kept by every thread that holds a part of it.
    tile = max(16, power_of_two_above(score.length))
    return plans.Blocks(rows=16, tile=tile, warps=8) if score.kind == "crps" else plans.Blocks(rows=8, tile=min(64, tile))


@functools.lru_cache(maxsize=256)
def _constants(
    score: Score, half: bool, bias: bool, weighted: bool, keep: bool, sums: bool
) -> tuple[plans.Blocks, dict[str, Any], object]:
    """Return blocks and constants of the kernel of a score, in the order in which the kernel takes them, and a key."""
    blocks = blocks_of(score)
    approximate = half and not INTERPRETED
    shared: dict[str, Any] = {"TARGET": KINDS[score.target], "WALLS": score.walls, "PLACES": score.places}
    if score.kind == "crps":
        points = blocks.tile if score.walls else 2 * blocks.tile
        return blocks, shared | {
            "BIAS": bias,
            "REDUCE": score.reduction != "none",
            "GRAD": keep,
            "NEED_BIAS": sums,
            "APPROX": approximate,
            "PRECISION": "tf32" if half else "ieee",
            "ROWS": blocks.rows,
            "TILE": blocks.tile,
            "POINTS": points,
        }, object()
    return blocks, shared | {
        "PACKETS": score.packets,
        "PACKET_LANES": power_of_two_above(max(score.packets, 1)),
        "ATOM_LANES": power_of_two_above(score.atoms) if score.atoms else 0,
        "BIAS": bias,
        "WEIGHTED": weighted,
        "REDUCE": score.reduction != "none",
        "GRAD": keep,
        "NEED_BIAS": sums,
        "POINTS": score.points,
        "LANES": max(1, PER_POINT.value * score.points),
        "APPROX": approximate,
        "ROWS": blocks.rows,
        "TILE": blocks.tile,
    }, object()


def _kind(tensor: Tensor | None) -> Any:
    """Return what a compiled kernel depends on in a tensor."""
    return None if tensor is None else (tensor.dtype, tensor.data_ptr() & 15)


Saved = tuple[Tensor, Tensor, Tensor, Tensor]


def forward(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, target: Tensor, anchor: Tensor | None,
    offsets: Tensor | None, class_weight: Tensor | None, score: Score, keep: bool, sums: bool,
) -> Saved:  # fmt: skip
    """Return the loss and what the backward pass needs: gradients of rows, factors, and their sums for the bias.

    Without a weight, ``x`` are the outputs already. Without ``keep`` nothing of the size of the outputs is written.
    """
    tokens, outputs = x.shape[0], score.outputs
    half = x.dtype != torch.float32
    blocks, constants, kernel = _constants(score, half, bias is not None, class_weight is not None, keep, sums)
    programs = ceil_div(tokens, blocks.rows)
    reduce = score.reduction != "none"
    loss = empty(x) if reduce else empty(x, tokens)
    stride = padded(outputs)
    gradient = empty(x, tokens if keep else 0, stride, dtype=x.dtype)
    partial = empty(x, 4 * programs if reduce else 0)
    factors = empty(x, 2)
    bias_sums = empty(x, programs if sums else 0, stride)
    if tokens == 0:
        return loss.zero_(), gradient, factors.zero_(), bias_sums
    y = x if weight is None else product(x, weight)
    # Tensors of the caller may be of any type and lie anywhere; all others are known.
    key = (kernel, y.dtype, *map(_kind, (x, target, bias, anchor, class_weight)))
    gain = score.gain(tokens)
    places = score.coefficients + 4 * score.packets
    if score.kind == "crps":
        cosine, sine = tables.power_points(blocks.tile, constants["POINTS"], score.walls, x.device)
        circular = score.target == "circle"
        terms = tables.ranked_terms(blocks.tile, score.length, score.walls, circular, x.device)
        e = score.tails
        constant = 0.25 if circular else (1 - e) / 6 + e * (1 - e) * (math.exp(-1) - 7 / 6) - 0.75 * e * e
        launch(
            key, ranked_kernel, (programs,),
            (y, bias, target, anchor, cosine, sine, terms, gradient, loss, partial, bias_sums,
             tokens, score.length, outputs, y.stride(0), stride, places + score.atoms,
             score.floor, score.origin, score.unit, e, score.omega, gain, score.worth, constant, 0.0 if circular else 1.0),
            constants, num_warps=blocks.warps,
        )  # fmt: skip
    else:
        launch(
            key, likelihood_kernel, (programs,),
            (y, bias, target, anchor, offsets, class_weight, gradient, loss, partial, bias_sums,
             tokens, score.length, outputs, y.stride(0), stride, score.coefficients, places, score.atoms,
             places + score.atoms, max(score.num_bins, 1), score.ignore_index,
             score.floor, score.units, score.origin, score.unit, score.tails, score.penalty, score.omega, gain),
            constants, num_warps=blocks.warps,
        )  # fmt: skip
    if reduce:
        add_up(partial, loss, factors, programs, score, tokens, power_of_two_above(tokens))
    return loss, gradient, factors, bias_sums


def padded(outputs: int) -> int:
    """Return the length of rows in whole vectors, which wide loads and matrix products are fast on."""
    return -(-outputs // 8) * 8


def backward(
    upstream: Tensor, x: Tensor, weight: Tensor | None, bias: Tensor | None, gradient: Tensor, factors: Tensor,
    sums: Tensor, score: Score, needs: tuple[bool, bool, bool],
) -> Gradients:  # fmt: skip
    """Return the gradients of (x, weight, bias)."""
    outputs = score.outputs
    if len(x) == 0:
        return no_gradients(x, weight, bias, needs)
    if score.reduction == "none":
        gradient = gradient * upstream.unsqueeze(1).to(gradient.dtype)
        grad_bias = gradient[:, :outputs].sum(0).to(bias.dtype) if needs[2] and bias is not None else None
        if weight is None:
            return gradient[:, :outputs], None, grad_bias
        wide = torch.nn.functional.pad(weight, (0, 0, 0, gradient.shape[1] - outputs))
        grad_x = torch.mm(gradient, wide) if needs[0] else None
        return grad_x, torch.mm(gradient.t(), x)[:outputs] if needs[1] else None, grad_bias
    if weight is None:
        grad_bias = (sums.sum(0)[:outputs] * (upstream * factors[0])).to(bias.dtype) if bias is not None else None
        return gradient[:, :outputs] * (upstream * factors[0]), None, grad_bias
    width, stride = weight.shape[1], gradient.shape[1]
    wide = weight.new_empty(stride, width)
    scale = empty(x)
    grad_bias = torch.empty_like(bias) if needs[2] and bias is not None else None
    block = min(1024, power_of_two_above(width))
    # The smallest numbers of float16 are not small enough for weights over a number of tokens: there results are scaled.
    first = x.dtype != torch.float16
    extra = ceil_div(outputs, 32) if grad_bias is not None else 0
    constants = {"SCALED": first, "NEED_BIAS": grad_bias is not None, "GROUPS": 32, "COLUMNS": 32, "BLOCK": block}
    launch(
        ("combine", *map(_kind, (weight, bias, upstream)), *constants.values()),
        combine_kernel, (stride + extra, ceil_div(width, block)),
        (weight, wide, sums, grad_bias, upstream, factors, scale, outputs, stride, width, weight.stride(0), len(sums)),
        constants,
    )  # fmt: skip
    grad_x = grad_weight = None
    if needs[0]:
        grad_x = torch.mm(gradient, wide)
        if not first:
            grad_x.mul_(scale)
    if needs[1]:
        grad_weight = torch.mm(gradient.t(), x).mul_(scale)[:outputs]
    return grad_x, grad_weight, grad_bias
