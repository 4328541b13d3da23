"""Charts drawn once each: what repeats one, of other numbers, would only take matplotlib's time."""

from fourier_head.pages.drawing import save_png


def once(titled=True):
    """Return what saves a chart, drawn only if its panels, or its name, differ from those of all before it."""
    drawn = {}

    def save(chart, path):
        panels = [[(one.kind, bool(one.x), one.error is None) for one in panel.series] for panel in chart.panels]
        key = f"{chart.name if titled else ''} {panels}"
        if key not in drawn:
            save_png(chart, path)
            drawn[key] = path.read_bytes()
        path.write_bytes(drawn[key])

    return save
