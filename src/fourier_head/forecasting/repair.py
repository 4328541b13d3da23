"""Look back at series with a forecaster: values that it did not expect, and gaps filled from both sides."""

from __future__ import annotations

from dataclasses import replace
from numbers import Real
from typing import Any

import numpy as np
import pandas as pd

from fourier_head.forecasting.results import Predict
from fourier_head.forecasting.series_set import NOWHERE, SeriesSet
from fourier_head.forecasting.windows import cut

FAR = 8
"""Steps that a gap is forecast over at least: how intervals grow tells noise from what is not known of the level."""
INNER = 0.6744897501960817
"""The upper quartile of the normal distribution: half an interval of quartiles is so many deviations."""
SHORTEST = 12
"""Values before the first one that may be an anomaly."""


def anomalies(
    predict: Predict, series: SeriesSet, share: float = 0.99, last: int | None = None, steps: int = 1
) -> pd.DataFrame:
    """Return what was expected of past values, and which lie outside of their interval; see `Forecaster.anomalies`."""
    _check_share(share)
    owner, dropped = [], []
    for number, values in enumerate(series.values):
        first = max(SHORTEST, len(values) - (last or len(values)))
        ends = np.arange(first, len(values), steps)
        owner += [number] * len(ends)
        dropped += (len(values) - ends).tolist()
    if not owner:
        raise ValueError(f"no series has more than {SHORTEST} values, which must come before one that is looked at.")
    forecasts = predict(cut(series, owner, dropped), steps)
    levels = [(1 - share) / 2, 0.5, (1 + share) / 2]
    padded = [np.concatenate([values, np.full(steps, np.nan)]) for values in series.values]
    starts = [len(series.values[n]) - d for n, d in zip(owner, dropped, strict=True)]
    seen = np.stack([padded[n][start:][:steps] for n, start in zip(owner, starts, strict=True)])
    low, middle, high = np.moveaxis(forecasts.quantiles(levels), -1, 0)
    content = {
        "value": seen,
        "expected": middle,
        "low": low,
        "high": high,
        "score": forecasts.normal_scores(seen),
        "anomaly": (seen < low) | (seen > high),
    }
    place = np.array(starts)[:, None] + np.arange(steps)
    there = ~np.isnan(seen)
    who = np.repeat(owner, steps).reshape(place.shape)
    return _table(series, who[there], place[there], {key: value[there] for key, value in content.items()})


def impute(predict: Predict, series: SeriesSet, share: float = 0.8) -> pd.DataFrame:
    """Return every step of the series, those that were missing filled in from before and after.

    What follows from the values before a gap, and from those after it in turned time, is averaged, each by how sure it
    is. ``low`` and ``high`` of filled steps are the ends of the interval that should hold the given share of outcomes.
    """
    _check_share(share)
    gaps = [(n, a, b) for n, values in enumerate(series.values) for a, b in _gaps(values)]
    value, low, high = ([one.copy() for one in series.values] for _ in range(3))
    levels = [(1 - share) / 2, 0.25, 0.5, 0.75, (1 + share) / 2]
    for size in sorted({b - a for _, a, b in gaps}):
        some = [(n, a, b) for n, a, b in gaps if b - a == size]
        numbers = [n for n, _, _ in some]
        before = cut(series, numbers, [len(series.values[n]) - a for n, a, _ in some])
        after = replace(
            cut(series, numbers, [0] * len(some)),
            values=[series.values[n][b:][::-1] for n, _, b in some],
            last=[NOWHERE] * len(some),  # turned time has no dates
        )
        both_ways = [predict(one, max(size, FAR)) for one in (before, after)]
        far = [one.quantiles(levels) for one in both_ways]
        sides = [far[0][:, :size], far[1][:, :size][:, ::-1]]
        empty = [np.array([not np.isfinite(x).any() for x in one.values])[:, None] for one in (before, after)]
        width = [np.where(none, np.inf, _deviations(side)) for none, side in zip(empty, sides, strict=True)]
        noise = np.where(empty[0] | empty[1], 0.0, np.minimum(*(_noise(_deviations(side)) for side in far))[:, None])
        noise = np.minimum(noise, 0.99 * np.minimum(*width) ** 2)
        total = np.maximum(sum(w**-2.0 for w in width), 1e-300)
        shares = [w**-2.0 / total for w in width]
        middle = sum(s * side[..., 2] for s, side in zip(shares, sides, strict=True))
        # Only what both sides do not know of the level is less for there being two of them.
        both = np.sqrt(noise + 1 / np.maximum(sum(1 / (w**2 - noise) for w in width), 1e-300))
        reach = []
        for end in (0, 4):
            off = [np.abs(side[..., end] - side[..., 2]) for side in sides]
            reach.append(both * sum(s * one / w for s, one, w in zip(shares, off, width, strict=True)))
        # What a series can take is seen in all of it; the values of one side may be too few, or happen to be whole.
        kinds = [one.support for one in both_ways]
        whole, positive = kinds[0].whole | kinds[1].whole, kinds[0].positive | kinds[1].positive
        least = np.maximum(kinds[0].bounds[0], kinds[1].bounds[0])
        most = np.minimum(kinds[0].bounds[1], kinds[1].bounds[1])
        for i, (n, a, b) in enumerate(some):
            known = series.values[n][~np.isnan(series.values[n])]
            ends = [middle[i], middle[i] - reach[0][i], middle[i] + reach[1][i]]
            if whole[i] and not (known % 1).any():
                ends = [end.round() for end in ends]
            if positive[i] and known.min() >= 0:
                ends = [end.clip(0) for end in ends]
            if least[i] <= known.min() and known.max() <= most[i]:
                ends = [end.clip(least[i], most[i]) for end in ends]
            value[n][a:b], low[n][a:b], high[n][a:b] = ends
    lengths = [len(one) for one in series.values]
    who, place = np.repeat(np.arange(len(lengths)), lengths), np.concatenate([np.arange(n) for n in lengths])
    missing = np.isnan(np.concatenate(series.values))
    content = {"value": value, "low": low, "high": high}
    columns = {key: np.concatenate(each) for key, each in content.items()}
    return _table(series, who, place, columns | {"filled": missing})


def _check_share(share: Any) -> None:
    if not isinstance(share, Real) or not 0 < float(share) < 1:
        raise ValueError(f"share must be a number between 0 and 1, got {share!r}.")


def _deviations(quantiles: np.ndarray) -> np.ndarray:
    """Return standard deviations of quantiles (..., 5), by the middle half of outcomes."""
    return np.maximum(quantiles[..., 3] - quantiles[..., 1], 1e-12) / (2 * INNER)


def _noise(deviations: np.ndarray) -> np.ndarray:
    """Return the variance (series,) that is there at every step: what does not grow from the first to the last.

    >>> _noise(np.sqrt([[5.0, 6.0, 7.0], [1.0, 2.0, 3.0], [4.0, 4.0, 4.0]])).round(6)
    array([4., 0., 4.])
    """
    first, last, steps = deviations[:, 0] ** 2, deviations[:, -1] ** 2, deviations.shape[1]
    return np.clip((steps * first - last) / (steps - 1), 0.0, first)


def _gaps(values: np.ndarray) -> list[tuple[int, int]]:
    """Return where missing values begin and end, in a series that has any other.

    >>> _gaps(np.array([np.nan, 1, np.nan, np.nan, 2]))
    [(0, 1), (2, 4)]
    """
    missing = np.isnan(values)
    if missing.all():
        return []
    edges = np.flatnonzero(np.diff(np.concatenate([[0], missing.astype(int), [0]])))
    return [(int(a), int(b)) for a, b in edges.reshape(-1, 2)]


def _table(series: SeriesSet, who: np.ndarray, place: np.ndarray, columns: dict[str, np.ndarray]) -> pd.DataFrame:
    """Return a long table: names, moments or numbers of steps from 0, and the columns."""
    content: dict[str, Any] = {**series.names_by_column([series.names[number] for number in who])}
    if series.timed:
        times = {int(n): series.past(int(n), len(series.values[n])) for n in np.unique(who)}
        moments = np.array([times[int(n)][p] for n, p in zip(who, place, strict=True)], dtype="datetime64[ns]")
        content[series.time_column] = series.zoned(pd.DatetimeIndex(moments))
    else:
        content["step"] = place
    return pd.DataFrame(content | columns)
