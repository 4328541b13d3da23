"""The network: the near past in fine patches, the far past in coarser ones, seasons side by side.

A step far ahead is asked on its own: its patch looks at the past, at no other patch of the future. So any part of a
long horizon can be computed, and trained on, alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from fourier_head.densities.fourier import FourierDensity
from fourier_head.domains.adaptive import LEAST_WIDTH, Adaptive
from fourier_head.domains.maps import ValueMap
from fourier_head.forecasting.patch.layers import Layer, ResidualMLP, draw_small_weights
from fourier_head.forecasting.patch.scaling import fill_forward, scale_of
from fourier_head.forecasting.patch.seasons import CYCLES, SINGLE, SLOTS, angles, found_period, same_phase, seasons_of
from fourier_head.heads import FourierHead

COARSER = 4
"""Values of one level that are one value of the next, farther back."""
PAST_CHANNELS = 4 + 2 * SLOTS
"""Of each value of the past: itself, the same from the last value on in units of usual changes, how much of it is
there, how much it varies inside, and its place in seasons."""
FUTURE_CHANNELS = SLOTS * (SINGLE + 3) + 2 * SLOTS
"""Of each future step and season: four past values, the mean of eight, the last one in units of usual changes, how many
there are; and its place in seasons."""
CANDIDATES = 3 * SLOTS + 2
"""Guesses that are mixed: of each season one, four and eight cycles back; the last value; the level."""
FEATURES = 9
"""Of each series: length, periods, what is missing, where zero and the last value lie, how often values repeat, and how
large changes from step to step are."""
LEAST_UNIT, GROWTH = 0.02, 0.75
"""A step that is h ahead is placed in units of 4 usual changes times h^0.75, from the least unit to 1: what a smooth
series does next is a small part of what it ever did."""
KNOT = 4
"""Steps ahead at which ``spread`` is given: powers of this number, from 1 on."""
START_WIDTH = 1.0
"""Raw half width of densities at the start: bells of less than half a deviation, surer than the past."""
DITHER = 0.1
"""Noise on outcomes whose likelihood is taken, in these units: counts must not invite spikes."""

SIZES: Mapping[str, Mapping[str, Any]] = {
    "tiny": {"width": 96, "layers": 2, "heads": 3},
    "mini": {"width": 192, "layers": 4, "heads": 4},
    "small": {"width": 384, "layers": 6, "heads": 6},
}
"""Shapes by name: 0.7, 3.0 and 14.2 million parameters."""


@dataclass(frozen=True)
class MultiscaleConfig:
    """Shape of a multiscale patch transformer.

    Args:
        spans: how far back each level reaches; a value of level i is the mean of 4**i values.
        horizon: steps ahead in one pass.
        patch: values of a token.
        width, layers, heads: of the transformer; its inner layers are four times as wide.
        frequencies, tails: of the density.
        loss, likelihood: what it is trained on, and what likelihood counts beside the CRPS in "both".
        even: how far errors count in usual changes of a series instead of its deviations, from 0 to 1.
        local: whether steps are placed in units of usual changes.
        dropout: in training, of what each layer adds.
        seasons: periods that are looked at, from 1 to 3.
        cycles: whether the values of past cycles are put beside each future step.
        find: whether a period that the past itself shows takes the last place, where the frequency leaves it free.
        recent: values whose weight in the scale of a series is more than a half.
        bend: whether values far from the mean are drawn in, by asinh.
        spread: logarithms of what densities 1, 4, 16, ... steps ahead are widened by, those between them in between;
            found after training, see ``calibrate``.
    """

    spans: tuple[int, ...] = (512, 2048, 10240)
    horizon: int = 1024
    patch: int = 16
    width: int = 384
    layers: int = 6
    heads: int = 6
    frequencies: int = 15
    tails: float = 0.002
    loss: Literal["crps", "nll", "both"] = "both"
    likelihood: float = 0.01
    even: float = 0.5
    local: bool = True
    dropout: float = 0.0
    seasons: int = SLOTS
    cycles: bool = True
    find: bool = True
    recent: int = 512
    bend: bool = True
    spread: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        for name in ("spans", "spread"):  # lists, where they come from a file
            object.__setattr__(self, name, tuple(getattr(self, name)))
        edge = 0
        for level, span in enumerate(self.spans):
            token = self.patch * COARSER**level
            if span <= edge or (span - edge) % token:
                raise ValueError(f"spans must grow by multiples of {token} at level {level}, got {self.spans}")
            edge = span
        if self.horizon < 1 or self.horizon % self.patch:
            raise ValueError(f"horizon must be a positive multiple of patch={self.patch}, got {self.horizon}")
        if self.width % (2 * self.heads):
            raise ValueError(f"width must be a multiple of twice heads={self.heads}, got {self.width}")
        if self.loss not in ("crps", "nll", "both"):
            raise ValueError(f"loss must be 'crps', 'nll' or 'both', got {self.loss!r}")
        if not 1 <= self.seasons <= SLOTS:
            raise ValueError(f"seasons must be from 1 to {SLOTS}, got {self.seasons}")

    @property
    def context(self) -> int:
        """The longest past that is read."""
        return self.spans[-1]


class MultiscaleForecaster(nn.Module):
    """Forecast every step of a long horizon at once from a long past.

    Args:
        config: the shape.

    Example:
        >>> config = MultiscaleConfig(spans=(32, 96), horizon=64, patch=8, width=16, layers=1, heads=2)
        >>> model = MultiscaleForecaster(config)
        >>> past = torch.arange(60.0).repeat(3, 1)
        >>> model.density(past, torch.tensor([1, 4, 7]), 20).quantile([0.1, 0.9]).shape
        torch.Size([2, 3, 20])
    """

    def __init__(self, config: MultiscaleConfig):
        super().__init__()
        self.config = config
        width, patch = config.width, config.patch
        self.past = nn.ModuleList(ResidualMLP(PAST_CHANNELS * patch, width) for _ in config.spans)
        self.future = ResidualMLP(FUTURE_CHANNELS * patch + FEATURES, width)
        self.series = ResidualMLP(FEATURES, width)
        self.layers = nn.ModuleList(Layer(width, config.heads, config.dropout) for _ in range(config.layers))
        self.norm = nn.RMSNorm(width)
        self.read = ResidualMLP(width, width)
        self.choose = nn.Linear(width, patch * CANDIDATES)
        self.head = FourierHead(
            width,
            num_frequencies=config.frequencies,
            floor=0.0,
            domain=Adaptive(tails=config.tails, anchored=True),
            num_outputs=patch,
        )
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Draw small weights; densities start as bells of about the deviation of the series."""
        draw_small_weights(self, self.config.layers)
        self.choose.weight.zero_()
        self.head.proj.weight.mul_(0.1)
        start = self.head.layout.start(torch.tensor([0.0, START_WIDTH, 0.0]))
        self.head.proj.bias.copy_(start.repeat(self.config.patch))

    def forward(self, context: Tensor, period: Tensor, horizon: int | None = None) -> tuple[Tensor, Tensor, ValueMap]:
        """Return outputs of the head (B, horizon, size), a naive forecast (B, horizon) and the map of each series.

        Args:
            context: values (B, C), oldest first, NaN where missing; C at most ``config.context`` counts.
            period: steps per cycle (B,), 1 where unknown; further seasons follow from it.
            horizon: steps wanted, all unless given; fewer cost less and are the same.
        """
        horizon = self.config.horizon if horizon is None else horizon
        if not 1 <= horizon <= self.config.horizon:
            raise ValueError(f"horizon must be from 1 to {self.config.horizon}, got {horizon}")
        patches = torch.arange(-(-horizon // self.config.patch), device=context.device)
        features, anchor, unit, map = self.features(context, period, patches)
        outputs = self.outputs(features, unit, unit * self.widening(patches)).flatten(1, 2)
        return outputs[:, :horizon], map.inverse(anchor.flatten(1)[:, :horizon]), map

    def widening(self, patches: Tensor) -> Tensor:
        """Return what the widths of densities of the steps of patches (K,) are multiplied by, (K, patch)."""
        return spread_at(self.places(patches), self.config.spread).exp()

    def places(self, patches: Tensor) -> Tensor:
        """Return where the steps of patches (K,) lie among the knots of ``spread``, (K, patch)."""
        steps = torch.arange(1, self.config.patch + 1, device=patches.device)
        return (patches.unsqueeze(-1) * self.config.patch + steps).float().log() / math.log(KNOT)

    def outputs(self, features: Tensor, unit: Tensor, wide: Tensor) -> Tensor:
        """Return the outputs of the head (..., patch, size), the place and width of densities in their units."""
        outputs = self.head.proj(features).float().unflatten(-1, (self.config.patch, -1))
        shape, place, raw, gate = outputs.split([outputs.shape[-1] - 3, 1, 1, 1], dim=-1)
        width = wide.unsqueeze(-1) * functional.softplus(raw) + LEAST_WIDTH
        # The inverse of softplus, which the head applies.
        return torch.cat([shape, unit.unsqueeze(-1) * place, width + torch.log(-torch.expm1(-width)), gate], dim=-1)

    def features(self, context: Tensor, period: Tensor, patches: Tensor) -> tuple[Tensor, Tensor, Tensor, ValueMap]:
        """Return features (B, K, width) of some patches (K,) of the future, a guess of their steps, units, and the map.

        The guess (B, K, patch) is in the coordinate of the map: a mixture of past cycles, weighted by the network. So
        are the units (B, K, patch) in which steps are placed.
        """
        config = self.config
        context = context[..., -config.context :].float()
        map = scale_of(context, config.bend, config.recent)
        u = map.forward(context)
        seasons = seasons_of(period)
        if config.seasons < SLOTS:
            seasons = torch.cat([seasons[:, : config.seasons], torch.ones_like(seasons[:, config.seasons :])], dim=-1)
        if config.find:
            found = found_period(u)
            free = (seasons[:, -1] == 1) & (found != seasons[:, 0])
            seasons = torch.cat([seasons[:, :-1], torch.where(free, found, seasons[:, -1]).unsqueeze(-1)], dim=-1)
        change = usual_change(u[:, -config.recent :])
        near = (u - fill_forward(u)[:, -1:]) / change.clamp_min(LEAST_UNIT / 4).unsqueeze(-1)
        past, seen, place = self._past(u, torch.asinh(near), seasons)
        steps = (patches.unsqueeze(-1) * config.patch + torch.arange(config.patch, device=u.device)).flatten()
        cycles, guesses = self._cycles(u, change, seasons, steps)
        about = self._about(u, change, seasons, map)
        unit = (4 * change.unsqueeze(-1) * (1 + steps) ** GROWTH).clamp(LEAST_UNIT, 1.0)
        unit = unit if config.local else torch.ones_like(unit)
        ahead = cycles.unflatten(1, (len(patches), -1)).flatten(2)
        ahead = self.future(torch.cat([ahead, about.unsqueeze(1).expand(-1, len(patches), -1)], dim=-1))
        tokens = torch.cat([self.series(about).unsqueeze(1), *past, ahead], dim=1)
        # The token of the series is always there, so that one without a value has something to look at.
        mask = functional.pad(torch.cat(seen, dim=1), (1, 0), value=True)[:, None, None]
        rotation = self._rotation(torch.cat([u.new_zeros(1), *place, patches + 0.5]))
        for number, layer in enumerate(self.layers, 1):
            # Nothing reads the past after the last layer.
            tokens = layer(tokens, rotation, mask, len(patches) if number == len(self.layers) else None)
        features = self.read(self.norm(tokens))
        weight = self.choose(features).float().unflatten(-1, (config.patch, CANDIDATES)).softmax(-1)
        guess = (weight * guesses.unflatten(1, (len(patches), -1))).sum(-1)
        return features, guess, unit.view(guess.shape), map

    def _past(self, u: Tensor, near: Tensor, seasons: Tensor) -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
        """Return the tokens of each level, which of them hold a value, and where they lie, in patches from now on."""
        config, length = self.config, u.shape[-1]
        tokens, seen, place = [], [], []
        edge = 0
        for level, (span, embed) in enumerate(zip(config.spans, self.past, strict=True)):
            if level and length <= edge:
                break
            size = COARSER**level
            count = max(1, -(-(min(length, span) - edge) // (config.patch * size)))
            whole = count * config.patch * size
            part, close = (one[:, max(0, length - edge - whole) : length - edge] for one in (u, near))
            gap = (whole - part.shape[-1], 0)
            part, close = (functional.pad(one, gap, value=torch.nan).unflatten(-1, (-1, size)) for one in (part, close))
            there = ~part.isnan()
            number = there.sum(-1)
            part, close = torch.where(there, part, 0.0), torch.where(there, close, 0.0)
            mean, local = (one.sum(-1) / number.clamp_min(1) for one in (part, close))
            inner = torch.where(there, part - mean.unsqueeze(-1), 0.0).square().sum(-1) / number.clamp_min(1)
            time = torch.arange(whole // size, device=u.device) * size + (size - 1) / 2 - (edge + whole)
            own = torch.stack([mean, local, number / size, (inner + 1e-12).sqrt()], dim=-1)
            steps = torch.cat([own, angles(time, seasons)], dim=-1)
            tokens.append(embed(steps.unflatten(1, (count, -1)).flatten(2)))
            seen.append((number > 0).unflatten(-1, (count, -1)).any(-1))
            place.append((torch.arange(count, device=u.device) + 0.5) * size - (edge + whole) / config.patch)
            edge = span
        return tokens, seen, place

    def _cycles(self, u: Tensor, change: Tensor, seasons: Tensor, steps: Tensor) -> tuple[Tensor, Tensor]:
        """Return what past cycles say of future steps: inputs (B, T, channels) and guesses (B, T, CANDIDATES)."""
        last = fill_forward(u)[:, -1:].nan_to_num(0.0)
        value, there = same_phase(u, seasons, steps)
        number = there.sum(-1)
        mean = torch.where(number > 0, value.sum(-1) / number.clamp_min(1), last.unsqueeze(-1))
        value = torch.where(there, value, mean.unsqueeze(-1))[..., :SINGLE]
        few = value.mean(-1)
        if not self.config.cycles:
            # Then the last cycle is the guess, and the network sees it alone.
            value, few, mean = value[..., :1].expand_as(value), value[..., 0], value[..., 0]
        near = torch.asinh((value[..., 0] - last.unsqueeze(-1)) / change.clamp_min(LEAST_UNIT / 4)[:, None, None])
        inputs = torch.cat([value.flatten(2), mean, near, number / CYCLES, angles(steps, seasons)], dim=-1)
        always = last.unsqueeze(-1).expand(-1, len(steps), 1)
        guesses = torch.cat([value[..., 0], few, mean, always, torch.zeros_like(always)], dim=-1)
        return inputs, guesses

    def _about(self, u: Tensor, change: Tensor, seasons: Tensor, map: ValueMap) -> Tensor:
        """Return the features (B, FEATURES) of each series."""
        there = ~u.isnan()
        count = there.sum(-1)
        last = fill_forward(u)[:, -1].nan_to_num(0.0)
        same = (u[:, 1:] == u[:, :-1]).sum(-1) / count.clamp_min(1)
        own = [
            (1 + count).log() / 5,
            1 - count / (u.shape[-1] - there.int().argmax(-1)).clamp_min(1),
            map.forward(torch.zeros_like(u[:, :1])).squeeze(-1).clamp(-10, 10) / 3,
            last.clamp(-10, 10) / 3,
            same,
            change.clamp_min(LEAST_UNIT / 4).log() / 3,
        ]
        return torch.cat([torch.stack(own, dim=-1), seasons.log() / 5], dim=-1)

    def _rotation(self, place: Tensor) -> tuple[Tensor, Tensor]:
        half = self.config.width // self.config.heads // 2
        speed = torch.exp(-math.log(10000.0) * torch.arange(half, device=place.device) / half)
        angle = place.unsqueeze(-1) * speed
        return angle.cos(), angle.sin()

    def loss(self, context: Tensor, future: Tensor, period: Tensor, patches: Tensor | None = None) -> Tensor:
        """Return the mean loss over the steps of the future that are there.

        Args:
            context, period: as in ``forward``.
            future: outcomes (B, H), NaN where unknown; H a multiple of the patch.
            patches: which patches of it count (K,), all unless given.
        """
        if patches is None:
            patches = torch.arange(future.shape[-1] // self.config.patch, device=future.device)
        asked = self.asked(context, future, period, patches)
        there = ~asked[2].isnan()
        return self.scores(*asked).sum() / there.sum().clamp_min(1)

    def asked(self, context: Tensor, future: Tensor, period: Tensor, patches: Tensor) -> tuple[Tensor, ...]:
        """Return what ``scores`` takes, a row for each patch: features, guesses, outcomes, units of place and width.

        What is infinite counts as missing: one such value would spoil the gradients of a whole batch.
        """
        context, future = (torch.where(x.isfinite(), x, torch.nan) for x in (context, future))
        features, anchor, unit, map = self.features(context, period, patches)
        parts = future.unflatten(-1, (-1, self.config.patch))[:, patches]
        u = map.forward(parts.flatten(1).float()).view(anchor.shape)
        return tuple(x.flatten(0, 1) for x in (features, anchor, u, unit, unit * self.widening(patches)))

    def scores(self, features: Tensor, anchor: Tensor, u: Tensor, unit: Tensor, wide: Tensor) -> Tensor:
        """Return the loss of every step (N, patch), zero where the outcome is NaN."""
        there = ~u.isnan()
        u = torch.where(there, u, 0.0)
        outputs = self.outputs(features, unit, wide)
        loss = torch.zeros_like(u)
        if self.config.loss != "nll":
            crps = self.head.values_loss_of(outputs, u, kind="crps", anchor=anchor)
            loss = loss + crps * unit**-self.config.even
        if self.config.loss != "crps":
            share = 1.0 if self.config.loss == "nll" else self.config.likelihood
            near = u + DITHER * unit * torch.randn_like(u)
            loss = loss + share * self.head.values_loss_of(outputs, near, kind="nll", anchor=anchor)
        return loss * there

    def density(self, context: Tensor, period: Tensor, horizon: int | None = None) -> FourierDensity:
        """Return the density of each future step, of batch shape (B, horizon)."""
        outputs, naive, map = self(context, period, horizon)
        return self.head.density_of(outputs, map=map, anchor=naive)


def usual_change(u: Tensor) -> Tensor:
    """Return the mean |u_t - u_{t-1}| of each series (B,), 1 where none is known."""
    change = (u[:, 1:] - u[:, :-1]).abs()
    there = ~change.isnan()
    mean = torch.where(there, change, 0.0).sum(-1) / there.sum(-1).clamp_min(1)
    return torch.where(there.any(-1), mean, 1.0)


def spread_at(place: Tensor, spread: Sequence[float | Tensor]) -> Tensor:
    """Return the spread at places, counted in knots: straight between knots, as at the last one beyond it.

    >>> spread_at(torch.tensor([0.0, 0.5, 1.0, 7.0]), (0.2, 0.4))
    tensor([0.2000, 0.3000, 0.4000, 0.4000])
    """
    place = place.clamp_max(max(len(spread) - 1, 0))
    total = torch.zeros_like(place)
    for knot, value in enumerate(spread):
        total = total + value * (1 - (place - knot).abs()).clamp_min(0.0)
    return total
