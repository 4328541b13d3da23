"""What values a series can take, as its past shows: whole numbers only, none below zero."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from fourier_head.forecasting.rare import ZEROS, Rare

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
        >>> support.fit(np.array([[-0.2, 0.3, 1.7], [-0.2, 0.3, 1.7]]))
        array([[ 0. ,  0. ,  2. ],
               [-0.2,  0.3,  1.7]])
    """

    def __init__(self, whole: np.ndarray, positive: np.ndarray, rare: Rare | None = None):
        self.whole, self.positive, self.rare = whole, positive, Rare() if rare is None else rare

    @classmethod
    def unknown(cls, count: int) -> Support:
        """Return the support of series that were not read yet: they may take any value."""
        return cls(np.zeros(count, dtype=bool), np.zeros(count, dtype=bool))

    def read(self, numbers: np.ndarray, contexts: Tensor) -> None:
        """Read off the pasts (B, time) of the series with these numbers what they take, NaN where nothing is."""
        seen = ~contexts.isnan()
        values = torch.where(seen, contexts, 0)
        count = seen.sum(-1)
        enough = count >= FEWEST
        self.positive[numbers] = (enough & (values.amin(-1) >= 0)).cpu().numpy()
        self.whole[numbers] = (enough & (values == values.round()).all(-1)).cpu().numpy()
        zeros = (count - (values != 0).sum(-1)) >= ZEROS * count
        for row in np.flatnonzero(zeros.cpu().numpy() & self.positive[numbers] & self.whole[numbers]):
            self.rare.read(int(numbers[row]), contexts[row].cpu().numpy())

    def __getitem__(self, some: slice) -> Support:
        return Support(self.whole[some], self.positive[some], self.rare[some])

    def fit(self, values: np.ndarray) -> np.ndarray:
        """Return quantiles or samples (series, ...) rounded and cut off where that is what the series does."""
        extra = (1,) * (values.ndim - 1)
        return self.cut(np.where(self.whole.reshape(-1, *extra), np.rint(values), values))

    def cut(self, values: np.ndarray) -> np.ndarray:
        """Return values (series, ...), zero where they are negative and the series never is; means need no more."""
        positive = self.positive.reshape(-1, *(1,) * (values.ndim - 1))
        # Adding zero turns -0 into 0.
        return np.where(positive, np.maximum(values, 0), values) + 0
