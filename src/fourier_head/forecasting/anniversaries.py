"""What happens every year on a day of the calendar: 25 December, the fourth Thursday of November, Good Friday.

A network that knows the week, and the year as whole weeks, cannot see this. What is usual is the median of the same
weekday in the weeks around a day, and a day's rest what it has above that, in shares of the level of those weeks where
a series is never below zero. Days with the same label have like rests year after year, or, as a holiday is like a
Sunday, stand alike above the level whatever their weekday. Labels whose mean stands out of the noise are taken one by
one, the clearest first. A series uses them if those found without one of its years explain enough of that year.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from fourier_head.forecasting.calendars import ONE_MONTH
from fourier_head.forecasting.series_set import SeriesSet

WEEK = 7
DAY = 86400 * 10**9
AROUND = 6
"""Weeks before a day, and after it, that say what is usual."""
LOWEST = 0.2
"""Share of the mean of all values that a level counts for at least."""
YEAR, YEARS = 365, 8
"""Days of a year; years that are looked at, at most."""
FEWEST = 2
"""Years that must be there, and times that a label must have been seen."""
CLEAR, CLEAR_ONCE = 4.0, 3.0
"""Standard errors of a label's mean from which on it counts; where another year is to confirm it, fewer."""
PRIOR = 4.0
"""Years that the noise of all days counts for, beside those of a label itself."""
LEAST_GAIN, SURE = 0.3, 2.0
"""Share of its labelled days that years must have explained by the others, and how far beyond chance."""
MOST = 75
"""Labels of a series: where more stand out, it is a season that does."""
FAMILIES = np.cumsum([0, 12 * 31, 12 * WEEK * 5, 12 * WEEK, 113])
"""Where labels begin: day and month; n-th weekday of a month; its last one; days from Easter. The end is no label."""
NONE = int(FAMILIES[-1])
NEXT = 2.0
"""What the score of a date is multiplied by where the one before or after it stands out: such days come in runs."""
PREFERRED = np.where(np.arange(NONE + 1) < FAMILIES[1], 1.0, 0.85)
"""What scores are multiplied by before they compete: a run of days, such as all of December, is one of dates."""


@dataclass(frozen=True)
class Found:
    """Labels of a series that stand out.

    Args:
        effect: of every label (labels + 1,), 0 for most.
        instead: share of what is usual on a weekday that an effect stands in place of, 0 for those that add to it.
    """

    effect: np.ndarray
    instead: np.ndarray

    def on(self, labels: np.ndarray, usual: np.ndarray) -> np.ndarray:
        """Return what labels (families, days) add to days whose usual value lies so far above the level."""
        return (self.effect[labels] - self.instead[labels] * usual).sum(0)


def without_anniversaries(series: SeriesSet, horizon: int) -> tuple[list[np.ndarray], np.ndarray | None, list[int]]:
    """Return pasts without their anniversaries, what those add to the next steps (series, horizon), and which have any.

    Only series of days with dates and years enough are looked at; None is added where none of them has any.
    """
    values, shift, numbers = series.values, None, []
    for number, (past, calendar) in enumerate(zip(series.values, series.calendars, strict=True)):
        days = calendar is not None and calendar.nanoseconds == DAY and not np.isnat(series.last[number])
        if not days or len(past) < FEWEST * YEAR:
            continue
        last = series.local_end(number).astype("datetime64[D]")
        effect = effects_of(past[-YEARS * YEAR :], last, horizon)
        if effect is not None:
            if shift is None:
                values, shift = list(values), np.zeros((len(series), horizon))
            known = effect[:-horizon]
            values[number] = np.concatenate([past[: -len(known)], past[-len(known) :] - known])
            shift[number] = effect[-horizon:]
            numbers.append(number)
    return values, shift, numbers


def effects_of(past: np.ndarray, last: np.datetime64, horizon: int) -> np.ndarray | None:
    """Return what anniversaries add to days of the past and the next ones (length + horizon,), None where none shows.

    Args:
        past: values, the latest of them of the day ``last``.
        last: that day.
        horizon: days ahead.
    """
    if np.count_nonzero(np.nan_to_num(past)) < len(past) / 2:
        return None  # rare demand is none of these
    level, usual, rest = _against_usual(past)
    labels = _labels_around(last, len(past), horizon)
    known = labels[:, : len(past)]
    found = _find(rest, usual, known, FEWEST, CLEAR)
    if not 0 < np.count_nonzero(found.effect) <= MOST or not _holds(rest, usual, known):
        return None
    ahead = np.full(horizon, level[-1])
    return found.on(labels, np.append(usual, np.resize(usual[-WEEK:], horizon))) * np.append(level, ahead)


@lru_cache(maxsize=64)
def _labels_around(last: np.datetime64, length: int, horizon: int) -> np.ndarray:
    """Return the labels of so many days up to one, and after it; series often share them."""
    return labels_of(last + np.arange(1 - length, horizon + 1))


def labels_of(days: np.ndarray) -> np.ndarray:
    """Return the labels (families, days) of days.

    >>> first, second = labels_of(np.array(["2023-11-23", "2024-11-28"], "datetime64[D]")).T  # Thanksgiving
    >>> (first == second).tolist()
    [False, True, False, True]
    """
    month = days.astype("datetime64[M]")
    day, left = (days - month).astype(int), (month + ONE_MONTH - days).astype(int) - 1
    weekday = month.astype(int) % 12 * WEEK + days.astype(int) % WEEK
    year = days.astype("datetime64[Y]")
    from_easter = (days - easter(year)).astype(int)
    near = (from_easter >= -50) & (from_easter <= 62)
    families = (
        month.astype(int) % 12 * 31 + day,
        weekday * 5 + day // WEEK,
        np.where(left < WEEK, weekday, NONE),
        np.where(near, from_easter + 50, NONE),
    )
    return np.stack([np.minimum(one + at, NONE) for one, at in zip(families, FAMILIES[:-1], strict=True)])


def easter(years: np.ndarray) -> np.ndarray:
    """Return the days of Easter in years, by the algorithm of Meeus, Jones and Butcher.

    >>> easter(np.array(["2024", "2025"], "datetime64[Y]")).tolist()
    [datetime.date(2024, 3, 31), datetime.date(2025, 4, 20)]
    """
    year = years.astype(int) + 1970
    century, rest = year // 100, year % 100
    moon = (19 * (year % 19) + century - century // 4 - (century - (century + 8) // 25 + 1) // 3 + 15) % 30
    sunday = (32 + 2 * (century % 4) + 2 * (rest // 4) - moon - rest % 4) % WEEK
    day = moon + sunday - WEEK * ((year % 19 + 11 * moon + 22 * sunday) // 451) + 21  # days after the first of March
    leap = (year % 4 == 0) & ((year % 100 != 0) | (year % 400 == 0))
    return years.astype("datetime64[D]") + (day + 59 + leap)


def _against_usual(values: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the unit of each day, and in it how far the usual value is above the level and the value above that."""
    missing = -len(values) % WEEK
    weeks = np.concatenate([np.full(missing, np.nan), values]).reshape(-1, WEEK)
    near = _around(weeks)
    near[..., AROUND] = np.nan
    usual = _middle(near)
    # What is left where a season bends, the same for all days of some weeks.
    usual = usual + np.nan_to_num(_middle(_around(_middle(weeks - usual)[:, None])))
    mean = float(np.nanmean(values))
    known = ~np.isnan(usual)
    level = np.where(known.any(1), np.where(known, usual, 0).sum(1) / np.maximum(known.sum(1), 1), mean)
    level, usual = np.repeat(level, WEEK)[missing:], usual.ravel()[missing:]
    unit = np.maximum(level, LOWEST * mean) if mean > 0 and not (values < 0).any() else np.ones(len(values))
    return unit, np.nan_to_num((usual - level) / unit), (values - usual) / unit


def _around(weeks: np.ndarray) -> np.ndarray:
    """Return the weeks around each of some weeks (weeks, days) along a last dimension, NaN beyond the ends."""
    edge = np.full((AROUND, weeks.shape[1]), np.nan)
    near = np.lib.stride_tricks.sliding_window_view(np.concatenate([edge, weeks, edge]), 2 * AROUND + 1, axis=0)
    return near.copy()


def _middle(x: np.ndarray) -> np.ndarray:
    """Return medians along the last dimension of what is there, NaN where that are less than three values."""
    x = np.sort(x, axis=-1)
    count = (~np.isnan(x)).sum(-1)
    places = np.maximum(count - 1, 0) // 2, count // 2
    low, high = (np.take_along_axis(x, place[..., None], -1)[..., 0] for place in places)
    return np.where(count > 2, (low + high) / 2, np.nan)


def _holds(rest: np.ndarray, usual: np.ndarray, labels: np.ndarray) -> bool:
    """Tell whether labels found without one of the years explain enough of it, over all years, and lose in none."""
    size, saved = [np.zeros(0)], [np.zeros(0)]
    age = np.arange(len(rest))[::-1] // YEAR
    for left_out in range(len(rest) // YEAR):
        year = age == left_out
        said = _find(rest[~year], usual[~year], labels[:, ~year], 1, CLEAR_ONCE).on(labels[:, year], usual[year])
        concerned = (said != 0) & ~np.isnan(rest[year])
        size.append(np.abs(rest[year][concerned]))
        saved.append(size[-1] - np.abs(rest[year] - said)[concerned])
        if saved[-1].sum() < 0:
            return False
    gain = np.concatenate(saved)
    least = max(LEAST_GAIN * float(np.concatenate(size).sum()), SURE * float(np.sqrt((gain**2).sum())))
    return len(gain) > 1 and bool(gain.sum() >= least > 0)


def _find(rest: np.ndarray, usual: np.ndarray, labels: np.ndarray, fewest: int, clear: float) -> Found:
    """Return the labels that stand out, the clearest first, each judged by what those before it left."""
    known = ~np.isnan(rest)
    found = Found(np.zeros(NONE + 1), np.zeros(NONE + 1))
    size = np.sort(np.abs(rest[known]))
    # Of a normal distribution; the ninth decile where tails are heavier.
    noise = max(1.4826 * size[len(size) // 2], size[9 * len(size) // 10] / 1.645) if len(size) else 0.0
    if noise <= 0:
        return found
    rest, usual, labels = rest[known], usual[known], labels[:, known]
    # Above what is usual, above the level, and their squares; of days and summed up by label.
    days = np.stack([rest, rest + usual, rest**2, (rest + usual) ** 2], axis=1)
    sums = np.stack([_sums(labels, x) for x in days.T], axis=1)
    count = _sums(labels, np.ones(len(rest)))
    closed, weight = count < fewest, PREFERRED.copy()
    closed[NONE] = True
    score, whole = _scores(sums, count, noise)
    score[closed] = 0
    for _ in range(MOST + 1):
        label = int((score * weight).argmax())
        if score[label] * max(1.0, weight[label]) < clear:
            break
        if label < FAMILIES[1]:
            weight[[(label - 1) % FAMILIES[1], (label + 1) % FAMILIES[1]]] = NEXT
        trust, way = 1 - 1 / score[label] ** 2, int(whole[label])
        found.effect[label], found.instead[label] = trust * sums[label, way] / count[label], trust * way
        rows = np.flatnonzero(labels[np.searchsorted(FAMILIES, label, "right") - 1] == label)
        explained = found.effect[label] - found.instead[label] * usual[rows]
        after = days[rows, :2] - explained[:, None]
        after = np.concatenate([after, after**2], axis=1)
        touched = labels[:, rows].ravel()
        np.add.at(sums, touched, np.tile(after - days[rows], (len(labels), 1)))
        days[rows], closed[label] = after, True
        score[touched], whole[touched] = _scores(sums[touched], count[touched], noise)
        score[touched[closed[touched]]] = 0
    return found


def _scores(sums: np.ndarray, count: np.ndarray, noise: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the means of labels over their standard errors, and which stand in the place of what is usual."""
    many = np.maximum(count, 1)
    within = np.maximum(sums[:, 2:] - sums[:, :2] ** 2 / many[:, None], 0)
    # In its place only where that is clearly steadier.
    whole = within[:, 1] + PRIOR * noise**2 < within[:, 0]
    spread = (PRIOR * noise**2 + np.where(whole, within[:, 1], within[:, 0])) / (PRIOR + many - 1)
    return np.abs(sums[:, 0]) / np.sqrt(spread * many), whole


def _sums(labels: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return the sums of values (days,) over the days of every label."""
    return np.bincount(labels.ravel(), np.tile(values, len(labels)), NONE + 1)
