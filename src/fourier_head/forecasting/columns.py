"""Which column of a table is the time, which the value, which names the series; and dates in their spellings."""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fourier_head.errors import did_you_mean

if TYPE_CHECKING:
    import pandas as pd

TIMES = ("timestamp", "time", "date", "datetime", "ds", "day", "week", "month", "quarter", "year", "period", "hour")
TARGETS = ("target", "value", "y", "values", "sales", "demand", "quantity", "count", "amount", "load", "price")
NAMES = (
    "item_id",
    "unique_id",
    "series_id",
    "id",
    "series",
    "item",
    "key",
    "name",
    "sku",
    "store",
    "product",
    "symbol",
)


class Columns(NamedTuple):
    """The columns that count: names of series (none: one series), time (None: steps in order), values.

    Several values without a column of names are several series side by side.
    """

    names: tuple[str, ...]
    time: str | None
    values: tuple[str, ...]


def guess_columns(
    frame: pd.DataFrame, name: str | Sequence[str] | None = None, time: str | None = None, target: str | None = None
) -> Columns:
    """Return the columns that are meant, by what was given, else by their names, else by what they hold."""
    import pandas as pd

    if frame.columns.duplicated().any():
        twice = str(frame.columns[frame.columns.duplicated()][0])
        raise ValueError(f"columns must have different names, got {twice!r} twice.")
    names = (name,) if isinstance(name, str) else tuple(name or ())
    for wanted in (*names, time, target):
        if wanted is not None and wanted not in frame.columns:
            raise ValueError(f"there is no column {wanted!r}; {did_you_mean(str(wanted), map(str, frame.columns))}")
    left = [c for c in frame.columns if c not in (*names, time, target)]
    # A pandas reader names the index it wrote itself like this.
    left = [c for c in left if not re.fullmatch(r"Unnamed: \d+|index|", str(c).strip())]
    if time is None:
        time = _known(left, TIMES, lambda c: _is_time(frame[c])) or next((c for c in left if _is_time(frame[c])), None)
        left = [c for c in left if c != time]
    if not names:
        known = _known(left, NAMES, lambda c: True)
        if known is not None:
            names = (known,)
        elif time is None or frame[time].duplicated().any():
            # Several rows for one moment: the words beside them say which series each belongs to.
            names = tuple(c for c in left if c != target and not pd.api.types.is_numeric_dtype(frame[c]))
            names = tuple(c for c in names if _numeric_share(frame[c]) < 0.5)
        left = [c for c in left if c not in names]
    if target is not None:
        return Columns(names, time, (target,))
    numeric = [c for c in left if _numeric_share(frame[c]) > 0.5]
    if not numeric:
        listed = ", ".join(map(str, frame.columns)) or "none at all"
        raise ValueError(f"there is no numeric column to forecast; the columns are {listed}.")
    best = _known(numeric, TARGETS, lambda c: True)
    if best is not None:
        return Columns(names, time, (best,))
    if len(numeric) > 1 and (names or time is None):
        listed = ", ".join(map(str, numeric))
        raise ValueError(f"several columns hold numbers ({listed}): name the one to forecast as target.")
    return Columns(names, time, tuple(numeric))


def _known(columns: Sequence[str], wanted: Sequence[str], fits: Any) -> str | None:
    folded = {str(c).strip().casefold(): c for c in reversed(columns)}
    return next((folded[w] for w in wanted if w in folded and fits(folded[w])), None)


def _numeric_share(column: pd.Series) -> float:
    """Return the share of what is there that is a number."""
    import pandas as pd

    if pd.api.types.is_bool_dtype(column) or pd.api.types.is_datetime64_any_dtype(column):
        return 0.0
    if pd.api.types.is_numeric_dtype(column):
        return 1.0
    there = column.dropna()
    if not len(there) or isinstance(column.dtype, (pd.PeriodDtype, pd.CategoricalDtype)):
        return 0.0
    return float(pd.to_numeric(there.head(1000), errors="coerce").notna().mean())


def _is_time(column: pd.Series) -> bool:
    import pandas as pd

    if pd.api.types.is_datetime64_any_dtype(column) or isinstance(column.dtype, pd.PeriodDtype):
        return True
    there = column.dropna().head(20)
    if not len(there) or pd.api.types.is_bool_dtype(column):
        return False
    if pd.api.types.is_numeric_dtype(column):
        named = str(column.name).strip().casefold() in TIMES
        return named and _numbers_as_text(there) is not None
    if _numeric_share(column) > 0.5 and _numbers_as_text(there) is None:
        return False
    # What is called a date is one, even if it cannot be read: then that is the thing to say.
    return str(column.name).strip().casefold() in TIMES[:5] or len(_parse(there).dropna()) > 0.5 * len(there)


def _numbers_as_text(column: pd.Series) -> pd.Series | None:
    """Return dates written as whole numbers (2024, 202401, 20240131) as text, None where they are other numbers."""
    import pandas as pd

    numbers = pd.to_numeric(column, errors="coerce")
    if numbers.isna().any() or (numbers != numbers.round()).any() or not len(numbers):
        return None
    text = numbers.astype("int64").astype(str)
    for pattern in (r"1[5-9]\d\d|2[01]\d\d", r"(1[5-9]|2[01])\d\d(0[1-9]|1[0-2])", r"(1[5-9]|2[01])\d\d[01]\d[0-3]\d"):
        if text.str.fullmatch(pattern).all():
            return text
    return None


def _parse(column: pd.Series) -> pd.Series:
    """Return moments, NaT where a date cannot be read; time zones as they come."""
    import pandas as pd

    if isinstance(column.dtype, pd.PeriodDtype):
        return column.dt.to_timestamp()
    if pd.api.types.is_datetime64_any_dtype(column):
        return column
    digits = _numbers_as_text(column.dropna())
    if digits is not None:
        size = len(digits.iloc[0])
        form = {4: "%Y", 6: "%Y%m", 8: "%Y%m%d"}[size]
        return pd.to_datetime(digits, format=form, errors="coerce").reindex(column.index)
    if pd.api.types.is_numeric_dtype(column):
        return pd.Series(pd.NaT, index=column.index)
    text = column.astype("string").str.strip()
    # 2024Q1, 2024-Q1
    quarters = text.str.extract(r"^(\d{4})[- ]?Q([1-4])$")
    if quarters[0].notna().any():
        month = (pd.to_numeric(quarters[1]) * 3 - 2).astype("Int64").astype("string")
        return pd.to_datetime(quarters[0] + "-" + month + "-01", format="%Y-%m-%d", errors="coerce")
    first = text.dropna().head(200)
    dotted = bool(first.str.match(r"^\d{1,2}\.\d{1,2}\.\d{4}").all())
    late = first.str.extract(r"^(\d{1,2})[/.-]\d{1,2}[/.-]\d{2,4}")[0].dropna()
    day_first = dotted or bool((pd.to_numeric(late) > 12).any())
    with warnings.catch_warnings():
        # pandas says when it must guess a format row by row, and when zones differ; the result is checked here.
        warnings.simplefilter("ignore")
        try:
            return pd.to_datetime(text, errors="coerce", dayfirst=day_first)
        except (ValueError, TypeError):
            return pd.to_datetime(text, errors="coerce", dayfirst=day_first, utc=True)


def moments(column: pd.Series) -> tuple[np.ndarray, str | None]:
    """Return a column of dates as datetime64[ns] without a zone, and the zone they were in.

    Dates with a zone become local ones where all share a time of day, so that days stay days when clocks change, and
    universal ones elsewhere.
    """
    parsed = _parse(column)
    bad = np.flatnonzero(parsed.isna().to_numpy())
    if len(bad):
        found = column.iloc[bad[0]]
        what = "nothing" if found is None or found != found else repr(str(found)[:40])
        raise ValueError(f"the time column {str(column.name)!r} must hold dates, got {what} in row {bad[0] + 1}.")
    zone = getattr(parsed.dt, "tz", None)
    if zone is not None:
        local = parsed.dt.tz_localize(None)
        daily = (local - local.dt.normalize()).nunique() <= 1
        parsed = local if daily else parsed.dt.tz_convert("UTC").dt.tz_localize(None)
        zone = None if daily else "UTC"
    return parsed.to_numpy().astype("datetime64[ns]"), zone


def numbers(column: pd.Series) -> np.ndarray:
    """Return a column of values as float64, NaN where one is missing or infinite."""
    import pandas as pd

    kind = column.dtype.kind if isinstance(column.dtype, np.dtype) else "O"
    if kind in "mMc":
        raise ValueError(f"the target {str(column.name)!r} must hold numbers, got {column.dtype}.")
    values = pd.to_numeric(column, errors="coerce")
    wrong = np.flatnonzero((values.isna() & column.notna()).to_numpy())
    if len(wrong):
        found = str(column.iloc[wrong[0]])[:40]
        raise ValueError(f"the target {str(column.name)!r} must hold numbers, got {found!r} in row {wrong[0] + 1}.")
    out = values.to_numpy(dtype=np.float64, na_value=np.nan)
    return np.where(np.isfinite(out), out, np.nan)
