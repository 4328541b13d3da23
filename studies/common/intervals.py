"""Intervals of the mean of a few numbers, such as those of single seeds."""

from __future__ import annotations

import math

import numpy as np
from scipy.special import stdtrit


def t_interval(values: np.ndarray) -> tuple[float, tuple[float, float] | None]:
    """Return the mean of a few numbers and its 95 % interval by Student's t, if there are at least two.

    >>> mean, (low, high) = t_interval(np.array([1.0, 2.0, 3.0]))
    >>> round(mean, 3), round(low, 3), round(high, 3)
    (2.0, -0.484, 4.484)
    """
    mean = float(values.mean())
    if len(values) < 2:
        return mean, None
    half = t_quantile(len(values) - 1) * float(values.std(ddof=1)) / math.sqrt(len(values))
    return mean, (mean - half, mean + half)


def t_quantile(freedom: int) -> float:
    """Return the 97.5 % quantile of Student's t.

    >>> round(t_quantile(2), 3), round(t_quantile(19), 3)
    (4.303, 2.093)
    """
    return float(stdtrit(freedom, 0.975))
