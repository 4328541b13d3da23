"""Covariates: promotions, words and holidays, used where past windows gain by them and left alone elsewhere."""

import warnings
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest

from fourier_head.forecasting.covariates import read_covariates
from fourier_head.forecasting.effects import split
from fourier_head.forecasting.inputs import read_series
from tests.forecasting.test_forecaster import tiny, walk


def shops(count=2, days=200, horizon=14, effect=0.8, seed=0):
    """Return past, future and what the future brings: weekly sales, with promotions that lift them."""
    rng, rows, truth = np.random.default_rng(seed), [], []
    for shop in range(count):
        promo = rng.random(days + horizon) < 0.15
        sold = 60 + 10 * np.sin(2 * np.pi * np.arange(days + horizon) / 7) + rng.normal(0, 2, days + horizon)
        sold = sold * (1 + effect * promo)
        table = pd.DataFrame({"shop": f"s{shop}", "day": pd.date_range("2023-01-02", periods=days + horizon)})
        rows.append(table.assign(promo=np.where(promo, "sale", "none"), junk=rng.normal(size=len(sold)), sold=sold))
        truth.append(sold[-horizon:])
    past = pd.concat([one[:days] for one in rows], ignore_index=True)
    return past, pd.concat([one[days:] for one in rows], ignore_index=True).drop(columns="sold"), np.array(truth)


def test_known_promotions_halve_the_error(shipped):
    past, future, truth = shops()
    without = shipped.predict(past[["shop", "day", "sold"]], 14)
    forecasts = shipped.predict(past, 14, future=future, id="shop")
    assert (np.abs(forecasts.median - truth).mean(1) < 0.5 * np.abs(without.median - truth).mean(1)).all()
    assert "none" not in forecasts.effects.ways
    low, high = np.moveaxis(forecasts.quantiles([0.05, 0.95]), -1, 0)
    assert ((low <= truth) & (truth <= high)).mean() > 0.6
    assert forecasts.total().quantiles([0.1, 0.9]).shape == (2, 2)


def test_covariates_that_say_nothing_change_nothing(shipped):
    past, future, _ = shops(effect=0.0)
    without = shipped.predict(past[["shop", "day", "sold"]], 14)
    forecasts = shipped.predict(past, 14, future=future, id="shop", covariates=["junk"])
    assert forecasts.effects.ways == ["none", "none"]
    np.testing.assert_array_equal(forecasts.median, without.median)


def test_an_effect_is_taken_out_and_put_back_exactly():
    rng = np.random.default_rng(0)
    x = (rng.random((150, 1)) < 0.2).astype(float)
    y = 50 + rng.normal(0, 0.1, 150)
    for way, seen in (("added", y + 8 * x[:, 0]), ("per cent", y * 1.5 ** x[:, 0])):
        rest, factor, shift = split(seen[:140], x, way, period=7)
        level = rest.mean()
        assert rest.std() < 0.1 * seen.std()
        np.testing.assert_allclose(factor * level + shift, seen[140:], rtol=0.02)
    below = split(y[:140] - 60, x, "per cent", 7)
    np.testing.assert_array_equal(below[0], y[:140] - 60)  # what is below zero has no per cent


def test_columns_are_read_on_the_grid_of_their_series():
    past, future, _ = shops(days=30, horizon=5)
    past = past.drop(index=[3])  # a missing day
    series = read_series(past, id="shop", time="day", target="sold")
    names, values = read_covariates(series, 5, past, future)
    assert names == ("promo=sale", "junk")
    assert [one.shape for one in values] == [(35, 2), (35, 2)]
    assert np.isnan(values[0][3]).all()
    junk = future.loc[future["shop"] == "s1", "junk"]
    np.testing.assert_allclose(values[1][30:, 1], junk)
    _, delayed = read_covariates(series, 5, past, columns=["junk"])
    np.testing.assert_allclose(delayed[1][30:, 0], past.loc[past["shop"] == "s1", "junk"][-5:])


def test_the_target_is_the_column_that_the_future_lacks_and_one_series_needs_no_name():
    past, future, truth = shops(count=1)
    forecasts = tiny().predict(past.drop(columns=["shop", "junk"]), 14, future=future.drop(columns=["shop", "junk"]))
    assert forecasts.series.target == "sold"
    assert forecasts.median.shape == truth.shape


def test_an_empty_column_of_the_future_may_be_the_target():
    past, future, _ = shops(count=1)
    past, future = past.assign(visitors=1.0 * np.arange(200)), future.assign(sold=np.nan)
    assert tiny().predict(past.drop(columns="shop"), 14, future=future.drop(columns="shop")).series.target == "sold"


@pytest.mark.parametrize("kinds", [(bool, int), (int, bool), (object, int), ("boolean", float)])
def test_true_and_one_are_the_same(kinds):
    past, future, _ = shops(count=1)
    both = past, future = [one.assign(promo=one["promo"] == "sale") for one in (past, future)]
    series = read_series(past, id="shop", target="sold")
    usual, mixed = (
        read_covariates(series, 14, *(one.astype({"promo": kind}) for one, kind in zip(both, some, strict=True)))
        for some in ((int, int), kinds)
    )
    assert mixed[0] == usual[0]
    np.testing.assert_array_equal(mixed[1], usual[1])


def test_words_that_the_past_never_had_are_told():
    past, future, _ = shops()
    series = read_series(past, id="shop", target="sold")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        read_covariates(series, 14, past, future)
    with pytest.warns(UserWarning, match="the past never had 'Sale', which the future has in 'promo'"):
        read_covariates(series, 14, past, future.replace({"promo": {"sale": "Sale"}}))


def test_holidays_of_a_country():
    pytest.importorskip("holidays")
    table = pd.DataFrame({"day": pd.date_range("2021-01-01", periods=1000), "v": walk(1000)})
    series = read_series(table)
    names, values = read_covariates(series, 120, table, holidays="DE")
    christmas = int((np.datetime64("2021-12-25") - np.datetime64("2021-01-01")).astype(int))
    # That day, in the language that the package chooses, and what holidays have in common.
    place, shared = np.flatnonzero(values[0][christmas])
    assert names[shared] == "holiday"
    days = np.datetime64("2021-01-01") + np.flatnonzero(values[0][:, place])
    assert [str(day) for day in days] == ["2021-12-25", "2022-12-25", "2023-12-25"]
    assert "day before a holiday" in names
    with pytest.raises(ValueError, match="country"):
        read_covariates(series, 120, table, holidays="XX")


SPELT = {
    "index": lambda one: one.set_index("day"),
    "index of text": lambda one: one.set_axis(one["day"].astype(str)).drop(columns="day"),
    "periods": lambda one: one.set_index("day").to_period("D"),
    "day and hour": lambda one: one.assign(date=one["day"].astype(str), hour=0).drop(columns="day"),
    "text": lambda one: one.assign(day=one["day"].dt.strftime("%d.%m.%Y")),
    "money": lambda one: one.assign(junk=[f"${float(x) + 9:.12f}" for x in one["junk"]]),
    "decimals": lambda one: one.assign(junk=[Decimal(f"{float(x) + 9:.12f}") for x in one["junk"]]),
}


@pytest.mark.parametrize("spelling", SPELT)
def test_tables_may_spell_times_and_numbers_as_they_like(spelling):
    past, future, _ = (one if isinstance(one, np.ndarray) else one.drop(columns="shop") for one in shops(1, 40))
    want = read_covariates(read_series(past, target="sold"), 14, past, future)
    moved = 9 if spelling in ("money", "decimals") else 0
    spelt = SPELT[spelling](past)
    series = read_series(spelt, target="sold")
    for ahead in (SPELT[spelling](future), SPELT[spelling](pd.concat([past[-3:], future])).drop(columns="sold")):
        names, values = read_covariates(series, 14, spelt, ahead)
        assert names == want[0]
        np.testing.assert_allclose(values[0] - [0, moved], want[1][0], atol=1e-9)


def test_dates_of_the_future_may_be_text_where_those_of_the_past_are_not():
    past, future, _ = shops(days=40)
    series = read_series(past, target="sold", id="shop")
    want = read_covariates(series, 14, past, future)[1]
    for known, ahead in ((past, SPELT["text"](future)), (SPELT["text"](past), future)):
        np.testing.assert_array_equal(read_covariates(series, 14, known, ahead)[1], want)


def test_a_future_with_some_steps_missing_is_told_and_used_columns_are_not_called_unused():
    past, future, _ = shops(days=40)
    with pytest.warns(UserWarning, match="no row for 2 of the 14 steps of 1 of 2 series"):
        forecasts = tiny().predict(past, 14, future=future[:-2], id="shop", target="sold", covariates=["promo"])
    assert forecasts.series.ignored == ("junk",)


def test_rows_of_the_data_after_its_last_value_are_the_future():
    past, future, _ = shops(days=60)
    junk = future["junk"].where(future["shop"] == "none")  # known of the past alone
    both, settings = pd.concat([past, future.assign(junk=junk)], ignore_index=True), {"id": "shop", "target": "sold"}
    want = tiny().predict(past, 14, future=future.drop(columns="junk"), covariates=["promo", "junk"], **settings)
    found = tiny().predict(both, 14, covariates=["promo", "junk"], **settings)
    np.testing.assert_array_equal(found.median, want.median)
    assert "with 'promo' known" in found.series.notes[-1]
    # A column that is blank where there is no promotion is so in the future, too.
    blank = both.assign(promo=both["promo"].where(both["promo"] == "sale"))
    assert blank["promo"][120:].notna().any()
    np.testing.assert_array_equal(
        tiny().predict(blank, 14, covariates=["promo"], **settings).effects.shift,
        tiny().predict(past, 14, future=future, covariates=["promo"], **settings).effects.shift,
    )


def test_too_few_rows_after_the_last_value_are_no_future_and_this_is_told():
    past, future, _ = shops(days=60)
    both = pd.concat([past, future[:-3]], ignore_index=True)
    with pytest.warns(UserWarning, match="'promo', 'junk' of only 11 of the 14 steps to come of 1 of 2 series"):
        tiny().predict(both, 14, id="shop", target="sold", covariates=["promo", "junk"])
    series = read_series(both, id="shop", target="sold")
    with pytest.warns(UserWarning, match="'junk' of only 11 of the 14 steps to come of 1 of 2 series"):
        _, values = read_covariates(series, 14, both, columns=["junk"])
    ahead, before = (one.groupby("shop")["junk"].apply(list) for one in (future, past))
    np.testing.assert_allclose([one[-14:, 0] for one in values], [ahead["s0"], before["s1"][-14:]])
    both = pd.concat([past, future[future["shop"] == "s0"]], ignore_index=True)
    with pytest.warns(UserWarning, match="of only 0 of the 14 steps to come of 1 of 2 series"):
        read_covariates(read_series(both, id="shop", target="sold"), 14, both, columns=["junk"])


def test_names_of_the_future_may_be_text_where_those_of_the_past_are_numbers():
    past, future, _ = shops(days=40)
    past, future = (one.assign(shop=one["shop"].str[1:].astype(int)) for one in (past, future))
    series = read_series(past, target="sold", id="shop")
    want = read_covariates(series, 14, past, future)[1]
    np.testing.assert_array_equal(read_covariates(series, 14, past, future.astype({"shop": str}))[1], want)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"covariates": ["price"]}, "no column 'price'"),
        ({"future": "drop day"}, "must have the column 'day'"),
        ({"future": 3}, "DataFrame"),
        ({"future": "drop junk, promo"}, "no covariates"),
        ({"future": lambda one: one[one["shop"] == "s0"]}, "no row for series 's1' from 2023-02-11 to 2023-02-24"),
        ({"future": lambda one: one.assign(day=one["day"] + pd.Timedelta(days=30))}, "no row for series 's0'"),
        ({"future": lambda one: one.assign(junk="hot")}, "column 'junk' of the future must hold numbers, got 'hot'"),
        ({"future": lambda one: pd.concat([one, one])}, "series 's0' has several values at 2023-02-11"),
        ({"future": lambda one: one.assign(day=one["day"].dt.tz_localize("UTC"))}, "future must have no time zone"),
        ({"future": lambda one: one.assign(junk=np.inf)}, "'junk' of the future must hold finite numbers, got inf"),
    ],
)
def test_what_is_wrong_is_said(change, message):
    past, future, _ = shops(days=40)
    if str(change.get("future", "")).startswith("drop"):
        change = {"future": future.drop(columns=change["future"].removeprefix("drop ").split(", "))}
    if callable(change.get("future")):
        change = {"future": change["future"](future)}
    with pytest.raises(ValueError, match=message):
        tiny().predict(past, 14, **{"future": future, "id": "shop", "time": "day", "target": "sold", **change})
