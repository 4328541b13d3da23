"""Distributions over the values that targets take, where these are few: grades, counts, rounded numbers."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from fourier_head.integrations.scikit_learn.predictive import Floats, PredictiveDistribution

MOST_VALUES, ROWS_EACH = 64, 20
"""Targets are taken as discrete where they have no more values than this, each in so many rows on average."""


def values_seen(y: Floats, discrete: bool | str) -> Floats | None:
    """Return the values of targets where they are discrete, or are said to be.

    >>> values_seen(np.repeat([3.0, 5.0, 4.0], 100), "auto"), values_seen(np.arange(300.0), "auto")
    (array([3., 4., 5.]), None)
    """
    values = np.unique(y)
    few = len(values) <= min(MOST_VALUES, len(y) / ROWS_EACH)
    return values if len(values) > 1 and (few if discrete == "auto" else discrete) else None


class DiscreteDistribution(PredictiveDistribution):
    """Hold the probabilities of the values seen, one distribution per row.

    Each value has the probability that the continuous prediction gives to what lies nearer to it than to any other.
    ``pmf`` and ``logpmf`` are these probabilities. For comparison with continuous predictions ``pdf`` and ``logpdf``
    divide them by the length of that stretch; beyond it they go on as the continuous prediction does, so no value is
    impossible.
    """

    @property
    def values(self) -> Floats:
        """The values, in order."""
        values: Floats = self.frame.values
        return values

    @property
    def _middles(self) -> Floats:
        return (self.values[1:] + self.values[:-1]) / 2

    @property
    def _widths(self) -> Floats:
        """The stretch of each value; the outermost reach as far outwards as inwards."""
        gaps = np.diff(self.values)
        return (np.append(gaps[:1], gaps) + np.append(gaps, gaps[-1:])) / 2

    def _cumulated(self) -> Floats:
        """Return P(Y < value) of all values, and 1, (values + 1, n)."""
        inner = np.maximum.accumulate(super().cdf(self._middles[:, None]), axis=0)
        return np.pad(inner, ((1, 1), (0, 0)), constant_values=((0, 1), (0, 0)))

    def probabilities(self) -> Floats:
        """Return the probabilities of all values, (n, number of values)."""
        return np.diff(self._cumulated(), axis=0).T

    def _targets(self, y: ArrayLike) -> Floats:
        return self._to_targets(self._values(y))

    def _nearest(self, y: Floats) -> tuple[Floats, Floats]:
        """Return log-probabilities of the values nearest to targets, and how far off they are in stretches."""
        place = np.searchsorted(self._middles, y)
        chance = self.probabilities()[np.broadcast_to(np.arange(len(self)), place.shape), place]
        return np.log(np.maximum(chance, np.finfo(float).tiny)), (y - self.values[place]) / self._widths[place]

    def logpmf(self, y: ArrayLike) -> Floats:
        """Return log-probabilities of values; minus infinity for those that were never seen."""
        log, far = self._nearest(self._targets(y))
        return np.where(np.abs(far) < 1e-6, log, -np.inf)

    def pmf(self, y: ArrayLike) -> Floats:
        """Return the probabilities of values."""
        return np.exp(self.logpmf(y))

    def logpdf(self, y: ArrayLike) -> Floats:
        """Return the log-density of probabilities spread over the stretches of their values."""
        t = self._targets(y)
        log, far = self._nearest(t)
        inside = log - np.log(self._widths[np.searchsorted(self._middles, t)])
        return np.where(np.abs(far) <= 0.5 + 1e-6, inside, super().logpdf(y))

    def cdf(self, y: ArrayLike) -> Floats:
        """Return P(Y <= y)."""
        t = self._targets(y)
        place = np.searchsorted(self.values, t + 1e-9 * self._widths.min(), side="right")
        return self._cumulated()[place, np.broadcast_to(np.arange(len(self)), place.shape)]

    def _icdf(self, levels: Floats) -> Floats:
        return self.values[(self._cumulated()[1:-1, None, :] < levels).sum(0)]

    def mean(self) -> Floats:
        """Return the means."""
        return self.probabilities() @ self.values

    def std(self) -> Floats:
        """Return the standard deviations."""
        chance = self.probabilities()
        return np.sqrt(((self.values - (chance @ self.values)[:, None]) ** 2 * chance).sum(1))

    def entropy(self) -> Floats:
        """Return the entropies of the probabilities in nats."""
        chance = self.probabilities()
        return -(chance * np.log(np.maximum(chance, np.finfo(float).tiny))).sum(1)

    def crps(self, y: ArrayLike) -> Floats:
        """Return the continuous ranked probability score, in units of the target."""
        t = self._targets(y)
        total = np.maximum(self.values[0] - t, 0) + np.maximum(t - self.values[-1], 0)
        for low, high, below in zip(self.values[:-1], self.values[1:], self._cumulated()[1:-1], strict=True):
            passed = np.clip(t, low, high) - low
            total = total + below**2 * passed + (1 - below) ** 2 * (high - low - passed)
        return total
