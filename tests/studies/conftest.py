"""Figures of studies are drawn once each: what repeats one, of other numbers, would only take matplotlib's time."""

import pytest
from studies.common import results

from fourier_head.pages.drawing import save_png


@pytest.fixture(scope="session", autouse=True)
def _each_figure_once():
    """Draw every chart that differs from those before it in its name, its panels or what is in them."""
    drawn = {}

    def save(chart, path):
        shape = [[(one.kind, bool(one.x), one.error is None) for one in panel.series] for panel in chart.panels]
        if (key := f"{chart.name} {shape}") not in drawn:
            save_png(chart, path)
            drawn[key] = path.read_bytes()
        path.write_bytes(drawn[key])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(results, "save_png", save)
        yield
