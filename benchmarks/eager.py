"""Time losses as a training loop calls them, one after the other: ``python -m benchmarks.eager``.

Forward and backward without CUDA graphs, 200 steps in a row, the contenders taking turns in one process; medians of the
turns go to ``benchmarks/results/eager.csv``. A turn begins with steps that are not counted, since memory is still
divided as the contender before has left it, and each round of turns begins with another contender. ``host`` is what the
host needs to queue a step, ``total`` its wall time, whichever of host and device is slower. On a CPU, where nothing is
queued, the two are the same.
"""

from __future__ import annotations

import platform
import statistics

import torch

from benchmarks import arms, heads
from benchmarks.arms import Problem, Step
from benchmarks.files import parser_of, save
from benchmarks.head import SHAPES
from benchmarks.timing import in_a_row, machine

LINEAR = "linear + CE"
UNCOUNTED = 30
OURS = ("loss", "loss, packets=4", "nll", "crps", "nll, adaptive", "crps, adaptive")


def contenders(p: Problem) -> dict[str, Step]:
    """Return a step forward and back of every contender; ranked scores up to the frequencies that kernels take."""
    made = heads.arms(p)
    ours = {f"FourierHead.{name}": heads.steps(made[name](), p)[1] for name in OURS if name in made}
    return {LINEAR: arms.step(arms.linear_ce, p)} | ours


def measure(p: Problem, steps: int, turns: int) -> list[dict[str, object]]:
    """Return a row of medians for every contender, and how much longer it takes than the linear head."""
    made = contenders(p)
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in made}
    names = list(made)
    for turn in range(turns):
        first = turn % len(names)
        for name in names[first:] + names[:first]:
            in_a_row(made[name], min(steps, UNCOUNTED), p.device)
            times[name].append(in_a_row(made[name], steps, p.device))
    medians = {
        name: [statistics.median(column) for column in zip(*taken, strict=True)] for name, taken in times.items()
    }
    return [
        {
            **p.about, "dtype": str(p.dtype).removeprefix("torch."), "implementation": name, "host_us": round(host, 1),
            "total_us": round(total, 1), "total_ratio": round(total / medians[LINEAR][1], 3),
        }
        for name, (host, total) in medians.items()
    ]  # fmt: skip


def main(given: list[str] | None = None) -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--steps", type=int, default=200, help="in a row")
    parser.add_argument("--turns", type=int, default=5, help="of every contender")
    parser.add_argument("--shapes", type=int, nargs="*", default=list(range(len(SHAPES))), help="which of the shapes")
    parser.add_argument("--tokens", type=int, help="in place of those of the shape")
    parser.add_argument("--name", default="eager", help="of the file of results")
    arguments = parser.parse_args(given)
    cuda = arguments.device == "cuda"
    about = machine() if cuda else {"cpu": platform.machine(), "torch": torch.__version__}
    rows: list[dict[str, object]] = []
    for tokens, *shape in [SHAPES[i] for i in arguments.shapes]:
        dtype = torch.bfloat16 if cuda else torch.float32
        p = Problem(arguments.tokens or tokens, *shape, dtype=dtype, device=arguments.device)
        for row in measure(p, arguments.steps, arguments.turns):
            rows.append(row | about)
            print(" ".join(str(value) for value in row.values()), flush=True)
        save(rows, arguments.name)


if __name__ == "__main__":
    main()
