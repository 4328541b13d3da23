"""MixtureDensity: a weighted mixture of densities of any one kind."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.distributions import Distribution, constraints

from fourier_head._arrays import common_shape
from fourier_head.densities.scalar import ScalarDensity, Shape, checked_shape
from fourier_head.fourier.inversion import Curve, highest, invert
from fourier_head.fourier.quadrature import between

NODES = 8
"""Nodes of quadrature in each panel."""


class MixtureDensity(ScalarDensity):
    r"""Represent a mixture over the first dimension of a batch of densities on a line or an interval.

    .. math:: p(x) = \sum_{k=1}^{K} w_k \, p_k(x)

    Args:
        components: densities of batch shape (K, *batch) that can be indexed.
        weights: not negative, (K,) or (K, *batch); they are divided by their sum, and equal unless given.

    References:
        Figurnov et al., Implicit Reparameterization Gradients, NeurIPS 2018.

    Example:
        >>> from fourier_head import Adaptive, FourierDensity
        >>> place = Adaptive(tails=0.01).at(torch.tensor([0.0, 10.0]), torch.ones(2))
        >>> d = MixtureDensity(FourierDensity(torch.zeros(2, 2, 4), place), torch.tensor([0.25, 0.75]))
        >>> d.mean, d.cdf(5.0), d.quantile([0.2, 0.625]).round(decimals=3)
        (tensor(7.5000), tensor(0.2500), tensor([ 0.6010, 10.0000]))
    """

    arg_constraints: ClassVar[dict[str, constraints.Constraint]] = {"weights": constraints.nonnegative}

    def __init__(self, components: ScalarDensity, weights: Tensor | None = None, validate_args: bool | None = None):
        if not components.batch_shape:
            raise ValueError(f"components must have a batch shape (K, ...), got one density, {components!r}")
        count, batch = components.batch_shape[0], components.batch_shape[1:]
        weights = components._like.new_ones(count) if weights is None else torch.as_tensor(weights)
        if weights.shape not in ((count,), (count, *batch)):
            raise ValueError(f"weights must have the shape {(count,)} or {(count, *batch)}, got {tuple(weights.shape)}")
        # What is wrong with values is said here, once.
        self.components = copy.copy(components)
        self.components._validate_args = False
        self.weights = weights / weights.sum(0)
        super().__init__(batch, validate_args=validate_args)

    @property
    def _like(self) -> Tensor:  # type: ignore[override]
        return self.components._like

    def _cast_value(self, value: Tensor | float) -> Tensor:
        return self.components._cast_value(value)

    @constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self) -> constraints.Constraint:
        """The values that have a density: from the lowest to the highest of any component."""
        own: Any = self.components.support
        low, high = (getattr(own, name, None) for name in ("lower_bound", "upper_bound"))
        if not isinstance(low, Tensor) or not isinstance(high, Tensor):
            return own
        low, high = (end.expand(self.components.batch_shape) for end in (low, high))
        return constraints.interval(low.amin(0), high.amax(0))

    def expand(self, batch_shape: Shape, _instance: Distribution | None = None) -> MixtureDensity:
        """Return the same density for a larger batch, without copying."""
        more = (slice(None), *(None,) * (len(batch_shape) - len(self.batch_shape)))
        components = self.components[more].expand((len(self.weights), *batch_shape))  # type: ignore[index]
        weights = self.weights
        if weights.dim() > 1:
            weights = weights[more].expand(len(weights), *batch_shape)
        return MixtureDensity(components, weights, self._validate_args)

    def __getitem__(self, index: Any) -> MixtureDensity:
        """Return the densities of a part of the batch."""
        index = (slice(None), *(index if isinstance(index, tuple) else (index,)))
        weights = self.weights[index] if self.weights.dim() > 1 else self.weights
        return MixtureDensity(self.components[index], weights, self._validate_args)  # type: ignore[index]

    def __repr__(self) -> str:
        return f"MixtureDensity({len(self.weights)} of {self.components!r})"

    @property
    def _parts(self) -> int:
        """The dimension of components in results for values."""
        return -len(self.batch_shape) - 1

    def _shares(self) -> Tensor:
        """Return the weights (K, *batch), 1 where they are the same for all."""
        return self.weights if self.weights.dim() > 1 else self.weights.reshape(-1, *(1,) * len(self.batch_shape))

    def _for_each(self, value: Tensor) -> Tensor:
        """Return values (..., 1, *batch), to be given to all components."""
        return value.expand(common_shape(value.shape, self.batch_shape)).unsqueeze(self._parts)

    def _mix(self, each: Tensor) -> Tensor:
        """Return the weighted mean of what components say, (..., K, *batch)."""
        return (each * self._shares()).sum(self._parts)

    # --- density, distribution, quantiles

    def log_prob(self, value: Tensor | float) -> Tensor:
        """Return the log-density, ``-inf`` outside the support."""
        return self._log_prob(self._supported(value))

    def _log_prob(self, value: Tensor) -> Tensor:
        each = self.components.log_prob(self._for_each(value))
        return (each + self._shares().log()).logsumexp(self._parts)

    def cdf(self, value: Tensor | float) -> Tensor:
        """Return P(X <= value)."""
        return self._mix(self._cdf_each(self._value(value)))

    def _cdf_each(self, value: Tensor) -> Tensor:
        """Return the distribution functions of the components (..., K, *batch) at values (..., *batch)."""
        return self.components.cdf(self._for_each(value))

    def cdf_and_prob(self, value: Tensor) -> tuple[Tensor, Tensor]:
        """Return the distribution function and the density."""
        cdf, prob = self.components.cdf_and_prob(self._for_each(self._value(value)))
        return self._mix(cdf), self._mix(prob)

    def _icdf(self, level: Tensor) -> Tensor:
        """Return x with F(x) = level: the quantiles of the components enclose it."""
        level = level.expand(common_shape(level.shape, self.batch_shape))
        with torch.no_grad():
            x = self._between(level, self.components._icdf(self._for_each(level)))
        return self._with_gradient(x, level)

    def _between(self, level: Tensor, each: Tensor) -> Tensor:
        """Find quantiles between those of the components, (..., K, *batch), as a share of the way."""
        low, high = each.amin(self._parts), each.amax(self._parts)
        span = high - low
        # Where all agree there is nothing to find; and both ends of a line are infinitely far away.
        apart = (span > 0) & span.isfinite()
        low, span = torch.where(apart, low, each.select(self._parts, 0)), torch.where(apart, span, 0)
        start = torch.where(apart, (self._mix(each) - low) / span, 0).to(level.dtype).clamp(0, 1)

        def curve_of(mixture: MixtureDensity, low: Tensor, span: Tensor) -> Curve:
            def curve(share: Tensor) -> tuple[Tensor, Tensor]:
                cdf, prob = mixture.cdf_and_prob(low + span * share)
                return cdf.to(share.dtype), (prob * span).to(share.dtype)

            return curve

        def part(where: tuple[Tensor, ...]) -> Curve:
            batch = where[len(where) - len(self.batch_shape) :]
            return curve_of(self[batch], low[where], span[where])

        zero, one = torch.zeros_like(level), torch.ones_like(level)
        noise = 2 * torch.finfo(level.dtype).eps
        share = invert(curve_of(self, low, span), level.detach(), zero, one, start, noise=noise, part=part)
        return torch.where(apart, low + span * share, low)

    def icdf_of(self, component: Tensor, level: Tensor) -> Tensor:
        """Return quantiles of the components named.

        Args:
            component: numbers (*sample, *front), for the first dimensions of the batch; one for all of the others.
            level: (*sample, *batch).
        """
        front = self.batch_shape[: component.dim() - level.dim() + len(self.batch_shape)]
        place = [torch.arange(size, device=level.device) for size in front]
        index = (component, *torch.meshgrid(*place, indexing="ij")) if place else component
        return self.components[index]._icdf(level)  # type: ignore[index]

    def rsample(self, sample_shape: Shape = torch.Size(), generator: torch.Generator | None = None) -> Tensor:
        """Draw samples: a component for each, and a value of it; gradients flow to weights and components."""
        shape = self._extended_shape(checked_shape(sample_shape))
        which, level = self._uniform(shape, generator), self._uniform(shape, generator)
        with torch.no_grad():
            x = self.icdf_of(self.choose(which), level)
        return self._with_gradient(x)

    def choose(self, level: Tensor) -> Tensor:
        """Return the numbers of the components at levels of their cumulated weights."""
        upto = self.weights.movedim(0, -1).cumsum(-1)[..., :-1]
        return (level.unsqueeze(-1) >= upto).sum(-1)

    # --- summaries

    @property
    def mean(self) -> Tensor:
        """The mean."""
        return self._mix(self.components.mean)

    @property
    def variance(self) -> Tensor:
        """The variance: within components and between them."""
        mean = self.components.mean
        return self._mix(self.components.variance + (mean - self._mix(mean)) ** 2)

    def _panels(self) -> Tensor:
        """Return values, in order, between which the densities of all components are smooth.

        Those of each component are fewer where there are many: they lie among each other, and errors weigh less.
        """
        resolution = getattr(self.components, "resolution", 2 * NODES)
        return self.components.panels(math.ceil(resolution / math.sqrt(len(self.weights)))).flatten(0, 1).sort(0).values

    def _integral(self, function: Callable[[Tensor], Tensor], nodes: int = NODES) -> Tensor:
        """Return the integral of a function of values, by quadrature between panels."""
        return between(self._panels(), function, nodes)

    def entropy(self) -> Tensor:
        """Return the differential entropy in nats, by quadrature."""

        def part(x: Tensor) -> Tensor:
            log_prob = self._log_prob(x)
            prob = log_prob.to(x.dtype).exp()
            return -torch.where(prob > 0, prob * log_prob, 0)

        return self._integral(part).to(self._like.dtype)

    def crps(self, value: Tensor | float) -> Tensor:
        r"""Return the ranked score: the mean of those of the components less what mixing them gains.

        .. math:: \sum_k w_k \, \mathrm{crps}_k(y) - \int \sum_k w_k (F_k(x) - F(x))^2 dx
        """

        def spread(x: Tensor) -> Tensor:
            each = self._cdf_each(x)
            return self._mix((each - self._mix(each).unsqueeze(self._parts)) ** 2)

        scores: Any = self.components
        # Distribution functions are smoother than densities: where panels are as fine as these, half of the nodes
        # leave a millionth.
        nodes = NODES // 2 if hasattr(self.components, "resolution") else NODES
        return self._mix(scores.crps(self._for_each(self._value(value)))) - self._integral(spread, nodes)

    @property
    def mode(self) -> Tensor:
        """The value of the highest density: the best of a few in every panel, refined there and beside it."""
        with torch.no_grad():
            ends = self._panels()
            share = (torch.arange(NODES, dtype=ends.dtype, device=ends.device) + 0.5) / NODES
            share = share.reshape(-1, *(1,) * ends.dim())
            x = (ends[:-1] + share * ends.diff(dim=0)).flatten(0, 1)
            panel = self._log_prob(x).argmax(0, keepdim=True) % (len(ends) - 1)
            near = panel + torch.arange(-1, 2, device=x.device).reshape(-1, *(1,) * len(self.batch_shape))
            low, high = (ends.gather(0, (near + i).clamp(0, len(ends) - 1)) for i in (0, 1))
            x = highest(self._log_prob, low, high)
            return x.gather(0, self._log_prob(x).argmax(0, keepdim=True)).squeeze(0)
