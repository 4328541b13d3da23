r"""State what the kernels must equal: the same losses in plain torch, in any floating-point type.

.. math:: \ell_t = \log m + \log E - \log\bigl((1 - \epsilon)\,|A(b_t)|^2 + \epsilon E\bigr), \qquad E = \|a\|^2,

with :math:`y = x W^\top + b = [\alpha_0, \ldots, \alpha_N, \beta_0, \ldots, \beta_N]` and
:math:`A(z) = \sum_l (\alpha_l + i\beta_l) e^{-i\pi l z}`; for real targets :math:`\log m` becomes :math:`\log 2`.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

GUARD = 1e-12


def amplitude(y: Tensor, turns: Tensor, walls: bool) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return Re A, Im A and the parts of -i sum l a_l e^{-i pi l z}, at ``turns`` per harmonic: (tokens, ...)."""
    length = y.shape[-1] if walls else y.shape[-1] // 2
    harmonic = torch.arange(length, device=y.device, dtype=turns.dtype)
    phase = turns.unsqueeze(-1) * harmonic
    angle = ((phase - phase.round()) * (2 * math.pi)).to(y.dtype)
    cos, sin = torch.cos(angle), torch.sin(angle)
    while y.dim() < cos.dim():
        y = y.unsqueeze(-2)
    alpha = y[..., :length]
    beta = torch.zeros_like(alpha) if walls else y[..., length:]
    re, im = alpha * cos + beta * sin, beta * cos - alpha * sin
    harmonic = harmonic.to(y.dtype)
    return re.sum(-1), im.sum(-1), (harmonic * im).sum(-1), -(harmonic * re).sum(-1)


def bin_turns(target: Tensor, num_bins: int, walls: bool) -> Tensor:
    """Return the turns of the circle per harmonic at bin centres, in float64."""
    if walls:
        return (2 * target + 1).double() / (4 * num_bins)
    return (2 * target + 1 - num_bins).double() / (2 * num_bins)


def value_turns(value: Tensor, walls: bool) -> Tensor:
    """Return the turns of the circle per harmonic at real values, in float64."""
    return (value.double() + 1) / 4 if walls else value.double() / 2


def _scaled(y: Tensor) -> Tensor:
    # The density does not depend on the scale of the coefficients, nor does its gradient depend on how we scale.
    largest = y.detach().abs().amax(-1, keepdim=True)
    return y / torch.where(largest > 0, largest, torch.ones_like(largest))


def token_losses(
    x: Tensor, weight: Tensor, bias: Tensor | None, turns: Tensor, *, units: float, floor: float, walls: bool
) -> Tensor:
    """Return the losses of all tokens for phases given in turns per harmonic."""
    y = _scaled(F.linear(x, weight, bias))
    re, im, _, _ = amplitude(y, turns, walls)
    energy = (y * y).sum(-1)
    mixed = (1 - floor) * (re * re + im * im) + floor * energy
    return units + torch.log(energy + GUARD) - torch.log(mixed + GUARD)


def roughness(
    x: Tensor, weight: Tensor, bias: Tensor | None, offsets: Tensor | None = None, *,
    points: int | None = None, floor: float = 0.0, walls: bool = False,
) -> Tensor:  # fmt: skip
    r"""Return :math:`\int p'^2` by the trapezoid rule on ``points`` shifted points: exact once points > 2N."""
    y = _scaled(F.linear(x, weight, bias))
    length = y.shape[-1] if walls else y.shape[-1] // 2
    points = points or 2 * length
    shift = torch.zeros(len(x), device=x.device) if offsets is None else offsets
    turns = (shift.double().unsqueeze(-1) + torch.arange(points, device=x.device)) / points
    a_re, a_im, b_re, b_im = amplitude(y, turns, walls)
    omega = math.pi / 2 if walls else math.pi
    energy = (y * y).sum(-1, keepdim=True) + GUARD
    slope = (1 - floor) * omega * (a_re * b_re + a_im * b_im) / energy
    return 2 * (slope * slope).mean(-1)


def cross_entropy(
    x: Tensor, weight: Tensor, bias: Tensor | None, target: Tensor, *, num_bins: int, floor: float = 0.0,
    ignore_index: int = -100, class_weight: Tensor | None = None, reduction: str = "mean", penalty: float = 0.0,
    points: int = 1, offsets: Tensor | None = None, walls: bool = False,
) -> Tensor:  # fmt: skip
    """Return the cross-entropy of bin ids ``target``, plus ``penalty`` times the roughness."""
    valid = target != ignore_index
    safe = torch.where(valid, target, torch.zeros_like(target))
    losses = token_losses(
        x, weight, bias, bin_turns(safe, num_bins, walls), units=math.log(num_bins), floor=floor, walls=walls
    )
    weights = valid.to(losses.dtype)
    if class_weight is not None:
        weights = weights * class_weight.to(losses.dtype)[safe]
    losses = torch.where(valid, losses, torch.zeros_like(losses)) * weights
    rough = torch.zeros_like(losses)
    if penalty:
        rough = roughness(x, weight, bias, offsets, points=points, floor=floor, walls=walls) * valid
    if reduction == "none":
        return losses + penalty * rough
    if reduction == "sum":
        return losses.sum() + penalty * rough.sum()
    return losses.sum() / weights.sum() + penalty * rough.sum() / valid.sum()


def density_nll(
    x: Tensor, weight: Tensor, bias: Tensor | None, value: Tensor, *, floor: float = 0.0, reduction: str = "mean",
    walls: bool = False,
) -> Tensor:  # fmt: skip
    """Return the negative log-density at real values of [-1, 1]."""
    turns = value_turns(value, walls)
    losses = token_losses(x, weight, bias, turns, units=math.log(2), floor=floor, walls=walls)
    return losses if reduction == "none" else losses.sum() if reduction == "sum" else losses.mean()


def sample(y: Tensor, noise: Tensor, *, floor: float = 0.0, walls: bool = False) -> Tensor:
    r"""Draw exact samples of densities with coefficients ``y`` (tokens, outputs) in O(N), one per column of ``noise``.

    Shift K >= N + 1 equally spaced points by a random part of their distance. Whatever the shift, the values of
    :math:`|A|^2` there add up to :math:`K \|a\|^2`, so it remains to choose one of K points, the squares of a discrete
    Fourier transform. Its even and odd entries are the transforms of :math:`a_l + a_{l + K/2}` and
    :math:`(a_l - a_{l + K/2}) e^{-2\pi i l / K}`; by Parseval's theorem the energies of these two are the chances of
    the last binary digit, and the one drawn is half as long.

    Args:
        noise: Uniform numbers, (2 + log2 K, tokens): the floor, the shift, and one per binary digit.
    """
    y = _scaled(y)
    length = y.shape[-1] if walls else y.shape[-1] // 2
    levels = len(noise) - 2
    points = 1 << levels
    alpha = F.pad(y[:, :length], (0, points - length))
    beta = torch.zeros_like(alpha) if walls else F.pad(y[:, length:], (0, points - length))

    def turned(re: Tensor, im: Tensor, turns: Tensor) -> tuple[Tensor, Tensor]:
        phase = turns.double()[:, None] * torch.arange(re.shape[1], device=y.device)
        angle = ((phase - phase.round()) * (2 * math.pi)).to(y.dtype)
        return re * angle.cos() + im * angle.sin(), im * angle.cos() - re * angle.sin()

    re, im = turned(alpha, beta, noise[1] / points - 0.5)
    index = torch.zeros_like(noise[0])
    for level in range(levels):
        (re_0, re_1), (im_0, im_1) = re.chunk(2, 1), im.chunk(2, 1)
        even = ((re_0 + re_1) ** 2 + (im_0 + im_1) ** 2).sum(1) + 1e-30
        odd = ((re_0 - re_1) ** 2 + (im_0 - im_1) ** 2).sum(1) + 1e-30
        digit = noise[2 + level] * (even + odd) >= even
        sign = torch.where(digit, -1.0, 1.0)[:, None]
        re, im = turned(re_0 + sign * re_1, im_0 + sign * im_1, digit / (points >> level))
        index = index + digit * float(1 << level)
    z = torch.where(noise[0] < floor, 2 * noise[1] - 1, 2 * (index + noise[1]) / points - 1)
    return 2 * z.abs() - 1 if walls else z
