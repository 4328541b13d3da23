"""Settings for training small networks on a processor."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import torch


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
