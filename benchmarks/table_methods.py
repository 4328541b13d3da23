"""The methods that ``benchmarks.tables`` compares: each fits rows and returns the distributions of others.

All have the settings that their authors or packages give; none is tuned on a set. Methods that give quantiles only are
read as densities: uniform between two neighbouring quantiles, exponential beyond the outermost ones.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Predict = Callable[[Floats], Any]
"""Of test rows, the distributions: logpdf(y), crps(y), mean(), interval(0.9)."""

NARROWEST = 1e-3
"""Two neighbouring quantiles lie this many deviations of the target apart: those of rounded targets may coincide."""
SHORTEST = 0.05
"""Beyond the outermost quantiles likelihoods fall off over this many deviations of the target at least."""


@dataclass
class Normal:
    """One Gaussian per row."""

    loc: Floats
    scale: Floats

    def logpdf(self, y: Floats) -> Floats:
        return -0.5 * ((y - self.loc) / self.scale) ** 2 - np.log(self.scale) - 0.5 * math.log(2 * math.pi)

    def crps(self, y: Floats) -> Floats:
        from scipy.special import ndtr

        z = (y - self.loc) / self.scale
        density = np.exp(-0.5 * z**2) / math.sqrt(2 * math.pi)
        return self.scale * (z * (2 * ndtr(z) - 1) + 2 * density - 1 / math.sqrt(math.pi))

    def mean(self) -> Floats:
        return self.loc

    def interval(self, coverage: float) -> Floats:
        from scipy.special import ndtri

        half = ndtri((1 + coverage) / 2) * self.scale
        return np.stack([self.loc - half, self.loc + half], 1)


class Quantiles:
    """Distributions through quantiles (rows, levels), uniform between them, exponential beyond.

    >>> uniform = Quantiles(np.array([0.25, 0.5, 0.75]), np.array([[1.0, 2.0, 3.0]]), 0.0)
    >>> np.exp(uniform.logpdf(np.array([1.5]))), uniform.mean(), uniform.interval(0.5)
    (array([0.25]), array([2.]), array([[1., 3.]]))
    """

    def __init__(self, levels: Floats, values: Floats, narrowest: float, mean: Floats | None = None, unit: float = 0.0):
        values = np.sort(values, axis=1)
        # Pushed apart from the middle outwards.
        middle = values.shape[1] // 2
        for i in range(middle + 1, values.shape[1]):
            values[:, i] = np.maximum(values[:, i], values[:, i - 1] + narrowest)
        for i in range(middle - 1, -1, -1):
            values[:, i] = np.minimum(values[:, i], values[:, i + 1] - narrowest)
        self.levels, self.values, self._mean, self.shortest = levels, values, mean, SHORTEST * unit
        share = np.diff(levels)
        # Exponential tails that join the density of the outermost pieces.
        self.low = levels[0] * (values[:, 1] - values[:, 0]) / share[0]
        self.high = (1 - levels[-1]) * (values[:, -1] - values[:, -2]) / share[-1]

    def logpdf(self, y: Floats) -> Floats:
        gap, share = np.diff(self.values, axis=1), np.diff(self.levels)
        place = (y[:, None] >= self.values).sum(1).clip(1, len(share)) - 1
        row = np.arange(len(y))
        inside = np.log(share[place] / gap[row, place])
        low, high = (np.maximum(fall, self.shortest) for fall in (self.low, self.high))
        below = math.log(self.levels[0]) - np.log(low) + np.minimum(y - self.values[:, 0], 0) / low
        above = math.log(1 - self.levels[-1]) - np.log(high) - np.maximum(y - self.values[:, -1], 0) / high
        return np.where(y < self.values[:, 0], below, np.where(y > self.values[:, -1], above, inside))

    def crps(self, y: Floats) -> Floats:
        a, b = self.values[:, :-1], self.values[:, 1:]
        start, end = self.levels[:-1], self.levels[1:]
        cut = np.clip(y[:, None], a, b)
        at = start + (cut - a) / (b - a) * (end - start)

        def squares(width: Floats, u: Floats, v: Floats) -> Floats:
            return width * (u * u + u * v + v * v) / 3

        inner = (squares(cut - a, start, at) + squares(b - cut, 1 - at, 1 - end)).sum(1)
        below = _tail(self.values[:, 0] - y, self.low, self.levels[0])
        return inner + below + _tail(y - self.values[:, -1], self.high, 1 - self.levels[-1])

    def mean(self) -> Floats:
        if self._mean is not None:
            return self._mean
        inner = ((self.values[:, 1:] + self.values[:, :-1]) / 2 * np.diff(self.levels)).sum(1)
        below = self.levels[0] * (self.values[:, 0] - self.low)
        return inner + below + (1 - self.levels[-1]) * (self.values[:, -1] + self.high)

    def interval(self, coverage: float) -> Floats:
        wanted = [(1 - coverage) / 2, (1 + coverage) / 2]
        return np.array([np.interp(wanted, self.levels, row) for row in self.values])


def _tail(beyond: Floats, fall: Floats, mass: float) -> Floats:
    """Return what a tail of this mass adds to the CRPS of a value this far beyond its start, or before it."""
    far = np.maximum(beyond, 0)
    passed = far - 2 * mass * fall * -np.expm1(-far / fall) + mass**2 * fall / 2 * -np.expm1(-2 * far / fall)
    return passed + mass**2 * fall / 2 * np.exp(-2 * far / fall)


class Samples:
    """Distributions through draws (rows, draws), each smoothed for its density by a Gaussian of Silverman's width."""

    def __init__(self, draws: Floats):
        self.draws = np.sort(draws, axis=1)

    def logpdf(self, y: Floats) -> Floats:
        count = self.draws.shape[1]
        spread = np.minimum(self.draws.std(1), np.subtract(*np.quantile(self.draws, [0.75, 0.25], axis=1)) / 1.34)
        width = 0.9 * np.maximum(spread, NARROWEST * self.draws.std()) * count**-0.2
        z = (y[:, None] - self.draws) / width[:, None]
        logs = -0.5 * z**2 - np.log(width)[:, None] - 0.5 * math.log(2 * math.pi) - math.log(count)
        highest = logs.max(1, keepdims=True)
        return (highest + np.log(np.exp(logs - highest).sum(1, keepdims=True)))[:, 0]

    def crps(self, y: Floats) -> Floats:
        count = self.draws.shape[1]
        rank = 2 * np.arange(1, count + 1) - count - 1
        # Half the mean distance between two different draws: without bias for any number of them.
        return np.abs(self.draws - y[:, None]).mean(1) - (rank * self.draws).sum(1) / (count * (count - 1))

    def mean(self) -> Floats:
        return self.draws.mean(1)

    def interval(self, coverage: float) -> Floats:
        return np.quantile(self.draws, [(1 - coverage) / 2, (1 + coverage) / 2], axis=1).T


def _regressor(**options: Any) -> Callable[[Floats, Floats, int], Predict]:
    def fit(X: Floats, y: Floats, seed: int) -> Predict:
        from fourier_head.integrations.scikit_learn import FourierRegressor

        return FourierRegressor(**options, random_state=seed).fit(X, y).predict_density

    return fit


def ngboost(X: Floats, y: Floats, seed: int) -> Predict:
    """NGBoost with a normal distribution and 500 trees."""
    from ngboost import NGBRegressor

    model = NGBRegressor(n_estimators=500, random_state=seed, verbose=False).fit(X, y)

    def predict(rows: Floats) -> Normal:
        found = model.pred_dist(rows)
        return Normal(found.loc, found.scale)

    return predict


def catboost(X: Floats, y: Floats, seed: int) -> Predict:
    """CatBoost with a mean and a variance, 1000 trees."""
    from catboost import CatBoostRegressor

    options = {"loss_function": "RMSEWithUncertainty", "random_seed": seed, "verbose": False, "thread_count": 1}
    model = CatBoostRegressor(**options, allow_writing_files=False).fit(X, y)

    def predict(rows: Floats) -> Normal:
        mean, variance = model.predict(rows).T
        return Normal(mean, np.sqrt(variance))

    return predict


def lightgbm(X: Floats, y: Floats, seed: int) -> Predict:
    """LightGBM with one model for each of nineteen levels."""
    from lightgbm import LGBMRegressor

    levels = np.arange(1, 20) / 20
    options = {"objective": "quantile", "random_state": seed, "verbose": -1, "n_jobs": 1}
    models = [LGBMRegressor(alpha=level, **options).fit(X, y) for level in levels]
    unit = float(y.std())

    def predict(rows: Floats) -> Quantiles:
        with warnings.catch_warnings():  # about names of columns that were never given
            warnings.simplefilter("ignore")
            values = np.stack([model.predict(rows) for model in models], 1)
        return Quantiles(levels, values, NARROWEST * unit, unit=unit)

    return predict


def quantile_forest(X: Floats, y: Floats, seed: int) -> Predict:
    """A quantile regression forest of a hundred trees, read at 99 levels."""
    from quantile_forest import RandomForestQuantileRegressor

    model = RandomForestQuantileRegressor(random_state=seed, n_jobs=1).fit(X, y)
    levels = np.arange(1, 100) / 100
    unit = float(y.std())

    def predict(rows: Floats) -> Quantiles:
        values = np.asarray(model.predict(rows, quantiles=levels.tolist()), dtype=np.float64)
        mean = np.asarray(model.predict(rows, quantiles="mean")).ravel()
        return Quantiles(levels, values, NARROWEST / 5 * unit, mean, unit)

    return predict


def treeffuser(X: Floats, y: Floats, seed: int) -> Predict:
    """Treeffuser, a diffusion model of trees, with 200 draws for each row."""
    from treeffuser import Treeffuser

    from benchmarks.table_diffusion import StepsOfTrees

    model, draws = Treeffuser(seed=seed, n_jobs=1), 200
    model.fit(X, y)
    fitted = model.score_model.models

    def predict(rows: Floats) -> Samples:
        scaled = np.asarray(model._x_scaler.transform(rows), dtype=np.float64)
        model.score_model.models = [StepsOfTrees(own.booster_, scaled, own.best_iteration_) for own in fitted]
        return Samples(np.asarray(model.sample(rows, n_samples=draws, n_parallel=draws)).reshape(draws, len(rows)).T)

    return predict


OURS = ("fourier", "mixture", "linear")
REVISIONS = {"fourier": "5", "mixture": "5", "linear": "5"}
"""Raised by hand whenever a fit would come out otherwise: older rows of a method are not compared with newer ones.

1: one kind of network, chosen by a trial. 2: three kinds mixed and widened by what held-out rows say.
3: widened about the mean until held-out rows lie in it as it says, and less for rows that all networks predict; fewer
steps, and trees of one part for each network. 4, of the mixture alone: widened about the mean of what lies in its
interval; before, a component far outside moved whole predictions. 5: the same fits, faster, whose sums are rounded in
another order.
"""

METHODS: dict[str, Callable[[Floats, Floats, int], Predict]] = {
    "fourier": _regressor(),
    "mixture": _regressor(head="mixture", loss="likelihood"),
    "linear": _regressor(head="linear"),
    "ngboost": ngboost,
    "catboost": catboost,
    "lightgbm": lightgbm,
    "quantile-forest": quantile_forest,
    "treeffuser": treeffuser,
}
