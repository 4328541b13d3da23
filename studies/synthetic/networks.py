"""The networks of the synthetic studies: a small body that ends in one of the library's heads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn

from fourier_head.bins import Bins
from fourier_head.domains import Adaptive
from fourier_head.heads import FourierHead, Head
from fourier_head.heads.baselines import HLGaussHead, LinearHead, MixtureHead, RegressionHead
from fourier_head.layout import Regularizer
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
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(seed)
        return Network(make)
