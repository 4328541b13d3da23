"""Reading series: tables with guessed columns, dates in many spellings, gaps, frequencies, GluonTS."""

import warnings

import numpy as np
import pandas as pd
import pytest
import torch

from fourier_head.forecasting.calendars import Calendar
from fourier_head.forecasting.dates import DateWarning, read_timestamps
from fourier_head.forecasting.inputs import read_series

DATES = pd.date_range("2023-01-31", periods=6, freq="ME")


def long(**more):
    frame = pd.DataFrame({"item_id": ["a"] * 6 + ["b"] * 6, "timestamp": [*DATES, *DATES], "target": range(12)})
    return frame.assign(**more)


# --- which column is which


@pytest.mark.parametrize(
    ("columns", "given", "want"),
    [
        ({"id": ["a", "b"], "date": ["2024-01-01"] * 2, "y": [1, 2]}, {}, (("id",), "date", ("y",))),
        ({"Date": ["2024-01-01", "2024-01-02"], "Sales": [1, 2]}, {}, ((), "Date", ("Sales",))),
        ({"when": ["2024-01-01", "2024-01-02"], "litres": [1, 2]}, {}, ((), "when", ("litres",))),
        ({"day": ["2024-01-01"] * 2, "shop": ["x", "z"], "sold": [1, 2]}, {}, (("shop",), "day", ("sold",))),
        ({"ds": ["2024-01-01", "2024-01-02"], "a": [1, 2], "b": [3, 4]}, {}, ((), "ds", ("a", "b"))),
        ({"year": [2020, 2021], "value": [1.0, 2.0]}, {}, ((), "year", ("value",))),
        ({"date": ["2024-01-01", "2024-01-02"], "forecast": [1, 2], "actual": [3, 4]}, {}, ((), "date", ("actual",))),
        ({"value": [1.0, 2.0]}, {}, ((), None, ("value",))),
        (
            {
                "LAST UPDATE": ["2024-05-17"] * 2,
                "TIME_PERIOD": ["2024-01", "2024-02"],
                "OBS_VALUE": [1, 2],
                "n": [1, 2],
            },
            {},
            ((), "TIME_PERIOD", ("OBS_VALUE",)),
        ),
        (
            {"id": ["a", "b"], "t": ["2024-01-01"] * 2, "p": [1, 2], "q": [1, 2]},
            {"target": "q"},
            (("id",), "t", ("q",)),
        ),
        (
            {"date": ["2024-01-01"] * 2, "shop": ["x", "z"], "town": ["u", "v"], "sold": [1, 2]},
            {"id": ["shop", "town"]},
            (("shop", "town"), "date", ("sold",)),
        ),
    ],
)
def test_columns_are_guessed(columns, given, want):
    assert read_series(pd.DataFrame(columns), freq="D", **given).columns == want


@pytest.mark.parametrize(
    ("frame", "settings", "message"),
    [
        (pd.DataFrame({"time": ["2024-01-01"], "note": ["x"]}), {}, "no numeric column"),
        (long(), {"target": "targt"}, "there is no column 'targt'; did you mean target?"),
        (long(target=["x"] * 12), {"target": "target"}, "must hold numbers, got 'x' in row 1"),
        (long(target=["n/a", "$1,005.5", "12 closed", *range(9)]), {"target": "target"}, "got '12 closed' in row 3"),
        (long(timestamp=["2024-01-01", "soon"] * 6), {}, "must hold dates, got 'soon' in row 2"),
        (long(timestamp=[DATES[0], *DATES[:5]] * 2), {}, "series 'a' has several values at 2023-01-31"),
        (long(other=1.0).rename(columns={"target": "p"}), {}, "several columns hold numbers"),
        (pd.DataFrame({"date": ["2024-01-01"], "y": [1.0]}), {}, "cannot be told from one value"),
        (long(timestamp=pd.date_range("2024-01-01", periods=6).tolist() * 2), {"freq": "ME"}, "two values in one step"),
    ],
)
def test_bad_tables_get_one_sentence(frame, settings, message):
    with pytest.raises(ValueError, match=message) as error:
        read_series(frame, **settings)
    assert "\n" not in str(error.value)


# --- dates


@pytest.mark.parametrize(
    "spelling",
    [
        ["2024-01-31", "2024-02-29", "2024-03-31"],
        ["31.01.2024", "29.02.2024", "31.03.2024"],
        ["31/01/2024", "29/02/2024", "31/03/2024"],
        ["01/31/2024", "02/29/2024", "03/31/2024"],
        [20240131, 20240229, 20240331],
        ["Jan 31, 2024", "Feb 29, 2024", "Mar 31, 2024"],
    ],
)
def test_dates_are_read_in_their_spellings(spelling):
    times, *_ = read_timestamps(pd.Series(spelling, name="date"))
    assert times.astype("datetime64[D]").astype(str).tolist() == ["2024-01-31", "2024-02-29", "2024-03-31"]


def test_quarters_and_months_are_dates():
    assert str(read_timestamps(pd.Series(["2024Q1", "2024Q2"]))[0][1])[:10] == "2024-04-01"
    assert str(read_timestamps(pd.Series([202401, 202402], name="month"))[0][1])[:10] == "2024-02-01"


def test_days_stay_days_when_clocks_change():
    frame = pd.DataFrame({"time": pd.date_range("2024-03-25", periods=12, tz="Europe/Berlin"), "y": range(12)})
    series = read_series(frame)
    assert series.calendars[0].freq == "D"
    assert len(series.values[0]) == 12
    assert str(series.future(0, 1)[0])[:16] == "2024-04-06T00:00"
    hours = pd.DataFrame(
        {"time": pd.date_range("2024-10-26", periods=60, freq="h", tz="Europe/Berlin"), "y": range(60)}
    )
    assert len(read_series(hours).values[0]) == 60
    pyarrow = pytest.importorskip("pyarrow")
    arrow = frame.astype({"time": pd.ArrowDtype(pyarrow.timestamp("us", tz="Europe/Berlin"))})
    assert read_series(arrow).timing == series.timing


# --- grids


@pytest.mark.parametrize(
    ("freq", "first", "period"),
    [
        ("15min", "2024-01-01", 96),
        ("h", "2024-01-01", 24),
        ("D", "2024-02-20", 7),
        ("B", "2024-02-20", 5),
        ("W-SUN", "2024-01-07", 52),
        ("MS", "2023-11-01", 12),
        ("ME", "2023-11-30", 12),
        ("SMS", "2023-11-01", 24),
        ("SME", "2023-11-15", 24),
        ("SME", "2024-01-31", 24),
        ("QS", "2023-10-01", 4),
        ("QE", "2023-12-31", 4),
        ("YE", "2000-12-31", 1),
        ("YS", "2000-01-01", 1),
        ("3h", "2024-01-01", 8),
        ("100ms", "2024-01-01", 1),
        ("30D", "2024-01-01", 1),
        ("2ME", "2023-01-31", 6),
        ("6MS", "2012-01-01", 2),
        ("2YS", "1990-01-01", 1),
        ("BME", "2021-01-29", 12),
        ("BMS", "2021-01-01", 12),
        ("BQE", "2016-03-31", 4),
        ("BYE", "2000-12-29", 1),
    ],
)
def test_what_comes_next_is_what_pandas_says(freq, first, period):
    dates = pd.date_range(first, periods=30, freq=freq)
    series = read_series(pd.Series(np.arange(20.0), index=dates[:20]))
    assert len(series.values[0]) == 20
    assert series.periods[0] == period
    assert series.future(0, 10).tolist() == dates[20:].to_numpy().astype("datetime64[ns]").tolist()
    assert series.past(0, 5).tolist() == dates[15:20].to_numpy().astype("datetime64[ns]").tolist()


def test_months_of_whole_weeks_are_no_frequency_and_a_weekday_of_each_month_is():
    weeks = np.cumsum([0, *[4, 4, 5] * 8])
    times = np.datetime64("2023-02-04", "ns") + weeks.astype("timedelta64[W]")
    with pytest.warns(DateWarning, match="4 and 5 weeks apart, as no frequency has it"):
        read_series(pd.Series(1.0, index=times))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fridays = pd.date_range("2022-01-01", periods=36, freq="WOM-1FRI")
        assert read_series(pd.Series(1.0, index=fridays)).timing.startswith("monthly")
    for freq in ("SME-10", "SMS-20"):
        with pytest.raises(ValueError, match="freq must be a pandas frequency"):
            Calendar.of(freq)


def test_a_set_of_series_is_shown_in_one_line():
    series = read_series(np.zeros((1000, 300)), freq="D")
    assert repr(series) == str(series) == "SeriesSet(1,000 series, daily, no dates)"


def test_days_in_the_middle_of_a_month_stay_there():
    dates = pd.to_datetime(["2024-01-15", "2024-02-15", "2024-03-15", "2024-04-15"])
    assert str(read_series(pd.Series([1.0, 2, 3, 4], index=dates)).future(0, 1)[0])[:10] == "2024-05-15"


def test_the_thirtieth_is_the_last_day_of_february_and_comes_back():
    dates = pd.to_datetime(["2023-11-30", "2023-12-30", "2024-01-30", "2024-02-29"])
    series = read_series({"a": pd.Series(range(4), index=dates), "b": pd.Series([1.0], index=dates[:1])})
    assert series.future(0, 2).astype("datetime64[D]").astype(str).tolist() == ["2024-03-30", "2024-04-30"]
    # One value on the last day of a month: its months end there.
    assert series.future(1, 2).astype("datetime64[D]").astype(str).tolist() == ["2023-12-31", "2024-01-31"]


def test_an_offset_of_pandas_is_a_frequency():
    assert read_series([1.0, 2.0], freq=pd.offsets.QuarterEnd()).periods.tolist() == [4]


def test_dates_beyond_nanoseconds_are_refused_or_missing_never_others():
    old = pd.Series(range(3), index=np.array(["1600-01-01", "1601-01-01", "1602-01-01"], dtype="datetime64[s]"))
    with pytest.raises(ValueError, match="got 1600-01-01 in row 1"):
        read_series(old)
    ahead = read_series(pd.Series(range(3), index=pd.date_range("2257", periods=3, freq="YS"))).future(0, 4)
    assert np.isnat(ahead).tolist() == [False, False, True, True]
    years = read_series([{"start": pd.Period("1750", "Y"), "target": np.arange(800.0)}])
    assert len(years.values[0]) == 800
    assert not years.timed
    assert read_series([{"start": pd.Period("1500", "Y"), "target": [1.0]}]).calendars[0].freq.startswith(("Y", "A"))


def test_missing_moments_become_missing_values_and_order_does_not_matter():
    dates = pd.date_range("2024-01-01", periods=10)
    kept = [9, 0, 1, 2, 4, 5, 6, 8]
    values = read_series(pd.DataFrame({"date": dates[kept], "y": np.array(kept, float)})).values[0]
    np.testing.assert_array_equal(values, [0, 1, 2, np.nan, 4, 5, 6, np.nan, 8, 9])


def test_a_series_of_one_value_has_the_frequency_of_the_others():
    frame = pd.concat([long(), pd.DataFrame({"item_id": ["c"], "timestamp": [DATES[3]], "target": [1.0]})])
    series = read_series(frame)
    assert series.names == ["a", "b", "c"]
    assert series.calendars[2] == series.calendars[0]


@pytest.mark.parametrize("freq", ["h", "30min", "D", "B", "W", "ME", "QE", "YE", "10min"])
def test_a_dozen_timestamps_tell_their_frequency(freq):
    stamps = pd.date_range("2021-03-01", periods=12, freq=freq).to_numpy("datetime64[ns]")
    assert Calendar.fitting(stamps).freq == freq
    assert Calendar.fitting(stamps[:1]) is None


def test_holidays_do_not_make_working_days_days():
    dates = pd.bdate_range("2024-01-01", periods=60).delete([7, 20])
    assert Calendar.fitting(dates.to_numpy().astype("datetime64[ns]")).freq == "B"


def test_two_missing_days_do_not_make_days_working_days():
    dates = pd.date_range("2024-01-01", periods=20).delete([3, 4])
    values = read_series(pd.Series(np.arange(18.0), index=dates)).values[0]
    assert np.flatnonzero(np.isnan(values)).tolist() == [3, 4]


# --- other forms


def test_arrays_lists_and_dictionaries():
    assert len(read_series([1, 2, None])) == 1
    assert len(read_series(np.zeros((3, 5)))) == 3
    assert len(read_series(torch.arange(5.0))) == 1
    series = read_series({"x": torch.arange(5.0), "y": pd.Series([1.0, 2.0])}, freq="h")
    assert series.names == ["x", "y"]
    assert series.periods.tolist() == [24, 24]
    assert not series.timed
    assert read_series(series) is series


def test_arrays_read_together_are_what_each_is_alone():
    """Numbers of every type, infinite and missing ones, series without a value; those given stay as they are."""
    kinds = ("f2", "f4", ">f8", "longdouble", "i1", "u8", "?")
    given = [np.array([1, 0, 1], dtype=kind) for kind in kinds] + [np.array([np.inf, 2, np.nan, -np.inf]), np.empty(0)]
    series = read_series(given, freq="ME")
    assert series.names == list(range(len(given)))
    assert series.periods.tolist() == [12] * len(given)
    assert not series.timed
    for one, values in zip(given, series.values, strict=True):
        np.testing.assert_array_equal(values, read_series([one.tolist()]).values[0])
        assert values.dtype == np.float64
        assert not np.shares_memory(values, one)
    assert np.isinf(given[-2]).sum() == 2
    named = read_series({"x": given[0], None: given[-2], 7: given[1]})
    assert (named.names, len(named.values[1])) == (["x", 1, 7], 4)
    np.testing.assert_array_equal(read_series(np.array([[1, np.inf], [3, 4]])).values, [[1, np.nan], [3, 4]])
    np.testing.assert_array_equal(read_series(torch.tensor([[1, 2], [3, 4]])).values, [[1, 2], [3, 4]])


@pytest.mark.parametrize(
    ("odd", "message"),
    [
        (np.array(["a", "b"]), "series '1' must hold numbers"),
        (np.array([1j]), "series '1' must hold numbers, got complex128"),
        (np.array(["2024-01-01"], dtype="M8[D]"), "series '1' must hold numbers, got datetime64"),
        (np.ones((2, 2)), r"series '1' must have one dimension, got shape \(2, 2\)"),
    ],
)
def test_one_odd_array_among_others_is_named(odd, message):
    with pytest.raises(ValueError, match=message):
        read_series([np.arange(3.0), odd])


def test_one_masked_array_among_others_keeps_its_mask():
    values = read_series([np.arange(3.0), np.ma.masked_equal([1, -9, 3], -9), np.ones((1, 2))]).values
    np.testing.assert_array_equal(values[1], [1, np.nan, 3])
    np.testing.assert_array_equal(values[2], [1, 1])


def test_missing_numbers_are_missing_in_every_spelling():
    want = [1, np.nan, 3]
    for data in ([1, pd.NA, 3], [want], np.ma.masked_equal([1, -9, 3], -9), pd.array([1, None, 3], dtype="Int64")):
        np.testing.assert_array_equal(read_series(data).values, [want])
    halves = [torch.tensor(1.0, dtype=torch.bfloat16), torch.tensor(2.5)]
    np.testing.assert_array_equal(read_series(halves).values, [[1, 2.5]])
    np.testing.assert_array_equal(read_series(torch.ones(2, dtype=torch.bfloat16)).values, [[1, 1]])


def test_categories_without_rows_are_no_series():
    frame = long()
    frame["item_id"] = pd.Categorical(frame["item_id"], ["a", "b", "sold out"])
    series = read_series(frame)
    assert series.names == ["a", "b"]
    assert series.timed


def test_an_index_of_names_and_dates_counts_in_a_series_and_without_names():
    indexed = long().set_index(["item_id", "timestamp"])
    for data in (indexed["target"], indexed["target"].rename(None), indexed.rename_axis([None, None])):
        series = read_series(data)
        assert series.names == ["a", "b"]
        assert series.calendars[0].freq == "ME"


def test_tables_made_from_dataframe_are_dataframes():
    class Table(pd.DataFrame):
        pass

    assert read_series(Table(long())).names == ["a", "b"]


def test_a_table_without_dates_counts_steps():
    series = read_series(pd.DataFrame({"id": ["a", "a", "b"], "value": [1.0, 2.0, 3.0]}))
    assert [len(v) for v in series.values] == [2, 1]


def test_a_wide_table_has_a_series_in_every_column():
    frame = pd.DataFrame({"north": range(6), "south": range(6)}, index=DATES)
    series = read_series(frame)
    assert series.names == ["north", "south"]
    assert series.calendars[0].freq == "ME"


def test_columns_of_several_names_have_one():
    names = pd.MultiIndex.from_product([["Close", "High"], ["AAPL"]])
    one = pd.DataFrame(np.arange(12.0).reshape(6, 2), pd.Index(DATES, name="Date"), names)
    both = pd.concat([one, one.rename(columns={"AAPL": "MSFT"}) + 100], axis=1)
    for table in (one, one.reset_index()):
        assert read_series(table).columns == ((), "Date", ("Close",))
        for target in ("High", ("High", "AAPL")):
            assert read_series(table, target=target).values[0].tolist() == [1, 3, 5, 7, 9, 11]
    for table in (both, both.reset_index()):
        series = read_series(table, target="High")
        assert (series.names, [float(one[0]) for one in series.values]) == (["AAPL", "MSFT"], [1, 101])
        assert read_series(table, target=("Close", "MSFT")).values[0][0] == 100
        with pytest.raises(ValueError, match="there is no column 'Low'"):
            read_series(table, target="Low")


def test_periods_are_their_own_calendar():
    series = read_series(pd.Series(range(8), index=pd.period_range("2020Q1", periods=8, freq="Q")))
    assert series.periods[0] == 4
    assert str(series.future(0, 1)[0])[:10] == "2022-01-01"


def test_the_frame_comes_back_with_the_columns_it_had():
    from tests.forecasting.test_forecaster import tiny

    frame = pd.DataFrame({"shop": [1] * 6 + [2] * 6, "town": ["u"] * 12, "day": [*DATES, *DATES], "sold": range(12)})
    out = tiny().predict(frame, 2, id=["shop", "town"]).to_frame([0.1, 0.9])
    assert list(out.columns) == ["shop", "town", "day", "mean", "0.1", "0.9"]
    assert out["shop"].tolist() == [1, 1, 2, 2]
    assert out["day"].astype(str).tolist() == ["2023-07-31", "2023-08-31"] * 2
    assert (out["0.1"] < out["0.9"]).all()


def test_gluonts_entries():
    pytest.importorskip("gluonts")
    from gluonts.dataset.common import ListDataset

    entries = [{"start": "2024-01-01", "target": [1.0, 2.0, np.nan], "item_id": "a"}]
    series = read_series(ListDataset(entries, freq="h"))
    assert series.names == ["a"]
    assert series.periods.tolist() == [24]
    assert str(series.future(0, 1)[0])[:13] == "2024-01-01T03"
