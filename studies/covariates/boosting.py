"""Gradient boosting on lags, covariates and the calendar: what people do with such tables without a forecaster."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fourier_head.forecasting.frequency import natural_period
from fourier_head.forecasting.scores import DECILES

if TYPE_CHECKING:
    import pandas as pd


def boosted_quantiles(past: pd.DataFrame, future: pd.DataFrame, freq: str) -> np.ndarray:
    """Return deciles (horizon, 9) of one series: a model for each, on values a horizon ago and before.

    Args:
        past: time, y and covariates of one series.
        future: the same without y.
        freq: of the steps.
    """
    import pandas as pd
    from sklearn.ensemble import HistGradientBoostingRegressor

    horizon, period = len(future), natural_period(freq)
    table = pd.concat([past, future], ignore_index=True)
    y = table["y"]
    season = period * -(-horizon // period)
    lags = {f"lag {lag}": y.shift(lag) for lag in (horizon, horizon + 1, season, season + period, season + 2 * period)}
    means = {f"mean of {size}": y.shift(horizon).rolling(size).mean() for size in (period, 4 * period)}
    time = table["time"].dt
    calendar = {"hour": time.hour, "weekday": time.weekday, "day of year": time.dayofyear}
    x = table.drop(columns=["y", "time"]).assign(**lags, **means, **calendar).to_numpy(dtype=float)
    known = (np.arange(len(table)) < len(past)) & y.notna().to_numpy()
    out = []
    for level in DECILES:
        model = HistGradientBoostingRegressor(loss="quantile", quantile=level, max_iter=100, random_state=0)
        out.append(model.fit(x[known], y[known]).predict(x[len(past) :]))
    return np.sort(np.stack(out, axis=-1), axis=-1)
