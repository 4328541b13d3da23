"""Read what studies wrote: `results/<study>/summary.json`, one flat row per number, the paper's value beside ours."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fourier_head.errors import UserError

COLUMNS = ("dataset", "head", "frequencies", "packets", "protocol", "metric", "ours", "std", "seeds", "paper")
"""The keys every row has, in this order; a study may add others, such as `paper_std`, `gamma` or `bins`.

`paper` is the value of the paper that a study repeats. What others published goes into `published`: it is shown beside
ours, but says nothing about how well the paper is repeated.
"""

SUMMARY, CHARTS = "summary.json", "charts.json"
HEADER = ("command", "date", "commit", "hardware", "versions", "seconds", "rows")

Row = dict[str, Any]


@dataclass(frozen=True)
class Summary:
    """One study: who measured what, where and how long, and the rows."""

    name: str
    command: str
    date: str
    commit: str | None
    hardware: str
    versions: dict[str, str]
    seconds: float
    rows: list[Row]
    extra: dict[str, Any] = field(default_factory=dict)

    @property
    def compared(self) -> list[Row]:
        """The rows that have a value of the paper beside ours."""
        return [
            row for row in self.rows if number(row.get("paper")) is not None and number(row.get("ours")) is not None
        ]

    @property
    def quick(self) -> bool:
        """Whether this was a quick look; results written before that was marked tell by their command."""
        return self.extra.get("quick") is True or "--quick" in self.command.split()

    @property
    def notes(self) -> list[str]:
        """What the study says of its numbers, a sentence or two each."""
        notes = self.extra.get("notes")
        return [str(note) for note in notes] if isinstance(notes, list) else []


def number(value: Any) -> float | None:
    """Return a finite float, or None for anything else.

    >>> number(3), number("x"), number(None), number(float("nan"))
    (3.0, None, None, None)
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if math.isfinite(value) else None


def read_summary(folder: Path) -> Summary:
    """Return the summary of a study from its folder, checked."""
    path = folder / SUMMARY
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"{folder} holds no {SUMMARY}, which every study writes.") from None
    except (OSError, ValueError) as error:
        raise UserError(f"{path} cannot be read as JSON: {error}.") from None
    if not isinstance(content, dict):
        raise UserError(f"{path} must hold one JSON object, got {type(content).__name__}.")
    missing = [key for key in HEADER if key not in content]
    if missing:
        raise UserError(f"{path} must have the keys {', '.join(HEADER)}, got none named {', '.join(missing)}.")
    rows = content["rows"]
    if not isinstance(rows, list) or not all(isinstance(row, dict) and row.get("metric") for row in rows):
        raise UserError(f"{path} must have a list of objects with a metric as rows.")
    return Summary(
        name=folder.name,
        command=str(content["command"]),
        date=str(content["date"]),
        commit=None if content["commit"] is None else str(content["commit"]),
        hardware=str(content["hardware"]),
        versions={str(k): str(v) for k, v in dict(content["versions"]).items()},
        seconds=number(content["seconds"]) or 0.0,
        rows=[dict.fromkeys(COLUMNS) | row for row in rows],
        extra={key: value for key, value in content.items() if key not in HEADER},
    )


def read_all(results: Path, order: Sequence[str] = ()) -> list[Summary]:
    """Return the summaries below a folder: those named in `order` first, the others by name."""
    if not results.is_dir():
        raise UserError(f"{results} is no folder of results: run a study first, such as python -m studies smoothness.")
    folders = [path.parent for path in results.glob(f"*/{SUMMARY}")]
    rank = {name: i for i, name in enumerate(order)}
    return [read_summary(f) for f in sorted(folders, key=lambda f: (rank.get(f.name, len(rank)), f.name))]
