"""What values a series can take, as its past shows: whole numbers, none below zero, none beyond bounds that it hit."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fourier_head.forecasting.rare import USUAL, Rare

FEWEST = 10
"""Values from which on a past says something about what is possible."""
BEYOND = 10.0
"""Visits of values beyond the last one that should have been seen, from which on that is a bound."""


@dataclass(eq=False, repr=False)
class Support:
    """Hold forecasts of many series to values that the series can take.

    Args:
        whole: whether each series takes whole numbers only, shape (series,).
        positive: whether each series never goes below zero, shape (series,).
        rare: how often those series are at another value that mostly are at one, and what they are then.
        bounds: the least value, but for zero, and the largest one that each series can take, shape (2, series);
            infinite where none is known.
        empty: which series hold no value at all, shape (series,).

    Example:
        >>> counts = torch.tensor([0, 2, 0, 0, 1, 0, 5, 0, 0, 1, 0, 0.0])
        >>> support = Support.unknown(2)
        >>> support.read(np.arange(2), torch.stack([counts, counts - 0.5]))
        >>> support.fit(torch.tensor([[-0.2, 0.3, 1.7], [-0.2, 0.3, 1.7]]))
        array([[ 0. ,  0. ,  2. ],
               [-0.2,  0.3,  1.7]], dtype=float32)
    """

    whole: np.ndarray
    positive: np.ndarray
    rare: Rare
    bounds: np.ndarray
    empty: np.ndarray

    @classmethod
    def unknown(cls, count: int) -> Support:
        """Return the support of series that were not read yet: they may take any value."""
        whole, positive, empty = np.zeros((3, count), dtype=bool)
        return cls(whole, positive, Rare(), np.repeat([[-np.inf], [np.inf]], count, axis=1), empty)

    def read(self, numbers: np.ndarray, contexts: Tensor, periods: Tensor | None = None) -> None:
        """Read off the pasts (B, time) of the series with these numbers what they take, NaN where nothing is.

        Args:
            periods: steps of the season (B,) of each, none unless given.
        """
        seen = ~contexts.isnan()
        count = seen.sum(-1)
        low = torch.where(seen, contexts, torch.inf).amin(-1)
        high = torch.where(seen, contexts, -torch.inf).amax(-1)
        whole = (~seen | (contexts == contexts.round())).all(-1)
        enough, moves = count >= FEWEST, low < high
        at_low, at_high = ((contexts == end[:, None]).sum(-1) for end in (low, high))
        usual = torch.maximum(at_low * (low == 0), at_high) >= USUAL * count
        several = torch.maximum(at_low * (low != 0), at_high) ** 2 >= BEYOND
        found = torch.stack(
            [enough & (low >= 0), enough & whole, count == 0, enough & moves & usual, enough & moves & several]
        )
        self.positive[numbers], self.whole[numbers], self.empty[numbers], rare, bounded = found.cpu().numpy()
        top = (at_high > at_low).cpu().numpy()
        for row in np.flatnonzero(rare | bounded):
            values, number = contexts[row].cpu().numpy(), int(numbers[row])
            if rare[row]:
                self.rare.read(number, values, 1 if periods is None else int(periods[row]), bool(top[row]))
            if bounded[row] and number not in self.rare.jumps:  # what those take is known already
                known = values[~np.isnan(values)]
                least = -_bound(-known) if known.min() else -np.inf
                self.bounds[:, number] = least, _bound(known)

    def __getitem__(self, some: slice) -> Support:
        return Support(self.whole[some], self.positive[some], self.rare[some], self.bounds[:, some], self.empty[some])

    def fit(self, values: Tensor) -> np.ndarray:
        """Return quantiles or samples (series, ...) rounded and cut off where that is what the series does."""
        return self.cut(torch.where(_beside(self.whole, values), values.round(), values))

    def mean(self, values: Tensor) -> np.ndarray:
        """Return means (series, horizon) of what outcomes can be, NaN of series without any value."""
        means = self.rare.mean(self.cut(values))
        means[self.empty] = np.nan
        return means

    def edges(self, values: np.ndarray) -> np.ndarray:
        """Return up to where the density has what becomes an outcome of a value (..., series, horizon) at most."""
        return np.where(self.whole[:, None], np.floor(values) + 0.5, values)

    def upto(self, values: np.ndarray, level: np.ndarray) -> np.ndarray:
        """Return the probabilities of outcomes up to values (..., series, horizon), from those of the density."""
        low, high = self.bounds[..., None]
        level = np.where((self.positive[:, None] & (values < 0)) | (values < low), 0.0, level)
        level = self.rare.upto(values, np.where(values >= high, 1.0, level))
        return np.where(np.isnan(values), np.nan, level)

    def levels(self, values: np.ndarray, below: np.ndarray, upto: np.ndarray) -> np.ndarray:
        """Return levels of outcomes (series, horizon), the middles of their jumps, from those of the density.

        Args:
            below, upto: what the density has below each value and up to it.
        """
        low, high = self.bounds[..., None]
        level = (np.where(values <= low, 0.0, below) + np.where(values >= high, 1.0, upto)) / 2
        return self.rare.levels(values, np.where(np.isnan(values), np.nan, level).astype(np.float64))

    def cut(self, values: Tensor) -> np.ndarray:
        """Return values (series, ...), those beyond what the series can take at its end; means need no more."""
        low, high = (_beside(end, values).to(values.dtype) for end in self.bounds)
        # Adding zero turns -0 into 0.
        kept = torch.where(_beside(self.positive, values), values.clamp_min(0), values).add_(0)
        return kept.clamp(low, high).cpu().numpy()


def _bound(values: np.ndarray) -> float:
    """Return the largest of values where it is a bound, infinity where larger ones may well come.

    It is one where it was visited so often, in both halves of the past, that values beyond it should have been seen,
    had each been followed by the next as often as it followed the one before it.

    >>> random = np.random.default_rng(0)
    >>> stars, counts, shares = random.integers(1, 6, 99), random.poisson(3, 99), random.normal(97, 3, 99).clip(max=100)
    >>> _bound(stars), _bound(counts), _bound(shares)
    (5.0, inf, 100.0)
    """
    last = values.max()
    at = values == last
    if at.all() or not (at[: len(at) // 2].any() and at[len(at) // 2 :].any()):
        return np.inf
    before = values == values[~at].max()
    visits, earlier = (int(one[0]) + int((one[1:] & ~one[:-1]).sum()) for one in (at, before))
    return float(last) if visits**2 >= BEYOND * earlier else np.inf


def _beside(which: np.ndarray, values: Tensor) -> Tensor:
    """Return what is known of each series (series,) so that it goes with values (series, ...)."""
    return torch.from_numpy(which).to(values.device).reshape(-1, *(1,) * (values.dim() - 1))
