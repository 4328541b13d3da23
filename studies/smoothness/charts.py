"""Figures of the study of smoothness."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from fourier_head.metrics import smoothness
from fourier_head.pages.charts import Chart, Mark, Panel, Series
from studies.common.report.summary import Row
from studies.smoothness.signals import SAMPLES, SHOWN, first_fall, reach, square_waves


def shapes_chart() -> Chart:
    """Draw a few truncated square waves as densities, as in the paper's first figure of appendix B."""
    waves = square_waves(max(SHOWN))
    x = torch.arange(SAMPLES)[::4] / SAMPLES
    panels = []
    for count in SHOWN:
        score = smoothness(waves[count - 1]).item()
        title = f"{count} sine wave{'s' if count > 1 else ''}: {score:.5f}"
        y = 1000 * waves[count - 1][::4]
        panels.append(Panel([Series("probability × 1000", x.tolist(), y.tolist(), kind="area")], title, "x"))
    title = "Truncated square waves framed as densities, and their smoothness"
    caption = "Negative parts set to zero, sum scaled to one; the number above each is its smoothness."
    return Chart("square-waves", title, panels, caption, columns=4, height=1.9)


def waves_chart(curves: dict[str, list[float]]) -> Chart:
    """Draw smoothness against the number of sine waves for both norms."""
    panels = []
    for norm, colour in (("l2", "curve-1"), ("l1", "curve-2")):
        values = curves[norm]
        fall = first_fall(values)
        marks = [Mark(fall, f"first fall: {fall}")] if fall else []
        series = [Series(norm.upper(), list(range(1, len(values) + 1)), values, colour)]
        panels.append(Panel(series, norm.upper(), "sine waves", "smoothness", marks=marks))
    caption = f"One wavelength on {SAMPLES} samples, {reach(curves['l2'])}. The metric should rise with every wave: "
    caption += "L2 does, L1 does not."
    title = "Smoothness against the number of sine waves"
    return Chart("smoothness-of-square-waves", title, panels, caption, columns=2)


def noise_chart(rows: Sequence[Row]) -> Chart:
    """Draw the noise table: means with deviations over trials, ours beside the paper's."""
    panels = []
    for title, metric, protocol in (
        ("Smoothness, L2", "l2", "all sigma"),
        ("Spectral entropy, nats", "spectral_entropy", "nats"),
        ("Without constant term, bits", "spectral_entropy", "bits, no constant"),
    ):
        chosen = [r for r in rows if (r["metric"], r["protocol"]) == (metric, protocol)]
        colours = [r["dataset"].split()[0] for r in chosen]
        ours = Series("ours", colours, [r["ours"] for r in chosen], "curve-1", "bars", [r["std"] for r in chosen])
        series = [ours]
        if chosen[0]["paper"] is not None:
            deviation = [r["paper_std"] for r in chosen]
            series.append(Series("paper", colours, [r["paper"] for r in chosen], "truth", "bars", deviation))
        panels.append(Panel(series, title))
    trials = rows[0]["seeds"]
    caption = f"From the smoothest noise to the sharpest; means and deviations over {trials} trials."
    return Chart("noise", "Four colours of noise", panels, caption)
