"""Losses of rows: arguments checked, then autograd, or an operator where ``torch.compile`` looks on."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor

from fourier_head.kernels.devices import require
from fourier_head.kernels.plan import Score, is_resident

REDUCTIONS = ("none", "mean", "sum")
# Up to this many frequencies the spectrum that a ranked score needs stays on the chip.
RANKED_FREQUENCIES = 64


def cross_entropy(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    target: Tensor,
    *,
    num_bins: int,
    floor: float = 0.0,
    ignore_index: int = -100,
    class_weight: Tensor | None = None,
    reduction: str = "none",
    penalty: float = 0.0,
    points: int = 1,
    offsets: Tensor | None = None,
    generator: torch.Generator | None = None,
    walls: bool = False,
) -> Tensor:
    r"""Return the cross-entropy of bin ids, plus ``penalty`` times an unbiased estimate of the roughness.

    .. math:: \ell_t = \log m + \log E - \log\bigl((1 - \epsilon)\,|A(b_t)|^2 + \epsilon E\bigr)

    The roughness :math:`\int p'^2` is estimated by the trapezoid rule on ``points`` equally spaced points, shifted at
    random for every token: its mean over the shift is the integral for any number of points, and more than 2N points
    give the integral itself.

    Args:
        x: Inputs of the projection, (tokens, width).
        weight: (2 (N + 1), width), rows alpha_0..alpha_N, beta_0..beta_N; (N + 1, width) between walls.
        bias: (len(weight),) or None.
        target: Bin ids, (tokens,); those equal to ``ignore_index`` count nothing.
        num_bins: Number m of bins; N < m (N < 2 m between walls).
        floor: Weight of the uniform distribution mixed in.
        class_weight: Weights of the bins, (m,), as in :func:`torch.nn.functional.cross_entropy`.
        reduction: ``"none"``, ``"mean"`` or ``"sum"``.
        penalty: Weight of the roughness.
        points: Points per token of the estimate, a power of two.
        offsets: Shifts in [0, 1), (tokens,), in place of random ones.
        generator: Source of the random shifts.
        walls: Real coefficients between reflecting walls in place of the circle.

    Returns:
        Float32 losses, (tokens,), or their mean or sum.
    """
    limit = 2 * num_bins if walls else num_bins
    length = weight.shape[0] if walls else weight.shape[0] // 2
    if length > limit:
        raise ValueError(f"num_bins: {length - 1} frequencies need more than {num_bins} bins in the fused kernels")
    if target.is_floating_point():
        raise TypeError(f"target: expected integer bin ids, got {target.dtype}")
    score = _score(
        "bins", length, num_bins, floor=floor, ignore_index=ignore_index, reduction=reduction, penalty=penalty,
        points=points, walls=walls,
    )  # fmt: skip
    check_rows(x, weight, bias, target, score, class_weight)
    return row_scores(x, weight, bias, target, score, class_weight, offsets=offsets, generator=generator)


def density_nll(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    value: Tensor,
    *,
    floor: float = 0.0,
    reduction: str = "none",
    penalty: float = 0.0,
    points: int = 1,
    offsets: Tensor | None = None,
    generator: torch.Generator | None = None,
    walls: bool = False,
) -> Tensor:
    r"""Return the negative log-density at values in [-1, 1], :math:`\log 2E - \log((1 - \epsilon)|A|^2 + \epsilon E)`.

    Arguments are those of :func:`cross_entropy`; no gradient flows to ``value``. NaN does not count, and values outside
    are taken at the nearest end.
    """
    if not value.is_floating_point():
        raise TypeError(f"value: expected real numbers, got {value.dtype}")
    if value.requires_grad:
        raise ValueError("value: the fused kernels give no gradient with respect to the values")
    length = weight.shape[0] if walls else weight.shape[0] // 2
    score = _score(
        "interval", length, floor=floor, reduction=reduction, penalty=penalty, points=points, walls=walls, origin=-1.0
    )
    check_rows(x, weight, bias, value, score)
    return row_scores(x, weight, bias, value, score, offsets=offsets, generator=generator)


def _score(target: str, length: int, num_bins: int = 0, *, penalty: float, points: int, **options: Any) -> Score:
    if points < 1 or points & (points - 1):
        raise ValueError(f"points: expected a power of two, got {points}")
    if options["reduction"] not in REDUCTIONS:
        raise ValueError(f"reduction: expected one of {REDUCTIONS}, got {options['reduction']!r}")
    return Score("nll", target, length, num_bins, penalty=penalty, points=points if penalty else 0, **options)


def row_scores(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    target: Tensor,
    score: Score,
    class_weight: Tensor | None = None,
    anchor: Tensor | None = None,
    offsets: Tensor | None = None,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Return the loss that a ``Score`` describes, of arguments that fit it and each other (``check_rows``).

    Args:
        x, weight, bias: of the projection, or without a weight its outputs, which lie in the order of ``Layout``.
        target: bin ids or values, (tokens,).
        score: which loss.
        class_weight: weights of bins and atoms.
        anchor: guesses of the values, for a domain with three outputs.
        offsets: shifts in [0, 1), (tokens,), of the points of the roughness, in place of random ones.
        generator: source of the random shifts.
    """
    x, weight = match(x, weight)
    # Of tensors that are contiguous this costs less than asking them.
    target = target.contiguous()
    bias = bias if bias is None else bias.contiguous()
    anchor = anchor if anchor is None else anchor.contiguous()
    class_weight = class_weight if class_weight is None else class_weight.contiguous()
    if not score.points:
        offsets = None
    elif offsets is None:
        offsets = torch.rand(x.shape[0], device=x.device, generator=generator)
    whole = weight is not None and score.is_free and is_resident(x, score.length)
    function, ops = _loaded()
    if torch.compiler.is_compiling():
        wanted = any(tensor is not None and tensor.requires_grad for tensor in (x, weight, bias))
        keep = torch.is_grad_enabled() and wanted
        if whole:
            return ops.fused_loss(x, weight, bias, target, offsets, class_weight, score, keep)
        return ops.row_loss(x, weight, bias, target, anchor, offsets, class_weight, score, keep)
    if x.is_cuda and x.device.index != torch._C._cuda_getDevice():
        with torch.cuda.device(x.device):  # wherever the caller is
            return row_scores(x, weight, bias, target, score, class_weight, anchor, offsets)
    if whole:
        return function.FusedLoss.apply(x, weight, bias, target, offsets, class_weight, score)
    return function.RowLoss.apply(x, weight, bias, target, anchor, offsets, class_weight, score)


@functools.cache
def _loaded() -> tuple[Any, Any]:
    """Return the modules that need triton: it is optional, and importing it takes a while."""
    from fourier_head.kernels import function, ops

    return function, ops


def match(x: Tensor, weight: Any) -> tuple[Tensor, Any]:
    """Return both in one type, that of autocast where it is on, with rows of unit stride, as the kernels read them."""
    if weight is None:
        return x if x.stride(-1) == 1 else x.contiguous(), None
    if torch.is_autocast_enabled(x.device.type):
        dtype = torch.get_autocast_dtype(x.device.type)
        x, weight = x.to(dtype), weight.to(dtype)
    elif weight.dtype != x.dtype:
        raise TypeError(f"weight: expected the type of x, {x.dtype}, got {weight.dtype}")
    x = x if x.stride(-1) == 1 else x.contiguous()
    return x, weight if weight.stride(-1) == 1 else weight.contiguous()


def check_rows(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, target: Tensor, score: Score, class_weight: Any = None
) -> None:
    """Raise an error for arguments that no loss of rows has."""
    check_projection(x, weight, bias)
    if target.shape != x.shape[:1]:
        raise ValueError(f"target: expected shape ({x.shape[0]},), got {tuple(target.shape)}")
    if class_weight is not None and score.points:
        raise ValueError("class_weight: not beside a penalty, whose tokens all weigh the same")


def check_projection(x: Tensor, weight: Tensor | None, bias: Tensor | None) -> None:
    """Raise an error for tensors that do not fit each other or the kernels."""
    for name, tensor in (("x", x), ("weight", weight), ("bias", bias)):
        if type(tensor).__name__ == "DTensor":
            raise TypeError(f'{name}: the fused kernels need plain tensors, got a DTensor; use impl="reference"')
    require("x", x)
    if weight is None:
        return
    if x.dim() != 2 or weight.dim() != 2 or x.shape[1] != weight.shape[1]:
        raise ValueError(f"weight: expected (outputs, {x.shape[-1]}), got {tuple(weight.shape)}")
    if bias is not None and bias.shape != weight.shape[:1]:
        raise ValueError(f"bias: expected shape ({weight.shape[0]},), got {tuple(bias.shape)}")
