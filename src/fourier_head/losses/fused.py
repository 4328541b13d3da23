"""The loss by the Triton kernels of `kernels/`: when they apply, and what they are asked for."""

from __future__ import annotations

import functools

import torch
from torch import Tensor

from fourier_head import kernels
from fourier_head._devices import is_distributed
from fourier_head.layout import Layout
from fourier_head.losses.request import Request
from fourier_head.reductions import Reduction


def why_not(request: Request) -> str | None:
    """Return why the kernels do not apply, None where they do."""
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
    return _why_not_bins(request) if request.kind == "bins" else _why_not_values(request)


def _why_not_bins(request: Request) -> str | None:
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


def _why_not_values(request: Request) -> str | None:
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


def run(request: Request, reduction: Reduction | None = None) -> Tensor:
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


def values(request: Request) -> Tensor | None:
    """Return the reduced score of any values by the kernels, or None where they do not apply.

    Missing values, which do not count, and those outside are dealt with on the chip.
    """
    value, shape = request.target, request.x.shape[:-1]
    if request.impl not in ("auto", "fused") or value.shape != shape or not value.is_floating_point():
        return None
    return run(request, request.reduction) if why_not(request) is None else None
