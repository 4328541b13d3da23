"""What all benchmarks share: how their words are read, and how their tables are written and read."""

from __future__ import annotations

import argparse
import csv
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"


def parser_of(words: str | None) -> argparse.ArgumentParser:
    """Return a parser that describes a benchmark as its module does."""
    return argparse.ArgumentParser(description=words, formatter_class=argparse.RawDescriptionHelpFormatter)


def read(path: Path) -> list[dict[str, str]]:
    """Return the rows of a table; none where there is no such file."""
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def write(path: Path, columns: Sequence[str], rows: Iterable[Iterable[Any]]) -> None:
    """Write a table, complete or not at all."""
    beside = path.with_name(f".{path.name}")
    with beside.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows([columns, *rows])
    beside.rename(path)


def save(rows: Sequence[Mapping[str, object]], name: str) -> None:
    """Write rows by their names to a table of the results; what a row has no value for stays empty."""
    RESULTS.mkdir(exist_ok=True)
    columns = list(dict.fromkeys(key for row in rows for key in row))
    write(RESULTS / f"{name}.csv", columns, ([row.get(key, "") for key in columns] for row in rows))


def append(path: Path, columns: Sequence[str], values: Iterable[Any]) -> None:
    """Add a row at once: what was computed stays, however the run ends."""
    new = not path.exists()
    with path.open("a", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        if new:
            writer.writerow(columns)
        writer.writerow(values)
