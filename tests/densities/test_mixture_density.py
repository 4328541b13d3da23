"""Mixtures of densities and forecasts laid side by side keep the contract of densities; what mixing means."""

import math

import pytest
import torch

from fourier_head import Adaptive, Asinh, FourierDensity, HistogramDensity, Interval
from fourier_head.densities.mixture import MixtureDensity
from fourier_head.densities.tabulated import TabulatedMixture
from fourier_head.forecasting.path_density import PathDensity
from tests.density_contract import NAMES, Contract

DOMAIN = Adaptive(tails=0.05, map=Asinh(3.0, 2.0))


def numbers(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def bells(*shape, seed=0):
    """Coefficients of shapes that are low at the ends, but not nothing."""
    return numbers(*shape, 2, 6, seed=seed) * 0.3 + torch.tensor([math.comb(5, k) / 8 for k in range(6)]).double()


def panels_of(domain, loc, width, reach=40):
    """Return panel ends (points, *batch), sorted, between which no component (first dimension) has a corner."""
    inside = torch.linspace(-1, 1, 41, dtype=torch.float64)
    beyond = 1 + torch.expm1(torch.linspace(0, math.log(reach), 40, dtype=torch.float64))[1:]
    v = torch.cat([-beyond.flip(0), inside, beyond])
    ends = domain.at(loc, width).from_unit(v.reshape(-1, *(1,) * loc.dim()))
    return ends.flatten(0, 1).sort(0).values


def on_the_line(make, params, loc, width):
    panels = panels_of(DOMAIN, loc, width)
    middle = DOMAIN.at(loc, width)
    inside = torch.stack([middle.from_unit(v * torch.ones_like(loc)) for v in (-0.9 * torch.ones(1), torch.ones(1))])
    return Contract(
        make, params, support="line", low=panels[0], high=panels[-1], panels=panels, smooth=False, samples=20_000,
        inside=(inside[0].amin(0), inside[1].amax(0)),
    )  # fmt: skip


def mixture_on_the_line():
    loc, width = 0.5 * numbers(3, 2, seed=1), 0.5 + numbers(3, 2, seed=2).abs()
    weights = torch.tensor([0.2, 0.5, 0.3], dtype=torch.float64)

    def make(a, loc, width, weights):
        return MixtureDensity(FourierDensity(a, DOMAIN.at(loc, width)), weights)

    return on_the_line(make, [bells(3, 2), loc, width, weights], loc, width)


def tabulated_mixture():
    """The same from tables, in which about eight digits are right."""
    case = mixture_on_the_line()
    make = case.make
    case.make = lambda *params: TabulatedMixture(make(*params).components, params[-1])
    return case


def mixture_on_an_interval():
    weights = 0.2 + torch.rand(4, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)

    def make(a, weights):
        return MixtureDensity(FourierDensity(a, Interval(-3, 7), floor=0.01), weights)

    return Contract(make, [numbers(4, 2, 2, 7), weights], low=-3.0, high=7.0, samples=20_000)


def forecast():
    """Two series; a step of the network, then two mixed from three paths."""
    loc, width = 0.5 * numbers(3, 2, 3, seed=1), 0.5 + numbers(3, 2, 3, seed=2).abs()
    weights = torch.tensor([0.2, 0.5, 0.3], dtype=torch.float64)
    # All paths of the first step are one: panels for the others serve it, too.
    loc[:, :, 0], width[:, :, 0] = loc[0, :, 0], width[0, :, 0]

    def make(near, far, loc, width, weights):
        first = FourierDensity(near, DOMAIN.at(loc[0, :, :1], width[0, :, :1]))
        rest = FourierDensity(far, DOMAIN.at(loc[:, :, 1:], width[:, :, 1:]))
        return PathDensity([first, MixtureDensity(rest, weights)])

    return on_the_line(make, [bells(2, 1), bells(3, 2, 2, seed=3), loc, width, weights], loc, width)


DENSITIES = {
    "line": mixture_on_the_line,
    "tabulated": tabulated_mixture,
    "interval": mixture_on_an_interval,
    "forecast": forecast,
}


NOT_OF_TABLES = ("gradients", "reparametrised_samples", "finite_gradients_in_float32", "expand")
"""What `TabulatedMixture` says that it has not."""
CASES = [(n, c) for n in DENSITIES for c in NAMES if n != "tabulated" or c not in NOT_OF_TABLES]


@pytest.mark.parametrize(("name", "check"), CASES)
def test_contract(name, check):
    getattr(DENSITIES[name](), f"check_{check}")()


def test_entropies_from_tables_are_those_of_the_densities():
    case = tabulated_mixture()
    from_tables = case.make(*case.params)
    torch.testing.assert_close(from_tables.entropy(), MixtureDensity.entropy(from_tables), atol=1e-6, rtol=0)


def test_one_component_is_itself():
    d = FourierDensity(bells(1, 3), DOMAIN.at(numbers(1, 3), torch.ones(3).double()))
    mixture = MixtureDensity(d)
    x = torch.linspace(-5, 12, 7).double()[:, None]
    for name in ("log_prob", "cdf", "crps"):
        torch.testing.assert_close(getattr(mixture, name)(x), getattr(d[0], name)(x))
    torch.testing.assert_close(mixture.quantile([0.01, 0.6]), d[0].quantile([0.01, 0.6]))


def test_the_ends_of_a_line_are_infinitely_far():
    d = mixture_on_the_line().density()[0]
    low, high = d.quantile([0.0, 1.0])
    assert (low == -math.inf).all()
    assert (high == math.inf).all()


def test_other_densities_are_mixed_too():
    edges = torch.tensor([[0.0, 1.0, 3.0], [2.0, 3.0, 4.0]])
    d = MixtureDensity(HistogramDensity(probs=torch.tensor([[1.0, 3.0], [1.0, 1.0]]), edges=edges))
    assert d.support.check(torch.tensor([0.0, 4.0])).all()
    assert not d.support.check(torch.tensor(4.5))
    torch.testing.assert_close(d.cdf(torch.tensor([1.0, 3.0])), torch.tensor([0.125, 0.75]))
    torch.testing.assert_close(d.cdf(d.quantile([0.2, 0.5, 0.9])), torch.tensor([0.2, 0.5, 0.9]))
    torch.testing.assert_close(d.mean, torch.tensor((1.625 + 3.0) / 2))


def test_weights_must_fit():
    with pytest.raises(ValueError, match=r"weights must .*got \(2,\)"):
        MixtureDensity(FourierDensity(bells(3, 2)), torch.ones(2))
    with pytest.raises(ValueError, match="components must have a batch shape"):
        MixtureDensity(FourierDensity(bells(3)[0]))
    for wrong in ([1.0, -1.0, 1.0], [0.0, 0.0, 0.0], [1.0, math.nan, 1.0]):
        with pytest.raises(ValueError, match="Expected parameter weights"):
            MixtureDensity(FourierDensity(bells(3)), torch.tensor(wrong))


def test_digits_of_values_far_from_zero_are_kept():
    """The network's numbers are float32; its maps, which lead back to values, are not."""
    loc, width = torch.tensor([[0.0], [0.4]]), torch.ones(2, 1)
    a = bells(2, 1).float()
    near, far = (
        MixtureDensity(FourierDensity(a, DOMAIN.at(loc, width, Asinh(torch.tensor([level], dtype=torch.float64), 2.0))))
        for level in (0.0, 1e11)
    )
    levels = [0.001, 0.1, 0.5, 0.9]
    torch.testing.assert_close(far.quantile(levels) - 1e11, near.quantile(levels), rtol=0, atol=1e-4)
    torch.testing.assert_close(far.mean - 1e11, near.mean, rtol=0, atol=1e-4)
    torch.testing.assert_close(far.variance, near.variance, rtol=1e-4, atol=0)
    x = torch.tensor([1.5]).double()
    for name in ("log_prob", "cdf", "crps"):
        torch.testing.assert_close(getattr(far, name)(x + 1e11), getattr(near, name)(x), rtol=1e-4, atol=1e-5)


def test_samples_of_a_forecast_follow_one_path():
    loc = torch.tensor([-50.0, 50.0]).double().reshape(2, 1, 1)
    paths = FourierDensity(bells(2, 1, 4), Adaptive(tails=1e-6).at(loc, torch.ones(1).double()))
    drawn = PathDensity([MixtureDensity(paths), MixtureDensity(paths)]).sample((200,))[:, 0]
    assert drawn.shape == (200, 8)
    assert ((drawn > 0).all(-1) | (drawn < 0).all(-1)).all()
    assert 60 < int((drawn[:, 0] > 0).sum()) < 140


def test_a_forecast_is_worked_on_in_parts(monkeypatch):
    d = forecast().density()[0]
    levels, value = [0.1, 0.7], torch.full((4, 2, 3), 2.0).double()
    whole = [d.quantile(levels), d.cdf(value), d.mean, d.crps(value)]
    monkeypatch.setattr("fourier_head.forecasting.path_density.AT_ONCE", 1)
    for got, want in zip([d.quantile(levels), d.cdf(value), d.mean, d.crps(value)], whole, strict=True):
        torch.testing.assert_close(got, want)
    with pytest.raises(ValueError, match="cannot be expanded to 4"):
        d.expand((2, 4))


def test_quantiles_of_far_forecasts_from_tables_are_those_of_the_densities():
    """What single precision says is as exact as single precision is, far out, too, and does not depend on others."""
    case = forecast()
    near, far, loc, width, weights = case.params
    single = case.make(near.float(), far.float(), loc, width, weights)
    exact = case.make(near.float().double(), far.float().double(), loc, width, weights)
    levels = torch.special.ndtr(torch.linspace(-4, 4, 73, dtype=torch.float64))
    with torch.no_grad():
        found = single.quantile(levels)
        asked = levels.float()[:, None, None]
        one_by_one = single.blocks[1]._icdf(asked.expand(-1, 2, 2))
        errors = [exact.blocks[1].cdf(x.double()) - asked.double() for x in (found[..., 1:], one_by_one)]
        from_tables, before = (float(error.abs().max()) for error in errors)
        assert from_tables < before < 4e-7
        spread = exact.quantile([0.25, 0.75]).diff(dim=0)
        assert ((found - exact.quantile(levels.float())).abs() / spread)[8:-8].max() < 1e-4
        torch.testing.assert_close(single.quantile(levels[20]), found[20], rtol=1e-12, atol=0)
        assert single.quantile([0.0, 1.0]).isinf().all()
