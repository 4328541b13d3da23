"""Rows and sentences of the forecasting study."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any

from fourier_head.forecasting.evaluation import ScoreRow, relative_scores
from studies.chronos.arms import Arm
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


def notes(results: Sequence[Result], naive: Sequence[ScoreRow], missing: int, sampling: str) -> list[str]:
    """Return in sentences what came out; ``sampling`` says how paths were drawn."""
    means = means_over_seeds(results, naive)
    first = results[0]
    timed = budget_of(results) == "seconds"
    spent = f"{first['training_seconds']:.0f} seconds" if timed else f"{first['steps']} steps"
    less = ", but for those with less data" if any("@data=" in one["model"] for one in results) else ""
    out = [
        f"Every arm trained for {spent} on {first['device']}{', compiling left out,' if timed else ''} and "
        f"saw the same windows in the same order{less}. The paper's models trained for 48 hours on 8 GPUs.",
        f"Scores are those of {sampling}.",
    ]
    linear = means.get("linear")
    fouriers = {name: one for name, one in means.items() if name.startswith("fourier") and "@" not in name}
    if linear and fouriers:
        best = min(fouriers, key=lambda name: fouriers[name]["relative_mase"])
        ours = fouriers[best]
        times = linear["smoothness"] / ours["smoothness"]
        chosen = f", the best of {len(fouriers)} Fourier heads," if len(fouriers) > 1 else ""
        out.append(
            f"{best}{chosen} against linear over {ours['sets']:.0f} sets: relative MASE {ours['relative_mase']:.3f} "
            f"and {linear['relative_mase']:.3f}, WQL {ours['relative_wql']:.3f} and {linear['relative_wql']:.3f}, "
            f"next-token distributions {times:.1f} times smoother."
        )
        out.append(_by_set(results, best))
        speed, other = ours.get("samples_per_second"), linear.get("samples_per_second")
        if timed and speed and other:  # a budget of steps may be spent side by side with other arms
            out.append(f"Training ran at {speed:.0f} samples per second with {best} and {other:.0f} with linear.")
    out += _by_pair(means)
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


def _by_pair(means: Mapping[str, Mapping[str, float]]) -> list[str]:
    """Say of each Fourier head how often it is better than linear, where arms differ in the head alone."""
    pairs: dict[str, list[tuple[Mapping[str, float], Mapping[str, float]]]] = {}
    for name, ours in means.items():
        head = name.partition("@")[0]
        if head.startswith("fourier") and (linear := means.get("linear" + name.removeprefix(head))):
            pairs.setdefault(head, []).append((ours, linear))
    out = []
    for head, members in pairs.items():
        if len(members) > 1:
            lower = {key: sum(ours[key] < linear[key] for ours, linear in members) for key in RELATIVE}
            change = {key: fmean(ours[key] - linear[key] for ours, linear in members) for key in RELATIVE}
            out.append(
                f"Of {len(members)} pairs of {head} and linear, alike in size and data, {head} has the lower MASE in "
                f"{lower['relative_mase']} ({change['relative_mase']:+.3f} on average) and the lower WQL in "
                f"{lower['relative_wql']} ({change['relative_wql']:+.3f})."
            )
    return out


def _by_set(results: Sequence[Result], best: str) -> str:
    """Say on which sets an arm is better than linear, and by how much."""
    mean: dict[str, dict[str, list[float]]] = {}
    for one in results:
        if one["model"] in (best, "linear"):
            for row in one["scores"]:
                mean.setdefault(row["dataset"], {}).setdefault(one["model"], []).append(row["mase"])
    change = {}
    for dataset, both in mean.items():
        ours, theirs = (sum(both[name]) / len(both[name]) for name in (best, "linear"))
        change[dataset] = 100 * (ours / theirs - 1)
    ordered = sorted(change.items(), key=lambda pair: pair[1])
    better = sum(value < 0 for value in change.values())
    text = ", ".join(f"{name} {value:+.1f} %" for name, value in ordered)
    return f"{best} has the lower MASE on {better} of {len(change)} sets: {text}."
