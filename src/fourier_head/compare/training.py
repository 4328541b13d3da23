"""Train one body with each head, all treated alike, and score what they predict."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.distributions import Distribution

from fourier_head import tabular
from fourier_head.bins import Bins
from fourier_head.compare.data import Part, Prepared
from fourier_head.compare.settings import Settings
from fourier_head.domains.adaptive import Adaptive
from fourier_head.heads import FourierHead, Head
from fourier_head.heads.baselines import HLGaussHead, LinearHead, MixtureHead
from fourier_head.metrics import calibration_error, central_coverage, kl_divergence, smoothness
from fourier_head.tabular import WIDTHS, Schedule

CHUNK = 2048
ADAPTIVE_FREQUENCIES = 8
EDGE = 1 - 1e-6
"""Where values outside the bins are moved to for the likelihood: just inside, whatever the rounding of an end."""

Progress = Callable[[str, int, int, float], None]
"""Called with head, epochs done, epochs in all and the last validation score."""


class Arm(tabular.Network):
    """The common body and one head."""

    def __init__(self, num_features: int, make_head: Callable[[int], Head]):
        super().__init__(num_features, WIDTHS, make_head)

    def forward(self, x: Tensor) -> tuple[Distribution, Tensor]:
        """Return the predictive density in z and the log-probabilities of the bins."""
        features = self.body(x)
        return self.head.density(features), self.head(features)


def head_maker(name: str, settings: Settings, frequencies: int, data: Prepared) -> Callable[[int], Head]:
    """Return a function that makes the head of this name for features of some size."""
    bins = settings.bins
    line = Adaptive.fit(data.train.z, bins=Bins.uniform(bins, -1.0, 1.0))
    makers: dict[str, Callable[[int], Head]] = {
        "linear": lambda size: LinearHead(size, bins),
        "gmm": lambda size: MixtureHead(size, bins, settings.components, kind="full"),
        "hl-gauss": lambda size: HLGaussHead(size, bins),
        # The two ends of a table's target are no neighbours.
        "fourier": lambda size: FourierHead(size, bins, frequencies, boundary="reflect"),
        "fourier-packets": lambda size: FourierHead(
            size, bins, frequencies, boundary="reflect", packets=settings.packets
        ),
        "fourier-adaptive": lambda size: FourierHead(size, None, adaptive_frequencies(settings), domain=line),
    }
    return makers[name]


def adaptive_frequencies(settings: Settings) -> int:
    """Return N of the adaptive head: it stretches with the density, whose shape alone is left to the coefficients."""
    return settings.frequencies or ADAPTIVE_FREQUENCIES


@dataclass
class Scores:
    """What each test row says of a prediction; values in units of the target."""

    nll: np.ndarray
    crps: np.ndarray
    smoothness: np.ndarray
    squared_error: np.ndarray
    pit: np.ndarray
    nll_bins: np.ndarray
    kl: np.ndarray | None = None

    def summary(self) -> dict[str, float | None]:
        """Return the mean of each score, and how well the PIT values are calibrated."""
        known = np.isfinite(self.pit)
        pit = self.pit[known]
        return {
            "nll": float(self.nll.mean()),
            "crps": float(self.crps.mean()),
            "kl": None if self.kl is None else float(self.kl.mean()),
            "smoothness": float(self.smoothness.mean()),
            "mse": float(self.squared_error.mean()),
            "rmse": math.sqrt(float(self.squared_error.mean())),
            "nll_bins": float(self.nll_bins.mean()),
            "calibration_error": float(calibration_error(pit)) if pit.size else None,
            "coverage_90": float(central_coverage(pit, [0.9])[0]) if pit.size else None,
        }


@dataclass
class Trained:
    """A head after training: its model with the best validation score, its scores, and how it got there."""

    name: str
    model: Arm
    scores: Scores
    history: list[tuple[int, float]] = field(default_factory=list)
    best_epoch: int = 0
    seconds: float = 0.0

    @property
    def parameters(self) -> tuple[int, int]:
        """The number of parameters in all, and of the head alone."""
        return _count(self.model), _count(self.model.head)


def _count(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


def train(
    name: str, data: Prepared, settings: Settings, frequencies: int, seed: int, schedule: Schedule, progress: Progress
) -> Trained:
    """Train with Adam and a cosine schedule; keep the weights with the best likelihood on the validation part.

    The seed fixes the initial weights of the body and the order of the rows, so heads with the same seed differ in
    the head alone.
    """
    torch.manual_seed(seed)
    model = Arm(data.num_features, head_maker(name, settings, frequencies, data))
    exact = name == "fourier-adaptive"  # it has no ends, and learns from values; the others from their bins
    course = tabular.fit(
        model,
        (data.train.x, data.train.z if exact else data.train.ids),
        lambda x, y: model.head.nll(model.body(x), y) if exact else model.head.loss(model.body(x), y),
        lambda: _validation_nll(model, data),
        schedule,
        seed=seed,
        progress=lambda epoch, score: progress(name, epoch, schedule.epochs, score),
    )
    return Trained(name, model, score_model(model, data), course.history, course.best_epoch, course.seconds)


def _validation_nll(model: Arm, data: Prepared) -> float:
    part = data.validation
    total = 0.0
    for x, z in zip(part.x.split(CHUNK), part.z.split(CHUNK), strict=True):
        total -= float(model.head.density(model.body(x)).log_prob(z.clamp(-EDGE, EDGE)).double().sum())
    return total / len(part) + math.log(data.half) + (float(part.value.mean()) if data.table.log else 0.0)


@torch.no_grad()
def score_model(model: Arm, data: Prepared) -> Scores:
    """Score the predictions for the test part."""
    part, truth = data.test, truth_on_bins(data, data.test)
    chunks = []
    for i in range(0, len(part), CHUNK):
        rows = slice(i, i + CHUNK)
        density, log_probs = model(part.x[rows])
        chunks.append(score(density, log_probs, part, rows, data, None if truth is None else truth[rows]))
    columns: dict[str, Any] = {}
    for name in (f.name for f in fields(Scores)):
        parts = [getattr(chunk, name) for chunk in chunks]
        columns[name] = None if parts[0] is None else np.concatenate(parts)
    return Scores(**columns)


def truth_on_bins(data: Prepared, part: Part) -> Tensor | None:
    """Return the true probabilities of the bins, (rows, bins), from differences of the true cdf."""
    truth = data.truth(part)
    if truth is None:
        return None
    edges = torch.linspace(-1, 1, data.bins.num_bins + 1, dtype=torch.float64)
    mass = truth.cdf(edges[:, None].expand(-1, len(part))).diff(dim=0).T.clamp_min(0)
    return mass / mass.sum(-1, keepdim=True)


def score_truth(data: Prepared) -> Scores | None:
    """Score the true densities themselves: what no head can beat but by luck."""
    truth, probs = data.truth(data.test), truth_on_bins(data, data.test)
    if truth is None or probs is None:
        return None
    return score(truth, probs.clamp_min(1e-300).log(), data.test, slice(None), data, probs)


def score(
    density: Distribution, log_probs: Tensor, part: Part, rows: slice, data: Prepared, truth: Tensor | None
) -> Scores:
    """Score densities in z and log-probabilities of bins against the values of some rows, in units of the target."""
    z = part.z[rows]
    inside = z.clamp(-EDGE, EDGE)
    probs = log_probs.double().exp()
    mean = data.middle + data.half * density.mean.double()
    # The density of a value whose logarithm was predicted is that of the logarithm over the value.
    stretch = math.log(data.half) + (part.value[rows] if data.table.log else 0.0)
    return Scores(
        nll=(stretch - density.log_prob(inside).double()).numpy(),
        crps=(data.half * density.crps(z).double()).numpy(),  # type: ignore[attr-defined]
        smoothness=smoothness(probs).numpy(),
        squared_error=((mean - part.value[rows]) ** 2).numpy(),
        pit=density.cdf(z.clamp(-1, 1)).double().clamp(0, 1).numpy(),
        nll_bins=-log_probs.double().gather(-1, part.ids[rows, None])[:, 0].numpy(),
        kl=None if truth is None else kl_divergence(truth, probs.clamp_min(1e-300)).numpy(),
    )
