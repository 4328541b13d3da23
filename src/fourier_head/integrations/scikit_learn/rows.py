"""Rows before a fit: equal ones made one, and targets measured."""

from __future__ import annotations

import math

import numpy as np

from fourier_head.domains.adaptive import Adaptive
from fourier_head.integrations.scikit_learn.predictive import Floats, Frame
from fourier_head.tabular.columns import weighted_quantiles

FARTHEST = 30.0
"""Targets count as no farther out than so many times the length of the middle 96 %."""
LEVELS = 4096
"""Quantiles that stand for weighted targets."""


def merged(X: Floats, y: Floats, weights: Floats) -> tuple[Floats, Floats, Floats]:
    """Return rows of positive weight in an order of their own, equal ones made one of their common weight.

    So a weight of two is the same as two equal rows, no row has a twin among those held out, and the order in which
    rows were given does not matter.

    >>> merged(np.array([[1.0], [0.0], [1.0]]), np.array([[5.0], [4.0], [5.0]]), np.ones(3))[1:]
    (array([[4.],
           [5.]]), array([0.66666667, 1.33333333]))
    """
    kept = weights > 0
    # Adding zero makes minus zero zero; NaN is equal to itself, bit by bit.
    rows = np.ascontiguousarray(np.column_stack([X[kept], y[kept]]) + 0.0)
    bits = rows.view(f"V{rows.itemsize * rows.shape[1]}").ravel()
    _, first, place = np.unique(bits, return_index=True, return_inverse=True)
    weight = np.bincount(place.ravel(), weights[kept])
    columns = X.shape[1]
    return rows[first, :columns], rows[first, columns:], weight / weight.mean()


def target_frame(y: Floats, weights: Floats, tails: float) -> tuple[Frame, Adaptive]:
    """Return the middle and unit of targets, and a domain of them measured so, behind a map if they need one.

    The head sees numbers of size one in float32, wherever the targets lie.
    """
    if np.ptp(weights) > 0:
        levels = (np.arange(LEVELS) + 0.5) / LEVELS
        y = np.concatenate([[y.min()], weighted_quantiles(y, weights, levels), [y.max()]])
    # A few targets, however far out, have no say in the unit of all others; that they are there still counts.
    low, high = np.quantile(y, [0.02, 0.98])
    reach = FARTHEST * (high - low) if high > low else np.inf
    map = Adaptive.fit(np.clip(y, low - reach, high + reach)).map
    loc, scale = float(map.loc), float(map.scale)
    if map.kind == "log":  # of a number without a unit
        return Frame(0.0, math.exp(loc)), Adaptive(tails, map=type(map)(0.0, scale))
    return Frame(loc, scale), Adaptive(tails, map=type(map)())
