"""Measure steps on a GPU: medians over many runs, cold caches, no launch gaps unless they are asked for."""

from __future__ import annotations

import gc
import math
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

# Read, not written, before every run: the cache then holds clean lines of something else.
FLUSH_BYTES = 256 * 1024 * 1024
# How long one such read takes at least, on the fastest memory this will meet for some time.
FLUSH_US = 50


@dataclass(frozen=True)
class Spread:
    """A median with the 20th and 80th percentile, in microseconds."""

    median: float
    low: float
    high: float

    def columns(self, digits: int) -> dict[str, object]:
        """Return them by the names that tables have for them, rounded."""
        return {f"{name}_us": round(value, digits) for name, value in vars(self).items()}


def spread(times: list[float]) -> Spread:
    """Return the median of times with their percentiles."""
    times = sorted(times)
    last = len(times) - 1
    return Spread(statistics.median(times), times[round(0.2 * last)], times[round(0.8 * last)])


class Clock:
    """Times steps with device events around each run."""

    def __init__(self, runs: int = 30, warmup: int = 5) -> None:
        self.runs = runs
        self.warmup = warmup
        self._flush = torch.ones(FLUSH_BYTES // 4, device="cuda")
        self._sink = torch.empty((), device="cuda")

    def device(self, step: Callable[[], object], lead: int | None = None, per_run: int = 1) -> Spread:
        """Return device time of a step; ``lead`` reads of the flush buffer give the host time to queue all of it."""
        host = self.wall(step)
        if lead is None:
            lead = min(100, max(4, math.ceil(1.5 * host / FLUSH_US)))
        events = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(self.runs)]
        for start, end in events:
            for _ in range(lead):
                torch.sum(self._flush, 0, out=self._sink)
            start.record()
            step()
            end.record()
        torch.cuda.synchronize()
        return spread([start.elapsed_time(end) * 1e3 / per_run for start, end in events])

    def graph(self, step: Callable[[], object], repeats: int = 1) -> Spread | None:
        """Return the time of a step replayed from a CUDA graph, or None where the step cannot be captured."""
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        try:
            with torch.cuda.stream(stream):
                for _ in range(3):
                    step()
            torch.cuda.current_stream().wait_stream(stream)
            graph = torch.cuda.CUDAGraph()
            # Any thread may go on compiling or loading while this one captures.
            with torch.cuda.graph(graph, capture_error_mode="thread_local"):
                for _ in range(repeats):
                    step()
        except Exception:
            torch.cuda.synchronize()
            return None
        return self.device(graph.replay, lead=1, per_run=repeats)

    def wall(self, step: Callable[[], object]) -> float:
        """Return host time per step, in microseconds, of queueing steps one after the other."""
        return self.eager(step, self.runs)[0]

    def eager(self, step: Callable[[], object], runs: int = 200) -> tuple[float, float]:
        """Return microseconds per step, of steps one after the other: until the host is done, and until all is."""
        for _ in range(self.warmup):
            step()
        return in_a_row(step, runs)


def in_a_row(step: Callable[[], object], runs: int, device: str = "cuda") -> tuple[float, float]:
    """Return microseconds per step, of steps one after the other: until the host is done, and until all is."""
    wait = torch.cuda.synchronize if device == "cuda" else lambda: None
    wait()
    start = time.perf_counter()
    for _ in range(runs):
        step()
    queued = time.perf_counter() - start
    wait()
    return queued / runs * 1e6, (time.perf_counter() - start) / runs * 1e6


def peak_memory(step: Callable[[], object]) -> int:
    """Return the bytes a step asks for beyond those it held before, gradients included.

    What it is given may be more: a block that is left over is divided or not, as earlier steps would have it.
    """
    step()
    gc.collect()
    torch.cuda.synchronize()
    before = torch.cuda.memory_stats()["requested_bytes.all.current"]
    torch.cuda.reset_peak_memory_stats()
    step()
    torch.cuda.synchronize()
    return int(torch.cuda.memory_stats()["requested_bytes.all.peak"]) - int(before)


def machine() -> dict[str, str]:
    """Return the device and the versions a result belongs to."""
    import triton

    return {
        "gpu": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "cuda": str(torch.version.cuda),
        "triton": triton.__version__,
    }
