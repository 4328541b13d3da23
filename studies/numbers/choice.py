"""The learning rate of every kind of arm, and the frequencies to lead with: chosen on seeds that nobody reports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import mean
from typing import Any

SEEDS = (100, 101)
"""Beyond those of the study, which count from 0."""
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
