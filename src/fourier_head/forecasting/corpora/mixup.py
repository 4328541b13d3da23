"""TSMixup: convex combinations of windows of different series, after Chronos (Ansari et al., 2024, section 4.1)."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from fourier_head.forecasting.corpora.windows import Windows

MOST, ALPHA = 3, 1.5


class Source(Protocol):
    """Anything that draws windows on one device."""

    @property
    def device(self) -> torch.device:
        """Where windows are made."""
        ...

    def sample(self, batch: int, generator: torch.Generator | None = None) -> Windows:
        """Draw a batch of windows."""
        ...


def mean_scale(context: Tensor) -> Tensor:
    """Return the mean absolute value (B, 1) of what is there of each context; 1 where that is 0 or nothing."""
    scale = context.abs().nanmean(1, keepdim=True)
    return torch.where(scale > 0, scale, 1.0)


def mix_windows(groups: Windows, count: Tensor, weights: Tensor) -> Windows:
    """Mix groups of K windows (B, K, ...) into one each: the first `count` (B,) of a group, `weights` (B, K) sum to 1.

    Each window is divided by its mean absolute value first. Where one of the mixed has no value the mix has none, so
    all are cut to the length of the shortest. The period stays if all agree and is 1, unknown, otherwise.
    """
    batch, k = weights.shape
    used = torch.arange(k, device=weights.device) < count[:, None]
    scale = mean_scale(groups.context.flatten(0, 1)).view(batch, k, 1)

    def combine(values: Tensor) -> Tensor:
        # An unused window must not bring its NaN along, so it is replaced rather than multiplied by zero.
        return torch.where(used[..., None], weights[..., None] * (values / scale), 0.0).sum(1)

    agree = (groups.period == groups.period[:, :1]).logical_or(~used).all(1)
    return Windows(combine(groups.context), combine(groups.future), torch.where(agree, groups.period[:, 0], 1))


class TSMixup:
    """Draw mixtures of 1 to `MOST` windows of a source, with Dirichlet(`ALPHA`) weights, as Chronos does.

    Windows mix best with windows of their own length, since the shortest cuts the others: candidates are sorted by the
    length of their context, and neighbours are mixed.
    """

    def __init__(self, source: Source) -> None:
        self.source = source

    @property
    def device(self) -> torch.device:
        """Where windows are made."""
        return self.source.device

    def sample(self, batch: int, generator: torch.Generator | None = None) -> Windows:
        """Draw a batch of mixtures."""
        size = batch * MOST
        windows = self.source.sample(size, generator)
        # 1.0, 1.99 ...: noise below one step keeps the order by length and breaks ties at random.
        key = torch.rand(size, device=self.device, generator=generator) + history(windows.context)
        windows = windows.rows(torch.argsort(key))
        # Sorted neighbours form a group; the groups then go back into random order.
        shuffle = torch.randperm(batch, device=self.device, generator=generator)
        groups = Windows(*(t.view(batch, MOST, *t.shape[1:])[shuffle] for t in windows))
        draw = torch.rand(batch, device=self.device, generator=generator)
        count = 1 + (draw * MOST).long().clamp_max(MOST - 1)
        return mix_windows(groups, count, dirichlet(count, MOST, ALPHA, generator))


def dirichlet(count: Tensor, most: int, alpha: float, generator: torch.Generator | None = None) -> Tensor:
    """Draw weights (B, most) that sum to 1 over the first `count` of each row, 0 after: gammas over their sum."""
    gamma = torch._standard_gamma(torch.full((len(count), most), alpha, device=count.device), generator=generator)
    used = torch.arange(most, device=count.device) < count[:, None]
    gamma = torch.where(used, gamma.clamp_min(1e-20), 0.0)
    return gamma / gamma.sum(1, keepdim=True)


def history(context: Tensor) -> Tensor:
    """Return how far back (B,) the oldest value of each context lies: C minus the NaN on its left.

    >>> nan = float("nan")
    >>> history(torch.tensor([[nan, nan, 1.0, nan], [1.0, 2.0, 3.0, 4.0], [nan] * 4]))
    tensor([2, 4, 0])
    """
    present = ~context.isnan()
    return torch.where(present.any(1), context.shape[1] - present.to(torch.uint8).argmax(1), 0)
