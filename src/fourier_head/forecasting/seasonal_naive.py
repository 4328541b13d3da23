"""The forecast that repeats the last season: the baseline every score is divided by."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fourier_head.forecasting.frequency import season_length
from fourier_head.forecasting.scores import DECILES, Forecast

__all__ = ["SeasonalNaive", "repeat_season"]


def repeat_season(contexts: Sequence[np.ndarray], horizon: int, season: int) -> np.ndarray:
    """Return the last season of each series, repeated to the horizon, shape (series, horizon).

    A series shorter than the season repeats its last value; a missing value is repeated as it is, missing.

    Example:
        >>> repeat_season([np.array([1.0, 2.0, 3.0]), np.array([4.0])], horizon=3, season=2)
        array([[2., 3., 2.],
               [4., 4., 4.]])
    """
    length = np.array([len(one) for one in contexts])
    if (length == 0).any():
        raise ValueError("contexts must hold at least one value each, got an empty one")
    end = np.cumsum(length)
    lag = np.where(length >= season, season, 1)
    place = end[:, None] - lag[:, None] + np.arange(horizon) % lag[:, None]
    return np.concatenate(contexts).astype(np.float64)[place]


class SeasonalNaive:
    """Forecast the last season again, the same point at every quantile.

    Published baselines were scored so: WQL is then :math:`sum |y - f| / sum |y|`.

    Args:
        season: steps per season; that of the frequency otherwise.
    """

    def __init__(self, season: int | None = None):
        self.season = season

    def __call__(self, contexts: Sequence[np.ndarray], horizon: int, freq: str | None = None) -> Forecast:
        season = self.season or season_length(freq)
        point = repeat_season(contexts, horizon, season)
        return Forecast(np.repeat(point[..., None], len(DECILES), axis=-1))
