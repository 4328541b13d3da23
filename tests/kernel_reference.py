"""What the kernels must equal, from the library's own formulas in plain torch, in any floating-point type."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from fourier_head import Interval, losses
from fourier_head.fourier import series, spectrum
from fourier_head.layout import Layout


def _coefficients(y: Tensor, walls: bool) -> Tensor:
    return y.unflatten(-1, (1 if walls else 2, -1))


def cross_entropy(
    x, weight, bias, target, *, num_bins, floor=0.0, ignore_index=-100, class_weight=None, reduction="mean",
    penalty=0.0, points=1, offsets=None, walls=False,
):  # fmt: skip
    """The cross-entropy of bin ids, plus ``penalty`` times an estimate of the roughness."""
    a = _coefficients(F.linear(x, weight, bias), walls)
    valid = target != ignore_index
    safe = torch.where(valid, target, 0)
    loss = -series.log_bin_mass(a, safe, num_bins, floor, walls=walls)
    weights = valid.to(loss.dtype)
    if class_weight is not None:
        weights = weights * class_weight.to(loss.dtype)[safe]
    loss = loss * weights
    rough = torch.zeros_like(loss)
    if penalty:
        rough = roughness(x, weight, bias, offsets, points=points, floor=floor, walls=walls) * valid
    if reduction == "none":
        return loss + penalty * rough
    if reduction == "sum":
        return loss.sum() + penalty * rough.sum()
    return loss.sum() / weights.sum() + penalty * rough.sum() / valid.sum()


def density_nll(x, weight, bias, value, *, floor=0.0, reduction="mean", walls=False):
    """The negative log-density at real values of [-1, 1]."""
    a = _coefficients(F.linear(x, weight, bias), walls)
    loss = -series.log_density(a, value.unsqueeze(-1), floor, walls=walls).squeeze(-1)
    return loss if reduction == "none" else loss.sum() if reduction == "sum" else loss.mean()


def roughness(x, weight, bias, offsets=None, *, points=None, floor=0.0, walls=False):
    r"""The integral of p'^2 by the trapezoid rule on ``points`` shifted points: exact once points > 2N."""
    a = _coefficients(F.linear(x, weight, bias), walls)
    q = spectrum.of_coefficients(a, floor)
    points = points or 2 * a.shape[-1]
    shift = torch.zeros(len(x), device=x.device) if offsets is None else offsets
    turns = (shift.to(q.dtype).unsqueeze(-1) + torch.arange(points, device=x.device)) / points
    # A turn of the circle; between walls the circle is the interval and its mirror image.
    angle = 2 * math.pi * turns.unsqueeze(-1) * torch.arange(1, q.shape[-1] + 1, device=x.device)
    omega = (math.pi / 2 if walls else math.pi) * torch.arange(1, q.shape[-1] + 1, device=x.device)
    slope = -(q[..., :1, :] * omega * angle.sin()).sum(-1)
    if not walls:
        slope = slope - (q[..., 1:, :] * omega * angle.cos()).sum(-1)
    return 2 * (slope * slope).mean(-1)


def layout_loss(x, weight, bias, target, layout: Layout, **options):
    """The library's own loss of bin ids."""
    return losses.compute(losses.Request(x, weight, bias, target, layout, Interval(), **options))


def sample(y: Tensor, noise: Tensor, *, floor: float = 0.0, walls: bool = False) -> Tensor:
    """Samples of densities with coefficients ``y`` (tokens, outputs), digit by digit as `kernels/sampling.py` says."""
    y = y / y.abs().amax(-1, keepdim=True).clamp_min(1e-30)
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
