"""Rows, sentences and figures of the forecasting study."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from fourier_head.forecasting.evaluation import ScoreRow
from fourier_head.pages.charts import Chart, Panel, Series, nth_dash
from studies.chronos.arms import Arm
from studies.chronos.curves import curve_charts, law_rows
from studies.common.forecast_charts import calibration_chart, overview_chart, pens, relative_chart
from studies.common.forecast_scores import RELATIVE, published_rows, seasonal_naive_rows, summary_rows
from studies.common.report.summary import Row
from studies.common.report.tables import metric_label
from studies.common.results import aggregate

Result = Mapping[str, Any]


def rows(
    results: Sequence[Result], arms: Iterable[Arm], naive: Sequence[ScoreRow], published: Sequence[ScoreRow]
) -> list[Row]:
    """Return all rows: relative scores, smoothness, training, sets, power laws, seasonal naive, published models.

    The paper's numbers stand beside ours where sets of its benchmark were scored.
    """
    benchmark = any(one["status"] == "verified" for one in naive)
    by_label = {arm.label: arm for arm in arms}
    about = {label: arm.about | ({} if benchmark else {"paper": {}}) for label, arm in by_label.items()}
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
    laws = law_rows(results, by_label, naive)
    return [*table, *measured, *laws, *seasonal_naive_rows(naive, published), *published_rows(published)]


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


def charts(
    results: Sequence[Result],
    arms: Iterable[Arm],
    naive: Sequence[ScoreRow],
    published: Sequence[ScoreRow],
    table: Sequence[Row],
) -> list[Chart]:
    """Return all figures that the finished arms, and the rows made of them, allow."""
    by_label = {arm.label: arm for arm in arms}
    done = {one["model"]: by_label[one["model"]] for one in results}
    heads = {name: arm.head.kind for name, arm in done.items()}
    main = [name for name, arm in done.items() if arm.size is None and arm.data == 1.0] or list(done)
    two = [name for name in ("linear", "fourier-550") if name in main]
    shown = two if len(two) == 2 else main[:4]
    scores = [row for one in results for row in one["scores"]]
    few = [row for row in scores if row["model"] in shown]
    least = min(one["seed"] for one in results)
    first = [one for one in results if one["seed"] == least]
    means = {(row["model"], row["metric"]): row["ours"] for row in table if row["dataset"] == "all"}
    verified = any(row["status"] == "verified" for row in naive)
    out = [
        overview_chart(
            [row for row in scores if row["model"] in main], naive, published, heads=heads, verified=verified
        ),
        relative_chart(few, naive, "mase", heads=heads),
        relative_chart(few, naive, "wql", heads=heads),
        calibration_chart(few, heads=heads, verified=verified),
        distribution_chart([one for one in first if one["model"] in shown], heads),
        training_chart([one for one in first if one["model"] in main], heads, budget_of(results)),
    ]
    counted = {name: arm for name, arm in done.items() if name in main and name == f"fourier-{arm.head.frequencies}"}
    if len(counted) > 1:
        out.append(frequency_chart(counted, means))
    return [*out, *curve_charts(results, done, table, budget_of(results))]


def distribution_chart(results: Sequence[Result], heads: Mapping[str, str]) -> Chart:
    """Draw one next-token distribution of each arm, as the paper does for Tourism Monthly."""
    panels = []
    for one, (colour, _) in zip(results, pens([one["model"] for one in results], heads).values(), strict=True):
        series = [Series(one["model"], one["picture"]["value"], one["picture"]["density"], colour)]
        title = f"{one['model']}: smoothness {one['smoothness']:.4f}"
        panels.append(Panel(series, title, "value over the mean of the context", "density"))
    caption = "What each arm expects to come next after the context of one series; smoothness is the mean over many."
    return Chart("next-token", "A next-token distribution", panels, caption, columns=2)


def training_chart(results: Sequence[Result], heads: Mapping[str, str], budget: str) -> Chart:
    """Draw the training loss of each arm against what was spent of its budget."""
    series = []
    for one, (colour, again) in zip(results, pens([one["model"] for one in results], heads).values(), strict=True):
        x, y = np.reshape(one["curve"], (-1, 2)).T
        series.append(Series(one["model"], x, y, colour, dash=nth_dash(again)))
    caption = "Cross-entropy of the next token; arms with other bins, or with a regulariser, are not on one scale."
    return Chart("training", "Training", [Panel(series, "", budget, "loss")], caption, columns=1)


def frequency_chart(counted: Mapping[str, Arm], means: Mapping[tuple[str, str], float]) -> Chart:
    """Draw scores and smoothness of Fourier heads against N, those of the linear head as a line."""
    names = sorted(counted, key=lambda name: counted[name].head.frequencies)
    x = [counted[name].head.frequencies for name in names]
    panels = []
    for key in (*RELATIVE, "smoothness"):
        series = [Series("Fourier", x, [means[name, key] for name in names], "fourier", dots=True)]
        if ("linear", key) in means:  # a line of its own and no mark, since axes reach as far as lines do
            series.append(Series("Linear", [x[0], x[-1]], [means["linear", key]] * 2, "linear", dash=nth_dash(1)))
        panels.append(Panel(series, metric_label(key), "frequencies", x_log=True, y_log=key == "smoothness"))
    caption = "Means over all sets relative to seasonal naive, and of next-token distributions; lower is better."
    return Chart("frequencies", "Scores against the number of frequencies", panels, caption)
