"""Which device to compute on, how to train fast there, and what torch's compilers and parallel training bring."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor

from fourier_head.errors import UserError

Function = TypeVar("Function", bound=Callable[..., Any])


def best_device() -> str:
    """Return cuda where there is one, else cpu."""
    return "cuda" if torch.cuda.is_available() else "cpu"


def chosen_device(name: str, argument: str = "--device") -> str:
    """Return the device that an option or argument names; auto is the best one here.

    >>> chosen_device("cpu")
    'cpu'
    """
    if name == "auto":
        return best_device()
    try:
        kind = torch.device(name).type
    except RuntimeError:
        raise UserError(f"{argument} must be cpu, cuda or auto, got {name}.") from None
    if kind == "cuda" and not torch.cuda.is_available():
        raise UserError(f"{argument} {name} needs a graphics card that torch can use; there is none.")
    if not _is_here(torch.device(name)):
        raise UserError(f"{argument} {name} is no device that torch can use here.")
    return name


def _is_here(device: torch.device) -> bool:
    if device.type == "cuda":
        # Counted, not tried: a process that only hands work to others need not take a part of the card's memory.
        return (device.index or 0) < torch.cuda.device_count()
    try:
        torch.empty(0, device=device)
    except (RuntimeError, NotImplementedError, AssertionError, ImportError):
        return False
    return True


def fast_training(device: str) -> tuple[Literal["bf16", "no"], bool]:
    """Return the precision for training on a device and whether to compile; float32 products become quick ones.

    On a GPU bfloat16, compiled, and TF32 for what stays in float32, from here on in this process; elsewhere neither.
    """
    gpu = device.startswith("cuda")
    if gpu:
        torch.set_float32_matmul_precision("high")
    return ("bf16" if gpu else "no"), gpu


@contextmanager
def seeded(seed: int, device: torch.device | str = "cpu") -> Iterator[None]:
    """Seed the global generators inside, for layers and libraries that know no other; restore them after."""
    device = torch.device(device)
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        yield


@contextmanager
def plain_blas() -> Iterator[None]:
    """Multiply matrices without oneDNN, which is slower than plain BLAS on ARM processors."""
    with warnings.catch_warnings():
        # Of tensor cores that this processor does not have, whenever oneDNN is switched.
        warnings.simplefilter("ignore", UserWarning)
        with torch.backends.mkldnn.flags(enabled=False):
            yield


@contextmanager
def small_matrices() -> Iterator[None]:
    """Compute on one thread and without oneDNN: for matrices this small both cost more time than they save.

    On ARM processors oneDNN takes ten times as long as plain BLAS for a layer of 64 units.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with plain_blas():
            yield
    finally:
        torch.set_num_threads(threads)


def constant_result(function: Function) -> Function:
    """Mark a function whose result compilers may keep, as ``torch.compiler.assume_constant_result`` does.

    That one imports all of torch's compiler first, which takes as long as torch itself and few programs need.
    """
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return function


def is_distributed(tensor: Tensor) -> bool:
    """Tell whether a tensor is a DTensor, as FSDP2 makes them."""
    if type(tensor) is Tensor or type(tensor) is torch.nn.Parameter:
        return False
    return type(tensor).__name__ == "DTensor" or type(getattr(tensor, "data", None)).__name__ == "DTensor"
