"""Kullback-Leibler divergences from a Fourier density, for ``torch.distributions.kl_divergence``."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.distributions import Distribution, register_kl

from fourier_head.density import FourierDensity
from fourier_head.domains import BinnedInterval, Line


@register_kl(FourierDensity, Distribution)
def _kl_fourier_any(p: FourierDensity, q: Distribution) -> Tensor:
    """Integrate p log(p/q) in the unit variable of p: by the midpoint rule where its map to values is even."""
    p = p.expand(torch.broadcast_shapes(p.batch_shape, q.batch_shape))
    if isinstance(p.domain, Line | BinnedInterval):
        z, weight, value = p._quadrature()
        log_p = p._log_prob_of_unit(z)
        mass = weight * log_p.exp()
    else:
        z, log_mass = p._grid()
        value, log_p, mass = p.domain.from_unit(z), log_mass + math.log(len(z) / 2), log_mass.exp()
    log_p = log_p + p.domain.log_slope(value)
    inside = q.support.check(value)  # type: ignore[union-attr]
    log_q = q.log_prob(torch.where(inside, value, q.mean) if not bool(inside.all()) else value)
    # Far out on the line mass may round to zero, which counts as nothing even where q is zero.
    return torch.where(mass > 0, mass * (log_p - torch.where(inside, log_q, -torch.inf)), 0).sum(0)


@register_kl(FourierDensity, FourierDensity)
def _kl_fourier_fourier(p: FourierDensity, q: FourierDensity) -> Tensor:
    return _kl_fourier_any(p, q)
