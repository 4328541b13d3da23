"""Train the forecaster: ``python -m fourier_head.forecasting.patch.pretrain``, or under ``accelerate launch -m``.

The same command continues a run that was stopped, with weights, optimizer, average and data as they were. A few series
of every set are held out, with ``--choose`` whole sets; ``--score`` scores the model on them at the end.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from fourier_head._devices import best_device, fast_training
from fourier_head.errors import UserError
from fourier_head.forecasting.corpora.augment import DEFAULT, Augmentation, shift_ahead
from fourier_head.forecasting.corpora.buckets import BUCKETS, Bucket, BucketStream, longer, without
from fourier_head.forecasting.corpora.readers import read_store
from fourier_head.forecasting.corpora.store import SeriesStore
from fourier_head.forecasting.evaluation import EvaluationSet
from fourier_head.forecasting.patch.calibrate import fit_spread
from fourier_head.forecasting.patch.multiscale import SIZES, MultiscaleConfig, MultiscaleForecaster
from fourier_head.forecasting.patch.pretrained import load_model, save_model
from fourier_head.forecasting.validation import CALIBRATION_SETS, Validation, hold_out, hold_out_sets, validation_sets
from fourier_head.training.log import print_line
from fourier_head.training.loop import Training, seconds_spent
from fourier_head.training.processes import rank_and_world
from fourier_head.training.settings import TrainingSettings


@dataclass(frozen=True)
class Variant:
    """What is changed against the recipe: options of the model, of training, and the buckets."""

    model: Mapping[str, Any] = field(default_factory=dict)
    training: Mapping[str, Any] = field(default_factory=dict)
    buckets: tuple[Bucket, ...] = BUCKETS


LESS_REAL = longer(
    BUCKETS,
    {"shares": {"real": 0.25, "coarse": 0.1, "mixup": 0.2, "kernels": 0.1, "structural": 0.05, "fine": 0.3}},
    {"shares": {"real": 0.3, "mixup": 0.2, "kernels": 0.1, "fine": 0.4}},
)
"""Longer windows with fewer real series, which are few and seen often."""
SHIFTS = [{"steps": (*DEFAULT, Augmentation(shift_ahead, 0.08))}] * 2
"""Level shifts in the future of longer windows."""
LONGER = tuple(
    replace(one, share=share, weight=weight)
    for one, (share, weight) in zip(BUCKETS, ((0.5, 0.35), (0.28, 0.35), (0.22, 0.3)), strict=True)
)
"""More windows of days to minutes in a batch, and more weight on them."""
VARIANTS: Mapping[str, Variant] = {
    "recipe": Variant(),
    "512 values": Variant({"spans": (512,)}),
    "one season": Variant({"seasons": 1, "find": False}),
    "no found period": Variant({"find": False}),
    "last cycle only": Variant({"cycles": False}),
    "units of deviations": Variant({"local": False, "even": 0.0}),
    "errors in deviations": Variant({"even": 0.0}),
    "crps alone": Variant({"loss": "crps"}),
    "likelihood counts 0.05": Variant({"likelihood": 0.05}),
    "adamw": Variant({}, {"optimizer": "adamw", "learning_rate": 1e-3}),
    "no fine series": Variant(buckets=without(BUCKETS, "fine", "simple")),
    "dropout 0.1": Variant({"dropout": 0.1}),
    "fewer patches": Variant(buckets=longer(BUCKETS, {"drawn": 4}, {"drawn": 6})),
    "shifts ahead": Variant(buckets=longer(BUCKETS, *SHIFTS)),
    "less real": Variant(buckets=LESS_REAL),
    "longer windows": Variant(buckets=LONGER),
    "regularised": Variant({"dropout": 0.1}, buckets=longer(LESS_REAL, *SHIFTS)),
}
"""Ablations of the recipe by name."""


class BucketObjective(nn.Module):
    """Return the weighted sum of the losses of all buckets."""

    def __init__(self, model: MultiscaleForecaster, buckets: tuple[Bucket, ...] = BUCKETS, compile: bool = False):
        super().__init__()
        self.model, self.buckets = model, buckets
        self.scores = torch.compile(model.scores, dynamic=False) if compile else model.scores

    def forward(self, *batch: Tensor) -> Tensor:
        asked = []
        for number, bucket in enumerate(self.buckets):
            context, future, period = batch[3 * number : 3 * number + 3]
            patches = bucket.patches(self.model.config.patch, context.device)
            asked.append(self.model.asked(context, future, period, patches))
        # One call for the steps of all buckets: one graph to compile.
        scores = self.scores(*(torch.cat(parts) for parts in zip(*asked, strict=True)))
        total = batch[0].new_zeros(())
        parts = scores.split([len(a[0]) for a in asked])
        for bucket, own, (_, _, u, *_) in zip(self.buckets, parts, asked, strict=True):
            total = total + bucket.weight * own.sum() / (~u.isnan()).sum().clamp_min(1)
        return total


def parser() -> argparse.ArgumentParser:
    """Return the options of the command."""
    options = argparse.ArgumentParser(prog="python -m fourier_head.forecasting.patch.pretrain", description=__doc__)
    add = options.add_argument
    add("--corpus", type=Path, nargs="+", required=True, help="packed series, or parquet and arrow files")
    add("--output", type=Path, default=Path("runs/forecaster"), help="folder of checkpoints, logs and the model")
    add("--size", choices=SIZES, default="small")
    add("--layers", type=int, help="other than the size has")
    add("--variant", choices=VARIANTS, default="recipe")
    add(
        "--weights",
        type=Path,
        nargs="+",
        help="folder of a model to start from, of fewer layers, too; several for their mean",
    )
    add("--choose", action="store_true", help="hold whole sets out of training, not a few series of every set")
    add("--score", action="store_true", help="score the model on what was held out")
    add(
        "--calibrate",
        action="store_true",
        help="at the end fit the spread of forecasts on sets that are held out whole",
    )
    add("--steps", type=int, help="budget in steps; 0 trains nothing and saves the weights started from")
    add("--seconds", type=float, help="budget in seconds, over all runs, without what is needed to compile")
    add(
        "--until", type=float, help="moment, in seconds since 1970, to end at: what was spent and is left is the budget"
    )
    add("--limit", type=float, help="seconds until this run stops, from its beginning; the same command goes on")
    add("--resume", action="store_true", help="refuse to begin anew where there is no checkpoint to go on from")
    add("--batch", type=int, default=2560, help="windows per step, over short, middle and long ones")
    add("--learning-rate", type=float, default=2e-3)
    add("--ema", type=float, default=0.06, help="half-life of averaged weights, as a share of the steps so far")
    add("--most", type=int, default=20, help="held-out series of each set that are scored")
    add("--seed", type=int, default=0)
    add("--device", choices=["cpu", "cuda"], default=None)
    add("--compile", action="store_true", help="compile the layers")
    return options


CHUNK = {"cpu": 4, "cuda": 16}
"""Steps whose windows are drawn at once: a GPU takes about 4,400 small operations for them, however many they are."""


def warm_up(objective: BucketObjective, stream: BucketStream, device: str, precision: str) -> None:
    """Go forwards and back once, which compiles whatever is to be compiled; data stay where they were."""
    before = stream.state_dict()
    with torch.autocast(device, torch.bfloat16, enabled=precision == "bf16"):
        objective(*next(stream)).backward()
    objective.zero_grad(set_to_none=True)
    stream.load_state_dict(before)


def score(model: MultiscaleForecaster, held: SeriesStore, most: int, refit: bool = False) -> dict[str, Any]:
    """Return relative MASE and WQL on held-out series by kind of frequency, and how far their intervals are off.

    Args:
        model: the network.
        held: what was held out.
        most: series of each set.
        refit: whether the spread of each half of the sets is that which the other half asks for.
    """
    from fourier_head.forecasting.evaluation import evaluate
    from fourier_head.forecasting.forecaster import Forecaster

    validation = Validation(held_out_sets(model, held, most))
    names = sorted({one.name.partition("/")[0] for one in validation.sets})
    halves = [[one for one in validation.sets if names.index(one.name.partition("/")[0]) % 2 == k] for k in (0, 1)]
    rows, before = [], model.config
    for own, others in (halves, halves[::-1]):
        if refit:
            model.config = replace(before, spread=fit_spread(model, others))
        rows += evaluate(Forecaster(model.eval()), own)
    model.config = before
    found: dict[str, Any] = validation.scores(rows)
    found["sets"] = {row["dataset"]: {"series": row["series"], **validation.relative(row)} for row in rows}
    return found


def held_out_sets(model: MultiscaleForecaster, held: SeriesStore, most: int) -> list[EvaluationSet]:
    """Return held-out series as sets to forecast, of which the network reads all it can."""
    return validation_sets(held, most=most, longest=model.config.context + 1024, far=True)


def mean_weights(folders: Sequence[Path]) -> dict[str, Tensor]:
    """Return the mean of the weights of models of one shape: ends of one training forecast worse than their mean."""
    every = [load_model(folder).state_dict() for folder in folders]
    if any({k: v.shape for k, v in one.items()} != {k: v.shape for k, v in every[0].items()} for one in every[1:]):
        raise UserError(f"{', '.join(map(str, folders))} have no mean: their networks differ in shape.")
    return {name: torch.stack([one[name] for one in every]).mean(0) for name in every[0]}


def start_from(model: MultiscaleForecaster, weights: Mapping[str, Tensor]) -> None:
    """Load weights of a network of this shape, or of one with fewer layers: further ones change nothing at first."""
    new = {name: value for name, value in model.state_dict().items() if name not in weights}
    if any(not name.startswith("layers.") for name in new) or not weights.keys() <= model.state_dict().keys():
        raise UserError("--weights must be of a network of this shape, or of one with fewer layers.")
    for name, value in new.items():
        if name.endswith(("mix.weight", "down.weight")):  # what a layer adds goes through these
            value.zero_()
    model.load_state_dict({**new, **weights})


def _train(
    model: MultiscaleForecaster, store: SeriesStore, given: argparse.Namespace, spent: float | None, begin: float
) -> tuple[Training, bool]:
    """Train within the budget that is given, and return the training and whether its budget is spent.

    Args:
        model: the network.
        store: the series to train on.
        given: the options of the command.
        spent: seconds that earlier runs of this command have spent.
        begin: when this run began.
    """
    variant, device = VARIANTS[given.variant], given.device
    process, processes = rank_and_world()
    if given.compile:
        # One graph for all layers, of each shape: one for the whole network would take minutes.
        torch._dynamo.config.recompile_limit = 64
        for layer in model.layers:
            layer.compile(dynamic=False)
    precision, _ = fast_training(device)
    stream = BucketStream(
        store,
        given.batch // processes,
        given.seed,
        buckets=variant.buckets,
        device=device,
        chunk=CHUNK[device],
        rank=process,
    )
    objective = BucketObjective(model, variant.buckets, given.compile).to(device)
    warm_up(objective, stream, device, precision)
    if given.until is not None:
        given.seconds = (spent or 0.0) + max(given.until - time.time(), 1.0)
    options: dict[str, Any] = {
        "batch": given.batch,
        "steps": given.steps,
        "seconds": given.seconds,
        "limit": None if given.limit is None else max(given.limit - (time.monotonic() - begin), 1e-3),
        "learning_rate": given.learning_rate,
        "ema": given.ema,
        "precision": precision,
        "optimizer": "muon",
        "checkpoint_every": 180.0,
        "graph": True,
    }
    settings = TrainingSettings(given.output, **{**options, **variant.training})
    training = Training(objective, lambda process: stream, settings, device)
    done = training.run(print_line)
    for layer in model.layers:
        layer._compiled_call_impl = None  # series to score come in any shape
    return training, done


def main(arguments: list[str] | None = None) -> int:
    """Train, save the model beside the checkpoint, and score it on what was held out."""
    begin = time.monotonic()
    given = parser().parse_args(arguments)
    if sum(budget is not None for budget in (given.steps, given.seconds, given.until)) != 1:
        raise UserError("one of --steps, --seconds and --until must be given.")
    if given.steps == 0 and given.weights is None:
        raise UserError("--steps 0 trains nothing, so --weights must name what is saved.")
    variant = VARIANTS[given.variant]
    device = given.device = given.device or best_device()
    process, processes = rank_and_world()
    if processes > 1 and device == "cuda":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    spent = seconds_spent(given.output)
    if given.resume and spent is None:
        raise UserError(f"--resume was given, but {given.output} holds no checkpoint.")
    store, held = (hold_out_sets if given.choose else hold_out)(read_store(given.corpus))
    whole = held
    if given.calibrate and not given.choose:
        store, whole = hold_out_sets(store, CALIBRATION_SETS)
    torch.manual_seed(given.seed)
    size = {**SIZES[given.size], **({"layers": given.layers} if given.layers else {}), **variant.model}
    model = MultiscaleForecaster(MultiscaleConfig(**size)).to(device)
    if given.weights is not None:
        start_from(model, mean_weights(given.weights))
    step, seconds, done = 0, 0.0, True
    if given.steps != 0:
        training, done = _train(model, store, given, spent, begin)
        step, seconds = training.step, training.spent
        if not process:
            save_model(model, given.output / "last")
            training.use_ema()
    if process:
        return 0  # the first one saves and scores
    about: dict[str, Any] = {
        "variant": given.variant,
        "seed": given.seed,
        "steps": step,
        "batch": given.batch,
        "seconds": seconds,
        "parameters": sum(p.numel() for p in model.parameters()),
        "hardware": torch.cuda.get_device_name() if device == "cuda" else "cpu",
        "torch": torch.__version__,
    }
    if done and given.choose and given.calibrate:
        _write_score({**about, **score(model, held, given.most, refit=True)}, given.output / "spread", "spread fitted")
    elif done and given.calibrate:
        # Chosen between variants by: sets that no weight has seen, half of them widened as the other half asks.
        _write_score({**about, **score(model, whole, given.most, refit=True)}, given.output / "whole", "spread fitted")
        model.config = replace(model.config, spread=fit_spread(model, held_out_sets(model, whole, given.most)))
        print(f"spread {model.config.spread}")
    save_model(model, given.output / "model")
    if done and given.score:
        _write_score({**about, **score(model, held, given.most)}, given.output)
    print("done" if done else "stopped at its limit; the same command goes on from here")
    return 0


def _write_score(found: dict[str, Any], folder: Path, change: str = "") -> None:
    """Write ``score.json`` and print it; ``change`` names what was done to the variant after training."""
    if change:
        recipe = found["variant"] == "recipe"
        found["variant"] = change if recipe else f"{found['variant']}, {change}"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "score.json").write_text(json.dumps(found, indent=1), encoding="utf-8")
    print(json.dumps({key: value for key, value in found.items() if key != "sets"}))


if __name__ == "__main__":
    try:
        sys.exit(main())
    except UserError as error:
        sys.exit(f"fourier-head: {error}")
