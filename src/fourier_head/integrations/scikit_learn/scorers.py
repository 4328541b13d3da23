"""Distributions of models inside others, and scorers of them for ``scoring=`` of searches and cross-validation."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.compose import TransformedTargetRegressor
from sklearn.multioutput import MultiOutputRegressor
from sklearn.pipeline import Pipeline

from fourier_head.integrations.scikit_learn.discrete import DiscreteDistribution
from fourier_head.integrations.scikit_learn.predictive import Floats, PredictiveDistribution

LEVELS = (np.arange(200) + 0.5) / 200
"""Of the quantiles that stand for a transformed target: farther out, exponentials of tails have no mean."""
STEP = 1e-4
"""Of the derivative of a transformation, in its units or as a share of a value."""


class TransformedDistribution(PredictiveDistribution):
    """Distributions of a target whose transform was predicted, by a transformation that rises or falls all along."""

    def __init__(self, density: PredictiveDistribution, transformer: Any):
        self._density, self._transformer = density, transformer
        low, high = self._back(density.quantile([0.25, 0.75])).T
        self._falls = bool((low > high).any())

    def __len__(self) -> int:
        return len(self._density)

    def __getitem__(self, index: Any) -> TransformedDistribution:
        return TransformedDistribution(self._density[index], self._transformer)

    def _transform(self, y: ArrayLike) -> Floats:
        y = np.asarray(y, dtype=np.float64)
        return np.asarray(self._transformer.transform(y.reshape(-1, 1)), dtype=np.float64).reshape(y.shape)

    def _back(self, t: Floats) -> Floats:
        return np.asarray(self._transformer.inverse_transform(t.reshape(-1, 1)), dtype=np.float64).reshape(t.shape)

    def _log_slope(self, y: ArrayLike) -> Floats:
        """Return the logarithm of the slope of the transformation, taken between two neighbours."""
        y = np.asarray(y, dtype=np.float64)
        step = STEP * np.maximum(np.abs(y), STEP)
        return np.log(np.abs(self._transform(y + step) - self._transform(y - step)) / (2 * step))

    def logpdf(self, y: ArrayLike) -> Floats:
        """Return the log-density of the target itself."""
        return self._density.logpdf(self._transform(y)) + self._log_slope(y)

    def cdf(self, y: ArrayLike) -> Floats:
        """Return P(Y <= y)."""
        found = self._density.cdf(self._transform(y))
        return 1 - found if self._falls else found

    def _icdf(self, levels: Floats) -> Floats:
        return self._back(self._density._icdf(1 - levels if self._falls else levels))

    def _points(self) -> tuple[Floats, Floats]:
        """Return equally likely values (n, levels) that were predicted, and those of the target."""
        predicted = self._density.quantile(LEVELS)
        return predicted, self._back(predicted)

    def mean(self) -> Floats:
        """Return the means, over quantiles; exact where the transformation is a straight line."""
        predicted, y = self._points()
        off = predicted - predicted.mean(1, keepdims=True)
        slope = (off * y).sum(1) / np.maximum((off**2).sum(1), np.finfo(float).tiny)
        return y.mean(1) + slope * (self._density.mean() - predicted.mean(1))

    def std(self) -> Floats:
        """Return the standard deviations, over quantiles; tails widen them as they do what was predicted."""
        predicted, y = self._points()
        return y.std(1) * self._density.std() / np.maximum(predicted.std(1), np.finfo(float).tiny)

    def entropy(self) -> Floats:
        """Return the differential entropies in nats; of discrete targets, those of the probabilities."""
        entropy = self._density.entropy()
        discrete = isinstance(self._density, DiscreteDistribution)
        return entropy if discrete else entropy - self._log_slope(self._points()[1]).mean(1)

    def crps(self, y: ArrayLike) -> Floats:
        """Return the continuous ranked probability score, as a mean over quantiles of their pinball losses."""
        beyond = np.asarray(y, dtype=np.float64)[..., None] - self.quantile(LEVELS)
        return 2 * np.maximum(LEVELS * beyond, (LEVELS - 1) * beyond).mean(-1)


def predict_density(estimator: Any, X: ArrayLike) -> Any:
    """Return the distributions that a model predicts: of the last step of a pipeline, the best model of a search.

    Of ``TransformedTargetRegressor`` they are those of the target itself, with the same methods; of several targets, or
    of ``MultiOutputRegressor``, a list.
    """
    if isinstance(estimator, Pipeline):
        return predict_density(estimator[-1], estimator[:-1].transform(X) if len(estimator) > 1 else X)
    if isinstance(estimator, TransformedTargetRegressor):
        density = predict_density(estimator.regressor_, X)
        if isinstance(density, list):
            raise TypeError("several transformed targets have no distributions one by one: take a model for each.")
        return TransformedDistribution(density, estimator.transformer_)
    if isinstance(estimator, MultiOutputRegressor):
        return [predict_density(own, X) for own in estimator.estimators_]
    if not hasattr(estimator, "predict_density") and hasattr(estimator, "best_estimator_"):
        return predict_density(estimator.best_estimator_, X)
    if not hasattr(estimator, "predict_density"):
        raise TypeError(f"{type(estimator).__name__} predicts no distributions: put a FourierRegressor into it.")
    return estimator.predict_density(X)


def predict_quantiles(estimator: Any, X: ArrayLike, levels: float | ArrayLike = (0.05, 0.5, 0.95)) -> Floats:
    """Return quantiles of what a model predicts, inside a pipeline or a search, too; (n, targets, ...) of several."""
    found = predict_density(estimator, X)
    return np.stack([own.quantile(levels) for own in found], 1) if isinstance(found, list) else found.quantile(levels)


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
