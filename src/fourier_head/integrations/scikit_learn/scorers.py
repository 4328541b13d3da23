"""Distributions of models inside others, and scorers of them for ``scoring=`` of searches and cross-validation."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.compose import TransformedTargetRegressor
from sklearn.pipeline import Pipeline

from fourier_head.integrations.scikit_learn.predictive import Floats, PredictiveDistribution

LEVELS = (np.arange(200) + 0.5) / 200
"""Of the quantiles by which the score of a transformed target is taken."""
STEP = 1e-4
"""Of the derivative of a transformation, in its units or as a share of a value."""


class TransformedDistribution:
    """Distributions of a target whose transform was predicted."""

    def __init__(self, density: Any, transformer: Any):
        self._density, self._transformer = density, transformer

    def _transform(self, y: Floats) -> Floats:
        return np.asarray(self._transformer.transform(y.reshape(-1, 1)), dtype=np.float64).reshape(y.shape)

    def __len__(self) -> int:
        return len(self._density)

    def logpdf(self, y: ArrayLike) -> Floats:
        """Return the log-density of the target itself, the slope of the transformation taken between two neighbours."""
        y = np.asarray(y, dtype=np.float64)
        step = STEP * np.maximum(np.abs(y), STEP)
        slope = np.abs(self._transform(y + step) - self._transform(y - step)) / (2 * step)
        return self._density.logpdf(self._transform(y)) + np.log(slope)

    def cdf(self, y: ArrayLike) -> Floats:
        """Return P(Y <= y) where the transformation rises."""
        return self._density.cdf(self._transform(np.asarray(y, dtype=np.float64)))

    def quantile(self, levels: float | ArrayLike) -> Floats:
        """Return quantiles at these levels where the transformation rises."""
        found = self._density.quantile(levels)
        return np.asarray(self._transformer.inverse_transform(found.reshape(-1, 1))).reshape(found.shape)

    def interval(self, coverage: float = 0.9) -> Floats:
        """Return the central interval of this probability, (n, 2)."""
        return self.quantile([(1 - coverage) / 2, (1 + coverage) / 2])

    def crps(self, y: ArrayLike) -> Floats:
        """Return the continuous ranked probability score, as a mean over quantiles of their pinball losses."""
        beyond = np.asarray(y, dtype=np.float64)[:, None] - self.quantile(LEVELS)
        return 2 * np.maximum(LEVELS * beyond, (LEVELS - 1) * beyond).mean(1)


def predict_density(estimator: Any, X: ArrayLike) -> PredictiveDistribution | TransformedDistribution:
    """Return the distributions that a model predicts: of the last step of a pipeline, the best model of a search.

    Of ``TransformedTargetRegressor`` they are those of the target itself.
    """
    if isinstance(estimator, Pipeline):
        return predict_density(estimator[-1], estimator[:-1].transform(X) if len(estimator) > 1 else X)
    if isinstance(estimator, TransformedTargetRegressor):
        return TransformedDistribution(predict_density(estimator.regressor_, X), estimator.transformer_)
    if not hasattr(estimator, "predict_density") and hasattr(estimator, "best_estimator_"):
        return predict_density(estimator.best_estimator_, X)
    if not hasattr(estimator, "predict_density"):
        raise TypeError(f"{type(estimator).__name__} predicts no distributions: put a FourierRegressor into it.")
    return estimator.predict_density(X)


def predict_quantiles(estimator: Any, X: ArrayLike, levels: float | ArrayLike = (0.05, 0.5, 0.95)) -> Floats:
    """Return quantiles of what a model predicts, inside a pipeline or a search, too."""
    return predict_density(estimator, X).quantile(levels)


def _mean_score(estimator: Any, X: ArrayLike, y: ArrayLike, sample_weight: Any, name: str) -> float:
    """Return the mean of a score over rows and, where there are several, targets."""
    found, y = predict_density(estimator, X), np.asarray(y, dtype=np.float64)
    each = found if isinstance(found, list) else [found]
    scores = [getattr(density, name)(own) for density, own in zip(each, y.reshape(len(y), -1).T, strict=True)]
    return float(np.average(np.mean(scores, axis=0), weights=sample_weight))


def log_likelihood_scorer(estimator: Any, X: ArrayLike, y: ArrayLike, sample_weight: Any = None) -> float:
    """Return the mean log-density of the targets, in nats; higher is better."""
    return _mean_score(estimator, X, y, sample_weight, "logpdf")


def crps_scorer(estimator: Any, X: ArrayLike, y: ArrayLike, sample_weight: Any = None) -> float:
    """Return minus the mean CRPS of the targets, in their units; higher is better."""
    return -_mean_score(estimator, X, y, sample_weight, "crps")
