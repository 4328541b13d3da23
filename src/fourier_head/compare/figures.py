"""The figures of a comparison: densities learned for a few test rows, calibration, validation likelihood."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from fourier_head.compare.parts import Prepared
from fourier_head.compare.training import Trained
from fourier_head.metrics import central_coverage, pit_histogram
from fourier_head.pages.charts import Chart, Mark, Panel, Series
from fourier_head.pages.style import HEADS

POINTS = 401


@dataclass(frozen=True)
class Example:
    """One test row: its name, what was observed there, the truth or the values of similar rows, and each density.

    Curves are heights over ``grid``, densities in units of the target.
    """

    title: str
    observed: float
    grid: np.ndarray
    curves: dict[str, np.ndarray]
    truth: np.ndarray | None
    neighbours: np.ndarray | None


def draw_examples(data: Prepared, arms: list[Trained]) -> list[Example]:
    """Evaluate the densities of three telling test rows.

    Where the truth is known: rows whose two peaks are near, further and far apart. Otherwise: rows whose targets are
    low, middling and high, with the targets of the training rows most similar to them.
    """
    part = data.test
    truth = data.table.truth
    if truth is None:
        key, levels = part.value.numpy(), np.linspace(0.15, 0.85, 3)
    else:
        key, levels = np.abs(np.diff(truth.centers[part.rows], axis=1)[:, 0]), np.linspace(0.25, 0.9, 3)
    order = np.argsort(key, kind="stable")
    chosen = order[np.round(levels * (len(order) - 1)).astype(int)]
    z = torch.linspace(-1 + 1e-6, 1 - 1e-6, POINTS)
    grid = data.middle + data.half * z.double().numpy()
    with torch.no_grad():
        x = part.x[torch.from_numpy(chosen)]
        column = z[:, None].expand(-1, len(chosen))
        heights = {
            arm.name: arm.model.head.density(arm.model.body(x)).log_prob(column).double().exp().numpy() / data.half
            for arm in arms
        }
        known = data.truth(part)
        if known is not None:
            whole = z.double()[:, None].expand(-1, len(part))
            true_heights = known.log_prob(whole).exp().numpy()[:, chosen] / data.half
    return [
        Example(
            title=_title(data, int(row)),
            observed=float(part.value[row]),
            grid=grid,
            curves={name: curve[:, i] for name, curve in heights.items()},
            truth=None if known is None else true_heights[:, i],
            neighbours=None if known is not None else _neighbours(data, int(row)),
        )
        for i, row in enumerate(chosen)
    ]


def _title(data: Prepared, row: int) -> str:
    number = int(data.test.rows[row])
    if data.table.truth is None:
        return f"test row {row + 1}"
    features = data.table.features.iloc[number]
    return ", ".join(f"{name} = {value:.2f}" for name, value in features.items()).replace("-", "−")


def _neighbours(data: Prepared, row: int) -> np.ndarray:
    """Return the targets of the training rows nearest to a test row in the standardised features."""
    distance = torch.cdist(data.test.x[row : row + 1], data.train.x)[0]
    count = min(len(distance), max(30, min(200, len(distance) // 50)))
    return data.train.value[distance.topk(count, largest=False).indices].numpy()


PIT_BINS = 20
LEVELS = np.linspace(0.02, 0.98, 49)


def densities(examples: list[Example], names: list[str], target: str) -> Chart:
    """Draw the density of each head for a few inputs, one row for each, against the truth or similar rows."""
    known = examples[0].truth is not None
    panels = []
    for example in examples:
        grey = _grey(example)
        top = _height(example, names, grey)
        seen = _where_seen([grey, *example.curves.values()], top)
        for name in names:
            look = HEADS[name]
            series = [
                Series("truth" if known else "similar rows", example.grid[seen], grey[seen], "truth", "area"),
                Series(look.label, example.grid[seen], example.curves[name][seen], name),
            ]
            marks = [] if known else [Mark(example.observed)]
            panels.append(Panel(series, look.label, target, example.title, y_range=(0, top), marks=marks, bare=True))
    what = "Grey: the true density, known for this data set."
    if not known:
        what = "Grey: the targets of the training rows most similar to each; dashed line: what was observed."
    caption = f"What each head predicts for {len(examples)} test inputs. {what}"
    return Chart("densities", "Learned densities", panels, caption, columns=len(names), height=1.6)


def _grey(example: Example) -> np.ndarray:
    """Return over the grid the true density, or a histogram of what happened at similar rows."""
    if example.truth is not None:
        return example.truth
    assert example.neighbours is not None
    ends = (example.grid[0], example.grid[-1])
    heights, edges = np.histogram(example.neighbours, bins=25, range=ends, density=True)
    return heights[np.searchsorted(edges[1:-1], example.grid, side="right")]


def _where_seen(curves: list[np.ndarray], top: float) -> slice:
    """Return the part of the grid outside of which every curve is flat, with some room on either side."""
    places = np.flatnonzero(np.nanmax(curves, axis=0) > 0.01 * top)
    room = len(curves[0]) // 20
    return slice(max(0, places[0] - room), places[-1] + room)


def _height(example: Example, names: list[str], grey: np.ndarray) -> float:
    """Return the top of the axis: room for every curve, but not for spikes that would flatten all else."""
    highest = float(grey.max())
    curves = [float(np.nanmax(example.curves[name])) for name in names]
    return 1.08 * max(highest, min(max(curves), 3.0 * float(np.median([*curves, highest]))))


def calibration(arms: list[Trained]) -> Chart:
    """Draw the PIT histogram of each head and, for all, how much more or less than their level intervals cover."""
    histograms = [pit_histogram(arm.scores.pit, PIT_BINS).numpy() * PIT_BINS for arm in arms]
    top = min(max(1.6, 1.1 * float(max(h.max() for h in histograms))), 4.0)
    rows = len(arms[0].scores.pit)
    # Two deviations of a bin's count around its mean of rows / bins.
    spread = 2 * math.sqrt((PIT_BINS - 1) / rows)
    grey: dict[str, Any] = {"colour": "line", "kind": "band", "opacity": 1.0, "legend": False}
    chance = Series("chance", [0, 1], [1 + spread] * 2, lower=[max(0.0, 1 - spread)] * 2, **grey)
    edges = np.linspace(0, 1, PIT_BINS + 1).repeat(2)[1:-1]
    panels = []
    for arm, heights in zip(arms, histograms, strict=True):
        look = HEADS[arm.name]
        steps = Series(look.label, edges, heights.repeat(2), arm.name)
        marks = [Mark(1.0, axis="y")]
        panels.append(Panel([chance, steps], look.label, "PIT", "density", y_range=(0, top), marks=marks))
    spreads = 200 * np.sqrt(LEVELS * (1 - LEVELS) / rows)
    covered = [Series("chance", 100 * LEVELS, spreads, lower=-spreads, **grey)]
    for arm in arms:
        excess = 100 * (central_coverage(arm.scores.pit, LEVELS).numpy() - LEVELS)
        covered.append(Series(HEADS[arm.name].label, 100 * LEVELS, excess, arm.name, dash=HEADS[arm.name].dash))
    panels.append(Panel(covered, "Coverage error", "level of the central interval, %", "points"))
    caption = (
        "Where each observation falls in its predicted distribution (PIT, the probability integral transform): flat "
        "when the predicted probabilities are right, a hill when the predictions are too wide, a bowl when they are "
        "too narrow. Last panel: how much more, or less, of the observations central intervals hold than they claim. "
        "Grey bands: two standard deviations of pure chance."
    )
    columns = 3 if len(panels) <= 6 else 4
    return Chart("calibration", "Calibration", panels, caption, columns=columns, height=2.2)


def validation(arms: list[Trained]) -> Chart:
    """Draw the validation likelihood over the epochs; a dot marks the weights that were kept."""
    series: list[Series] = []
    lows, highs = [], []
    for arm in arms:
        look = HEADS[arm.name]
        epochs, scores = np.array(arm.history, dtype=np.float64).reshape(-1, 2).T
        kept = scores == arm.best_score  # an epoch may have been looked at more than once
        series.append(Series(look.label, epochs, scores, arm.name, dash=look.dash))
        series.append(Series(look.label, epochs[kept], scores[kept], arm.name, "points", legend=False))
        known = scores[np.isfinite(scores)]
        if known.size:
            lows.append(float(known.min()))
            highs.append(float(np.quantile(known, 0.9)))
    # Overfitting without end would flatten everything else.
    room = max(highs) - min(lows) if lows else 1.0
    span = (min(lows) - 0.08 * room - 1e-9, max(highs) + 0.1 * room + 1e-9) if lows else None
    caption = "Negative log-likelihood of the validation rows. The dot marks the weights that were kept and tested."
    panel = Panel(series, "", "epoch", "validation NLL", y_range=span)
    return Chart("validation", "Training", [panel], caption, columns=1, height=3.0)
