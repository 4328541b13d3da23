"""Which columns of a table serve as inputs, and why others do not."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

from fourier_head.tabular.columns import MOST_LEVELS, Columns

if TYPE_CHECKING:
    import pandas as pd

_DATE = re.compile(r"^\s*(\d{4}[-/.]\d{1,2}([-/.]\d{1,2})?|\d{1,2}[-/.]\d{1,2}[-/.]\d{2,4})([T ]\d{1,2}:\d{2}.*)?\s*$")


class Encoder:
    """Turn columns into inputs as ``FourierRegressor`` does; everything it knows comes from the rows it is made with.

    Dates, constants and columns that name each row are left out, with a note.
    """

    def __init__(self, frame: pd.DataFrame):
        self.notes: list[str] = []
        self._levels: dict[str, list[str] | None] = {}
        for name in frame.columns:
            reason, levels = _levels_of(frame[name])
            if reason:
                self.notes.append(f"Column {name!r} is left out: {reason}.")
                continue
            self._levels[name] = levels
            if levels is not None and len(levels) > MOST_LEVELS:
                self.notes.append(
                    f"Column {name!r} has {len(levels)} categories: the {MOST_LEVELS} most frequent count."
                )
        categorical = np.array([levels is not None for levels in self._levels.values()], dtype=bool)
        self._columns = Columns(self._numbers(frame), np.ones(len(frame)), categorical)

    def __call__(self, frame: pd.DataFrame) -> np.ndarray:
        """Return the inputs of rows, (rows, inputs), none where no column serves."""
        if not self._levels:
            return np.zeros((len(frame), 0), dtype=np.float32)
        return self._columns(self._numbers(frame), pieces=False)

    def _numbers(self, frame: pd.DataFrame) -> np.ndarray:
        """Return numbers and codes of categories, NaN where one is missing or unknown."""
        each = [
            _finite(frame[name]) if levels is None else _codes(frame[name], levels)
            for name, levels in self._levels.items()
        ]
        return np.stack(each, 1) if each else np.zeros((len(frame), 0))


def _levels_of(column: pd.Series) -> tuple[str, list[str] | None]:
    """Return why a column does not serve, else nothing, and its levels, most frequent first, None for numbers."""
    import pandas as pd

    there = column.dropna()
    if not len(there):
        return "it has no values", None
    if pd.api.types.is_datetime64_any_dtype(column) or isinstance(column.dtype, pd.PeriodDtype):
        return "it holds dates", None
    if pd.api.types.is_timedelta64_dtype(column) or pd.api.types.is_complex_dtype(column):
        return f"{column.dtype} is neither a number nor a category", None
    try:
        counts = there.map(str).value_counts() if there.map(pd.api.types.is_hashable).all() else None
    except TypeError:
        counts = None
    if counts is None:
        return "its entries are neither numbers nor text", None
    constant = "it is constant" if len(counts) == 1 and len(there) == len(column) else ""
    # Text that is all numbers, and decimal numbers from parquet, which pandas keeps as objects, are numbers.
    if not isinstance(column.dtype, pd.CategoricalDtype) and pd.to_numeric(there, errors="coerce").notna().all():
        return constant if np.isfinite(_finite(there)).any() else "it has no finite values", None
    if all(_DATE.match(value) for value in counts.index[:200]):
        return "it holds dates", None
    if len(counts) > max(MOST_LEVELS, len(column) / 2):
        return f"nearly every row has its own text ({len(counts)} of {len(column)})", None
    return constant, list(counts.index)


def _finite(column: pd.Series) -> np.ndarray:
    """Return a column as float64, NaN where it holds no finite number."""
    import pandas as pd

    numbers = pd.to_numeric(column, errors="coerce").to_numpy(dtype=np.float64, na_value=np.nan)
    return np.where(np.isfinite(numbers), numbers, np.nan)


def _codes(column: pd.Series, levels: list[str]) -> np.ndarray:
    import pandas as pd

    codes = pd.Categorical(column.map(str).where(column.notna()), levels).codes
    return np.where(codes < 0, np.nan, codes)
