"""Losses of a projected density, in O(N) per token; the place where an implementation is chosen.

"reference" is plain torch and runs anywhere; "compiled" is the same through ``torch.compile``; "fused" are the Triton
kernels of `kernels/`, which equal it. "auto" takes the kernels where they apply and plain torch elsewhere, on a CPU
with the gradient of a small head in closed form.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from fourier_head import kernels, series
from fourier_head._arrays import widened
from fourier_head.kernels import direct
from fourier_head.layout import Layout, Regularizer
from fourier_head.reductions import Reduction, check_target, reduce_loss, reduce_weighted, token_weights

Implementation = Literal["auto", "reference", "compiled", "fused"]

# What the kernels of a head with atoms leave out; no bin has this id.
IGNORED = -100
# Label smoothing needs every bin of every token; this many values at a time.
SMOOTHING_CHUNK = 1 << 22


def why_not_fused(x: Tensor, weight: Tensor | None, layout: Layout, impl: Implementation) -> str | None:
    """Return why the kernels cannot take this loss, or None if they can."""
    if weight is None:
        return "the projection is more than its weight and bias: it has an adapter or hooks"
    # Triton's interpreter, on a CPU, is for tests: taken only when the kernels are asked for by name.
    if not kernels.available(x) and not (impl == "fused" and kernels.interpreted(x)):
        return f"they need a CUDA device with Triton, and x is {x.dtype} on {x.device.type}"
    if is_distributed(weight):
        return "the weight is a DTensor; gather it first, or use the reference"
    if weight.dtype != x.dtype and not torch.is_autocast_enabled(x.device.type):
        return f"x is {x.dtype} and the weight {weight.dtype}"
    if layout.packets:
        return "packets are left to the reference"
    if layout.bin_mass != "midpoint" and layout.num_bins is not None:
        return "exact bin masses are left to the reference"
    return None


def choose(impl: Implementation, reason: str | None) -> Implementation:
    """Return the implementation to use, given why the kernels cannot be; asked for by name, they raise."""
    if impl not in ("auto", "reference", "compiled", "fused"):
        raise ValueError(f"impl must be 'auto', 'reference', 'compiled' or 'fused', got {impl!r}")
    if impl == "fused" and reason is not None:
        raise ValueError(f"impl='fused' does not apply: {reason}")
    if impl == "auto":
        return "reference" if reason is not None else "fused"
    # Inside a compiled region there is nothing left to compile.
    return "reference" if impl == "compiled" and torch.compiler.is_compiling() else impl


def is_distributed(tensor: Tensor) -> bool:
    """Tell whether a tensor is a DTensor, as FSDP2 makes them."""
    return type(tensor).__name__ == "DTensor" or type(getattr(tensor, "data", None)).__name__ == "DTensor"


def cross_entropy(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    target: Tensor,
    layout: Layout,
    *,
    class_weight: Tensor | None = None,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    reduction: Reduction = "mean",
    gamma: float = 0.0,
    regularizer: Regularizer = "roughness",
    impl: Implementation = "auto",
) -> Tensor:
    """Return the cross-entropy of bin ids under the density that ``x`` projects to, plus gamma times its regulariser.

    Equals ``F.cross_entropy`` of all log-probabilities without computing them: memory does not depend on the number
    of bins. Label smoothing does need them all; they are made in chunks and made again in the backward pass. The fused
    kernels estimate the roughness without bias from a few random points per token instead of computing it. Without a
    weight, ``x`` are outputs of the projection already.
    """
    if target.shape != x.shape[:-1]:
        expected = tuple(x.shape[:-1])
        raise ValueError(f"target must have the shape {expected} of x without features, got {tuple(target.shape)}")
    if not 0 <= label_smoothing < 1:
        raise ValueError(f"label_smoothing must lie in [0, 1), got {label_smoothing}")
    if reduction not in ("none", "mean", "sum"):
        raise ValueError(f"reduction must be 'none', 'mean' or 'sum', got {reduction!r}")
    target = check_target(target, layout.num_classes, ignore_index)
    reason = why_not_fused(x, weight, layout, impl)
    if reason is None:
        if layout.num_coefficients > 2 * layout.require_bins():
            reason = "there are more frequencies than bins"
        elif label_smoothing:
            reason = "label smoothing is left to the reference"
        elif gamma and (regularizer != "roughness" or class_weight is not None):
            reason = "the paper's regulariser, and class weights beside one, are left to the reference"
    chosen = choose(impl, reason)
    if chosen == "fused" and weight is not None:
        function = _fused_with_atoms if layout.num_atoms else _fused
        flat, ids = x.reshape(-1, x.shape[-1]), target.reshape(-1)
        loss = function(flat, weight, bias, ids, layout, class_weight, ignore_index, reduction, gamma)
        return loss.view(target.shape) if reduction == "none" else loss
    bare = not (layout.packets or layout.num_atoms or layout.walls or label_smoothing or gamma)
    simple = impl == "auto" and bare and layout.bin_mass == "midpoint"
    if simple and weight is not None and direct.applies(x, weight, layout.require_bins()):
        kept = torch.where(target == ignore_index, 0, target).long()
        nll = direct.nll(_outputs(x, weight, bias), kept, layout.require_bins(), layout.floor)
        return reduce_loss(nll, target.long(), class_weight, ignore_index, reduction, layout.num_classes)
    plain = _compiled(_reference) if chosen == "compiled" else _reference
    options = (class_weight, ignore_index, label_smoothing, reduction, gamma, regularizer)
    return plain(x, weight, bias, target, layout, *options)


def log_pmf(outputs: Tensor, layout: Layout, *, blur: float = 0.0, impl: Implementation = "auto") -> Tensor:
    """Return log-probabilities of all classes; by the kernels where they apply and no gradient is wanted."""
    plain = layout.packets or layout.num_atoms or layout.walls or layout.bin_mass != "midpoint" or blur
    fits = layout.num_bins is not None and layout.num_coefficients <= 2 * layout.num_bins
    if plain or not fits or not kernels.wanted(impl, outputs) or is_distributed(outputs):
        return layout.log_pmf(outputs, blur)
    flat = outputs.reshape(-1, outputs.shape[-1])
    result = kernels.log_pmf(flat, num_bins=layout.require_bins(), floor=layout.floor)
    return result.view(*outputs.shape[:-1], layout.num_classes)


def _outputs(x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    return x if weight is None else torch.nn.functional.linear(x, weight, bias)


@functools.cache
def _compiled(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    return torch.compile(function)


def _fused(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    target: Tensor,
    layout: Layout,
    class_weight: Tensor | None,
    ignore_index: int,
    reduction: Reduction,
    gamma: float,
    offsets: Tensor | None = None,
) -> Tensor:
    """Return the kernels' loss of bins, for x (tokens, width); ``offsets`` as in ``kernels.cross_entropy``."""
    return kernels.cross_entropy(
        x,
        weight,
        bias,
        target,
        num_bins=layout.require_bins(),
        floor=layout.floor,
        ignore_index=ignore_index,
        class_weight=class_weight,
        reduction=reduction,
        penalty=gamma,
        offsets=offsets,
        walls=layout.walls,
    )


def _fused_with_atoms(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    target: Tensor,
    layout: Layout,
    class_weight: Tensor | None,
    ignore_index: int,
    reduction: Reduction,
    gamma: float,
) -> Tensor:
    """Return the loss of bins and atoms: the kernels take the rows that make coefficients, plain torch the few others.

    -log y_c is -log p(c) for an atom and -log p(continuum) - log of the bin's mass for a bin, so the two parts add up.
    """
    atoms, target = layout.num_atoms, target.long()
    free, others = _split(weight, layout)
    free_bias, other_bias = (None, None) if bias is None else _split(bias, layout)
    kept = target != ignore_index
    is_atom = kept & (target < atoms)
    logits = widened(torch.nn.functional.linear(x, others, other_bias))
    logs = torch.log_softmax(torch.nn.functional.pad(logits, (1, 0)), dim=-1)
    nll = -logs.gather(-1, torch.where(is_atom, target + 1, 0).unsqueeze(-1)).squeeze(-1)
    scale = token_weights(target, class_weight, ignore_index, layout.num_classes, nll.dtype)
    # The mean is over bins and atoms together, so each part is a sum first.
    added: Reduction = "none" if reduction == "none" else "sum"
    loss = reduce_weighted(nll, scale, added)
    bins = torch.where(kept & ~is_atom, target - atoms, IGNORED)
    of_bins = None if class_weight is None else class_weight[atoms:]
    offsets = torch.rand(len(x), device=x.device) if gamma else None
    loss = loss + _fused(x, free, free_bias, bins, layout, of_bins, IGNORED, added, gamma, offsets)
    if gamma:
        # Tokens whose id is an atom have a density, too, and its roughness counts: a second pass with no other weight.
        place, none = torch.where(is_atom, 0, IGNORED), x.new_zeros(layout.require_bins(), dtype=torch.float32)
        loss = loss + _fused(x, free, free_bias, place, layout, none, IGNORED, added, gamma, offsets)
    if reduction != "mean":
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


def _reference(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    target: Tensor,
    layout: Layout,
    class_weight: Tensor | None,
    ignore_index: int,
    label_smoothing: float,
    reduction: Reduction,
    gamma: float,
    regularizer: Regularizer,
) -> Tensor:
    target = target.long()
    outputs = _outputs(x, weight, bias)
    safe = torch.where(target == ignore_index, 0, target)
    a = layout.coefficients(outputs)
    nll = -layout.log_mass(outputs, safe, a)
    loss = reduce_loss(nll, target, class_weight, ignore_index, reduction, layout.num_classes)
    kept = (target != ignore_index).to(nll.dtype)
    if label_smoothing:
        smooth = _all_bin_loss(outputs, layout, class_weight)
        if reduction == "mean" and class_weight is not None:
            # F.cross_entropy divides this part, too, by the weights of the targets.
            total = (class_weight.to(smooth.dtype)[safe] * kept).sum()
            smooth = (smooth * kept).sum() / torch.where(total == 0, torch.ones_like(total), total)
        else:
            smooth = reduce_weighted(smooth, kept, reduction)
        loss = (1 - label_smoothing) * loss + label_smoothing / layout.num_classes * smooth
    if gamma:
        loss = loss + gamma * reduce_weighted(layout.penalty(a, regularizer), kept, reduction)
    return loss


def density_nll(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    z: Tensor,
    layout: Layout,
    *,
    gamma: float = 0.0,
    regularizer: Regularizer = "roughness",
    impl: Implementation = "auto",
) -> Tensor:
    """Return the negative log-density at points z of [-1, 1], one per token, plus gamma times the regulariser.

    Without a weight, ``x`` are outputs of the projection already.
    """
    reason = why_not_fused(x, weight, layout, impl)
    if reason is None and z.requires_grad:
        reason = "the values need a gradient"
    if reason is None and gamma and regularizer != "roughness":
        reason = "the paper's regulariser is left to the reference"
    chosen = choose(impl, reason)
    if chosen == "fused" and weight is not None:
        if layout.num_atoms:  # they are not part of the density
            weight, bias = _split(weight, layout)[0], bias if bias is None else _split(bias, layout)[0]
        loss = kernels.density_nll(
            x.reshape(-1, x.shape[-1]),
            weight,
            bias,
            z.reshape(-1).float(),
            floor=layout.floor,
            penalty=gamma,
            walls=layout.walls,
        )
        return loss.view(z.shape)
    function = _compiled(_reference_density_nll) if chosen == "compiled" else _reference_density_nll
    return function(x, weight, bias, z, layout, gamma, regularizer)


def _reference_density_nll(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    z: Tensor,
    layout: Layout,
    gamma: float,
    regularizer: Regularizer,
) -> Tensor:
    a = layout.coefficients(_outputs(x, weight, bias))
    loss = -series.log_density(a, z.unsqueeze(-1), layout.floor, squares=True).squeeze(-1)
    return loss + gamma * layout.penalty(a, regularizer) if gamma else loss


def _all_bin_loss(outputs: Tensor, layout: Layout, class_weight: Tensor | None) -> Tensor:
    """Return the sum over classes of -log y_c (weighted) per token, without keeping tokens x bins for the backward."""

    def of_chunk(chunk: Tensor) -> Tensor:
        logs = layout.log_pmf(chunk)
        return -(logs if class_weight is None else logs * class_weight.to(logs.dtype)).sum(-1)

    flat = outputs.reshape(-1, outputs.shape[-1])
    size = max(1, SMOOTHING_CHUNK // layout.num_classes)
    parts = [checkpoint(of_chunk, chunk, use_reentrant=False) for chunk in flat.split(size)]
    return torch.cat(parts).view(outputs.shape[:-1])
