"""Dates as people write them: which reading is meant, what is refused, and where they may stand in a table."""

import warnings

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from fourier_head.forecasting.dates import DateWarning, read_timestamps
from fourier_head.forecasting.inputs import read_series
from fourier_head.forecasting.series_set import label

MONTHS = pd.date_range("2016-01-01", periods=30, freq="MS")
VALUES = np.arange(30.0)


def month_table(dates, name="date"):
    return pd.DataFrame({name: dates, "sales": VALUES})


def check_months(series):
    assert len(series) == 1
    assert series.timing == "monthly, 2016-01-01 to 2018-06-01"
    assert series.periods[0] == 12
    np.testing.assert_array_equal(series.values[0], VALUES)


# --- day or month first


@pytest.mark.parametrize("form", ["%d/%m/%Y", "%d-%m-%Y", "%d/%m/%y", "%m/%d/%Y", "%m-%d-%Y", "%d/%m/%Y %H:%M"])
def test_first_days_of_months_are_months_whichever_number_comes_first(form):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_months(read_series(month_table(MONTHS.strftime(form))))


@pytest.mark.parametrize(
    "names",
    [
        "Januar Februar März April Mai Juni Juli August September Oktober November Dezember",
        "Jän. Feb. Mrz. Apr. Mai Jun. Jul. Aug. Sept. Okt. Nov. Dez.",
        "janvier février mars avril mai juin juillet août septembre octobre novembre décembre",
        "janv. févr. mars avr. mai juin juil. aout sept. oct. nov. dec.",
        "enero febrero marzo abril mayo junio julio agosto septiembre octubre noviembre diciembre",
        "ENE FEB MAR ABR MAY JUN JUL AGO SET OCT NOV DIC",
    ],
)
@pytest.mark.parametrize("form", ["{m} {y}", "1. {m} {y}", "1 de {m} de {y}", "{y} {m}", "1-{m}-{y}"])
def test_names_of_months_are_read_in_four_languages(names, form):
    dates = [form.format(m=names.split()[day.month - 1], y=day.year) for day in MONTHS]
    check_months(read_series(month_table(dates)))


def test_a_word_that_is_a_month_elsewhere_stays_a_name():
    frame = pd.DataFrame({"product": ["Mars 1", "Mars 2"] * 30, "date": MONTHS.repeat(2), "sales": 1.0})
    assert read_series(frame).names == ["Mars 1", "Mars 2"]


def test_weeks_may_be_written_as_one_number():
    weeks = pd.date_range("2019-12-02", periods=80, freq="W-MON")  # the year 2020 has 53 of them
    frame = pd.DataFrame({"week": weeks.strftime("%G%V").astype(int), "sales": 1.0})
    assert read_series(frame).timing == "weekly, 2019-12-02 to 2021-06-07"
    with pytest.raises(ValueError, match=r"'week' must hold dates, got '202153' in row 2"):
        read_series(pd.DataFrame({"week": [202152, 202153, 202201], "sales": 1.0}))


def test_missing_months_do_not_change_the_reading():
    kept = [i for i in range(30) if i not in (3, 4, 17)]
    series = read_series(month_table(MONTHS.strftime("%d/%m/%Y")).iloc[kept])
    assert series.timing == "monthly, 2016-01-01 to 2018-06-01"
    assert np.isnan(series.values[0][[3, 4, 17]]).all()


def test_a_late_day_far_down_the_column_tells_the_order():
    hours = pd.date_range("2024-01-01", periods=24 * 14, freq="h")
    frame = pd.DataFrame({"date": hours.strftime("%d/%m/%Y %H:%M"), "y": range(len(hours))})
    assert read_series(frame).timing == "hourly, 2024-01-01 to 2024-01-14 23:00"


def test_dates_that_fit_both_ways_are_read_month_first_with_a_warning():
    days = pd.Series(pd.date_range("2024-01-01", periods=12).strftime("%m/%d/%Y"), name="when")
    with pytest.warns(DateWarning, match="is read as 2024-01-02"):
        times, *_ = read_timestamps(days)
    assert str(times[-1])[:10] == "2024-01-12"


def test_dates_that_are_the_same_both_ways_are_in_no_doubt():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert str(read_timestamps(pd.Series(["01/01/2023", "01/01/2024"]))[0][1])[:10] == "2024-01-01"


@pytest.mark.parametrize(
    "form", ["%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M:%SZ", "%d.%m.%Y %H:%M", "%d/%m/%Y %H:%M", "%m-%d-%Y %H:%M"]
)
def test_plain_dates_take_the_short_way_and_say_what_the_long_one_says(form, monkeypatch):
    hours = pd.date_range("2024-01-01 05:00", periods=24 * 40, freq="h").strftime(form).to_series(name="time")
    short = read_timestamps(hours)
    monkeypatch.setattr("fourier_head.forecasting.dates._parse_plain", lambda text: None)
    long = read_timestamps(hours)
    np.testing.assert_array_equal(short[0], long[0])
    assert str(short[1:]) == str(long[1:])
    monkeypatch.undo()
    monkeypatch.setattr("fourier_head.forecasting.dates.in_english", None)  # the long way begins with it
    assert len(read_timestamps(hours)[0]) == 24 * 40
    monkeypatch.undo()
    with pytest.raises(ValueError, match=r"'time' must hold dates, got 'noon' in row 961"):
        read_timestamps(pd.Series([*hours, "noon"], name="time"))


# --- months, and seconds since 1970


@pytest.mark.parametrize(
    "form", ["%m.%Y", "%Y-%m", "%b-%y", "%b-%Y", "%B %Y", "%Y.%m", "%m/%Y", "%YM%m", "%Y%m", "%b '%y"]
)
def test_months_are_read_in_their_spellings(form):
    check_months(read_series(month_table(MONTHS.strftime(form), "month")))


@pytest.mark.parametrize("digits", ["1.2016 2.2016 10.2016 1.2020", "01.2016 02.2016 10.2016 01.2020"])
def test_months_that_a_reader_took_for_numbers_are_months(digits):
    column = pd.Series([float(one) for one in digits.split()], name="date")
    assert [str(t)[:7] for t in read_timestamps(column)[0]] == ["2016-01", "2016-02", "2016-10", "2020-01"]


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("kind", [int, float, str])
def test_seconds_and_milliseconds_since_1970_are_dates_where_the_name_says_time(unit, kind):
    stamps = MONTHS.to_numpy().astype(f"datetime64[{unit}]").astype(np.int64)
    for name in ("timestamp", "Open time", "ts_event"):
        check_months(read_series(month_table([kind(one) for one in stamps], name)))
    other = pd.DataFrame({"serial": stamps, "value": VALUES})
    assert not read_series(other, target="value").timed


def test_parts_of_seconds_since_1970_are_kept():
    column = pd.Series(1711321200.5 + 0.0001 * np.arange(9), name="time")
    first = np.datetime64("2024-03-24T23:00:00.5", "us")
    want = first + 100 * np.arange(9).astype("timedelta64[us]")
    np.testing.assert_array_equal(read_timestamps(column)[0].astype("datetime64[us]"), want)


@pytest.mark.parametrize(("parts", "timing"), [(12, "monthly"), (4, "quarterly")])
def test_parts_of_years_are_months_and_quarters(parts, timing):
    table = pd.DataFrame(
        {"rownames": np.arange(40) + 1, "time": 1949 + np.arange(40) / parts, "value": np.arange(40.0)}
    )
    for digits in (2, 6):
        assert read_series(table.round({"time": digits})).timing.startswith(f"{timing}, 1949-01-01 to")
    with pytest.raises(ValueError, match=r"must hold dates, got '1949\.3'"):
        read_series(table.assign(time=1949.3 + np.arange(40)))


def test_what_lasts_is_no_date_and_no_number():
    spans = pd.timedelta_range("0h", periods=30, freq="h")
    assert read_series(pd.DataFrame({"time": spans, "sales": VALUES})).target == "sales"


@pytest.mark.parametrize("kind", ["string", "category", "Int64", "Float64"])
def test_dates_are_read_from_any_kind_of_column(kind):
    text = MONTHS.strftime("%Y%m")
    dates = pd.Series(text.astype(int) if "64" in kind else text).astype(kind)
    check_months(read_series(month_table(dates, "month")))
    dates[4] = None
    with pytest.raises(ValueError, match=r"'month' must .*got nothing in row 5"):
        read_series(month_table(dates, "month"))


@pytest.mark.parametrize("freq", ["D", "h"])
@pytest.mark.parametrize("unit", ["ms", "ns"])
def test_timestamps_of_arrow_keep_their_zone(freq, unit):
    times = pd.date_range("2024-01-01", periods=30, freq=freq, tz="Europe/Berlin")
    table = pd.DataFrame({"when": times, "sold": range(30)})
    arrow = table.astype({"when": pd.ArrowDtype(pa.timestamp(unit, "Europe/Berlin"))})
    plain, *others = map(read_series, (table, arrow, arrow.set_index("when"), arrow.set_index("when")["sold"]))
    for one in others:
        assert (one.timing, str(one.zone), one.utc) == (plain.timing, "Europe/Berlin", freq == "h")
        assert one.last == plain.last


def test_days_of_arrow_are_dates():
    days = pd.array(pd.date_range("2024-01-01", periods=5).date, dtype=pd.ArrowDtype(pa.date32()))
    assert read_series(pd.DataFrame({"when": days, "sold": range(5)})).timing == "daily, 2024-01-01 to 2024-01-05"


def test_offsets_of_summer_and_winter_may_stand_in_one_column():
    hours = pd.date_range("2024-03-30", periods=48, freq="h", tz="Europe/Berlin")
    frame = pd.DataFrame({"time": [hour.isoformat() for hour in hours], "y": range(48)})
    series = read_series(frame)
    assert series.timing == "hourly, 2024-03-30 to 2024-04-01"
    assert pd.DatetimeIndex(series.local(series.past(0, 48))).tolist() == hours.tz_localize(None).tolist()
    days = pd.date_range("2024-03-25", periods=12, tz="Europe/Berlin")
    frame = pd.DataFrame({"time": [day.isoformat() for day in days], "y": range(12)})
    assert read_series(frame).timing == "daily, 2024-03-25 to 2024-04-05"


def test_offsets_of_several_zones_are_no_one_clock():
    hours = pd.date_range("2024-06-01", periods=24, freq="h", tz="UTC")
    zones = {"a": "Europe/Berlin", "b": "Asia/Tokyo"}
    rows = [(name, hour.tz_convert(zone).isoformat(), 1.0) for name, zone in zones.items() for hour in hours]
    for some in (rows, rows[:24:2] + rows[25::2]):  # at the same moments, and taking turns
        series = read_series(pd.DataFrame(some, columns=["id", "time", "y"]))
        assert series.timing.startswith("hourly, 2024-06-01 to" if some is rows else "every 2 hours, 2024-06-01 to")


# --- columns and indices that are called a time


@pytest.mark.parametrize("name", ["date", "Time", "timestamp", "month"])
def test_a_time_that_cannot_be_read_is_named(name):
    for dates in (["first", "second"], ["12 of May or so"] * 2, ["08:00", "09:00"]):
        with pytest.raises(ValueError, match=f"the time column '{name}' must hold dates, got '{dates[0]}' in row 1"):
            read_series(pd.DataFrame({name: dates, "sales": [1.0, 2.0]}))


def test_numbers_that_are_no_dates_are_named_unless_they_count_steps():
    with pytest.raises(ValueError, match="got '42370' in row 1; if spreadsheets count days so, write them as dates"):
        read_series(month_table(np.arange(42370, 42400)))
    for steps in (np.arange(30), np.arange(1, 31), np.arange(30) / 2):
        assert not read_series(month_table(steps, "time")).timed


def test_hours_and_days_beside_values_are_no_dates():
    frame = pd.DataFrame({"hour": np.arange(30) % 24, "sales": VALUES})
    assert not read_series(frame).timed


def test_a_date_that_can_be_read_counts_before_one_that_cannot():
    frame = month_table(MONTHS).assign(time="morning")
    check_months(read_series(frame))


@pytest.mark.parametrize("form", ["%Y-%m-%d", "%d/%m/%Y", "%m.%Y"])
@pytest.mark.parametrize("name", ["date", None])
def test_an_index_of_text_that_reads_as_dates_is_dates(form, name):
    frame = pd.DataFrame({"sales": VALUES}, index=pd.Index(MONTHS.strftime(form), name=name))
    check_months(read_series(frame))
    check_months(read_series(frame["sales"]))


def test_an_index_called_a_date_that_cannot_be_read_is_named():
    frame = pd.DataFrame({"sales": [1.0, 2.0]}, index=pd.Index(["first", "second"], name="date"))
    for data in (frame, frame["sales"]):
        with pytest.raises(ValueError, match=r"'date' must .*got 'first' in row 1"):
            read_series(data)


def test_an_index_of_names_is_no_time():
    frame = pd.DataFrame({"sales": [1.0, 2.0, 3.0]}, index=["x", "y", "May"])
    assert not read_series(frame).timed


def test_an_index_of_names_and_dates_names_and_dates_the_series():
    frame = pd.concat([month_table(MONTHS).assign(store=number) for number in (1, 2)]).set_index(["store", "date"])
    series = read_series(frame)
    assert series.names == [1, 2]
    assert series.timing == "monthly, 2016-01-01 to 2018-06-01"


# --- dates in several columns


def test_years_and_months_are_joined():
    frame = pd.DataFrame({"Year": MONTHS.year, "Month": MONTHS.month, "sales": VALUES})
    check_months(read_series(frame))
    assert "Year" in frame, "the table given stays as it is"
    days = pd.date_range("2024-02-20", periods=30)
    frame = pd.DataFrame({"year": days.year, "month": days.month, "day": days.day, "sales": VALUES})
    assert read_series(frame).timing == "daily, 2024-02-20 to 2024-03-20"


def test_months_and_quarters_of_labor_statistics_are_joined_without_the_means_of_years():
    years = [[year, f"M{month:02d}", float(month)] for year in (2016, 2017, 2018) for month in range(1, 14)]
    frame = pd.DataFrame(years, columns=["Year", "Period", "Value"]).iloc[:32]
    frame = pd.concat([frame.assign(**{"Series ID": name}) for name in ("CES1", "LNS2")])
    series = read_series(frame)
    assert series.timing == "monthly, 2016-01-01 to 2018-06-01"
    assert series.names == ["CES1", "LNS2"]
    assert series.values[0].tolist() == [*range(1, 13), *range(1, 13), *range(1, 7)]
    assert "4 rows are of whole years, not of their parts, and left out." in series.notes
    quarters = [[2016, f"Q0{quarter}", 1.0] for quarter in (1, 2, 3, 4, 5)]
    assert read_series(pd.DataFrame(quarters, columns=["year", "period", "value"])).timing == (
        "quarterly, 2016-01-01 to 2016-10-01"
    )


def test_years_and_months_beside_dates_are_left_alone():
    frame = month_table(MONTHS).assign(year=MONTHS.year, month=MONTHS.month)
    check_months(read_series(frame))


def test_dates_and_times_of_day_are_joined():
    hours = pd.date_range("2024-01-01", periods=30, freq="h")
    frame = pd.DataFrame({"Date": hours.strftime("%Y-%m-%d"), "Time": hours.strftime("%H:%M"), "sales": VALUES})
    series = read_series(frame)
    assert series.timing == "hourly, 2024-01-01 to 2024-01-02 05:00"
    assert series.time_column == "Date"


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("day", ["date", "Invoice Date", "Datum"])
def test_dates_and_hours_are_joined(day, first):
    hours = pd.date_range("2024-01-01", periods=96, freq="h")
    frame = pd.DataFrame({day: hours.strftime("%d.%m.%Y"), "Hour": hours.hour + first, "load": np.arange(96.0)})
    series = read_series(frame)
    assert series.timing == "hourly, 2024-01-01 to 2024-01-04 23:00"
    assert (series.time_column, series.guessed["time"]) == (day, day)
    assert len(read_series(frame, id="Hour")) == 24
    if day != "Invoice Date":
        assert read_series(frame, time=day).timing == series.timing


def test_years_months_days_and_hours_are_joined():
    hours = pd.date_range("2024-01-30", periods=72, freq="h")
    parts = {"Year": hours.year, "Month": hours.month, "Day": hours.day, "Hour": hours.hour}
    assert (
        read_series(pd.DataFrame({**parts, "load": np.arange(72.0)})).timing == "hourly, 2024-01-30 to 2024-02-01 23:00"
    )


def test_kilowatts_are_no_weeks_of_the_calendar():
    assert read_series(pd.DataFrame({"time": MONTHS, "kW": VALUES})).target == "kW"
    assert len(read_series(pd.DataFrame({"kW": np.arange(30), "kWh": VALUES, "time": MONTHS}))) == 2


def test_hours_beside_times_of_day_are_left_alone():
    hours = pd.date_range("2024-01-01 05:00", periods=30, freq="h")
    for dates in (hours, hours.strftime("%Y-%m-%d %H:%M")):
        series = read_series(pd.DataFrame({"date": dates, "hour": hours.hour, "sales": VALUES}))
        assert series.timing == "hourly, 2024-01-01 05:00 to 2024-01-02 10:00"
        assert series.target == "sales"


@pytest.mark.parametrize(("month", "value"), [("Monat", "Umsatz"), ("mois", "ventes"), ("Mes", "ventas")])
def test_months_are_read_under_names_of_other_languages(month, value):
    # As a file with decimal commas has them after reading.
    frame = pd.DataFrame({month: [float(f"{date:%m.%Y}") for date in MONTHS], value: VALUES})
    series = read_series(frame)
    assert (series.timing, series.target) == ("monthly, 2016-01-01 to 2018-06-01", value)


def test_dates_and_times_of_day_are_joined_under_german_names():
    hours = pd.date_range("2024-01-01", periods=30, freq="h")
    for clock in ("Uhrzeit", "Anfang"):
        table = {"Datum": hours.strftime("%d.%m.%Y"), clock: hours.strftime("%H:%M"), "Last": VALUES}
        assert read_series(pd.DataFrame(table)).timing == "hourly, 2024-01-01 to 2024-01-02 05:00"


def test_when_shops_open_is_no_time_of_what_they_sell():
    days = pd.date_range("2024-01-01", periods=15).repeat(2)
    for opens in (["08:00", "09:30"] * 15, [f"0{6 + i % 3}:{i % 6}0" for i in range(30)]):
        series = read_series(pd.DataFrame({"date": days, "shop": ["a", "b"] * 15, "opens": opens, "sold": VALUES}))
        assert (series.names, series.timing) == (["a", "b"], "daily, 2024-01-01 to 2024-01-15")


# --- names and words


def test_whole_numbers_may_name_series():
    frame = pd.concat([month_table(MONTHS).assign(store=number) for number in (1, 2, 3)])
    series = read_series(frame)
    assert series.names == [1, 2, 3]
    assert label(series.names[0]) == "series '1'"
    assert label(()) == "the series"


def test_the_timing_of_several_kinds_is_one_line():
    frames = [month_table(MONTHS).assign(id="m"), month_table(pd.bdate_range("2020-01-01", periods=30)).assign(id="d")]
    assert read_series(pd.concat(frames)).timing == "monthly, on working days; 2016-01-01 to 2020-02-11"
    assert read_series([VALUES]).timing == "no dates"


# --- times in several columns, or in the names of columns

MONTHS_OF_YEARS = [(year, month) for year in (2021, 2022) for month in range(1, 13)]


@pytest.mark.parametrize("spelt", ["{:d}", "{:d}.0", "M{:02d}", "name", "long name"])
def test_years_and_months_of_any_spelling_are_joined(spelt):
    dates = [pd.Timestamp(year, month, 1) for year, month in MONTHS_OF_YEARS]
    months = [
        one.strftime("%b" if spelt == "name" else "%B") if "name" in spelt else spelt.format(one.month) for one in dates
    ]
    series = read_series(pd.DataFrame({"Year": [one.year for one in dates], "Month": months, "sold": range(24)}))
    assert series.timing == "monthly, 2021-01-01 to 2022-12-01"
    assert "times are put together from the columns 'Year' and 'Month'." in series.notes


@pytest.mark.parametrize("spelt", ["{:d}", "Q{:d}", "q{:d}"])
def test_years_and_quarters_are_joined(spelt):
    table = pd.DataFrame({"year": np.repeat([2021, 2022], 4), "quarter": [spelt.format(q) for q in [1, 2, 3, 4] * 2]})
    both = pd.concat([table.assign(shop=shop, sold=np.arange(8)) for shop in "ab"])
    series = read_series(both)
    assert (series.names, series.timing) == (["a", "b"], "quarterly, 2021-01-01 to 2022-10-01")


@pytest.mark.parametrize(
    ("names", "timing"),
    [
        ([f"{year}-{month:02d}" for year, month in MONTHS_OF_YEARS], "monthly, 2021-01-01 to 2022-12-01"),
        ([f"{year}{month:02d}" for year, month in MONTHS_OF_YEARS], "monthly, 2021-01-01 to 2022-12-01"),
        (pd.period_range("2021-01", "2022-12", freq="M"), "monthly, 2021-01-01 to 2022-12-01"),
        (pd.date_range("2021-01-01", periods=24), "daily, 2021-01-01 to 2021-01-24"),
        ([f"1/{day}/21" for day in range(1, 25)], "daily, 2021-01-01 to 2021-01-24"),
        (range(2000, 2024), "yearly, 2000-01-01 to 2023-01-01"),
        ([f"{2000 + i // 4} Q{i % 4 + 1}" for i in range(24)], "quarterly, 2000-01-01 to 2005-10-01"),
        ([f"{year} [YR{year}]" for year in range(2000, 2024)], "yearly, 2000-01-01 to 2023-01-01"),
    ],
)
@pytest.mark.parametrize("turned", [False, True])
def test_columns_may_be_named_by_times(names, timing, turned):
    values = np.arange(48.0).reshape(2, 24)
    values[:, 3] = np.nan
    table = pd.DataFrame(values, columns=list(names), index=pd.Index(["a", "b"], name="shop"))
    series = read_series(table if turned else table.reset_index().assign(Lat=[1.5, 2.5]))
    assert (series.names, series.timing) == (["a", "b"], timing)
    np.testing.assert_array_equal(series.values, values)
    assert series.guessed == {"id": "shop", "freq": series.calendars[0].freq}
    assert any(note.startswith("24 columns are named by times") for note in series.notes)


def test_no_column_that_is_named_by_a_time_is_left_out_and_remarks_below_are():
    months = [f"{year}-{month:02d}" for year, month in MONTHS_OF_YEARS]
    table = pd.DataFrame(np.arange(48.0).reshape(2, 24), columns=months).astype(object)
    table.insert(0, "geo", ["AT", "BE"])
    table.insert(1, "unit", "kg")
    table[months[3]] = [":", "n/a"]
    below = pd.DataFrame({"geo": [None, "Last updated: 2024-05-17"]})
    series = read_series(pd.concat([table, below], ignore_index=True))
    assert (series.names, [len(one) for one in series.values]) == (["AT", "BE"], [24, 24])
    assert np.isnan(series.values[0][3])
    table[months[5]] = ["5.5 b", "7"]
    with pytest.raises(ValueError, match=r"the column '2021-06' must hold numbers, got '5\.5 b' in row 1"):
        read_series(table)


def test_months_may_stand_beside_their_year():
    dates = pd.date_range("2020-01-01", periods=36, freq="MS")
    long = pd.DataFrame({"year": dates.year, "name": dates.strftime("%b"), "month": dates.month, "y": np.arange(36.0)})
    for index, columns in (("year", "name"), ("year", "month"), ("month", "year")):
        table = long.pivot(index=index, columns=columns, values="y").reset_index()
        series = read_series(table)
        assert (len(series), series.timing) == (1, "monthly, 2020-01-01 to 2022-12-01")
        np.testing.assert_array_equal(series.values[0], np.arange(36))


def test_names_that_are_no_times_stay_columns():
    for table in (
        pd.DataFrame({"date": pd.date_range("2024-01-01", periods=5), "2023": range(5), "2024": range(5)}),
        pd.DataFrame({"year": range(2000, 2005), "may": range(5), "june": range(5), "paul": range(5)}),
    ):
        assert len(read_series(table)) == len(table.columns) - 1
    with pytest.raises(ValueError, match="several columns hold numbers"):
        read_series(pd.DataFrame({"name": list("abc"), "x 10": range(3), "PM2.5": range(3)}))


@pytest.mark.parametrize("name", ["hour", "time", "HE"])
@pytest.mark.parametrize("spelt", ["{0}", "{0}.0", "{0:02d}00", "{0}00", "{0}h", "H{0}", "{0:02d}:00", "{1} {2}"])
def test_hours_are_times_of_day_in_any_spelling(name, spelt):
    days = np.repeat(["2024-01-05", "2024-01-06"], 24)
    for first in (0,) if "{1}" in spelt else (0, 1):  # clocks of two halves have no hour 24
        hours = [(h + first, (h - 1) % 12 + 1, "AM" if h < 12 else "PM") for h in range(24)]
        table = pd.DataFrame({"date": days, name: [spelt.format(*hour) for hour in hours] * 2, "load": range(48)})
        series = read_series(table)
        assert series.timing == "hourly, 2024-01-05 to 2024-01-06 23:00"
        np.testing.assert_array_equal(series.values[0], np.arange(48))


def test_a_time_of_each_day_may_be_what_was_measured():
    table = pd.DataFrame({"date": pd.date_range("2024-01-01", periods=4), "time": [23, 24, 20, 22]})
    assert read_series(table).target == "time"


# --- rows of the future


@pytest.mark.parametrize("wide", [False, True])
def test_rows_of_the_future_are_left_out_and_named(wide):
    days = pd.date_range("2024-01-01", periods=6)
    a, b = [1, np.nan, 3, np.nan, np.nan, np.nan], [1, 2, 3, 4, np.nan, np.nan]
    table = pd.DataFrame({"date": days, "a": a, "b": b})
    table = table if wide else table.melt("date", value_name="sold", var_name="shop")
    series = read_series(table)
    assert series.timing == "daily, 2024-01-01 to 2024-01-04"
    np.testing.assert_array_equal(series.values, [a[:4], b[:4]])  # where others go on, a value is missing
    assert any(note.startswith(f"{2 if wide else 4} rows are left out") for note in series.notes)


@pytest.mark.parametrize("last", ["Total", None, "Source: the ministry"])
def test_totals_and_remarks_at_the_end_are_left_out_and_named(last):
    days = [*pd.date_range("2024-01-01", periods=6).astype(str), last]
    table = pd.DataFrame({"date": days, "sold": [1, 2, 3, 4, 5, 6, 21]})
    for one in (table, table.assign(date=pd.to_datetime(table["date"], errors="coerce"))):
        series = read_series(one)
        assert series.values[0].tolist() == [1, 2, 3, 4, 5, 6]
        assert any("have no time and are left out" in note for note in series.notes)
    assert any(repr(last or "") in note for note in read_series(table).notes)
    with pytest.raises(ValueError, match="must hold dates, got"):
        read_series(pd.DataFrame({"date": [*days[:2], last, *days[2:6]], "sold": range(7)}))


# --- more spellings

WEEKS = pd.date_range("2021-01-04", periods=60, freq="W-MON")
HOURS = pd.date_range("2024-01-13", periods=48, freq="h")
WEEKLY, HOURLY = "weekly, 2021-01-04 to 2022-02-21", "hourly, 2024-01-13 to 2024-01-14 23:00"
QUARTERLY, MONTHLY = "quarterly, 2020-01-01 to 2022-10-01", "monthly, 2020-01-01 to 2021-12-01"


@pytest.mark.parametrize(
    ("name", "dates", "timing"),
    [
        ("quarter", [f"{2020 + i // 4}-{i % 4 + 1}" for i in range(12)], QUARTERLY),
        ("trimestre", [f"T{i % 4 + 1} {2020 + i // 4}" for i in range(12)], QUARTERLY),
        ("season", [f"{2000 + i}/{i + 1:02d}" for i in range(11)], "yearly, 2000-01-01 to 2010-01-01"),
        ("season", [f"{1995 + i}-{(96 + i) % 100:02d}" for i in range(11)], "yearly, 1995-01-01 to 2005-01-01"),
        ("Woche", WEEKS.strftime("KW %V/%G"), WEEKLY),
        ("week", WEEKS.strftime("W%V-%G"), WEEKLY),
        ("week", WEEKS.strftime("%G-%V"), WEEKLY),
        ("week", [str(one) for one in WEEKS.to_period("W")], WEEKLY),
        ("MTU", [f"{one:%d.%m.%Y %H:%M} - {one:%d.%m.%Y} 23:59" for one in HOURS], HOURLY),
        (
            "t",
            [f"2024-01-{d} {h:02d}:00" for d in (13, 14) for h in range(1, 25)],
            "hourly, 2024-01-13 01:00 to 2024-01-15",
        ),
        ("MTU (CET/CEST)", [f"{one:%d/%m/%Y %H:%M:%S} (CET) - {one:%d/%m/%Y} 23:59:00 (CET)" for one in HOURS], HOURLY),
        ("when", [f"{2020 + i // 12}年{i % 12 + 1}月" for i in range(24)], MONTHLY),
        ("日付", list(WEEKS.strftime("%Y年%m月%d日")), WEEKLY),
        ("날짜", list(WEEKS.strftime("%Y년 %m월 %d일")), WEEKLY),
        ("week", [f"{one:%d %b %Y} - {one:%d %b %Y}" for one in WEEKS], WEEKLY),
        ("when", [f"{i % 4 + 1}. Quartal {2020 + i // 4}" for i in range(12)], QUARTERLY),
        ("Trimestre", [f"{2020 + i // 4}-{['I', 'II', 'III', 'IV'][i % 4]}" for i in range(12)], QUARTERLY),
        ("quarter", [f"FY{2020 + i // 4} Q{i % 4 + 1}" for i in range(12)], QUARTERLY),
        ("when", [f"Q{i % 4 + 1} FY{20 + i // 4}" for i in range(12)], QUARTERLY),
        ("when", [f"Q{i % 4 + 1}'{20 + i // 4}" for i in range(12)], QUARTERLY),
        ("year", [f"FY{(95 + i) % 100:02d}" for i in range(12)], "yearly, 1995-01-01 to 2006-01-01"),
        ("when", [f"H{i % 2 + 1} {2020 + i // 2}" for i in range(12)], "every 6 months, 2020-01-01 to 2025-07-01"),
        ("when", [f"{2020 + i // 2}-S{i % 2 + 1}" for i in range(12)], "every 6 months, 2020-01-01 to 2025-07-01"),
        ("Fiscal period", [f"{i % 12 + 1:03d}/{2020 + i // 12}" for i in range(24)], MONTHLY),
        ("unix", [int(one.timestamp()) for one in HOURS], HOURLY),
    ],
)
def test_weeks_quarters_seasons_and_intervals_are_read(name, dates, timing):
    assert read_series(pd.DataFrame({name: dates, "sold": np.arange(float(len(dates)))})).timing == timing


def test_a_table_without_numbers_shows_what_it_holds():
    with pytest.raises(ValueError, match=r"the columns are day, sold; 'sold' holds '5 kWh'\."):
        read_series(pd.DataFrame({"day": pd.date_range("2024-01-01", periods=3), "sold": ["5 kWh", "6 kWh", "7 kWh"]}))


def test_years_in_a_row_are_an_index_of_dates_by_their_name():
    years = pd.RangeIndex(2000, 2006, name="year")
    for data in (pd.Series(range(6), index=years), pd.DataFrame({"sold": range(6)}, index=years)):
        assert read_series(data).timing == "yearly, 2000-01-01 to 2005-01-01"
    assert read_series(pd.Series(range(6), index=pd.RangeIndex(6, name="row"))).timing == "no dates"


def test_a_column_that_is_a_number_is_named_as_one():
    table = pd.DataFrame(np.zeros((3, 2)))
    with pytest.raises(ValueError, match=r"such as target=1\."):
        read_series(table)
    assert read_series(table, target=1).values[0].tolist() == [0, 0, 0]
