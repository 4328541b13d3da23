"""Choose between models without the evaluation sets: forecasts of whole series held out of the training data."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np
import torch

from fourier_head.forecasting.corpora.store import SeriesStore
from fourier_head.forecasting.evaluation import EvaluationSet, ScoreRow, evaluate_seasonal_naive
from fourier_head.forecasting.scores import COVERAGES

# Steps ahead that people forecast, by the period of a series; finer than hourly: two days or what the model reaches.
HORIZONS = {1: 6, 4: 8, 5: 20, 7: 28, 12: 18, 24: 48, 52: 8}
GROUPS = {1: "yearly or none", 4: "quarterly", 5: "daily", 7: "daily", 12: "monthly", 24: "hourly", 52: "weekly"}
FREQUENCIES = {1: "YE", 4: "QE", 5: "B", 7: "D", 12: "ME", 24: "h", 48: "30min", 52: "W", 96: "15min", 144: "10min",
               240: "15s", 288: "5min", 360: "10s", 1440: "1min", 3600: "1s"}  # fmt: skip
COVERAGE = ("interval_error", *COVERAGES)
SHORTEST = 8
"""Least length of the past that is left of a series."""
FAR = 10
"""Times the horizon that series of hours and finer ones are also forecast, as the medium horizons of GIFT-Eval are."""

HELD_OUT = 0.04
"""Share of the series of every set kept out of training, to choose between models on."""

HELD_OUT_SETS = (
    "gdp_growth_yearly", "tsdl_quarterly", "aus_retail", "us_employment_monthly", "french_wine_export_monthly",
    "avocado_weekly", "us_ili_weekly", "city_weather_weekly", "nyc_flights_daily", "chicago_ridership_daily",
    "irish_wind_daily", "online_retail_daily", "stocks_volume_daily", "seoul_bike_hourly", "nyc_taxi_zones_hourly",
    "us_grid_cal_elec_hourly", "lake_temperature_hourly", "valencia_air_hourly", "sgsc_smart_meters_30min",
    "parking_occupancy_30min", "call_center", "nrel_pv_15min", "tetuan_power_10min", "hangzhou_metro_10min",
    "los_loop_speed_5min", "azure_vm_cpu_periodic_5min", "nab_5min", "ms_cloud_monitoring_1min",
    "water_quality_gecco_1min", "web_requests_10s", "azure_llm_inference_1s",
)  # fmt: skip
"""Training sets that designs are chosen on: whole sets of every frequency, left out of training while choosing."""
CALIBRATION_SETS = HELD_OUT_SETS[::3]
"""Of these, sets that are left out for good, so that there are new series to fit the spread of forecasts on."""


def hold_out(store: SeriesStore) -> tuple[SeriesStore, SeriesStore]:
    """Return the series to train on and those to choose on, the same ones for every recipe."""
    return store.split(HELD_OUT, seed=0)


def hold_out_sets(store: SeriesStore, names: Iterable[str] = HELD_OUT_SETS) -> tuple[SeriesStore, SeriesStore]:
    """Return the series to train on and the whole sets to choose on."""
    numbers = torch.tensor([store.names.index(name) for name in names if name in store.names], dtype=torch.long)
    held = torch.isin(store.set_index, numbers)
    return store.select((~held).nonzero().flatten()), store.select(held.nonzero().flatten())


def validation_sets(held: SeriesStore, most: int = 100, longest: int = 2048, far: bool = False) -> list[EvaluationSet]:
    """Return the held-out series as evaluation sets, one per training set and period.

    Args:
        held: what ``SeriesStore.split`` held out.
        most: series per set; more are left out.
        longest: values kept of a series, its end.
        far: whether series of hours and finer ones are also forecast ``FAR`` times as far, as sets of their own.
    """
    return _sets(held, most, longest, 1) + (_sets(held, most, longest, FAR) if far else [])


def _sets(held: SeriesStore, most: int, longest: int, times: int) -> list[EvaluationSet]:
    groups: dict[tuple[int, int], list[np.ndarray]] = {}
    for i in range(len(held)):
        period = int(held.period[i])
        if times > 1 and (period < 24 or period == 52):
            continue
        series = held.series(i).cpu().numpy()[-longest:]
        members = groups.setdefault((int(held.set_index[i]), period), [])
        horizon = times * HORIZONS.get(period, 48)
        if len(series) < 2 * horizon and times > 1:
            continue
        if len(members) < most and moves(series, horizon):
            members.append(series)
    return [
        EvaluationSet(
            f"{held.names[index]}/{period}" + ("/far" if times > 1 else ""),
            members,
            times * HORIZONS.get(period, 48),
            # As GluonTS has it: days and weeks have no season in the scale of MASE.
            1 if period in (7, 52) else period,
            FREQUENCIES.get(period),
        )
        for (index, period), members in groups.items()
        if members
    ]


def moves(series: np.ndarray, horizon: int) -> bool:
    """Tell whether a series has a past that is long enough and not constant, and something of what followed it."""
    past, future = series[:-horizon], series[-horizon:]
    return bool(np.isfinite(past).sum() >= SHORTEST and np.nanstd(past) > 0 and np.isfinite(future).any())


def group_of(name: str) -> str:
    """Return the kind of frequency of a validation set by its name.

    >>> group_of("favorita_daily/7"), group_of("uk_grid_30min/48"), group_of("uk_grid_30min/48/far")
    ('daily', 'finer', 'far')
    """
    period, _, far = name.partition("/")[2].partition("/")
    return far or GROUPS.get(int(period), "finer")


class Validation:
    """Score models by the geometric mean over sets of their scores relative to seasonal naive.

    A set counts by the root of its series, so that a set of two does not decide.
    """

    def __init__(self, sets: Sequence[EvaluationSet]):
        self.sets = list(sets)
        self.naive = {row["dataset"]: row for row in evaluate_seasonal_naive(self.sets)}

    def scores(self, rows: Sequence[ScoreRow]) -> dict[str, dict[str, float]]:
        """Return relative MASE and WQL, how far intervals are off and what they hold, by kind of frequency and for all.

        The group of all is called ``all``; a score that is not known of a set, or zero, is left out of its mean.
        """
        groups: dict[str, list[ScoreRow]] = {"all": list(rows)}
        for row in rows:
            groups.setdefault(group_of(row["dataset"]), []).append(row)
        return {group: self._means(own) for group, own in groups.items()}

    def relative(self, row: ScoreRow) -> dict[str, float]:
        """Return MASE and WQL of a set over those of seasonal naive, NaN where these are 0."""
        naive = self.naive[row["dataset"]]
        return {key: row[key] / (naive[key] or math.nan) for key in ("mase", "wql")}

    def _means(self, rows: Sequence[ScoreRow]) -> dict[str, float]:
        held = {key: [row[key] for row in rows] for key in COVERAGE}
        out = {key: float(np.mean(values)) for key, values in held.items() if None not in values}
        relative = [self.relative(row) for row in rows]
        for key in ("mase", "wql"):
            ratio = np.array([one[key] for one in relative])
            known = np.isfinite(ratio) & (ratio > 0)
            if known.any():
                weight = np.sqrt([row["series"] for row in rows])[known]
                out[key] = math.exp(np.average(np.log(ratio[known]), weights=weight))
        return out
