"""The study first-user: made-up series of which anyone can tell what should come next, with and without rules."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
from rich.console import Console

from fourier_head._devices import chosen_device
from fourier_head.forecasting.forecaster import Forecaster
from studies.common import options
from studies.common.options import SILENT, option
from studies.common.report.summary import Row, Summary
from studies.common.results import row
from studies.first_user.cases import Case, cases

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
                case.pasts, horizon, freq=case.freq, rules=ruled, natural=ruled, progress=False
            )
        if case.metric == "mean_over_truth":
            value = float(forecasts.mean.mean()) / case.truth
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
