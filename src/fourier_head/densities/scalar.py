"""What densities of one real number share."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.distributions import Distribution

from fourier_head._arrays import common_shape, needs_sync
from fourier_head.fourier.inversion import with_implicit_gradient
from fourier_head.fourier.series import exporting

Shape = torch.Size | list[int] | tuple[int, ...]


def running_maximum(x: Tensor) -> Tensor:
    """Return the largest entry so far along the first dimension."""
    if not exporting():
        return x.cummax(0).values if len(x) else x
    # ONNX has no cumulative maximum.
    earlier = torch.ones(len(x), len(x), dtype=torch.bool, device=x.device).tril()
    return torch.where(earlier.reshape(*earlier.shape, *(1,) * (x.dim() - 1)), x, -torch.inf).amax(1)


class ScalarDensity(Distribution):
    """Share what follows from ``icdf`` among densities of one real number.

    A subclass sets ``_like``, a tensor whose dtype and device are those of the results, and writes ``_icdf``, the
    quantile function of levels already known to be good. As elsewhere in torch, with ``validate_args`` it is an error
    to ask for the density of a value outside the support, or for anything of NaN; without, the density there is zero
    and what NaN gives is NaN.
    """

    has_rsample = True
    _like: Tensor

    def _icdf(self, level: Tensor) -> Tensor:
        raise TypeError(f"{type(self).__name__} must define _icdf")

    def _cast(self, numbers: Tensor | float | Sequence[float]) -> Tensor:
        """Return numbers in the type of the results."""
        words = isinstance(numbers, (list, tuple)) and any(isinstance(one, str) for one in numbers)
        if words or isinstance(numbers, str):
            raise TypeError(f"expected numbers, got {numbers!r}.")
        return torch.as_tensor(numbers, dtype=self._like.dtype, device=self._like.device)

    def _value(self, value: Tensor | float) -> Tensor:
        value = self._cast_value(value)
        if self._validate_args and bool(value.isnan().any()):
            raise ValueError("value must be a number, got NaN.")
        return value

    def _supported(self, value: Tensor | float) -> Tensor:
        """Return values whose density is asked for."""
        value = self._value(value)
        pairs = zip(reversed(value.shape), reversed(self.batch_shape), strict=False)
        if not torch.compiler.is_compiling() and not all(a == b or 1 in (a, b) for a, b in pairs):
            given, batch = tuple(value.shape), tuple(self.batch_shape)
            raise ValueError(f"value must broadcast with the batch shape {batch}, got shape {given}.")
        if self._validate_args and not bool(self.support.check(value).all()):  # type: ignore[union-attr]
            raise ValueError(f"value must lie within the support {self.support}, got some outside.")
        return value

    @staticmethod
    def _outside(value: Tensor, inside: Tensor, log_prob: Tensor) -> Tensor:
        """Return log-densities, ``-inf`` for values outside and NaN for NaN."""
        return torch.where(inside, log_prob, torch.where(value.isnan(), torch.nan, -torch.inf).to(log_prob))

    def _cast_value(self, value: Tensor | float) -> Tensor:
        return self._cast(value)

    def cdf_and_prob(self, value: Tensor) -> tuple[Tensor, Tensor]:
        """Return the distribution function and the density, which may have much in common."""
        return self.cdf(value), self.prob(value)

    def panels(self, count: int) -> Tensor:
        """Return values (points, *batch), in order, between which the density is smooth: about ``count`` pieces.

        Where a density does not say better, these are quantiles from far out in one tail to far out in the other.
        """
        reach = -math.log(torch.finfo(self._like.dtype).eps)
        return self.quantile(torch.linspace(-reach, reach, count + 1).sigmoid())

    def prob(self, value: Tensor | float) -> Tensor:
        """Return the density at ``value``."""
        return self.log_prob(value).exp()  # type: ignore[arg-type]

    def icdf(self, value: Tensor | float) -> Tensor:
        """Return the quantiles of levels that broadcast with the batch; differentiable."""
        level = self._cast(value)
        if self._validate_args and not bool(((level >= 0) & (level <= 1)).all()):
            raise ValueError("levels must lie in [0, 1], got some outside.")
        return self._icdf(level)

    def _with_gradient(self, x: Tensor, level: Tensor | None = None) -> Tensor:
        """Return solutions of F(x) = level with the gradients that follow; without a level, the one they have."""
        if not torch.is_grad_enabled():
            return x
        residual, prob = self.cdf_and_prob(x)
        if level is not None:
            residual = residual - level
        tiny = torch.finfo(prob.dtype).tiny
        return with_implicit_gradient(x, residual, prob.clamp_min(tiny)) if residual.requires_grad else x

    def _levels(self, levels: Tensor | float | Sequence[float]) -> Tensor:
        """Return levels as a tensor, checked where that makes no device wait."""
        if not torch.compiler.is_compiling() and not (isinstance(levels, Tensor) and needs_sync(levels)):
            wrong = [level for level in self._cast(levels).flatten().tolist() if level < 0 or level > 1]
            if wrong:
                raise ValueError(f"levels must lie in [0, 1], got {wrong[0]:g}.")
        return self._cast(levels)

    def quantile(self, levels: Tensor | float | Sequence[float]) -> Tensor:
        """Return quantiles at any levels, shape (*levels.shape, *batch_shape); they never cross."""
        level = self._levels(levels)
        sorted_level, order = level.reshape(-1).sort()
        points = self.icdf(sorted_level.reshape(-1, *(1,) * len(self.batch_shape)).expand(-1, *self.batch_shape))
        # Rounding may swap two quantiles that are equal but for the last bit.
        points = running_maximum(points)
        return points[order.argsort()].reshape(level.shape + self.batch_shape)

    def rsample(self, sample_shape: Shape = torch.Size(), generator: torch.Generator | None = None) -> Tensor:
        """Draw samples whose gradients flow to the parameters."""
        return self._icdf(self._uniform(self._extended_shape(checked_shape(sample_shape)), generator))

    def _uniform(self, shape: Shape, generator: torch.Generator | None) -> Tensor:
        """Draw levels where the generator is: one seed gives the same samples on every device."""
        device = self._like.device if generator is None else generator.device
        return torch.rand(shape, dtype=self._like.dtype, device=device, generator=generator).to(self._like.device)

    def sample(self, sample_shape: Shape = torch.Size(), generator: torch.Generator | None = None) -> Tensor:
        """Draw samples without gradients."""
        with torch.no_grad():
            return self.rsample(sample_shape, generator)


def checked_shape(sample_shape: Shape) -> torch.Size:
    """Return how many samples are asked for; one number is no shape, in torch's distributions neither."""
    if isinstance(sample_shape, int):
        raise TypeError(f"sample_shape must be a tuple, got {sample_shape}; write ({sample_shape},)")
    return torch.Size(sample_shape)


class Rows:
    """Lay out values of shape (*sample, *batch) as a matrix (batch, sample) beside tables (batch, entries).

    Looking up entries then needs neither copies of a table per sample nor a gradient of that size.
    """

    def __init__(self, value: Tensor, batch_shape: torch.Size) -> None:
        self.shape = common_shape(value.shape, batch_shape)
        self.batch = self.shape[len(self.shape) - len(batch_shape) :]
        samples = math.prod(self.shape[: len(self.shape) - len(batch_shape)])
        self.value = value.expand(self.shape).reshape(samples, math.prod(self.batch)).t().contiguous()

    def table(self, table: Tensor) -> Tensor:
        """Bring a table (*batch, entries) to (batch, entries); one row for all stays as it is."""
        if table.dim() == 1:
            return table
        return table.expand(*self.batch, table.shape[-1]).reshape(self.value.shape[0], table.shape[-1])

    def find(self, table: Tensor, right: bool) -> Tensor:
        """Find each value between the inner entries of a sorted table: an index from 0 to entries - 2."""
        return torch.searchsorted(self.table(table.detach())[..., 1:-1].contiguous(), self.value.detach(), right=right)

    def take(self, table: Tensor, index: Tensor) -> Tensor:
        """Look up table entries (batch, sample)."""
        rows = self.table(table)
        return rows[index] if rows.dim() == 1 else rows.gather(1, index)

    def back(self, rows: Tensor) -> Tensor:
        """Bring a result (batch, sample) to the shape of values."""
        return rows.t().reshape(self.shape)
