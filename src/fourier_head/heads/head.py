"""What all heads share: log-probabilities of ordered bins, losses, and a predictive density of values."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn
from torch.distributions import Distribution

from fourier_head import reductions
from fourier_head._arrays import common_shape, needs_sync, widened
from fourier_head.bins import Bins
from fourier_head.domains import BinnedInterval, Domain, Interval
from fourier_head.domains.maps import ValueMap
from fourier_head.errors import whole_number

DomainLike = Domain | Bins | tuple[float, float]


def as_domain(domain: DomainLike | None) -> Domain:
    """Return the domain of values: [-1, 1] unless one is given; bins, or a pair of numbers, span an interval."""
    match domain:
        case None:
            return Interval()
        case Domain():
            return domain
        case Bins():
            return BinnedInterval(domain)
        case (low, high):
            return Interval(low, high)
    raise TypeError(f"domain must be an Interval, Circle, Line, Adaptive, Bins or a pair (low, high), got {domain!r}")


def checked_features(x: Tensor, layer: nn.Module) -> Tensor:
    """Return features, or say in one sentence why this layer of a head cannot take them."""
    size = getattr(layer, "in_features", None)  # a head whose projection is left out takes its outputs, of any size
    if isinstance(x, (list, tuple, np.ndarray)):
        raise TypeError(f"x must be a tensor of features, got {type(x).__name__}; torch.as_tensor makes one")
    if size is not None and x.shape[-1:] != (size,):
        raise ValueError(f"x must have the shape (..., {size}) that in_features says, got {tuple(x.shape)}")
    dtype = getattr(getattr(layer, "weight", None), "dtype", None)  # a quantised layer has none
    wider = x.dtype == torch.float64 and dtype in (torch.float32, torch.bfloat16, torch.float16)
    if wider or not x.is_floating_point():
        raise TypeError(f"x must hold numbers of the head's type, {dtype}, got {x.dtype}; x.to({dtype}) converts them")
    return x


class Head(nn.Module):
    """What every head offers: log-probabilities of bins, a loss on bin ids, and a predictive density of values.

    Args:
        in_features: size of the features.
        num_bins: number of ordered bins.
        domain: the values that the bins cover, [-1, 1] unless given; ``Bins`` of any kind, or a pair, will do.
    """

    proj: nn.Linear

    def __init__(self, in_features: int, num_bins: int | None, domain: DomainLike | None = None):
        super().__init__()
        self.in_features = whole_number("in_features", in_features, 1)
        self.domain = as_domain(domain)
        bins = self.domain.bins
        if bins is not None:
            if num_bins is not None and num_bins != bins.num_bins:
                raise ValueError(f"num_bins is {num_bins} but domain has {bins.num_bins} bins")
            num_bins = bins.num_bins
        if num_bins is not None:
            whole_number("num_bins", num_bins, 1)
            self.domain.check_bins()
        self.num_bins = num_bins
        self._warned_outside = False

    @property
    def out_features(self) -> int:
        """Size of the output: the bins and, where a head has them, atoms."""
        if self.num_bins is None:
            raise ValueError("this head has no bins: pass num_bins to predict or train on them")
        return self.num_bins

    def forward(self, x: Tensor) -> Tensor:
        """Return normalised log-probabilities of the bins, (..., num_bins)."""
        raise TypeError(f"{type(self).__name__} does not define forward")

    def density(self, x: Tensor) -> Distribution:
        """Return the predictive distribution of values, one per row of ``x``."""
        raise TypeError(f"{type(self).__name__} does not define density")

    def loss(
        self,
        x: Tensor,
        target: Tensor,
        *,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        label_smoothing: float = 0.0,
        reduction: reductions.Reduction = "mean",
    ) -> Tensor:
        """Return the cross-entropy of bin ids, as ``F.cross_entropy(self(x), target)``, or the loss of the head."""
        target = reductions.check_target(target, self.out_features, ignore_index)
        reductions.check_shape(target, self._batch_shape(checked_features(x, self.proj)))
        reductions.check_weight(weight, self.out_features)
        losses = self._bin_losses(x, target, target != ignore_index, label_smoothing)
        if losses is None:
            return reductions.dense_cross_entropy(self(x), target, weight, ignore_index, label_smoothing, reduction)
        return reductions.reduce_loss(losses, target, weight, ignore_index, reduction, self.out_features)

    def _bin_losses(self, x: Tensor, target: Tensor, kept: Tensor, label_smoothing: float) -> Tensor | None:
        """Return a loss for each token that takes the place of the cross-entropy, or None; only ``kept`` ids count."""
        return None

    def nll(self, x: Tensor, value: Tensor | float, *, reduction: reductions.Reduction = "mean") -> Tensor:
        """Return the negative log-likelihood of continuous values; missing values (NaN) do not count."""
        return self._over_values(lambda safe: -self.density(x).log_prob(safe), x, value, reduction)

    def crps(self, x: Tensor, value: Tensor | float, *, reduction: reductions.Reduction = "mean") -> Tensor:
        """Return the continuous ranked probability score of values; missing values (NaN) do not count."""
        return self._over_values(lambda safe: self.density(x).crps(safe), x, value, reduction)  # type: ignore[attr-defined]

    def _project(self, x: Tensor) -> Tensor:
        """Return the outputs of the projection for features that are checked."""
        return self.proj(checked_features(x, self.proj))

    def _batch_shape(self, x: Tensor) -> torch.Size:
        """Return the shape of the densities of features, one for each row."""
        return x.shape[:-1]

    def _over_values(
        self,
        score: Callable[[Tensor], Tensor],
        x: Tensor,
        value: Tensor | float,
        reduction: reductions.Reduction,
        map: ValueMap | None = None,
    ) -> Tensor:
        """Reduce a score of continuous values, one per density or one for all.

        Missing ones do not count; those outside the domain are moved to its nearest end, and the first time that
        happens a warning says how many.
        """
        checked_features(x, self.proj)
        value = torch.as_tensor(value, device=x.device)
        shape = common_shape(self._batch_shape(x), self.domain.shape)
        if value.dim() and value.shape != shape:
            raise ValueError(
                f"value must have the shape {tuple(shape)} of x without features, got {tuple(value.shape)}"
            )
        value = widened(value).expand(shape)
        missing = torch.isnan(value)
        near = self.domain.nearest(value, map)
        there = torch.where(missing, self.domain.middle(value, map), near)
        if not self._warned_outside and not torch.compiler.is_compiling() and not needs_sync(value):
            outside = int(((near != value) & ~missing).sum())
            if outside:
                self._warned_outside = True
                warnings.warn(
                    f"{outside} of {value.numel()} values lie outside {self.domain!r} and count as its nearest end "
                    "(said once); give the head a domain that holds them",
                    stacklevel=3,
                )
        losses = score(there)
        return reductions.reduce_weighted(losses, (~missing).to(losses.dtype), reduction)
