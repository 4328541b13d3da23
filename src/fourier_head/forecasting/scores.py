"""Scores of forecasts of many series of different lengths at once: MASE, WQL, coverage, PIT; numpy only, no loops.

The formulas and conventions are those of `fourier_head.metrics` (and so of gluonts); here a set of series is one flat
array, so that twenty thousand series take milliseconds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fourier_head.metrics import wql

DECILES = tuple(round(0.1 * i, 1) for i in range(1, 10))
"""Levels of the weighted quantile loss; the one in the middle is the point forecast."""

INTERVALS = (0.5, 0.8, 0.95)
"""Central intervals whose coverage is reported."""
COVERAGES = tuple(f"coverage_{round(100 * share)}" for share in INTERVALS)


def central_levels() -> tuple[float, ...]:
    """Return the deciles and the ends of all intervals, ascending: what a forecaster is best asked for.

    >>> central_levels()
    (0.025, 0.1, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.7, 0.75, 0.8, 0.9, 0.975)
    """
    ends = [round((1 + sign * share) / 2, 9) for share in INTERVALS for sign in (-1, 1)]
    return tuple(sorted({*DECILES, *ends}))


@dataclass(frozen=True)
class Forecast:
    """Forecasts of a set: quantiles at any levels.

    Args:
        quantiles: shape (series, horizon, levels).
        levels: strictly between 0 and 1, ascending.
    """

    quantiles: np.ndarray
    levels: Sequence[float] = DECILES

    def __post_init__(self) -> None:
        quantiles = as_array(self.quantiles)
        levels = tuple(round(float(level), 9) for level in self.levels)
        if quantiles.ndim != 3 or quantiles.shape[-1] != len(levels):
            raise ValueError(
                f"quantiles must have shape (series, horizon, {len(levels)} levels), got {tuple(quantiles.shape)}"
            )
        if not levels or not levels[0] > 0 or not levels[-1] < 1 or list(levels) != sorted(set(levels)):
            raise ValueError(f"levels must ascend strictly between 0 and 1, got {levels}")
        object.__setattr__(self, "quantiles", quantiles)
        object.__setattr__(self, "levels", levels)

    @classmethod
    def from_samples(cls, samples: Any, levels: Sequence[float] = DECILES) -> Forecast:
        """Make a forecast of sample paths, shape (series, paths, horizon)."""
        return cls(quantiles_of_samples(as_array(samples), levels), levels)

    def at(self, *levels: float) -> np.ndarray:
        """Return the quantiles of these levels, shape (series, horizon, levels)."""
        if not {round(level, 9) for level in levels} <= set(self.levels):
            raise ValueError(f"forecasts must have the levels {levels}, got {tuple(self.levels)}")
        return self.quantiles[..., [self.levels.index(round(level, 9)) for level in levels]]


def as_array(values: Any) -> np.ndarray:
    """Return a float64 array of a tensor on any device or of anything numpy takes."""
    if hasattr(values, "detach"):
        values = values.detach().double().cpu().numpy()
    return np.asarray(values, dtype=np.float64)


def quantiles_of_samples(samples: np.ndarray, levels: Sequence[float] = DECILES) -> np.ndarray:
    r"""Return empirical quantiles (series, horizon, levels) of sample paths (series, paths, horizon).

    As gluonts takes them: the sample of rank :math:`\mathrm{round}((n - 1) \tau)`, halves to even, no interpolation.

    Example:
        >>> quantiles_of_samples(np.array([[[3.0], [1.0], [2.0]]]), [0.1, 0.5, 0.9]).tolist()
        [[[1.0, 2.0, 3.0]]]
    """
    if samples.ndim != 3 or samples.shape[1] < 1:
        raise ValueError(f"samples must have shape (series, paths, horizon), got {tuple(samples.shape)}")
    rank = np.round((samples.shape[1] - 1) * np.asarray(levels)).astype(int)
    return np.sort(samples, axis=1)[:, rank].swapaxes(1, 2)


def scales(contexts: Sequence[np.ndarray], season: int | np.ndarray = 1) -> np.ndarray:
    r"""Return the seasonal error of each series, the scale of its MASE: :math:`\mathrm{mean}_t |x_t - x_{t-s}|`.

    Pairs with a missing value are skipped; a series no longer than the season, one for all or one each, has season 1,
    and one without any pair NaN.

    Example:
        >>> scales([np.array([1.0, 2.0]), np.array([0.0, np.nan, 4.0, 1.0]), np.array([7.0])])
        array([ 1.,  3., nan])
    """
    length = np.array([len(one) for one in contexts])
    flat = np.concatenate(contexts).astype(np.float64)
    first = np.cumsum(length) - length
    lag = np.where(length > season, season, 1)
    owner = np.repeat(np.arange(len(length)), length)
    place = np.arange(len(flat))
    late = place - first[owner] >= lag[owner]
    owner, place = owner[late], place[late]
    step = np.abs(flat[place] - flat[place - lag[owner]])
    known = ~np.isnan(step)
    total = np.bincount(owner[known], step[known], len(length))
    count = np.bincount(owner[known], minlength=len(length))
    return np.divide(total, count, out=np.full(len(length), np.nan), where=count > 0)


def mase_of_set(forecast: np.ndarray, target: np.ndarray, scale: np.ndarray) -> float:
    r"""Return the MASE over every observed target of every series whose scale is known and not 0.

    .. math:: \mathrm{mean} \; |y - f| / \mathrm{scale}

    A missing forecast of an observed target makes it NaN.
    """
    usable = np.where(scale > 0, scale, np.nan)[:, None]
    observed = ~np.isnan(target) & ~np.isnan(usable)
    if not observed.any():
        return float("nan")
    return float((np.abs(target - forecast) / usable)[observed].mean())


def observed_frequencies(forecast: Forecast, target: np.ndarray) -> np.ndarray:
    """Return the share of observed targets below each quantile: the levels, when forecasts are calibrated.

    Where quantiles of several levels are one value, and the target is that value, the distribution jumps there, and the
    target stands for all levels of the jump: it counts below each of them in proportion (Czado, Gneiting and Held,
    Predictive Model Assessment for Count Data, 2009). The jump is taken to reach half-way to the next levels.

    Example:
        >>> forecast = Forecast(np.array([[[0.0, 2.0]], [[0.0, 2.0]]]), levels=[0.25, 0.75])
        >>> observed_frequencies(forecast, np.array([[1.0], [3.0]]))
        array([0. , 0.5])
        >>> zeros = Forecast(np.array([[[0.0, 0.0, 2.0]]]), levels=[0.25, 0.5, 0.75])
        >>> observed_frequencies(zeros, np.array([[0.0]]))
        array([0.25, 0.75, 1.  ])
    """
    known = ~np.isnan(target)
    quantiles, y = forecast.quantiles[known], target[known][:, None]
    levels = np.asarray(forecast.levels)
    under, reached = (quantiles < y).sum(-1), (quantiles <= y).sum(-1)
    ends = np.concatenate([[0.0], levels, [1.0]])
    between = (ends[1:] + ends[:-1]) / 2
    # Without a tie both are the same, and a target counts below all levels from there on.
    low, high = between[under][:, None], between[reached][:, None]
    jump = (reached > under)[:, None]
    share = np.clip((levels - low) / np.where(jump, high - low, 1.0), 0, 1)
    return np.where(jump, share, y <= quantiles).mean(0)


def coverages(below: Mapping[float, float]) -> dict[str, Any]:
    """Return the shares of targets inside the central intervals, by what lies below each level; None without its ends.

    >>> coverages({0.1: 0.12, 0.9: 0.89})
    {'coverage_50': None, 'coverage_80': 0.77, 'coverage_95': None}
    """
    ends = [(round((1 - share) / 2, 9), round((1 + share) / 2, 9)) for share in INTERVALS]
    held = [below[high] - below[low] if low in below and high in below else None for low, high in ends]
    return dict(zip(COVERAGES, held, strict=True))


def interval_error(row: dict[str, Any]) -> float | None:
    """Return the mean distance of the coverages of a row from what they should be; None where one is unknown.

    >>> round(interval_error({"coverage_50": 0.53, "coverage_80": 0.78, "coverage_95": 0.94}), 6)
    0.02
    """
    seen = [row.get(key) for key in COVERAGES]
    off = [abs(value - share) for value, share in zip(seen, INTERVALS, strict=True) if value is not None]
    return float(np.mean(off)) if len(off) == len(INTERVALS) else None


def score(
    forecast: Forecast, target: np.ndarray, contexts: Sequence[np.ndarray], season: int, *, allow_missing: bool = False
) -> dict[str, Any]:
    """Return the scores of one set: `mase`, `wql`, coverage of central intervals, `interval_error` and `pit`.

    Coverage is None where the ends of the interval were not forecast. `pit` holds the shares of targets in ten equal
    bins of probability, between the deciles.

    Args:
        target: shape (series, horizon), NaN where missing.
        contexts: what came before, one array per series.
        season: steps per season.
        allow_missing: leave targets without a forecast out instead of refusing them.
    """
    target = as_array(target)
    if forecast.quantiles.shape[:2] != target.shape:
        raise ValueError(f"forecasts must have shape {target.shape} and levels, got {forecast.quantiles.shape}")
    absent = np.isnan(forecast.quantiles).any(-1) & ~np.isnan(target)
    if absent.any():
        if not allow_missing:
            raise ValueError(f"forecasts must not be NaN, got {int(absent.sum())} of {absent.size} values")
        target = np.where(absent, np.nan, target)
    quantiles = np.moveaxis(forecast.at(*DECILES), -1, 0)
    row: dict[str, Any] = {
        "mase": mase_of_set(forecast.at(0.5)[..., 0], target, scales(contexts, season)),
        "wql": wql(quantiles, DECILES, target).item(),
    }
    below = dict(zip(forecast.levels, observed_frequencies(forecast, target).tolist(), strict=True))
    row |= coverages(below)
    row["interval_error"] = interval_error(row)
    row["pit"] = np.diff([below[level] for level in DECILES], prepend=0.0, append=1.0).tolist()
    if absent.any():
        row["without_forecast"] = int(absent.sum())
    return row


def series_errors(
    forecast: Forecast, target: np.ndarray, contexts: Sequence[np.ndarray], season: int | np.ndarray
) -> dict[str, np.ndarray]:
    r"""Return what every series adds to the scores of its set, so that they can be taken of any choice of series.

    .. math:: \mathrm{MASE} = \sum \mathrm{scaled} / \sum \mathrm{count}, \qquad
              \mathrm{WQL} = \sum \mathrm{loss} / \sum \mathrm{size}

    Example:
        >>> forecast = Forecast(np.full((2, 1, 9), 3.0))
        >>> errors = series_errors(forecast, np.array([[1.0], [4.0]]), [np.array([0.0, 2.0])] * 2, season=1)
        >>> errors["scaled"].tolist(), errors["loss"].tolist()
        ([1.0, 0.5], [2.0, 1.0])
    """
    target = as_array(target)
    observed, scale = ~np.isnan(target), scales(contexts, season)
    counted = observed & (scale > 0)[:, None]
    error = np.abs(target - forecast.at(0.5)[..., 0]) / np.where(scale > 0, scale, 1.0)[:, None]
    gap, levels = target[..., None] - forecast.at(*DECILES), np.asarray(DECILES)
    pinball = 2 * np.maximum(levels * gap, (levels - 1) * gap).mean(-1)
    return {
        "scaled": np.where(counted, error, 0.0).sum(1),
        "count": counted.sum(1),
        "loss": np.where(observed, pinball, 0.0).sum(1),
        "size": np.where(observed, np.abs(target), 0.0).sum(1),
    }
