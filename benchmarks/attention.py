"""Measure what attention costs in training: ``python -m benchmarks.attention`` writes ``results/attention.csv``.

Whole training steps of the T5 on full windows and on windows of which half are short, with FlexAttention and with
torch's ``scaled_dot_product_attention``, which takes bias and padding as a mask of its own for every sample; replayed
from a CUDA graph and launched one by one. Both attentions of a row pair are timed in turn. ``--quick`` runs tiny shapes
on a CPU, where there is one attention only, and writes nothing.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from studies.chronos.t5 import HeadSettings, T5Objective, build_forecaster
from studies.chronos.t5.attention import Attention
from studies.chronos.tokenizer import ChronosTokenizer

from benchmarks.arms import PENALTY, Step
from benchmarks.forecasting import CPU, GPU, QUICK, Sizes, table
from benchmarks.forecasting import training_step as trainer
from benchmarks.head import save
from benchmarks.series import random_walks
from benchmarks.timing import machine
from benchmarks.turns import Case, begin, tell_failure, time_in_turn
from fourier_head._devices import best_device, fast_training


def case(sizes: Sizes, device: str, kind: Attention, graph: bool, short: bool) -> Case:
    """Return a row: the T5 with a Fourier head and one kind of attention."""
    config, batch, compile = sizes.t5, sizes.t5_batches[0], device == "cuda"

    def make() -> Step:
        tokenizer = ChronosTokenizer(num_ids=config.vocabulary)
        model = build_forecaster(tokenizer, config, HeadSettings(frequencies=sizes.frequencies), seed=0).to(device)
        lengths = (sizes.t5_short, config.context) if short else None
        objective = T5Objective(model, tokenizer, lengths=lengths, gamma=PENALTY, kind=kind, compile=compile)
        train = trainer(objective, objective, device)
        windows = random_walks(batch, config, device, sizes.t5_short if short else None)
        return lambda: train(*windows, graph=graph)

    about = {"task": "training", "model": "T5", "head": f"fourier-{sizes.frequencies}", "attention": kind}
    about |= {"graph": "graph" if graph else "no graph", "batch": batch, "data": "half short" if short else "given"}
    return Case(about, make, batch, compile)


def measured(sizes: Sizes, device: str) -> Iterator[dict[str, object]]:
    """Yield rows, those of the attentions next to each other; one that fails does not take the others along."""
    kinds: tuple[Attention, ...] = ("flex", "sdpa") if device == "cuda" else ("sdpa",)
    for graph in (True, False) if device == "cuda" else (False,):
        for short in (False, True):
            running = []
            for one in (case(sizes, device, kind, graph, short) for kind in kinds):
                try:
                    running.append(begin(one, sizes.warmup, device))
                except Exception as problem:
                    tell_failure(one, problem)
            time_in_turn(running, sizes.runs, device, lambda: float("inf"))
            yield from (one.row() | (machine() if device == "cuda" else {}) for one in running)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="tiny shapes on the CPU, to see that everything runs")
    given = parser.parse_args(arguments)
    device = "cpu" if given.quick else best_device()
    fast_training(device)
    rows: list[dict[str, object]] = []
    for row in measured(QUICK if given.quick else GPU if device == "cuda" else CPU, device):
        rows.append(row)
        if not given.quick:
            save(rows, "attention")
    print(table(rows))


if __name__ == "__main__":
    main()
