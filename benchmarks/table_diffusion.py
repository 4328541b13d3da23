"""Boosted trees of a diffusion model, asked for the same rows again and again, as tables of steps.

A diffusion model draws by asking its trees for the slope at (y, row, time) in many steps, hundreds of draws for each
row: LightGBM takes minutes of one core for a thousand rows. But in one step all draws of a row share row and time, and
the trees are then a sum of steps in y alone, at no more places than LightGBM has bins. That sum is taken once for all
draws: the same numbers but for rounding, tens of times as fast.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

Floats = NDArray[np.float64]


class _Leaf(NamedTuple):
    """A leaf: its value, between which y and which times it is reached, and by which rows."""

    value: float
    y: tuple[float, float]
    time: tuple[float, float]
    rows: NDArray[np.intp]


def _leaves(node: dict[str, Any], X: Floats, leaf: _Leaf) -> list[_Leaf]:
    """Return the leaves below a node that any of the rows can reach; y is the first column and time the last."""
    if not len(leaf.rows) or leaf.y[0] >= leaf.y[1] or leaf.time[0] >= leaf.time[1]:
        return []
    if "leaf_value" in node:
        return [leaf._replace(value=node["leaf_value"])]
    column, cut = node["split_feature"], node["threshold"]
    if column in (0, X.shape[1] + 1):
        name = "time" if column else "y"
        low, high = getattr(leaf, name)
        sides = [leaf._replace(**{name: ends}) for ends in ((low, min(high, cut)), (max(low, cut), high))]
    else:
        left = X[leaf.rows, column - 1] <= cut
        sides = [leaf._replace(rows=leaf.rows[left]), leaf._replace(rows=leaf.rows[~left])]
    below = zip((node["left_child"], node["right_child"]), sides, strict=True)
    return [found for child, side in below for found in _leaves(child, X, side)]


class StepsOfTrees:
    """Predict (y, rows, time) of a LightGBM model, for some rows that are given again and again.

    Args:
        booster: the model, of columns without gaps.
        X: rows (n, columns).
        trees: how many of the model's trees count; all unless given.
    """

    def __init__(self, booster: Any, X: Floats, trees: int | None = None):
        everywhere = _Leaf(0.0, (-np.inf, np.inf), (-np.inf, np.inf), np.arange(len(X)))
        dumped = booster.dump_model(num_iteration=trees)["tree_info"]
        leaves = [leaf for tree in dumped for leaf in _leaves(tree["tree_structure"], X, everywhere)]
        self._values = np.array([leaf.value for leaf in leaves])
        self._times = np.array([leaf.time for leaf in leaves])
        ends = np.array([leaf.y for leaf in leaves])
        self._cuts = np.unique(ends[np.isfinite(ends)])
        low, high = ends.T
        self._starts = np.where(np.isfinite(low), np.searchsorted(self._cuts, low) + 1, 0)
        self._ends = np.where(np.isfinite(high), np.searchsorted(self._cuts, high) + 1, len(self._cuts) + 1)
        counts = [len(leaf.rows) for leaf in leaves]
        pointers, places = np.cumsum([0, *counts]), np.concatenate([leaf.rows for leaf in leaves])
        shape = len(leaves), len(X)
        self._reached = sparse.csr_array((np.ones(len(places), np.float64), places, pointers), shape=shape)

    def predict(self, columns: Floats, **options: Any) -> Floats:
        """Return predictions of columns (draws * n, 1 + columns + 1): y, the rows over and over, one time for all."""
        y, time = columns[:, 0], columns[0, -1]
        now = np.flatnonzero((self._times[:, 0] < time) & (time <= self._times[:, 1]))
        steps, count = len(self._cuts) + 2, len(now)
        jumps = np.concatenate([self._values[now], -self._values[now]])
        at = np.concatenate([self._starts[now], self._ends[now]]), np.tile(np.arange(count), 2)
        table = (sparse.csr_array((jumps, at), shape=(steps, count)) @ self._reached[now]).toarray().cumsum(0)
        row = np.arange(len(y)) % table.shape[1]
        return table[np.searchsorted(self._cuts, y), row]
