"""What losses of all heads share: targets checked, tokens weighed, means taken as ``F.cross_entropy`` does."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from fourier_head._arrays import needs_sync, widened

Reduction = Literal["none", "mean", "sum"]


def check_target(target: Tensor, num_classes: int, ignore_index: int) -> Tensor:
    """Return ids in a type that can hold them all, and ``ignore_index``; raise a clear error for others.

    Ids on a device are not looked at, which would make the host wait.
    """
    if not isinstance(target, Tensor):
        raise TypeError(f"target must be a tensor of bin ids, got {type(target).__name__}; torch.as_tensor makes one")
    if target.dtype not in (torch.int64, torch.int32, torch.int16, torch.uint8, torch.int8):
        raise TypeError(f"target must hold integer bin ids, got dtype {target.dtype}; encode values with Bins first")
    if target.dtype not in (torch.int64, torch.int32):
        target = target.long()
    if torch.compiler.is_compiling() or needs_sync(target):
        return target
    wrong = (target != ignore_index) & ((target < 0) | (target >= num_classes))
    if bool(wrong.any()):
        raise ValueError(
            f"target must hold bin ids from 0 to {num_classes - 1} or ignore_index={ignore_index}, "
            f"got {int(target[wrong][0])}"
        )
    return target


def check_shape(target: Tensor, shape: torch.Size) -> None:
    """Raise a clear error unless there is one id for each row of features; others would broadcast to all pairs."""
    if target.shape != shape:
        raise ValueError(f"target must have the shape {tuple(shape)} of x without features, got {tuple(target.shape)}")


def check_weight(weight: Tensor | None, num_classes: int) -> None:
    """Raise a clear error for weights of classes that are not one for each; kernels would read beyond their end."""
    if weight is not None and (not isinstance(weight, Tensor) or weight.shape != (num_classes,)):
        got = tuple(weight.shape) if isinstance(weight, Tensor) else type(weight).__name__
        raise ValueError(f"weight must be a tensor of shape ({num_classes},), a number for each class, got {got}")


def reduce_loss(
    loss: Tensor, target: Tensor, class_weight: Tensor | None, ignore_index: int, reduction: Reduction, num_classes: int
) -> Tensor:
    """Reduce losses per token as ``F.cross_entropy`` does; a mean over no tokens is zero instead of NaN."""
    scale = token_weights(target, class_weight, ignore_index, num_classes, loss.dtype)
    return reduce_weighted(loss, scale, reduction)


def token_weights(
    target: Tensor, class_weight: Tensor | None, ignore_index: int, num_classes: int, dtype: torch.dtype
) -> Tensor:
    """Return what each token counts: the weight of its class, zero where it is ignored."""
    kept = target != ignore_index
    safe = torch.where(kept, target, 0)
    if class_weight is None:
        # Indexing a stride-0 view costs no memory and lets torch itself reject ids outside the classes on any device.
        class_weight = torch.ones(1, dtype=dtype, device=target.device).expand(num_classes)
    return class_weight.to(dtype).index_select(0, safe.flatten()).view_as(safe) * kept


def reduce_weighted(loss: Tensor, scale: Tensor, reduction: Reduction) -> Tensor:
    """Reduce losses with one weight per token."""
    loss = torch.where(scale != 0, loss, 0) * scale
    if reduction == "none":
        return loss
    if reduction == "sum":
        return loss.sum()
    if reduction == "mean":
        total = scale.sum()
        return loss.sum() / torch.where(total == 0, torch.ones_like(total), total)
    raise ValueError(f"reduction must be 'none', 'mean' or 'sum', got {reduction!r}")


def dense_cross_entropy(
    log_probs: Tensor,
    target: Tensor,
    class_weight: Tensor | None,
    ignore_index: int,
    label_smoothing: float,
    reduction: Reduction,
) -> Tensor:
    """Return ``F.cross_entropy`` of (..., classes) log-probabilities, with zero for the mean over no tokens."""
    if reduction not in ("none", "mean", "sum"):
        raise ValueError(f"reduction must be 'none', 'mean' or 'sum', got {reduction!r}")
    log_probs = widened(log_probs)
    flat, ids = log_probs.reshape(-1, log_probs.shape[-1]), target.reshape(-1).long()
    weight = None if class_weight is None else class_weight.to(log_probs.dtype)
    if label_smoothing:
        loss = torch.nn.functional.cross_entropy(
            flat, ids, weight, ignore_index=ignore_index, reduction=reduction, label_smoothing=label_smoothing
        )
    else:  # normalised already
        loss = torch.nn.functional.nll_loss(flat, ids, weight, ignore_index=ignore_index, reduction=reduction)
    if reduction == "none":
        return loss.view(target.shape)
    return torch.where((target == ignore_index).all(), torch.zeros_like(loss), loss) if reduction == "mean" else loss
