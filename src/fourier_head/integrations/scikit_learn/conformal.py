"""Levels between which intervals hold as many rows as they say."""

from __future__ import annotations

import math

import numpy as np

from fourier_head.integrations.scikit_learn.predictive import Floats

SMALLEST_LEVEL = 1e-9


def conformal_levels(levels: Floats, coverage: float) -> Floats:
    """Return the two levels, equally far from 1/2, between which enough calibration rows lie for this coverage.

    Of n rows drawn like new ones the (n + 1) coverage-th in order of their distance from 1/2 gives new ones at least
    this coverage, whatever their distribution is.

    References:
        Chernozhukov et al., Distributional conformal prediction, PNAS 2021.

    >>> conformal_levels(np.linspace(0.3, 0.7, 99), 0.5).round(2)
    array([0.4, 0.6])
    """
    if not 0 < coverage < 1:
        raise ValueError(f"coverage must lie between 0 and 1, got {coverage}.")
    distance = np.sort(np.abs(levels - 0.5))
    place = math.ceil((len(distance) + 1) * coverage)
    # Of too few rows none is far enough out to promise so much.
    half = distance[place - 1] if place <= len(distance) else 0.5
    return np.clip([0.5 - half, 0.5 + half], SMALLEST_LEVEL, 1 - SMALLEST_LEVEL)
