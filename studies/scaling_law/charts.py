"""The figures of the study scaling-law."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fourier_head.pages.charts import Chart, Mark, Panel, Series
from fourier_head.pages.words import short
from studies.common.report.summary import Row, number
from studies.common.report.tables import dataset_label
from studies.scaling_law.decay import narrow_exponent, predicted_smoothness


def law_chart(measured: Sequence[dict[str, Any]]) -> Chart:
    """Draw what is still missing from C1 against N, both axes logarithmic: a power law is a straight line."""
    panels = []
    for one in measured:
        t, n = one["t"], np.array(one["n"], dtype=float)
        far = n <= n[-1] / 16  # beyond, the remainder falls because the sum ends, not by the law
        metric, wide = (np.array(one[key])[far] / one[key][0] for key in ("remainder", "remainder_wide"))
        n = n[far]
        slow, fast = narrow_exponent(t), 2 * t - 1
        anchor = int(np.searchsorted(n, 16))
        series = [
            Series("metric of Definition 3.2", n, metric, "curve-1", dots=True),
            Series("one wide kernel", n, wide, "curve-2", dots=True),
            Series("narrow-kernel slope", n, metric[anchor] * (n / n[anchor]) ** -slow, "muted", dash="dot"),
            Series("theorem's slope", n, wide[anchor] * (n / n[anchor]) ** -fast, "muted", dash="dash"),
        ]
        title = f"t = {t}: slope {slow:g}, theorem {fast}"
        panels.append(Panel(series, title, "frequencies N", "(C1 − s(N)) / (C1 − s(1))", x_log=True, y_log=True))
    bins = max(r["bins"] for r in measured[0]["regimes"])
    caption = (
        f"Distance to the smoothness at the last harmonic, {bins} bins, coefficients 1/k^t. A wide kernel follows the "
        "theorem; the metric, which sums over all widths from one bin on, has a lower exponent."
    )
    return Chart("law", "Smoothness of truncated densities", panels, caption, height=2.9)


def _exponents(name: str, curve: dict[str, Any], bins: int, number: int) -> Series:
    n = np.array(curve["n"])
    kept = n > 4  # below, the terms O(1/N^2t) are no smaller than the leading one
    return Series(name, n[kept] / bins, np.array(curve["exponent"])[kept], f"curve-{number + 1}")


def local_chart(measured: Sequence[dict[str, Any]]) -> Chart:
    """Draw the exponent at each N/m: all numbers of bins fall on one curve."""
    panels = []
    for one in measured:
        t = one["t"]
        series = [_exponents(f"m = {m}", curve, int(m), i) for i, (m, curve) in enumerate(one["local"].items())]
        slow, fast = narrow_exponent(t), 2 * t - 1
        marks = [Mark(fast, f"2t − 1 = {fast}", "y"), Mark(slow, f"{slow:g}", "y")]
        span = (slow - 0.35 * (fast - slow), fast + 0.2 * (fast - slow))
        panels.append(Panel(series, f"t = {t}", "N / m", "exponent at N", x_log=True, y_range=span, marks=marks))
    caption = (
        "The exponent the law would need near each N for the metric of Definition 3.2, from neighbouring steps. Once "
        "N is large it depends on N/m alone, and it reaches the theorem's 2t − 1 at N = m/2, where the statement ends."
    )
    return Chart("local-exponent", "Which exponent holds where", panels, caption, height=2.7)


def kernel_chart(measured: Sequence[dict[str, Any]]) -> Chart:
    """Draw the exponent of single kernels: 2t - 1 once N is beyond what the kernel resolves."""
    panels = []
    for one in measured:
        fast = 2 * one["t"] - 1
        series = [
            _exponents(f"σ = {sigma} bin{'s' * (sigma != '1')}", curve, 1, i)
            for i, (sigma, curve) in enumerate(one["kernels"].items())
        ]
        marks = [Mark(fast, f"2t − 1 = {fast}", "y")]
        panels.append(Panel(series, f"t = {one['t']}", "frequencies N", "exponent at N", x_log=True, marks=marks))
    bins = max(r["bins"] for r in measured[0]["regimes"])
    caption = (
        f"One Gaussian width at a time, {bins} bins. A kernel obeys the theorem for N well above m / (2πσ); for "
        f"σ = 1, which has the largest weight in the metric, that is {bins / 6.2832:.0f}, a third of m/2."
    )
    return Chart("kernels", "The exponent of single kernels", panels, caption, height=2.7)


def negative_chart(negative: dict[str, Any]) -> Chart:
    """Draw truncations of a triangle density beside Fejér's means."""
    panels = []
    for cut in negative["cuts"]:
        title = f"N = {cut['frequencies']}: lowest {cut['minimum']:.3f}".replace("-", "−")
        series = [
            Series("density", negative["z"], negative["truth"], "truth", "area"),
            Series("truncation", negative["z"], cut["plain"], "curve-2"),
            Series("Fejér mean", negative["z"], cut["fejer"], "curve-1", dash="dash"),
        ]
        panels.append(Panel(series, title, "z", marks=[Mark(0.0, "", "y")]))
    caption = (
        "The proof takes truncations of a density for densities. They need not be: this triangle has positive "
        "coefficients only, yet cutting them leaves negative values. Fejér's weights 1 − k/(N+1) do not."
    )
    return Chart("negative", "A truncated density can be negative", panels, caption, columns=4, height=2.2)


def alias_chart(alias: dict[str, Any]) -> Chart:
    """Draw smoothness and the normaliser for N up to twice the number of bins."""
    n, m = alias["n"], alias["bins"]
    marks = [Mark(m / 2, "m/2"), Mark(m, "m")]
    measured = [
        Series("values at bin centres", n, alias["midpoint"], "curve-2"),
        Series("exact bin masses", n, alias["exact"], "curve-1", dash="dash"),
    ]
    sums = [Series("values at bin centres", n, alias["sum"], "curve-2")]
    title = f"Smoothness, {m} bins, triangle of half-width {alias['half_width']:g}"
    panels = [
        Panel(measured, title, "frequencies N", "smoothness", marks=marks),
        Panel(sums, "Sum over the bin centres, in units of m/2", "frequencies N", marks=marks),
    ]
    caption = (
        "Harmonic m − k has the same values at the bin centres as harmonic k, up to its sign. Beyond N = m/2 it no "
        "longer adds to the smoothness but cancels what is there, and from N = m on the values no longer sum to m/2."
    )
    return Chart("alias", "Bin centres alias", panels, caption, columns=2)


def lemma_chart(found: Mapping[str, Any]) -> Chart:
    """Draw the gap of lemma A.3 and the norm of lemma A.5 against N, beside what the lemmas say."""
    first, *_ = found["gaps"]
    n, fast = np.array(first["n"], dtype=float), 2 * found["t"] + 1
    series = [
        Series(f"σ = {one['sigma']:g}", one["n"], one["gap"], f"curve-{i + 1}", dots=True)
        for i, one in enumerate(found["gaps"])
    ]
    series.append(Series("lemma's slope", n, first["gap"][0] * (n / n[0]) ** -fast, "muted", dash="dash"))
    cut = found["terms"][-1]
    norms = [
        Series("norm", cut["n"], cut["norm"], "curve-1", dots=True),
        Series("lemma's main term", cut["n"], cut["lemma"], "muted", dash="dash"),
    ]
    shown = (
        (series, f"Lemma A.3, {found['gap_bins']} bins", "gap between the norms"),
        (norms, f"Lemma A.5, {found['term_bins']} bins, σ = {found['width']:g}", "norm"),
    )
    panels = [Panel(lines, title, "frequencies N", y, x_log=True, y_log=True) for lines, title, y in shown]
    caption = (
        f"Series with coefficients 1/k^{found['t']}, cut after N frequencies. Left: by how much what the discrete blur "
        "removes differs from what the continuous one does. Right: the norm of the latter."
    )
    return Chart("lemmas", "Two lemmas of the proof", panels, caption, columns=2)


def expressivity_chart(near: Mapping[str, Sequence[Mapping[str, Any]]]) -> Chart:
    """Draw how near heads come to densities against their number of frequencies."""
    panels = []
    for metric, words in (("sup_error", "largest distance"), ("kl", "KL divergence")):
        series = []
        for i, (name, found) in enumerate(near.items()):
            n, far = ([one[key] for one in found] for key in ("frequencies", metric))
            series.append(Series(name, n, far, f"curve-{i + 1}", dots=True))
        panels.append(Panel(series, words.capitalize(), "frequencies N", words, x_log=True, y_log=True))
    caption = "The Fejér mean of each density as a head with N frequencies, by the density of this library."
    return Chart("expressivity", "Heads of more frequencies come nearer to a density", panels, caption, columns=2)


def trained_chart(heads: Sequence[Row], fits: Sequence[Row]) -> Chart:
    """Draw the smoothness of trained heads against N with the fitted laws, one panel for each data set."""
    datasets = list(dict.fromkeys(one["dataset"] for one in fits))
    panels = []
    for dataset in datasets:
        series = []
        chosen = [one for one in fits if one["dataset"] == dataset]
        for i, law in enumerate(chosen):
            same = [
                one
                for one in heads
                if one["metric"] == "smoothness"
                and str(one["head"]).startswith("fourier")
                and number(one["frequencies"])
                and all(one.get(key) == law.get(key) for key in ("dataset", "packets", "protocol", "gamma"))
            ]
            same.sort(key=lambda one: one["frequencies"])
            n = [one["frequencies"] for one in same]
            words = [str(law["protocol"])] if law["protocol"] else []
            words += [f"γ = {short(law['gamma'])}"] if law.get("gamma") is not None else []
            words += [f"{law['packets']} packets"] if law["packets"] else []
            name, colour = ", ".join(words) or "Fourier", f"curve-{i % 5 + 1}"
            ours = [one["ours"] for one in same]
            series.append(Series(name, n, ours, colour, "points", [one["std"] for one in same]))
            grid = np.linspace(min(n), max(n), 60)
            fitted = predicted_smoothness(grid, law["C1"], law["C2"], (law["fitted"] + 1) / 2)
            series.append(Series(name, grid, fitted, colour, legend=False))
        panels.append(Panel(series, dataset_label(dataset), "frequencies N", "smoothness"))
    caption = "Smoothness of the trained heads (points, deviation over seeds) and the law fitted to it (lines)."
    return Chart("trained-heads", "The law on trained heads", panels, caption, height=2.9)
