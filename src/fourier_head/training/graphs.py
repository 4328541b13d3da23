"""Replay work of many small kernels from a CUDA graph: the host then launches one thing in place of a thousand."""

from __future__ import annotations

import functools
import gc
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

Result = TypeVar("Result")

AHEAD = 3
"""Replays that may wait on the device: a clock on the host then tells the device's time within so many steps."""


class CapturedPass:
    """A pass forward and back, captured once and replayed on other batches.

    A replay does again what the device did, at the same addresses, and nothing of what the host did. So batches are
    copied into the tensors of the capture, gradients come back in the tensors that it made, and ``step`` must neither
    wait for the device nor decide anything by what is in a batch. Dropout is new in every replay: torch gives graphs
    its own generator.

    Args:
        step: takes a batch, leaves gradients in ``.grad`` and returns the loss, detached.
        parameters: what gets gradients.
        example: a batch on the device; all others must have its shapes and types, see ``fits``.
    """

    def __init__(self, step: Callable[..., Tensor], parameters: Iterable[nn.Parameter], example: Iterable[Tensor]):
        self.parameters = list(parameters)
        self.inputs = tuple(_room(x).copy_(x) for x in example)

        def once() -> Tensor:
            # Without a gradient to add to, the pass makes one, which every replay overwrites.
            self._attach([None] * len(self.parameters))
            return step(*self.inputs)

        self._replay, self._loss = capture(once)
        self._gradients = [parameter.grad for parameter in self.parameters]
        self._attach([None] * len(self.parameters))

    def fits(self, batch: Iterable[Any]) -> bool:
        """Tell whether a batch is one of those that can be replayed."""
        return [_looks(x) for x in batch] == [_looks(x) for x in self.inputs]

    def __call__(self, *batch: Tensor) -> Tensor:
        """Leave the gradients of a batch in ``.grad``, whatever was there; return its loss, until the next call."""
        for room, given in zip(self.inputs, batch, strict=True):
            room.copy_(given)
        self._replay()
        self._attach(self._gradients)
        return self._loss

    def _attach(self, gradients: Iterable[Tensor | None]) -> None:
        for parameter, gradient in zip(self.parameters, gradients, strict=True):
            parameter.grad = gradient


def _room(like: Tensor) -> Tensor:
    """Return room for a tensor with its strides, which compiled code depends on."""
    return torch.empty_strided(like.shape, like.stride(), dtype=like.dtype, device=like.device)


def _looks(x: Any) -> Any:
    return (x.shape, x.dtype, x.device) if isinstance(x, Tensor) else type(x)


def capture(step: Callable[[], Tensor]) -> tuple[Callable[[], None], Tensor]:
    """Return a function that has the device repeat ``step``, and what ``step`` returned; its value then follows.

    Two passes go before: one in which anything may still be compiled, and one in which whatever waits for the device
    is an error, since a capture that fails half way is harder to leave.
    """
    gc.collect()  # what is left of earlier passes would tie this one to the stream they ran on
    with aside():
        step()
        with _no_waiting():
            step()
    graph, result = record(step)
    waiting: deque[torch.cuda.Event] = deque()

    def replay() -> None:
        end = waiting.popleft() if len(waiting) == AHEAD else torch.cuda.Event(blocking=True)
        end.synchronize()
        graph.replay()
        end.record()
        waiting.append(end)

    return replay, result


def record(function: Callable[[], Result]) -> tuple[torch.cuda.CUDAGraph, Result]:
    """Return a graph of what the device does in a call, and what the call returned; nothing has been computed yet."""
    gc.collect()  # an old graph that went away in the middle would spoil the new one
    here, side = torch.cuda.current_stream(), _side_stream(torch.cuda.current_device())
    graph = torch.cuda.CUDAGraph()
    try:
        # Threads other than this one and autograd's may go on loading, writing and compiling.
        with torch.cuda.graph(graph, stream=side, capture_error_mode="thread_local"):
            result = function()
    except Exception:
        torch.cuda.set_stream(here)
        torch.cuda.synchronize()
        # The generator counts as captured until a capture ends well.
        with torch.cuda.graph(torch.cuda.CUDAGraph(), stream=side):
            torch.zeros((), device=here.device)
        raise
    return graph, result


@functools.cache
def _side_stream(device: int) -> torch.cuda.Stream:
    """Return one stream for all captures: libraries keep room for each stream that they have seen."""
    return torch.cuda.Stream(device)


@contextmanager
def aside() -> Iterator[None]:
    """Work on the stream of captures, after what was before and before what comes after."""
    here, side = torch.cuda.current_stream(), _side_stream(torch.cuda.current_device())
    side.wait_stream(here)
    try:
        with torch.cuda.stream(side):
            yield
    finally:
        here.wait_stream(side)


@contextmanager
def _no_waiting() -> Iterator[None]:
    before = torch.cuda.get_sync_debug_mode()
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode(before)
