"""What happens every year on a day of the calendar comes back on that day, and nothing else does."""

import numpy as np
import pandas as pd
import pytest
from studies.zero_shot.anniversaries import main

from fourier_head.forecasting.anniversaries import NONE, effects_of, labels_of, without_anniversaries
from fourier_head.forecasting.inputs import read_series

WEEK = np.array([0.0, 5.0, 10.0, 5.0, 0.0, -20.0, -30.0])


pytestmark = pytest.mark.filterwarnings("ignore:the network reads")


def days(end="2024-11-14", count=1770):
    return np.datetime64(end) - np.arange(count)[::-1]


def holidays(when):
    """Tell which days are Christmas, the fourth of July, Thanksgiving or Good Friday."""
    fixed = np.isin([str(day)[5:] for day in when], ["12-25", "07-04"])
    month, weekday = when.astype("datetime64[M]"), (when.astype(int) + 3) % 7
    thanksgiving = (month.astype(int) % 12 == 10) & (weekday == 3) & ((when - month).astype(int) // 7 == 3)
    friday = ["2020-04-10", "2021-04-02", "2022-04-15", "2023-04-07", "2024-03-29", "2025-04-18"]
    return fixed | thanksgiving | np.isin(when, np.array(friday, "datetime64[D]"))


def made_up(when, effect=-60.0, noise=3.0, seed=0):
    level = 100 + WEEK[(when.astype(int) + 3) % 7] + effect * holidays(when)
    return level + np.random.default_rng(seed).normal(0, noise, len(when))


def series(values, when, **settings):
    return read_series(pd.Series(values, pd.DatetimeIndex(when)), **settings)


def test_labels_of_days():
    def same(*dates):
        one, other = labels_of(np.array(dates, "datetime64[D]")).T
        return (one == other).tolist()

    assert same("2024-12-25", "2023-12-25") == [True, False, False, True]  # of no weekday, and far from Easter
    assert same("2024-02-29", "2020-02-29")[0]
    assert same("2024-03-01", "2023-03-01")[0]  # a leap day moves no date
    assert same("2024-05-27", "2023-05-29")[2]  # the last Monday of May
    assert same("2024-03-29", "2023-04-07")[3]  # Good Friday
    assert same("1969-07-04", "2030-07-04")[0]
    every = labels_of(np.arange("1960-01-01", "2060-01-01", dtype="datetime64[D]"))
    assert every.min() == 0
    assert every.max() == NONE


def test_holidays_come_back_on_their_days():
    ahead = 365
    when = days(count=1770 + ahead, end=str(days()[-1] + np.timedelta64(ahead, "D")))
    known, future = when[:1770], when[1770:]
    effect = effects_of(made_up(known), known[-1], ahead)
    on = holidays(when)
    np.testing.assert_allclose(effect[on], -60, atol=8)
    assert np.count_nonzero(effect[~on]) <= 8
    assert np.abs(effect[~on]).max() < 12
    assert holidays(future).sum() == 4


def test_a_holiday_may_be_like_a_sunday():
    when = days(count=1770 + 365, end="2025-11-14")
    values = made_up(when, effect=0.0)
    values[holidays(when)] = 20.0
    effect = effects_of(values[:1770], when[1769], 365)
    expected = np.where(holidays(when), 20 - 100 - WEEK[(when.astype(int) + 3) % 7], 0)
    np.testing.assert_allclose(effect[holidays(when)], expected[holidays(when)], atol=8)


def test_a_december_seen_twice_is_one_run_of_dates():
    when = days(count=1048 + 56, end=str(days()[-1] + np.timedelta64(56, "D")))
    december = when.astype("datetime64[M]").astype(int) % 12 == 11
    values = made_up(when, effect=0.0) + 60 * december
    effect = effects_of(values[:1048], when[1047], 56)
    np.testing.assert_allclose(effect[-56:], 60 * december[-56:], atol=20)
    assert np.abs(effect[-56:] - 60 * december[-56:]).mean() < 6


@pytest.mark.parametrize("kind", ["noise", "week", "walk", "rare", "constant", "missing", "season"])
def test_nothing_is_found_where_nothing_is(kind):
    random, when = np.random.default_rng(0), days()
    values = {
        "noise": random.standard_t(3, len(when)),
        "week": made_up(when, effect=0.0),
        "walk": random.normal(size=len(when)).cumsum(),
        "rare": (random.random(len(when)) < 0.1) * 1.0,
        "constant": np.full(len(when), 7.0),
        "missing": np.full(len(when), np.nan),
        "season": 100 + 20 * np.sin(2 * np.pi * when.astype(int) / 365.25) + random.normal(size=len(when)),
    }[kind]
    assert effects_of(values, when[-1], 28) is None


def test_what_happened_once_is_no_anniversary():
    when = days()
    values = made_up(when, effect=0.0)
    values[[400, 700, 1100, 1500]] = 10.0
    assert effects_of(values, when[-1], 28) is None


def test_only_dated_series_of_days_long_enough_are_looked_at():
    when, horizon = days(), 60
    values = made_up(when)
    assert without_anniversaries(series(values, when), horizon)[2] == [0]
    for other in (
        read_series([values], freq="D"),  # no dates
        read_series([values]),  # numbered steps
        series(values[-700:], when[-700:]),  # less than two years
        read_series(pd.Series(values, pd.date_range("2020-01-01", periods=len(values), freq="h"))),
        read_series(pd.Series(values, pd.bdate_range("2015-01-01", periods=len(values)))),
    ):
        found = without_anniversaries(other, horizon)
        assert found[0] is other.values
        assert found[1:] == (None, [])


def test_what_is_taken_off_is_put_back(forecaster):
    when = days()
    pair = pd.DataFrame({"usual": made_up(when, effect=0.0), "closed": made_up(when)}, pd.DatetimeIndex(when))
    forecasts = forecaster.predict(pair, 45, natural=False)
    assert forecasts.rules.anniversaries == [1]
    shift = forecasts.rules.shift
    assert not shift[0].any()
    ahead = when[-1] + np.arange(1, 46)
    np.testing.assert_allclose(shift[1][holidays(ahead)], -60, atol=8)
    rest = forecaster.predict(forecasts.rules.series, 45, natural=False, rules=False)
    levels = [0.05, 0.5, 0.95]
    np.testing.assert_allclose(forecasts.quantiles(levels), rest.quantiles(levels) + shift[..., None], rtol=1e-6)
    removed = pair["closed"].to_numpy() - forecasts.rules.series.values[1]
    np.testing.assert_allclose(removed[holidays(when)], -60, atol=8)
    plain = forecaster.predict(pair, 45, natural=False, rules=False)
    np.testing.assert_array_equal(plain.quantiles(levels)[0], forecasts.quantiles(levels)[0])
    assert (forecaster.predict(pair["closed"].clip(lower=0), 45).quantiles(levels) >= 0).all()


def test_missing_days_and_time_zones():
    when, random = days(), np.random.default_rng(1)
    values = made_up(when)
    values[random.random(len(when)) < 0.2] = np.nan
    values[600:640] = np.nan
    effect = effects_of(values, when[-1], 60)
    ahead = when[-1] + np.arange(1, 61)
    np.testing.assert_allclose(effect[-60:][holidays(ahead)], -60, atol=12)
    assert np.isfinite(effect).all()
    # A day begins at five in the morning of Greenwich here: its date is the local one.
    index = pd.DatetimeIndex(when).tz_localize("Etc/GMT+5")
    zoned = read_series(pd.Series(made_up(when), index))
    np.testing.assert_allclose(
        without_anniversaries(zoned, 60)[1], without_anniversaries(series(made_up(when), when), 60)[1]
    )


def test_looking_back_and_filling_in_go_on(forecaster):
    when = days()
    values = made_up(when)
    frame = pd.DataFrame({"date": when, "sold": values})
    assert forecaster.backtest(frame, horizon=28, windows=3).words
    assert len(forecaster.anomalies(frame, last=20, steps=8)) == 20
    frame.loc[[500, 1000], "sold"] = np.nan
    assert forecaster.impute(frame)["value"].notna().all()


def worth(folder, forecaster, rows, *options):
    """Return the table of the study of a rule on some series."""
    pd.DataFrame(rows).to_parquet(folder / "shops.parquet")
    model = forecaster.save_pretrained(folder / "tiny")
    main([str(folder / "shops.parquet"), *options, "--model", str(model), "--output", str(folder / "out.csv")])
    return pd.read_csv(folder / "out.csv")


def test_the_study_tells_what_they_are_worth(tmp_path, forecaster):
    when = days()
    rows = [
        {"id": f"{number}", "start": when[0].astype("datetime64[ns]"), "freq": "D", "target": values}
        for number, values in enumerate([made_up(when), made_up(when, effect=0.0), made_up(when)[:500]])
    ]
    table = worth(tmp_path, forecaster, rows)
    assert table["set"].tolist() == ["shops", "mean"]
    assert table["fired"].tolist() == [0.5, 0.5]
    assert table["windows"].tolist() == [26, 26]
    assert (table["fired_mae"] < table["mae"]).all()
    assert (table["mae"] < 1).all()
