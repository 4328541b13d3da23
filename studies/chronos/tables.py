"""Rows and sentences of the forecasting study."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any

from fourier_head.forecasting.evaluation import ScoreRow
from studies.chronos.arms import Arm
from studies.common.benchmark_sets import relative_scores
from studies.common.forecast_scores import RELATIVE, published_rows, seasonal_naive_rows, summary_rows
from studies.common.report.summary import Row
from studies.common.results import aggregate

Result = Mapping[str, Any]


def rows(
    results: Sequence[Result], arms: Iterable[Arm], naive: Sequence[ScoreRow], published: Sequence[ScoreRow]
) -> list[Row]:
    """Return all rows: relative scores, smoothness, training, single sets, seasonal naive, published models.

    The paper's numbers stand beside ours where sets of its benchmark were scored.
    """
    benchmark = any(one["status"] == "verified" for one in naive)
    about = {arm.label: arm.about | ({} if benchmark else {"paper": {}}) for arm in arms}
    scores = [row for one in results for row in one["scores"]]
    table = summary_rows(scores, naive, about)
    measured = aggregate(
        results, ["smoothness", "loss", "samples_per_second", "samples", "parameters"], ["model"]
    ) + aggregate(scores, ["smoothness"], ["dataset", "model", "status"])
    spread = {one["model"]: one["smoothness_std"] for one in results}
    for one in measured:
        described = dict(about[one["model"]])
        paper = described.pop("paper")
        one |= described
        if one["dataset"] is None:
            one["dataset"] = "all"
            if one["metric"] == "smoothness":
                # Between distributions, as in the paper; `std` is between seeds.
                one |= {"spread": spread[one["model"]], "paper": paper.get("smoothness")}
                one["paper_std"] = paper.get("smoothness_std")
    return [*table, *measured, *seasonal_naive_rows(naive, published), *published_rows(published)]


def notes(results: Sequence[Result], missing: int, sampling: str) -> list[str]:
    """Return in sentences what rows cannot say: what arms spent, how paths were drawn, what is missing."""
    first = results[0]
    timed = budget_of(results) == "seconds"
    spent = f"{first['training_seconds']:.0f} seconds" if timed else f"{first['steps']} steps"
    less = ", but for those with less data" if any("@data=" in one["model"] for one in results) else ""
    out = [
        f"Every arm trained for {spent} on {first['device']}{', compiling left out,' if timed else ''} and "
        f"saw the same windows in the same order{less}. The paper's models trained for 48 hours on 8 GPUs.",
        f"Scores are those of {sampling}.",
    ]
    if missing:
        out.append(f"{missing} runs are not finished and left out.")
    return out


def budget_of(results: Sequence[Result]) -> str:
    """Return what all arms spent the same of: seconds or steps."""
    return str(results[0].get("budget", "seconds"))


def means_over_seeds(results: Sequence[Result], naive: Sequence[ScoreRow]) -> dict[str, dict[str, float]]:
    """Return for each model the means over seeds of what is compared, over all sets."""
    groups: dict[str, list[dict[str, float]]] = {}
    for one in results:
        relative = next(row for row in relative_scores(one["scores"], naive) if row["dataset"] == "all")
        kept = {key: relative[key] for key in (*RELATIVE, "sets")}
        kept |= {key: one[key] for key in ("smoothness", "samples_per_second") if one[key] is not None}
        groups.setdefault(one["model"], []).append(kept)
    return {
        name: {key: fmean(one[key] for one in members if key in one) for key in members[0]}
        for name, members in groups.items()
    }
