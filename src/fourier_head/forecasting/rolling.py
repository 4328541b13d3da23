"""Forecast any number of steps: in one pass as far as the network reaches, then by going on from quantile paths."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from fourier_head.densities.mixture import MixtureDensity
from fourier_head.densities.scalar import ScalarDensity
from fourier_head.domains.maps import Affine, Asinh, ValueMap
from fourier_head.forecasting.patch.multiscale import MultiscaleForecaster
from fourier_head.forecasting.patch.scaling import LEAST_DEVIATION
from fourier_head.forecasting.path_density import PathDensity
from fourier_head.fourier.series import exporting

LEAST_RATIO = 1e-5
"""Below this ratio of deviation to level, float32 would blur what a series does."""
NOISE = 1e-13
"""Below this one, float64 has: such a series is constant."""
KNOWN_FROM = 12
"""Values from which on a deviation is known well enough to count more than the level; of fewer, the level helps."""
FEWEST = 3
"""Values from which on there is a deviation: two only have a distance."""
LEVEL_LEFT = 1 / 3
"""Level that is left of a shifted series, in deviations for each of its values: at so much, the least scale that the
network takes from the level is a tenth of the deviation."""
LARGEST_EXPONENT = 1000
"""Powers of two up to here and their reciprocals are both numbers of float64, with all digits."""


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
    ratio = deviation / mean.abs().clamp_min(torch.finfo(torch.float64).tiny)
    hidden = (count >= KNOWN_FROM) & (ratio * count < LEAST_DEVIATION)
    shifted = ((count >= FEWEST) & (ratio < LEAST_RATIO) | hidden) & (ratio > NOISE)
    level = mean - mean.sign() * deviation * count * LEVEL_LEFT
    shift = torch.where(shifted, level * safe, 0.0)
    rest = torch.where(seen, context - shift, 0)
    size = rest.abs().amax(-1, keepdim=True)
    size = torch.where(size > 0, size, 1.0)
    # ONNX has no frexp; a logarithm may miss the power by one next to it, which changes nothing that counts.
    exponent = size.log2().floor() if exporting() else torch.frexp(size).exponent - 1
    unit = torch.exp2(exponent.clamp(-LARGEST_EXPONENT, LARGEST_EXPONENT).double())
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
        model: the network.
        horizon: steps wanted, any number.
        paths: possible pasts kept beyond the reach of the network.
    """

    def __init__(self, model: MultiscaleForecaster, horizon: int, paths: int):
        reach = model.config.horizon
        self.model, self.horizon, self.paths = model, horizon, paths
        self.sizes = [min(reach, horizon - start) for start in range(0, horizon, reach)]
        self.levels, self.weights = path_levels(paths)
        # Of every batch: the numbers of its series; of every block outputs, naive forecasts and the map's two numbers.
        self._numbers: list[np.ndarray] = []
        self._blocks: list[list[tuple[Tensor, ...]]] = []
        self._kind: type[ValueMap] = Asinh if model.config.bend else Affine

    @torch.inference_mode()
    def add(self, numbers: np.ndarray, contexts: Tensor, periods: Tensor) -> None:
        """Forecast a batch of contexts (B, C), float64, on the device of the model."""
        past, unit, shift = normalise(contexts)
        past = past.float()
        blocks: list[tuple[Tensor, ...]] = []
        paths = 1
        for place, size in enumerate(self.sizes):
            outputs, naive, map = self.model(past, periods.repeat_interleave(paths), size)
            # (B * paths, ...) -> (paths, B, ...)
            outputs, naive, loc, scale = (
                x.float().unflatten(0, (-1, paths)).transpose(0, 1)
                for x in (outputs, naive, torch.as_tensor(map.loc), torch.as_tensor(map.scale))
            )
            # What leads back to values, in float64, in which they keep their digits.
            blocks.append((outputs, *(unit * x.double() + shift for x in (naive, loc)), unit * scale.double()))
            if place + 1 < len(self.sizes):
                density = PathDensity([self._density(outputs, naive, loc, scale)], validate_args=False)
                steps = density.quantile(self.levels).float().transpose(0, 1).flatten(0, 1)  # (B * paths, size)
                if paths == 1:
                    paths = self.paths
                    past = past.repeat_interleave(paths, 0)
                past = torch.cat([past, steps], dim=-1)[:, -self.model.config.context :]
        self._numbers.append(numbers)
        self._blocks.append(blocks)

    def _density(self, outputs: Tensor, naive: Tensor, loc: Tensor, scale: Tensor) -> ScalarDensity:
        """Return the density of outputs (paths, B, steps, size), of batch shape (B, steps)."""
        each = self.model.head.density_of(outputs, map=self._kind(loc, scale), anchor=naive)
        if len(outputs) == 1:
            return each[0]
        return MixtureDensity(each, self.weights.to(outputs), validate_args=False)

    def density(self, factor: np.ndarray | None = None, shift: np.ndarray | None = None) -> PathDensity:
        """Return the forecast of all series, in the order of their numbers.

        Args:
            factor, shift: (series, horizon) that lead from what was forecast to what is wanted, factor * x + shift;
                1 and 0 unless given.
        """
        order = torch.from_numpy(np.argsort(np.concatenate(self._numbers), kind="stable"))
        gathered, first = [], 0
        for block, size in zip(zip(*self._blocks, strict=True), self.sizes, strict=True):
            parts = (torch.cat(part, dim=1) for part in zip(*block, strict=True))
            outputs, naive, loc, scale = (part.index_select(1, order.to(part.device)) for part in parts)
            # The network's coordinate is that of (x - loc) / scale, so moving these two moves the density exactly.
            if factor is not None:
                times = torch.as_tensor(factor[:, first : first + size]).to(naive)
                naive, loc, scale = naive * times, loc * times, scale * times
            if shift is not None:
                plus = torch.as_tensor(shift[:, first : first + size]).to(naive)
                naive, loc = naive + plus, loc + plus
            gathered.append(self._density(outputs, naive, loc, scale))
            first += size
        return PathDensity(gathered, validate_args=False)
