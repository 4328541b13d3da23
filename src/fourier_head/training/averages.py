"""Weights to keep beside the last ones: their moving average, and those with the best validation score."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn


class EMA:
    """An exponential moving average of weights whose half-life is a share of the steps so far."""

    def __init__(self, module: nn.Module, share: float):
        self.share = share
        self.weights = {name: p.detach().clone() for name, p in module.named_parameters()}

    @torch.no_grad()
    def update(self, module: nn.Module, step: int, steps: int) -> None:
        """Move towards the weights; ``steps`` passed since the last time."""
        decay = 0.5 ** (steps / max(1.0, self.share * step))
        torch._foreach_lerp_(list(self.weights.values()), [p.detach() for p in module.parameters()], 1 - decay)


class EarlyStopping:
    """Keep the trained weights with the best validation score, and stop where it no longer improves.

    Args:
        score: of the module as it is, lower being better; called in evaluation mode without gradients.
        every: steps between validations; there is one before the first step and after the last.
        patience: validations without a better score after which to stop; never unless given.
    """

    def __init__(self, score: Callable[[], float], every: int, patience: int | None = None):
        self.score, self.every, self.patience = score, every, patience
        self.steps: list[int] = []
        self.scores: list[float] = []
        self.best = 0
        self._kept: dict[str, Tensor] = {}

    @torch.no_grad()
    def validate(self, module: nn.Module, step: int) -> bool:
        """Score the weights after a step and keep them if they are the best so far; return whether to stop."""
        module.eval()
        found = self.score()
        module.train()
        if not self.scores or found < min(self.scores):
            self.best = step
            self._kept = {name: p.detach().clone() for name, p in module.named_parameters() if p.requires_grad}
        self.steps.append(step)
        self.scores.append(found)
        return self.patience is not None and len(self.steps) - 1 - self.steps.index(self.best) >= self.patience

    def restore(self, module: nn.Module) -> None:
        """Put the best weights back."""
        module.load_state_dict(self._kept, strict=False)
