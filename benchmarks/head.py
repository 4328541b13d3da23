"""Compare the training cost of heads on one GPU: ``python -m benchmarks.head``.

Writes ``benchmarks/results/head.csv``, a table to the terminal and ``benchmarks/results/head.png``. Times are medians
with 20th and 80th percentiles. ``device`` is the time between two events around a step that the host has queued
beforehand; ``graph`` is the same step replayed from a CUDA graph, where it can be captured; ``eager`` is the wall time
of steps one after the other, whichever of host and device is slower, and ``host`` what the host needs to queue one.
Backward is what both take less forward. ``--only`` takes words of which a contender's name must hold one.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable

import torch
import torch.nn.functional as F

from benchmarks import arms, errors, heads
from benchmarks.arms import Problem, Step
from benchmarks.errors import Errors
from benchmarks.files import RESULTS, parser_of, save
from benchmarks.timing import Clock, Spread, machine, peak_memory

# (tokens, n, m, N)
SHAPES = [(16384, 384, 4096, 550), (16384, 4096, 4096, 128), (16384, 1024, 256, 32), (3840, 128, 18, 14)]
PAPER_TOKENS = 32


def _of(loss: arms.Loss, p: Problem) -> tuple[Step, Step]:
    return arms.passes(lambda: loss(p), p.leaves)


def _compiled(loss: arms.Loss, p: Problem) -> tuple[Step, Step]:
    torch._dynamo.reset()
    return _of(torch.compile(loss), p)


def contenders(p: Problem) -> dict[str, Callable[[], tuple[Step, Step]]]:
    """Return (forward, both) of every implementation that this machine has; made when it is its turn."""
    found = {
        "projection GEMMs": lambda: (arms.gemms(p, backward=False), arms.gemms(p)),
        "projection GEMMs, aligned": lambda: (arms.aligned_gemms(p, backward=False), arms.aligned_gemms(p)),
        "fused": lambda: _of(arms.fused, p),
        "fused, roughness 1 point": lambda: _of(arms.fused_rough, p),
        "fused, roughness 2 points": lambda: _of(arms.fused_rough_2, p),
        "fused, real values": lambda: _of(arms.fused_nll, p),
        "formula": lambda: _of(arms.plain, p),
        "formula, compiled": lambda: _compiled(arms.plain, p),
        "linear + CE": lambda: _of(arms.linear_ce, p),
        "linear + CE, compiled": lambda: _compiled(arms.linear_ce, p),
        "linear + CE, float32, compiled": lambda: _compiled(arms.linear_ce_float, p),
    }
    if not p.bias:
        found |= heads.contenders(p)
    if p.bias:  # what a bias adds is seen on these
        return {name: found[name] for name in found if not name.startswith("formula") and "real" not in name}
    if hasattr(F, "linear_cross_entropy"):
        found["torch linear_cross_entropy"] = lambda: _of(arms.torch_linear_ce, p)
    if importlib.util.find_spec("liger_kernel"):
        found["Liger"] = lambda: _of(arms.liger, p)
    if importlib.util.find_spec("cut_cross_entropy"):
        found["cut cross-entropy"] = lambda: _of(arms.cut, p)
    return found


def _write(row: dict[str, object], name: str, spread: Spread | None) -> None:
    for field in ("median", "low", "high"):
        row[f"{name}_{field}_us"] = "" if spread is None else round(getattr(spread, field), 2)


def measure(p: Problem, name: str, make: Callable[[], tuple[Step, Step]], clock: Clock) -> dict[str, object]:
    """Return one row: times of forward and both in two modes, memory."""
    row = {**p.about, "bias": p.bias, "dtype": str(p.dtype).removeprefix("torch."), "implementation": name}
    forward, both = make()
    repeats = 20 if p.tokens * p.width < 1 << 20 else 1
    _write(row, "forward_device", clock.device(forward))
    _write(row, "both_device", clock.device(both))
    _write(row, "forward_graph", clock.graph(forward, repeats))
    _write(row, "both_graph", clock.graph(both, repeats))
    row["host_us"], row["eager_us"] = (round(time, 1) for time in clock.eager(both))
    row["peak_extra_bytes"] = peak_memory(both)
    return row


def best(row: dict[str, object], kind: str = "both") -> float:
    """Return the better of the two modes: a step is not blamed for being impossible to capture."""
    modes = [row[f"{kind}_{mode}_median_us"] for mode in ("device", "graph")]
    return min(float(str(value)) for value in modes if value != "")


def errors_of(name: str, p: Problem) -> Errors | None:
    """Return the errors of a contender, None where there is nothing to compare it with."""
    if p.bias:
        return None
    own = {"formula": arms.plain, "fused": arms.fused}
    if name == "linear + CE":
        return errors.of_linear(p)
    return errors.of_formula(own[name], p) if name in own else errors.of_head(name, p)


def paper_row(shape: tuple[int, int, int, int], clock: Clock) -> dict[str, object]:
    """Return the paper's algorithm at few tokens: all its figures are per token."""
    p = Problem(PAPER_TOKENS, *shape[1:], linear=False)
    return measure(p, "the paper's algorithm", lambda: _of(arms.paper, p), clock)


def table(rows: list[dict[str, object]]) -> str:
    """Return the rows as a Markdown table."""
    head = ["shape", "implementation", "forward", "both", "20-80 %", "eager", "memory", "gradient error"]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for r in rows:
        mode = "graph" if r["both_graph_median_us"] != "" and best(r) == r["both_graph_median_us"] else "device"
        both = best(r)
        cells = [
            f"({r['tokens']}, {r['n']}, {r['m']}, {r['N']}){' bias' if r['bias'] else ''}",
            str(r["implementation"]),
            f"{best(r, 'forward'):.1f} us",
            f"{both:.1f} us",
            f"{r[f'both_{mode}_low_us']}-{r[f'both_{mode}_high_us']}",
            f"{r['eager_us']} us",
            f"{int(str(r['peak_extra_bytes'])) / 2**20:.1f} MiB",
            str(r.get("gradient_error", "")),
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--runs", type=int, default=30, help="timed runs per step")
    parser.add_argument("--shapes", type=int, nargs="*", default=list(range(len(SHAPES))), help="which of the shapes")
    parser.add_argument("--only", nargs="*", help="contenders whose names hold one of these words")
    parser.add_argument("--name", default="head", help="of the file of results")
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        raise SystemExit("benchmarks.head needs a CUDA device")
    about = machine()
    print(about, flush=True)
    clock = Clock(arguments.runs)
    rows: list[dict[str, object]] = []
    for shape in [SHAPES[i] for i in arguments.shapes]:
        for bias in (False, True) if shape == SHAPES[0] and not arguments.only else (False,):
            p = Problem(*shape, bias=bias)
            for name, make in contenders(p).items():
                if arguments.only and not any(word in name for word in arguments.only):
                    continue
                try:
                    row = measure(p, name, make, clock)
                except Exception as problem:  # a contender that fails must not take the others along
                    print(f"{name} failed: {type(problem).__name__}: {str(problem)[:200]}", flush=True)
                    continue
                wrong = errors_of(name, p)
                for field in ("gradient", "loss", "x", "weight", "product"):
                    known = None if wrong is None else getattr(wrong, field)
                    row[f"{field}_error"] = "" if known is None else f"{known:.2e}"
                rows.append(row | about)
                save(rows, arguments.name)
                print(shape, name, best(row), flush=True)
        if shape == SHAPES[0] and not arguments.only:
            rows.append(paper_row(shape, clock) | about)
        torch.cuda.empty_cache()
        save(rows, arguments.name)
    print(table(rows))
    if importlib.util.find_spec("matplotlib") and arguments.name == "head":
        from benchmarks.figures import head_figure

        head_figure(RESULTS)


if __name__ == "__main__":
    main()
