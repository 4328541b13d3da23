"""Training windows: a context, what followed it, and the period a model may be told, cut from a store on the device.

TSMixup, convex combinations of windows of different series, is after Chronos (Ansari et al., 2024, section 4.1).
"""

from __future__ import annotations

import math
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from fourier_head.forecasting.corpora.store import SeriesStore


class Windows(NamedTuple):
    """Carry a batch: context (B, C), NaN before a series begins; future (B, H), NaN after it ends; period (B,)."""

    context: Tensor
    future: Tensor
    period: Tensor

    @property
    def values(self) -> Tensor:
        """Context and future as one (B, C + H) tensor."""
        return torch.cat((self.context, self.future), dim=-1)

    def rows(self, index: Tensor | slice) -> Windows:
        """Return some of the rows."""
        return Windows(self.context[index], self.future[index], self.period[index])

    def to(self, device: torch.device | str) -> Windows:
        """Return the batch on `device`."""
        return Windows(*(t.to(device) for t in self))


def split_windows(values: Tensor, context: int, period: Tensor) -> Windows:
    """Cut rows of context + horizon values into `Windows`."""
    return Windows(values[:, :context], values[:, context:], period)


LENGTH_POWER = 0.25
SHORTEST = 4
"""Values of a context that are kept where a series has them."""


def chances(store: SeriesStore) -> Tensor:
    """Return the probability of every series (float64): first that of its data set, then its own within the set.

    A set weighs (number of series)^0.5 x (mean length)^0.25; within a set a series weighs length^0.25.
    """
    index, length = store.set_index.cpu(), store.lengths.cpu().double()
    zeros = torch.zeros(len(store.names), dtype=torch.float64)
    count = zeros.index_add(0, index, torch.ones_like(length))
    mean = zeros.index_add(0, index, length) / count.clamp_min(1)
    per_set = count.sqrt() * mean.pow(LENGTH_POWER)
    own = length.pow(LENGTH_POWER)
    own = own / zeros.index_add(0, index, own)[index]
    return ((per_set / per_set.sum())[index] * own).to(store.device)


def cut_contexts(context: Tensor, share: float, shortest: int, draw: Tensor) -> Tensor:
    """Blank the older part of a random share of contexts, keeping a log-uniform length from `shortest` to all.

    Users forecast series of a few dozen values; series of a corpus are longer. `draw` holds two uniforms per row.
    """
    size = context.shape[-1]
    low = math.log(min(shortest, size))
    keep = torch.exp(low + draw[:, 1:2] * (math.log(size + 1) - low)).floor()
    keep = torch.where(draw[:, :1] < share, keep, size)
    age = torch.arange(size, 0, -1, device=context.device)
    return torch.where(age <= keep, context, math.nan)


class WindowSampler:
    """Draw windows of `context` + `horizon` values from a store, wholly on its device and without a host sync.

    A data set is chosen by its chance, then a series, then the moment between past and future. Short series take part:
    at least `SHORTEST` values of context are kept where a series has them, and a future may run past the end of a
    series by all but a tenth of the series' length (NaN there). A share of the contexts is cut short.

    >>> store = SeriesStore.from_series([range(100), range(12)], period=7)
    >>> windows = WindowSampler(store, context=16, horizon=4).sample(8, torch.Generator().manual_seed(0))
    >>> windows.context.shape, windows.future.shape, windows.period.unique()
    (torch.Size([8, 16]), torch.Size([8, 4]), tensor([7]))
    """

    def __init__(self, store: SeriesStore, context: int, horizon: int, *, cut_share: float = 0.5) -> None:
        if context < 1 or horizon < 1:
            raise ValueError(f"context and horizon must be at least 1, got {context} and {horizon}.")
        if not 0 <= cut_share <= 1:
            raise ValueError(f"cut_share must lie in [0, 1], got {cut_share}.")
        usable = (store.lengths >= 2).nonzero().flatten()
        if len(usable) == 0:
            raise ValueError("no series has two values or more, so none has a past and a future.")
        self.store = store if len(usable) == len(store) else store.select(usable)
        self.device = store.device
        self.context, self.horizon, self.cut_share = context, horizon, cut_share
        # float64, because a running sum over millions of series in float32 would leave some without a chance.
        self._running = chances(self.store).cumsum(0)
        self._running /= self._running[-1].clone()
        lengths = self.store.lengths
        ahead = (lengths // 10).clamp(1, horizon)
        self._last = lengths - ahead
        self._first = torch.minimum(self._last, torch.full_like(lengths, SHORTEST))
        self._steps = torch.arange(-context, horizon, device=store.device)

    def choose(self, batch: int, generator: torch.Generator | None = None) -> tuple[Tensor, Tensor]:
        """Draw series numbers and cut points (the index of the first future value), each (batch,)."""
        draw = torch.rand(2, batch, dtype=torch.float64, device=self.device, generator=generator)
        series = torch.searchsorted(self._running, draw[0], right=True).clamp_max(len(self.store) - 1)
        first, last = self._first[series], self._last[series]
        cut = torch.minimum(first + (draw[1] * (last - first + 1)).long(), last)
        return series, cut

    def at(self, series: Tensor, cut: Tensor) -> Windows:
        """Return the windows of these series at these cut points, nothing blanked but what does not exist."""
        store = self.store
        place = cut[:, None] + self._steps
        inside = (place >= 0) & (place < store.lengths[series, None])
        flat = (store.offsets[series, None] + place).clamp(0, store.values.numel() - 1)
        values = torch.where(inside, store.values[flat], math.nan)
        return split_windows(values, self.context, store.period[series])

    def sample(self, batch: int, generator: torch.Generator | None = None) -> Windows:
        """Draw a batch of windows."""
        windows = self.at(*self.choose(batch, generator))
        if not self.cut_share:
            return windows
        draw = torch.rand(batch, 2, device=self.device, generator=generator)
        return windows._replace(context=cut_contexts(windows.context, self.cut_share, SHORTEST, draw))


MOST, ALPHA = 3, 1.5


class Source(Protocol):
    """Anything that draws windows on one device."""

    device: torch.device

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
        self.source, self.device = source, source.device

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
