"""Text files as spreadsheets write them: what becomes a number, what stays text, and what is refused."""

import numpy as np
import pandas as pd
import pytest

from fourier_head.compare.data import read_frame
from fourier_head.errors import UserError


def read(tmp_path, text, encoding="utf-8", name="t.csv"):
    (tmp_path / name).write_bytes(text.encode(encoding))
    return read_frame(tmp_path / name)


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
    ],
)
def test_numbers_are_numbers_however_they_are_spelt(tmp_path, text, want):
    frame = read(tmp_path, text)
    assert pd.api.types.is_float_dtype(frame["x"])
    np.testing.assert_array_equal(frame["x"], want)
    assert frame["day"].tolist() == [1, 2]


@pytest.mark.parametrize(
    "values",
    [["1,2", "3,4"], ["1,003", "none"], ["12,34", "1,234"], ["$", "$5"], ["1" * 30, "2" * 30], ["5 m", "6 m"]],
)
def test_names_stay_text(tmp_path, values):
    frame = read(tmp_path, "x,y\n" + "".join(f'"{value}",1\n' for value in values))
    assert frame["x"].tolist() == values


def test_points_are_thousands_only_where_commas_are_decimal(tmp_path):
    frame = read(tmp_path, "date;a;b;c\n01.02.2016;1,5;1.003;1.5\n01.03.2016;2;999;2.25\n")
    assert frame["b"].tolist() == [1003, 999]
    assert frame["c"].tolist() == [1.5, 2.25]
    assert frame["date"].tolist() == ["01.02.2016", "01.03.2016"]
    assert read(tmp_path, "a;b\n1;1.003\n2;999\n")["b"].tolist() == [1.003, 999]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "cp1252", "utf-16"])
def test_letters_are_read_in_the_usual_encodings(tmp_path, encoding):
    frame = read(tmp_path, "Größe;Preis\nKöln;5 €\nMünchen;1,5 €\n", encoding)
    assert list(frame.columns) == ["Größe", "Preis"]
    assert frame["Größe"].tolist() == ["Köln", "München"]
    assert frame["Preis"].tolist() == [5, 1.5]


@pytest.mark.parametrize("first", ["2016-01-01,1003.77", "31/01/2016,5", "2016-01,7,8", '"1,003.77",5', "1.5,2.5"])
def test_a_file_without_a_header_is_one_sentence(tmp_path, first):
    with pytest.raises(UserError, match=r"^t\.csv seems to have no header row: it must begin with the names"):
        read(tmp_path, f"{first}\n{first}\n")


@pytest.mark.parametrize("first", ["0,1,2", "1,2", "date,2016", "0-4,5-9", ",0,1"])
def test_columns_may_be_numbered(tmp_path, first):
    count = first.count(",") + 1
    assert read(tmp_path, f"{first}\n{','.join('7' * count)}\n").shape == (1, count)
