"""Files that hold a table, with lines before the header, and numbers as spreadsheets write them."""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
import pandas as pd

from fourier_head.errors import UserError, require

TEXT, PARQUET, WORKBOOKS = (".csv", ".tsv", ".txt"), (".parquet", ".pq"), (".xlsx", ".xlsm")
SUFFIXES = TEXT + PARQUET + WORKBOOKS
PACKED = (".gz", ".bz2", ".xz", ".zip")
# How the UCI repository writes a missing value; pandas knows the other spellings.
_MISSING = ["?"]
# Among words NA and None may be names: Namibia, North America, no promotion.
_MISSING_WORDS = [*_MISSING, "", "#N/A", "N/A", "n/a", "NaN", "nan", "<NA>", "NULL", "null"]
_WORDS: dict[str, Any] = {"keep_default_na": False, "na_values": _MISSING_WORDS}
_LOOKED_AT = 60
"""Lines in which the header is looked for."""
# Among numbers these are no number, the errors of spreadsheets among them; words are, where most others are numbers.
_EMPTY = r"[-–—?*:.…]*|#(?:N/A|DIV/0!|VALUE!|REF!|NAME\?|NUM!|NULL!)"
_EMPTY_WORDS = r"(?i:n/?a|n\.a\.|none|null|nan|missing)"
_CODE = r"0\d{2,}"
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
DATE = r"(?:\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}|\d{4}[-/.]\d{1,2}|\d{1,2}[-/.]\d{4})(?:[ T].*)?$"
"""A day or a month as numbers, and maybe a time."""


def kind_of(path: Path) -> str:
    """Return what a file is by the end of its name, packed or not: a copy such as data.csv.bak is no table.

    >>> [kind_of(Path(name)) for name in ("a.CSV", "a.b.csv.gz", "a.csv.bak", "a")]
    ['.csv', '.csv', '.bak', '']
    """
    return (path.with_suffix("") if path.suffix.lower() in PACKED else path).suffix.lower()


def read_frame(path: Path) -> pd.DataFrame:
    """Read a table, numbers in any usual spelling; what cannot be read gets one sentence.

    What a reader should know, such as lines that were skipped, is in ``frame.attrs["notes"]``.
    """
    import pyarrow

    if path.is_dir():
        raise UserError(f"{path} is a folder, but a file with a table was expected.")
    kind = kind_of(path)
    if kind not in SUFFIXES:
        raise UserError(f"{path.name} must end in {', '.join(SUFFIXES)}, got {kind or 'nothing'}.")
    try:
        if path.stat().st_size == 0:
            raise UserError(f"{path.name} is empty.")
        if kind in PARQUET:
            return pd.read_parquet(path)
        return _read_text(path) if kind in TEXT else _read_workbook(path)
    except FileNotFoundError:
        raise UserError(f"there is no file {path}.") from None
    except pd.errors.EmptyDataError:
        raise UserError(f"{path.name} is empty.") from None
    except UnicodeDecodeError:
        raise UserError(f"{path} cannot be read as {kind[1:]}: it holds bytes that are no text.") from None
    except (OSError, UnicodeError, ValueError, KeyError, csv.Error, BadZipFile, pyarrow.ArrowException) as error:
        # Also pandas' ParserError, a ValueError.
        reason = (error.strerror if isinstance(error, OSError) else None) or " ".join(str(error).split())
        raise UserError(f"{path} cannot be read as {kind[1:]}: {reason[:200].rstrip('.')}.") from None


def _read_text(path: Path) -> pd.DataFrame:
    for encoding in ("utf-8-sig", "utf-16"):
        try:
            return _read_encoded(path, encoding)
        except UnicodeError:
            continue
    # What Windows writes west of Russia; bytes that it does not know either are an error.
    return _read_encoded(path, "cp1252")


def _read_encoded(path: Path, encoding: str) -> pd.DataFrame:
    whole: dict[str, Any] = {"sep": "\0", "names": ["line"], "quoting": csv.QUOTE_NONE, "skip_blank_lines": False}
    head = pd.read_csv(path, encoding=encoding, nrows=_LOOKED_AT, dtype=str, **whole)["line"].fillna("")
    separator, skipped = _layout(head.tolist())
    plain: dict[str, Any] = {"sep": separator, "encoding": encoding, "skiprows": skipped, "skipinitialspace": True}
    codes = dict.fromkeys(_codes(head[skipped:], separator), str)
    frame = pd.read_csv(path, na_values=_MISSING, low_memory=False, dtype=codes, **plain)
    check_header(frame, path.name)
    if separator != ";":
        respell(frame)  # 1,003 is a thousand
    if separator != "," and (commas := respell(frame, COMMA)):
        # Where commas are decimal, points are thousands, and 1.003 was read as about one.
        decimals = [c for c in frame.columns if pd.api.types.is_float_dtype(frame[c]) and c not in commas]
        text = pd.read_csv(path, dtype=str, usecols=decimals, **plain) if decimals else frame[[]]
        thousands = respell(text, COMMA)
        frame[thousands] = text[thousands]
    respell(frame)
    _put_names_back(frame, lambda words: pd.read_csv(path, dtype=str, usecols=words, **_WORDS, **plain))
    return _noted(frame, sum(bool(line.strip(f"{separator} ")) for line in head[:skipped]))


def _read_workbook(path: Path) -> pd.DataFrame:
    """Read the first sheet that is a table, or else the first that holds anything."""
    require("cli", "openpyxl")
    with pd.ExcelFile(path, engine="openpyxl") as book:
        heads = {sheet: book.parse(sheet, header=None, nrows=_LOOKED_AT).to_numpy() for sheet in book.sheet_names}
        rows = {
            sheet: [["" if pd.isna(cell) else str(cell) for cell in row] for row in head]
            for sheet, head in heads.items()
            if head.size
        }
        if not rows:
            raise UserError(f"{path.name} is empty.")
        sheet = next((sheet for sheet, some in rows.items() if _is_table(some)), next(iter(rows)))
        skipped = _header(rows[sheet])
        frame = book.parse(sheet, header=skipped, na_values=_MISSING)
        check_header(frame, path.name)
        respell(frame)
        respell(frame, COMMA)
        _put_names_back(frame, lambda words: book.parse(sheet, header=skipped, dtype=str, **_WORDS)[words])
    _noted(frame, sum(any(row) for row in rows[sheet][:skipped]))
    if len(rows) > 1:
        others = ", ".join(repr(str(other)) for other in rows if other != sheet)
        frame.attrs["notes"].append(f"only the sheet {str(sheet)!r} is read, not {others}.")
    return frame


def _is_table(rows: Sequence[Sequence[str]]) -> bool:
    """Tell whether most of what is in some column, below its name, is values; a page of words has none.

    >>> _is_table([["Sales of our shops", ""], ["by", "me"]]), _is_table([["day", "sold"], ["2024-01-01", "5"]])
    (False, True)
    """
    columns = ([is_value(cell) for cell in column if cell] for column in zip(*rows[_header(rows) + 1 :], strict=False))
    return any(2 * sum(column) > len(column) for column in columns)


def _noted(frame: pd.DataFrame, skipped: int) -> pd.DataFrame:
    # Spaces around the names of columns are seen by nobody who has to name one.
    names = [column.strip() if isinstance(column, str) else column for column in frame.columns]
    frame.columns = pd.Index(names) if len(set(names)) == len(names) else frame.columns
    lines = "1 line is" if skipped == 1 else f"{skipped} lines are"
    frame.attrs["notes"] = [f"{lines} skipped before the names of the columns."] if skipped else []
    return frame


def _codes(lines: Sequence[str], separator: str) -> list[str]:
    """Return the names of columns in which whole numbers of three digits or more begin with a zero.

    >>> _codes(["shop;month;town", "1;01;01067", "2;02;80331"], ";")
    ['town']
    """
    header, *rows = csv.reader(lines, delimiter=separator, skipinitialspace=True)
    cells = ((name, cell) for row in rows for name, cell in zip(header, row, strict=False))
    return list(dict.fromkeys(name for name, cell in cells if re.fullmatch(_CODE, cell.strip())))


def _put_names_back(frame: pd.DataFrame, read: Callable[[list[Any]], pd.DataFrame]) -> None:
    """Put words back into columns of words that a reader took for missing values.

    Args:
        read: reads some columns again, as text.
    """
    words = [
        column
        for column in frame.columns[~frame.columns.duplicated(keep=False)]
        if frame[column].isna().any() and pd.api.types.infer_dtype(frame[column], skipna=True) == "string"
    ]
    if words:
        frame[words] = read(words)[words]


def _layout(lines: Sequence[str]) -> tuple[str, int]:
    """Return the separator and how many lines come before the header; pandas' own guess needs its slow parser.

    >>> _layout(["Sales, by month", "", "month;sold", "2024-01;1,5", "2024-02;2,5"])
    (';', 2)
    """
    layouts = []
    for separator in ",;\t|":
        reader, rows, starts = csv.reader(lines, delimiter=separator, skipinitialspace=True), [], [0]
        for row in reader:
            rows.append(row)
            starts.append(reader.line_num)
        header = _header(rows)
        width = len(rows[header]) if rows else 0
        even = sum(1 if len(row) == width else -1 for row in rows[header:] if row)
        layouts.append((width > 1, even, width, separator, starts[header]))
    *_, separator, skipped = max(layouts, key=lambda one: one[:3])
    return separator, skipped


def _header(rows: Sequence[Sequence[str]]) -> int:
    """Return which row names the columns: the first that is as long as most and has as many cells filled.

    >>> _header([["Report", "", ""], ["Region:", "North", ""], ["date", "shop", "sold"], ["2024-01-01", "a", "5"]] * 2)
    2
    """
    values = [[is_value(cell.strip()) for cell in row] for row in rows]
    filled = [sum(bool(cell.strip()) for cell in row) for row in rows]
    shapes = Counter((len(row), count) for row, count in zip(rows, filled, strict=True) if count)
    width, usual = max(shapes, key=lambda shape: (shapes[shape], shape), default=(0, 0))
    first = next((i for i, count in enumerate(filled) if count), 0)
    if usual < 2:
        # One column is named by the last line of words before its values.
        turns = (i for i in range(first, len(rows) - 1) if filled[i] and any(values[i + 1]) and not any(values[i]))
        return next(turns, first)
    long = [i for i, row in enumerate(rows) if len(row) == width and filled[i] > 1]
    # The index that pandas writes has no name.
    full = next((i for i in long if filled[i] + (not rows[i][0].strip()) >= usual), first)
    # Values name no columns: some names may be empty, or there are none and the first line must do.
    words = next((i for i in long if i < full and not any(values[i])), first if all(values[full]) else full)
    return words if any(values[full]) else full


# --- numbers in their spellings: decimal commas, thousands, currency and percent signs, brackets for a loss


def respell(frame: pd.DataFrame, pattern: str = POINT) -> list[Any]:
    """Make numbers of the columns of text all of whose values are spelt like a number; return those columns.

    >>> table = pd.DataFrame({"won": ["$1,003.77", "(801.46)", "-"], "share": ["14.1%", "7%", None], "who": ["a"] * 3})
    >>> respell(table), table["won"].tolist(), table["share"].tolist()
    (['won', 'share'], [1003.77, -801.46, nan], [14.1, 7.0, nan])
    """
    found = []
    for column in frame.columns[~frame.columns.duplicated(keep=False)]:
        values = frame[column]
        if not (pd.api.types.is_object_dtype(values) or pd.api.types.is_string_dtype(values)):
            continue
        # A look at a few saves the work on columns of words.
        for some in (first_values(values, 50), values.dropna()):
            text = some.astype("string").str.strip()
            words = text.str.fullmatch(_EMPTY_WORDS)
            spelt = text[~(words | text.str.fullmatch(_EMPTY))]
            spelt = spelt.str.replace(r"^(\d[\d.,]*)-$", r"-\1", regex=True)  # as SAP has a loss
            parts = spelt.str.extract(pattern)
            if len(parts) <= words.sum() or parts["whole"].isna().any() or spelt.str.fullmatch(_CODE).any():
                break
            if not all(isinstance(x, (str, int, float)) for x in some):
                break
        else:
            # Digits alone that pandas left as text are names too long for a number.
            if not text.str.fullmatch(r"\d*").all():
                whole = parts["whole"].str.replace(rf"[.,'’{_SPACES}]", "", regex=True)
                minus = parts["minus"].str.replace(".", "-", regex=True)
                number = minus + whole + "." + parts["rest"].fillna("0") + parts["power"].fillna("")
                frame[column] = pd.to_numeric(number).astype("float64").reindex(frame.index)
                found.append(column)
    return found


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
        found = str(column.iloc[wrong[0]])[:40]
        raise ValueError(f"{called} must hold numbers, got {found!r} in row {wrong[0] + 1}.")
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


def check_header(frame: pd.DataFrame, name: str) -> None:
    """Raise where the names of all columns are values, as they are in a file that starts with its first row."""
    names = [str(column).strip() for column in frame.columns]
    # pandas itself numbers the columns of an array.
    numbered = names in [[str(i + first) for i in range(len(names))] for first in (0, 1)]
    # A column called by a date may hold numbers of that day, but no dates.
    dates = any(
        re.match(DATE, name) and first_values(column, 20).astype(str).str.match(DATE).all()
        for name, (_, column) in zip(names, frame.items(), strict=True)
    )
    if names and not numbered and (dates or all(map(is_value, names))):
        got = ", ".join(names[:3])
        raise UserError(f"{name} seems to have no header row: it must begin with the names of its columns, got {got}.")
