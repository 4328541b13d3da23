"""Nine quantiles under the pinball loss, the usual head of zero-shot forecasters: the rival of the density."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.distributions import Distribution, constraints

from fourier_head.densities.scalar import ScalarDensity
from fourier_head.domains.maps import Affine, ValueMap

LEVELS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)


class QuantileHead(nn.Module):
    """Emit quantiles of ``num_outputs`` values per row of features, each as a move away from a share of its anchor.

    Args:
        in_features: size of the features.
        num_outputs: values per row.
        levels: of the quantiles.
    """

    def __init__(self, in_features: int, num_outputs: int, levels: Sequence[float] = LEVELS):
        super().__init__()
        self.num_outputs, self.levels = num_outputs, tuple(levels)
        self.proj = nn.Linear(in_features, num_outputs * (1 + len(self.levels)))

    def start(self) -> Tensor:
        """Return the outputs of one value at the start of training: half of the anchor, a bell of one unit."""
        return torch.cat([torch.zeros(1), torch.special.ndtri(torch.tensor(self.levels))])

    def points(self, outputs: Tensor, anchor: Tensor) -> Tensor:
        """Return the quantiles (..., levels) as they come: they may cross."""
        outputs = outputs.float()
        return (torch.sigmoid(outputs[..., 0]) * anchor).unsqueeze(-1) + outputs[..., 1:]

    def crps(self, x: Tensor, value: Tensor, *, anchor: Tensor) -> Tensor:
        """Return twice the mean pinball loss of each value, the CRPS but for levels left out; zero where it is NaN."""
        outputs = self.proj(x).unflatten(-1, (self.num_outputs, -1))
        error = value.unsqueeze(-1) - self.points(outputs, anchor)
        level = torch.tensor(self.levels, device=value.device)
        loss = 2 * torch.maximum(level * error, (level - 1) * error).mean(-1)
        return torch.where(value.isnan(), 0, loss)

    def density_of(self, outputs: Tensor, *, map: ValueMap | None = None, anchor: Tensor) -> QuantileDensity:
        """Return what outputs of the projection say about values."""
        map = Affine() if map is None else map
        points = self.points(outputs, map.forward(anchor).float())
        return QuantileDensity(points.sort(-1).values, self.levels, map)


class QuantileDensity(ScalarDensity):
    """Know a distribution by some of its quantiles: straight lines between them, nothing beyond the outermost.

    It has quantiles and samples, but neither a density nor moments.

    Args:
        points: quantiles (..., levels) in the coordinate of the map, in order.
        levels: of the quantiles.
        map: of the values.
    """

    arg_constraints: ClassVar[dict[str, constraints.Constraint]] = {}
    support = constraints.real

    def __init__(self, points: Tensor, levels: Sequence[float], map: ValueMap):
        self.points, self.levels, self.map = points, tuple(levels), map
        super().__init__(torch.broadcast_shapes(points.shape[:-1], map.shape), validate_args=False)

    @property
    def _like(self) -> Tensor:  # type: ignore[override]
        return self.points

    def expand(self, batch_shape: Sequence[int] | torch.Size, _instance: Distribution | None = None) -> QuantileDensity:
        """Return the same for a larger batch, without copying."""
        return QuantileDensity(self.points.expand(*batch_shape, len(self.levels)), self.levels, self.map)

    def __getitem__(self, index: Any) -> QuantileDensity:
        """Return a part of the batch."""
        points = self.points.expand(*self.batch_shape, len(self.levels))[index]
        return QuantileDensity(points, self.levels, self.map.apply(lambda x: x.expand(self.batch_shape)[index]))

    def _icdf(self, level: Tensor) -> Tensor:
        shape = torch.broadcast_shapes(level.shape, self.batch_shape)
        own = level.new_tensor(self.levels)
        right = torch.searchsorted(own, level.contiguous()).clamp(1, len(own) - 1)
        share = ((level - own[right - 1]) / (own[right] - own[right - 1])).clamp(0, 1)
        points = self.points.expand(*shape, len(own))
        low, high = (points.gather(-1, i.expand(shape).unsqueeze(-1)).squeeze(-1) for i in (right - 1, right))
        return self.map.inverse(low + share * (high - low))
