"""The learning rate of every kind of arm, and the frequencies to lead with: chosen on seeds that nobody reports."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from fourier_head.errors import UserError

SEEDS = (100, 101)
"""No study reports on them."""
FREQUENCIES = (4, 8, 12)
Kind = tuple[str, float | None]
"""What has a learning rate of its own: LoRA on text, and Fourier heads that start alike."""


def kind(arm: Mapping[str, Any]) -> Kind:
    """Return the kind of an arm.

    >>> kind({"head": "fourier", "init_scale": 1000.0, "frequencies": 8})
    ('fourier', 1000.0)
    """
    return arm["head"], arm["init_scale"]


def table(runs: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the mean distance on the trained Gaussians of every arm and rate that was tried, least first."""
    found: dict[tuple[Any, ...], list[float]] = {}
    for run in runs:
        own = mean(score["tvd"] for score in run["scores"] if score["group"] == "trained")
        found.setdefault((*kind(run), run["frequencies"], run["learning_rate"]), []).append(own)
    names = ("head", "init_scale", "frequencies", "learning_rate")
    rows = [dict(zip(names, key, strict=True)) | {"tvd": mean(v), "seeds": len(v)} for key, v in found.items()]
    return sorted(rows, key=lambda row: row["tvd"])


def best(rows: Sequence[Mapping[str, Any]]) -> dict[Kind, Mapping[str, Any]]:
    """Return the first row of every kind."""
    found: dict[Kind, Mapping[str, Any]] = {}
    for row in rows:
        found.setdefault(kind(row), row)
    return found


def read(path: Path) -> list[dict[str, Any]]:
    """Return the table that the summary of a study with choices has."""
    try:
        return [dict(row) for row in json.loads(path.read_text(encoding="utf-8"))["choices"]]
    except (OSError, ValueError, TypeError, KeyError) as error:
        reason = f"{type(error).__name__}: {error}"
        raise UserError(
            f"--chosen must name the summary.json of a study with --choose, got {path} ({reason})."
        ) from None


def other_seeds(count: int) -> list[int]:
    """Return so many seeds to report on, from 0 on.

    >>> other_seeds(102)[-3:]
    [99, 102, 103]
    """
    return list(itertools.islice((seed for seed in itertools.count() if seed not in SEEDS), count))
