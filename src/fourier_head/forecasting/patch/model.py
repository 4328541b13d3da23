"""The network: patches of the scaled past go in, one distribution per future step comes out, in one pass."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from fourier_head.densities.fourier import FourierDensity
from fourier_head.domains.adaptive import Adaptive
from fourier_head.domains.maps import ValueMap
from fourier_head.forecasting.patch.quantile_head import QuantileDensity, QuantileHead
from fourier_head.forecasting.patch.scaling import scale_of, seasonal_naive
from fourier_head.heads import FourierHead

CHANNELS = 4
"""Of each time step: the value, whether it is there, and the sine and cosine of its place in the cycle."""
FEATURES = 4
"""Of each series: how long, its period, how much is missing, and where zero lies."""
START_WIDTH = 1.0
"""Raw half width of densities at the start: bells of less than half a deviation, surer than the past."""
LIKELIHOOD_SHARE = 0.05
"""What likelihood counts beside the CRPS in the loss "both"; it is some twenty times as large."""

Loss = Literal["crps", "nll", "both"]

SIZES: Mapping[str, Mapping[str, Any]] = {
    "tiny": {"width": 96, "layers": 2, "heads": 3},
    "mini": {"width": 192, "layers": 4, "heads": 4},
    "small": {"width": 384, "layers": 6, "heads": 6},
}
"""Shapes by name: 0.4, 2.3 and 12.3 million parameters."""


@dataclass(frozen=True)
class PatchConfig:
    """Shape of a patch transformer.

    Args:
        context, horizon: longest past it reads, steps it forecasts in one pass; multiples of ``patch``.
        patch: time steps per token.
        width, layers, heads: of the transformer; its inner layers are four times as wide.
        head: "fourier", a density per step, or "quantile", nine quantiles.
        frequencies, packets, loss, tails: of the density.
        dropout: in training, of what each layer adds.
        use_period: whether the period of a series, where known, is told to the network.
        bend: whether values far from the mean are drawn in, by asinh.
    """

    context: int = 512
    horizon: int = 64
    patch: int = 16
    width: int = 384
    layers: int = 6
    heads: int = 6
    head: Literal["fourier", "quantile"] = "fourier"
    frequencies: int = 15
    packets: int = 0
    loss: Loss = "crps"
    tails: float = 0.01
    dropout: float = 0.0
    use_period: bool = True
    bend: bool = True

    def __post_init__(self) -> None:
        for name in ("context", "horizon"):
            value = getattr(self, name)
            if value < 1 or value % self.patch:
                raise ValueError(f"{name} must be a positive multiple of patch={self.patch}, got {value}")
        if self.width % (2 * self.heads):
            raise ValueError(f"width must be a multiple of twice heads={self.heads}, got {self.width}")
        if self.head not in ("fourier", "quantile"):
            raise ValueError(f"head must be 'fourier' or 'quantile', got {self.head!r}")
        if self.loss not in ("crps", "nll", "both"):
            raise ValueError(f"loss must be 'crps', 'nll' or 'both', got {self.loss!r}")


class ResidualMLP(nn.Module):
    """A residual MLP: a linear layer plus one hidden layer with GELU."""

    def __init__(self, size: int, inner: int, width: int):
        super().__init__()
        self.straight, self.first, self.second = nn.Linear(size, width), nn.Linear(size, inner), nn.Linear(inner, width)

    def forward(self, x: Tensor) -> Tensor:
        return self.straight(x) + self.second(functional.gelu(self.first(x)))


class Layer(nn.Module):
    """A transformer layer, normalised before each part, with rotary positions."""

    def __init__(self, config: PatchConfig):
        super().__init__()
        width = config.width
        self.heads, self.dropout = config.heads, config.dropout
        self.norm_1, self.norm_2 = nn.RMSNorm(width), nn.RMSNorm(width)
        self.qkv, self.mix = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.up, self.down = nn.Linear(width, 4 * width, bias=False), nn.Linear(4 * width, width, bias=False)

    def forward(self, x: Tensor, rotation: tuple[Tensor, Tensor], mask: Tensor, last: int | None = None) -> Tensor:
        """Return all tokens, or the ``last`` ones only, which look at all."""
        q, k, v = self.qkv(self.norm_1(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        q, k = rotate(q, rotation), rotate(k, rotation)
        if last is not None:
            q, mask, x = q[:, :, -last:], mask[:, :, -last:], x[:, -last:]
        y = functional.scaled_dot_product_attention(q, k, v, mask)
        x = x + functional.dropout(self.mix(y.transpose(1, 2).flatten(2)), self.dropout, self.training)
        y = self.down(functional.gelu(self.up(self.norm_2(x))))
        return x + functional.dropout(y, self.dropout, self.training)


def rotate(x: Tensor, rotation: tuple[Tensor, Tensor]) -> Tensor:
    """Apply rotary position embeddings to queries or keys: their products then know the distance."""
    cos, sin = rotation
    left, right = x.chunk(2, dim=-1)
    return torch.cat([left * cos - right * sin, left * sin + right * cos], dim=-1).to(x.dtype)


@torch.no_grad()
def draw_small_weights(model: nn.Module, layers: int) -> None:
    """Draw weights and set biases to zero; what a layer adds starts smaller the more layers there are."""
    for name, parameter in model.named_parameters():
        if parameter.dim() == 2:
            shrink = math.sqrt(2 * layers) if name.endswith(("mix.weight", "down.weight")) else 1.0
            nn.init.normal_(parameter, std=1 / math.sqrt(parameter.shape[1]) / shrink)
        elif name.endswith("bias"):
            nn.init.zeros_(parameter)


class PatchForecaster(nn.Module):
    """Forecast every step of the horizon at once from patches of the past.

    Args:
        config: the shape.

    Example:
        >>> model = PatchForecaster(PatchConfig(context=32, horizon=16, patch=8, width=16, layers=1, heads=2))
        >>> past = torch.arange(30.0).repeat(3, 1)
        >>> model.density(past, torch.tensor([1, 4, 7])).quantile([0.1, 0.9]).shape
        torch.Size([2, 3, 16])
    """

    def __init__(self, config: PatchConfig):
        super().__init__()
        self.config = config
        width, patch = config.width, config.patch
        self.past = ResidualMLP(CHANNELS * patch, 2 * width, width)
        self.future = ResidualMLP(CHANNELS * patch + FEATURES, 2 * width, width)
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.layers))
        self.norm = nn.RMSNorm(width)
        self.read = ResidualMLP(width, 2 * width, width)
        self.head: FourierHead | QuantileHead
        if config.head == "fourier":
            self.head = FourierHead(
                width,
                num_frequencies=config.frequencies,
                floor=0.0,
                packets=config.packets,
                domain=Adaptive(tails=config.tails, anchored=True),
                num_outputs=patch,
            )
        else:
            self.head = QuantileHead(width, patch)
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Draw small weights; densities start as bells of about the deviation of the series."""
        draw_small_weights(self, self.config.layers)
        self.head.proj.weight.mul_(0.1)
        if isinstance(self.head, FourierHead):
            start = self.head.layout.start(torch.tensor([0.0, START_WIDTH, 0.0]))
        else:
            start = self.head.start()
        self.head.proj.bias.copy_(start.repeat(self.config.patch))

    def forward(self, context: Tensor, period: Tensor, horizon: int | None = None) -> tuple[Tensor, Tensor, ValueMap]:
        """Return outputs of the head (B, horizon, size), the naive forecast (B, horizon) and the map of each series.

        Args:
            context: values (B, C), oldest first, NaN where missing; C at most ``config.context`` counts.
            period: steps per cycle (B,), 1 where unknown.
            horizon: steps wanted, all unless given; fewer cost less and are the same.
        """
        horizon = self.config.horizon if horizon is None else horizon
        features, naive, map = self.features(context, period, horizon)
        outputs = self.head.proj(features).unflatten(-1, (self.config.patch, -1)).flatten(1, 2)
        return outputs[:, :horizon], naive[:, :horizon], map

    def features(self, context: Tensor, period: Tensor, horizon: int) -> tuple[Tensor, Tensor, ValueMap]:
        """Return features (B, P, width) of the P patches that hold the horizon, their naive forecast, and the map."""
        config = self.config
        if not 1 <= horizon <= config.horizon:
            raise ValueError(f"horizon must be from 1 to {config.horizon}, got {horizon}")
        ahead = -(-horizon // config.patch)
        context = context[..., -config.context :].float()
        gap = -context.shape[-1] % config.patch
        context = functional.pad(context, (gap, 0), value=torch.nan)
        if not config.use_period:
            period = torch.ones_like(period)
        map = scale_of(context, config.bend)
        naive = seasonal_naive(context, period, ahead * config.patch)
        naive = torch.where(naive.isnan(), map.loc, naive)
        tokens, seen = self._tokens(map.forward(context), map.forward(naive), period, map)
        mask = self._mask(seen, ahead)
        rotation = self._rotation(seen.shape[-1], ahead, tokens.device)
        for number, layer in enumerate(self.layers, 1):
            # Nothing reads the past after the last layer.
            tokens = layer(tokens, rotation, mask, ahead if number == len(self.layers) else None)
        return self.read(self.norm(tokens)), naive, map

    def _tokens(self, u: Tensor, naive: Tensor, period: Tensor, map: ValueMap) -> tuple[Tensor, Tensor]:
        """Return the tokens of past and future, and which tokens of the past hold a value."""
        patch, batch, length = self.config.patch, u.shape[0], u.shape[-1]
        there = ~u.isnan()
        time = torch.arange(-length, naive.shape[-1], device=u.device) + 0.0
        angle = 2 * math.pi * torch.remainder(time, period.unsqueeze(-1)) / period.unsqueeze(-1)
        value = torch.cat([u.nan_to_num(0.0), naive], dim=-1)
        flag = torch.cat([there.to(u.dtype), torch.zeros_like(naive)], dim=-1)
        steps = torch.stack([value, flag, angle.sin(), angle.cos()], dim=1)
        patches = steps.unflatten(-1, (-1, patch)).transpose(1, 2).flatten(2)
        count = there.sum(-1)
        past = length // patch
        features = torch.stack(
            [
                (1 + count).log() / 5,
                period.log() / 5,
                1 - count / (length - there.int().argmax(-1)).clamp_min(1),
                map.forward(torch.zeros_like(u[:, :1])).squeeze(-1).clamp(-10, 10) / 3,
            ],
            dim=-1,
        ).to(u.dtype)
        ahead = torch.cat([patches[:, past:], features.unsqueeze(1).expand(batch, patches.shape[1] - past, -1)], dim=-1)
        seen = there.unflatten(-1, (-1, patch)).any(-1)
        return torch.cat([self.past(patches[:, :past]), self.future(ahead)], dim=1), seen

    def _mask(self, seen: Tensor, ahead: int) -> Tensor:
        """Return who may look at whom (B, 1, T, T): all at patches with values, the future also at itself so far.

        So neither leading empty patches nor a longer horizon change a forecast, and short series cost little.
        """
        past = seen.shape[-1]
        size = past + ahead
        earlier = torch.ones(size, size, dtype=torch.bool, device=seen.device).tril()
        is_future = torch.arange(size, device=seen.device) >= past
        allowed = functional.pad(seen, (0, ahead)).unsqueeze(1) | (is_future & earlier & is_future.unsqueeze(-1))
        # An empty patch looks at itself alone: a row without any would be NaN.
        own = torch.eye(size, dtype=torch.bool, device=seen.device)
        return (allowed | own).unsqueeze(1)

    def _rotation(self, past: int, ahead: int, device: torch.device) -> tuple[Tensor, Tensor]:
        half = self.config.width // self.config.heads // 2
        place = torch.arange(-past, ahead, device=device)
        speed = torch.exp(-math.log(1000.0) * torch.arange(half, device=device) / half)
        angle = place.unsqueeze(-1) * speed
        return angle.cos(), angle.sin()

    def loss(self, context: Tensor, future: Tensor, period: Tensor, naive_weighting: float = 0.0) -> Tensor:
        """Return the mean loss over the steps of the future that are there.

        Args:
            context, period: as in ``forward``.
            future: outcomes (B, horizon), NaN where unknown.
            naive_weighting: weight of a series by the mean error of its naive forecast to this power: at 0 errors count
                in deviations of the past, at 1 in units of that error, which weighs smooth series up.
        """
        features, naive, map = self.features(context, period, self.config.horizon)
        u = map.forward(future.float())
        loss = self._scores(features, u, map.forward(naive))
        weight = (~u.isnan()).to(loss.dtype)
        if naive_weighting:
            weight = weight * (naive_error(map.forward(context.float()), period) ** -naive_weighting).unsqueeze(-1)
        return (loss * weight).sum() / weight.sum().clamp_min(1e-6)

    def _scores(self, features: Tensor, u: Tensor, naive: Tensor) -> Tensor:
        """Return the loss of outcomes (B, horizon) in the coordinate of the map, zero where they are NaN."""
        u, anchor = (x.unflatten(-1, (-1, self.config.patch)) for x in (u, naive))
        if isinstance(self.head, QuantileHead):
            return self.head.crps(features, u, anchor=anchor).flatten(1)
        loss = torch.zeros_like(u)
        if self.config.loss != "nll":
            loss = loss + self.head.crps(features, u, anchor=anchor, reduction="none")
        if self.config.loss != "crps":
            share = 1.0 if self.config.loss == "nll" else LIKELIHOOD_SHARE
            loss = loss + share * self.head.nll(features, u, anchor=anchor, reduction="none")
        return loss.flatten(1)

    def density(self, context: Tensor, period: Tensor, horizon: int | None = None) -> FourierDensity | QuantileDensity:
        """Return the density of each future step, of batch shape (B, horizon); a quantile head has quantiles only."""
        outputs, naive, map = self(context, period, horizon)
        return self.head.density_of(outputs, map=map, anchor=naive)


def naive_error(u: Tensor, period: Tensor) -> Tensor:
    """Return the mean |u_t - u_{t - period}| of each series (B,), kept between 0.1 and 2; 1 where none is known."""
    length = u.shape[-1]
    place = torch.arange(length, device=u.device) - period.unsqueeze(-1)
    before = u.gather(-1, place.clamp_min(0))
    change = torch.where(place >= 0, (u - before).abs(), torch.nan)
    there = ~change.isnan()
    mean = torch.where(there, change, 0).sum(-1) / there.sum(-1).clamp_min(1)
    return torch.where(there.any(-1), mean.clamp(0.1, 2.0), 1.0)
