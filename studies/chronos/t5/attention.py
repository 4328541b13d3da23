"""Attention with T5's relative positions."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

HIDDEN = -1e9
"""What is added to the score of a key nobody may see; finite, so that not even rows without a key are NaN."""
STEEPEST, FLATTEST = 1.0, 1 / 64
"""How much the score of a key may fall at first with every step away, in the head that looks nearest and farthest."""


def position_buckets(distance: Tensor, buckets: int, max_distance: int, two_sided: bool) -> Tensor:
    """Return the bucket of each distance (key minus query): exact ones near by, then logarithmically wider.

    References:
        Raffel et al., Exploring the Limits of Transfer Learning with a Unified Text-to-Text Transformer (2020), 2.1.
    """
    side = torch.zeros_like(distance)
    if two_sided:
        buckets //= 2
        side = (distance > 0).long() * buckets
        distance = distance.abs()
    else:
        distance = (-distance).clamp_min(0)
    exact = buckets // 2
    share = torch.log(distance.clamp_min(1).float() / exact) / math.log(max_distance / exact)
    wide = (exact + (share * (buckets - exact)).long()).clamp_max(buckets - 1)
    return side + torch.where(distance < exact, distance, wide)


class PositionBias(nn.Module):
    """Learn a number to add to attention scores for every head and bucket of distances; all layers share it."""

    def __init__(self, heads: int, buckets: int, max_distance: int, two_sided: bool):
        super().__init__()
        self.buckets, self.max_distance, self.two_sided = buckets, max_distance, two_sided
        self.table = nn.Parameter(torch.zeros(buckets, heads))

    def forward(self, length: int) -> Tensor:
        """Return the bias (heads, length, length), keys last; hidden after the query where it looks back only.

        A diagonal of the matrix is one distance. It is laid out by reshaping one line of distances: the gradient is a
        sum over rows instead of a scatter into few buckets.
        """
        distance = torch.arange(-length, length, device=self.table.device)
        lines = self._lookup(distance)
        if not self.two_sided:
            lines = torch.where(distance > 0, HIDDEN, lines)
        # Rows of 2 length, read as rows of 2 length - 1: every row begins one place earlier in the lines.
        tiled = lines.roll(length, 1)[:, None].expand(-1, length, -1).flatten(1)
        tiled = tiled[:, : length * (2 * length - 1)].unflatten(1, (length, 2 * length - 1))
        return tiled[..., :length].contiguous()

    def at(self, place: int) -> Tensor:
        """Return the bias (heads, 1, place + 1) of the query at a place to all keys up to it."""
        distance = torch.arange(place + 1, device=self.table.device) - place
        return self._lookup(distance)[:, None]

    @torch.no_grad()
    def start_near(self) -> None:
        """Let the bias fall with the distance, at paces from ``STEEPEST`` to ``FLATTEST`` over heads.

        References:
            Press et al., Train Short, Test Long: Attention with Linear Biases (2022).
        """
        distance = torch.arange(-self.max_distance, 1 + (self.max_distance if self.two_sided else 0))
        found = position_buckets(distance, self.buckets, self.max_distance, self.two_sided)
        far = distance.abs().float()
        fall = torch.zeros(self.buckets).scatter_reduce(0, found, far, "mean", include_self=False)
        paces = torch.logspace(math.log2(STEEPEST), math.log2(FLATTEST), self.table.shape[1], base=2)
        self.table.copy_(-fall[:, None] * paces)

    def _lookup(self, distance: Tensor) -> Tensor:
        """Return (heads, distances) in float32."""
        found = position_buckets(distance, self.buckets, self.max_distance, self.two_sided)
        one_hot = functional.one_hot(found, self.buckets).to(self.table.dtype)
        with torch.autocast(self.table.device.type, enabled=False):
            return self.table.t() @ one_hot.t()


def attend(query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
    """Return what queries (B, heads, Q, D) find among keys and values (B, heads, K, D), scores not scaled.

    Args:
        mask: added to scores: a bias by position, ``HIDDEN`` for keys nobody may see, or both.
    """
    return functional.scaled_dot_product_attention(query, key, value, mask.to(query.dtype), scale=1.0)
