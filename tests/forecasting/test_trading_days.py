"""Months that follow the weekdays in them are told by the calendar, and others are left alone."""

import calendar

import numpy as np
import pandas as pd
import pytest

from fourier_head.forecasting import trading_days
from fourier_head.forecasting.anniversaries import easter
from fourier_head.forecasting.inputs import read_series
from fourier_head.forecasting.trading_days import EASTER, EVERY, WORKING, coefficients, counts, without_trading_days
from tests.forecasting.test_anniversaries import worth

SOLD = np.array([1.0, 1.0, 1.0, 1.0, 1.2, 1.6, 0.3])
"""What is sold on a day of the week, from Monday on."""


def months(count=180, end="2024-08"):
    return pd.period_range(end=end, periods=count, freq="M")


def sold_in(when):
    """Return what weekdays alone make of months, by another library's calendar."""
    grids = [np.array(calendar.Calendar().monthdayscalendar(one.year, one.month)) for one in when]
    return np.array([((grid > 0) * SOLD).sum() for grid in grids])


def made_up(when, noise=0.01, seed=0):
    phase = 2 * np.pi * np.arange(len(when)) / 12
    rest = np.random.default_rng(seed).normal(0, noise, len(when)).cumsum() / 3 + 0.2 * np.sin(phase)
    return sold_in(when) * np.exp(rest + np.random.default_rng(seed + 1).normal(0, noise, len(when)))


def series(values, when=None):
    index = (months(len(values[0])) if when is None else when).to_timestamp()
    return read_series(pd.DataFrame(np.asarray(values).T, index.rename("month")))


def test_counts_are_those_of_a_calendar():
    when = months(400)
    weekdays = [[day for at, day in calendar.Calendar().itermonthdays2(one.year, one.month) if at] for one in when]
    days = np.array([np.bincount(one, minlength=7) for one in weekdays])
    found = counts(np.datetime64("2024-08"), 400, 0)
    for month in range(12):
        rows = np.array([one.month == month + 1 for one in when])
        apart = (found[rows][:, EVERY] - days[rows]).round(9)
        assert (apart == apart[0]).all()  # the usual number of such a month
    length = found[:, EVERY].sum(1)
    np.testing.assert_allclose(found[:, WORKING[1]], length, atol=1e-9)
    assert {one.month for one, off in zip(when, length, strict=True) if abs(off) > 0.1} == {2}
    assert {one.month for one, felt in zip(when, found[:, EASTER[0]], strict=True) if felt} == {3, 4}


def test_easter_of_known_years():
    days = easter(np.array(["1961", "1999", "2008", "2011", "2038"], "datetime64[Y]"))
    assert [str(day) for day in days] == ["1961-04-02", "1999-04-04", "2008-03-23", "2011-04-24", "2038-04-25"]


@pytest.mark.parametrize("length", [72, 180])
def test_what_weekdays_do_is_found_and_goes_on(length):
    when = months(length + 24)
    values, factor, numbers = without_trading_days(series([made_up(when)[:length]], when[:length]), 24)
    assert numbers == [0]
    truth = pd.Series(np.log(sold_in(when)))
    effect = (truth - truth.groupby([one.month for one in when]).transform("mean")).to_numpy()
    np.testing.assert_allclose(np.log(factor[0]), effect[length:], atol=0.012)
    taken = np.log(made_up(when)[:length] / values[0])
    assert np.corrcoef(taken, effect[:length])[0, 1] > (0.9 if length < 100 else 0.98)


def test_months_before_easter_are_found():
    felt = counts(np.datetime64("2024-08"), 240, 0)[:, EASTER[0]]
    logs = np.random.default_rng(0).normal(0, 0.01, (240, 1)) + 0.08 * felt[:, None]
    found = coefficients(logs, np.datetime64("2024-08"))
    np.testing.assert_allclose(found[EASTER[0]], 0.08, atol=0.015)
    assert not found[: EASTER[0]].any()


@pytest.mark.parametrize("kind", ["noise", "walk", "season"])
def test_series_without_such_an_effect_are_left_alone(kind):
    random, t = np.random.default_rng(0), np.arange(144)
    x = random.normal(0, 0.05, (144, 400))
    x = {"noise": x, "walk": x.cumsum(0), "season": x + np.sin(2 * np.pi * t / 12)[:, None]}[kind]
    fired = coefficients(x, np.datetime64("2019-12")).any(0)
    assert fired.mean() < 0.05


@pytest.mark.parametrize("noise", [1, 300])
def test_no_month_is_doubled_by_its_weekdays(noise):
    wild = np.exp(np.random.default_rng(1).normal(0, noise, (1000, 72)).clip(-690, 690))
    assert coefficients(np.log(wild.T), np.datetime64("2024-08")).any()  # chance finds some
    values, factor, _ = without_trading_days(series(wild), 12)
    assert np.isfinite(values).all()
    assert factor is None or np.abs(np.log(factor)).max() <= np.log(2)


def test_outliers_and_gaps_do_little():
    when = months()
    values = made_up(when)
    plain = without_trading_days(series([values]), 12)[1]
    values[[40, 90]] *= [5, 0.2]
    values[[7, 100, 101]] = np.nan
    spoilt = without_trading_days(series([values]), 12)
    np.testing.assert_allclose(np.log(spoilt[1]), np.log(plain), atol=0.015)
    assert np.isnan(spoilt[0][0]).tolist() == np.isnan(values).tolist()


def test_other_series_are_as_they_were():
    values = made_up(months())
    for other in (
        read_series(values),  # no dates
        series([values[:59]]),  # less than five years
        series([np.where(np.arange(180) == 50, 0.0, values)]),
        series([np.where(np.arange(180) % 8 == 0, np.nan, values)]),  # too little of it is known
        read_series(pd.Series(values, pd.date_range("1990-03-31", periods=180, freq="QE"))),
        series([np.full(180, 7.0)]),
    ):
        found = without_trading_days(other, 6)
        assert found[0] is other.values
        assert found[1:] == (None, [])


def test_many_series_are_looked_at_some_at_a_time(monkeypatch):
    some = series([made_up(months(), seed=seed) for seed in range(5)])
    together = without_trading_days(some, 12)
    monkeypatch.setattr(trading_days, "AT_ONCE", 2 * trading_days.LONGEST)
    apart = without_trading_days(some, 12)
    assert together[2] == apart[2] == [0, 1, 2, 3, 4]
    np.testing.assert_allclose(together[1], apart[1], rtol=1e-12)
    np.testing.assert_allclose(together[0], apart[0], rtol=1e-12)


def test_what_is_taken_off_is_put_back(forecaster):
    when = months()
    noise = 30 + np.random.default_rng(0).normal(size=180)
    table = pd.DataFrame({"a": noise, "b": made_up(when)}, when.to_timestamp())
    forecasts = forecaster.predict(table, 18, natural=False)
    assert forecasts.rules.trading_days == [1]
    factor = forecasts.rules.factor
    assert (factor[0] == 1).all()
    levels = [0.05, 0.5, 0.95]
    rest = forecaster.predict(forecasts.rules.series, 18, natural=False, rules=False)
    np.testing.assert_allclose(forecasts.quantiles(levels), rest.quantiles(levels) * factor[..., None], rtol=1e-5)
    plain = forecaster.predict(table, 18, natural=False, rules=False)
    np.testing.assert_array_equal(plain.quantiles(levels)[0], forecasts.quantiles(levels)[0])
    whole = forecaster.predict(table.round(), 18)  # whole numbers stay whole, also after a factor
    assert (whole.quantiles(levels) % 1 == 0).all()
    assert forecaster.backtest(table, horizon=12, windows=3).words


def test_the_study_tells_what_they_are_worth(tmp_path, forecaster):
    days = pd.date_range("2008-01-01", "2024-08-31")
    random = np.random.default_rng(0)
    rows = [
        {"id": "shop", "start": months().to_timestamp()[0], "freq": "ME", "target": made_up(months())},
        {"id": "days", "start": days[0], "freq": "D", "target": SOLD[days.weekday] * random.normal(100, 5, len(days))},
        {"id": "weeks", "start": days[0], "freq": "W", "target": random.normal(100, 5, 500)},
    ]
    table = worth(tmp_path, forecaster, rows, "--months")
    assert table["series"].tolist() == [2, 2]
    assert table["windows"].tolist() == [10, 10]
    assert table["fired"].tolist() == [1.0, 1.0]
    assert (table["mae"] == table["fired_mae"]).all()
    assert (table["mae"] != 1).all()
    assert (table["low"][1:] <= table["wql"][1:]).all()
