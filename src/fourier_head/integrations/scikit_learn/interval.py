"""Distributions of heads that know an interval only: histograms, and mixtures of Gaussians cut off at its ends."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fourier_head.densities.gaussian_mixture import GaussianMixture
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


class Tailed:
    r"""Represent a density on an interval, with exponential tails beyond its ends.

    With F the distribution that the head predicts on the interval [low, high] and :math:`\tau` the probability beyond
    either end, the density is :math:`(1 - 2 \tau) F'` inside and exponential outside, so that cdf, quantiles, moments,
    entropy and CRPS all follow from those of F.

    Args:
        inner: the density of rows on the interval.
        frame: the interval and its tails.
    """

    def __init__(self, inner: Any, frame: IntervalFrame):
        self.inner, self.low, self.high = inner, frame.low, frame.high
        self.tail, self.fall, self.inside = frame.tail, frame.fall, 1 - 2 * frame.tail

    def _within(self, t: Tensor) -> Tensor:
        """Move values into the interval, a little off its ends, which rounding to float32 might step over."""
        edge = 1e-6 * (self.high - self.low)
        return t.clamp(self.low + edge, self.high - edge)

    def _beyond(self, t: Tensor) -> Tensor:
        """Return how far outside values lie."""
        return (t - t.clamp(self.low, self.high)).abs()

    def log_prob(self, t: Tensor) -> Tensor:
        """Return the log-density; finite for every finite value."""
        inner = math.log(self.inside) + self.inner.log_prob(self._within(t))
        outer = math.log(self.tail / self.fall) - self._beyond(t) / self.fall
        return torch.where(self._beyond(t) > 0, outer, inner)

    def cdf(self, t: Tensor) -> Tensor:
        """Return P(T <= t)."""
        inner = self.tail + self.inside * self.inner.cdf(self._within(t))
        outer = self.tail * torch.exp(-self._beyond(t) / self.fall)
        return torch.where(t < self.low, outer, torch.where(t > self.high, 1 - outer, inner))

    def icdf(self, level: Tensor) -> Tensor:
        """Return quantiles."""
        inner = self.inner.icdf(((level - self.tail) / self.inside).clamp(0, 1)).clamp(self.low, self.high)
        distance = self.fall * torch.log(self.tail / torch.minimum(level, 1 - level).clamp_max(self.tail))
        return torch.where(level < 0.5, inner - distance, inner + distance)

    @property
    def mean(self) -> Tensor:
        """The mean."""
        return self.inside * self.inner.mean + self.tail * (self.low + self.high)

    @property
    def variance(self) -> Tensor:
        """The variance."""
        mean = self.mean
        spread = self.inside * (self.inner.variance + (self.inner.mean - mean) ** 2)
        for end in (self.low - self.fall, self.high + self.fall):
            spread = spread + self.tail * (self.fall**2 + (end - mean) ** 2)
        return spread

    def entropy(self) -> Tensor:
        """Return the differential entropy in nats."""
        inner = self.inside * (self.inner.entropy() - math.log(self.inside))
        return inner + 2 * self.tail * (1 + math.log(self.fall / self.tail))

    def crps(self, t: Tensor) -> Tensor:
        r"""Return the continuous ranked probability score.

        Inside, :math:`(1 - 2\tau)^2 C + 2 \tau (1 - 2\tau) E|X - y| + \tau^2 (high - low)` and the tails'
        :math:`\tau^2 fall`, where C is the score of F and X is drawn from it. :math:`E|X - y|` is C and a number that
        does not depend on y, seen from one end: :math:`E|X - low| - C(low)`.
        """
        mean = self.inner.mean
        score = self.inner.crps(t.clamp(self.low, self.high))
        distance = score + mean - self.low - self.inner.crps(torch.full_like(mean, self.low))
        total = self.inside**2 * score + 2 * self.tail * self.inside * distance
        total = total + self.tail**2 * (self.high - self.low + self.fall)
        # Beyond an end the cdf is 1 - tail e^(-x / fall) up to the value, where it was compared with 1 before.
        beyond = self._beyond(t)
        return total + beyond - 2 * self.tail * self.fall * -torch.expm1(-beyond / self.fall)


class IntervalDistribution(PredictiveDistribution):
    """Hold one density per row, on an interval and with exponential tails beyond its ends."""

    frame: IntervalFrame
    _table = 1

    def _mixture(self, members: Any) -> Any:
        return Tailed(self._inner(members), self.frame)

    def _inner(self, members: Any) -> Any:
        """Return the density on the interval."""
        weights, spread = self.mixing.weights, self.frame.spread
        if not isinstance(members, HistogramDensity):
            # Without the flat one, which says nothing of where values are; and of what lies in the interval alone, as
            # a component far outside of it may have a large share and no say.
            logits, own_loc, own_scale = (x[..., :-1] for x in (members.logits, members.loc, members.scale))
            low, high = members.limits
            own = GaussianMixture(logits, own_loc, own_scale, low, high, validate_args=False)
            mean, variance, loc, scale = own.mean, own.variance, members.loc, members.scale
            middle, factor = (x[:, None] for x in self.mixing.about(mean, variance, spread))
            shares = members._frame().log_weight
            members.loc, members.scale = middle + factor * (loc - middle), factor * scale
            # In the interval components keep their shares, however much of them lies outside now.
            members.logits = members.logits + shares - members._frame().log_weight
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
