"""PathDensity: what a whole forecast says about every step, near ones in one pass, far ones as mixtures over paths."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.distributions import Distribution, constraints

from fourier_head._arrays import common_shape
from fourier_head.densities.fourier import FourierDensity
from fourier_head.densities.mixture import MixtureDensity
from fourier_head.densities.scalar import ScalarDensity, Shape, checked_shape
from fourier_head.densities.tabulated import ENDS, TabulatedMixture

AT_ONCE = 1 << 17
"""Values looked at together, one of each component: tables of some 16 MB, which caches hold better than all at once."""
ON_GPU = 16
"""Times as many on a GPU, which would wait for its host if there were little to do in each step."""
FINE = 24
"""Pieces of tables for each coefficient: where densities are rough, too, tables are as exact as float32 then."""


class PathDensity(ScalarDensity):
    """Lay densities of successive steps side by side, (..., series, horizon), and work on a few series at a time.

    Up to the horizon of the network a block is the network's density. Beyond it possible pasts, quantile paths of the
    steps before, give a density each, and the block is their `MixtureDensity`.

    Args:
        blocks: densities (..., series, steps) of one stretch of the horizon after the other.

    Example:
        >>> from fourier_head import Adaptive, FourierDensity
        >>> place = Adaptive().at(torch.tensor([4.0, 6.0]).reshape(2, 1, 1), torch.ones(1))
        >>> paths = FourierDensity(torch.zeros(2, 1, 3, 2, 4), place)
        >>> density = PathDensity([paths[0], MixtureDensity(paths)])
        >>> density.batch_shape, density.mean
        (torch.Size([1, 6]), tensor([[4., 4., 4., 5., 5., 5.]]))
    """

    arg_constraints: ClassVar[dict[str, constraints.Constraint]] = {}
    support = constraints.real

    def __init__(self, blocks: Sequence[ScalarDensity], validate_args: bool | None = None):
        self.blocks = tuple(copy.copy(block) for block in blocks)
        for block in self.blocks:  # what is wrong with values is said here, once
            block._validate_args = False
        self._sizes = [block.batch_shape[-1] for block in self.blocks]
        shape = (*self.blocks[0].batch_shape[:-1], sum(self._sizes))
        super().__init__(torch.Size(shape), validate_args=validate_args)

    @property
    def _like(self) -> Tensor:  # type: ignore[override]
        return self.blocks[0]._like

    def _cast_value(self, value: Tensor | float) -> Tensor:
        return self.blocks[0]._cast_value(value)

    @property
    def paths(self) -> int:
        """The number of paths that the farthest steps are mixed from."""
        last = self.blocks[-1]
        return len(last.weights) if isinstance(last, MixtureDensity) else 1

    def expand(self, batch_shape: Shape, _instance: Distribution | None = None) -> PathDensity:
        """Return the same forecast for more series, without copying; its horizon stays."""
        if batch_shape[-1] != self.batch_shape[-1]:
            raise ValueError(f"a forecast of {self.batch_shape[-1]} steps cannot be expanded to {batch_shape[-1]}.")
        blocks = zip(self.blocks, self._sizes, strict=True)
        return PathDensity([block.expand((*batch_shape[:-1], size)) for block, size in blocks], self._validate_args)

    def __getitem__(self, rows: int | slice | Tensor) -> PathDensity:
        """Return the densities of some series."""
        if isinstance(rows, tuple):
            raise IndexError(f"a forecast is indexed by its series alone, got {rows}.")
        if isinstance(rows, int):
            # Going through the series one by one ends with this error.
            if not -self.batch_shape[0] <= rows < self.batch_shape[0]:
                raise IndexError(f"there are {self.batch_shape[0]} series, got the number {rows}.")
            rows = slice(rows, rows + 1 or None)
        return PathDensity([block[rows] for block in self.blocks], self._validate_args)  # type: ignore[index]

    def _over(self, function: Callable[..., Tensor], *values: Tensor, points: int = 1) -> Tensor:
        """Apply a function of a block and of values (..., series, steps) throughout, some of the series at a time.

        ``points`` says how many values the function looks at for each density, besides those given.
        """
        values = tuple(x.expand(common_shape(x.shape, self.batch_shape)) for x in values)
        each = points * max((math.prod(x.shape[: x.dim() - len(self.batch_shape)]) for x in values), default=1)
        series = self.batch_shape[-2]
        most = AT_ONCE * (ON_GPU if self._like.is_cuda else 1)
        at_once = max(1, most * series // max(1, self.batch_shape.numel() * self.paths * max(8, each)))
        before = (slice(None),) * (len(self.batch_shape) - 2)
        parts = []
        for start in range(0, series, at_once):
            some, first, row = slice(start, start + at_once), 0, []
            for size, block in zip(self._sizes, self.blocks, strict=True):
                chosen = (x[..., some, first : first + size] for x in values)
                row.append(function(block[(*before, some)], *chosen))  # type: ignore[index]
                first += size
            parts.append(torch.cat(row, dim=-1))
        return torch.cat(parts, dim=-2)

    # --- the distribution

    def cdf(self, value: Tensor | float) -> Tensor:
        """Return P(X <= value)."""
        return self._over(lambda block, x: block.cdf(x), self._value(value))

    def cdf_and_prob(self, value: Tensor) -> tuple[Tensor, Tensor]:
        """Return the distribution function and the density."""
        cdf, prob = (self._over(lambda block, x, i=i: block.cdf_and_prob(x)[i], value) for i in (0, 1))
        return cdf, prob

    def log_prob(self, value: Tensor | float) -> Tensor:
        """Return the log-density."""
        return self._over(lambda block, x: block.log_prob(x), self._supported(value))

    def _icdf(self, level: Tensor) -> Tensor:
        return self._over(_quantiles, level)

    def rsample(self, sample_shape: Shape = torch.Size(), generator: torch.Generator | None = None) -> Tensor:
        """Draw samples (*sample_shape, ..., series, horizon): a path for each, and given it every step on its own."""
        shape = self._extended_shape(checked_shape(sample_shape))
        path, level = (self._uniform(size, generator) for size in ((*shape[:-1], 1), shape))

        def draw(block: Any, path: Tensor, level: Tensor) -> Tensor:
            mixed = isinstance(block, MixtureDensity)
            return block.icdf_of(block.choose(path[..., 0]), level) if mixed else block._icdf(level)

        with torch.no_grad():
            x = self._over(draw, path.expand(shape), level)
        return self._with_gradient(x)

    # --- summaries

    @property
    def mean(self) -> Tensor:
        """The mean."""
        return self._over(lambda block: block.mean, points=POINTS)

    @property
    def variance(self) -> Tensor:
        """The variance within and between paths."""
        return self._over(lambda block: block.variance, points=POINTS)

    def entropy(self) -> Tensor:
        """Return the differential entropy in nats."""
        return self._over(lambda block: block.entropy(), points=POINTS)

    @property
    def mode(self) -> Tensor:
        """The likeliest value."""
        return self._over(lambda block: block.mode, points=POINTS)

    def crps(self, value: Tensor | float) -> Tensor:
        """Return the continuous ranked probability score of outcomes (..., series, horizon)."""
        return self._over(lambda block, x: block.crps(x), self._value(value), points=POINTS)


POINTS = 256
"""Nodes of quadrature of one density, or about so many."""


def _quantiles(block: Any, level: Tensor) -> Tensor:
    """Return quantiles of a block; those of mixtures of Fourier densities in float32 from tables.

    Tables serve all levels at once, and are more exact than what float32 makes of the densities.
    """
    if not isinstance(block, MixtureDensity) or block._like.dtype != torch.float32:
        return block._icdf(level)
    components = block.components
    if not isinstance(components, FourierDensity) or not components.domain.tails:
        return block._icdf(level)
    with torch.no_grad():
        place: Any = (slice(None), *torch.unravel_index(torch.arange(block.batch_shape.numel()), block.batch_shape))
        rows = components[place].to(torch.float64)
        weights = (block.weights[place] if block.weights.dim() > 1 else block.weights).double()
        flat = level.double().flatten(level.dim() - len(block.batch_shape))
        most = AT_ONCE * (ON_GPU if level.is_cuda else 1)
        size = max(1, most // (len(weights) * max(ENDS, math.prod(flat.shape[:-1]))))
        parts = []
        for start in range(0, flat.shape[-1], size):
            some = slice(start, start + size)
            own = weights[:, some] if weights.dim() > 1 else weights
            parts.append(TabulatedMixture(rows[:, some], own, False, FINE)._icdf(flat[..., some]))
        x = torch.cat(parts, dim=-1).reshape(level.shape).to(components.panels(2).dtype)
    return block._with_gradient(x, level)
