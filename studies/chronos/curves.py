"""Scores against the size of the model or the share of the data, and power laws through them (figures 18 and 19)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from fourier_head.forecasting.evaluation import ScoreRow
from fourier_head.pages.charts import Chart, Panel, Series
from studies.chronos.arms import Arm
from studies.common.benchmark_sets import relative_scores
from studies.common.forecast_scores import RELATIVE
from studies.common.intervals import t_interval, t_quantile
from studies.common.report.summary import Row
from studies.common.report.tables import metric_label
from studies.common.results import row

LEAST = 3
"""Points of which one law is more than a line drawn through them."""


class PowerLaw(NamedTuple):
    """The law y = factor x^exponent; ``interval`` is that of the exponent by how far points lie from the law."""

    factor: float
    exponent: float
    interval: tuple[float, float] | None


def power_law(x: Sequence[float], y: Sequence[float]) -> PowerLaw:
    """Return the law through points by least squares between logarithms, with a 95 % interval from three points on.

    >>> law = power_law([1.0, 2.0, 4.0], [3.0, 1.5, 0.75])
    >>> round(law.factor, 6), round(law.exponent, 6)
    (3.0, -1.0)
    """
    across, up = np.log(x), np.log(y)
    if len(set(across.tolist())) < 2:
        raise ValueError(f"a power law needs points at two places, got {len(x)} at {sorted(set(x))}")
    spread = across - across.mean()
    exponent = float(spread @ up / (spread @ spread))
    level = float(up.mean() - exponent * across.mean())
    if len(x) < LEAST:
        return PowerLaw(math.exp(level), exponent, None)
    left = up - level - exponent * across
    freedom = len(x) - 2
    half = t_quantile(freedom) * math.sqrt(float(left @ left) / freedom / float(spread @ spread))
    return PowerLaw(math.exp(level), exponent, (exponent - half, exponent + half))


def curves(results: Sequence[Mapping[str, Any]], arms: Mapping[str, Arm]) -> dict[str, dict[str, dict[str, float]]]:
    """Return where arms of one head stand, by `sizes` (million parameters) and `data` (share of the training series).

    Both are there only where they were varied. A share may be larger than the arm names it: every set keeps a series.
    """
    parameters = {one["model"]: one["parameters"] / 1e6 for one in results}
    shares = {one["model"]: one.get("share", arms[one["model"]].data) for one in results}
    found: dict[str, dict[str, dict[str, float]]] = {}
    for kind, places in (("sizes", parameters), ("data", shares)):
        varied = [name for name in places if (arms[name].size if kind == "sizes" else arms[name].data != 1.0)]
        for head in dict.fromkeys(arms[name].name for name in varied):
            own = [name for name in places if name == head or (name in varied and arms[name].name == head)]
            found.setdefault(kind, {})[head] = {name: places[name] for name in sorted(own, key=lambda one: places[one])}
    return found


def law_rows(results: Sequence[Mapping[str, Any]], arms: Mapping[str, Arm], naive: Sequence[ScoreRow]) -> Iterator[Row]:
    """Return the exponents of relative MASE and WQL over sizes and data, for every head with three points.

    `low` to `high` is by Student's t over the exponents of single seeds; of one seed, by how far its points lie from
    the law.
    """
    scores: dict[tuple[str, int], dict[str, Any]] = {}
    for one in results:
        (whole,) = (found for found in relative_scores(one["scores"], naive) if found["dataset"] == "all")
        scores[one["model"], one["seed"]] = whole
    for kind, heads in curves(results, arms).items():
        for head, places in heads.items():
            seeds = sorted({seed for _, seed in scores if all((name, seed) in scores for name in places)})
            if len(places) < LEAST or not seeds:
                continue
            for metric in RELATIVE:
                laws = [
                    power_law(list(places.values()), [scores[name, seed][metric] for name in places]) for seed in seeds
                ]
                exponents = np.array([law.exponent for law in laws])
                mean, interval = t_interval(exponents)
                low, high = interval or laws[0].interval or (None, None)
                about = arms[next(iter(places))].about
                more = {"dataset": "all"} | {key: about[key] for key in ("head", "frequencies", "packets", "gamma")}
                more |= {"std": float(exponents.std(ddof=1)) if len(seeds) > 1 else None, "seeds": len(seeds)}
                more |= {"protocol": f"over {kind}", "model": head}
                factor = math.exp(float(np.mean([math.log(law.factor) for law in laws])))
                yield row(f"{metric}_exponent", mean, **more, factor=factor, points=len(places), low=low, high=high)


def curve_charts(
    results: Sequence[Mapping[str, Any]], arms: Mapping[str, Arm], table: Sequence[Row], budget: str
) -> list[Chart]:
    """Draw relative MASE and WQL of the heads against size and data, with the power laws that the table has of them."""
    means = {(one["model"], one["metric"]): one["ours"] for one in table if one["dataset"] == "all"}
    laws = {(one["protocol"], one["model"], one["metric"]): one for one in table if "factor" in one}
    out = []
    for kind, heads in curves(results, arms).items():
        panels = []
        for metric in RELATIVE:
            series = []
            for head, places in heads.items():
                x, look = list(places.values()), arms[next(iter(places))].head.kind
                y = [means[name, metric] for name in places]
                series.append(Series(look.capitalize(), x, y, look, dots=True))
                law = laws.get((f"over {kind}", head, f"{metric}_exponent"))
                if law is not None:
                    at = np.geomspace(x[0], x[-1], 30)
                    fitted = law["factor"] * at ** law["ours"]
                    series.append(Series(f"{look.capitalize()}, power law", at, fitted, look, dash="dash"))
            label = "million parameters" if kind == "sizes" else "share of the training series"
            # Both axes in logarithms, so that a power law is a straight line.
            panels.append(Panel(series, metric_label(metric), label, x_log=True, y_log=True))
        what = "the size of the model" if kind == "sizes" else "the number of training series"
        caption = f"Equal {budget} of training for every point; dashed a power law fitted to the points."
        out.append(Chart(f"by-{kind}", f"Scores against {what}", panels, caption, columns=2))
    return out
