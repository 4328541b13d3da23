r"""Series of seconds to hours: several seasons at once, and what machines and people do to them.

A row is a day (or an hour) of one pattern, a week of days that differ, a level that drifts or jumps, states that go on
and off, bursts that die away, jobs that come at their own interval, and noise; observed as it is, as a count, as a
share between two bounds, or by a sensor that rounds, sticks and loses values for a while.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from fourier_head.forecasting.corpora.synthetic import Draws, Synth, ar1, unit
from fourier_head.forecasting.corpora.windows import Windows, cut_contexts, split_windows

FINE_PERIODS: dict[int, float] = {
    24: 30,
    48: 12,
    96: 14,
    144: 10,
    288: 18,
    360: 8,
    1440: 8,
    240: 1,
    3600: 2,
    60: 2,
    7: 8,
}
"""Steps of the first season, each with its weight; all but the last few are days."""
HARMONICS = 6
CUT_SHARE = 0.4
"""Share of rows whose older part is blanked."""
LEVELS = 32
"""Levels that a row which jumps can take."""


class FineSynth(Synth):
    """Draw windows of fine series (see the module), the period attached."""

    def __init__(self, context: int, horizon: int, *, device: torch.device | str = "cpu") -> None:
        known = {p: FINE_PERIODS[p] for p in sorted(FINE_PERIODS) if 2 * p <= context}
        if not known:
            raise ValueError(f"context must hold two cycles of a period, got {context} and {sorted(FINE_PERIODS)}.")
        super().__init__(context, horizon, known, device)

    def sample(self, batch: int, generator: torch.Generator | None = None) -> Windows:
        """Draw a batch of windows."""
        draws = Draws(batch, self.device, generator, columns=160)
        period = self._periods[self._draw_seasons(draws), None]
        noise = draws.randn(3, batch, len(self._time))
        tail = draws.chance(0.4) * draws.uniform(0.3, 1.2)
        noise[1] = noise[1] * torch.exp(tail * draws.randn(batch, len(self._time)))
        memory = torch.stack(
            (
                torch.exp(-1 / (period * draws.log_uniform(0.5, 40.0))),  # drift over cycles
                torch.where(draws.chance(0.5), torch.exp(-1 / draws.log_uniform(1.0, 60.0)), 0.0),  # noise
                torch.exp(-1 / draws.log_uniform(5.0, 500.0)),  # volume of the noise
            )
        )
        drift, error, volume = ar1(noise, memory).unbind(0)
        season = self._day(draws, period) + self._week(draws, period)
        grow = draws.chance(0.3) * draws.uniform(0.05, 0.5)
        part = draws.chance(0.85) * draws.log_uniform(0.1, 2.0) * season * torch.exp(grow * unit(drift))
        part = part + draws.chance(0.5) * draws.log_uniform(0.05, 1.5) * unit(drift)
        walk = draws.randn(batch, len(self._time)).cumsum(1) / math.sqrt(len(self._time))
        part = part + draws.chance(0.2) * draws.log_uniform(0.1, 3.0) * walk
        part = part + draws.chance(0.2) * draws.log_uniform(0.3, 3.0) * self._jumps(draws, period)
        loud = draws.chance(0.3) * draws.uniform(0.2, 0.9)
        part = part + draws.log_uniform(0.01, 1.0) * unit(error) * torch.exp(loud * unit(volume))
        part = part + draws.chance(0.25) * draws.log_uniform(0.3, 5.0) * self._bursts(draws)
        part = part + draws.chance(0.2) * draws.log_uniform(0.3, 5.0) * draws.sign() * self._jobs(draws)
        values = self._observe(draws, part, period)
        values = self._sensor(draws, values)
        told = torch.where(draws.chance(0.9), period, 1).squeeze(1)
        windows = split_windows(values, self.context, told)
        cut = draws.rand(batch, 2)
        return windows._replace(context=cut_contexts(windows.context, CUT_SHARE, 8, cut))

    def _day(self, draws: Draws, period: Tensor) -> Tensor:
        """A pattern of smooth waves, sharpened to peaks or to a plateau of busy hours."""
        turn = 2 * math.pi * torch.remainder(self._time + draws.uniform() * period, period) / period
        wave = torch.zeros(len(period), len(self._time), device=self.device)
        fall = draws.uniform(0.3, 2.0)
        for order in range(1, HARMONICS + 1):
            wave = wave + draws.normal() * order**-fall * torch.cos(order * turn + 2 * math.pi * draws.uniform())
        wave = unit(wave)
        sharp = draws.log_uniform(0.5, 4.0)
        kind = draws.uniform()
        wave = torch.where(kind < 0.3, torch.exp((sharp * wave).clamp(-6, 4)), wave)
        wave = torch.where(kind > 0.75, torch.tanh(2 * sharp * (wave - draws.uniform(-0.5, 1.0))), wave)
        nights = (kind > 0.3) & (kind < 0.4)  # of zero
        wave = torch.where(nights, wave.clamp_min(draws.uniform(-0.5, 0.8)), wave)
        return unit(wave - wave.mean(1, keepdim=True))

    def _week(self, draws: Draws, period: Tensor) -> Tensor:
        """Levels of the seven days, or of a weekend alone; for days themselves, of the weeks of a year."""
        begin = (draws.uniform() * 7 * period).long()
        day = torch.div(self._time + self.context + begin, period, rounding_mode="floor") % 7
        levels = draws.randn(len(period), 7)
        weekend = (torch.arange(7, device=self.device) >= 5) * draws.normal() * 2.0
        levels = torch.where(draws.chance(0.5), weekend, levels)
        year = torch.cos(2 * math.pi * ((self._time + begin) / 364.0))
        wave = torch.where(period == 7, year * draws.normal(), levels.gather(1, day.long()))
        return draws.chance(0.5) * draws.log_uniform(0.2, 1.5) * wave

    def _jumps(self, draws: Draws, period: Tensor) -> Tensor:
        """A level that stays for a while and jumps; of some rows, between two states that come back."""
        rate = 1 / (period * draws.log_uniform(0.2, 30.0))
        turns = (draws.rand(len(period), len(self._time)) < rate).cumsum(1)
        levels = draws.randn(len(period), LEVELS)
        two = draws.chance(0.5)
        levels = torch.where(two, levels[:, :2].repeat(1, LEVELS // 2), levels)
        return levels.gather(1, turns % LEVELS)

    def _bursts(self, draws: Draws) -> Tensor:
        """Rare jumps of any size that die away."""
        size = (len(draws.rows), len(self._time))
        hit = draws.rand(*size) < draws.log_uniform(0.0005, 0.03)
        sizes = torch.exp(draws.uniform(0.1, 1.2) * draws.randn(*size))
        return ar1(hit * sizes, torch.exp(-1 / draws.log_uniform(0.3, 60.0)))

    def _jobs(self, draws: Draws) -> Tensor:
        """Something that comes at an interval of its own and lasts a part of it."""
        every = draws.log_uniform(4.0, 400.0).round()
        place = torch.remainder(self._time + draws.uniform() * every, every) / every
        return (place < draws.uniform(0.02, 0.5)) * torch.exp(0.1 * draws.randn(*place.shape))

    def _observe(self, draws: Draws, part: Tensor, period: Tensor) -> Tensor:
        """Turn the sum of parts into values: added, multiplied, counted, or a share between two bounds."""
        part = part.clamp(-30.0, 30.0)
        kind = draws.uniform()
        added = draws.log_uniform(0.3, 20.0) * draws.chance(0.8) + part
        rate = torch.exp((draws.uniform(0.3, 1.0) * part).clamp(-8.0, 5.0)) * draws.log_uniform(0.01, 100.0)
        counts = draws.poisson(rate.clamp_max(1e5))
        share = torch.sigmoid(part * draws.uniform(0.5, 2.0) + draws.normal())
        values = torch.where(kind < 0.5, added, torch.exp((0.6 * part).clamp(-8.0, 5.0)))
        values = torch.where(draws.chance(0.4), values.clamp_min(0.0), values)
        values = torch.where((kind > 0.65) & (kind < 0.85), counts, values)
        values = torch.where(kind > 0.85, 100 * share, values)
        # Machines that are off: zero for a while, at their own times or with the day.
        off = self._jumps(draws, period) < draws.uniform(-1.5, -0.3)
        values = torch.where(draws.chance(0.08) & off, 0.0, values)
        return values * 10 ** draws.uniform(-2.0, 4.0)

    def _sensor(self, draws: Draws, values: Tensor) -> Tensor:
        """Round, hold and lose values, as sensors do."""
        spread = values.std(1, keepdim=True)
        step = draws.log_uniform(0.01, 1.0) * spread
        values = torch.where(draws.chance(0.15) & (step > 0), (values / step.clamp_min(1e-9)).round() * step, values)
        hold = draws.log_uniform(2.0, 40.0).long()
        held = torch.div(torch.arange(len(self._time), device=self.device), hold, rounding_mode="floor") * hold
        values = torch.where(draws.chance(0.08), values.gather(1, held.expand_as(values)), values)
        spike = draws.rand(*values.shape) < draws.chance(0.15) * draws.log_uniform(0.0005, 0.01)
        values = values + spike * draws.randn(*values.shape) * draws.log_uniform(2.0, 20.0) * spread
        begin = draws.uniform(-1.0, 0.0) * self.context
        lost = (self._time >= begin) & (self._time < begin + draws.log_uniform(0.002, 0.1) * self.context)
        lost = lost & (self._time < -1)  # what follows must stay there to be learned from
        return torch.where(draws.chance(0.1) & lost, math.nan, values)
