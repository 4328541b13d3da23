"""How long forecasts take: many series at once, and one pass of the patch forecaster against sampling from a T5."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

SERIES = {"cpu": 1000, "cuda": 50_000}
"""Monthly series that one pass each is measured on."""
SAMPLED = {"cpu": 100, "cuda": 1000}
"""Fewer, for models that sample step by step."""
HOURLY = 1000
"""Hourly series, forecast far ahead by the first model."""
REPEATS = 5
CORES = 2
"""Of the processor, whatever the machine has."""


@dataclass(frozen=True)
class Job:
    """What is forecast: series of so many values with a trend and a season, and how far."""

    name: str
    freq: str
    season: int
    horizon: int
    shortest: int
    longest: int

    def series(self, count: int) -> list[np.ndarray]:
        """Return so many of them; their lengths decide how long they take."""
        rng = np.random.default_rng(0)
        out = []
        for length in rng.integers(self.shortest, self.longest + 1, count):
            t = np.arange(length)
            wave = 10 * np.sin(2 * np.pi * t / self.season)
            out.append(100 + rng.normal(0, 0.5) * t + wave + rng.normal(0, 3, length))
        return out


MONTHLY, FAR = Job("monthly", "ME", 12, 18, 60, 140), Job("hourly", "h", 24, 480, 2016, 2016)


def seconds_of(forecast: Callable[[], Any]) -> float:
    """Return the median time of a call after one to warm up."""
    forecast()
    times = []
    for _ in range(REPEATS):
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
    """Return seconds and series per second of each forecaster on each device, all in one run; far ahead of the first.

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
                counts = {MONTHLY: SAMPLED[device]} if i else {MONTHLY: SERIES[device], FAR: HOURLY}
                for job, count in counts.items():
                    seconds = seconds_of(functools.partial(forecaster, job.series(count), job.horizon, job.freq))
                    about = {"model": name, "device": device, "job": job, "series": count}
                    out.append({**about, "seconds": seconds, "per_second": count / seconds})
    finally:
        torch.set_num_threads(threads)
    return out
