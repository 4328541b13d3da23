"""Boosted trees before a network: what they say of rows that they have not seen."""

from __future__ import annotations

import importlib.util
import warnings
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.ensemble import ExtraTreesRegressor, HistGradientBoostingRegressor

from fourier_head.tabular.columns import Floats

PARTS = 4
TREES, RATE = 200, 0.075
FEWEST_LEAVES, MOST_LEAVES, ROWS_PER_LEAF = 15, 127, 60
STAGES = (20, 70)
"""Trees after which the prediction is taken, too: where it still moves later, leaves are fine and rows few."""
FOREST, FOREST_ROWS = 60, 20_000
"""Trees of the forest, and the most rows that one of them sees."""
ALONE = 2000
"""With fewer rows one thread grows boosted trees: several wait for each other, minutes on a machine that is busy."""
MISS_TREES, MISS_LEAVES = 70, 31
"""Trees that say how far off the others are, which is less to learn."""


class Boosting:
    """Fit trees to parts of the rows, and describe each row by the trees that have not seen it.

    Boosted trees say what target to expect, all of them and the first of them, and how far off that is. A forest of
    trees cut at random says the mean and the deviation of the targets in its leaves. LightGBM where it is installed,
    else scikit-learn's histogram boosting; all take gaps (NaN) as they are.

    Args:
        X: rows of training (n, columns).
        y: targets of size one.
        weights: of the rows.
        categorical: which columns hold categories, as codes.
        seed: of the parts and the trees.
    """

    def __init__(self, X: Floats, y: Floats, weights: Floats, categorical: NDArray[np.bool_] | None, seed: int):
        self._categorical = np.flatnonzero(categorical) if categorical is not None else np.arange(0)
        part = np.random.RandomState(seed).permutation(len(y)) % min(PARTS, len(y))
        self._seed, self._rows = seed, len(y)
        self._means = [self._fit(X, y, weights, part != k) for k in range(part.max() + 1)]
        means = np.zeros((len(y), len(STAGES) + 1))
        for k, model in enumerate(self._means):
            means[part == k] = _stages(model, X[part == k])
        miss = np.abs(y - means[:, 0])
        self._misses = [self._fit(X, miss, weights, part != k, MISS_TREES, MISS_LEAVES) for k in range(part.max() + 1)]
        for k, model in enumerate(self._misses):
            miss[part == k] = model.predict(X[part == k])
        share = min(1.0, FOREST_ROWS / len(y))
        self._forest = ExtraTreesRegressor(
            FOREST,
            bootstrap=True,
            min_samples_leaf=2,
            max_samples=share,
            oob_score=True,
            n_jobs=torch.get_num_threads(),
            random_state=seed,
        )
        with warnings.catch_warnings():  # of a few rows, some may be in all trees
            warnings.simplefilter("ignore")
            self._forest.fit(X, np.column_stack([y, y**2]), sample_weight=weights)
        inputs = np.column_stack([means, miss, _spread(self._forest.oob_prediction_)])
        self._mean, self._unit = inputs.mean(0), np.maximum(inputs.std(0), 1e-9)
        self.out_of_fold = self._scaled(inputs)
        """Inputs (n, columns) of the rows of training, in deviations, each from trees that have not seen the row."""

    def _fit(
        self,
        X: Floats,
        y: Floats,
        weights: Floats,
        rows: NDArray[np.bool_],
        trees: int = TREES,
        most: int = MOST_LEAVES,
    ) -> Any:
        least = int(np.clip(self._rows / 100, 3, 20))
        if rows.sum() < 2 * least:  # too few for two leaves, and LightGBM refuses a single one
            rows = rows if rows.any() else np.ones_like(rows)
            return _Constant(float(np.average(y[rows], weights=weights[rows])))
        leaves = int(np.clip(self._rows / ROWS_PER_LEAF, FEWEST_LEAVES, most))
        if importlib.util.find_spec("lightgbm"):
            import lightgbm

            options: dict[str, Any] = {"learning_rate": RATE, "num_leaves": leaves, "min_data_in_leaf": least}
            options |= {"bagging_fraction": 0.8, "bagging_freq": 1, "feature_fraction": 0.8, "seed": self._seed}
            options |= {"num_threads": 1 if self._rows < ALONE else torch.get_num_threads(), "verbose": -1}
            named: list[int] | Literal["auto"] = self._categorical.tolist() or "auto"
            table = lightgbm.Dataset(
                X[rows], y[rows], weight=weights[rows], categorical_feature=named, params=options, free_raw_data=True
            )
            # Else trees are written to text and read again, which takes a fifth of the time of a small fit.
            return lightgbm.train(options, table, trees, keep_training_booster=True).free_dataset()
        options = {"max_iter": trees, "learning_rate": RATE, "max_leaf_nodes": leaves, "min_samples_leaf": least}
        model = HistGradientBoostingRegressor(**options, early_stopping=False, random_state=self._seed)
        return model.fit(X[rows], y[rows], sample_weight=weights[rows])

    def _scaled(self, inputs: Floats) -> NDArray[np.float32]:
        return np.clip((inputs - self._mean) / self._unit, -10, 10).astype(np.float32)

    def versions(self, X: Floats) -> NDArray[np.float32]:
        """Return the inputs of new rows (parts, n, columns), one by one from the trees that left out a part.

        Each version is as good as the inputs of the rows of training; their mean would be better.
        """
        forest = _spread(self._forest.predict(X))
        said = [
            np.column_stack([_stages(means, X), misses.predict(X), forest])
            for means, misses in zip(self._means, self._misses, strict=True)
        ]
        return np.stack([self._scaled(inputs) for inputs in said])


class _Constant:
    """Predict one number for all rows."""

    def __init__(self, value: float):
        self._value = value

    def predict(self, X: Floats, num_iteration: int | None = None) -> Floats:
        return np.full(len(X), self._value)


def _spread(moments: Floats) -> Floats:
    """Return means and deviations from the first two moments (n, 2)."""
    mean, second = moments.T
    return np.column_stack([mean, np.sqrt(np.maximum(second - mean**2, 0))])


def _stages(model: Any, X: Floats) -> Floats:
    """Return predictions of all trees, and of the first ones (n, 1 + stages)."""
    if hasattr(model, "staged_predict"):
        found = {i + 1: value for i, value in enumerate(model.staged_predict(X)) if i + 1 in STAGES}
        return np.column_stack([model.predict(X), *(found[count] for count in STAGES)])
    return np.column_stack([model.predict(X), *(model.predict(X, num_iteration=count) for count in STAGES)])
