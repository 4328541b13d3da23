"""What a forecaster does beside its network, whatever its weights: few rules, each judged by a series' own past.

One absurd value counts as missing; a season longer than the network reads is taken off and put back; a few values on
one line go on along it. `anniversaries.py` and `trading_days.py` have what the calendar tells, `support.py` what values
can come, `rare.py` those that rarely do, `views.py` the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from fourier_head.forecasting.anniversaries import without_anniversaries
from fourier_head.forecasting.patch.multiscale import MultiscaleConfig
from fourier_head.forecasting.patch.seasons import FURTHER
from fourier_head.forecasting.series_set import SeriesSet
from fourier_head.forecasting.trading_days import without_trading_days

OTHERS = 12
"""Values that must lie beside one for it to be called absurd."""
ABSURD = 8.0
"""Ranges of all other values that it must lie beyond them."""
LINE = range(3, 12)
"""Numbers of values that may be too few for the network and yet show a line."""
CYCLES = 6
"""Past cycles that a profile is the mean of, at most."""
LEAST_GAIN = 0.5
"""Share of what a profile is to explain that it must have explained in the last cycle, known from those before it."""
CLEAR, CLEARLY = 0.8, 3
"""The same share of a season that the network reads: so regular that it is not left to the network; and cycles that
must be there."""
ALIKE = 0.5
"""Share of the last cycle of such a season that it may differ from the one before; few series come so far."""
FARTHER = {3600: 86400}
"""Seasons of a period that the network is not told of, being longer than it reads: the day of a second."""
AT_ONCE = 1 << 21
"""Values looked at together."""
ALONE = 0.8
"""How much of a single cycle is taken to be signal."""
SMOOTHED = 192
"""Steps of a profile that may differ freely: longer ones are means over neighbours."""
IN_WORDS = {
    "absurd": "one absurd value left out",
    "line": "a short line gone on along",
    "profile": "a long or very regular season",
    "anniversaries": "holidays and other anniversaries",
    "trading_days": "the weekdays of months",
    "recent": "views of the last values",
    "coarser": "coarser views far ahead",
    "rare": "rare demand or rare dips",
    "bounds": "bounds that were hit again and again",
    "closed": "times of the week or day without any value left empty",
}
"""What rules do, as pages say it."""


@dataclass(frozen=True)
class Rules:
    """What rules made of series.

    Args:
        series: what the network is to read.
        shift: (series, horizon) to add to its forecasts, None where there is nothing to add.
        profile, line: numbers of the series that each rule was used on.
        unseen: the season of each series that neither the network nor a rule sees, 0 where there is none.
        absurd: numbers of the series that one value was left out of.
        coarser: numbers of the series that a coarser view counted for, see `coarser.py`.
        recent: numbers of the series that views of their last values counted for, see `recent.py`.
        anniversaries: numbers of the series of days in which days of the calendar stand out, see `anniversaries.py`.
        trading_days: numbers of the series of months that follow the weekdays in them, see `trading_days.py`.
        rare, bounds: numbers of the series of rare demand or rare dips, and of those with bounds, see `support.py`.
        closed: numbers of the series some of whose steps to come are closed, see `closed.py`.
        factor: (series, horizon) to multiply its forecasts by after that, None where there is nothing to multiply by.
    """

    series: SeriesSet = field(repr=False)
    shift: np.ndarray | None = field(repr=False)
    profile: list[int]
    line: list[int]
    unseen: np.ndarray
    absurd: list[int] = field(default_factory=list)
    coarser: list[int] = field(default_factory=list)
    recent: list[int] = field(default_factory=list)
    anniversaries: list[int] = field(default_factory=list)
    trading_days: list[int] = field(default_factory=list)
    rare: list[int] = field(default_factory=list)
    bounds: list[int] = field(default_factory=list)
    closed: list[int] = field(default_factory=list)
    factor: np.ndarray | None = field(default=None, repr=False)

    @property
    def changed(self) -> bool:
        """Whether any series is read otherwise than as it was given."""
        return self.shift is not None or self.factor is not None

    @property
    def used(self) -> dict[str, int]:
        """What was done beside the network, in words, and for how many series."""
        counts = {words: len(set(getattr(self, name))) for name, words in IN_WORDS.items()}
        return {words: count for words, count in counts.items() if count}

    def put_back(
        self, factor: np.ndarray | None = None, shift: np.ndarray | None = None
    ) -> tuple[np.ndarray | None, np.ndarray | None]:
        """Return the factor and shift of forecasts, None where there is none, after those of views."""
        if self.shift is not None:
            shift = self.shift if shift is None else shift + self.shift
        if self.factor is not None:
            factor = self.factor if factor is None else factor * self.factor
            shift = None if shift is None else shift * self.factor
        return factor, shift

    def words(self, reads: int) -> str | None:
        """Return what a user should know of seasons that are not seen, None where there is nothing to say."""
        numbers = np.flatnonzero(self.unseen)
        if not len(numbers):
            return None
        season = int(self.unseen[numbers].max())
        return (
            f"the network reads {reads:,} values, less than the season of {season:,} steps that {len(numbers):,} of "
            f"{len(self.unseen):,} series may have, and their past does not show it clearly enough to take it from "
            "there; steps averaged to a longer frequency would be read further back."
        )


def apply_rules(series: SeriesSet, horizon: int, config: MultiscaleConfig) -> Rules:
    """Return what rules make of series before a network of this shape reads them."""
    values, factor, monthly = without_trading_days(series, horizon)
    series = series if factor is None else replace(series, values=values)
    values, shift, yearly = without_anniversaries(series, horizon)
    used: dict[str, list[int]] = {"profile": [], "line": [], "anniversaries": yearly, "trading_days": monthly}
    unseen = np.zeros(len(series), dtype=np.int64)
    lengths, periods = np.array([len(one) for one in values]), series.periods
    kinds, kind = np.unique(periods, return_inverse=True)
    beyond = {period: seasons_beyond(period, config) for period in kinds.tolist()}
    concerned = lengths <= LINE[-1]
    for place, seasons in enumerate(beyond.values()):
        for season, within in seasons:
            rows = np.flatnonzero((kind == place) & (lengths >= season))
            if 2 * season <= config.context:
                rows = _alike(values, rows[lengths[rows] >= CLEARLY * season], season, within)
            concerned[rows] = True
    # Many series, of which rules concern few: only these are looked at one by one.
    for number in np.flatnonzero(concerned).tolist():
        past, after = values[number], np.zeros(horizon)
        if (slope := slope_of_line(past)) is not None:
            past = past - slope * (np.arange(1, len(past) + 1) - len(past))
            after = slope * np.minimum(np.arange(1, horizon + 1), len(past))
            used["line"].append(number)
        for season, within in beyond[int(periods[number])]:
            read = 2 * season <= config.context
            found = profile_of(past, season, within, *((CLEAR, CLEARLY) if read else ()))
            if found is not None:
                time = np.arange(-len(past), horizon) % season
                past, after = past - found[time[: len(past)]], after + found[time[len(past) :]]
                used["profile"].append(number)
            elif season > config.context and len(past) >= season:
                unseen[number] = season
        if after.any():
            shift = np.zeros((len(series), horizon)) if shift is None else shift
            values = list(values) if values is series.values else values
            values[number] = past
            shift[number] += after
    series = series if shift is None else replace(series, values=values)
    return Rules(series, shift, **used, unseen=unseen, factor=factor)


def without_absurd(contexts: Tensor) -> tuple[Tensor, Tensor]:
    """Return pasts (B, C) whose one value that has nothing to do with any other is missing, and which they are (B,).

    >>> usual = torch.from_numpy(np.random.default_rng(0).normal(100, 3, 60))
    >>> pasts = torch.stack([torch.cat([usual, torch.tensor(end)]) for end in ([1000.0], [130.0])])
    >>> found, which = without_absurd(pasts)
    >>> which.tolist(), bool(found[0, -1].isnan())
    ([True, False], True)
    """
    seen = ~contexts.isnan()
    if contexts.shape[-1] < 2:
        return contexts, torch.zeros(len(contexts), dtype=torch.bool)
    high = torch.where(seen, contexts, -torch.inf).topk(2, dim=-1)
    low = torch.where(seen, contexts, torch.inf).topk(2, dim=-1, largest=False)
    enough = seen.sum(-1) > OTHERS
    above, below = high.values[:, 1] - low.values[:, 0], high.values[:, 0] - low.values[:, 1]
    up = enough & (above > 0) & (high.values[:, 0] - high.values[:, 1] > ABSURD * above)
    down = enough & (below > 0) & (low.values[:, 1] - low.values[:, 0] > ABSURD * below)
    which = up | down
    if which.any():
        rows = which.nonzero().flatten()
        contexts = contexts.clone()
        contexts[rows, torch.where(up, high.indices[:, 0], low.indices[:, 0])[rows]] = torch.nan
    return contexts, which


def slope_of_line(values: np.ndarray) -> float | None:
    """Return the slope of a few values that all lie on one line which rises or falls, else None.

    >>> slope_of_line(np.array([1.0, 2.0, 3.0])), slope_of_line(np.array([1.0, 2.0, 4.0]))
    (1.0, None)
    """
    if len(values) not in LINE or np.isnan(values).any():
        return None
    slope = float(values[-1] - values[0]) / (len(values) - 1)
    line = values[0] + slope * np.arange(len(values))
    return slope if slope and np.abs(values - line).max() <= 1e-9 * np.abs(values).max() else None


def seasons_beyond(period: int, config: MultiscaleConfig) -> list[tuple[int, int]]:
    """Return seasons that a profile may be taken of, each with the one inside of it that the network takes care of.

    These are the week of a day and the year of a week, and what the network reads too little of.

    >>> [seasons_beyond(period, MultiscaleConfig()) for period in (12, 24, 1440, 3600)]
    [[], [(168, 24)], [(10080, 1440)], [(86400, 3600)]]
    """
    longer = FARTHER.get(period) or FURTHER.get(period, (1, 1))[0]
    out = [(period, 1)] if period > config.context else []
    # A whole number of the told ones: the week of a day, the year of a week.
    return out + ([(longer, period)] if longer > period and longer % period == 0 else [])


def profile_of(
    values: np.ndarray, season: int, within: int, least: float = LEAST_GAIN, fewest: int = 2
) -> np.ndarray | None:
    """Return what each phase (season,) adds to a series, phase 0 at the first future step, or None.

    The means of past cycles, shrunk by how much cycles differ. The last cycle must have been explained by those before.

    Args:
        values: the past.
        season: steps of a cycle.
        within: a season inside of it, such as the day of a week, that is not to be taken off; 1 for none.
        least: share of the last cycle that those before it must explain.
        fewest: cycles that must be there.

    Example:
        >>> week = np.repeat([0.0, 0.0, 0.0, 0.0, 0.0, 7.0, 7.0], 24)
        >>> profile_of(np.tile(week, 4), 168, 24).round().reshape(7, 24)[:, 0].tolist()
        [-2.0, -2.0, -2.0, -2.0, -2.0, 5.0, 5.0]
    """
    count = min(CYCLES, len(values) // season)
    if count < fewest:
        return None
    cycles = values[len(values) - count * season :].reshape(count, season)
    with np.errstate(invalid="ignore"):
        known = ~np.isnan(cycles)
        if known.mean() < 0.5 or not known.any(0).all():
            return None
        change = (cycles[1:] - cycles[:-1]).ravel()
        slope = float(np.median(change[~np.isnan(change)])) / season if (~np.isnan(change)).any() else 0.0
        straight = cycles - slope * (np.arange(season) - (season - 1) / 2)
        own = _without_inner(straight, within)
        last, before = own[-1], _smooth(_mean(own[:-1]))
        there = ~np.isnan(last) & ~np.isnan(before)
        size = float(np.abs(last[there]).sum())
        explained = 1 - float(np.abs(last - _trust(own[:-1]) * before)[there].sum()) / size if size else 0.0
    if explained < least:
        return None
    return np.nan_to_num(_trust(own) * _smooth(_mean(own)))


def _alike(values: Sequence[np.ndarray], rows: np.ndarray, season: int, within: int) -> np.ndarray:
    """Return which of some series, by their numbers, end with two cycles that are alike, the season inside taken off.

    >>> week = np.repeat([0.0, 0.0, 0.0, 0.0, 0.0, 7.0, 7.0], 24)
    >>> _alike([np.tile(week, 3), np.random.default_rng(0).normal(size=504)], np.arange(2), 168, 24)
    array([0])
    """
    out = [rows[:0]]
    for part in np.split(rows, range(size := max(1, AT_ONCE // (2 * season)), len(rows), size)):
        if len(part):
            cycles = np.stack([values[number][-2 * season :] for number in part]).reshape(-1, season)
            own = _without_inner(cycles, within).reshape(len(part), 2, season)
            change, last = np.nansum(abs(own[:, 1] - own[:, 0]), axis=1), np.nansum(abs(own[:, 1]), axis=1)
            out.append(part[change < ALIKE * last])
    return np.concatenate(out)


def _without_inner(cycles: np.ndarray, within: int) -> np.ndarray:
    """Return cycles (count, season) without their means, taken at every phase of the season inside."""
    days = cycles.reshape(len(cycles), -1, within)
    return (days - _mean(days.swapaxes(0, 1))[:, None]).reshape(cycles.shape)


def _mean(x: np.ndarray) -> np.ndarray:
    """Return means over the first dimension of what is there."""
    known = ~np.isnan(x)
    count = known.sum(0)
    return np.where(count > 0, np.where(known, x, 0).sum(0) / np.maximum(count, 1), np.nan)


def _trust(own: np.ndarray) -> float:
    """Return how much of the mean of cycles (count, season) is signal, as is usual where one cycle cannot say."""
    if len(own) < 2:
        return ALONE
    mean = _mean(own)
    noise = float(np.nanmean((own - mean) ** 2)) * len(own) / (len(own) - 1)
    total = float(np.nanmean(mean**2))
    return max(0.0, 1 - noise / len(own) / total) if total > 0 else 0.0


def _smooth(profile: np.ndarray) -> np.ndarray:
    """Return the means over a few neighbours, around the cycle."""
    width = 15 if len(profile) == 364 else 2 * (len(profile) // SMOOTHED // 2) + 1
    if width == 1:
        return profile
    around = np.concatenate([profile[-(width // 2) :], profile, profile[: width // 2]])
    return np.convolve(np.nan_to_num(around, nan=float(np.nanmean(profile))), np.ones(width) / width, mode="valid")
