"""Scorers of whole distributions, for ``scoring=`` of grid search and cross-validation; higher is better."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.pipeline import Pipeline

from fourier_head.integrations.scikit_learn.predictive import PredictiveDistribution


def log_likelihood_scorer(estimator: Any, X: ArrayLike, y: ArrayLike) -> float:
    """Return the mean log-density of the targets, in nats; of the last step where the estimator is a pipeline."""
    return float(_density(estimator, X).logpdf(np.asarray(y)).mean())


def crps_scorer(estimator: Any, X: ArrayLike, y: ArrayLike) -> float:
    """Return minus the mean CRPS of the targets, in their units; of the last step where the estimator is a pipeline."""
    return -float(_density(estimator, X).crps(np.asarray(y)).mean())


def _density(estimator: Any, X: ArrayLike) -> PredictiveDistribution:
    if isinstance(estimator, Pipeline):
        return _density(estimator[-1], estimator[:-1].transform(X) if len(estimator) > 1 else X)
    if not hasattr(estimator, "predict_density") and hasattr(estimator, "best_estimator_"):
        return _density(estimator.best_estimator_, X)
    return estimator.predict_density(X)
