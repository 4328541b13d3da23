"""Launch kernels: tensors in, nothing out, no autograd here and no wait for the device."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import triton
from torch import Tensor

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
    if not x.is_cuda or torch._C._cuda_isCurrentStreamCapturing():
        return torch.zeros(size + 1, device=x.device)
    device = x.get_device()
    place = (device, torch._C._cuda_getCurrentRawStream(device))
    found = _SUMS.get(place)
    if found is None or len(found) <= size:
        found = _SUMS[place] = torch.zeros(max(2 * size, 1 << 14), device=x.device)
    return found


def empty(x: Tensor, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.empty(shape, dtype=dtype, device=x.device)
