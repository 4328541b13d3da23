"""Numbers as people and spreadsheets write them: decimal commas, thousands, money, brackets for a loss, units."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pandas as pd
from pandas.api import types

# Among numbers these are no number, the errors of spreadsheets among them; words are, where most others are numbers.
_EMPTY = r"[-–—?*:.…]*|#(?:N/A|DIV/0!|VALUE!|REF!|NAME\?|NUM!|NULL!)"
_EMPTY_WORDS = r"(?i:n/?a|n\.a\.|none|null|nan|missing|unknown|unavailable|no data)"
CODE = r"0\d{2,}"
"""Zeros in front are part of a name, such as 01067, the code of a town."""
_SIGNS = "$€£¥₹₩₽₺₪฿"
_SPACES = " \u00a0\u2009\u202f"
# Groups of thousands have three digits: "1,2" is a name or a list, no number. In India all but the last may have two.
POINT, COMMA = (
    rf"^(?=[^()]*(?:\([^()]*\))?$)[{_SIGNS}]?\s*(?P<minus>[-−(]?)\s*[{_SIGNS}]?\s*(?=\D?\d)(?P<whole>{whole}|\d*)"
    rf"(?:[{point}](?P<rest>\d+))?(?P<power>[eE][-+]?\d+)?\s*[%{_SIGNS}]?\)?$"
    for whole, point in (
        (rf"\d{{1,3}}(?:[,'’{_SPACES}]\d{{3}})+|\d{{1,2}}(?:,\d{{2}})*,\d{{3}}", "."),
        (rf"\d{{1,3}}(?:[.{_SPACES}]\d{{3}})+", ","),
    )
)
_MONTH = r"(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)\w*"
# "5 m", "1,700.50 USD" or "EUR 5": a unit is a word, no month, hour or "1st".
_UNIT = (
    rf"(?i:(?!.*\b{_MONTH}$)(?!{_MONTH})(?!.*\d\s*(?:[ap]\.?m\.?|st|nd|rd|th)$))"
    r"(?:(?P<before>[A-Z]{3}\s|R\$|Rs\.?)\s*)?(?P<number>[^A-Za-z]*\d\)?)\s*(?P<after>(?:[^\W\d_]|[°%‰])[^\s,()]{0,11})?"
)
TIMES = r"(?i:year|quarter|month|week|day|date|hour|minute|time|jahr|monat|datum|zeit|fecha)s?"
DATE = r"(?:\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}|\d{4}[-/.]\d{1,2}|\d{1,2}[-/.]\d{4})(?:[ T].*)?$"
"""A day or a month as numbers, and maybe a time."""


def respell(frame: pd.DataFrame, pattern: str = POINT) -> list[Any]:
    """Make numbers of the columns of text all of whose values are spelt like a number; return those columns.

    A comma is that of decimals, too, where a table has no other numbers.

    >>> table = pd.DataFrame({"won": ["$1,003.77", "(801.46)", "-"], "share": ["14.1%", "7%", None], "who": ["a"] * 3})
    >>> respell(table), table["won"].tolist(), table["share"].tolist()
    (['won', 'share'], [1003.77, -801.46, nan], [14.1, 7.0, nan])
    """
    found = []
    for column in frame.columns[~frame.columns.duplicated(keep=False)]:
        values = frame[column]
        if not (types.is_object_dtype(values) or types.is_string_dtype(values)):
            continue
        # A look at a few saves the work on columns of words, and each spelling is read once.
        for some in (first_values(values, 50), values.dropna()):
            counts = some.astype("string").value_counts(sort=False)
            text = counts.index.to_series().str.strip()
            words = text.str.fullmatch(_EMPTY_WORDS)
            spelt = text[~(words | text.str.fullmatch(_EMPTY))]
            spelt = spelt.str.replace(r"^(\d[\d.,]*)-$", r"-\1", regex=True)  # as SAP has a loss
            parts = spelt.str.extract(pattern)
            if counts[spelt.index].sum() <= counts[words].sum() or parts["whole"].isna().any():
                break
            if spelt.str.fullmatch(CODE).any() or not all(isinstance(x, (str, int, float)) for x in some):
                break
        else:
            # Digits alone that pandas left as text are names too long for a number.
            if not text.str.fullmatch(r"\d*").all():
                whole = parts["whole"].str.replace(rf"[.,'’{_SPACES}]", "", regex=True)
                minus = parts["minus"].str.replace(".", "-", regex=True)
                number = minus + whole + "." + parts["rest"].fillna("0") + parts["power"].fillna("")
                frame[column] = values.astype("string").map(pd.to_numeric(number).astype("float64")).astype("float64")
                found.append(column)
    if pattern == POINT and not has_numbers(frame):
        found += respell(frame, COMMA)
    return found


def has_numbers(frame: pd.DataFrame) -> bool:
    """Tell whether any column holds numbers and is not called a time."""
    return any(
        types.is_numeric_dtype(column)
        and not types.is_bool_dtype(column)
        and not re.fullmatch(TIMES, str(name).strip())
        for name, column in frame.items()
    )


def read_units(frame: pd.DataFrame) -> dict[Any, str]:
    """Make numbers of the columns of text whose values are numbers with one unit beside; return the units.

    Where a table has numbers elsewhere such a column may as well be a name, "500 ml", so this is for tables without.

    >>> table = pd.DataFrame({"day": ["1 Jan", "2 Jan"], "mass": ["1,070.5 kg", "-"], "paid": ["EUR 5", "EUR 7"]})
    >>> read_units(table), table["mass"].tolist(), table["paid"].tolist()
    ({'mass': 'kg', 'paid': 'EUR'}, [1070.5, nan], [5.0, 7.0])
    """
    found = {}
    for column in frame.columns[~frame.columns.duplicated(keep=False)]:
        text = frame[column].dropna().astype("string").str.strip()
        text = text[~are_empty(text)]
        parts = text.str.extract(f"^{_UNIT}$")
        units = set(parts["before"].fillna("").str.strip() + parts["after"].fillna(""))
        if len(units) != 1 or not (unit := units.pop()) or parts["number"].isna().any():
            continue
        bare = pd.DataFrame({column: parts["number"]})
        plain = pd.to_numeric(bare[column], errors="coerce").astype("float64")
        if plain.notna().all():
            bare[column] = plain
        if plain.notna().all() or respell(bare) or respell(bare, COMMA):
            frame[column], found[column] = bare[column].reindex(frame.index), unit
    return found


def are_empty(column: pd.Series) -> pd.Series:
    """Tell which cells say in words or signs that there is no number.

    >>> are_empty(pd.Series([": ", "n/a", "5", 5, None])).tolist()
    [True, True, False, False, False]
    """
    text = column.astype("string").str.strip()
    return text.str.fullmatch(rf"{_EMPTY}|{_EMPTY_WORDS}").fillna(False).astype(bool)


def first_values(column: pd.Series, count: int) -> pd.Series:
    """Return the first values of a column that are there, without a look at all of a long one."""
    some = column.head(count).dropna()
    return some if len(some) else column.dropna().head(count)


def numbers(column: pd.Series, called: str, finite: bool = False) -> np.ndarray:
    """Return a column of values as float64, NaN where one is missing; raise where one is no (finite) number."""
    if isinstance(column.dtype, np.dtype) and column.dtype.kind in "mMc":
        raise ValueError(f"{called} must hold numbers, got {column.dtype}.")
    out = pd.to_numeric(column, errors="coerce").to_numpy(dtype=np.float64, na_value=np.nan)
    wrong = np.flatnonzero(np.isnan(out) & column.notna().to_numpy())
    if len(wrong):
        # "n/a" and "$5" are right in a column of numbers; what makes it one of words is to be named.
        text = column.iloc[wrong].astype("string").str.strip()
        spelt = are_empty(text) | text.str.match(POINT) | text.str.match(COMMA)
        row = [*wrong[~spelt.to_numpy(dtype=bool)], *wrong][0]
        raise ValueError(f"{called} must hold numbers, got {str(column.iloc[row])[:40]!r} in row {row + 1}.")
    endless = np.flatnonzero(np.isinf(out))
    if finite and len(endless):
        found = f"{out[endless[0]]} in row {endless[0] + 1}"
        raise ValueError(f"{called} must hold finite numbers, got {found}; leave it empty.")
    return out


def is_index(name: Any) -> bool:
    """Tell whether a column is called as an index that pandas wrote; one written twice is called "Unnamed: 0.1"."""
    return re.fullmatch(r"(?i:unnamed: \d+(\.\d+)?|index)?", str(name).strip()) is not None


def is_value(text: str) -> bool:
    """Tell whether a text is a number or a date, which names no column."""
    try:
        float(text)
    except ValueError:
        return any(re.match(pattern, text) for pattern in (POINT, COMMA, DATE))
    return True
