"""Section 2.3 of the paper: mixed bins spread next tokens over more bins, which should narrow their Fourier spectrum.

Tokens are those of training windows, by either tokenizer. Two distributions of them: all next tokens together, and next
tokens about the last one that was read (their difference in bins), which is nearer to what a model predicts for one
series. Values that are zero, or the same as the last one, are left out: a peak of one bin has the flattest spectrum
there is, whatever the bins. Of each distribution the Fourier coefficients over the bins, without what counting adds to
them, and how many frequencies hold most of their energy.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from fourier_head.forecasting.corpora.mix import BatchStream, standard_corpus
from fourier_head.pages.charts import Chart, Panel, Series
from studies.chronos.runs import read_corpus
from studies.chronos.tokenizer import NUM_SPECIAL, ChronosTokenizer
from studies.common import options
from studies.common.options import SILENT, option
from studies.common.report.summary import Row, Summary
from studies.common.results import aggregate

CONTEXT, HORIZON = 511, 64
SHARES = (0.5, 0.9)
"""Parts of the energy whose frequencies are counted."""
CUT = 550
"""Frequencies of the paper's largest head."""
KINDS = {"uniform": "Uniform bins", "mixed": "Mixed bins"}
PLACES = {"all": "all next tokens", "near": "next tokens about the last one"}


@dataclass(frozen=True)
class Settings(options.Study):
    """What to count."""

    study = "spectrum"
    corpus: Path | None = option(None, "Training series, a file or folder.", shown="artificial ones")
    windows: int = option(20_000, "Training windows of a seed.", low=1)
    seeds: int = option(3, "Each draws its own windows.", low=1)


def count_tokens(stream: BatchStream, windows: int) -> dict[tuple[str, str], np.ndarray]:
    """Return how often every bin comes next, by kind of bins, and every difference of bins to the last one read."""
    tokenizers = {kind: ChronosTokenizer(kind) for kind in KINDS}  # type: ignore[arg-type]
    bins = tokenizers["mixed"].num_bins
    counts = {(kind, place): np.zeros(bins) for kind in KINDS for place in PLACES}
    done = 0
    while done < windows:
        batch = next(stream)
        done += len(batch.context)
        for kind, tokenizer in tokenizers.items():
            scale = tokenizer.scale_of(batch.context)
            last = tokenizer.encode(batch.context[:, -1:], scale).ids - NUM_SPECIAL
            ahead = tokenizer.encode(batch.future[:, :1], scale).ids - NUM_SPECIAL
            known = (last >= 0) & (ahead >= 0) & (batch.future[:, :1] != batch.context[:, -1:])
            known &= batch.future[:, :1] != 0
            place, step = ahead[known].numpy(), (ahead - last)[known].numpy()
            counts[kind, "all"] += np.bincount(place, minlength=bins)
            # Differences live on the circle of the bins, as a head's density does; their middle is no difference.
            counts[kind, "near"] += np.bincount((step + bins // 2) % bins, minlength=bins)
    return counts


def spectrum(counts: np.ndarray) -> np.ndarray:
    """Return the squared size of the Fourier coefficients k = 1, 2, ... of the distribution that counts come from.

    That of the counts themselves is larger by about one over their number, at every k.
    """
    total = counts.sum()
    return (np.abs(np.fft.rfft(counts / total))[1:] ** 2 - 1 / total) / (1 - 1 / total)


def holding(energy: np.ndarray, share: float) -> int:
    """Return how many frequencies hold a share of the energy of all.

    >>> holding(np.array([6.0, 3.0, 1.0]), 0.9)
    2
    """
    return int(np.searchsorted(np.cumsum(energy), share * energy.sum()) + 1)


def measure(seed: int, corpus: Any, windows: int) -> list[dict[str, Any]]:
    """Return what was measured with the windows of one seed, and the spectra."""
    counts = count_tokens(BatchStream(corpus, 256, seed), windows)
    found = []
    for (kind, place), own in counts.items():
        energy = spectrum(own)
        one: dict[str, Any] = {"dataset": PLACES[place], "protocol": KINDS[kind], "seed": seed, "energy": energy}
        one |= {f"frequencies_{100 * share:.0f}": holding(energy, share) for share in SHARES}
        one["energy_beyond"] = float(energy[CUT:].sum() / energy.sum())
        found.append(one)
    return found


def run(settings: Settings, console: Console = SILENT) -> Summary:
    """Run the study and write its folder."""
    store = read_corpus(settings.corpus)
    shares: Any = "standard" if store is not None else {"kernels": 0.5, "structural": 0.5}
    corpus = standard_corpus(store, CONTEXT, HORIZON, shares=shares, device="cpu")
    windows, seeds = (512, 1) if settings.quick else (settings.windows, settings.seeds)
    runs = []
    for seed in range(seeds):
        runs += measure(seed, corpus, windows)
        console.print(f"seed {seed} of {seeds} is counted", markup=False)
    metrics = [f"frequencies_{100 * share:.0f}" for share in SHARES] + ["energy_beyond"]
    rows = aggregate(runs, metrics, ("dataset", "protocol"))
    return settings.write(
        rows,
        runs=[{key: value for key, value in one.items() if key != "energy"} for one in runs],
        charts=[chart([one for one in runs if one["seed"] == 0])],
        notes=[note(rows, windows)],
        quick="few windows, one seed",
    )


def note(rows: Sequence[Row], windows: int) -> str:
    """Return in a sentence how many frequencies hold most of the energy."""
    said = []
    for place in PLACES.values():
        few = {
            one["protocol"]: one["ours"] for one in rows if (one["dataset"], one["metric"]) == (place, "frequencies_90")
        }
        said.append(
            f"of {place} {few[KINDS['uniform']]:.0f} with uniform bins and {few[KINDS['mixed']]:.0f} with mixed ones"
        )
    where = "90 % of the energy of the spectrum lie in this many frequencies"
    return f"{where}: {'; '.join(said)} ({windows} windows a seed)."


def chart(runs: Sequence[dict[str, Any]]) -> Chart:
    """Draw the spectra, smoothed over neighbouring frequencies."""
    panels = []
    for place in PLACES.values():
        series = []
        for i, kind in enumerate(KINDS.values()):
            (energy,) = (one["energy"] for one in runs if (one["dataset"], one["protocol"]) == (place, kind))
            edges = np.unique(np.rint(np.geomspace(1, len(energy), 80)).astype(int))
            spans = list(itertools.pairwise(edges.tolist()))
            middle = [math.sqrt(a * b) for a, b in spans]
            level = [max(float(energy[a - 1 : b - 1].mean()), 1e-7) for a, b in spans]  # noise may be below zero
            series.append(Series(kind, middle, level, f"curve-{i + 1}"))
        panels.append(Panel(series, place.capitalize(), "frequency k", "squared coefficient", x_log=True, y_log=True))
    caption = "Fourier coefficients of next tokens over their 4094 bins, means over neighbouring frequencies."
    return Chart("spectrum", "The spectrum of next tokens", panels, caption, columns=2)
