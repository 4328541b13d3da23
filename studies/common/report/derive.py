"""Charts made from the rows alone: a metric against the number of frequencies, one panel for each data set."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fourier_head.pages.charts import Chart, Panel, Series, nth_dash
from fourier_head.pages.style import CURVES
from studies.common.report.summary import COLUMNS, Row, number
from studies.common.report.tables import arm_label, dataset_label, metric_label

LEAST = 3  # frequencies that make a curve


def charts_from_rows(rows: Sequence[Row], metrics: Sequence[str] | None = None) -> list[Chart]:
    """Return a chart for each metric and protocol in which some head was measured at several frequencies.

    Heads with frequencies become curves with error bars, hollow dots beside them the paper's values; heads without,
    level lines across the panel.
    """
    out = []
    for metric in metrics or list(dict.fromkeys(row["metric"] for row in rows)):
        chosen = [row for row in rows if row["metric"] == metric and number(row["ours"]) is not None]
        for protocol in dict.fromkeys(row["protocol"] for row in chosen):
            panels = []
            some = [row for row in chosen if row["protocol"] == protocol]
            for dataset in dict.fromkeys(row["dataset"] for row in some):
                own = [row for row in some if row["dataset"] == dataset]
                if any(_count(members) >= LEAST for members in _arms(own).values()):
                    panels.append(frequency_panel(own, dataset_label(dataset), metric_label(metric)))
            if panels:
                label = metric_label(metric)
                title = f"{label} against the number of frequencies" + (f", {protocol}" if protocol else "")
                name = "-".join(str(word) for word in (metric, protocol, "by-frequencies") if word).replace(" ", "-")
                caption = "Means, error bars one deviation over seeds."
                if any(s.hollow for p in panels for s in p.series):
                    caption += " Hollow: the paper's values."
                out.append(Chart(name, title, panels, caption, height=2.8))
    return out


def _arms(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """Return the rows by arm: one with frequencies has several, one without has one; what is alike is not named."""
    alike = {key for key in rows[0] if key not in COLUMNS and len({str(row.get(key)) for row in rows}) == 1}
    arms: dict[str, list[Row]] = {}
    for row in rows:
        named = {key: value for key, value in row.items() if key not in alike}
        arms.setdefault(arm_label(named | {"frequencies": None}), []).append(row)
    return arms


def _count(members: Sequence[Row]) -> int:
    return len({row["frequencies"] for row in members if number(row["frequencies"])})


def frequency_panel(rows: Sequence[Row], title: str, y_label: str) -> Panel:
    """Draw one metric of one data set against the number of frequencies; heads without any are level lines.

    Args:
        rows: of all arms to draw.
        title, y_label: of the panel.
    """
    arms = _arms(rows) if rows else {}
    curves = {arm for arm, members in arms.items() if _count(members)}
    if not curves:
        return Panel([], title, "frequencies N", y_label)
    points = [row["frequencies"] for arm in curves for row in arms[arm]]
    ends = [min(points), max(points)]
    series: list[Series] = []
    used: dict[str, int] = {}
    for arm, members in arms.items():
        head = str(members[0]["head"] or "ink")
        colour = _colour(head, bool(members[0].get("packets")), used)
        dash = nth_dash(used[head] - 1)
        if arm in curves:
            series += _curve(arm, members, colour, dash)
        elif len(members) == 1:
            value = members[0]["ours"]
            series.append(Series(arm, ends, [value, value], colour, dash=dash or "dash"))
    return Panel(series, title, "frequencies N", y_label)


def _colour(head: str, packets: bool, used: dict[str, int]) -> str:
    """Return the colour of a head, counting how often it was used so that line styles can differ."""
    used[head] = used.get(head, 0) + 1
    if head.startswith("fourier") and packets:
        return "fourier-packets"
    return head if head != "None" else next(iter(CURVES))


def _curve(arm: str, members: Sequence[Row], colour: str, dash: str) -> list[Series]:
    ordered: list[dict[str, Any]] = sorted(members, key=lambda row: row["frequencies"])
    n = [row["frequencies"] for row in ordered]
    errors = [row["std"] for row in ordered]
    shown = None if all(error is None for error in errors) else errors
    out = [Series(arm, n, [row["ours"] for row in ordered], colour, error=shown, dash=dash, dots=True)]
    paper = [row["paper"] for row in ordered]
    if any(number(value) is not None for value in paper):
        out.append(Series(arm, n, paper, colour, "points", hollow=True, legend=False))
    return out
