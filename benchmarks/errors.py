"""How far losses and their gradients are from float64, of the same 16-bit inputs and weights.

One measure for every contender, linear + CE among them: the mean loss of all tokens of a problem, and its gradients of
features and weights, each relative to its own reference. That is found from the same numbers widened to float64, some
tokens at a time. The density of a domain that moves jumps at its ends: on which side float32 sees a value that lies at
one is chance, and such values are put to the middle first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks import arms, heads
from benchmarks.arms import Problem

CHUNK = 1024
# Half widths from an end within which a value lies at it: of sixteen thousand tokens hardly one does.
AT_AN_END = 1e-5
# The mean loss of some of the tokens, given their features.
Exact = Callable[[Tensor, slice], Tensor]


class Errors(NamedTuple):
    """Relative errors: of the loss, and of the norm of each gradient.

    ``product``: the larger of the gradients' where outputs are those of the library's product in float32 and all that
    follows is exact; no way of computing the loss from them can undo it.
    """

    loss: float
    x: float
    weight: float
    product: float | None = None

    @property
    def gradient(self) -> float:
        """The larger of the two."""
        return max(self.x, self.weight)


def _in_chunks(x: Tensor, exact: Exact, wide: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the mean loss of all tokens in float64 and its gradients of features and weights."""
    value, of_weight, of_x = torch.zeros((), device=x.device).double(), torch.zeros_like(wide), []
    for start in range(0, len(x), CHUNK):
        rows = slice(start, start + CHUNK)
        part = x[rows].detach().double().requires_grad_()
        share = exact(part, rows) * (len(part) / len(x))
        of_part, more = torch.autograd.grad(share, (part, wide))
        value, of_weight = value + share.detach(), of_weight + more
        of_x.append(of_part)
    return value, torch.cat(of_x), of_weight


def _relative(found: Iterable[Tensor], truth: Iterable[Tensor]) -> Errors:
    return Errors(*(((a.double() - b).norm() / b.norm()).item() for a, b in zip(found, truth, strict=True)))


def against(loss: Tensor, x: Tensor, weight: Tensor, exact: Exact, wide: Tensor) -> Errors:
    """Return the errors of a loss of features and weights; ``wide`` are the weights that ``exact`` uses, in float64."""
    return _relative((loss.detach(), *torch.autograd.grad(loss, (x, weight))), _in_chunks(x, exact, wide))


def of_linear(p: Problem) -> Errors:
    """Return the errors of linear + CE, in the type of the problem."""
    wide = p.linear_weight.detach().double().requires_grad_()

    def exact(x: Tensor, rows: slice) -> Tensor:
        return F.cross_entropy(F.linear(x, wide), p.target[rows])

    return against(arms.linear_ce(p), p.x, p.linear_weight, exact, wide)


def of_formula(loss: arms.Loss, p: Problem) -> Errors:
    """Return the errors of a cross-entropy of the problem's own Fourier weights."""
    wide = p.weight.detach().double().requires_grad_()
    return against(loss(p), p.x, p.weight, lambda x, rows: arms.plain_of(x, wide, None, p.target[rows], p), wide)


def of_head(name: str, p: Problem) -> Errors | None:
    """Return the errors of a loss of ``FourierHead``, None for heads without a reference in float64."""
    make = heads.arms(p).get(name.removeprefix("FourierHead."))
    arm = None if make is None else make()
    if arm is None or not arm.exact:
        return None
    exact = heads.in_float64(arm.head)
    target = off_the_ends(exact, p.x.detach(), arm.target(p))
    layer, wide = arm.head.proj, exact.proj.weight  # type: ignore[union-attr]

    def of_rows(x: Tensor, rows: slice) -> Tensor:
        return arm.loss(exact, x, target[rows])

    truth = _in_chunks(p.x, of_rows, wide)
    loss = arm.loss(arm.head, p.x, target)
    found = _relative((loss.detach(), *torch.autograd.grad(loss, (p.x, layer.weight))), truth)

    # The same with other outputs, whose gradients are passed on as if they were exact.
    outputs = _outputs(p.x.detach(), layer.weight.detach())

    def from_outputs(x: Tensor, rows: slice) -> Tensor:
        hook = exact.proj.register_forward_hook(lambda *given: given[2] + (outputs[rows] - given[2]).detach())
        try:
            return of_rows(x, rows)
        finally:
            hook.remove()

    return found._replace(product=_relative(_in_chunks(p.x, from_outputs, wide), truth).gradient)


@torch.no_grad()
def off_the_ends(head: Any, x: Tensor, value: Tensor) -> Tensor:
    """Return values, those at an end of the domain that a head in float64 gives them put to its middle."""
    count, layer = head.layout.place_outputs, head.proj
    if not count:
        return value
    bias = None if layer.bias is None else layer.bias[-count:]
    domain = head.domain.at_outputs(F.linear(x.double(), layer.weight[-count:], bias))
    v = domain.to_unit(value.double())
    return torch.where((v.abs() - 1).abs() < AT_AN_END, domain.from_unit(torch.zeros_like(v)).to(value), value)


def _outputs(x: Tensor, weight: Tensor) -> Tensor:
    """Return what the library's product makes of weights padded to whole vectors."""
    whole = F.pad(weight, (0, 0, 0, -len(weight) % 8))
    wide = torch.mm(x, whole.t(), out_dtype=torch.float32) if x.is_cuda else x.float() @ whole.float().t()
    return wide[:, : len(weight)].double()
