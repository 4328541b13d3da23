"""Charts drawn once each: what repeats one, of other numbers, would only take matplotlib's time."""

from io import BytesIO

from matplotlib.figure import Figure

from fourier_head.pages.drawing import draw
from fourier_head.pages.style import styled


def once(titled=True):
    """Return what saves an empty picture for a chart, drawn only if its panels, or its name, differ from all before it.

    All of a chart is drawn, once and without its pixels; `tests/studies/test_report.py` has charts as they are.
    """
    drawn = set()
    empty = BytesIO()
    Figure((1, 1)).savefig(empty, format="png")

    def save(chart, path):
        panels = [[(one.kind, bool(one.x), one.error is None) for one in panel.series] for panel in chart.panels]
        key = f"{chart.name if titled else ''} {panels}"
        if key not in drawn:
            with styled():
                figure = draw(chart)
                figure.set_layout_engine(None)  # everything stays where it was put first
                figure.draw_without_rendering()
            drawn.add(key)
        path.write_bytes(empty.getvalue())

    return save
