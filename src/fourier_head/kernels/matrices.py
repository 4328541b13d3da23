"""Matrix products around the kernels: outputs in float32, and gradients of features and weights from theirs."""

from __future__ import annotations

import functools

import torch
from torch import Tensor

from fourier_head.kernels import plan as plans
from fourier_head.kernels.backward import gather_kernel
from fourier_head.kernels.launch import Site, launch, traits
from fourier_head.kernels.plan import ceil_div
from fourier_head.kernels.products import restack_kernel


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


@functools.lru_cache(maxsize=256)
def _restack_site(length: int, room: int, wide: int, rows: int, width: int, stride: int, scaled: bool) -> Site:
    block = min(1024, plans.power_of_two_above(width))
    constants = {"SCALED": scaled, "BLOCK": block}
    key = ("restack", traits(width), traits(stride), *constants.values())
    grid = (wide + rows, ceil_div(width, block), 1)
    return Site(restack_kernel, grid, (length, room, wide, width, stride), constants, {}, key, {})


def pad_rows(weight: Tensor, length: int, room: int) -> Tensor:
    """Return the weights with zeros after every ``length`` rows, ``room`` rows each."""
    rows, width = weight.shape[0] // length * room, weight.shape[1]
    result = weight.new_empty((rows, width))
    site = _restack_site(length, room, rows, 0, width, weight.stride(0), False)
    launch(site, (weight, result, weight, weight, None, None))
    return result


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
    if (needs[0] or needs[1]) and (columns != outputs or scale is not None):
        wide = x.new_empty((columns, width)) if needs[0] else weight
        if sums is not None and columns != outputs:
            result = x.new_empty((outputs, width)) if length < outputs else sums[:outputs]
        site = _restack_site(
            length, columns * length // outputs, columns if needs[0] else 0, outputs if needs[1] else 0, width,
            weight.stride(0), scale is not None,
        )  # fmt: skip
        copied = (weight, weight) if sums is None else (sums, result)
        launch(site, (weight, wide, *copied, *(scale or (None, None))))
    return torch.mm(gradient, wide) if needs[0] else None, result


def gather_site(groups: int, outputs: int, width: int, wanted: dict[str, bool]) -> Site:
    """Return the launch that adds up the matrices (outputs, width + 1) of groups of tokens."""
    size = 64
    constants = {**wanted, "GROUPS": 16, "BLOCK": size}
    key = ("gather", traits(groups), traits(width), *constants.values())
    grid = (ceil_div(outputs * (width + 1), size), 1, 1)
    return Site(gather_kernel, grid, (groups, outputs, width), constants, {}, key, {})
