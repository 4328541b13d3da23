"""The page of a forecast: fan charts to hover over and the numbers beside them, in one file that needs nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

import numpy as np

from fourier_head.cli.forecasting.fan import first_quantiles, name_of
from fourier_head.forecasting.inputs import in_print
from fourier_head.forecasting.results import Forecasts
from fourier_head.pages.charts import Chart, Panel
from fourier_head.pages.embed import figure_html
from fourier_head.pages.frame import frame
from fourier_head.pages.words import short

ROWS = 200
"""Series listed at most."""


def build(forecasts: Forecasts, fans: Sequence[Panel], about: dict[str, Any]) -> str:
    """Return the page as text.

    Args:
        fans: the charts drawn, of the first series.
        about: title, table (file name), model, seconds, hardware, command, and maybe a section as backtest.
    """
    more = len(forecasts) - len(fans)
    caption = (
        "What was observed, then in blue the median of what may follow and the intervals that should hold 50, 80 and "
        "95 % of it. The dashed line is where the data end."
    )
    caption += f" The other {more} series are in {about['table']}." if more else ""
    chart = Chart("fans", "", fans, caption, columns=1 if len(fans) == 1 else 2)
    inner = f"""<section id="forecasts">
<h1>{escape(about["title"])}</h1>
<p class="lead">{escape(_lead(forecasts))}</p>
<p class="small muted">{escape(_what_was_read(forecasts))}</p>
{figure_html(chart)}
</section>
{about.get("backtest") or ""}
<section id="numbers">
<h2>Numbers</h2>
{_table(forecasts)}
<p class="small muted">Medians, and below them the interval that should hold four of five outcomes. Every step and level
is in <a href="{escape(about["table"])}">{escape(about["table"])}</a>.</p>
</section>
<section id="how">
<h2>How it was made</h2>
<p>{escape(about["model"])} read each series once and gave a density for every future step; it was not trained on these
series. Quantiles at any level come from the same densities and never cross.</p>
<pre><code>{escape(about["command"])}</code></pre>
<p class="small muted">{escape(f"{about['seconds']:.1f} seconds on {about['hardware']}.")}</p>
</section>"""
    parts = {"forecasts": "Forecasts", "trust": "How good", "numbers": "Numbers", "how": "How it was made"}
    if not about.get("backtest"):
        del parts["trust"]
    return frame(about["title"], parts, inner)


def index(title: str, rows: Sequence[dict[str, Any]], command: str) -> str:
    """Return the page over the forecasts of several files."""
    body = ""
    for row in rows:
        name = escape(row["name"])
        if row.get("error"):
            what = escape(row["error"].removeprefix(row["name"] + ": "))
            body += f'<tr><th>{name}</th><td colspan="3" class="words">{what}</td></tr>'
            continue
        link = escape(f"{row['folder']}/index.html")
        body += f'<tr><th><a href="{link}">{name}</a></th><td>{row["series"]}</td>'
        body += f"<td>{escape(row['timing'])}</td><td>{row['seconds']:.1f} s</td></tr>"
    good = [row for row in rows if not row.get("error")]
    total, bad = sum(row["series"] for row in good), len(rows) - len(good)
    failed = f" {count_files(bad).capitalize()} failed; the table says why." if bad else ""
    inner = f"""<section id="files"><h1>{escape(title)}</h1>
<p class="lead">{total:,} series in {count_files(len(good))}.{failed}</p>
<div class="scroll"><table class="slim">
<thead><tr><th>File</th><th>Series</th><th>Frequency and span</th><th>Time</th></tr></thead>
<tbody>{body}</tbody></table></div>
<pre><code>{escape(command)}</code></pre></section>"""
    return frame(title, {"files": "Files"}, inner)


def count_files(count: int) -> str:
    """Return a number of files in words.

    >>> count_files(1), count_files(3)
    ('1 file', '3 files')
    """
    return f"{count:,} file{'' if count == 1 else 's'}"


def _lead(forecasts: Forecasts) -> str:
    count = len(forecasts)
    what = "one series" if count == 1 else f"{count:,} series"
    steps = "the next step" if forecasts.horizon == 1 else f"the next {forecasts.horizon} steps"
    return f"What {steps} of {what} may bring: for every step a whole distribution, not a single number."


def _what_was_read(forecasts: Forecasts) -> str:
    timing = forecasts.series.timing
    note = "" if forecasts.series.timed else " Steps are numbered."
    return f"Read as {timing}.{note}" if timing != "no dates" else "No dates were found: steps are numbered."


def _dates(forecasts: Forecasts, number: int, steps: Sequence[int]) -> list[str]:
    """Return when some steps of one series are, nothing where time is not known."""
    when = forecasts.series.local(forecasts.series.future(number, forecasts.horizon))
    return ["" if np.isnat(when[step]) else in_print(when[step]) for step in steps]


def _table(forecasts: Forecasts) -> str:
    count = min(len(forecasts), ROWS)
    quantiles = first_quantiles(forecasts, count, (0.1, 0.5, 0.9))
    steps = [0] if forecasts.horizon == 1 else [0, forecasts.horizon - 1]
    dates = [_dates(forecasts, i, steps) for i in range(count)]
    # Series of one calendar share their dates, which then name the columns; else each number has its own.
    shared = all(one == dates[0] and all(one) for one in dates)
    names = dates[0] if shared else ["Next step" if step == 0 else f"Step {step + 1}" for step in steps]
    heads = "".join(f"<th>{name}</th>" for name in names)
    body = ""
    for i in range(count):
        known = forecasts.series.values[i]
        known = known[~np.isnan(known)]
        cells = f"<td>{short(float(known[-1])) if len(known) else '–'}</td>"
        for place, step in enumerate(steps):
            low, middle, high = (short(float(q)) for q in quantiles[i, step])
            when = "" if shared or not dates[i][place] else f'<span class="theirs">{dates[i][place]}</span>'
            cells += f'<td>{middle}<span class="theirs">{low} to {high}</span>{when}</td>'
        body += f"<tr><th>{escape(name_of(forecasts, i))}</th>{cells}</tr>"
    left = len(forecasts) - count
    note = f'<p class="small muted">The first {count} of {len(forecasts):,} series.</p>' if left else ""
    return (
        f'<div class="scroll"><table><thead><tr><th>Series</th><th>Last value</th>{heads}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>{note}"
    )
