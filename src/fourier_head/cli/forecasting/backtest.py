"""The part of a forecast's page that says how good forecasts of the past would have been."""

from __future__ import annotations

from html import escape

import numpy as np

from fourier_head.forecasting.backtest import COVERAGES, Backtest
from fourier_head.forecasting.scores import INTERVALS

ROWS = 200
"""Series listed at most: those forecast worst, where there are more."""


def section(result: Backtest, file: str) -> str:
    """Return the section as HTML.

    Args:
        file: where every series is, beside the page.
    """
    heads = [f"{round(100 * share)} % held" for share in INTERVALS]
    shown = sorted(result.rows, key=lambda row: -_order(row))[:ROWS]
    body = _row("All series", result.overall, strong=True) if len(result.rows) > 1 else ""
    body += "".join(_row(name_of(row["name"]), row) for row in shown)
    left = len(result.rows) - len(shown)
    rest = f"The {len(shown)} series forecast worst; all {len(result.rows):,} are in" if left else "The same is in"
    titles = ["Series", "MASE", "of naive", "WQL", "of naive", *heads]
    return f"""<section id="trust">
<h2>How good it would have been</h2>
<p>{escape(result.words)}</p>
<div class="scroll"><table><thead><tr>{"".join(f"<th>{title}</th>" for title in titles)}</tr></thead>
<tbody>{body}</tbody></table></div>
<p class="small muted">Forecasts from earlier moments, of what is known by now; no window saw what came after it.
MASE is the mean error in units of the mean change over a season, WQL the weighted quantile loss, “of naive” the same of
repeating the last season. {rest} <a href="{escape(file)}">{escape(file)}</a>.</p>
</section>"""


def name_of(name: object) -> str:
    """Return the name of a series in print.

    >>> name_of(("north", 3)), name_of(0), name_of("milk")
    ('north, 3', 'Series 1', 'milk')
    """
    if isinstance(name, tuple):
        return ", ".join(map(str, name))
    return f"Series {name + 1}" if type(name) is int else str(name)


def _order(row: dict[str, float]) -> float:
    """Return how much worse than naive a series is, the sortable way."""
    ratio = row["mase"] / row["naive_mase"] if row["naive_mase"] else np.nan
    return float(np.nan_to_num(ratio, nan=-1.0))


def _row(name: str, row: dict[str, float], strong: bool = False) -> str:
    def cell(value: float, form: str) -> str:
        return f"<td>{format(value, form) if np.isfinite(value) else '–'}</td>"

    cells = "".join(cell(row[key], ".3f") for key in ("mase", "naive_mase", "wql", "naive_wql"))
    cells += "".join(cell(row[key], ".0%") for key in COVERAGES)
    title = f"<strong>{escape(name)}</strong>" if strong else escape(name)
    return f"<tr><th>{title}</th>{cells}</tr>"
