"""Charts as figures of a page: matplotlib's drawing as SVG in the page's colours, a legend that switches curves off and
on, and the values that a pointer finds."""

from __future__ import annotations

import io
import json
import re
from datetime import datetime, timedelta, timezone
from html import escape
from typing import TYPE_CHECKING, Any

from fourier_head._clocks import Clock
from fourier_head.pages.charts import Chart, Panel, Series
from fourier_head.pages.drawing import draw_panel
from fourier_head.pages.style import colour_names, css_colour, styled
from fourier_head.pages.templates import render
from fourier_head.pages.words import short

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis

# Inches of one panel by panels in a row, chosen so that letters are read on a screen and on a phone, where a panel has
# the whole width: only the widest needs a second drawing there.
SIZES = {1: (9.0, 3.3), 2: (4.3, 2.7), 3: (3.4, 2.3), 4: (2.6, 1.9)}
SMALLEST, ON_PHONES = (2.1, 1.55), (3.4, 2.5)
MOST_STOPS = 160
"""Places of a panel at which a pointer finds values."""


def figure_html(chart: Chart, heading: str = "h3") -> str:
    """Return a chart as `<figure>`: title, legend, panels, caption, and the values for the page's script."""
    names = list(dict.fromkeys([*chart.legend(), *(one.name for panel in chart.panels for one in panel.series)]))
    columns = min(chart.columns, len(chart.panels))
    size = SIZES.get(columns, SMALLEST)
    panels, stops = [], []
    with styled():
        for i, panel in enumerate(chart.panels):
            svg, found = _panel_svg(panel, names, size, f"{chart.name}-{i}")
            narrow = _panel_svg(panel, names, ON_PHONES, f"{chart.name}-{i}n")[0] if columns == 1 else ""
            panels.append((panel, svg, narrow))
            stops.append(found)
    colours = {one.name: css_colour(one.colour) for panel in chart.panels for one in panel.series}
    data = json.dumps({"names": [[n, colours[n]] for n in names], "panels": stops}, ensure_ascii=False)
    data = data.replace("<", chr(92) + "u003c")
    return render("pages/figure.html", chart=chart, heading=heading, columns=columns, panels=panels, data=data)


def _panel_svg(panel: Panel, names: list[str], size: tuple[float, float], salt: str) -> tuple[str, list[Any]]:
    """Return a panel as SVG, and its values: for each place across a label, where it is, and what each series has."""
    import matplotlib
    from matplotlib.figure import Figure

    width, height = (72 * inches for inches in size)
    figure = Figure(figsize=size)
    cell = figure.subplots()
    draw_panel(cell, panel, names)
    # Room for the labels, by their letters: matplotlib's own layout draws everything three times to find it.
    beside, below = (max((len(text) for text in _labels(axis)), default=0) for axis in (cell.yaxis, cell.xaxis))
    named = any(one.kind == "bars" for one in panel.series)
    turned = named and any(label.get_rotation() for label in cell.get_xticklabels()[:1])
    left = 4 if panel.bare else 8 + 5.2 * beside
    bottom = (8 + 5.2 * below if turned else 18) + 13 * bool(panel.x_label)
    figure.subplots_adjust(left / width, bottom / height, 1 - 10 / width, 1 - 6 / height)
    buffer = io.StringIO()
    nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    with matplotlib.rc_context({"svg.hashsalt": salt}):
        figure.savefig(buffer, format="svg", transparent=True, metadata=nothing)
    box = f"{left:.1f} {width - 10:.1f} 6 {height - bottom:.1f}"
    head = f'<svg viewBox="0 0 {width:g} {height:g}" role="img" aria-label="{escape(panel.title or panel.y_label)}"'
    svg = f'{head} data-box="{box}">{_clean(buffer.getvalue())}<g class="hover"/></svg>'
    return svg, _stops(cell, panel, names)


def _labels(axis: Axis) -> list[str]:
    low, high = sorted(axis.get_view_interval())
    places = [place for place in axis.get_majorticklocs() if low <= place <= high]
    return axis.get_major_formatter().format_ticks(places)


def _clean(svg: str) -> str:
    """Return the inside of matplotlib's SVG: colours as CSS variables, no names of parts, fewer digits."""
    svg = svg[svg.index(">", svg.index("<svg")) + 1 : svg.rindex("</svg>")]
    svg = re.sub(r"<metadata>.*?</metadata>|<!--.*?-->|<style.*?</style>", "", svg, flags=re.DOTALL)
    svg = re.sub(r"<[^>]+>", lambda tag: _clean_tag(tag[0]), svg)
    return re.sub(r"\s*\n\s*", " ", svg).replace("> <", "><").strip()


def _clean_tag(tag: str) -> str:
    tag = re.sub(r' id="s(\d+)"', r' data-s="\1"', tag)
    tag = re.sub(r' id="[a-zA-Z0-9.]+_\d+"| transform="rotate\(-0 [^"]*"', "", tag)
    # A tenth of a point is finer than most screens, and a third of the size of the file.
    tag = re.sub(r"(?<!opacity: )-?\d+\.\d{2,}", lambda m: f"{float(m[0]):.1f}".removesuffix(".0"), tag)
    tag = re.sub(r"font-family: [^;\"]+;? ?|stroke-linejoin: \w+;? ?", "", tag)
    tag = re.sub(r"font: ([0-9.]+px) [^;\"]+", r"font-size: \1", tag)
    return re.sub(r"#[0-9a-f]{6}", lambda m: colour_names().get(m[0], m[0]), tag)


def _stops(cell: Axes, panel: Panel, names: list[str]) -> list[Any]:
    """Return what a pointer finds: [words, place from 0 to 1, [[series, height from 0 to 1 or None, value]]]."""
    to_axes = cell.transData + cell.transAxes.inverted()
    fine = any(value % 86400 for one in panel.series for value in one.x if one.time)
    found: dict[Any, list[Any]] = {}
    # Companions, such as the law fitted to points, speak only where nothing else does.
    for one in sorted(panel.series, key=lambda one: not one.legend):
        known = [
            (i, x, y)
            for i, (x, y) in enumerate(zip(one.x, one.y, strict=True))
            if x is not None and y is not None and (y > 0 or not panel.y_log) and (not panel.x_log or x > 0)
        ]
        points = [(i if one.kind == "bars" else x / 86400 if one.time else x, y) for i, x, y in known]
        places = to_axes.transform(points).round(3).tolist() if points else []
        for (i, x, _), (place, up) in zip(known, places, strict=True):
            stop = found.setdefault(x, [_words(panel, x, fine), place, []])
            if not stop[2] or (one.legend and stop[2][-1][0] != names.index(one.name)):  # of a step, one end
                dotted = one.kind in ("line", "points") and 0 <= up <= 1
                stop[2].append([names.index(one.name), up if dotted else None, _value(one, i)])
    stops = sorted(found.values(), key=lambda stop: stop[1])
    return stops[:: -(-len(stops) // MOST_STOPS) or 1]


def _words(panel: Panel, x: Any, fine: bool) -> str:
    if isinstance(x, str):
        return x
    if not panel.timed:
        return f"{panel.x_label or 'x'} = {short(x)}"
    when = datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(seconds=x)
    when = when.astimezone(Clock(panel.clock)) if panel.clock else when
    return f"{when.day} {when:%b %Y, %H:%M}" if fine else f"{when.day} {when:%b %Y}"


def _value(one: Series, i: int) -> str:
    text = short(one.y[i])
    if one.lower is not None and one.lower[i] is not None:
        text = f"{short(one.lower[i])} to {text}"
    if one.error is None or not one.error[i]:
        return text
    above = short(one.error[i], 2)
    return f"{text} ± {above}" if one.below is None else f"{text} (+{above}, -{short(one.below[i], 2)})"
