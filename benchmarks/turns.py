"""Time cases in turn, run by run, so that their ratio is fair: what warms the machine warms all."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from benchmarks.arms import Step
from benchmarks.timing import Spread, spread

CHUNK = 8
"""Steps timed together: as many as batches are drawn at once."""


@dataclass(frozen=True)
class Case:
    """One row: what is measured, the function that makes its step when its turn comes, and samples per step."""

    about: dict[str, object]
    make: Callable[[], Step]
    samples: int
    compiles: bool = False

    @property
    def steps(self) -> int:
        """Steps timed together."""
        return CHUNK if self.about["task"] == "training" else 1


@dataclass
class Running:
    """A case whose step is made and warm, with the times of its runs so far."""

    case: Case
    step: Step
    first: float
    peak_extra_bytes: int | str
    times: list[float] = field(default_factory=list)

    def row(self) -> dict[str, object]:
        """Return what was measured, with samples per second from the median over runs."""
        took: Spread = spread(self.times)
        row = dict(self.case.about)
        for name, seconds in (("median", took.median), ("low", took.low), ("high", took.high)):
            row[f"{name}_ms"] = round(seconds * 1e3, 3)
        row |= {"samples_per_s": round(self.case.samples / took.median, 1), "first_s": round(self.first, 2)}
        return row | {"runs": len(self.times), "peak_extra_bytes": self.peak_extra_bytes}


def timed(step: Step, steps: int, device: str) -> float:
    """Return the seconds that ``steps`` steps take."""
    start = time.perf_counter()
    for _ in range(steps):
        step()
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - start


def begin(case: Case, warmup: int, device: str) -> Running:
    """Make the step of a case, take the first and those that warm it up."""
    gpu = device == "cuda"
    step = case.make()
    if gpu:  # before the first step: later ones that are replayed allocate nothing
        torch.cuda.reset_peak_memory_stats()
    first = timed(step, 1, device)
    before = torch.cuda.memory_allocated() if gpu else 0
    if case.steps > 1:
        timed(step, warmup, device)
    return Running(case, step, first, torch.cuda.max_memory_allocated() - before if gpu else "")


def time_in_turn(running: list[Running], runs: int, device: str, left: Callable[[], float]) -> None:
    """Time every case ``runs`` times, or less often where time is short; what warms the machine warms all.

    A case that fails is told and taken out.
    """
    for _ in range(runs):
        for one in list(running):
            if one.times and left() <= 2 * one.case.steps * max(one.times):
                continue
            try:
                one.times.append(timed(one.step, one.case.steps, device) / one.case.steps)
            except Exception as problem:
                tell_failure(one.case, problem)
                running.remove(one)


def tell_failure(case: Case, problem: Exception) -> None:
    """Print why there will be no row of a case."""
    print(*case.about.values(), "failed:", type(problem).__name__, str(problem)[:300], flush=True)
