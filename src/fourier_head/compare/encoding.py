"""From columns of any kind to standardised features."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import pandas as pd

MOST_CATEGORIES = 32
_DATE = re.compile(r"^\s*(\d{4}[-/.]\d{1,2}([-/.]\d{1,2})?|\d{1,2}[-/.]\d{1,2}[-/.]\d{2,4})([T ]\d{1,2}:\d{2}.*)?\s*$")


@dataclass
class Encoder:
    """Turn columns into standardised numbers; everything it knows comes from the rows it was fitted on.

    Numbers: missing ones become the median, with a column that says so. Categories: one column for each of the most
    frequent, one for all others. Dates, constants and columns that name each row are left out, with a note.
    """

    plans: list[tuple[str, str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    mean: np.ndarray = field(default_factory=lambda: np.zeros(0))
    scale: np.ndarray = field(default_factory=lambda: np.ones(0))

    def fit(self, frame: pd.DataFrame) -> Encoder:
        for name in frame.columns:
            plan = self._plan(frame[name])
            if plan is not None:
                self.plans.append((name, *plan))
        raw = self._columns(frame)
        self.mean, scale = raw.mean(0), raw.std(0)
        self.scale = np.where(scale > 0, scale, 1.0)
        return self

    def transform(self, frame: pd.DataFrame) -> np.ndarray:
        # One absurd feature must not decide the whole prediction of a row.
        return np.clip((self._columns(frame) - self.mean) / self.scale, -10, 10).astype(np.float32)

    def _leave_out(self, column: pd.Series, why: str) -> tuple[str, Any] | None:
        self.notes.append(f"Column {column.name!r} is left out: {why}.")
        return None

    def _plan(self, column: pd.Series) -> tuple[str, Any] | None:
        import pandas as pd

        if column.notna().sum() == 0:
            return self._leave_out(column, "it has no values")
        if pd.api.types.is_datetime64_any_dtype(column) or isinstance(column.dtype, pd.PeriodDtype):
            return self._leave_out(column, "it holds dates")
        if pd.api.types.is_timedelta64_dtype(column) or pd.api.types.is_complex_dtype(column):
            return self._leave_out(column, f"{column.dtype} is neither a number nor a category")
        numbers = _as_numbers(column)
        if numbers is not None:
            known = numbers[np.isfinite(numbers)]
            if known.size == 0:
                return self._leave_out(column, "it has no finite values")
            if known.min() == known.max() and known.size == numbers.size:
                return self._leave_out(column, "it is constant")
            return "number", (float(np.median(known)), bool(known.size < numbers.size))
        try:
            counts = column.value_counts()
        except TypeError:
            return self._leave_out(column, "its entries are neither numbers nor text")
        text = counts.index.map(str)
        if all(_DATE.match(value) for value in text[:200]):
            return self._leave_out(column, "it holds dates")
        if len(counts) > max(MOST_CATEGORIES, len(column) / 2):
            return self._leave_out(column, f"nearly every row has its own text ({len(counts)} of {len(column)})")
        levels = [str(value) for value in text[:MOST_CATEGORIES]]
        if len(counts) > MOST_CATEGORIES:
            self.notes.append(
                f"Column {column.name!r} has {len(counts)} categories: the {MOST_CATEGORIES} most frequent are kept, "
                "the others share one column."
            )
        if len(counts) == 1 and column.notna().all():
            return self._leave_out(column, "it is constant")
        return "category", levels

    def _columns(self, frame: pd.DataFrame) -> np.ndarray:
        parts: list[np.ndarray] = []
        for name, kind, plan in self.plans:
            column = frame[name]
            if kind == "number":
                middle, flag = plan
                numbers = _coerced(column)
                known = np.isfinite(numbers)
                parts.append(np.where(known, numbers, middle))
                if flag:
                    parts.append((~known).astype(np.float64))
            else:
                text = column.map(str).to_numpy()
                missing = column.isna().to_numpy()
                hits = [(text == level) & ~missing for level in plan]
                parts += [hit.astype(np.float64) for hit in hits]
                parts.append((~np.any(hits, axis=0)).astype(np.float64))
        return np.stack(parts, 1) if parts else np.zeros((len(frame), 0))


def _coerced(column: pd.Series) -> np.ndarray:
    """Return a column as float64, NaN where it holds no number."""
    import pandas as pd

    return pd.to_numeric(column, errors="coerce").to_numpy(dtype=np.float64, na_value=np.nan)


def _as_numbers(column: pd.Series) -> np.ndarray | None:
    """Return a column as float64, NaN where missing, or None where it holds text."""
    import pandas as pd

    if isinstance(column.dtype, pd.CategoricalDtype):
        return None
    if pd.api.types.is_numeric_dtype(column):
        return _coerced(column)
    # Text that is all numbers, and decimal numbers from parquet, which pandas keeps as objects.
    numbers = _coerced(column)
    return None if (np.isnan(numbers) & column.notna().to_numpy()).any() else numbers
