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
from fourier_head._arrays import widened
from fourier_head.densities.fourier import FourierDensity
from fourier_head.domains import Domain
from fourier_head.domains.maps import ValueMap
from fourier_head.kernels import direct, placed
from fourier_head.layout import Layout, Regularizer
from fourier_head.reductions import Reduction, check_target, reduce_loss, reduce_weighted, token_weights

Name = Literal["auto", "fused", "closed_form", "compiled", "reference"]

# What the kernels of a head with atoms leave out; no bin has this id.
IGNORED = -100
# Label smoothing needs every bin of every token; this many values at a time.
SMOOTHING_CHUNK = 1 << 22


@dataclass(frozen=True)
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
        class_weight, ignore_index, label_smoothing, reduction: of bin ids, as in ``F.cross_entropy``.
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
        chosen = next(one for one in AUTOMATIC if one.why_not(request) is None)
    else:
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
    target, expected = request.target, tuple(request.x.shape[:-1])
    if target.shape != expected:
        raise ValueError(f"target must have the shape {expected} of x without features, got {tuple(target.shape)}")
    if not 0 <= request.label_smoothing < 1:
        raise ValueError(f"label_smoothing must lie in [0, 1), got {request.label_smoothing}")
    if request.reduction not in ("none", "mean", "sum"):
        raise ValueError(f"reduction must be 'none', 'mean' or 'sum', got {request.reduction!r}")
    return replace(request, target=check_target(target, request.layout.num_classes, request.ignore_index))


# --- plain torch ----------------------------------------------------------------------------------------------------


def _reference(request: Request) -> Tensor:
    layout, outputs = request.layout, request.outputs()
    a = layout.coefficients(outputs)
    d = layout.density(outputs, request.domain, map=request.map, anchor=request.anchor, a=a)
    if request.kind == "bins":
        return _cross_entropy(request, outputs, a, class_log_prob(layout, outputs, d, _safe(request)))
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


def class_log_prob(layout: Layout, outputs: Tensor, d: FourierDensity, index: Tensor) -> Tensor:
    """Return the log-probability of one class per token: a bin, or an atom."""
    place = (index - layout.num_atoms).clamp_min(0) if layout.num_atoms else index
    log_mass = layout.log_mass(d, place)
    if not layout.num_atoms:
        return log_mass
    logs = layout.atom_logs(outputs)
    is_atom = index < layout.num_atoms
    of_atom = logs.gather(-1, torch.where(is_atom, index + 1, 0).unsqueeze(-1)).squeeze(-1)
    return torch.where(is_atom, of_atom, of_atom + log_mass)


def class_log_probs(layout: Layout, outputs: Tensor, d: FourierDensity) -> Tensor:
    """Return the log-probabilities of all classes, (..., num_atoms + num_bins)."""
    log_masses = layout.log_masses(d)
    if not layout.num_atoms:
        return log_masses
    logs = layout.atom_logs(outputs)
    return torch.cat([logs[..., 1:], logs[..., :1] + log_masses], dim=-1)


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
        d = layout.density(chunk, request.domain, map=request.map, anchor=anchor)
        logs = class_log_probs(layout, chunk, d)
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
        return "it needs float32 on a CPU, a few frequencies, tails of a thousandth or more, and no tracer"
    return None


def _map(request: Request) -> ValueMap:
    domain: Any = request.domain  # with a place to be put to, and so with a map
    return domain.map if request.map is None else request.map


def _of_placed(request: Request) -> Tensor:
    """Return scores on an adaptive domain; the gradients of place and width are left to torch."""
    layout, outputs, map = request.layout, request.outputs(), _map(request)
    place = outputs[..., outputs.shape[-1] - layout.place_outputs :]
    domain: Any = request.domain.at_outputs(place, map=map, anchor=request.anchor)
    u = map.forward(request.target).to(outputs.dtype)
    v = far = (u - domain.loc) / domain.width
    if any(map.curved) and request.kind != "crps":
        far, slope = domain.to_unit(request.target).to(v.dtype), domain.log_slope(request.target).to(v.dtype)
    else:
        slope = map.log_slope(u) - domain.width.log()
    nll, crps = placed.scores(outputs[..., : layout.num_coefficients], v, far, domain.tails, layout.floor)
    unit = domain.width if request.mapped else domain.width * map.scale
    return _weighted(request, lambda: nll - slope, lambda: crps * unit)


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
    if weight is None:
        return "the projection is more than its weight and bias: it has an adapter, hooks or several densities"
    # Triton's interpreter, on a CPU, is for tests: taken only when the kernels are asked for by name.
    if not kernels.available(x) and not (request.impl == "fused" and kernels.interpreted(x)):
        return f"they need a CUDA device with Triton, and x is {x.dtype} on {x.device.type}"
    if is_distributed(weight):
        return "the weight is a DTensor; gather it first, or use the reference"
    if weight.dtype != x.dtype and not torch.is_autocast_enabled(x.device.type):
        return f"x is {x.dtype} and the weight {weight.dtype}"
    if layout.packets or layout.place_outputs:
        return "packets and adaptive domains are left to the reference"
    if layout.bin_mass != "midpoint" and layout.num_bins is not None:
        return "exact bin masses are left to the reference"
    if request.gamma and request.regularizer != "roughness":
        return "the paper's regulariser is left to the reference"
    return _why_not_fused_bins(request) if request.kind == "bins" else _why_not_fused_values(request)


def _why_not_fused_bins(request: Request) -> str | None:
    if request.layout.num_coefficients > 2 * request.layout.require_bins():
        return "there are more frequencies than bins"
    if request.label_smoothing:
        return "label smoothing is left to the reference"
    if request.gamma and request.class_weight is not None:
        return "class weights beside a regulariser are left to the reference"
    return None


def _why_not_fused_values(request: Request) -> str | None:
    if request.kind != "nll":
        return "the ranked score is left to the reference"
    return "the values need a gradient" if request.target.requires_grad else None


def is_distributed(tensor: Tensor) -> bool:
    """Tell whether a tensor is a DTensor, as FSDP2 makes them."""
    return type(tensor).__name__ == "DTensor" or type(getattr(tensor, "data", None)).__name__ == "DTensor"


def _fused(request: Request) -> Tensor:
    flat = replace(
        request,
        x=request.x.reshape(-1, request.x.shape[-1]),
        target=request.target.reshape(-1),
    )
    if request.kind == "nll":
        return _fused_nll(flat).view(request.target.shape)
    loss = _fused_with_atoms(flat) if request.layout.num_atoms else _fused_bins(flat)
    return loss.view(request.target.shape) if request.reduction == "none" else loss


def _fused_nll(request: Request) -> Tensor:
    layout, weight, bias = request.layout, request.weight, request.bias
    assert weight is not None
    if layout.num_atoms:  # they are not part of the density
        weight, bias = _split(weight, layout)[0], bias if bias is None else _split(bias, layout)[0]
    value = request.target
    z = request.domain.to_unit(value).float()
    options = {"floor": layout.floor, "penalty": request.gamma, "walls": layout.walls}
    loss = kernels.density_nll(request.x, weight, bias, z, **options)  # type: ignore[arg-type]
    return loss - request.domain.log_slope(value).to(loss.dtype)


def _fused_bins(request: Request, offsets: Tensor | None = None) -> Tensor:
    """Return the kernels' loss of bins; ``offsets`` as in ``kernels.cross_entropy``."""
    assert request.weight is not None
    return kernels.cross_entropy(
        request.x,
        request.weight,
        request.bias,
        request.target,
        num_bins=request.layout.require_bins(),
        floor=request.layout.floor,
        ignore_index=request.ignore_index,
        class_weight=request.class_weight,
        reduction=request.reduction,
        penalty=request.gamma,
        offsets=offsets,
        walls=request.layout.walls,
    )


def _fused_with_atoms(request: Request) -> Tensor:
    """Return the loss of bins and atoms: the kernels take the rows that make coefficients, plain torch the few others.

    -log y_c is -log p(c) for an atom and -log p(continuum) - log of the bin's mass for a bin, so the two parts add up.
    """
    x, layout, class_weight = request.x, request.layout, request.class_weight
    assert request.weight is not None
    atoms, target = layout.num_atoms, request.target.long()
    free, others = _split(request.weight, layout)
    free_bias, other_bias = (None, None) if request.bias is None else _split(request.bias, layout)
    kept = target != request.ignore_index
    is_atom = kept & (target < atoms)
    logits = widened(torch.nn.functional.linear(x, others, other_bias))
    logs = torch.log_softmax(torch.nn.functional.pad(logits, (1, 0)), dim=-1)
    nll = -logs.gather(-1, torch.where(is_atom, target + 1, 0).unsqueeze(-1)).squeeze(-1)
    scale = token_weights(target, class_weight, request.ignore_index, layout.num_classes, nll.dtype)
    # The mean is over bins and atoms together, so each part is a sum first.
    added: Reduction = "none" if request.reduction == "none" else "sum"
    loss = reduce_weighted(nll, scale, added)
    bins = replace(
        request,
        weight=free,
        bias=free_bias,
        target=torch.where(kept & ~is_atom, target - atoms, IGNORED),
        class_weight=None if class_weight is None else class_weight[atoms:],
        ignore_index=IGNORED,
        reduction=added,
    )
    offsets = torch.rand(len(x), device=x.device) if request.gamma else None
    loss = loss + _fused_bins(bins, offsets)
    if request.gamma:
        # Tokens whose id is an atom have a density, too, and its roughness counts: a second pass with no other weight.
        place, none = torch.where(is_atom, 0, IGNORED), x.new_zeros(layout.require_bins(), dtype=torch.float32)
        loss = loss + _fused_bins(replace(bins, target=place, class_weight=none), offsets)
    if request.reduction != "mean":
        return loss
    total = scale.sum()
    return loss / torch.where(total == 0, torch.ones_like(total), total)


def _split(tensor: Tensor, layout: Layout) -> tuple[Tensor, Tensor]:
    """Return the rows of a weight or bias that make coefficients, and those of atoms.

    Going forward these are views; going back, one copy lays their gradients side by side, where the gradients of two
    slices would each be a whole matrix.
    """
    free, others = tensor.split([layout.num_coefficients, layout.num_atoms])
    return free, others


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
AUTOMATIC = [IMPLEMENTATIONS[name] for name in ("fused", "closed_form", "reference")]


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
        flat = outputs.reshape(-1, outputs.shape[-1])
        result = kernels.log_pmf(flat, num_bins=layout.require_bins(), floor=layout.floor)
        return result.view(*outputs.shape[:-1], layout.num_classes)
    d = layout.density(outputs, domain, map=map, anchor=anchor, blur=blur)
    return class_log_probs(layout, outputs, d)
