"""Functions whose kernels are launched from a CUDA graph after their first calls."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, Generic

import torch

from fourier_head.training.graphs import Result, aside, record

PLAIN_CALLS = 3
"""Calls before a recording: libraries choose kernels and optimizers make their state in the first ones."""


class Recorded(Generic[Result]):
    """A function without arguments, of tensors whose memory stays; on a GPU all but its first calls replay a graph.

    Launching the kernels one by one would take longer than their work, and would keep a processor busy that emulators
    need. Every call counts, the first ones too, so a function may change what it reads. The result lies in memory that
    the next call writes again. Where a GPU refuses to record, calls stay plain.

    Args:
        function: reads and writes tensors, never waits for the device.
        device: where they lie; nothing is recorded but on a GPU.

    Example:
        >>> total = torch.zeros(1)
        >>> add = Recorded(lambda: total.add_(1), torch.device("cpu"))
        >>> float(add()), float(add())
        (1.0, 2.0)
    """

    def __init__(self, function: Callable[[], Result], device: torch.device):
        self._function, self._records = function, device.type == "cuda"
        self._calls = 0
        self._graph: Any = None
        self._result: Any = None

    def __call__(self) -> Result:
        if not self._records:
            return self._function()
        self._calls += 1
        if self._calls <= PLAIN_CALLS:
            with aside():  # as a recording demands of the calls before it
                return self._function()
        if self._graph is None and not self._record():
            return self._function()
        self._graph.replay()
        return self._result

    def _record(self) -> bool:
        try:
            self._graph, self._result = record(self._function)
        except RuntimeError as error:
            reason = str(error).partition("\n")[0]
            warnings.warn(f"kernels are launched one by one: {reason}", stacklevel=3)
            self._records = False
            return False
        return True
