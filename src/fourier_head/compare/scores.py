"""Score what heads predict for the test rows, in units of the target."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch.distributions import Distribution

from fourier_head.compare.parts import Part, Prepared
from fourier_head.metrics import calibration_error, central_coverage, kl_divergence, smoothness

if TYPE_CHECKING:
    from fourier_head.compare.training import Arm

CHUNK = 2048
EDGE = 1 - 1e-6
"""Where values outside the bins are moved to for the likelihood: just inside, whatever the rounding of an end."""


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


@torch.no_grad()
def score_model(model: Arm, data: Prepared) -> Scores:
    """Score the predictions for the test part."""
    part, truth = data.test, truth_on_bins(data)
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


def truth_on_bins(data: Prepared) -> Tensor | None:
    """Return the true probabilities of the bins, (test rows, bins), from differences of the true cdf."""
    truth = data.truth(data.test)
    if truth is None:
        return None
    edges = torch.linspace(-1, 1, data.bins.num_bins + 1, dtype=torch.float64)
    mass = truth.cdf(edges[:, None].expand(-1, len(data.test))).diff(dim=0).T.clamp_min(0)
    return mass / mass.sum(-1, keepdim=True)


def score_truth(data: Prepared) -> Scores | None:
    """Score the true densities themselves: what no head can beat but by luck."""
    truth, probs = data.truth(data.test), truth_on_bins(data)
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
