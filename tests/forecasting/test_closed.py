"""Closed steps: Sundays and nights that never had a value stay empty, ordinary gaps are forecast."""

import warnings

import numpy as np
import pandas as pd
import pytest

from fourier_head.forecasting.inputs import read_series

YEAR = pd.date_range("2022-01-03", "2022-12-31")


def sales(days, seed=0):
    return pd.DataFrame({"date": days, "sold": np.random.default_rng(seed).poisson(50, len(days)).astype(float)})


def quietly(predict):
    with warnings.catch_warnings():
        warnings.filterwarnings("error", "no value ever was")
        return predict()


def test_sundays_without_a_row_stay_empty_and_add_nothing(forecaster):
    shop = sales(YEAR[YEAR.weekday < 6])
    with pytest.warns(UserWarning, match=r"as Sunday 2023-01-01: there 4 of 28 steps of 1 of 1 series are NaN"):
        found = forecaster.predict(shop, 28)
    without = quietly(lambda: forecaster.predict(shop, 28, rules=False))
    sundays = pd.DatetimeIndex(found.timestamps[0]).weekday == 6
    np.testing.assert_array_equal(found.closed[0], sundays)
    for name in ("median", "mean"):
        np.testing.assert_array_equal(np.isnan(getattr(found, name)[0]), sundays)
        np.testing.assert_array_equal(getattr(found, name)[0][~sundays], getattr(without, name)[0][~sundays])
        assert not np.isnan(getattr(without, name)).any()
    samples = found.samples(5)[0]
    assert np.isnan(samples[:, sundays]).all()
    assert not np.isnan(samples[:, ~sundays]).any()
    np.testing.assert_allclose(found.total().mean, np.nansum(found.mean))
    assert found.total().median < 0.95 * without.total().median
    weeks = found.total("W")
    np.testing.assert_allclose(weeks.mean.sum(), np.nansum(found.mean))
    assert weeks.median[0, 0] == 0  # a Sunday alone
    assert np.isnan(found.of(lambda path: path.max(-1)).median).all()
    assert np.isfinite(found.of(lambda path: np.nanmax(path, -1)).median).all()
    np.testing.assert_array_equal(np.isnan(found.cdf(40.0)[0]), sundays)
    assert found.to_frame()["0.5"].isna().sum() == 4
    assert found.rules.used == {"times of the week or day without any value left empty": 1}
    assert found.rules.closed == [0]
    assert any("never has a value; forecasts are empty there" in note for note in found.series.notes)
    assert not any("never has" in note for note in without.series.notes)


def test_filled_sundays_are_open(forecaster):
    found = quietly(lambda: forecaster.predict(sales(YEAR[YEAR.weekday < 6]), 28, fill=0))
    assert not found.closed.any()
    assert not np.isnan(found.median).any()


def test_nights_stay_empty():
    hours = pd.date_range("2022-01-03", "2022-02-13", freq="h")
    closed = (hours.hour < 8) | (hours.hour > 20) | (hours.weekday == 6)
    series = read_series(sales(hours[~closed]))
    ahead = pd.DatetimeIndex(series.future(0, 400))
    want = (ahead.hour < 8) | (ahead.hour > 20) | (ahead.weekday == 6)
    np.testing.assert_array_equal(series.closed_ahead(1, 400)[0], want)
    two_weeks = read_series(sales(hours[~closed][:180]))  # enough to know nights, not Sundays
    ahead = pd.DatetimeIndex(two_weeks.future(0, 400))
    np.testing.assert_array_equal(two_weeks.closed_ahead(1, 400)[0], (ahead.hour < 8) | (ahead.hour > 20))


def test_hours_are_those_of_local_clocks():
    hours = pd.date_range("2023-01-02", "2023-06-30", freq="30min", tz="America/New_York")
    series = read_series(sales(hours[(hours.weekday < 5) & (hours.hour > 8) & (hours.hour < 16)]))
    ahead = pd.DatetimeIndex(series.local(series.future(0, 400)))
    want = (ahead.weekday >= 5) | (ahead.hour <= 8) | (ahead.hour >= 16)
    np.testing.assert_array_equal(series.closed_ahead(1, 400)[0], want)


@pytest.mark.parametrize(
    "open_days",
    [
        YEAR,
        YEAR[YEAR.weekday < 5],  # working days have a calendar of their own
        YEAR[np.random.default_rng(0).random(len(YEAR)) < 0.5],
        YEAR[np.random.default_rng(0).random(len(YEAR)) < 0.1],
        YEAR[(YEAR.weekday < 6) | (YEAR.month == 12)],  # open on Sundays in December
        YEAR[YEAR.weekday < 6][:18],  # three weeks
        YEAR[(YEAR < "2022-03-01") | (YEAR > "2022-10-01")],
        YEAR[::7],
        pd.date_range("2010-01-01", periods=100, freq="MS")[np.arange(100) % 12 != 7],
    ],
)
def test_ordinary_gaps_are_forecast(forecaster, open_days):
    found = quietly(lambda: forecaster.predict(sales(open_days), 14))
    assert not found.closed.any()
    assert not np.isnan(found.median).any()


def test_working_days_may_be_closed_too():
    series = read_series(sales(YEAR[YEAR.weekday < 4]), freq="B")
    ahead = pd.DatetimeIndex(series.future(0, 20))
    np.testing.assert_array_equal(series.closed_ahead(1, 20)[0], ahead.weekday == 4)


def test_each_series_has_closed_steps_of_its_own(forecaster):
    closed, opened = (
        sales(days, seed).set_index("date")["sold"] for seed, days in enumerate((YEAR[YEAR.weekday < 6], YEAR))
    )
    wide = pd.DataFrame({"closed": closed, "open": opened})  # a row is there, a value is not
    with pytest.warns(UserWarning, match="2 of 14 steps of 1 of 2 series"):
        found = forecaster.predict(wide, 14)
    assert found.closed.sum(1).tolist() == [2, 0]
    assert found["open"].closed.sum() == 0
    assert found["closed"].closed.sum() == 2
    assert np.isfinite(found.total().mean).all()


def test_looking_back_takes_no_step_for_closed(forecaster):
    shop = sales([*YEAR[YEAR.weekday < 6], pd.Timestamp("2023-01-02")])
    result = quietly(lambda: forecaster.backtest(shop, 14))
    assert np.isfinite(result.overall["mase"])
    assert not np.isnan(result.forecasts.median).any()
    filled = quietly(lambda: forecaster.impute(shop))
    assert not filled["value"].isna().any()


def test_entries_of_data_sets_are_scored_at_every_step(forecaster):
    values = np.where(np.arange(100) % 7 == 6, np.nan, np.random.default_rng(0).normal(10, 1, 100))
    entry = {"start": pd.Period("2024-01-01", "D"), "target": values, "item_id": "a"}
    assert not np.isnan(quietly(lambda: forecaster.predict([entry], 14)).median).any()


def test_fans_of_closed_steps_are_lines(forecaster):
    plt = pytest.importorskip("matplotlib.pyplot")
    days = YEAR[np.isin(YEAR.weekday, (0, 2, 4))]
    with pytest.warns(UserWarning, match="no value ever was"):
        found = forecaster.predict(sales(days), 14)
    ax = found.plot()
    assert len(ax.lines[-1].get_ydata()) == (~found.closed).sum() < 14
    assert np.isfinite(ax.lines[-1].get_ydata()).all()
    plt.close("all")
