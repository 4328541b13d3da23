"""A scikit-learn regressor that predicts whole distributions."""

from fourier_head.errors import needing

with needing("sklearn"):
    import sklearn  # noqa: F401

from fourier_head.integrations.scikit_learn.predictive import PredictiveDistribution
from fourier_head.integrations.scikit_learn.regressor import FourierRegressor
from fourier_head.integrations.scikit_learn.scorers import (
    crps_scorer,
    log_likelihood_scorer,
    predict_density,
    predict_quantiles,
)

__all__ = [
    "FourierRegressor",
    "PredictiveDistribution",
    "crps_scorer",
    "log_likelihood_scorer",
    "predict_density",
    "predict_quantiles",
]
