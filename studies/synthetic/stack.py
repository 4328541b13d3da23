"""Train many small networks as one: the linear layers of all are stacked, and one product takes the place of many.

A network is a body that ends in one of the library's heads, so small that starting an operation costs more than its
arithmetic. Losses are those of the heads, which take what a projection puts out, and gradients those of autograd;
afterwards the networks have the weights that training them one by one would have given them.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from fourier_head._devices import seeded
from fourier_head.bins import Bins
from fourier_head.domains import Adaptive
from fourier_head.heads import FourierHead, Head
from fourier_head.heads.baselines import HLGaussHead, LinearHead, MixtureHead, RegressionHead
from fourier_head.layout import Regularizer
from studies.common.recorded import Recorded
from studies.synthetic.data import NUM_BINS

HIDDEN = (64, 32)


@dataclass(frozen=True)
class FourierOptions:
    """What a study sets for all of its Fourier heads; ``gamma_unit`` is what a regulariser of strength 1 means."""

    floor: float
    init_scale: float
    regularizer: Regularizer = "roughness"
    gamma_unit: float = 1.0

    @classmethod
    def released(cls, floor: float) -> FourierOptions:
        """Return the start and the regulariser of the released code, which is 2m times the one that the paper prints.

        >>> FourierOptions.released(floor=1e-4).gamma_unit
        100.0
        """
        return cls(floor, 100.0, "paper", 2.0 * NUM_BINS)


def make_head(
    kind: str, options: FourierOptions, frequencies: int = 0, gamma: float = 0.0, packets: int = 0
) -> Callable[[int], Head]:
    """Return what builds a head of a kind for features of a size; frequencies and all after are of Fourier heads.

    >>> make_head("fourier", FourierOptions(1e-4, 1000.0), 12)(32).proj.out_features
    26
    """
    makers: dict[str, Callable[[int], Head]] = {
        "linear": lambda size: LinearHead(size, NUM_BINS),
        "hl_gauss": lambda size: HLGaussHead(size, NUM_BINS),
        "gmm": lambda size: MixtureHead(size, NUM_BINS, kind="paper"),
        "gmm_full": lambda size: MixtureHead(size, NUM_BINS, kind="full"),
        "regression": lambda size: RegressionHead(size, NUM_BINS),
        "fourier": lambda size: FourierHead(
            size,
            NUM_BINS,
            frequencies,
            floor=options.floor,
            boundary="periodic",
            packets=packets,
            gamma=gamma * options.gamma_unit,
            regularizer=options.regularizer,
            init_scale=options.init_scale,
        ),
        # No floor: its tails give every bin some probability.
        "adaptive": lambda size: FourierHead(
            size, num_frequencies=frequencies, domain=Adaptive(bins=Bins.uniform(NUM_BINS, -1, 1)), packets=packets
        ),
    }
    return makers["fourier" if kind == "recommended" else kind]


class Network(nn.Module):
    """A body 2-64-32 and a head."""

    def __init__(self, make: Callable[[int], Head]):
        super().__init__()
        first, second = HIDDEN
        self.body = nn.Sequential(nn.Linear(2, first), nn.ReLU(), nn.Linear(first, second), nn.ReLU())
        self.head = make(second)


def draw_network(seed: int, make: Callable[[int], Head]) -> Network:
    """Return a network whose first weights are drawn from a seed; the body's are the same for any head."""
    with seeded(seed):
        return Network(make)


@dataclass(frozen=True)
class Schedule:
    """How networks are trained.

    Args:
        epochs, batch, rate: passes over the data, rows of a batch, learning rate of Adam.
        cosine: let the rate fall to zero along a cosine.
        clip: largest norm of the gradient of a network.
        jitter: half width of the uniform noise added to inputs, drawn anew in each epoch.
    """

    epochs: int
    batch: int
    rate: float
    cosine: bool = False
    clip: float | None = None
    jitter: float = 0.0

    def rate_at(self, share: float) -> float:
        """Return the learning rate after this share of the steps."""
        return self.rate * (1 + math.cos(math.pi * share)) / 2 if self.cosine else self.rate

    def shortened(self, epochs: int | None) -> Schedule:
        """Return the schedule with another number of epochs, where one is given."""
        return self if epochs is None else replace(self, epochs=epochs)


def train(
    networks: Sequence[Network],
    inputs: Tensor,
    target: Tensor,
    which: Sequence[int],
    schedule: Schedule,
    order_seed: int = 0,
    report: Callable[[float], None] | None = None,
) -> None:
    """Train networks in place, all at once, each on one of several data sets.

    Only parameters are learned: what a head gathers beside them in training, the spread of a `RegressionHead`, stays.

    Args:
        networks: their heads are alike but for frequencies and gamma.
        inputs: of D data sets, (D, n, features), on the device to train on.
        target: (D, n); bin ids for the heads' ``loss``, floating-point values for their ``nll``.
        which: the data set of each network. Networks on the same one see it in the same order.
        order_seed: of the order and the jitter.
        report: is told the share of the epochs that are done.
    """
    stack = Stack(networks).to(inputs.device)
    step = _Step(stack, torch.as_tensor(which, device=inputs.device), schedule)
    order = torch.Generator().manual_seed(order_seed)
    rows = inputs.shape[1]
    for epoch in range(schedule.epochs):
        shuffled = torch.rand(inputs.shape[0], rows, generator=order).argsort(1).to(inputs.device)
        x = inputs.gather(1, shuffled.unsqueeze(-1).expand_as(inputs))
        t = target.gather(1, shuffled)
        if schedule.jitter:
            x += schedule.jitter * (2 * torch.rand(x.shape, generator=order).to(x.device) - 1)
        for first in range(0, rows, schedule.batch):
            some = slice(first, first + schedule.batch)
            step(x[:, some], t[:, some], schedule.rate_at((epoch + first / rows) / schedule.epochs))
        if report is not None:
            report((epoch + 1) / schedule.epochs)
    stack.write_back(networks)


class _Step:
    """A step of the optimizer on a batch of every data set; on a GPU it is replayed from a graph."""

    def __init__(self, stack: Stack, of_network: Tensor, schedule: Schedule):
        self.stack, self.of_network, self.clip = stack, of_network, schedule.clip
        self.parameters = list(stack.parameters())
        self.graphs = of_network.is_cuda
        # What a graph reads must lie on the device, the learning rate too.
        rate: Tensor | float = torch.tensor(schedule.rate, device=of_network.device) if self.graphs else schedule.rate
        self.optimizer = torch.optim.Adam(self.parameters, lr=rate, fused=True, capturable=self.graphs)
        self.recorded: dict[int, tuple[Tensor, Tensor, Recorded[None]]] = {}

    def __call__(self, x: Tensor, target: Tensor, rate: float) -> None:
        group = self.optimizer.param_groups[0]
        if not self.graphs:
            group["lr"] = rate
            self._take(x, target)
            return
        group["lr"].fill_(rate)
        size = x.shape[1]
        if size not in self.recorded:
            own = x.clone(), target.clone()
            self.recorded[size] = *own, Recorded(lambda: self._take(*own), x.device)
        room_x, room_target, take = self.recorded[size]
        room_x.copy_(x)
        room_target.copy_(target)
        take()

    def _take(self, x: Tensor, target: Tensor) -> None:
        self.optimizer.zero_grad()
        loss = self.stack.loss(x.index_select(0, self.of_network), target.index_select(0, self.of_network))
        loss.backward()
        if self.clip is not None:
            _clip_each([p.grad for p in self.parameters if p.grad is not None], self.clip)
        self.optimizer.step()


def _clip_each(gradients: Sequence[Tensor], largest: float) -> None:
    """Scale the gradients (R, ...) of each of R networks in place, to at most this norm."""
    norms = [torch.linalg.vector_norm(g.flatten(1), dim=1) for g in gradients]
    factor = (largest / torch.stack(norms).norm(dim=0).clamp_min(1e-12)).clamp_max(1)
    for g in gradients:
        g.mul_(factor.view(-1, *(1,) * (g.dim() - 1)))


class Stack(nn.Module):
    """R networks as one, from inputs (R, batch, features)."""

    gammas: Tensor
    penalised: Tensor

    def __init__(self, networks: Sequence[Network]):
        super().__init__()
        heads = [network.head for network in networks]
        self.layers = nn.Sequential()
        for parts in zip(*(network.body for network in networks), strict=True):
            self.layers.append(StackedLinear(parts) if isinstance(parts[0], nn.Linear) else parts[0])
        self.layers.append(StackedLinear([head.proj for head in heads], _places(heads)))
        self.head = _of_outputs(heads)
        gammas = heads[0].proj.weight.new_tensor([getattr(head, "gamma", 0.0) for head in heads])
        self.register_buffer("gammas", gammas)
        self.register_buffer("penalised", gammas.nonzero().flatten())

    def loss(self, x: Tensor, target: Tensor) -> Tensor:
        """Return the loss on targets (R, batch), its mean over the rows of a network summed over networks."""
        outputs = self.layers(x)
        total = (self.head.nll if target.is_floating_point() else self.head.loss)(outputs, target, reduction="sum")
        if isinstance(self.head, FourierHead) and len(self.penalised):
            # Some networks have a regulariser, each of its own strength.
            penalty = self.head.penalty(outputs.index_select(0, self.penalised))
            total = total + (self.gammas[self.penalised].unsqueeze(1) * penalty).sum()
        return total / target.shape[1]

    @torch.no_grad()
    def write_back(self, networks: Sequence[Network]) -> None:
        """Give networks the weights that theirs have become."""
        stacked = [layer for layer in self.layers if isinstance(layer, StackedLinear)]
        for r, network in enumerate(networks):
            own = [layer for layer in network.modules() if isinstance(layer, nn.Linear)]
            for layer, one in zip(stacked, own, strict=True):
                layer.write_back(r, one)
            for name, parameter in self.head.named_parameters():
                network.head.get_parameter(name).copy_(parameter[r, 0])


class StackedLinear(nn.Module):
    """One linear layer of each of R networks, as a batched product.

    Args:
        layers: one per network.
        places: where the outputs of each layer lie among those of the widest, if some have fewer; the rest is zero.
    """

    mask: Tensor | None

    def __init__(self, layers: Sequence[nn.Linear], places: Sequence[Tensor] | None = None):
        super().__init__()
        width = max(layer.out_features for layer in layers)
        self.places = [torch.arange(width) for _ in layers] if places is None else places
        weight = layers[0].weight.new_zeros(len(layers), layers[0].in_features, width)
        bias, mask = weight.new_zeros(2, len(layers), 1, width)
        for r, (layer, place) in enumerate(zip(layers, self.places, strict=True)):
            weight[r][:, place] = layer.weight.detach().T
            bias[r, 0, place] = layer.bias.detach()
            mask[r, 0, place] = 1
        self.weight, self.bias = nn.Parameter(weight), nn.Parameter(bias)
        self.register_buffer("mask", None if bool(mask.all()) else mask)

    def forward(self, x: Tensor) -> Tensor:
        outputs = torch.baddbmm(self.bias, x, self.weight)
        return outputs if self.mask is None else outputs * self.mask

    def write_back(self, r: int, layer: nn.Linear) -> None:
        """Copy the weights of one network to a layer of its own."""
        place = self.places[r]
        layer.weight.copy_(self.weight[r][:, place].T)
        layer.bias.copy_(self.bias[r, 0, place])


def _places(heads: Sequence[Head]) -> list[Tensor] | None:
    """Return where the coefficients of Fourier heads lie among those of the one with the most frequencies.

    A head whose higher coefficients are zero is a head with fewer, so all can be computed as the largest.
    """
    frequencies = [head.num_frequencies if isinstance(head, FourierHead) else 0 for head in heads]
    if len(set(frequencies)) == 1:
        return None
    if any(head.proj.out_features != 2 * (n + 1) for head, n in zip(heads, frequencies, strict=True)):
        raise ValueError("heads with packets or atoms must have the same number of frequencies to be stacked")
    index = [torch.arange(n + 1) for n in frequencies]
    return [torch.cat([alpha, max(frequencies) + 1 + alpha]) for alpha in index]


def _of_outputs(heads: Sequence[Head]) -> Head:
    """Return the widest of like heads, made to read outputs of projections, (R, batch, outputs), for all of them.

    What heads learn beside their projections becomes (R, 1, ...). The regulariser is left out: it may differ.
    """
    head = copy.deepcopy(max(heads, key=lambda head: head.proj.out_features))
    head.proj = nn.Identity()  # type: ignore[assignment]
    if isinstance(head, FourierHead):
        head.gamma = 0.0
    for name, _ in list(head.named_parameters()):
        values = torch.stack([one.get_parameter(name).detach() for one in heads])
        setattr(head, name, nn.Parameter(values.unsqueeze(1)))
    return head
