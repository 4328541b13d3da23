"""Launch the kernels: tensors in, tensors out, no autograd here and no wait for the device."""

from __future__ import annotations

import functools
from typing import Any

import torch
import triton
from torch import Tensor

from fourier_head.kernels import plan as plans
from fourier_head.kernels.backward import bias_kernel, gather_kernel, gradient_kernel, narrow_kernel
from fourier_head.kernels.forward import evaluate_kernel, pad_kernel, project_kernel, reduce_kernel
from fourier_head.kernels.plan import Plan, ceil_div
from fourier_head.kernels.rows import CONSTANTS, PER_POINT

Gradients = tuple[Tensor | None, Tensor | None, Tensor | None]

# In the interpreter there is no inline assembly, and products of bfloat16 treat its bits as integers.
INTERPRETED = bool(triton.knobs.runtime.interpret) if hasattr(triton, "knobs") else False
_COMPILED: dict[tuple[Any, ...], Any] = {}


def _traits(value: Any) -> Any:
    """Return what a compiled kernel depends on in an argument: type and alignment, never the value itself."""
    if isinstance(value, Tensor):
        return value.dtype, value.data_ptr() & 15 == 0
    if isinstance(value, int):
        return value == 1, value & 15 == 0, value >> 31
    return value is None


def run(kernel: Any, grid: tuple[int, ...], args: tuple[Any, ...], constants: dict[str, Any], **options: int) -> None:
    """Launch ``kernel``; from the second time on without its decorator, whose checks cost more than the launch."""
    if INTERPRETED:
        kernel[grid](*args, **constants, **options)
        return
    key = (id(kernel), torch.cuda.current_device(), *map(_traits, args), *constants.values(), *options.values())
    compiled = _COMPILED.get(key)
    if compiled is None:
        _COMPILED[key] = kernel[grid](*args, **constants, **options)
    else:
        compiled[grid + (1,) * (3 - len(grid))](*args, *constants.values())


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


def pad(weight: Tensor, plan: Plan) -> Tensor:
    """Return the weights with each half padded to whole vectors; the weights themselves where they fit already."""
    harmonics = weight.shape[0] // plan.halves
    padded = plan.padded(harmonics)
    if padded == harmonics:
        return weight
    width = weight.shape[1]
    result = weight.new_empty((plan.halves * padded, width))
    block = min(1024, plans.power_of_two_above(width))
    run(
        pad_kernel, (plan.halves * padded, ceil_div(width, block)),
        (weight, result, harmonics, padded, width, weight.stride(0)), {"BLOCK": block},
    )  # fmt: skip
    return result


def _unpad(padded: Tensor, harmonics: int, plan: Plan) -> Tensor:
    """Undo ``pad``."""
    if padded.shape[0] == plan.halves * harmonics:
        return padded
    return padded.unflatten(0, (plan.halves, -1))[:, :harmonics].flatten(0, 1)


def _approximate(x: Tensor) -> bool:
    return x.dtype != torch.float32 and not INTERPRETED


def empty(x: Tensor, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.empty(shape, dtype=dtype, device=x.device)


def forward(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    target: Tensor,
    offsets: Tensor | None,
    class_weight: Tensor | None,
    plan: Plan,
    keep: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return the loss and what its gradient needs: coefficients, constants, factors and padded weights.

    Without ``keep`` no gradient will be asked for, and nothing of size tokens x N is written for it.
    """
    tokens, width = x.shape
    harmonics = weight.shape[0] // plan.halves
    padded = plan.padded(harmonics)
    vectors = padded * plan.halves // 16
    resident = plans.is_resident(x, harmonics)
    if resident:
        blocks = plans.project_blocks(tokens, width, harmonics)
    else:
        blocks = plans.evaluate_blocks(tokens, harmonics)
    programs = ceil_div(tokens, blocks.rows)
    reduce = plan.reduction != "none"
    loss = empty(x) if reduce else empty(x, tokens)
    lines = CONSTANTS.value + PER_POINT.value * plan.points + ceil_div(harmonics, blocks.tile)
    table = empty(x, lines if keep else 0, tokens, dtype=torch.int32)
    partial = empty(x, 4 * programs if reduce else 0)
    factors = empty(x, 2 if reduce else 0)
    y = empty(x, tokens if keep and resident else 0, plan.halves * padded, dtype=torch.float16)
    if tokens == 0:
        return loss.zero_(), y, table, factors, weight
    wide = weight if plans.is_narrow(x, harmonics) else pad(weight, plan)
    shared = {
        "BIAS": bias is not None,
        "CONTINUOUS": plan.num_bins is None,
        "WALLS": plan.walls,
        "WEIGHTED": class_weight is not None,
        "REDUCE": reduce,
        "TABLE": keep,
        "POINTS": plan.points,
        "LANES": max(1, PER_POINT.value * plan.points),
        "APPROX": _approximate(x),
        "ROWS": blocks.rows,
        "TILE": blocks.tile,
    }
    options = (plan.num_bins or 1, plan.ignore_index, plan.floor, plan.units, plan.penalty, plan.omega)
    if resident:
        shared |= {
            "DEPTH": blocks.depth,
            "CHUNKS": ceil_div(width, blocks.depth),
            "EVEN": width % blocks.depth == 0,
            "MASK": len(wide) == len(weight) and harmonics % blocks.tile != 0,
            "PREFETCH": blocks.prefetch and plan.points == 0,  # the roughness needs the registers
            "WIDEN": INTERPRETED,
        }
        sizes: tuple[int, ...] = (
            tokens, width, harmonics, len(wide) // plan.halves, vectors, x.stride(0), wide.stride(0)
        )  # fmt: skip
        tensors: tuple[Tensor | None, ...] = (x, wide, bias, target, offsets, class_weight, y, table, loss, partial)
        kernel = project_kernel
    else:
        y = product(x, wide)
        sizes = (tokens, harmonics, vectors)
        tensors = (y, bias, target, offsets, class_weight, table, loss, partial)
        kernel = evaluate_kernel
    run(kernel, (programs,), tensors + sizes + options, shared, num_warps=blocks.warps, num_stages=blocks.stages)
    if reduce:
        constants = {"MEAN": plan.reduction == "mean", "BLOCK": 1024 if programs > 256 else 256}
        run(reduce_kernel, (1,), (partial, loss, factors, programs, plan.penalty, float(tokens), float(tokens)), constants)
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
    plan: Plan,
    needs: tuple[bool, bool, bool],
    wide: Tensor | None = None,
    overwrite: bool = True,
) -> Gradients:
    """Return the gradients of (x, weight, bias); ``overwrite`` lets the gradient of ``y`` take its place."""
    tokens = x.shape[0]
    harmonics = weight.shape[0] // plan.halves
    if tokens == 0:
        sources = (x, weight, bias)
        grads = [torch.zeros_like(s) if n and s is not None else None for s, n in zip(sources, needs, strict=True)]
        return grads[0], grads[1], grads[2]
    if plans.is_narrow(x, harmonics):
        return _narrow(upstream, x, weight, bias, y, table, factors, offsets, plan, needs)
    vectors = plan.padded(harmonics) * plan.halves // 16
    resident = plans.is_resident(x, harmonics)
    blocks = plans.gradient_blocks(tokens, harmonics, needs[2])
    grid = (ceil_div(tokens, blocks.rows * blocks.steps), ceil_div(plan.padded(harmonics), blocks.tile))
    if overwrite and y.dtype.itemsize == x.dtype.itemsize:
        gradient = y.view(x.dtype)
    else:
        gradient = torch.empty_like(y, dtype=x.dtype)
    sums = empty(x, grid[0] if needs[2] else 0, y.shape[1])
    reduced = plan.reduction != "none"
    stride = 0 if reduced else upstream.stride(0)
    constants = {
        "BIAS": bias is not None and not resident,
        "NEED_BIAS": needs[2],
        "REDUCED": reduced,
        "WALLS": plan.walls,
        "POINTS": plan.points,
        "APPROX": _approximate(x),
        "TILE": plans.project_blocks(tokens, x.shape[1], harmonics).tile if resident else 0,
        "ROWS": blocks.rows,
        "BLOCK": blocks.tile,
        "STEPS": blocks.steps,
    }
    tensors = (y, gradient, bias, table, offsets, upstream, factors, sums)
    sizes = (tokens, harmonics, vectors, stride, plan.penalty)
    run(gradient_kernel, grid, tensors + sizes, constants, num_warps=blocks.warps)
    grad_x = torch.mm(gradient, pad(weight, plan) if wide is None else wide) if needs[0] else None
    grad_weight = _unpad(torch.mm(gradient.t(), x), harmonics, plan) if needs[1] else None
    grad_bias = None
    if needs[2] and bias is not None:
        grad_bias = torch.empty_like(bias)
        constants = {"WALLS": plan.walls, "GROUPS": 32, "BLOCK": 32}
        run(bias_kernel, (ceil_div(len(bias), 32),), (sums, grad_bias, grid[0], harmonics, vectors), constants)
    return grad_x, grad_weight, grad_bias


def _narrow(
    upstream: Tensor, x: Tensor, weight: Tensor, bias: Tensor | None, y: Tensor, table: Tensor, factors: Tensor,
    offsets: Tensor | None, plan: Plan, needs: tuple[bool, bool, bool],
) -> Gradients:  # fmt: skip
    tokens, width = x.shape
    outputs = weight.shape[0]
    harmonics = outputs // plan.halves
    blocks = plans.narrow_blocks(tokens, width, harmonics)
    grid = (ceil_div(tokens, blocks.rows * blocks.steps), ceil_div(width, blocks.depth))
    reduced = plan.reduction != "none"
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
        "WALLS": plan.walls,
        "POINTS": plan.points,
        "APPROX": _approximate(x),
        "TILE": blocks.tile,
        "ROWS": blocks.rows,
        "STEPS": blocks.steps,
        "WIDTH": blocks.depth,
        "WIDEN": INTERPRETED,
    }
    tensors = (x, weight, y, table, offsets, upstream, factors, grad_x, partial)
    sizes = (tokens, width, harmonics, plan.padded(harmonics) * plan.halves // 16, x.stride(0), weight.stride(0))
    run(narrow_kernel, grid, (*tensors, *sizes, stride, plan.penalty), constants, num_warps=blocks.warps)
    if needs[1] or needs[2]:
        size = 64
        arguments = (partial, grad_weight, grad_bias, grid[0], outputs, width)
        constants = {**wanted, "GROUPS": 16, "BLOCK": size}
        run(gather_kernel, (ceil_div(outputs * (width + 1), size),), arguments, constants)
    return grad_x, grad_weight, grad_bias
