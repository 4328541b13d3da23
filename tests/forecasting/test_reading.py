"""Tables as a first user has them: which columns name the series, days without a sale, rows that share a moment."""

import functools

import numpy as np
import pandas as pd
import pytest

from fourier_head.forecasting.inputs import read_series

DAYS = pd.date_range("2024-01-01", periods=40)
RANDOM = np.random.default_rng(0)


def rows(columns, *keys, days=DAYS, values=None):
    """Return a long table: a row for every day and every combination of keys, with counts as values."""
    index = pd.MultiIndex.from_product([days.strftime("%Y-%m-%d"), *keys])
    table = index.to_frame(index=False, name=columns.split(",")[:-1])
    return table.assign(**{columns.split(",")[-1]: RANDOM.poisson(20, len(table)) if values is None else values})


# --- which columns name the series


@pytest.mark.parametrize(
    ("table", "names", "target", "count"),
    [
        (rows("date,store_id,units", [101, 102, 7]), ("store_id",), "units", 3),
        (rows("month,region,product,rev", ["n", "s"], ["tea", "milk", "soap"]), ("region", "product"), "rev", 6),
        (rows("date,store_nbr,family,sales", [1, 2], ["AUTO", "BOOKS"]), ("store_nbr", "family"), "sales", 4),
        (rows("Date,Store,Dept,Weekly_Sales", [1, 2], [5, 9]), ("Store", "Dept"), "Weekly_Sales", 4),
        (rows("day,outlet,pieces", [3, 5]).assign(weight=0.5), ("outlet",), None, 2),
        (rows("date,town,street,sold", ["x", "z"], ["a", "b"]), ("town", "street"), "sold", 4),
        (rows("date,sku,price,sold", ["p", "q"], [2.5]), ("sku",), "price", 2),
    ],
)
def test_names_are_the_fewest_columns_that_tell_rows_apart(table, names, target, count):
    table.insert(0, "id", np.arange(len(table)))  # as Kaggle numbers the rows
    target = {} if target else {"target": "pieces"}
    series = read_series(table.sample(frac=1, random_state=0), **target)
    assert series.columns.names == names
    assert len(series) == count
    assert {len(one) for one in series.values} == {len(DAYS)}
    assert not any(np.isnan(one).any() for one in series.values)
    assert "id" in series.ignored


def test_attributes_of_a_series_are_no_part_of_its_name():
    table = rows("date,store,units", ["a", "b", "c"])
    table["state"] = table["store"].map({"a": "x", "b": "x", "c": "z"})
    table["holiday"] = table["date"] < "2024-01-07"
    series = read_series(table)
    assert series.columns.names == ("store",)
    assert series.ignored == ("state", "holiday")
    assert "columns not used: 'state', 'holiday'." in series.notes


def test_one_store_is_named_and_never_forecast():
    series = read_series(rows("date,store_id,units", [17]))
    assert (series.names, series.target) == ([17], "units")


def test_row_numbers_of_one_series_are_no_names():
    table = rows("date,units").assign(id=np.arange(40))
    assert read_series(table).names == ["units"]


def test_a_row_that_is_there_twice_makes_no_name_of_the_weather():
    for table in (rows("date,units"), rows("date,store,units", ["a", "b"])):
        weather = np.where(np.arange(len(table)) % 3, "rain", "sun")
        twice = pd.concat([table.assign(weather=weather, promo=0), table[:1].assign(weather="snow", promo=1)])
        with pytest.raises(ValueError, match="has several values at 2024-01-01"):
            read_series(twice)
        series = read_series(twice, aggregate="mean")
        assert series.columns.names == tuple(set(table) & {"store"})


def test_guesses_are_arguments_that_say_the_same():
    table = rows("date,region,product,rev", ["n", "s"], ["tea", "milk"])
    series = read_series(table)
    assert series.guessed == {"target": "rev", "time": "date", "id": ["region", "product"], "freq": "D"}
    again = read_series(table, **series.guessed)
    assert again.guessed == {}
    np.testing.assert_array_equal(again.values, series.values)
    assert read_series(table, id="product", aggregate="sum").names == ["tea", "milk"]


def test_years_and_weeks_are_dates_but_no_column_to_name():
    table = pd.DataFrame({"year": [2020] * 3 + [2021] * 2, "week": [51, 52, 53, 1, 2], "cases": range(5)})
    series = read_series(table)
    assert series.timing == "weekly, 2020-12-14 to 2021-01-11"
    assert "time" not in series.guessed


# --- steps without a row


def sales():
    """Return days with a sale of a part that sells often and of one that sells rarely."""
    often, rarely = DAYS[[0, 1, 2, 4, 5, 7, 8, 9, 39]], DAYS[[3, 14, 20]]
    parts = [pd.DataFrame({"date": days, "sku": sku, "qty": 2}) for sku, days in (("o", often), ("r", rarely))]
    return pd.concat(parts)


def test_days_without_a_sale_are_missing_unless_filled():
    series = read_series(sales())
    assert [one.freq for one in series.calendars] == ["D", "D"]
    assert np.isnan(series.values[0]).sum() == 31
    assert any("give fill=0" in note for note in series.notes)


def test_filled_series_end_together_and_begin_with_their_first_sale():
    series = read_series(sales(), fill=0)
    assert [len(one) for one in series.values] == [40, 37]
    assert [one.sum() for one in series.values] == [18, 6]
    assert series.future(0, 1) == series.future(1, 1) == np.datetime64("2024-02-10")
    assert series.notes == ["65 steps without a row (84%) are filled with 0."]
    with pytest.raises(ValueError, match=r"fill must .*got nan"):
        read_series(sales(), fill=np.nan)


@pytest.mark.parametrize(("freq", "end"), [("MS", "2024-06-01"), ("W", "2024-05-27"), ("B", "2024-06-03")])
def test_filling_goes_on_in_steps_of_the_calendar(freq, end):
    long, short = (pd.date_range("2024-01-01", end, freq="W-MON" if freq == "W" else freq)[:n] for n in (None, 3))
    table = pd.concat([pd.DataFrame({"date": days, "id": len(days), "y": 1.0}) for days in (long, short)])
    series = read_series(table, fill=0)
    assert series.last[0] == series.last[1] == np.datetime64(long[-1])
    assert series.values[1].tolist() == [1.0] * 3 + [0.0] * (len(long) - 3)


def test_values_that_are_given_as_missing_stay_missing():
    table = pd.DataFrame({"date": DAYS[[0, 1, 3]], "y": [1.0, np.nan, 2.0]})
    np.testing.assert_array_equal(read_series(table, fill=0).values[0], [1, np.nan, 0, 2])


def test_a_week_that_shifts_by_a_day_stays_a_week():
    days = pd.to_datetime(["2024-01-01", "2024-01-08", "2024-01-16", "2024-01-22", "2024-01-29"])
    assert read_series(pd.Series(range(5), index=days)).calendars[0].freq == "W"


def test_moments_that_are_not_exact_stay_on_their_steps():
    seconds = 60 * np.arange(50) + 18 * (np.arange(50) % 7 == 3)
    times = np.datetime64("2024-01-01", "s") + seconds.astype("timedelta64[s]")
    series = read_series(pd.Series(range(50), index=times))
    assert series.values[0].tolist() == list(range(50))
    assert series.timing.startswith("every minute")


@pytest.mark.parametrize(("freq", "seconds"), [("h", 60), ("D", 600), ("5min", 4)])
def test_moments_after_a_wait_have_the_steps_that_were_meant(freq, seconds):
    late = np.random.default_rng(0).integers(1, 1000 * seconds, 400)
    times = pd.date_range("2024-01-01 02:00", periods=400, freq=freq) + pd.to_timedelta(late, unit="ms")
    series = read_series(pd.Series(np.arange(400.0), index=times))
    assert (series.calendars[0].freq, len(series.values[0])) == (freq, 400)
    exact = pd.date_range("2024-01-01", periods=400, freq="3601s")
    assert read_series(pd.Series(np.arange(400.0), index=exact)).calendars[0].freq == "3601s"


def test_hours_with_a_sale_are_hours():
    hours = pd.date_range("2024-01-01", periods=60, freq="h")[[0, 1, 3, 8, 9, 12, 20, 22, 26, 27, 33, 40, 46, 59]]
    assert read_series(pd.Series(1.0, index=hours), fill=0).values[0].sum() == 14
    assert len(read_series(pd.Series(1.0, index=hours)).values[0]) == 60


# --- rows that share a moment


@pytest.mark.parametrize(("aggregate", "want"), [("sum", [3, 3, np.nan]), ("mean", [1.5, 3, np.nan])])
def test_rows_of_one_moment_are_put_together(aggregate, want):
    table = pd.DataFrame({"date": DAYS[[0, 0, 1, 2, 2]], "y": [1, 2, 3, np.nan, np.nan]})
    with pytest.raises(ValueError, match="several values at 2024-01-01"):
        read_series(table)
    series = read_series(table, aggregate=aggregate)
    np.testing.assert_array_equal(series.values[0], want)
    assert any(note.startswith("2 rows are") for note in series.notes)
    with pytest.raises(ValueError, match=r"aggregate must .*got 'max'"):
        read_series(table, aggregate="max")


def test_receipts_are_added_up_by_day():
    times = pd.date_range("2024-01-01 09:00", periods=60, freq="h").delete(range(20, 50))
    table = pd.DataFrame({"time": [*times, *times], "shop": ["a"] * 30 + ["b"] * 30, "euros": 1.0})
    series = read_series(table, freq="D", aggregate="sum", fill=0)
    np.testing.assert_array_equal(series.values, [[15, 5, 10]] * 2)
    assert str(series.future(0, 1)[0])[:16] == "2024-01-04T00:00"
    months = read_series(pd.Series(1.0, index=pd.date_range("2024-01-01", "2024-03-31")), freq="MS", aggregate="sum")
    assert months.values[0].tolist() == [31, 29, 31]
    assert str(months.future(0, 1)[0])[:10] == "2024-04-01"


@pytest.mark.parametrize(
    ("zone", "first", "freq", "twice"),
    [
        ("Europe/Berlin", "2024-10-20", "h", 1),
        ("America/New_York", "2024-10-28", "15min", 4),
        ("Australia/Sydney", "2024-04-01", "30min", 2),
    ],
)
def test_the_doubled_hour_of_autumn_is_one_hour(zone, first, freq, twice):
    """Local times without a zone: the day has 25 hours, of which two have one name."""
    start = pd.Timestamp(first, tz=zone)
    times = pd.date_range(start, start + pd.Timedelta("14D"), freq=freq)
    local = times.strftime("%Y-%m-%d %H:%M")
    table = pd.DataFrame({"time": [*local, *local], "meter": np.repeat([1, 2], len(local)), "load": 5.0})
    series = read_series(table)
    assert series.columns.names == ("meter",)
    assert [len(one) for one in series.values] == [len(times) - twice] * 2
    assert all((one == 5).all() for one in series.values)
    assert any(note.startswith(f"{2 * twice} values come a second time") for note in series.notes)
    wide = read_series(table[table["meter"] == 1].drop(columns="meter").assign(other=range(len(local))))
    assert wide.names == ["load"]


def test_an_hour_that_comes_twice_in_summer_is_a_mistake():
    times = pd.date_range("2024-07-01", periods=200, freq="h").insert(100, pd.Timestamp("2024-07-05 02:00"))
    with pytest.raises(ValueError, match="several values at 2024-07-05 02:00"):
        read_series(pd.DataFrame({"time": times, "load": 1.0}))


# --- numbers and dates in other spellings


def test_numbers_of_a_table_may_be_spelt_as_spreadsheets_do():
    table = pd.DataFrame({"date": DAYS[:4], "profit": ["$1,003.50", "(801.46)", "-", "14.1%"]})
    series = read_series(table)
    np.testing.assert_array_equal(series.values[0], [1003.5, -801.46, np.nan, 14.1])
    assert table["profit"].tolist() == ["$1,003.50", "(801.46)", "-", "14.1%"], "the table given stays as it is"


@pytest.mark.parametrize("value", [np.inf, -np.inf, "inf"])
def test_infinite_values_are_an_error(value):
    with pytest.raises(ValueError, match=r"the target 'y' must .*got -?inf in row 2"):
        read_series(pd.DataFrame({"date": DAYS[:3], "y": [1.0, value, 2.0]}))


@pytest.mark.parametrize(
    ("dates", "timing"),
    [
        (["2020-W52", "2020-W53", "2021-W01"], "weekly, 2020-12-21 to 2021-01-04"),
        (["2021W9", "2021W10", "2021W11"], "weekly, 2021-03-01 to 2021-03-15"),
        (["Q3 2023", "Q4 2023", "Q1 2024"], "quarterly, 2023-07-01 to 2024-01-01"),
        (["2023-Q3", "2023-Q4", "2024-Q1"], "quarterly, 2023-07-01 to 2024-01-01"),
        (["2023Q3", "2023Q4", "2024Q1"], "quarterly, 2023-07-01 to 2024-01-01"),
        (["Sept. 2023", "Oct. 2023", "Nov. 2023"], "monthly, 2023-09-01 to 2023-11-01"),
    ],
)
def test_weeks_quarters_and_months_are_dates(dates, timing):
    assert read_series(pd.DataFrame({"when": dates, "y": [1.0, 2.0, 3.0]})).timing == timing


def test_days_written_as_one_number_are_dates_whatever_their_column_is_called():
    table = pd.DataFrame({"fecha": [20240130, 20240131, 20240201], "ventas": [1, 2, 3], "order_no": [20240001] * 3})
    series = read_series(table)
    assert (series.timing, series.names) == ("daily, 2024-01-30 to 2024-02-01", [20240001])


def test_blank_rows_are_left_out_where_there_are_dates():
    blank = pd.DataFrame({"date": [None], "shop": [None], "y": [None]})
    table = rows("date,shop,y", ["a", "b"])
    series = read_series(pd.concat([table[:9], blank, table[9:], blank], ignore_index=True))
    assert series.names == ["a", "b"]
    assert len(read_series(pd.DataFrame({"y": [1.0, np.nan, 3.0]})).values[0]) == 3


# --- the command


@pytest.fixture
def run(run):
    return functools.partial(run, "--horizon", 3, "--charts", 1)


def test_the_command_says_what_it_guessed_ignored_and_filled(run, tmp_path):
    table = rows("date,store_nbr,family,sales", [1, 2], ["AUTO", "BOOKS"]).assign(promo=0)
    table.insert(0, "id", np.arange(len(table)))
    table[table["sales"] > 18].to_csv("d.csv", index=False)
    result = run("d.csv")
    assert result.exit_code == 0, result.output
    assert "target 'sales', time 'date', id 'store_nbr,family', frequency D; name others with" in result.stderr
    assert "columns not used: 'id', 'promo'." in result.stderr
    assert "give --fill 0." in result.stderr
    result = run("d.csv", "--fill", 0, "--id", "store_nbr,family")
    assert "steps without a row" in result.stderr
    assert "--fill 0" in (tmp_path / "forecast-d" / "index.html").read_text()
    out = pd.read_csv(tmp_path / "forecast-d" / "forecasts.csv")
    assert out.groupby(["store_nbr", "family"])["date"].first().nunique() == 1, "all begin after the last day"


def test_the_command_says_how_to_put_rows_together(run):
    pd.concat([rows("date,shop,sold", ["a", "b"])] * 2).to_csv("d.csv", index=False)
    assert "add them up with --aggregate sum, take their mean with --aggregate mean" in run("d.csv").stderr
    result = run("d.csv", "--aggregate", "sum")
    assert result.exit_code == 0, result.output
    assert "80 rows are added to others of the same series and step" in result.stderr
    assert "--aggregate must be one of sum, mean, got max" in run("d.csv", "--aggregate", "max").stderr
    assert "--fill must be a finite number, got inf" in run("d.csv", "--fill", "inf").stderr


def test_the_command_reads_under_a_preamble_and_says_so(run, tmp_path):
    lines = rows("date,shop,sold", ["a", "b"]).to_csv(index=False)
    (tmp_path / "d.csv").write_text("Sales report\nRegion:,North,\n\n" + lines)
    result = run("d.csv")
    assert result.exit_code == 0, result.output
    assert "2 lines are skipped before the names of the columns." in result.stderr
    assert "2 series (daily, 2024-01-01 to 2024-02-09)" in result.stdout


def test_the_command_takes_names_of_columns_with_commas_as_it_says_them(run):
    table = rows("date,City; State,store,sold", ["Reno, NV", "Austin, TX"], [1, 2])
    table.columns = ["date", "City, State", "store ", "sold"]
    table.to_csv("d.csv", index=False)
    assert """id '"City, State",store', frequency D""" in run("d.csv").stderr
    for given in ('"City, State",store', 'store, "City, State"'):
        result = run("d.csv", "--id", given)
        assert "4 series" in result.stdout, result.output
    table.drop(columns="store ")[::2].to_csv("d.csv", index=False)
    assert "2 series" in run("d.csv", "--id", "City, State").stdout
    assert "there is no column 'Town'" in run("d.csv", "--id", "Town, State").stderr
