"""The distributions that a regressor predicts, in arrays and in the units of the target."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_random_state
from torch import Tensor

from fourier_head._cpu import plain_blas
from fourier_head.heads import Head

Floats = NDArray[np.float64]

# Numbers that a density may lay out at once: rows are taken in portions that keep to it.
PORTION = 1 << 22


@dataclass(frozen=True)
class Frame:
    """Where a head's interval [low, high] lies among the targets (center + scale t), and what lies beyond it.

    Beyond either end the density falls off exponentially: ``tail`` is the probability there, ``fall`` its mean distance
    from the end in t. No finite value has density zero, however far from those of the training.
    """

    center: float
    scale: float
    low: float
    high: float
    tail: float
    fall: float = 1.0

    @property
    def inside(self) -> float:
        """The probability of the interval."""
        return 1 - 2 * self.tail

    def standardised(self, y: ArrayLike) -> Floats:
        return (np.asarray(y, dtype=np.float64) - self.center) / self.scale

    def within(self, t: Floats) -> Floats:
        """Move values into the interval, a little off its ends, which rounding to float32 might step over."""
        edge = 1e-6 * (self.high - self.low)
        return np.clip(t, self.low + edge, self.high - edge)

    def beyond(self, t: Floats) -> Floats:
        """Return how far outside values lie, in t."""
        return np.maximum(np.maximum(self.low - t, t - self.high), 0)


class PredictiveDistribution:
    r"""Hold one density per row: numbers and arrays in, arrays out, all in the units of the target.

    Values of shape (n,) go with the n rows, one each; those of shape (k, n), or (k, 1) for all rows alike, give (k, n).

    With F the distribution that the head predicts on the interval [low, high] and :math:`\tau` the probability beyond
    either end, the density is :math:`(1 - 2 \tau) F'` inside and exponential outside, so that cdf, quantiles, moments,
    entropy and CRPS all follow from those of F.
    """

    def __init__(self, head: Head, features: Tensor, frame: Frame):
        self.head, self.features, self.frame = head, features, frame

    def __len__(self) -> int:
        return len(self.features)

    # --- the density and its distribution

    def logpdf(self, y: ArrayLike) -> Floats:
        """Return the log-density; finite for every finite value."""
        frame = self.frame
        t = self._values(y)
        with np.errstate(divide="ignore"):
            inner = math.log(frame.inside) + self._each(lambda d, x: d.log_prob(x), frame.within(t))
            outer = math.log(frame.tail / frame.fall) - frame.beyond(t) / frame.fall
        return np.where(frame.beyond(t) > 0, outer, inner) - math.log(frame.scale)

    def pdf(self, y: ArrayLike) -> Floats:
        """Return the density."""
        return np.exp(self.logpdf(y))

    def cdf(self, y: ArrayLike) -> Floats:
        """Return P(Y <= y)."""
        frame = self.frame
        t = self._values(y)
        inner = frame.tail + frame.inside * self._each(lambda d, x: d.cdf(x), frame.within(t))
        outer = frame.tail * np.exp(-frame.beyond(t) / frame.fall)
        return np.where(t < frame.low, outer, np.where(t > frame.high, 1 - outer, inner))

    def quantile(self, levels: float | ArrayLike) -> Floats:
        """Return quantiles at these levels, (n, number of levels), or (n,) for a single one; they never cross."""
        levels = np.asarray(levels, dtype=np.float64)
        if levels.ndim > 1 or not ((levels > 0) & (levels < 1)).all():
            raise ValueError(f"levels must be one number or a list of numbers between 0 and 1, got {levels.tolist()}.")
        order = np.argsort(levels.reshape(-1))
        points = self._icdf(np.broadcast_to(levels.reshape(-1)[order, None], (levels.size, len(self))))
        # Rounding may swap two quantiles that are equal but for the last bit.
        points = np.maximum.accumulate(points, axis=0)[np.argsort(order)]
        return points.T if levels.ndim else points[0]

    def interval(self, coverage: float = 0.9) -> Floats:
        """Return the central interval of this probability, (n, 2)."""
        if not 0 < coverage < 1:
            raise ValueError(f"coverage must lie between 0 and 1, got {coverage}.")
        return self.quantile([(1 - coverage) / 2, (1 + coverage) / 2])

    def sample(self, n_samples: int = 1, random_state: Any = None) -> Floats:
        """Draw values, (n, n_samples)."""
        if n_samples < 1:
            raise ValueError(f"n_samples must be at least 1, got {n_samples}.")
        levels = check_random_state(random_state).uniform(size=(n_samples, len(self)))
        return self._icdf(levels.clip(1e-12, 1 - 1e-12)).T

    def _icdf(self, levels: Floats) -> Floats:
        frame = self.frame
        inner = self._each(lambda d, u: d.icdf(u), ((levels - frame.tail) / frame.inside).clip(0, 1))
        inner = inner.clip(frame.low, frame.high)
        rest = np.minimum(levels, 1 - levels)
        distance = frame.fall * np.log(frame.tail / np.minimum(rest, frame.tail))
        t = np.where(levels < 0.5, inner - distance, inner + distance)
        return frame.center + frame.scale * t

    # --- summaries

    def mean(self) -> Floats:
        """Return the means."""
        frame = self.frame
        t = frame.inside * self._each(lambda d: d.mean) + frame.tail * (frame.low + frame.high)
        return frame.center + frame.scale * t

    def std(self) -> Floats:
        """Return the standard deviations."""
        frame = self.frame
        means, variances = self._each(lambda d: torch.stack([d.mean, d.variance]))
        middle = frame.inside * means + frame.tail * (frame.low + frame.high)
        spread = frame.inside * (variances + (means - middle) ** 2)
        for end, side in ((frame.low, -1), (frame.high, 1)):
            spread = spread + frame.tail * (frame.fall**2 + (end + side * frame.fall - middle) ** 2)
        return frame.scale * np.sqrt(spread)

    def entropy(self) -> Floats:
        """Return the differential entropies in nats."""
        frame = self.frame
        inner = frame.inside * (self._each(lambda d: d.entropy()) - math.log(frame.inside))
        return inner + 2 * frame.tail * (1 + math.log(frame.fall / frame.tail)) + math.log(frame.scale)

    def crps(self, y: ArrayLike) -> Floats:
        r"""Return the continuous ranked probability score, in units of the target.

        Inside, :math:`(1 - 2\tau)^2 C + 2 \tau (1 - 2\tau) E|X - y| + \tau^2 (high - low)` and the tails'
        :math:`\tau^2 fall`, where C is the score of F and X is drawn from it. :math:`E|X - y|` is C and a number that
        does not depend on y, seen from one end: :math:`E|X - low| - C(low)`.
        """
        frame = self.frame
        t = self._values(y)
        width, near = frame.high - frame.low, np.clip(t, frame.low, frame.high)
        score = self._each(lambda d, x: d.crps(x), near)
        low = np.full((1, len(self)), frame.low)
        distance = score + self._each(lambda d: d.mean) - frame.low - self._each(lambda d, x: d.crps(x), low)[0]
        total = frame.inside**2 * score + 2 * frame.tail * frame.inside * distance
        total += frame.tail**2 * (width + frame.fall)
        # Beyond an end the cdf is 1 - tail e^(-x / fall) up to the value, where it was compared with 1 before.
        beyond = frame.beyond(t)
        return frame.scale * (total + beyond - 2 * frame.tail * frame.fall * -np.expm1(-beyond / frame.fall))

    # --- rows in portions

    def _values(self, y: ArrayLike) -> Floats:
        t = self.frame.standardised(y)
        if t.ndim == 0:
            t = t[None]
        if t.shape[-1] not in (1, len(self)):
            raise ValueError(
                f"y must have one value for each of the {len(self)} rows on its last axis, got shape {t.shape}."
            )
        return np.broadcast_to(t, (*t.shape[:-1], len(self)))

    def _each(self, function: Callable[..., Tensor], values: Floats | None = None) -> Floats:
        """Apply a function to the heads' densities of all rows, and to values (..., n), in portions."""
        points = 1 if values is None else max(1, values.size // max(1, len(self)))
        size = max(1, PORTION // (self.head.proj.out_features * points))
        parts = []
        with torch.inference_mode(), quiet(self.features.device):
            for start in range(0, max(1, len(self)), size):
                rows = slice(start, start + size)
                density = self.head.density(self.features[rows])
                given = [] if values is None else [torch.as_tensor(values[..., rows].copy()).to(self.features)]
                parts.append(function(density, *given).double().cpu().numpy())
        return np.concatenate(parts, axis=-1)


def quiet(device: torch.device) -> AbstractContextManager[None]:
    """Compute small products fast on a processor."""
    return plain_blas() if device.type == "cpu" else nullcontext()
