"""Series of different lengths in few passes of the network, as fast as the machine goes."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext

import numpy as np
import torch
from torch import Tensor

from fourier_head._devices import plain_blas


def batches(
    contexts: Sequence[np.ndarray],
    longest: int,
    patch: int,
    tokens: int = 16384,
    cost: Callable[[np.ndarray], np.ndarray] | None = None,
    dtype: type[np.floating] = np.float32,
) -> Iterator[tuple[np.ndarray, Tensor]]:
    """Yield the numbers of series and their contexts (B, C), NaN before each begins, series of like length together.

    Args:
        contexts: values of each series, oldest first.
        longest: values that count, the last ones.
        patch: C is a multiple of this.
        tokens: about so many patches go into one batch.
        cost: patches a series takes, from those of its past; as many unless given.
        dtype: of the contexts.
    """
    lengths = np.array([min(len(context), longest) for context in contexts])
    patches = np.maximum(-(-lengths // patch), 1)
    order = np.argsort(patches, kind="stable")
    costs = patches if cost is None else cost(patches)
    start = 0
    while start < len(order):
        # The longest of a batch sets its width; sorted, the last one is the longest.
        stop = start + 1
        while stop < len(order) and (stop + 1 - start) * costs[order[stop]] <= tokens:
            stop += 1
        chosen = order[start:stop]
        width = int(patches[chosen[-1]]) * patch
        block = np.full((len(chosen), width), np.nan, dtype=dtype)
        for i, number in enumerate(chosen):
            if lengths[number]:
                block[i, width - lengths[number] :] = contexts[number][-lengths[number] :]
        yield chosen, torch.from_numpy(block)
        start = stop


@contextmanager
def fast_arithmetic(device: torch.device, half: bool) -> Iterator[None]:
    """Compute as is fastest: bfloat16 on a GPU where wanted, plain BLAS on ARM processors."""
    arm = device.type == "cpu" and platform.machine().lower() in ("aarch64", "arm64")
    with plain_blas() if arm else nullcontext(), torch.autocast(device.type, torch.bfloat16, enabled=half):
        yield
