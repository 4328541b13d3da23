"""Far ahead in series of minutes and seconds: the level of a coarser view, means over several steps, counts beside.

Hundreds of such steps are a short time of what the series does, of which the network sees the far past in coarse
patches only. The same network, given means over some steps as a series of their own, sees more of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from fourier_head.forecasting.frequency import parse_frequency
from fourier_head.forecasting.inputs import read_series
from fourier_head.forecasting.series_set import SeriesSet

SECONDS = {"second": 1, "minute": 60}
COARSER = {10: "10s", 60: "1min", 600: "10min"}
"""Steps of coarser views by their seconds: frequencies whose seasons the network knows."""
LONGEST = 60
"""Seconds of a step: longer ones gain nothing by a coarser view."""
FEWEST = 4
"""Steps in one of the coarser view."""
BEGIN, WHOLE = 48, 192
"""Steps ahead up to which the coarser view counts for nothing, and from which on it counts fully."""
SHARE = 1 / 3
"""What the coarser view counts for then."""
LARGEST = 3.0
"""Factor by which a level is changed at most."""
LEVELS, WEIGHTS = (0.1, 0.5, 0.9), (0.3, 0.4, 0.3)
"""Quantiles whose weighted sum is near the mean of skewed densities, too, whatever their tails (Swanson's rule)."""


def coarser_step(freq: str | None) -> tuple[int, str] | None:
    """Return how many steps of a frequency are one of a coarser view, and the frequency of that; None where none is.

    >>> [coarser_step(freq) for freq in ("s", "10s", "1min", "5min", "h", None)]
    [(10, '10s'), (6, '1min'), (10, '10min'), None, None, None]
    """
    count, unit = parse_frequency(freq or "") or (0, "")
    seconds = count * SECONDS.get(unit, 0)
    if not 0 < seconds <= LONGEST:
        return None
    step = next(step for step in COARSER if step % seconds == 0 and step >= FEWEST * seconds)
    return step // seconds, COARSER[step]


@dataclass(frozen=True)
class CoarserView:
    """Some series, as means over several steps.

    Args:
        numbers: of the series that it is of.
        size: steps in one of the view.
        series: the means.
        positive: which of the series never were below zero: their levels are changed by a factor, others by a shift.
        horizon: steps of the series to forecast.
    """

    numbers: np.ndarray
    size: int
    series: SeriesSet
    positive: np.ndarray
    horizon: int

    @property
    def steps(self) -> int:
        """Steps of the view to forecast."""
        return -(-self.horizon // self.size)

    def moves(self, fine: Tensor, coarse: Tensor) -> tuple[np.ndarray, np.ndarray]:
        """Return the factor and shift (series, horizon) that bring forecasts nearer to the level of this view.

        Args:
            fine, coarse: quantiles of ``LEVELS`` (levels, series, steps) of the series and of the view.
        """
        level, other = (np.tensordot(WEIGHTS, self._possible(q.double().cpu().numpy()), 1) for q in (fine, coarse))
        short = self.steps * self.size - self.horizon
        level = np.pad(level, ((0, 0), (0, short)), mode="edge").reshape(len(level), self.steps, self.size).mean(2)
        known = self.positive[:, None] & (level > 0)
        ratio = np.divide(other, level, out=np.ones_like(level), where=known)
        # Straight between the middles of coarse steps, so that no jump divides one from the next.
        step = np.arange(1, self.horizon + 1)
        place, middles = (step - 0.5) / self.size, np.arange(self.steps) + 0.5
        rise = (np.log(step / BEGIN) / np.log(WHOLE / BEGIN)).clip(0, 1)
        factors = (1 + SHARE * (ratio - 1)).clip(1 / LARGEST, LARGEST)
        shifts = np.where(known, 0.0, SHARE * (other - level))
        factor, shift = (np.stack([np.interp(place, middles, row) for row in each]) for each in (factors, shifts))
        return 1 + rise * (factor - 1), rise * shift

    def _possible(self, quantiles: np.ndarray) -> np.ndarray:
        """Return quantiles (levels, series, steps), none below zero where no value was."""
        return np.where(self.positive[:, None], quantiles.clip(0), quantiles)


def coarser_views(series: SeriesSet, horizon: int, leave_out: Sequence[int] = ()) -> list[CoarserView]:
    """Return the coarser views that count for forecasts of so many steps, one for each frequency that has one.

    Series with fewer values than steps to forecast have none.
    """
    if horizon <= BEGIN:
        return []
    freqs = [None if one is None else one.freq for one in series.calendars]
    out = []
    for freq in dict.fromkeys(freqs):
        if (found := coarser_step(freq)) is None:
            continue
        size, coarse = found
        numbers = [n for n in range(len(series)) if freqs[n] == freq and len(series.values[n]) >= horizon]
        numbers = sorted(set(numbers) - set(leave_out))
        if numbers:
            values = [series.values[n] for n in numbers]
            positive = np.array([bool((one[~np.isnan(one)] >= 0).all()) for one in values])
            means = read_series([_means(one, size) for one in values], freq=coarse)
            out.append(CoarserView(np.array(numbers), size, means, positive, horizon))
    return out


def _means(values: np.ndarray, size: int) -> np.ndarray:
    """Return means over so many values that are there, the last ones ending with the series; NaN where none is.

    >>> _means(np.array([9.0, 1.0, 3.0, np.nan, 4.0, np.nan, np.nan]), 2)
    array([ 2.,  4., nan])
    """
    parts = values[len(values) % size :].reshape(-1, size)
    there = ~np.isnan(parts)
    count = there.sum(1)
    return np.divide(np.where(there, parts, 0.0).sum(1), count, out=np.full(len(parts), np.nan), where=count > 0)
