"""HistogramDensity: the contract, and what is its own."""

import functools
import math

import pytest
import scipy.stats
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.distributions import Uniform

from fourier_head.bins import Bins
from fourier_head.densities.histogram import HistogramDensity
from tests.density_contract import NAMES, Contract

EDGES = torch.tensor([-2.0, -1.5, -1.4, 0.0, 1.0, 3.0], dtype=torch.float64)


def row(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def even(bins):
    return torch.linspace(-1, 1, bins + 1, dtype=torch.float64)


# Densities jump from bin to bin.
steps = functools.partial(Contract, smooth=False, samples=20_000)
ON_EDGES = {"panels": EDGES, "low": -2.0, "high": 3.0}
SCALES = torch.tensor([1.0, 0.5], dtype=torch.float64)
EMPTY = torch.tensor([True, False, False, True, True, False])
CASES = {
    "uniform bins": steps(lambda logits: HistogramDensity(logits, low=-1.0, high=1.0), [row(3, 12)], panels=even(12)),
    "own edges, no batch": steps(
        lambda logits: HistogramDensity(logits, edges=EDGES), [2 * row(5)], **ON_EDGES, samples=100_000
    ),
    "probs": steps(lambda probs: HistogramDensity(probs=probs, edges=EDGES), [row(2, 2, 5).exp()], **ON_EDGES),
    "edges in a batch": steps(
        lambda logits: HistogramDensity(logits, edges=EDGES.to(logits) * SCALES[:, None].to(logits)),
        [row(5)],
        panels=EDGES[:, None] * SCALES,
        low=-2 * SCALES,
        high=3 * SCALES,
    ),
    "one bin": steps(HistogramDensity, [row(2, 1)]),
    "peaked": steps(lambda logits: HistogramDensity(20 * logits), [row(64)], panels=even(64)),
    "empty bins": steps(
        lambda logits: HistogramDensity(torch.where(EMPTY, -math.inf, logits)), [row(2, 6)], panels=even(6)
    ),
}


@pytest.mark.parametrize("check", NAMES)
@pytest.mark.parametrize("case", CASES)
def test_contract(case, check):
    getattr(CASES[case], f"check_{check}")()


def test_one_bin_is_the_uniform_distribution():
    d, truth = HistogramDensity(torch.zeros(1), low=2.0, high=5.0), Uniform(2.0, 5.0)
    x = torch.linspace(2.01, 4.99, 7)
    torch.testing.assert_close(d.log_prob(x), truth.log_prob(x))
    torch.testing.assert_close(d.cdf(x), truth.cdf(x))
    for name in ("mean", "variance"):
        torch.testing.assert_close(getattr(d, name), getattr(truth, name))
    torch.testing.assert_close(d.entropy(), truth.entropy())


def test_agrees_with_scipy():
    probs = row(5).exp()
    d = HistogramDensity(probs=probs, edges=EDGES, validate_args=False)
    truth = scipy.stats.rv_histogram((probs.numpy() / EDGES.diff().numpy(), EDGES.numpy()), density=True)
    x = torch.linspace(-2.5, 3.5, 50, dtype=torch.float64)
    torch.testing.assert_close(d.prob(x), torch.from_numpy(truth.pdf(x.numpy())))
    torch.testing.assert_close(d.cdf(x), torch.from_numpy(truth.cdf(x.numpy())))
    torch.testing.assert_close(d.variance.item(), float(truth.var()))
    torch.testing.assert_close(d.entropy().item(), float(truth.entropy()))


def test_is_the_density_of_a_categorical_over_bins():
    bins = Bins.mixed(32, -4.0, 4.0, dense=(-1.0, 1.0), sparse_share=0.3)
    logits = row(3, 32)
    d = HistogramDensity(logits, edges=bins.edges)
    x = bins.decode(torch.arange(32))[:, None]
    expected = (logits.log_softmax(-1) - bins.widths.log()).T
    torch.testing.assert_close(d.log_prob(x), expected)
    torch.testing.assert_close(d.cdf(bins.edges[1:, None]).T, logits.softmax(-1).cumsum(-1))
    best = (logits - bins.widths.log()).argmax(-1)
    assert torch.equal(d.mode, bins.centers[best])
    torch.testing.assert_close(d.centers, bins.centers)


def test_empty_bins_have_no_samples_and_clean_gradients():
    probs = torch.tensor([0.0, 0.5, 0.0, 0.0, 0.5, 0.0], requires_grad=True)
    d = HistogramDensity(probs=probs, low=0.0, high=6.0)
    assert d.log_prob(torch.tensor([0.5, 2.5, 5.5])).tolist() == [-math.inf] * 3
    assert d.icdf(torch.tensor([0.0, 0.25, 0.5, 0.75, 1.0])).tolist() == [1.0, 1.5, 2.0, 4.5, 5.0]
    x = d.rsample((10_000,))
    assert d.log_prob(x.detach()).isfinite().float().mean() > 0.999
    assert ((x >= 1) & (x <= 2) | (x >= 4) & (x <= 5)).all()
    for part in (d.entropy(), d.mean, d.variance, x.sum(), d.crps(2.5), d.cdf(2.5), d.log_prob(1.5)):
        (gradient,) = torch.autograd.grad(part, probs, retain_graph=True)
        assert gradient.isfinite().all()
    # The loss of an impossible value is infinite; its gradient must still not be NaN.
    (gradient,) = torch.autograd.grad(d.log_prob(torch.tensor([0.5, 1.5])).sum(), probs)
    assert not gradient.isnan().any()


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    scale=st.sampled_from([0.0, 1.0, 30.0, 1e4, 1e30]),
    num_bins=st.integers(1, 300),
    dtype=st.sampled_from([torch.float32, torch.float64]),
)
def test_nothing_is_nan_however_peaked(seed, scale, num_bins, dtype):
    generator = torch.Generator().manual_seed(seed)
    logits = (scale * torch.randn(2, num_bins, generator=generator, dtype=dtype)).requires_grad_()
    d = HistogramDensity(logits, validate_args=False)
    x = torch.rand(20, 2, generator=generator, dtype=dtype) * 2.2 - 1.1
    u = torch.cat(
        [torch.rand(20, 2, generator=generator, dtype=dtype), torch.tensor([[0.0, 1.0], [1.0, 0.0]]).to(dtype)]
    )
    z = d.icdf(u)
    assert ((z >= -1) & (z <= 1)).all()
    cdf = d.cdf(x)
    assert ((cdf >= 0) & (cdf <= 1)).all()
    assert (d.crps(x) >= -1e-6).all()
    assert (d.variance >= 0).all()
    total = cdf.sum() + z.sum() + d.crps(x).sum() + d.entropy().sum() + d.mean.sum() + d.variance.sum()
    assert total.isfinite()
    assert not d.log_prob(x).isnan().any()
    (gradient,) = torch.autograd.grad(total, logits)
    assert not gradient.isnan().any()


def test_crps_of_a_far_value_is_its_distance():
    d = HistogramDensity(row(8))
    far = torch.tensor([-101.0, 101.0], dtype=torch.float64)
    torch.testing.assert_close(d.crps(far) - d.crps(far / 101), torch.full_like(far, 100.0))


def test_broadcasting_of_values_against_the_batch():
    d = HistogramDensity(row(3, 1, 6))
    x = torch.linspace(-0.9, 0.9, 4, dtype=torch.float64)
    wide = d.log_prob(x)
    assert wide.shape == (3, 4)
    for i in range(3):
        torch.testing.assert_close(wide[i], HistogramDensity(d.logits[i, 0]).log_prob(x))
    assert HistogramDensity(row(0, 6)).log_prob(x[:, None]).shape == (4, 0)


def test_half_precision_is_computed_in_float32():
    for dtype in (torch.bfloat16, torch.float16):
        d = HistogramDensity(row(2, 6).to(dtype))
        assert d.log_prob(0.3).dtype == d.mean.dtype == d.sample().dtype == torch.float32


def test_vmap():
    logits = row(4, 6)
    x = torch.linspace(-0.9, 0.9, 4, dtype=torch.float64)

    def score(logits, x):
        d = HistogramDensity(logits, validate_args=False)
        return d.crps(x) + d.log_prob(x) + d.cdf(x) + d.icdf((x + 1) / 2)

    mapped = torch.func.vmap(score)(logits, x)
    torch.testing.assert_close(mapped, score(logits, x))
    gradient = torch.func.vmap(torch.func.grad(score))(logits, x)
    assert gradient.shape == logits.shape
    assert gradient.isfinite().all()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({}, "give either logits or probs, got neither"),
        ({"logits": torch.zeros(2), "probs": torch.ones(2)}, "give either logits or probs, got both"),
        ({"logits": torch.tensor(1.0)}, "must have shape"),
        ({"logits": torch.zeros(3, 0)}, "must have shape"),
        ({"logits": torch.zeros(3), "edges": [0.0, 1.0]}, r"edges must have shape \(..., 4\)"),
        ({"logits": torch.zeros(2), "edges": [0.0, 1.0, 1.0]}, "edges must be strictly increasing"),
        ({"logits": torch.zeros(2), "low": 1.0, "high": 1.0}, "low must be less than high"),
        ({"probs": torch.tensor([0.5, -0.5])}, "probs must be finite and not negative"),
        ({"probs": torch.zeros(3)}, "probs must be finite and not negative"),
        ({"logits": torch.tensor([math.nan, 0.0])}, "logits"),
        ({"logits": torch.full((3,), -math.inf)}, "logits"),
    ],
)
def test_bad_arguments(arguments, says):
    with pytest.raises(ValueError, match=says):
        HistogramDensity(**arguments)


def test_validation_of_values_can_be_switched_off():
    d = HistogramDensity(torch.zeros(3))
    for call in (lambda: d.log_prob(math.nan), lambda: d.cdf(torch.tensor(math.nan)), lambda: d.icdf(1.5)):
        with pytest.raises(ValueError, match="got"):
            call()
    free = HistogramDensity(torch.zeros(3), validate_args=False)
    assert free.log_prob(math.nan).isnan()
    assert free.log_prob(7.0) == -math.inf
    assert free.icdf(1.5) == 1


def test_counts_are_probabilities():
    d = HistogramDensity(probs=torch.tensor([3, 1, 1, 1]), low=0.0, high=10.0)
    assert d.edges.tolist() == [0.0, 2.5, 5.0, 7.5, 10.0]
    assert d.cdf(2.5).item() == pytest.approx(0.5)
