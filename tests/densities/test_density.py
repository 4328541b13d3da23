"""FourierDensity keeps the contract of densities on every domain, for flat, wild and peaked coefficients."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.distributions import Normal, Uniform, kl_divergence

from fourier_head import Adaptive, Affine, Asinh, BinnedInterval, Bins, Circle, FourierDensity, Interval, Line, Log
from tests.density_contract import NAMES, Contract


def _coefficients(rows, length, batch=(), seed=0, decay=0.0):
    generator = torch.Generator().manual_seed(seed)
    a = torch.randn(*batch, rows, length, generator=generator, dtype=torch.float64)
    return a * torch.exp(-decay * torch.arange(length, dtype=torch.float64))


def _peak(length, centre=0.3, width=0.02):
    """Coefficients of one narrow peak: a Gaussian envelope turned to ``centre``."""
    index = torch.arange(length, dtype=torch.float64)
    envelope = torch.exp(-((index - length / 2) ** 2) * (math.pi * width) ** 2)
    return torch.stack([envelope * torch.cos(math.pi * index * centre), envelope * torch.sin(math.pi * index * centre)])


def _adaptive(domain, a, reach, support="line", **options):
    """A density on an adaptive domain with gradients to its place, too; panels narrow where the map is steep."""
    loc, width = torch.tensor([0.3, -0.5], dtype=torch.float64), torch.tensor([0.8, 1.5], dtype=torch.float64)

    def make(a, loc, width):
        return FourierDensity(a, domain.at(loc, width), **options)

    inside = torch.linspace(-1, 1, 161, dtype=torch.float64)
    beyond = 1 + torch.expm1(torch.linspace(0, math.log(reach), 120, dtype=torch.float64))[1:]
    v = torch.cat([-beyond.flip(0), inside, beyond])
    panels = domain.at(loc, width).from_unit(v[:, None])
    return Contract(
        make, [a, loc, width], support=support, low=panels[0], high=panels[-1], panels=panels, smooth=False,
        samples=20_000, inside=(domain.at(loc, width).from_unit(inside[[1, -2], None].expand(2, 2))),
    )  # fmt: skip


MIXED = Bins.mixed(24, -15.0, 15.0, dense=(-1.0, 10.0), sparse_share=0.25)
DENSITIES = {
    "interval": Contract(lambda a: FourierDensity(a, Interval(-3, 7)), [_coefficients(2, 13)], low=-3, high=7),
    "batch with floor": Contract(
        lambda a: FourierDensity(a, floor=0.05), [_coefficients(2, 9, batch=(2, 3))], samples=20_000
    ),
    "no frequencies": Contract(lambda a: FourierDensity(a, Interval(0, 5)), [_coefficients(2, 1)], low=0, high=5),
    "many frequencies": Contract(lambda a: FourierDensity(a), [_coefficients(2, 129, decay=0.02)], samples=20_000),
    "peak": Contract(lambda a: FourierDensity(a, floor=1e-4), [_peak(100)]),
    "walls": Contract(
        lambda a: FourierDensity(a, Interval(-3, 7), boundary="reflect"), [_coefficients(1, 14)], low=-3, high=7
    ),
    "blurred": Contract(lambda a: FourierDensity(a, floor=1e-3, blur=0.05), [_coefficients(2, 13)]),
    "sum of squares": Contract(
        lambda a: FourierDensity(a, floor=1e-3, squares=True), [_coefficients(2, 9, batch=(2, 3))], samples=20_000
    ),
    "circle": Contract(
        lambda a: FourierDensity(a, Circle(24.0, low=-5.0)), [_coefficients(2, 7)], support="circle", low=-5, high=19
    ),
    "line": Contract(
        lambda a: FourierDensity(a, Line(1.0, 2.0)),
        [_coefficients(2, 9, decay=0.1)],
        support="line",
        low=-29.0,
        high=31.0,
        panels=torch.linspace(-29, 31, 1201, dtype=torch.float64),
    ),
    "mixed bins": Contract(
        lambda a: FourierDensity(a, BinnedInterval(MIXED), floor=1e-3),
        [_coefficients(2, 9, batch=(2,))],
        low=-15.0,
        high=15.0,
        panels=torch.as_tensor(MIXED.edges, dtype=torch.float64),
        smooth=False,
    ),
    "adaptive": _adaptive(Adaptive(tails=0.02), _coefficients(2, 9, batch=(2,)), reach=40),
    "adaptive, walls": _adaptive(Adaptive(tails=0.02), _coefficients(1, 12, batch=(2,)), reach=40, boundary="reflect"),
    "adaptive, scaled": _adaptive(
        Adaptive(tails=0.1, map=Affine(100.0, 20.0)), _coefficients(2, 7, batch=(2,)), reach=40
    ),
    "adaptive, asinh": _adaptive(Adaptive(tails=0.02, map=Asinh(3.0, 2.0)), _coefficients(2, 9, batch=(2,)), reach=60),
    "adaptive, log": _adaptive(
        Adaptive(tails=0.02, map=Log(1.0, 0.5)), _coefficients(2, 9, batch=(2,)), reach=60, support="positive"
    ),
}


@pytest.mark.parametrize("check", NAMES)
@pytest.mark.parametrize("name", DENSITIES)
def test_contract(name, check):
    getattr(DENSITIES[name], f"check_{check}")()


def test_batched_domain():
    low, high = torch.tensor([0.0, -5.0]), torch.tensor([1.0, 5.0])
    d = FourierDensity(torch.randn(2, 4), Interval(low, high))
    assert d.batch_shape == (2,)
    torch.testing.assert_close(d.quantile([0.0, 1.0]), torch.stack([low, high]))
    alone = FourierDensity(d.coefficients[1], Interval(-5.0, 5.0))
    value = torch.tensor([0.5, 2.0])
    torch.testing.assert_close(d.log_prob(value)[1], alone.log_prob(value[1]))
    torch.testing.assert_close(d.crps(value)[1], alone.crps(value[1]))


@pytest.mark.parametrize("rows", [1, 2])
def test_zero_coefficients_are_uniform(rows):
    a = torch.zeros(rows, 6, requires_grad=True)
    d = FourierDensity(a, Interval(0, 4), boundary="reflect" if rows == 1 else "periodic")
    x = torch.tensor([0.0, 1.0, 4.0])
    torch.testing.assert_close(d.log_prob(x), torch.full((3,), -math.log(4)))
    torch.testing.assert_close(d.cdf(x), x / 4)
    torch.testing.assert_close(d.quantile([0.25, 0.5]), torch.tensor([1.0, 2.0]))
    for value in (d.log_prob(x).sum(), d.rsample((5,)).sum(), d.entropy(), d.crps(x).sum(), d.mean, d.variance):
        assert torch.autograd.grad(value, a, retain_graph=True)[0].isfinite().all()


@pytest.mark.parametrize("scale", [1e-30, 1e-10, 1e10, 1e30])
def test_scale_of_coefficients_does_not_matter(scale):
    a = _coefficients(2, 20).float()
    x = torch.linspace(-1, 1, 50)
    torch.testing.assert_close(
        FourierDensity(a * scale).log_prob(x), FourierDensity(a).log_prob(x), rtol=1e-4, atol=1e-4
    )
    torch.testing.assert_close(FourierDensity(a * scale).cdf(x), FourierDensity(a).cdf(x), rtol=1e-5, atol=1e-6)


def test_walls_do_not_join_the_ends():
    half = FourierDensity(torch.tensor([[1.0, 0.9, 0.7, 0.3]]), boundary="reflect")
    assert half.prob(torch.tensor(-1.0)) > 20 * half.prob(torch.tensor(1.0))
    full = FourierDensity(torch.randn(2, 5))
    torch.testing.assert_close(full.prob(torch.tensor(-1.0)), full.prob(torch.tensor(1.0)))


def test_low_pass_is_a_gaussian_blur():
    d = FourierDensity(_coefficients(2, 8), floor=0.01)
    step = torch.linspace(-1, 1, 4001, dtype=torch.float64)[:-1]
    kernel = sum(torch.exp(-((step + 2 * k) ** 2) / (2 * 0.1**2)) for k in (-1, 0, 1))
    spectrum = torch.fft.fft(d.prob(step)) * torch.fft.fft(torch.fft.ifftshift(kernel / kernel.sum()))
    torch.testing.assert_close(d.low_pass(0.1).prob(step), torch.fft.ifft(spectrum).real, rtol=1e-6, atol=1e-8)


def test_kl_divergence_equals_quadrature_and_knows_other_distributions():
    p, q = (FourierDensity(_coefficients(2, 8, seed=s), Interval(0, 2), floor=1e-3) for s in (1, 2))
    x = torch.linspace(0, 2, 200_001, dtype=torch.float64)
    middle = (x[1:] + x[:-1]) / 2
    for other in (q, Normal(torch.tensor(1.0).double(), torch.tensor(1.0).double()), Uniform(x[0] - 1, x[-1])):
        expected = (p.prob(middle) * (p.log_prob(middle) - other.log_prob(middle))).sum() * 1e-5
        torch.testing.assert_close(kl_divergence(p, other), expected, rtol=1e-6, atol=1e-7)
    assert kl_divergence(p, p).abs() < 1e-12
    assert kl_divergence(p, Uniform(x[0] + 0.5, x[-1])) == math.inf


def test_half_precision_is_computed_in_float32():
    a = torch.randn(2, 9)
    x = torch.linspace(-1, 1, 9)
    d = FourierDensity(a.bfloat16())
    assert d.log_prob(x).dtype == torch.float32
    torch.testing.assert_close(d.log_prob(x), FourierDensity(a.bfloat16().float()).log_prob(x))


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: FourierDensity(torch.zeros(3, 5)), "coefficients must have shape"),
        (lambda: FourierDensity([[1.0, 0.0], [0.0, 0.0]]), "coefficients must be a tensor, got list"),
        (lambda: FourierDensity(torch.zeros(2, 5), floor=1.0), "floor must be a share"),
        (lambda: FourierDensity(torch.zeros(2, 5), blur=-1.0), "blur must not be negative"),
        (lambda: FourierDensity(torch.full((2, 5), math.nan)), "coefficients"),
        (lambda: Interval(1.0, 1.0), "low must be less than high"),
        (lambda: Circle(0.0), "period must be positive"),
        (lambda: Line(scale=-1.0), "scale must be positive"),
        (lambda: FourierDensity(torch.zeros(2, 5), validate_args=True).log_prob(torch.tensor(math.nan)), "NaN"),
        (lambda: FourierDensity(torch.zeros(2, 5), validate_args=True).icdf(torch.tensor(1.5)), "levels must lie"),
    ],
)
def test_bad_input(build, message):
    with pytest.raises((TypeError, ValueError), match=message):
        build()


@settings(max_examples=40, deadline=None)
@given(
    frequencies=st.integers(1, 256),
    decay=st.floats(0, 0.5),
    seed=st.integers(0, 10_000),
    rows=st.sampled_from([1, 2]),
    floor=st.sampled_from([0.0, 1e-4, 0.1]),
)
def test_properties(frequencies, decay, seed, rows, floor):
    """Any coefficients: a non-negative density whose cdf rises from 0 to 1 and is undone by ordered quantiles."""
    length = frequencies + 1 if rows == 2 else 2 * frequencies + 2
    boundary = "periodic" if rows == 2 else "reflect"
    d = FourierDensity(_coefficients(rows, length, seed=seed, decay=decay), floor=floor, boundary=boundary)
    z = torch.linspace(-1, 1, 8 * length + 1, dtype=torch.float64)
    p = d.prob(z)
    assert (p >= 0).all()
    # The trapezoidal rule is exact for a trigonometric polynomial on more than N points.
    weight = torch.full_like(z, z[1] - z[0])
    weight[0] = weight[-1] = weight[0] / 2
    assert abs((p * weight).sum() - 1) < 1e-9
    cdf = d.cdf(z)
    assert (cdf.diff() >= -1e-12).all()
    assert cdf[0].abs() < 1e-12
    assert abs(cdf[-1] - 1) < 1e-12
    levels = torch.linspace(0, 1, 41, dtype=torch.float64)
    x = d.quantile(levels)
    assert (x.diff() >= 0).all()
    torch.testing.assert_close(d.cdf(x), levels, rtol=0, atol=1e-9)
    assert -1 <= d.mean <= 1
    assert 0 <= d.variance <= 1
    assert d.prob(d.mode) >= p.max() - 1e-9
    crps = d.crps(z)
    assert (crps >= -1e-12).all()
    assert (crps <= 2 + 1e-12).all()


@settings(max_examples=20, deadline=None)
@given(frequencies=st.integers(8, 256), centre=st.floats(-1, 1), seed=st.integers(0, 100))
def test_peaked_densities(frequencies, centre, seed):
    """Narrow peaks keep their place: mode, median and the quantiles sit where the peak was put."""
    width = 2.0 / frequencies
    d = FourierDensity(_peak(frequencies + 1, centre, width).float(), Circle(2.0, low=-1.0), floor=1e-6)
    distance = (d.mode - centre + 1) % 2 - 1
    assert distance.abs() < 0.05 * width + 1e-4
    assert d.prob(d.mode) * width > 0.2
    sample = d.sample((500,), generator=torch.Generator().manual_seed(seed))
    away = (((sample - centre + 1) % 2) - 1).abs()
    assert (away < 10 * width).float().mean() > 0.97


# --- what is kept, and for how long

LAZY = {
    "crps": lambda d: d.crps(torch.tensor(0.2)),
    "mean": lambda d: d.mean,
    "cdf": lambda d: d.cdf(torch.tensor(0.2)),
    "log_prob": lambda d: d.log_prob(torch.tensor(0.2)),
    "rsample": lambda d: d.rsample(generator=torch.Generator().manual_seed(1)),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", LAZY)
def test_looking_without_gradients_takes_none_away(name, dtype):
    a = _coefficients(2, 5, batch=(3,)).to(dtype).requires_grad_()
    fresh, seen = FourierDensity(a), FourierDensity(a)
    seen.sample()
    assert seen.mode.shape == seen.mean.shape == (3,)
    with torch.no_grad():
        LAZY[name](seen)
    want, got = (torch.autograd.grad(LAZY[name](d).sum(), a)[0] for d in (fresh, seen))
    assert want.abs().sum() > 0
    torch.testing.assert_close(got, want)


def test_a_density_serves_every_step_of_an_optimiser():
    a = _coefficients(2, 5).requires_grad_()
    d, value = FourierDensity(a, blur=0.01), torch.tensor(0.3, dtype=torch.float64)
    optimizer, scores = torch.optim.SGD([a], 0.5), []
    for _ in range(5):
        optimizer.zero_grad()
        score = d.crps(value)
        score.backward()
        optimizer.step()
        scores.append(score.item())
        with torch.no_grad():
            torch.testing.assert_close(d.mean, FourierDensity(a.detach(), blur=0.01).mean)
    assert scores[-1] < scores[0]


# --- input at its edges


@pytest.mark.parametrize("domain", [Interval(-3, 7), Circle(), Line(), BinnedInterval(MIXED)], ids=repr)
@pytest.mark.parametrize("length", [5, 300])
def test_an_empty_batch_has_empty_answers(domain, length):
    d = FourierDensity(torch.zeros(0, 2, length), domain)
    value = torch.zeros(0)
    for found in (d.log_prob(value), d.cdf(value), d.crps(value), d.mean, d.variance, d.mode, d.entropy(), d.sample()):
        assert found.shape == (0,)
    assert d.quantile([0.1, 0.9]).shape == (2, 0)
    assert d.log_prob(torch.zeros(4, 0)).shape == (4, 0)


def test_whole_numbers_are_numbers():
    whole = FourierDensity(torch.tensor([[2, 1], [0, 0]]))
    real = FourierDensity(torch.tensor([[2.0, 1.0], [0.0, 0.0]]))
    assert whole.cdf(torch.tensor(0.5)) == real.cdf(torch.tensor(0.5)) != 0.5


def test_values_keep_their_digits_until_the_domain_is_taken_off():
    a = _coefficients(2, 9).float()
    near, far = FourierDensity(a, Interval(0, 1)), FourierDensity(a, Interval(1e6, 1e6 + 1))
    value = torch.tensor([0.03, 0.531, 0.97], dtype=torch.float64)
    for name in ("log_prob", "cdf", "crps"):
        found = getattr(far, name)(1e6 + value)
        assert found.dtype == torch.float32
        torch.testing.assert_close(found, getattr(near, name)(value), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("bins", [Bins.mixed(100, 0, 1e6, (5e5, 5e5 + 100)), Bins.uniform(20, 1e6, 1e6 + 100)], ids=str)
def test_values_on_bins_keep_their_digits_far_from_zero(bins):
    coefficients, domain = _coefficients(1, 34, (50,)).float(), BinnedInterval(bins)
    d, exact = (FourierDensity(a, domain, boundary="reflect") for a in (coefficients, coefficients.double()))
    value = exact.quantile([0.1, 0.4, 0.9])
    spread = exact.variance.sqrt()
    assert ((d.mean - exact.mean).abs() < 1e-4 * spread + torch.finfo(torch.float32).eps * exact.mean).all()
    for found, expected, unit in (
        (d.variance, exact.variance, spread**2),
        (d.crps(value), exact.crps(value), spread),
        (d.entropy(), exact.entropy(), 1.0),
    ):
        assert ((found - expected).abs() < 1e-4 * unit).all()


@pytest.mark.parametrize("ends", [(0.1, 0.7), (0.3, 0.7), (-1, 0.7), (-1, 3.3), (-2.7, 0.1)])
def test_ends_of_an_interval_belong_to_it(ends):
    for domain in (Interval(*ends), Interval(torch.tensor(float(ends[0])), torch.tensor(float(ends[1])))):
        d = FourierDensity(_coefficients(2, 5).float(), domain, floor=1e-3)
        assert d.log_prob(d.icdf(torch.tensor([0.0, 1.0]))).isfinite().all()


def test_samples_of_the_line_are_finite_at_the_ends_of_the_levels(monkeypatch):
    levels = torch.tensor([0.0, 1e-30, 0.5, 1 - 2**-24])
    monkeypatch.setattr(torch, "rand", lambda *shape, **options: levels)
    d = FourierDensity(_coefficients(2, 5).float(), Line(2.0, 3.0))
    sample = d.sample((4,))
    assert sample.isfinite().all()
    assert sample[0] <= sample[1] < sample[2] < sample[3]
    assert d.icdf(torch.tensor(0.0)) == -torch.inf


@pytest.mark.parametrize("make", [lambda: Interval(0, math.inf), lambda: Interval(math.nan, 1)])
def test_intervals_are_finite(make):
    with pytest.raises(ValueError, match="both finite"):
        make()


def test_a_circle_has_no_walls():
    with pytest.raises(ValueError, match="a circle has no walls"):
        FourierDensity(torch.randn(1, 6), Circle(), boundary="reflect")


# --- bins of many widths


def test_the_mode_on_bins_is_at_least_as_high_as_any_centre():
    values = torch.distributions.StudentT(3.0).sample((20_000,))
    for count in (64, 1000, 4096):
        bins = Bins.quantile(values, count)
        d = FourierDensity(_coefficients(2, 9, batch=(60,), seed=count), BinnedInterval(bins))
        highest = d.log_prob(bins.centers.double()[:, None]).amax(0)
        assert (d.log_prob(d.mode) >= highest - 1e-4).all()


def test_divergences_broadcast_and_see_every_bin():
    bins = Bins.quantile(torch.distributions.StudentT(3.0).sample((20_000,)), 300)
    p, q = FourierDensity(_coefficients(2, 9), BinnedInterval(bins)), Normal(0.0, 4.0)
    low, high = bins.edges[:-1].double(), bins.edges[1:].double()
    x = (low + (high - low) * (torch.arange(200).double()[:, None] + 0.5) / 200).flatten()
    weight = ((high - low) / 200).expand(200, -1).flatten()
    want = (weight * p.prob(x) * (p.log_prob(x) - q.log_prob(x))).sum()
    torch.testing.assert_close(kl_divergence(p, q), want, rtol=1e-5, atol=1e-6)
    many = kl_divergence(FourierDensity(_coefficients(2, 4)), FourierDensity(_coefficients(2, 4, batch=(5,))))
    assert many.shape == (5,)
    one = kl_divergence(FourierDensity(_coefficients(2, 4)), FourierDensity(_coefficients(2, 4, batch=(5,))[3]))
    torch.testing.assert_close(many[3], one)
    assert kl_divergence(p, Normal(torch.zeros(4), 4.0)).shape == (4,)


def test_the_last_quantile_of_a_circle_is_one_turn_on():
    d = FourierDensity(_coefficients(2, 5), Circle(24.0, low=-5.0))
    median = d.icdf(torch.tensor(0.5, dtype=torch.float64))
    found = d.quantile([0.0, 0.5, 1.0])
    torch.testing.assert_close(found, torch.stack([torch.full_like(median, -5), median, torch.full_like(median, 19)]))


def test_divergences_on_the_line_see_the_tails():
    p, q = FourierDensity(_coefficients(2, 5), Line(0.5, 2.0)), Normal(torch.tensor(0.3, dtype=torch.float64), 0.2)
    x = torch.linspace(-40, 40, 100_001, dtype=torch.float64)
    expected = torch.trapezoid(p.prob(x) * (p.log_prob(x) - q.log_prob(x)), x)
    torch.testing.assert_close(kl_divergence(p, q), expected, rtol=1e-6, atol=1e-6)
    assert kl_divergence(p, Uniform(-5.0, 5.0)) == math.inf
