"""Files that hold a table: text with any separator and encoding, parquet, workbooks, with lines before the header."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zipfile import BadZipFile

from fourier_head._spelling import COMMA, check_header, is_value, respell
from fourier_head.errors import UserError, needs_extra

if TYPE_CHECKING:
    import pandas as pd

TEXT, PARQUET, WORKBOOKS = (".csv", ".tsv", ".txt"), (".parquet", ".pq"), (".xlsx", ".xlsm")
SUFFIXES = TEXT + PARQUET + WORKBOOKS
PACKED = (".gz", ".bz2", ".xz", ".zip")
# How the UCI repository writes a missing value; pandas knows the other spellings.
_MISSING = ["?"]
_LOOKED_AT = 60
"""Lines in which the header is looked for."""


def kind_of(path: Path) -> str:
    """Return what a file is by the end of its name, packed or not: a copy such as data.csv.bak is no table.

    >>> [kind_of(Path(name)) for name in ("a.CSV", "a.b.csv.gz", "a.csv.bak", "a")]
    ['.csv', '.csv', '.bak', '']
    """
    suffixes = [s.lower() for s in path.suffixes]
    return suffixes[-2] if len(suffixes) > 1 and suffixes[-1] in PACKED else (suffixes or [""])[-1]


def read_frame(path: Path) -> pd.DataFrame:
    """Read a table, numbers in any usual spelling; what cannot be read gets one sentence.

    What a reader should know, such as lines that were skipped, is in ``frame.attrs["notes"]``.
    """
    import pandas as pd
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
    import pandas as pd

    whole: dict[str, Any] = {"sep": "\0", "names": ["line"], "quoting": csv.QUOTE_NONE, "skip_blank_lines": False}
    head = pd.read_csv(path, encoding=encoding, nrows=_LOOKED_AT, dtype=str, **whole)["line"].fillna("")
    separator, skipped = _layout(head.tolist())
    plain: dict[str, Any] = {"sep": separator, "encoding": encoding, "skiprows": skipped, "skipinitialspace": True}
    frame = pd.read_csv(path, na_values=_MISSING, low_memory=False, **plain)
    check_header(frame, path.name)
    if separator == ";" and (commas := respell(frame, COMMA)):
        # Where commas are decimal, points are thousands, and 1.003 was read as about one.
        decimals = [c for c in frame.columns if pd.api.types.is_float_dtype(frame[c]) and c not in commas]
        text = pd.read_csv(path, dtype=str, usecols=decimals, **plain) if decimals else frame[[]]
        thousands = respell(text, COMMA)
        frame[thousands] = text[thousands]
    respell(frame)
    frame.attrs["notes"] = _skipped(sum(bool(line.strip(f"{separator} ")) for line in head[:skipped]))
    return frame


def _read_workbook(path: Path) -> pd.DataFrame:
    """Read the first sheet that holds anything."""
    import pandas as pd

    try:
        book = pd.ExcelFile(path, engine="openpyxl")
    except ImportError:
        raise needs_extra(ImportError(name="openpyxl"), "cli") from None
    heads = {sheet: book.parse(sheet, header=None, nrows=_LOOKED_AT) for sheet in book.sheet_names}
    full = [sheet for sheet, head in heads.items() if not head.empty]
    if not full:
        raise UserError(f"{path.name} is empty.")
    rows = [["" if pd.isna(cell) else str(cell) for cell in row] for row in heads[full[0]].to_numpy()]
    skipped = _header(rows)
    frame = book.parse(full[0], header=skipped, na_values=_MISSING)
    check_header(frame, path.name)
    respell(frame)
    frame.attrs["notes"] = _skipped(sum(any(row) for row in rows[:skipped]))
    if full[1:]:
        others = ", ".join(repr(str(sheet)) for sheet in full[1:])
        frame.attrs["notes"].append(f"only the sheet {str(full[0])!r} is read, not {others}.")
    return frame


def _skipped(count: int) -> list[str]:
    lines = "line is" if count == 1 else "lines are"
    return [f"{count} {lines} skipped before the names of the columns."] if count else []


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
