"""Train and score one arm of the forecasting study; stopped runs go on, trained models are kept and scored again."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fourier_head._devices import fast_training
from fourier_head._files import write_atomically
from fourier_head.errors import UserError
from fourier_head.forecasting.corpora.mix import BatchStream, standard_corpus
from fourier_head.forecasting.corpora.readers import read_store
from fourier_head.forecasting.corpora.store import SeriesStore
from fourier_head.forecasting.evaluation import EvaluationSet, evaluate
from fourier_head.tasks.runs import hardware, versions
from fourier_head.training.loop import Training
from fourier_head.training.processes import rank_and_world
from fourier_head.training.settings import TrainingSettings
from studies.chronos.arms import Arm
from studies.chronos.t5 import (
    T5Config,
    T5Forecaster,
    T5Objective,
    T5Predictor,
    build_forecaster,
    load_forecaster,
    save_forecaster,
)
from studies.chronos.tokenizer import ChronosTokenizer
from studies.common.benchmark_sets import read_evaluation_sets


def read_corpus(path: Path | None) -> SeriesStore | None:
    """Return the series to train on; None, artificial ones only, without a file or folder."""
    if path is None:
        return None
    if not path.exists():
        raise UserError(f"--corpus must be a file or folder of series, got {path}, which is not there.")
    return read_store([path])


def share_of(store: SeriesStore | None, share: float, seed: int) -> SeriesStore | None:
    """Return about a share of the series of every set, but one at least of each."""
    if store is None or share == 1.0:
        return store
    try:
        return store.split(1 - share, seed)[0]
    except ValueError as error:
        raise UserError(f"--corpus has no share of {share:g}: {error}") from None


def read_sets(folder: Path | None, most: int | None = None, horizon: int | None = None) -> list[EvaluationSet]:
    """Return the sets to score on, each cut to ``most`` series where given; ``horizon`` is that of one's own sets."""
    if folder is None:
        raise UserError("--evaluation must name the folder of evaluation sets; --quick makes do without.")
    sets = read_evaluation_sets(folder, horizon=horizon)
    return [one.head(most) for one in sets] if most is not None else sets


def artificial_sets(series: int = 12) -> list[EvaluationSet]:
    """Return two small sets of noisy seasons, one with a trend."""
    rng = np.random.default_rng(0)
    sets = []
    for name, period, trend, horizon in (("waves", 12, 0.0, 6), ("growth", 4, 0.05, 4)):
        made = []
        for _ in range(series):
            time = np.arange(60 + horizon)
            wave = np.sin(2 * np.pi * (time / period + rng.random())) + trend * time
            made.append((5 + wave + 0.2 * rng.standard_normal(len(time))).astype(np.float32))
        sets.append(EvaluationSet(name, made, horizon, period, {12: "ME", 4: "QE"}[period]))
    return sets


SHOWN_SET = "tourism_monthly"
"""The set of the paper's figure of a next-token distribution."""
MODEL, TRAINED = "model", "trained.json"
"""What the folder of a trained arm holds: its weights, and how training went."""
SAMPLING: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "trimmed": (
        "sample paths that share out what may happen, the outermost percent on either side left out",
        {"spread": True, "tails": 0.01},  # the percent was chosen on training series
    ),
    "spread": ("sample paths that share out what may happen", {"spread": True}),
    "plain": ("independent sample paths", {}),
    "chronos": (
        "independent sample paths among the 50 likeliest ids, as the published models are scored",
        {"top_k": 50},
    ),
}
"""How paths are drawn: in words, and as options of ``T5Predictor``."""


@dataclass(frozen=True)
class Protocol:
    """What all arms have in common.

    Args:
        size: name of the shape.
        context, horizon, ids: tokens read, values predicted, size of the vocabulary.
        smooth, near, init: whether embeddings start smooth and attention near by, and how large weights are, see
            ``T5Config``; the same for all arms.
        lengths: of the groups of a batch, see ``T5Objective``.
        seconds, steps: the budget of training, in steps where they are given.
        batch, learning_rate, recipe: of training and its data.
        average: share of the steps in which an average of the weights forgets half; scored in their place, unless 0.
        paths, sampling: sample paths, and how they are drawn, see ``SAMPLING``.
        probes: series of a set whose next-token distributions are measured.
    """

    size: str = "mini"
    context: int = 512
    horizon: int = 64
    ids: int = 4096
    smooth: bool = True
    near: bool = True
    init: float = 0.15
    lengths: tuple[int, ...] = (128, 512)
    seconds: float = 480.0
    steps: int | None = None
    batch: int = 512
    learning_rate: float = 1e-3
    recipe: str = "standard"
    average: float = 0.0
    paths: int = 20
    sampling: str = "trimmed"
    probes: int = 32

    @property
    def scoring(self) -> dict[str, Any]:
        """How trained models are scored."""
        return {name: getattr(self, name) for name in ("paths", "sampling", "probes")}

    def training(self, arm: Arm, seed: int, corpus: str) -> dict[str, Any]:
        """Return all that the weights of an arm depend on."""
        unused = {*self.scoring, "steps" if self.steps is None else "seconds", *(() if self.average else ("average",))}
        common = {name: value for name, value in asdict(self).items() if name not in unused}
        return common | {"arm": asdict(arm), "seed": seed, "corpus": corpus}

    def model(self, arm: Arm, seed: int) -> tuple[T5Forecaster, ChronosTokenizer]:
        """Return the untrained model of an arm; arms of a seed and size start alike, but for their heads."""
        tokenizer = ChronosTokenizer(num_ids=self.ids, **dict(arm.tokenizer))
        own = {name: getattr(self, name) for name in ("context", "horizon", "smooth", "near", "init")}
        config = T5Config.named(arm.size or self.size, vocabulary=self.ids, **own)
        return build_forecaster(tokenizer, config, arm.head, seed), tokenizer


def train_arm(
    arm: Arm,
    protocol: Protocol,
    store: SeriesStore | None,
    seed: int,
    folder: Path,
    *,
    device: str,
    limit: float | None = None,
    report: Callable[[dict[str, float]], None] | None = None,
) -> tuple[Training, T5Forecaster, ChronosTokenizer, bool]:
    """Train an arm or go on with it; return whether its budget is spent. Arms of a seed see the same windows."""
    gpu = device.startswith("cuda")
    precision, compile = fast_training(device)
    model, tokenizer = protocol.model(arm, seed)
    objective = T5Objective(model, tokenizer, lengths=protocol.lengths, gamma=arm.gamma, compile=compile)
    chosen = share_of(store, arm.data, seed)

    def stream(rank: int) -> BatchStream:
        place = f"cuda:{os.environ.get('LOCAL_RANK', 0)}" if gpu else "cpu"
        shares: Any = protocol.recipe if chosen is not None else {"kernels": 0.5, "structural": 0.5}
        try:
            corpus = standard_corpus(chosen, protocol.context - 1, protocol.horizon, shares=shares, device=place)
        except ValueError as error:  # series too short to be made coarser, for one
            raise UserError(f"--corpus does not do for --recipe {protocol.recipe}: {error}") from None
        return BatchStream(corpus, protocol.batch // rank_and_world()[1], seed, rank=rank)

    settings = TrainingSettings(
        folder,
        batch=protocol.batch,
        seconds=protocol.seconds if protocol.steps is None else None,
        steps=protocol.steps,
        limit=limit,
        learning_rate=protocol.learning_rate,
        ema=protocol.average,
        precision=precision,
        warmup_passes=3 if gpu else 1,  # compiling is nobody's budget
        log_every=50 if gpu else 10,
        graph=gpu,
    )
    training = Training(objective, stream, settings, None if gpu else "cpu")
    done = training.run(report)
    if done:
        training.use_ema()
    return training, model, tokenizer, done


def score_arm(
    arm: Arm,
    protocol: Protocol,
    model: T5Forecaster,
    tokenizer: ChronosTokenizer,
    sets: Sequence[EvaluationSet],
    report: Callable[[dict[str, Any]], None] | None = None,
) -> tuple[list[dict[str, Any]], list[float], dict[str, list[float]], dict[str, np.ndarray]]:
    """Return the rows of all sets, the smoothness of every measured distribution, one to draw, and errors by series."""
    rows, measured = [], []
    errors: dict[str, dict[str, np.ndarray]] = {}
    for one in sets:
        drawn = SAMPLING[protocol.sampling][1]
        predictor = T5Predictor(model, tokenizer, paths=protocol.paths, probes=protocol.probes, **drawn)
        row = evaluate(predictor, [one], model=arm.label, errors=errors)[0]
        values = predictor.smoothness
        row["smoothness"] = float(values.mean())
        measured.append(values)
        rows.append(row)
        if report is not None:
            report(row)
    shown = next((one for one in sets if one.name == SHOWN_SET), sets[0])
    at, probabilities = T5Predictor(model, tokenizer).next_probabilities(shown.contexts()[0])
    # The density of scaled values, where there is any to see.
    width = np.gradient(at)  # none where the released tokenizer gives two ids one value
    density = np.divide(probabilities, width, out=np.zeros_like(width), where=width > 0)
    seen = np.flatnonzero(density > density.max() / 300)
    window = slice(max(seen[0] - 20, 0), seen[-1] + 20)
    picture = {"value": at[window].round(5).tolist(), "density": density[window].round(6).tolist()}
    flat = {f"{name}.{key}": own[key].astype(np.float32) for name, own in errors.items() for key in own}
    return rows, np.concatenate(measured).tolist(), picture, flat


def run_arm(
    arm: Arm,
    protocol: Protocol,
    store: SeriesStore | None,
    sets: Sequence[EvaluationSet],
    seed: int,
    folder: Path,
    report: Callable[[dict[str, float]], None] | None = None,
    scored: Callable[[dict[str, Any]], None] | None = None,
    *,
    device: str,
    limit: float | None = None,
) -> dict[str, Any] | None:
    """Train and score an arm; None where it stopped at the limit, to be continued, or in a process beside the first.

    An arm that was trained before is only scored.
    """
    main = rank_and_world()[0] == 0
    if not (folder / TRAINED).exists():
        training, model, tokenizer, done = train_arm(
            arm, protocol, store, seed, folder, device=device, limit=limit, report=report
        )
        if done and main:
            save_forecaster(folder / MODEL, model, tokenizer, arm.head)
            kept = facts(training, model, protocol, device)
            if store is not None:  # small sets give a larger share than the arm's, as each keeps a series
                kept["share"] = len(share_of(store, arm.data, seed) or ()) / len(store)
            write_atomically(folder / TRAINED, json.dumps(kept))
        training.accelerator.wait_for_everyone()
        if not done:
            return None
    if not main:
        return None
    model, tokenizer = load_forecaster(folder / MODEL, device)
    rows, measured, picture, errors = score_arm(arm, protocol, model, tokenizer, sets, scored)
    write_atomically(errors_path(folder, protocol), lambda path: np.savez_compressed(path, **errors))  # type: ignore[arg-type]
    return {
        "model": arm.label,
        "seed": seed,
        "scores": [row | {"seed": seed} for row in rows],
        "smoothness": float(np.mean(measured)),
        "smoothness_std": float(np.std(measured)),
        "distributions": len(measured),
        "picture": picture,
        **json.loads((folder / TRAINED).read_text(encoding="utf-8")),
    }


def errors_path(folder: Path, protocol: Protocol) -> Path:
    """Return where the errors of every series of an arm are, by how its paths were drawn."""
    return folder / f"errors-{protocol.sampling}.npz"


def facts(training: Training, model: T5Forecaster, protocol: Protocol, device: str) -> dict[str, Any]:
    """Return how training went."""
    history = training.history
    speeds = [line["samples_per_second"] for line in history]
    budget, passed = ("seconds", "seconds") if protocol.steps is None else ("steps", "step")
    return {
        "loss": float(np.mean([line["loss"] for line in history[-max(1, len(history) // 20) :]])) if history else None,
        "budget": budget,
        "curve": [[line[passed], line["loss"]] for line in history[:: max(1, len(history) // 200)]],
        "samples_per_second": float(np.median(speeds)) if speeds else None,
        "samples": training.step * protocol.batch,
        "steps": training.step,
        "training_seconds": training.spent,
        "parameters": sum(p.numel() for p in model.parameters()),
        "device": torch.cuda.get_device_name() if device.startswith("cuda") else "cpu",
        "hardware": hardware(device.startswith("cuda")),
        "versions": versions(),
    }
