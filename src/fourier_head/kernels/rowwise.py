"""Losses of rows that a library's product has projected: one kernel makes loss and gradient, two products the rest."""

from __future__ import annotations

import functools
import math
from typing import Any

import torch
from torch import Tensor

from fourier_head.kernels import plan as plans
from fourier_head.kernels import tables
from fourier_head.kernels.devices import is_roomy
from fourier_head.kernels.launch import INTERPRETED, Site, launch, sums_buffer, traits
from fourier_head.kernels.likelihood import likelihood_kernel
from fourier_head.kernels.matrices import gather_site, pad_rows, product, weight_products
from fourier_head.kernels.packets import STEP
from fourier_head.kernels.places import KINDS
from fourier_head.kernels.plan import Score, ceil_div, power_of_two_above
from fourier_head.kernels.products import products_kernel, scale_kernel
from fourier_head.kernels.ranked import ranked_kernel
from fourier_head.kernels.resident import Gradients, no_gradients

# Multiplications from which on products take weights padded to whole vectors: on an H200 that copy takes 2 microseconds
# and the host one launch; a product of 2^30 takes ten less, those of 2^33 and 2^34 fifty and a hundred and fifty.
PADDED_FROM = 1 << 29
# Numbers in x, and outputs, up to which one kernel does both products of a backward pass: of few tokens a step is bound
# by launches, and an adaptive likelihood takes 16 microseconds of an H200, with the library's products 30; of many the
# products of (16384, 1024) with 66 outputs take 44, the library's with what surrounds them 50.
FEW_NUMBERS, FEW_OUTPUTS = 1 << 20, 64
MANY_NUMBERS, MANY_OUTPUTS = 1 << 24, 128
# The widest inputs that the likelihood's kernel projects itself to so few outputs, each program reading all weights: of
# few tokens, and of many that are bins on a circle, where a step takes 75 microseconds of an H200 in place of 73, but
# the host launches two kernels less; of values, with atoms, a place or packets the library's product is a tenth to a
# quarter faster. Rows that a program takes of many, and numbers of one block of them.
FEW_WIDTH, MANY_WIDTH = 512, 4096
PROJECTED_ROWS, PROJECTED_NUMBERS = 64, 1024
# Of the kernel of both products: rows, columns, warps and stages, and programs where tokens are many, one for every
# processor. Sums over tokens, one matrix for each group of programs, take so many numbers at most: with packets no more
# than those of a plain head, at more rows for each.
FEW_BLOCKS, MANY_BLOCKS = (64, 64, 4, 1), (128, 128, 8, 3)
PRODUCTS = 128
FEW_SUMS, MANY_SUMS = 300_000, 1_275_000
# Numbers of one block of the likelihood's kernel where rows are many: eight for each thread of one warp, which needs no
# barrier for its sums, up to so many harmonics, since 2048 would not fit its registers. Programs take blocks in turn,
# two thousand of them at most: each has a fence, an atomic and sums that the last one adds up.
IN_BLOCK = 256
ONE_WARP = 1024
LIKELIHOODS = 2048
# Registers of a thread of that kernel at most: with 128 all of these programs find room on an H200 at once, and 551
# harmonics take 137 microseconds in place of 150. Packets and float32, which need up to 255, take what they like.
REGISTERS = 128
# Harmonics from which on a row is held in a tile and a short tail where one tile would be half empty.
SPLIT_FROM = 128
Saved = tuple[Tensor, Tensor, Tensor]


def padded(outputs: int) -> int:
    """Return the length of rows in whole vectors, which wide loads and matrix products are fast on."""
    return -(-outputs // 8) * 8


def pads(tokens: int, width: int, outputs: int) -> bool:
    """Tell whether a product takes weights with rows of zeros after them."""
    return outputs % 8 != 0 and tokens * width * outputs >= PADDED_FROM


def tiles_of(score: Score) -> tuple[int, int]:
    """Return the sizes of the tile and of the tail, or 0, that hold the harmonics of a row."""
    whole = max(16, power_of_two_above(score.length))
    half = whole // 2
    tail = max(16, power_of_two_above(score.length - half))
    if score.kind == "crps" or score.points or half < SPLIT_FROM or 2 * tail > half:
        return whole, 0
    return half, tail


@functools.lru_cache(maxsize=256)
def blocks_of(score: Score, tokens: int, projects: bool = False) -> plans.Blocks:
    """Return the blocks of the kernel of a score of so many rows; ``projects``: it makes them, too."""
    tile, tail = tiles_of(score)
    if projects and tokens > plans.FEW_TOKENS:
        # As many rows as fill a matrix unit are projected at once, then evaluated eight numbers a thread at a time.
        rows = min(PROJECTED_ROWS, PROJECTED_NUMBERS // tile)
        return plans.Blocks(rows, tile, depth=64, warps=4, stages=4, steps=PROJECTED_ROWS // rows)
    if score.kind == "crps":
        # All threads together keep the tables of cosines: with four warps 64 harmonics spill a thousand bytes each.
        return plans.Blocks(rows=32 if tile <= 64 else 16, tile=tile, warps=4 if tile <= 32 else 8)
    if tokens > plans.FEW_TOKENS and tile <= ONE_WARP:
        # Packets take the registers of a row of their own.
        rows = 1 if score.packets else max(1, IN_BLOCK // tile)
        steps = power_of_two_above(ceil_div(tokens, rows * LIKELIHOODS))
        registers = None if score.packets else REGISTERS
        return plans.Blocks(rows=rows, tile=tile, tail=tail, warps=1, steps=steps, registers=registers)
    # Whole rows, four warps to a few: a step of few tokens waits for one program after another.
    rows = max(1, 128 // tile) if tile <= 128 else 2 if tile <= 512 else 1
    if score.packets:  # two harmonics of each are nine sums
        rows = max(1, min(rows, 512 // (STEP.value * power_of_two_above(score.packets))))
    return plans.Blocks(rows=rows, tile=tile, tail=tail, warps=min(16, max(4, tile // 256)))


@functools.lru_cache(maxsize=1024)
def _site(
    score: Score, tokens: int, y_stride: int, half: bool, bias: bool, weighted: bool, keep: bool,
    projected: tuple[int, int, int] = (0, 0, 0),
) -> Site:  # fmt: skip
    """Return the launch of the kernel of a score; ``projected``: width and strides of what it is to multiply first."""
    blocks, ranked = blocks_of(score, tokens, projected[0] > 0), score.kind == "crps"
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
        "TAIL": blocks.tail,
        "STEPS": blocks.steps,
        "OUTPUTS": max(16, power_of_two_above(score.outputs)) if projected[0] else 0,
        "DEPTH": min(blocks.depth, max(16, power_of_two_above(projected[0]))),
        "STAGES": blocks.stages,
        "WIDEN": INTERPRETED,
    }
    constants = {name: known[name] for name in kernel.arg_names if name in known}
    # Other numbers make no difference to the compiler: it looks into none, and only ids to ignore may take 64 bits.
    options = {"num_warps": blocks.warps} | ({"maxnreg": blocks.registers} if half and blocks.registers else {})
    key = (score.kind, score.ignore_index >> 31, *options.values(), *map(traits, projected), *constants.values())
    grid = (ceil_div(tokens, blocks.rows * blocks.steps), 1, 1)
    numbers = _numbers(score, tokens, y_stride, projected)
    return Site(kernel, grid, numbers, constants, options, key, {})


def _numbers(score: Score, tokens: int, y_stride: int, projected: tuple[int, int, int]) -> tuple[float, ...]:
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
        score.ignore_index, *projected, *map(float, reals),
    )  # fmt: skip


def projects(x: Tensor, score: Score, outputs: int) -> bool:
    """Tell whether the kernel of a likelihood multiplies, too, so that the host has less to launch."""
    if x.shape[0] <= plans.FEW_TOKENS:
        fits = x.shape[1] <= FEW_WIDTH and score.kind != "crps"
    else:
        fits = x.shape[1] <= MANY_WIDTH and score.target == "bins" and score.is_free and not score.walls
    return fits and _in_one_kernel(x, outputs)


def forward(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, target: Tensor, anchor: Tensor | None,
    offsets: Tensor | None, class_weight: Tensor | None, score: Score, keep: bool,
) -> Saved:  # fmt: skip
    """Return the loss and what the backward pass needs: gradients of rows, and a factor of them all.

    Without a weight, ``x`` are the outputs already. Without ``keep`` nothing of the size of the outputs is written.
    """
    (tokens, width), outputs, y = x.shape, score.outputs, x
    reduce = score.reduction != "none"
    loss = x.new_empty(() if reduce else (tokens,), dtype=torch.float32)
    factor = x.new_empty((), dtype=torch.float32)
    gradient = x.new_empty((tokens, padded(outputs))) if keep else factor
    if tokens == 0:
        return loss.zero_(), gradient, factor.zero_()
    projected = (0, 0, 0)
    if weight is not None:
        if projects(x, score, outputs):
            y = x.new_empty((tokens, outputs), dtype=torch.float32)
            projected = (width, x.stride(0), weight.stride(0))
        else:
            y = product(x, pad_rows(weight, outputs, padded(outputs)) if pads(tokens, width, outputs) else weight)
    half = x.dtype != torch.float32
    site = _site(score, tokens, y.stride(0), half, bias is not None, class_weight is not None, keep, projected)
    partial = sums_buffer(x, 4 * site.grid[0]) if reduce else factor
    if score.kind == "crps":
        tile, points = site.constants["TILE"], site.constants["POINTS"]
        waves = tables.power_points(tile, points, score.walls, torch.float16 if half else torch.float32, x.device)
        terms = tables.ranked_terms(tile, score.length, score.walls, score.target == "circle", x.device)
        launch(site, (y, bias, target, anchor, *waves, terms, gradient, loss, partial, factor))
    else:
        both: tuple[Tensor | None, Tensor | None] = (x, weight) if projected[0] else (None, None)
        launch(site, (y, bias, target, anchor, offsets, class_weight, gradient, loss, partial, factor, *both))
    return loss, gradient, factor


def _in_one_kernel(x: Tensor, outputs: int) -> bool:
    """Tell whether one kernel multiplies; float32 products take more registers than there are."""
    if x.dtype == torch.float32:
        return False
    if x.shape[0] <= plans.FEW_TOKENS:
        return x.numel() <= FEW_NUMBERS and outputs <= FEW_OUTPUTS
    fits = x.numel() <= MANY_NUMBERS and outputs <= MANY_OUTPUTS
    return fits and (not x.is_cuda or is_roomy(x.device.index))


@functools.lru_cache(maxsize=1024)
def _product_sites(
    tokens: int, width: int, outputs: int, strides: tuple[int, int, int, int], reduced: bool,
    needs: tuple[bool, bool, bool],
) -> tuple[Site, Site]:  # fmt: skip
    """Return the launch of both products, and that which adds up their parts."""
    many = tokens > plans.FEW_TOKENS
    rows, columns, warps, stages = MANY_BLOCKS if many else FEW_BLOCKS
    columns = min(columns, max(16, power_of_two_above(width)))
    blocks = ceil_div(tokens, rows)
    groups = max(1, PRODUCTS // ceil_div(width, columns)) if many else blocks
    groups = max(1, min(groups, (MANY_SUMS if many else FEW_SUMS) // (outputs * (width + 1))))
    steps = ceil_div(blocks, groups)
    if steps > 1 and not many:
        columns = max(16, columns // 2)  # as many programs as before
    wanted = {"NEED_WEIGHT": needs[1], "NEED_BIAS": needs[2]}
    constants = {
        "NEED_X": needs[0],
        **wanted,
        "REDUCED": reduced,
        "ROWS": rows,
        "OUTPUTS": max(16, power_of_two_above(outputs)),
        "WIDTH": columns,
        "STEPS": steps,
        "STAGES": stages,
        "WIDEN": INTERPRETED,
    }
    groups = ceil_div(blocks, steps)
    key = ("products", *map(traits, (width, *strides)), *constants.values())
    grid = (groups, ceil_div(width, columns), 1)
    numbers = (tokens, width, outputs, *strides)
    first = Site(products_kernel, grid, numbers, constants, {"num_warps": warps}, (warps, *key), {})
    return first, gather_site(groups, outputs, width, wanted)


def _products(
    upstream: Tensor, x: Tensor, weight: Tensor, bias: Tensor | None, gradient: Tensor, factor: Tensor, score: Score,
    needs: tuple[bool, bool, bool],
) -> Gradients:  # fmt: skip
    """Return the gradients in two launches."""
    (tokens, width), outputs, reduced = x.shape, score.outputs, score.reduction != "none"
    needs = (needs[0], needs[1], needs[2] and bias is not None)
    strides = (gradient.stride(0), x.stride(0), weight.stride(0), 0 if reduced else upstream.stride(0))
    products, gather = _product_sites(tokens, width, outputs, strides, reduced, needs)
    grad_x = x.new_empty((tokens, width)) if needs[0] else None
    grad_weight = x.new_empty((outputs, width)) if needs[1] else None
    grad_bias = None if bias is None or not needs[2] else torch.empty_like(bias)
    partial = x.new_empty(products.grid[0] * outputs * (width + 1), dtype=torch.float32)
    launch(products, (gradient, x, weight, upstream, factor, grad_x, partial))
    if needs[1] or needs[2]:
        launch(gather, (partial, grad_weight, grad_bias))
    return grad_x, grad_weight, grad_bias


def backward(
    upstream: Tensor, x: Tensor, weight: Tensor | None, bias: Tensor | None, gradient: Tensor, factor: Tensor,
    score: Score, needs: tuple[bool, bool, bool],
) -> Gradients:  # fmt: skip
    """Return the gradients of (x, weight, bias).

    What arrives from above is one number for all rows, unless they keep their losses: then weights and results, which
    are small, are multiplied with it, and the gradients of rows stay as they are.
    """
    outputs = score.outputs
    if x.shape[0] == 0:
        return no_gradients(x, weight, bias, needs)
    if weight is not None and _in_one_kernel(x, outputs):
        return _products(upstream, x, weight, bias, gradient, factor, score, needs)
    if score.reduction == "none":
        # What arrives is float32; the products below take one type, that of x.
        gradient = torch.mul(gradient, upstream.unsqueeze(1), out=torch.empty_like(gradient))
    scale = None if score.reduction == "none" else (upstream, factor)
    real = gradient if gradient.shape[1] == outputs else gradient[:, :outputs]
    grad_bias = None
    if needs[2] and bias is not None:
        grad_bias = _scaled(real.sum(0, dtype=torch.float32), torch.empty_like(bias), scale)
    if weight is None:
        return real if scale is None else real * (upstream * factor), None, grad_bias
    if scale is None and not pads(x.shape[0], x.shape[1], outputs):
        gradient = real  # else zeros after the weights cost no launch of their own
    if scale is None or x.dtype != torch.float16:
        grad_x, grad_weight = weight_products(gradient, x, weight, outputs, needs, scale)
        return grad_x, grad_weight, grad_bias
    # float16, whose smallest numbers are not small enough for weights: results are multiplied in their place.
    grads = weight_products(gradient, x, weight, outputs, needs)
    grad_x, grad_weight = (None if grad is None else _scaled(grad, grad, scale) for grad in grads)
    return grad_x, grad_weight, grad_bias


@functools.lru_cache(maxsize=256)
def _scale_site(size: int) -> Site:
    return Site(scale_kernel, (ceil_div(size, 1024), 1, 1), (size,), {"BLOCK": 1024}, {}, "scale", {})


def _scaled(source: Tensor, result: Tensor, scale: tuple[Tensor, Tensor] | None) -> Tensor:
    """Return numbers in the place of others, multiplied with both parts of a scale, if there is one."""
    if scale is None:
        return source.to(result.dtype)
    if not source.is_contiguous() or not result.is_contiguous():
        return source.mul(scale[0] * scale[1]).to(result.dtype)
    launch(_scale_site(source.numel()), (source, result, *scale))
    return result
