"""PathDensity: what a whole forecast says about every step, near ones in one pass, far ones as mixtures over paths."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import ClassVar

import torch
from torch import Tensor
from torch.distributions import Distribution, constraints

from fourier_head import spectrum
from fourier_head.forecasting.patch.density import (
    ForecastDensity,
    crps_over_levels,
    entropy_corners,
    mixed_entropy,
)
from fourier_head.scalar import ScalarDensity

AT_ONCE = 1 << 14
"""Densities worked on together: tables of some 16 MB, which caches hold better than all at once."""
ROUNDS = 12
"""Rounds of three points tried at most for a quantile of a mixture; two are usual."""
TOLERANCE = 1e-6
"""Error of the level of such a quantile."""


class PathDensity(ScalarDensity):
    r"""Represent the densities of all steps of a forecast, of batch shape (series, horizon).

    .. math:: p(x_t) = \sum_{j=1}^{P} w_j \, p_j(x_t)

    Up to the horizon of the network there is one path, and the density is the network's. Beyond it P possible pasts,
    quantile paths of the steps before, give a density each, and the forecast is their mixture: a proper distribution
    whose quantiles cannot cross.

    Args:
        blocks: densities of shape (paths, series, steps) one after the other, in units of each series.
        unit, shift: float64 (series, 1); values are ``shift + unit * x``.
        weights: of the paths, where there are several; equal unless given.

    Example:
        >>> from fourier_head.forecasting.patch.scaling import Scale
        >>> flat, loc, one = torch.zeros(2, 1, 3, 1, 2, 4), torch.tensor([-1.0, 1.0]).reshape(2, 1, 1), torch.ones(1)
        >>> block = ForecastDensity(flat, loc, one, 0.01, Scale(torch.zeros(1), one))
        >>> density = PathDensity([block], torch.ones(1, 1), torch.tensor([[5.0]]))
        >>> density.batch_shape, density.quantile(0.5).round()
        (torch.Size([1, 3]), tensor([[5., 5., 5.]], dtype=torch.float64))
    """

    arg_constraints: ClassVar[dict[str, constraints.Constraint]] = {}
    support = constraints.real

    def __init__(self, blocks: Sequence[ForecastDensity], unit: Tensor, shift: Tensor, weights: Tensor | None = None):
        self.blocks = tuple(block.expand(block.batch_shape) for block in blocks)
        self.unit, self.shift = unit.double(), shift.double()
        equal = torch.full((self.paths,), 1 / self.paths)
        self.weights = (equal if weights is None else weights).to(self.unit)
        self._sizes = [block.batch_shape[-1] for block in self.blocks]
        super().__init__(torch.Size([self.blocks[0].batch_shape[1], sum(self._sizes)]), validate_args=False)

    @property
    def _like(self) -> Tensor:  # type: ignore[override]
        return self.unit

    @property
    def paths(self) -> int:
        """The number of paths that the farthest steps are mixed from."""
        return self.blocks[-1].batch_shape[0]

    def expand(self, batch_shape: Sequence[int] | torch.Size, _instance: Distribution | None = None) -> PathDensity:
        """Return itself: a forecast has the shape (series, horizon) and no other."""
        if torch.Size(batch_shape) != self.batch_shape:
            raise ValueError(f"a forecast cannot be expanded from {tuple(self.batch_shape)} to {tuple(batch_shape)}.")
        return self

    def __getitem__(self, rows: int | slice | Tensor) -> PathDensity:
        """Return the densities of some series."""
        if isinstance(rows, tuple):
            raise IndexError(f"a forecast is indexed by its series alone, got {rows}.")
        if isinstance(rows, int):
            # Going through the series one by one ends with this error.
            if not -self.batch_shape[0] <= rows < self.batch_shape[0]:
                raise IndexError(f"there are {self.batch_shape[0]} series, got the number {rows}.")
            rows = slice(rows, rows + 1 or None)
        return PathDensity([b[:, rows] for b in self.blocks], self.unit[rows], self.shift[rows], self.weights)

    # --- over blocks, and a part of the series at a time

    def _over(
        self, value: Tensor, function: Callable[[ForecastDensity, Tensor, Tensor], Tensor], points: int = 1
    ) -> Tensor:
        """Apply a function of a block (paths, rows, steps), its weights and values (..., rows, steps) throughout.

        ``points`` says how many the function looks at for each value.
        """
        value = value.expand(torch.broadcast_shapes(value.shape, self.batch_shape))
        rows, horizon = self.batch_shape
        extra = points * math.prod(value.shape[:-2])
        at_once = max(1, AT_ONCE // max(1, horizon * self.paths * max(1, extra // 8)))
        parts = []
        for start in range(0, rows, at_once):
            these, first = slice(start, start + at_once), 0
            row = []
            for size, block in zip(self._sizes, self.blocks, strict=True):
                weights = self.weights if len(block.loc) == len(self.weights) else torch.ones_like(self.weights[:1])
                row.append(function(block[:, these], weights, value[..., these, first : first + size]))
                first += size
            parts.append(torch.cat(row, dim=-1))
        return torch.cat(parts, dim=-2) if parts else value.new_empty(value.shape)

    def _in_units(self, value: Tensor | float) -> Tensor:
        return (self._value(value) - self.shift) / self.unit

    # --- the distribution

    def cdf(self, value: Tensor | float) -> Tensor:
        """Return P(X <= value)."""
        return self._over(self._in_units(value), lambda d, w, x: _mix(d.cdf(x.unsqueeze(-3)), w, -3))

    def log_prob(self, value: Tensor | float) -> Tensor:
        """Return the log-density."""
        inner = self._over(self._in_units(value), _mixed_log_prob)
        return inner - self.unit.log()

    def _icdf(self, level: Tensor) -> Tensor:
        return self.shift + self.unit * self._over(level, _mixed_icdf)

    def sample(
        self, sample_shape: Sequence[int] | torch.Size = torch.Size(), generator: torch.Generator | None = None
    ) -> Tensor:
        """Draw samples (*sample_shape, series, horizon): a path for each, and given it every step on its own."""
        rows, horizon = self.batch_shape
        shape = torch.Size(sample_shape)
        # Drawn where the generator is: one seed gives the same samples on every device.
        device = self.unit.device if generator is None else generator.device
        path = torch.rand((*shape, rows, 1), device=device, generator=generator, dtype=torch.float64).to(self.unit)
        level = torch.rand((*shape, rows, horizon), device=device, generator=generator, dtype=torch.float64)
        level = level.to(self.unit)
        path = torch.searchsorted(self.weights.cumsum(0), path).clamp_max(self.paths - 1)
        # One number carries both: the whole part is the path, the rest the level.
        paired = path + level.clamp(1e-9, 1 - 1e-9)
        with torch.no_grad():
            return self.shift + self.unit * self._over(paired, _icdf_of_path)

    def rsample(
        self, sample_shape: Sequence[int] | torch.Size = torch.Size(), generator: torch.Generator | None = None
    ) -> Tensor:
        """Draw samples; a finished forecast has no gradients."""
        return self.sample(sample_shape, generator)

    # --- summaries

    @functools.cached_property
    def _moments(self) -> tuple[Tensor, Tensor]:
        def both(block: ForecastDensity, weights: Tensor, unused: Tensor) -> Tensor:
            mean, variance = block.moments()
            centre = _mix(mean, weights, 0)
            # The variance of a mixture: within its parts and between them.
            return torch.stack([centre, _mix(variance + (mean - centre).square(), weights, 0)])

        filler = torch.zeros((2, *self.batch_shape), dtype=torch.float64, device=self.unit.device)
        mean, variance = self._over(filler, both)
        return mean, variance

    @property
    def mean(self) -> Tensor:
        """The mean of the central 99.9 %, averaged over paths."""
        return self.shift + self.unit * self._moments[0]

    @property
    def variance(self) -> Tensor:
        """The variance of the central 99.9 % within and between paths."""
        return self.unit.square() * self._moments[1]

    def entropy(self) -> Tensor:
        """Return the differential entropy in nats."""
        points = len(entropy_corners(self.blocks[0].coefficients.shape[-1] - 1, self.paths)) * self.paths
        inner = self._over(torch.zeros_like(self.unit), lambda d, w, _: mixed_entropy(d, w), points)
        return inner + self.unit.log()

    @property
    def mode(self) -> Tensor:
        """The likeliest of 199 quantiles."""
        x = self.quantile(torch.linspace(0.005, 0.995, 199, dtype=torch.float64, device=self.unit.device))
        return x.gather(0, self.log_prob(x).argmax(0, keepdim=True)).squeeze(0)

    def crps(self, value: Tensor | float) -> Tensor:
        """Return the continuous ranked probability score of outcomes (..., series, horizon)."""
        return crps_over_levels(self, value)


def _mix(each: Tensor, weights: Tensor, dim: int) -> Tensor:
    """Return the weighted mean over paths."""
    shape = [1] * each.dim()
    shape[dim] = -1
    return (each.double() * weights.reshape(shape)).sum(dim)


def _mixed_log_prob(block: ForecastDensity, weights: Tensor, x: Tensor) -> Tensor:
    each = block.log_prob(x.unsqueeze(-3)).double()
    return (each + weights.log()[:, None, None]).logsumexp(-3)


def _icdf_of_path(block: ForecastDensity, weights: Tensor, paired: Tensor) -> Tensor:
    """Return quantiles where the whole part of each number names the path and the rest the level."""
    count = block.batch_shape[0]
    path, level = paired.floor().long(), (paired - paired.floor()).float()
    if count == 1:
        return block[0].icdf(level).double()
    # One path for all steps of a sample, so few densities are gathered.
    flat = path[..., 0].reshape(-1, path.shape[-2])
    series = torch.arange(path.shape[-2], device=path.device).expand_as(flat)
    return block[flat, series].icdf(level.reshape(*flat.shape, -1)).double().reshape(paired.shape)


def _mixed_icdf(block: ForecastDensity, weights: Tensor, level: Tensor) -> Tensor:
    """Return x with sum_j w_j F_j(x) = level.

    The quantiles of the parts enclose that of the mixture; between them Newton's steps, halves where they would leave.
    """
    near = level.float().unsqueeze(-3)
    ends = block.icdf(near.expand(*near.shape[:-3], *block.batch_shape)).double()
    if block.batch_shape[0] == 1:
        return ends.squeeze(-3)
    x, low, high, done = _approach(block, weights, level, _mix(ends, weights, -3), ends.amin(-3), ends.amax(-3))
    for _ in range(ROUNDS):
        # Most are found soon; the others go on by themselves.
        left = (~done).nonzero(as_tuple=True)
        if not len(left[0]):
            break
        some = block[:, left[-2], left[-1]]
        found = _approach(some, weights, level[left], x[left], low[left], high[left])
        x[left], low[left], high[left], done[left] = found
    return x


def _approach(
    block: ForecastDensity, weights: Tensor, level: Tensor, x: Tensor, low: Tensor, high: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return points nearer to the quantiles of the mixture over paths, their brackets, and which are done.

    What is found stays, so that no quantile depends on which others are asked for.
    """
    paths = -len(block.batch_shape)
    done = torch.zeros_like(x, dtype=torch.bool)
    for _ in range(3):
        mass, slope = _cdf_and_prob(block, x.unsqueeze(paths))
        error = _mix(mass, weights, paths) - level
        low, high = torch.where(error <= 0, x, low), torch.where(error >= 0, x, high)
        # float32 tells no more points apart than this.
        done = (high - low <= 1e-7 * (low.abs() + high.abs())) | (error.abs() <= TOLERANCE)
        new = x - error / _mix(slope, weights, paths).clamp_min(1e-30)
        new = torch.where((new > low) & (new < high), new, (low + high) / 2)
        x = torch.where(done, x, new)
    return x, low, high, done


def _cdf_and_prob(block: ForecastDensity, x: Tensor) -> tuple[Tensor, Tensor]:
    """Return the distribution function and the density at values (..., paths, rows, steps), sharing their cosines."""
    u = block.scale.to_unit(x.to(block.loc.dtype))
    v = (u - block.loc) / block.width
    mass, slope = (part.squeeze(-1) for part in spectrum.cdf_and_density(block.spectrum, v.clamp(-1, 1).unsqueeze(-1)))
    tail = torch.exp(-v.abs()) / 2
    mass = (1 - block.tails) * mass + block.tails * torch.where(v < 0, tail, 1 - tail)
    slope = (1 - block.tails) * torch.where(v.abs() <= 1, slope, 0.0) + block.tails * tail
    return mass, slope / block.width * torch.exp(-block.scale.log_slope(u))
