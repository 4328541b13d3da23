"""Compare what heads cost at inference: ``python -m benchmarks.inference`` writes ``benchmarks/results/inference.csv``.

Three tasks: log-probabilities of all bins, nine quantiles, one sample per token. The linear head takes softmax,
cumulative sums with a binary search, and ``torch.multinomial``. ``--variants`` also measures the projection alone, the
parts of the library's ways that follow it, ways that it takes at other sizes, and where the FFT overtakes the matrix
product in plain torch. ``--compile`` only fills the cache of compiled kernels. Errors are those of :func:`error`; the
linear head has no density to compare with. Then what forecasters ask of adaptive densities and of packets, ``--rows``
of them (50,000 series of 64 steps unless given), beside plain torch, a mixture of Gaussians and a linear head.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F

from benchmarks import arms
from benchmarks.arms import FLOOR, Problem, Step
from benchmarks.files import parser_of, save
from benchmarks.head import SHAPES
from benchmarks.timing import Clock, machine
from fourier_head import Adaptive, FourierDensity, FourierHead, MixtureHead, kernels
from fourier_head.fourier import series, spectrum
from fourier_head.fourier.inversion import unit_quantiles

BINS, QUANTILES, SAMPLE = "log-probabilities of all bins", "nine quantiles", "one sample"
SHORT = {BINS: "bins", QUANTILES: "quantiles", SAMPLE: "sample"}
LEVELS = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9]
CROSSOVER = [(l, m) for l in (9, 33, 129, 551) for m in (64, 256, 1024, 4096) if l <= m]

# Series times steps, and the frequencies of the forecaster's head.
FORECASTS, FORECAST_FREQUENCIES, FORECAST_BINS, PLAIN_ROWS = 50_000 * 64, 15, 256, 100_000


def head_of(p: Problem) -> FourierHead:
    """Return a Fourier head with the weights of a problem."""
    head = FourierHead(p.width, p.num_bins, p.frequencies, floor=FLOOR, bias=False).to(p.x)
    with torch.no_grad():
        head.proj.weight.copy_(p.weight)
    return head


def coefficients(p: Problem) -> torch.Tensor:
    """Return the coefficients of the densities in float32, (tokens, 2, N + 1)."""
    return F.linear(p.x, p.weight).float().unflatten(-1, (2, -1))


def tasks(p: Problem, head: FourierHead) -> dict[str, dict[str, Step]]:
    """Return the ways of doing each task, the linear head's first and the library's second."""
    levels = torch.tensor(LEVELS, device="cuda")

    def logits() -> torch.Tensor:
        return F.linear(p.x, p.linear_weight).float()

    def linear_quantiles() -> torch.Tensor:
        total = logits().softmax(-1).cumsum(-1)
        return torch.searchsorted(total, levels.expand(p.tokens, -1).contiguous())

    return {
        BINS: {
            "linear": lambda: logits().log_softmax(-1),
            "FourierHead": lambda: head(p.x),
            "fourier, plain torch": lambda: series.log_pmf(coefficients(p), p.num_bins, FLOOR),
        },
        QUANTILES: {
            "linear": linear_quantiles,
            "FourierHead": lambda: head.density(p.x).quantile(levels),
            "fourier, plain torch": lambda: unit_quantiles(
                spectrum.of_coefficients(coefficients(p), FLOOR), levels.expand(p.tokens, -1), False, 0.0
            ),
        },
        SAMPLE: {
            "linear": lambda: torch.multinomial(logits().softmax(-1), 1),
            "FourierHead": lambda: head.density(p.x).sample(),
            "from inputs": lambda: sample_inputs(p),
        },
    }


def sample_inputs(p: Problem) -> torch.Tensor:
    """Draw from a product in float32 whose halves are padded to whole vectors."""
    from fourier_head.kernels import matrices

    length = p.frequencies + 1
    room = kernels.Score("nll", "interval", length).padded
    y = matrices.product(p.x, matrices.pad_rows(p.weight, length, room))
    return kernels.coefficient_sample(y.unflatten(-1, (2, -1))[..., :length], floor=FLOOR)


def variants(p: Problem, head: FourierHead) -> dict[str, dict[str, Step]]:
    """Return parts of the ways that kernels take and ways that they take at other sizes, by task."""
    from fourier_head.kernels import evaluation as kernel

    y = head._outputs(p.x)
    a = y.unflatten(-1, (2, -1))
    levels = torch.tensor(LEVELS, device="cuda")
    few = p.frequencies <= kernel.NARROW

    def result() -> torch.Tensor:
        return torch.empty(p.tokens, p.num_bins, device="cuda")

    bins: dict[str, Step] = {
        "projection alone": lambda: head._outputs(p.x),
        "projection, not aligned": lambda: F.linear(p.x, p.weight),
        "bins alone, FFT": lambda: kernel.transformed_bins(a, result(), FLOOR),
    }
    if few:
        for dtype, (_, split) in kernel.PRODUCTS.items():
            name = f"bins alone, product for {str(dtype).removeprefix('torch.')}{' in two parts' if split else ''}"
            products = kernel.PRODUCTS[dtype]
            bins[name] = lambda products=products: kernel.direct(a, result(), FLOOR, True, products)
    if p.num_bins % 16 == 0:
        bins["bins alone, four-step"] = lambda: kernel.four_step(a, result(), FLOOR, log=True)

    grid = kernel.multiplied_grid(a, FLOOR)
    quantiles: dict[str, Step] = {
        "grid alone, four-step": lambda: kernel.multiplied_grid(a, FLOOR, True),
        "grid alone, FFT": lambda: kernel.distribution_grid(a, FLOOR, False),
        "solve alone": lambda: kernel.ordered_quantiles(grid, levels, -1.0, 1.0),
        "solve alone, not ordered": lambda: kernel.quantile(grid, levels.expand(p.tokens, -1), False),
    }
    if few:
        quantiles["grid alone, product"] = lambda: kernel.multiplied_grid(a, FLOOR, False)
        quantiles["grid alone, one kernel"] = lambda: kernel.distribution_grid(a, FLOOR, True)

    samples: dict[str, Step] = {"digits alone": lambda: kernels.coefficient_sample(a, floor=FLOOR)}
    return {BINS: bins, QUANTILES: quantiles, SAMPLE: samples}


def error(p: Problem, head: FourierHead, task: str, found: object) -> float:
    """Return the largest error on the first tokens, against float64 from the same outputs of the projection.

    Of probabilities, relative to the largest of their token; of quantiles, as a difference of levels.
    """
    if not isinstance(found, torch.Tensor) or not found.is_floating_point():
        return math.nan
    rows = min(256, p.tokens)
    a = head._outputs(p.x)[:rows].double().unflatten(-1, (2, -1))
    if task == BINS and found.shape == (p.tokens, p.num_bins):
        exact = series.log_pmf(a, p.num_bins, FLOOR).exp()
        return float(((found[:rows].double().exp() - exact) / exact.amax(-1, keepdim=True)).abs().max())
    count = len(LEVELS)
    if task == QUANTILES and found.shape in ((p.tokens, count), (count, p.tokens)):
        z = (found if found.shape[1] == count else found.t())[:rows].double()
        reached = spectrum.cdf(spectrum.of_coefficients(a, FLOOR), z)
        return float((reached - torch.tensor(LEVELS, device="cuda")).abs().max())
    return math.nan


def forecasts(rows: int, device: str = "cuda") -> dict[str, dict[str, tuple[int, Step]]]:
    """Return what is asked of densities whose outputs are known, by task and way, each with its number of rows.

    Plain torch takes fewer rows, for its memory.
    """
    generator = torch.Generator(device).manual_seed(0)
    levels = torch.tensor(LEVELS, device=device)
    few = min(rows, PLAIN_ROWS)
    value = 2 * torch.rand(rows, device=device, generator=generator) - 1  # where the mixture lives, too
    logits = torch.randn(rows, FORECAST_BINS, device=device, generator=generator)
    mixture = MixtureHead(1, num_components=16).to(device)
    parameters = torch.randn(few, mixture.proj.out_features, device=device, generator=generator)
    mixture.proj = torch.nn.Identity()  # type: ignore[assignment]

    def linear() -> torch.Tensor:
        total = logits.softmax(-1).cumsum(-1)
        return torch.searchsorted(total, levels.expand(rows, -1).contiguous())

    bins = f"linear, {FORECAST_BINS} bins"
    found: dict[str, dict[str, tuple[int, Step]]] = {
        QUANTILES: {bins: (rows, linear)},
        SAMPLE: {bins: (rows, lambda: torch.multinomial(logits.softmax(-1), 1))},
        "log-density": {},
        "distribution function": {},
    }

    def ask(way: str, count: int, density: Callable[[], Any]) -> None:
        """Add all tasks for so many rows of a density, which is made anew for each."""
        given = value[:count]
        found[QUANTILES][way] = count, lambda: density().quantile(levels)
        found[SAMPLE][way] = count, lambda: density().sample()
        found["log-density"][way] = count, lambda: density().log_prob(given)
        found["distribution function"][way] = count, lambda: density().cdf(given)

    ask("mixture of 16", few, lambda: mixture.density(parameters))
    for name, packets in (("adaptive", 0), ("adaptive, packets=4", 4)):
        head = FourierHead(1, num_frequencies=FORECAST_FREQUENCIES, domain=Adaptive(), packets=packets).to(device)
        start = head.layout.start(head.domain.start()).to(device)
        outputs = start + torch.randn(rows, head.layout.out_features, device=device, generator=generator)
        for impl, count in (("auto", rows), ("reference", few)):

            def density(
                head: FourierHead = head, impl: str = impl, y: torch.Tensor = outputs[:count]
            ) -> FourierDensity:
                made = head.density_of(y)
                made.impl = impl
                return made

            ask(f"FourierHead, {name}" + ("" if impl == "auto" else ", plain torch"), count, density)
    return found


def measure_forecasts(rows: int, clock: Clock | None) -> Iterator[dict[str, object]]:
    """Return one row per task and way of ``forecasts``, each as it is there; without a clock, only run each once."""
    for task, ways in forecasts(rows).items():
        for name, (count, step) in ways.items():
            step()
            if clock is None:
                continue
            spread = clock.device(step)
            print(f"{task}, {name}: {spread.median / count * 1e3:.3f} ns a row, {count} rows", flush=True)
            yield {
                "task": task, "tokens": count, "m": FORECAST_BINS, "N": FORECAST_FREQUENCIES, "head": name,
                **spread.columns(1),
            }  # fmt: skip


def crossover(clock: Clock) -> list[dict[str, object]]:
    """Return times of all bins in plain torch by matrix product and by FFT."""
    rows: list[dict[str, object]] = []
    tokens, limit = 4096, series.GEMM_LIMIT["cuda"]
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


def measure(
    p: Problem, head: FourierHead, steps: dict[str, dict[str, Step]], clock: Clock | None
) -> list[dict[str, object]]:
    """Return one row per task and way; without a clock, only run each once."""
    rows: list[dict[str, object]] = []
    shape = tuple(p.about.values())
    for task, ways in steps.items():
        linear = 0.0
        for name, step in ways.items():
            try:
                step()
                torch.cuda.synchronize()
                if clock is None:
                    continue
                worst = error(p, head, task, step())
                spread = clock.device(step)
            except Exception as problem:  # one way that fails must not take the others along
                print(shape, SHORT[task], name, "failed:", type(problem).__name__, str(problem)[:160], flush=True)
                continue
            linear = spread.median if name == "linear" else linear
            row = {"task": task, **p.about, "head": name, **spread.columns(1)}
            rows.append(row | {"error": "" if math.isnan(worst) else f"{worst:.1e}"})
            ratio = f" {spread.median / linear:.2f}x" if linear else ""
            wrong = "" if math.isnan(worst) else f" err {worst:.0e}"
            print(f"{p.num_bins},{p.frequencies} {SHORT[task]} {name}: {spread.median:.1f}{ratio}{wrong}", flush=True)
    return rows


@torch.no_grad()
def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--runs", type=int, default=10, help="timed runs per step")
    parser.add_argument("--shapes", type=int, nargs="*", default=list(range(len(SHAPES))), help="which of the shapes")
    parser.add_argument("--variants", action="store_true", help="measure parts and other ways, too")
    parser.add_argument("--rows", type=int, default=FORECASTS, help="densities of forecasts; 0 leaves them out")
    parser.add_argument("--compile", action="store_true", help="run everything once and measure nothing")
    parser.add_argument("--name", default="inference", help="of the file of results")
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        raise SystemExit("benchmarks.inference needs a CUDA device")
    about = machine()
    clock = None if arguments.compile else Clock(arguments.runs, warmup=3)
    rows: list[dict[str, object]] = []
    for shape in [SHAPES[i] for i in arguments.shapes]:
        p = arms.Problem(*shape)
        head = head_of(p)
        steps = tasks(p, head)
        if arguments.variants:
            others = variants(p, head)
            steps = {task: ways | others[task] for task, ways in steps.items()}
            del others
        rows += [row | about for row in measure(p, head, steps, clock)]
        del p, head, steps
        torch.cuda.empty_cache()
        if clock is not None:
            save(rows, arguments.name)
    if arguments.rows:
        for row in measure_forecasts(arguments.rows, clock):
            rows.append(row | about)
            save(rows, arguments.name)
    if arguments.variants and clock is not None:
        rows += [row | about for row in crossover(clock)]
        save(rows, arguments.name)


if __name__ == "__main__":
    main()
