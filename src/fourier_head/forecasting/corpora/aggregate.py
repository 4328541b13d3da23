"""Coarser series out of fine ones: hours become days, days weeks or months, months quarters or years.

What people forecast is mostly monthly, quarterly or yearly and short; what corpora hold is mostly fine and long. The
mean over blocks of k steps (the scale does not matter, so it stands for the sum too), or every k-th value, turns the
one into the other and keeps real trends, seasons and noise.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from fourier_head.forecasting.corpora.store import SeriesStore
from fourier_head.forecasting.corpora.windows import SHORTEST, Windows, WindowSampler, cut_contexts, split_windows

STEPS: dict[int, tuple[tuple[int, int], ...]] = {
    288: ((3, 96), (6, 48), (12, 24), (36, 8), (288, 7)),
    144: ((3, 48), (6, 24), (12, 12), (144, 7)),
    96: ((2, 48), (4, 24), (12, 8), (24, 4), (96, 7), (672, 52)),
    48: ((2, 24), (4, 12), (12, 4), (48, 7), (336, 52), (1461, 12)),
    24: ((2, 12), (3, 8), (4, 6), (6, 4), (24, 7), (168, 52), (730, 12), (2190, 4)),
    7: ((7, 52), (30, 12), (91, 4), (365, 1)),
    5: ((5, 52), (21, 12), (63, 4), (250, 1)),
    52: ((2, 26), (4, 13), (13, 4), (52, 1)),
    12: ((2, 6), (3, 4), (6, 2), (12, 1)),
    4: ((2, 2), (4, 1)),
    1: ((2, 1), (3, 1), (5, 1)),
}
"""Block lengths that make sense for a period, ascending, each with the period of the coarser series (1: unknown)."""
FEWEST, THIN_SHARE = 24, 0.25
"""Blocks that a series must keep, and the share of rows that are thinned out instead of averaged."""


class AggregatedSampler:
    """Draw windows of series averaged over, or thinned out to, every k steps; k is drawn from what suits the period.

    Only series that keep `FEWEST` blocks take part. The first block starts anywhere among the first k values. Means
    come from running sums, so a window costs two gathers whatever k is; a block with half its values or more missing is
    missing.
    """

    def __init__(self, store: SeriesStore, context: int, horizon: int, *, cut_share: float = 0.1) -> None:
        most = max(len(options) for options in STEPS.values())
        known = sorted(STEPS)
        blocks = torch.full((len(known), most), 2**40)
        coarser = torch.ones(len(known), most, dtype=torch.long)
        for place, period in enumerate(known):
            for column, (k, new) in enumerate(sorted(STEPS[period])):
                blocks[place, column], coarser[place, column] = k, new
        # A period outside the table counts as unknown.
        periods = torch.tensor(known)
        row = torch.searchsorted(periods, store.period.cpu()).clamp_max(len(known) - 1)
        row = torch.where(periods[row] == store.period.cpu(), row, known.index(1))
        # One value fewer than a whole block may be lost in front.
        possible = ((store.lengths.cpu()[:, None] + 1) // blocks[row] - 1 >= FEWEST).sum(1)
        usable = (possible > 0).nonzero().flatten()
        if len(usable) == 0:
            raise ValueError(f"no series is long enough to keep {FEWEST} blocks of any length.")
        self.sampler = WindowSampler(store.select(usable), context, horizon)
        self.context, self.horizon, self.cut_share = context, horizon, cut_share
        self.device = device = store.device
        self._row, self._possible = row[usable].to(device), possible[usable].to(device)
        self._blocks, self._coarser = blocks.to(device), coarser.to(device)
        self._steps = torch.arange(-context, horizon, device=device)
        # On the host, where sums are added in one order: a resumed run must see the same digits.
        self._scale, self._sums, self._counts = (t.to(device) for t in running_sums(self.sampler.store.to("cpu")))

    def choose(self, batch: int, generator: torch.Generator | None = None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Draw series numbers, block lengths, places of the first block and cut points (in blocks), each (batch,)."""
        series, _ = self.sampler.choose(batch, generator)
        draw = torch.rand(3, batch, dtype=torch.float64, device=self.device, generator=generator)
        option = (draw[0] * self._possible[series]).long()
        k = self._blocks[self._row[series], option]
        first = (draw[1] * k).long()
        length = (self.sampler.store.lengths[series] - first) // k
        last = length - (length // 10).clamp(1, self.horizon)
        low = last.clamp_max(SHORTEST)
        return series, k, first, torch.minimum(low + (draw[2] * (last - low + 1)).long(), last)

    def at(self, series: Tensor, k: Tensor, first: Tensor, cut: Tensor, thin: Tensor) -> Tensor:
        """Return the values (B, C + H) of blocks around the cut points: means, or last values where `thin` (B,)."""
        store = self.sampler.store
        block = cut[:, None] + self._steps
        start = first[:, None] + block * k[:, None]
        end = start + k[:, None]
        inside = (block >= 0) & (end <= store.lengths[series, None])
        offset = store.offsets[series, None]
        left = torch.where(inside, offset + start, 0)
        right = torch.where(inside, offset + end, 0)
        count = self._counts[right] - self._counts[left]
        mean = (self._sums[right] - self._sums[left]) / count
        mean = torch.where(2 * count > k[:, None], mean * self._scale[series, None], math.nan).float()
        values = torch.where(thin[:, None], store.values[(right - 1).clamp_min(0)], mean)
        return torch.where(inside, values, math.nan)

    def sample(self, batch: int, generator: torch.Generator | None = None) -> Windows:
        """Draw a batch of windows."""
        series, k, first, cut = self.choose(batch, generator)
        draw = torch.rand(batch, 3, device=self.device, generator=generator)
        values = self.at(series, k, first, cut, draw[:, 2] < THIN_SHARE)
        row = self._row[series]
        chosen = (self._blocks[row] == k[:, None]).to(torch.uint8).argmax(1)
        windows = split_windows(values, self.context, self._coarser[row, chosen])
        return windows._replace(context=cut_contexts(windows.context, self.cut_share, SHORTEST, draw))


def running_sums(store: SeriesStore) -> tuple[Tensor, Tensor, Tensor]:
    """Return the scale of every series and the running sums (float64) and counts of its values, with a 0 in front.

    Series are divided by their mean absolute value first: in one sum over all, a series of billions would otherwise
    swallow the digits of one of thousandths.
    """
    number = torch.repeat_interleave(torch.arange(len(store), device=store.device), store.lengths)
    present = ~store.values.isnan()
    values = torch.where(present, store.values, 0.0).double()
    zeros = torch.zeros(len(store), dtype=torch.float64, device=store.device)
    scale = zeros.index_add(0, number, values.abs()) / zeros.index_add(0, number, present.double()).clamp_min(1)
    scale = torch.where(scale > 0, scale, 1.0)
    sums = torch.cat((zeros[:1], (values / scale[number]).cumsum(0)))
    return scale, sums, torch.cat((zeros[:1].int(), present.cumsum(0).int()))
