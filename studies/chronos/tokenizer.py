"""Tokens of time series: values over their mean absolute value, in bins; the first ids are the special tokens."""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fourier_head.bins import Bins
from fourier_head.errors import is_whole

PAD, EOS = 0, 1
NUM_SPECIAL = 2
"""PAD and EOS come before the bins, as the atoms of a `FourierHead` with `num_atoms=2` do."""


class Tokens(NamedTuple):
    """Token ids, a mask that is True where there is something to attend to, and the scale of each series."""

    ids: Tensor
    mask: Tensor
    scale: Tensor


@dataclass(eq=False)
class ChronosTokenizer:
    r"""Turn series into token ids and back: mean scaling, then bins on an interval.

    .. math:: \mathrm{id}(x_t) = 2 + \mathrm{bin}(x_t / s), \qquad s = \mathrm{mean}_t \, |x_t| \text{ over the context}

    PAD (0) stands for a missing value (NaN or infinite) and is masked, EOS (1) ends a sequence, bins have the rest.
    Every bin decodes to its centre, so within the interval

    .. math:: |\mathrm{decode}(\mathrm{encode}(x)) - x| \leq s \, w / 2

    with the width w of its bin, for bins of either kind. Everything is batched torch on the device of the values.

    The tokenizer released with the paper has as many ids but other centres: they include the ends of each range, and
    the id before each range is never used. Its mixed bins decode with one table that forgets these gaps, so that what
    comes back is 2 bins too high on [-1, 10) and 4 on [10, 15]. `released=True` reproduces it; its uniform bins, those
    of Chronos, decode right.

    Args:
        kind: "mixed" has narrow bins in the dense range and wide ones around it (the paper), "uniform" equal ones.
        num_ids: size of the vocabulary, special tokens included.
        low, high: the interval of scaled values; those outside go to its ends.
        dense: the dense range of mixed bins.
        sparse_share: share of the bins for values outside of it; the paper's text leaves it open, its runs had 0.2.
        released: reproduce the released tokenizer.

    References:
        Ansari et al., Chronos: Learning the Language of Time Series (2024), section 3.1.
        Gillman et al., Fourier Head (2025), section 2.3 and appendix D.2.

    Example:
        >>> tokenizer = ChronosTokenizer("uniform", num_ids=32)
        >>> tokens = tokenizer.encode(torch.tensor([[1.0, float("nan"), 3.0]]))
        >>> tokens.ids, tokens.scale
        (tensor([[17,  0, 18]]), tensor([2.], dtype=torch.float64))
        >>> tokenizer.decode(tokens.ids, tokens.scale)
        tensor([[1., nan, 3.]], dtype=torch.float64)
    """

    kind: Literal["mixed", "uniform"] = "mixed"
    _: KW_ONLY
    num_ids: int = 4096
    low: float = -15.0
    high: float = 15.0
    dense: tuple[float, float] = (-1.0, 10.0)
    sparse_share: float = 0.2
    released: bool = False

    def __post_init__(self) -> None:
        kind, num_ids = self.kind, self.num_ids
        if kind not in ("mixed", "uniform"):
            raise ValueError(f"kind must be 'mixed' or 'uniform', got {kind!r}")
        if not is_whole(num_ids, NUM_SPECIAL + 1):
            raise ValueError(f"num_ids must be a whole number greater than {NUM_SPECIAL}, got {num_ids!r}")
        self.num_bins = num_ids - NUM_SPECIAL
        low, high = self.dense
        self.dense = (low, high)  # JSON makes a list of it
        # The bins also make the domain of a head: `FourierHead(width, domain=tokenizer.bins, num_atoms=2)`. The
        # released tokenizer has none: its ids are no bins in a row, so a head for it gets `num_bins` alone.
        self.bins: Bins | None = None
        if self.released:
            ranges = [(self.low, low), (low, high), (high, self.high)] if kind == "mixed" else [(self.low, self.high)]
            self._cells, ids, values = _released_tables(ranges, num_ids, self.sparse_share)
        else:
            own = (self.num_bins, self.low, self.high)
            self.bins = Bins.uniform(*own) if kind == "uniform" else Bins.mixed(*own, self.dense, self.sparse_share)
            self._cells = self.bins
            ids = np.arange(NUM_SPECIAL, num_ids)
            values = np.concatenate([[math.nan] * NUM_SPECIAL, self.bins.centers.numpy()])
        # The last entry is what the cell of a missing value, -1, finds.
        self._ids, self._values = torch.from_numpy(np.append(ids, PAD)), torch.from_numpy(values)
        self._tables: dict[torch.device, tuple[Bins, Tensor, Tensor]] = {}

    # --- values to ids

    def scale_of(self, context: Tensor) -> Tensor:
        """Return the mean absolute value of what is observed in each series, 1 where that is nothing or 0."""
        context, known = _observed(context)
        total = torch.where(known, context, 0.0).abs().sum(-1)
        mean = total / known.sum(-1).clamp_min(1)
        return torch.where((mean > 0) & mean.isfinite(), mean, 1.0)

    def encode(self, values: Tensor, scale: Tensor | None = None, *, eos: bool = False) -> Tokens:
        """Return the tokens of series, time last.

        Args:
            values: shape (..., time); NaN and infinite values are missing.
            scale: that of the context, where these values continue one; their own otherwise.
            eos: whether to end every sequence with EOS.
        """
        scale = self.scale_of(values) if scale is None else scale
        wide, known = _observed(values)
        cells, ids, _ = self._on(values.device)
        found = cells.encode(torch.where(known, wide / scale[..., None].to(wide), 0.0))
        tokens = ids[torch.where(known, found, -1)]
        if eos:
            end = tokens.new_full((*tokens.shape[:-1], 1), EOS)
            tokens = torch.cat([tokens, end], -1)
            known = torch.cat([known, torch.ones_like(end, dtype=torch.bool)], -1)
        return Tokens(tokens, known, scale)

    def encode_context(self, context: Tensor, length: int = 512) -> Tokens:
        """Return the tokens of the last `length` values of contexts, with EOS at their end."""
        return self.encode(context[..., -length:], eos=True)

    def labels(self, target: Tensor, scale: Tensor) -> Tensor:
        """Return what a decoder must predict: ids of the target under the scale of its context, then EOS.

        Missing values are -100, which losses leave out.
        """
        tokens = self.encode(target, scale, eos=True)
        return torch.where(tokens.mask, tokens.ids, -100)

    # --- ids to values

    def decode(self, ids: Tensor, scale: Tensor | None = None) -> Tensor:
        """Return the values of ids, NaN for special tokens (the released tokenizer: its lowest value).

        Args:
            ids: shape (batch..., ...), as sample paths have more axes than the scale.
            scale: shape (batch...); 1 otherwise.
        """
        values = self._on(ids.device)[2][ids]
        if scale is None:
            return values
        return values * scale.to(values).reshape(*scale.shape, *[1] * (ids.ndim - scale.ndim))

    @property
    def values(self) -> Tensor:
        """The scaled value that every id stands for, shape (num_ids,)."""
        return self._values.clone()

    # --- living with others

    def _on(self, device: torch.device) -> tuple[Bins, Tensor, Tensor]:
        if device not in self._tables:
            values = self._values.float() if device.type == "mps" else self._values
            self._tables[device] = self._cells.to(device), self._ids.to(device), values.to(device)
        return self._tables[device]


def _observed(values: Tensor) -> tuple[Tensor, Tensor]:
    """Return values in float64, where the device has it, and which of them are there."""
    wide = values.to(torch.float32 if values.device.type == "mps" else torch.float64)
    return wide, wide.isfinite()


def _released_tables(
    ranges: list[tuple[float, float]], num_ids: int, sparse_share: float
) -> tuple[Bins, np.ndarray, np.ndarray]:
    """Return the cells that the released tokenizer encodes with, the id of each, and the value each id decodes to.

    Every range has centres from end to end, and a value goes to the nearest centre of its range. The first range gives
    up its two special ids and one more, every other range one; so ids have gaps, which decoding does not know of.
    """
    lengths = [high - low for low, high in ranges]
    if len(ranges) == 1:
        shares = [num_ids]
    else:
        left, right = (int(sparse_share * num_ids * lengths[i] / (lengths[0] + lengths[2])) for i in (0, 2))
        shares = [left, num_ids - left - right, right]
    counts = [shares[0] - NUM_SPECIAL - 1, *(share - 1 for share in shares[1:])]
    if min(counts) < 2:
        raise ValueError(f"num_ids must leave two bins for every range, got {num_ids}")
    edges: list[np.ndarray] = []
    ids: list[np.ndarray] = []
    table: list[np.ndarray] = []
    first = 0
    for (low, high), share, count in zip(ranges, shares, counts, strict=True):
        centers = np.linspace(low, high, count)
        half = (high - low) / (count - 1) / 2
        # A range ends where the next begins; only the outer ends have room for half a bin more.
        start = low - half if not edges else low
        edges.append(np.concatenate([[start], centers[:-1] + half]))
        ids.append(np.arange(first + share - count, first + share))
        table.append(centers if not table else np.linspace(low, high, share - 1)[1:])
        first += share
    cells = Bins(np.append(np.concatenate(edges), ranges[-1][1] + half), "released")
    decoded = np.concatenate(table)
    place = np.clip(np.arange(num_ids) - NUM_SPECIAL - 1, 0, len(decoded) - 1)
    return cells, np.concatenate(ids), decoded[place]
