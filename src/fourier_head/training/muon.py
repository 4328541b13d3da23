"""Muon: matrices move by their momentum made orthogonal, everything else as under AdamW.

References:
    Jordan et al., Muon: An optimizer for hidden layers in neural networks (2024); the size of steps is that of Liu et
    al., Muon is scalable for LLM training (2025), so that one learning rate serves both kinds of weights.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

COEFFICIENTS, ROUNDS = (3.4445, -4.7750, 2.0315), 5
"""Of the odd polynomial whose iterates, so many of them, bring singular values near one."""
SIZE = 0.2
"""Root mean square of a step, in learning rates: about that of AdamW."""


def orthogonal(matrices: Tensor) -> Tensor:
    """Return matrices (n, rows, columns) with the same singular vectors and singular values near one.

    >>> values = torch.linalg.svdvals(orthogonal(torch.diag(torch.tensor([3.0, 1.0, 0.2]))[None]).float())
    >>> bool(((values > 0.6) & (values < 1.3)).all())
    True
    """
    a, b, c = COEFFICIENTS
    x = matrices.bfloat16() if matrices.is_cuda else matrices
    tall = x.shape[-2] > x.shape[-1]
    x = x.mT if tall else x
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(ROUNDS):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.mT if tall else x


class Muon(torch.optim.Optimizer):
    """Step the matrices of groups marked ``orthogonal`` by orthogonal momentum, other weights as AdamW does.

    Args:
        groups: of parameters; ``orthogonal`` ones hold matrices, of which those of one shape are stepped together.
        lr: of both.
        betas: of AdamW.
        momentum: of the matrices.
    """

    def __init__(
        self,
        groups: list[dict[str, Any]],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.98),
        momentum: float = 0.95,
    ):
        usual = {"lr": lr, "betas": betas, "momentum": momentum, "weight_decay": 0.0, "orthogonal": False, "steps": 0}
        super().__init__(groups, usual)

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """Move all weights that have a gradient."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            weights = [p for p in group["params"] if p.grad is not None]
            if not weights:
                continue
            for p in weights:
                if not self.state[p]:
                    names = ("momentum",) if group["orthogonal"] else ("mean", "square")
                    self.state[p] = {name: torch.zeros_like(p) for name in names}
            # A number of the host: one on the device would be waited for.
            group["steps"] += 1
            if group["weight_decay"]:
                torch._foreach_mul_(weights, 1 - group["lr"] * group["weight_decay"])
            (self._orthogonal if group["orthogonal"] else self._adam)(group, weights)
        return loss

    def _orthogonal(self, group: dict[str, Any], weights: list[nn.Parameter]) -> None:
        gradients = [p.grad for p in weights]
        kept = [self.state[p]["momentum"] for p in weights]
        torch._foreach_lerp_(kept, gradients, 1 - group["momentum"])  # type: ignore[arg-type]
        ahead = torch._foreach_lerp(gradients, kept, group["momentum"])  # type: ignore[arg-type]
        alike: dict[torch.Size, list[int]] = {}
        for i, p in enumerate(weights):
            alike.setdefault(p.shape, []).append(i)
        for shape, numbers in alike.items():
            moves = orthogonal(torch.stack([ahead[i] for i in numbers])).to(weights[0].dtype)
            size = group["lr"] * SIZE * max(shape) ** 0.5
            torch._foreach_add_([weights[i] for i in numbers], list(moves.unbind(0)), alpha=-size)

    def _adam(self, group: dict[str, Any], weights: list[nn.Parameter]) -> None:
        first, second = group["betas"]
        gradients: list[Any] = [p.grad for p in weights]
        mean, square = ([self.state[p][name] for p in weights] for name in ("mean", "square"))
        torch._foreach_lerp_(mean, gradients, 1 - first)
        torch._foreach_mul_(square, second)
        torch._foreach_addcmul_(square, gradients, gradients, 1 - second)
        count = group["steps"]
        spread = torch._foreach_sqrt(square)
        torch._foreach_div_(spread, (1 - second**count) ** 0.5)
        torch._foreach_add_(spread, 1e-8)
        torch._foreach_addcdiv_(list[Tensor](weights), mean, spread, -group["lr"] / (1 - first**count))
