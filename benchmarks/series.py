"""Series that forecasters are measured on: what is in them changes no time."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from studies.chronos.t5 import T5Config
from studies.zero_shot.speed import MONTHLY
from torch import Tensor

from fourier_head.forecasting.corpora.store import SeriesStore


def random_walks(batch: int, config: T5Config, device: str, short: int | None = None) -> tuple[Tensor, Tensor]:
    """Return contexts and their futures; every other context has fewer than ``short`` values, if that is given."""
    walk = torch.randn(batch, config.context + config.horizon, device=device).cumsum(-1)
    if short is not None:
        walk[::2, : config.context - short + 1] = torch.nan
    return walk[:, : config.context], walk[:, config.context :]


def store(series: int, longest: int) -> SeriesStore:
    """Return random walks of all lengths up to ``longest``: drawing windows costs the same whatever is in them."""
    rng = np.random.default_rng(0)
    lengths = rng.integers(20, longest, series)
    period = rng.choice([1, 4, 7, 12, 24, 52], series)
    values = rng.standard_normal(lengths.sum()).cumsum()
    return SeriesStore.from_flat(values, lengths, np.zeros(series, np.int64), period, ("walks",))


def competition_series(count: int) -> list[np.ndarray]:
    """Return monthly series 5 to 27 years long, as in the M4 competition."""
    return replace(MONTHLY, longest=324).series(count)
