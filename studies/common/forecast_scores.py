"""Rows of a forecasting study: scores by set and relative to seasonal naive, over seeds, published ones beside them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fourier_head.forecasting.evaluation import SEASONAL_NAIVE, VERIFIED, ScoreRow
from fourier_head.forecasting.scores import COVERAGES
from studies.common.benchmark_sets import BENCHMARK, relative_scores
from studies.common.report.summary import Row
from studies.common.results import aggregate, row

CALIBRATION = (*COVERAGES, "interval_error")
RELATIVE = ("relative_mase", "relative_wql")


def summary_rows(
    scores: Iterable[ScoreRow], naive: Sequence[ScoreRow], about: Mapping[str, Mapping[str, Any]] | None = None
) -> list[Row]:
    """Return the rows of several models: relative scores over `verified` and `all` sets, then each set.

    Runs of one model with different `seed` become one row with their mean and deviation; relative scores are those of
    single runs, averaged.

    Args:
        scores: what `evaluate` returned for every model and seed; `seed` may be missing where there is one run.
        naive: what `evaluate_seasonal_naive` returned.
        about: for each model what its rows say of it: head, frequencies, packets, protocol, further keys, and `paper`,
            a dictionary from metric to the paper's value, which is over all its sets.

    Example:
        >>> naive = [{"model": "seasonal-naive", "dataset": "a", "status": "verified", "mase": 2.0, "wql": 0.5}]
        >>> ours = [{"model": "m", "dataset": "a", "status": "verified", "mase": 1.0, "wql": 0.25, "seed": 0}]
        >>> rows = summary_rows(ours, naive, {"m": {"head": "fourier"}})
        >>> [(r["dataset"], r["head"], r["metric"], r["ours"]) for r in rows[:2]]
        [('verified', 'fourier', 'relative_mase', 0.5), ('verified', 'fourier', 'relative_wql', 0.5)]
    """
    about = about or {}
    runs: dict[tuple[str, Any], list[ScoreRow]] = {}
    for one in scores:
        runs.setdefault((one["model"], one.get("seed")), []).append(one)
    # A mean over seeds must be one over the same sets.
    sets: dict[str, set[str]] = {}
    for (model, seed), members in runs.items():
        names = {one["dataset"] for one in members}
        if sets.setdefault(model, names) != names:
            raise ValueError(f"every seed of {model} must be scored on the same sets, got others for seed {seed}")
    relative = [one for members in runs.values() for one in relative_scores(members, naive)]
    single = [one for members in runs.values() for one in members]
    out = aggregate(relative, [*RELATIVE, *CALIBRATION, "seconds"], ["dataset", "model", "sets"])
    out += aggregate(single, ["mase", "wql", *CALIBRATION, "seconds"], ["dataset", "model", "status"])
    base = {one["dataset"]: one for one in naive}
    for one in out:
        described = dict(about.get(one["model"], {}))
        paper = described.pop("paper", None) or {}
        one |= {"head": one["model"]} | described
        if one["dataset"] == "all":
            one["paper"] = paper.get(one["metric"])
        elif one["metric"] in ("mase", "wql") and one["dataset"] in base:
            one["seasonal_naive"] = base[one["dataset"]][one["metric"]]
            one["relative"] = one["ours"] / one["seasonal_naive"]
    return out


def comparable(published: Iterable[ScoreRow], naive: Iterable[ScoreRow]) -> list[ScoreRow]:
    """Return published scores, `verified` (or `further`) only on the sets that were scored whole here.

    A set that is cut short or not there is like those we never had: means that stand side by side must be over the same
    sets.
    """
    whole = {one["dataset"] for one in naive if one["status"] in VERIFIED}
    return [
        one
        if one["status"] not in VERIFIED or one["dataset"] in whole
        else one | {"dataset": BENCHMARK[one["dataset"]].published, "status": "published"}
        for one in published
    ]


def seasonal_naive_rows(naive: Iterable[ScoreRow], published: Iterable[ScoreRow]) -> list[Row]:
    """Return the scores of seasonal naive on each set, beside them those that others published for verified sets.

    They are in `published`: `paper` is for the paper that a study repeats, and no one else's.
    """
    theirs = {one["dataset"]: one for one in published if one["model"] == SEASONAL_NAIVE}
    out = []
    for one in naive:
        for metric in ("mase", "wql"):
            known = theirs[one["dataset"]][metric] if one["dataset"] in theirs else None
            about = {"dataset": one["dataset"], "head": "seasonal_naive", "model": SEASONAL_NAIVE}
            out.append(row(metric, one[metric], **about, status=one["status"], seeds=1, published=known))
    return out


def published_rows(published: Sequence[ScoreRow]) -> list[Row]:
    """Return published models beside ours: their numbers are in `published`, and nothing is ours.

    Relative scores are over the `verified` sets, against the published seasonal naive, and so compare with ours; those
    over all sets of the table are called `published`. Single sets are there where verified.
    """
    naive = [one for one in published if one["model"] == SEASONAL_NAIVE]
    models = [one for one in published if one["model"] != SEASONAL_NAIVE]
    out = []
    for one in relative_scores(models, naive):
        dataset = "published" if one["dataset"] == "all" else one["dataset"]
        about = {"head": one["model"], "model": one["model"], "protocol": "published", "sets": one["sets"]}
        out += [row(metric, None, dataset=dataset, **about, published=one[metric]) for metric in RELATIVE]
    for one in models:
        if one["status"] in VERIFIED:
            about = {"head": one["model"], "model": one["model"], "protocol": "published", "status": one["status"]}
            out += [row(m, None, dataset=one["dataset"], **about, published=one[m]) for m in ("mase", "wql")]
    return out
