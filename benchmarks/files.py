"""Tables of results: how benchmarks write and read their CSV files."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"


def read(path: Path) -> list[dict[str, str]]:
    """Return the rows of a table; none where there is no such file."""
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def save(rows: Sequence[Mapping[str, object]], name: str) -> None:
    """Write rows to a table of the results, complete or not at all."""
    RESULTS.mkdir(exist_ok=True)
    fields = list(dict.fromkeys(key for row in rows for key in row))
    beside = RESULTS / f".{name}.csv"
    with beside.open("w", newline="") as file:
        writer = csv.DictWriter(file, fields, restval="")
        writer.writeheader()
        writer.writerows(rows)
    beside.rename(RESULTS / f"{name}.csv")


def append(path: Path, columns: Sequence[str], values: Iterable[Any]) -> None:
    """Add a row at once: what was computed stays, however the run ends."""
    new = not path.exists()
    with path.open("a", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        if new:
            writer.writerow(columns)
        writer.writerow(values)
