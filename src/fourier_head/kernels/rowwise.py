"""Losses of rows that a library's product has projected: one kernel makes loss and gradient, two products the rest."""

from __future__ import annotations

import functools
import math
from typing import Any

import torch
from torch import Tensor

from fourier_head.kernels import plan as plans
from fourier_head.kernels import tables
from fourier_head.kernels.launch import (
    INTERPRETED,
    Gradients,
    Site,
    gather_site,
    launch,
    no_gradients,
    pad_rows,
    product,
    sums_buffer,
    traits,
)
from fourier_head.kernels.likelihood import likelihood_kernel
from fourier_head.kernels.packets import STEP
from fourier_head.kernels.places import KINDS
from fourier_head.kernels.plan import Score, ceil_div, power_of_two_above
from fourier_head.kernels.products import products_kernel
from fourier_head.kernels.ranked import ranked_kernel

# Multiplications from which on a product takes weights padded to whole vectors: on an H200 the copy takes two
# microseconds and the host one launch more; a product of 2^30 takes seven less, one of 2^34 a hundred and thirty.
PADDED_FROM = 1 << 30
# Numbers in x up to which one kernel does both products of a backward pass, of at most so many outputs: a step is
# bound by launches there, and an adaptive likelihood takes 16 microseconds of an H200, with the library's products 30.
FEW_NUMBERS = 1 << 20
FEW_OUTPUTS = 64
# Rows of one program of the likelihood's kernel where there are many, of at most so many harmonics: one warp exchanges
# sums without a barrier, and the sums of programs, a fence and an atomic each, are few. A fifth faster than four
# warps to a row; 2048 harmonics of a row would not fit the registers of one.
IN_TURN = 8
ONE_WARP = 1024
Saved = tuple[Tensor, Tensor, Tensor, Tensor]


def padded(outputs: int) -> int:
    """Return the length of rows in whole vectors, which wide loads and matrix products are fast on."""
    return -(-outputs // 8) * 8


def pads(tokens: int, width: int, outputs: int) -> bool:
    """Tell whether the weights are copied with rows of zeros after them."""
    return outputs % 8 != 0 and tokens * width * outputs >= PADDED_FROM


@functools.lru_cache(maxsize=256)
def blocks_of(score: Score, tokens: int) -> plans.Blocks:
    """Return the blocks of the kernel of a score of so many rows."""
    tile = max(16, power_of_two_above(score.length))
    if score.kind == "crps":
        # All threads together keep the tables of cosines: with four warps 64 harmonics spill a thousand bytes each.
        return plans.Blocks(rows=32 if tile <= 64 else 16, tile=tile, warps=4 if tile <= 32 else 8)
    if tokens > plans.FEW_TOKENS and tile <= ONE_WARP:
        return plans.Blocks(rows=1, tile=tile, warps=1, steps=IN_TURN)
    # Whole rows, one or two of which a thread shares in: what is known of each, its coefficients and their cosines then
    # take about a hundred registers, and five programs share a processor. So do two harmonics of packets: nine sums.
    rows = max(256 // tile, 2 if tile <= 512 else 1)
    if score.packets:
        rows = max(1, min(rows, 256 // (STEP.value * power_of_two_above(score.packets))))
    return plans.Blocks(rows=rows, tile=tile, warps=min(16, max(4, tile // 256)))


@functools.lru_cache(maxsize=1024)
def _site(score: Score, tokens: int, y_stride: int, half: bool, bias: bool, weighted: bool, keep: bool) -> Site:
    """Return the launch of the kernel of a score."""
    blocks, ranked = blocks_of(score, tokens), score.kind == "crps"
    kernel: Any = ranked_kernel if ranked else likelihood_kernel
    points = blocks.tile if score.walls else 2 * blocks.tile  # that determine a spectrum
    known: dict[str, Any] = {
        "TARGET": KINDS[score.target],
        "WALLS": score.walls,
        "PLACES": score.places,
        "PACKETS": score.packets,
        "PACKET_LANES": power_of_two_above(score.packets),
        "ATOM_LANES": power_of_two_above(score.atoms) if score.atoms else 0,
        "BIAS": bias,
        "WEIGHTED": weighted,
        "REDUCE": score.reduction != "none",
        "MEAN": score.reduction == "mean",
        "GRAD": keep,
        "POINTS": points if ranked else score.points,
        "APPROX": half and not INTERPRETED,
        "HALF": half,
        "ROWS": blocks.rows,
        "TILE": blocks.tile,
        "STEPS": blocks.steps,
    }
    constants = {name: known[name] for name in kernel.arg_names if name in known}
    # Numbers make no difference to the compiler: it looks into none, and only ids to ignore may take 64 bits.
    key = (score.kind, score.ignore_index >> 31, blocks.warps, *constants.values())
    grid = (ceil_div(tokens, blocks.rows * blocks.steps), 1, 1)
    return Site(kernel, grid, _numbers(score, tokens, y_stride), constants, {"num_warps": blocks.warps}, key)


def _numbers(score: Score, tokens: int, y_stride: int) -> tuple[float, ...]:
    """Return the numbers that the kernel of a score takes, in its order; a floor of 0 is as real as one of 0.1."""
    stride, outputs = padded(score.outputs), score.outputs
    packets = score.coefficients
    atoms = packets + 4 * score.packets
    places = atoms + score.atoms
    gain, counts = score.gain(tokens), (float(tokens), float(power_of_two_above(tokens)))
    if score.kind == "crps":
        e, circular = score.tails, score.target == "circle"
        constant = 0.25 if circular else (1 - e) / 6 + e * (1 - e) * (math.exp(-1) - 7 / 6) - 0.75 * e * e
        reals: tuple[float, ...] = (
            score.floor, score.origin, score.unit, e, score.omega, gain, score.worth, constant,
            0.0 if circular else 1.0, *counts,
        )  # fmt: skip
        return (tokens, score.length, outputs, y_stride, stride, places, *map(float, reals))
    reals = (
        score.floor, score.units, score.origin, score.unit, score.tails, score.penalty, score.omega, gain, *counts
    )  # fmt: skip
    return (
        tokens, score.length, outputs, y_stride, stride, packets, atoms, score.atoms, places, max(score.num_bins, 1),
        score.ignore_index, *map(float, reals),
    )  # fmt: skip


def wide_of(x: Tensor, weight: Tensor) -> Tensor:
    """Return the weights as products take them: with rows of zeros after them where that pays."""
    outputs = weight.shape[0]
    return pad_rows(weight, outputs, padded(outputs)) if pads(len(x), x.shape[1], outputs) else weight


def forward(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, target: Tensor, anchor: Tensor | None,
    offsets: Tensor | None, class_weight: Tensor | None, score: Score, keep: bool,
) -> Saved:  # fmt: skip
    """Return the loss and what the backward pass needs: gradients of rows, a factor of them all, weights.

    Without a weight, ``x`` are the outputs already. Without ``keep`` nothing of the size of the outputs is written.
    """
    tokens, device, dtype = x.shape[0], x.device, x.dtype
    reduce = score.reduction != "none"
    loss = torch.empty(() if reduce else tokens, device=device)
    factor = torch.empty((), device=device)
    gradient = torch.empty((tokens, padded(score.outputs)), device=device, dtype=dtype) if keep else factor
    if tokens == 0:
        return loss.zero_(), gradient, factor.zero_(), x
    wide = x if weight is None else wide_of(x, weight)
    y = x if weight is None else product(x, wide)
    half = dtype != torch.float32
    site = _site(score, tokens, y.stride(0), half, bias is not None, class_weight is not None, keep)
    partial = sums_buffer(x, 4 * site.grid[0]) if reduce else factor
    if score.kind == "crps":
        tile, points = site.constants["TILE"], site.constants["POINTS"]
        waves = tables.power_points(tile, points, score.walls, torch.float16 if half else torch.float32, device)
        terms = tables.ranked_terms(tile, score.length, score.walls, score.target == "circle", device)
        launch(site, (y, bias, target, anchor, *waves, terms, gradient, loss, partial, factor))
    else:
        launch(site, (y, bias, target, anchor, offsets, class_weight, gradient, loss, partial, factor))
    return loss, gradient, factor, wide


def _few(x: Tensor, outputs: int) -> bool:
    """Tell whether one kernel multiplies; float32 products take more registers than there are."""
    return x.numel() <= FEW_NUMBERS and outputs <= FEW_OUTPUTS and x.dtype != torch.float32


@functools.lru_cache(maxsize=1024)
def _product_sites(
    tokens: int, width: int, outputs: int, strides: tuple[int, int, int, int], reduced: bool,
    needs: tuple[bool, bool, bool],
) -> tuple[Site, Site]:  # fmt: skip
    """Return the launch of both products, and that which adds up their parts."""
    rows, columns = 64, min(64, max(16, power_of_two_above(width)))
    wanted = {"NEED_WEIGHT": needs[1], "NEED_BIAS": needs[2]}
    constants = {
        "NEED_X": needs[0],
        **wanted,
        "REDUCED": reduced,
        "ROWS": rows,
        "OUTPUTS": max(16, power_of_two_above(outputs)),
        "WIDTH": columns,
        "WIDEN": INTERPRETED,
    }
    groups = ceil_div(tokens, rows)
    key = ("products", *map(traits, (width, *strides)), *constants.values())
    grid = (groups, ceil_div(width, columns), 1)
    numbers = (tokens, width, outputs, *strides)
    return Site(products_kernel, grid, numbers, constants, {"num_warps": 4}, key), gather_site(
        groups, outputs, width, wanted
    )


def _few_products(
    upstream: Tensor, x: Tensor, weight: Tensor, bias: Tensor | None, gradient: Tensor, factor: Tensor, score: Score,
    needs: tuple[bool, bool, bool],
) -> Gradients:  # fmt: skip
    """Return the gradients of few tokens in two launches, which is all that their time goes to."""
    (tokens, width), outputs, reduced = x.shape, score.outputs, score.reduction != "none"
    needs = (needs[0], needs[1], needs[2] and bias is not None)
    strides = (gradient.stride(0), x.stride(0), weight.stride(0), 0 if reduced else upstream.stride(0))
    products, gather = _product_sites(tokens, width, outputs, strides, reduced, needs)
    grad_x = torch.empty((tokens, width), dtype=x.dtype, device=x.device) if needs[0] else None
    grad_weight = torch.empty((outputs, width), dtype=x.dtype, device=x.device) if needs[1] else None
    grad_bias = None if bias is None or not needs[2] else torch.empty_like(bias)
    partial = torch.empty(products.grid[0] * outputs * (width + 1), device=x.device)
    launch(products, (gradient, x, weight, upstream, factor, grad_x, partial))
    if needs[1] or needs[2]:
        launch(gather, (partial, grad_weight, grad_bias))
    return grad_x, grad_weight, grad_bias


def backward(
    upstream: Tensor, x: Tensor, weight: Tensor | None, bias: Tensor | None, gradient: Tensor, factor: Tensor,
    wide: Tensor, score: Score, needs: tuple[bool, bool, bool],
) -> Gradients:  # fmt: skip
    """Return the gradients of (x, weight, bias).

    What arrives from above is one number for all rows, unless they keep their losses: then weights and results, which
    are small, are multiplied with it, and the gradients of rows stay as they are.
    """
    outputs = score.outputs
    if x.shape[0] == 0:
        return no_gradients(x, weight, bias, needs)
    if weight is not None and _few(x, outputs):
        return _few_products(upstream, x, weight, bias, gradient, factor, score, needs)
    if score.reduction == "none":
        # What arrives is float32; the products below take one type, that of x.
        gradient, scale = torch.mul(gradient, upstream.unsqueeze(1), out=torch.empty_like(gradient)), None
    else:
        scale = upstream * factor
    grad_x = grad_weight = grad_bias = None
    real = gradient if weight is not None and wide.shape[0] == gradient.shape[1] else gradient[:, :outputs]
    if needs[2] and bias is not None:
        sums = gradient[:, :outputs].sum(0, dtype=torch.float32)
        grad_bias = (sums if scale is None else sums.mul_(scale)).to(bias.dtype)
    if weight is None:
        return real if scale is None else real * scale, None, grad_bias
    if needs[0]:
        if scale is None:
            grad_x = torch.mm(real, wide)
        elif x.dtype == torch.float16:
            grad_x = torch.mm(real, wide).mul_(scale)  # its smallest numbers are not small enough for weights
        else:
            grad_x = torch.mm(real, wide * scale)
    if needs[1]:
        grad_weight = torch.mm(real.t(), x)
        grad_weight = grad_weight if scale is None else grad_weight.mul_(scale)
        grad_weight = grad_weight if grad_weight.shape[0] == outputs else grad_weight[:outputs]
    return grad_x, grad_weight, grad_bias
