r"""Structural series: trend, season, noise and the way they are observed, drawn at random and all at once; plain ones.

Real corpora are short of what people forecast most: months, quarters and years of a business, with a trend, a strong
season, a break somewhere, or counts that are mostly zero. A row here is

.. math:: y_t = g\big(\ell + b_t + s_t + \sigma_t e_t\big)

with b a sum of local trends, random walks, kinked lines and growth curves, s a seasonal pattern that may drift, e
autocorrelated noise that may be heavy-tailed and change its volume, and g the identity, an exponential (everything
multiplies), a clip at zero, a Poisson count or intermittent demand. Amplitudes are relative to the length of the
history a row shows, so a series of 20 years moves as much as one of 500 hours.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from fourier_head.forecasting.corpora.windows import Windows, cut_contexts, split_windows

PERIODS: dict[int, float] = {1: 22, 2: 1, 4: 16, 5: 3, 6: 1, 7: 13, 12: 28, 13: 1, 24: 6, 48: 2, 52: 7, 96: 1}
"""Seasons, each with its weight."""

HISTORY: dict[int, tuple[int, int]] = {1: (6, 120), 4: (10, 200), 12: (20, 420), 52: (60, 520)}
"""Shortest and longest history of a period; others reach from 2.5 seasons, at least 20, to the whole context."""
COUNTS, INTERMITTENT, MULTIPLICATIVE, WALKS = 0.12, 0.08, 0.3, 0.1
"""Shares of structural rows: Poisson counts, intermittent demand, parts that multiply, and (geometric) random walks
without a season. The rest adds its parts."""


def ar1(noise: Tensor, phi: Tensor) -> Tensor:
    """Return x_t = phi x_{t-1} + noise_t along the last dimension in log2(T) steps; phi broadcasts over rows.

    >>> ar1(torch.tensor([[1.0, 0.0, 0.0, 0.0]]), torch.tensor([[0.5]]))
    tensor([[1.0000, 0.5000, 0.2500, 0.1250]])
    """
    shift = 1
    while shift < noise.shape[-1]:
        noise = noise + phi * torch.nn.functional.pad(noise[..., :-shift], (shift, 0))
        phi, shift = phi * phi, 2 * shift
    return noise


class Draws:
    """Hand out random numbers: columns, drawn in two calls as one per parameter would cost more than it, and tables."""

    def __init__(self, rows: int, device: torch.device, generator: torch.Generator | None, columns: int = 80) -> None:
        self.rows, self._device, self._generator = range(rows), device, generator
        self._uniform = iter(torch.rand(columns, rows, 1, device=device, generator=generator).unbind(0))
        self._normal = iter(torch.randn(columns // 4, rows, 1, device=device, generator=generator).unbind(0))

    def uniform(self, low: float = 0.0, high: float = 1.0) -> Tensor:
        return low + (high - low) * next(self._uniform)

    def log_uniform(self, low: float, high: float) -> Tensor:
        return torch.exp(self.uniform(math.log(low), math.log(high)))

    def normal(self) -> Tensor:
        return next(self._normal)

    def sign(self) -> Tensor:
        return torch.where(next(self._uniform) < 0.5, -1.0, 1.0)

    def chance(self, share: float) -> Tensor:
        return next(self._uniform) < share

    def rand(self, *size: int) -> Tensor:
        return torch.rand(size, device=self._device, generator=self._generator)

    def randn(self, *size: int) -> Tensor:
        return torch.randn(size, device=self._device, generator=self._generator)

    def poisson(self, rate: Tensor) -> Tensor:
        return torch.poisson(rate, generator=self._generator)


def unit(values: Tensor) -> Tensor:
    """Divide rows by their deviation, so that an amplitude means the same for every shape."""
    return values / values.std(1, keepdim=True).clamp_min(1e-6)


class Synth:
    """What generators of artificial windows share: their shape, the time of every step, and seasons with weights."""

    def __init__(self, context: int, horizon: int, periods: dict[int, float], device: torch.device | str) -> None:
        self.context, self.horizon = context, horizon
        self.device = torch.empty(0, device=device).device
        weight = torch.tensor(list(periods.values()), dtype=torch.float64)
        self._running = (weight.cumsum(0) / weight.sum()).float().to(self.device)
        self._periods = torch.tensor(list(periods), device=self.device)
        self._time = torch.arange(-context, horizon, device=self.device)

    def _draw_seasons(self, draws: Draws) -> Tensor:
        """Return which season each row has, (rows,)."""
        return torch.searchsorted(self._running, draws.uniform()).clamp_max(len(self._periods) - 1).squeeze(1)


class StructuralSynth(Synth):
    """Draw windows of structural series (see the module), the period attached."""

    def __init__(self, context: int, horizon: int, *, device: torch.device | str = "cpu") -> None:
        super().__init__(context, horizon, PERIODS, device)
        spans = [HISTORY.get(p, (max(20, 5 * p // 2), context)) for p in PERIODS]
        self._spans = torch.tensor(spans, device=self.device).clamp_max(context).float()
        self._longest = max(PERIODS)

    def sample(self, batch: int, generator: torch.Generator | None = None) -> Windows:
        """Draw a batch of windows."""
        draws = Draws(batch, self.device, generator)
        which = self._draw_seasons(draws)
        period, span = self._periods[which, None], self._spans[which]
        history = (span[:, :1] * (span[:, 1:] / span[:, :1]) ** draws.uniform()).round().clamp_min(2)
        # Four autoregressive processes in one go: slope of the trend, drift of the season, noise and its volume.
        noise = draws.randn(4, batch, len(self._time))
        tail = draws.chance(0.4) * draws.uniform(0.3, 1.0)
        noise[2] = noise[2] * torch.exp(tail * draws.randn(batch, len(self._time)))
        phi = torch.stack(
            (
                torch.exp(-1 / (history * draws.log_uniform(0.1, 5.0))),
                torch.exp(-1 / (history * draws.log_uniform(0.3, 3.0))),
                draws.chance(0.5) * draws.uniform(-0.3, 0.95),
                draws.uniform(0.7, 0.98),
            )
        )
        slope, drift, error, volume = ar1(noise, phi).unbind(0)
        walk = draws.chance(WALKS)
        part = self._trend(draws, history, slope, walk)
        season = self._season(draws, period, drift)
        part = part + torch.where(walk | (period == 1), 0.0, season)
        loud = draws.chance(0.3) * draws.uniform(0.2, 0.8)
        error = unit(error) * torch.exp(loud * unit(volume))
        part = part + torch.where(walk, 0.02, 1.0) * draws.log_uniform(0.01, 0.6) * error
        part = part + self._breaks(draws, history)
        values = self._observe(draws, part)
        # Nobody asks ten years for sixty more: the future of a short history ends early, as that of a real series does.
        reach = (history * draws.log_uniform(0.5, 4.0)).clamp_min(8.0)
        seen = (self._time >= -history) & (self._time < reach)
        return split_windows(torch.where(seen, values, math.nan), self.context, period.squeeze(1))

    def _trend(self, draws: Draws, history: Tensor, slope: Tensor, walk: Tensor) -> Tensor:
        """A local trend, a random walk, a line with a kink and a growth curve, each there or not."""
        time = self._time / history
        # Deviation about 1 over the history, which is what the amplitude then scales.
        local = (unit(slope) + draws.normal()).cumsum(1) / history
        local = local - local[:, self.context - 1 : self.context]
        steps = draws.randn(*slope.shape).cumsum(1) / history.sqrt()
        steps = steps - steps[:, self.context - 1 : self.context] + 0.3 * draws.normal() * time
        kink = draws.uniform(-1.0, 0.2)
        line = draws.normal() * time.clamp_max(2.0) + draws.chance(0.4) * draws.normal() * (time - kink).clamp(0.0, 2.0)
        curve = torch.sigmoid((time - draws.uniform(-1.0, 0.7)) * draws.log_uniform(2.0, 12.0)) * draws.normal()
        trend = draws.chance(0.45) * draws.log_uniform(0.1, 2.0) * local
        trend = trend + torch.where(walk, 1.0, draws.chance(0.35).float()) * draws.log_uniform(0.1, 1.5) * steps
        trend = trend + draws.chance(0.35) * draws.log_uniform(0.1, 2.0) * line
        return trend + draws.chance(0.15) * draws.log_uniform(0.3, 4.0) * curve

    def _season(self, draws: Draws, period: Tensor, drift: Tensor) -> Tensor:
        """A pattern of smooth waves, single free values or a few peaks; its size and shape may drift slowly."""
        rows = len(period)
        place = torch.arange(self._longest, device=self.device)
        inside = place < period
        free = draws.randn(2, rows, self._longest)
        waves = torch.zeros(rows, self._longest, device=self.device)
        for order in range(1, 4):
            angle = 2 * math.pi * (order * place / period + draws.uniform())
            waves = waves + torch.cos(angle) * draws.normal() / order
        peaks = (free[1] * draws.uniform(0.8, 1.8)).exp() * (free[0] > 0.7)
        kind = draws.uniform()
        table = torch.where(kind < 0.4, waves, torch.where(kind < 0.8, free[0] + waves, peaks))
        count = inside.sum(1, keepdim=True)
        table = torch.where(inside, table, 0.0)
        table = torch.where(inside, table - table.sum(1, keepdim=True) / count, 0.0)
        size = (table.square().sum(1, keepdim=True) / count).sqrt().clamp_min(1e-6)
        phase = (self._time + self.context) % period
        pattern = (table / size).gather(1, phase)
        # A second pattern, a turn of the first, fades in for the rows whose season changes its shape.
        other = (table / size).gather(1, (phase + 1) % period)
        fade = draws.chance(0.2) * torch.sigmoid(unit(drift)) * 0.5
        pattern = (1 - fade) * pattern + fade * other
        grow = draws.chance(0.4) * draws.uniform(0.05, 0.4)
        # Days have a week inside and a year around them, hours a week around them.
        around = torch.where(period == 7, 365.25, 7.0 * period)
        far = torch.cos(2 * math.pi * (self._time / around + draws.uniform())) + 0.5 * torch.cos(
            4 * math.pi * (self._time / around + draws.uniform())
        )
        far = far * draws.chance(0.4) * draws.log_uniform(0.1, 1.0) * ((period == 7) | (period >= 24) & (period != 52))
        return draws.chance(0.85) * draws.log_uniform(0.05, 1.5) * pattern * torch.exp(grow * unit(drift)) + far

    def _breaks(self, draws: Draws, history: Tensor) -> Tensor:
        """A shift of the level somewhere in the history, and single outliers."""
        shift = draws.chance(0.15) * draws.normal() * (self._time > -history * draws.uniform(0.05, 1.0))
        odd = draws.rand(len(history), len(self._time)) < draws.chance(0.12) * draws.log_uniform(0.003, 0.04)
        return shift + odd * draws.randn(*odd.shape) * draws.log_uniform(0.5, 3.0)

    def _observe(self, draws: Draws, part: Tensor) -> Tensor:
        """Turn the sum of parts into values: added, multiplied, clipped at zero, counted, or intermittent."""
        part = part.clamp(-30.0, 30.0)
        added = draws.log_uniform(0.3, 20.0) * torch.where(draws.chance(0.9), 1.0, 0.0) + part
        values = torch.where(draws.chance(MULTIPLICATIVE), torch.exp((0.6 * part).clamp(-8.0, 5.0)), added)
        values = torch.where(draws.chance(0.5), values.clamp_min(0.0), values)
        kind = draws.uniform()
        rate = torch.exp((0.5 * part).clamp(-6.0, 4.0)) * draws.log_uniform(0.2, 60.0)
        # Demand comes on some days only, and then in lots of at least one.
        often = (draws.log_uniform(0.03, 0.7) * torch.exp((0.3 * part).clamp(-3.0, 2.0))).clamp_max(0.95)
        comes = draws.rand(*part.shape) < often
        lots = draws.log_uniform(0.2, 10.0) * torch.exp(draws.uniform(0.0, 1.0) * draws.randn(*part.shape))
        sporadic = kind < INTERMITTENT
        counts = draws.poisson(torch.where(sporadic, lots, rate))
        counts = torch.where(sporadic, comes * (1 + counts), counts)
        values = torch.where(kind < INTERMITTENT + COUNTS, counts, values)
        return values * 10 ** draws.uniform(-2.0, 5.0)


PLAIN_PERIODS = (1, 4, 7, 12, 12, 24, 52)
KINDS = 6
ODD_SHARE = 0.15
"""Share of rows that end in an odd value, and of those with some before."""


class PlainSynth:
    """Draw windows of plain series, the first ones that people try, the period attached where it is below the context.

    A line, a constant, a pure season, white noise, rare demand, a walk: a forecaster that has seen the world should not
    stumble over 1, 2, 3. Rows are short, clean, and of every kind in equal shares; some end in a value that has nothing
    to do with the rest.
    """

    def __init__(self, context: int, horizon: int, *, device: torch.device | str = "cpu"):
        self.context, self.horizon = context, horizon
        self.device = torch.empty(0, device=device).device
        known = [p for p in PLAIN_PERIODS if p < context]
        self._periods, self._longest = torch.tensor(known, device=self.device), max(known)
        self._time = torch.arange(-context, horizon, device=self.device)

    def sample(self, batch: int, generator: torch.Generator | None = None) -> Windows:
        """Draw a batch of windows."""
        draws = Draws(batch, self.device, generator)
        shape = (batch, len(self._time))
        period = self._periods[(draws.uniform() * len(self._periods)).long().squeeze(1)].unsqueeze(1)
        kind = (draws.uniform() * KINDS).long()
        noise = draws.randn(*shape) * torch.where(draws.chance(0.3), 0.0, draws.log_uniform(0.001, 0.3))
        time = self._time + 0.0
        line = draws.normal() * 10 + time * draws.normal() * draws.log_uniform(0.01, 3.0) + noise
        growth = torch.exp((time * draws.normal() * draws.log_uniform(0.001, 0.05)).clamp(-6, 4)) * torch.exp(noise)
        table = draws.randn(batch, self._longest)
        peak = torch.arange(table.shape[1], device=self.device) == (draws.uniform() * period).long()
        table = torch.where(draws.chance(0.4), peak * draws.log_uniform(1.0, 10.0), table)
        season = draws.log_uniform(0.5, 20.0) + table.gather(1, (self._time + self.context) % period) + noise
        level = draws.log_uniform(0.5, 100.0) + draws.randn(*shape) * draws.log_uniform(0.3, 3.0)
        rare = draws.poisson(draws.log_uniform(0.01, 1.0).expand(shape).contiguous())
        rare = rare * torch.where(draws.chance(0.5), 1.0, draws.log_uniform(1.0, 20.0).round())
        steps = draws.randn(*shape).cumsum(1) * draws.log_uniform(0.01, 0.3) + draws.normal() * 5
        kinds = torch.stack((line, growth, season, level, rare, steps))
        values = kinds.gather(0, kind.T.unsqueeze(-1).expand(1, *shape)).squeeze(0)
        size = 10 ** draws.uniform(-2.0, 4.0)
        values = torch.where((kind == 4) | draws.chance(0.3), values, values * size)
        told = torch.where(draws.chance(0.9), period, 1).squeeze(1)
        windows = split_windows(values, self.context, told)
        odd = draws.chance(ODD_SHARE) & (self._time[: self.context] == -1)
        odd = odd | (draws.chance(ODD_SHARE) & (draws.rand(batch, self.context) < draws.log_uniform(0.003, 0.05)))
        far = draws.sign() * draws.log_uniform(3.0, 300.0) * windows.context.std(1, keepdim=True)
        context = torch.where(odd, windows.context + far, windows.context)
        # Most are short: from two values on, where noise and level still can be told apart by what is usual only.
        cut = draws.rand(batch, 2)
        return windows._replace(context=cut_contexts(context, 0.9, 2, cut))
