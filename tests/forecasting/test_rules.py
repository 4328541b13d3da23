"""Rules beside the network: what a first user tries first must come out right whatever the weights say."""

import json
import warnings

import numpy as np
import pytest
import torch
from studies.first_user.study import Settings, cases, run

from fourier_head.forecasting.inputs import read_series
from fourier_head.forecasting.patch.multiscale import MultiscaleConfig
from fourier_head.forecasting.rules import apply_rules, profile_of, without_absurd
from fourier_head.forecasting.support import Support
from tests.forecasting.test_forecaster import CONFIG, walk

LEVELS = [0.05, 0.5, 0.9, 0.95, 0.99]


def test_one_absurd_value_counts_as_missing(forecaster):
    usual = np.random.default_rng(0).normal(100, 3, 60)
    missing = forecaster.predict(np.append(usual, np.nan), 6, freq="D", natural=False)
    for end in (1000.0, -800.0):
        forecasts = forecaster.predict(np.append(usual, end), 6, freq="D", natural=False)
        assert forecasts.rules.absurd == [0]
        np.testing.assert_array_equal(forecasts.quantiles(LEVELS), missing.quantiles(LEVELS))
    plain = forecaster.predict(np.append(usual, 1000.0), 6, freq="D", rules=False)
    assert plain.rules is None
    assert not np.allclose(plain.median, missing.median)


@pytest.mark.parametrize(
    "past",
    [
        np.append(np.zeros(40), 5.0),  # the first sale
        np.append(walk(60), [300.0, 310.0]),  # a new level
        2.0 ** np.arange(30),  # growth
        np.append(np.full(50, 7.0), 90.0),  # a constant says nothing of what is usual
        np.append(np.random.default_rng(0).normal(100, 3, 8), 1000.0),  # too few to tell
    ],
)
def test_values_that_may_well_be_are_kept(past):
    context = torch.from_numpy(past)[None]
    kept, which = without_absurd(context)
    assert not which.any()
    torch.testing.assert_close(kept, context)


def test_rare_demand_has_its_rate_and_its_sizes(forecaster):
    rng = np.random.default_rng(0)
    sold = (rng.random((40, 64)) < 0.05) * rng.integers(1, 4, (40, 64)).astype(float)
    forecasts = forecaster.predict(sold, 3, freq="D")
    assert forecasts.mean.mean() == pytest.approx(sold.mean(), rel=0.1)
    assert not forecaster.predict(sold, 3, freq="D", natural=False).support.rare
    few = forecaster.predict(sold[:4], 3, freq="D")
    some = next(iter(few.support.rare))
    seen = {0.0, *np.unique(sold[some])}
    quantiles = few.quantiles(LEVELS)[some]
    np.testing.assert_array_equal(quantiles, forecasts.quantiles(LEVELS)[some])
    assert (np.diff(quantiles, axis=-1) >= 0).all()
    assert set(quantiles.ravel()) <= seen
    drawn = few.samples(500, torch.Generator().manual_seed(0), joint=False)[some]
    assert set(drawn.ravel()) <= seen
    assert drawn.mean() == pytest.approx(few.mean[some].mean(), rel=0.4)
    total = few.total(paths=4000)
    assert total.samples[some].mean() == pytest.approx(total.mean[some], rel=0.2)
    scores = few.normal_scores(np.tile([0.0, 2.0, np.nan], (4, 1)))
    assert scores[some, 0] < 0.1 < 1.2 < scores[some, 1]
    assert np.isnan(scores[some, 2])


@pytest.mark.parametrize(
    ("period", "season", "when"), [(7, 7, [5]), (24, 24, [18, 19, 20]), (24, 168, [150, 151]), (12, 12, [11])]
)
def test_what_comes_with_the_season_is_not_rare(period, season, when):
    count = 6 * season
    sold = np.where(np.isin(np.arange(count) % season, when), np.random.default_rng(0).poisson(20, count), 0.0)
    anywhen = np.random.default_rng(1).permutation(sold)
    pasts = np.full((3, count + 5), np.nan)
    pasts[:, 5:] = [sold, anywhen, sold]
    pasts[0, [9, 30]] = np.nan
    support = Support.unknown(3)
    support.read(np.arange(3), torch.from_numpy(pasts), torch.tensor([period, period, 1]))
    assert list(support.rare) == [1, 2]


def test_rare_amounts_are_demand_unless_they_last_like_rain():
    rng = np.random.default_rng(0)
    paid = (rng.random(200) < 0.1) * rng.lognormal(2, 1, 200).round(2)
    rain = np.repeat(np.isin(np.arange(100) % 20, [3, 11]), 2) * rng.lognormal(2, 1, 200).round(2)
    support = Support.unknown(4)
    support.read(np.arange(4), torch.from_numpy(np.stack([paid, rain, rain.round(), paid - 1])))
    assert list(support.rare) == [0, 2]
    assert support.rare.mean(np.zeros((4, 1)))[0, 0] == pytest.approx(paid.mean(), rel=0.3)


def test_a_forecaster_tells_the_season_to_what_looks_for_rare_demand(forecaster):
    saturdays = np.where(np.arange(63) % 7 == 5, 9.0, 0.0)
    assert not forecaster.predict(saturdays, 3, freq="D").support.rare
    assert forecaster.predict(saturdays, 3).support.rare  # a season is told by the frequency alone


def test_many_small_counts_are_left_to_the_network(forecaster):
    counts = np.random.default_rng(0).poisson(0.7, (3, 60)).astype(float)
    assert not forecaster.predict(counts, 5, freq="D").support.rare


def test_a_season_that_the_network_cannot_read_comes_back(forecaster):
    # The network reads 64 values; the week of hours has 168.
    t = np.arange(168 * 5 + 48)
    week = -40.0 * (t // 24 % 7 > 4)
    past = 100 + week + np.random.default_rng(0).normal(0, 1, len(t))
    forecasts = forecaster.predict(past[: 168 * 5], 48, freq="h", natural=False)
    assert forecasts.rules.profile == [0]
    profile = forecasts.rules.shift[0]
    np.testing.assert_allclose(profile - profile.mean(), week[168 * 5 :] - week[168 * 5 :].mean(), atol=3)
    rest = forecaster.predict(forecasts.rules.series, 48, natural=False, rules=False)
    np.testing.assert_allclose(forecasts.quantiles(LEVELS), rest.quantiles(LEVELS) + profile[:, None], rtol=1e-6)


def test_noise_has_no_season():
    rng = np.random.default_rng(0)
    assert profile_of(rng.normal(size=168 * 4), 168, 24) is None
    assert profile_of(rng.normal(size=168 * 4).cumsum(), 168, 24) is None
    assert profile_of(rng.normal(size=200), 168, 24) is None


def test_a_season_that_nobody_sees_is_said_once(forecaster):
    noise = np.random.default_rng(0).normal(size=(2, 1500))
    with pytest.warns(UserWarning, match="season of 1,440 steps that 2 of 2") as said:
        forecaster.predict(noise, 4, freq="min")
    assert len(said) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        forecaster.predict(noise[:, :300], 4, freq="D")


def test_the_day_of_seconds_is_longer_than_any_network_reads():
    second = np.arange(86400 * 2 + 7200)
    level = 10 + 5 * np.sin(2 * np.pi * second / 86400) + np.random.default_rng(0).normal(size=len(second))
    two, one = (apply_rules(read_series(level[first:], freq="s"), 3600, MultiscaleConfig()) for first in (0, 86400))
    assert two.profile == [0]
    assert two.words(10240) is None
    ahead = 5 * np.sin(2 * np.pi * (second[-1] + np.arange(1, 3601)) / 86400)
    assert np.corrcoef(two.shift[0], ahead)[0, 1] > 0.9
    assert "less than the season of 86,400 steps" in one.words(10240)


def test_a_short_line_goes_on_as_far_as_it_was_seen():
    found = apply_rules(read_series([[1.0, 2.0, 3.0], [3.0, 1.0, 2.0], [5.0, 5.0, 5.0]]), 5, CONFIG)
    assert found.line == [0]
    np.testing.assert_allclose(found.series.values[0], 3.0)
    np.testing.assert_allclose(found.shift[0], [1, 2, 3, 3, 3])
    assert not found.shift[1:].any()


def test_a_season_that_the_network_reads_is_left_to_it_unless_it_is_clear():
    week = np.tile(np.repeat([0.0, 0.0, 0.0, 0.0, 0.0, 7.0, 7.0], 24), 5)
    noisy = week + np.random.default_rng(0).normal(0, 1.5, len(week))
    for config, profiles in ((CONFIG, [0, 1]), (MultiscaleConfig(), [0])):
        assert apply_rules(read_series([week, noisy], freq="h"), 24, config).profile == profiles
    # Two cycles show a season, but not how regular it is.
    assert apply_rules(read_series([week[: 2 * 168]], freq="h"), 24, MultiscaleConfig()).profile == []


def test_a_clear_week_is_forecast_nearly_to_its_noise(shipped):
    hour = np.arange(24 * 7 * 6 + 48)
    level = 50 + 20 * np.sin(2 * np.pi * hour / 24) + 15 * (hour // 24 % 7 >= 5)
    past, future = np.split(level + np.random.default_rng(0).normal(size=len(hour)), [-48])
    forecasts = shipped.predict(past, 48, freq="h")
    assert abs(forecasts.median[0] - future).mean() < 1.2  # of noise alone 0.8; Monday follows on a Sunday


def test_the_study_of_a_first_user(tmp_path, forecaster, monkeypatch):
    few = [case for case in cases(1) if case.outcomes.shape[1] <= 28]
    monkeypatch.setattr("studies.first_user.study.cases", lambda count: few)
    forecaster.save_pretrained(tmp_path / "tiny")
    run(Settings(output=tmp_path / "out", model=str(tmp_path / "tiny"), device="cpu", quick=True))
    rows = json.loads((tmp_path / "out" / "summary.json").read_text())["rows"]
    found = {(row["dataset"], row["protocol"]): row["ours"] for row in rows}
    assert {name for name, _ in found} == {case.name for case in few}
    assert found["last value an outlier", "as it is"] < 110
    assert found["1, 2, 3", "as it is"] < 0.5
    for name in ("one to five stars", "shares up to 100 %"):
        # This network reads 64 values, which do not always tell.
        assert found[name, "as it is"] < found[name, "without rules"] / 2
    assert found["up on 95 % of days", "as it is"] == pytest.approx(0.95, abs=0.03)
