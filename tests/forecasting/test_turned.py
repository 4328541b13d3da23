"""Turned tables whose columns are numbered: a row for each series, and a column for each step."""

import warnings

import numpy as np
import pandas as pd
import pytest

from fourier_head.forecasting.inputs import read_series

VALUES = np.arange(60.0).reshape(4, 15)


def m5(**more):
    """Return a table as the M5 competition has it."""
    names = {"item_id": ["a", "a", "b", "b"], "state_id": "CA", "store_id": ["x", "z", "x", "z"]}
    days = pd.DataFrame(VALUES, columns=[f"d_{i}" for i in range(1, 16)])
    return pd.concat([pd.DataFrame({**more, **names}, index=range(4)), days], axis=1)


@pytest.mark.parametrize(
    ("table", "id", "names"),
    [
        (m5(), ["item_id", "store_id"], [("a", "x"), ("a", "z"), ("b", "x"), ("b", "z")]),
        (m5(id=["a_x", "a_z", "b_x", "b_z"]), "id", ["a_x", "a_z", "b_x", "b_z"]),
        (m5().iloc[::2].drop(columns=["state_id", "store_id"]), "item_id", ["a", "b"]),
        (m5().iloc[::2].set_index("item_id").drop(columns=["state_id", "store_id"]), "item_id", ["a", "b"]),
        (m5()[:1].filter(like="d_"), None, ["value"]),
    ],
)
def test_numbered_columns_are_steps_of_the_series_in_the_rows(table, id, names):
    series = read_series(table)
    assert (series.names, series.timing) == (names, "no dates")
    assert series.guessed == ({} if id is None else {"id": id})
    np.testing.assert_array_equal(series.values, table.filter(like="d_"))
    assert any(note.startswith("15 columns, from 'd_1' to 'd_15', are numbered and taken") for note in series.notes)
    again = read_series(table, **series.guessed, freq="D")
    assert again.names == names
    assert again.timing == "daily, no dates"


def test_series_of_the_m4_competition_end_where_their_values_end():
    table = pd.DataFrame(VALUES.copy(), columns=[f"V{i}" for i in range(2, 17)])
    table.insert(0, "V1", ["M1", "M2", "M3", "M4"])
    table.loc[1, "V9":] = np.nan
    table.loc[2, "V4"] = np.nan
    series = read_series(table)
    assert (series.names, [len(one) for one in series.values]) == (["M1", "M2", "M3", "M4"], [15, 7, 15, 15])
    assert np.isnan(series.values[2][2])


def test_rows_of_one_series_are_put_together_as_was_said():
    with pytest.raises(ValueError, match=r"series 'x' has several rows; add them up with aggregate='sum'"):
        read_series(m5(), id="store_id")
    for how, part in (("sum", 1), ("mean", 2)):
        series = read_series(m5(), id="store_id", aggregate=how)
        assert series.names == ["x", "z"]
        np.testing.assert_array_equal(series.values, (VALUES[:2] + VALUES[2:]) / part)


def test_quantities_that_are_numbered_are_no_steps():
    table = m5().drop(columns=["state_id", "store_id"])  # now no words tell rows apart
    with pytest.raises(ValueError, match=r"several columns hold numbers \(d_1, d_2, ") as error:
        read_series(table)
    assert len(str(error.value)) < 300
    dated = m5().filter(like="d_").assign(date=pd.date_range("2024-01-01", periods=4))
    assert len(read_series(dated)) == 15
    assert len(read_series(m5()[["item_id", "store_id", "d_1"]], target="d_1", id=["item_id", "store_id"])) == 4


def test_many_columns_of_an_error_are_not_all_listed():
    table = pd.DataFrame(np.ones((3, 300)), columns=[f"sensor {i} of b{i % 7}x" for i in range(300)])
    with pytest.raises(ValueError, match=r"of b2x, \.\.\., sensor 299 of b5x; 300 in all\)"):
        read_series(table)


def test_a_wide_table_is_read_without_a_word_about_fragments():
    table = pd.DataFrame(np.ones((5, 400)), columns=[f"d_{i}" for i in range(400)]).assign(id=list("abcde"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(read_series(table).values[0]) == 400
