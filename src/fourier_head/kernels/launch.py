"""Launch the kernels: tensors in, tensors out, no autograd here and no wait for the device."""

from __future__ import annotations

import functools
from typing import Any

import torch
import triton
from torch import Tensor

from fourier_head.kernels import plan as plans
from fourier_head.kernels.backward import bias_kernel, gather_kernel, gradient_kernel, narrow_kernel
from fourier_head.kernels.forward import pad_kernel, project_kernel
from fourier_head.kernels.places import KINDS
from fourier_head.kernels.plan import Score, ceil_div
from fourier_head.kernels.rows import CONSTANTS, PER_POINT

Gradients = tuple[Tensor | None, Tensor | None, Tensor | None]

# In the interpreter there is no inline assembly, and products of bfloat16 treat its bits as integers.
INTERPRETED = bool(triton.knobs.runtime.interpret) if hasattr(triton, "knobs") else False
_COMPILED: dict[tuple[Any, ...], Any] = {}


def traits(value: Any) -> Any:
    """Return what a compiled kernel depends on in an argument: type and alignment, never the value itself."""
    if isinstance(value, Tensor):
        return value.dtype, value.data_ptr() & 15 == 0
    if isinstance(value, int):
        return value == 1, value & 15 == 0, value >> 31
    return value is None


def run(kernel: Any, grid: tuple[int, ...], args: tuple[Any, ...], constants: dict[str, Any], **options: int) -> None:
    """Launch ``kernel``; from the second time on without its decorator, whose checks cost more than the launch."""
    key = (id(kernel), *map(traits, args), *constants.values(), *options.values())
    launch(key, kernel, grid, args, (), constants, **options)


def launch(
    key: Any, kernel: Any, grid: tuple[int, ...], tensors: tuple[Any, ...], numbers: tuple[Any, ...],
    constants: dict[str, Any], **options: int,
) -> None:  # fmt: skip
    """Launch ``kernel`` as it was compiled for this ``key``, which tells apart what a compiled kernel depends on."""
    if INTERPRETED:
        kernel[grid](*tensors, *numbers, **constants, **options)
        return
    device = torch._C._cuda_getDevice()
    compiled = _COMPILED.get((device, key))
    if compiled is None:
        _COMPILED[device, key] = kernel[grid](*tensors, *numbers, **constants, **options)
        return
    # The launcher reads addresses faster from numbers than from tensors, each of which it would ask for its device.
    addresses = [t.data_ptr() if isinstance(t, Tensor) else t for t in tensors]
    compiled.run(
        grid[0], grid[1] if len(grid) > 1 else 1, 1, torch._C._cuda_getCurrentRawStream(device), compiled.function,
        compiled.packed_metadata, None, None, None, *addresses, *numbers, *constants.values(),
    )  # fmt: skip


_SUMS: dict[tuple[int, int], Tensor] = {}


def sums_buffer(x: Tensor, size: int) -> Tensor:
    """Return room for a counter, zero, and sums of programs: always the same on one stream, which keeps order."""
    if not x.is_cuda or torch.cuda.is_current_stream_capturing():
        return torch.zeros(size + 1, device=x.device)
    place = (x.device.index, torch._C._cuda_getCurrentRawStream(x.device.index))
    found = _SUMS.get(place)
    if found is None or len(found) <= size:
        found = _SUMS[place] = torch.zeros(max(2 * size, 1 << 14), device=x.device)
    return found


@functools.cache
def _wide_products() -> bool:
    """Tell whether torch multiplies 16-bit matrices into float32 ones."""
    try:
        half = torch.zeros(16, 16, dtype=torch.bfloat16, device="cuda")
        return torch.mm(half, half, out_dtype=torch.float32).dtype == torch.float32
    except (RuntimeError, TypeError, AssertionError):
        return False


def product(x: Tensor, weight: Tensor) -> Tensor:
    """Return x W^T in float32."""
    if x.dtype == torch.float32:
        return torch.mm(x, weight.t())
    if x.is_cuda and _wide_products():
        return torch.mm(x, weight.t(), out_dtype=torch.float32)
    return torch.mm(x.float(), weight.t().float())


def pad(weight: Tensor, score: Score) -> Tensor:
    """Return the weights with each half padded to whole vectors; the weights themselves where they fit already."""
    harmonics, padded = score.length, score.padded
    if padded == harmonics:
        return weight
    width = weight.shape[1]
    result = weight.new_empty((score.halves * padded, width))
    block = min(1024, plans.power_of_two_above(width))
    run(
        pad_kernel, (score.halves * padded, ceil_div(width, block)),
        (weight, result, harmonics, padded, width, weight.stride(0)), {"BLOCK": block},
    )  # fmt: skip
    return result


def _unpad(padded: Tensor, score: Score) -> Tensor:
    """Undo ``pad``."""
    if padded.shape[0] == score.coefficients:
        return padded
    return padded.unflatten(0, (score.halves, -1))[:, : score.length].flatten(0, 1)


def _approximate(x: Tensor) -> bool:
    return x.dtype != torch.float32 and not INTERPRETED


def empty(x: Tensor, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.empty(shape, dtype=dtype, device=x.device)


@functools.lru_cache(maxsize=256)
def _forward_constants(
    score: Score, tokens: int, width: int, rows: int, bias: bool, weighted: bool, keep: bool, approximate: bool
) -> tuple[plans.Blocks, dict[str, Any], tuple[Any, ...]]:
    """Return the blocks of a forward pass over weights (rows, width), and the constants and numbers of the kernel."""
    blocks = plans.project_blocks(tokens, width, score.length)
    numbers = (
        tokens, width, score.length, rows // score.halves, score.padded * score.halves // 16, max(score.num_bins, 1),
        score.ignore_index, score.floor, score.units, score.penalty, score.omega, score.origin, score.unit,
    )  # fmt: skip
    return (
        blocks,
        {
            "BIAS": bias,
            "TARGET": KINDS[score.target],
            "WALLS": score.walls,
            "WEIGHTED": weighted,
            "REDUCE": score.reduction != "none",
            "MEAN": score.reduction == "mean",
            "TABLE": keep,
            "POINTS": score.points,
            "LANES": max(1, PER_POINT.value * score.points),
            "APPROX": approximate,
            "ROWS": blocks.rows,
            "TILE": blocks.tile,
            "DEPTH": blocks.depth,
            "CHUNKS": ceil_div(width, blocks.depth),
            "EVEN": width % blocks.depth == 0,
            "MASK": rows == score.coefficients and score.length % blocks.tile != 0,
            "PREFETCH": blocks.prefetch and score.points == 0,  # the roughness needs the registers
            "WIDEN": INTERPRETED,
        },
        numbers,
    )


def forward(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    target: Tensor,
    offsets: Tensor | None,
    class_weight: Tensor | None,
    score: Score,
    keep: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return the loss and what its gradient needs: coefficients, constants, factors and padded weights.

    Without ``keep`` no gradient will be asked for, and nothing of size tokens x N is written for it.
    """
    tokens, width = x.shape
    harmonics, padded = score.length, score.padded
    wide = weight if plans.is_narrow(x, harmonics) or tokens == 0 else pad(weight, score)
    blocks, constants, numbers = _forward_constants(
        score, tokens, width, len(wide), bias is not None, class_weight is not None, keep, _approximate(x)
    )
    programs = ceil_div(tokens, blocks.rows)
    reduce = score.reduction != "none"
    loss = empty(x) if reduce else empty(x, tokens)
    lines = CONSTANTS.value + PER_POINT.value * score.points + ceil_div(harmonics, blocks.tile)
    table = empty(x, lines if keep else 0, tokens, dtype=torch.int32)
    factors = empty(x, 1)
    y = empty(x, tokens if keep else 0, score.halves * padded, dtype=torch.float16)
    if tokens == 0:
        return loss.zero_(), y, table, factors, weight
    partial = sums_buffer(x, 4 * programs) if reduce else factors
    tensors = (x, wide, bias, target, offsets, class_weight, y, table, loss, partial, factors)
    strides = (x.stride(0), wide.stride(0))
    launch(
        ("project", width, *strides, *map(traits, tensors[:6]), *constants.values()), project_kernel, (programs,),
        tensors, (*strides, *numbers), constants, num_warps=blocks.warps, num_stages=blocks.stages,
    )  # fmt: skip
    return loss, y, table, factors, wide


def backward(
    upstream: Tensor,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    y: Tensor,
    table: Tensor,
    factors: Tensor,
    offsets: Tensor | None,
    score: Score,
    needs: tuple[bool, bool, bool],
    wide: Tensor | None = None,
    overwrite: bool = True,
) -> Gradients:
    """Return the gradients of (x, weight, bias); ``overwrite`` lets the gradient of ``y`` take its place."""
    tokens, harmonics = x.shape[0], score.length
    if tokens == 0:
        return no_gradients(x, weight, bias, needs)
    if plans.is_narrow(x, harmonics):
        return _narrow(upstream, x, weight, bias, y, table, factors, offsets, score, needs)
    vectors = score.padded * score.halves // 16
    blocks = plans.gradient_blocks(tokens, harmonics, needs[2])
    grid = (ceil_div(tokens, blocks.rows * blocks.steps), ceil_div(score.padded, blocks.tile))
    gradient = y.view(x.dtype) if overwrite else torch.empty_like(y, dtype=x.dtype)
    sums = empty(x, grid[0] if needs[2] else 0, y.shape[1])
    reduced = score.reduction != "none"
    stride = 0 if reduced else upstream.stride(0)
    constants = {
        "NEED_BIAS": needs[2],
        "REDUCED": reduced,
        "WALLS": score.walls,
        "POINTS": score.points,
        "APPROX": _approximate(x),
        "TILE": plans.project_blocks(tokens, x.shape[1], harmonics).tile,
        "ROWS": blocks.rows,
        "BLOCK": blocks.tile,
        "STEPS": blocks.steps,
    }
    tensors = (y, gradient, table, offsets, upstream, factors, sums)
    sizes = (tokens, harmonics, vectors, stride, score.penalty)
    key = ("gradient", traits(tokens), traits(vectors), traits(stride), x.dtype, traits(upstream), *constants.values())
    launch(key, gradient_kernel, grid, tensors, sizes, constants, num_warps=blocks.warps)
    grad_x = torch.mm(gradient, pad(weight, score) if wide is None else wide) if needs[0] else None
    grad_weight = _unpad(torch.mm(gradient.t(), x), score) if needs[1] else None
    grad_bias = None
    if needs[2] and bias is not None:
        grad_bias = torch.empty_like(bias)
        constants = {"WALLS": score.walls, "GROUPS": 32, "BLOCK": 32}
        run(bias_kernel, (ceil_div(len(bias), 32),), (sums, grad_bias, grid[0], harmonics, vectors), constants)
    return grad_x, grad_weight, grad_bias


def no_gradients(*sources_and_needs: Any) -> Gradients:
    """Return zeros in the place of the gradients of no tokens."""
    *sources, needs = sources_and_needs
    grads = [torch.zeros_like(s) if n and s is not None else None for s, n in zip(sources, needs, strict=True)]
    return grads[0], grads[1], grads[2]


def _narrow(
    upstream: Tensor, x: Tensor, weight: Tensor, bias: Tensor | None, y: Tensor, table: Tensor, factors: Tensor,
    offsets: Tensor | None, score: Score, needs: tuple[bool, bool, bool],
) -> Gradients:  # fmt: skip
    tokens, width = x.shape
    outputs = weight.shape[0]
    harmonics = score.length
    blocks = plans.narrow_blocks(tokens, width, harmonics)
    grid = (ceil_div(tokens, blocks.rows * blocks.steps), ceil_div(width, blocks.depth))
    reduced = score.reduction != "none"
    stride = 0 if reduced else upstream.stride(0)
    grad_x = torch.empty_like(x, memory_format=torch.contiguous_format) if needs[0] else None
    grad_weight = torch.empty_like(weight, memory_format=torch.contiguous_format) if needs[1] else None
    grad_bias = torch.empty_like(bias) if needs[2] and bias is not None else None
    partial = empty(x, grid[0] * outputs * (width + 1))
    wanted = {"NEED_WEIGHT": needs[1], "NEED_BIAS": needs[2]}
    constants = {
        "NEED_X": needs[0],
        **wanted,
        "REDUCED": reduced,
        "WALLS": score.walls,
        "POINTS": score.points,
        "APPROX": _approximate(x),
        "TILE": blocks.tile,
        "ROWS": blocks.rows,
        "STEPS": blocks.steps,
        "WIDTH": blocks.depth,
        "WIDEN": INTERPRETED,
    }
    tensors = (x, weight, y, table, offsets, upstream, factors, grad_x, partial)
    sizes = (tokens, width, harmonics, score.padded * score.halves // 16, x.stride(0), weight.stride(0))
    key = ("narrow", *map(traits, (*sizes, stride, x, weight, upstream)), *constants.values())
    launch(key, narrow_kernel, grid, tensors, (*sizes, stride, score.penalty), constants, num_warps=blocks.warps)
    if needs[1] or needs[2]:
        size = 64
        constants = {**wanted, "GROUPS": 16, "BLOCK": size}
        key = ("gather", traits(grid[0]), traits(width), weight.dtype, traits(bias), *constants.values())
        results = (partial, grad_weight, grad_bias)
        numbers = (grid[0], outputs, width)
        launch(key, gather_kernel, (ceil_div(outputs * (width + 1), size),), results, numbers, constants)
    return grad_x, grad_weight, grad_bias
