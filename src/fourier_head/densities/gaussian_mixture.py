"""GaussianMixture: a mixture of Gaussians on the line or cut to an interval, the baseline with a shape of its own."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor
from torch.distributions import Distribution, constraints

from fourier_head._arrays import common_shape
from fourier_head.densities.gaussians import HUGE, PARTS, absolute_mean, long_integral, panel_nodes, tail_integral
from fourier_head.densities.scalar import Rows, ScalarDensity, Shape
from fourier_head.fourier.inversion import invert, with_implicit_gradient
from fourier_head.fourier.series import bin_centers

# Where to cut the line around a component. Inside, in deviations: beyond 9 lie 2e-19 of a Gaussian. One whose location
# is outside falls off from the limit, at worst like an exponential, in units of its decay.
_CUTS = (-9.0, -6.0, -4.5, -3.0, -2.0, -1.0, 0.0, 1.0, 2.0, 3.0, 4.5, 6.0, 9.0)
_TAIL_CUTS = (0.0, 0.7, 1.5, 2.5, 4.0, 5.5, 7.5, 10.0, 14.0, 19.0, 25.0, 32.0, 40.0)


class _Frame(NamedTuple):
    """Each component seen from its point nearest to the interval, where its density is highest; all (..., K)."""

    log_weight: Tensor  # log-share of the probability inside
    near: Tensor  # the location, clamped to the interval
    tail: Tensor  # (near - loc) / scale: how far out in its tail the component is cut, 0 for locations inside
    log_norm: Tensor  # log of the integral of exp(-(t^2 - tail^2) / 2) over the interval
    start: Tensor | None  # that integral from near to low, not positive; None without limits


UNSEEN = 40.0
"""Of two logarithms, the lower by this much adds 4e-18 of the other, which float64 does not see."""


def _log_sum(terms: Tensor, dim: int) -> Tensor:
    """Return the log of the sum of exponentials; all but the largest may be far below it.

    What is too small to be seen beside the largest is held at ``UNSEEN`` below it: exponentials that underflow take a
    processor a hundred times as long, and components that are far away make many of them.
    """
    largest = terms.detach().amax(dim, keepdim=True)
    steps = terms - largest.masked_fill(largest.isinf(), 0)
    return steps.clamp_min(-UNSEEN).exp().sum(dim).log() + largest.squeeze(dim)


class GaussianMixture(ScalarDensity):
    r"""Represent a mixture of Gaussians, on the line or cut to an interval.

    .. math:: p(x) = \frac{1}{Z} \sum_k w_k \, \mathcal{N}(x \mid \mu_k, \sigma_k^2), \quad w = \mathrm{softmax}(logits)

    where Z is the probability of [low, high] under the mixture, 1 without limits.

    Args:
        logits: unnormalised log-weights (..., K).
        loc: locations (..., K), inside the interval or not.
        scale: deviations (..., K), positive.
        low, high: limits, both or neither; numbers or tensors of the batch shape, taken as constants.

    References:
        Grimit et al., The CRPS for circular variables and its application to mesoscale forecasts, QJRMS 2006.

    Example:
        >>> d = GaussianMixture(torch.zeros(2), torch.tensor([-0.5, 0.5]), torch.tensor([0.1, 0.2]), low=-1.0, high=1.0)
        >>> d.cdf(torch.tensor([-1.0, 0.0, 1.0]))
        tensor([0.0000, 0.5047, 1.0000])
        >>> d.quantile(0.25), d.mode
        (tensor(-0.5004), tensor(-0.5000))
    """

    arg_constraints: ClassVar[dict[str, constraints.Constraint]] = {
        "logits": constraints.real_vector,
        "loc": constraints.real_vector,
        "scale": constraints.independent(constraints.positive, 1),
    }

    def __init__(
        self,
        logits: Tensor,
        loc: Tensor,
        scale: Tensor,
        low: float | Tensor | None = None,
        high: float | Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:
        for name, given in (("logits", logits), ("loc", loc), ("scale", scale)):
            if not isinstance(given, Tensor) or given.dim() < 1:
                raise ValueError(f"{name} must be a tensor of shape (..., K), got {given!r:.60}.")
        if (low is None) != (high is None):
            raise ValueError(f"low and high must be given both or neither, got low={low} and high={high}.")
        dtype = torch.promote_types(torch.promote_types(logits.dtype, loc.dtype), scale.dtype)
        dtype = torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype
        count = common_shape(logits.shape, loc.shape, scale.shape)[-1]
        batch_shape = common_shape(logits.shape[:-1], loc.shape[:-1], scale.shape[:-1])
        self.limits: tuple[Tensor, Tensor] | None = None
        if low is not None and high is not None:
            if not (isinstance(low, Tensor) or isinstance(high, Tensor) or -math.inf < low < high < math.inf):
                raise ValueError(f"low must be less than high, both finite, got low={low} and high={high}.")
            a, b = (
                x.detach().to(dtype) if isinstance(x, Tensor) else loc.new_full((), x, dtype=dtype) for x in (low, high)
            )
            validate = Distribution._validate_args if validate_args is None else validate_args
            if validate and not bool((a.isfinite() & b.isfinite() & (a < b)).all()):
                raise ValueError("low must be less than high, both finite, got tensors that are not.")
            batch_shape = common_shape(batch_shape, a.shape, b.shape)
            self.limits = a.expand(batch_shape), b.expand(batch_shape)
        self.logits = logits.to(dtype).expand(*logits.shape[:-1], count).log_softmax(-1).expand(*batch_shape, count)
        self.loc, self.scale = loc.to(dtype).expand(*batch_shape, count), scale.to(dtype).expand(*batch_shape, count)
        super().__init__(batch_shape, validate_args=validate_args if self.logits.numel() else False)

    def expand(self, batch_shape: Shape, _instance: Distribution | None = None) -> GaussianMixture:
        """Return the same density for a larger batch, without copying."""
        new = self._get_checked_instance(GaussianMixture, _instance)
        batch_shape = torch.Size(batch_shape)
        for name in ("logits", "loc", "scale"):
            setattr(new, name, getattr(self, name).expand(*batch_shape, self.logits.shape[-1]))
        new.limits = self.limits and (self.limits[0].expand(batch_shape), self.limits[1].expand(batch_shape))
        super(GaussianMixture, new).__init__(batch_shape, validate_args=False)
        new._validate_args = self._validate_args
        return new

    def __getitem__(self, index: Any) -> GaussianMixture:
        """Return the densities of a part of the batch."""
        low, high = (None, None) if self.limits is None else (x[index] for x in self.limits)
        return GaussianMixture(self.logits[index], self.loc[index], self.scale[index], low, high, self._validate_args)

    @constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self) -> constraints.Constraint:
        """The real line, or the closed interval between the limits."""
        return constraints.real if self.limits is None else constraints.interval(*self.limits)

    @property
    def _like(self) -> Tensor:  # type: ignore[override]
        return self.logits

    def _frame(self) -> _Frame:
        if self.limits is None:
            zero = torch.zeros_like(self.loc)
            return _Frame(self.logits, self.loc, zero, zero + math.log(2 * math.pi) / 2, None)
        low, high = (x[..., None] for x in self.limits)
        near = self.loc.clamp(low, high)
        tail = ((near - self.loc) / self.scale).clamp(-HUGE, HUGE)
        start, end = (tail_integral((x - near) / self.scale, tail.abs()) for x in (low, high))
        mass = (end - start).clamp_min(torch.finfo(self.loc.dtype).tiny)
        log_weight = (self.logits + mass.log() - tail**2 / 2).log_softmax(-1)
        return _Frame(log_weight, near, tail, mass.log(), start)

    def _log_terms(self, frame: _Frame, x: Tensor) -> Tensor:
        """Return the log-density of each component (..., K), weight included."""
        d = ((x[..., None] - frame.near) / self.scale).clamp(-HUGE, HUGE)
        # t^2 - tail^2 as a product: the squares themselves would cancel in float32.
        return frame.log_weight - d * (d + 2 * frame.tail) / 2 - self.scale.log() - frame.log_norm

    def _cdf_at(self, frame: _Frame, x: Tensor) -> Tensor:
        d = (x[..., None] - frame.near) / self.scale
        if frame.start is None:
            parts = torch.erfc(-d * math.sqrt(0.5)) / 2
        else:
            parts = (tail_integral(d, frame.tail.abs()) - frame.start) / frame.log_norm.exp()
        return (frame.log_weight.exp() * parts).sum(-1).clamp(0, 1)

    def _clamp(self, value: Tensor) -> Tensor:
        return value if self.limits is None else value.clamp(*self.limits)

    # --- density, distribution, quantiles

    def log_prob(self, value: Tensor | float) -> Tensor:
        """Return the log-density, ``-inf`` outside the limits and at infinity."""
        value = self._supported(value)
        inside = value.isfinite() & (self._clamp(value) == value)
        safe = torch.where(inside, value, 0 if self.limits is None else self.limits[0])
        return self._outside(value, inside, _log_sum(self._log_terms(self._frame(), safe), -1))

    def cdf(self, value: Tensor | float) -> Tensor:
        """Return P(X <= value)."""
        value = self._clamp(self._value(value))
        finite = value.isfinite()
        cdf = self._cdf_at(self._frame(), torch.where(finite, value, 0))
        return torch.where(finite, cdf, torch.where(value.isnan(), value, (value > 0).to(value.dtype)))

    def _icdf(self, level: Tensor) -> Tensor:
        frame = self._frame()
        level = level.expand(common_shape(level.shape, self.batch_shape))
        safe = torch.where((level > 0) & (level < 1), level, 0.5)
        with torch.no_grad():
            x = self._solve(safe)
        if torch.is_grad_enabled():
            with torch.no_grad():
                density = self._log_terms(frame, x).logsumexp(-1).exp()
                # Below this the rounding error of F moves x by more than all the mixture is wide.
                density = density.clamp_min(torch.finfo(x.dtype).eps / self._width())
            x = with_implicit_gradient(x, self._cdf_at(frame, x) - safe, density)
        low, high = self.limits or (-math.inf, math.inf)
        return torch.where(level <= 0, low, torch.where(level >= 1, high, x))

    def _width(self) -> Tensor:
        if self.limits is None:
            return self.loc.amax(-1) - self.loc.amin(-1) + self.scale.amax(-1)
        return self.limits[1] - self.limits[0]

    def _solve(self, level: Tensor) -> Tensor:
        """Return x with F(x) = level."""
        # In float64 the short stretches of tail_integral need no care, and its long form is several times cheaper.
        wide = torch.float32 if level.device.type == "mps" else torch.float64
        u, loc, scale, logits = (a.to(wide) for a in (level, self.loc, self.scale, self.logits))
        low, high = (None, None) if self.limits is None else (x.to(wide).expand_as(u) for x in self.limits)
        frame = GaussianMixture(logits, loc, scale, low, high, False)._frame()
        weight, tail, norm = frame.log_weight.exp(), frame.tail.abs(), frame.log_norm.exp()
        if low is None or high is None:
            # A quantile of a mixture lies between the least and the greatest quantile of its components.
            points = loc + scale * torch.special.ndtri(u)[..., None]
            low, high = points.amin(-1), points.amax(-1)

        def curve(x: Tensor) -> tuple[Tensor, Tensor]:
            d = (x[..., None] - frame.near) / scale
            fade = torch.exp(-d.abs() * (d.abs() / 2 + tail))
            if frame.start is None:
                parts = torch.erfc(-d * math.sqrt(0.5)) / 2
            else:
                parts = (d.sign() * long_integral(d.abs(), tail, fade) - frame.start) / norm
            return (weight * parts).sum(-1), (weight / (scale * norm) * fade).sum(-1)

        tolerance = torch.finfo(level.dtype).eps / 16 if level.dtype == torch.float32 else None
        return invert(curve, u, low, high, (low + high) / 2, tolerance=tolerance).to(level.dtype)

    # --- summaries

    def _panels(self, frame: _Frame) -> tuple[Tensor, Tensor, Tensor]:
        """Return the ends of panels (P + 1, *batch) that resolve the density, and nodes and weights (8, P, *batch)."""
        with torch.no_grad():
            tail, near = frame.tail[..., None, :], frame.near[..., None, :]
            # Never nearer than the spacing of numbers: the ends must lie on both sides of a peak.
            spacing = torch.finfo(near.dtype).eps * near.abs()
            unit = (self.scale[..., None, :] / tail.abs().clamp_min(1)).maximum(spacing)
            inward = self.loc.new_tensor(_TAIL_CUTS)[:, None] * tail.sign()
            offset = torch.where(tail == 0, self.loc.new_tensor(_CUTS)[:, None], inward)
            ends = (near + offset * unit).flatten(-2).movedim(-1, 0)
            if self.limits is not None:
                ends = torch.cat([self._clamp(ends), torch.stack(self.limits)])
            ends = ends.sort(0).values
        return ends, *panel_nodes(ends[:-1], ends[1:])

    def _expect(self, f: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
        """Return E f(X, p(X)), the weights made to sum to 1: in float32 few numbers may lie under a narrow peak."""
        frame = self._frame()
        _, x, weight = self._panels(frame)
        density = self._log_terms(frame, x).exp().sum(-1)
        mass = weight * density
        # Under the narrowest of all lies no node; a crumb at its top takes their place.
        top = frame.near.gather(-1, frame.log_weight.argmax(-1, keepdim=True))[..., 0]
        crumb = torch.finfo(x.dtype).tiny ** 0.5
        rest = crumb * f(top, self._log_terms(frame, top).exp().sum(-1))
        return ((mass * f(x, density)).sum((0, 1)) + rest) / (mass.sum((0, 1)) + crumb)

    @property
    def mean(self) -> Tensor:
        """The mean; of a cut mixture by quadrature, which unlike its closed form never cancels."""
        if self.limits is None:
            return (self.logits.exp() * self.loc).sum(-1)
        low = self.limits[0]
        return self._clamp(low + self._expect(lambda x, _: x - low))

    @property
    def variance(self) -> Tensor:
        """The variance; of a cut mixture by quadrature."""
        mean = self.mean
        if self.limits is None:
            return (self.logits.exp() * (self.scale**2 + (self.loc - mean[..., None]) ** 2)).sum(-1)
        return self._expect(lambda x, _: (x - mean) ** 2)

    @property
    def mode(self) -> Tensor:
        """The value of the highest density: the best of a grid around the components, refined by bisection."""
        frame = self._frame()
        with torch.no_grad():
            offset = torch.linspace(-3, 3, 25, dtype=self.loc.dtype, device=self.loc.device)[:, None]
            offset = offset / frame.tail.abs().clamp_min(1)[..., None, :]
            grid = (frame.near[..., None, :] + offset * self.scale[..., None, :]).flatten(-2).movedim(-1, 0)
            grid = self._clamp(grid).sort(0).values
            best = self._log_terms(frame, grid).logsumexp(-1).argmax(0, keepdim=True)
            low = grid.gather(0, (best - 1).clamp_min(0))[0]
            high = grid.gather(0, (best + 1).clamp_max(len(grid) - 1))[0]
            for _ in range(30 if low.dtype == torch.float32 else 60):
                x = (low + high) / 2
                rising = self._score(frame, x)[0] > 0
                low, high = torch.where(rising, x, low), torch.where(rising, high, x)
            x, (start, end) = (low + high) / 2, self.limits or (-math.inf, math.inf)
        # Where the slope of the log-density is zero the mode moves by -d(slope)/dtheta over its derivative in x.
        slope, bend = self._score(frame, x)
        x = x + (slope - slope.detach()) / bend.detach().abs().clamp_min(1e-12)
        # A bracket end that never moved is a limit, and the mode.
        return torch.where(low <= start, start, torch.where(high >= end, end, x))

    def _score(self, frame: _Frame, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the first and second derivative of the log-density."""
        share = self._log_terms(frame, x).softmax(-1)
        pull = -((x[..., None] - frame.near) / self.scale + frame.tail).clamp(-HUGE, HUGE) / self.scale
        slope = (share * pull).sum(-1)
        return slope, (share * ((pull - slope[..., None]) ** 2 - 1 / self.scale**2)).sum(-1)

    def entropy(self) -> Tensor:
        """Return the differential entropy in nats, by Gauss-Legendre quadrature on panels around the components."""
        return self._expect(lambda x, p: -p.clamp_min(torch.finfo(x.dtype).tiny).log())

    def crps(self, value: Tensor | float) -> Tensor:
        r"""Return the continuous ranked probability score.

        On the line in closed form, with :math:`A(m, s) = 2 s \varphi(m / s) + m (2 \Phi(m / s) - 1)`,

        .. math:: \sum_k w_k A(y - \mu_k, \sigma_k)
            - \frac12 \sum_{k, l} w_k w_l A(\mu_k - \mu_l, \sqrt{\sigma_k^2 + \sigma_l^2}).

        Between limits :math:`\int_{low}^y F^2 dx + \int_y^{high} (1 - F)^2 dx` by Gauss-Legendre quadrature on
        panels of a few deviations around the components; the one that holds y is split there.
        """
        value = self._value(value)
        weight = self.logits.exp()
        if self.limits is None:
            loc, square = self.loc, self.scale**2
            deviation = (square[..., None] + square[..., None, :]).sqrt()
            spread = absolute_mean(loc[..., None] - loc[..., None, :], deviation)
            pairs = weight[..., None] * weight[..., None, :] * spread
            return (weight * absolute_mean(value[..., None] - loc, self.scale)).sum(-1) - pairs.sum((-2, -1)) / 2
        frame, near = self._frame(), self._clamp(value)
        ends, x, w = self._panels(frame)
        # The cdf at the nodes is that at the left end of the panel and the integral of the density's interpolant.
        step = torch.tensordot(x.new_tensor(PARTS), self._log_terms(frame, x).exp().sum(-1), 1)
        cdf, zero = self._cdf_at(frame, ends), torch.zeros_like(ends[:1])
        cdf = (cdf[:-1] + step * ends.diff(dim=0)).clamp(cdf[:-1], cdf[1:])
        before = torch.cat([zero, (w * cdf**2).sum(0).cumsum(0)]).movedim(0, -1)
        after = torch.cat([(w * (1 - cdf) ** 2).sum(0).flip(0).cumsum(0).flip(0), zero]).movedim(0, -1)
        rows, table = Rows(near, self.batch_shape), ends.movedim(0, -1)
        j = rows.find(table, right=True)
        left, right = rows.back(rows.take(table, j)), rows.back(rows.take(table, j + 1))
        near = near.expand(left.shape)
        (x_left, w_left), (x_right, w_right) = panel_nodes(left, near), panel_nodes(near, right)
        score = rows.back(rows.take(before, j) + rows.take(after, j + 1))
        score = score + (w_left * self._cdf_at(frame, x_left) ** 2).sum(0)
        score = score + (w_right * (1 - self._cdf_at(frame, x_right)) ** 2).sum(0)
        return score + (value - near).abs()

    def bin_log_probs(self, bins: int | Tensor | Sequence[float]) -> Tensor:
        r"""Return log-probabilities of bins (..., m): the density at the centres times the widths, normalised.

        .. math:: y_j = w_j p(c_j) / \sum_i w_i p(c_i)

        This is how the paper's Gaussian baseline turns a mixture into a categorical.

        Args:
            bins: edges (m + 1,), or the number of uniform bins between the limits ([-1, 1] where there are none).

        Example:
            >>> d = GaussianMixture(torch.zeros(1), torch.zeros(1), torch.ones(1))
            >>> d.bin_log_probs(3).exp()
            tensor([0.3078, 0.3844, 0.3078])
        """
        if isinstance(bins, int):
            if bins < 1:
                raise ValueError(f"bins must be edges or a number of at least 1, got {bins}.")
            centers = bin_centers(bins, self.loc.dtype, self.loc.device)
            if self.limits is not None:
                centers = torch.lerp(self.limits[0][..., None], self.limits[1][..., None], (centers + 1) / 2)
            widths = None  # all the same
        else:
            edges = torch.as_tensor(bins, dtype=self.loc.dtype, device=self.loc.device)
            if edges.dim() != 1 or len(edges) < 2:
                raise ValueError(f"bins must be edges of shape (m + 1,) or a number, got shape {tuple(edges.shape)}.")
            widths = edges.diff()
            centers = edges[:-1] + widths / 2
        # Constants, and the mass that limits cut off, cancel when the bins are normalised. Bins come last: a sum over
        # components, which are few, is slow there.
        steps = (centers.unsqueeze(-2) - self.loc.unsqueeze(-1)) / self.scale.unsqueeze(-1)
        log_p = _log_sum((self.logits - self.scale.log()).unsqueeze(-1) - steps * steps / 2, -2)
        return (log_p if widths is None else log_p + widths.log()).log_softmax(-1)

    def __repr__(self) -> str:
        return f"GaussianMixture(components={self.loc.shape[-1]}, batch_shape={tuple(self.batch_shape)})"
