"""Near ahead in series of minutes and seconds: what the network says of the last values alone counts beside.

Such series are long, and what they did hours ago, at another level or in another state, misleads more than it tells of
the next steps. The same network, given the last values alone, does not see it. Nor does it see a day of minutes well
then, so that series with a clear season keep to the whole past.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from torch import Tensor

from fourier_head.forecasting.coarser import LARGEST, coarser_step
from fourier_head.forecasting.patch.seasons import FURTHER
from fourier_head.forecasting.rules import profile_of
from fourier_head.forecasting.series_set import SeriesSet
from fourier_head.forecasting.windows import cut

VALUES = (1024, 2048)
"""Last values that views have; every view, and the whole past, count alike."""
WHOLE, END = 48, 96
"""Steps ahead up to which views count fully, and from which on for nothing."""
SEASONAL = 1 / 3
"""Share of its last cycle that those before must explain for a season to be clear."""
LEVELS = (0.1, 0.5, 0.9)
"""Quantiles that are averaged: the place of densities and their width."""


def recent_views(series: SeriesSet, leave_out: Sequence[int] = ()) -> list[tuple[np.ndarray, SeriesSet]]:
    """Return the views that count for series of minutes and seconds, the shortest first; a longer past has one each.

    A view is the numbers of some series and their last values. Series with a clear season have none.
    """
    fine = {n for n, one in enumerate(series.calendars) if one is not None and coarser_step(one.freq) is not None}
    long = [n for n in sorted(fine - set(leave_out)) if len(series.values[n]) > VALUES[0]]
    concerned = [n for n in long if not seasonal(series.values[n], int(series.periods[n]))]
    out = []
    for count in VALUES:
        numbers = np.array([n for n in concerned if len(series.values[n]) > count], int)
        if len(numbers):
            chosen = cut(series, numbers, np.zeros(len(numbers), int))
            out.append((numbers, replace(chosen, values=[one[-count:] for one in chosen.values])))
    return out


def seasonal(values: np.ndarray, period: int) -> bool:
    """Tell whether past cycles of a season of a series explain its last one, those of its period or longer ones.

    >>> noise = np.random.default_rng(0).normal(size=4320)
    >>> day = 5 * np.sin(2 * np.pi * np.arange(4320) / 1440)
    >>> seasonal(noise, 1440), seasonal(noise + day, 1440)
    (False, True)
    """
    seasons = (period, *FURTHER.get(period, ()))
    return any(season > 1 and profile_of(values, season, 1, SEASONAL) is not None for season in seasons)


def moves(whole: Tensor, views: Sequence[tuple[np.ndarray, Tensor]], horizon: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the factor and shift (series, horizon) that bring densities to the mean of all views.

    Args:
        whole: quantiles of ``LEVELS`` (levels, series, steps) from the whole past, of ``END`` steps at most.
        views: of each view the numbers of its series, among those of ``whole``, and their quantiles.
        horizon: steps of the series to forecast.

    Example:
        >>> import torch
        >>> quantiles = torch.tensor([-1.0, 0.0, 1.0]).view(3, 1, 1)
        >>> factor, shift = moves(quantiles, [(np.array([0]), 2 * quantiles + 3)], horizon=1)
        >>> factor.tolist(), shift.tolist()
        ([[1.5]], [[1.5]])
    """
    own = whole.double().cpu().numpy()
    total, count = own.copy(), np.ones(own.shape[1])
    for numbers, quantiles in views:
        total[:, numbers] += quantiles.double().cpu().numpy()
        count[numbers] += 1
    mean = total / count[:, None]
    width = own[2] - own[0]
    factor = np.divide(mean[2] - mean[0], width, out=np.ones_like(width), where=width > 0).clip(1 / LARGEST, LARGEST)
    steps = own.shape[2]
    near = ((END - np.arange(1, steps + 1)) / (END - WHOLE)).clip(0, 1)
    factors, shifts = np.ones((own.shape[1], horizon)), np.zeros((own.shape[1], horizon))
    factors[:, :steps] += near * (factor - 1)
    shifts[:, :steps] = near * (mean[1] - factor * own[1])
    return factors, shifts
