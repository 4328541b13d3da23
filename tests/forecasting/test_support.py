"""What values a series can take: bounds that were hit, rare demand and rare dips, launches and ends, nothing at all."""

import numpy as np
import pytest
import torch

from fourier_head.forecasting.rare import Rare
from fourier_head.forecasting.support import Support
from tests.forecasting.test_forecaster import tiny, walk

LEVELS = np.array([0.01, 0.1, 0.3, 0.5, 0.7, 0.9, 0.99])


def drawn(seed):
    return np.random.default_rng(seed)


def read(*series, period=1):
    """Return what is read off series of any length."""
    longest = max(map(len, series))
    pasts = np.stack([np.append(np.full(longest - len(one), np.nan), one) for one in series])
    support = Support.unknown(len(series))
    support.read(np.arange(len(series)), torch.from_numpy(pasts), torch.full((len(series),), period))
    return support


def sales(seed, rate, count=200):
    return np.where(drawn(seed).random(count) < rate, drawn(seed + 1).integers(1, 4, count), 0).astype(float)


# --- rare demand


@pytest.mark.parametrize("days", [5, 20, 50])
def test_a_product_just_launched_is_left_to_the_network(days):
    launched = [np.append(np.zeros(250), drawn(seed).poisson(20, days)) for seed in range(5)]
    assert not read(*launched).rare


def test_a_rare_product_is_judged_from_its_launch_on():
    since = sales(0, 0.15)
    support = read(np.append(np.zeros(400), since), np.append(np.zeros(400), since + 0.5 * (since > 0)))
    assert list(support.rare) == [0, 1]
    assert support.rare.jumps[0].mean == pytest.approx(since.mean(), rel=0.25)


def test_what_is_no_longer_sold_is_left_to_the_network():
    before = [sales(seed, 0.18) for seed in range(10)]
    assert not read(*(np.append(one, np.zeros(100)) for one in before)).rare
    assert list(read(*(np.append(one, np.zeros(3)) for one in before if (one == 0).mean() > 0.82)).rare)


@pytest.mark.parametrize("rate", [0.02, 0.05, 0.1])
def test_demand_that_goes_on_as_it_was_is_rare(rate):
    some = [one for one in (sales(seed, rate, 300) for seed in range(0, 200, 2)) if (one > 0).any()]
    support = read(*some)
    assert len(support.rare) >= 0.97 * len(some)
    assert np.mean([one.mean for one in support.rare.jumps.values()]) == pytest.approx(2 * rate, rel=0.1)


# --- rare dips


@pytest.mark.parametrize("top", [1.0, 100.0])
def test_rare_dips_are_rare_demand_turned_over(top):
    lost = np.where(sales(4, 0.1) > 0, (4 * drawn(2).gamma(2, 5, 200)).round() / 4 if top > 1 else 1.0, 0.0)
    up, down = (read(one).rare.jumps[0] for one in (top - lost, lost))
    np.testing.assert_allclose(up.quantiles(1 - LEVELS + 1e-6), top - down.quantiles(LEVELS))
    assert up.mean == pytest.approx(top - down.mean)
    x = top - lost[:20]
    np.testing.assert_allclose(up.below(x, "right"), 1 - down.below(top - x, "left"), atol=1e-12)
    middles = Rare({0: up}).levels(x[None], np.zeros((1, 20)))
    np.testing.assert_allclose(1 - middles, Rare({0: down}).levels(top - x[None], np.zeros((1, 20))), atol=1e-12)


def test_outages_that_last_or_come_with_the_season_are_left_to_the_network():
    random = drawn(0)
    lasting = 100 - np.repeat(np.isin(np.arange(30), [3, 11, 24]), 10) * random.gamma(2, 5, 300)
    sundays = 1.0 - (np.arange(300) % 7 == 6)
    gone = np.append(np.ones(280), np.zeros(20))
    assert not read(lasting, sundays, gone, period=7).rare
    assert list(read(sundays).rare) == [0]


# --- bounds


BOUNDED = {
    "ratings": (drawn(0).integers(1, 6, 200), (1, 5)),
    "yes or no": (drawn(1).integers(0, 2, 200), (-np.inf, 1)),  # zero is that of all that is never below it
    "shares": (drawn(2).normal(97, 2.5, 200).clip(0, 100), (-np.inf, 100)),
    "detection limit": (drawn(3).lognormal(0, 1, 200).clip(0.5), (0.5, np.inf)),
    "below zero": (drawn(4).integers(-2, 3, 200), (-2, 2)),
    "missing": (np.where(drawn(5).random(200) < 0.3, np.nan, drawn(6).integers(1, 6, 200)), (1, 5)),
    "counts": (drawn(7).poisson(3, 200), (-np.inf, np.inf)),
    "many counts": (drawn(8).poisson(100, 2000), (-np.inf, np.inf)),
    "tenths": (drawn(9).normal(20, 1, 2000).round(1), (-np.inf, np.inf)),
    "interest": (np.repeat([2.0, 1.0, 0.25, 2.0, 4.0, 5.25], 50), (-np.inf, np.inf)),
    "prices that rise": (np.repeat([9.0, 9.0, 10.0, 10.0], 30) - 2.0 * (drawn(1).random(120) < 0.3), (-np.inf, np.inf)),
    "constant": (np.full(50, 7.0), (-np.inf, np.inf)),
    "few": (np.array([1.0, 5, 1, 5, 1, 5]), (-np.inf, np.inf)),
}


@pytest.mark.parametrize("name", BOUNDED)
def test_what_was_hit_again_and_again_is_a_bound(name):
    values, expected = BOUNDED[name]
    np.testing.assert_array_equal(read(values.astype(float)).bounds[:, 0], expected)


def test_counts_seldom_have_bounds():
    pasts = [drawn(seed).poisson(rate, 200).astype(float) for rate in (0.5, 1, 2, 5) for seed in range(50)]
    assert np.isfinite(read(*pasts).bounds).any(0).mean() < 0.03


def test_forecasts_keep_to_bounds_wherever_they_are_asked():
    names = ["ratings", "yes or no", "shares", "counts"]
    data = {name: BOUNDED[name][0].astype(float) for name in names}
    free, held = (tiny().predict(data, 20, freq="D", natural=natural) for natural in (False, True))
    assert (free.quantiles(0.999)[:3] > [[5], [1], [100]]).any()
    most, least = np.array([5, 1, 100, np.inf])[:, None], np.array([1, 0, 0, 0])[:, None]
    assert held.rules.bounds == [0, 1, 2]
    assert held.rules.used == {"bounds that were hit again and again": 3}
    assert free.rules.used == {}
    for found in (held.quantiles(0.001), held.quantiles(0.999), held.mean):
        assert ((found >= least) & (found <= most)).all()
    for paths in (held.samples(50), held.of(lambda path: path.max(-1)).samples):
        flat = paths.reshape(4, -1)
        assert ((flat >= least) & (flat <= most)).all()
    assert (held.total().quantiles([0.999])[:3, 0] <= 20 * most[:3, 0]).all()
    np.testing.assert_array_equal(held.cdf(most[:3].max())[0], 1.0)
    np.testing.assert_array_equal(held.cdf(0.9)[0], 0.0)
    np.testing.assert_array_equal(held["shares"].cdf(100.0), 1.0)
    np.testing.assert_array_equal(held["counts"].quantiles(LEVELS), free["counts"].quantiles(LEVELS).round().clip(0))
    # A value at the bound stands for all that the density has beyond it.
    at, beneath = held["shares"].normal_scores([[100.0]]), held["shares"].normal_scores([[99.99]])
    assert (at > beneath + 0.01).all()
    many = held.samples(4000, torch.Generator().manual_seed(0), joint=False)
    for value in (1.0, 3.0, 97.0):
        np.testing.assert_allclose(held.cdf(value), (many <= value).mean(1), atol=0.04)


def test_gaps_and_anomalies_keep_to_bounds_too():
    random = drawn(0)
    shares = random.normal(97, 2.5, 120).clip(0, 100)
    gap = shares.copy()
    gap[60:70] = np.nan
    filled, free = (tiny().impute(gap, natural=natural) for natural in (True, False))
    assert filled["high"].max() == 100 < free["high"].max()
    assert filled.attrs == free.attrs
    assert tiny().anomalies(shares, last=40)["high"].max() == 100


def test_a_series_of_nothing_has_no_mean():
    data = {"a": walk(30), "b": np.full(30, np.nan)}
    with pytest.warns(UserWarning, match="1 of 2 series hold no value at all"):
        forecasts = tiny().predict(data, 5, freq="D")
    assert np.isnan(forecasts.mean).tolist() == [[False] * 5, [True] * 5]
    assert np.isnan(forecasts.total().mean).tolist() == [False, True]
    assert forecasts.to_frame().groupby("id")["mean"].sum()["b"] == 0


def test_free_forecasts_know_nothing_of_it():
    up = 1 - (drawn(0).random(100) < 0.05)
    forecasts = tiny().predict([up.astype(float), BOUNDED["ratings"][0]], 5, freq="D", natural=False)
    assert not forecasts.support.rare
    assert not np.isfinite(forecasts.support.bounds).any()
    assert forecasts.rules.used == {}
