"""What loss is asked for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from fourier_head.domains import Domain
from fourier_head.domains.maps import ValueMap
from fourier_head.layout import Layout, Regularizer
from fourier_head.reductions import Reduction, check_shape, check_target, check_weight

Name = Literal["auto", "fused", "closed_form", "compiled", "reference"]


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

    def checked(self) -> Request:
        """Return the request for bin ids with ids as torch has them, or raise an error for what cannot be asked."""
        target, shape = self.target, self.x.shape[:-1]
        # Ids on a device, of a type that kernels take, are not looked at.
        if not isinstance(target, Tensor) or not target.is_cuda or target.dtype not in (torch.int64, torch.int32):
            target = check_target(target, self.layout.num_classes, self.ignore_index)
        check_shape(target, shape)
        check_weight(self.class_weight, self.layout.num_classes)
        if self.label_smoothing and not 0 <= self.label_smoothing < 1:
            raise ValueError(f"label_smoothing must lie in [0, 1), got {self.label_smoothing}")
        if self.reduction not in ("none", "mean", "sum"):
            raise ValueError(f"reduction must be 'none', 'mean' or 'sum', got {self.reduction!r}")
        return self if target is self.target else replace(self, target=target)

    def weighted(self, nll: Callable[[], Tensor], crps: Callable[[], Tensor]) -> Tensor:
        """Return the score asked for, or the sum of both as they are weighed."""
        if self.kind == "both":
            return nll() + self.crps_weight * crps()
        return nll() if self.kind == "nll" else crps()

    def safe_target(self) -> Tensor:
        """Return bin ids, those to be ignored replaced by one that exists."""
        target = self.target.long()
        return torch.where(target == self.ignore_index, 0, target)
