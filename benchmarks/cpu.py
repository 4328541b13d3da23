"""Compare heads on a CPU: ``python -m benchmarks.cpu`` writes ``benchmarks/results/cpu.csv``.

Forward and backward in float32 at shapes with far fewer frequencies than bins; medians of wall time and of the time
that all threads together were at work, the contenders taking turns, so that other work on the machine slows all of them
alike. "fourier" is what ``FourierHead.loss`` takes, "formula" the same in plain torch, "projection" its products of
matrices alone. Rows of other machines and numbers of threads stay in the file.
"""

from __future__ import annotations

import platform
import statistics
import time
from collections.abc import Callable

import torch

from benchmarks import arms
from benchmarks.arms import FLOOR, Problem
from benchmarks.files import RESULTS, parser_of, read, save
from fourier_head import Interval, losses
from fourier_head.layout import Layout

# (tokens, n, m, N)
SHAPES = [(1024, 384, 4096, 128), (1024, 384, 4096, 32), (1024, 128, 1024, 32), (1024, 256, 256, 16)]


def measure(
    steps: dict[str, Callable[[], object]], rounds: int = 15, warmup: int = 2
) -> dict[str, tuple[float, float]]:
    """Return the median milliseconds of each step: by the clock, and of processors at work."""
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in steps}
    for _ in range(warmup + rounds):
        for name, step in steps.items():
            wall, work = time.perf_counter(), time.process_time()
            step()
            times[name].append((time.perf_counter() - wall, time.process_time() - work))
    medians = {}
    for name, taken in times.items():
        wall, work = (statistics.median(column) * 1e3 for column in zip(*taken[warmup:], strict=True))
        medians[name] = wall, work
    return medians


def of_others(about: dict[str, object]) -> list[dict[str, str]]:
    """Return the rows of the file that another machine or number of threads has made."""
    return [row for row in read(RESULTS / "cpu.csv") if any(row[key] != str(about[key]) for key in about)]


def fourier(p: Problem) -> torch.Tensor:
    """The loss of a ``FourierHead``."""
    layout = Layout(p.num_bins, p.frequencies, FLOOR)
    return losses.compute(losses.Request(p.x, p.weight, p.vector, p.target, layout, Interval()))


def main() -> None:
    parser_of(__doc__).parse_args()
    rows: list[dict[str, object]] = []
    about: dict[str, object] = {"threads": torch.get_num_threads(), "machine": platform.machine()}
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
        for name, (wall, work) in measure(steps).items():
            row = {**p.about, "implementation": name, "median_ms": round(wall, 2), **about}
            rows.append({**row, "torch": torch.__version__, "work_ms": round(work, 2)})
            print(shape, name, rows[-1]["median_ms"], "ms,", rows[-1]["work_ms"], "ms at work", flush=True)
    save([*rows, *of_others(about)], "cpu")


if __name__ == "__main__":
    main()
