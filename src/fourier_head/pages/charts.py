"""Figures described once: the same chart becomes a PNG through matplotlib and an interactive drawing in the report."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from fourier_head._clocks import Changes, Clock
from fourier_head.pages.style import ink, look, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

Values = Any
"""A sequence or array of numbers, None or NaN where one is missing; for bars x holds names."""

Kind = Literal["line", "points", "area", "band", "bars"]
DASHES = {"": "-", "dash": (0, (5, 2)), "dot": (0, (1, 1.6)), "dashdot": (0, (6, 1.5, 1, 1.5))}


def nth_dash(again: int) -> str:
    """Return the name of a line style for a curve before which so many have its colour; from the fourth on the last.

    >>> nth_dash(0), nth_dash(1), nth_dash(9)
    ('', 'dash', 'dashdot')
    """
    return list(DASHES)[min(again, len(DASHES) - 1)]


def _numbers(values: Iterable[Any] | None, digits: int = 6) -> tuple[Any, ...] | None:
    """Return plain numbers of a few significant digits, None for what is not finite; names stay as they are."""
    if values is None:
        return None
    out: list[Any] = []
    for value in values:
        if value is None or isinstance(value, str):
            out.append(value)
        else:
            out.append(float(f"{float(value):.{digits}g}") if math.isfinite(float(value)) else None)
    return tuple(out)


@dataclass(frozen=True)
class Series:
    """One curve: a line (with dots where `dots`), points, an area above zero, a band from `lower` to y, or bars.

    `colour` names a head, a curve or an ink of the style; `error` is half the length of each error bar; `legend=False`
    keeps a companion of another series, hidden and shown together with it by their common name, out of the legend.
    With `time`, x holds seconds since 1970 and the axis shows dates, by the panel's clock; `opacity` is that of a band,
    which covers what was drawn before it.
    """

    name: str
    x: Values
    y: Values
    colour: str = "curve-1"
    kind: Kind = "line"
    error: Values | None = None
    dash: str = ""
    dots: bool = False
    hollow: bool = False
    legend: bool = True
    lower: Values | None = None
    time: bool = False
    opacity: float = 0.3

    def __post_init__(self) -> None:
        for key in ("x", "y", "error", "lower"):
            digits = 15 if key == "x" and self.time else 6
            object.__setattr__(self, key, _numbers(getattr(self, key), digits))
        if len(self.x) != len(self.y) or (self.error is not None and len(self.error) != len(self.y)):
            counts = [len(values) for values in (self.x, self.y, self.error) if values is not None]
            raise ValueError(f"series {self.name!r} must have x, y and error of one length, got {counts}")
        if (self.kind == "band") != (self.lower is not None) or len(self.lower or self.y) != len(self.y):
            raise ValueError(f"series {self.name!r} must have lower, as long as y, if and only if it is a band")
        if self.dash not in DASHES:
            raise ValueError(f"dash must be one of {', '.join(map(repr, DASHES))}, got {self.dash!r}")


@dataclass(frozen=True)
class Mark:
    """A reference line at a value of an axis, with a short text."""

    value: float
    text: str = ""
    axis: Literal["x", "y"] = "x"


@dataclass(frozen=True)
class Panel:
    """One pair of axes; where they show time, `clock` says how far local time is ahead of universal time."""

    series: Sequence[Series]
    title: str = ""
    x_label: str = ""
    y_label: str = ""
    x_log: bool = False
    y_log: bool = False
    y_range: tuple[float, float] | None = None
    marks: Sequence[Mark] = ()
    clock: Changes = ()


@dataclass(frozen=True)
class Chart:
    """A figure: panels side by side under one legend, `columns` of them in a row where there is room.

    Example:
        >>> chart = Chart("parabola", "A parabola", [Panel([Series("x squared", [0, 1, 2], [0, 1, 4])])])
        >>> Chart.from_dict(chart.as_dict()) == chart
        True
    """

    name: str
    title: str
    panels: Sequence[Panel]
    caption: str = ""
    columns: int = 3
    height: float = field(default=2.5)

    def __post_init__(self) -> None:
        object.__setattr__(self, "panels", tuple(self.panels))
        for panel in self.panels:
            object.__setattr__(panel, "series", tuple(panel.series))
            object.__setattr__(panel, "marks", tuple(panel.marks))
            object.__setattr__(panel, "clock", tuple(map(tuple, panel.clock)))
            if panel.y_range is not None:
                object.__setattr__(panel, "y_range", tuple(panel.y_range))

    def as_dict(self) -> dict[str, Any]:
        """Return the chart as plain lists and dictionaries."""
        return asdict(self)

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> Chart:
        """Return the chart that `as_dict` described."""
        panels = []
        for panel in content["panels"]:
            series = [Series(**one) for one in panel["series"]]
            marks = [Mark(**one) for one in panel.get("marks", ())]
            panels.append(Panel(**{**panel, "series": series, "marks": marks}))
        return cls(**{**content, "panels": panels})

    def legend(self) -> dict[str, Series]:
        """Return the series that the legend names, each name once."""
        out: dict[str, Series] = {}
        for panel in self.panels:
            for one in panel.series:
                if one.legend:
                    out.setdefault(one.name, one)
        return out


def draw(chart: Chart) -> Figure:
    """Return the chart as a matplotlib figure."""
    from matplotlib.figure import Figure

    columns = min(chart.columns, len(chart.panels))
    rows = math.ceil(len(chart.panels) / columns)
    with styled():
        width = {1: 6.4, 2: 8.6}.get(columns, 11.0)
        named = chart.legend()
        keyed = any(sum(one.legend for one in panel.series) > 1 for panel in chart.panels)
        abreast = _legend_columns(list(named), width)
        size = (width, chart.height * rows + 0.25 + 0.25 * keyed * math.ceil(len(named) / abreast))
        figure = Figure(figsize=size, layout="constrained")
        figure.get_layout_engine().set(w_pad=0.09, h_pad=0.06)  # type: ignore[union-attr,call-arg]
        cells = list(figure.subplots(rows, columns, squeeze=False).flat)
        for cell, panel in zip(cells, chart.panels, strict=False):
            _draw_panel(cell, panel)
        for cell in cells[len(chart.panels) :]:
            cell.set_visible(False)
        if keyed:
            handles: dict[str, Any] = {}
            for cell in cells:
                for handle, label in zip(*cell.get_legend_handles_labels(), strict=True):
                    handles.setdefault(label, handle)
            figure.legend(
                list(handles.values()),
                list(handles),
                loc="outside lower center",
                ncols=abreast,
                handlelength=3.4,  # long enough for a dash on either side of a dot
            )
    return figure


def _legend_columns(names: Sequence[str], width: float) -> int:
    """Return how many names of a legend stand side by side in so many inches.

    >>> _legend_columns(["linear", "fourier"], 6.4), _legend_columns(["a name of some forty letters, or more"] * 5, 8.6)
    (2, 2)
    """
    widths = [0.8 + 0.075 * len(name) for name in names]  # a line, the room around it, and letters of this size
    if len(names) <= 5 and sum(widths) <= width:
        return max(1, len(names))  # in a single row every name has its own width
    return max(1, min(5, len(names), int(width / max(widths))))


def save_png(chart: Chart, path: Path) -> None:
    """Write the chart as PNG without a date or a name of the program, so that equal charts give equal files."""
    with styled():
        draw(chart).savefig(path, format="png", metadata={"Software": None})


def _draw_panel(cell: Axes, panel: Panel) -> None:
    bars = [one for one in panel.series if one.kind == "bars"]
    timed = any(one.time for one in panel.series)
    for one in panel.series:
        _draw_series(cell, one, bars)
    if any(mark.text and mark.axis == "x" for mark in panel.marks) and not panel.y_log:
        # Room above the curves for the words.
        low, high = cell.get_ylim()
        cell.set_ylim(low, high + 0.1 * (high - low))
    for mark in panel.marks:
        if timed and mark.axis == "x":
            mark = Mark(_days([mark.value])[0], mark.text)
        line = cell.axvline if mark.axis == "x" else cell.axhline
        line(mark.value, color=ink("muted"), linewidth=0.8, linestyle=(0, (2, 2)), zorder=1)
        if mark.text:
            at = (mark.value, 1.0) if mark.axis == "x" else (1.0, mark.value)
            frame = cell.get_xaxis_transform() if mark.axis == "x" else cell.get_yaxis_transform()
            cell.annotate(
                mark.text,
                at,
                xycoords=frame,
                xytext=(3, -2) if mark.axis == "x" else (-2, 2),
                textcoords="offset points",
                fontsize=7.5,
                color=ink("muted"),
                ha="left" if mark.axis == "x" else "right",
                va="top" if mark.axis == "x" else "bottom",
            )
    if timed:
        from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

        zone = Clock(panel.clock) if panel.clock else None
        locator = AutoDateLocator(tz=zone, minticks=3, maxticks=8)
        cell.xaxis.set_major_locator(locator)
        dates = ConciseDateFormatter(locator, tz=zone, show_offset=False)
        dates.formats = ["%Y", "%b", "%d %b", "%H:%M", "%H:%M", "%H:%M:%S"]
        dates.zero_formats = ["", "%Y", "%d %b", "%d %b", "%H:%M", "%H:%M"]
        cell.xaxis.set_major_formatter(dates)
        low, high = cell.get_ylim()
        if 1e4 <= max(abs(low), abs(high)) < 1e9:
            cell.yaxis.set_major_formatter("{x:,.0f}")
    elif not bars and not panel.x_log and all(_counts(one) for one in panel.series):
        from matplotlib.ticker import MaxNLocator

        cell.xaxis.set_major_locator(MaxNLocator("auto", integer=True, steps=[1, 2, 5, 10]))
    if panel.x_log:
        cell.set_xscale("log")
        _number_short_log_axis(cell.xaxis, *cell.get_xlim())
    if panel.y_log:
        cell.set_yscale("log")
    if panel.y_range is not None:
        cell.set_ylim(*panel.y_range)
    if panel.y_log:
        _number_short_log_axis(cell.yaxis, *cell.get_ylim())
    cell.set_title(panel.title, color=ink("ink"))
    cell.set_xlabel(panel.x_label)
    cell.set_ylabel(panel.y_label)
    cell.grid(axis="y")


def _number_short_log_axis(axis: Axis, low: float, high: float) -> None:
    """Write plain numbers where labels of powers of ten would be joined by others that run into each other."""
    from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter, NullLocator

    if high >= 50 * low:
        return
    wide = high > 5 * low
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)) if wide else MaxNLocator(5))
    axis.set_major_formatter("{x:g}")
    axis.set_minor_formatter(NullFormatter())
    if not wide:
        axis.set_minor_locator(NullLocator())


def _draw_series(cell: Axes, one: Series, bars: list[Series]) -> None:
    colour = look(one.colour).light
    label = one.name if one.legend else f"_{one.name}"
    y = [math.nan if value is None else value for value in one.y]
    x: list[Any] = _days(one.x) if one.time else list(one.x)
    if one.kind == "band":
        low = [math.nan if value is None else value for value in one.lower or ()]
        cell.fill_between(x, low, y, color=ink("paper"), linewidth=0)
        cell.fill_between(x, low, y, color=colour, linewidth=0, alpha=one.opacity, label=label)
        return
    if one.kind == "bars":
        width = 0.8 / len(bars)
        bar = {"elinewidth": 0.9, "ecolor": ink("ink")}
        place = [i + (bars.index(one) - (len(bars) - 1) / 2) * width for i in range(len(x))]
        cell.bar(place, y, 0.9 * width, color=colour, label=label, yerr=_errors(one), capsize=2, error_kw=bar)
        cell.set_xticks(range(len(x)), x)
        return
    if one.kind == "area":
        cell.fill_between(x, y, color=colour, linewidth=0, alpha=0.55 if one.colour != "truth" else 1.0, label=label)
        return
    face = ink("paper") if one.hollow else colour
    dots: dict[str, Any] = {"marker": "o", "markersize": 3.6, "markerfacecolor": face, "markeredgewidth": 1.0}
    line = {"linestyle": "none"} if one.kind == "points" else {"linestyle": DASHES[one.dash]}
    shown = dots if one.dots or one.kind == "points" else {}
    if one.error is None:
        cell.plot(x, y, color=colour, label=label, **line, **shown)
    else:
        cell.errorbar(x, y, yerr=_errors(one), color=colour, label=label, elinewidth=0.9, capsize=1.5, **line, **shown)


def _counts(one: Series) -> bool:
    """Tell whether a series stands over whole numbers, such as frequencies or epochs."""
    return all(isinstance(x, (int, float)) and float(x).is_integer() for x in one.x)


def _days(seconds: Iterable[float]) -> list[Any]:
    """Return seconds since 1970 in the days matplotlib counts."""
    return [value / 86400 for value in seconds]


def _errors(one: Series) -> list[float] | None:
    return None if one.error is None else [0.0 if value is None else value for value in one.error]
