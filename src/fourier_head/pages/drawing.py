"""Charts drawn by matplotlib: whole ones as PNG, single panels for a page."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fourier_head._clocks import Clock
from fourier_head.pages.charts import DASHES, Chart, Panel, Series
from fourier_head.pages.style import ink, look, styled
from fourier_head.pages.words import short

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure


def draw(chart: Chart) -> Figure:
    """Return the chart as a matplotlib figure."""
    from matplotlib.figure import Figure

    columns = min(chart.columns, len(chart.panels))
    rows = math.ceil(len(chart.panels) / columns)
    with styled():
        width = {1: 6.4, 2: 8.6}.get(columns, 11.0)
        named = chart.legend()
        abreast = _legend_columns(list(named), width)
        size = (width, chart.height * rows + 0.25 + 0.25 * chart.keyed * math.ceil(len(named) / abreast))
        figure = Figure(figsize=size, layout="constrained")
        figure.get_layout_engine().set(w_pad=0.09, h_pad=0.06)  # type: ignore[union-attr,call-arg]
        cells = list(figure.subplots(rows, columns, squeeze=False).flat)
        handles: dict[str, Any] = {}
        for i, (cell, panel) in enumerate(zip(cells, chart.panels, strict=False)):
            draw_panel(cell, panel)
            # What the neighbours say already is not said again.
            if i < columns or panel.title != chart.panels[i - columns].title:
                cell.set_title(panel.title, color=ink("ink"))
            if i + columns < len(chart.panels) and panel.x_label == chart.panels[i + columns].x_label:
                cell.set_xlabel("")
            if i % columns == 0 or panel.y_label != chart.panels[i - 1].y_label:
                cell.set_ylabel(panel.y_label)
            for handle, label in zip(*cell.get_legend_handles_labels(), strict=True):
                handles.setdefault(label, handle)
        for cell in cells[len(chart.panels) :]:
            cell.set_visible(False)
        if chart.keyed:
            # Handles long enough for a dash on either side of a dot.
            look_of: dict[str, Any] = {"loc": "outside lower center", "ncols": abreast, "handlelength": 3.4}
            figure.legend(list(handles.values()), list(handles), **look_of)
    return figure


def save_png(chart: Chart, path: Path) -> None:
    """Write the chart as PNG without a date or a name of the program, so that equal charts give equal files."""
    with styled(), warnings.catch_warnings():
        # Letters that no font of this machine has are empty boxes; the page, drawn elsewhere, has them as letters.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        draw(chart).savefig(path, format="png", metadata={"Software": None})


def _legend_columns(names: Sequence[str], width: float) -> int:
    """Return how many names of a legend stand side by side in so many inches.

    >>> _legend_columns(["linear", "fourier"], 6.4), _legend_columns(["a name of some forty letters, or more"] * 5, 8.6)
    (2, 2)
    """
    widths = [0.8 + 0.075 * len(name) for name in names]  # a line, the room around it, and letters of this size
    if len(names) <= 5 and sum(widths) <= width:
        return max(1, len(names))  # in a single row every name has its own width
    return max(1, min(5, len(names), int(width / max(widths))))


def draw_panel(cell: Axes, panel: Panel, names: Sequence[str] = ()) -> None:
    """Draw one panel without title and y-label.

    Args:
        names: of the series of the whole chart; what belongs to the i-th gets the group id `s<i>`.
    """
    for one in panel.series:
        drawn = _draw_series(cell, one, [other for other in panel.series if other.kind == "bars"])
        for artist in drawn if one.name in names else ():
            artist.set_gid(f"s{names.index(one.name)}")
    if panel.x_log:
        cell.set_xscale("log")
    if panel.y_log:
        cell.set_yscale("log")
    if panel.y_range is not None:
        cell.set_ylim(*panel.y_range)
    elif any(mark.text and mark.axis == "x" for mark in panel.marks) and not panel.y_log:
        low, high = cell.get_ylim()
        cell.set_ylim(low, high + 0.1 * (high - low))  # room above the curves for the words
    _draw_marks(cell, panel)
    _place_ticks(cell, panel)
    cell.set_xlabel(panel.x_label)
    if panel.bare:
        cell.set_yticks([])
    else:
        cell.grid(axis="y")


def _draw_marks(cell: Axes, panel: Panel) -> None:
    for mark in panel.marks:
        across = mark.axis == "y"
        value = mark.value / 86400 if panel.timed and not across else mark.value
        line = cell.axhline if across else cell.axvline
        line(value, color=ink("muted"), linewidth=0.8, linestyle=(0, (2, 2)), zorder=1)
        if mark.text:
            cell.annotate(
                mark.text,
                (1.0, value) if across else (value, 1.0),
                xycoords=cell.get_yaxis_transform() if across else cell.get_xaxis_transform(),
                xytext=(-2, 2) if across else (3, -2),
                textcoords="offset points",
                fontsize=7.5,
                color=ink("muted"),
                ha="right" if across else "left",
                va="bottom" if across else "top",
            )


def _place_ticks(cell: Axes, panel: Panel) -> None:
    from matplotlib.ticker import MaxNLocator

    if panel.timed:
        from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

        zone = Clock(panel.clock) if panel.clock else None
        locator = AutoDateLocator(tz=zone, minticks=3, maxticks=8)
        cell.xaxis.set_major_locator(locator)
        dates = ConciseDateFormatter(locator, tz=zone, show_offset=False)
        dates.formats = ["%Y", "%b", "%d %b", "%H:%M", "%H:%M", "%H:%M:%S"]
        dates.zero_formats = ["", "%Y", "%d %b", "%d %b", "%H:%M", "%H:%M"]
        cell.xaxis.set_major_formatter(dates)
    elif not panel.x_log and panel.series and all(_counts(one) for one in panel.series):
        cell.xaxis.set_major_locator(MaxNLocator("auto", integer=True, steps=[1, 2, 5, 10]))
    if panel.x_log:
        _number_log_axis(cell.xaxis, *cell.get_xlim())
    low, high = cell.get_ylim()
    if panel.y_log:
        _number_log_axis(cell.yaxis, low, high)
        return
    cell.locator_params(axis="y", nbins=5, steps=[1, 2, 2.5, 5, 10])
    if 1e4 <= max(abs(low), abs(high)) < 1e9 and high - low > 10:
        cell.yaxis.set_major_formatter("{x:,.0f}")


def _number_log_axis(axis: Axis, low: float, high: float) -> None:
    """Write plain numbers: powers of ten, and others between them where the axis is short."""
    from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter, NullLocator

    axis.set_major_formatter(lambda value, place: short(value))
    axis.set_minor_formatter(NullFormatter())
    if high >= 50 * low:
        return
    wide = high > 5 * low
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)) if wide else MaxNLocator(5))
    if not wide:
        axis.set_minor_locator(NullLocator())


def _draw_series(cell: Axes, one: Series, bars: list[Series]) -> Iterable[Any]:
    """Draw one series; return the parts of the drawing that belong to it."""
    colour = look(one.colour).light
    label = one.name if one.legend else f"_{one.name}"
    y = [math.nan if value is None else value for value in one.y]
    x: list[Any] = [value / 86400 for value in one.x] if one.time else list(one.x)  # matplotlib counts in days
    error = None
    if one.error is not None:
        error = [[value or 0.0 for value in side] for side in (one.below or one.error, one.error)]
    if one.kind == "band":
        low = [math.nan if value is None else value for value in one.lower or ()]
        ground = cell.fill_between(x, low, y, color=ink("paper"), linewidth=0)
        return ground, cell.fill_between(x, low, y, color=colour, linewidth=0, alpha=one.opacity, label=label)
    if one.kind == "area":
        alpha = 0.55 if one.colour != "truth" else 1.0
        return (cell.fill_between(x, y, color=colour, linewidth=0, alpha=alpha, label=label),)
    if one.kind == "bars":
        width = 0.8 / len(bars)
        place = [i + (bars.index(one) - (len(bars) - 1) / 2) * width for i in range(len(x))]
        whiskers = {"elinewidth": 0.9, "ecolor": ink("ink")}
        drawn = cell.bar(place, y, 0.9 * width, color=colour, label=label, yerr=error, capsize=2, error_kw=whiskers)
        room = cell.get_window_extent().width / cell.figure.dpi
        crowded = 0.075 * sum(len(name) + 1 for name in x) > room
        cell.set_xticks(range(len(x)), x, rotation=90 if crowded else 0)
        return [*drawn, *(drawn.errorbar.get_children() if drawn.errorbar else ())]
    face = ink("paper") if one.hollow else colour
    dots = {"marker": "o", "markersize": 3.6, "markerfacecolor": face, "markeredgewidth": 1.0}
    more: dict[str, Any] = {"linestyle": "none" if one.kind == "points" else DASHES[one.dash]}
    more |= dots if one.dots or one.kind == "points" else {}
    if error is None:
        return cell.plot(x, y, color=colour, label=label, **more)
    return cell.errorbar(
        x, y, yerr=error, color=colour, label=label, elinewidth=0.9, capsize=1.5, **more
    ).get_children()


def _counts(one: Series) -> bool:
    """Tell whether a series stands over whole numbers, such as frequencies or epochs."""
    return all(isinstance(x, (int, float)) and float(x).is_integer() for x in one.x)
