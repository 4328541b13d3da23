"""What other views of a series, given to the same network, add to its forecasts: coarser ones, and the last values."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from fourier_head.forecasting import coarser, recent
from fourier_head.forecasting.path_density import PathDensity
from fourier_head.forecasting.rules import Rules
from fourier_head.forecasting.series_set import SeriesSet


def moved_by_views(
    ruled: Rules, horizon: int, network: Callable[[], PathDensity], ask: Callable[[SeriesSet, int], PathDensity]
) -> tuple[np.ndarray | None, np.ndarray | None]:
    """Return the factor and shift (series, horizon) that views and rules ask for, None where none is.

    Args:
        ruled: what rules made of the series; what views counted for is noted there.
        horizon: steps of the series to forecast.
        network: gives what the network says of the series themselves.
        ask: gives what it says of others, so many steps ahead.
    """
    far = coarser.coarser_views(ruled.series, horizon, ruled.absurd)
    near = recent.recent_views(ruled.series, ruled.absurd)
    if not (far or near):
        return ruled.put_back()
    density, shape = network(), (len(ruled.series), horizon)
    factor, shift = np.ones(shape), np.zeros(shape)
    for view in far:
        rows = view.numbers
        fine = density[torch.from_numpy(rows)].quantile(coarser.LEVELS)
        factor[rows], shift[rows] = view.moves(fine, ask(view.series, view.steps).quantile(coarser.LEVELS))
        ruled.coarser.extend(rows.tolist())
    if near:
        rows, steps = near[0][0], min(horizon, recent.END)
        whole = density[torch.from_numpy(rows)].quantile(recent.LEVELS)[..., :steps]
        seen = [(np.searchsorted(rows, some), ask(view, steps).quantile(recent.LEVELS)) for some, view in near]
        times, plus = recent.moves(whole, seen, horizon)
        shift[rows] += factor[rows] * plus
        factor[rows] *= times
        ruled.recent.extend(rows.tolist())
    return ruled.put_back(factor, shift)
