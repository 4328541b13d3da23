"""What forecasts say far out, on series whose truth is known: independent values of a few distributions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from fourier_head.forecasting.forecaster import Forecaster
from studies.common.report.summary import Row
from studies.common.results import row

LEVELS = (0.001, 0.005, 0.01, 0.05, 0.95, 0.99, 0.995, 0.999)
SERIES, LENGTH, HORIZON = 40, 200, 14
"""Days that are forecast, and days of each series before them."""
SAMPLES = 2000
MANY = 1_000_000
"""Values drawn of a distribution to know it by."""

TRUTHS: dict[str, Callable[[np.random.Generator, Any], np.ndarray]] = {
    "normal, 100 and 10": lambda random, size: random.normal(100, 10, size),
    "Student t3, 100 and 10": lambda random, size: 100 + 10 * random.standard_t(3, size),
    "lognormal, 100 and 0.5": lambda random, size: 100 * np.exp(0.5 * random.standard_normal(size)),
}
"""Distributions by name: location and scale of the values, or the median and the deviation of their logarithm."""


def summary(values: np.ndarray) -> dict[str, float]:
    """Return quantiles, mean and deviation of values (..., days), and the 99 % level of their totals.

    >>> sorted(summary(np.ones((5, 2))))[-1], summary(np.ones((5, 2)))["total_0.99"]
    ('total_0.99', 2.0)
    """
    found = dict(zip(LEVELS, np.quantile(values, LEVELS), strict=True))
    out = {f"quantile_{level:g}": float(value) for level, value in found.items()}
    total = float(np.quantile(values.sum(-1), 0.99))
    return {**out, "mean": float(values.mean()), "deviation": float(values.std()), "total_0.99": total}


def measure(forecaster: Forecaster, model: str, head: str) -> list[Row]:
    """Return rows of what a forecaster says of independent daily values, and in ``truth`` what holds for them.

    Quantiles and totals are means over series and steps; mean and deviation are those of the densities.
    """
    rows = []
    for name, draw in TRUTHS.items():
        random = np.random.default_rng(0)
        past = draw(random, (SERIES, LENGTH))
        truth = summary(draw(random, (MANY // HORIZON, HORIZON)))
        forecasts = forecaster.predict(past, HORIZON, freq="D", natural=False, progress=False)
        totals = forecasts.samples(SAMPLES, torch.Generator().manual_seed(0)).sum(-1)
        quantiles = forecasts.quantiles(LEVELS).mean((0, 1))
        said = dict(zip((f"quantile_{level:g}" for level in LEVELS), map(float, quantiles), strict=True))
        said |= {
            "mean": float(forecasts.mean.mean()),
            "deviation": float(forecasts.density.stddev.mean()),
            "total_0.99": float(np.quantile(totals, 0.99, axis=1).mean()),
        }
        rows += [row(key, value, dataset=name, head=head, model=model, truth=truth[key]) for key, value in said.items()]
    return rows
