"""Kullback-Leibler divergences from a Fourier density, for ``torch.distributions.kl_divergence``."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.distributions import Distribution, register_kl

from fourier_head.densities.fourier import FourierDensity


@register_kl(FourierDensity, Distribution)
def _kl_fourier_any(p: FourierDensity, q: Distribution) -> Tensor:
    """Integrate p log(p/q) in the unit variable of p."""
    p = p.expand(torch.broadcast_shapes(p.batch_shape, q.batch_shape))

    def log_ratio(value: Tensor, log_p: Tensor) -> Tensor:
        inside = q.support.check(value)  # type: ignore[union-attr]
        log_q = q.log_prob(torch.where(inside, value, q.mean) if not bool(inside.all()) else value)
        return log_p - torch.where(inside, log_q, -torch.inf)

    return p.expect_of_log(log_ratio)


@register_kl(FourierDensity, FourierDensity)
def _kl_fourier_fourier(p: FourierDensity, q: FourierDensity) -> Tensor:
    return _kl_fourier_any(p, q)
