"""Files as people and spreadsheets write them: what becomes a number, what stays as it was, and what is refused."""

import json
import sys

import numpy as np
import pandas as pd
import pytest

from fourier_head.errors import UserError
from fourier_head.forecasting.inputs import read_series
from fourier_head.table_files import read_frame


@pytest.fixture
def read(tmp_path):
    def write_and_read(text, encoding="utf-8"):
        (tmp_path / "data.csv").write_bytes(text.encode(encoding))
        return read_frame(tmp_path / "data.csv")

    return write_and_read


def test_na_and_none_are_words_among_words_and_missing_among_numbers(read):
    frame = read("region,promo,sold,open\nNA,None,3,True\nEMEA,flyer,NA,\n,n/a,None,False\n")
    assert frame["region"].tolist()[:2] == ["NA", "EMEA"]
    assert frame["promo"].tolist()[:2] == ["None", "flyer"]
    assert frame[["region", "promo"]].isna().to_numpy().tolist() == [[False] * 2, [False] * 2, [True] * 2]
    assert frame["sold"].isna().tolist() == [False, True, True]
    assert frame["open"].tolist()[::2] == [True, False]


def test_zeros_in_front_are_part_of_a_name(read):
    frame = read("month;town;units;share\n01;01067;5;0,5\n02;80331;7;0,25\n")
    assert frame["town"].tolist() == ["01067", "80331"]
    assert frame[["month", "units", "share"]].to_numpy().tolist() == [[1, 5, 0.5], [2, 7, 0.25]]


def test_names_of_columns_have_no_spaces_around_them(read):
    assert list(read(" date , Total Sales ,x\n2024-01-01,3,4\n")) == ["date", "Total Sales", "x"]
    assert list(read("a,a ,b\n1,2,3\n")) == ["a", "a ", "b"], "two names stay two"


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("day;x\n1;1003,77\n2;2,5\n", [1003.77, 2.5]),
        ("day;x\n1;1.003,77\n2;-2,5\n", [1003.77, -2.5]),
        ("day;x\n1;1 003,77 €\n2;2 €\n", [1003.77, 2]),
        ("day;x\n1;1,003\n2;2,5\n", [1.003, 2.5]),
        ("day;x\n1;1,003.77\n2;2\n", [1003.77, 2]),
        ("day;x\n1;1003.77\n2;2.5\n", [1003.77, 2.5]),
        ('day,x\n1,"1,003.77"\n2,999\n', [1003.77, 999]),
        ('day,x\n1,"$1,003.77"\n2,-$2.50\n', [1003.77, -2.5]),
        ("day,x\n1,£5\n2,?\n", [5, np.nan]),
        ('day,x\n1,"1,234,567"\n2,−3\n', [1234567, -3]),
        ("day,x\n1,(801.46)\n2,7\n", [-801.46, 7]),
        ('day,x\n1,"($1,003)"\n2,$5\n', [-1003, 5]),
        ("day;x\n1;(1.003,77)\n2;2,5\n", [-1003.77, 2.5]),
        ("day,x\n1,14.1%\n2,7 %\n", [14.1, 7]),
        ("day,x\n1,-\n2,1e-05\n", [np.nan, 1e-5]),
        ("day;x\n1;–\n2;2,5\n", [np.nan, 2.5]),
        ('day,x\n1,"1\'234.50"\n2,$7.50\n', [1234.5, 7.5]),
        ('day,x\n1,"1’234’567"\n2,$7.50\n', [1234567, 7.5]),
        ('day,x\n1,"12,34,567.5"\n2,$7.50\n', [1234567.5, 7.5]),
        ("day,x\n1,$(801.46)\n2,-$5.00\n", [-801.46, -5]),
        ("day;x\n1;1\u2009234\u2009567,8\n2;950\n", [1234567.8, 950]),
        ("day;x\n1;1 234 567\n2;950\n", [1234567, 950]),
        ("day,x\n1,1\u00a0234\n2,950.5\n", [1234, 950.5]),
        ("day\tx\n1\t1.234,5\n2\t2,5\n", [1234.5, 2.5]),
        ("day,x\n1,..\n2,2\n", [np.nan, 2]),
        ("day;x\n1;1.234,56-\n2;2,5\n", [-1234.56, 2.5]),
        ("day,x\n1,#DIV/0!\n2,2\n", [np.nan, 2]),
    ],
)
def test_numbers_are_numbers_however_they_are_spelt(read, text, want):
    frame = read(text)
    assert pd.api.types.is_float_dtype(frame["x"])
    np.testing.assert_array_equal(frame["x"], want)
    assert frame["day"].tolist() == [1, 2]


@pytest.mark.parametrize(
    "values",
    [
        ["1,2", "3,4"],
        ["1,003", "none"],
        ["12,34", "1,234"],
        ["$", "$5"],
        ["1" * 30, "2" * 30],
        ["5 m", "6 m"],
        ["(5", "6)"],
        ["1,23", "1,23"],
        ["12,3456", "12,3456"],
        ["1,234,5", "1,234,5"],
    ],
)
def test_names_stay_text(read, values):
    frame = read("x,y\n" + "".join(f'"{value}",1\n' for value in values))
    assert frame["x"].tolist() == values


@pytest.mark.parametrize(
    ("first", "second", "want", "unit"),
    [
        ("70 kg", "-1.5 kg", [70, -1.5], "kg"),
        ("7.5 °C", "n/a", [7.5, np.nan], "°C"),
        ('"1,700.50 USD"', "2 USD", [1700.5, 2], "USD"),
        ("EUR 5", "EUR 7", [5, 7], "EUR"),
        ("5m3/s", "6m3/s", [5, 6], "m3/s"),
    ],
)
@pytest.mark.parametrize("name", ["day", "Year"])
def test_one_unit_beside_all_numbers_of_a_table_is_read_and_named(read, first, second, want, unit, name):
    frame = read(f"{name},x\n2023,{first}\n2024,{second}\n")
    np.testing.assert_array_equal(frame["x"], want)
    assert frame.attrs["notes"] == [f"the numbers of 'x' are in {unit}."]


@pytest.mark.parametrize(
    "values",
    [["5 kg", "6 g"], ["5 kg", "6"], ["1 Jan", "2 Jan"], ["8 am", "9 am"], ["3rd", "4rd"], ["Shop 1", "Shop 2"]],
)
def test_what_looks_like_a_unit_and_is_none_stays_text(read, values):
    assert read("who,x\n" + "".join(f"anna,{value}\n" for value in values))["x"].tolist() == values


@pytest.mark.parametrize(
    "nothing", ["n/a", "NA", "null", "none", "n.a.", "–", "—", "..", "#N/A", "nan", "?", "…", "unavailable"]
)
@pytest.mark.parametrize("others", [["1", "2", "3"], ["$1", "$2", "$3"], ["1;5", "2", "3"]])
def test_nothing_among_numbers_is_spelt_in_many_ways(read, nothing, others):
    frame = read("day;x\n" + "".join(f"1;{one.replace(';', ',')}\n" for one in [*others, nothing]))
    np.testing.assert_array_equal(frame["x"], [1.5 if others[0] == "1;5" else 1, 2, 3, np.nan])


def test_zeros_in_front_stay_beside_a_sign_for_nothing(read):
    assert read("town,x\n01067,1\n02345,2\n-,3\n")["town"].tolist() == ["01067", "02345", "-"]


def test_points_are_thousands_only_where_commas_are_decimal(read):
    frame = read("date;a;b;c\n01.02.2016;1,5;1.003;1.5\n01.03.2016;2;999;2.25\n")
    assert frame["b"].tolist() == [1003, 999]
    assert frame["c"].tolist() == [1.5, 2.25]
    assert frame["date"].tolist() == ["01.02.2016", "01.03.2016"]
    assert read("a;b\n1;1.003\n2;999\n")["b"].tolist() == [1.003, 999]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "cp1252", "utf-16", "utf-16-le", "utf-16-be"])
def test_letters_are_read_in_the_usual_encodings(read, encoding):
    frame = read("Größe;Preis\nKöln;5 €\nMünchen;1,5 €\n", encoding)
    assert list(frame.columns) == ["Größe", "Preis"]
    assert frame["Größe"].tolist() == ["Köln", "München"]
    assert frame["Preis"].tolist() == [5, 1.5]


@pytest.mark.parametrize(
    "first", ["2016-01-01,1003.77", "31/01/2016,5", "2016-01,7,8", '"1,003.77",5', "1.5,2.5", "2024-01-01,north,5"]
)
def test_a_file_without_a_header_is_one_sentence(read, first):
    with pytest.raises(UserError, match="no header row"):
        read(f"{first}\n{first}\n")


@pytest.mark.parametrize("first", ["0,1,2", "1,2", "date,2016", "0-4,5-9", ",0,1", "product,2024-01,2024-02"])
def test_columns_may_be_numbered(read, first):
    count = first.count(",") + 1
    if "product" in first:
        assert list(read("product,2024-01,2024-02\ntea,5,6\nmilk,7,8\n")) == ["product", "2024-01", "2024-02"]
    assert read(f"{first}\n{','.join('7' * count)}\n").shape == (1, count)


def test_tables_of_eurostat_have_a_column_for_each_key_and_no_flags(read):
    frame = read("freq,geo\\TIME_PERIOD\t2024-01 \t2024-02 \nM,AT\t5.5 p\t: \nM,BE\t-7 \t: c\n")
    assert frame.columns.tolist() == ["freq", "geo", "2024-01", "2024-02"]
    assert frame["geo"].tolist() == ["AT", "BE"]
    np.testing.assert_array_equal(frame.iloc[:, 2:].to_numpy(dtype=float), [[5.5, np.nan], [-7, np.nan]])
    assert frame.attrs["notes"] == ["flags beside the numbers are left out."]


# --- lines before the header


def test_names_of_columns_over_several_lines_are_joined(read):
    close = [("Close", "A"), ("Close", "B")]
    for pairs, want in (
        (close, ["A", "B"]),
        ([("Close", "A"), ("High", "A")], ["Close", "High"]),
        ([*close, ("High", "A"), ("High", "B")], ["Close A", "Close B", "High A", "High B"]),
    ):
        columns = pd.MultiIndex.from_tuples(pairs, names=["Price", "Ticker"])
        index = pd.Index(["2024-01-02", "2024-01-03"], name="Date")
        table = pd.DataFrame(np.arange(2.0 * len(pairs)).reshape(2, -1), index, columns)
        for separator in ",;":
            frame = read(table.to_csv(sep=separator))
            assert frame.columns.tolist() == ["Date", *want]
            np.testing.assert_array_equal(frame[want], table)


@pytest.mark.parametrize(
    ("before", "header", "separator"),
    [
        ("Sales report\n", "day,shop,x", ","),
        ("Sales report, 2024\n\nby: me\n", "day,shop,x", ","),
        ("Report,,\nRegion:,North,\n,,\n", "day,shop,x", ","),
        ("\n\n", "day,shop,x", ","),
        ("Umsatz, netto\n", "day;shop;x", ";"),
        ("# a comment\n", "day|shop|x", "|"),
        ("", "day,shop,", ","),
    ],
)
def test_lines_before_the_header_are_skipped(read, before, header, separator):
    rows = "".join(f"{i}{separator}town{separator}{i + 0.5}\n" for i in range(1, 5))
    frame = read(before + header + "\n" + rows)
    assert [str(c) for c in frame.columns][:2] == ["day", "shop"]
    assert frame["day"].tolist() == [1, 2, 3, 4]
    assert frame.iloc[:, 2].tolist() == [1.5, 2.5, 3.5, 4.5]
    skipped = sum(bool(line.strip(", ")) for line in before.splitlines())
    assert [note.split()[0] for note in frame.attrs["notes"]] == [str(skipped)] * (skipped > 0)


DATED = "".join(f"2024-01-{day:02d},{day}.5,{day}\n" for day in range(1, 13))


@pytest.mark.parametrize(
    ("before", "skipped", "units"),
    [
        ("Station:,Bonn,north\nUnit:,C,mm\ndate,temp,rain\n", 2, 0),
        ("Station,1234,\nLat,50.1,7.1\n\ndate,temp,rain\n", 2, 0),
        ("Report,,\nRegion:,North,\n\ndate,temp,rain\n", 2, 0),
        ("date,temp,rain\n,C,mm\n", 0, 1),
        ("Station:,Bonn,\ndate,temp,rain\nUTC,C,mm\n\n", 1, 2),
    ],
)
def test_a_preamble_as_wide_as_the_table_and_units_below_the_names_are_skipped(read, tmp_path, before, skipped, units):
    frame = read(before + DATED)
    assert frame.columns.tolist() == ["date", "temp", "rain"]
    assert frame["temp"].tolist() == [day + 0.5 for day in range(1, 13)]
    assert len(frame.attrs["notes"]) == bool(skipped) + bool(units)
    pytest.importorskip("openpyxl")
    rows = pd.DataFrame([line.split(",") for line in (before + DATED).splitlines()])
    rows.to_excel(tmp_path / "data.xlsx", header=False, index=False)
    assert read_frame(tmp_path / "data.xlsx")["rain"].astype(float).tolist() == list(range(1, 13))


def test_first_rows_with_gaps_are_no_units(read):
    frame = read("date,temp,rain\n2024-01-01,,\n2024-01-02,n/a,\n" + DATED)
    assert len(frame) == 14
    assert "notes" not in frame.attrs or not frame.attrs["notes"]


def test_a_column_of_comments_that_are_few_may_end_a_table_under_a_preamble(read):
    rows = "".join(f"2024-01-{day:02d};{day};{'sale' if day == 5 else ''}\n" for day in range(1, 13))
    frame = read("Report;;\nRegion:;North;\n\nDate;Sales;Comment\n" + rows)
    assert frame.columns.tolist() == ["Date", "Sales", "Comment"]
    assert frame["Sales"].tolist() == list(range(1, 13))


@pytest.mark.parametrize("before", ["date time sold\n", "  date       time sold \n"])
def test_spaces_separate_where_nothing_else_does(read, before):
    frame = read(before + "".join(f" 2024-01-{day:02d}  08:00   {day}.5 \n" for day in range(1, 13)))
    assert frame.columns.tolist() == ["date", "time", "sold"]
    assert frame["sold"].tolist() == [day + 0.5 for day in range(1, 13)]
    assert read("when\n2024-01-01 08:00\n2024-01-02 08:00\n").columns.tolist() == ["when"]


def test_quoted_decimal_commas_are_read_where_a_table_has_no_other_numbers(read):
    frame = read('date,sold\n2024-01-01,"2,36"\n2024-01-02,"1.002,5"\n')
    assert frame["sold"].tolist() == [2.36, 1002.5]
    table = pd.DataFrame({"date": ["2024-01-01", "2024-01-02"], "sold": ["2,36", "2,55"]})
    assert read_series(table).values[0].tolist() == [2.36, 2.55]
    with pytest.raises(ValueError, match=r"the target 'sold' must hold numbers, got '2,36' in row 1"):
        read_series(table.assign(other=[1, 2]), target="sold")


def test_a_title_may_stand_over_one_column(read):
    assert read("All of it\nsold\n5\n7\nsome\n8\n").columns.tolist() == ["sold"]


# --- workbooks


def test_na_is_a_word_in_a_workbook_too(tmp_path):
    pytest.importorskip("openpyxl")
    table = pd.DataFrame({"region": ["NA", "EMEA", None], "sold": [1.0, None, 3.0]})
    table.to_excel(tmp_path / "data.xlsx", index=False)
    frame = read_frame(tmp_path / "data.xlsx")
    assert frame["region"].tolist()[:2] == ["NA", "EMEA"]
    assert frame.isna().to_numpy().tolist() == [[False, False], [False, True], [True, False]]


def test_a_workbook_is_read_like_any_table(tmp_path):
    pytest.importorskip("openpyxl")
    rows = pd.DataFrame({"date": pd.date_range("2024-01-01", periods=5), "sold": ["$1,005", "(2)", "-", "3", "4"]})
    with pd.ExcelWriter(tmp_path / "t.xlsx") as book:
        pd.DataFrame().to_excel(book, sheet_name="Empty", index=False)
        pd.DataFrame([["Sales of the year"]]).to_excel(book, sheet_name="Data", header=False, index=False)
        rows.to_excel(book, sheet_name="Data", startrow=2, index=False)
        rows.to_excel(book, sheet_name="More", index=False)
    frame = read_frame(tmp_path / "t.xlsx")
    assert frame["date"].tolist() == rows["date"].tolist()
    np.testing.assert_array_equal(frame["sold"], [1005, -2, np.nan, 3, 4])
    assert frame.attrs["notes"] == [
        "1 line is skipped before the names of the columns.",
        "only the sheet 'Data' is read, not 'More'.",
    ]
    (tmp_path / "bad.xlsx").write_bytes(b"no workbook")
    with pytest.raises(UserError, match="cannot be read as xlsx"):
        read_frame(tmp_path / "bad.xlsx")


def test_a_page_of_words_before_the_table_is_no_table(tmp_path):
    pytest.importorskip("openpyxl")
    with pd.ExcelWriter(tmp_path / "t.xlsx") as book:
        words = pd.DataFrame([["Sales of our shops", ""], ["Asked by", "Anna"], ["Made by", "Ben"]])
        words.to_excel(book, sheet_name="About", header=False, index=False)
        table = pd.DataFrame({"date": pd.date_range("2024-01-01", periods=3), "sold": ["1 234,5", "2,5", "n/a"]})
        table.to_excel(book, sheet_name="Data", index=False)
    frame = read_frame(tmp_path / "t.xlsx")
    np.testing.assert_array_equal(frame["sold"], [1234.5, 2.5, np.nan])
    assert frame.attrs["notes"] == ["only the sheet 'Data' is read, not 'About'."]


def test_a_workbook_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    (tmp_path / "t.xlsx").write_bytes(b"PK")
    with pytest.raises(UserError, match=r'needs openpyxl: install it with pip install "fourier-head\[cli\]"'):
        read_frame(tmp_path / "t.xlsx")


RECORDS = [{"date": "2024-01-01", "x": "$1,003.5"}, {"date": "2024-01-02", "x": None}]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.json", json.dumps(RECORDS)),
        ("a.json", json.dumps({"data": RECORDS})),
        ("a.json", json.dumps({"date": ["2024-01-01", "2024-01-02"], "x": ["$1,003.5", None]})),
        ("a.jsonl", "\n".join(map(json.dumps, RECORDS))),
        ("a.ndjson", "\n".join(map(json.dumps, RECORDS))),
    ],
)
def test_records_are_read_like_any_table(tmp_path, name, content):
    (tmp_path / name).write_text(content)
    frame = read_frame(tmp_path / name)
    assert frame["date"].tolist() == ["2024-01-01", "2024-01-02"]
    np.testing.assert_array_equal(frame["x"], [1003.5, np.nan])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('[{"x": [1, 2]}, {"x": 3}]', "one value in every cell, got several in 'x'"),
        ('{"x":', "a.json cannot be read as json"),
        ("[]", "a.json is empty"),
        ("5", "a.json cannot be read as json"),
    ],
)
def test_json_that_is_no_table_is_one_sentence(tmp_path, content, message):
    (tmp_path / "a.json").write_text(content)
    with pytest.raises(UserError, match=message):
        read_frame(tmp_path / "a.json")
