"""Where the kernels run: which device and types they take, and who may not be watching."""

from __future__ import annotations

import functools
import importlib.util
import os
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor

from fourier_head._devices import constant_result, is_distributed

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
_CAPABLE: dict[int, bool] = {}
_HERE: AbstractContextManager[object] = nullcontext()


def available(x: Tensor) -> bool:
    """Tell whether the kernels run on the device and in the type of ``x``.

    >>> available(torch.zeros(2, 3))
    False
    """
    return x.is_cuda and x.dtype in DTYPES and _capable(x.device.index)


@constant_result
def _capable(index: int) -> bool:
    if index not in _CAPABLE:
        found = importlib.util.find_spec("triton") is not None and torch.version.hip is None
        _CAPABLE[index] = found and torch.cuda.get_device_capability(index) >= (8, 0)
    return _CAPABLE[index]


@functools.cache
def is_roomy(index: int) -> bool:
    """Tell whether a processor of a GPU shares 200 KiB among its threads, as those of an H100 do."""
    found = torch.cuda.get_device_properties(index)
    return bool(getattr(found, "shared_memory_per_block_optin", 0) >= 200 << 10)


def interpreted(x: Tensor) -> bool:
    """Tell whether Triton's interpreter would run the kernels on the CPU of ``x``: slowly, for tests."""
    return x.device.type == "cpu" and x.dtype in DTYPES and os.environ.get("TRITON_INTERPRET") == "1"


def traced(*tensors: Tensor) -> bool:
    """Tell whether a tracer or a transform of functorch looks on, which sees torch's own operations alone."""
    if torch.compiler.is_compiling() or torch.jit.is_tracing():
        return True
    return any(torch._C._functorch.is_functorch_wrapped_tensor(tensor) for tensor in tensors)


def wanted(impl: str, *tensors: Tensor) -> bool:
    """Tell whether the kernels of inference take these tensors: where they run, nothing traces or needs a gradient.

    >>> wanted("auto", torch.zeros(2, 3))
    False
    """
    if impl not in ("auto", "fused") or traced(*tensors):
        return False
    if not available(tensors[0]) and not (impl == "fused" and interpreted(tensors[0])):
        return False
    return not (torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors))


def require(name: str, tensor: Tensor) -> None:
    """Raise an error where the kernels do not run on a tensor."""
    if is_distributed(tensor):
        raise TypeError(f'{name}: the fused kernels need plain tensors, got a DTensor; use impl="reference"')
    if not available(tensor) and not interpreted(tensor):
        raise TypeError(
            f"{name}: the fused kernels need a CUDA tensor in {DTYPES}, got {tensor.dtype} on {tensor.device}"
        )


def on(x: Tensor) -> AbstractContextManager[object]:
    """Launch on the device of ``x``, whichever is the current one."""
    if x.is_cuda and x.device.index != torch._C._cuda_getDevice():
        return torch.cuda.device(x.device)
    return _HERE
