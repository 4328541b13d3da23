"""Widen densities, or draw them in, by how many steps ahead they are, as series that were never trained on ask for.

A network that saw a series again and again knows its far future better than that of a new one, and is too sure of it.
One number for every fourfold of steps is fitted after training, by the loss of training, on sets held out whole.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from fourier_head.forecasting.evaluation import EvaluationSet
from fourier_head.forecasting.frequency import natural_period
from fourier_head.forecasting.patch.multiscale import KNOT, MultiscaleForecaster, spread_at
from fourier_head.forecasting.patch.predict import batches

ROUNDS, RATE = 60, 0.05
"""Of Adam."""
ROWS = 8192
"""Patches whose gradient is taken at a time."""
TOKENS = 16384
"""About so many patches of the past go through the network at a time."""


def fit_spread(model: MultiscaleForecaster, sets: Iterable[EvaluationSet]) -> tuple[float, ...]:
    """Return the logarithms of factors of widths, ``MultiscaleConfig.spread``, with the least loss on sets.

    Args:
        model: a trained network; what it is widened by already counts as nothing.
        sets: series whose last values are the outcomes; a set counts by the root of the number of its series. Without
            one nothing is widened.
    """
    sets = list(sets)
    if not sets:
        return ()
    was, model.config = model.config, replace(model.config, spread=())
    try:
        rows, places, weights = _asked(model.eval(), sets)
    finally:
        model.config = was
    knots = round(math.log(model.config.horizon, KNOT)) + 1
    spread = torch.zeros(knots, device=places.device, requires_grad=True)
    optimizer = torch.optim.Adam([spread], lr=RATE)
    for _ in range(ROUNDS):
        optimizer.zero_grad()
        # The same noise on outcomes in every round.
        with torch.random.fork_rng(devices=[places.device] if places.is_cuda else []):
            torch.manual_seed(0)
            for start in range(0, len(places), ROWS):
                part = slice(start, start + ROWS)
                features, anchor, u, unit = (one[part] for one in rows)
                wide = unit * spread_at(places[part], list(spread)).exp()
                (model.scores(features, anchor, u, unit, wide) * weights[part].unsqueeze(-1)).sum().backward()
        optimizer.step()
    return tuple(round(float(value), 4) for value in spread.detach().cpu())


@torch.no_grad()
def _asked(model: MultiscaleForecaster, sets: Iterable[EvaluationSet]) -> tuple[list[Tensor], Tensor, Tensor]:
    """Return what the network asks of the steps of all series, places of the steps in knots, and weights of rows."""
    patch, device = model.config.patch, next(model.parameters()).device
    rows: list[tuple[Tensor, ...]] = []
    places, weights = [], []
    for one in sets:
        horizon = min(one.horizon, model.config.horizon)
        patches = torch.arange(-(-horizon // patch), device=device)
        futures = np.full((len(one), len(patches) * patch), np.nan, np.float32)
        futures[:, :horizon] = np.stack([x[:horizon] for x in one.targets()])
        own = []
        for numbers, contexts in batches(one.contexts(), model.config.context, patch, TOKENS):
            period = torch.full((len(numbers),), natural_period(one.freq), device=device)
            future = torch.from_numpy(futures[numbers]).to(device)
            own.append(model.asked(contexts.to(device), future, period, patches)[:4])
            places.append(model.places(patches).repeat(len(numbers), 1))
        known = sum(int((~part[2].isnan()).sum()) for part in own)
        weights += [torch.full((len(part[2]),), math.sqrt(len(one)) / max(known, 1), device=device) for part in own]
        rows += own
    return [torch.cat(parts) for parts in zip(*rows, strict=True)], torch.cat(places), torch.cat(weights)
