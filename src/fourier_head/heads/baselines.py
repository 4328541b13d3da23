"""The heads that the Fourier head is measured against, behind the same interface."""

from __future__ import annotations

import math
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fourier_head._arrays import widened
from fourier_head.densities.gaussian_mixture import UNSEEN, GaussianMixture
from fourier_head.densities.histogram import HistogramDensity
from fourier_head.errors import whole_number
from fourier_head.fourier.series import bin_centers
from fourier_head.heads.head import DomainLike, Head

Device = torch.device | str | None


class _HistogramHead(Head):
    """A head whose predictive density is constant within each bin."""

    def __init__(
        self,
        in_features: int,
        num_bins: int | None = None,
        *,
        domain: DomainLike | None = None,
        bias: bool = True,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ):
        super().__init__(in_features, num_bins, domain)
        if not self.domain.bounded:
            raise ValueError(f"domain must be an Interval or Bins for a histogram, got {self.domain!r}")
        self.proj = nn.Linear(in_features, self.out_features, bias=bias, device=device, dtype=dtype)

    def forward(self, x: Tensor) -> Tensor:
        return torch.log_softmax(widened(self._project(x)), dim=-1)

    def density(self, x: Tensor) -> HistogramDensity:
        log_probs = self(x)
        z = torch.linspace(-1, 1, self.out_features + 1, dtype=log_probs.dtype, device=log_probs.device)
        return HistogramDensity(logits=log_probs, edges=self.domain.from_unit(z), validate_args=False)


class LinearHead(_HistogramHead):
    """Classify bins with a linear layer that knows nothing of their order, the usual head.

    >>> LinearHead(8, 50)(torch.zeros(3, 8)).shape
    torch.Size([3, 50])
    """


class HLGaussHead(_HistogramHead):
    r"""Classify bins against a Gaussian histogram around the target instead of a single bin.

    The target is :math:`P(bin_j) \propto \Phi((e_{j+1} - y)/\sigma) - \Phi((e_j - y)/\sigma)`, with sigma in units of
    the bin width.

    References:
        Farebrother et al., Stop Regressing: Training Value Functions via Classification for Scalable Deep RL, 2024.

    >>> head = HLGaussHead(8, 50, sigma=0.75)
    >>> head.soft_targets(torch.tensor(20)).argmax()
    tensor(20)
    """

    def __init__(
        self,
        in_features: int,
        num_bins: int | None = None,
        *,
        sigma: float = 0.75,
        domain: DomainLike | None = None,
        bias: bool = True,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ):
        if sigma <= 0:
            raise ValueError(f"sigma must be positive, got {sigma}")
        super().__init__(in_features, num_bins, domain=domain, bias=bias, device=device, dtype=dtype)
        self.sigma = sigma

    def soft_targets(self, position: Tensor) -> Tensor:
        """Return target histograms (..., num_bins) around bin positions; 2.0 is the centre of bin 2."""
        edges = torch.arange(self.out_features + 1, device=position.device, dtype=torch.float32) - 0.5
        steps = (edges - position.unsqueeze(-1)) / (self.sigma * math.sqrt(2))
        # On the upper side differences of erf cancel; erfc of the nearer tail does not.
        mass = torch.where(
            steps[..., :-1] > 0,
            torch.erfc(steps[..., :-1]) - torch.erfc(steps[..., 1:]),
            torch.erfc(-steps[..., 1:]) - torch.erfc(-steps[..., :-1]),
        )
        return mass / mass.sum(-1, keepdim=True)

    def _bin_losses(self, x: Tensor, target: Tensor, kept: Tensor, label_smoothing: float) -> Tensor:
        """Return the cross-entropy against Gaussian histograms around the centres of the target bins."""
        goal = self.soft_targets(torch.where(kept, target, 0).float())
        goal = (1 - label_smoothing) * goal + label_smoothing / self.out_features
        return -(goal * self(x)).sum(-1)


class _MixtureHead(Head):
    """A head whose predictive density is a mixture of Gaussians cut off at the ends of the interval."""

    floor = 2e-5
    """Share of probability spread over all bins: the released baseline adds 1e-5 to its density."""

    def __init__(self, in_features: int, num_bins: int | None, domain: DomainLike | None):
        super().__init__(in_features, num_bins, domain)
        if self.domain.affine is None:
            raise ValueError(f"domain must be an Interval for a mixture of Gaussians, got {self.domain!r}")

    def components(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return logits, means and deviations of the components in z, each (..., K)."""
        raise TypeError(f"{type(self).__name__} does not define components")

    def forward(self, x: Tensor) -> Tensor:
        mixture = GaussianMixture(*self.components(x), low=-1.0, high=1.0, validate_args=False)
        floor = math.log(self.floor / self.out_features)
        # Far below the floor nothing is seen, and exponentials that underflow take a hundred times as long.
        log_probs = (mixture.bin_log_probs(self.out_features) + math.log1p(-self.floor)).clamp_min(floor - UNSEEN)
        return torch.logaddexp(log_probs, torch.full_like(log_probs, floor))

    def density(self, x: Tensor) -> GaussianMixture:
        logits, loc, scale = self.components(x)
        assert self.domain.affine is not None
        low, half = self.domain.affine
        high = low + 2 * half
        return GaussianMixture(logits, low + (loc + 1) * half, scale * half, low=low, high=high, validate_args=False)


class MixtureHead(_MixtureHead):
    """Predict a mixture of Gaussians, its density taken at the bin centres.

    Args:
        kind: "paper" has equal weights, means through tanh and deviations that do not depend on the input and start
            at one bin width, as the paper's released baseline; "full" learns weights, means and deviations from the
            input.
        num_components: number of Gaussians.

    >>> MixtureHead(8, 50, kind="full")(torch.zeros(3, 8)).shape
    torch.Size([3, 50])
    """

    smallest_deviation = 1e-3

    def __init__(
        self,
        in_features: int,
        num_bins: int | None = None,
        num_components: int = 2,
        *,
        kind: Literal["paper", "full"] = "full",
        domain: DomainLike | None = None,
        bias: bool = True,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ):
        super().__init__(in_features, num_bins, domain)
        if kind not in ("paper", "full"):
            raise ValueError(f"kind must be 'paper' or 'full', got {kind!r}")
        self.kind = kind
        self.num_components = whole_number("num_components", num_components, 1)
        outputs = num_components if kind == "paper" else 3 * num_components
        self.proj = nn.Linear(in_features, outputs, bias=bias, device=device, dtype=dtype)
        if kind == "paper":
            one_bin = math.log(math.expm1(2 / (self.num_bins or 50)))  # the inverse of softplus
            self.raw_scale = nn.Parameter(torch.full((num_components,), one_bin, device=device, dtype=dtype))

    def components(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        outputs = widened(self._project(x))
        if self.kind == "paper":
            scale = F.softplus(widened(self.raw_scale)).clamp_min(self.smallest_deviation).expand_as(outputs)
            return torch.zeros_like(outputs), torch.tanh(outputs), scale
        logits, loc, raw = outputs.chunk(3, dim=-1)
        # Shifted so that a raw output of zero is a deviation of about a fifth of the interval.
        return logits, loc, F.softplus(raw - 0.8) + self.smallest_deviation


class RegressionHead(_MixtureHead):
    """Predict one number with squared error; the spread of its density is a running mean of the training residuals.

    >>> RegressionHead(8, 50).density(torch.zeros(3, 8)).mean.shape
    torch.Size([3])
    """

    residual_variance: Tensor

    def __init__(
        self,
        in_features: int,
        num_bins: int | None = None,
        *,
        momentum: float = 0.01,
        domain: DomainLike | None = None,
        bias: bool = True,
        device: Device = None,
        dtype: torch.dtype | None = None,
    ):
        super().__init__(in_features, num_bins, domain)
        self.momentum = momentum
        self.proj = nn.Linear(in_features, 1, bias=bias, device=device, dtype=dtype)
        self.register_buffer("residual_variance", torch.ones((), device=device) / 3)

    def predict(self, x: Tensor) -> Tensor:
        """Return the predicted number in z, (...)."""
        return widened(self._project(x)).squeeze(-1)

    def components(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        loc = self.predict(x).unsqueeze(-1)
        scale = self.residual_variance.sqrt().clamp_min(1e-3).expand_as(loc)
        return torch.zeros_like(loc), loc, scale

    def _bin_losses(self, x: Tensor, target: Tensor, kept: Tensor, label_smoothing: float) -> Tensor:
        """Return the squared error, in z, of the predicted number against the centre of the target bin."""
        if label_smoothing:
            raise ValueError(f"label_smoothing has no meaning for a regression, got {label_smoothing}")
        centers = bin_centers(self.out_features, device=target.device)
        error = (self.predict(x) - centers[torch.where(kept, target, 0)]) ** 2
        self._learn_spread(error, kept)
        return error

    def _over_values(self, score: Any, x: Tensor, value: Tensor | float, *more: Any) -> Tensor:
        loss = super()._over_values(score, x, value, *more)
        if self.training:
            with torch.no_grad():
                value = torch.as_tensor(value, device=x.device).expand(x.shape[:-1])
                self._learn_spread((self.predict(x) - self.domain.to_unit(value)) ** 2, ~torch.isnan(value))
        return loss

    @torch.no_grad()
    def _learn_spread(self, error: Tensor, kept: Tensor) -> None:
        """Take squared errors in z into the running mean."""
        if self.training:
            recent = torch.where(kept, error, 0).sum() / kept.sum().clamp_min(1)
            self.residual_variance.lerp_(recent.to(self.residual_variance.dtype), self.momentum * kept.any())
