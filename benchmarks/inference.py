"""Compare what heads cost at inference: ``python -m benchmarks.inference`` writes ``benchmarks/results/inference.csv``.

Three tasks: log-probabilities of all bins, nine quantiles, one sample per token. The linear head takes softmax,
cumulative sums with a binary search, and ``torch.multinomial``. Ours projects in the same type and goes on from its
outputs, as ``FourierHead`` does. ``--variants`` measures the ways that were not chosen, too, and where the FFT
overtakes the matrix product in plain torch; ``--compile`` only fills the cache of compiled kernels.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import torch
import torch.nn.functional as F

from benchmarks import arms
from benchmarks.arms import FLOOR, Problem
from benchmarks.head import SHAPES, save
from benchmarks.timing import Clock, machine
from fourier_head import FourierHead, inversion, kernels, series, spectrum

LEVELS = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9]
CROSSOVER = [(l, m) for l in (9, 33, 129, 551) for m in (64, 256, 1024, 4096) if l <= m]

Step = Callable[[], object]


def outputs(p: Problem) -> torch.Tensor:
    """Return the outputs of the Fourier head's projection."""
    return F.linear(p.x, p.weight)


def coefficients(p: Problem) -> torch.Tensor:
    """Return the coefficients of the densities, (tokens, 2, N + 1)."""
    return outputs(p).float().unflatten(-1, (2, -1))


def tasks(p: Problem) -> dict[str, dict[str, Step]]:
    """Return the ways of doing each task, the linear head's first and the library's second."""
    levels = torch.tensor(LEVELS, device="cuda")
    head = FourierHead(p.width, p.num_bins, p.frequencies, floor=FLOOR, bias=False).to(p.x)
    with torch.no_grad():
        head.proj.weight.copy_(p.weight)

    def logits() -> torch.Tensor:
        return F.linear(p.x, p.linear_weight).float()

    def linear_quantiles() -> torch.Tensor:
        total = logits().softmax(-1).cumsum(-1)
        return torch.searchsorted(total, levels.expand(p.tokens, -1).contiguous())

    def uniform() -> torch.Tensor:
        return torch.rand(p.tokens, 1, device="cuda")

    return {
        "log-probabilities of all bins": {
            "linear": lambda: logits().log_softmax(-1),
            "fourier": lambda: kernels.log_pmf(outputs(p), num_bins=p.num_bins, floor=FLOOR),
            "fourier, plain torch": lambda: series.log_pmf(coefficients(p), p.num_bins, FLOOR),
            "FourierHead": lambda: head(p.x),
        },
        "nine quantiles": {
            "linear": linear_quantiles,
            "fourier": lambda: kernels.coefficient_quantile(
                coefficients(p), levels.expand(p.tokens, -1), floor=FLOOR
            ),
            "fourier, plain torch": lambda: inversion.icdf(
                spectrum.of_coefficients(coefficients(p), FLOOR), levels.expand(p.tokens, -1), "reference"
            ),
            "FourierHead": lambda: head.density(p.x).quantile(levels),
        },
        "one sample": {
            "linear": lambda: torch.multinomial(logits().softmax(-1), 1),
            "fourier": lambda: kernels.coefficient_quantile(coefficients(p), uniform(), floor=FLOOR),
            "fourier, digit by digit": lambda: kernels.sample(p.x, p.weight, None, floor=FLOOR),
            "FourierHead": lambda: head.density(p.x).sample(),
        },
    }  # fmt: skip


def variants(p: Problem) -> dict[str, dict[str, Step]]:
    """Return the ways that kernels could take and do not, by task."""
    from fourier_head.kernels import evaluation
    from fourier_head.kernels.plan import Blocks, Plan

    plan = Plan(p.num_bins, FLOOR)
    levels = torch.tensor(LEVELS, device="cuda").expand(p.tokens, -1)
    bins: dict[str, Step] = {}
    quantiles: dict[str, Step] = {}

    def result() -> torch.Tensor:
        return torch.empty(p.tokens, p.num_bins, device="cuda")

    def grid(narrow: bool, precision: str | None = None) -> torch.Tensor:
        return evaluation.distribution_grid(coefficients(p), FLOOR, narrow, precision)

    def solved(narrow: bool, precision: str | None = None) -> torch.Tensor:
        return evaluation._solve(grid(narrow, precision), levels, False)

    bins["projection alone"] = lambda: outputs(p)
    bins["FFT"] = lambda: evaluation.transformed_bins(outputs(p), plan, result())
    if p.frequencies < evaluation.NARROW:
        for precision in ("tf32x3", "tf32"):
            for blocks in (Blocks(64, 32, warps=4), Blocks(64, 16, warps=4), Blocks(64, 32, warps=8)):
                bins[f"narrow {precision}, {blocks.rows} x {blocks.tile}, {blocks.warps} warps"] = (
                    lambda precision=precision, blocks=blocks: evaluation.narrow_bins(
                        outputs(p), plan, result(), precision, blocks
                    )
                )
            quantiles[f"narrow {precision}, grid alone"] = lambda precision=precision: grid(True, precision)
            quantiles[f"narrow {precision}"] = lambda precision=precision: solved(True, precision)
    else:
        for blocks in (Blocks(128, 32, 32, 8, 4), Blocks(128, 32, 32, 8, 3), Blocks(128, 32, 64, 8, 2),
                       Blocks(64, 32, 64, 4, 3), Blocks(64, 64, 32, 8, 3), Blocks(64, 32, 32, 4, 4)):  # fmt: skip
            name = f"wide {blocks.rows} x {blocks.tile} x {blocks.depth}, {blocks.warps} warps, {blocks.stages} stages"
            bins[name] = lambda blocks=blocks: evaluation.wide_bins(outputs(p), plan, result(), blocks)
    quantiles["FFT, grid alone"] = lambda: grid(False)
    quantiles["FFT"] = lambda: solved(False)
    return {"log-probabilities of all bins": bins, "nine quantiles": quantiles}


def crossover(clock: Clock, tokens: int = 4096) -> list[dict[str, object]]:
    """Return times of all bins in plain torch by matrix product and by FFT."""
    rows: list[dict[str, object]] = []
    limit = series.GEMM_LIMIT["cuda"]
    for length, bins in CROSSOVER:
        a = torch.randn(tokens, 2, length, device="cuda")
        for way, value in {"product": 1 << 62, "fft": 0}.items():
            series.GEMM_LIMIT["cuda"] = value
            spread = clock.device(lambda a=a, bins=bins: series.log_pmf(a, bins))
            rows.append({"task": "crossover", "tokens": tokens, "m": bins, "N": length - 1, "head": way,
                         "median_us": round(spread.median, 1)})  # fmt: skip
            print(length - 1, bins, way, rows[-1]["median_us"], flush=True)
    series.GEMM_LIMIT["cuda"] = limit
    return rows


def measure(p: Problem, steps: dict[str, dict[str, Step]], clock: Clock | None) -> list[dict[str, object]]:
    """Return one row per task and way; without a clock, only run each once."""
    rows: list[dict[str, object]] = []
    shape = (p.tokens, p.width, p.num_bins, p.frequencies)
    for task, ways in steps.items():
        linear = 0.0
        for head, step in ways.items():
            try:
                step()
                torch.cuda.synchronize()
                if clock is None:
                    continue
                spread = clock.device(step)
            except Exception as problem:  # one way that fails must not take the others along
                print(shape, task, head, "failed:", type(problem).__name__, str(problem)[:160], flush=True)
                continue
            linear = spread.median if head == "linear" else linear
            row = dict(zip(("tokens", "n", "m", "N"), shape, strict=True))
            rows.append({"task": task} | row | {
                "head": head, "median_us": round(spread.median, 1), "low_us": round(spread.low, 1),
                "high_us": round(spread.high, 1)})  # fmt: skip
            ratio = f"  {spread.median / linear:.2f}x" if linear else ""
            print(f"{shape} {task}: {head:42} {spread.median:9.1f} us{ratio}", flush=True)
    return rows


@torch.no_grad()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=10, help="timed runs per step")
    parser.add_argument("--shapes", type=int, nargs="*", default=list(range(len(SHAPES))), help="which of the shapes")
    parser.add_argument("--variants", action="store_true", help="measure the ways that were not chosen, too")
    parser.add_argument("--no-plain", action="store_true", help="leave out plain torch, which is slow")
    parser.add_argument("--compile", action="store_true", help="run everything once and measure nothing")
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        raise SystemExit("benchmarks.inference needs a CUDA device")
    about = machine()
    clock = None if arguments.compile else Clock(arguments.runs, warmup=3)
    rows: list[dict[str, object]] = []
    for shape in [SHAPES[i] for i in arguments.shapes]:
        p = arms.Problem(*shape)
        steps = tasks(p)
        if arguments.no_plain:
            steps = {task: {h: s for h, s in ways.items() if "plain" not in h} for task, ways in steps.items()}
        if arguments.variants:
            steps = {task: ways | variants(p).get(task, {}) for task, ways in steps.items()}
        rows += [row | about for row in measure(p, steps, clock)]
        del p, steps
        torch.cuda.empty_cache()
        if clock is not None:
            save(rows, "inference")
    if arguments.variants and clock is not None and not arguments.no_plain:
        rows += [row | about for row in crossover(clock)]
        save(rows, "inference")


if __name__ == "__main__":
    main()
