"""Train one head on one seed, and measure it on tempos it never heard."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from fourier_head.metrics import RELEASED_MAX_SIGMA, smoothness
from fourier_head.tasks.engine import TimeUp, is_over
from fourier_head.tasks.runs import hardware, versions
from fourier_head.training.data import Epochs
from fourier_head.training.loop import LossOf, Training
from fourier_head.training.settings import TrainingSettings
from studies.tempo.clicks import AUDIOSET_MEAN, AUDIOSET_STD, fit_length
from studies.tempo.data import NUM_BINS, Heard, Split, bin_centre, generated_split, random_split, syntheory_split
from studies.tempo.model import SIZES, Start, build, configuration


@dataclass(frozen=True)
class Recipe:
    """How every head of a study is trained."""

    epochs: int
    batch: int
    rate: float
    warmup: float = 0.1
    decay: float = 0.05
    clip: float = 1.0


RELEASED = Recipe(epochs=2, batch=8, rate=5e-5, warmup=0.0, decay=0.0)
"""What the paper's released code asks of transformers' Trainer, clipping included."""

# By protocol: how every head is trained, and how Fourier heads start.
PROTOCOLS: dict[str, tuple[Recipe, Start]] = {
    "released": (RELEASED, "paper"),
    "released, uniform start": (RELEASED, "uniform"),
    "middle": (Recipe(epochs=20, batch=16, rate=3e-4), "uniform"),
    "longer": (Recipe(epochs=60, batch=32, rate=1e-3), "uniform"),
    "slower": (Recipe(epochs=60, batch=32, rate=3e-4), "uniform"),
    "shorter": (Recipe(epochs=20, batch=32, rate=1e-3), "uniform"),
}
"""The second tells how much of the first is due to small first weights: the density of a Fourier head does not change
when its coefficients are scaled, so weights divided by 1000 are learned with steps that are 1000 times as large."""


GENERATED: dict[str, Callable[[int, int, int, str], Split]] = {
    "generated": generated_split,
    "generated, random split": random_split,
}
"""Clips that are made here, by how they are split."""


def macro_f1(predicted: Tensor, label: Tensor, num_classes: int = NUM_BINS) -> float:
    """Return the mean of F1 over the classes that are there or were predicted, as scikit-learn does.

    >>> macro_f1(torch.tensor([0, 1, 1]), torch.tensor([0, 1, 2]), 4)
    0.5555555555555555
    """
    table = confusion(predicted, label, num_classes).double()
    both = table.sum(0) + table.sum(1)
    return float((2 * table.diagonal() / both)[both > 0].mean())


def confusion(predicted: Tensor, label: Tensor, num_classes: int = NUM_BINS) -> Tensor:
    """Return how often each label (rows) was taken for each class (columns)."""
    flat = label.long() * num_classes + predicted.long()
    return torch.bincount(flat, minlength=num_classes**2).view(num_classes, num_classes)


def measure(log_probs: Tensor, bpm: Tensor, label: Tensor) -> dict[str, float]:
    """Return accuracy, macro F1, mean absolute BPM errors of the likeliest bin and of the median, loss, smoothness."""
    pmf = log_probs.exp()
    likeliest = log_probs.argmax(-1)
    middle = (pmf.cumsum(-1) < 0.5).sum(-1).clamp_max(NUM_BINS - 1)
    return {
        "accuracy": float((likeliest == label).double().mean()),
        "macro_f1": macro_f1(likeliest, label),
        "bpm_error": float((bin_centre(likeliest) - bpm).abs().mean()),
        "bpm_error_median": float((bin_centre(middle) - bpm).abs().mean()),
        "nll": float(-log_probs.gather(-1, label[:, None]).mean()),
        "smoothness": float(smoothness(pmf, max_sigma=RELEASED_MAX_SIGMA).mean()),
    }


@torch.no_grad()
def predict(network: Any, heard: Heard, prepare: Callable[[Tensor], Tensor], device: str) -> Tensor:
    """Return log-probabilities of the bins for every clip."""
    network.eval()
    with torch.autocast(torch.device(device).type, torch.bfloat16, enabled=device.startswith("cuda")):
        return torch.cat([network(prepare(part)).logits.float() for part in heard.features.split(256)])


def train_run(
    *,
    source: str,
    model: str,
    head: str,
    frequencies: int | None,
    seed: int,
    per_tempo: int,
    start: Start,
    recipe: dict[str, Any],
    protocol: str = "",
    pretrain: int = 0,
    weights: str | None = None,
    device: str = "cpu",
    deadline: float | None = None,
    report: Callable[[float, str], None] | None = None,
) -> dict[str, Any]:
    """Train one head from one seed; return what was measured, flat, with the curve of validation scores.

    The last weights are the ones measured: nothing is chosen by looking at validation or test clips. ``weights`` is a
    file with an encoder that ``pretrain`` steps without labels have taught, the same one for every head and seed.
    """
    plan = Recipe(**recipe)
    begin = time.monotonic()
    config = configuration(model)
    if source in GENERATED:
        split = GENERATED[source](seed, per_tempo, config.num_mel_bins, device)
    else:
        split = syntheory_split(source, config.num_mel_bins, device)
    network = build(model, head, frequencies, seed, start)
    if weights is not None:
        from safetensors.torch import load_file

        network.audio_spectrogram_transformer.load_state_dict(load_file(weights))
    network.to(device)
    if model in SIZES:
        mean, std = float(split.train.features.mean()), float(split.train.features.std())
    else:
        mean, std = AUDIOSET_MEAN, AUDIOSET_STD

    def prepare(features: Tensor) -> Tensor:
        return fit_length(features, config.max_length, mean, std)

    inputs, label = prepare(split.train.features), split.train.label
    # Batches come in the same order for every head of a seed.
    rows = Epochs(
        len(split.train), plan.batch, lambda chosen: (inputs[chosen.to(device)], label[chosen.to(device)]), seed
    )
    settings = TrainingSettings(
        batch=plan.batch,
        steps=plan.epochs * rows.steps,
        limit=None if deadline is None else max(1e-3, deadline - time.time()),
        learning_rate=plan.rate,
        warmup=plan.warmup,
        betas=(0.9, 0.999),
        decay=plan.decay,
        clip=plan.clip,
        precision="bf16" if device.startswith("cuda") else "no",
        log_every=rows.steps,
    )
    curve: list[dict[str, float]] = []
    shown = {round(plan.epochs * part / 10) for part in range(1, 11)} | {plan.epochs}

    def after_epoch(line: dict[str, float]) -> None:
        epoch = int(line["step"]) // rows.steps
        if epoch not in shown:
            return
        scores = measure(predict(network, split.validation, prepare, device), *_truth(split.validation))
        curve.append({"epoch": epoch, "train_loss": line["loss"], **scores})
        if report is not None:
            words = f"epoch {epoch}/{plan.epochs} loss {line['loss']:.2f} validation F1 {scores['macro_f1']:.3f}"
            report(line["progress"], words)

    loss = LossOf(network, lambda network, inputs, label: network(inputs, labels=label).loss)
    training = Training(loss, lambda process: rows, settings, device)
    if not training.run(after_epoch) or is_over(deadline):
        raise TimeUp
    log_probs = predict(network, split.test, prepare, device)
    example = len(split.test) // 2
    return {
        "head": head,
        "frequencies": frequencies,
        "seed": seed,
        "protocol": protocol,
        **measure(log_probs, *_truth(split.test)),
        "validation_f1": curve[-1]["macro_f1"],
        "train_loss": curve[-1]["train_loss"],
        "head_parameters": sum(p.numel() for p in network.classifier.dense.parameters()),
        "pretraining_steps": pretrain,
        "hardware": hardware(device.startswith("cuda")),
        "versions": versions(),
        "parameters": sum(p.numel() for p in network.parameters()),
        "train_clips": len(split.train),
        "test_clips": len(split.test),
        "seconds": round(time.monotonic() - begin, 2),
        "curve": curve,
        "example": {"bpm": int(split.test.bpm[example]), "pmf": log_probs[example].exp().tolist()},
        "confusion": confusion(log_probs.argmax(-1), split.test.label).tolist(),
    }


def _truth(heard: Heard) -> tuple[Tensor, Tensor]:
    return heard.bpm.double(), heard.label


def recipe_of(protocol: str, **changes: Any) -> dict[str, Any]:
    """Return the recipe of a protocol with changes that are not None."""
    return asdict(PROTOCOLS[protocol][0]) | {name: value for name, value in changes.items() if value is not None}
