"""Compare heads on a CPU: ``python -m benchmarks.cpu`` writes ``benchmarks/results/cpu.csv``.

Forward and backward in float32 at shapes with far fewer frequencies than bins; medians of wall time.
"""

from __future__ import annotations

import platform
import statistics
import time
from collections.abc import Callable

import torch

from benchmarks import arms
from benchmarks.arms import Problem
from benchmarks.head import save

# (tokens, n, m, N)
SHAPES = [(1024, 384, 4096, 128), (1024, 384, 4096, 32), (1024, 128, 1024, 32), (1024, 256, 256, 16)]


def measure(step: Callable[[], object], runs: int = 9) -> float:
    """Return the median milliseconds of a step."""
    times = []
    for _ in range(runs + 2):
        start = time.perf_counter()
        step()
        times.append(time.perf_counter() - start)
    return statistics.median(times[2:]) * 1e3


def main() -> None:
    rows: list[dict[str, object]] = []
    for shape in SHAPES:
        p = Problem(*shape, dtype=torch.float32, device="cpu")
        for name, loss in {"linear + CE": arms.linear_ce, "formula": arms.plain}.items():
            rows.append({"tokens": p.tokens, "n": p.width, "m": p.num_bins, "N": p.frequencies, "implementation": name,
                         "median_ms": round(measure(arms.step(loss, p)), 2), "threads": torch.get_num_threads(),
                         "machine": platform.machine(), "torch": torch.__version__})  # fmt: skip
            print(shape, name, rows[-1]["median_ms"], "ms", flush=True)
    save(rows, "cpu")


if __name__ == "__main__":
    main()
