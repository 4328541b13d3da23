"""Gauss-Legendre nodes and weights, over the whole of [-1, 1] and piece by piece."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from fourier_head._arrays import common_shape
from fourier_head._devices import constant_result


@functools.lru_cache(maxsize=64)
def legendre(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return this many nodes and weights on [-1, 1]; computed once."""
    return np.polynomial.legendre.leggauss(count)


def between(ends: Tensor, function: Callable[[Tensor], Tensor], nodes: int = 8) -> Tensor:
    """Return the integral of a function over panels between ends (points, ...): all panels, a node at a time."""
    half = ends.diff(dim=0) / 2
    total = torch.zeros_like(ends[0])
    for t, w in np.stack(legendre(nodes), 1).tolist():
        total = total + (w * half * function(ends[:-1] + half * (1 + t))).sum(0)
    return total


def ranked_score(cdf: Callable[[Tensor], Tensor], ends: Tensor, value: Tensor) -> Tensor:
    r"""Return :math:`\int (F(x) - 1[x \ge y])^2 dx` for values (..., *batch) between ends (points, *batch)."""
    value = value.expand(common_shape(value.shape, ends.shape[1:]))
    scores = []
    for y in value.reshape(-1, *ends.shape[1:]):
        corners = torch.cat([ends, y.to(ends.dtype)[None]]).sort(0).values
        scores.append(between(corners, lambda x, y=y: (cdf(x) - (x >= y).to(x.dtype)) ** 2))  # type: ignore[misc]
    return torch.stack(scores).reshape(value.shape)


# Constants to compilers, which cannot look into numpy.


@constant_result
def legendre_rows(count: int) -> Tensor:
    """Return this many nodes and weights on [-1, 1] as rows of a tensor."""
    return torch.from_numpy(np.stack(legendre(count)))


@constant_result
def legendre_pieces(corners: tuple[float, ...], resolution: int) -> Tensor:
    """Return nodes and weights, rows of a tensor, on pieces of [-1, 1], enough for this many harmonics over it all."""
    pieces = []
    for low, high in itertools.pairwise(corners):
        x, w = legendre(8 + math.ceil(resolution * (high - low)))
        pieces.append(np.stack([low + (x + 1) * (high - low) / 2, w * (high - low) / 2]))
    return torch.from_numpy(np.concatenate(pieces, 1))


@constant_result
def double_exponential(resolution: int) -> Tensor:
    """Return nodes z = tanh(x) of [-1, 1], weights, and x itself, rows of a tensor; x runs far into both tails."""
    t = np.linspace(-3.4, 3.4, 8 * resolution + 257)
    x = np.pi / 2 * np.sinh(t)
    weight = (t[1] - t[0]) * np.pi / 2 * np.cosh(t) / np.cosh(x) ** 2
    return torch.from_numpy(np.stack([np.tanh(x), weight, x]))


@constant_result
def midpoints(count: int) -> Tensor:
    """Return the centres of equal parts of [-1, 1] and their widths, rows of a tensor, for periodic functions."""
    return torch.from_numpy(np.stack([(2 * np.arange(count) + 1 - count) / count, np.full(count, 2 / count)]))
