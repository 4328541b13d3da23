"""Charts drawn once each: what repeats one, of other numbers, would only take matplotlib's time."""

from fourier_head.pages.drawing import draw
from fourier_head.pages.style import styled


def once(titled=True):
    """Return what saves a chart, drawn only if its panels, or its name, differ from those of all before it.

    It is small and everything stays where it was put first; `tests/studies/test_report.py` has charts as they are.
    """
    drawn = {}

    def save(chart, path):
        panels = [[(one.kind, bool(one.x), one.error is None) for one in panel.series] for panel in chart.panels]
        key = f"{chart.name if titled else ''} {panels}"
        if key not in drawn:
            with styled():
                figure = draw(chart)
                figure.set_layout_engine("none")
                figure.savefig(path, format="png", dpi=60)
            drawn[key] = path.read_bytes()
        path.write_bytes(drawn[key])

    return save
