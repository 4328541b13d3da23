"""One contract for all heads, and what is special to each."""

import copy
import math
import pickle

import pytest
import torch
from torch.nn import functional as F

from fourier_head import (
    Bins,
    Circle,
    FourierDensity,
    FourierHead,
    HLGaussHead,
    Line,
    LinearHead,
    MixtureHead,
    RegressionHead,
)
from tests.heads.made import ATOMS, CROSS_ENTROPY, HEADS, MIXED


def test_log_probabilities_are_normalised(head):
    for shape in ((5, 16), (2, 3, 16), (16,), (0, 16)):
        logs = head(torch.randn(shape))
        assert logs.shape == (*shape[:-1], head.out_features)
        torch.testing.assert_close(logs.exp().sum(-1), torch.ones(shape[:-1]), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("options", [{}, {"boundary": "reflect"}, {"bin_mass": "exact"}], ids=repr)
def test_no_rows_are_fine_where_bins_are_many(options):
    """Where sizes are those of an FFT, which libraries refuse of nothing."""
    head, x = FourierHead(16, 4096, 128, gamma=0.1, **options), torch.zeros(0, 16)
    assert head(x).shape == (0, 4096)
    assert head.loss(x, torch.zeros(0, dtype=torch.long), label_smoothing=0.1) == 0
    assert head.density(x).quantile([0.1, 0.9]).shape == (2, 0)


def test_the_predictive_distribution_is_complete(head):
    d = head.density(torch.randn(5, 16))
    assert d.batch_shape == (5,)
    x = d.quantile([0.1, 0.5, 0.9])
    assert (x.diff(dim=0) >= 0).all()
    torch.testing.assert_close(d.cdf(x), torch.tensor([0.1, 0.5, 0.9])[:, None].expand(3, 5), rtol=1e-3, atol=1e-4)
    for value in (d.log_prob(x), d.crps(x), d.mean, d.variance, d.mode, d.entropy(), d.sample((4,))):
        assert value.isfinite().all()


def test_bin_probabilities_follow_the_density(head):
    """The mass of the density in the upper half of the bins is the probability of those bins."""
    if isinstance(head.domain, Line) or head.out_features == 7:
        pytest.skip("centres of bins say little about masses on the line or when harmonics alias")
    x = torch.randn(6, 16)
    edge = (
        head.domain.from_unit(torch.tensor(0.0))
        if head.out_features % 2 == 0
        else head.domain.from_unit(torch.tensor(-1 + 2 * (head.out_features // 2) / head.out_features))
    )
    upper = head(x).exp()[..., head.out_features // 2 :].sum(-1)
    exact = "exact" in repr(head) or isinstance(head, LinearHead | HLGaussHead)
    torch.testing.assert_close(upper, 1 - head.density(x).cdf(edge), rtol=0, atol=1e-5 if exact else 0.12)


def test_gradients_reach_every_parameter(head):
    x, target = torch.randn(40, 16), torch.randint(head.out_features, (40,))
    head.loss(x, target).backward()
    for name, parameter in head.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        assert parameter.grad.abs().sum() > 0, name


@pytest.mark.parametrize("name", CROSS_ENTROPY)
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_loss_equals_cross_entropy_of_the_log_probabilities(name, reduction):
    head = {**HEADS, **ATOMS}[name]()
    x = torch.randn(9, 5, 16).transpose(0, 1)  # not contiguous
    target = torch.randint(head.out_features, (5, 9))
    target[0, :3] = -100
    target[1, 0] = 0
    weight = torch.rand(head.out_features) + 0.5
    upstream = torch.rand(5, 9) if reduction == "none" else torch.tensor(1.7)
    for options in ({}, {"weight": weight}, {"label_smoothing": 0.1}, {"weight": weight, "label_smoothing": 0.2}):
        x.requires_grad_()
        ours = head.loss(x, target, reduction=reduction, **options)
        dense = F.cross_entropy(head(x).flatten(0, 1), target.flatten(), reduction=reduction, **options)
        dense = dense.view_as(ours)
        torch.testing.assert_close(ours, dense, rtol=1e-5, atol=1e-5)
        parameters = [x, *head.parameters()]
        for got, want in zip(
            torch.autograd.grad((ours * upstream).sum(), parameters),
            torch.autograd.grad((dense * upstream).sum(), parameters),
            strict=True,
        ):
            torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5 * max(1.0, want.abs().max().item()))


def test_ignored_targets(head):
    x, target = torch.randn(6, 16), torch.full((6,), -100)
    loss = head.loss(x, target)
    assert loss == 0
    for g in torch.autograd.grad(loss, list(head.parameters()), allow_unused=True):
        assert g is None or (g == 0).all()
    target[2] = 1
    torch.testing.assert_close(head.loss(x, target), head.loss(x[2:3], target[2:3]))
    torch.testing.assert_close(head.loss(x, target + 1, ignore_index=-99), head.loss(x[2:3], target[2:3] + 1))


def test_continuous_values(head):
    head.eval()  # in training a regression learns its spread from every value
    x = torch.randn(5, 16)
    d = head.density(x)
    value = d.sample((1,))[0]
    torch.testing.assert_close(head.nll(x, value, reduction="none"), -d.log_prob(value), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(head.crps(x, value, reduction="none"), d.crps(value), rtol=1e-4, atol=1e-4)
    value[1] = math.nan
    for score in (head.nll, head.crps):
        kept = torch.tensor([0, 2, 3, 4])
        torch.testing.assert_close(score(x, value), score(x[kept], value[kept]), rtol=1e-4, atol=1e-4)
        assert score(x, value, reduction="none")[1] == 0


def test_copies_are_equal(head):
    x = torch.randn(5, 16)
    head(x).sum().backward()
    for other in (copy.deepcopy(head), pickle.loads(pickle.dumps(head))):
        torch.testing.assert_close(other(x), head(x))
    fresh = copy.deepcopy(head)
    fresh.load_state_dict({k: torch.zeros_like(v) for k, v in head.state_dict().items()})
    fresh.load_state_dict(head.state_dict())
    torch.testing.assert_close(fresh(x), head(x))


def test_autocast_computes_in_float32(head):
    x, target = torch.randn(64, 16), torch.randint(head.out_features, (64,))
    for dtype in (torch.bfloat16, torch.float16):
        with torch.autocast("cpu", dtype=dtype):
            loss, logs = head.loss(x, target), head(x)
        assert loss.dtype == logs.dtype == torch.float32
        torch.testing.assert_close(loss, head.loss(x, target), rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_parameters_of_any_dtype(dtype):
    head = FourierHead(16, 30, 8, init_scale=1.0, dtype=dtype)
    x, target = torch.randn(5, 16, dtype=dtype), torch.randint(30, (5,))
    loss = head.loss(x, target)
    assert loss.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    loss.backward()
    assert head.proj.weight.grad.dtype == dtype


def test_initial_weights_are_divided():
    torch.manual_seed(1)
    reference = torch.nn.Linear(16, 18)
    head = FourierHead(16, 30, 8, init_scale=1000.0)
    torch.manual_seed(1)
    head.reset_parameters()
    torch.testing.assert_close(head.proj.weight, reference.weight / 1000)
    torch.testing.assert_close(head.proj.bias, reference.bias / 1000)


def test_packets_start_apart_and_atoms_rare():
    head = FourierHead(16, 30, 8, packets=4, num_atoms=2)
    start = head.proj.bias[18:22]
    torch.testing.assert_close(start, torch.tensor([-0.75, -0.25, 0.25, 0.75]), rtol=0, atol=1e-3)
    torch.testing.assert_close(head(torch.randn(3, 16)).exp()[:, :2], torch.full((3, 2), 1 / 32), rtol=0, atol=1e-3)


def test_a_packet_moves_its_peak_by_one_number():
    head = FourierHead(1, 200, 40, packets=1, floor=0.0)
    with torch.no_grad():
        head.proj.weight.zero_()
        head.proj.bias.zero_()
        head.proj.weight[82] = 1.0  # mu follows the input
        head.proj.bias[83] = -2.0  # a narrow packet
    where = torch.tensor([[-0.7], [0.0], [0.35]])
    torch.testing.assert_close(head.density(where).mode, where[:, 0], rtol=0, atol=1e-3)


@pytest.mark.parametrize("boundary", ["periodic", "reflect"])
def test_roughness_is_added_in_training_only(boundary):
    head = FourierHead(16, 30, 8, gamma=0.1, boundary=boundary, init_scale=1.0)
    x, target = torch.randn(5, 16), torch.randint(30, (5,))
    penalty = head.penalty(x)
    z = torch.linspace(-1, 1, 20_001, dtype=torch.float64)
    a = head.coefficients(x[0]).double()
    d = FourierDensity(a, floor=head.layout.floor, squares=True, boundary=boundary)
    slope = torch.gradient(d.prob(z), spacing=(z,))[0]
    torch.testing.assert_close(penalty[0].double(), torch.trapezoid(slope**2, z), rtol=1e-4, atol=1e-4)
    plain = F.cross_entropy(head(x), target)
    torch.testing.assert_close(head.loss(x, target), plain + 0.1 * penalty.mean())
    value = d.sample((5,)).float()
    with_penalty = head.nll(x, value), head.crps(x, value)
    head.eval()
    torch.testing.assert_close(head.loss(x, target), plain)
    for got, want in zip((head.nll(x, value), head.crps(x, value)), with_penalty, strict=True):
        torch.testing.assert_close(got + 0.1 * penalty.mean(), want)


def test_the_papers_regulariser_depends_on_scale_and_ours_does_not():
    ours, paper = (FourierHead(16, 30, 8, regularizer=r, init_scale=1.0) for r in ("roughness", "paper"))
    paper.load_state_dict(ours.state_dict())
    x = torch.randn(5, 16)
    before = ours.penalty(x), paper.penalty(x)
    for head in (ours, paper):
        with torch.no_grad():
            head.proj.weight.mul_(0.1)
            head.proj.bias.mul_(0.1)
    torch.testing.assert_close(ours.penalty(x), before[0], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(paper.penalty(x), 1e-4 * before[1], rtol=1e-3, atol=1e-7)
    a = torch.complex(*ours.coefficients(x)[:, 0].unbind(-2))
    c = torch.stack([(a[:, : 9 - k] * a[:, k:].conj()).sum(-1) for k in range(1, 9)], dim=-1)
    expected = 2 * math.pi**2 / 30 * (torch.arange(1, 9) ** 2 * c.abs() ** 2).sum(-1)
    torch.testing.assert_close(paper.penalty(x), expected, rtol=1e-4, atol=1e-7)


def test_blur_smooths_predictions_but_not_losses():
    from fourier_head import smoothness

    head = FourierHead(16, 60, 20, init_scale=1.0)
    x, target = torch.randn(5, 16), torch.randint(60, (5,))
    sharp, loss, spread = head(x).exp(), head.loss(x, target), head.density(x).variance
    head.blur = 0.05
    assert (smoothness(head(x).exp()) < smoothness(sharp)).all()
    torch.testing.assert_close(head(x).exp().sum(-1), torch.ones(5))
    assert not torch.allclose(head.density(x).variance, spread)
    torch.testing.assert_close(head.loss(x, target), loss)


def test_regression_learns_its_spread():
    head = RegressionHead(1, 50, momentum=0.1)
    optimizer = torch.optim.Adam(head.parameters(), lr=0.02)
    x = torch.rand(2000, 1) * 2 - 1
    y = (0.5 * x[:, 0] + 0.1 * torch.randn(2000)).clamp(-0.99, 0.99)
    target = Bins.uniform(50, -1.0, 1.0).encode(y)
    for _ in range(300):
        optimizer.zero_grad()
        head.loss(x, target).backward()
        optimizer.step()
    assert abs(head.residual_variance.sqrt().item() - 0.1) < 0.02
    assert abs(head.density(x[:1]).mean.item() - 0.5 * x[0].item()) < 0.05


def test_hl_gauss_targets_are_gaussian_masses():
    head = HLGaussHead(4, 20, sigma=0.75)
    normal = torch.distributions.Normal(torch.tensor(7.0).double(), torch.tensor(0.75).double())
    edges = torch.arange(21).double() - 0.5
    expected = normal.cdf(edges).diff()
    torch.testing.assert_close(
        head.soft_targets(torch.tensor(7)).double(), expected / expected.sum(), rtol=0, atol=1e-6
    )
    assert head.soft_targets(torch.tensor(19)).isfinite().all()


@pytest.mark.parametrize(
    ("build", "error", "message"),
    [
        (lambda: FourierHead(16, 30, -1), ValueError, "num_frequencies must be at least 0, got -1"),
        (lambda: FourierHead(16, 0, 4), ValueError, "num_bins must be at least 1, got 0"),
        (lambda: FourierHead(0, 30, 4), ValueError, "in_features must be at least 1"),
        (lambda: FourierHead(16, 30, 4, floor=1.5), ValueError, "floor must be a share"),
        (lambda: FourierHead(16, 30, 4, bin_mass="area"), ValueError, "bin_mass must be"),
        (lambda: FourierHead(16, 30, 4, boundary="open"), ValueError, "boundary must be"),
        (lambda: FourierHead(16, 30, 4, packets=-1), ValueError, "packets"),
        (lambda: FourierHead(16, 30, 4, gamma=-1.0), ValueError, "gamma must not be negative"),
        (lambda: FourierHead(16, 30, 4, gamma=math.nan), ValueError, "gamma must not be negative, got nan"),
        (lambda: FourierHead(16, 30, 4, init_scale=math.nan), ValueError, "init_scale must be positive, got nan"),
        (lambda: FourierHead(16, 30, 4, regularizer="l2"), ValueError, "regularizer must be"),
        (lambda: FourierHead(16, 31, 4, domain=MIXED), ValueError, "num_bins is 31 but domain has 30"),
        (lambda: FourierHead(16, None, 4)(torch.zeros(1, 16)), ValueError, "has no bins"),
        (lambda: LinearHead(16, 30, domain=Circle()), ValueError, "domain must be an Interval or Bins"),
        (lambda: MixtureHead(16, 30, kind="all"), ValueError, "kind must be"),
        (lambda: FourierHead(16, 30, 4).loss(torch.zeros(2, 16), torch.tensor([0, 30])), ValueError, "from 0 to 29"),
        (lambda: FourierHead(16, 30, 4).loss(torch.zeros(2, 16), torch.tensor([0.5, 1])), TypeError, "integer bin ids"),
        (lambda: FourierHead(16, 30, 4).loss(torch.zeros(2, 16), torch.tensor([1])), ValueError, "target must have"),
        (
            lambda: FourierHead(16, 30, 4).loss(torch.zeros(1, 16), torch.tensor([1]), reduction="avg"),
            ValueError,
            "reduction must be",
        ),
    ],
)
def test_bad_input(build, error, message):
    with pytest.raises(error, match=message):
        build()
