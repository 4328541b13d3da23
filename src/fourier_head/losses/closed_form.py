"""The loss of a small head on a CPU, and of one whose domain adapts, with its gradient written out."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from fourier_head.domains.adaptive import LEAST_WIDTH
from fourier_head.domains.maps import ValueMap, log_of
from fourier_head.kernels import direct, placed
from fourier_head.losses.request import Request
from fourier_head.reductions import reduce_loss


def why_not(request: Request) -> str | None:
    """Return why it does not apply, None where it does."""
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
    return request.weighted(lambda: nll - slope, lambda: torch.addcmul(off.abs(), crps, domain.width) * unit)


def run(request: Request) -> Tensor:
    """Return the loss; its gradient is computed along with it."""
    layout = request.layout
    if layout.place_outputs:
        return _of_placed(request)
    nll = direct.nll(request.outputs(), request.safe_target(), layout.require_bins(), layout.floor)
    target, weights = request.target.long(), request.class_weight
    return reduce_loss(nll, target, weights, request.ignore_index, request.reduction, layout.num_classes)
