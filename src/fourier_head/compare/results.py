"""What came of a comparison: one row per head, which of them is best, and the file that says so."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np

from fourier_head.compare.parts import Prepared
from fourier_head.compare.scores import Scores
from fourier_head.compare.settings import Settings
from fourier_head.compare.training import Trained, adaptive_frequencies
from fourier_head.metrics import central_coverage, pit_histogram
from fourier_head.pages.style import HEADS
from fourier_head.pages.words import short
from fourier_head.tabular.ensemble import Plan
from fourier_head.tasks.runs import hardware, plain_values, versions

TOOL = "fourier-head compare"
COVERED = (50, 80, 90, 95)
"""Levels of the central intervals whose coverage is told, in percent."""


@dataclass(frozen=True)
class Metric:
    """A score for the table: lower is better for all of them."""

    key: str
    label: str
    field: str
    meaning: str


METRICS = (
    Metric("nll", "NLL", "nll", "Negative log-likelihood of the test values under the continuous density, in nats."),
    Metric("crps", "CRPS", "crps", "Distance of the predicted distribution from the observed value, in its units."),
    Metric("kl", "KL", "kl", "Kullback-Leibler divergence from the true probabilities of the bins, in nats."),
    Metric("smoothness", "Smoothness", "smoothness", "What a Gaussian blur removes from the bins; flat ones have 0."),
    Metric("rmse", "RMSE", "squared_error", "Root of the mean squared error of the density's mean, in its units."),
)
OTHER_COLUMNS = (
    ("parameters", "Parameters", "Numbers learned, in the body and the head together."),
    ("seconds", "Seconds", "Time to train on one processor core, validation included."),
)


@dataclass
class Result:
    """Everything the table, the figures and the page are made from; ``runs`` holds one training per seed."""

    settings: Settings
    data: Prepared
    plan: Plan
    frequencies: int
    reason: str
    runs: dict[str, list[Trained]]
    truth: Scores | None
    notes: tuple[str, ...] = ()
    seconds: float = 0.0

    @property
    def names(self) -> list[str]:
        return list(self.runs)

    @property
    def first(self) -> list[Trained]:
        """The trainings with the first seed, which figures show."""
        return [runs[0] for runs in self.runs.values()]

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """The metrics that could be measured: KL only where the truth is known."""
        return tuple(m for m in METRICS if m.key != "kl" or self.truth is not None)

    def frequencies_of(self, name: str) -> int | None:
        """Return N of a head, None for one that has no frequencies."""
        if name == "fourier-adaptive":
            return adaptive_frequencies(self.settings)
        return self.frequencies if name.startswith("fourier") else None

    def rows(self) -> list[dict[str, Any]]:
        """Return one flat row per head: means over seeds, and deviations where there are several."""
        rows = []
        for name, runs in self.runs.items():
            summaries = [run.scores.summary() for run in runs]
            total, head = runs[0].parameters
            fourier = name.startswith("fourier")
            row: dict[str, Any] = {
                "dataset": self.data.table.name,
                "head": name,
                "frequencies": self.frequencies_of(name),
                "packets": self.settings.packets if name == "fourier-packets" else 0 if fourier else None,
                "components": self.settings.components if name == "gmm" else None,
                "bins": self.settings.bins,
                "seeds": len(runs),
            }
            for key in summaries[0]:
                values = [s[key] for s in summaries if s[key] is not None]
                row[key] = np.mean(values) if values else None  # type: ignore[arg-type]
                row[f"{key}_std"] = np.std(values, ddof=1) if len(values) > 1 else None  # type: ignore[arg-type]
            row |= {
                "parameters": total,
                "head_parameters": head,
                "seconds": np.mean([run.seconds for run in runs]),
                "best_epoch": [run.best_epoch for run in runs],
                "pit_histogram": [round(v, 5) for v in pit_histogram(runs[0].scores.pit, 20).tolist()],
                "coverage": dict(
                    zip(COVERED, central_coverage(runs[0].scores.pit, [c / 100 for c in COVERED]), strict=True)
                ),
                "validation": runs[0].history,
            }
            rows.append(plain_values(row))
        return rows

    def best(self, metric: Metric) -> set[str]:
        """Return the head with the lowest score and the runners-up within two standard errors of their difference."""
        scores = {
            name: np.mean([getattr(run.scores, metric.field) for run in runs], axis=0)
            for name, runs in self.runs.items()
        }
        means = {name: float(values.mean()) for name, values in scores.items() if np.isfinite(values.mean())}
        if not means:
            return set()
        winner, *others = sorted(means, key=lambda name: means[name])
        close = {winner}
        for name in others:
            difference = scores[name] - scores[winner]
            error = float(difference.std(ddof=1)) / math.sqrt(len(difference)) if len(difference) > 1 else 0.0
            if difference.mean() >= 2 * error:
                break
            close.add(name)
        return close

    def as_dict(self, files: list[str]) -> dict[str, Any]:
        """Return what ``results.json`` holds."""
        data = self.data
        settings = {k: str(v) if isinstance(v, Path) else v for k, v in asdict(self.settings).items()}
        return {
            "tool": TOOL,
            "command": self.settings.command,
            "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
            "versions": versions(),
            "hardware": hardware(),
            "seconds": round(self.seconds, 2),
            "settings": settings,
            "dataset": {
                "name": data.table.name,
                "target": data.table.target_name,
                "rows": {"train": len(data.train), "validation": len(data.validation), "test": len(data.test)},
                "inputs": data.num_inputs,
                "low": data.bins.low,
                "high": data.bins.high,
            },
            "frequencies": {"number": self.frequencies, "reason": self.reason},
            "body": data.body,
            "schedule": {"epochs": self.plan.epochs, **asdict(self.plan)},
            "notes": list(self.notes),
            "rows": self.rows(),
            "truth": None if self.truth is None else self.truth.summary(),
            "files": sorted(files),
        }


def decimals(values: list[float | None]) -> int:
    """Return decimals, up to six, for three digits of the numbers of a column and two of what tells them apart.

    >>> decimals([0.0043, 0.0357, 0.125]), decimals([153.2, 170.0]), decimals([11.912, 11.934, 11.951])
    (4, 0, 3)
    """
    known = [v for v in values if v is not None and math.isfinite(v)]
    # The lower median: one number near zero must not stretch the whole column.
    sizes = sorted(abs(v) for v in known if abs(v) > 1e-12)
    wanted = [2 - math.floor(math.log10(sizes[(len(sizes) - 1) // 2]))] if sizes else [3]
    if len(known) > 1 and (spread := float(np.ptp(known))) > 1e-12:
        wanted.append(1 - math.floor(math.log10(spread)))
    return min(6, max(0, *wanted))


def cells(values: list[float | None], spreads: list[float | None]) -> list[str]:
    """Return the numbers of a column as text with the same decimals, a dash for what is not known.

    >>> cells([11.912, 11.934, None], [None] * 3), cells([44863.2, 45120.9], [None, 31.0])
    (['11.912', '11.934', '–'], ['44,863', '45,121 ± 31'])
    """
    places = decimals(values)
    texts = []
    for value, spread in zip(values, spreads, strict=True):
        if value is None or not math.isfinite(value):
            texts.append("–")
            continue
        text = f"{value:,.{places}f}".replace("-", "−") if abs(value) < 1e9 else short(value)
        texts.append(text + ("" if spread is None else f" ± {spread:,.{places}f}"))
    return texts


@dataclass(frozen=True)
class Line:
    """A line of the table, ready to print: its texts, and which of them are in bold."""

    name: str | None
    label: str
    texts: tuple[str, ...]
    bold: tuple[bool, ...]


def table(result: Result) -> tuple[list[str], list[Line]]:
    """Return the heading and the lines of the table; the truth, where it is known, comes first."""
    rows = result.rows()
    known = None if result.truth is None else result.truth.summary()
    headings = [m.label for m in result.metrics] + [label for _, label, _ in OTHER_COLUMNS]
    columns: list[list[str]] = []
    for metric in result.metrics:
        values, spreads = [r[metric.key] for r in rows], [r[f"{metric.key}_std"] for r in rows]
        if known is not None:
            # The truth's KL from itself is a rounding error.
            values, spreads = [*values, known[metric.key] if metric.key != "kl" else 0.0], [*spreads, None]
        columns.append(cells(values, spreads))
    columns.append([f"{r['parameters']:,}" for r in rows] + ["–"] * (known is not None))
    columns.append([f"{r['seconds']:.1f}" for r in rows] + ["–"] * (known is not None))
    best = [result.best(m) for m in result.metrics]
    plain = (False,) * len(OTHER_COLUMNS)
    lines = []
    for i, row in enumerate(rows):
        bold = (*(row["head"] in b for b in best), *plain)
        lines.append(Line(row["head"], HEADS[row["head"]].label, tuple(c[i] for c in columns), bold))
    if known is not None:
        lines.insert(0, Line(None, "Truth", tuple(c[-1] for c in columns), (False,) * len(columns)))
    return headings, lines
