"""Distributions of heads that know an interval only: histograms, and mixtures of Gaussians cut off at its ends."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from fourier_head.densities.histogram import HistogramDensity
from fourier_head.densities.mixture import MixtureDensity
from fourier_head.heads.baselines import MixtureHead
from fourier_head.integrations.scikit_learn.predictive import Floats, Frame, PredictiveDistribution

MARGIN = 0.1
"""The interval reaches this share of the range of the training targets beyond either end."""


class FlooredMixtureHead(MixtureHead):
    """A mixture with one more, flat component of a small fixed share, as the floor of a Fourier head."""

    share = 1e-4

    def components(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        logits, loc, scale = super().components(x)
        flat = torch.ones_like(logits[..., :1])
        logits = torch.cat([logits.log_softmax(-1) + math.log1p(-self.share), math.log(self.share) * flat], -1)
        # Fifty times as wide as the interval is flat to the fourth digit.
        return logits, torch.cat([loc, 0 * flat], -1), torch.cat([scale, 100 * flat], -1)


@dataclass(frozen=True)
class IntervalFrame(Frame):
    """Where a head's interval [low, high] lies among the targets (center + scale t), and what lies beyond it.

    Beyond either end the density falls off exponentially: ``tail`` is the probability there, ``fall`` its mean distance
    from the end in t. No finite value has density zero, however far from those of the training.
    """

    low: float = -1.0
    high: float = 1.0
    tail: float = 0.0
    fall: float = 1.0

    @classmethod
    def fit(cls, y: Floats) -> IntervalFrame:
        """Standardise the targets and give them an interval with margins and tails.

        One of n + 1 values goes beyond the n others with probability 1 / (n + 1) on either side. Most that do stay
        within the margin, so the tails get a twentieth of it.
        """
        center, scale = float(y.mean()), float(y.std())
        # Rounding gives constant targets a deviation, too.
        if not scale > 1e-12 * float(np.abs(y).max()):
            scale = 1.0
        t = (y - center) / scale
        margin = MARGIN * max(float(np.ptp(t)), 1.0)
        low, high = float(t.min()) - margin, float(t.max()) + margin
        return cls(center, scale, low=low, high=high, tail=0.05 / (len(y) + 1))

    @property
    def inside(self) -> float:
        """The probability of the interval."""
        return 1 - 2 * self.tail

    def within(self, t: Floats) -> Floats:
        """Move values into the interval, a little off its ends, which rounding to float32 might step over."""
        edge = 1e-6 * (self.high - self.low)
        return np.clip(t, self.low + edge, self.high - edge)

    def beyond(self, t: Floats) -> Floats:
        """Return how far outside values lie, in t."""
        return np.maximum(np.maximum(self.low - t, t - self.high), 0)


class IntervalDistribution(PredictiveDistribution):
    r"""Hold one density per row, on an interval and with exponential tails beyond its ends.

    With F the distribution that the head predicts on the interval [low, high] and :math:`\tau` the probability beyond
    either end, the density is :math:`(1 - 2 \tau) F'` inside and exponential outside, so that cdf, quantiles, moments,
    entropy and CRPS all follow from those of F.
    """

    frame: IntervalFrame

    def _mixture(self, members: Any) -> Any:
        weights, spread = self.mixing.weights, self.frame.spread
        if not isinstance(members, HistogramDensity):
            # Without the flat one, which says nothing of where values are.
            share, loc, scale = members.logits[..., :-1].softmax(-1), members.loc, members.scale
            mean = (share * loc[..., :-1]).sum(-1)
            variance = (share * (scale[..., :-1] ** 2 + (loc[..., :-1] - mean[..., None]) ** 2)).sum(-1)
            middle, factor = (x[:, None] for x in self.mixing.about(mean, variance, spread))
            members.loc, members.scale = middle + factor * (loc - middle), factor * scale
            return MixtureDensity(members, weights, validate_args=False)
        chance = (members.logits.exp() * weights[:, None, None]).sum(0)
        middle, factor = self.mixing.about(members.mean, members.variance, spread)
        plain = HistogramDensity(probs=chance, edges=members.edges, validate_args=False)
        # Bins stay where they are, and get what lies in them once all is wider; a little stays, so that none is empty.
        places = middle + (members.edges[1:-1, None] - middle) / factor
        inner = plain.cdf(places.clamp(members.edges[0], members.edges[-1])).mT
        wider = torch.diff(inner, prepend=torch.zeros_like(middle)[:, None], append=torch.ones_like(middle)[:, None])
        chance = torch.lerp(wider.clamp_min(0), chance, FlooredMixtureHead.share)
        return HistogramDensity(probs=chance, edges=members.edges, validate_args=False)

    def logpdf(self, y: ArrayLike) -> Floats:
        """Return the log-density; finite for every finite value."""
        frame = self.frame
        t = self._values(y)
        with np.errstate(divide="ignore"):
            inner = math.log(frame.inside) + self._each(lambda d, x: d.log_prob(x), frame.within(t))
            outer = math.log(frame.tail / frame.fall) - frame.beyond(t) / frame.fall
        return np.where(frame.beyond(t) > 0, outer, inner) - math.log(frame.scale)

    def cdf(self, y: ArrayLike) -> Floats:
        """Return P(Y <= y)."""
        frame = self.frame
        t = self._values(y)
        inner = frame.tail + frame.inside * self._each(lambda d, x: d.cdf(x), frame.within(t))
        outer = frame.tail * np.exp(-frame.beyond(t) / frame.fall)
        return np.where(t < frame.low, outer, np.where(t > frame.high, 1 - outer, inner))

    def _icdf(self, levels: Floats) -> Floats:
        return self._to_targets(self._with_tails(levels, self._each(lambda d, u: d.icdf(u), self._inner(levels))))

    def _inner(self, levels: Floats) -> Floats:
        return ((levels - self.frame.tail) / self.frame.inside).clip(0, 1)

    def _with_tails(self, levels: Floats, inner: Floats) -> Floats:
        frame = self.frame
        rest = np.minimum(levels, 1 - levels)
        distance = frame.fall * np.log(frame.tail / np.minimum(rest, frame.tail))
        inner = inner.clip(frame.low, frame.high)
        return np.where(levels < 0.5, inner - distance, inner + distance)

    def mean(self) -> Floats:
        """Return the means."""
        frame = self.frame
        return self._to_targets(frame.inside * self._each(lambda d: d.mean) + frame.tail * (frame.low + frame.high))

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
