r"""Laplace tails: a density :math:`\frac12 e^{-|v|}` of small weight mixed with one on [-1, 1].

Between -1 and 1 it is a floor that is higher in the middle; beyond, it alone gives values a likelihood.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor


def cdf(v: Tensor) -> Tensor:
    """Return the distribution function of the Laplace density."""
    half = torch.exp(-v.abs()) / 2
    return torch.where(v < 0, half, 1 - half)


def mix_log_density(core: Tensor, v: Tensor, weight: float) -> Tensor:
    """Return the log-density with tails; ``core`` is that of the density on [-1, 1], at v clamped to it."""
    tail = math.log(weight / 2) - v.abs()
    # The choice comes last: of the logarithm of nothing there would be no second derivative.
    return torch.where(v.abs() <= 1, torch.logaddexp(core + math.log1p(-weight), tail), tail)


def mix_cdf(core: Tensor, v: Tensor, weight: float) -> Tensor:
    """Return the distribution function with tails."""
    return (1 - weight) * core + weight * cdf(v)


def mix_curve(core: Tensor, density: Tensor, v: Tensor, weight: float) -> tuple[Tensor, Tensor]:
    """Return distribution function and density with tails at v of [-1, 1]."""
    return mix_cdf(core, v, weight), (1 - weight) * density + weight / 2 * torch.exp(-v.abs())


def beyond(weight: float) -> float:
    """Return the probability beyond 1, as much as that below -1."""
    return weight * math.exp(-1) / 2


def quantile_outside(inside: Tensor, level: Tensor, weight: float) -> Tensor:
    """Return quantiles of all levels, given those between -1 and 1."""
    edge = beyond(weight)
    nearer = torch.minimum(level, 1 - level)
    # At most the edge where it is used, at least the edge where it is not: one logarithm without NaN or its gradient.
    outside = (2 * torch.where(nearer < edge, nearer, edge) / weight).log()
    return torch.where(level < edge, outside, torch.where(level > 1 - edge, -outside, inside))


def absolute_mean(y: Tensor) -> Tensor:
    """Return E|V - y| of the Laplace density."""
    return y.abs() + torch.exp(-y.abs())


ABSOLUTE_DIFFERENCE = 1.5
"""E|V - V'| of two independent ones."""


def mass_between(low: Tensor, high: Tensor) -> Tensor:
    """Return the probability of an interval under the Laplace density, exact far out, ends infinite or not."""
    # Of two numbers on one side the nearer tail holds the other; exponentials of differences do not cancel.
    near, far = torch.minimum(low.abs(), high.abs()), torch.maximum(low.abs(), high.abs())
    one_side = torch.exp(-near) / 2 * -torch.expm1(near - far)
    across = 1 - (torch.exp(-near) + torch.exp(-far)) / 2
    return torch.where(low * high < 0, across, one_side)
