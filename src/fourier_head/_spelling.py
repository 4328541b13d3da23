"""Numbers as spreadsheets write them: decimal commas, thousands, currency and percent signs, brackets for a loss."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np

from fourier_head.errors import UserError

if TYPE_CHECKING:
    import pandas as pd

_MISSING = ["-", "–", "—", "?", ""]
"""Among numbers; elsewhere these may be names."""
_SIGNS = "$€£¥₹₩₽₺₪฿"
_SPACES = " \u00a0\u202f"
# Groups of thousands have three digits: "1,2" is a name or a list, no number.
POINT, COMMA = (
    rf"^(?=\(.*\)$|[^()]*$)(?P<minus>[-−(]?)\s*[{_SIGNS}]?\s*(?=\D?\d)(?P<whole>\d{{1,3}}(?:[{group}]\d{{3}})+|\d*)"
    rf"(?:[{point}](?P<rest>\d+))?(?P<power>[eE][-+]?\d+)?\s*[%{_SIGNS}]?\)?$"
    for group, point in ((",", "."), ("." + _SPACES, ","))
)
_DATE = r"(?:\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}|\d{4}[-/.]\d{1,2}|\d{1,2}[-/.]\d{4})(?:[ T].*)?$"


def respell(frame: pd.DataFrame, pattern: str = POINT) -> list[Any]:
    """Make numbers of the columns of text all of whose values are spelt like a number; return those columns.

    >>> import pandas as pd
    >>> table = pd.DataFrame({"won": ["$1,003.77", "(801.46)", "-"], "share": ["14.1%", "7%", None], "who": ["a"] * 3})
    >>> respell(table), table["won"].tolist(), table["share"].tolist()
    (['won', 'share'], [1003.77, -801.46, nan], [14.1, 7.0, nan])
    """
    import pandas as pd

    found = []
    for column in frame.columns[~frame.columns.duplicated(keep=False)]:
        values = frame[column]
        if not (pd.api.types.is_object_dtype(values) or pd.api.types.is_string_dtype(values)):
            continue
        # A look at a few saves the work on columns of words.
        for some in (first_values(values, 50), values.dropna()):
            text = some.astype("string").str.strip()
            parts = text[~text.isin(_MISSING)].str.extract(pattern)
            if not len(parts) or parts["whole"].isna().any() or not all(isinstance(x, (str, int, float)) for x in some):
                break
        else:
            # Digits alone that pandas left as text are names too long for a number.
            if not text.str.fullmatch(r"[\d\s]*").all():
                whole = parts["whole"].str.replace(rf"[.,{_SPACES}]", "", regex=True)
                minus = parts["minus"].str.replace(".", "-", regex=True)
                spelt = minus + whole + "." + parts["rest"].fillna("0") + parts["power"].fillna("")
                frame[column] = pd.to_numeric(spelt).astype("float64").reindex(frame.index)
                found.append(column)
    return found


def first_values(column: pd.Series, count: int) -> pd.Series:
    """Return the first values of a column that are there, without a look at all of a long one."""
    some = column.head(count).dropna()
    return some if len(some) else column.dropna().head(count)


def numbers(column: pd.Series, called: str, finite: bool = False) -> np.ndarray:
    """Return a column of values as float64, NaN where one is missing; raise where one is no (finite) number."""
    import pandas as pd

    if isinstance(column.dtype, np.dtype) and column.dtype.kind in "mMc":
        raise ValueError(f"{called} must hold numbers, got {column.dtype}.")
    out = pd.to_numeric(column, errors="coerce").to_numpy(dtype=np.float64, na_value=np.nan)
    wrong = np.flatnonzero(np.isnan(out) & column.notna().to_numpy())
    if len(wrong):
        found = str(column.iloc[wrong[0]])[:40]
        raise ValueError(f"{called} must hold numbers, got {found!r} in row {wrong[0] + 1}.")
    endless = np.flatnonzero(np.isinf(out))
    if finite and len(endless):
        found = f"{out[endless[0]]} in row {endless[0] + 1}"
        raise ValueError(f"{called} must hold finite numbers, got {found}; leave it empty.")
    return out


def is_value(text: str) -> bool:
    """Tell whether a text is a number or a date, which names no column."""
    try:
        float(text)
    except ValueError:
        return any(re.match(pattern, text) for pattern in (POINT, COMMA, _DATE))
    return True


def check_header(frame: pd.DataFrame, name: str) -> None:
    """Raise where the names of all columns are values, as they are in a file that starts with its first row."""
    names = [str(column).strip() for column in frame.columns]
    # pandas itself numbers the columns of an array.
    numbered = names in [[str(i + first) for i in range(len(names))] for first in (0, 1)]
    if names and not numbered and all(map(is_value, names)):
        got = ", ".join(names[:3])
        raise UserError(f"{name} seems to have no header row: it must begin with the names of its columns, got {got}.")
