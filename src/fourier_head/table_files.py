"""Files that hold a table, with lines before the header, and numbers as spreadsheets write them."""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import pandas as pd

from fourier_head.errors import UserError, require
from fourier_head.spellings import CODE, COMMA, DATE, TIMES, first_values, has_numbers, is_value, read_units, respell

TEXT, PARQUET, WORKBOOKS = (".csv", ".tsv", ".txt"), (".parquet", ".pq"), (".xlsx", ".xlsm")
RECORDS = (".json", ".jsonl", ".ndjson")
SUFFIXES = TEXT + PARQUET + WORKBOOKS + RECORDS
PACKED = (".gz", ".bz2", ".xz", ".zip")
# How the UCI repository writes a missing value; pandas knows the other spellings.
_MISSING = ["?"]
# Among words NA and None may be names: Namibia, North America, no promotion.
_MISSING_WORDS = [*_MISSING, "", "#N/A", "N/A", "n/a", "NaN", "nan", "<NA>", "NULL", "null"]
_WORDS: dict[str, Any] = {"keep_default_na": False, "na_values": _MISSING_WORDS}
_EUROSTAT = ("\\TIME_PERIOD", "\\time")
"""The end of the first name in a table of Eurostat, whose rows have several keys in one cell."""
_LOOKED_AT = 60
"""Lines in which the header is looked for."""


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
        frame = (_read_text if kind in TEXT else _read_workbook if kind in WORKBOOKS else _read_records)(path)
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
    if not has_numbers(frame):
        units = read_units(frame)
        frame.attrs["notes"] += [f"the numbers of {str(column)!r} are in {unit}." for column, unit in units.items()]
    return frame


def _read_text(path: Path) -> pd.DataFrame:
    with path.open("rb") as file:
        start = file.read(200) if path.suffix.lower() not in PACKED else b""
    # Of UTF-16 without a mark every second byte is zero, where letters are Latin.
    halves = {"utf-16-le": start[1::2], "utf-16-be": start[::2]}
    unmarked = [encoding for encoding, half in halves.items() if 2 * half.count(0) > len(half)]
    for encoding in unmarked or ("utf-8-sig", "utf-16"):
        try:
            return _read_encoded(path, encoding)
        except UnicodeError:
            continue
    # What Windows writes west of Russia; bytes that it does not know either are an error.
    return _read_encoded(path, "cp1252")


def _read_encoded(path: Path, encoding: str) -> pd.DataFrame:
    whole: dict[str, Any] = {"sep": "\0", "names": ["line"], "quoting": csv.QUOTE_NONE, "skip_blank_lines": False}
    head = pd.read_csv(path, encoding=encoding, nrows=_LOOKED_AT, dtype=str, **whole)["line"].fillna("")
    separator, skipped, units = _layout(head.tolist())
    lines = [*range(skipped), *range(skipped + 1, skipped + 1 + units)]
    plain: dict[str, Any] = {"encoding": encoding, "skiprows": lines, "skipinitialspace": True}
    plain["sep"] = r"\s+" if separator == " " else separator
    joined, more = _joined_names(list(csv.reader(head[skipped : skipped + 8], delimiter=separator)))
    if more:
        plain |= {"skiprows": skipped + more, "header": None, "names": joined}
    codes = {} if more else dict.fromkeys(_codes(head[skipped:], separator), str)
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
    notes = []
    if separator == "\t" and str(frame.columns[0]).endswith(_EUROSTAT):
        frame = _without_flags(frame)
        notes.append("flags beside the numbers are left out.")
    frame = _noted(frame, sum(bool(line.strip(f"{separator} ")) for line in head[:skipped]), units)
    frame.attrs["notes"] += notes
    return frame


def _joined_names(rows: Sequence[Sequence[str]]) -> tuple[list[str], int]:
    """Return one name for each column where pandas wrote several over it, and how many lines they take, else none.

    Their last line has the name of the index and nothing else. What all columns have in common is left out.

    >>> _joined_names([["Price", "Close", "High"], ["Ticker", "A", "A"], ["Date", "", ""], ["2024-01-02", "5", "6"]])
    (['Date', 'Close', 'High'], 3)
    """
    alone = (len(row) > 1 and row[0] and not any([is_value(row[0]), *row[1:]]) for row in rows)
    lines = next((number for number, one in enumerate(alone) if one), 0)
    levels = [row[1:] for row in rows[:lines]]
    uneven = any(len(row) != len(rows[0]) for row in rows)
    if lines < 2 or uneven or any(is_value(name) for level in levels for name in level):
        return [], 0
    levels = [level for level in levels if len(set(level)) > 1] or levels[:1]
    return [rows[lines][0], *(" ".join(filter(None, parts)) for parts in zip(*levels, strict=True))], lines + 1


def _without_flags(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a table of Eurostat with a column for each of its keys, and numbers without the flags beside them.

    >>> table = pd.DataFrame({"unit,geo\\\\TIME_PERIOD": ["I15,AT", "I15,BE"], "2024 ": ["5.0 p", ": c"]})
    >>> _without_flags(table).to_numpy().tolist()
    [['I15', 'AT', 5.0], ['I15', 'BE', nan]]
    """
    first, *times = frame.columns
    keys = frame[first].str.split(",", expand=True)
    keys.columns = pd.Index(str(first).rpartition("\\")[0].split(",")[: len(keys.columns)])
    text = frame[times].astype("string").apply(lambda column: column.str.extract(r"^\s*([-+.\d]+)")[0])
    return keys.join(text.apply(pd.to_numeric, errors="coerce").astype("float64"))


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
        skipped, units = _header(rows[sheet])
        lines = [*range(skipped), *range(skipped + 1, skipped + 1 + units)]
        frame = book.parse(sheet, skiprows=lines, na_values=_MISSING)
        check_header(frame, path.name)
        respell(frame)
        respell(frame, COMMA)
        _put_names_back(frame, lambda words: book.parse(sheet, skiprows=lines, dtype=str, **_WORDS)[words])
    _noted(frame, sum(any(row) for row in rows[sheet][:skipped]), units)
    if len(rows) > 1:
        others = ", ".join(repr(str(other)) for other in rows if other != sheet)
        frame.attrs["notes"].append(f"only the sheet {str(sheet)!r} is read, not {others}.")
    return frame


def _read_records(path: Path) -> pd.DataFrame:
    """Read JSON: a list of records, one a line, columns, or any of these as the only thing in an object."""
    lines = kind_of(path) != ".json"
    frame = pd.read_json(path, lines=lines, dtype=False, convert_dates=False).reset_index(drop=True)
    if frame.empty:
        raise UserError(f"{path.name} is empty.")
    if len(frame.columns) == 1 and frame.iloc[:, 0].map(lambda cell: isinstance(cell, dict)).all():
        frame = pd.json_normalize(frame.iloc[:, 0].tolist())
    for column in frame.columns:
        if frame[column].map(lambda cell: isinstance(cell, (dict, list))).any():
            raise UserError(f"{path.name} must hold one value in every cell, got several in {str(column)!r}.")
    respell(frame)
    return _noted(frame, 0)


def _is_table(rows: Sequence[Sequence[str]]) -> bool:
    """Tell whether most of what is in some column, below its name, is values; a page of words has none.

    >>> _is_table([["Sales of our shops", ""], ["by", "me"]]), _is_table([["day", "sold"], ["2024-01-01", "5"]])
    (False, True)
    """
    columns = (
        [is_value(cell) for cell in column if cell] for column in zip(*rows[_header(rows)[0] + 1 :], strict=False)
    )
    return any(2 * sum(column) > len(column) for column in columns)


def _noted(frame: pd.DataFrame, skipped: int, units: int = 0) -> pd.DataFrame:
    # Spaces around the names of columns are seen by nobody who has to name one.
    names = [column.strip() if isinstance(column, str) else column for column in frame.columns]
    frame.columns = pd.Index(names) if len(set(names)) == len(names) else frame.columns
    lines = "1 line is" if skipped == 1 else f"{skipped} lines are"
    frame.attrs["notes"] = [f"{lines} skipped before the names of the columns."] if skipped else []
    if units:
        frame.attrs["notes"].append("what stands between the names of the columns and the first values is skipped.")
    return frame


def _codes(lines: Sequence[str], separator: str) -> list[str]:
    """Return the names of columns in which whole numbers of three digits or more begin with a zero.

    >>> _codes(["shop;month;town", "1;01;01067", "2;02;80331"], ";")
    ['town']
    """
    header, *rows = csv.reader(lines, delimiter=separator, skipinitialspace=True)
    cells = ((name, cell) for row in rows for name, cell in zip(header, row, strict=False))
    return list(dict.fromkeys(name for name, cell in cells if re.fullmatch(CODE, cell.strip())))


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


def _layout(lines: Sequence[str]) -> tuple[str, int, int]:
    """Return the separator and how many lines come before the header and between it and the first values.

    Spaces separate only where nothing else does. The guess of pandas needs its slow parser.

    >>> _layout(["Sales, by month", "", "month;sold", "2024-01;1,5", "2024-02;2,5"])
    (';', 2, 0)
    """
    layouts = []
    for separator in ",;\t| ":
        some = map(str.rstrip, lines) if separator == " " else lines
        reader, rows, starts = csv.reader(some, delimiter=separator, skipinitialspace=True), [], [0]
        for row in reader:
            rows.append(row)
            starts.append(reader.line_num)
        header, units = _header(rows)
        width = len(rows[header]) if rows else 0
        even = sum(1 if len(row) == width else -1 for row in rows[header:] if row)
        units = starts[header + 1 + units] - starts[header + 1] if units else 0
        found = width > 1 and (separator != " " or not any(map(is_value, rows[header])))
        layouts.append((found, separator != " ", even, width, separator, starts[header], units))
    *_, separator, skipped, units = max(layouts, key=lambda one: one[:4])
    return separator, skipped, units


def _header(rows: Sequence[Sequence[str]]) -> tuple[int, int]:
    """Return which row names the columns, and how many rows, such as one of units, are between it and the values.

    It is the last row of words, or of those the first that names a time, before two columns of values begin; where
    there are no two, the first row that is as long as most and has as many cells filled.

    >>> _header([["Report", "", ""], ["Region:", "North", ""], ["date", "shop", "sold"], ["2024-01-01", "a", "5"]] * 2)
    (2, 0)
    >>> _header([["Station:", "Bonn"], ["day", "temp"], ["", "C"], ["2024-01-01", "5"], ["2024-01-02", "7"]])
    (1, 1)
    """
    values = [[is_value(cell.strip()) for cell in row] for row in rows]
    filled = [sum(bool(cell.strip()) for cell in row) for row in rows]
    shapes = Counter((len(row), count) for row, count in zip(rows, filled, strict=True) if count)
    width, usual = max(shapes, key=lambda shape: (shapes[shape], shape), default=(0, 0))
    first = next((i for i, count in enumerate(filled) if count), 0)
    if usual < 2:
        # One column is named by the last line of words before its values.
        turns = (i for i in range(first, len(rows) - 1) if filled[i] and any(values[i + 1]) and not any(values[i]))
        return next(turns, first), 0
    body = [i for i in range(len(rows) // 2, len(rows)) if len(rows[i]) == width]
    counted = [
        c for c in range(width) if 2 * sum(values[i][c] for i in body) > sum(bool(rows[i][c].strip()) for i in body)
    ]
    there = [i for i, count in enumerate(filled) if count]
    ready = [len(values[i]) == width and sum(values[i][c] for c in counted) > 1 for i in there]
    begin = next((i for i, *two in zip(there, ready, [*ready[1:], True], strict=True) if all(two)), 0)
    named = [
        i
        for i, row in enumerate(rows[:begin])
        if len(row) == width and not any(values[i]) and all(row[c].strip() for c in counted)
    ]
    # What pandas writes ends with a line for the name of its index.
    if named and not (begin > 1 and filled[begin - 1] == 1 and rows[begin - 1][0].strip()):
        timed = (i for i in named if any(re.fullmatch(TIMES, cell.strip()) for cell in rows[i]))
        header = next(timed, named[-1])
        return header, next(i for i in range(header + 1, begin + 1) if any(values[i])) - header - 1
    long = [i for i, row in enumerate(rows) if len(row) == width and filled[i] > 1]
    # The index that pandas writes has no name.
    full = next((i for i in long if filled[i] + (not rows[i][0].strip()) >= usual), first)
    # Values name no columns: some names may be empty, or there are none and the first line must do.
    words = next((i for i in long if i < full and not any(values[i])), first if all(values[full]) else full)
    return (words if any(values[full]) else full), 0


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
