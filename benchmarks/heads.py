"""What a distributional head costs: the losses that users call, and those of other heads, on one problem.

Heads are modules as the library has them, in the type of the problem; "compiled" is ``torch.compile`` of the same loss.
A mixture is trained on its likelihood, HL-Gauss on soft bins, and nine quantiles on the pinball loss.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from benchmarks.arms import FLOOR, Problem, Step, passes
from fourier_head import Adaptive, FourierHead, HLGaussHead, Interval, MixtureHead, kernels

LEVELS = tuple(level / 10 for level in range(1, 10))


class Quantiles(nn.Module):
    """Nine quantiles from one linear layer."""

    def __init__(self, width: int):
        super().__init__()
        self.proj = nn.Linear(width, len(LEVELS), bias=False)
        self.register_buffer("levels", torch.tensor(LEVELS))

    def pinball(self, x: Tensor, value: Tensor) -> Tensor:
        """Return the mean pinball loss of all levels."""
        error = value.unsqueeze(-1) - self.proj(x).float()
        levels = self.levels.float()
        return torch.maximum(levels * error, (levels - 1) * error).mean()


@dataclass(frozen=True)
class Arm:
    """A head and the loss of it that is measured; ``exact`` where there is a reference that takes float64."""

    head: nn.Module
    loss: Callable[[nn.Module, Tensor, Tensor], Tensor]
    exact: bool = False

    def target(self, p: Problem) -> Tensor:
        """Return what the loss is of: bin ids or values."""
        return p.target if self.loss is _of_bins else p.value


def _of_bins(head: nn.Module, x: Tensor, target: Tensor) -> Tensor:
    return head.loss(x, target)  # type: ignore[operator]


def _nll(head: nn.Module, x: Tensor, value: Tensor) -> Tensor:
    return head.nll(x, value)  # type: ignore[operator]


def _crps(head: nn.Module, x: Tensor, value: Tensor) -> Tensor:
    return head.crps(x, value)  # type: ignore[operator]


def _pinball(head: nn.Module, x: Tensor, value: Tensor) -> Tensor:
    return head.pinball(x, value)  # type: ignore[operator]


def arms(p: Problem) -> dict[str, Callable[[], Arm]]:
    """Return the heads by name, each made when it is its turn."""

    def fourier(**options: object) -> FourierHead:
        torch.manual_seed(0)
        more = {"floor": FLOOR, "init_scale": 1.0, "bias": p.bias} | options
        return FourierHead(p.width, num_frequencies=p.frequencies, **more).to(p.x)  # type: ignore[arg-type]

    def mixture(components: int) -> nn.Module:
        return MixtureHead(p.width, num_components=components, domain=Interval(), bias=p.bias).to(p.x)

    bins = p.num_bins
    found: dict[str, Callable[[], Arm]] = {
        "loss": lambda: Arm(fourier(num_bins=bins), _of_bins, True),
        "loss, packets=4": lambda: Arm(fourier(num_bins=bins, packets=4), _of_bins, True),
        "loss, two atoms": lambda: Arm(fourier(num_bins=bins, num_atoms=2), _of_bins, True),
        "nll": lambda: Arm(fourier(domain=Interval()), _nll, True),
        "nll, adaptive": lambda: Arm(fourier(domain=Adaptive()), _nll, True),
        "nll, adaptive, packets=4": lambda: Arm(fourier(domain=Adaptive(), packets=4), _nll, True),
        "crps": lambda: Arm(fourier(domain=Interval()), _crps, True),
        "crps, adaptive": lambda: Arm(fourier(domain=Adaptive()), _crps, True),
        "mixture of 4, nll": lambda: Arm(mixture(4), _nll),
        "mixture of 16, nll": lambda: Arm(mixture(16), _nll),
        "HL-Gauss": lambda: Arm(HLGaussHead(p.width, bins, bias=p.bias).to(p.x), _of_bins),
        "nine quantiles, pinball": lambda: Arm(Quantiles(p.width).to(p.x), _pinball),
    }
    if p.frequencies > kernels.RANKED_FREQUENCIES:
        # The spectrum of so many frequencies is left to library transforms.
        return {name: make for name, make in found.items() if not name.startswith("crps")}
    return found


OURS = ("loss", "nll", "crps")


def steps(arm: Arm, p: Problem, compiled: bool = False) -> tuple[Step, Step]:
    """Return a forward step, and one that goes forward and back."""
    if compiled:
        torch._dynamo.reset()
    loss, target = torch.compile(arm.loss) if compiled else arm.loss, arm.target(p)
    return passes(lambda: loss(arm.head, p.x, target), [p.x, *arm.head.parameters()])


def contenders(p: Problem) -> dict[str, Callable[[], tuple[Step, Step]]]:
    """Return (forward, both) of every head; others compiled, too, since they leave the fusing to the compiler."""
    found: dict[str, Callable[[], tuple[Step, Step]]] = {}
    for name, make in arms(p).items():
        ours = name.startswith(OURS)
        found[f"FourierHead.{name}" if ours else name] = lambda make=make: steps(make(), p)  # type: ignore[misc]
        if not ours:
            found[f"{name}, compiled"] = lambda make=make: steps(make(), p, compiled=True)  # type: ignore[misc]
    return found


def in_float64(head: nn.Module) -> nn.Module:
    """Return a copy of one of the library's heads that computes its losses in plain torch and float64."""
    exact = copy.deepcopy(head).double()
    exact.impl = "reference"  # type: ignore[assignment]
    return exact
