"""Compare what heads cost at inference: ``python -m benchmarks.inference`` writes ``benchmarks/results/inference.csv``.

Three tasks: log-probabilities of all bins, nine quantiles, one sample per token. The linear head takes softmax,
cumulative sums with a binary search, and ``torch.multinomial``. Ours takes one matrix product or one FFT for all bins,
an exact inverse of the distribution function, and the sampler that never makes a bin; plain torch and kernels. Also
measured: where the FFT overtakes the matrix product.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F

from benchmarks import arms
from benchmarks.arms import FLOOR, Problem
from benchmarks.head import SHAPES, save
from benchmarks.timing import Clock, Spread, machine
from fourier_head import inversion, kernels, series, spectrum

LEVELS = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9]
CROSSOVER = [(l, m) for l in (9, 33, 129, 551) for m in (64, 256, 1024, 4096) if l <= m]


def tasks(p: Problem) -> dict[str, dict[str, Callable[[], object]]]:
    """Return the two ways of doing each task."""
    levels = torch.tensor(LEVELS, device="cuda")

    def logits() -> torch.Tensor:
        return F.linear(p.x, p.linear_weight).float()

    def coefficients() -> torch.Tensor:
        return F.linear(p.x, p.weight).float().unflatten(-1, (2, -1))

    def linear_quantiles() -> torch.Tensor:
        total = logits().softmax(-1).cumsum(-1)
        return torch.searchsorted(total, levels.expand(p.tokens, -1).contiguous())

    def plain_quantiles() -> torch.Tensor:
        return inversion.icdf(spectrum.of_coefficients(coefficients(), FLOOR), levels.expand(p.tokens, -1))

    def fourier_quantiles() -> torch.Tensor:
        return kernels.quantile(spectrum.of_coefficients(coefficients(), FLOOR), levels.expand(p.tokens, -1))

    return {
        "log-probabilities of all bins": {
            "linear": lambda: logits().log_softmax(-1),
            "fourier, plain torch": lambda: series.log_pmf(coefficients(), p.num_bins, FLOOR),
            "fourier": lambda: kernels.log_pmf(p.x, p.weight, None, num_bins=p.num_bins, floor=FLOOR),
        },
        "nine quantiles": {
            "linear": linear_quantiles,
            "fourier, plain torch": plain_quantiles,
            "fourier": fourier_quantiles,
        },
        "one sample": {
            "linear": lambda: torch.multinomial(logits().softmax(-1), 1),
            "fourier": lambda: kernels.sample(p.x, p.weight, None, floor=FLOOR),
        },
    }


def crossover(clock: Clock, tokens: int = 4096) -> list[dict[str, object]]:
    """Return times of all bins by matrix product and by FFT."""
    rows: list[dict[str, object]] = []
    limit = series.GEMM_LIMIT
    for length, bins in CROSSOVER:
        a = torch.randn(tokens, 2, length, device="cuda")
        for way, value in {"product": 1 << 62, "fft": 0}.items():
            series.GEMM_LIMIT = value
            spread = clock.device(lambda a=a, bins=bins: series.log_pmf(a, bins))
            rows.append({"task": "crossover", "tokens": tokens, "m": bins, "N": length - 1, "head": way,
                         "median_us": round(spread.median, 1)})  # fmt: skip
    series.GEMM_LIMIT = limit
    return rows


@torch.no_grad()
def main() -> None:
    if not torch.cuda.is_available():
        raise SystemExit("benchmarks.inference needs a CUDA device")
    about = machine()
    clock = Clock(10, warmup=3)
    rows: list[dict[str, object]] = []
    for shape in SHAPES:
        p = arms.Problem(*shape)
        for task, ways in tasks(p).items():
            for head, run in ways.items():
                try:
                    spread: Spread = clock.device(run)
                except torch.OutOfMemoryError:
                    print(shape, task, head, "out of memory", flush=True)
                    continue
                rows.append({"task": task, "tokens": p.tokens, "n": p.width, "m": p.num_bins, "N": p.frequencies,
                             "head": head, "median_us": round(spread.median, 1), "low_us": round(spread.low, 1),
                             "high_us": round(spread.high, 1)} | about)  # fmt: skip
                print(shape, task, head, round(spread.median, 1), flush=True)
        del p
        torch.cuda.empty_cache()
        save(rows, "inference")
    rows += [row | about for row in crossover(clock)]
    for row in rows[-2 * len(CROSSOVER) :]:
        print(row["N"], row["m"], row["head"], row["median_us"], flush=True)
    save(rows, "inference")


if __name__ == "__main__":
    main()
