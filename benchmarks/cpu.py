"""Compare heads on a CPU: ``python -m benchmarks.cpu`` writes ``benchmarks/results/cpu.csv``.

Forward and backward in float32 at shapes with far fewer frequencies than bins; medians of wall time, the contenders
taking turns, so that other work on the machine slows all of them alike. "fourier" is what ``FourierHead.loss`` takes,
"formula" the same in plain torch, "projection" its matrix products alone.
"""

from __future__ import annotations

import platform
import statistics
import time
from collections.abc import Callable

import torch

from benchmarks import arms
from benchmarks.arms import FLOOR, Problem
from benchmarks.head import save
from fourier_head import Interval, losses
from fourier_head.layout import Layout

# (tokens, n, m, N)
SHAPES = [(1024, 384, 4096, 128), (1024, 384, 4096, 32), (1024, 128, 1024, 32), (1024, 256, 256, 16)]


def measure(steps: dict[str, Callable[[], object]], rounds: int = 15, warmup: int = 2) -> dict[str, float]:
    """Return the median milliseconds of each step."""
    times: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(warmup + rounds):
        for name, step in steps.items():
            start = time.perf_counter()
            step()
            times[name].append(time.perf_counter() - start)
    return {name: statistics.median(taken[warmup:]) * 1e3 for name, taken in times.items()}


def fourier(p: Problem) -> torch.Tensor:
    """The loss of a ``FourierHead``."""
    layout = Layout(p.num_bins, p.frequencies, FLOOR)
    return losses.compute(losses.Request(p.x, p.weight, p.vector, p.target, layout, Interval()))


def main() -> None:
    rows: list[dict[str, object]] = []
    for shape in SHAPES:
        p = Problem(*shape, dtype=torch.float32, device="cpu")
        steps = {
            "linear + CE": arms.step(arms.linear_ce, p),
            "fourier": arms.step(fourier, p),
            "formula": arms.step(arms.plain, p),
            "projection": arms.gemms(p),
        }
        if hasattr(torch.nn.functional, "linear_cross_entropy"):
            steps["torch linear_cross_entropy"] = arms.step(arms.torch_linear_ce, p)
        for name, median in measure(steps).items():
            rows.append({"tokens": p.tokens, "n": p.width, "m": p.num_bins, "N": p.frequencies, "implementation": name,
                         "median_ms": round(median, 2), "threads": torch.get_num_threads(),
                         "machine": platform.machine(), "torch": torch.__version__})  # fmt: skip
            print(shape, name, rows[-1]["median_ms"], "ms", flush=True)
    save(rows, "cpu")


if __name__ == "__main__":
    main()
