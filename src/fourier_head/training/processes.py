"""Several processes that train one model: how each of them leaves."""

from __future__ import annotations

import atexit
import os
import time
from functools import cache
from typing import TypeVar

import torch

__all__ = ["agreed", "leave_at_exit"]

Value = TypeVar("Value")

LAST_MESSAGE = 0.3
"""Seconds for the threads that carry messages to finish; they need microseconds, and a share of a busy processor."""


def agreed(value: Value, device: str) -> Value:
    """Return the first process's value in all of them: what each does next, such as to train, takes all.

    >>> agreed(3, "cpu")
    3
    """
    if int(os.environ.get("WORLD_SIZE", 1)) == 1:
        return value
    from accelerate import PartialState
    from accelerate.utils import broadcast_object_list

    PartialState(cpu=device == "cpu")
    leave_at_exit()
    return broadcast_object_list([value])[0]


@cache
def leave_at_exit() -> None:
    """Have this process take leave of the others before Python ends, whichever script started it."""
    atexit.register(_leave)


def _leave() -> None:
    """Take the process group down in order.

    A thread of gloo that carried the last message needs Python's lock to let go of it. If Python is taken down before
    that, the process ends with SIGABRT; if the group is destroyed before, which holds the lock and waits for the
    thread, it hangs. Both were seen on busy machines with torch 2.13. Asleep, we leave the lock to that thread.
    """
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        time.sleep(LAST_MESSAGE)
        torch.distributed.destroy_process_group()
