"""Several networks side by side, as one network whose weights have one more dimension."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from fourier_head.heads import Head


class MemberLinear(nn.Module):
    """Linear layers of members side by side: (members, rows, in_features) to (members, rows, out_features).

    >>> MemberLinear.stack([nn.Linear(3, 5) for _ in range(4)])(torch.zeros(4, 10, 3)).shape
    torch.Size([4, 10, 5])
    """

    def __init__(self, weight: Tensor, bias: Tensor):
        super().__init__()
        self.weight, self.bias = nn.Parameter(weight), nn.Parameter(bias)
        self.in_features, self.out_features = weight.shape[1:]

    @classmethod
    @torch.no_grad()
    def stack(cls, layers: Sequence[nn.Linear]) -> MemberLinear:
        """Return the layers of all members as one."""
        weight = torch.stack([layer.weight.mT for layer in layers]).contiguous()
        return cls(weight, torch.stack([layer.bias for layer in layers]).unsqueeze(1))

    def forward(self, x: Tensor) -> Tensor:
        return torch.baddbmm(self.bias, x, self.weight)

    def extra_repr(self) -> str:
        return f"members={len(self.weight)}, in_features={self.in_features}, out_features={self.out_features}"


class MemberNetwork(nn.Module):
    """Networks of these widths, each with a head: features (members, rows, inputs) in, densities (members, rows) out.

    Args:
        members: how many.
        inputs: numbers per row.
        widths: of the layers between.
        activation: between layers.
        make_head: makes the head of one member for features of some size.
    """

    def __init__(
        self,
        members: int,
        inputs: int,
        widths: Sequence[int],
        activation: Callable[[], nn.Module],
        make_head: Callable[[int], Head],
    ):
        super().__init__()
        sizes = (inputs, *widths)
        layers: list[nn.Module] = []
        for inner, outer in itertools.pairwise(sizes):
            layers += [MemberLinear.stack([nn.Linear(inner, outer) for _ in range(members)]), activation()]
        self.body = nn.Sequential(*layers)
        heads = [make_head(sizes[-1]) for _ in range(members)]
        self.head = heads[0]
        self.head.proj = MemberLinear.stack([head.proj for head in heads])  # type: ignore[assignment]
        self.members = members

    def features(self, inputs: Tensor) -> Tensor:
        """Return what the heads see, (members, rows, width), of rows (rows, inputs) that all members are given."""
        features: Tensor = self.body(inputs.expand(self.members, *inputs.shape))
        return features


@torch.no_grad()
def clip_each(parameters: Sequence[Tensor], largest: float) -> None:
    """Scale the gradient of each member down to this norm where it is longer."""
    gradients = [p.grad for p in parameters if p.grad is not None]
    norms = torch.stack([torch.linalg.vector_norm(g.flatten(1), dim=1) for g in gradients])
    scale = (largest / (torch.linalg.vector_norm(norms, dim=0) + 1e-12)).clamp_max(1)
    for g in gradients:
        g.mul_(scale.reshape(-1, *(1,) * (g.dim() - 1)))


def held_out(rows: int, members: int, share: float, order: Tensor) -> list[Tensor]:
    """Return the rows that each member leaves out: a stretch of this share of the order, evenly moved along.

    >>> held_out(6, 3, 1 / 3, torch.arange(6))
    [tensor([0, 1]), tensor([2, 3]), tensor([4, 5])]
    """
    if math.isclose(share * members, 1):
        return [part.sort().values for part in order.tensor_split(members)]
    count = max(1, round(share * rows))
    return [order[(torch.arange(count) + round(j * rows / members)) % rows].sort().values for j in range(members)]
