"""The figures of the study: histograms against the truth, and both measures against the number of frequencies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fourier_head.pages.charts import Chart, Panel, Series
from studies.common.frequency_charts import frequency_panel, saying_hollow
from studies.common.report.summary import Row
from studies.numbers.data import HIGH, LOW, SCORE_BINS, TRAINED, Gaussian
from studies.numbers.tables import FOURIER_KEYS, PAPER_CONTEXT, best, contexts, find, same_arm

LABELS = {
    "base": "base model",
    "linear": "LoRA, text answers",
    "fourier": "LoRA, Fourier head",
    "truth": "exact sampler",
}
COLOURS = {"base": "curve-4", "linear": "linear", "fourier": "fourier-packets", "truth": "muted"}
DASHES = {"base": "dashdot", "linear": "dash", "truth": "dot"}
WIDTH = (HIGH - LOW) / SCORE_BINS


def charts(runs: Sequence[Mapping[str, Any]], table: Sequence[Row]) -> list[Chart]:
    """Return all figures that the runs allow."""
    there = contexts(table)
    shown = PAPER_CONTEXT if PAPER_CONTEXT in there else there[0]
    out = [histograms(runs, table, shown)]
    if len({r["frequencies"] for r in find(table, "tvd", "trained", "fourier", shown)}) > 1:
        out.append(against_frequencies(table, shown))
    if len(there) > 1:
        out.append(against_context(table))
    return out


def histograms(runs: Sequence[Mapping[str, Any]], table: Sequence[Row], context: int) -> Chart:
    """Draw the answers of the run with the median TVD, for each trained Gaussian and arm."""
    top = best(table, context)
    arms: list[tuple[Any, ...]] = [(head, *[None] * len(FOURIER_KEYS)) for head in ("base", "linear")]
    if top is not None:
        arms.append(("fourier", *(top[key] for key in FOURIER_KEYS)))
    panels = []
    for gaussian in TRAINED:
        for arm in arms:
            own = [run for run in runs if (run["head"], *(run[key] for key in FOURIER_KEYS)) == arm]
            own = [run for run in own if run["in_context"] == context]
            scores = [s for run in own for s in run["scores"] if s["gaussian"] == gaussian.name]
            if scores:
                panels.append(_histogram(arm[0], gaussian, sorted(scores, key=lambda s: s["tvd"])[len(scores) // 2]))
    best_n = f" The Fourier head is the best of them, N = {top['frequencies']}." if top is not None else ""
    caption = (
        f"{context} samples in the prompt; of all seeds the one with the median distance, its TVD above; share of "
        f"valid answers in {SCORE_BINS} bins.{best_n}"
    )
    return Chart("histograms", "Answers against the true Gaussian", panels, caption, columns=len(arms), height=1.9)


def _histogram(head: str, gaussian: Gaussian, one: Mapping[str, Any]) -> Panel:
    total = sum(one["histogram"]) or 1
    x, y = [LOW], [0.0]
    for j, count in enumerate(one["histogram"]):
        x += [LOW + j * WIDTH, LOW + (j + 1) * WIDTH]
        y += [count / total] * 2
    centres = [LOW + (j + 0.5) * WIDTH for j in range(SCORE_BINS)]
    answers = Series(LABELS[head], [*x, HIGH], [*y, 0.0], COLOURS[head], "area")
    truth = Series("truth", centres, gaussian.mass(SCORE_BINS).tolist(), "ink", "points")
    return Panel([answers, truth], f"{gaussian.name}: {one['tvd']:.3f}")


def against_frequencies(table: Sequence[Row], context: int) -> Chart:
    """Draw TVD and unique answers against the number of frequencies, for Gaussians trained on and not."""
    panels = []
    for metric, words in (("tvd", "TVD"), ("unique", "unique answers")):
        for dataset, which in (("trained", "trained on"), ("unseen", "never trained on")):
            own = [
                r for head in LABELS for r in find(table, metric, dataset, head, None if head == "truth" else context)
            ]
            panels.append(frequency_panel(own, f"{words}, {which}", words))
    caption = (
        f"{context} samples in the prompt; means over Gaussians and seeds, bars the deviation between seeds. The "
        "exact sampler draws from the truth: its TVD is the least that so many answers allow, on average."
    )
    title = "Distance from the truth, and how many answers differ"
    return Chart("frequencies", title, panels, saying_hollow(caption, panels), columns=2)


def against_context(table: Sequence[Row]) -> Chart:
    """Draw TVD and unique answers against the number of samples in the prompt."""
    panels = []
    for metric, words in (("tvd", "TVD"), ("unique", "unique answers")):
        series = []
        for head in ("base", "linear", "fourier"):
            x, y, error = [], [], []
            for context in contexts(table):
                top = best(table, context)
                for r in find(table, metric, "trained", head, context):
                    if head != "fourier" or (top is not None and same_arm(r, top)):
                        x.append(context)
                        y.append(r["ours"])
                        error.append(r["std"])
            series.append(Series(LABELS[head], x, y, COLOURS[head], error=error, dots=True, dash=DASHES.get(head, "")))
        panels.append(Panel(series, words, "samples in the prompt"))
    caption = "Gaussians trained on; of the Fourier heads the best for each number of samples."
    return Chart("in-context", "More samples in the prompt", panels, caption, columns=2)
