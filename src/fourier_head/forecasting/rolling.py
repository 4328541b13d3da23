"""Forecast any number of steps: in one pass as far as the network reaches, then by going on from quantile paths."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from fourier_head.forecasting.patch.density import ForecastDensity
from fourier_head.forecasting.patch.model import PatchForecaster
from fourier_head.forecasting.patch.output import FourierOutput
from fourier_head.forecasting.patch.scaling import LEAST_DEVIATION, Scale
from fourier_head.forecasting.path_density import PathDensity

LEAST_RATIO = 1e-5
"""Below this ratio of deviation to level, float32 would blur what a series does."""
NOISE = 1e-13
"""Below this one, float64 has: such a series is constant."""
KNOWN_FROM = 12
"""Values from which on a deviation is known well enough to count more than the level; of fewer, the level helps."""


def normalise(context: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return contexts (B, C) that float32 can hold, and the unit and shift (B, 1) that lead back, in float64.

    The unit is a power of two, so it changes nothing but the exponent: forecasts of a series in grams and in tonnes are
    the same. A shift is taken only from series that vary so little about their level that float32 or the network's
    scale, which never falls below a share of the level, would hide it; the level is then brought near enough for the
    variation to be seen, with its sign.

    >>> x, unit, shift = normalise(torch.tensor([[1e12, 1e12 + 1, 1e12 - 1, 1e12]], dtype=torch.float64))
    >>> bool(x.abs().max() < 4), float(unit), bool(shift > 9e11)
    (True, 1.0, True)
    """
    context = context.double()
    seen = ~context.isnan()
    count = seen.sum(-1, keepdim=True)
    values = torch.where(seen, context, 0)
    largest = values.abs().amax(-1, keepdim=True)
    safe = torch.where(largest > 0, largest, 1.0)
    part = values / safe
    mean = part.sum(-1, keepdim=True) / count.clamp_min(1)
    deviation = (torch.where(seen, part - mean, 0).square().sum(-1, keepdim=True) / count.clamp_min(1)).sqrt()
    ratio = deviation / mean.abs().clamp_min(1e-300)
    hidden = (count >= KNOWN_FROM) & (ratio * count < LEAST_DEVIATION)
    shifted = ((count > 2) & (ratio < LEAST_RATIO) | hidden) & (ratio > NOISE)
    level = mean - mean.sign() * deviation * count / 3
    shift = torch.where(shifted, level * safe, 0.0)
    rest = torch.where(seen, context - shift, 0)
    size = rest.abs().amax(-1, keepdim=True)
    exponent = torch.frexp(torch.where(size > 0, size, 1.0)).exponent - 1
    unit = torch.exp2(exponent.clamp(-1000, 1000).double())
    return (context - shift) / unit, unit, shift


def path_levels(paths: int) -> tuple[Tensor, Tensor]:
    """Return the levels of quantile paths and their weights: slices of probability, thinner towards the ends.

    Equal slices would leave the outermost 6 % to one path each, and with nine of them the 95 % interval would shrink
    where the first path begins.

    >>> [(round(float(level), 3), round(float(weight), 3)) for level, weight in zip(*path_levels(3))]
    [(0.13, 0.259), (0.5, 0.481), (0.87, 0.259)]
    """
    t = torch.linspace(0, 1, paths + 1, dtype=torch.float64)
    edges = t * t * (3 - 2 * t)
    return (edges[1:] + edges[:-1]) / 2, edges.diff()


class Rolling:
    """Run the network over batches of contexts and gather what it says about all steps.

    Args:
        model: with a Fourier head.
        horizon: steps wanted, any number.
        paths: possible pasts kept beyond the reach of the network.
    """

    def __init__(self, model: PatchForecaster, horizon: int, paths: int = 9):
        if not isinstance(model.output, FourierOutput):
            raise ValueError("a model with head='quantile' has nine quantiles only; forecasts need head='fourier'.")
        self.model, self.output, self.horizon, self.paths = model, model.output, horizon, paths
        reach = model.config.horizon
        self.sizes = [min(reach, horizon - start) for start in range(0, horizon, reach)]
        self.levels, self.weights = path_levels(paths)
        # Of every batch: numbers of its series, then raw outputs, naive forecasts and scales of every block.
        self._numbers: list[np.ndarray] = []
        self._units: list[tuple[Tensor, Tensor]] = []
        self._blocks: list[list[tuple[Tensor, Tensor, Scale]]] = []

    @torch.inference_mode()
    def add(self, numbers: np.ndarray, contexts: Tensor, periods: Tensor) -> None:
        """Forecast a batch of contexts (B, C), float64, on the device of the model."""
        past, unit, shift = normalise(contexts)
        past = past.float()
        parts, paths = [], 1
        for place, size in enumerate(self.sizes):
            raw, naive, scale = self.model(past, periods.repeat_interleave(paths), size)
            # (B * paths, ...) -> (paths, B, ...)
            raw, naive, loc, spread = (
                x.float().unflatten(0, (-1, paths)).transpose(0, 1) for x in (raw, naive, scale.loc, scale.scale)
            )
            parts.append((raw, naive, Scale(loc, spread, scale.bend)))
            if place + 1 < len(self.sizes):
                density = self.output.density(*parts[-1])
                weights = self.weights if paths > 1 else None
                block = PathDensity([density], torch.ones_like(unit), torch.zeros_like(unit), weights)
                steps = block.quantile(self.levels).float().transpose(0, 1).flatten(0, 1)  # (B * paths, size)
                if paths == 1:
                    paths = self.paths
                    past = past.repeat_interleave(paths, 0)
                past = torch.cat([past, steps], dim=-1)[:, -self.model.config.context :]
        self._numbers.append(numbers)
        self._units.append((unit, shift))
        self._blocks.append(parts)

    def density(self) -> PathDensity:
        """Return the forecast of all series, in the order of their numbers."""
        order = torch.from_numpy(np.argsort(np.concatenate(self._numbers), kind="stable"))
        order = order.to(self._units[0][0].device)

        def gather(parts: Sequence[Tensor], dim: int) -> Tensor:
            return torch.cat(list(parts), dim).index_select(dim, order)

        blocks: list[ForecastDensity] = []
        for k in range(len(self.sizes)):
            each = [parts[k] for parts in self._blocks]
            raw, naive = gather([p[0] for p in each], 1), gather([p[1] for p in each], 1)
            loc, spread = gather([p[2].loc for p in each], 1), gather([p[2].scale for p in each], 1)
            scale = Scale(loc, spread, each[0][2].bend)
            blocks.append(self.output.density(raw, naive, scale))
        units = [gather([pair[i] for pair in self._units], 0) for i in (0, 1)]
        return PathDensity(blocks, units[0], units[1], self.weights if len(blocks) > 1 else None)
