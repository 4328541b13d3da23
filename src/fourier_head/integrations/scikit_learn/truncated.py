"""Truncated: a mixture of densities on the line, given that values lie between bounds."""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from fourier_head.densities.mixture import MixtureDensity
from fourier_head.fourier.quadrature import between, ranked_score

LEAST_MASS = 1e-6
"""A density counts as having at least so much between the bounds: less is not known to many digits."""


class Truncated:
    r"""Represent a density between bounds, where it is a multiple of another one.

    .. math:: p(x) = \frac{q(x)}{Q(high) - Q(low)}, \qquad low \le x \le high

    Distribution function, quantiles and likelihood follow from those of q; moments, entropy and the ranked score are
    taken by quadrature between places where q is smooth.

    Args:
        whole: the density q of rows.
        low, high: the bounds; infinite where there is none.

    Example:
        >>> from fourier_head import Adaptive, FourierDensity
        >>> place = Adaptive(tails=0.01).at(torch.zeros(1, 1), torch.ones(1, 1))
        >>> whole = MixtureDensity(FourierDensity(torch.zeros(1, 1, 2, 4), place))  # uniform on [-1, 1], with tails
        >>> half = Truncated(whole, 0.0, float("inf"))
        >>> half.cdf(torch.tensor([0.5])), half.icdf(torch.tensor([0.5])), half.log_prob(torch.tensor([-0.1]))
        (tensor([0.4989]), tensor([0.5011]), tensor([-inf]))
    """

    def __init__(self, whole: MixtureDensity, low: float, high: float):
        self.whole, self.low, self.high = whole, low, high
        like = whole._like
        zero = like.new_zeros(whole.batch_shape)
        self._below = whole.cdf(zero + low) if np.isfinite(low) else zero
        above = whole.cdf(zero + high) if np.isfinite(high) else zero + 1
        self._mass = (above - self._below).clamp_min(LEAST_MASS)

    def log_prob(self, value: Tensor) -> Tensor:
        """Return the log-density, ``-inf`` beyond the bounds."""
        inside = (value >= self.low) & (value <= self.high)
        return torch.where(inside, self.whole.log_prob(value) - self._mass.log(), -torch.inf)

    def cdf(self, value: Tensor) -> Tensor:
        """Return P(X <= value)."""
        inner = ((self.whole.cdf(value.clamp(self.low, self.high)) - self._below) / self._mass).clamp(0, 1)
        return torch.where(value >= self.high, 1.0, torch.where(value < self.low, 0.0, inner))

    def icdf(self, level: Tensor) -> Tensor:
        """Return quantiles."""
        inner = (self._below + level * self._mass).clamp(1e-12, 1 - 1e-12)
        return self.whole.icdf(inner).clamp(self.low, self.high)

    @functools.cached_property
    def _ends(self) -> Tensor:
        ends = self.whole._panels()
        sides = [ends.new_full((1, *ends.shape[1:]), end) for end in (self.low, self.high) if np.isfinite(end)]
        return torch.cat([ends, *sides]).clamp(self.low, self.high).sort(0).values

    @property
    def _middle(self) -> Tensor:
        return self._ends[len(self._ends) // 2]

    def _moment(self, slope: Callable[[Tensor], Tensor]) -> Tensor:
        """Return the expected rise from the middle on of a function of this slope, by the distribution function.

        That is a tenth of the work of the density, which has to be computed where the former is read from tables.
        """
        return between(self._ends, lambda x: slope(x) * ((x >= self._middle).to(x.dtype) - self.cdf(x)))

    @property
    def mean(self) -> Tensor:
        """The mean."""
        return self._middle + self._moment(torch.ones_like)

    @property
    def variance(self) -> Tensor:
        """The variance."""
        return self._moment(lambda x: 2 * (x - self._middle)) - self._moment(torch.ones_like) ** 2

    def entropy(self) -> Tensor:
        """Return the differential entropy in nats."""

        def part(x: Tensor) -> Tensor:
            log_prob = self.whole.log_prob(x) - self._mass.log()
            return torch.where(log_prob > -torch.inf, -log_prob.exp() * log_prob, 0)

        return between(self._ends, part)

    def crps(self, value: Tensor) -> Tensor:
        r"""Return the ranked score :math:`\int (F(x) - 1[x \ge y])^2 dx`; beyond the bounds the distance is added."""
        near = value.clamp(self.low, self.high)
        return ranked_score(self.cdf, self._ends, near) + (value - near).abs()
