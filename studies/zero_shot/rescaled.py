"""Copies of test values in another unit, with another zero, or rounded: runs are compared by their shape alone.

A run of twelve values, less its mean and divided by its deviation, is laid on a coarse grid, so that digits lost by
rounding do not matter; grids are moved against each other, so that no run lies on an edge of all. Runs on one spot are
candidates. A candidate counts where a straight line leads from the test series to the training series over everything
that lies around the run in both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from fourier_head.forecasting.corpora.store import SeriesStore
from fourier_head.forecasting.evaluation import EvaluationSet

RUN = 12
"""Values in a run."""
CELL, MOVES = 0.1, (0.0, 0.5)
"""Side of a cell in deviations of the run, and how far grids are moved, in cells."""
BENT = 0.15
"""Deviation of a run from a parabola, in its own deviations, from which on its shape says something."""
AROUND = 48
"""Values before a run that must agree, too, where both series have them; at least ``FEWEST`` values in all."""
FEWEST = 16
OFF = 0.05
"""Root mean square distance from the straight line, in that of changes from step to step, up to which it is a copy."""
MOST = 20
"""Candidates looked at for every test window."""


class Needle(NamedTuple):
    """A run of a test series: number of the set and of the window, the series, and where the run ends in it."""

    group: int
    window: int
    series: np.ndarray
    end: int


def spots(values: np.ndarray) -> np.ndarray:
    """Return a number for every grid and run (2, n - 11), alike for runs of one shape; 0 where a run says too little.

    >>> x = np.array([3.0, 5, 4, 9, 2, 8, 7, 1, 4, 6, 2, 2, 5])
    >>> bool((spots(x) == spots(np.round(30 * x + 1000))).any(0).all()), spots(np.arange(12.0)).tolist()
    (True, [[0], [0]])
    """
    if len(values) < RUN:
        return np.zeros((len(MOVES), 0), dtype=np.uint64)
    return _spots_of(np.lib.stride_tricks.sliding_window_view(values, RUN))


def _spots_of(window: np.ndarray) -> np.ndarray:
    """Return the numbers of runs (n, 12), see ``spots``."""
    with np.errstate(all="ignore"):
        z = window - window.mean(1, keepdims=True)
        z /= np.sqrt((z * z).mean(1, keepdims=True))
        # What parabolas leave of a sum of squares of RUN; False where there is a NaN.
        good = 1 - np.square(z @ PARABOLAS).sum(1) / RUN > BENT**2
        out = np.zeros((len(MOVES), len(window)), dtype=np.uint64)
        for row, move in zip(out, MOVES, strict=True):
            cells = np.floor(z[good] / CELL + move).astype(np.int64).view(np.uint64)
            row[good] = (cells * FACTORS).sum(1, dtype=np.uint64) | np.uint64(1)
    return out


PARABOLAS = np.linalg.qr(np.vander(np.linspace(-1, 1, RUN), 3))[0]
"""Orthonormal columns: constants, lines and parabolas over a run."""
FACTORS = np.random.default_rng(0).integers(0, 2**64 - 1, RUN, dtype=np.uint64) | np.uint64(1)
"""Of cells, in the number of a spot."""


def needles(sets: Sequence[EvaluationSet], order: int) -> Iterator[Needle]:
    """Yield the runs to look for: the last values of every test window and, where it is long, its first and middle.

    Args:
        sets: what forecasts are scored on.
        order: 1, or -1 for series read backwards, of which none should be found.
    """
    for group, one in enumerate(sets):
        inside = range(RUN, one.horizon, max(1, (one.horizon - RUN) // 2)) if one.horizon >= 3 * RUN else ()
        for window, series in enumerate(one.series):
            x = np.asarray(series, np.float64)[-(one.horizon + AROUND + RUN) :]
            for end in {len(x), *(len(x) - one.horizon + part for part in inside)}:
                if end >= RUN:
                    # Read backwards, what ended a run begins it.
                    yield Needle(group, window, x[::order], end if order == 1 else len(x) - end + RUN)


def is_copy(test: np.ndarray, end: int, train: np.ndarray, place: int) -> bool:
    """Tell whether a straight line leads from a test series to a training series around runs that end at two places.

    >>> x = np.random.default_rng(0).normal(size=40)
    >>> is_copy(x, 40, np.round(7 * x + 3, 1), 40), is_copy(x, 40, x**3, 40)
    (True, False)
    """
    before = min(end, place, AROUND + RUN)
    after = min(len(test) - end, len(train) - place, AROUND)
    x, y = test[end - before : end + after], train[place - before : place + after]
    known = np.isfinite(x) & np.isfinite(y)
    x, y = x[known], y[known]
    if len(x) < FEWEST or np.ptp(x) == 0 or np.ptp(y) == 0:
        return False
    slope, shift = np.polyfit(x - x.mean(), y, 1)
    off = np.sqrt(np.mean((y - slope * (x - x.mean()) - shift) ** 2))
    return bool(slope > 0 and off <= OFF * np.sqrt(np.mean(np.diff(y) ** 2)))


def search(
    store: SeriesStore,
    sets: Sequence[EvaluationSet],
    versions: Callable[[int, np.ndarray], Iterator[np.ndarray]],
    ids: Sequence[str] = (),
) -> list[dict[str, Any]]:
    """Return, for every evaluation set, how many of its test windows are in a training series in another unit.

    Args:
        store: the training series.
        sets: what forecasts are scored on.
        versions: yields what is searched of a series, by its period and values: itself, and sums of its values.
        ids: of the training series, by which ``copies`` of a row name them beside their set; numbers unless given.
    """
    wanted = {way: list(needles(sets, order)) for way, order in (("forwards", 1), ("backwards", -1))}
    known: list[dict[int, list[tuple[str, int]]]] = [{} for _ in MOVES]
    for way, group in wanted.items():
        runs = np.array([needle.series[needle.end - RUN : needle.end] for needle in group]).reshape(-1, RUN)
        for table, own in zip(known, _spots_of(runs), strict=True):
            for hit in np.flatnonzero(own):
                table.setdefault(int(own[hit]), []).append((way, int(hit)))
    sorted_spots = [np.array(sorted(table), dtype=np.uint64) for table in known]
    tries: dict[tuple[str, int], int] = {}
    found: dict[str, dict[tuple[int, int], set[int]]] = {way: {} for way in wanted}
    for i in range(len(store)):
        for part in versions(int(store.period[i]), store.series(i).numpy().astype(np.float64)):
            for table, spot, here in zip(known, sorted_spots, spots(part), strict=True):
                place = np.searchsorted(spot, here).clip(max=max(len(spot) - 1, 0))
                for start in np.flatnonzero(spot[place] == here) if len(spot) else ():
                    for way, number in table[int(here[start])]:
                        needle = wanted[way][number]
                        key = (needle.group, needle.window)
                        if i in found[way].get(key, ()) or tries.get((way, number), 0) >= MOST:
                            continue
                        tries[way, number] = tries.get((way, number), 0) + 1
                        if is_copy(needle.series, needle.end, part, int(start) + RUN):
                            found[way].setdefault(key, set()).add(i)
    rows = []
    for index, one in enumerate(sets):
        row: dict[str, Any] = {"dataset": one.name, "windows": len(one)}
        for way in wanted:
            row[way] = sum(key[0] == index for key in found[way])
        copies = sorted(
            (window, store.names[int(store.set_index[i])], str(ids[i]) if ids else str(i))
            for (group, window), series in found["forwards"].items()
            if group == index
            for i in series
        )
        named = [name for name, _ in sorted({(name, window) for window, name, _ in copies})]
        row["from"] = {name: named.count(name) for name in sorted(set(named))}
        row["copies"] = [{"window": window, "set": name, "series": one} for window, name, one in copies]
        rows.append(row)
    return rows
