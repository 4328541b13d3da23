"""Integrals over pieces of Gaussians that stay exact far out in their tails."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from fourier_head.fourier.quadrature import legendre

_X, _W = (legendre(8)[0] + 1) / 2, legendre(8)[1] / 2
_NODES, _WEIGHTS = _X.tolist(), _W.tolist()
PARTS = ((_X[:, None] ** np.arange(1, 9) / np.arange(1, 9)) @ np.linalg.inv(_X[:, None] ** np.arange(8))).tolist()
"""Integrals from the beginning of a panel to each of its nodes, of what interpolates values at the nodes."""
_SHORT = [((x + 1) / 2, w / 2) for x, w in np.stack(legendre(5), 1).tolist()]
HUGE = 1e18
"""Squares of this still fit into float32."""


def tail_integral(s: Tensor, c: Tensor) -> Tensor:
    r"""Return :math:`\int_0^s e^{-r^2/2 - c |r|} dr` for c >= 0, odd in s, with small relative error everywhere.

    Long stretches are differences of scaled complementary error functions; on short ones these would cancel, and
    quadrature takes their place.
    """
    size = s.abs().clamp_max(HUGE)
    fade = torch.exp(-size * (size / 2 + c))
    short = torch.zeros_like(fade)
    for x, w in _SHORT:
        short = short + w * torch.exp(-size * x * (size * x / 2 + c))
    # The sign goes with s itself on short stretches, so that the derivative at 0 is right.
    return torch.where(size * c.clamp_min(1) < 0.5, s * short, s.sign() * long_integral(size, c, fade))


def long_integral(size: Tensor, c: Tensor, fade: Tensor) -> Tensor:
    """Return that integral from 0 to a size that is not small; ``fade`` is its integrand there."""
    ends = torch.special.erfcx(c * math.sqrt(0.5)), torch.special.erfcx((c + size) * math.sqrt(0.5)) * fade
    return math.sqrt(math.pi / 2) * (ends[0] - ends[1])


def panel_nodes(low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
    """Return quadrature nodes and weights (8, ...) between limits (...)."""
    shape = (-1, *(1,) * low.dim())
    x, w = low.new_tensor(_NODES).reshape(shape), low.new_tensor(_WEIGHTS).reshape(shape)
    return low + (high - low) * x, (high - low) * w


def absolute_mean(m: Tensor, s: Tensor) -> Tensor:
    """Return E|X| of a Gaussian."""
    t = m / s
    return s * math.sqrt(2 / math.pi) * torch.exp(-t * t / 2) + m * torch.erf(t * math.sqrt(0.5))
