"""Plain series, the first ones that people try: a line, a constant, a pure season, white noise, rare demand.

A forecaster that has seen the world should not stumble over 1, 2, 3. Rows are short, clean, and of every kind in equal
shares; some end in a value that has nothing to do with the rest.
"""

from __future__ import annotations

from typing import Any

import torch

from fourier_head.forecasting.corpora.synthetic import Draws
from fourier_head.forecasting.corpora.windows import Windows, cut_contexts, split_windows

PLAIN_PERIODS = (1, 4, 7, 12, 12, 24, 52)
KINDS = 6
ODD_SHARE = 0.15
"""Share of rows that end in an odd value, and of those with some before."""


class PlainSynth:
    """Draw windows of plain series (see the module), the period attached where it is below the context."""

    def __init__(self, context: int, horizon: int, *, device: torch.device | str = "cpu"):
        self.context, self.horizon = context, horizon
        self.device = torch.empty(0, device=device).device
        known = [p for p in PLAIN_PERIODS if p < context]
        self._periods, self._longest = torch.tensor(known, device=self.device), max(known)
        self._time = torch.arange(-context, horizon, device=self.device)

    def sample(self, batch: int, generator: torch.Generator | None = None) -> Windows:
        """Draw a batch of windows."""
        own: dict[str, Any] = {"device": self.device, "generator": generator}
        draws = Draws(batch, self.device, generator)
        shape = (batch, len(self._time))
        period = self._periods[(draws.uniform() * len(self._periods)).long().squeeze(1)].unsqueeze(1)
        kind = (draws.uniform() * KINDS).long()
        noise = torch.randn(shape, **own) * torch.where(draws.chance(0.3), 0.0, draws.log_uniform(0.001, 0.3))
        time = self._time + 0.0
        line = draws.normal() * 10 + time * draws.normal() * draws.log_uniform(0.01, 3.0) + noise
        growth = torch.exp((time * draws.normal() * draws.log_uniform(0.001, 0.05)).clamp(-6, 4)) * torch.exp(noise)
        table = torch.randn(batch, self._longest, **own)
        peak = torch.arange(table.shape[1], device=self.device) == (draws.uniform() * period).long()
        table = torch.where(draws.chance(0.4), peak * draws.log_uniform(1.0, 10.0), table)
        season = draws.log_uniform(0.5, 20.0) + table.gather(1, (self._time + self.context) % period) + noise
        level = draws.log_uniform(0.5, 100.0) + torch.randn(shape, **own) * draws.log_uniform(0.3, 3.0)
        rare = torch.poisson(draws.log_uniform(0.01, 1.0).expand(shape).contiguous(), generator=generator)
        rare = rare * torch.where(draws.chance(0.5), 1.0, draws.log_uniform(1.0, 20.0).round())
        steps = torch.randn(shape, **own).cumsum(1) * draws.log_uniform(0.01, 0.3) + draws.normal() * 5
        values = torch.stack((line, growth, season, level, rare, steps)).gather(
            0, kind.T.unsqueeze(-1).expand(1, *shape)
        )
        values = values.squeeze(0)
        size = 10 ** draws.uniform(-2.0, 4.0)
        values = torch.where((kind == 4) | draws.chance(0.3), values, values * size)
        told = torch.where(draws.chance(0.9), period, 1).squeeze(1)
        windows = split_windows(values, self.context, told)
        odd = draws.chance(ODD_SHARE) & (self._time[: self.context] == -1)
        odd = odd | (
            draws.chance(ODD_SHARE) & (torch.rand(batch, self.context, **own) < draws.log_uniform(0.003, 0.05))
        )
        far = draws.sign() * draws.log_uniform(3.0, 300.0) * windows.context.std(1, keepdim=True)
        context = torch.where(odd, windows.context + far, windows.context)
        # Most are short: from two values on, where noise and level still can be told apart by what is usual only.
        cut = torch.rand(batch, 2, **own)
        return windows._replace(context=cut_contexts(context, 0.9, 2, cut))
