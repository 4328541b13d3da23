"""Short, middle and long windows beside each other: three streams of batches, each of one shape, in one step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from fourier_head.forecasting.corpora.augment import DEFAULT, Augmentation
from fourier_head.forecasting.corpora.mix import BatchStream, standard_corpus
from fourier_head.forecasting.corpora.store import SeriesStore


@dataclass(frozen=True)
class Bucket:
    """Describe windows of one shape.

    Args:
        context, horizon: longest past and future.
        share: of the rows of a batch.
        weight: of its loss.
        first, drawn: patches of the horizon that always count, and how many of the others, drawn at random, do too.
        shortest: least length of a series to take part.
        shares: of its parts, see ``standard_corpus``.
        steps: how its windows are changed at random.
    """

    context: int
    horizon: int
    share: float
    weight: float
    first: int
    drawn: int
    shortest: int
    shares: Mapping[str, float] = field(default_factory=dict)
    steps: tuple[Augmentation, ...] = DEFAULT

    def patches(self, patch: int, device: torch.device) -> Tensor:
        """Draw the patches (K,) of the horizon to train on."""
        count = self.horizon // patch
        if self.first + self.drawn >= count:
            return torch.arange(count, device=device)
        # Sorted noise, as a permutation cannot be part of a CUDA graph.
        rest = torch.rand(count - self.first, device=device).argsort()[: self.drawn] + self.first
        return torch.cat([torch.arange(self.first, device=device), rest])


BUCKETS = (
    Bucket(256, 64, 0.72, 0.5, 4, 0, 2,
           {"real": 0.27, "coarse": 0.18, "mixup": 0.15, "kernels": 0.12, "structural": 0.19, "simple": 0.09}),
    Bucket(2048, 256, 0.18, 0.3, 2, 10, 300,
           {"real": 0.4, "coarse": 0.12, "mixup": 0.12, "kernels": 0.1, "structural": 0.06, "fine": 0.2}),
    Bucket(10240, 1024, 0.1, 0.2, 2, 14, 1500,
           {"real": 0.5, "mixup": 0.1, "kernels": 0.1, "fine": 0.3}),
)  # fmt: skip
"""Months and years of a business; days of some years; minutes and hours."""


def without(buckets: Sequence[Bucket], *parts: str) -> tuple[Bucket, ...]:
    """Return the buckets with some of their parts left out.

    >>> sorted(without(BUCKETS, "fine", "kernels")[2].shares)
    ['mixup', 'real']
    """
    return tuple(replace(one, shares={k: v for k, v in one.shares.items() if k not in parts}) for one in buckets)


def longer(buckets: Sequence[Bucket], *changes: Mapping[str, Any]) -> tuple[Bucket, ...]:
    """Return the buckets with the middle and the long one changed, each by its own options.

    >>> [one.drawn for one in longer(BUCKETS, {"drawn": 4}, {"drawn": 6})]
    [0, 4, 6]
    """
    short, *rest = buckets
    return short, *(replace(one, **change) for one, change in zip(rest, changes, strict=True))


class BucketStream:
    """Yield context, future and period of every bucket in turn, as one tuple, for ever and from a seed.

    ``rank`` gives every process of a distributed run its own data.
    """

    def __init__(
        self,
        store: SeriesStore,
        batch: int,
        seed: int,
        *,
        buckets: Sequence[Bucket] = BUCKETS,
        device: str | None = None,
        chunk: int = 4,
        rank: int = 0,
    ) -> None:
        self.streams = []
        for number, one in enumerate(buckets):
            own = store.select((store.lengths >= one.shortest).nonzero().flatten())
            corpus = standard_corpus(own, one.context, one.horizon, shares=one.shares, steps=one.steps, device=device)
            rows = max(8, round(batch * one.share) // 8 * 8)
            self.streams.append(BatchStream(corpus, rows, seed * 17 + number, chunk=chunk, rank=rank))

    def __iter__(self) -> Iterator[tuple[Tensor, ...]]:
        return self

    def __next__(self) -> tuple[Tensor, ...]:
        return tuple(tensor for stream in self.streams for tensor in next(stream))

    def state_dict(self) -> dict[str, Any]:
        """Return what a continued run needs."""
        return {str(i): stream.state_dict() for i, stream in enumerate(self.streams)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from ``state_dict``."""
        for i, stream in enumerate(self.streams):
            stream.load_state_dict(state[str(i)])
