"""Losses of a projected density: one description of what is asked, and one table of those who can answer.

"fused" are the Triton kernels of `kernels/`; "closed_form" has the gradient of a small head on a CPU written out;
"compiled" is the reference through ``torch.compile``; "reference" is plain torch and runs anywhere. "auto" takes the
first of "fused", "closed_form" and "reference" that applies. All of them equal the reference.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from fourier_head import kernels
from fourier_head._devices import is_distributed
from fourier_head.domains import Domain
from fourier_head.domains.maps import ValueMap
from fourier_head.layout import Layout
from fourier_head.losses import closed_form, fused, reference
from fourier_head.losses.fused import values as fused_values
from fourier_head.losses.request import Name, Request

__all__ = ["IMPLEMENTATIONS", "Name", "Request", "check_name", "compute", "fused_values", "log_probs"]


def compute(request: Request) -> Tensor:
    """Return the loss by the implementation asked for, or the first that applies."""
    if request.kind == "bins":
        request = request.checked()
    if request.impl == "auto":
        if fused.why_not(request) is None:
            return fused.run(request)
        return reference.run(request) if closed_form.why_not(request) else closed_form.run(request)
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


@dataclass(frozen=True)
class Implementation:
    """One way to compute losses: why it does not apply to a request, or None, and the loss where it does."""

    why_not: Callable[[Request], str | None]
    run: Callable[[Request], Tensor]


IMPLEMENTATIONS = {
    "fused": Implementation(fused.why_not, fused.run),
    "closed_form": Implementation(closed_form.why_not, closed_form.run),
    "compiled": Implementation(lambda request: None, reference.compiled),
    "reference": Implementation(lambda request: None, reference.run),
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
