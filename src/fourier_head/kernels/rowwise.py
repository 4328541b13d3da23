"""Losses of rows that a library's matrix product has projected: one kernel makes loss and gradient, autograd the rest."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from fourier_head.kernels import plan as plans
from fourier_head.kernels import tables
from fourier_head.kernels.combine import combine_kernel
from fourier_head.kernels.forward import reduce_kernel
from fourier_head.kernels.launch import INTERPRETED, empty, product, run
from fourier_head.kernels.likelihood import likelihood_kernel
from fourier_head.kernels.places import KINDS
from fourier_head.kernels.plan import ceil_div, power_of_two_above
from fourier_head.kernels.ranked import ranked_kernel
from fourier_head.kernels.rows import PER_POINT


@dataclass(frozen=True)
class Score:
    """What is asked of every row.

    Args:
        kind: "nll" of bins or values, "crps" of values.
        target: "bins", or the domain of values: "interval", "circle", "line", "placed".
        length: of the coefficients; 2 (N + 1) between walls, N + 1 on the circle.
        num_bins, ignore_index: of bin ids.
        floor, walls, packets, atoms: of the density.
        places: outputs that place the domain.
        tails: weight of the tails.
        origin, unit: u = (value - origin) / unit is what the target is read from.
        worth: what a ranked score of z counts in units of the values.
        reduction: "none", "mean" or "sum".
        penalty, points: weight of the roughness, and points of its estimate.
    """

    kind: Literal["nll", "crps"]
    target: str
    length: int
    num_bins: int = 0
    ignore_index: int = -100
    floor: float = 0.0
    walls: bool = False
    packets: int = 0
    atoms: int = 0
    places: int = 0
    tails: float = 0.0
    origin: float = 0.0
    unit: float = 1.0
    worth: float = 1.0
    reduction: str = "mean"
    penalty: float = 0.0
    points: int = 0

    @functools.cached_property
    def coefficients(self) -> int:
        return self.length if self.walls else 2 * self.length

    @functools.cached_property
    def outputs(self) -> int:
        return self.coefficients + 4 * self.packets + self.atoms + self.places

    @functools.cached_property
    def omega(self) -> float:
        return math.pi / 2 if self.walls else math.pi

    @functools.cached_property
    def units(self) -> float:
        """What is added to every loss: the logarithm of a bin's or a unit's share of [-1, 1]."""
        if self.target == "bins":
            return math.log(self.num_bins)
        per_z = {"interval": 2.0, "circle": 1.0, "line": 2.0, "placed": 1.0}[self.target]
        return math.log(per_z * self.unit)

    def gain(self, tokens: int) -> float:
        """Return what gradients are kept larger by: with it the mean over all tokens is a division by a power of two.

        Weights times a power of two are not rounded.
        """
        return power_of_two_above(tokens) / tokens if self.reduction == "mean" else 1.0


def _blocks(score: Score, half: bool) -> plans.Blocks:
    if score.kind == "crps":
        return plans.Blocks(rows=32, tile=max(16, power_of_two_above(score.length)), warps=4)
    return plans.Blocks(rows=32, tile=min(64, max(16, power_of_two_above(score.length))))


@functools.lru_cache(maxsize=256)
def _constants(
    score: Score, half: bool, bias: bool, weighted: bool, keep: bool, sums: bool
) -> tuple[plans.Blocks, dict[str, Any]]:
    """Return blocks and constants of the kernel of a score, in the order in which the kernel takes them."""
    blocks = _blocks(score, half)
    approximate = half and not INTERPRETED
    shared: dict[str, Any] = {"TARGET": KINDS[score.target], "WALLS": score.walls, "PLACES": score.places}
    if score.kind == "crps":
        points = blocks.tile if score.walls else 2 * blocks.tile
        return blocks, shared | {
            "BIAS": bias,
            "REDUCE": score.reduction != "none",
            "GRAD": keep,
            "NEED_BIAS": sums,
            "APPROX": approximate,
            "PRECISION": "tf32" if half else "ieee",
            "ROWS": blocks.rows,
            "TILE": blocks.tile,
            "POINTS": points,
        }
    return blocks, shared | {
        "PACKETS": score.packets,
        "PACKET_LANES": power_of_two_above(max(score.packets, 1)),
        "ATOM_LANES": power_of_two_above(score.atoms) if score.atoms else 0,
        "BIAS": bias,
        "WEIGHTED": weighted,
        "REDUCE": score.reduction != "none",
        "GRAD": keep,
        "NEED_BIAS": sums,
        "POINTS": score.points,
        "LANES": max(1, PER_POINT.value * score.points),
        "APPROX": approximate,
        "ROWS": blocks.rows,
        "TILE": blocks.tile,
    }


Saved = tuple[Tensor, Tensor, Tensor, Tensor]


def forward(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, target: Tensor, anchor: Tensor | None,
    offsets: Tensor | None, class_weight: Tensor | None, score: Score, keep: bool, sums: bool,
) -> Saved:  # fmt: skip
    """Return the loss and what the backward pass needs: gradients of rows, factors, and their sums for the bias.

    Without a weight, ``x`` are the outputs already. Without ``keep`` nothing of the size of the outputs is written.
    """
    tokens, outputs = x.shape[0], score.outputs
    half = x.dtype != torch.float32
    blocks, constants = _constants(score, half, bias is not None, class_weight is not None, keep, sums)
    programs = ceil_div(tokens, blocks.rows)
    reduce = score.reduction != "none"
    loss = empty(x) if reduce else empty(x, tokens)
    stride = padded(outputs)
    gradient = empty(x, tokens if keep else 0, stride, dtype=x.dtype)
    partial = empty(x, 4 * programs if reduce else 0)
    factors = empty(x, 2)
    bias_sums = empty(x, programs if sums else 0, stride)
    if tokens == 0:
        return loss.zero_(), gradient, factors.zero_(), bias_sums
    y = x if weight is None else product(x, weight)
    gain = score.gain(tokens)
    places = score.coefficients + 4 * score.packets
    if score.kind == "crps":
        cosine, sine = tables.power_points(blocks.tile, constants["POINTS"], score.walls, x.device)
        circular = score.target == "circle"
        terms = tables.ranked_terms(blocks.tile, score.length, score.walls, circular, x.device)
        e = score.tails
        constant = 0.25 if circular else (1 - e) / 6 + e * (1 - e) * (math.exp(-1) - 7 / 6) - 0.75 * e * e
        run(
            ranked_kernel, (programs,),
            (y, bias, target, anchor, cosine, sine, terms, gradient, loss, partial, bias_sums,
             tokens, score.length, outputs, y.stride(0), stride, places + score.atoms,
             score.floor, score.origin, score.unit, e, score.omega, gain, score.worth, constant, 0.0 if circular else 1.0),
            constants, num_warps=blocks.warps,
        )  # fmt: skip
    else:
        run(
            likelihood_kernel, (programs,),
            (y, bias, target, anchor, offsets, class_weight, gradient, loss, partial, bias_sums,
             tokens, score.length, outputs, y.stride(0), stride, score.coefficients, places, score.atoms,
             places + score.atoms, max(score.num_bins, 1), score.ignore_index,
             score.floor, score.units, score.origin, score.unit, score.tails, score.penalty, score.omega, gain),
            constants, num_warps=blocks.warps,
        )  # fmt: skip
    if reduce:
        run(
            reduce_kernel, (1,), (partial, loss, factors, programs, score.penalty, float(tokens), float(power_of_two_above(tokens))),
            {"MEAN": score.reduction == "mean", "BLOCK": 1024 if programs > 256 else 256},
        )  # fmt: skip
    return loss, gradient, factors, bias_sums


def padded(outputs: int) -> int:
    """Return the length of rows in whole vectors, which wide loads and matrix products are fast on."""
    return -(-outputs // 8) * 8


def backward(
    upstream: Tensor, x: Tensor, weight: Tensor | None, bias: Tensor | None, gradient: Tensor, factors: Tensor,
    sums: Tensor, score: Score, needs: tuple[bool, bool, bool],
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:  # fmt: skip
    """Return the gradients of (x, weight, bias)."""
    outputs = score.outputs
    if len(x) == 0:
        grads = [
            torch.zeros_like(s) if n and s is not None else None for s, n in zip((x, weight, bias), needs, strict=True)
        ]
        return grads[0], grads[1], grads[2]
    if score.reduction == "none":
        gradient = gradient * upstream.unsqueeze(1).to(gradient.dtype)
        grad_bias = gradient[:, :outputs].sum(0).to(bias.dtype) if needs[2] and bias is not None else None
        if weight is None:
            return gradient[:, :outputs], None, grad_bias
        wide = torch.nn.functional.pad(weight, (0, 0, 0, gradient.shape[1] - outputs))
        grad_x = torch.mm(gradient, wide) if needs[0] else None
        return grad_x, torch.mm(gradient.t(), x)[:outputs] if needs[1] else None, grad_bias
    if weight is None:
        grad_bias = (sums.sum(0)[:outputs] * (upstream * factors[0])).to(bias.dtype) if bias is not None else None
        return gradient[:, :outputs] * (upstream * factors[0]), None, grad_bias
    width, stride = weight.shape[1], gradient.shape[1]
    wide = weight.new_empty(stride, width)
    scale = empty(x)
    grad_bias = torch.empty_like(bias) if needs[2] and bias is not None else None
    block = min(1024, power_of_two_above(width))
    # The smallest numbers of float16 are not small enough for weights over a number of tokens: there results are scaled.
    first = x.dtype != torch.float16
    extra = ceil_div(outputs, 32) if grad_bias is not None else 0
    run(
        combine_kernel, (stride + extra, ceil_div(width, block)),
        (weight, wide, sums, grad_bias, upstream, factors, scale, outputs, stride, width, weight.stride(0), len(sums)),
        {"SCALED": first, "NEED_BIAS": grad_bias is not None, "GROUPS": 32, "COLUMNS": 32, "BLOCK": block},
    )  # fmt: skip
    grad_x = grad_weight = None
    if needs[0]:
        grad_x = torch.mm(gradient, wide)
        if not first:
            grad_x.mul_(scale)
    if needs[1]:
        grad_weight = torch.mm(gradient.t(), x).mul_(scale)[:outputs]
    return grad_x, grad_weight, grad_bias


class RowLoss(torch.autograd.Function):
    """A loss of rows that knows its gradient since the forward pass."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor | None, bias: Tensor | None, target: Tensor, anchor: Tensor | None,
        offsets: Tensor | None, class_weight: Tensor | None, score: Score,
    ) -> Tensor:  # fmt: skip
        needs = ctx.needs_input_grad
        keep = needs[0] or needs[1] or needs[2]
        loss, gradient, factors, sums = forward(
            x, weight, bias, target, anchor, offsets, class_weight, score, keep, needs[2]
        )
        ctx.save_for_backward(x, weight, bias, gradient, factors, sums)
        ctx.score = score
        return loss

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, bias, gradient, factors, sums = ctx.saved_tensors
        grads = backward(upstream, x, weight, bias, gradient, factors, sums, ctx.score, ctx.needs_input_grad[:3])
        return (*grads, None, None, None, None, None)
