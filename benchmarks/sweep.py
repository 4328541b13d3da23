"""Show how the cost of a head grows with bins, frequencies, tokens and width: ``python -m benchmarks.sweep``.

Writes ``benchmarks/results/sweep.csv`` and ``sweep.png`` beside it; forward and backward in bfloat16, from CUDA graphs.
"""

from __future__ import annotations

import importlib.util

import torch

from benchmarks import arms
from benchmarks.arms import Problem
from benchmarks.files import RESULTS, parser_of, save
from benchmarks.timing import Clock, Spread, machine, peak_memory

BASE = (16384, 384, 4096, 550)
AXES = {
    "m": [1 << power for power in range(10, 21)],
    "N": [7, 15, 31, 63, 127, 255, 550, 1023, 2047],
    "tokens": [1 << power for power in range(8, 18)],
    "n": [64, 128, 256, 384, 512, 768, 1024, 2048, 4096],
}
# A linear head over more bins than this takes seconds and tens of gigabytes.
LINEAR_BINS = 1 << 16


def problems(axis: str) -> list[Problem]:
    """Return the problems along one axis, the others at their base."""
    position = {"tokens": 0, "n": 1, "m": 2, "N": 3}[axis]
    shapes = [(*BASE[:position], value, *BASE[position + 1 :]) for value in AXES[axis]]
    return [Problem(*shape, linear=shape[2] <= LINEAR_BINS) for shape in shapes]


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--runs", type=int, default=20, help="timed runs per step")
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        raise SystemExit("benchmarks.sweep needs a CUDA device")
    about = machine()
    clock = Clock(arguments.runs, warmup=3)
    rows: list[dict[str, object]] = []
    for axis in AXES:
        for shape in problems(axis):
            steps = {"fused": arms.step(arms.fused, shape), "projection GEMMs": arms.gemms(shape)}
            if shape.linear:
                steps["linear + CE"] = arms.step(arms.linear_ce, shape)
            for name, step in steps.items():
                spread: Spread | None = clock.graph(step)
                if spread is None:
                    continue
                row = {"axis": axis, **shape.about, "implementation": name, **spread.columns(2)}
                rows.append({**row, "peak_extra_bytes": peak_memory(step), **about})
                print(axis, row[axis], name, row["median_us"], flush=True)
            del shape
            torch.cuda.empty_cache()
        save(rows, "sweep")
    if importlib.util.find_spec("matplotlib"):
        from benchmarks.figures import sweep_figure

        sweep_figure(RESULTS)


if __name__ == "__main__":
    main()
