r"""Likelihood and CRPS of a Fourier density with tails, beside their gradient in closed form.

Plain torch takes some two hundred operations on arrays so small that starting them is what they cost. Here coefficients
of energy one become the spectrum by two matrix products (their wave at 2N + 1 points, and its square back), and
everything else is sums over that spectrum. With :math:`q_k`, :math:`\omega_k = \pi k`, the mean
:math:`m = \sum 2 (-1)^k \mathrm{Im}\, q_k / \omega_k` and y inside [-1, 1] the CRPS of the core is

.. math:: \tfrac12 (y - m)^2 + \tfrac16 + \sum |q_k|^2 / \omega_k^2
    - 2\, \mathrm{Re} \sum q_k e^{i \omega_k y} / \omega_k^2

which is `spectrum.crps` with its terms collected; tails are mixed in as in `spectrum.crps_with_tails`. The score is
given less \|y\|, which the caller adds in units of the values: far out it would be lost in rounding.
"""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import softplus

from fourier_head.fourier import series, spectrum, tails
from fourier_head.kernels.devices import traced

MOST_FREQUENCIES = 64
"""Beyond this the products, which grow with the square of N, cost more than transforms."""
LEAST_TAILS = 1e-3
"""Below this the density where only tails are left would be lost in the rounding of a sum over the spectrum."""


def applies(x: Tensor, weight: Tensor | None, num_frequencies: int, weight_of_tails: float) -> bool:
    """Tell whether the scores of outputs, or of features and weights, can be taken here unseen by any tracer."""
    tensors = [x] if weight is None else [x, weight]
    return (
        all(tensor.device.type in ("cpu", "cuda") and tensor.dtype == torch.float32 for tensor in tensors)
        and 1 <= num_frequencies <= MOST_FREQUENCIES
        and weight_of_tails >= LEAST_TAILS
        and not torch.is_autocast_enabled(x.device.type)
        and not traced(*tensors)
    )


class _Tables(NamedTuple):
    """Constants of a length; of 2 N harmonics the first N are real parts, the others imaginary ones."""

    wave: Tensor
    """(2 L, 2 M): from coefficients to both parts of their wave at M points."""
    back: Tensor
    """(2 M, 2 N): from the squares of both parts to the spectrum."""
    angle: Tensor
    """(2 N,): pi k."""
    shift: Tensor
    """(2 N,): what turns cos into -sin for the imaginary parts."""
    terms: Tensor
    """(2 N, 2): of a series at y, what sums to the density and what to its second integral."""
    slopes: Tensor
    """(2 N, 2): the same for derivatives, real and imaginary parts of the spectrum changed over."""
    means: Tensor
    """(2 N, 2): what gives the mean, and the part of the distance to the tails that is linear in q."""
    squares: Tensor
    """(2 N,): 1 / omega^2."""


@functools.lru_cache(maxsize=8)
def _tables(length: int, floor: float, device: torch.device) -> _Tables:
    with torch.inference_mode(False):
        points = 2 * length - 1
        k = torch.arange(length, dtype=torch.float64)
        angle = 2 * math.pi / points * torch.outer(k, torch.arange(points, dtype=torch.float64))
        cos, sin = angle.cos(), angle.sin()
        wave = torch.cat([torch.cat([cos, -sin], 1), torch.cat([sin, cos], 1)])
        back = torch.cat([cos[1:], -sin[1:]]).mT * ((1 - floor) / points)
        w, sign, zero = math.pi * k[1:], (-1) ** k[1:], torch.zeros(length - 1, dtype=torch.float64)
        both = torch.cat([w, w])
        half = torch.cat([zero, zero + 1])
        # E|V - L| of the core and the Laplace density, less what does not depend on q.
        distance = 2 * ((sign - 1) / w**2 + (1 - math.exp(-1) * sign) / (1 + w**2))
        tables = _Tables(
            wave=wave,
            back=torch.cat([back, back]),
            angle=both,
            shift=math.pi / 2 * half,
            terms=torch.stack([torch.ones_like(both), both**-2], 1),
            slopes=torch.stack([both, 1 / both], 1) * (1 - 2 * half).unsqueeze(1),
            means=torch.stack([torch.cat([zero, 2 * sign / w]), torch.cat([2 * sign / w**2 - distance, zero])], 1),
            squares=both**-2,
        )
        return _Tables(*(table.float().contiguous().to(device) for table in tables))


class _Kept(NamedTuple):
    """What the gradient needs of the way forward."""

    v: Tensor
    far: Tensor
    scale: Tensor
    unit: Tensor
    wave: Tensor
    q: Tensor
    phase: Tensor
    mean: Tensor
    within: Tensor
    tail: Tensor
    mixed: Tensor
    off: Tensor
    fade: Tensor


def _forward(a: Tensor, v: Tensor, far: Tensor, weight: float, floor: float) -> tuple[Tensor, Tensor, _Kept]:
    """Return negative log-likelihood, and CRPS less |v|, of rows from coefficients (rows, 2 L) and v."""
    table = _tables(a.shape[-1] // 2, floor, a.device)
    # Relative to the largest first: squares of numbers as small or large as float32 has are none.
    scale = a.abs().amax(-1, keepdim=True).clamp_min_(1e-30).reciprocal_()
    unit = a * scale
    per_norm = torch.linalg.vecdot(unit, unit).clamp_min_(1).rsqrt_().unsqueeze(-1)
    unit.mul_(per_norm)
    scale.mul_(per_norm)
    wave = unit @ table.wave
    q = (wave * wave) @ table.back
    inside = v.clamp(-1, 1)
    phase = torch.addcmul(table.shift, inside.unsqueeze(-1), table.angle).cos_()
    density, integral = ((q * phase) @ table.terms).unbind(1)
    mean, linear = (q @ table.means).unbind(1)
    within = (v == inside).to(q.dtype)
    # Beyond the ends there are tails alone, whose logarithm is known even where they round to nothing.
    tail = torch.exp(-far.abs() * within).mul_(weight / 2)
    mixed = torch.addcmul(tail, density.add(0.5).clamp_min_(0), within, value=1 - weight)
    nll = torch.addcmul(mixed.log().neg_(), far.abs(), 1 - within)
    away = v.abs()
    fade = away.neg().exp_()
    off = inside - mean
    crps = (q * q) @ table.squares * (1 - weight)
    crps.add_(integral, alpha=-2).add_((1 - away).clamp_min_(0)).addcmul_(off, off, value=0.5)
    crps.addcmul_(mean, mean, value=-weight / 2).add_(linear, alpha=weight).mul_(1 - weight)
    crps.add_(fade, alpha=weight).add_(_constant(weight))
    return nll, crps, _Kept(v, far, scale, unit, wave, q, phase, mean, within, tail, mixed, off, fade)


def _backward(
    kept: _Kept, of_nll: Tensor, of_crps: Tensor, weight: float, floor: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of the coefficients, of v and of far."""
    v, far, scale, unit, wave, q, phase, mean, within, tail, mixed, off, fade = kept
    table = _tables(unit.shape[-1] // 2, floor, unit.device)
    share, rest = of_nll / mixed, of_crps * (1 - weight)
    to_series = torch.stack([share * within * (weight - 1), -2 * rest], 1)
    to_means = torch.stack([rest * torch.add(off, mean, alpha=weight).neg_(), weight * rest], 1)
    q_grad = phase * (to_series @ table.terms.mT)
    q_grad.addcmul_(q * table.squares, rest.unsqueeze(-1), value=2 * (1 - weight)).addmm_(to_means, table.means.mT)
    unit_grad = (wave * (q_grad @ table.back.mT)).mul_(2) @ table.wave.mT
    along = torch.linalg.vecdot(unit, unit_grad).unsqueeze(-1)
    # The scale comes last: of coefficients that are all zero it is huge, and their gradient zero.
    a_grad = torch.addcmul(unit_grad, unit, along, value=-1).mul_(scale)
    turned = ((q * phase.roll(phase.shape[1] // 2, 1)) @ table.slopes * to_series).sum(1)
    side = v.sign()
    v_grad = torch.addcmul(turned, rest, off - side).mul_(within).addcmul_(of_crps * side, fade, value=-weight)
    return a_grad, v_grad, share * tail * far.sign()


class _Scores(torch.autograd.Function):
    """Negative log-likelihood, and CRPS less |v|, of rows as functions of coefficients (rows, 2 L) and of v."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, v: Tensor, far: Tensor, weight: float, floor: float) -> tuple[Tensor, Tensor]:
        nll, crps, kept = _forward(a, v, far, weight, floor)
        ctx.save_for_backward(a, *kept)
        ctx.options = weight, floor
        return nll, crps

    @staticmethod
    def backward(ctx: Any, of_nll: Tensor, of_crps: Tensor) -> tuple[Tensor | None, ...]:
        a, *saved = ctx.saved_tensors
        kept = _Kept(*saved)
        if torch.is_grad_enabled():
            # Someone wants the gradient of the gradient: plain torch has it.
            scores = reference(a, kept.v, kept.far, *ctx.options)
            given = (a, kept.v, kept.far)
            return *torch.autograd.grad(scores, given, (of_nll, of_crps), create_graph=True), None, None
        return *_backward(kept, of_nll, of_crps, *ctx.options), None, None


class _Straight(torch.autograd.Function):
    """The weighted sum of both scores as a function of all outputs of a projection, place and width among them.

    What autograd does with the few numbers of place and width would take as long as all of the above.
    """

    @staticmethod
    def forward(
        ctx: Any, outputs: Tensor, u: Tensor, shares: tuple[float, float], options: tuple[float, float, float]
    ) -> Tensor:
        weight, floor, least = options
        loc, raw = outputs[:, -2], outputs[:, -1]
        width, away = softplus(raw).add_(least), u - loc
        v = away / width
        nll, crps, kept = _forward(outputs[:, :-2], v, v, weight, floor)
        ctx.save_for_backward(outputs, u, width, crps, *kept)
        ctx.shares, ctx.options = shares, options
        loss = torch.addcmul(away.abs(), crps, width).mul_(shares[1])
        return loss.add_(nll.add_(width.log()), alpha=shares[0])

    @staticmethod
    def backward(ctx: Any, out: Tensor) -> tuple[Tensor | None, ...]:
        outputs, u, width, crps, *saved = ctx.saved_tensors
        (of_nll, of_crps), (weight, floor, _) = ctx.shares, ctx.options
        if torch.is_grad_enabled():
            loss = straight_reference(outputs, u, ctx.shares, ctx.options)
            return torch.autograd.grad(loss, outputs, out, create_graph=True)[0], None, None, None
        kept, first, second = _Kept(*saved), out * of_nll, out * of_crps
        a_grad, v_grad, far_grad = _backward(kept, first, second * width, weight, floor)
        per_width = v_grad.add_(far_grad).div_(width)
        of_width = torch.addcmul(first / width, second, crps).addcmul_(per_width, kept.v, value=-1)
        grad = torch.empty_like(outputs)
        grad[:, :-2] = a_grad
        torch.addcmul(per_width, second, kept.v.sign(), out=per_width)
        torch.neg(per_width, out=grad[:, -2])
        torch.mul(of_width, torch.sigmoid(outputs[:, -1]), out=grad[:, -1])
        return grad, None, None, None


def _constant(weight: float) -> float:
    """Return the part of the CRPS that depends on nothing; the distance of v from 1 was counted from 0."""
    core = (1 - weight) * (1 / 6 - 1 + weight * (math.exp(-1) - 7 / 6))
    return core - weight**2 * tails.ABSOLUTE_DIFFERENCE / 2


def reference(a: Tensor, v: Tensor, far: Tensor, weight: float, floor: float) -> tuple[Tensor, Tensor]:
    """Return the same scores by `series.py` and `spectrum.py`."""
    squares = a.unflatten(-1, (2, -1))
    core = series.log_density(squares, v.clamp(-1, 1).unsqueeze(-1), floor).squeeze(-1)
    q = spectrum.of_coefficients(squares, floor)
    crps = spectrum.crps_with_tails(q, v.unsqueeze(-1), weight).squeeze(-1)
    return -tails.mix_log_density(core, far, weight), crps - v.abs()


def scores(a: Tensor, v: Tensor, far: Tensor, weight: float, floor: float) -> tuple[Tensor, Tensor]:
    r"""Return -log of the density of v and its CRPS less \|v\|, one of each per row, for coefficients (..., 2 L).

    Args:
        a: coefficients, alpha before beta.
        v: outcomes (...), in units of the half width from the middle.
        far: the outcomes as the tails see them: v, or where values go on along a curve beyond an end, their v there.
        weight: of the tails.
        floor: of the density.
    """
    shape = v.shape
    nll, crps = _Scores.apply(a.reshape(-1, a.shape[-1]), v.reshape(-1), far.reshape(-1), weight, floor)
    return nll.view(shape), crps.view(shape)


def straight_reference(
    outputs: Tensor, u: Tensor, shares: tuple[float, float], options: tuple[float, float, float]
) -> Tensor:
    """Return the same weighted sum by `reference`."""
    weight, floor, least = options
    width, away = softplus(outputs[..., -1]) + least, u - outputs[..., -2]
    nll, crps = reference(outputs[..., :-2], away / width, away / width, weight, floor)
    return shares[0] * (nll + width.log()) + shares[1] * (away.abs() + crps * width)


def straight(
    outputs: Tensor, u: Tensor, shares: tuple[float, float], weight: float, floor: float, least: float
) -> Tensor:
    """Return the weighted sum of -log of the density of u and its CRPS, one per row, from outputs (..., 2 L + 2).

    Args:
        outputs: coefficients, the middle, and what softplus makes the half width of.
        u: values, in units of outputs.
        shares: how much the likelihood and the CRPS count.
        weight, floor: as in ``scores``.
        least: added to the half width.
    """
    flat = outputs.reshape(-1, outputs.shape[-1])
    found: Tensor = _Straight.apply(flat, u.reshape(-1), shares, (weight, floor, least))
    return found.view(u.shape)
