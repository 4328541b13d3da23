"""GaussianMixture: the contract, and what is its own."""

import functools
import math

import numpy as np
import pytest
import scipy.stats
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.distributions import Categorical, MixtureSameFamily, Normal

from fourier_head.densities.gaussian_mixture import GaussianMixture
from tests.density_contract import NAMES, Contract


def t(*values):
    return torch.tensor(values, dtype=torch.float64)


def row(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def on_the_line(logits, loc, log_scale):
    return GaussianMixture(logits, loc, log_scale.exp())


def cut(logits, loc, log_scale):
    return GaussianMixture(logits, loc, log_scale.exp(), low=-1.0, high=1.0)


few = functools.partial(Contract, samples=10_000)
CASES = {
    "line": few(
        on_the_line, [row(2, 3), row(2, 3, seed=1), 0.3 * row(3, seed=2) - 0.5], support="line", low=-9.0, high=9.0
    ),
    "cut": few(cut, [row(2, 3), 0.5 * row(2, 3, seed=1), 0.3 * row(2, 3, seed=2) - 1.5]),
    "wider than the interval": few(cut, [row(2), row(2, seed=1), t(2.0, 5.0)]),
    "one location outside": Contract(cut, [t(0.0, 0.5), t(0.2, 1.4), t(-1.5, -1.0)]),
    "all locations outside": few(cut, [t(0.0, 0.5), t(-2.0, -1.6), t(-0.8, -1.0)]),
    "limits in a batch": few(
        lambda a, b, c: GaussianMixture(a, b, c.exp(), low=t(-1.0, 0.0).to(a), high=t(1.0, 3.0).to(a)),
        [row(3), row(3, seed=1), 0.3 * row(3, seed=2) - 1.0],
        low=t(-1.0, 0.0),
        high=t(1.0, 3.0),
    ),
}


@pytest.mark.parametrize("check", NAMES)
@pytest.mark.parametrize("case", CASES)
def test_contract(case, check):
    getattr(CASES[case], f"check_{check}")()


def test_on_the_line_agrees_with_torch():
    logits, loc, scale = row(4, 3), row(4, 3, seed=1), row(4, 3, seed=2).exp()
    d = GaussianMixture(logits, loc, scale)
    truth = MixtureSameFamily(Categorical(logits=logits), Normal(loc, scale))
    x = torch.linspace(-5, 5, 41, dtype=torch.float64)[:, None]
    torch.testing.assert_close(d.log_prob(x), truth.log_prob(x))
    torch.testing.assert_close(d.cdf(x), truth.cdf(x))
    torch.testing.assert_close(d.mean, truth.mean)
    torch.testing.assert_close(d.variance, truth.variance)


@pytest.mark.parametrize(("loc", "scale"), [(0.2, 0.1), (0.9, 0.5), (-3.0, 0.4), (5.0, 0.05), (0.0, 50.0), (40.0, 0.5)])
def test_one_cut_component_agrees_with_scipy(loc, scale):
    d = GaussianMixture(t(0.0), t(loc), t(scale), low=-1.0, high=2.0)
    truth = scipy.stats.truncnorm((-1 - loc) / scale, (2 - loc) / scale, loc, scale)
    u = torch.linspace(0.01, 0.99, 21, dtype=torch.float64)
    x = d.icdf(u)
    torch.testing.assert_close(x, torch.from_numpy(truth.ppf(u.numpy())), rtol=1e-8, atol=1e-10)
    torch.testing.assert_close(d.log_prob(x), torch.from_numpy(truth.logpdf(x.numpy())), rtol=1e-8, atol=1e-9)
    torch.testing.assert_close(d.cdf(x), torch.from_numpy(truth.cdf(x.numpy())), rtol=1e-8, atol=1e-10)
    assert d.mean.item() == pytest.approx(truth.mean(), rel=1e-9)
    # scipy's own variance cancels far out in a tail, so the truth is its density under quadrature.
    ends = torch.cat([t(-1.0), d.icdf(torch.linspace(1e-9, 1 - 1e-9, 50, dtype=torch.float64)), t(2.0)]).numpy()
    node, weight = np.polynomial.legendre.leggauss(30)
    half = np.diff(ends)[:, None] / 2
    points = ends[:-1, None] + half * (node + 1)
    variance = (half * weight * (points - truth.mean()) ** 2 * truth.pdf(points)).sum()
    assert d.variance.item() == pytest.approx(variance, rel=1e-6)


HARD = {
    "narrow": ([0.0, 0.0], [0.2, -0.3], [1e-4, 1e-3]),
    "far outside": ([0.0, 1.0], [3.0, 4.0], [1e-3, 1e-2]),
    "flat": ([0.0, 1.0], [3.0, -4.0], [1e3, 1e5]),
    "at the ends": ([0.0, 0.0], [1.0, -1.0], [1e-3, 0.1]),
    "one inside counts": ([0.0, -5.0], [-1.5, 0.3], [0.05, 0.1]),
}


@pytest.mark.parametrize("case", HARD)
def test_float32_is_stable(case):
    """Everything equals float64 at the same (rounded) parameters, measured in deviations of the density."""
    single = [torch.tensor(p) for p in HARD[case]]
    d = GaussianMixture(*single, low=-1.0, high=1.0)
    exact = GaussianMixture(*(p.double() for p in single), low=-1.0, high=1.0)
    levels = torch.tensor([0.001, 0.1, 0.3, 0.5, 0.7, 0.9, 0.999])
    x = d.quantile(levels)
    spacing = 1.2e-7 * exact.prob(x.double())
    assert ((exact.cdf(x.double()) - levels).abs() <= 2 * spacing + 1e-6).all()
    torch.testing.assert_close(d.log_prob(x).double(), exact.log_prob(x.double()), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(d.cdf(x).double(), exact.cdf(x.double()), rtol=0, atol=1e-6)
    torch.testing.assert_close(d.crps(x).double(), exact.crps(x.double()), rtol=1e-3, atol=1e-7)
    deviation = exact.stddev.item()
    assert d.mean.item() == pytest.approx(exact.mean.item(), abs=1e-2 * deviation + 1e-7)
    assert d.variance.item() == pytest.approx(exact.variance.item(), rel=1e-3)
    assert d.entropy().item() == pytest.approx(exact.entropy().item(), abs=1e-3)
    assert exact.log_prob(d.mode.double()).item() == pytest.approx(exact.log_prob(exact.mode).item(), abs=1e-3)


@pytest.mark.parametrize("case", HARD)
def test_gradients_of_hard_mixtures(case):
    params = [torch.tensor(p, dtype=torch.float64) for p in HARD[case]]
    middle = GaussianMixture(*params, low=-1.0, high=1.0).quantile(0.37)

    def loss(logits, loc, scale):
        d = GaussianMixture(logits, loc, scale, low=-1.0, high=1.0)
        return d.log_prob(middle), d.cdf(middle), d.icdf(0.37), d.mean, d.crps(middle)

    leaves = [p.clone().requires_grad_() for p in params]
    grads = [torch.autograd.grad(value, leaves, retain_graph=True) for value in loss(*leaves)]
    # Steps in units of the deviation: parameters differ by many orders of magnitude.
    for k, m in ((k, m) for k in range(3) for m in range(2)):
        step = 1e-6 if k == 0 else 1e-6 * params[2][m].item()
        up, down = [p.clone() for p in params], [p.clone() for p in params]
        up[k][m] += step
        down[k][m] -= step
        for gradient, plus, minus in zip(grads, loss(*up), loss(*down), strict=True):
            size = 1e-5 * (1 + gradient[k].abs().max().item())
            torch.testing.assert_close(gradient[k][m], (plus - minus) / (2 * step), rtol=2e-3, atol=size)


def test_limits_far_away_change_nothing():
    params = [row(2, 3), row(2, 3, seed=1), row(2, 3, seed=2).exp()]
    free, held = GaussianMixture(*params), GaussianMixture(*params, low=-200.0, high=200.0)
    x = torch.linspace(-9, 9, 33, dtype=torch.float64)[:, None]
    torch.testing.assert_close(held.log_prob(x), free.log_prob(x))
    torch.testing.assert_close(held.cdf(x), free.cdf(x))
    torch.testing.assert_close(held.crps(x), free.crps(x))
    for name in ("mean", "variance", "mode"):
        torch.testing.assert_close(getattr(held, name), getattr(free, name), rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(held.entropy(), free.entropy())
    torch.testing.assert_close(held.quantile(0.3), free.quantile(0.3))


def test_levels_of_zero_and_one_are_the_ends():
    params = [t(0.0, 1.0), t(0.0, 1.0), t(1.0, 0.5)]
    ends = t(0.0, 1.0)
    assert GaussianMixture(*params).icdf(ends).tolist() == [-math.inf, math.inf]
    assert GaussianMixture(*params, low=-2.0, high=3.0).icdf(ends).tolist() == [-2.0, 3.0]


def test_extreme_levels_on_the_line():
    d = GaussianMixture(t(0.0, 0.0), t(-1.0, 1.0), t(0.5, 0.1))
    for level in (1e-200, 1e-30, 1e-12, 1 - 1e-12):
        u = t(level)
        torch.testing.assert_close(d.cdf(d.icdf(u)), u, rtol=1e-6, atol=0)


def test_mode_is_the_highest_of_several_and_differentiable():
    weights = t(0.5, 0.3, 0.2).log().requires_grad_()
    loc = t(-2.0, 0.0, 0.3).requires_grad_()
    scale = t(1.0, 0.3, 0.2)
    d = GaussianMixture(weights, loc, scale)
    grid = torch.linspace(-5, 5, 200_001, dtype=torch.float64)
    assert d.mode.item() == pytest.approx(grid[d.log_prob(grid).argmax()].item(), abs=1e-4)
    (slope,) = torch.autograd.grad(d.mode, loc)
    for k in range(3):
        up, down = loc.detach().clone(), loc.detach().clone()
        up[k] += 1e-5
        down[k] -= 1e-5
        numeric = (GaussianMixture(weights, up, scale).mode - GaussianMixture(weights, down, scale).mode) / 2e-5
        assert slope[k].item() == pytest.approx(numeric.item(), abs=1e-4)
    outside = GaussianMixture(t(0.0), t(3.0), t(1.0), low=-1.0, high=1.0)
    assert outside.mode.item() == 1.0


def test_bins_of_the_paper_baseline():
    """The density at the centres, normalised."""
    logits, loc, scale = row(3, 2), 0.5 * row(3, 2, seed=1), 0.3 * row(3, 2, seed=2).exp()
    m = 50
    centres = torch.tensor([-1 + (2 * j + 1) / m for j in range(m)], dtype=torch.float64)
    density = sum(
        logits.softmax(-1)[:, k, None]
        * torch.exp(-(((centres - loc[:, k, None]) / scale[:, k, None]) ** 2) / 2)
        / (scale[:, k, None] * math.sqrt(2 * math.pi))
        for k in range(2)
    )
    expected = (density / density.sum(-1, keepdim=True)).log()
    for d in (GaussianMixture(logits, loc, scale), GaussianMixture(logits, loc, scale, low=-1.0, high=1.0)):
        torch.testing.assert_close(d.bin_log_probs(m), expected)
        torch.testing.assert_close(d.bin_log_probs(torch.linspace(-1, 1, m + 1, dtype=torch.float64)), expected)
    narrow = GaussianMixture(torch.zeros(1), torch.tensor([0.013]), torch.tensor([1e-6])).bin_log_probs(m)
    assert narrow.isfinite().all()
    assert narrow.argmax() == 25
    uneven = GaussianMixture(logits, loc, scale).bin_log_probs([-1.0, 0.0, 0.01, 1.0])
    middle = GaussianMixture(logits, loc, scale).prob(t(-0.5, 0.005, 0.505)[:, None]) * t(1.0, 0.01, 0.99)[:, None]
    torch.testing.assert_close(uneven.exp(), (middle / middle.sum(0)).T)


def test_bins_between_limits_in_a_batch():
    d = GaussianMixture(row(2), row(2, seed=1), t(1.0, 2.0), low=t(-1.0, 0.0), high=t(1.0, 4.0))
    first = GaussianMixture(row(2), row(2, seed=1), t(1.0, 2.0), low=0.0, high=4.0)
    torch.testing.assert_close(d.bin_log_probs(7)[1], first.bin_log_probs(7))


@settings(max_examples=15, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    spread=st.sampled_from([0.0, 0.3, 3.0, 100.0]),
    log_scale=st.sampled_from([-9.0, -4.0, 0.0, 6.0]),
    limits=st.booleans(),
    dtype=st.sampled_from([torch.float32, torch.float64]),
)
def test_nothing_is_nan(seed, spread, log_scale, limits, dtype):
    generator = torch.Generator().manual_seed(seed)
    logits = 5 * torch.randn(2, 3, generator=generator, dtype=dtype)
    loc = spread * torch.randn(2, 3, generator=generator, dtype=dtype)
    scale = (log_scale + torch.randn(2, 3, generator=generator, dtype=dtype)).exp()
    params = [p.requires_grad_() for p in (logits, loc, scale)]
    d = GaussianMixture(*params, *((-1.0, 1.0) if limits else ()), validate_args=False)
    x = torch.cat(
        [2.4 * torch.rand(20, 2, generator=generator, dtype=dtype) - 1.2, d.sample((5,), generator=generator)]
    )
    u = torch.rand(20, 2, generator=generator, dtype=dtype).clamp(1e-6, 1 - 1e-6)
    log_p, z, cdf, crps = d.log_prob(x), d.icdf(u), d.cdf(x), d.crps(x)
    assert ((cdf >= 0) & (cdf <= 1)).all()
    assert (crps >= -1e-5 * (1 + spread + scale.max())).all()
    assert (d.variance >= 0).all()
    assert d.support.check(z).all()
    assert not log_p.isnan().any()
    parts = [torch.where(log_p > -math.inf, log_p, 0), z, cdf, crps, d.entropy(), d.mean, d.variance, d.mode]
    for part in parts:
        assert part.isfinite().all()
        for gradient in torch.autograd.grad(part.sum(), params, retain_graph=True, allow_unused=True):
            assert gradient is None or gradient.isfinite().all()


@pytest.mark.parametrize("loc", [0.3, 0.9999999, 3.0])
def test_peaks_narrower_than_float32_numbers_are_points(loc):
    d = GaussianMixture(torch.zeros(1), torch.tensor([loc]), torch.tensor([1e-9]), low=-1.0, high=1.0)
    point = min(loc, 1.0)
    x = torch.linspace(-1, 1, 17)
    torch.testing.assert_close(d.crps(x), (x - point).abs(), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(d.mean, torch.tensor(point))
    torch.testing.assert_close(d.quantile([0.1, 0.9]), torch.tensor([point, point]))
    assert d.variance < 1e-10


def test_components_of_no_weight():
    logits = torch.tensor([0.0, -math.inf], requires_grad=True)
    d = GaussianMixture(logits, torch.tensor([0.1, 0.5]), torch.tensor([0.2, 0.3]), low=-1.0, high=1.0)
    alone = GaussianMixture(torch.zeros(1), torch.tensor([0.1]), torch.tensor([0.2]), low=-1.0, high=1.0)
    torch.testing.assert_close(d.log_prob(0.4), alone.log_prob(0.4))
    torch.testing.assert_close(d.quantile(0.9), alone.quantile(0.9))
    (gradient,) = torch.autograd.grad(d.log_prob(0.4) + d.mean + d.crps(0.2) + d.icdf(0.3), logits)
    assert gradient.isfinite().all()


def test_half_precision_is_computed_in_float32():
    params = [p.to(torch.bfloat16) for p in (row(2, 3), row(2, 3), row(2, 3).exp())]
    d = GaussianMixture(*params, low=-1.0, high=1.0)
    assert d.log_prob(0.3).dtype == d.mean.dtype == d.sample().dtype == torch.float32


def test_vmap():
    params = (row(4, 3), row(4, 3, seed=1), row(4, 3, seed=2).exp())
    x = torch.linspace(-0.9, 0.9, 4, dtype=torch.float64)

    def score(logits, loc, scale, x):
        d = GaussianMixture(logits, loc, scale, low=-1.0, high=1.0, validate_args=False)
        return d.crps(x) + d.log_prob(x) + d.icdf((x + 1) / 2)

    torch.testing.assert_close(torch.func.vmap(score)(*params, x), score(*params, x))
    gradient = torch.func.vmap(torch.func.grad(score, argnums=(0, 1, 2)))(*params, x)
    assert all(g.shape == (4, 3) and g.isfinite().all() for g in gradient)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"low": 0.0}, "low and high must be given both or neither"),
        ({"low": 1.0, "high": 1.0}, "low must be less than high"),
        ({"low": -math.inf, "high": 1.0}, "low must be less than high"),
        ({"low": torch.tensor([0.0, 3.0]), "high": torch.tensor(2.0)}, "low must be less than high"),
        ({"scale": torch.tensor([1.0, 0.0])}, "scale"),
        ({"loc": torch.tensor([1.0, math.nan])}, "loc"),
        ({"logits": torch.tensor([1.0, math.nan])}, "logits"),
        ({"scale": torch.tensor(1.0)}, r"scale must be a tensor of shape \(..., K\)"),
        ({"loc": [0.0, 1.0]}, r"loc must be a tensor of shape \(..., K\)"),
    ],
)
def test_bad_arguments(change, says):
    arguments = {"logits": torch.zeros(2), "loc": torch.zeros(2), "scale": torch.ones(2), **change}
    with pytest.raises(ValueError, match=says):
        GaussianMixture(**arguments)


def test_bad_calls():
    d = GaussianMixture(torch.zeros(2), torch.zeros(2), torch.ones(2))
    for call in (
        lambda: d.log_prob(math.nan),
        lambda: d.icdf(-0.1),
        lambda: d.quantile([0.5, 1.1]),
        lambda: d.bin_log_probs(0),
        lambda: d.bin_log_probs(torch.zeros(2, 2)),
    ):
        with pytest.raises(ValueError, match="got"):
            call()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_components_far_from_a_value_count_as_they_should(dtype):
    loc = torch.tensor([-1.0, 0.0, 300.0], dtype=dtype, requires_grad=True)
    d = GaussianMixture(torch.zeros(3, dtype=dtype), loc, torch.tensor([0.5, 1.0, 0.1], dtype=dtype))
    value = torch.tensor([-0.2, 4.0, 299.9], dtype=dtype)
    parts = torch.distributions.Normal(d.loc.detach(), d.scale).log_prob(value[:, None])
    expected = (parts - math.log(3)).logsumexp(-1)
    got = d.log_prob(value)
    torch.testing.assert_close(got, expected)
    (gradient,) = torch.autograd.grad(got.sum(), loc)
    share = (parts - math.log(3) - expected[:, None]).exp()
    torch.testing.assert_close(gradient, (share * (value[:, None] - d.loc.detach()) / d.scale**2).sum(0))


def test_bins_out_of_reach_have_logarithms_of_their_own():
    d = GaussianMixture(torch.zeros(2), torch.tensor([-0.9, -0.8]), torch.tensor([0.01, 0.01]), low=-1.0, high=1.0)
    log_probs = d.bin_log_probs(50)
    assert log_probs.isfinite().all()
    assert (log_probs[10:].diff() < 0).all()
    edges = torch.linspace(-1, 1, 51)
    torch.testing.assert_close(d.bin_log_probs(edges), log_probs, rtol=1e-4, atol=1e-4)
    assert d.expand((3,)).bin_log_probs(edges).shape == (3, 50)
