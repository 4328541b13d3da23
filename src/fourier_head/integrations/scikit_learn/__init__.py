"""A scikit-learn regressor that predicts whole distributions."""

from fourier_head.errors import needs_extra

try:
    import sklearn  # noqa: F401
except ImportError as error:
    raise needs_extra(error, "sklearn") from None

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
