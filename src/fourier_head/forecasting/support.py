"""What values a series can take, as its past shows: whole numbers, none below zero, and how often any but zero."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from fourier_head.forecasting.patch.seasons import FURTHER

ZEROS = 0.8
"""Share of zeros from which on demand is rare."""
HALF_LIFE = 200
"""Steps after which a step of the past counts half."""
REGULAR = 0.5
"""Share of when something was sold that a season explains from which on that is left to the network."""
LASTING = 0.3
"""Correlation of when something was sold with the step before, from which on amounts are those of rain or power."""
CYCLES = 3
"""Cycles of a season that must be there for it to explain anything."""


@dataclass
class Rare:
    """What is known of series whose demand is rare.

    Args:
        rate: of each of these series by its number, the probability that a step is not zero.
        sizes: of each, what it was then, ascending.
    """

    rate: dict[int, float] = field(default_factory=dict)
    sizes: dict[int, np.ndarray] = field(default_factory=dict)

    def read(self, number: int, values: np.ndarray, period: int = 1) -> None:
        """Take a series up where its demand is rare; none of its values is below zero.

        What is sold on Saturdays alone, or in the evening, is not rare then; nor is what falls for days on end, such as
        rain, where values are not whole numbers.

        >>> rare = Rare()
        >>> rare.read(3, np.array([0.0, 0.0, 0.0, 0.0, 0.0, 2.0, 0.0, 0.0, 0.0, 1.0]))
        >>> round(rare.rate[3], 2), rare.quantiles(3, np.array([0.5, 0.85, 0.95]))
        (0.2, array([0., 1., 2.]))
        """
        known = ~np.isnan(values)
        sold = known & (values > 0)
        if not sold.any() or (known & ~sold).sum() < ZEROS * known.sum():
            return
        if any(_explained(sold[known], known, season) >= REGULAR for season in (period, *FURTHER.get(period, ()))):
            return
        if (values[known] % 1).any() and np.corrcoef(sold[known][1:], sold[known][:-1])[0, 1] >= LASTING:
            return
        weight = known * 0.5 ** (np.arange(len(values) - 1, -1, -1) / HALF_LIFE)
        self.rate[number] = float(weight[sold].sum() / weight.sum())
        self.sizes[number] = np.sort(values[sold])

    def __getitem__(self, rows: slice) -> Rare:
        """Return what is known of consecutive series, counted anew."""
        first, last = rows.start or 0, np.inf if rows.stop is None else rows.stop
        kept = [number for number in self.rate if first <= number < last]
        return Rare({n - first: self.rate[n] for n in kept}, {n - first: self.sizes[n] for n in kept})

    def quantiles(self, number: int, level: np.ndarray) -> np.ndarray:
        """Return quantiles of one series at levels of any shape."""
        sizes, rate = self.sizes[number], self.rate[number]
        place = np.ceil((level - (1 - rate)) / rate * len(sizes) - 1e-9) - 1
        return np.where(level > 1 - rate, sizes[place.clip(0, len(sizes) - 1).astype(int)], 0.0)

    def put(self, values: np.ndarray, level: np.ndarray) -> np.ndarray:
        """Return quantiles or samples (series, ...) with those of rare demand in their places, at levels like them."""
        level = np.broadcast_to(level, values.shape)
        for number in self.rate:
            values[number] = self.quantiles(number, level[number])
        return values

    def mean(self, means: np.ndarray) -> np.ndarray:
        """Return means (series, horizon) with those of rare demand in their places."""
        for number, rate in self.rate.items():
            means[number] = rate * self.sizes[number].mean()
        return means

    def upto(self, values: np.ndarray, level: np.ndarray) -> np.ndarray:
        """Return probabilities (..., series, horizon) of outcomes up to values, those of rare demand in their places.

        >>> Rare({0: 0.2}, {0: np.array([1.0, 2.0])}).upto(np.array([[-1.0, 0.0, 1.5]]), np.zeros((1, 3)))
        array([[0. , 0.8, 0.9]])
        """
        for number, rate in self.rate.items():
            x = values[..., number, :]
            share = np.searchsorted(self.sizes[number], x, "right") / len(self.sizes[number])
            level[..., number, :] = np.where(x < 0, 0.0, 1 - rate + rate * share)
        return level

    def levels(self, values: np.ndarray, level: np.ndarray) -> np.ndarray:
        """Return levels (series, horizon) of outcomes, the middles of their jumps where demand is rare."""
        for number, rate in self.rate.items():
            sizes, x = self.sizes[number], values[number]
            below, upto = (np.searchsorted(sizes, x, side) / len(sizes) for side in ("left", "right"))
            middle = np.where(x > 0, 1 - rate + rate * (below + upto) / 2, (1 - rate) / 2)
            level[number] = np.where(np.isnan(x), np.nan, middle)
        return level


def _explained(sold: np.ndarray, known: np.ndarray, season: int) -> float:
    """Return which share of when something was sold the steps of a season explain, chance taken off.

    Args:
        sold: whether it was, at the steps that are known.
        known: which steps are.

    Example:
        >>> saturdays = np.arange(60) % 7 == 5
        >>> every = np.ones(60, dtype=bool)
        >>> [bool(_explained(saturdays, every, season) > 0.5) for season in (7, 5)]
        [True, False]
    """
    if not 1 < season <= len(sold) / CYCLES:
        return 0.0
    phase = (np.arange(len(known)) % season)[known]
    count, hits = np.bincount(phase, minlength=season), np.bincount(phase, sold, minlength=season)
    within, rate = float((hits - hits**2 / np.maximum(count, 1)).sum()), float(sold.mean())
    left, free = within / max(1, len(sold) - int((count > 0).sum())), len(sold) - 1
    total = rate * (1 - rate) * len(sold) / free
    return 1 - left / total if total else 0.0


FEWEST = 10
"""Values from which on a past says something about what is possible."""


class Support:
    """Hold forecasts of many series to values that the series can take.

    Args:
        whole: whether each series takes whole numbers only, shape (series,).
        positive: whether each series never goes below zero, shape (series,).
        rare: how often those series are not zero that mostly are, and how large then.

    Example:
        >>> counts = torch.tensor([0, 2, 0, 0, 1, 0, 5, 0, 0, 1, 0, 0.0])
        >>> support = Support.unknown(2)
        >>> support.read(np.arange(2), torch.stack([counts, counts - 0.5]))
        >>> support.fit(torch.tensor([[-0.2, 0.3, 1.7], [-0.2, 0.3, 1.7]]))
        array([[ 0. ,  0. ,  2. ],
               [-0.2,  0.3,  1.7]], dtype=float32)
    """

    def __init__(self, whole: np.ndarray, positive: np.ndarray, rare: Rare | None = None):
        self.whole, self.positive, self.rare = whole, positive, Rare() if rare is None else rare

    @classmethod
    def unknown(cls, count: int) -> Support:
        """Return the support of series that were not read yet: they may take any value."""
        return cls(np.zeros(count, dtype=bool), np.zeros(count, dtype=bool))

    def read(self, numbers: np.ndarray, contexts: Tensor, periods: Tensor | None = None) -> None:
        """Read off the pasts (B, time) of the series with these numbers what they take, NaN where nothing is.

        Args:
            periods: steps of the season (B,) of each, none unless given.
        """
        seen = ~contexts.isnan()
        values = torch.where(seen, contexts, 0)
        count = seen.sum(-1)
        enough = count >= FEWEST
        positive, whole = enough & (values.amin(-1) >= 0), enough & (values == values.round()).all(-1)
        zeros = (count - (values != 0).sum(-1)) >= ZEROS * count
        self.positive[numbers], self.whole[numbers], rare = (
            torch.stack([positive, whole, zeros & positive]).cpu().numpy()
        )
        for row in np.flatnonzero(rare):
            period = 1 if periods is None else int(periods[row])
            self.rare.read(int(numbers[row]), contexts[row].cpu().numpy(), period)

    def __getitem__(self, some: slice) -> Support:
        return Support(self.whole[some], self.positive[some], self.rare[some])

    def fit(self, values: Tensor) -> np.ndarray:
        """Return quantiles or samples (series, ...) rounded and cut off where that is what the series does."""
        return self.cut(torch.where(_beside(self.whole, values), values.round(), values))

    def edges(self, values: np.ndarray) -> np.ndarray:
        """Return up to where the density has what becomes an outcome of a value (..., series, horizon) at most."""
        return np.where(self.whole[:, None], np.floor(values) + 0.5, values)

    def upto(self, values: np.ndarray, level: np.ndarray) -> np.ndarray:
        """Return the probabilities of outcomes up to values (..., series, horizon), from those of the density."""
        level = self.rare.upto(values, np.where(self.positive[:, None] & (values < 0), 0.0, level))
        return np.where(np.isnan(values), np.nan, level)

    def cut(self, values: Tensor) -> np.ndarray:
        """Return values (series, ...), zero where they are negative and the series never is; means need no more."""
        # Adding zero turns -0 into 0.
        return torch.where(_beside(self.positive, values), values.clamp_min(0), values).add_(0).cpu().numpy()


def _beside(which: np.ndarray, values: Tensor) -> Tensor:
    """Return what is known of each series (series,) so that it goes with values (series, ...)."""
    return torch.from_numpy(which).to(values.device).reshape(-1, *(1,) * (values.dim() - 1))
