"""How long forecasts take: many series at once, and one pass of the patch forecaster against sampling from a T5."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

SERIES, HORIZON, FREQUENCY = 1000, 18, "ME"


def monthly_series(count: int = SERIES, seed: int = 0) -> list[np.ndarray]:
    """Return monthly series of 60 to 140 values with trend and season, to measure speed on."""
    rng = np.random.default_rng(seed)
    out = []
    for length in rng.integers(60, 141, count):
        t = np.arange(length)
        out.append(100 + rng.normal(0, 0.5) * t + 10 * np.sin(2 * np.pi * t / 12) + rng.normal(0, 3, length))
    return out


def seconds_of(forecast: Callable[[], Any], repeats: int = 3) -> float:
    """Return the median time of a call after one to warm up."""
    forecast()
    times = []
    for _ in range(repeats):
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        begin = time.perf_counter()
        forecast()
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        times.append(time.perf_counter() - begin)
    return float(np.median(times))


def measure(forecasters: dict[str, Callable[..., Any]], counts: dict[str, int]) -> list[dict[str, Any]]:
    """Return seconds and series per second of each forecaster on monthly series, all in one run.

    Arguments:
        forecasters: called with contexts, horizon and frequency.
        counts: how many series each is given; slow ones get fewer.
    """
    out = []
    for name, forecaster in forecasters.items():
        contexts = monthly_series(counts[name])
        seconds = seconds_of(functools.partial(forecaster, contexts, HORIZON, FREQUENCY))
        out.append({"model": name, "series": len(contexts), "seconds": seconds, "per_second": len(contexts) / seconds})
    return out
