"""Count what the host does in a step: ``python -m benchmarks.host``, on any machine, without a GPU.

Kernels return at once and products are tiny, so that what is left of a step is Python and torch's own bookkeeping.
Prints, for every loss, the processor time of forward and of forward + backward relative to forward + backward of linear
+ CE, medians of turns that all contenders take one after the other, and the calls of functions in a step.
"""

from __future__ import annotations

import contextlib
import cProfile
import pstats
import statistics
import time
from collections.abc import Callable, Iterator
from unittest import mock

import torch

from benchmarks import arms, heads
from benchmarks.arms import Problem
from benchmarks.files import parser_of
from fourier_head import kernels, reductions

LINEAR = "linear + CE"
OURS = ("loss", "loss, packets=4", "nll", "nll, adaptive", "crps, adaptive")
SHAPE = (64, 8, 18, 6)

Step = Callable[[], object]


class _Done(dict):  # type: ignore[type-arg]
    """All kernels, compiled; they do nothing."""

    function = packed_metadata = None

    def get(self, key: object, default: object = None) -> object:
        return self

    def run(self, *_: object) -> None:
        pass


@contextlib.contextmanager
def nothing_computed() -> Iterator[None]:
    """Take tensors of a CPU for those of a card, and have launches return at once."""
    from fourier_head.kernels import launch, resident, rowwise

    room = torch.zeros(1 << 14)
    changes: list[tuple[object, str, object]] = [
        (module, name, value)
        for module in (launch, resident, rowwise)
        for name, value in (
            ("INTERPRETED", False), ("sums_buffer", lambda x, size: room),
            ("product", lambda x, w: torch.mm(x, w.t())),
        )
    ]  # fmt: skip
    changes += [
        (launch, "_COMPILED", _Done()), (torch._C, "_cuda_getDevice", lambda: 0),
        (torch._C, "_cuda_getCurrentRawStream", lambda device: 0), (kernels, "available", lambda x: True),
        (reductions, "needs_sync", lambda target: True),
    ]  # fmt: skip
    with contextlib.ExitStack() as stack:
        for owner, name, value in changes:
            stack.enter_context(mock.patch.object(owner, name, value, create=True))
        rowwise._site.cache_clear()
        yield
    rowwise._site.cache_clear()


def contenders() -> dict[str, tuple[Step, Step]]:
    """Return (forward, both) of every loss and of the linear head."""
    p = Problem(*SHAPE, torch.float32, device="cpu")
    made = heads.arms(p)
    linear = arms.step(arms.linear_ce, p, backward=False), arms.step(arms.linear_ce, p)
    return {LINEAR: linear} | {name: heads.steps(made[name](), p) for name in OURS}


def taken(step: Step, steps: int) -> float:
    """Return the processor time of a step in microseconds."""
    start = time.process_time_ns()
    for _ in range(steps):
        step()
    return max(1, time.process_time_ns() - start) / steps / 1e3


def calls(step: Step) -> int:
    """Return how many functions a step calls."""
    profile = cProfile.Profile()
    profile.runcall(step)
    return int(pstats.Stats(profile).total_calls)  # type: ignore[attr-defined]


def main(given: list[str] | None = None) -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--turns", type=int, default=150, help="of every contender")
    parser.add_argument("--steps", type=int, default=12, help="in a turn")
    arguments = parser.parse_args(given)
    torch.set_num_threads(1)
    with nothing_computed():
        made = contenders()
        ratios: dict[str, list[tuple[float, float]]] = {name: [] for name in made}
        for _ in range(arguments.turns + 2):
            times = {name: [taken(step, arguments.steps) for step in steps] for name, steps in made.items()}
            for name, (forward, both) in times.items():
                ratios[name].append((forward / times[LINEAR][1], both / times[LINEAR][1]))
        for name, found in ratios.items():
            forward, both = (statistics.median(column) for column in zip(*found[2:], strict=True))
            print(f"{name}: forward {forward:.2f}, both {both:.2f}, calls {calls(made[name][1])}", flush=True)


if __name__ == "__main__":
    main()
