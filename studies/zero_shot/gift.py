"""The GIFT-Eval configurations: scores of the forecaster, published ones beside them, and means over terms."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from fourier_head.forecasting.evaluation import SEASONAL_NAIVE, ScoreRow
from studies.common.benchmark_sets import read_published_scores, relative_means
from studies.common.forecast_scores import CALIBRATION, RELATIVE
from studies.common.report.summary import Row
from studies.common.results import row

GROUPS = {"gift": ("short", "medium", "long"), "gift_short": ("short",), "gift_long": ("medium", "long")}
"""Means over configurations, by their terms."""


def read_published(folder: Path) -> list[ScoreRow]:
    """Return the published scores that lie beside the configurations, none where there is no table."""
    table = folder / "published.csv"
    return read_published_scores(table) if table.is_file() else []


def relative(scores: Iterable[ScoreRow], naive: Iterable[ScoreRow]) -> list[ScoreRow]:
    """Return relative scores of each model over all configurations, the short ones, and the medium and long ones.

    >>> naive = [{"dataset": "a/H/short", "mase": 2.0, "wql": 1.0}]
    >>> ours = [{"model": "m", "dataset": "a/H/short", "mase": 1.0, "wql": 0.5}]
    >>> [(one["dataset"], one["relative_mase"]) for one in relative(ours, naive)]
    [('gift', 0.5), ('gift_short', 0.5)]
    """
    scale = {one["dataset"]: one for one in naive}
    models: dict[str, list[ScoreRow]] = {}
    for one in scores:
        if one["dataset"] in scale:
            models.setdefault(one["model"], []).append(one)
    out = []
    for model, members in models.items():
        for group, terms in GROUPS.items():
            if chosen := [one for one in members if one["dataset"].rpartition("/")[2] in terms]:
                out.append({"model": model, "dataset": group} | relative_means(chosen, scale))
    return out


def rows(
    scores: Sequence[ScoreRow], naive: Sequence[ScoreRow], published: Sequence[ScoreRow], about: dict[str, Any]
) -> list[Row]:
    """Return the rows of the study: means, each configuration of ours, and published means beside them."""
    out = []
    for one in relative(scores, naive):
        keep = {"dataset": one["dataset"], "model": one["model"], "sets": one["sets"], **about}
        out += [row(metric, one[metric], **keep) for metric in (*RELATIVE, *CALIBRATION)]
    base = {one["dataset"]: one for one in naive}
    for one in scores:
        keep = {"dataset": one["dataset"], "model": one["model"], "status": one["status"], **about}
        for metric in ("mase", "wql", *CALIBRATION):
            other = base.get(one["dataset"], {}).get(metric)
            ratio = {"seasonal_naive": other, "relative": one[metric] / other} if other else {}
            out.append(row(metric, one[metric], **keep, **ratio))
    models = [one for one in published if one["model"] != SEASONAL_NAIVE]
    for one in relative(models, naive):
        keep = {"dataset": one["dataset"], "head": one["model"], "model": one["model"], "protocol": "published"}
        out += [row(metric, None, **keep, sets=one["sets"], published=one[metric]) for metric in RELATIVE]
    return out
