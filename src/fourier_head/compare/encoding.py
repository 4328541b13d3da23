"""Which columns of a table serve as inputs, and why others do not."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd

from fourier_head.tabular.columns import MOST_LEVELS, Categories, Columns

_DATE = re.compile(r"^\s*(\d{4}[-/.]\d{1,2}([-/.]\d{1,2})?|\d{1,2}[-/.]\d{1,2}[-/.]\d{2,4})([T ]\d{1,2}:\d{2}.*)?\s*$")


class Encoder:
    """Turn columns into inputs as ``FourierRegressor`` does; everything it knows comes from the rows it is made with.

    Dates, constants and columns that name each row are left out, with a note.
    """

    def __init__(self, frame: pd.DataFrame):
        self.notes: list[str] = []
        self._are_levels: dict[str, bool] = {}
        for name in frame.columns:
            reason, levels = _purpose(frame[name])
            if reason:
                self.notes.append(f"Column {name!r} is left out: {reason}.")
                continue
            self._are_levels[name] = levels > 0
            if levels > MOST_LEVELS:
                self.notes.append(f"Column {name!r} has {levels} categories: the {MOST_LEVELS} most frequent count.")
        self._categories = Categories(self._chosen(frame))
        codes = self._categories(self._chosen(frame)).to_numpy(np.float64)
        self._columns = Columns(codes, np.ones(len(frame)), self._categories.mask)

    def __call__(self, frame: pd.DataFrame) -> np.ndarray:
        """Return the inputs of rows, (rows, inputs), none where no column serves."""
        if not self._are_levels:
            return np.zeros((len(frame), 0), dtype=np.float32)
        return self._columns(self._categories(self._chosen(frame)).to_numpy(np.float64), pieces=False)

    def _chosen(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Return the columns that serve, as finite numbers or text, missing where one is neither."""
        columns = {
            name: frame[name].map(str).astype(object).where(frame[name].notna()) if levels else _finite(frame[name])
            for name, levels in self._are_levels.items()
        }
        return pd.DataFrame(columns, index=frame.index)


def _purpose(column: pd.Series) -> tuple[str, int]:
    """Return why a column does not serve, else nothing, and how many levels it has, 0 for numbers."""
    there = column.dropna()
    if not len(there):
        return "it has no values", 0
    if pd.api.types.is_datetime64_any_dtype(column) or isinstance(column.dtype, pd.PeriodDtype):
        return "it holds dates", 0
    if pd.api.types.is_timedelta64_dtype(column) or pd.api.types.is_complex_dtype(column):
        return f"{column.dtype} is neither a number nor a category", 0
    if not there.map(pd.api.types.is_hashable).all():
        return "its entries are neither numbers nor text", 0
    counts = there.map(str).value_counts()
    constant = "it is constant" if len(counts) == 1 and len(there) == len(column) else ""
    # Text that is all numbers, and decimal numbers from parquet, which pandas keeps as objects, are numbers.
    if not isinstance(column.dtype, pd.CategoricalDtype) and pd.to_numeric(there, errors="coerce").notna().all():
        return constant if np.isfinite(_finite(there)).any() else "it has no finite values", 0
    if all(_DATE.match(value) for value in counts.index[:200]):
        return "it holds dates", 0
    if len(counts) > max(MOST_LEVELS, len(column) / 2):
        return f"nearly every row has its own text ({len(counts)} of {len(column)})", 0
    return constant, len(counts)


def _finite(column: pd.Series) -> np.ndarray:
    """Return a column as float64, NaN where it holds no finite number."""
    numbers = pd.to_numeric(column, errors="coerce").to_numpy(dtype=np.float64, na_value=np.nan)
    return np.where(np.isfinite(numbers), numbers, np.nan)
