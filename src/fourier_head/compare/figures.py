"""The figures of a comparison: learned densities, calibration, validation likelihood."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import MaxNLocator

from fourier_head.compare.examples import Example
from fourier_head.compare.training import Trained
from fourier_head.metrics import central_coverage, pit_histogram
from fourier_head.pages.style import HEADS, ink, styled

PIT_BINS = 20


def densities(examples: list[Example], names: list[str], target: str, wide: bool = True) -> Figure:
    """Draw the density of each head for a few inputs against the truth, or against what happened at similar rows.

    Wide: one row per input and one column per head. Narrow: one row per head and one column per input.
    """
    rows, columns = (len(examples), len(names)) if wide else (len(names), len(examples))
    with styled():
        size = (2.15 * columns + 0.5, 1.55 * rows + 0.75) if wide else (4.3, 1.05 * rows + 0.75)
        figure = Figure(figsize=size, layout=ConstrainedLayoutEngine(h_pad=0.06, w_pad=0.08))
        axes = figure.subplots(rows, columns, squeeze=False, sharex=True)
        for i, example in enumerate(examples):
            top = _height(example, names)
            for j, name in enumerate(names):
                cell = axes[i][j] if wide else axes[j][i]
                _density(cell, example, name, top)
                if j == 0:
                    _label(cell, example.title, above=not wide)
                if i == 0:
                    _head_title(cell, name, above=wide)
        for cell in axes[-1]:
            cell.xaxis.set_major_locator(MaxNLocator(4 if wide else 3))
        figure.supxlabel(target, color=ink("muted"), fontsize=8.5)
    return figure


def _label(cell: Axes, text: str, above: bool) -> None:
    lines = text.replace(", ", "\n")
    if above:
        cell.set_title(lines, color=ink("muted"), fontsize=8, fontweight="normal")
    else:
        cell.set_ylabel(lines, color=ink("muted"), rotation=0, ha="right", va="center", labelpad=6)


def _head_title(cell: Axes, name: str, above: bool) -> None:
    look = HEADS[name]
    if above:
        cell.set_title(look.label, color=look.light)
    else:
        words = look.label.replace(" + ", "\n+ ")
        cell.set_ylabel(words, color=look.light, rotation=0, ha="right", va="center", labelpad=6, fontweight="bold")


def _height(example: Example, names: list[str]) -> float:
    """Return the top of the axis: room for every curve, but not for spikes that would flatten all else."""
    known = example.truth if example.truth is not None else _histogram(example)[0]
    curves = [float(np.nanmax(example.curves[name])) for name in names]
    return 1.08 * max(float(known.max()), min(max(curves), 3.0 * float(np.median([*curves, float(known.max())]))))


def _histogram(example: Example) -> tuple[np.ndarray, np.ndarray]:
    assert example.neighbours is not None
    return np.histogram(example.neighbours, bins=25, range=(example.grid[0], example.grid[-1]), density=True)


def _density(cell: Axes, example: Example, name: str, top: float) -> None:
    if example.truth is not None:
        cell.fill_between(example.grid, example.truth, color=ink("truth"), linewidth=0)
    else:
        heights, edges = _histogram(example)
        cell.stairs(heights, edges, fill=True, color=ink("truth"))
    cell.plot(example.grid, example.curves[name], color=HEADS[name].light, linewidth=1.5, solid_joinstyle="round")
    if example.truth is None:
        cell.plot([example.observed], [0], marker="^", color=ink("ink"), markersize=5, clip_on=False, zorder=5)
    cell.set_ylim(0, top)
    cell.set_xlim(example.grid[0], example.grid[-1])
    cell.set_yticks([])
    cell.spines["left"].set_visible(False)


def calibration(arms: list[Trained], wide: bool = True) -> Figure:
    """Draw the PIT histogram of each head and, for all, how much more or less than their level intervals cover."""
    columns = 3 if wide else 2
    rows = math.ceil((len(arms) + 1) / columns)
    with styled():
        size = (11.2, 2.15 * rows + 0.2) if wide else (4.3, 1.6 * rows + 0.3)
        figure = Figure(figsize=size, layout=ConstrainedLayoutEngine(h_pad=0.08, w_pad=0.08))
        axes = list(figure.subplots(rows, columns, squeeze=False).flat)
        tallest = max(float(pit_histogram(arm.scores.pit, PIT_BINS).max()) * PIT_BINS for arm in arms)
        for cell, arm in zip(axes, arms, strict=False):
            _pit(cell, arm, min(max(1.6, 1.1 * tallest), 4.0))
        _coverage(axes[len(arms)], arms)
        for cell in axes[len(arms) + 1 :]:
            cell.set_visible(False)
    return figure


def _pit(cell: Axes, arm: Trained, top: float) -> None:
    look = HEADS[arm.name]
    heights = pit_histogram(arm.scores.pit, PIT_BINS).numpy() * PIT_BINS
    # Two deviations of a bin's count around its mean of rows / bins.
    spread = 2 * math.sqrt((PIT_BINS - 1) / len(arm.scores.pit))
    cell.axhspan(max(0.0, 1 - spread), 1 + spread, color=ink("line"), linewidth=0)
    edges = np.linspace(0, 1, PIT_BINS + 1)
    cell.stairs(heights, edges, fill=True, color=look.light, alpha=0.3)
    cell.stairs(heights, edges, color=look.light, linewidth=1.4)
    cell.axhline(1, color=ink("ink"), linewidth=0.8)
    cell.set_xlim(0, 1)
    cell.set_ylim(0, top)
    cell.set_title(look.label, color=look.light)
    cell.set_xticks([0, 0.5, 1], ["0", "½", "1"])
    cell.set_xlabel("PIT of the observations")
    cell.set_yticks([0, 1])


def _coverage(cell: Axes, arms: list[Trained]) -> None:
    levels = np.linspace(0.02, 0.98, 49)
    rows = len(arms[0].scores.pit)
    spread = 200 * np.sqrt(levels * (1 - levels) / rows)
    cell.fill_between(100 * levels, -spread, spread, color=ink("line"), linewidth=0)
    cell.axhline(0, color=ink("ink"), linewidth=0.8)
    for arm in arms:
        look = HEADS[arm.name]
        excess = 100 * (central_coverage(arm.scores.pit, levels).numpy() - levels)
        cell.plot(100 * levels, excess, color=look.light, linestyle=look.dash, linewidth=1.5)
    cell.set_title("Coverage error, points", color=ink("ink"))
    cell.set_xlabel("level of the central interval, %")
    cell.set_xlim(0, 100)
    cell.yaxis.set_major_locator(MaxNLocator(4, integer=True))


def validation(arms: list[Trained], wide: bool = True) -> Figure:
    """Draw the validation likelihood over the epochs; a dot marks the weights that were kept."""
    with styled():
        figure = Figure(figsize=(11.2, 2.9) if wide else (4.3, 3.8), layout="constrained")
        cell: Any = figure.subplots()
        lows, highs = [], []
        for arm in arms:
            look = HEADS[arm.name]
            epochs, scores = np.array(arm.history, dtype=np.float64).reshape(-1, 2).T
            cell.plot(epochs, scores, color=look.light, linestyle=look.dash, label=look.label)
            kept = epochs == arm.best_epoch
            cell.plot(epochs[kept], scores[kept], "o", color=look.light, markersize=5)
            known = scores[np.isfinite(scores)]
            if known.size:
                lows.append(known.min())
                highs.append(np.quantile(known, 0.9))
        if lows:
            # Overfitting without end would flatten everything else.
            room = max(highs) - min(lows)
            cell.set_ylim(min(lows) - 0.08 * room - 1e-9, max(highs) + 0.1 * room + 1e-9)
        cell.grid(axis="y")
        cell.set_xlabel("epoch")
        cell.set_ylabel("validation NLL")
        cell.xaxis.set_major_locator(MaxNLocator(8, integer=True))
        if wide:
            cell.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
        else:
            figure.legend(loc="outside lower center", ncols=2, columnspacing=2, handlelength=2.2)
    return figure
