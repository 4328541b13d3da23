"""Which weekdays a month has five times, how long it is, and whether Easter falls into it: what that does to a series.

What is sold, born or driven in a month depends on this, and a network that reads values without dates cannot know it.
Official statistics take it off by a regression on the counts (Young 1965; X-11, X-13); so does this, for series of
months that are never zero or below, of the logarithm, after the filter of the airline model of Box and Jenkins, which
leaves of a trend and a season as good as nothing. The counts that pay for their number by the criterion of Schwarz
stay, if any do.
"""

from __future__ import annotations

from collections import defaultdict
from functools import lru_cache

import numpy as np

from fourier_head.forecasting.anniversaries import easter
from fourier_head.forecasting.calendars import ONE_MONTH
from fourier_head.forecasting.series_set import SeriesSet

YEAR, WEEK = 12, 7
FEWEST, LONGEST = 60, 240
"""Months that must be there, and that are looked at, at most."""
KNOWN = 0.9
"""Share of months that must have a value."""
REGULAR, SEASONAL = 0.6, 0.6
"""Of the airline model: how much of one month's shock is gone a month later, and a year later."""
BEFORE_EASTER = 8
"""Days before Easter on which it is felt."""
WORKING, EVERY, EASTER = (0, 1), tuple(range(2, 2 + WEEK)), (2 + WEEK,)
"""Columns of the counts: working days against the others, and length; each weekday by itself; Easter."""
CHOICES = (EVERY + EASTER, EVERY, WORKING + EASTER, WORKING, EASTER)
"""Columns that may count together, the most first."""
CLEAR = 4.0
"""What a choice must gain beyond the criterion, twice the logarithm of the odds that a series shows none."""
OUTLIER, OUTLIERS = 5.0, 6
"""Deviations from which on a month says nothing, and how many of them there may be."""
CUT, ROUNDS = 2.0, 3
"""Deviations that what is left of a month counts for at most, and how often that is worked out."""
MOST = float(np.log(2))
"""Of the logarithm of what a month has more or less: a fifth Saturday adds a quarter where nothing else is sold, and
what is twice as much is noise of a series that changes by more than that anyway."""
AT_ONCE = 1 << 19
"""Values looked at together, which keeps what is worked out of them in caches and small."""


def without_trading_days(series: SeriesSet, horizon: int) -> tuple[list[np.ndarray], np.ndarray | None, list[int]]:
    """Return pasts without these effects, what they multiply the next steps by (series, horizon), and which have any.

    Only series of months with dates, five years and no value of zero or below are looked at; the factor is None where
    none of them has an effect.
    """
    alike: dict[tuple[np.datetime64, int], list[int]] = defaultdict(list)
    for number, (past, calendar) in enumerate(zip(series.values, series.calendars, strict=True)):
        if calendar is None or calendar.months != 1 or len(past) < FEWEST or np.isnat(series.last[number]):
            continue
        length = min(len(past), LONGEST) // YEAR * YEAR  # of whole years, so that many series share a length
        known = past[-length:][~np.isnan(past[-length:])]
        if len(known) >= KNOWN * length and (known > 0).all():
            last = series.local_end(number).astype("datetime64[M]")
            alike[last, length].append(number)
    values, factor, numbers, size = series.values, None, [], AT_ONCE // LONGEST
    # Of many series of one date some at a time.
    parts = ((*key, group[at : at + size]) for key, group in alike.items() for at in range(0, len(group), size))
    for last, length, group in parts:
        logs = np.log(np.stack([series.values[number][-length:] for number in group], axis=1))
        found = coefficients(_filled(logs), last)
        for place in np.flatnonzero(found.any(0)):
            number = group[place]
            effect = counts(last, len(values[number]), horizon) @ found[:, place]
            if np.abs(effect).max() > MOST:
                continue
            if factor is None:
                values, factor = list(values), np.ones((len(series), horizon))
            effect = np.exp(effect)
            values[number] = values[number] / effect[:-horizon]
            factor[number] = effect[-horizon:]
            numbers.append(number)
    return values, factor, sorted(numbers)


def coefficients(logs: np.ndarray, last: np.datetime64) -> np.ndarray:
    """Return what counts (columns, series) do to logarithms (months, series) up to a month, 0 where nothing shows."""
    designs = _designs(last, len(logs))
    noise = _airline(_without_outliers(logs, *designs[0][1:]))
    rows, out = len(noise), np.zeros((EASTER[0] + 1, logs.shape[1]))
    best = np.full(logs.shape[1], CLEAR)
    size = _spread(noise - designs[0][1] @ (designs[0][2] @ noise))  # of what all counts together leave
    for columns, design, inverse in designs:
        near = noise
        for _ in range(ROUNDS):
            found = inverse @ near
            said = design @ found
            near = said + (noise - said).clip(-CUT * size, CUT * size)
        with np.errstate(all="ignore"):
            gain = rows * np.log(_loss(noise, size) / _loss(noise - said, size))
            score = gain - len(columns) * np.log(rows)
            better = score > best
            # Coefficients of few months are noise in part: on average so much of what they seem to explain.
            found = found * (1 - len(columns) / gain)
        out[:, better] = 0
        out[np.ix_(columns, better)] = found[:, better]
        best = np.where(better, score, best)
    return out


@lru_cache(maxsize=64)
def counts(last: np.datetime64, length: int, horizon: int) -> np.ndarray:
    """Return the counts (months, columns) of months up to one and after it, less what is usual in that month of a year.

    >>> found = counts(np.datetime64("2024-02"), 2, 1)  # a leap year, and Easter on 31 March
    >>> found[:, WORKING[1]].round(2).tolist(), found[:, EASTER[0]].round(2).tolist()
    ([0.0, 0.76, 0.0], [0.0, 0.0, 0.63])
    """
    months = last + np.arange(1 - length, horizon + 1)
    return _counts(months) - _usual()[months.astype(int) % YEAR]


@lru_cache(maxsize=1)
def _usual() -> np.ndarray:
    """Return the mean counts (12, columns) over the 400 years after which weekdays come again."""
    every = _counts(np.arange("1900-01", "2300-01", dtype="datetime64[M]"))
    return every.reshape(-1, YEAR, every.shape[1]).mean(0)


def _counts(months: np.ndarray) -> np.ndarray:
    first, after = (one.astype("datetime64[D]") for one in (months, months + ONE_MONTH))
    length, start = (after - first).astype(int)[:, None], (first.astype(int)[:, None] + 3) % WEEK
    days = 4.0 + ((np.arange(WEEK) - start) % WEEK < length - 4 * WEEK)  # from Monday on
    working = days[:, :5].sum(1) - 2.5 * days[:, 5:].sum(1)
    eve = easter(months.astype("datetime64[Y]"))[:, None] - np.arange(1, BEFORE_EASTER + 1)
    felt = ((first[:, None] <= eve) & (eve < after[:, None])).mean(1)
    return np.column_stack([working, days.sum(1), days, felt])


@lru_cache(maxsize=64)
def _designs(last: np.datetime64, length: int) -> list[tuple[tuple[int, ...], np.ndarray, np.ndarray]]:
    """Return the columns of each choice, their filtered counts, and the inverse of these."""
    every = _airline(counts(last, length, 0))
    return [(columns, every[:, columns], np.linalg.pinv(every[:, columns])) for columns in CHOICES]


def _airline(x: np.ndarray) -> np.ndarray:
    """Return what the airline model leaves of columns (months, k), 13 months shorter."""
    change = np.diff(x[YEAR:] - x[:-YEAR], axis=0)
    return _memory()[: len(change), : len(change)] @ change


@lru_cache(maxsize=1)
def _memory() -> np.ndarray:
    """Return the matrix that undoes the moving averages of the airline model."""
    rows = np.arange(LONGEST)
    answer = np.zeros(LONGEST + YEAR + 1)  # to a shock, after a year of nothing
    answer[YEAR + 1] = 1
    for t in range(YEAR + 2, len(answer)):
        answer[t] = REGULAR * answer[t - 1] + SEASONAL * (answer[t - YEAR] - REGULAR * answer[t - YEAR - 1])
    return np.tril(answer[YEAR + 1 + np.maximum(rows[:, None] - rows, 0)])


def _filled(logs: np.ndarray) -> np.ndarray:
    """Return logarithms (months, series) with what is missing taken from the year before, or after."""
    if not np.isnan(logs).any():
        return logs
    for way in (1, -1):  # in turned time, so that the second round looks ahead
        turned = logs[::way].copy()
        for t in range(YEAR, len(turned)):
            turned[t] = np.where(np.isnan(turned[t]), turned[t - YEAR], turned[t])
        logs = turned[::way]
    return logs


def _without_outliers(logs: np.ndarray, design: np.ndarray, inverse: np.ndarray) -> np.ndarray:
    """Return logarithms (months, series) with months that no count explains in the place they were expected at.

    One such month would leave its mark on years of what the model leaves.
    """
    for _ in range(OUTLIERS):
        noise = _airline(logs)
        rest = noise - design @ (inverse @ noise)
        month = np.abs(rest).argmax(0)
        off = np.take_along_axis(rest, month[None], axis=0)[0]
        found = np.flatnonzero(np.abs(off) > OUTLIER * _spread(rest))
        if not len(found):
            break
        logs = logs.copy()
        logs[month[found] + YEAR + 1, found] -= off[found]
    return logs


def _spread(rest: np.ndarray) -> np.ndarray:
    """Return the deviation (series,) of columns, by their median size."""
    return 1.4826 * np.median(np.abs(rest), axis=0)


def _loss(rest: np.ndarray, size: np.ndarray) -> np.ndarray:
    """Return the loss of Huber (series,), squares within so many deviations."""
    far, edge = np.abs(rest), CUT * size
    return np.where(far < edge, far**2, (2 * far - edge) * edge).sum(0)
