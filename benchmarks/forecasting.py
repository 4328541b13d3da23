"""Measure forecasters on one machine: ``python -m benchmarks.forecasting`` writes ``results/forecasting.csv``.

Training: samples per second of whole steps (tokens or scaling, loss, backward, clipping, AdamW; bfloat16 on a GPU) of
the Chronos-style T5 with full windows, beside transformers' T5 on the same windows, and of the forecaster, on short,
middle and long windows, with one batch used again and again and with data drawn on the way. Forecasting: series per
second, from arrays to quantiles. Weights are untrained, which changes no shape. On a GPU loss and gradients are
replayed from a CUDA graph, or launched one by one. The most wanted figures come first, the file grows row by row, and
``--limit`` ends the run in time. On a CPU batches are small; ``--quick`` shrinks the models, too. It writes no file,
nor does ``--only``, which picks rows.
"""

from __future__ import annotations

import functools
import gc
import importlib.util
import itertools
import platform
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from studies.chronos.t5 import HeadSettings, T5Config, T5Objective, T5Predictor, build_forecaster
from studies.chronos.tokenizer import EOS, PAD, ChronosTokenizer
from torch import Tensor, nn

from benchmarks.arms import PENALTY, Step
from benchmarks.files import parser_of, save
from benchmarks.series import competition_series, random_walks, store
from benchmarks.timing import machine
from benchmarks.turns import CHUNK, Case, Running, begin, tell_failure, time_in_turn
from fourier_head._devices import best_device, fast_training
from fourier_head.forecasting.corpora.buckets import BUCKETS, Bucket, BucketStream
from fourier_head.forecasting.forecaster import Forecaster
from fourier_head.forecasting.patch.multiscale import MultiscaleConfig, MultiscaleForecaster
from fourier_head.forecasting.patch.pretrain import BucketObjective
from fourier_head.heads import FourierHead
from fourier_head.training.graphs import CapturedPass

MONTHS = 18
"""Horizon of the monthly series that are forecast, that of the M4 competition."""
COMPILING, STARTING = 45.0, 15.0
"""Seconds that must be left for a case that has to compile first, and for any other."""


@dataclass(frozen=True)
class Sizes:
    """What is measured on a device: shapes of the models, batches, and how many series are forecast."""

    t5: T5Config = field(default_factory=lambda: T5Config.named("mini"))
    frequencies: int = 550
    t5_batches: tuple[int, ...] = (256, 512)
    t5_short: int = 128
    network: MultiscaleConfig = field(default_factory=MultiscaleConfig)
    buckets: tuple[Bucket, ...] = BUCKETS
    batch: int = 2560
    series: int = 50_000
    t5_series: int = 4000
    paths: int = 20
    runs: int = 9
    warmup: int = 3


GPU = Sizes()
CPU = Sizes(t5_batches=(8,), batch=64, series=1000, t5_series=20, runs=3, warmup=1)
QUICK = Sizes(
    T5Config.named("test", context=32, horizon=8, vocabulary=66), 8, (2, 4), 16,
    MultiscaleConfig(spans=(64, 640), horizon=32, patch=16, width=24, layers=1, heads=2),
    tuple(replace(one, context=max(64, one.context // 16), horizon=32, shortest=2) for one in BUCKETS),
    16, 20, 3, 2, 2, 1,
)  # fmt: skip


def training_step(loss: Callable[..., Tensor], module: nn.Module, device: str) -> Callable[..., None]:
    """Return a function that trains ``module`` on a batch as ``training.loop`` does, with a graph or without."""
    gpu = device == "cuda"
    optimizer = torch.optim.AdamW(module.parameters(), lr=1e-4, fused=gpu)
    module.train()
    captured: CapturedPass | None = None

    def compute(*batch: Tensor) -> Tensor:
        with torch.autocast(device, torch.bfloat16, enabled=gpu):
            value = loss(*batch)
        value.backward()
        return value.detach()

    def step(*batch: Tensor, graph: bool = False) -> None:
        nonlocal captured
        if not graph:
            captured = None
        elif captured is None or not captured.fits(batch):
            captured = None  # its memory comes free before the next is made
            captured = CapturedPass(compute, module.parameters(), batch)
        (captured or compute)(*batch)
        nn.utils.clip_grad_norm_(module.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


class TransformersT5(nn.Module):
    """transformers' T5 of the same shape with its own linear head and loss, behind the same tokenizer."""

    def __init__(self, config: T5Config, tokenizer: ChronosTokenizer, compile: bool):
        super().__init__()
        import transformers

        shape: dict[str, Any] = {
            "vocab_size": config.vocabulary,
            "d_model": config.width,
            "d_ff": config.inner,
            "d_kv": config.head_width,
            "num_layers": config.layers,
            "num_heads": config.heads,
            "dropout_rate": 0.0,
            "tie_word_embeddings": False,
            "use_cache": False,
            "pad_token_id": PAD,
            "eos_token_id": EOS,
            "decoder_start_token_id": PAD,
        }
        self.config, self.tokenizer = config, tokenizer
        self.model = transformers.T5ForConditionalGeneration(transformers.T5Config(**shape))
        self._run = torch.compile(self.model, dynamic=False) if compile else self.model

    def forward(self, context: Tensor, future: Tensor) -> Tensor:
        tokens = self.tokenizer.encode_context(context, self.config.context - 1)
        labels = self.tokenizer.labels(future, tokens.scale)
        # Ready to be added: one of whole numbers would be looked at, for which a host waits and no graph can be made.
        hide = torch.where(tokens.mask, 0.0, -1e9)[:, None, None]
        loss: Tensor = self._run(input_ids=tokens.ids, attention_mask=hide, labels=labels).loss
        return loss


def t5_cases(sizes: Sizes, device: str) -> tuple[list[Case], list[Case], Case]:
    """Return the cases of the T5: with our two heads and the outside reference, all others, and forecasting."""
    config, compile = sizes.t5, device == "cuda"
    tokenizer = ChronosTokenizer(num_ids=config.vocabulary)
    fourier, linear = HeadSettings(frequencies=sizes.frequencies), HeadSettings("linear")

    @functools.cache
    def ours(head: HeadSettings, gamma: float, formula: bool, grouped: bool) -> Callable[..., None]:
        model = build_forecaster(tokenizer, config, head, seed=0).to(device)
        if formula and isinstance(model.head, FourierHead):
            model.head.impl = "reference"
        lengths = (sizes.t5_short, config.context) if grouped else None
        objective = T5Objective(model, tokenizer, lengths=lengths, gamma=gamma, compile=compile)
        return training_step(objective, objective, device)

    @functools.cache
    def theirs(compiled: bool) -> Callable[..., None]:
        module = TransformersT5(config, tokenizer, compiled).to(device)
        return training_step(module, module, device)

    def case(
        about: dict[str, object], batch: int, of: Callable[[], Callable[..., None]], grouped: bool = False
    ) -> Case:
        def make() -> Step:
            step = of()
            windows = random_walks(batch, config, device, sizes.t5_short if grouped else None)
            graph = about.get("graph") == "graph"
            return (lambda: step(*windows, graph=True)) if graph else lambda: step(*windows)

        about = {"task": "training", **about, "batch": batch, "data": "half short" if grouped else "given"}
        return Case(about, make, batch, compile and "eager" not in str(about["model"]))

    def own(head: HeadSettings, batch: int, graph: bool = False, more: str = "", grouped: bool = False) -> Case:
        """Return a case of ours; ``more`` may say "formula" and "no regulariser"."""
        label = f"fourier-{sizes.frequencies}" if head == fourier else "linear"
        gamma = 0.0 if head == linear or more else PENALTY
        about = {"model": "T5", "head": label + more, "attention": "sdpa", "graph": "graph" if graph else "no graph"}
        return case(about, batch, lambda: ours(head, gamma, "formula" in more, grouped), grouped)

    def outside(batch: int, compiled: bool, graph: bool = False) -> Case:
        how, captured = "compiled" if compiled else "eager", "graph" if graph else "no graph"
        about = {"model": f"transformers T5, {how}", "head": "linear", "attention": "its own", "graph": captured}
        return case(about, batch, lambda: theirs(compiled))

    first, *more = sizes.t5_batches
    graphs = (True, False) if compile else (False,)
    main = [own(head, first, graph) for graph in graphs for head in (fourier, linear)]
    last = sizes.t5_batches[-1]
    main += [own(head, last, graph, grouped=True) for graph in graphs for head in (fourier, linear)]
    ways = ((True, True), (True, False), (False, False)) if compile else ((False, False),)
    reference = [outside(first, compiled, graph) for compiled, graph in ways]
    rest = [own(head, batch, graph) for batch in more for graph in graphs for head in (fourier, linear)]
    rest += [own(fourier, first, more=text) for text in (", no regulariser", ", formula, no regulariser")]
    rest += [outside(batch, compile) for batch in more]

    def forecast() -> Step:
        model = build_forecaster(tokenizer, config, fourier, seed=0).to(device)
        predictor, contexts = T5Predictor(model, tokenizer, paths=sizes.paths), competition_series(sizes.t5_series)
        return lambda: predictor(contexts, MONTHS, "ME")

    label = f"fourier-{sizes.frequencies}"
    about = {"task": "forecasting", "model": "T5", "head": label, "paths": sizes.paths, "horizon": MONTHS}
    return main + reference, rest, Case(about, forecast, sizes.t5_series)


def network_cases(sizes: Sizes, device: str) -> list[Case]:
    """Return the cases of the forecaster: training on one batch, on data drawn on the way, drawing, forecasting."""
    gpu = device == "cuda"

    @functools.cache
    def trainer() -> Callable[..., None]:
        torch.manual_seed(0)
        objective = BucketObjective(MultiscaleForecaster(sizes.network).to(device), sizes.buckets, compile=gpu)
        if gpu:  # one graph for all layers, of each shape, as in training
            for layer in objective.model.layers:
                layer.compile(dynamic=False)
        return training_step(objective, objective, device)

    @functools.cache
    def stream() -> BucketStream:
        series = store(20 * sizes.batch, 4 * sizes.network.spans[0])
        return BucketStream(series, sizes.batch, 0, buckets=sizes.buckets, device=device, chunk=CHUNK)

    def given(graph: bool) -> Step:
        step, windows = trainer(), next(stream())
        return lambda: step(*windows, graph=graph)

    def drawn() -> Step:
        step, source = trainer(), stream()
        return lambda: step(*next(source))

    def draw() -> Step:
        source = stream()
        return lambda: next(source)

    def forecast() -> Step:
        torch.manual_seed(0)
        forecaster = Forecaster(MultiscaleForecaster(sizes.network).to(device))
        contexts = competition_series(sizes.series)
        return lambda: forecaster(contexts, MONTHS, "ME")

    def training(data: str, make: Callable[[], Step], graph: bool = False, head: str = "fourier") -> Case:
        about = {"task": "training", "model": "multiscale", "head": head, "graph": "graph" if graph else "no graph"}
        return Case({**about, "batch": sizes.batch, "data": data}, make, sizes.batch, gpu and head != "none")

    about = {"task": "forecasting", "model": "multiscale", "horizon": MONTHS, "head": "fourier"}
    return [
        *(training("given", functools.partial(given, how), how) for how in ((False, True) if gpu else (False,))),
        training("drawn", drawn),
        training("drawn", draw, head="none"),
        Case(about, forecast, sizes.series),
    ]


def cases(sizes: Sizes, device: str) -> list[Case]:
    """Return everything to measure, the most wanted first."""
    t5, t5_rest, t5_forecast = t5_cases(sizes, device)
    if importlib.util.find_spec("transformers") is None:
        print("transformers is not installed: no outside reference", flush=True)
        t5, t5_rest = ([c for c in part if c.about["model"] == "T5"] for part in (t5, t5_rest))
    return [*t5, *network_cases(sizes, device), t5_forecast, *t5_rest]


def measured(sizes: Sizes, device: str, limit: float | None = None, only: str = "") -> Iterator[dict[str, object]]:
    """Yield the rows of cases that fit into ``limit`` seconds; one that fails does not take the others along.

    Cases that differ in nothing but the head are timed in turn, run by run, so that their ratio is fair.

    Arguments:
        only: a part of what is printed about a case, such as "training T5 linear".
    """
    start = time.perf_counter()

    def left() -> float:
        return float("inf") if limit is None else limit - (time.perf_counter() - start)

    about = machine() if device == "cuda" else {"machine": platform.machine(), "threads": str(torch.get_num_threads()),
                                                "torch": torch.__version__}  # fmt: skip
    wanted = [c for c in cases(sizes, device) if only.lower() in " ".join(map(str, c.about.values())).lower()]
    for _, group in itertools.groupby(wanted, key=lambda c: {k: v for k, v in c.about.items() if k != "head"}):
        running: list[Running] = []
        for case in group:
            if left() < (COMPILING if case.compiles else STARTING):
                print("left out for lack of time:", *case.about.values(), flush=True)
                continue
            try:
                running.append(begin(case, sizes.warmup, device))
            except Exception as problem:
                tell_failure(case, problem)
        time_in_turn(running, sizes.runs, device, left)
        rows = [(one.case.about, one.row()) for one in running]
        running.clear()  # its memory comes free before the next group
        gc.collect()
        if device == "cuda":
            torch.cuda.empty_cache()
        for what, row in rows:
            print(*what.values(), f"{row['samples_per_s']} a second, first step {row['first_s']} s", flush=True)
            yield row | about


def table(rows: list[dict[str, object]]) -> str:
    """Return the rows as a Markdown table."""
    head = ["task", "model", "head", "attention", "graph", "batch", "data", "step", "20-80 %", "samples/s", "memory"]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for r in rows:
        memory = f"{int(str(r['peak_extra_bytes'])) / 2**30:.1f} GiB" if r["peak_extra_bytes"] != "" else ""
        cells = [*(str(r.get(name, "")) for name in head[:7]), f"{r['median_ms']} ms",
                 f"{r['low_ms']}-{r['high_ms']}", f"{float(str(r['samples_per_s'])):,.0f}", memory]  # fmt: skip
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--quick", action="store_true", help="tiny shapes on the CPU, to see that everything runs")
    parser.add_argument("--limit", type=float, help="seconds after which nothing new is begun")
    parser.add_argument("--only", default="", help="measure rows that contain this text, such as 'training T5'")
    given = parser.parse_args(arguments)
    device = "cpu" if given.quick else best_device()
    sizes = QUICK if given.quick else GPU if device == "cuda" else CPU
    fast_training(device)
    # More shapes and heads go through the same functions than torch expects; it would go on without compiling.
    torch._dynamo.config.recompile_limit = 64
    rows: list[dict[str, object]] = []
    for row in measured(sizes, device, given.limit, given.only):
        rows.append(row)
        if not (given.quick or given.only):
            save(rows, "forecasting")
    print(table(rows))


if __name__ == "__main__":
    main()
