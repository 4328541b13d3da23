"""Scores of whole paths: the energy score and the variogram score of samples."""

from __future__ import annotations

import numpy as np

__all__ = ["energy_score", "variogram_score"]


def energy_score(samples: np.ndarray, outcome: np.ndarray) -> np.ndarray:
    r"""Return the energy score of samples (..., paths, steps) for outcomes (..., steps), lower is better.

    .. math:: \mathrm{E} \|X - y\| - \tfrac12 \mathrm{E} \|X - X'\|

    The second mean is over all pairs of different paths, without bias.

    >>> float(energy_score(np.array([[0.0, 0.0], [2.0, 0.0]]), np.array([0.0, 0.0])))
    0.0

    References:
        Gneiting and Raftery, Strictly Proper Scoring Rules, Prediction, and Estimation (2007).
    """
    count = samples.shape[-2]
    near = np.linalg.norm(samples - outcome[..., None, :], axis=-1).mean(-1)
    # |a - b|^2 by products: all pairs without an array of (paths, paths, steps).
    square = (samples**2).sum(-1)
    apart = square[..., :, None] + square[..., None, :] - 2 * samples @ np.swapaxes(samples, -1, -2)
    spread = np.sqrt(apart.clip(0)).sum((-1, -2)) / (count * (count - 1))
    return np.asarray(near - spread / 2)


def variogram_score(samples: np.ndarray, outcome: np.ndarray, power: float = 0.5) -> np.ndarray:
    r"""Return the variogram score of samples (..., paths, steps) for outcomes (..., steps), lower is better.

    .. math:: \mathrm{mean}_{i < j} \big( |y_i - y_j|^p - \mathrm{E} |X_i - X_j|^p \big)^2

    >>> float(variogram_score(np.array([[0.0, 1.0], [4.0, 5.0]]), np.array([2.0, 3.0])))
    0.0

    References:
        Scheuerer and Hamill, Variogram-Based Proper Scoring Rules for Probabilistic Forecasts of Multivariate
        Quantities (2015).
    """
    steps = samples.shape[-1]
    first, second = np.triu_indices(steps, 1)
    total = np.zeros(outcome.shape[:-1])
    for i in range(steps - 1):  # a row of pairs at a time: few arrays of the size of the samples
        others = second[first == i]
        seen = np.abs(outcome[..., i, None] - outcome[..., others]) ** power
        meant = (np.abs(samples[..., i, None] - samples[..., others]) ** power).mean(-2)
        total += ((seen - meant) ** 2).sum(-1)
    return np.asarray(total / max(1, len(first)))
