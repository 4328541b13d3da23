"""Time variants of the row kernel on one GPU: ``python -m benchmarks.kernel_trials``.

Every variant computes the same loss and gradients; what differs is warps, registers of a thread, blocks that a program
takes one after the other, the paper's loss through the row kernel in place of its own, and the library's products in a
small backward pass.
Writes ``benchmarks/results/kernel-trials.csv`` and prints, per shape and loss, what each takes of the present choice.
The file that is there has more variants: those that were fastest nowhere on an H200 are no longer tried.

``--compile`` needs no GPU: it compiles all variants for compute capability 9.0, on all cores, and prints registers and
spilled bytes. On a machine with a GPU that fills Triton's cache, so that the trials themselves need not wait.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import subprocess
import tempfile
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import torch

from benchmarks import heads
from benchmarks.arms import Problem
from benchmarks.files import parser_of, save
from benchmarks.head import SHAPES
from benchmarks.timing import Clock
from fourier_head.kernels import Score

CASES = ("loss", "nll, adaptive", "loss, packets=4")
FEW = 1 << 20


@dataclass(frozen=True)
class Variant:
    """What differs from the present choice."""

    name: str
    rows: int | None = None
    warps: int | None = None
    steps: int | None = None
    registers: int | None = None
    library: bool = False
    by_rows: bool = True

    def blocks(self, chosen: Any) -> Any:
        """Return the blocks of a launch in place of those chosen."""
        return replace(
            chosen,
            rows=self.rows or chosen.rows,
            warps=self.warps or chosen.warps,
            steps=self.steps or chosen.steps,
            registers=self.registers or chosen.registers,
        )


def variants(case: str, shape: tuple[int, int, int, int]) -> list[Variant]:
    """Return what is tried for a loss at a shape: the present choice, its neighbours, and what it replaced."""
    tokens, width, _, frequencies = shape
    found = [Variant("as it is", by_rows=False)]
    if case == "loss":
        found.append(Variant("row kernel"))
    if tokens * width <= FEW:
        found.append(Variant("the library's products", library=True))
    else:
        found += [Variant(f"{count} registers", registers=count) for count in (128, 152, 168, 255)]
    for warps, steps in ((1, 4), (1, 8), (1, 16), (2, 8), (4, 1)):
        if warps == 1 or 32 * warps <= 1 << frequencies.bit_length():  # a thread takes one harmonic at least
            found.append(Variant(f"rows 1, warps {warps}, {steps} in turn", rows=1, warps=warps, steps=steps))
    return found


@contextlib.contextmanager
def applied(variant: Variant) -> Iterator[None]:
    """Compute losses by a variant."""
    from fourier_head.kernels import plan, rowwise

    before = rowwise.blocks_of, rowwise.FEW_NUMBERS, plan.RESIDENT_WIDTH
    choose = rowwise.blocks_of
    rowwise.blocks_of = functools.cache(lambda *given: variant.blocks(choose(*given)))
    rowwise.FEW_NUMBERS = 0 if variant.library else before[1]
    if variant.by_rows:
        plan.RESIDENT_WIDTH = 0
    rowwise._site.cache_clear()
    try:
        yield
    finally:
        rowwise.blocks_of, rowwise.FEW_NUMBERS, plan.RESIDENT_WIDTH = before
        rowwise._site.cache_clear()


def trial(p: Problem, case: str, variant: Variant, clock: Clock) -> dict[str, object]:
    """Return the times of a step by a variant."""
    row = {**p.about, "loss": case, "variant": variant.name}
    with applied(variant):
        _, both = heads.steps(heads.arms(p)[case](), p)
        graph = clock.graph(both, 20 if p.tokens * p.width <= FEW else 1)
        row["graph_us"] = "" if graph is None else round(graph.median, 2)
        row["queued_us"] = round(clock.device(both).median, 2)
        row["host_us"] = round(clock.wall(both), 1)
    return row


def run(shapes: list[int], runs: int) -> list[dict[str, object]]:
    """Try all variants at all shapes."""
    clock, rows = Clock(runs), []
    for shape in [SHAPES[i] for i in shapes]:
        p = Problem(*shape, linear=False)
        for case, variant in [(name, tried) for name in CASES for tried in variants(name, shape)]:
            try:
                rows.append(trial(p, case, variant, clock))
            except Exception as problem:  # one that does not fit the chip must not take the others along
                print(shape, case, variant.name, f"failed: {type(problem).__name__}: {str(problem)[:120]}", flush=True)
        save(rows, "kernel-trials")
    return rows


def table(rows: list[dict[str, object]]) -> str:
    """Return, for every shape and loss, the time of each variant and what it is of the present choice."""

    def best(row: dict[str, object]) -> float:
        return min(float(str(row[mode])) for mode in ("graph_us", "queued_us") if row[mode] != "")

    lines = []
    for key in dict.fromkeys((r["tokens"], r["n"], r["N"], r["loss"]) for r in rows):
        group = [r for r in rows if (r["tokens"], r["n"], r["N"], r["loss"]) == key]
        base = next((best(r) for r in group if r["variant"] == "as it is"), None)
        lines.append(f"{key}: " + "; ".join(
            f"{r['variant']} {best(r):.1f} us" + (f" ({best(r) / base:.2f}x)" if base else "")
            for r in sorted(group, key=best)
        ))  # fmt: skip
    return "\n".join(lines)


# --- compiled without a card ----------------------------------------------------------------------------------------


def score_of(case: str, shape: tuple[int, int, int, int]) -> Score:
    """Return the score that a loss of `benchmarks.heads` asks for."""
    _, _, bins, frequencies = shape
    if case == "nll, adaptive":
        return Score("nll", "placed", frequencies + 1, floor=1e-3, places=2, tails=0.002)
    return Score("nll", "bins", frequencies + 1, bins, floor=1e-3, packets=4 if "packets" in case else 0)


def compiled(case: str, shape: tuple[int, int, int, int], variant: Variant) -> str:
    """Return registers and spilled bytes of a variant of the likelihood kernel."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from fourier_head.kernels import rowwise

    score = score_of(case, shape)
    with applied(variant):
        like = torch.empty(shape[:2], dtype=torch.bfloat16, device="meta")
        multiplies = rowwise.projects(like, score, score.outputs)
        projected = (shape[1],) * 3 if multiplies else (0, 0, 0)
        site = rowwise._site(score, shape[0], rowwise.padded(score.outputs), True, False, False, True, projected)
    pointers = {"y_ptr": "*fp32", "bias_ptr": None, "target_ptr": "*i64" if score.num_bins else "*fp32",
                "anchor_ptr": None, "offset_ptr": None, "class_weight_ptr": None, "gradient_ptr": "*bf16",
                "loss_ptr": "*fp32", "partial_ptr": "*fp32", "factor_ptr": "*fp32",
                "x_ptr": "*bf16" if multiplies else None, "weight_ptr": "*bf16" if multiplies else None}  # fmt: skip
    names = site.kernel.arg_names
    numbers = dict(zip(names[len(pointers) :], site.numbers, strict=False))
    signature = {name: kind or "constexpr" for name, kind in pointers.items()}
    signature |= {name: "i32" if isinstance(value, int) else "fp32" for name, value in numbers.items()}
    signature |= dict.fromkeys(site.constants, "constexpr")
    constants = {(names.index(name),): None for name, kind in pointers.items() if kind is None}
    constants |= {(names.index(name),): value for name, value in site.constants.items()}
    whole = [name for name, kind in pointers.items() if kind]
    whole += [name for name in ("width", "x_stride", "weight_stride") if multiplies and shape[1] % 16 == 0]
    aligned = {(names.index(name),): [["tt.divisibility", 16]] for name in whole}
    source = ASTSource(site.kernel, signature, constants, aligned)
    made = triton.compile(source, target=GPUTarget("cuda", 90, 32), options=site.options)
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(made.asm["cubin"])
        file.flush()
        command = [triton.knobs.nvidia.cuobjdump.path, "-res-usage", file.name]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    used = dict(re.findall(r"(REG|STACK|LOCAL):(\d+)", said))
    return f"{used['REG']} registers, {int(used['STACK']) + int(used['LOCAL'])} bytes spilled"


def _line(job: tuple[str, tuple[int, int, int, int], Variant]) -> str:
    case, shape, variant = job
    try:
        return f"{shape} {case}, {variant.name}: {compiled(*job)}"
    except Exception as problem:
        return f"{shape} {case}, {variant.name}: {type(problem).__name__}: {str(problem)[:200]}"


def compile_all(shapes: list[int]) -> None:
    """Compile all variants, each in a process of its own."""
    jobs = [
        (case, SHAPES[i], v) for i in shapes for case in CASES for v in variants(case, SHAPES[i])
        if not v.library and (v.by_rows or case != "loss")
    ]  # fmt: skip
    with ProcessPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        for line in pool.map(_line, jobs):
            print(line, flush=True)


def main(given: list[str] | None = None) -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--runs", type=int, default=15, help="timed runs per step")
    parser.add_argument("--shapes", type=int, nargs="*", default=[0, 3, 2, 1], help="which of the shapes, in order")
    parser.add_argument("--compile", action="store_true", help="registers and spilled bytes, without a card")
    arguments = parser.parse_args(given)
    if arguments.compile:
        compile_all(arguments.shapes)
        return
    if not torch.cuda.is_available():
        raise SystemExit("benchmarks.kernel_trials needs a CUDA device; --compile does not")
    print(table(run(arguments.shapes, arguments.runs)))


if __name__ == "__main__":
    main()
