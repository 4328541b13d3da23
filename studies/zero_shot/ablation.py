"""Train variants of the forecaster for few steps each: what the head, the loss, the scale and the data are worth."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fourier_head._devices import best_device, fast_training
from fourier_head.forecasting.corpora.readers import read_store
from fourier_head.forecasting.evaluation import evaluate
from fourier_head.forecasting.forecaster import Forecaster
from fourier_head.forecasting.patch.model import SIZES, PatchConfig
from fourier_head.forecasting.validation import Validation, hold_out, validation_sets
from fourier_head.tasks.engine import Task
from fourier_head.tasks.runs import hardware
from fourier_head.training.settings import TrainingSettings
from studies.common.benchmark_sets import read_evaluation_sets
from studies.common.forecast_scores import RELATIVE
from studies.common.report.summary import Row
from studies.common.results import aggregate
from studies.zero_shot.recipe import Recipe, train

BASE = "density"
VARIANTS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    BASE: ("the recipe", {}),
    "quantiles": ("head", {"head": "quantile"}),
    "likelihood": ("loss", {"loss": "nll"}),
    "crps and likelihood": ("loss", {"loss": "both"}),
    "2 packets": ("packets", {"packets": 2}),
    "7 frequencies": ("frequencies", {"frequencies": 7}),
    "31 frequencies": ("frequencies", {"frequencies": 31}),
    "straight scale": ("scaling", {"bend": False}),
    "period withheld": ("period", {"use_period": False}),
    "errors in naive units": ("weighting", {"naive_weighting": 1.0}),
    "dropout": ("regularisation", {"dropout": 0.1}),
    "mini": ("model size", dict(SIZES["mini"])),
    "tiny": ("model size", dict(SIZES["tiny"])),
    "plain corpus": ("corpus", {"shares": "plain", "augment": False}),
    "synthetic corpus": ("corpus", {"shares": {"kernels": 0.5, "structural": 0.5}}),
}
"""What changes against the recipe: a word for it, and options of ``Recipe`` or of its ``PatchConfig``."""


def recipe_of(variant: str, seed: int = 0, **more: Any) -> Recipe:
    """Return the recipe of a variant.

    >>> recipe_of("quantiles").model.head
    'quantile'
    """
    options = {**more, **VARIANTS[variant][1]}
    own = {key: options.pop(key) for key in ("shares", "augment", "naive_weighting") if key in options}
    return Recipe(PatchConfig(**options), seed=seed, **own)


def run_variant(
    variant: str,
    seed: int,
    steps: int,
    batch: int,
    corpus: str,
    evaluation: str | None,
    device: str | None = None,
    model: Mapping[str, Any] | None = None,
    horizon: int | None = None,
) -> dict[str, Any]:
    """Train one variant and score it on held-out training series and on the evaluation sets."""
    device = device or best_device()
    precision, compile = fast_training(device)
    kept, held = hold_out(read_store(corpus))
    begin = time.monotonic()
    settings = TrainingSettings(batch=batch, steps=steps, ema=0.08, precision=precision, compile=compile)
    network, _ = train(recipe_of(variant, seed, **(model or {})), kept, settings, device)
    seconds = time.monotonic() - begin
    predictor = Forecaster(network)
    validation = Validation(validation_sets(held))
    sets = read_evaluation_sets(Path(evaluation), horizon=horizon) if evaluation else []
    return {
        "variant": variant,
        "seed": seed,
        "parameters": sum(p.numel() for p in network.parameters()),
        "train_seconds": seconds,
        "hardware": hardware(device.startswith("cuda")),
        "validation": validation.scores(evaluate(predictor, validation.sets))["all"],
        "scores": evaluate(predictor, sets, model=variant),
    }


def tasks(
    variants: list[str],
    seeds: int,
    steps: int,
    batch: int,
    corpus: Path,
    evaluation: Path | None,
    horizon: int | None = None,
    **resources: Any,
) -> list[Task]:
    """Return one task per variant and seed."""
    # Named only where it is given: runs kept from before there was a horizon stay known.
    more = {} if horizon is None else {"horizon": horizon}
    return [
        Task(
            run_variant,
            {
                "variant": variant,
                "seed": seed,
                "steps": steps,
                "batch": batch,
                "corpus": str(corpus),
                "evaluation": str(evaluation) if evaluation else None,
                **more,
            },
            label=f"{variant}, seed {seed}",
            resources=resources,
            gpus=1.0 if resources.get("device") != "cpu" else 0.0,
        )
        for seed in range(seeds)
        for variant in variants
    ]


def rows(runs: list[dict[str, Any]], relative: list[dict[str, Any]], steps: int, batch: int) -> list[Row]:
    """Return the table of the ablation: scores on held-out training series, and on the verified sets beside them."""
    flat = [
        {
            "model": run["variant"],
            "held_out_mase": run["validation"].get("mase"),
            "held_out_wql": run["validation"].get("wql"),
            "parameters": run["parameters"],
        }
        for run in runs
    ]
    out = aggregate(flat, ["held_out_mase", "held_out_wql", "parameters"], ["model"])
    verified = [one for one in relative if one["dataset"] == "verified"]
    out += aggregate(verified, [*RELATIVE, "interval_error"], ["model"])
    for one in out:
        variant = one["model"]
        config = recipe_of(variant).model
        one |= {
            "dataset": "ablation",
            "head": config.head,
            "frequencies": config.frequencies if config.head == "fourier" else None,
            "packets": config.packets,
            "changed": VARIANTS[variant][0],
            "hardware": "; ".join(sorted({run["hardware"] for run in runs if run["variant"] == variant})),
            "steps": steps,
            "batch": batch,
        }
    return out
