"""Forecast many series of different lengths with few passes of the network."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext

import numpy as np
import torch
from torch import Tensor

from fourier_head._cpu import plain_blas
from fourier_head.forecasting.frequency import natural_period
from fourier_head.forecasting.patch.model import PatchForecaster
from fourier_head.forecasting.scores import Forecast, central_levels
from fourier_head.forecasting.support import Support


def batches(
    contexts: Sequence[np.ndarray],
    longest: int,
    patch: int,
    tokens: int = 16384,
    cost: Callable[[np.ndarray], np.ndarray] | None = None,
    dtype: type[np.floating] = np.float32,
) -> Iterator[tuple[np.ndarray, Tensor]]:
    """Yield the numbers of series and their contexts (B, C), NaN before each begins, series of like length together.

    Arguments:
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


class PatchPredictor:
    """Call a patch forecaster as evaluation calls forecasters: contexts, horizon, frequency in, quantiles out.

    Args:
        model: the forecaster; its horizon must reach.
        levels: of the quantiles.
        precision: dtype of the network under autocast on a GPU, float32 elsewhere.
        natural: whether to keep to values that a series can take, see `Support`.
    """

    def __init__(
        self,
        model: PatchForecaster,
        levels: Sequence[float] | None = None,
        precision: str = "bf16",
        natural: bool = True,
    ):
        self.model = model
        self.levels = tuple(levels or central_levels())
        self.precision = precision
        self.natural = natural

    @torch.inference_mode()
    def __call__(self, contexts: list[np.ndarray], horizon: int, freq: str | None) -> Forecast:
        """Return quantiles (series, horizon, levels)."""
        config = self.model.config
        device = next(self.model.parameters()).device
        half = device.type == "cuda" and self.precision == "bf16"
        period = natural_period(freq)
        levels = torch.tensor(self.levels, device=device)
        out = np.empty((len(contexts), horizon, len(self.levels)), dtype=np.float32)
        support = Support.unknown(len(contexts))
        self.model.eval()
        with fast_arithmetic(device, half):
            for chosen, block in batches(contexts, config.context, config.patch, 1 << 18 if half else 16384):
                periods = torch.full((len(block),), period, device=device)
                block = block.to(device)
                if self.natural:
                    support.read(chosen, block)
                quantiles = self.model.quantiles(block, periods, levels, horizon)
                out[chosen] = quantiles.float().cpu().numpy()
        return Forecast(support.fit(out), self.levels)
