"""Several processes that train one model: one clock for all, and an orderly end of each."""

from __future__ import annotations

import atexit
import os
import time
from functools import cache

import torch

LAST_MESSAGE = 0.3
"""Seconds for the threads that carry messages to finish; they need microseconds, and a share of a busy processor."""


def rank_and_world() -> tuple[int, int]:
    """Return the number of this process and how many there are, as torchrun and accelerate tell their processes."""
    return int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))


def agreed(seconds: float, device: str) -> float:
    """Return the first process's clock in all of them: what each does next, such as to stop, takes all.

    >>> agreed(3.0, "cpu")
    3.0
    """
    if rank_and_world()[1] == 1 and not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return seconds
    from accelerate import PartialState

    state = PartialState(cpu=device == "cpu")
    destroy_group_at_exit()
    precision = torch.float32 if state.device.type == "mps" else torch.float64
    clock = torch.tensor([seconds], dtype=precision, device=state.device)
    torch.distributed.broadcast(clock, 0)
    return float(clock)


@cache
def destroy_group_at_exit() -> None:
    """Destroy the process group before Python ends, whichever script started this process."""
    atexit.register(_destroy_group)


def _destroy_group() -> None:
    """Take the process group down in order.

    A thread of gloo that carried the last message needs Python's lock to let go of it. If Python is taken down before
    that, the process ends with SIGABRT; if the group is destroyed before, which holds the lock and waits for the
    thread, it hangs. Both were seen on busy machines with torch 2.13. Asleep, we leave the lock to that thread.
    """
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        time.sleep(LAST_MESSAGE)
        torch.distributed.destroy_process_group()
