"""A metric against the number of frequencies, drawn from rows: what most studies of the paper show."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from fourier_head.pages.charts import Panel, Series, nth_dash
from studies.common.report.summary import COLUMNS, Row, number
from studies.common.report.tables import arm_label


def _arms(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """Return the rows by arm: one with frequencies has several, one without has one; what is alike is not named."""
    own = {key for row in rows for key in row} - {*COLUMNS}
    alike = {key for key in own if len({row[key] for row in rows if row.get(key) is not None}) <= 1}
    arms: dict[str, list[Row]] = {}
    for row in rows:
        named = {key: value for key, value in row.items() if key not in alike}
        arms.setdefault(arm_label(named | {"frequencies": None}), []).append(row)
    return arms


def frequency_panel(rows: Sequence[Row], title: str, y_label: str) -> Panel:
    """Draw one metric of one data set against the number of frequencies; heads without any are level lines.

    Args:
        rows: of all arms to draw.
        title, y_label: of the panel.
    """
    arms = _arms(rows) if rows else {}
    curves = {arm for arm, members in arms.items() if all(number(row["frequencies"]) for row in members)}
    if not curves:
        return Panel([], title, "frequencies N", y_label)
    points = [row["frequencies"] for arm in curves for row in arms[arm]]
    beyond = 1 if min(points) == max(points) else 0  # a level line needs some length
    ends = [min(points) - beyond, max(points) + beyond]
    series: list[Series] = []
    used: Counter[str] = Counter()
    for arm, members in arms.items():
        head = str(members[0]["head"])
        used[head] += 1
        colour = "fourier-packets" if head == "fourier" and members[0]["packets"] else head
        dash = nth_dash(used[head] - 1)
        if arm in curves:
            series += _curve(arm, members, colour, dash)
        elif len(members) == 1:
            value = members[0]["ours"]
            series.append(Series(arm, ends, [value, value], colour, dash=dash or "dash"))
    return Panel(series, title, "frequencies N", y_label)


def saying_hollow(caption: str, panels: Sequence[Panel]) -> str:
    """Return the caption of such panels, which says whose the hollow points are where there are any."""
    hollow = any(series.hollow for panel in panels for series in panel.series)
    return f"{caption} Hollow points: the paper's." if hollow else caption


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
