"""FourierDensity: the predictive distribution of a Fourier head."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.distributions import Distribution, constraints, register_kl

from fourier_head._arrays import common_shape, widened
from fourier_head.densities import kernel_calls
from fourier_head.densities.scalar import Shape, checked_shape
from fourier_head.densities.unit import UnitDensity
from fourier_head.domains import Boundary, Domain, Interval, fine_grid
from fourier_head.fourier import series, tails
from fourier_head.fourier import spectrum as closed_form
from fourier_head.fourier.inversion import curve_of, unit_quantiles, with_implicit_gradient


class FourierDensity(UnitDensity):
    r"""Represent a density by the square of a trigonometric polynomial.

    .. math:: p(z) = (1 - \epsilon) \frac{|\sum_l a_l e^{-i \pi l z}|^2}{2 \|a\|^2} + \frac{\epsilon}{2}

    carried from z in [-1, 1] to the values of ``domain``.

    Args:
        coefficients: real tensor (..., 2, N+1), rows alpha and beta; with ``boundary="reflect"`` (..., 1, L), real
            coefficients of a density between reflecting walls. Any scale; all zeros mean the uniform density.
        domain: an ``Interval`` (default [-1, 1]), ``Circle``, ``Line``, ``BinnedInterval``, or an ``Adaptive`` domain
            put in its place by ``Adaptive.at``.
        floor: share of probability spread uniformly over z.
        blur: standard deviation, in units of z, of a Gaussian blur applied to the density.
        squares: whether coefficients have one more dimension, (..., R, 2, N+1), and the density is a sum of R squares.
        boundary: "periodic", the two ends are neighbours, or "reflect".

    References:
        De la Fuente et al., Fourier Basis Density Model, PCS 2024.

    Example:
        >>> d = FourierDensity(torch.tensor([[1.0, 0.5], [0.0, 0.0]]), Interval(0, 10))
        >>> d.mean, d.cdf(torch.tensor(5.0)), d.icdf(torch.tensor(0.5))
        (tensor(5.), tensor(0.5000), tensor(5.))
        >>> d.quantile([0.1, 0.9])
        tensor([2.2586, 7.7414])
    """

    impl = "auto"
    """Which implementation finds quantiles and samples without gradients, as in ``FourierHead``."""

    arg_constraints: ClassVar[dict[str, constraints.Constraint]] = {
        "coefficients": constraints.independent(constraints.real, 2)
    }

    def __init__(
        self,
        coefficients: Tensor,
        domain: Domain | None = None,
        *,
        floor: float = 0.0,
        blur: float = 0.0,
        squares: bool = False,
        boundary: Boundary = "periodic",
        validate_args: bool | None = None,
    ):
        if not 0 <= floor < 1:
            raise ValueError(f"floor must be a share of probability in [0, 1), got {floor}")
        if blur < 0:
            raise ValueError(f"blur must not be negative, got {blur}")
        self.domain: Domain = Interval() if domain is None else domain
        self.domain.check_boundary(boundary)
        rows = 1 if boundary == "reflect" else 2
        if not isinstance(coefficients, Tensor):
            raise TypeError(f"coefficients must be a tensor, got {type(coefficients).__name__}")
        if coefficients.dim() < 2 + squares or coefficients.shape[-2] != rows:
            raise ValueError(
                f"coefficients must have shape (..., 2, N+1), or (..., 1, L) with boundary='reflect', "
                f"got {tuple(coefficients.shape)} with boundary={boundary!r}"
            )
        self.squares, self.boundary, self.floor, self.blur = squares, boundary, floor, blur
        if not coefficients.is_floating_point():
            coefficients = widened(coefficients)
        own = coefficients.dim() - 2 - squares
        batch_shape = common_shape(coefficients.shape[:own], self.domain.shape)
        # As given: the kernels read 16-bit coefficients as they are, and make none of them float32.
        self.given = coefficients.expand(*batch_shape, *coefficients.shape[own:])
        self._kept: tuple[int, Tensor] | None = None  # the spectrum, and of which version of the coefficients
        # torch cannot check the parameters of an empty batch.
        super().__init__(batch_shape, validate_args=validate_args if coefficients.numel() else False)

    # --- shape and structure

    def _with(self, coefficients: Tensor, domain: Domain, blur: float | None = None) -> FourierDensity:
        """Return a density with the same options."""
        other = FourierDensity(
            coefficients,
            domain,
            floor=self.floor,
            blur=self.blur if blur is None else blur,
            squares=self.squares,
            boundary=self.boundary,
            validate_args=False,
        )
        other._validate_args, other.impl = self._validate_args, self.impl
        return other

    def expand(self, batch_shape: Shape, _instance: Distribution | None = None) -> FourierDensity:
        """Return the same density for a larger batch, without copying."""
        own = self.given.shape[len(self.batch_shape) :]
        return self._with(self.given.expand(*batch_shape, *own), self.domain)

    def __getitem__(self, index: Any) -> FourierDensity:
        """Return the densities of a part of the batch."""
        domain = self.domain.apply(lambda number: number.expand(self.batch_shape)[index])
        some = self._with(self.given[index], domain)
        if self._kept is not None and self._kept[0] == self._version(self.given):
            some._kept = self._version(some.given), self._kept[1][index]
        return some

    def to(self, *args: Any, **options: Any) -> FourierDensity:
        """Return the density in another dtype or on another device, as ``Tensor.to`` takes them."""
        return self._with(self.given.to(*args, **options), self.domain.apply(lambda x: x.to(*args, **options)))

    def low_pass(self, scale: float) -> FourierDensity:
        """Return the density blurred by a Gaussian of this standard deviation in z, an exact low-pass filter."""
        return self._with(self.given, self.domain, math.hypot(self.blur, scale))

    @property
    def walls(self) -> bool:
        """Whether the two ends are no neighbours."""
        return self.boundary == "reflect"

    @property
    def coefficients(self) -> Tensor:
        """The coefficients as given, (..., 2, N+1) or (..., 1, L); those of a 16-bit type in float32."""
        return widened(self.given)

    @property
    def num_frequencies(self) -> int:
        """The highest harmonic N of the density."""
        length = self.given.shape[-1]
        return (length - 1) // 2 if self.walls else length - 1

    @property
    def resolution(self) -> int:
        """How finely to look at the density: twice its harmonics."""
        return 2 * self.given.shape[-1]

    @property
    def spectrum(self) -> Tensor:
        """The coefficients q_k of the density, k = 1.., floor and blur included; computed once but for gradients."""
        given = self.given
        if given.requires_grad and torch.is_grad_enabled():
            # What was made without gradients must not serve where they are wanted, and a graph serves one pass back.
            return self._compute_spectrum()
        version = self._version(given)
        if self._kept is None or self._kept[0] != version:
            self._kept = version, self._compute_spectrum()
        return self._kept[1]

    @staticmethod
    def _version(given: Tensor) -> int:
        return 0 if torch.compiler.is_compiling() or given.is_inference() else given._version

    @property
    def has_spectrum(self) -> bool:
        """Whether the spectrum has been computed already."""
        return self._kept is not None

    def _compute_spectrum(self) -> Tensor:
        q = closed_form.of_coefficients(self.coefficients, self.floor, self.squares)
        return closed_form.low_pass(q, self.blur, self.walls) if self.blur else q

    def __repr__(self) -> str:
        return (
            f"FourierDensity(num_frequencies={self.num_frequencies}, batch_shape={tuple(self.batch_shape)}, "
            f"domain={self.domain!r}, floor={self.floor:g})"
        )

    def at_points(self, function: Callable[[Tensor, Tensor], Tensor], parameter: Tensor, z: Tensor) -> Tensor:
        """Apply ``function(parameter, points)``, points last, to z of shape (*sample, *batch) in that same shape."""
        parameter, points, back = self._points_last(parameter, z)
        return back(function(parameter, points))

    def _points_last(self, parameter: Tensor, z: Tensor) -> tuple[Tensor, Tensor, Callable[[Tensor], Tensor]]:
        """Return a parameter (*batch, ...) and z (*batch, points) to go with it, and what brings results back."""
        z = z.to(self._like.dtype)
        shape = common_shape(z.shape, self.batch_shape)
        batch = shape[len(shape) - len(self.batch_shape) :]
        tracing = torch.compiler.is_compiling()  # to which sizes must say nothing
        if not tracing and z.numel() < shape.numel() and z.numel() == math.prod(shape[: len(shape) - len(batch)]):
            # The same points for all densities: one product of matrices.
            return parameter, z.reshape(-1), lambda result: result.movedim(-1, 0).reshape(shape)
        points = z.expand(shape).reshape(math.prod(shape[: len(shape) - len(batch)]), *batch).movedim(0, -1)
        parameter = parameter.expand(*batch, *parameter.shape[len(self.batch_shape) :])
        return parameter, points, lambda result: result.movedim(-1, 0).reshape(shape)

    @property
    def _like(self) -> Tensor:  # type: ignore[override]
        wide = self.given.dtype in (torch.float32, torch.float64)
        return self.given if wide else self.given.new_empty(0, dtype=torch.float32)

    def _cast_value(self, value: Tensor | float) -> Tensor:
        """Values keep the digits they have until the domain is subtracted from them."""
        if isinstance(value, Tensor) and value.dtype == torch.float64:
            return value.to(self._like.device)
        return self._cast(value)

    # --- the density of z, tails included

    def log_prob_at(self, z: Tensor) -> Tensor:
        """Return the log-density of the unit variable."""
        z = z.to(self._like.dtype)
        core = z.clamp(-1, 1) if self.domain.tails else z
        if self.blur:
            density = self.at_points(lambda q, v: closed_form.density(q, v, self.walls), self.spectrum, core)
            log_prob = density.clamp_min(torch.finfo(z.dtype).tiny).log()
        else:
            log_prob = self._core_log_density(core)
        return tails.mix_log_density(log_prob, z, self.domain.tails) if self.domain.tails else log_prob

    def _core_log_density(self, z: Tensor) -> Tensor:
        found = kernel_calls.log_density(self, z)
        if found is not None:
            return found
        return self.at_points(
            lambda a, v: series.log_density(a, v, self.floor, self.squares, self.walls), self.coefficients, z
        )

    def cdf_at(self, z: Tensor) -> Tensor:
        """Return the distribution function of the unit variable."""
        z = z.to(self._like.dtype)
        cdf = self._core_cdf(z)
        return tails.mix_cdf(cdf, z, self.domain.tails) if self.domain.tails else cdf

    def survival_at(self, z: Tensor) -> Tensor:
        """Return one minus the distribution function of the unit variable, exact far out in the upper tail."""
        z = z.to(self._like.dtype)
        rest = 1 - self._core_cdf(z)
        return tails.mix_cdf(rest, -z, self.domain.tails) if self.domain.tails else rest

    def log_mass_between(self, low: Tensor, high: Tensor) -> Tensor:
        """Return the log-probability of intervals of values, whose ends may be infinite."""
        low, high = (self._to_unit_or_infinity(end) for end in (low, high))
        weight = self.domain.tails
        core = (self._core_cdf(high) - self._core_cdf(low)).clamp_min(0)
        mass = (1 - weight) * core + weight * tails.mass_between(low, high) if weight else core
        return mass.clamp_min(torch.finfo(mass.dtype).tiny).log()

    def _to_unit_or_infinity(self, value: Tensor) -> Tensor:
        value = self._cast_value(value)
        finite = value.isfinite()
        z = self.domain.to_unit(torch.where(finite, value, 0)).to(self._like.dtype)
        return torch.where(finite, z, value.to(z.dtype))

    def _core_cdf(self, z: Tensor) -> Tensor:
        """Return the distribution function without tails, exactly 0 and 1 from the ends on."""
        inside = z.clamp(-1, 1)
        cdf = kernel_calls.cdf(self, inside)
        if cdf is None:
            cdf = self.at_points(lambda q, v: closed_form.cdf(q, v, self.walls), self.spectrum, inside)
        return torch.where(z <= -1, 0, torch.where(z >= 1, 1, cdf))

    # --- density, distribution, quantiles

    def log_prob(self, value: Tensor) -> Tensor:
        """Return the log-density, ``-inf`` outside the support."""
        value = self._supported(value)
        inside = self.domain.contains(value)
        safe = torch.where(inside, value, self.domain.from_unit(torch.zeros_like(value)))
        z = self.domain.to_unit(safe)
        log_prob = self.log_prob_at(z) + self.domain.log_slope(safe).to(self._like.dtype)
        return self._outside(value, inside, log_prob)

    def cdf(self, value: Tensor) -> Tensor:
        """Return P(X <= value); on a circle, the probability of the arc from ``low`` to the value."""
        return self.cdf_at(self.domain.to_unit(self._value(value)))

    def cdf_and_prob(self, value: Tensor) -> tuple[Tensor, Tensor]:
        """Return the distribution function and the density, whose waves are the same."""
        value = self._value(value)
        z = self.domain.to_unit(value).to(self._like.dtype)
        q, points, back = self._points_last(self.spectrum, z.clamp(-1, 1))
        cdf, density = map(back, closed_form.cdf_and_density(q, points, self.walls))
        inside = z.abs() <= 1 if self.domain.tails else self.domain.contains(value)
        density = torch.where(inside, density, 0)
        if self.domain.tails:
            cdf, density = tails.mix_curve(cdf, density, z, self.domain.tails)
        return cdf, density * self.domain.log_slope(value).exp()

    def panels(self, count: int) -> Tensor:
        """Return values (points, *batch), in order, between which the density is smooth: about ``count`` pieces."""
        z = self._column(self.domain.corners(count)).expand(-1, *self.batch_shape)
        return self.domain.keep_samples(self.domain.from_unit(z))

    def _icdf(self, level: Tensor) -> Tensor:
        level = level.expand(common_shape(level.shape, self.batch_shape))
        z = kernel_calls.unit_quantiles(self, level)
        if z is None:
            z = self.at_points(self._unit_quantiles, self.spectrum, level)
        return self.domain.quantile_of_unit(z)

    def _unit_quantiles(self, q: Tensor, level: Tensor) -> Tensor:
        """Return z with F(z) = level (..., V) for spectra (..., rows, K), with implicit gradients."""
        weight = self.domain.tails
        z = unit_quantiles(q.detach(), level.detach(), self.walls, weight)
        if torch.is_grad_enabled() and (q.requires_grad or level.requires_grad):
            cdf, density = curve_of(q, self.walls, weight)(z)
            z = with_implicit_gradient(z, cdf - level, density.clamp_min(1e-12))
        if weight:
            return tails.quantile_outside(z, level, weight)
        return torch.where(level <= 0, -1, torch.where(level >= 1, 1, z))

    def quantile(self, levels: Tensor | float | Sequence[float]) -> Tensor:
        """Return quantiles at any levels, shape (*levels.shape, *batch_shape); they never cross."""
        level = self._levels(levels)
        found = None if self._validate_args else kernel_calls.quantiles(self, level)
        return super().quantile(level) if found is None else found

    def rsample(self, sample_shape: Shape = torch.Size(), generator: torch.Generator | None = None) -> Tensor:
        """Draw samples whose gradients flow to the parameters."""
        return self.domain.keep_samples(super().rsample(sample_shape, generator))

    def sample(self, sample_shape: Shape = torch.Size(), generator: torch.Generator | None = None) -> Tensor:
        """Draw samples without gradients; one per density is drawn digit by digit where the kernels run."""
        with torch.no_grad():
            found = kernel_calls.sample(self, checked_shape(sample_shape), generator)
            return super().sample(sample_shape, generator) if found is None else found

    # --- summaries

    @property
    def mean(self) -> Tensor:
        """The mean; on a circle, the mean direction."""
        return self.domain.mean(self)

    @property
    def variance(self) -> Tensor:
        """The variance; on a circle, the circular variance 1 - |E e^{i theta}|, as torch's VonMises has it."""
        return self.domain.variance(self)

    def crps(self, value: Tensor) -> Tensor:
        r"""Return the continuous ranked probability score :math:`\int (F(x) - 1\{x \ge value\})^2 dx`.

        In closed form on an interval (for values outside, the distance is added), on an adaptive domain without a
        curved map and, with the distance along the circle, on a circle; elsewhere by quadrature.
        """
        return self.domain.crps(self, self._value(value))

    def entropy(self) -> Tensor:
        """Return the differential entropy in nats."""
        return self.domain.entropy(self)

    def grid(self) -> tuple[Tensor, Tensor]:
        """Return centres z (points, *batch) of [-1, 1], fine enough for this density, and the log-density there."""
        parts = self.domain.pieces
        points = parts * max(4, -(-fine_grid(self.resolution) // parts))
        if self.blur:
            log_mass = closed_form.log_bin_mass(self.spectrum, points, walls=self.walls)
        else:
            log_mass = series.log_pmf(self.coefficients, points, self.floor, self.squares, self.walls)
        z = series.bin_centers(points, log_mass.dtype, log_mass.device)
        z = z.reshape(-1, *(1,) * len(self.batch_shape)).expand(-1, *self.batch_shape)
        log_prob = log_mass.movedim(-1, 0) + math.log(points / 2)
        return z, tails.mix_log_density(log_prob, z, self.domain.tails) if self.domain.tails else log_prob


@register_kl(FourierDensity, Distribution)
def _kl_from_fourier(p: FourierDensity, q: Distribution) -> Tensor:
    """Integrate p log(p/q) in the unit variable of p."""
    p = p.expand(common_shape(p.batch_shape, q.batch_shape))

    def log_ratio(value: Tensor, log_p: Tensor) -> Tensor:
        inside = q.support.check(value)  # type: ignore[union-attr]
        log_q = q.log_prob(torch.where(inside, value, q.mean) if not bool(inside.all()) else value)
        return log_p - torch.where(inside, log_q, -torch.inf)

    return p.expect_of_log(log_ratio)
