"""Launch the kernels: tensors in, tensors out, no autograd here and no wait for the device."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import torch
import triton
from torch import Tensor

from fourier_head.kernels import plan as plans
from fourier_head.kernels.backward import bias_kernel, gather_kernel, gradient_kernel, narrow_kernel
from fourier_head.kernels.forward import pad_kernel, project_kernel
from fourier_head.kernels.places import KINDS
from fourier_head.kernels.plan import Score, ceil_div
from fourier_head.kernels.products import restack_kernel
from fourier_head.kernels.rows import CONSTANTS, PER_POINT

Gradients = tuple[Tensor | None, Tensor | None, Tensor | None]

# In the interpreter there is no inline assembly, and products of bfloat16 treat its bits as integers.
INTERPRETED = bool(triton.knobs.runtime.interpret) if hasattr(triton, "knobs") else False
_COMPILED: dict[tuple[Any, ...], Any] = {}


def traits(value: Any) -> Any:
    """Return what a compiled kernel depends on in a number: its type and alignment, never the value itself."""
    return (value == 1, value & 15 == 0, value >> 31) if isinstance(value, int) else type(value)


class Site(NamedTuple):
    """A launch but for its tensors: made once for every size, so that a step has nothing left to work out.

    Args:
        kernel, grid: what is launched, (x, y, z) of it.
        numbers, constants: its arguments after the tensors, in its order.
        options: warps and stages.
        key: equal where one compiled kernel does for several sites.
        ready: by types and alignment of the tensors, the compiled launcher with its arguments before and after these.
    """

    kernel: Any
    grid: tuple[int, int, int]
    numbers: tuple[Any, ...]
    constants: dict[str, Any]
    options: dict[str, int]
    key: Any
    ready: dict[Any, Any]


def launch(site: Site, tensors: tuple[Tensor | None, ...]) -> None:
    """Launch a kernel; from the second time on without its decorator, whose checks cost more than the launch."""
    if INTERPRETED:
        site.kernel[site.grid](*tensors, *site.numbers, **site.constants, **site.options)
        return
    # The launcher reads addresses faster from numbers than from tensors, each of which it would ask for its device.
    addresses = [None if t is None else t.data_ptr() for t in tensors]
    odd = 0
    for address in addresses:
        odd |= address or 0
    device = torch._C._cuda_getDevice()
    # What a compiled kernel depends on in tensors: whether they are there, their types and how they are aligned.
    where = tuple([address and address & 15 for address in addresses]) if odd & 15 else None
    key = (device, where, *[None if t is None else t.dtype for t in tensors])
    found = site.ready.get(key) or _prepared(site, tensors, key)
    if found is not None:
        run, first, last = found
        run(*site.grid, torch._C._cuda_getCurrentRawStream(device), *first, *addresses, *last)


def _prepared(site: Site, tensors: tuple[Tensor | None, ...], key: Any) -> tuple[Any, Any, Any] | None:
    """Return what a launch takes where the kernel is compiled; else compile and launch it, and return None."""
    kernel, grid, numbers, constants, options, known, ready = site
    compiled = _COMPILED.get((known, key))
    if compiled is None:
        _COMPILED[known, key] = kernel[grid](*tensors, *numbers, **constants, **options)
        return None
    first = (compiled.function, compiled.packed_metadata, None, None, None)
    ready[key] = compiled.run, first, (*numbers, *constants.values())
    return ready[key]


def run(kernel: Any, grid: tuple[int, ...], args: tuple[Any, ...], constants: dict[str, Any], **options: int) -> None:
    """Launch ``kernel`` with arguments, tensors first, that are seldom the same."""
    count = next((i for i, arg in enumerate(args) if not (arg is None or isinstance(arg, Tensor))), len(args))
    numbers = args[count:]
    key = (id(kernel), *map(traits, numbers), *constants.values(), *options.values())
    launch(Site(kernel, (*grid, 1, 1)[:3], numbers, constants, options, key, {}), args[:count])  # type: ignore[arg-type]


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


def product(x: Tensor, weight: Tensor, room: int = 0) -> Tensor:
    """Return x W^T in float32; rows lie ``room`` numbers apart, if that is given, which products are faster with."""
    into = room > len(weight)
    if x.dtype == torch.float32 or not (x.is_cuda and _wide_products()):
        weight = weight.t().float()
        if not into:
            return torch.mm(x.float(), weight)
        return torch.mm(x.float(), weight, out=x.new_empty((len(x), room), dtype=torch.float32)[:, : weight.shape[1]])
    if not into:
        return torch.mm(x, weight.t(), out_dtype=torch.float32)
    y = x.new_empty((len(x), room), dtype=torch.float32)[:, : len(weight)]
    return torch.mm(x, weight.t(), out_dtype=torch.float32, out=y)


@functools.lru_cache(maxsize=256)
def _pad_site(length: int, room: int, halves: int, width: int, stride: int) -> Site:
    block = min(1024, plans.power_of_two_above(width))
    numbers = (length, room, width, stride)
    grid = (halves * room, ceil_div(width, block), 1)
    return Site(pad_kernel, grid, numbers, {"BLOCK": block}, {}, ("pad", *map(traits, numbers), block), {})


def pad_rows(weight: Tensor, length: int, room: int) -> Tensor:
    """Return the weights with zeros after every ``length`` rows, ``room`` rows each."""
    halves, width = weight.shape[0] // length, weight.shape[1]
    result = weight.new_empty((halves * room, width))
    launch(_pad_site(length, room, halves, width, weight.stride(0)), (weight, result))
    return result


def pad(weight: Tensor, score: Score) -> Tensor:
    """Return the weights with each half padded to whole vectors; the weights themselves where they fit already."""
    return weight if score.padded == score.length else pad_rows(weight, score.length, score.padded)


@functools.lru_cache(maxsize=256)
def _restack_site(length: int, room: int, wide: int, rows: int, width: int, stride: int, scaled: bool) -> Site:
    block = min(1024, plans.power_of_two_above(width))
    constants = {"SCALED": scaled, "BLOCK": block}
    key = ("restack", traits(width), traits(stride), *constants.values())
    grid = (wide + rows, ceil_div(width, block), 1)
    return Site(restack_kernel, grid, (length, room, wide, width, stride), constants, {}, key, {})


def weight_products(
    gradient: Tensor, x: Tensor, weight: Tensor, length: int, needs: tuple[bool, bool, bool],
    scale: tuple[Tensor, Tensor] | None = None,
) -> tuple[Tensor | None, Tensor | None]:  # fmt: skip
    """Return the gradients of x and of the weights, times both parts of a scale, by two products of whole vectors.

    ``gradient`` has some zeros after every ``length`` columns. What products need and leave, weights with rows of zeros
    and gradients of weights without them, is copied in one launch between the two.
    """
    (outputs, width), columns = weight.shape, gradient.shape[1]
    sums = torch.mm(gradient.t(), x) if needs[1] else None
    result, wide = sums, weight
    if columns != outputs or scale is not None:
        wide = x.new_empty((columns, width)) if needs[0] else weight
        if sums is not None and columns != outputs:
            result = x.new_empty((outputs, width)) if length < outputs else sums[:outputs]
        site = _restack_site(
            length, columns * length // outputs, columns if needs[0] else 0, outputs if needs[1] else 0, width,
            weight.stride(0), scale is not None,
        )  # fmt: skip
        source, target = (weight, weight) if sums is None else (sums, result)
        launch(site, (weight, wide, source, target, *(scale or (None, None))))
    return torch.mm(gradient, wide) if needs[0] else None, result


def _approximate(x: Tensor) -> bool:
    return x.dtype != torch.float32 and not INTERPRETED


def empty(x: Tensor, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.empty(shape, dtype=dtype, device=x.device)


@functools.lru_cache(maxsize=1024)
def _forward_site(
    score: Score, tokens: int, width: int, strides: tuple[int, int], bias: bool, weighted: bool, keep: bool,
    approximate: bool,
) -> Site:  # fmt: skip
    """Return the launch of a forward pass."""
    blocks = plans.project_blocks(tokens, width, score.length)
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
        "MASK": score.length % blocks.tile != 0,
        "PREFETCH": blocks.prefetch and score.points == 0,  # the roughness needs the registers
        "WIDEN": INTERPRETED,
    }
    options = {"num_warps": blocks.warps, "num_stages": blocks.stages}
    known = (*map(traits, (*strides, width)), score.ignore_index >> 31)
    key = ("project", *known, *options.values(), *constants.values())
    return Site(project_kernel, (ceil_div(tokens, blocks.rows), 1, 1), numbers, constants, options, key, {})


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
    approximate = dtype != torch.float32 and not INTERPRETED
    site = _forward_site(score, tokens, width, strides, bias, weighted, keep, approximate)
    reduce = score.reduction != "none"
    lines = CONSTANTS.value + PER_POINT.value * score.points + ceil_div(score.length, site.constants["TILE"])
    return Forward(
        site, () if reduce else (tokens,), (lines if keep else 0, tokens),
        (tokens if keep else 0, score.halves * score.padded), 4 * site.grid[0] if reduce else 0,
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
    planned = _planned(
        score, tokens, width, x.dtype, strides, bias is not None, class_weight is not None, keep
    )  # fmt: skip
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
    site = _gradient_site(score, tokens, x.shape[1], stride, needs[2], _approximate(x))
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


def no_gradients(*sources_and_needs: Any) -> Gradients:
    """Return zeros in the place of the gradients of no tokens."""
    *sources, needs = sources_and_needs
    grads = [torch.zeros_like(s) if n and s is not None else None for s, n in zip(sources, needs, strict=True)]
    return grads[0], grads[1], grads[2]


@functools.lru_cache(maxsize=1024)
def _narrow_sites(
    score: Score, tokens: int, width: int, strides: tuple[int, int, int], needs: tuple[bool, bool, bool],
    approximate: bool,
) -> tuple[Site, Site]:  # fmt: skip
    """Return the launch of a whole backward pass, and that which adds up its parts."""
    blocks = plans.narrow_blocks(tokens, width, score.length)
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


def gather_site(groups: int, outputs: int, width: int, wanted: dict[str, bool]) -> Site:
    """Return the launch that adds up the matrices (outputs, width + 1) of groups of tokens."""
    size = 64
    constants = {**wanted, "GROUPS": 16, "BLOCK": size}
    key = ("gather", traits(groups), traits(width), *constants.values())
    grid = (ceil_div(outputs * (width + 1), size), 1, 1)
    return Site(gather_kernel, grid, (groups, outputs, width), constants, {}, key, {})


def _narrow(
    upstream: Tensor, x: Tensor, weight: Tensor, bias: Tensor | None, y: Tensor, table: Tensor,
    offsets: Tensor | None, score: Score, needs: tuple[bool, bool, bool],
) -> Gradients:  # fmt: skip
    tokens, width = x.shape
    strides = (x.stride(0), weight.stride(0), 0 if score.reduction != "none" else upstream.stride(0))
    site, gather = _narrow_sites(score, tokens, width, strides, needs, _approximate(x))
    grad_x = torch.empty_like(x, memory_format=torch.contiguous_format) if needs[0] else None
    grad_weight = torch.empty_like(weight, memory_format=torch.contiguous_format) if needs[1] else None
    grad_bias = torch.empty_like(bias) if needs[2] and bias is not None else None
    partial = x.new_empty(site.grid[0] * score.coefficients * (width + 1), dtype=torch.float32)
    launch(site, (x, weight, y, table, offsets, upstream, grad_x, partial))
    if needs[1] or needs[2]:
        launch(gather, (partial, grad_weight, grad_bias))
    return grad_x, grad_weight, grad_bias
