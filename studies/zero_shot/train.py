"""Train a zero-shot forecaster: ``python -m studies.zero_shot.train``, or under ``accelerate launch -m``.

The same command continues a run that was stopped, on one GPU or many.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from fourier_head._devices import best_device, fast_training
from fourier_head.errors import UserError
from fourier_head.forecasting.corpora.readers import read_store
from fourier_head.forecasting.patch.model import SIZES, PatchConfig
from fourier_head.forecasting.patch.pretrained import save_model
from fourier_head.forecasting.validation import hold_out
from fourier_head.training.log import print_line
from fourier_head.training.settings import TrainingSettings
from studies.zero_shot.recipe import Recipe, prepare


def parser() -> argparse.ArgumentParser:
    """Return the options of the command."""
    options = argparse.ArgumentParser(prog="python -m studies.zero_shot.train", description=__doc__)
    add = options.add_argument
    add("--corpus", type=Path, nargs="*", default=[], help="packed series, or parquet and arrow files; none: synthetic")
    add("--output", type=Path, default=Path("runs/forecaster"), help="folder of checkpoints, logs and the model")
    add("--size", choices=SIZES, default="small")
    add("--head", choices=["fourier", "quantile"], default="fourier")
    add("--frequencies", type=int, default=15)
    add("--packets", type=int, default=0)
    add("--loss", choices=["crps", "nll", "both"], default="crps")
    add("--dropout", type=float, default=0.0)
    add(
        "--naive-weighting",
        type=float,
        default=0.0,
        help="0: errors in deviations, 1: in naive errors",
    )
    add("--steps", type=int, help="budget in steps")
    add("--seconds", type=float, help="budget in seconds, over all runs")
    add("--limit", type=float, help="seconds of this run")
    add("--batch", type=int, default=2048)
    add("--learning-rate", type=float, default=1e-3)
    add("--ema", type=float, default=0.08, help="half-life of averaged weights, as a share of the steps so far")
    add("--seed", type=int, default=0)
    add("--device", choices=["cpu", "cuda"], default=None)
    return options


def main(arguments: list[str] | None = None) -> int:
    """Train, save the model beside the checkpoint, and say how far it is."""
    given = parser().parse_args(arguments)
    if (given.steps is None) == (given.seconds is None):
        raise UserError("one of --steps and --seconds must be given.")
    store = hold_out(read_store(given.corpus))[0] if given.corpus else None
    config = PatchConfig(
        **SIZES[given.size],
        head=given.head,
        frequencies=given.frequencies,
        packets=given.packets,
        loss=given.loss,
        dropout=given.dropout,
    )
    recipe = Recipe(config, naive_weighting=given.naive_weighting, seed=given.seed)
    if store is None:
        recipe = Recipe(
            config, {"kernels": 0.5, "structural": 0.5}, naive_weighting=given.naive_weighting, seed=given.seed
        )
    precision, compile = fast_training(given.device or best_device())
    settings = TrainingSettings(
        given.output,
        batch=given.batch,
        steps=given.steps,
        seconds=given.seconds,
        limit=given.limit,
        learning_rate=given.learning_rate,
        ema=given.ema,
        precision=precision,
        compile=compile,
    )
    model, training = prepare(recipe, store, settings, given.device)

    done = training.run(lambda line: print_line(line, "samples"))
    if training.accelerator.is_main_process:
        training.use_ema()
        save_model(model, given.output / "model")
        print("done" if done else "stopped at its limit; the same command goes on from here")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except UserError as error:
        sys.exit(f"fourier-head: {error}")
