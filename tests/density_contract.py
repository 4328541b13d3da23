"""What every density of one number promises, written once: a ``Contract`` of each has the checks of ``NAMES``.

Truth comes from Gauss-Legendre quadrature of ``exp(log_prob)`` on panels, from finite differences, or from scipy; never
from the method under test. On a circle the interval is one period from ``low``.
"""

import copy
import math
import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pytest
import scipy.stats
import torch
from torch import Tensor
from torch.distributions import Distribution

LEVELS = (0.001, 0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 0.999)


def every_function(d: Distribution, x: Tensor, levels: Tensor) -> dict[str, Tensor]:
    """Return what a density says of values and of levels, and of itself."""
    of_values = {"log_prob": d.log_prob(x), "cdf": d.cdf(x), "icdf": d.icdf(levels), "crps": d.crps(x)}
    return of_values | {"mean": d.mean, "variance": d.variance, "entropy": d.entropy()}


@dataclass
class Contract:
    """One density and where to look at it.

    Args:
        make: builds the density from its parameter tensors.
        params: float64 tensors, given to ``make``; gradients are asked for with respect to them.
        support: ``"interval"``, ``"line"``, ``"positive"`` or ``"circle"``.
        low, high: the support, as numbers or tensors of the batch shape; on a line an interval that holds all but
            about 1e-12 of the probability.
        panels: edges between which the density is smooth, shape (P + 1,) or (P + 1, *batch); default 200 equal ones.
            The logarithm in the entropy needs more of them where the density nearly vanishes.
        tol: largest error against quadrature.
        smooth: False where the density jumps, so that derivatives with respect to values are not compared.
        samples: how many samples to test.
        inside: two values between which to look, where most of the support is empty; low and high unless given.
    """

    make: Callable[..., Distribution]
    params: Sequence[Tensor]
    support: str = "interval"
    low: float | Tensor = -1.0
    high: float | Tensor = 1.0
    panels: Tensor | None = None
    tol: float = 1e-6
    smooth: bool = True
    samples: int = 100_000
    inside: Tensor | None = None

    def density(self, dtype: torch.dtype = torch.float64, grad: bool = False) -> tuple[Distribution, list[Tensor]]:
        params = [p.detach().to(dtype).clone().requires_grad_(grad) for p in self.params]
        return self.make(*params), params

    def points(self, d: Distribution, count: int = 23) -> Tensor:
        """Values of the inside, shape (count, *batch), none of them special."""
        share = torch.linspace(0.0123, 0.9871, count, dtype=torch.float64)
        low, high = (self.low, self.high) if self.inside is None else self.inside
        return low + self.column(d, share) * (high - low)

    @staticmethod
    def unchecked(d: Distribution) -> Distribution:
        """The same density, its arguments not checked."""
        other = copy.copy(d)
        other._validate_args = False
        return other

    @staticmethod
    def column(d: Distribution, x: Tensor) -> Tensor:
        return x.reshape(-1, *(1,) * len(d.batch_shape)).expand(-1, *d.batch_shape)

    @staticmethod
    def stack(d: Distribution, *values: float | Tensor) -> Tensor:
        return torch.stack([torch.as_tensor(v, dtype=torch.float64).expand(d.batch_shape) for v in values])

    def nodes(self, d: Distribution, upper: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Quadrature nodes and weights (points, *batch) over the interval, up to ``upper`` where it is given."""
        panels = self.panels
        if panels is None:
            panels = self.low + self.column(d, torch.linspace(0, 1, 201, dtype=torch.float64)) * (self.high - self.low)
        elif panels.dim() == 1:
            panels = self.column(d, panels)
        if upper is not None:
            panels = torch.minimum(panels, upper)
        x, w = (torch.from_numpy(a) for a in np.polynomial.legendre.leggauss(12))
        x, w = self.column(d, x), self.column(d, w)
        start, length = panels[:-1, None], panels.diff(dim=0)[:, None]
        return (start + length * (x + 1) / 2).flatten(0, 1), (length * w / 2).flatten(0, 1)

    def integral(self, d: Distribution, f: Callable[[Tensor], Tensor]) -> Tensor:
        """The expectation of f by quadrature."""
        x, w = self.nodes(d)
        return (w * d.log_prob(x).exp() * f(x)).sum(0)

    def close(self, got: Tensor, expected: Tensor, tol: float | None = None) -> None:
        tol = self.tol if tol is None else tol
        torch.testing.assert_close(got, expected.expand_as(got), rtol=tol, atol=tol)

    # --- the checks; each is one promise

    def check_integral_is_one(self) -> None:
        d, _ = self.density()
        self.close(self.integral(d, torch.ones_like), torch.ones(d.batch_shape, dtype=torch.float64))

    def check_shapes(self) -> None:
        d, _ = self.density()
        batch = d.batch_shape
        assert d.event_shape == ()
        assert d.has_rsample
        d = self.unchecked(d)
        assert d.sample().shape == batch
        assert d.sample((4, 3)).shape == (4, 3, *batch)
        assert d.sample((0,)).shape == (0, *batch)
        with pytest.raises(TypeError, match=r"sample_shape must be a tuple, got 5; write \(5,\)"):
            d.sample(5)
        x = self.points(d, 5)
        for f in (d.log_prob, d.cdf, d.crps):
            assert f(x).shape == (5, *batch)
            self.close(f(x[2]), f(x)[2], 1e-12)
            self.close(f(x[:, None].expand(5, 2, *batch))[:, 1], f(x), 1e-12)
            scalar = x.reshape(5, -1)[2, 0]
            self.close(f(scalar), f(scalar.expand(batch)), 1e-12)
        for summary in (d.mean, d.variance, d.stddev, d.mode, d.entropy()):
            assert summary.shape == batch
            assert summary.dtype == torch.float64
        self.close(d.stddev, d.variance.sqrt(), 1e-12)

    def check_support(self) -> None:
        d, _ = self.density()
        x = self.points(d)
        assert d.support.check(x).all()
        assert not d.log_prob(x).isnan().any()
        if self.support == "circle":
            period = self.high - self.low
            for turn in (-3, 1, 2):
                self.close(d.log_prob(x + turn * period), d.log_prob(x), 1e-8)
            return
        free = self.unchecked(d)
        assert not free.log_prob(self.stack(d, -math.inf, -1e30, 1e30, math.inf)).isnan().any()
        span = self.high - self.low
        zero_one = self.stack(d, 0.0, 1.0)
        self.close(d.cdf(self.stack(d, self.low - 1e9 * span, self.high + 1e9 * span)), zero_one, 1e-8)
        if self.support == "interval":
            out = self.stack(d, -math.inf, self.low - 1e-3 * span, self.high + 1e-3 * span, 1e30, math.inf)
            assert (free.log_prob(out) == -math.inf).all()
            for value in out[1:-1]:
                with pytest.raises(ValueError, match="support"):
                    d.log_prob(value)
            ends = self.stack(d, self.low, self.high)
            assert d.support.check(ends).all()
            self.close(d.cdf(ends), zero_one, 1e-12)

    def check_nan(self) -> None:
        """NaN is an error where arguments are checked, as in torch, and stays NaN where they are not."""
        d, _ = self.density()
        nan = self.stack(d, math.nan)
        free = self.unchecked(d)
        for name in ("log_prob", "cdf", "crps"):
            with pytest.raises(ValueError):
                getattr(d, name)(nan)
            assert getattr(free, name)(nan).isnan().all()

    def check_cdf(self) -> None:
        d, _ = self.density()
        for point in self.points(d, 9):
            nodes, w = self.nodes(d, upper=point)
            self.close(d.cdf(point), (w * d.log_prob(nodes).exp()).sum(0))
        fine = self.points(d, 1001)
        cdf = d.cdf(fine)
        assert (cdf.diff(dim=0) >= -1e-12).all()
        assert ((cdf >= 0) & (cdf <= 1)).all()

    def check_icdf(self) -> None:
        d, _ = self.density()
        u = self.column(d, torch.tensor(LEVELS, dtype=torch.float64))
        x = d.icdf(u)
        assert d.support.check(x).all()
        self.close(d.cdf(x), u, 1e-9)
        x = self.points(d, 501)
        back, solid = d.icdf(d.cdf(x)), d.log_prob(x).exp() * (self.high - self.low) > 1e-4
        assert solid.any()
        self.close(back[solid], x[solid])
        if self.support == "interval":
            ends = d.icdf(self.stack(d, 0.0, 1.0))
            assert ((ends >= self.low) & (ends <= self.high)).all()
            assert (ends[0] <= ends[1]).all()

    def check_quantiles(self) -> None:
        for dtype in (torch.float64, torch.float32):
            d, _ = self.density(dtype)
            levels = torch.linspace(0.001, 0.999, 997, dtype=dtype)
            q = d.quantile(levels)
            assert q.shape == (997, *d.batch_shape)
            assert (q.diff(dim=0) >= 0).all(), "quantiles cross"
            shuffled = torch.randperm(997)
            assert torch.equal(d.quantile(levels[shuffled]), q[shuffled])
            assert d.quantile(0.5).shape == d.batch_shape
            torch.testing.assert_close(d.quantile(levels[:6].reshape(2, 3))[1, 2], q[5], rtol=1e-5, atol=1e-6)
            middle = d.icdf(torch.full(d.batch_shape, 0.5, dtype=dtype))
            torch.testing.assert_close(d.quantile(0.5), middle, rtol=1e-5, atol=1e-6)

    def check_moments(self) -> None:
        d, _ = self.density()
        if self.support == "circle":
            turn = 2 * math.pi / (self.high - self.low)
            c, s = self.integral(d, lambda x: torch.cos(turn * x)), self.integral(d, lambda x: torch.sin(turn * x))
            length = torch.hypot(c, s)
            self.close(length * torch.cos(turn * d.mean), c)
            self.close(length * torch.sin(turn * d.mean), s)
            self.close(d.variance, 1 - length)
            return
        mean = self.integral(d, lambda x: x)
        self.close(d.mean, mean)
        self.close(d.variance, self.integral(d, lambda x: (x - mean) ** 2))

    def check_mode(self) -> None:
        d, _ = self.density()
        best = d.log_prob(self.nodes(d)[0]).max(0).values
        assert (d.log_prob(d.mode) >= best - 1e-9).all()

    def check_entropy(self) -> None:
        d, _ = self.density()
        x, w = self.nodes(d)
        log_p = d.log_prob(x)
        self.close(d.entropy(), -(w * torch.where(log_p > -700, log_p.exp() * log_p, 0)).sum(0))

    def check_crps(self) -> None:
        """On a circle distances are along it, and the definition by expectations is the one to meet."""
        d = self.unchecked(self.density()[0])
        x, w = self.nodes(d)
        mass = w * d.log_prob(x).exp()
        values = self.points(d, 9)
        if self.support == "circle":
            period, share = self.high - self.low, self.column(d, torch.arange(4096, dtype=torch.float64) / 4096)
            coarse = self.low + period * share
            mass = d.log_prob(coarse).exp() * period / 4096
            lag = period * torch.minimum(share, 1 - share)
            spread = torch.fft.ifft(torch.fft.fft(mass, dim=0).abs() ** 2, dim=0).real
            for y in values:
                far = (coarse - y).abs() % period
                expected = (mass * torch.minimum(far, period - far)).sum(0) - (spread * lag).sum(0) / 2
                self.close(d.crps(y), expected, max(self.tol, 1e-6))
            return
        # E|X - X'| / 2 is the integral of F (1 - F); E|X - y| is split at y, where the integrand has a corner.
        span = self.high - self.low
        cdf = d.cdf(x)
        spread = (w * cdf * (1 - cdf)).sum(0)
        mean = (mass * x).sum(0)
        for y in (*values, values[0] - span, values[-1] + span):
            nodes, v = self.nodes(d, upper=y)
            below = v * d.log_prob(nodes).exp()
            expected = 2 * (below * (y - nodes)).sum(0) + mean - y - spread
            self.close(d.crps(y), expected, 2 * self.tol)

    def check_samples(self) -> None:
        d, _ = self.density(torch.float32, grad=True)
        generator = torch.Generator().manual_seed(1)
        x = d.sample((self.samples,), generator=generator)
        assert not x.requires_grad
        assert d.support.check(x).all()
        again = d.sample((self.samples,), generator=torch.Generator().manual_seed(1))
        assert torch.equal(x, again), "the generator decides"
        assert not torch.equal(x, d.sample((self.samples,), generator=generator))
        exact, _ = self.density()
        uniform = exact.cdf(x.double()).reshape(self.samples, -1)
        for column in uniform[:, :4].T:
            result = scipy.stats.kstest(column.numpy(), "uniform")
            assert result.pvalue > 1e-4, f"Kolmogorov-Smirnov p = {result.pvalue}"

    def check_gradients(self) -> None:
        """Directional derivatives equal finite differences, values and parameters alike."""
        base, _ = self.density()
        x = self.points(base, 11)
        u = self.column(base, torch.linspace(0.05, 0.95, 7, dtype=torch.float64))
        generator = torch.Generator().manual_seed(3)
        direction = [torch.randn(p.shape, generator=generator, dtype=torch.float64) for p in self.params]
        step = 1e-5

        def functions(d: Distribution) -> dict[str, Tensor]:
            found = every_function(d, x, u)
            return found | {"log_prob": found["log_prob"].clamp_min(-50)}

        d, params = self.density(grad=True)
        plus = functions(self.make(*(p + step * v for p, v in zip(self.params, direction, strict=True))))
        minus = functions(self.make(*(p - step * v for p, v in zip(self.params, direction, strict=True))))
        for name, value in functions(d).items():
            weight = torch.rand(value.shape, generator=generator, dtype=torch.float64)
            grads = torch.autograd.grad((value * weight).sum(), params, retain_graph=True, allow_unused=True)
            got = sum((g * v).sum() for g, v in zip(grads, direction, strict=True) if g is not None)
            expected = ((plus[name] - minus[name]) / (2 * step) * weight).sum()
            torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-6, msg=lambda m, name=name: f"{name}: {m}")

        d, _ = self.density()
        value = x.clone().requires_grad_()
        (slope,) = torch.autograd.grad(d.cdf(value).sum(), value)
        self.close(slope, d.log_prob(x).exp(), 1e-8)
        level = u.clone().requires_grad_()
        (slope,) = torch.autograd.grad(d.icdf(level).sum(), level)
        self.close(slope * d.log_prob(d.icdf(u)).exp(), torch.ones_like(u), 1e-5)
        if self.support != "circle":
            (slope,) = torch.autograd.grad(d.crps(value).sum(), value)
            self.close(slope, 2 * d.cdf(x) - 1, 1e-6)
        if self.smooth:
            (slope,) = torch.autograd.grad(d.log_prob(value).sum(), value)
            numeric = (d.log_prob(x + 1e-6) - d.log_prob(x - 1e-6)) / 2e-6
            torch.testing.assert_close(slope, numeric, rtol=1e-4, atol=1e-4 * (1 + numeric.abs().max().item()))

    def check_reparametrised_samples(self) -> None:
        """The gradient through samples is that of the quantile at the same level."""
        d, params = self.density(grad=True)
        assert d.rsample().requires_grad
        x = d.rsample((2000,), generator=torch.Generator().manual_seed(5))
        (got,) = torch.autograd.grad(x.sum(), params[:1], retain_graph=True)
        u = d.cdf(x.detach()).detach()
        (expected,) = torch.autograd.grad(d.icdf(u).sum(), params[:1])
        torch.testing.assert_close(got, expected, rtol=1e-3, atol=1e-3 * expected.abs().max().item())

    def check_finite_gradients_in_float32(self) -> None:
        d, params = self.density(torch.float32, grad=True)
        x = torch.cat([self.points(d), self.stack(d, self.low, self.high)]).float()
        levels = torch.tensor([0.0, 1e-6, *LEVELS, 1.0]) if self.support == "interval" else torch.tensor(LEVELS)
        parts = every_function(d, x, self.column(d, levels)) | {"rsample": d.rsample((100,))}
        parts["log_prob"] = torch.where(parts["log_prob"] > -math.inf, parts["log_prob"], 0)
        for name, part in parts.items():
            assert part.isfinite().all(), name
            assert part.dtype == torch.float32, name
            for g in torch.autograd.grad(part.sum(), params, retain_graph=True, allow_unused=True):
                assert g is None or g.isfinite().all(), f"gradient of {name}"

    def check_float32_agrees_with_float64(self) -> None:
        d, _ = self.density()
        single, _ = self.density(torch.float32)
        x = self.points(d)
        torch.testing.assert_close(single.log_prob(x.float()).double().exp(), d.log_prob(x).exp(), rtol=1e-3, atol=1e-4)
        for name in ("cdf", "crps"):
            torch.testing.assert_close(
                getattr(single, name)(x.float()).double(), getattr(d, name)(x), rtol=1e-4, atol=2e-5
            )
        for name in ("mean", "variance", "entropy"):
            a, b = getattr(single, name), getattr(d, name)
            a, b = (a(), b()) if callable(a) else (a, b)
            torch.testing.assert_close(a.double(), b, rtol=1e-4, atol=2e-5)

    def check_expand(self) -> None:
        d, _ = self.density()
        wide = d.expand(torch.Size([3, *d.batch_shape]))
        assert type(wide) is type(d)
        assert wide.batch_shape == (3, *d.batch_shape)
        x = self.points(d, 5)
        u = self.column(d, torch.tensor(LEVELS[2:6], dtype=torch.float64))
        for f, argument in ((d.log_prob, x), (d.cdf, x), (d.crps, x), (d.icdf, u)):
            got = getattr(wide, f.__name__)(argument[:, None].expand(-1, 3, *d.batch_shape))
            self.close(got[:, 1], f(argument), 1e-12)
        for name in ("mean", "variance"):
            self.close(getattr(wide, name)[2], getattr(d, name), 1e-9)
        self.close(wide.mode[2], d.mode, 1e-7)  # the place of a peak is known to the root of the rounding of its height
        self.close(wide.entropy()[0], d.entropy(), 1e-12)
        assert wide.sample((2,)).shape == (2, 3, *d.batch_shape)

    def check_pickle(self) -> None:
        d, _ = self.density()
        other = pickle.loads(pickle.dumps(d))
        x = self.points(d)
        assert torch.equal(other.log_prob(x), d.log_prob(x))
        assert torch.equal(other.mean, d.mean)


NAMES = [name.removeprefix("check_") for name in vars(Contract) if name.startswith("check_")]
