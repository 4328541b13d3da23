"""Files as people have them: what names columns and series stays as it was written."""

import pandas as pd
import pytest

from fourier_head.errors import UserError
from fourier_head.table_files import read_frame


@pytest.fixture
def read(tmp_path):
    def write_and_read(text, name="data.csv"):
        (tmp_path / name).write_text(text, encoding="utf-8")
        return read_frame(tmp_path / name)

    return write_and_read


def test_na_and_none_are_words_among_words_and_missing_among_numbers(read):
    frame = read("region,promo,sold,open\nNA,None,3,True\nEMEA,flyer,NA,\n,n/a,None,False\n")
    assert frame["region"].tolist()[:2] == ["NA", "EMEA"]
    assert frame["promo"].tolist()[:2] == ["None", "flyer"]
    assert frame[["region", "promo"]].isna().to_numpy().tolist() == [[False] * 2, [False] * 2, [True] * 2]
    assert frame["sold"].isna().tolist() == [False, True, True]
    assert frame["open"].tolist()[::2] == [True, False]


def test_na_is_a_word_in_a_workbook_too(tmp_path):
    pytest.importorskip("openpyxl")
    table = pd.DataFrame({"region": ["NA", "EMEA", None], "sold": [1.0, None, 3.0]})
    table.to_excel(tmp_path / "data.xlsx", index=False)
    frame = read_frame(tmp_path / "data.xlsx")
    assert frame["region"].tolist()[:2] == ["NA", "EMEA"]
    assert frame.isna().to_numpy().tolist() == [[False, False], [False, True], [True, False]]


def test_zeros_in_front_are_part_of_a_name(read):
    frame = read("month;town;units;share\n01;01067;5;0,5\n02;80331;7;0,25\n")
    assert frame["town"].tolist() == ["01067", "80331"]
    assert frame[["month", "units", "share"]].to_numpy().tolist() == [[1, 5, 0.5], [2, 7, 0.25]]


def test_names_of_columns_have_no_spaces_around_them(read):
    assert list(read(" date , Total Sales ,x\n2024-01-01,3,4\n")) == ["date", "Total Sales", "x"]
    assert list(read("a,a ,b\n1,2,3\n")) == ["a", "a ", "b"], "two names stay two"


@pytest.mark.parametrize(
    ("spelt", "value"),
    [("1'234.50", 1234.5), ("1’234’567", 1234567), ("12,34,567.5", 1234567.5), ("$(801.46)", -801.46), ("-$5.00", -5)],
)
def test_numbers_are_read_as_people_write_them_elsewhere(read, spelt, value):
    frame = read(f'day,sold\n2024-01-01,"{spelt}"\n2024-01-02,"$7.50"\n')
    assert frame["sold"].tolist() == [value, 7.5]


@pytest.mark.parametrize("text", ["(5", "5)", "1,2", "1,23", "12,3456", "1,234,5"])
def test_what_only_looks_like_a_number_stays_text(read, text):
    assert read(f'day,list\n2024-01-01,"{text}"\n2024-01-02,"{text}"\n')["list"].tolist() == [text] * 2


def test_a_file_that_begins_with_a_row_is_refused_even_where_it_has_words(read):
    with pytest.raises(UserError, match="no header row"):
        read("2024-01-01,north,5\n2024-01-02,north,6\n")
    wide = read("product,2024-01,2024-02\ntea,5,6\nmilk,7,8\n")
    assert list(wide) == ["product", "2024-01", "2024-02"]
