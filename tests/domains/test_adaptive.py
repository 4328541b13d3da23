"""The adaptive head: values anywhere on the line, of any scale, with everything a head does."""

import functools
import math

import numpy as np
import pytest
import torch
from torch import nn

from fourier_head import Adaptive, Affine, Asinh, Bins, FourierHead, Log
from fourier_head.fourier import inversion

HEADS = {
    "plain": lambda: FourierHead(8, num_frequencies=7, domain=Adaptive(), init_scale=1.0),
    "walls": lambda: FourierHead(8, num_frequencies=7, domain=Adaptive(), boundary="reflect", init_scale=1.0),
    "packets": lambda: FourierHead(8, num_frequencies=7, domain=Adaptive(tails=0.05), packets=3, init_scale=1.0),
    "atoms": lambda: FourierHead(8, num_frequencies=7, domain=Adaptive(), num_atoms=2, init_scale=1.0),
    "asinh": lambda: FourierHead(8, num_frequencies=7, domain=Adaptive(map=Asinh(2.0, 3.0)), init_scale=1.0),
    "log": lambda: FourierHead(8, num_frequencies=7, domain=Adaptive(map=Log(0.5, 0.4)), init_scale=1.0),
    "three": lambda: FourierHead(8, num_frequencies=5, domain=Adaptive(), num_outputs=3, init_scale=1.0),
}


def values(head, x, generator=None):
    """Draw values that the head can have seen, some of them far out."""
    return head.density(x).sample(generator=generator or torch.Generator().manual_seed(0))


@pytest.fixture(params=HEADS)
def head(request):
    torch.manual_seed(0)
    return HEADS[request.param]()


def test_the_density_is_the_formula():
    """p(x) = (1 - eps) / w p_a((x - mu) / w) + eps / (2 w) exp(-|x - mu| / w), written out."""
    head = FourierHead(4, num_frequencies=3, domain=Adaptive(tails=0.03), init_scale=1.0, floor=0.0).double()
    x = torch.randn(5, 4, dtype=torch.float64)
    y = head.proj(x)
    a = torch.complex(y[:, :4], y[:, 4:8])
    mu, w = y[:, 8], nn.functional.softplus(y[:, 9]) + 1e-4
    for value in (-30.0, -0.7, 0.0, 0.4, 2.0, 100.0):
        v = (value - mu) / w
        waves = torch.exp(-1j * math.pi * v[:, None] * torch.arange(4))
        p_a = (a * waves).sum(-1).abs() ** 2 / (2 * (a.abs() ** 2).sum(-1)) * (v.abs() <= 1)
        p = 0.97 / w * p_a + 0.03 / (2 * w) * torch.exp(-v.abs())
        torch.testing.assert_close(head.density(x).log_prob(torch.tensor(value).double()), p.log())


def test_losses_are_those_of_the_density(head):
    x = torch.randn(6, 8)
    y = values(head, x)
    d = head.density(x)
    torch.testing.assert_close(head.nll(x, y), -d.log_prob(y).mean())
    torch.testing.assert_close(head.crps(x, y), d.crps(y).mean(), rtol=1e-4, atol=1e-5)
    for loss in (head.nll(x, y), head.crps(x, y), head.crps(x, y, mapped=True)):
        for gradient in torch.autograd.grad(loss, list(head.parameters()), retain_graph=True):
            assert gradient.isfinite().all()
            assert gradient.abs().max() > 0
    missing = y.clone()
    missing[0] = math.nan
    assert head.nll(x, missing).isfinite()
    assert head.crps(x[:0], y[:0]) == 0


def test_the_mapped_score_is_that_of_the_mapped_values():
    plain = FourierHead(8, num_frequencies=7, domain=Adaptive(), init_scale=1.0)
    mapped = FourierHead(8, num_frequencies=7, domain=Adaptive(map=Asinh(2.0, 3.0)), init_scale=1.0)
    mapped.proj.load_state_dict(plain.proj.state_dict())
    x, y = torch.randn(6, 8), torch.tensor([-30.0, -1.0, 2.0, 3.0, 7.0, 1e4])
    u = torch.asinh((y - 2) / 3)
    torch.testing.assert_close(mapped.crps(x, y, mapped=True), plain.crps(x, u))
    inside = y[1:5]
    want = plain.nll(x[1:5], u[1:5], reduction="none") + torch.log(3 * torch.cosh(u[1:5]))
    torch.testing.assert_close(mapped.nll(x[1:5], inside, reduction="none"), want, rtol=1e-4, atol=1e-4)


def test_it_starts_as_a_bell():
    for boundary in ("periodic", "reflect"):
        head = FourierHead(16, num_frequencies=15, domain=Adaptive(), boundary=boundary)
        d = head.density(torch.randn(4, 16))
        assert (d.mean.abs() < 0.05).all()
        assert ((d.stddev > 0.6) & (d.stddev < 1.2)).all()
        assert (d.mode.abs() < 0.2).all()
        assert (d.prob(torch.tensor(3.0)) < d.prob(torch.tensor(0.0)) / 100).all()


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_learns_raw_targets_of_any_scale(scale):
    """y = scale (5 + 3 x + noise): fitted to a like share of the noise at every scale."""
    torch.manual_seed(1)
    x = torch.randn(512, 4)
    y = scale * (5 + 3 * x[:, 0] + 0.5 * torch.randn(512))
    head = FourierHead(4, num_frequencies=5, domain=Adaptive.fit(y), init_scale=10.0)
    optimizer = torch.optim.Adam(head.parameters(), 0.03)
    for _ in range(150):
        optimizer.zero_grad()
        (head.crps(x, y, mapped=True) + 0.05 * head.nll(x, y)).backward()
        optimizer.step()
    d = head.density(x)
    # The score of the true density is 0.564 of its deviation.
    assert float(d.crps(y).mean()) < 0.32 * scale
    low, high = d.quantile([0.05, 0.95])
    assert 0.82 < float(((y >= low) & (y <= high)).float().mean()) < 0.97


@pytest.mark.parametrize(
    ("draw", "kind"),
    [
        (lambda r: r.normal(100, 10, 2000), "affine"),
        (lambda r: r.uniform(0, 1, 50), "affine"),
        (lambda r: np.exp(3 * r.normal(size=2000)), "log"),
        (lambda r: np.concatenate([r.normal(size=2000), [1e6]]), "asinh"),
        (lambda r: np.full(10, 7.0), "affine"),
        (lambda r: np.array([3.0]), "affine"),
        (lambda r: r.poisson(0.2, 500), "affine"),
    ],
)
def test_fit_takes_the_map_that_values_need(draw, kind):
    y = draw(np.random.default_rng(0))
    domain = Adaptive.fit(y)
    assert domain.map.kind == kind
    u = domain.map.forward(torch.as_tensor(y, dtype=torch.float64))
    assert u.isfinite().all()
    assert float(u.quantile(0.9) - u.quantile(0.1)) < 6
    with pytest.raises(ValueError, match="at least one finite"):
        Adaptive.fit([math.nan])


def test_tails_behind_a_curved_map_have_moments():
    """Samples of N(100, 10) behind asinh: mean and deviation exist, and extreme levels are sane."""
    torch.manual_seed(0)
    y = 100 + 10 * torch.randn(2000)
    head = FourierHead(1, num_frequencies=15, domain=Adaptive(map=Asinh(100.0, 10.0)), init_scale=10.0)
    optimizer = torch.optim.Adam(head.parameters(), 0.03)
    x = torch.ones(2000, 1)
    for _ in range(150):
        optimizer.zero_grad()
        (head.crps(x, y, mapped=True) + 0.05 * head.nll(x, y)).backward()
        optimizer.step()
    d = head.density(torch.ones(1))
    assert float(d.mean) == pytest.approx(100, abs=0.6)
    assert float(d.stddev) == pytest.approx(10, abs=1.5)
    truth = 100 + 10 * torch.special.ndtri(torch.tensor([0.001, 0.005, 0.5, 0.995, 0.999]))
    assert ((d.quantile([0.001, 0.005, 0.5, 0.995, 0.999]) - truth).abs() < 12).all()
    samples = d.sample((100_000,), generator=torch.Generator().manual_seed(0))
    assert float(samples.mean()) == pytest.approx(float(d.mean), abs=0.2)
    assert float(samples.std()) == pytest.approx(float(d.stddev), rel=0.1)
    assert float(d.log_prob(torch.tensor(1000.0))) > -40  # a likelihood that an outlier does not end


def test_bins_laid_over_the_line_get_their_exact_masses():
    bins = Bins([-1.0, 0.0, 0.5, 3.0, 10.0])
    head = FourierHead(8, num_frequencies=5, domain=Adaptive(bins=bins), num_atoms=1, init_scale=1.0)
    x = torch.randn(6, 8)
    log_probs = head(x)
    assert log_probs.shape == (6, 5)
    torch.testing.assert_close(log_probs.exp().sum(-1), torch.ones(6))
    d, continuum = head.density(x), head.atom_log_probs(x)[:, 0].exp()
    cdf = torch.stack([d.cdf(torch.tensor(edge)) for edge in (0.0, 0.5, 3.0)], -1)
    masses = torch.diff(torch.cat([torch.zeros(6, 1), cdf, torch.ones(6, 1)], -1)) * continuum[:, None]
    torch.testing.assert_close(log_probs[:, 1:].exp(), masses, rtol=1e-4, atol=1e-5)
    target = torch.tensor([0, 1, 2, 3, 4, -100])
    torch.testing.assert_close(head.loss(x, target), nn.functional.cross_entropy(log_probs, target))
    far = FourierHead(8, num_frequencies=5, domain=Adaptive(bins=Bins.uniform(50, 1e5, 2e5)))
    assert far.loss(x, torch.full((6,), 30)).isfinite()


def test_an_anchor_moves_the_density():
    head = FourierHead(8, num_frequencies=5, domain=Adaptive(anchored=True))
    x, anchor = torch.randn(6, 8), torch.tensor([0.0, 10.0, -50.0, 1e3, 2.0, 3.0])
    near = head.density(x, anchor=anchor).mean
    torch.testing.assert_close(near, anchor / 2, rtol=1e-2, atol=0.1)  # kept by half at the start
    assert head.nll(x, anchor, anchor=anchor).isfinite()
    with pytest.raises(ValueError, match="pass anchor="):
        head.density(x)
    with pytest.raises(ValueError, match="takes none"):
        FourierHead(8, domain=Adaptive()).density(x, anchor=anchor)
    with pytest.raises(ValueError, match="Adaptive"):
        FourierHead(8, domain=(0, 1)).nll(x, torch.rand(6), map=Affine())


def test_a_missing_guess_is_none():
    head = FourierHead(8, num_frequencies=5, domain=Adaptive(map=Affine(5.0, 2.0), anchored=True))
    x, guess, value = torch.randn(3, 8), torch.tensor([math.nan, math.nan, 7.0]), torch.tensor([math.nan, 4.0, 6.0])
    middle = torch.where(guess.isnan(), 5.0, guess)
    torch.testing.assert_close(head.density(x, anchor=guess).mean, head.density(x, anchor=middle).mean)
    for score in (head.nll, head.crps):
        found, wanted = (torch.autograd.grad(score(x, value, anchor=a), head.proj.weight)[0] for a in (guess, middle))
        torch.testing.assert_close(found, wanted)


@pytest.mark.filterwarnings("ignore:2 of 2 values lie outside")
@pytest.mark.parametrize("map", [Affine(1.0, 0.1), Asinh(), Log()], ids=str)
def test_infinite_values_count_as_far_out_on_their_side(map):
    head = FourierHead(8, num_frequencies=5, domain=Adaptive(map=map))
    x, far = torch.randn(2, 8), map.inverse(torch.tensor([30.0, -30.0]))
    for score in (head.nll, functools.partial(head.crps, mapped=True)):
        torch.testing.assert_close(score(x, torch.tensor([math.inf, -math.inf])), score(x, far))


def test_rows_may_bring_their_own_map():
    head = FourierHead(8, num_frequencies=5, domain=Adaptive(), init_scale=1.0)
    x, y = torch.randn(3, 8), torch.tensor([1.0, 200.0, -5e4])
    loc, scale = torch.tensor([0.0, 100.0, -4e4]), torch.tensor([1.0, 50.0, 1e4])
    each = head.nll(x, y, map=Asinh(loc, scale), reduction="none")
    for i in range(3):
        one = head.nll(x[i : i + 1], y[i : i + 1], map=Asinh(float(loc[i]), float(scale[i])))
        torch.testing.assert_close(each[i], one)
    quantiles = head.density(x, map=Asinh(loc, scale)).quantile([0.1, 0.9])
    assert (quantiles[1] > quantiles[0]).all()


def test_the_fitted_map_travels_with_the_weights(tmp_path):
    y = np.exp(3 * np.random.default_rng(0).normal(size=100))
    head = FourierHead(8, num_frequencies=5, domain=Adaptive.fit(y))
    model = nn.Sequential(nn.Linear(8, 8), head)
    torch.save(model.state_dict(), tmp_path / "model.pt")
    other = nn.Sequential(nn.Linear(8, 8), FourierHead(8, num_frequencies=5, domain=Adaptive()))
    other.load_state_dict(torch.load(tmp_path / "model.pt", weights_only=True))
    x = torch.randn(4, 8)
    assert other[1].domain.map.kind == "log"
    torch.testing.assert_close(other[1].density(other[0](x)).mean, head.density(model[0](x)).mean)
    half = model.to(torch.bfloat16)
    assert float(half.state_dict()["1.domain_map"][2]) == head.domain.map.scale  # not rounded with the weights


def test_distributed_checkpoints_hold_the_fitted_map():
    from torch.distributed.checkpoint.state_dict import get_model_state_dict, set_model_state_dict

    model, other = (nn.Sequential(FourierHead(8, domain=Adaptive(map=map))) for map in (Asinh(3.0, 2.0), None))
    set_model_state_dict(other, get_model_state_dict(model))
    x = torch.randn(4, 8)
    torch.testing.assert_close(other[0].density(x).mean, model[0].density(x).mean)


@pytest.mark.parametrize("name", ["plain", "packets", "asinh", "three"])
def test_autocast_and_compile_change_nothing(name):
    torch.manual_seed(0)
    head = HEADS[name]()
    x = torch.randn(6, 8)
    y = values(head, x).detach()
    both = lambda x, y: head.crps(x, y, mapped=True) + head.nll(x, y)  # noqa: E731
    if name in ("packets", "three"):  # tracing takes seconds, and the others are parts of these
        compiled = torch.compile(both, backend="eager", fullgraph=True)
        torch.testing.assert_close(compiled(x, y), both(x, y), rtol=1e-4, atol=1e-5)
    with torch.autocast("cpu", torch.bfloat16):
        assert abs(float(both(x, y)) - float(both(x.bfloat16().float(), y))) < 0.3


def test_samples_and_quantiles_compile_whole(monkeypatch):
    """Of one head only: compilers take long over the rounds of the inversion, of which two will do here."""
    monkeypatch.setattr(inversion, "_rounds", lambda dtype, looking: 2)
    torch.manual_seed(0)
    head, x = HEADS["asinh"](), torch.randn(6, 8)
    draw = torch.compile(lambda x: head.density(x).sample((3,)), backend="eager", fullgraph=True)
    assert draw(x).shape == (3, *head.density(x).batch_shape)
    quantiles = torch.compile(lambda x: head.density(x).quantile([0.1, 0.5, 0.9]), backend="eager", fullgraph=True)
    with torch.no_grad():
        torch.testing.assert_close(quantiles(x), head.density(x).quantile([0.1, 0.5, 0.9]), rtol=1e-3, atol=1e-3)


def test_half_precision_features_and_weights():
    head = FourierHead(8, num_frequencies=5, domain=Adaptive(), init_scale=1.0).bfloat16()
    x, y = torch.randn(6, 8).bfloat16(), torch.randn(6)
    for loss in (head.nll(x, y), head.crps(x, y)):
        assert loss.dtype == torch.float32
        assert all(g.isfinite().all() for g in torch.autograd.grad(loss, list(head.parameters()), retain_graph=True))


def test_bad_input_is_named():
    x = torch.randn(3, 8)
    with pytest.raises(ValueError, match="tails must be"):
        Adaptive(tails=0.0)
    with pytest.raises(ValueError, match="no ends to divide"):
        FourierHead(8, num_bins=20, domain=Adaptive())
    with pytest.raises(ValueError, match="one loc and scale"):
        Adaptive(map=Affine(torch.zeros(3), 1.0))
    with pytest.raises(TypeError, match="num_bins must be a whole number"):
        FourierHead(8, 10.5, 3)
    with pytest.raises(TypeError, match="num_frequencies must be a whole number"):
        FourierHead(8, 10, 3.0)
    head = FourierHead(8, num_frequencies=3, domain=Adaptive(map=Log()))
    with pytest.warns(UserWarning, match="1 of 3 values lie outside"):
        assert head.nll(x, torch.tensor([1.0, -2.0, 3.0])).isfinite()
    assert head.nll(x, 0.3).isfinite()
