"""Gauss-Legendre nodes and weights, over the whole of [-1, 1] and piece by piece."""

from __future__ import annotations

import functools
import itertools
import math

import numpy as np


@functools.lru_cache(maxsize=64)
def legendre(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return this many nodes and weights on [-1, 1]; computed once."""
    return np.polynomial.legendre.leggauss(count)


def legendre_pieces(corners: np.ndarray, resolution: int) -> tuple[np.ndarray, np.ndarray]:
    """Return nodes and weights on pieces of [-1, 1], enough for this many harmonics over the whole."""
    nodes, weights = [], []
    for low, high in itertools.pairwise(corners):
        x, w = legendre(8 + math.ceil(resolution * (high - low)))
        nodes.append(low + (x + 1) * (high - low) / 2)
        weights.append(w * (high - low) / 2)
    return np.concatenate(nodes), np.concatenate(weights)
