"""Losses of a projected density: one description of what is asked, and one table of those who can answer.

"fused" are the Triton kernels of `kernels/`; "closed_form" has the gradient of a small head on a CPU written out;
"compiled" is the reference through ``torch.compile``; "reference" is plain torch and runs anywhere. "auto" takes the
first of "fused", "closed_form" and "reference" that applies. All of them equal the reference.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from fourier_head import kernels
from fourier_head._devices import is_distributed
from fourier_head.domains import Domain
from fourier_head.domains.adaptive import LEAST_WIDTH
from fourier_head.domains.maps import ValueMap, log_of
from fourier_head.kernels import direct, placed
from fourier_head.layout import Layout, Regularizer
from fourier_head.reductions import Reduction, check_target, check_weight, reduce_loss, reduce_weighted

Name = Literal["auto", "fused", "closed_form", "compiled", "reference"]

# Label smoothing needs every bin of every token; this many values at a time.
SMOOTHING_CHUNK = 1 << 22


@dataclass(slots=True)
class Request:
    """Say what loss is asked for.

    Args:
        x: features (..., width); without a weight, outputs of the projection already.
        weight, bias: of the projection.
        target: bin ids, or values inside the domain, (...).
        layout: how outputs are read.
        domain: where values live.
        kind: "bins", the cross-entropy of bin ids; "nll" or "crps" of values, one score for each, or "both" of them.
        crps_weight: how much the CRPS counts beside the likelihood, for "both".
        map, anchor: of an adaptive domain, one per row.
        mapped: whether the CRPS is taken in the coordinate of the map.
        gamma, regularizer: strength and kind of the penalty that is added.
        class_weight, ignore_index, label_smoothing: of bin ids, as in ``F.cross_entropy``.
        reduction: of bin ids, and of values where ``fused_values`` takes them.
        impl: which implementation.
    """

    x: Tensor
    weight: Tensor | None
    bias: Tensor | None
    target: Tensor
    layout: Layout
    domain: Domain
    kind: Literal["bins", "nll", "crps", "both"] = "bins"
    crps_weight: float = 1.0
    map: ValueMap | None = None
    anchor: Tensor | None = None
    mapped: bool = False
    gamma: float = 0.0
    regularizer: Regularizer = "roughness"
    class_weight: Tensor | None = None
    ignore_index: int = -100
    label_smoothing: float = 0.0
    reduction: Reduction = "mean"
    impl: Name = "auto"

    def outputs(self) -> Tensor:
        """Return the outputs of the projection."""
        return self.x if self.weight is None else torch.nn.functional.linear(self.x, self.weight, self.bias)


def compute(request: Request) -> Tensor:
    """Return the loss by the implementation asked for, or the first that applies."""
    if request.kind == "bins":
        request = _checked(request)
    if request.impl == "auto":
        if _why_not_fused(request) is None:
            return _fused(request)
        return _reference(request) if _why_not_closed_form(request) else _closed_form(request)
    chosen = IMPLEMENTATIONS[request.impl]
    reason = chosen.why_not(request)
    if reason is not None:
        raise ValueError(f"impl={request.impl!r} does not apply: {reason}")
    return chosen.run(request)


def check_name(impl: str) -> None:
    """Raise an error for an implementation that there is not."""
    if impl != "auto" and impl not in IMPLEMENTATIONS:
        names = ", ".join(map(repr, ("auto", *IMPLEMENTATIONS)))
        raise ValueError(f"impl must be one of {names}, got {impl!r}")


def _checked(request: Request) -> Request:
    target, shape = request.target, request.x.shape[:-1]
    # Ids on a device, of a type that kernels take, are not looked at.
    if not isinstance(target, Tensor) or not target.is_cuda or target.dtype not in (torch.int64, torch.int32):
        target = check_target(target, request.layout.num_classes, request.ignore_index)
    if target.shape != shape:
        raise ValueError(f"target must have the shape {tuple(shape)} of x without features, got {tuple(target.shape)}")
    check_weight(request.class_weight, request.layout.num_classes)
    if request.label_smoothing and not 0 <= request.label_smoothing < 1:
        raise ValueError(f"label_smoothing must lie in [0, 1), got {request.label_smoothing}")
    if request.reduction not in ("none", "mean", "sum"):
        raise ValueError(f"reduction must be 'none', 'mean' or 'sum', got {request.reduction!r}")
    return request if target is request.target else replace(request, target=target)


# --- plain torch ----------------------------------------------------------------------------------------------------


def _reference(request: Request) -> Tensor:
    layout, outputs = request.layout, request.outputs()
    a = layout.coefficients(outputs)
    d = layout.density(outputs, request.domain, map=request.map, anchor=request.anchor, a=a)
    if request.kind == "bins":
        return _cross_entropy(request, outputs, a, layout.class_log_prob(outputs, d, _safe(request)))
    loss = _weighted(
        request,
        lambda: -d.log_prob(request.target),
        lambda: d.domain.crps_of_map(d, request.target) if request.mapped else d.crps(request.target),
    )
    return loss + request.gamma * layout.penalty(a, request.regularizer) if request.gamma else loss


def _weighted(request: Request, nll: Callable[[], Tensor], crps: Callable[[], Tensor]) -> Tensor:
    if request.kind == "both":
        return nll() + request.crps_weight * crps()
    return nll() if request.kind == "nll" else crps()


def _safe(request: Request) -> Tensor:
    """Return bin ids, those to be ignored replaced by one that exists."""
    target = request.target.long()
    return torch.where(target == request.ignore_index, 0, target)


def _cross_entropy(request: Request, outputs: Tensor, a: Tensor, log_prob: Tensor) -> Tensor:
    layout, reduction, weights = request.layout, request.reduction, request.class_weight
    target = request.target.long()
    loss = reduce_loss(-log_prob, target, weights, request.ignore_index, reduction, layout.num_classes)
    kept = (target != request.ignore_index).to(log_prob.dtype)
    if request.label_smoothing:
        smooth = _all_bin_loss(request, outputs)
        if reduction == "mean" and weights is not None:
            # F.cross_entropy divides this part, too, by the weights of the targets.
            total = (weights.to(smooth.dtype)[_safe(request)] * kept).sum()
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
def _compiler() -> Callable[[Request], Tensor]:
    return torch.compile(_reference)


def _compiled(request: Request) -> Tensor:
    # Inside a compiled region there is nothing left to compile.
    return _reference(request) if torch.compiler.is_compiling() else _compiler()(request)


# --- the gradient of a small head on a CPU, written out -------------------------------------------------------------


def _why_not_closed_form(request: Request) -> str | None:
    if request.layout.place_outputs and request.kind != "bins":
        return _why_not_placed(request)
    if request.kind != "bins" or not request.layout.is_plain or request.gamma or request.label_smoothing:
        return "it knows bin ids of the plain head, and values of one whose domain adapts"
    if request.layout.bin_mass != "midpoint":
        return "exact bin masses are left to the reference"
    if not direct.applies(request.x, request.weight, request.layout.num_coefficients, request.layout.require_bins()):
        return "it needs a few frequencies in float32 on a CPU, and no tracer"
    return None


def _why_not_placed(request: Request) -> str | None:
    layout = request.layout
    if layout.packets or layout.walls or request.gamma:
        return "packets, walls and regularisers are left to the reference"
    if request.kind != "nll" and not request.mapped and any(_map(request).curved):
        return "behind a curved map only the CRPS in its coordinate has a closed form"
    if not placed.applies(request.x, request.weight, layout.num_frequencies, request.domain.tails):
        return "it needs float32 on a CPU or CUDA, a few frequencies, tails of a thousandth or more, and no tracer"
    return None


def _map(request: Request) -> ValueMap:
    domain: Any = request.domain  # with a place to be put to, and so with a map
    return domain.map if request.map is None else request.map


def _of_placed(request: Request) -> Tensor:
    """Return scores on an adaptive domain; behind a curved map the gradients of place and width are left to torch."""
    layout, outputs, map = request.layout, request.outputs(), _map(request)
    u = map.forward(request.target).to(outputs.dtype)
    domain: Any = request.domain
    unit = 1.0 if request.mapped else map.scale
    straight = not any(map.curved) and request.anchor is None
    if straight and isinstance(unit, float) and layout.out_features == layout.num_coefficients + 2:
        shares = {"nll": (1.0, 0.0), "crps": (0.0, unit), "both": (1.0, unit * request.crps_weight)}[request.kind]
        loss = placed.straight(outputs, u, shares, domain.tails, layout.floor, LEAST_WIDTH)
        return loss if request.kind == "crps" else loss + log_of(map.scale)
    place = outputs[..., outputs.shape[-1] - layout.place_outputs :]
    domain = domain.at_outputs(place, map=map, anchor=request.anchor)
    off = u - domain.loc
    v = far = off / domain.width
    if any(map.curved) and request.kind != "crps":
        far, slope = domain.to_unit(request.target).to(v.dtype), domain.log_slope(request.target).to(v.dtype)
    else:
        slope = map.log_slope(u) - domain.width.log()
    nll, crps = placed.scores(outputs[..., : layout.num_coefficients], v, far, domain.tails, layout.floor)
    return _weighted(request, lambda: nll - slope, lambda: torch.addcmul(off.abs(), crps, domain.width) * unit)


def _closed_form(request: Request) -> Tensor:
    layout = request.layout
    if layout.place_outputs:
        return _of_placed(request)
    nll = direct.nll(request.outputs(), _safe(request), layout.require_bins(), layout.floor)
    target, weights = request.target.long(), request.class_weight
    return reduce_loss(nll, target, weights, request.ignore_index, request.reduction, layout.num_classes)


# --- the kernels ----------------------------------------------------------------------------------------------------


def _why_not_fused(request: Request) -> str | None:
    x, weight, layout = request.x, request.weight, request.layout
    # Triton's interpreter, on a CPU, is for tests: taken only when the kernels are asked for by name.
    if not kernels.available(x) and not (request.impl == "fused" and kernels.interpreted(x)):
        return f"they need a CUDA device with Triton, and x is {x.dtype} on {x.device.type}"
    if weight is not None:
        if is_distributed(weight):
            return "the weight is a DTensor; gather it first, or use the reference"
        if weight.dtype != x.dtype and not torch.is_autocast_enabled(x.device.type):
            return f"x is {x.dtype} and the weight {weight.dtype}"
    elif is_distributed(x):
        return "the outputs are a DTensor; gather them first, or use the reference"
    if request.gamma and (request.regularizer != "roughness" or layout.packets):
        return "the paper's regulariser, and that of packets, are left to the reference"
    return _why_not_fused_bins(request) if request.kind == "bins" else _why_not_fused_values(request)


def _why_not_fused_bins(request: Request) -> str | None:
    layout = request.layout
    if layout.bin_mass != "midpoint" or layout.place_outputs:
        return "exact bin masses are left to the reference"
    if layout.num_coefficients > 2 * layout.require_bins():
        return "there are more frequencies than bins"
    if request.label_smoothing:
        return "label smoothing is left to the reference"
    if request.gamma and request.class_weight is not None:
        return "class weights beside a regulariser are left to the reference"
    return None


def _why_not_fused_values(request: Request) -> str | None:
    layout, domain = request.layout, request.domain
    if request.target.requires_grad or (request.anchor is not None and request.anchor.requires_grad):
        return "the values need a gradient"
    if request.kind == "both":
        return "the sum of two scores is left to the reference"
    if request.map is not None:
        return "maps that differ between rows are left to the reference"
    if domain.formula is None:
        return f"{domain!r} is left to the reference"
    if domain.place_outputs == 3 and request.anchor is None:
        return "an anchored head needs an anchor"
    if request.kind == "nll":
        return None
    if request.gamma:
        return "a regulariser beside the ranked score is left to the reference"
    if layout.packets or layout.num_frequencies > kernels.RANKED_FREQUENCIES or domain.formula[0] == "line":
        return f"the ranked score has no packets there, no line and at most {kernels.RANKED_FREQUENCIES} frequencies"
    return None


@functools.lru_cache(maxsize=256)
def _score(
    layout: Layout, formula: tuple[str, float, float], kind: str, tails: float, mapped: bool, gamma: float,
    ignore_index: int, reduction: str,
) -> kernels.Score:  # fmt: skip
    """Return what the kernels are asked for."""
    target, origin, unit = formula
    worth = {"circle": unit / 2, "placed": 1.0 if mapped else unit}.get(target, unit)
    return kernels.Score(
        kind=kind,
        target=target,
        length=layout.num_coefficients if layout.walls else layout.num_frequencies + 1,
        num_bins=layout.num_bins or 0,
        ignore_index=ignore_index,
        floor=layout.floor,
        walls=layout.walls,
        packets=layout.packets,
        atoms=layout.num_atoms,
        places=layout.place_outputs,
        tails=tails,
        origin=origin,
        unit=unit,
        worth=worth,
        reduction=reduction,
        penalty=gamma,
        points=1 if gamma else 0,
    )


def _fused(request: Request, reduction: Reduction | None = None) -> Tensor:
    """Return the loss by the kernels; scores of values are one for each unless a reduction is given."""
    x, target, anchor, layout = request.x, request.target, request.anchor, request.layout
    shape = target.shape
    if target.dim() != 1:
        x, target = x.reshape(-1, x.shape[-1]), target.reshape(-1)
        anchor = anchor if anchor is None else anchor.expand(shape).reshape(-1)
    bins = request.kind == "bins"
    reduction = request.reduction if bins else reduction or "none"
    score = _score(
        layout, ("bins", 0.0, 1.0) if bins else request.domain.formula, "nll" if bins else request.kind,
        request.domain.tails, request.mapped, request.gamma, request.ignore_index, reduction,
    )  # fmt: skip
    loss = kernels.row_scores(x, request.weight, request.bias, target, score, request.class_weight, anchor)
    return loss.view(shape) if reduction == "none" else loss


def fused_values(request: Request) -> Tensor | None:
    """Return the reduced score of any values by the kernels, or None where they do not apply.

    Missing values, which do not count, and those outside are dealt with on the chip.
    """
    value, shape = request.target, request.x.shape[:-1]
    if request.impl not in ("auto", "fused") or value.shape != shape or not value.is_floating_point():
        return None
    return _fused(request, request.reduction) if _why_not_fused(request) is None else None


# --- the table ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Implementation:
    """One way to compute losses: why it does not apply to a request, or None, and the loss where it does."""

    why_not: Callable[[Request], str | None]
    run: Callable[[Request], Tensor]


IMPLEMENTATIONS = {
    "fused": Implementation(_why_not_fused, _fused),
    "closed_form": Implementation(_why_not_closed_form, _closed_form),
    "compiled": Implementation(lambda request: None, _compiled),
    "reference": Implementation(lambda request: None, _reference),
}


def log_probs(
    outputs: Tensor,
    layout: Layout,
    domain: Domain,
    *,
    map: ValueMap | None = None,
    anchor: Tensor | None = None,
    blur: float = 0.0,
    impl: Name = "auto",
) -> Tensor:
    """Return log-probabilities of all classes; by the kernels where they apply and no gradient is wanted."""
    fits = layout.num_bins is not None and layout.num_coefficients <= 2 * layout.num_bins
    plain = layout.is_plain and layout.bin_mass == "midpoint" and fits and not blur
    if plain and kernels.wanted(impl, outputs) and not is_distributed(outputs):
        rows = outputs.reshape(-1, outputs.shape[-1])
        result = kernels.log_pmf(rows, num_bins=layout.require_bins(), floor=layout.floor)
        return result.view(*outputs.shape[:-1], layout.num_classes)
    return layout.class_log_probs(outputs, layout.density(outputs, domain, map=map, anchor=anchor, blur=blur))
