"""Layers of the network: residual MLPs, attention to the past, rotary positions, and how weights start."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional


class ResidualMLP(nn.Module):
    """A residual MLP: a linear layer plus one hidden layer, twice as wide, with GELU."""

    def __init__(self, size: int, width: int):
        super().__init__()
        self.straight, self.first = nn.Linear(size, width), nn.Linear(size, 2 * width)
        self.second = nn.Linear(2 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        return self.straight(x) + self.second(functional.gelu(self.first(x)))


class Layer(nn.Module):
    """A transformer layer whose tokens all look at the past ones, positions turned into queries and keys.

    Args:
        width, heads: of attention; the inner layer is four times as wide.
        dropout: in training, of what each part adds.
    """

    def __init__(self, width: int, heads: int, dropout: float = 0.0):
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.norm_1, self.norm_2 = nn.RMSNorm(width), nn.RMSNorm(width)
        self.query, self.kv = nn.Linear(width, width, bias=False), nn.Linear(width, 2 * width, bias=False)
        self.mix = nn.Linear(width, width, bias=False)
        self.up, self.down = nn.Linear(width, 4 * width, bias=False), nn.Linear(4 * width, width, bias=False)

    def forward(self, x: Tensor, rotation: tuple[Tensor, Tensor], mask: Tensor, last: int | None = None) -> Tensor:
        """Return all tokens (B, T, width), or the ``last`` ones only; ``mask`` (B, 1, 1, P) says which past ones count.

        The past ones come first.
        """
        past, own = mask.shape[-1], 0 if last is None else -last
        y = self.norm_1(x)
        q = self.query(y[:, own:]).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        k, v = self.kv(y[:, :past]).unflatten(-1, (2, self.heads, -1)).permute(2, 0, 3, 1, 4)
        q = rotate(q, (rotation[0][own:], rotation[1][own:]))
        k = rotate(k, (rotation[0][:past], rotation[1][:past]))
        y = functional.scaled_dot_product_attention(q, k, v, mask)
        x = x[:, own:] + functional.dropout(self.mix(y.transpose(1, 2).flatten(2)), self.dropout, self.training)
        y = self.down(functional.gelu(self.up(self.norm_2(x))))
        return x + functional.dropout(y, self.dropout, self.training)


def rotate(x: Tensor, rotation: tuple[Tensor, Tensor]) -> Tensor:
    """Apply rotary position embeddings to queries or keys: their products then know the distance."""
    cos, sin = rotation
    left, right = x.chunk(2, dim=-1)
    return torch.cat([left * cos - right * sin, left * sin + right * cos], dim=-1).to(x.dtype)


@torch.no_grad()
def draw_small_weights(model: nn.Module, layers: int) -> None:
    """Draw weights and set biases to zero; what a layer adds starts smaller the more layers there are."""
    for name, parameter in model.named_parameters():
        if parameter.dim() == 2:
            shrink = math.sqrt(2 * layers) if name.endswith(("mix.weight", "down.weight")) else 1.0
            nn.init.normal_(parameter, std=1 / math.sqrt(parameter.shape[1]) / shrink)
        elif name.endswith("bias"):
            nn.init.zeros_(parameter)
