"""Figures described once, as data; `drawing` makes a PNG of a chart and `embed` the figure of a page, by one code."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from fourier_head._clocks import Changes

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

    `colour` names a head, a curve or an ink of the style; `error` is the length of each error bar above y, and
    below it too unless `below` gives that; `legend=False` keeps a companion of another series, hidden and shown
    together with it by their common name, out of the legend. With `time`, x holds seconds since 1970 and the axis
    shows dates, by the panel's clock; `opacity` is that of a band, which covers what was drawn before it.
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
    below: Values | None = None

    def __post_init__(self) -> None:
        for key in ("x", "y", "error", "lower", "below"):
            digits = 15 if key == "x" and self.time else 6
            object.__setattr__(self, key, _numbers(getattr(self, key), digits))
        counts = [len(values) for values in (self.x, self.y, self.error, self.below) if values is not None]
        if len(set(counts)) > 1:
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
    """One pair of axes; where they show time, `clock` says how far local time is ahead of universal time.

    `bare` leaves the y-axis out, for small panels in which shape alone matters.
    """

    series: Sequence[Series]
    title: str = ""
    x_label: str = ""
    y_label: str = ""
    x_log: bool = False
    y_log: bool = False
    y_range: tuple[float, float] | None = None
    marks: Sequence[Mark] = ()
    clock: Changes = ()
    bare: bool = False

    @property
    def timed(self) -> bool:
        """Whether the x-axis shows dates."""
        return any(one.time for one in self.series)


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
    height: float = 2.5

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

    @property
    def keyed(self) -> bool:
        """Whether a legend is needed: some panel shows several curves."""
        return any(sum(one.legend for one in panel.series) > 1 for panel in self.panels)
