"""Turned tables: a row for each series, and a column for each time or step."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd
from pandas.api import types

from fourier_head.forecasting.columns import PARTS, guess_names, is_numeric, is_time
from fourier_head.forecasting.dates import parse_dates
from fourier_head.forecasting.series_set import label
from fourier_head.forecasting.time_names import folded, number_of_month
from fourier_head.spellings import are_empty, is_index, numbers

_FEWEST = 10
"""Numbered columns that are taken for steps; fewer may as well be quantities."""


def spread_times(frame: pd.DataFrame, taken: Iterable[str | None]) -> pd.DataFrame:
    """Return the table with a row for each value where times name its columns, or months do beside years.

    >>> spread_times(pd.DataFrame({"shop": ["a", "b"], "2021-01": ["5", 6], "2021-02": [7, 8]}), ()).iloc[1].tolist()
    ['b', '2021-01', 6]
    """
    own = _untimed(frame, taken)
    # The World Bank has 2021 [YR2021].
    names = pd.Series(own, dtype=object).astype("string").str.strip().str.replace(r" \[\w+\]$", "", regex=True)
    digits = names.str.fullmatch(r"(?:1[5-9]|2[01])\d\d(?:(?:0[1-9]|1[0-2])(?:[0-3]\d)?)?")
    if any(folded(c) == "year" for c in frame.columns):
        called, those, least = "month", names.str.fullmatch("0?[1-9]|1[0-2]") | names.map(number_of_month).notna(), 12
    elif digits.any():
        called, those, least = "year" if names[digits].str.len().max() == 4 else "date", digits, 2
    else:
        called, those, least = "date", parse_dates(names.where(names.str.contains(r"\d\D|\D\d")))[0].notna(), 2
    numeric = {c for c in own if _may_hold_values(frame[c])}
    written = {c: name for c, name, is_one in zip(own, names, those, strict=True) if is_one}
    times = [c for c in written if c in numeric or _holds_remarks(frame[c])]
    rest = [c for c in frame.columns if c not in times]
    named = {folded(c) for c in rest}
    index = _name_of_index(frame)
    # Something else must tell rows apart; where nothing does, columns are series side by side.
    apart = bool(named) or index is not None or len(frame) == 1
    if len(numeric & set(times)) < max(least, len(numeric) / 2) or not apart or named & {called, "value", index}:
        return frame
    # Remarks under a table have no values.
    frame = frame[frame[times].notna().any(axis=1) | (frame[rest].notna().sum(axis=1) > 1) | (len(rest) < 2)]
    frame = pd.concat([frame[rest], _values(frame, times)], axis=1).rename(columns=written)
    times = [written[c] for c in times]
    long = frame.melt(rest, times, called, "value", ignore_index=False).astype({called: "string"})
    return long.reset_index(drop=True) if index is None else long.reset_index(names=index)


def _holds_remarks(column: pd.Series) -> bool:
    """Tell whether a column of text holds nothing, however it is spelt, or numbers with something beside them."""
    text = column.dropna().astype("string").str.strip()
    return bool(are_empty(text).all() or text.str.match(r"\d").any())


def numbered_steps(frame: pd.DataFrame, names: Sequence[Any], aggregate: str | None) -> pd.DataFrame | None:
    """Return the values of a table whose columns number the steps of the series in its rows, by their names.

    The columns are called alike, d_1 to d_1941 or V2 to V1001, and are most of those that hold numbers.
    None for other tables.

    Args:
        names: columns that name the series, guessed unless given.
        aggregate: what to make of several rows of one series.

    Example:
        >>> table = pd.DataFrame([range(12)] * 2, columns=[f"d_{i}" for i in range(1, 13)]).assign(shop=["a", "b"])
        >>> values = numbered_steps(table, (), None)
        >>> values.shape, values.index.names, values.index.tolist()
        ((2, 12), FrozenList(['shop']), ['a', 'b'])
    """
    numeric = [c for c in _untimed(frame, names) if _may_hold_values(frame[c])]
    parts = pd.Series(numeric, dtype=object).astype("string").str.extract(r"^(\D*)(\d{1,6})$").dropna()
    steps = parts[parts[0] == parts[0].mode()[0]] if len(parts) else parts
    number = steps[1].astype(int)
    if len(steps) < max(_FEWEST, len(numeric) / 2) or (number.diff()[1:] != 1).any():
        return None
    if steps[0].iloc[0].strip() == "" and number.iloc[0] > 2:  # years, or some numbers
        return None
    columns = [numeric[i] for i in steps.index]
    if (index := _name_of_index(frame)) is not None and index not in frame:
        frame = frame.reset_index(names=index)
    rest = [c for c in frame.columns if c not in columns and not is_index(c)]
    when = np.zeros(len(frame), dtype="datetime64[ns]")
    keys = list(names) or list(guess_names(frame, rest, [c for c in rest if c in numeric], when))
    values = _values(frame, columns).astype(np.float64)
    if not keys:
        return values if len(frame) == 1 else None
    values.index = pd.MultiIndex.from_frame(frame[keys]) if len(keys) > 1 else pd.Index(frame[keys[0]])
    if not values.index.has_duplicates:
        return values
    if aggregate is not None:
        groups = values.groupby(level=list(range(len(keys))), sort=False, dropna=False)
        return groups.sum(min_count=1) if aggregate == "sum" else groups.mean()
    if not names:
        return None
    twice = values.index[values.index.duplicated()][0]
    raise ValueError(
        f"{label(twice)} has several rows; add them up with aggregate='sum', take their mean with aggregate='mean', or "
        "name the columns that tell them apart as id."
    )


def _untimed(frame: pd.DataFrame, taken: Iterable[Any]) -> list[Any]:
    """Return the columns that times or steps may be spread over: none in a table with a column of times."""
    own = [c for c in frame.columns if c not in set(taken) and not is_index(c) and folded(c) not in PARTS]
    return [] if any(is_time(frame[c]) for c in own) else own


def _may_hold_values(column: pd.Series) -> bool:
    return is_numeric(column) or not column.notna().any()


def _name_of_index(frame: pd.DataFrame) -> Any:
    """Return what the names are called that a table which was turned by pandas has as its index, None elsewhere."""
    return None if types.is_numeric_dtype(frame.index) and frame.index.name is None else frame.index.name or "id"


def _values(frame: pd.DataFrame, columns: Sequence[Any]) -> pd.DataFrame:
    """Return columns of numbers, missing where a cell says so in its way; raise where one holds none."""
    out = {}
    for c in columns:
        out[c] = frame[c] if types.is_numeric_dtype(frame[c]) else frame[c].mask(are_empty(frame[c]))
        numbers(out[c], f"the column {str(c)!r}", finite=True)  # says what a cell holds that is none
    return pd.DataFrame(out, index=frame.index)
