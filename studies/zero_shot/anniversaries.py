"""What the calendar is worth: ``python -m studies.zero_shot.anniversaries [--months] DATA/train/A.parquet ...``.

Parquet files of dated series (columns ``id``, ``start``, ``freq``, ``target``). Anniversaries are tried on days, finer
series as means of days: the last year of each is forecast four weeks at a time, once by the forecaster as it is and
once without dates, and so without this rule. With ``--months`` it is trading days, on months, those of finer series the
means of days times days: the last six years, 18 months from each. MAE and WQL are the former's over the latter's,
errors in usual changes; ``fired`` is the share of windows that the rule was used in, ``fired_mae`` and ``fired_wql``
are of these alone, ``low`` and ``high`` the ends of 95 % of bootstraps over sets of WQL.
"""

from __future__ import annotations

import argparse
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fourier_head._files import write_atomically
from fourier_head.forecasting.calendars import Calendar
from fourier_head.forecasting.forecaster import Forecaster
from fourier_head.forecasting.scores import DECILES
from fourier_head.forecasting.series_set import SeriesSet

BOOTSTRAPS = 2000


@dataclass(frozen=True)
class Trial:
    """How a rule of the calendar is tried.

    Args:
        rule: its name in ``forecasts.rules``.
        freq: of the series.
        ahead, apart: steps of a window, and from one to the next.
        looked_at, fewest, longest: steps that windows lie in, that must lie before each, and that are read.
        output: where the table goes.
    """

    rule: str
    freq: str
    ahead: int
    apart: int
    looked_at: int
    fewest: int
    longest: int
    output: str


DAYS = Trial("anniversaries", "D", 28, 28, 365, 2 * 365, 12 * 365, "anniversaries.csv")
MONTHS = Trial("trading_days", "ME", 18, 12, 72, 60, 1000, "trading-days.csv")
CLOSED = {"favorita_daily": ("2013-01-01", "12-25")}
"""Sets without dates whose source tells them: the first day, and the day of the year that has no row."""


def dated(path: Path, most: int, trial: Trial) -> list[pd.Series]:
    """Return some series of a file, drawn by chance, by day or month; coarser ones are left out."""
    table = pd.read_parquet(path)
    if len(table) > most:
        table = table.iloc[np.sort(np.random.default_rng(0).choice(len(table), most, replace=False))]
    out = []
    for row in table.itertuples():
        values, (start, closed) = np.asarray(row.target, dtype=float), CLOSED.get(path.stem, (row.start, ""))
        if closed:
            index = pd.date_range(start, periods=len(values) + 30)
            index = index[index.strftime("%m-%d") != closed][: len(values)]
            one = pd.Series(values, index).asfreq("D")
        elif start and pd.notna(start) and row.freq:
            one = pd.Series(values, pd.date_range(start, periods=len(values), freq=row.freq))
        else:
            continue
        calendar = Calendar.of(row.freq or "D")
        if trial is MONTHS and calendar.months == 1:
            out.append(one)
        elif not calendar.months and calendar.nanoseconds <= Calendar.of("D").nanoseconds:
            out.append(by_month(whole(one, "D")) if trial is MONTHS else whole(one, "D"))
    out = [one[-trial.longest :] for one in out]
    return [one for one in out if len(one) >= trial.fewest + trial.ahead and one.notna().mean() > 0.7]


def whole(one: pd.Series, freq: str) -> pd.Series:
    """Return the means of steps that are whole, or nearly so."""
    fine = one.resample(freq)
    return fine.mean().where(fine.count() >= 0.9 * fine.count().median())


def by_month(days: pd.Series) -> pd.Series:
    """Return what months add up to, from the first to the last that is whole, or nearly so."""
    months = whole(days, "ME")
    months = months * months.index.days_in_month
    return months[months.first_valid_index() : months.last_valid_index()]


def compare(forecaster: Forecaster, name: str, series: list[pd.Series], trial: Trial) -> dict[str, Any] | None:
    """Return what one set gains, None where it has no window."""
    known, unknown, targets, calendar = SeriesSet(), SeriesSet(), [], Calendar.of(trial.freq)
    for number, one in enumerate(series):
        for end in range(len(one), len(one) - trial.looked_at + trial.ahead, -trial.apart):
            past, target = one.iloc[: end - trial.ahead], one.to_numpy()[end - trial.ahead : end]
            if len(past) >= trial.fewest and not np.isnan(target).all():
                known.add(number, past.to_numpy(), calendar, past.index.to_numpy("datetime64[ns]"))
                unknown.add(number, past.to_numpy(), calendar)  # then the calendar says nothing
                targets.append(target)
    if not targets:
        return None
    outcome, levels = np.stack(targets)[..., None], np.array(DECILES)
    unit = np.array([[np.nanmean(np.abs(np.diff(past)))] for past in known.values])
    own, plain = (forecaster.predict(one, trial.ahead, progress=False) for one in (known, unknown))
    assert own.rules is not None
    fired, row = getattr(own.rules, trial.rule), {"set": name, "series": len(series), "windows": len(targets)}
    scores = []
    for forecasts in (own, plain):
        quantiles = forecasts.quantiles(DECILES)
        pinball = np.maximum(levels * (outcome - quantiles), (levels - 1) * (outcome - quantiles)).mean(-1)
        scores.append([np.abs(outcome[..., 0] - quantiles[..., 4]) / unit, pinball / unit])
    for label, rows in (("", np.arange(len(targets))), ("fired_", np.array(fired, dtype=int))):
        for metric, ours, theirs in zip(("mae", "wql"), *scores, strict=True):
            row[label + metric] = np.nanmean(ours[rows]) / np.nanmean(theirs[rows]) if len(rows) else 1.0
    return {**row, "fired": len(fired) / len(targets)}


def main(arguments: list[str] | None = None) -> None:
    """Compare and write the table."""
    parser = argparse.ArgumentParser(prog="python -m studies.zero_shot.anniversaries", description=__doc__)
    parser.add_argument("files", type=Path, nargs="+", help="parquet files of dated series")
    parser.add_argument("--model", default="small")
    parser.add_argument("--most", type=int, default=20, help="series of each set")
    parser.add_argument("--months", action="store_true", help="trading days, on months")
    parser.add_argument("--output", type=Path, help="results/zero-shot-held-out/RULE.csv unless given")
    given = parser.parse_args(arguments)
    trial = MONTHS if given.months else DAYS
    forecaster, rows = Forecaster.from_pretrained(given.model), []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what is to say of single series
        for path in sorted(given.files):
            if (row := compare(forecaster, path.stem, dated(path, given.most, trial), trial)) is not None:
                rows.append(row)
                print(row, flush=True)
    table = pd.DataFrame(rows)
    ratios = ["mae", "wql", "fired_mae", "fired_wql"]
    mean = {"set": "mean", **table[["series", "windows"]].sum(), "fired": table["fired"].mean()}
    mean |= dict(np.exp(np.log(table[ratios]).mean()))  # a set without windows that fired counts as 1
    drawn = np.random.default_rng(0).choice(np.log(table["wql"]), (BOOTSTRAPS, len(table))).mean(1)
    mean |= dict(zip(("low", "high"), np.exp(np.quantile(drawn, (0.025, 0.975))), strict=True))
    text = pd.concat([table, pd.DataFrame([mean])]).to_csv(index=False, float_format="%.4f", lineterminator="\n")
    write_atomically(given.output or Path("results/zero-shot-held-out", trial.output), text)


if __name__ == "__main__":
    main()
