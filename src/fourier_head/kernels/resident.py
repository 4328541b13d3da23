"""Losses of rows that stay on the chip: one kernel projects and evaluates, and what it keeps becomes the gradient."""

from __future__ import annotations

import functools
from typing import NamedTuple

import torch
from torch import Tensor

from fourier_head.kernels import plan as plans
from fourier_head.kernels.backward import bias_kernel, gradient_kernel, narrow_kernel
from fourier_head.kernels.forward import project_kernel
from fourier_head.kernels.launch import INTERPRETED, Site, launch, run, sums_buffer, traits
from fourier_head.kernels.matrices import gather_site, weight_products
from fourier_head.kernels.places import KINDS
from fourier_head.kernels.plan import Score, ceil_div
from fourier_head.kernels.rows import CONSTANTS, PER_POINT

Gradients = tuple[Tensor | None, Tensor | None, Tensor | None]


def _approximate(dtype: torch.dtype) -> bool:
    return dtype != torch.float32 and not INTERPRETED


class Forward(NamedTuple):
    """A forward pass but for its tensors: its launch, and room for what it returns."""

    site: Site
    loss: tuple[int, ...]
    table: tuple[int, int]
    y: tuple[int, int]
    sums: int


@functools.lru_cache(maxsize=1024)
def _planned(
    score: Score, tokens: int, width: int, dtype: torch.dtype, strides: tuple[int, int], bias: bool, weighted: bool,
    keep: bool,
) -> Forward:  # fmt: skip
    blocks, reduce = plans.project_blocks(tokens, width, score.length), score.reduction != "none"
    reals = (score.floor, score.units, score.penalty, score.omega, score.origin, score.unit)
    numbers = (
        *strides, tokens, width, score.length, score.padded * score.halves // 16,
        max(score.num_bins, 1), score.ignore_index, *map(float, reals),
    )  # fmt: skip
    constants = {
        "BIAS": bias,
        "TARGET": KINDS[score.target],
        "WALLS": score.walls,
        "WEIGHTED": weighted,
        "REDUCE": reduce,
        "MEAN": score.reduction == "mean",
        "TABLE": keep,
        "POINTS": score.points,
        "LANES": max(1, PER_POINT.value * score.points),
        "APPROX": _approximate(dtype),
        "ROWS": blocks.rows,
        "TILE": blocks.tile,
        "DEPTH": blocks.depth,
        "CHUNKS": ceil_div(width, blocks.depth),
        "EVEN": width % blocks.depth == 0,
        "MASK": score.length % blocks.tile != 0,
        "PREFETCH": blocks.prefetch and score.points == 0,  # the roughness needs the registers
        "WIDEN": INTERPRETED,
    }
    options = {"num_warps": blocks.warps, "num_stages": blocks.stages}
    known = (*map(traits, (*strides, width)), score.ignore_index >> 31)
    key = ("project", *known, *options.values(), *constants.values())
    programs = ceil_div(tokens, blocks.rows)
    site = Site(project_kernel, (programs, 1, 1), numbers, constants, options, key, {})
    lines = CONSTANTS.value + PER_POINT.value * score.points + ceil_div(score.length, blocks.tile)
    return Forward(
        site, () if reduce else (tokens,), (lines if keep else 0, tokens),
        (tokens if keep else 0, score.halves * score.padded), 4 * programs if reduce else 0,
    )  # fmt: skip


def forward(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    target: Tensor,
    offsets: Tensor | None,
    class_weight: Tensor | None,
    score: Score,
    keep: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the loss and what its gradient needs: coefficients and constants.

    Without ``keep`` no gradient will be asked for, and nothing of size tokens x N is written for it.
    """
    tokens, width = x.shape
    strides = (x.stride(0), weight.stride(0))
    planned = _planned(score, tokens, width, x.dtype, strides, bias is not None, class_weight is not None, keep)
    loss = x.new_empty(planned.loss, dtype=torch.float32)
    table = x.new_empty(planned.table, dtype=torch.int32)
    y = x.new_empty(planned.y, dtype=torch.float16)
    if tokens == 0:
        return loss.zero_(), y, table
    partial = sums_buffer(x, planned.sums) if planned.sums else None
    launch(planned.site, (x, weight, bias, target, offsets, class_weight, y, table, loss, partial))
    return loss, y, table


@functools.lru_cache(maxsize=1024)
def _gradient_site(score: Score, tokens: int, width: int, stride: int, sums: bool, approximate: bool) -> Site:
    """Return the launch that turns coefficients into their gradient."""
    blocks = plans.gradient_blocks(tokens, score.length, sums)
    constants = {
        "NEED_BIAS": sums,
        "REDUCED": score.reduction != "none",
        "WALLS": score.walls,
        "POINTS": score.points,
        "APPROX": approximate,
        "TILE": plans.project_blocks(tokens, width, score.length).tile,
        "ROWS": blocks.rows,
        "BLOCK": blocks.tile,
        "STEPS": blocks.steps,
    }
    vectors = score.padded * score.halves // 16
    grid = (ceil_div(tokens, blocks.rows * blocks.steps), ceil_div(score.padded, blocks.tile), 1)
    key = ("gradient", *map(traits, (tokens, vectors, stride)), *constants.values())
    numbers = (tokens, score.length, vectors, stride, float(score.penalty))
    return Site(gradient_kernel, grid, numbers, constants, {"num_warps": blocks.warps}, key, {})


def backward(
    upstream: Tensor,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    y: Tensor,
    table: Tensor,
    offsets: Tensor | None,
    score: Score,
    needs: tuple[bool, bool, bool],
    overwrite: bool = True,
) -> Gradients:
    """Return the gradients of (x, weight, bias); ``overwrite`` lets the gradient of ``y`` take its place."""
    tokens, harmonics = x.shape[0], score.length
    if tokens == 0:
        return no_gradients(x, weight, bias, needs)
    if plans.is_small(tokens, x.shape[1], harmonics):
        return _narrow(upstream, x, weight, bias, y, table, offsets, score, needs)
    stride = 0 if score.reduction != "none" else upstream.stride(0)
    site = _gradient_site(score, tokens, x.shape[1], stride, needs[2], _approximate(x.dtype))
    gradient = y.view(x.dtype) if overwrite else torch.empty_like(y, dtype=x.dtype)
    sums = x.new_empty((site.grid[0], y.shape[1]), dtype=torch.float32) if needs[2] else None
    launch(site, (y, gradient, table, offsets, upstream, sums))
    grad_x, grad_weight = weight_products(gradient, x, weight, harmonics, needs)
    grad_bias = None
    if needs[2] and bias is not None:
        grad_bias = torch.empty_like(bias)
        constants = {"WALLS": score.walls, "GROUPS": 32, "BLOCK": 32}
        numbers = (site.grid[0], harmonics, score.padded * score.halves // 16)
        run(bias_kernel, (ceil_div(bias.shape[0], 32),), (sums, grad_bias, *numbers), constants)
    return grad_x, grad_weight, grad_bias


def no_gradients(x: Tensor, weight: Tensor | None, bias: Tensor | None, needs: tuple[bool, bool, bool]) -> Gradients:
    """Return zeros in the place of the gradients of no tokens."""
    pairs = zip((x, weight, bias), needs, strict=True)
    grad_x, grad_weight, grad_bias = (torch.zeros_like(s) if n and s is not None else None for s, n in pairs)
    return grad_x, grad_weight, grad_bias


@functools.lru_cache(maxsize=1024)
def _narrow_sites(
    score: Score, tokens: int, width: int, strides: tuple[int, int, int], needs: tuple[bool, bool, bool],
    approximate: bool,
) -> tuple[Site, Site]:  # fmt: skip
    """Return the launch of a whole backward pass, and that which adds up its parts."""
    blocks = plans.narrow_blocks(width, score.length)
    wanted = {"NEED_WEIGHT": needs[1], "NEED_BIAS": needs[2]}
    constants = {
        "NEED_X": needs[0],
        **wanted,
        "REDUCED": score.reduction != "none",
        "WALLS": score.walls,
        "POINTS": score.points,
        "APPROX": approximate,
        "TILE": blocks.tile,
        "ROWS": blocks.rows,
        "STEPS": blocks.steps,
        "WIDTH": blocks.depth,
        "WIDEN": INTERPRETED,
    }
    groups, outputs = ceil_div(tokens, blocks.rows * blocks.steps), score.coefficients
    sizes = (tokens, width, score.length, score.padded * score.halves // 16, *strides)
    key = ("narrow", *map(traits, sizes), *constants.values())
    first = Site(
        narrow_kernel, (groups, ceil_div(width, blocks.depth), 1), (*sizes, float(score.penalty)), constants,
        {"num_warps": blocks.warps}, key, {},
    )  # fmt: skip
    return first, gather_site(groups, outputs, width, wanted)


def _narrow(
    upstream: Tensor, x: Tensor, weight: Tensor, bias: Tensor | None, y: Tensor, table: Tensor,
    offsets: Tensor | None, score: Score, needs: tuple[bool, bool, bool],
) -> Gradients:  # fmt: skip
    tokens, width = x.shape
    strides = (x.stride(0), weight.stride(0), 0 if score.reduction != "none" else upstream.stride(0))
    site, gather = _narrow_sites(score, tokens, width, strides, needs, _approximate(x.dtype))
    grad_x = torch.empty_like(x, memory_format=torch.contiguous_format) if needs[0] else None
    grad_weight = torch.empty_like(weight, memory_format=torch.contiguous_format) if needs[1] else None
    grad_bias = torch.empty_like(bias) if needs[2] and bias is not None else None
    partial = x.new_empty(site.grid[0] * score.coefficients * (width + 1), dtype=torch.float32)
    launch(site, (x, weight, y, table, offsets, upstream, grad_x, partial))
    if needs[1] or needs[2]:
        launch(gather, (partial, grad_weight, grad_bias))
    return grad_x, grad_weight, grad_bias
