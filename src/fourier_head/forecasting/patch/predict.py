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
    tokens: int,
    cost: Callable[[np.ndarray], np.ndarray] | None = None,
    dtype: type[np.floating] = np.float32,
    device: torch.device | None = None,
) -> Iterator[tuple[np.ndarray, Tensor]]:
    """Yield the numbers of series and their contexts (B, C), NaN before each begins, series of like length together.

    Args:
        contexts: values of each series, oldest first.
        longest: values that count, the last ones.
        patch: C is a multiple of this.
        tokens: about so many patches go into one batch.
        cost: patches a series takes, from those of its past; as many unless given.
        dtype, device: of the contexts.
    """
    lengths = np.minimum([len(context) for context in contexts], longest)
    patches = np.maximum(-(-lengths // patch), 1)
    order = np.argsort(patches, kind="stable")
    costs = patches if cost is None else cost(patches)
    start = 0
    while start < len(order):
        # The longest of a batch sets its cost and width; sorted, the last one is the longest.
        ahead = costs[order[start : start + tokens]]
        count = max(1, int(np.searchsorted(ahead * np.arange(1, len(ahead) + 1), tokens, side="right")))
        chosen = order[start : start + count]
        width = int(patches[chosen[-1]]) * patch
        # All values in a row, and one NaN after them for what is before a series.
        flat = np.concatenate([*(contexts[number][-longest:] for number in chosen.tolist()), [np.nan]], dtype=dtype)
        values, past = (torch.from_numpy(array).to(device) for array in (flat, lengths[chosen, None]))
        place = torch.arange(-width, 0, device=device)
        yield chosen, values[torch.where(place >= -past, past.cumsum(0) + place, -1)]
        start += count


@contextmanager
def fast_arithmetic(device: torch.device, half: bool) -> Iterator[None]:
    """Compute as is fastest: bfloat16 on a GPU where wanted, plain BLAS on ARM processors."""
    arm = device.type == "cpu" and platform.machine().lower() in ("aarch64", "arm64")
    with plain_blas() if arm else nullcontext(), torch.autocast(device.type, torch.bfloat16, enabled=half):
        yield
