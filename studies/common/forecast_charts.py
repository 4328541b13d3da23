"""Charts of forecasting studies: relative scores by set, models against each other, calibration."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from fourier_head.forecasting.evaluation import SEASONAL_NAIVE, ScoreRow
from fourier_head.forecasting.scores import COVERAGES, DECILES, INTERVALS
from fourier_head.pages.charts import Chart, Mark, Panel, Series
from fourier_head.pages.style import look
from studies.common.benchmark_sets import relative_scores
from studies.common.report.tables import model_label

_GROUPS = {
    "Yearly": ("m1_yearly", "m3_yearly", "m4_yearly", "tourism_yearly"),
    "Quarterly": ("m1_quarterly", "m3_quarterly", "m4_quarterly_partial", "tourism_quarterly"),
    "Monthly": ("car_parts", "cif_2016", "hospital", "m1_monthly", "m3_monthly", "tourism_monthly"),
    "Weekly, daily, half-hourly": ("nn5_weekly", "nn5_daily", "m5_partial", "australian_electricity"),
}
_SHORT = {
    "australian_electricity": "electricity",
    "cif_2016": "CIF",
    "fred_md": "FRED-MD",
    "nn5_weekly": "NN5 week",
    "nn5_daily": "NN5 day",
}
_COLOURS = ("curve-1", "curve-2", "curve-3", "curve-4", "curve-5", "gmm_full", "quantile", "regression")


def _short(dataset: str, group: str, status: str | None) -> str:
    """Return a name that fits under a bar; a star marks what is not the published set."""
    name = _SHORT.get(dataset) or dataset.removesuffix("_partial").removesuffix(f"_{group.lower()}").replace("_", " ")
    name = name.capitalize() if len(name) > 2 and name.islower() else name.upper() if len(name) == 2 else name
    return name + ("" if status in (None, "verified", "published") else "*")


def _mean_by_set(scores: Iterable[ScoreRow]) -> dict[str, dict[str, ScoreRow]]:
    """Return for each model and set the mean of its scores over seeds."""
    groups: dict[tuple[str, str], list[ScoreRow]] = {}
    for one in scores:
        groups.setdefault((one["model"], one["dataset"]), []).append(one)
    out: dict[str, dict[str, ScoreRow]] = {}
    for (model, dataset), members in groups.items():
        merged = dict(members[0])
        for key in ("mase", "wql", "pit", *COVERAGES):
            values = [one[key] for one in members if one.get(key) is not None]
            merged[key] = np.mean(values, axis=0) if values else None
        out.setdefault(model, {})[dataset] = merged
    return out


def pens(models: Sequence[str], heads: Mapping[str, str]) -> dict[str, tuple[str, int]]:
    """Return a colour for each model, and how many before it have the same.

    A model has the colour of its head, where it is the first of it, otherwise the one that is used least.

    >>> pens(["linear", "fourier-64", "fourier-128"], {"linear": "linear", "fourier-64": "fourier"})
    {'linear': ('linear', 0), 'fourier-64': ('fourier', 0), 'fourier-128': ('curve-1', 0)}
    """
    used: Counter[str] = Counter()
    out = {}
    for model in models:
        head = heads.get(model, "")
        own = bool(head) and look(head).light != look("ink").light and not used[look(head).light]
        name = head if own else min(_COLOURS, key=lambda one: used[look(one).light])
        out[model] = name, used[look(name).light]
        used[look(name).light] += 1
    return out


def relative_chart(
    scores: Iterable[ScoreRow], naive: Iterable[ScoreRow], metric: str, *, heads: Mapping[str, str]
) -> Chart:
    """Draw each model's score on each set over that of seasonal naive: below 1 is better than repeating the season.

    Args:
        scores: of all models to show, published ones too; several seeds are averaged.
        naive: the scores of seasonal naive.
        metric: "mase" or "wql".
        heads: the head of each model, for its colour.
    """
    base = {one["dataset"]: one for one in naive}
    by_model = _mean_by_set(scores)
    colours = pens(list(by_model), heads)
    known = {dataset for group in _GROUPS.values() for dataset in group}
    groups = {**_GROUPS, "Others": tuple(dataset for dataset in base if dataset not in known)}
    panels = []
    for title, members in groups.items():
        shown = [d for d in members if d in base and any(d in sets for sets in by_model.values())]
        if not shown:
            continue
        names = [_short(dataset, title, base[dataset].get("status")) for dataset in shown]
        series = []
        for model, sets in by_model.items():
            y = [sets[d][metric] / base[d][metric] if d in sets else None for d in shown]
            series.append(Series(model, names, y, colours[model][0], "bars"))
        panels.append(Panel(series, title, y_label=f"relative {metric.upper()}", marks=[Mark(1.0, axis="y")]))
    starred = any("*" in one.x[i] for panel in panels for one in panel.series for i in range(len(one.x)))
    caption = (
        "Score over that of seasonal naive, on each set; lower is better, the dashed line is seasonal naive itself."
    )
    if starred:
        caption += " A star marks sets that are not the published ones: models compare there with each other only."
    title = f"{metric.upper()} relative to seasonal naive, by set"
    return Chart(f"relative-{metric}", title, panels, caption, columns=2, height=2.3)


def _family(model: str) -> str:
    """Return the name that the sizes of a published model share.

    >>> _family("chronos_bolt_base"), _family("timesfm-2.0"), _family("chronos-t5-mini"), _family("auto_ets")
    ('Chronos Bolt', 'TimesFM', 'Chronos T5', 'ARIMA, ETS and Theta')
    """
    if model in ("auto_arima", "auto_ets", "auto_theta"):
        return "ARIMA, ETS and Theta"
    return model_label(re.sub(r"[_-](tiny|mini|small|base|large|[\d.]+)$", "", model))


def overview_chart(
    scores: Iterable[ScoreRow],
    naive: Sequence[ScoreRow],
    published: Sequence[ScoreRow],
    *,
    heads: Mapping[str, str],
    verified: bool = True,
) -> Chart:
    """Draw every model as a point, relative MASE across and relative WQL up; hollow points are published models.

    Of these the families with the lowest WQL are shown, at most as many as there are colours left.
    """
    series = []
    merged = [one for sets in _mean_by_set(scores).values() for one in sets.values()]
    group = "verified" if verified else "all"
    points = [one for one in relative_scores(merged, naive) if one["dataset"] == group]
    colours = pens([one["model"] for one in points], heads)
    for one in points:
        at = [one["relative_mase"]], [one["relative_wql"]]
        colour, again = colours[one["model"]]
        series.append(Series(one["model"], *at, colour, "points", hollow=again > 0))
    theirs = [one for one in published if one["model"] == SEASONAL_NAIVE]
    others = [one for one in published if one["model"] != SEASONAL_NAIVE]
    families: dict[str, list[ScoreRow]] = {}
    for one in relative_scores(others, theirs):
        if one["dataset"] == "verified":
            families.setdefault(_family(one["model"]), []).append(one)
    best = sorted(families, key=lambda family: min(one["relative_wql"] for one in families[family]))
    used = {look(one.colour).light for one in series}
    free = [name for name in _COLOURS if look(name).light not in used]
    for colour, family in zip(free, best, strict=False):
        members = sorted(families[family], key=lambda one: one["relative_mase"])
        at = [one["relative_mase"] for one in members], [one["relative_wql"] for one in members]
        series.append(Series(f"{family}, published", *at, colour, dash="dot", dots=True, hollow=True))
    count = points[0]["sets"] if points else 0
    panel = Panel(series, "", "relative MASE", "relative WQL")
    caption = (
        f"Geometric means over the {count} {'verified ' if verified else ''}sets of score over that of seasonal naive; "
        "lower left is better. Filled points are ours, hollow ones the best published models, sizes of one joined."
    )
    return Chart("overview", "Accuracy of forecasts", [panel], caption, columns=1, height=3.6)


def calibration_chart(scores: Iterable[ScoreRow], *, heads: Mapping[str, str], verified: bool = True) -> Chart:
    """Draw observed against nominal frequency of quantiles, the coverage of intervals and the PIT histogram.

    Every set counts alike. Models without intervals, such as seasonal naive, are left out.
    """
    by_model: dict[str, list[ScoreRow]] = {}
    for model, sets in _mean_by_set(scores).items():
        chosen = [one for one in sets.values() if not verified or one.get("status") == "verified"]
        if chosen and all(one.get("pit") is not None for one in chosen):
            by_model[model] = chosen
    colours = pens(list(by_model), heads)
    diagonal = Series("ideal", [0, 1], [0, 1], "truth", legend=False)
    shares = [f"{round(100 * share)} %" for share in INTERVALS]
    wanted = Series("ideal", shares, [100 * share for share in INTERVALS], "truth", "bars", legend=False)
    curves: list[Series] = [diagonal]
    covered: list[Series] = [wanted]
    pits: list[Series] = []
    for model, rows in by_model.items():
        pit = np.mean([one["pit"] for one in rows], axis=0)
        curves.append(Series(model, DECILES, pit.cumsum()[:-1], colours[model][0], dots=True))
        middles = [round(0.05 + 0.1 * i, 2) for i in range(len(pit))]
        pits.append(Series(model, middles, 100 * pit, colours[model][0], dots=True, legend=False))
        seen: list[Any] = []
        for key in COVERAGES:
            values = [one[key] for one in rows]
            seen.append(None if any(value is None for value in values) else 100 * float(np.mean(values)))
        if any(value is not None for value in seen):
            covered.append(Series(model, shares, seen, colours[model][0], "bars", legend=False))
    # From zero on: a histogram that is flat to a percent must look flat.
    highest = max((value for one in pits for value in one.y if value is not None), default=10.0)
    flat: dict[str, Any] = {"marks": [Mark(10.0, axis="y")], "y_range": (0.0, 1.15 * highest)}
    panels = [
        Panel(curves, "Quantiles", "nominal level", "share of targets below"),
        Panel(covered, "Central intervals", y_label="targets inside, %"),
        Panel(pits, "PIT", "probability of the target", "targets, %", **flat),
    ]
    which = "verified sets" if verified else "sets"
    caption = f"Means over {which}, each counting alike. Grey is what calibrated forecasts have: the diagonal, the "
    caption += "nominal coverage, and a flat histogram of probability integral transforms (dashed)."
    return Chart("calibration", "Calibration of forecasts", panels, caption)
