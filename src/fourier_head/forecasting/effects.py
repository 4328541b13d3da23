r"""What covariates do: taken out of the past by regression, put back into the forecast, where past windows gain by it.

The series is written as what covariates explain and a remainder, :math:`y_t = \beta x_t + r_t`, or, for effects in per
cent, :math:`y_t = e^{\beta x_t} r_t`. The remainder is forecast, and its densities are then moved or stretched by the
effect of the covariates to come. Windows of the past, each with the regression of what came before it, say for every
series whether that is better than no covariates at all.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from fourier_head.forecasting.results import Predict
from fourier_head.forecasting.scores import DECILES
from fourier_head.forecasting.series_set import SeriesSet
from fourier_head.forecasting.windows import Windows, past_windows

WAYS = ("none", "added", "per cent")
WINDOWS = 6
"""Windows of the past that decide."""
WORTH = 3.0
"""Windows that the mean gain over all series counts for, beside those of a series itself."""
ENOUGH = 4
"""Windows from which on a series must gain by itself."""
LEAST_GAIN = 0.01
"""Share of the loss that covariates must save to be used."""
MEAN_SCORE, WIDEST = 0.798, 1.6
"""Mean size of standard normal numbers, and how much wider densities become at most."""
SEEN = 3
"""Times that a flag must have been up, and down, in the past to count."""
PENALTIES = 10.0 ** np.arange(-2, 5)
LONGEST = 4000
"""Values of the past that a regression sees."""
FARTHEST = 1.5
"""Of logarithms of effects in per cent: beyond a factor of 4.5 a regression is not believed."""


@dataclass(frozen=True)
class Effects:
    """What covariates do to each series.

    Args:
        remainders: the series without the effects.
        factor, shift: (series, horizon), which lead from forecasts of the remainder to forecasts of the series.
        ways: how each series uses its covariates: "none", "added" or "per cent".
        gains: share of the loss that each way saved in past windows (series, ways), as it was judged.
        spread: how much wider than said errors were in past windows (series,), 1 where they were not.
    """

    remainders: SeriesSet
    factor: np.ndarray
    shift: np.ndarray
    ways: list[str]
    gains: np.ndarray
    spread: np.ndarray

    def lead_back(self, median: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the factor and shift (series, horizon) that turn densities of the remainder into those of the series.

        A regression is not known exactly, so densities get wider about their median as past windows show.

        Args:
            median: of the remainder (series, horizon).
        """
        factor = self.factor * self.spread[:, None]
        return factor, self.shift + (self.factor - factor) * median


def find_effects(predict: Predict, series: SeriesSet, features: list[np.ndarray], horizon: int) -> Effects:
    """Return what covariates do to each series, nothing where they do not help.

    Args:
        series: what is to be forecast.
        features: of each series (length + horizon, features).
        horizon: steps ahead.
    """
    windows = past_windows(series, horizon, WINDOWS)
    gains, sizes = np.zeros((len(series), len(WAYS))), np.ones((len(series), len(WAYS)))
    if len(windows):
        found = zip(*(_losses(predict, windows, features, way) for way in WAYS), strict=True)
        losses, scores = (np.stack(each, axis=1) for each in found)
        gains = _judge(losses, windows.owner, len(series))
        sizes = (_means(scores, windows.owner, len(series)) / MEAN_SCORE).clip(1, WIDEST)
    chosen = gains.argmax(1)
    spread = np.where(chosen > 0, sizes[np.arange(len(series)), chosen], 1.0)
    values, factor, shift = [], np.ones((len(series), horizon)), np.zeros((len(series), horizon))
    for number, past in enumerate(series.values):
        known, way = _known(features[number], len(past)), WAYS[chosen[number]]
        rest, factor[number], shift[number] = split(past, known, way, int(series.periods[number]))
        values.append(rest)
    return Effects(replace(series, values=values), factor, shift, [WAYS[way] for way in chosen], gains, spread)


def _losses(predict: Predict, windows: Windows, features: list[np.ndarray], way: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean pinball loss and the mean size of normal scores of every window, covariates used one way."""
    horizon = windows.targets.shape[1]
    parts = []
    for number, past in enumerate(windows.pasts.values):
        known = _known(features[windows.owner[number]][: len(past) + horizon], len(past))
        parts.append(split(past, known, way, int(windows.pasts.periods[number])))
    values, factor, shift = zip(*parts, strict=True)
    forecasts = predict(replace(windows.pasts, values=list(values)), horizon)
    quantiles = forecasts.quantiles(DECILES) * np.stack(factor)[..., None] + np.stack(shift)[..., None]
    gap = windows.targets[..., None] - quantiles
    pinball = np.maximum(np.array(DECILES) * gap, (np.array(DECILES) - 1) * gap).mean(-1)
    size = np.abs(forecasts.normal_scores((windows.targets - np.stack(shift)) / np.stack(factor))).clip(0, 3)
    seen = ~np.isnan(pinball)
    count = np.maximum(seen.sum(1), 1e-9)
    return np.where(seen, pinball, 0).sum(1) / count, np.where(seen, size, MEAN_SCORE).mean(1)


def _means(each: np.ndarray, owner: np.ndarray, count: int) -> np.ndarray:
    """Return means over the windows of each series, beside those of all series."""
    total = np.stack([np.bincount(owner, one, count) for one in each.T], axis=1)
    return (total + WORTH * each.mean(0)) / (np.bincount(owner, minlength=count)[:, None] + WORTH)


def _judge(losses: np.ndarray, owner: np.ndarray, count: int) -> np.ndarray:
    """Return what each way saves of the loss of each series (series, ways); -1 where it is not to be used.

    A series has few windows, so the gain of all series together counts beside its own, and what is within the noise of
    either counts as none.
    """
    base = losses[:, :1]
    gain = np.where(base > 0, np.log(np.maximum(base, 1e-300) / np.maximum(losses, 1e-300)), 0.0).clip(-2, 2)
    size = np.bincount(owner, minlength=count)[:, None]
    mean = _means(gain, owner, count)
    error = np.sqrt((_means(gain**2, owner, count) - mean**2).clip(0) / (size + WORTH))
    # With windows enough, a series must gain by itself.
    own = np.where(size >= ENOUGH, (mean * (size + WORTH) - WORTH * gain.mean(0)) / np.maximum(size, 1), mean)
    out = np.where((np.minimum(mean, own) > LEAST_GAIN) & (mean > 0.5 * error), mean, -1.0)
    out[:, 0] = 0.0
    return out


def split(values: np.ndarray, features: np.ndarray, way: str, period: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the remainder of a past, and factor and shift of its future, with covariates used one way.

    Args:
        values: the past (length,).
        features: of past and future (length + horizon, features), no NaN.
        way: "none", "added" or "per cent"; the last only for values above zero.
        period: steps per season.
    """
    length, ahead = len(values), len(features) - len(values)
    one, none = np.ones(ahead), np.zeros(ahead)
    known = values[~np.isnan(values)]
    if way == "none" or not len(known) or (way == "per cent" and not (known >= 0).all()):
        return values, one, none
    offset = 0.0
    y = values
    if way == "per cent":
        offset = float(known.mean()) * 0.05 if (known <= 0).any() else 0.0
        if known.mean() <= 0:
            return values, one, none
        y = np.log(values + offset)
    effect = features @ _coefficients(y, features[:length], period)
    effect = effect - effect[:length].mean()
    if way == "added":
        return values - effect[:length], one, effect[length:]
    effect = effect.clip(-FARTHEST, FARTHEST)
    factor = np.exp(effect)
    return (values + offset) / factor[:length] - offset, factor[length:], offset * (factor[length:] - 1)


def _coefficients(y: np.ndarray, features: np.ndarray, period: int) -> np.ndarray:
    """Return the coefficients of a ridge regression, level and season taken off both sides, by cross-validation."""
    y, features = y[-LONGEST:], features[-LONGEST:]
    good = ~np.isnan(y)
    if good.sum() < 2 * period + 8:
        return np.zeros(features.shape[1])
    filled = np.interp(np.arange(len(y)), np.flatnonzero(good), y[good])
    both = _without_level(np.column_stack([filled, features]), period)[good]
    target, x = both[:, 0], both[:, 1:]
    spread = x.std(0)
    used = spread > 1e-9 * (1 + np.abs(features).max(0))
    if not used.any():
        return np.zeros(features.shape[1])
    x = x[:, used] / spread[used]
    # Extreme values must not decide: drawn in to three deviations of the middle.
    size = 1.4826 * np.median(np.abs(target - np.median(target))) or target.std() or 1.0
    first = _ridge(x, target)
    rest = target - x @ first
    target = x @ first + rest.clip(-4 * size, 4 * size)
    out = np.zeros(features.shape[1])
    out[used] = _ridge(x, target) / spread[used]
    return out


def _without_level(columns: np.ndarray, period: int) -> np.ndarray:
    """Return columns without their slow level, a mean over two seasons, and without the means of its phases."""
    width = 2 * min(max(period, 7), len(columns) // 6) + 1
    kernel = np.ones(width)
    count = np.convolve(np.ones(len(columns)), kernel, mode="same")[:, None]
    level = np.stack([np.convolve(column, kernel, mode="same") for column in columns.T], axis=1) / count
    out = columns - level
    if 1 < period <= len(columns) // 3:
        phase = np.arange(len(columns)) % period
        sums = np.stack([np.bincount(phase, column, period) for column in out.T], axis=1)
        out = out - (sums / np.bincount(phase, minlength=period)[:, None])[phase]
    return out


def _ridge(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return the coefficients with the penalty whose left-out errors are smallest."""
    u, s, v = np.linalg.svd(x, full_matrices=False)
    projected = u.T @ y
    best, chosen = np.inf, np.zeros(x.shape[1])
    for penalty in PENALTIES:
        shrunk = s**2 / (s**2 + penalty)
        leverage = (u**2 @ shrunk).clip(0, 0.99)
        error = float((((y - u @ (shrunk * projected)) / (1 - leverage)) ** 2).mean())
        if error < best:
            best, chosen = error, v.T @ (s / (s**2 + penalty) * projected)
    return chosen


def _known(features: np.ndarray, length: int) -> np.ndarray:
    """Return features with squares of those that are no mere flags, scaled as in the past, nothing missing.

    Flags that the past hardly shows are left out.

    >>> _known(np.array([[0.0, 0.0], [1.0, 1.0], [0.0, 1.0], [1.0, 0.0], [0.0, 1.0], [0.0, 0.0], [1.0, 1.0]]), 6)[-1]
    array([0., 1.])
    """
    past = features[:length]
    seen = ~np.isnan(past)
    count = np.maximum(seen.sum(0), 1)
    mean = np.where(seen, past, 0).sum(0) / count
    spread = np.sqrt(np.where(seen, (past - mean) ** 2, 0).sum(0) / count)
    scaled = (np.where(np.isnan(features), mean, features) - mean) / np.where(spread > 0, spread, 1.0)
    # What the past never saw is not believed to go on for ever.
    low, high = (scaled[:length].min(0), scaled[:length].max(0)) if length else (0.0, 0.0)
    scaled = scaled.clip(low - 0.5, high + 0.5)
    kinds = [np.unique(column[~np.isnan(column)], return_counts=True)[1] for column in past.T]
    # A flag that was up once or twice says more about those days than about itself.
    scaled[:, np.array([len(counts) == 2 and counts.min() < SEEN for counts in kinds], dtype=bool)] = 0.0
    many = np.array([len(counts) > 6 for counts in kinds], dtype=bool)
    return np.column_stack([scaled, scaled[:, many] ** 2])
