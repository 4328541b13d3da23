"""FourierDensity: the predictive distribution of a Fourier head."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.distributions import Distribution, constraints

from fourier_head import kernels
from fourier_head._arrays import widened
from fourier_head.densities.scalar import ScalarDensity, Shape
from fourier_head.domains import Boundary, Domain, Interval, fine_grid
from fourier_head.fourier import series, tails
from fourier_head.fourier import spectrum as closed_form
from fourier_head.fourier.inversion import highest, with_implicit_gradient
from fourier_head.fourier.unit_quantiles import curve_of, unit_quantiles


class FourierDensity(ScalarDensity):
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
        if coefficients.dim() < 2 + squares or coefficients.shape[-2] != rows:
            raise ValueError(
                f"coefficients must have shape (..., 2, N+1), or (..., 1, L) with boundary='reflect', "
                f"got {tuple(coefficients.shape)} with boundary={boundary!r}"
            )
        self.squares, self.boundary, self.floor, self.blur = squares, boundary, floor, blur
        if not coefficients.is_floating_point():
            coefficients = widened(coefficients)
        own = coefficients.dim() - 2 - squares
        batch_shape = torch.broadcast_shapes(coefficients.shape[:own], self.domain.shape)
        # As given: the kernels read 16-bit coefficients as they are, and make none of them float32.
        self._given = coefficients.expand(*batch_shape, *coefficients.shape[own:])
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
        own = self._given.shape[len(self.batch_shape) :]
        return self._with(self._given.expand(*batch_shape, *own), self.domain)

    def __getitem__(self, index: Any) -> FourierDensity:
        """Return the densities of a part of the batch."""
        domain = self.domain.apply(lambda number: number.expand(self.batch_shape)[index])
        some = self._with(self._given[index], domain)
        if self._kept is not None and self._kept[0] == self._version(self._given):
            some._kept = self._version(some._given), self._kept[1][index]
        return some

    def to(self, *args: Any, **options: Any) -> FourierDensity:
        """Return the density in another dtype or on another device, as ``Tensor.to`` takes them."""
        return self._with(self._given.to(*args, **options), self.domain.apply(lambda x: x.to(*args, **options)))

    def low_pass(self, scale: float) -> FourierDensity:
        """Return the density blurred by a Gaussian of this standard deviation in z, an exact low-pass filter."""
        return self._with(self._given, self.domain, math.hypot(self.blur, scale))

    @constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self) -> constraints.Constraint:
        """The values that have a density."""
        return self.domain.support

    @property
    def walls(self) -> bool:
        """Whether the two ends are no neighbours."""
        return self.boundary == "reflect"

    @property
    def coefficients(self) -> Tensor:
        """The coefficients as given, (..., 2, N+1) or (..., 1, L); those of a 16-bit type in float32."""
        return widened(self._given)

    @property
    def num_frequencies(self) -> int:
        """The highest harmonic N of the density."""
        length = self._given.shape[-1]
        return (length - 1) // 2 if self.walls else length - 1

    @property
    def resolution(self) -> int:
        """How finely to look at the density: twice its harmonics."""
        return 2 * self._given.shape[-1]

    @property
    def spectrum(self) -> Tensor:
        """The coefficients q_k of the density, k = 1.., floor and blur included; computed once but for gradients."""
        given = self._given
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
        shape = torch.broadcast_shapes(z.shape, self.batch_shape)
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
        wide = self._given.dtype in (torch.float32, torch.float64)
        return self._given if wide else self._given.new_empty(0, dtype=torch.float32)

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
        a = self._for_kernels(z) if z.shape == self.batch_shape else None
        if a is not None:
            rows = a.reshape(-1, *a.shape[-2:])
            return kernels.log_density(rows, z.reshape(-1), floor=self.floor, walls=self.walls).view(z.shape)
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
        if self._kept is None and kernels.wanted(self.impl, self._given, z):
            z = z.expand(torch.broadcast_shapes(z.shape, self.batch_shape))
            a = self._for_kernels(z)
            source = self.spectrum if a is None else a
            cdf = self.at_points(functools.partial(self._kernel_cdf, a is None), source, z.clamp(-1, 1))
        else:
            cdf = self.at_points(lambda q, v: closed_form.cdf(q, v, self.walls), self.spectrum, z.clamp(-1, 1))
        return torch.where(z <= -1, 0, torch.where(z >= 1, 1, cdf))

    def _kernel_cdf(self, spectra: bool, source: Tensor, z: Tensor) -> Tensor:
        rows, points = source.reshape(-1, *source.shape[-2:]), z.reshape(-1, z.shape[-1])
        return kernels.distribution(rows, points, floor=self.floor, walls=self.walls, spectra=spectra).view(z.shape)

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

    def _for_kernels(self, *others: Tensor) -> Tensor | None:
        """Return coefficients (*batch, rows, L) where the kernels can go on from them, else None."""
        single = not self.squares or self._given.shape[-3] == 1
        fresh = self._kept is None and not self.blur
        if single and fresh and kernels.wanted(self.impl, self._given, *others):
            return self._given.squeeze(-3) if self.squares else self._given
        return None

    def _icdf(self, level: Tensor) -> Tensor:
        level = level.expand(torch.broadcast_shapes(level.shape, self.batch_shape))
        a = self._for_kernels(level)
        if a is not None:
            z = self.at_points(self._kernel_quantiles, a, level)
        else:
            z = self.at_points(self._unit_quantiles, self.spectrum, level)
        return self.domain.quantile_of_unit(z)

    def _kernel_quantiles(self, a: Tensor, level: Tensor) -> Tensor:
        rows = a.reshape(-1, *a.shape[-2:])
        options = {"floor": self.floor, "walls": self.walls, "tails": self.domain.tails}
        z = kernels.coefficient_quantile(rows, level.reshape(-1, level.shape[-1]), **options)  # type: ignore[arg-type]
        return z.view(level.shape)

    def _unit_quantiles(self, q: Tensor, level: Tensor) -> Tensor:
        """Return z with F(z) = level (..., V) for spectra (..., rows, K), with implicit gradients."""
        weight = self.domain.tails
        if kernels.wanted(self.impl, q, level):
            rows = q.reshape(-1, *q.shape[-2:])
            z = kernels.quantile(rows, level.reshape(-1, level.shape[-1]), walls=self.walls, tails=weight)
            return z.view(level.shape)
        z = unit_quantiles(q.detach(), level.detach(), self.walls, weight)
        if torch.is_grad_enabled() and (q.requires_grad or level.requires_grad):
            cdf, density = curve_of(q, self.walls, weight)(z)
            z = with_implicit_gradient(z, cdf - level, density.clamp_min(1e-12))
        return tails.quantile_outside(z, level, weight) if weight else _closed(z, level)

    def quantile(self, levels: Tensor | float | Sequence[float]) -> Tensor:
        """Return quantiles at any levels, shape (*levels.shape, *batch_shape); they never cross."""
        level = self._levels(levels)
        if level.numel() > kernels.FEW_LEVELS or self._validate_args:
            return super().quantile(level)
        a = self._for_kernels(level)
        spectra = a is None and kernels.wanted(self.impl, self._given, level)
        if a is None and not spectra:
            return super().quantile(level)
        a = self.spectrum if a is None else a
        rows, line, placed = a.reshape(-1, *a.shape[-2:]), self.domain.straight, self.domain.line_of_rows
        options: dict[str, Any] = {"floor": self.floor, "walls": self.walls, "tails": self.domain.tails}
        if placed is not None and placed[0].dtype == torch.float64:
            placed = None  # such values have more digits than the kernels
        if placed is not None:
            loc, width = (number.expand(self.batch_shape).reshape(-1) for number in placed)
            options |= {"loc": loc, "width": width}
        values = kernels.ordered_quantiles(rows, level.reshape(-1), *(line or ()), spectra=spectra, **options)
        values = values.view(level.shape + self.batch_shape)
        return values if line or placed else self.domain.quantile_of_unit(values)

    def rsample(
        self, sample_shape: Sequence[int] | torch.Size = torch.Size(), generator: torch.Generator | None = None
    ) -> Tensor:
        """Draw samples whose gradients flow to the parameters."""
        return self.domain.keep_samples(super().rsample(sample_shape, generator))

    def sample(
        self, sample_shape: Sequence[int] | torch.Size = torch.Size(), generator: torch.Generator | None = None
    ) -> Tensor:
        """Draw samples without gradients; one per density is drawn digit by digit where the kernels run."""
        with torch.no_grad():
            a = self._for_kernels() if math.prod(sample_shape) == 1 and not self.domain.tails else None
            if a is None or a.shape[-1] > kernels.FEW_COEFFICIENTS:
                return super().sample(sample_shape, generator)
            rows = a.reshape(-1, *a.shape[-2:])
            z = kernels.coefficient_sample(rows, floor=self.floor, generator=generator, walls=self.walls)
            return self.domain.from_unit(z.view(self._extended_shape(torch.Size(sample_shape))))

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

    def quadrature(self, finer: bool = False) -> tuple[Tensor, Tensor, Tensor]:
        """Return nodes z, weights and values, (points, *batch) or 1 for all, fit for this domain and these harmonics.

        A logarithm of the density, which has no end of harmonics, needs the finer ones.
        """
        resolution = 4 * self.resolution + 64 if finer else self.resolution
        nodes, weights = map(self._column, self.domain.nodes(resolution))
        return nodes, weights, self.domain.values_at_nodes(nodes, resolution)

    def expect(self, function: Callable[[Tensor], Tensor], nodes: Tensor | None = None) -> Tensor:
        """Return E f(X) by quadrature; with nodes in z and their weights, rows of a tensor, over these alone."""
        if nodes is None:
            z, weight, value = self.quadrature()
        else:
            z, weight = map(self._column, nodes)
            value = self.domain.from_unit(z)
        return _integral(weight * self.log_prob_at(z).exp(), function(value))

    def expect_of_log(self, function: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
        """Return E f(X, log p(X)) by quadrature, p the density of values."""
        z, weight, value = self.quadrature(finer=True)
        log_prob = self.log_prob_at(z)
        result = function(value, log_prob + self.domain.log_slope(value).to(log_prob))
        return _integral(weight * log_prob.exp(), result)

    def _column(self, points: Tensor) -> Tensor:
        return self._cast(points).reshape(-1, *(1,) * len(self.batch_shape))

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

    def entropy(self) -> Tensor:
        """Return the differential entropy in nats."""
        return self.domain.entropy(self)

    @property
    def mode(self) -> Tensor:
        """The value of the highest density: the best grid point, refined by golden-section search."""
        with torch.no_grad():
            pieces = self.domain.pieces
            z, log_prob = self.grid()
            best = (log_prob + self._log_slope_at(z)).argmax(0, keepdim=True)
            middle = z.gather(0, best)[0]
            cell = 2 / len(z)
            low, high = middle - cell, middle + cell
            if not self.domain.wraps:
                # The height jumps from piece to piece, so the search stays within one.
                left = 2 * (best[0] * pieces // len(z)).to(z.dtype) / pieces - 1
                low, high = low.maximum(left), high.minimum(left + 2 / pieces)
            return self.domain.from_unit(highest(self._height, low, high))

    def _log_slope_at(self, z: Tensor) -> Tensor:
        return self.domain.log_slope(self.domain.from_unit(z)).to(z.dtype)

    def _height(self, z: Tensor) -> Tensor:
        return self.log_prob_at(z) + self._log_slope_at(z)


def _integral(mass: Tensor, result: Tensor) -> Tensor:
    # Far out mass may round to zero, which counts as nothing even where the function is infinite.
    return torch.where(mass > 0, mass * result, 0).sum(0)


def _closed(z: Tensor, level: Tensor) -> Tensor:
    """Let levels at the ends give the ends of the interval."""
    return torch.where(level <= 0, -torch.ones_like(z), torch.where(level >= 1, torch.ones_like(z), z))


# Divergences register themselves with torch, and are of no use without the density.
from fourier_head.densities import divergence as _divergence  # noqa: E402, F401
