"""How long forecasts take: many series at once, and one pass of the patch forecaster against sampling from a T5."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

HORIZON, FREQUENCY = 18, "ME"
SERIES = {"cpu": 1000, "cuda": 50_000}
"""Monthly series that one pass each is measured on."""
SAMPLED = {"cpu": 100, "cuda": 1000}
"""Fewer, for models that sample step by step."""
CORES = 2
"""Of the processor, whatever the machine has."""


def monthly_series(count: int, longest: int = 140) -> list[np.ndarray]:
    """Return monthly series of 60 values or more with trend and season; their lengths decide how long they take."""
    rng = np.random.default_rng(0)
    out = []
    for length in rng.integers(60, longest + 1, count):
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


def measure(
    forecasters: Callable[[str], Mapping[str, Callable[..., Any]]], devices: Sequence[str]
) -> list[dict[str, Any]]:
    """Return seconds and series per second of each forecaster on each device, all in one run.

    Args:
        forecasters: gives those on a device by name, each called with contexts, horizon and frequency; all after the
            first sample.
        devices: cpu, of which two cores are used, and cuda.
    """
    out = []
    threads = torch.get_num_threads()
    torch.set_num_threads(min(CORES, threads))
    try:
        for device in devices:
            for i, (name, forecaster) in enumerate(forecasters(device).items()):
                contexts = monthly_series((SAMPLED if i else SERIES)[device])
                seconds = seconds_of(functools.partial(forecaster, contexts, HORIZON, FREQUENCY))
                per_second = len(contexts) / seconds
                out.append({"model": name, "device": device, "series": len(contexts), "seconds": seconds,
                            "per_second": per_second})  # fmt: skip
    finally:
        torch.set_num_threads(threads)
    return out
