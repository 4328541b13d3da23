"""Boosted trees before a network: what they say of rows that they have not seen."""

from __future__ import annotations

import importlib.util
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fourier_head.integrations.scikit_learn.predictive import Floats

FOLDS = 5
TREES, RATE, LEAVES = 300, 0.05, 31
STAGES = (30, 100)
"""Trees after which the prediction is taken, too: where it still moves later, leaves are fine and rows few."""


class Boosting:
    """Fit boosted trees to parts of the rows, and describe each row by the trees that have not seen it.

    Each row gets the prediction of its target by all trees and by the first of them, and the prediction of how far off
    that is. New rows get the mean over the parts. LightGBM where it is installed, else scikit-learn's histogram
    boosting; both take gaps (NaN) as they are.

    Args:
        X: rows of training (n, columns).
        y: targets of size one.
        weights: of the rows.
        categorical: which columns hold categories, as codes.
        seed: of the parts and the trees.
    """

    def __init__(self, X: Floats, y: Floats, weights: Floats, categorical: NDArray[np.bool_] | None, seed: int):
        self._categorical = np.flatnonzero(categorical) if categorical is not None else np.arange(0)
        part = np.random.RandomState(seed).permutation(len(y)) % min(FOLDS, len(y))
        self._seed, self._rows = seed, len(y)
        self._means = [self._fit(X, y, weights, part != k) for k in range(part.max() + 1)]
        inputs = np.zeros((len(y), len(STAGES) + 2), dtype=np.float64)
        for k, model in enumerate(self._means):
            inputs[part == k, :-1] = _stages(model, X[part == k])
        miss = np.abs(y - inputs[:, 0])
        self._misses = [self._fit(X, miss, weights, part != k, TREES // 3) for k in range(part.max() + 1)]
        for k, model in enumerate(self._misses):
            inputs[part == k, -1] = model.predict(X[part == k])
        self._mean, self._unit = inputs.mean(0), np.maximum(inputs.std(0), 1e-9)
        self.out_of_fold = self._scaled(inputs)
        """Inputs (n, columns) of the rows of training, in deviations, each from trees that have not seen the row."""

    def _fit(self, X: Floats, y: Floats, weights: Floats, rows: NDArray[np.bool_], trees: int = TREES) -> Any:
        least = int(np.clip(self._rows / 100, 3, 20))
        if importlib.util.find_spec("lightgbm"):
            from lightgbm import LGBMRegressor

            options: dict[str, Any] = {"n_estimators": trees, "learning_rate": RATE, "num_leaves": LEAVES}
            options |= {"min_child_samples": least, "subsample": 0.8, "subsample_freq": 1, "colsample_bytree": 0.8}
            model: Any = LGBMRegressor(**options, random_state=self._seed, n_jobs=1, verbose=-1)
            named = self._categorical.tolist() or "auto"
            return model.fit(X[rows], y[rows], sample_weight=weights[rows], categorical_feature=named).booster_
        from sklearn.ensemble import HistGradientBoostingRegressor

        options = {"max_iter": trees, "learning_rate": RATE, "max_leaf_nodes": LEAVES, "min_samples_leaf": least}
        model = HistGradientBoostingRegressor(**options, early_stopping=False, random_state=self._seed)
        return model.fit(X[rows], y[rows], sample_weight=weights[rows])

    def _scaled(self, inputs: Floats) -> NDArray[np.float32]:
        return np.clip((inputs - self._mean) / self._unit, -10, 10).astype(np.float32)

    def __call__(self, X: Floats) -> NDArray[np.float32]:
        """Return the inputs of new rows."""
        means = np.mean([_stages(model, X) for model in self._means], axis=0)
        miss = np.mean([model.predict(X) for model in self._misses], axis=0)
        return self._scaled(np.column_stack([means, miss]))


def _stages(model: Any, X: Floats) -> Floats:
    """Return predictions of all trees, and of the first ones (n, 1 + stages)."""
    if hasattr(model, "staged_predict"):
        found = {i + 1: value for i, value in enumerate(model.staged_predict(X)) if i + 1 in STAGES}
        return np.column_stack([model.predict(X), *(found[count] for count in STAGES)])
    return np.column_stack([model.predict(X), *(model.predict(X, num_iteration=count) for count in STAGES)])
