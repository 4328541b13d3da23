"""Series that are mostly zero and never below it, or mostly at their largest value: how often and how far from it.

Demand that is rare, uptime that is mostly 1, shares that are mostly 100 %.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from fourier_head.forecasting.patch.seasons import FURTHER

USUAL = 0.8
"""Share of one value from which on others are rare. A lower one for amounts is better for made-up series and worse for
real ones, see results/zero-shot/plan.md."""
HALF_LIFE = 200
"""Steps after which a step of the past counts half."""
REGULAR = 0.5
"""Share of when other values came that a season explains from which on that is left to the network."""
LASTING = 0.3
"""Correlation of when others came with the step before, from which on they are like rain or power."""
CYCLES = 3
"""Cycles of a season that must be there for it to explain anything."""
RECENT = 200
"""Steps at the end of a past, any stretch of which must go with the rate."""
CHANCE = 6.0
"""Logarithm of how much likelier a stretch may be at its own rate than at that of the series."""


@dataclass(frozen=True)
class Jumps:
    """A distribution of few values.

    Args:
        values: ascending.
        upto: the probability of outcomes up to each.

    Example:
        >>> jumps = Jumps.of(0.0, 0.2, np.array([2.0, 1.0]))
        >>> jumps.quantiles(np.array([0.5, 0.85, 0.95])), round(jumps.mean, 2)
        (array([0., 1., 2.]), 0.3)
        >>> jumps.below(np.array([-1.0, 0.0, 1.5]), "right")
        array([0. , 0.8, 0.9])
    """

    values: np.ndarray
    upto: np.ndarray

    @classmethod
    def of(cls, usual: float, rate: float, others: np.ndarray) -> Jumps:
        """Return that of a usual value and of others, all of them above or below it, of which one comes at a rate."""
        others = np.sort(others)
        above, share = others[0] > usual, np.arange(1, len(others) + 1) / len(others)
        values = np.append(usual, others) if above else np.append(others, usual)
        return cls(values, np.append(1 - rate, 1 - rate + rate * share) if above else np.append(rate * share, 1.0))

    def quantiles(self, level: np.ndarray) -> np.ndarray:
        """Return quantiles at levels of any shape."""
        place = np.searchsorted(self.upto, level - 1e-9)
        return self.values[place.clip(max=len(self.values) - 1)]

    @property
    def mean(self) -> float:
        """The mean."""
        return float(self.values @ np.diff(self.upto, prepend=0.0))

    def below(self, x: np.ndarray, side: str) -> np.ndarray:
        """Return the probability of outcomes below values ("left") or up to them ("right")."""
        place = np.searchsorted(self.values, x, "left" if side == "left" else "right")
        return np.append(0.0, self.upto)[place]


@dataclass
class Rare:
    """What is known of series that are mostly at one value.

    Args:
        jumps: of each of these series, by its number, what it may be.
    """

    jumps: dict[int, Jumps] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.jumps)

    def __iter__(self) -> Iterator[int]:
        """Go through the numbers of these series."""
        return iter(self.jumps)

    def read(self, number: int, values: np.ndarray, period: int = 1, top: bool = False) -> None:
        """Take a series up where any value but its least is rare, or with ``top`` any but its largest.

        What is sold on Saturdays alone, or in the evening, is not rare then; nor is what falls for days on end, such as
        rain, where values are not whole numbers. Zeros before a launch do not count, and where a recent stretch has
        too many others or too few, as of what is no longer sold, nothing is known.

        >>> rare = Rare()
        >>> rare.read(3, np.array([0.0, 0.0, 0.0, 0.0, 0.0, 2.0, 0.0, 0.0, 0.0, 1.0]))
        >>> rare.jumps[3].upto.round(2), rare.jumps[3].values
        (array([0.8, 0.9, 1. ]), array([0., 1., 2.]))
        """
        known = ~np.isnan(values)
        usual = float(values[known].max() if top else values[known].min())
        other = known & (values != usual)
        launch = _launch(other, known)
        values, known, other = values[launch:], known[launch:], other[launch:]
        hits, others = other[known], values[other]
        if not len(others) or len(hits) - len(others) < USUAL * len(hits):
            return
        if any(_explained(hits, known, season) >= REGULAR for season in (period, *FURTHER.get(period, ()))):
            return
        if (usual % 1 or (others % 1).any()) and _lasts(hits):
            return
        weight = known * 0.5 ** (np.arange(len(values) - 1, -1, -1) / HALF_LIFE)
        rate = float(weight[other].sum() / weight.sum())
        if _unlike(hits[: -RECENT - 1 : -1], rate) > CHANCE:
            return
        self.jumps[number] = Jumps.of(usual, rate, others)

    def __getitem__(self, rows: slice) -> Rare:
        """Return what is known of consecutive series, counted anew."""
        first, last = rows.start or 0, np.inf if rows.stop is None else rows.stop
        return Rare({number - first: one for number, one in self.jumps.items() if first <= number < last})

    def put(self, values: np.ndarray, level: np.ndarray) -> np.ndarray:
        """Return quantiles or samples (series, ...) with those of these series in their places, at levels like them."""
        level = np.broadcast_to(level, values.shape)
        for number, jumps in self.jumps.items():
            values[number] = jumps.quantiles(level[number])
        return values

    def mean(self, means: np.ndarray) -> np.ndarray:
        """Return means (series, horizon) with those of these series in their places."""
        for number, jumps in self.jumps.items():
            means[number] = jumps.mean
        return means

    def upto(self, values: np.ndarray, level: np.ndarray) -> np.ndarray:
        """Return probabilities (..., series, horizon) of outcomes up to values, those of these series in their places.

        >>> Rare({0: Jumps.of(0.0, 0.2, np.array([1.0, 2.0]))}).upto(np.array([[-1.0, 0.0, 1.5]]), np.zeros((1, 3)))
        array([[0. , 0.8, 0.9]])
        """
        for number, jumps in self.jumps.items():
            level[..., number, :] = jumps.below(values[..., number, :], "right")
        return level

    def levels(self, values: np.ndarray, level: np.ndarray) -> np.ndarray:
        """Return levels (series, horizon) of outcomes, of these series the middles of their jumps."""
        for number, jumps in self.jumps.items():
            x = values[number]
            middle = (jumps.below(x, "left") + jumps.below(x, "right")) / 2
            level[number] = np.where(np.isnan(x), np.nan, middle)
        return level


def _lasts(other: np.ndarray) -> bool:
    """Return whether other values come for steps on end."""
    with np.errstate(invalid="ignore"):
        return bool(np.corrcoef(other[1:], other[:-1])[0, 1] >= LASTING)


def _launch(other: np.ndarray, known: np.ndarray) -> int:
    """Return the first step that is not usual where the usual ones before are too many to be chance, else 0.

    >>> sold = np.repeat([False, True], [60, 20])
    >>> _launch(sold, np.ones(80, dtype=bool)), _launch(sold[55:], np.ones(25, dtype=bool))
    (60, 5)
    >>> _launch(np.arange(80) % 10 == 9, np.ones(80, dtype=bool))
    0
    """
    first = int(other.argmax())
    found, count = int(other[first + 1 :].sum()), int(known[first + 1 :].sum())
    apart, together = (_surprise(found, steps) for steps in (count, count + int(known[:first].sum())))
    return first if together - apart > CHANCE else 0


def _surprise(found: int, count: int) -> float:
    """Return the negative log-likelihood of so many hits at their own rate."""
    return -sum(one * math.log(one / count) for one in (found, count - found) if one)


def _unlike(hits: np.ndarray, rate: float) -> float:
    """Return how much likelier any beginning of hits and misses is at its own rate than at this one, a logarithm.

    >>> [round(_unlike(np.zeros(count), 0.2), 2) for count in (0, 10, 30)]
    [0.0, 2.23, 6.69]
    """
    count, found = np.arange(len(hits) + 1), np.append(0, np.cumsum(hits))
    own = found / np.maximum(count, 1)
    # Where there are none, or all are, that term is zero, whatever its logarithm.
    more = found * np.log(np.maximum(own, 1e-9) / rate)
    less = (count - found) * np.log(np.maximum(1 - own, 1e-9) / (1 - rate))
    return float((more + less).max())


def _explained(other: np.ndarray, known: np.ndarray, season: int) -> float:
    """Return which share of when other values came the steps of a season explain, chance taken off.

    Args:
        other: whether one came, at the steps that are known.
        known: which steps are.

    Example:
        >>> saturdays = np.arange(60) % 7 == 5
        >>> every = np.ones(60, dtype=bool)
        >>> [bool(_explained(saturdays, every, season) > 0.5) for season in (7, 5)]
        [True, False]
    """
    if not 1 < season <= len(other) / CYCLES:
        return 0.0
    phase = (np.arange(len(known)) % season)[known]
    count, hits = np.bincount(phase, minlength=season), np.bincount(phase, other, minlength=season)
    within, rate = float((hits - hits**2 / np.maximum(count, 1)).sum()), float(other.mean())
    left, free = within / max(1, len(other) - int((count > 0).sum())), len(other) - 1
    total = rate * (1 - rate) * len(other) / free
    return 1 - left / total if total else 0.0
