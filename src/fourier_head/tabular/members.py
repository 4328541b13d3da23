"""Several networks side by side, as one network whose weights have one more dimension."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.optim.adamw import adamw

from fourier_head.heads import Head
from fourier_head.kernels import stacked


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

    @classmethod
    @torch.no_grad()
    def join(cls, layers: Sequence[MemberLinear]) -> MemberLinear:
        """Return layers of the same inputs as one, their outputs side by side."""
        return cls(torch.cat([layer.weight for layer in layers], -1), torch.cat([layer.bias for layer in layers], -1))

    def forward(self, x: Tensor) -> Tensor:
        return torch.baddbmm(self.bias, x, self.weight)

    def extra_repr(self) -> str:
        return f"members={len(self.weight)}, in_features={self.in_features}, out_features={self.out_features}"


class Body(NamedTuple):
    """Members of one kind.

    Args:
        members: how many.
        inputs: numbers per row that they are given, the first of all.
        widths: of their layers.
        activation: between layers, ReLU or SiLU.
    """

    members: int
    inputs: int
    widths: tuple[int, ...]
    activation: type[nn.ReLU] | type[nn.SiLU] = nn.ReLU


class MemberNetwork(nn.Module):
    """Networks of several kinds: for each of them inputs (members, rows, inputs) in, and outputs for heads (members,
    rows, size) of all of them out.

    Heads have no projection of their own: the last layer of each member is that.

    Args:
        bodies: the kinds of networks, by name.
        make_heads: for each target, what makes its head for features of some size.
    """

    def __init__(self, bodies: Mapping[str, Body], make_heads: Sequence[Callable[[int], Head]]):
        super().__init__()
        self.bodies = nn.ModuleDict()
        for name, body in bodies.items():
            sizes = (body.inputs, *body.widths)
            layers: list[nn.Module] = []
            for inner, outer in itertools.pairwise(sizes):
                own = [nn.Linear(inner, outer) for _ in range(body.members)]
                layers += [MemberLinear.stack(own), body.activation()]
            last = [MemberLinear.stack([make(sizes[-1]).proj for _ in range(body.members)]) for make in make_heads]
            self.bodies[name] = nn.Sequential(*layers, MemberLinear.join(last))
        heads = [make(1) for make in make_heads]
        self.sizes = [head.proj.out_features for head in heads]
        for head in heads:
            head.proj = nn.Identity()  # type: ignore[assignment]
        self.heads = nn.ModuleList(heads)

    @property
    def members(self) -> list[int]:
        """The number of members of each body."""
        return [len(body[0].weight) for body in self.bodies.values()]  # type: ignore[index]

    @property
    def in_features(self) -> list[int]:
        """The number of inputs of each body."""
        return [body[0].in_features for body in self.bodies.values()]  # type: ignore[index]

    def forward(self, inputs: Sequence[Tensor]) -> Tensor:
        return torch.cat([body(x) for body, x in zip(self.bodies.values(), inputs, strict=True)])

    def picked(self, inputs: Sequence[Tensor], index: Tensor) -> list[Tensor]:
        """Return for each body the inputs of rows (members, rows), from those of all rows for each body."""
        # A third of the time of plain indexing.
        return [nn.functional.embedding(own, x) for x, own in zip(inputs, index.split(self.members), strict=True)]

    def of_rows(self, inputs: Tensor) -> Tensor:
        """Return the outputs (members, rows, size) of rows that all members are given.

        Args:
            inputs: (rows, inputs); or (versions, rows, inputs) of several versions that differ in what only some bodies
                are given: members take one after the other, fewer members the mean of several.
        """
        versions = inputs if inputs.dim() == 3 else inputs[None]
        given = []
        for count, size in zip(self.members, self.in_features, strict=True):
            x = versions[..., :size]
            if len(x) > count:
                x = torch.stack([x[j::count].mean(0) for j in range(count)])
            given.append(x[torch.arange(count, device=x.device) % len(x)])
        return self(given)

    def per_head(self, outputs: Tensor) -> tuple[Tensor, ...]:
        """Return the outputs of each head."""
        return outputs.split(self.sizes, -1)

    def keep(self, names: Sequence[str]) -> None:
        """Drop all bodies but these."""
        self.bodies = nn.ModuleDict({name: self.bodies[name] for name in names})


class Weights:
    """All weights of the members of a body, (members, weights), whose layers become views of them.

    One tensor instead of many: what is done to all weights in each step costs a few operations.
    """

    @torch.no_grad()
    def __init__(self, body: nn.Module):
        self._layers = list(body.parameters())
        self._smooth = any(isinstance(layer, nn.SiLU) for layer in body.modules())
        members, sizes = len(self._layers[0]), [p[0].numel() for p in self._layers]
        self.now = torch.cat([p.reshape(members, -1) for p in self._layers], 1)
        self.gradient = torch.zeros_like(self.now)
        self.mean, self.best = self.now.clone(), self.now.clone()
        self.best_score = float("inf")
        self._first, self._second = torch.zeros_like(self.now), torch.zeros_like(self.now)
        self._steps = torch.zeros((), device=self.now.device)
        views = self.now.split(sizes, 1), self.gradient.split(sizes, 1)
        for p, weight, gradient in zip(self._layers, *views, strict=True):
            p.data, p.grad = weight.view(p.shape), gradient.view(p.shape)
        self._data, self._gradients = [p.data for p in self._layers], [p.grad for p in self._layers]
        self._kept: Sequence[Tensor] = ()

    def outputs(self, x: Tensor) -> Tensor:
        """Return the outputs of the members for their rows (members, rows, inputs), as ``backward`` expects them."""
        outputs, self._kept = stacked.forward(x, self._smooth, self._data)
        return outputs

    def backward(self, outputs: Tensor) -> None:
        """Leave the gradients of the weights in ``gradient``, given those of the last outputs."""
        stacked.backward(outputs, self._kept, self._smooth, self._data, self._gradients)  # type: ignore[arg-type]

    def clip(self, largest: float) -> None:
        """Scale the gradient of each member down to this norm where it is longer."""
        norm = torch.linalg.vector_norm(self.gradient, dim=1, keepdim=True)
        # On a graphics card looking would cost more than scaling by one.
        if norm.device.type != "cpu" or float(norm.max()) > largest:
            self.gradient.mul_((largest / (norm + 1e-12)).clamp_max(1))

    @staticmethod
    def step(bodies: Sequence[Weights], rate: float, decay: float) -> None:
        """Take a step of AdamW down the gradients.

        By the function behind the class of torch, which in its first step loads a compiler: that takes longer than the
        fit of a small table.
        """
        adamw(
            [body.now for body in bodies],
            [body.gradient for body in bodies],
            [body._first for body in bodies],
            [body._second for body in bodies],
            [],
            [body._steps for body in bodies],
            fused=True,
            amsgrad=False,
            beta1=0.9,
            beta2=0.999,
            lr=rate,
            weight_decay=decay,
            eps=1e-8,
            maximize=False,
        )

    @torch.no_grad()
    def take(self, weights: Tensor) -> Tensor:
        """Take over these weights, and return those of before."""
        before = self.now.clone()
        self.now.copy_(weights)
        return before

    def release(self) -> None:
        """Leave the layers with the best weights, each a tensor of its own."""
        self.take(self.best)
        for p in self._layers:
            p.data, p.grad = p.data.clone(memory_format=torch.contiguous_format), None


def held_out(rows: int, parts: int, share: float, order: Tensor) -> list[Tensor]:
    """Return parts of the rows to leave out: stretches of this share of the order, evenly moved along.

    >>> held_out(6, 3, 1 / 3, torch.arange(6))
    [tensor([0, 1]), tensor([2, 3]), tensor([4, 5])]
    """
    count = max(1, round(share * rows))
    ends = [round(j * rows / parts) for j in range(parts + 1)]
    if count >= rows // parts and share * parts <= 1 + 1e-9:  # no row twice, and none never
        return [order[low:high].sort().values for low, high in itertools.pairwise(ends)]
    return [order[(torch.arange(count) + low) % rows].sort().values for low in ends[:-1]]
