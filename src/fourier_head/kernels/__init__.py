"""Compute losses of a projected density on a GPU at little more than the cost of the projection.

One kernel reads the rows of a matrix product once and makes both the loss and its gradient; the backward pass is two
more products. Where rows of features fit the chip and the density is the paper's, one kernel multiplies, too, and sums
while the products are still in float32 registers. Nothing of size tokens x bins exists. The reference of `losses/` is
what all must equal.
"""

from fourier_head.kernels.devices import available, interpreted, wanted
from fourier_head.kernels.inference import (
    FEW_COEFFICIENTS,
    FEW_LEVELS,
    coefficient_sample,
    distribution,
    log_density,
    log_pmf,
    ordered_quantiles,
    quantile,
)
from fourier_head.kernels.plan import Score
from fourier_head.kernels.scores import RANKED_FREQUENCIES, row_scores

__all__ = [
    "FEW_COEFFICIENTS",
    "FEW_LEVELS",
    "RANKED_FREQUENCIES",
    "Score",
    "available",
    "coefficient_sample",
    "distribution",
    "interpreted",
    "log_density",
    "log_pmf",
    "ordered_quantiles",
    "quantile",
    "row_scores",
    "wanted",
]
