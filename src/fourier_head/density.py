"""FourierDensity: the predictive distribution of a Fourier head."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.distributions import Distribution, constraints

from fourier_head import inversion, kernels, series
from fourier_head import spectrum as closed_form
from fourier_head._arrays import widened
from fourier_head._quadrature import legendre_pieces, legendre_rows
from fourier_head.domains import BinnedInterval, Circle, Domain, Interval, Line
from fourier_head.scalar import ScalarDensity

Shape = torch.Size | list[int] | tuple[int, ...]


class FourierDensity(ScalarDensity):
    r"""Represent a density by the square of a trigonometric polynomial.

    .. math:: p(z) = (1 - \epsilon) \frac{|\sum_l a_l e^{-i \pi l z}|^2}{2 \|a\|^2} + \frac{\epsilon}{2}

    carried from z in [-1, 1] to the values of ``domain``.

    Args:
        coefficients: real tensor (..., 2, N+1), rows alpha and beta; or (..., 1, L), real coefficients of a density
            between reflecting walls. Any scale; all zeros mean the uniform density.
        domain: an ``Interval`` (default [-1, 1]), ``Circle``, ``Line`` or ``BinnedInterval``.
        floor: share of probability spread uniformly over z.
        blur: standard deviation, in units of z, of a Gaussian blur applied to the density.
        squares: whether coefficients have one more dimension, (..., R, 2, N+1), and the density is a sum of R squares.

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
        validate_args: bool | None = None,
    ):
        if coefficients.dim() < 2 + squares or coefficients.shape[-2] not in (1, 2):
            raise ValueError(
                f"coefficients must have shape (..., 2, N+1), or (..., 1, L) between walls, "
                f"got {tuple(coefficients.shape)}"
            )
        if not 0 <= floor < 1:
            raise ValueError(f"floor must be a share of probability in [0, 1), got {floor}")
        if blur < 0:
            raise ValueError(f"blur must not be negative, got {blur}")
        self.domain: Domain = Interval() if domain is None else domain
        self.squares = squares
        if coefficients.shape[-2] == 1 and isinstance(self.domain, Circle):
            raise ValueError("a circle has no walls: take coefficients (..., 2, N+1), or an Interval")
        if not coefficients.is_floating_point():
            coefficients = widened(coefficients)
        own = coefficients.dim() - 2 - squares
        batch_shape = torch.broadcast_shapes(coefficients.shape[:own], self.domain.shape)
        # As given: the kernels read 16-bit coefficients as they are, and make none of them float32.
        self._given = coefficients.expand(*batch_shape, *coefficients.shape[own:])
        self.floor, self.blur = floor, blur
        self._kept: tuple[int, Tensor] | None = None  # the spectrum, and of which version of the coefficients
        # torch cannot check the parameters of an empty batch.
        super().__init__(batch_shape, validate_args=validate_args if coefficients.numel() else False)

    # --- shape and structure

    def expand(self, batch_shape: Shape, _instance: Distribution | None = None) -> FourierDensity:
        expanded = FourierDensity(
            self._given.expand(*batch_shape, *self._given.shape[len(self.batch_shape) :]),
            self.domain,
            floor=self.floor,
            blur=self.blur,
            squares=self.squares,
            validate_args=self._validate_args,
        )
        expanded.impl = self.impl
        return expanded

    def low_pass(self, scale: float) -> FourierDensity:
        """Return the density blurred by a Gaussian of this standard deviation in z, an exact low-pass filter."""
        blur = math.hypot(self.blur, scale)
        blurred = FourierDensity(
            self._given, self.domain, floor=self.floor, blur=blur, squares=self.squares, validate_args=False
        )
        blurred.impl = self.impl
        return blurred

    @constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self) -> constraints.Constraint:
        return self.domain.support

    @property
    def coefficients(self) -> Tensor:
        """The coefficients as given, (..., 2, N+1) or (..., 1, L); those of a 16-bit type in float32."""
        return widened(self._given)

    @property
    def num_frequencies(self) -> int:
        """The highest harmonic N of the density."""
        length = self._given.shape[-1]
        return length - 1 if self._given.shape[-2] == 2 else (length - 1) // 2

    @property
    def spectrum(self) -> Tensor:
        """The coefficients q_k of the density, k = 1.., floor and blur included; computed once but for gradients."""
        given = self._given
        if given.requires_grad and torch.is_grad_enabled():
            # What was made without gradients must not serve where they are wanted, and a graph serves one pass back.
            return self._compute_spectrum()
        version = 0 if torch.compiler.is_compiling() or given.is_inference() else given._version
        if self._kept is None or self._kept[0] != version:
            self._kept = version, self._compute_spectrum()
        return self._kept[1]

    def _compute_spectrum(self) -> Tensor:
        q = closed_form.of_coefficients(self.coefficients, self.floor, self.squares)
        return closed_form.low_pass(q, self.blur) if self.blur else q

    def __repr__(self) -> str:
        return (
            f"FourierDensity(num_frequencies={self.num_frequencies}, batch_shape={tuple(self.batch_shape)}, "
            f"domain={self.domain!r}, floor={self.floor:g})"
        )

    def _at_points(self, function: Callable[[Tensor, Tensor], Tensor], parameter: Tensor, x: Tensor) -> Tensor:
        """Apply ``function(parameter, points)``, points last, to x of shape (*sample, *batch) in that same shape."""
        shape = torch.broadcast_shapes(x.shape, self.batch_shape)
        batch = shape[len(shape) - len(self.batch_shape) :]
        points = x.expand(shape).reshape(math.prod(shape[: len(shape) - len(batch)]), *batch).movedim(0, -1)
        parameter = parameter.expand(*batch, *parameter.shape[len(self.batch_shape) :])
        return function(parameter, points).movedim(-1, 0).reshape(shape)

    @property
    def _like(self) -> Tensor:  # type: ignore[override]
        wide = self._given.dtype in (torch.float32, torch.float64)
        return self._given if wide else self._given.new_empty(0, dtype=torch.float32)

    # --- density, distribution, quantiles

    def _log_prob_of_unit(self, z: Tensor) -> Tensor:
        if self.blur:
            smallest = torch.finfo(z.dtype).tiny
            return self._at_points(closed_form.density, self.spectrum, z).clamp_min(smallest).log()
        return self._at_points(lambda a, v: series.log_density(a, v, self.floor, self.squares), self.coefficients, z)

    def _cast_value(self, value: Tensor | float) -> Tensor:
        """Values keep the digits they have until the domain is subtracted from them."""
        if isinstance(value, Tensor) and value.dtype == torch.float64:
            return value.to(self._like.device)
        return self._cast(value)

    def _to_unit(self, value: Tensor) -> Tensor:
        return self.domain.to_unit(value).to(self._like.dtype)

    def log_prob(self, value: Tensor) -> Tensor:
        value = self._value(value)
        inside = self.domain.contains(value)
        safe = torch.where(inside, value, self.domain.from_unit(torch.zeros_like(value)))
        log_prob = self._log_prob_of_unit(self._to_unit(safe)) + self.domain.log_slope(safe).to(self._like.dtype)
        return torch.where(inside, log_prob, torch.full_like(log_prob, -torch.inf))

    def cdf(self, value: Tensor) -> Tensor:
        """Return P(X <= value); on a circle, the probability of the arc from ``low`` to the value."""
        return self._cdf_of_unit(self._to_unit(self._value(value)))

    def _for_kernels(self, *others: Tensor) -> Tensor | None:
        """Return coefficients (*batch, rows, L) where the kernels can go on from them, else None."""
        single = not self.squares or self._given.shape[-3] == 1
        fresh = self._kept is None and not self.blur
        if single and fresh and kernels.wanted(self.impl, self._given, *others):
            return self._given.squeeze(-3) if self.squares else self._given
        return None

    def _icdf(self, level: Tensor) -> Tensor:
        a = self._for_kernels(level)
        if a is not None:
            z = self._at_points(lambda a, u: inversion.icdf_of_coefficients(a, u, self.floor), a, level)
        else:
            z = self._at_points(lambda q, u: inversion.icdf(q, u, self.impl), self.spectrum, level)
        value = self.domain.from_unit(z)
        if isinstance(self.domain, Circle):
            # The end of the arc is its beginning one turn on; taken for that, it would lie below all quantiles.
            value = torch.where(z >= 1, self.domain.low + self.domain.period, value)
        return value

    def quantile(self, levels: Tensor | float | Sequence[float]) -> Tensor:
        level = self._levels(levels)
        domain, few = self.domain, level.numel() <= kernels.FEW_LEVELS
        if few and not self._validate_args and isinstance(domain, Interval) and isinstance(domain.half_width, float):
            a = self._for_kernels(level)
            if a is not None:
                rows, place = a.reshape(-1, *a.shape[-2:]), (float(domain.low), domain.half_width)
                values = kernels.ordered_quantiles(rows, level.reshape(-1), *place, floor=self.floor)
                return values.view(level.shape + self.batch_shape)
        return super().quantile(level)

    def rsample(
        self, sample_shape: Sequence[int] | torch.Size = torch.Size(), generator: torch.Generator | None = None
    ) -> Tensor:
        sample = super().rsample(sample_shape, generator)
        if not isinstance(self.domain, Line):
            return sample
        # A level drawn so near to an end that z rounds to it would be infinitely far out.
        last = self.domain.from_unit(self._cast(torch.finfo(sample.dtype).eps / 2 - 1).expand(self.batch_shape))
        return torch.minimum(torch.maximum(sample, last), 2 * self.domain.loc - last)

    @torch.no_grad()
    def sample(
        self, sample_shape: Sequence[int] | torch.Size = torch.Size(), generator: torch.Generator | None = None
    ) -> Tensor:
        """Draw samples without gradients; one per density is drawn digit by digit where the kernels run."""
        shape = self._extended_shape(torch.Size(sample_shape))
        a = self._for_kernels() if math.prod(sample_shape) == 1 else None
        if a is None or a.shape[-1] > kernels.FEW_COEFFICIENTS:
            return super().sample(sample_shape, generator)
        z = kernels.coefficient_sample(a.reshape(-1, *a.shape[-2:]), floor=self.floor, generator=generator)
        return self.domain.from_unit(z.view(shape))

    # --- summaries

    @property
    def mean(self) -> Tensor:
        """The mean; on a circle, the mean direction."""
        if isinstance(self.domain, Circle):
            # E e^{i pi z} is the conjugate of q_1.
            q = self.spectrum
            q = q[..., :, 0] if q.shape[-1] else self._cast(0.0).expand(*self.batch_shape, 2)
            return self.domain.from_unit(torch.atan2(-q[..., 1], q[..., 0]) / math.pi)
        if isinstance(self.domain, Interval):
            return self.domain.from_unit(closed_form.mean(self.spectrum))
        return self._moments()[0]

    @property
    def variance(self) -> Tensor:
        """The variance; on a circle, the circular variance 1 - |E e^{i theta}|, as torch's VonMises has it."""
        if isinstance(self.domain, Circle):
            q = self.spectrum
            if not q.shape[-1]:
                return torch.ones(self.batch_shape, dtype=q.dtype, device=q.device)
            return 1 - torch.linalg.vector_norm(q[..., :, 0], dim=-1)
        if isinstance(self.domain, Interval):
            q = self.spectrum
            return (closed_form.second_moment(q) - closed_form.mean(q) ** 2).clamp_min(0) * self.domain.half_width**2
        return self._moments()[1]

    def _moments(self) -> tuple[Tensor, Tensor]:
        """Return mean and variance by quadrature, for domains whose map is not affine."""
        z, weight, value = self._quadrature()
        mass = weight * self._log_prob_of_unit(z).exp()
        mean = (mass * value).sum(0)
        return mean, (mass * (value - mean) ** 2).sum(0)

    def _quadrature(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return nodes z, weights and values, each (points, *batch), fit for this domain and this many harmonics."""
        resolution = 2 * self.coefficients.shape[-1]
        if isinstance(self.domain, BinnedInterval):
            nodes, weights = map(self._column, legendre_pieces(self.domain.corners, resolution))
            return nodes, weights, self.domain.from_unit(nodes)
        # Double exponential: x = (pi/2) sinh t is exact at the far ends, where atanh(z) would cancel.
        t = np.linspace(-3.4, 3.4, 8 * resolution + 257)
        x = np.pi / 2 * np.sinh(t)
        weight = (t[1] - t[0]) * np.pi / 2 * np.cosh(t) / np.cosh(x) ** 2
        nodes, weights, x_unit = (self._column(torch.from_numpy(a)) for a in (np.tanh(x), weight, x))
        if isinstance(self.domain, Line):
            return nodes, weights, self.domain.loc + self.domain.scale * x_unit
        return nodes, weights, self.domain.from_unit(nodes)

    def _column(self, points: Tensor) -> Tensor:
        return self._cast(points).reshape(-1, *(1,) * len(self.batch_shape)).expand(-1, *self.batch_shape)

    def _grid(self, parts: int = 1) -> tuple[Tensor, Tensor]:
        """Return centres (points, *batch) fine enough for this density, as many in each part, and the log-mass."""
        points = max(2048, 1 << (16 * self._given.shape[-1] - 1).bit_length())
        points = parts * max(4, -(-points // parts))
        if self.blur:
            log_mass = closed_form.log_bin_mass(self.spectrum, points)
        else:
            log_mass = series.log_pmf(self.coefficients, points, self.floor, self.squares)
        z = series.bin_centers(points, self.coefficients.dtype, self.coefficients.device)
        return z.reshape(-1, *(1,) * len(self.batch_shape)).expand(-1, *self.batch_shape), log_mass.movedim(-1, 0)

    def entropy(self) -> Tensor:
        """Return the differential entropy in nats, by the midpoint rule on a grid finer than the harmonics."""
        z, log_mass = self._grid()
        mass = log_mass.exp()
        entropy = -(mass * (log_mass + math.log(len(z) / 2))).sum(0)
        if isinstance(self.domain, Line | BinnedInterval):
            z, weight, value = self._quadrature()
            stretch = (weight * self._log_prob_of_unit(z).exp() * self.domain.log_slope(value)).sum(0)
        else:
            stretch = self.domain.log_slope(self.domain.from_unit(z[0]))
        return entropy - stretch

    @property
    def mode(self) -> Tensor:
        """The value of the highest density: the best grid point, refined by golden-section search."""
        with torch.no_grad():
            bins = self.domain.bins.num_bins if isinstance(self.domain, BinnedInterval) else 1
            z, log_mass = self._grid(bins)
            height = log_mass + self.domain.log_slope(self.domain.from_unit(z))
            best = height.argmax(0, keepdim=True)
            middle = z.gather(0, best)[0]
            cell = 2 / len(z)
            low, high = middle - cell, middle + cell
            if not isinstance(self.domain, Circle):
                # The height jumps from bin to bin, so the search stays within one.
                left = 2 * (best[0] * bins // len(z)).to(z.dtype) / bins - 1
                low, high = low.maximum(left), high.minimum(left + 2 / bins)
            ratio = (math.sqrt(5) - 1) / 2
            for _ in range(24 if z.dtype == torch.float32 else 40):
                left, right = high - ratio * (high - low), low + ratio * (high - low)
                keep_left = self._height(left) > self._height(right)
                low, high = torch.where(keep_left, low, left), torch.where(keep_left, right, high)
            return self.domain.from_unit((low + high) / 2)

    def _height(self, z: Tensor) -> Tensor:
        return self._log_prob_of_unit(z) + self.domain.log_slope(self.domain.from_unit(z))

    def crps(self, value: Tensor) -> Tensor:
        r"""Return the continuous ranked probability score :math:`\int (F(x) - 1\{x \ge value\})^2 dx`.

        Closed form on an interval (for values outside, the distance is added) and, with the distance along the
        circle, on a circle; quadrature through the quantile form on the line and on warped bins.
        """
        value = self._value(value)
        if isinstance(self.domain, Circle):
            z = self._to_unit(value)
            return self._at_points(closed_form.circular_crps, self.spectrum, z) * (self.domain.period / 2)
        if isinstance(self.domain, Interval):
            z = self.domain.to_unit(value)
            beyond = (value - self.domain.from_unit(z)).abs().to(self._like.dtype)
            score = self._at_points(closed_form.crps, self.spectrum, z.to(self._like.dtype))
            return score * self.domain.half_width + beyond
        shape = torch.broadcast_shapes(value.shape, self.batch_shape)
        if isinstance(self.domain, BinnedInterval):
            return self._crps_on_bins(self.domain, self._cast(value).expand(shape))
        return self._crps_by_quadrature(self._cast(value).expand(shape))

    def _cdf_of_unit(self, z: Tensor, q: Tensor | None = None) -> Tensor:
        return self._at_points(closed_form.cdf, self.spectrum if q is None else q, z)

    def _crps_on_bins(self, domain: BinnedInterval, value: Tensor) -> Tensor:
        """Integrate in the stretches where the warp is straight; all that depends on the value is closed form."""
        nodes, weight, x = self._quadrature()
        q, slope = self.spectrum, torch.exp(-domain.log_slope(x))
        square = (weight * slope * self._cdf_of_unit(nodes, q) ** 2).sum(0)
        corners = self._cast(torch.tensor(domain.corners, dtype=torch.float64))
        corner = self._column(corners)
        beyond = self._at_points(closed_form.cdf_integral_above, q, corner)
        stretch = torch.exp(-domain.log_slope(domain.from_unit((corner[1:] + corner[:-1]) / 2)))
        pieces = stretch * (beyond[:-1] - beyond[1:])
        rest = torch.cat([pieces.flip(0).cumsum(0).flip(0), torch.zeros_like(pieces[:1])])  # from each corner upwards
        z = domain.to_unit(value)
        inside = domain.from_unit(z)
        piece = torch.searchsorted(corners, z.contiguous(), right=True)
        piece = piece.clamp(1, len(corners) - 1)
        batch = value.shape[value.dim() - len(self.batch_shape) :]
        flat = piece.reshape(math.prod(value.shape[: value.dim() - len(batch)]), *batch)
        pick = [t.expand(-1, *batch).gather(0, flat).reshape(value.shape) for t in (beyond, rest)]
        here = torch.exp(-domain.log_slope(inside))
        above = pick[1] + here * (self._at_points(closed_form.cdf_integral_above, q, z) - pick[0])
        return square - 2 * above + (domain.high - inside) + (value - inside).abs()

    def _crps_by_quadrature(self, value: Tensor) -> Tensor:
        r"""Return :math:`E|X - y| - \int F (1 - F)`, the expectation from the tail on the far side of the value.

        That tail is smooth in z; where the value is so far out that z rounds to an end, it is empty.
        """
        nodes, weight, x = self._quadrature()
        q, mean = self.spectrum, self.mean
        cdf = self._cdf_of_unit(nodes, q)
        spread = (weight * torch.exp(-self.domain.log_slope(x)) * cdf * (1 - cdf)).sum(0)
        node, weight = (
            self._cast(row).reshape(-1, *(1,) * value.dim()) for row in legendre_rows(2 * self._given.shape[-1] + 32)
        )
        z = self.domain.to_unit(value)
        upper = z > 0
        end = torch.where(upper, 1.0, -1.0).to(z)
        half = (end - z).abs() / 2
        limit = 1 - torch.finfo(z.dtype).eps
        inner = ((z + end) / 2 + half * node).clamp(-limit, limit)
        cdf = self._cdf_of_unit(inner, q)
        stretch = torch.exp(-self.domain.log_slope(self.domain.from_unit(inner)))
        tail = (weight * half * stretch * torch.where(upper, 1 - cdf, cdf)).sum(0)
        return torch.where(upper, value - mean, mean - value) + 2 * tail - spread
