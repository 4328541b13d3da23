"""Text files as spreadsheets write them: separators, encodings, decimal commas, thousands and currency signs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fourier_head.errors import UserError

if TYPE_CHECKING:
    import pandas as pd

# "?" is how the UCI repository writes a missing value; pandas knows the other spellings.
MISSING = ["?"]
_SIGNS = "$€£¥₹₩₽₺₪฿"
_BEFORE, _AFTER = rf"(?P<minus>[-−]?)\s*[{_SIGNS}]?\s*", rf"\s*[{_SIGNS}]?"
_SPACES = " \u00a0\u202f"
# Groups of thousands have three digits: "1,2" is a name or a list, no number.
_POINT = re.compile(rf"{_BEFORE}(?P<whole>\d{{1,3}}(?:,\d{{3}})+|\d*)(?:\.(?P<rest>\d+))?{_AFTER}")
_COMMA = re.compile(rf"{_BEFORE}(?P<whole>\d{{1,3}}(?:[.{_SPACES}]\d{{3}})+|\d*)(?:,(?P<rest>\d+))?{_AFTER}")
_DOTTED = re.compile(r"[-−]?\d{1,3}(?:\.\d{3})*")
_DATE = re.compile(r"(?:\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}|\d{4}[-/.]\d{1,2}|\d{1,2}[-/.]\d{4})(?:[ T].*)?")


def read_text_table(path: Path) -> pd.DataFrame:
    """Read a file of separated values; columns of numbers are numbers, however they are spelt."""
    import pandas as pd

    def read(separator: str, encoding: str, **more: Any) -> pd.DataFrame:
        return pd.read_csv(path, sep=separator, encoding=encoding, **more)

    def table(encoding: str) -> pd.DataFrame:
        # The first line decides: pandas' own guess reads the whole file with its slow parser.
        head = str(read("\0", encoding, nrows=1, header=None, dtype=str).iloc[0, 0])
        if head.startswith(("ÿþ", "þÿ")):
            # The mark that spreadsheets put before what they call Unicode text.
            return table("utf-16")
        separator = max(",;\t|", key=head.count)
        settings: dict[str, Any] = {"na_values": MISSING, "skipinitialspace": True, "low_memory": False}
        frame = read(separator, encoding, **settings)
        check_header(frame, path.name)
        commas = _respell(frame, _COMMA) if separator == ";" else []
        if commas:
            # Where commas are decimal, points are thousands, and 1.003 was read as about one.
            decimals = [c for c in frame.columns if pd.api.types.is_float_dtype(frame[c]) and c not in commas]
            if decimals:
                text = read(separator, encoding, **settings, dtype=str, usecols=decimals)
                for column in decimals:
                    there = text[column].dropna()
                    if there.str.fullmatch(_DOTTED).all() and there.str.contains(".", regex=False).any():
                        frame[column] = _numbers(text[column], _COMMA)
        _respell(frame, _POINT)
        return frame

    try:
        return table("utf-8-sig")
    except UnicodeDecodeError:
        # What Windows writes west of Russia; bytes that it does not know either end in the same error.
        return table("cp1252")


def check_header(frame: pd.DataFrame, name: str) -> None:
    """Raise where the names of all columns are values, as they are in a file that starts with its first row."""
    names = [str(column).strip() for column in frame.columns]
    # pandas itself numbers the columns of an array.
    if names in [[str(i + first) for i in range(len(names))] for first in (0, 1)]:
        return
    if names and all(_is_value(one) for one in names):
        got = ", ".join(names[:3])
        raise UserError(f"{name} seems to have no header row: it must begin with the names of its columns, got {got}.")


def _is_value(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return any(_fits(pattern, text) for pattern in (_POINT, _COMMA)) or _DATE.fullmatch(text) is not None
    return True


def _fits(pattern: re.Pattern[str], text: str) -> bool:
    return pattern.fullmatch(text) is not None and any(letter.isdigit() for letter in text)


def _respell(frame: pd.DataFrame, pattern: re.Pattern[str]) -> list[Any]:
    """Make numbers of the columns of text all of whose values are spelt like a number; return those columns."""
    import pandas as pd

    found = []
    for column in frame.columns[~frame.columns.duplicated(keep=False)]:
        values = frame[column]
        if not (pd.api.types.is_object_dtype(values) or pd.api.types.is_string_dtype(values)):
            continue
        there = values.dropna()
        # A look at a few saves the work on columns of words.
        for some in (there.head(50), there):
            if not all(isinstance(value, str) and _fits(pattern, value.strip()) for value in some):
                break
        else:
            # Digits alone that pandas left as text are names too long for a number.
            if not there.str.fullmatch(r"[\d\s]*").all():
                frame[column] = _numbers(values, pattern)
                found.append(column)
    return found


def _numbers(column: pd.Series, pattern: re.Pattern[str]) -> pd.Series:
    import pandas as pd

    parts = column.astype("string").str.strip().str.extract(pattern)
    whole = parts["whole"].str.replace(rf"[.,{_SPACES}]", "", regex=True)
    text = parts["minus"].str.replace("−", "-") + whole + "." + parts["rest"].fillna("0")
    return pd.to_numeric(text).astype("float64")
