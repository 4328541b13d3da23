"""Heads: layers that turn features into a distribution over ordered bins. The Fourier head and what all heads share."""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor, nn
from torch.distributions import Distribution
from torch.nn import functional

from fourier_head import losses, reductions
from fourier_head.bins import Bins
from fourier_head.density import FourierDensity
from fourier_head.domains import BinnedInterval, Circle, Domain, Interval
from fourier_head.layout import Layout, Regularizer
from fourier_head.series import bin_centers

# Multiplications from which on a projection takes padded weights: on an H200 a padded one saves about a microsecond per
# 2^27 of them, and the copy takes 3.5.
PADDED_FROM = 1 << 29


DomainLike = Domain | Bins | tuple[float, float]


def as_domain(domain: DomainLike | None) -> Domain:
    """Return the domain of values: [-1, 1] unless one is given; bins, or a pair of numbers, span an interval."""
    if domain is None:
        return Interval()
    if isinstance(domain, (tuple, list)) and len(domain) == 2:
        return Interval(*domain)
    if isinstance(domain, Bins):
        return BinnedInterval(domain)
    if not isinstance(domain, Domain):
        raise TypeError(f"domain must be an Interval, Circle, Line or Bins, got {domain!r}")
    return domain


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
        if in_features < 1:
            raise ValueError(f"in_features must be at least 1, got {in_features}")
        if isinstance(domain, Bins):
            if num_bins is not None and num_bins != domain.num_bins:
                raise ValueError(f"num_bins is {num_bins} but domain has {domain.num_bins} bins")
            num_bins = domain.num_bins
        self.in_features = in_features
        self.num_bins = num_bins
        self.domain = as_domain(domain)

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
        """Return the cross-entropy of bin ids, as ``F.cross_entropy(self(x), target)``."""
        target = reductions.check_target(target, self.out_features, ignore_index)
        return reductions.dense_cross_entropy(self(x), target, weight, ignore_index, label_smoothing, reduction)

    def nll(self, x: Tensor, value: Tensor, *, reduction: reductions.Reduction = "mean") -> Tensor:
        """Return the negative log-likelihood of continuous values; missing values (NaN) do not count."""
        return reductions.over_values(lambda safe: -self.density(x).log_prob(safe), x, value, self.domain, reduction)

    def crps(self, x: Tensor, value: Tensor, *, reduction: reductions.Reduction = "mean") -> Tensor:
        """Return the continuous ranked probability score of values; missing values (NaN) do not count."""
        return reductions.over_values(lambda safe: self.density(x).crps(safe), x, value, self.domain, reduction)  # type: ignore[attr-defined]


class FourierHead(Head):
    r"""Learn a continuous density as a Fourier series and return its values on ordered bins.

    .. math:: y_j = \frac{|A(b_j)|^2}{m \|a\|^2}, \qquad A(z) = \sum_{l=0}^{N} (\alpha_l + i \beta_l) e^{-i \pi l z}

    with bin centres :math:`b_j = -1 + (2j + 1)/m` and alpha, beta from one linear layer ``proj``, whose output starts
    with :math:`[\alpha_0 .. \alpha_N, \beta_0 .. \beta_N]`. With ``floor=0`` this is Algorithm 1 of the paper.

    Args:
        in_features: size of the features.
        num_bins: number of ordered bins; may be left out where only the density is wanted.
        num_frequencies: the highest harmonic N. No bin gets more than (N + 1) / num_bins, so where one of a few may be
            certain take N from num_bins - 1 up.
        floor: share of probability spread uniformly, which bounds the loss where A vanishes. The released code adds
            1e-5 to every bin: ``floor=released_floor(num_bins)``.
        bin_mass: "midpoint" takes the density at bin centres (the paper), "exact" its integral over each bin.
        boundary: "periodic" makes the first and last bin neighbours (the paper), "reflect" does not.
        packets: number K of wave packets mixed with the free coefficients; 0 is the paper's head.
        num_atoms: special classes beside the continuum (padding, end of sequence, ...); they have the first ids.
        gamma: strength of the regulariser that ``loss``, ``nll`` and ``crps`` add in training mode.
        regularizer: "roughness", the integral of p'^2, or "paper", the unnormalised form printed there.
        init_scale: He-initialised weights and biases are divided by this.
        domain: the values that the bins cover: ``Interval``, ``Circle``, ``Line``, or ``Bins`` of any kind.
        impl: "auto" takes fused kernels where they apply, "reference" plain torch, "compiled" torch.compile, "fused"
            the kernels, or an error that says why not.
        bias, device, dtype: as for ``nn.Linear``.

    References:
        Gillman et al., Fourier Head: Helping Large Language Models Learn Complex Probability Distributions, ICLR 2025.

    Example:
        >>> head = FourierHead(in_features=16, num_bins=100, num_frequencies=8)
        >>> x, target = torch.randn(4, 16), torch.tensor([3, 50, 51, 99])
        >>> head(x).exp().sum(-1)
        tensor([1.0000, 1.0000, 1.0000, 1.0000], grad_fn=<SumBackward1>)
        >>> torch.allclose(head.loss(x, target), torch.nn.functional.cross_entropy(head(x), target))
        True
        >>> head.density(x).quantile([0.1, 0.5, 0.9]).shape
        torch.Size([3, 4])
    """

    def __init__(
        self,
        in_features: int,
        num_bins: int | None = None,
        num_frequencies: int = 16,
        *,
        floor: float = 1e-4,
        bin_mass: Literal["midpoint", "exact"] = "midpoint",
        boundary: Literal["periodic", "reflect"] = "periodic",
        packets: int = 0,
        num_atoms: int = 0,
        gamma: float = 0.0,
        regularizer: Regularizer = "roughness",
        init_scale: float = 1000.0,
        domain: DomainLike | None = None,
        impl: losses.Implementation = "auto",
        bias: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ):
        super().__init__(in_features, num_bins, domain)
        losses.choose(impl, None)
        if regularizer not in ("roughness", "paper"):
            raise ValueError(f"regularizer must be 'roughness' or 'paper', got {regularizer!r}")
        if gamma < 0:
            raise ValueError(f"gamma must not be negative, got {gamma}")
        if init_scale <= 0:
            raise ValueError(f"init_scale must be positive, got {init_scale}")
        if boundary == "reflect" and isinstance(self.domain, Circle):
            raise ValueError("a circle has no walls: take boundary='periodic', or an Interval")
        self.layout = Layout(self.num_bins, num_frequencies, floor, bin_mass, boundary, packets, num_atoms)
        self.num_frequencies = num_frequencies
        self.gamma = gamma
        self.regularizer = regularizer
        self.init_scale = init_scale
        self.impl = impl
        self.blur = 0.0
        """Standard deviation, in z, of a low-pass blur of what ``forward`` and ``density`` predict; never of losses."""
        self.proj = nn.Linear(in_features, self.layout.out_features, bias=bias, device=device, dtype=dtype)
        self.reset_parameters()

    @property
    def out_features(self) -> int:
        return self.layout.num_classes

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Draw He-initialised weights and biases and divide them, as the paper does; spread packets over the range."""
        self.proj.reset_parameters()
        self.proj.weight.div_(self.init_scale)
        if self.proj.bias is None:
            return
        self.proj.bias.div_(self.init_scale)
        layout = self.layout
        if layout.packets:
            # Packets that start at one place stay together for long.
            first = layout.num_coefficients
            self.proj.bias[first : first + layout.packets] += bin_centers(layout.packets).to(self.proj.bias)
        if layout.num_atoms and layout.num_bins is not None:
            # An atom starts as likely as one bin.
            self.proj.bias[-layout.num_atoms :] -= math.log(layout.num_bins)

    def coefficients(self, x: Tensor) -> Tensor:
        """Return the coefficients of the density's squares, (..., 1 + K, 2, N+1), or (..., 1 + K, 1, 2N+2)."""
        return self.layout.coefficients(self._outputs(x))

    def forward(self, x: Tensor) -> Tensor:
        """Return normalised log-probabilities, (..., num_atoms + num_bins)."""
        return losses.log_pmf(self._outputs(x), self.layout, blur=self.blur, impl=self.impl)

    def _outputs(self, x: Tensor) -> Tensor:
        """Return the outputs of the projection; without gradients on a GPU from weights padded to whole vectors.

        2 (N + 1) is seldom a multiple of 8, and libraries multiply 16-bit matrices that are not aligned up to three
        times slower. The copy of the weights pays for itself in large products only.
        """
        layer, outputs = self.proj, self.layout.out_features
        extra = -outputs % 8
        if not extra or not x.is_cuda or torch.is_grad_enabled() or x.numel() * outputs < PADDED_FROM:
            return layer(x)
        half = x.dtype in (torch.bfloat16, torch.float16) or torch.is_autocast_enabled("cuda")
        plain = type(layer) is nn.Linear and not layer._forward_hooks and not layer._forward_pre_hooks
        if not half or not plain or losses.is_distributed(layer.weight):
            return layer(x)
        bias = None if layer.bias is None else functional.pad(layer.bias, (0, extra))
        padded: Tensor = functional.linear(x, functional.pad(layer.weight, (0, 0, 0, extra)), bias)
        return padded[..., :outputs]

    def _projection(self, x: Tensor) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """Return features, weight and bias for a loss; of a layer that is more than those, its outputs alone."""
        layer = self.proj
        hooks = layer._forward_hooks or layer._forward_pre_hooks or layer._backward_hooks or layer._backward_pre_hooks
        # An adapter has a forward of its own; so has a layer whose weights are offloaded, as an attribute.
        if hooks or type(layer).forward is not nn.Linear.forward or "forward" in vars(layer):
            return layer(x), None, None
        return x, layer.weight, layer.bias

    def density(self, x: Tensor) -> FourierDensity:
        """Return the continuous density over the values of ``domain``; atoms are not part of it."""
        return self._density_of(self.coefficients(x), self.blur)

    def _density_of(self, a: Tensor, blur: float = 0.0) -> FourierDensity:
        density = FourierDensity(a, self.domain, floor=self.layout.floor, blur=blur, squares=True, validate_args=False)
        density.impl = self.impl
        return density

    def atom_log_probs(self, x: Tensor) -> Tensor:
        """Return log-probabilities (..., 1 + num_atoms): of the continuum, then of each atom."""
        return self.layout.atom_logs(self.proj(x))

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
        """Return the cross-entropy of bin ids in O(N) per token, plus the regulariser in training mode."""
        return losses.cross_entropy(
            *self._projection(x),
            target,
            self.layout,
            class_weight=weight,
            ignore_index=ignore_index,
            label_smoothing=label_smoothing,
            reduction=reduction,
            gamma=self.gamma if self.training else 0.0,
            regularizer=self.regularizer,
            impl=self.impl,
        )

    def nll(self, x: Tensor, value: Tensor, *, reduction: reductions.Reduction = "mean") -> Tensor:
        """Return the negative log-likelihood of continuous values, in O(N) per value; NaN values do not count.

        Values outside the domain are taken at its nearest end. The regulariser is added in training mode.
        """

        def score(safe: Tensor) -> Tensor:
            z = self.domain.to_unit(safe).expand(x.shape[:-1])
            gamma = self.gamma if self.training else 0.0
            options = {"gamma": gamma, "regularizer": self.regularizer, "impl": self.impl}
            loss = losses.density_nll(*self._projection(x), z, self.layout, **options)  # type: ignore[arg-type]
            return loss - self.domain.log_slope(safe)

        return reductions.over_values(score, x, value, self.domain, reduction)

    def crps(self, x: Tensor, value: Tensor, *, reduction: reductions.Reduction = "mean") -> Tensor:
        """Return the closed-form continuous ranked probability score of values; NaN values do not count."""
        a = self.coefficients(x)
        loss = reductions.over_values(self._density_of(a).crps, x, value, self.domain, reduction)
        return loss + self._regularization(a, value, reduction)

    def _regularization(self, a: Tensor, value: Tensor, reduction: reductions.Reduction) -> Tensor | float:
        if not self.gamma or not self.training:
            return 0.0
        penalty = self.layout.penalty(a, self.regularizer)
        there = (~torch.isnan(value)).to(penalty.dtype).expand_as(penalty)
        return self.gamma * reductions.reduce_weighted(penalty, there, reduction)

    def penalty(self, x: Tensor) -> Tensor:
        """Return the regulariser per row of ``x``, without its strength gamma."""
        return self.layout.penalty(self.coefficients(x), self.regularizer)

    def extra_repr(self) -> str:
        layout = self.layout
        return (
            f"in_features={self.in_features}, num_bins={self.num_bins}, num_frequencies={self.num_frequencies}, "
            f"floor={layout.floor:g}, bin_mass={layout.bin_mass}, boundary={layout.boundary}, "
            f"packets={layout.packets}, num_atoms={layout.num_atoms}, gamma={self.gamma:g}, domain={self.domain!r}"
        )


def released_floor(num_bins: int) -> float:
    """Return the floor that equals the 1e-5 which the paper's released code adds to every bin.

    >>> round(released_floor(4096), 4)
    0.0393
    """
    return 1e-5 * num_bins / (1 + 1e-5 * num_bins)
