"""The study first-user: made-up series of which anyone can tell what should come next, with and without rules."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from rich.console import Console

from fourier_head._devices import chosen_device
from fourier_head.forecasting.forecaster import Forecaster
from studies.common import options
from studies.common.options import SILENT, option
from studies.common.report.summary import Row, Summary
from studies.common.results import row

RATES = (0.02, 0.05, 0.1)
BEFORE_CHRISTMAS = np.datetime64("2024-11-14")
"""The day that forecasts of dated series begin on."""
FIRST_MONTH = np.datetime64("2015-01")


@dataclass(frozen=True)
class Case:
    """Series with their outcomes.

    Args:
        name: in results.
        freq: of the steps.
        pasts, outcomes: of each series.
        rival: what the simple forecast beside is called, and its forecasts; None where the outcome itself is known.
        metric: "mae" (mean error of medians), "median", "mean", "mean_over_truth", or "beyond" (share of ends of 95 %
            intervals beyond what is possible).
        truth: what a mean is divided by.
        start: the first day or month of series that have dates.
        possible: the least and the largest value that is.
    """

    name: str
    freq: str | None
    pasts: list[np.ndarray]
    outcomes: np.ndarray
    rival: tuple[str, np.ndarray] | None = None
    metric: str = "mae"
    truth: float = 1.0
    start: str | None = None
    possible: tuple[float, float] = (-np.inf, np.inf)

    @property
    def data(self) -> list[np.ndarray] | list[pd.Series]:
        """What a user would give: pasts, with their dates where they have any."""
        if self.start is None:
            return self.pasts
        return [pd.Series(one, pd.date_range(self.start, periods=len(one), freq=self.freq)) for one in self.pasts]


def cases(count: int) -> list[Case]:
    """Return all cases, with so many series in each, more of demand and of bounds, where few values tell anything."""
    usual = [np.random.default_rng(seed).normal(100, 3, 100) for seed in range(count)]
    outliers = [np.append(one, 1000.0) for one in usual]
    out = [Case("last value an outlier", "D", outliers, np.full((count, 14), 100.0), metric="median")]
    for rate in RATES:
        sold = np.random.default_rng(0).poisson(rate, (60 * count, 214)).astype(float)
        demand = Case(f"demand of rate {rate:g}", "D", [*sold[:, :200]], sold[:, 200:], None, "mean_over_truth", rate)
        out.append(demand)
    out += _kept_to(6 * count)
    week = np.array([0.0, 5.0, 10.0, 5.0, 0.0, -20.0, -30.0])
    out += [
        _seasonal("weekly season", "D", count, 200, 28, 6.0, lambda t: week[t % 7], (7,), 8),
        _seasonal("15 minutes, weekends", "15min", count, 672 * 5 + 96 * 4, 192, 3.0, _day_and_weekend(96), (672,), 5),
        _seasonal("minutes, a day", "min", count, 1440 * 5 + 100, 360, 3.0, _day(1440), (1440,), 5),
        _seasonal("hours, day and week", "h", count, 168 * 8 + 30, 168, 3.0, _day_and_weekend(24), (24, 168), 8),
    ]
    months = lambda t: 60.0 * (t % 12 == 11)  # noqa: E731
    out.append(_seasonal("December peak seen twice, months", "MS", count, 30, 12, 3.0, months, (12,), 2))
    days = lambda t: 60.0 * (t % 364 >= 334)  # noqa: E731
    out.append(_seasonal("December peak seen twice, days", "D", count, 2 * 364 + 320, 56, 3.0, days, (364,), 2))
    dated = (("December peak seen twice, dates", _december, 1048), ("holidays of five years, dates", _holidays, 1770))
    for name, season, past in dated:
        one = _seasonal(name, "D", count, past, 56, 3.0, season, (7, 364), past // 364)
        out.append(replace(one, start=str(BEFORE_CHRISTMAS - np.timedelta64(past, "D"))))
    shop = _seasonal("months of a shop, dates", "MS", count, 120, 12, 1.0, _shop, (12,), 10)
    out.append(replace(shop, start=str(FIRST_MONTH)))
    out.append(Case("1, 2, 3", None, [np.array([1.0, 2.0, 3.0])], np.array([[4.0, 5.0, 6.0]])))
    return out


def _kept_to(count: int) -> list[Case]:
    """Return cases of what series can take: products launched and discontinued, bounds, rare dips."""
    random = np.random.default_rng(0)
    launched = [np.append(np.zeros(250), random.poisson(20, 30)) for _ in range(count)]
    ended = [np.append(np.where(random.random(200) < 0.2, 3.0, 0.0), np.zeros(100)) for _ in range(count)]
    stars = random.integers(1, 6, (count, 214)).astype(float)
    shares = random.normal(97, 2.5, (count, 214)).clip(0, 100)
    up = (random.random((count, 214)) >= 0.05).astype(float)
    return [
        Case("launched 30 days ago", "D", launched, np.full((count, 14), 20.0), None, "mean_over_truth", 20.0),
        Case("discontinued 100 days ago", "D", ended, np.zeros((count, 14)), None, "mean"),
        Case("one to five stars", "D", [*stars[:, :200]], stars[:, 200:], None, "beyond", possible=(1.0, 5.0)),
        Case("shares up to 100 %", "D", [*shares[:, :200]], shares[:, 200:], None, "beyond", possible=(0.0, 100.0)),
        Case("up on 95 % of days", "D", [*up[:, :200]], up[:, 200:], None, "mean"),
    ]


def _seasonal(
    name: str,
    freq: str,
    count: int,
    past: int,
    horizon: int,
    noise: float,
    season: Callable[[np.ndarray], np.ndarray],
    periods: tuple[int, ...],
    cycles: int,
) -> Case:
    """Return a case of a level of 100, a season and normal noise, beside the means of past cycles."""
    random = np.random.default_rng(0)
    y = 100 + season(np.arange(past + horizon)) + random.normal(0, noise, (count, past + horizon))
    said = f"means of {cycles} cycles" if len(periods) == 1 else "decomposition by means of cycles"
    rival = np.stack([decomposed(one[:past], periods, cycles, horizon) for one in y])
    return Case(name, freq, [*y[:, :past]], y[:, past:], (said, rival))


def _december(t: np.ndarray) -> np.ndarray:
    """Return a peak of all of December, of days counted from the first of 1048 before `BEFORE_CHRISTMAS`."""
    return 60.0 * ((BEFORE_CHRISTMAS + (t - 1048)).astype("datetime64[M]").astype(int) % 12 == 11)


def _holidays(t: np.ndarray) -> np.ndarray:
    """Return a week, and what closes on five holidays of the United States, of days from 1770 before."""
    days = BEFORE_CHRISTMAS + (t - 1770)
    month, weekday = days.astype("datetime64[M]"), (days.astype(int) + 3) % 7
    day, number = (days - month).astype(int), month.astype(int) % 12
    closed = (day == 0) & (number == 0) | (day == 3) & (number == 6) | (day == 24) & (number == 11)
    closed |= (weekday == 3) & (number == 10) & (day // 7 == 3) | (weekday == 0) & (number == 4) & (day > 23)
    return np.where(closed, -60.0, np.array([0.0, 5.0, 10.0, 5.0, 0.0, -20.0, -30.0])[weekday])


def _shop(t: np.ndarray) -> np.ndarray:
    """Return what months bring that is not 100, of a shop that sells most on Saturdays and is closed on Sundays."""
    first, after = ((FIRST_MONTH + one).astype("datetime64[D]") for one in (t, t + 1))
    saturdays, sundays = (np.busday_count(first, after, weekmask=day) for day in ("Sat", "Sun"))
    return 3.0 * ((after - first).astype(int) - saturdays - sundays) + 8.0 * saturdays - 100.0


def _day(steps: int) -> Callable[[np.ndarray], np.ndarray]:
    return lambda t: 20 * np.sin(2 * np.pi * t / steps)


def _day_and_weekend(steps: int) -> Callable[[np.ndarray], np.ndarray]:
    return lambda t: 20 * np.sin(2 * np.pi * t / steps) - 40.0 * (t // steps % 7 > 4)


def decomposed(past: np.ndarray, periods: tuple[int, ...], cycles: int, horizon: int) -> np.ndarray:
    """Return the forecast that adds up the mean level and the mean cycle of each period, the shortest first.

    A plain additive decomposition over the last cycles of the longest period; no loess, as MSTL has it.

    >>> decomposed(np.tile([1.0, 2.0, 6.0], 4), (3,), 2, 4)
    array([1., 2., 6., 1.])
    """
    rest = past[-min(len(past), cycles * periods[-1]) :].copy()
    time, ahead = np.arange(-len(rest), 0), np.arange(horizon)
    out = np.full(horizon, rest.mean())
    rest -= rest.mean()
    for period in periods:
        phase = time % period
        cycle = np.bincount(phase, rest, period) / np.maximum(np.bincount(phase, minlength=period), 1)
        rest -= cycle[phase]
        out += cycle[ahead % period]
    return out


PROTOCOLS = ("as it is", "without rules")


@dataclass(frozen=True)
class Settings(options.Study):
    """What to forecast: so many series of each case, one with ``quick``."""

    study = "first-user"
    model: str = option("small", "Forecaster of the package, or a folder.", file=True)
    series: int = option(5, "Series of each case.", low=1)
    device: str = options.device(told=True)


def run(settings: Settings, console: Console = SILENT) -> Summary:
    """Forecast every case and write the folder."""
    device = chosen_device(settings.device)
    forecaster = Forecaster.from_pretrained(settings.model, device)
    rows: list[Row] = []
    for case in cases(1 if settings.quick else settings.series):
        found = _rows(forecaster, case)
        rows += found
        said = ", ".join(f"{one['protocol']} {one['ours']:.3g}" for one in found)
        console.print(f"{case.name}, {case.metric}: {said}")
    return settings.write(
        rows,
        gpu=device == "cuda",
        notes=[
            "Without rules is natural=False, rules=False: what the network alone says. Errors are those of medians, of "
            "outcomes with their noise; a median should be 100, a mean over its truth 1.",
            "Of what was discontinued the mean should be 0, where .6 were sold before; of days that are up 0.95.",
            "The decomposition adds the mean cycles of day and week; it stands in for MSTL, which is not at hand.",
        ],
        quick="one series of each case",
    )


def _rows(forecaster: Forecaster, case: Case) -> list[Row]:
    """Return what each way of forecasting scores on one case."""
    rows = []
    for protocol in PROTOCOLS:
        ruled = protocol == PROTOCOLS[0]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            horizon = case.outcomes.shape[1]
            forecasts = forecaster.predict(
                case.data, horizon, freq=case.freq, rules=ruled, natural=ruled, progress=False
            )
        if case.metric == "mean_over_truth":
            value = float(forecasts.mean.mean()) / case.truth
        elif case.metric == "mean":
            value = float(forecasts.mean.mean())
        elif case.metric == "beyond":
            low, high = np.moveaxis(forecasts.quantiles([0.025, 0.975]), -1, 0)
            value = float(np.mean([low < case.possible[0], high > case.possible[1]]))
        elif case.metric == "median":
            value = float(np.median(forecasts.median[:, 0]))
        else:
            value = float(np.abs(forecasts.median - case.outcomes).mean())
        rows.append(row(case.metric, value, dataset=case.name, head="fourier", protocol=protocol))
    if case.rival is not None:
        name, point = case.rival
        error = float(np.abs(point - case.outcomes).mean())
        rows.append(row(case.metric, error, dataset=case.name, protocol=name))
    return rows
