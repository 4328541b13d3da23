"""Tensors from whatever the caller has."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

Numeric: TypeAlias = Tensor | ArrayLike


def needs_sync(x: Tensor) -> bool:
    """Tell whether reading values would make the host wait for a device, or is not possible under a transform."""
    return x.device.type != "cpu" or torch._C._functorch.is_functorch_wrapped_tensor(x)


def common_shape(*shapes: Sequence[int]) -> torch.Size:
    """Return the shape to which shapes broadcast.

    As torch.broadcast_shapes, which loads symbolic algebra at its first call: for as long as a small fit takes.

    >>> common_shape((3, 1), (4,), ())
    torch.Size([3, 4])
    """
    if not (torch.compiler.is_compiling() or torch.jit.is_tracing()):  # then sizes may be more than numbers
        with contextlib.suppress(TypeError, ValueError):  # torch says why not
            return torch.Size(np.broadcast_shapes(*(tuple(shape) for shape in shapes)))
    return torch.broadcast_shapes(*shapes)


def plain(value: Any) -> Any:
    """Return a number of numpy or torch as one of Python, which JSON can hold; anything else as it is.

    >>> plain(np.int64(30)), plain(torch.tensor(0.5)), plain("reflect")
    (30, 0.5, 'reflect')
    """
    return value.item() if isinstance(value, (np.generic, Tensor)) else value


def widened(x: Tensor) -> Tensor:
    """Return 16-bit numbers in float32 and whole ones in torch's default type; all others stay as they are."""
    if x.dtype in (torch.float16, torch.bfloat16):
        return x.float()
    return x if x.is_floating_point() else x.to(torch.get_default_dtype())


def widest(x: Tensor, device: torch.device | None = None) -> Tensor:
    """Return numbers in the widest type that their device, or another, has."""
    device = device or x.device
    return x.to(device=device, dtype=torch.float32 if device.type == "mps" else torch.float64)


def _array(values: ArrayLike) -> np.ndarray:
    """Return an array of numbers, also from one of objects, as pandas keeps decimals and columns with None."""
    array = np.asarray(values)
    try:
        return array.astype(np.float64) if array.dtype.kind in "OUS" else array
    except (TypeError, ValueError):
        raise TypeError(f"expected real numbers, got {values!r:.60}") from None


def as_tensors(*values: Numeric) -> list[Tensor]:
    """Return real tensors of one floating dtype, float32 or wider, on the device of the first tensor among them.

    Plain numbers and lists take the dtype of the tensors and arrays they come with, float64 where there is none.

    Example:
        >>> [t.dtype for t in as_tensors([0.1, 0.2], torch.ones(2, dtype=torch.bfloat16))]
        [torch.float32, torch.float32]
        >>> as_tensors(0.5)
        [tensor(0.5000, dtype=torch.float64)]
    """
    device = next((v.device for v in values if isinstance(v, Tensor)), None)
    out = [v if isinstance(v, Tensor) else torch.as_tensor(_array(v), device=device) for v in values]
    for tensor in out:
        if tensor.is_complex() or tensor.dtype == torch.bool:
            raise TypeError(f"expected real numbers, got a tensor of dtype {tensor.dtype}")
    typed = [t for t, v in zip(out, values, strict=True) if isinstance(v, (Tensor, np.ndarray, np.generic))]
    kinds = [t.dtype for t in typed if t.is_floating_point()] or [torch.float64]
    dtype = torch.float32
    for kind in kinds:
        dtype = torch.promote_types(dtype, kind)
    return [t.to(dtype) for t in out]
