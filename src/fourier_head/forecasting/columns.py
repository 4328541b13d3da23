"""Which column of a table is the time, which the value, which names the series."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fourier_head.errors import did_you_mean
from fourier_head.forecasting.dates import CLOCK, moments, number_dates, parse_dates, whole_number_dates

if TYPE_CHECKING:
    import pandas as pd

MOMENTS = ("timestamp", "time", "date", "datetime", "ds")
TIMES = (*MOMENTS, "day", "week", "month", "quarter", "year", "period", "hour")
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
        time = _guess_time(frame, left)
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


def _guess_time(frame: pd.DataFrame, columns: Sequence[str]) -> str | None:
    time = _known(columns, TIMES, lambda c: is_time(frame[c]))
    if time is None:
        time = next((c for c in columns if is_time(frame[c])), None)
    # What is called a date is one, even if it cannot be read: then that is the thing to say.
    return _known(columns, TIMES, lambda c: is_unread_time(frame[c])) if time is None else time


def named_like_time(name: Any, wanted: Sequence[str] = TIMES) -> bool:
    """Tell whether a column is called a time."""
    return str(name).strip().casefold() in wanted


def is_time(column: pd.Series) -> bool:
    """Tell whether a column holds dates; numbers do where they can be read so and the column is called a time."""
    import pandas as pd

    if pd.api.types.is_datetime64_any_dtype(column) or isinstance(column.dtype, pd.PeriodDtype):
        return True
    there = column.dropna()
    if not len(there) or pd.api.types.is_bool_dtype(column):
        return False
    if pd.api.types.is_numeric_dtype(column):
        return named_like_time(column.name) and number_dates(there) is not None
    there = there.head(20)
    if _numeric_share(column) > 0.5:
        read = number_dates(there) if named_like_time(column.name) else whole_number_dates(there)
        return read is not None
    return len(parse_dates(there)[0].dropna()) > 0.5 * len(there)


def is_unread_time(column: pd.Series) -> bool:
    """Tell whether a column, none of dates that can be read, must have been meant as one by its name."""
    import pandas as pd

    if pd.api.types.is_bool_dtype(column) or not named_like_time(column.name) or not column.notna().any():
        return False
    values = pd.to_numeric(column.dropna(), errors="coerce")
    if values.isna().any():
        return True
    # Hours of a day and days of a week are numbers of their own right; steps counted from 0 or 1 say nothing new.
    steps = np.unique(values.to_numpy(dtype=np.float64))
    counted = steps[0] in (0, 1) and (len(steps) < 3 or np.allclose(np.diff(steps), steps[1] - steps[0]))
    return named_like_time(column.name, MOMENTS) and not counted


def join_dates(frame: pd.DataFrame, taken: Sequence[str | None] = ()) -> pd.DataFrame:
    """Return the table with one column of moments where they are spread over several: date and time, year and month.

    Years, months and perhaps days are joined only where no other column holds dates.

    Arguments:
        taken: columns that mean something else.
    """
    import pandas as pd

    named = {str(c).strip().casefold(): c for c in frame.columns if c not in taken}
    if "date" in named and "time" in named and is_time(frame[named["date"]]):
        clock = frame[named["time"]].astype("string").str.strip()
        if clock.str.fullmatch(CLOCK).fillna(False).all():
            since = pd.to_timedelta(clock.where(clock.str.count(":") == 2, clock + ":00"))
            dates = moments(frame[named["date"]])[0]
            return frame.drop(columns=named["time"]).assign(**{named["date"]: dates + since.to_numpy()})
    parts = {part: named[part] for part in ("year", "month", "day") if part in named}
    others = [c for c in frame.columns if c not in parts.values()]
    if not {"year", "month"} <= set(parts) or "date" in frame.columns or any(is_time(frame[c]) for c in others):
        return frame
    if not all(pd.api.types.is_integer_dtype(frame[c]) for c in (parts["year"], parts["month"])):
        return frame
    for used in (("year", "month", "day"), ("year", "month")):
        if not set(used) <= set(parts):
            continue
        numbers = {"day": 1} | {part: frame[parts[part]] for part in used}
        dates = pd.to_datetime(pd.DataFrame(numbers, index=frame.index), errors="coerce")
        if dates.notna().all():
            joined = frame.drop(columns=[parts[part] for part in used])
            joined.insert(0, "date", dates)
            return joined
    return frame


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
