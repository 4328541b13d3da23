"""What the network says about each future step: a Fourier density, or the nine quantiles it is measured against."""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from fourier_head import spectrum
from fourier_head.forecasting.patch.density import ForecastDensity
from fourier_head.forecasting.patch.scaling import Scale
from fourier_head.layout import Layout

Loss = Literal["crps", "nll", "both"]
LEVELS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)


class Output(nn.Module):
    """Read ``size`` numbers per future step; the first says how much of the naive forecast to keep."""

    size: int

    def start(self) -> Tensor:
        """Return the bias the projection starts with, (size,)."""
        raise TypeError(f"{type(self).__name__} does not define start")

    def loss(self, raw: Tensor, naive: Tensor, u: Tensor) -> Tensor:
        """Return the loss of outcomes u per step, in the shape of u."""
        raise TypeError(f"{type(self).__name__} does not define loss")


class FourierOutput(Output):
    r"""A Fourier density on a learned interval: location, half width, and the coefficients of the shape.

    .. math:: \mu = \sigma(r_0) \, naive + r_1, \qquad w = \mathrm{softplus}(r_2), \qquad
        p(u) = \frac1w \frac{|A((u - \mu) / w)|^2}{2 \|a\|^2}

    The network moves and stretches a density by two numbers and shapes it by the others, where coefficients alone would
    all have to turn to move a peak. Its CRPS is a closed form, also for outcomes outside of the interval.
    """

    def __init__(self, frequencies: int = 15, packets: int = 0, loss: Loss = "crps", tails: float = 0.01):
        super().__init__()
        self.layout = Layout(None, frequencies, 0.0, "midpoint", "periodic", packets, 0)
        self.kind, self.tails = loss, tails
        self.size = 3 + self.layout.out_features

    def start(self) -> Tensor:
        bias = torch.zeros(self.size)
        bias[2] = 1.0
        # |1 + e^{-i pi z}|^4: a bell in the middle of the interval, nothing at its ends
        bell = min(4, self.layout.num_frequencies)
        for l in range(bell + 1):
            bias[3 + l] = math.comb(bell, l) / 2**bell
        if self.layout.packets:
            first = 3 + self.layout.num_coefficients
            bias[first : first + self.layout.packets] = torch.linspace(-0.5, 0.5, self.layout.packets + 2)[1:-1]
        return bias

    def parts(self, raw: Tensor, naive: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return coefficients (..., R, 2, N+1), location and half width."""
        raw = raw.float()
        loc = torch.sigmoid(raw[..., 0]) * naive + raw[..., 1]
        width = functional.softplus(raw[..., 2]) + 1e-4
        return self.layout.coefficients(raw[..., 3:]), loc, width

    def density(self, raw: Tensor, naive: Tensor, scale: Scale) -> ForecastDensity:
        """Return the density of each future step."""
        return ForecastDensity(*self.parts(raw, naive), self.tails, scale)

    def loss(self, raw: Tensor, naive: Tensor, u: Tensor) -> Tensor:
        a, loc, width = self.parts(raw, naive)
        loss = torch.zeros_like(u)
        if self.kind in ("crps", "both"):
            v = (u - loc) / width
            inside = v.clamp(-1, 1)
            q = spectrum.of_coefficients(a, squares=True)
            score = spectrum.crps(q, inside.unsqueeze(-1)).squeeze(-1) + (v - inside).abs()
            loss = loss + width * score
        if self.kind in ("nll", "both"):
            unit = Scale(torch.zeros_like(loc), torch.ones_like(loc))
            nll = -ForecastDensity(a, loc, width, self.tails, unit).log_prob_of_unit(u)
            loss = loss + (nll if self.kind == "nll" else 0.05 * nll)
        return loss


class QuantileOutput(Output):
    """Nine quantiles under the pinball loss, the usual head of zero-shot forecasters."""

    def __init__(self, levels: tuple[float, ...] = LEVELS):
        super().__init__()
        self.levels = levels
        self.size = 1 + len(levels)

    def start(self) -> Tensor:
        return torch.cat([torch.zeros(1), torch.special.ndtri(torch.tensor(self.levels))])

    def quantiles(self, raw: Tensor, naive: Tensor) -> Tensor:
        """Return the quantiles in u (..., levels), as they come: they may cross."""
        raw = raw.float()
        return (torch.sigmoid(raw[..., 0]) * naive).unsqueeze(-1) + raw[..., 1:]

    def loss(self, raw: Tensor, naive: Tensor, u: Tensor) -> Tensor:
        error = u.unsqueeze(-1) - self.quantiles(raw, naive)
        level = torch.tensor(self.levels, device=u.device)
        # Twice the mean pinball loss: the CRPS, but for the levels left out.
        return 2 * torch.maximum(level * error, (level - 1) * error).mean(-1)
