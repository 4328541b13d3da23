"""Published scores of the Chronos models on the zero-shot benchmark, as rows that stand beside our own."""

from __future__ import annotations

import csv
from pathlib import Path

from fourier_head.errors import UserError
from fourier_head.forecasting.evaluation import SEASONAL_NAIVE, ScoreRow
from fourier_head.forecasting.evaluation_sets import BENCHMARK

__all__ = ["read_published_scores"]

_OURS = {known.published: name for name, known in BENCHMARK.items() if known.status in ("verified", "further")}


def read_published_scores(path: str | Path) -> list[ScoreRow]:
    """Read a table of published scores: one row per model and set with model, dataset, status, mase and wql.

    Two layouts are understood, those in which the Chronos project publishes results: columns dataset (or config, as in
    GIFT-Eval), model, MASE, WQL with a line for each pair, or a line for each set under two lines of headings, models
    above and scores below.

    Verified sets carry our name and status. The others carry the status `published`: their scores are
    over series that we do not have, so nothing of ours compares with them.
    """
    path = Path(path)
    try:
        with path.open(newline="", encoding="utf-8") as file:
            lines = [line for line in csv.reader(file) if any(line)]
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}.") from None
    found = _long(lines) if lines and lines[0][0] in ("dataset", "config") else _wide(lines)
    if not found:
        raise UserError(f"{path} must be a table of published scores with MASE and WQL, got none of them.")
    rows: dict[tuple[str, str], ScoreRow] = {}
    for dataset, model, metric, text in found:
        name = _OURS.get(dataset, dataset)
        status = BENCHMARK[name].status if dataset in _OURS else "published"
        model = SEASONAL_NAIVE if model == "seasonal_naive" else model
        row = rows.setdefault((model, name), {"model": model, "dataset": name, "status": status})
        try:
            row[metric.lower()] = float(text)
        except ValueError:
            raise UserError(f"{path} must hold numbers, got {text!r} for {model} on {dataset}.") from None
    whole = [row for row in rows.values() if "mase" in row and "wql" in row]  # a cell may be empty
    return sorted(whole, key=lambda row: (row["model"], row["dataset"]))


def _long(lines: list[list[str]]) -> list[tuple[str, str, str, str]]:
    columns = ["dataset" if name == "config" else name.lower() for name in lines[0]]
    if not {"model", "mase", "wql"} <= set(columns):
        return []
    records = [dict(zip(columns, line, strict=False)) for line in lines[1:]]
    return [(one["dataset"], one["model"], key, one.get(key, "")) for one in records for key in ("mase", "wql")]


def _wide(lines: list[list[str]]) -> list[tuple[str, str, str, str]]:
    if len(lines) < 3:
        return []
    models, metrics = lines[0], lines[1]
    return [
        (line[0], model, metric, text)
        for line in lines[2:]
        for model, metric, text in zip(models, metrics, line, strict=False)
        if metric in ("MASE", "WQL") and text
    ]
