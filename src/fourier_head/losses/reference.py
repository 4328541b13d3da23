"""The loss in plain torch, which runs anywhere and which all others equal."""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from fourier_head.losses.request import Request
from fourier_head.reductions import reduce_loss, reduce_weighted

# Label smoothing needs every bin of every token; this many values at a time.
SMOOTHING_CHUNK = 1 << 22


def run(request: Request) -> Tensor:
    """Return the loss by formulas that autograd differentiates."""
    layout, outputs = request.layout, request.outputs()
    a = layout.coefficients(outputs)
    d = layout.density(outputs, request.domain, map=request.map, anchor=request.anchor, a=a)
    if request.kind == "bins":
        return _cross_entropy(request, outputs, a, layout.class_log_prob(outputs, d, request.safe_target()))
    loss = request.weighted(
        lambda: -d.log_prob(request.target),
        lambda: d.domain.crps_of_map(d, request.target) if request.mapped else d.crps(request.target),
    )
    return loss + request.gamma * layout.penalty(a, request.regularizer) if request.gamma else loss


def _cross_entropy(request: Request, outputs: Tensor, a: Tensor, log_prob: Tensor) -> Tensor:
    layout, reduction, weights = request.layout, request.reduction, request.class_weight
    target = request.target.long()
    loss = reduce_loss(-log_prob, target, weights, request.ignore_index, reduction, layout.num_classes)
    kept = (target != request.ignore_index).to(log_prob.dtype)
    if request.label_smoothing:
        smooth = _all_bin_loss(request, outputs)
        if reduction == "mean" and weights is not None:
            # F.cross_entropy divides this part, too, by the weights of the targets.
            total = (weights.to(smooth.dtype)[request.safe_target()] * kept).sum()
            smooth = (smooth * kept).sum() / torch.where(total == 0, torch.ones_like(total), total)
        else:
            smooth = reduce_weighted(smooth, kept, reduction)
        share = request.label_smoothing
        loss = (1 - share) * loss + share / layout.num_classes * smooth
    if request.gamma:
        loss = loss + request.gamma * reduce_weighted(layout.penalty(a, request.regularizer), kept, reduction)
    return loss


def _all_bin_loss(request: Request, outputs: Tensor) -> Tensor:
    """Return the sum over classes of -log y_c (weighted) per token, without keeping tokens x bins for the backward."""
    layout, weights = request.layout, request.class_weight

    def of_chunk(chunk: Tensor, anchor: Tensor | None) -> Tensor:
        logs = layout.class_log_probs(chunk, layout.density(chunk, request.domain, map=request.map, anchor=anchor))
        return -(logs if weights is None else logs * weights.to(logs.dtype)).sum(-1)

    if request.map is not None or request.anchor is not None:
        return of_chunk(outputs, request.anchor)
    flat = outputs.reshape(-1, outputs.shape[-1])
    size = max(1, SMOOTHING_CHUNK // layout.num_classes)
    parts = [checkpoint(of_chunk, chunk, None, use_reentrant=False) for chunk in flat.split(size)]
    return torch.cat(parts).view(outputs.shape[:-1])


@functools.cache
def compiler() -> Callable[[Request], Tensor]:
    """Return what a process compiles once."""
    return torch.compile(run)


def compiled(request: Request) -> Tensor:
    """Return the same through ``torch.compile``."""
    # Inside a compiled region there is nothing left to compile.
    return run(request) if torch.compiler.is_compiling() else compiler()(request)
