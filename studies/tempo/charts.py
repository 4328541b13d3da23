"""Figures of the tempo study."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fourier_head.pages.charts import Chart, Mark, Panel, Series
from studies.common.frequency_charts import frequency_panel, saying_hollow
from studies.common.report.summary import Row
from studies.tempo.clicks import SLOWEST
from studies.tempo.data import BIN_WIDTH, NUM_BINS

CENTRES = [SLOWEST + BIN_WIDTH * j + (BIN_WIDTH - 1) / 2 for j in range(NUM_BINS)]
FURTHEST = 10
COLOURS = ("fourier", "fourier-packets", "curve-3", "quantile", "gmm_full", "regression")
Arm = tuple[str, int | None]


def label(head: str, number: int | None) -> str:
    """Return the name of a head in print.

    >>> label("fourier", 2), label("hl_gauss", None)
    ('Fourier-2', 'HL-Gauss')
    """
    return f"Fourier-{number}" if head == "fourier" else {"linear": "Linear", "hl_gauss": "HL-Gauss"}[head]


def charts(rows: Sequence[Row], runs: Sequence[dict[str, Any]]) -> list[Chart]:
    """Return the paper's figure, and ours: scores by frequencies, validation F1 by epoch, and how far off clips are."""
    arms: list[Arm] = list(dict.fromkeys((r["head"], r["frequencies"]) for r in runs))
    numbered = [arm for arm in arms if arm[0] == "fourier"]
    colours = {arm: arm[0] for arm in arms} | {arm: COLOURS[i % len(COLOURS)] for i, arm in enumerate(numbered)}
    return [_pmfs(runs, arms, colours), _scores(rows), _training(runs, arms, colours), _distances(runs, arms, colours)]


def _protocols(records: Sequence[Mapping[str, Any]]) -> list[str]:
    return list(dict.fromkeys(r["protocol"] for r in records))


def _pmfs(runs: Sequence[dict[str, Any]], arms: Sequence[Arm], colours: dict[Arm, str]) -> Chart:
    seed = runs[0]["seed"]
    panels = []
    for protocol in _protocols(runs):
        found = {(r["head"], r["frequencies"]): r for r in runs if r["protocol"] == protocol and r["seed"] == seed}
        for arm in [arm for arm in arms if arm in found and arm[0] != "hl_gauss"][:3]:
            truth = found[arm]["example"]["bpm"]
            series = [Series(label(*arm), CENTRES, found[arm]["example"]["pmf"], colours[arm], dots=True)]
            title = f"{label(*arm)} ({protocol})"
            panels.append(Panel(series, title, "BPM", "probability", marks=[Mark(truth, f"{truth} BPM")]))
    caption = "What heads say about one test clip, whose tempo is marked; a dot is a bin of five tempos."
    return Chart("pmfs", "Learned distributions of one clip's tempo", panels, caption)


def _dealt(records: Sequence[Mapping[str, Any]]) -> bool:
    """Tell whether tempos of training and test are the same, clips being dealt out at random."""
    return "random" in records[0]["dataset"]


def _scores(rows: Sequence[Row]) -> Chart:
    panels = []
    for protocol in _protocols(rows):
        for metric, words in (("macro_f1", "macro F1"), ("bpm_error", "BPM error"), ("smoothness", "smoothness")):
            # Heads without frequencies start alike in both released protocols and are trained in the first.
            base = protocol.split(",")[0]
            own = [
                r for r in rows if r["metric"] == metric and r["protocol"] == (protocol if r["frequencies"] else base)
            ]
            panels.append(frequency_panel(own, f"{words} ({protocol})", words))
    which = "On other clips than those of training" if _dealt(rows) else "On clips of even tempos, after odd ones"
    caption = (
        f"{which}; mean and deviation over seeds. Macro F1: higher is better. BPM error (of the middle of the "
        "likeliest bin) and smoothness: lower is better."
    )
    return Chart("scores", "Scores against frequencies", panels, saying_hollow(caption, panels))


def _training(runs: Sequence[dict[str, Any]], arms: Sequence[Arm], colours: dict[Arm, str]) -> Chart:
    panels = []
    for protocol in _protocols(runs):
        series = []
        for arm in arms:
            curves = [r["curve"] for r in runs if (r["head"], r["frequencies"], r["protocol"]) == (*arm, protocol)]
            if curves:
                x = [point["epoch"] for point in curves[0]]
                y = np.mean([[point["macro_f1"] for point in curve] for curve in curves], axis=0)
                series.append(Series(label(*arm), x, y, colours[arm], dots=True))
        panels.append(Panel(series, protocol, "epoch", "validation macro F1"))
    which = "new clips" if _dealt(runs) else "new clips of odd tempos"
    caption = f"Equal training for every head, watched on {which}; mean over seeds."
    return Chart("training", "How fast each head learns", panels, caption)


def distances(confusions: Sequence[Sequence[Sequence[int]]]) -> np.ndarray:
    """Return shares of clips by how many bins the prediction is above the truth, from -FURTHEST to FURTHEST."""
    table = np.sum(np.asarray(confusions, dtype=float), axis=0)
    shares = np.array([np.trace(table, offset=k) for k in range(-FURTHEST, FURTHEST + 1)])
    return shares / table.sum()


def _distances(runs: Sequence[dict[str, Any]], arms: Sequence[Arm], colours: dict[Arm, str]) -> Chart:
    x = [BIN_WIDTH * k for k in range(-FURTHEST, FURTHEST + 1)]
    panels = []
    for protocol in _protocols(runs):
        series = []
        for arm in arms:
            tables = [r["confusion"] for r in runs if (r["head"], r["frequencies"], r["protocol"]) == (*arm, protocol)]
            if tables:
                series.append(Series(label(*arm), x, distances(tables), colours[arm], dots=True))
        panels.append(Panel(series, protocol, "predicted minus true bin, BPM", "share of test clips"))
    caption = "How far off the likeliest bin is; clips more than 50 BPM off are not shown."
    return Chart("distances", "Distance of predictions from the truth", panels, caption)
