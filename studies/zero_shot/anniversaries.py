"""What anniversaries of daily series are worth: ``python -m studies.zero_shot.anniversaries DATA/train/A.parquet ...``.

Parquet files of dated series (columns ``id``, ``start``, ``freq``, ``target``), finer ones as means of days. The last
year of each is forecast four weeks at a time, once by the forecaster as it is and once without this rule. MAE and WQL
are the former's over the latter's, errors in usual daily changes; ``fired`` is the share of windows that the rule was
used in, ``fired_mae`` and ``fired_wql`` are of these alone.
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fourier_head._files import write_atomically
from fourier_head.forecasting.calendars import Calendar
from fourier_head.forecasting.forecaster import Forecaster
from fourier_head.forecasting.scores import DECILES
from fourier_head.forecasting.series_set import SeriesSet

AHEAD, YEAR, LONGEST = 28, 365, 12 * 365
CLOSED = {"favorita_daily": ("2013-01-01", "12-25")}
"""Sets without dates whose source tells them: the first day, and the day of the year that has no row."""


def days_of(path: Path, most: int) -> list[pd.Series]:
    """Return some series of a file, drawn by chance, by day."""
    table = pd.read_parquet(path)
    if len(table) > most:
        table = table.iloc[np.sort(np.random.default_rng(0).choice(len(table), most, replace=False))]
    out = []
    for row in table.itertuples():
        values, (start, closed) = np.asarray(row.target, dtype=float), CLOSED.get(path.stem, (row.start, ""))
        if closed:
            index = pd.date_range(start, periods=len(values) + 30)
            index = index[index.strftime("%m-%d") != closed][: len(values)]
            out.append(pd.Series(values, index).asfreq("D"))
        elif start and pd.notna(start) and row.freq:
            fine = pd.Series(values, pd.date_range(start, periods=len(values), freq=row.freq)).resample("D")
            # Days that are whole, or nearly so.
            out.append(fine.mean().where(fine.count() >= 0.9 * fine.count().median()))
    return [one[-LONGEST:] for one in out if len(one) >= 2 * YEAR + AHEAD and one.notna().mean() > 0.7]


def compare(forecaster: Forecaster, name: str, series: list[pd.Series]) -> dict[str, Any] | None:
    """Return what one set gains, None where it has no window."""
    dated, undated, targets = SeriesSet(), SeriesSet(), []
    for number, one in enumerate(series):
        for end in range(len(one), len(one) - YEAR + AHEAD, -AHEAD):
            past, target = one.iloc[: end - AHEAD], one.to_numpy()[end - AHEAD : end]
            if len(past) >= 2 * YEAR and not np.isnan(target).all():
                dated.add(number, past.to_numpy(), Calendar.of("D"), past.index.to_numpy("datetime64[ns]"))
                undated.add(number, past.to_numpy(), Calendar.of("D"))  # then there are no anniversaries
                targets.append(target)
    if not targets:
        return None
    outcome, levels = np.stack(targets)[..., None], np.array(DECILES)
    unit = np.array([[np.nanmean(np.abs(np.diff(past)))] for past in dated.values])
    own, plain = (forecaster.predict(one, AHEAD, progress=False) for one in (dated, undated))
    assert own.rules is not None
    fired, row = own.rules.anniversaries, {"set": name, "series": len(series), "windows": len(targets)}
    scores = []
    for forecasts in (own, plain):
        quantiles = forecasts.quantiles(DECILES)
        pinball = np.maximum(levels * (outcome - quantiles), (levels - 1) * (outcome - quantiles)).mean(-1)
        scores.append([np.abs(outcome[..., 0] - quantiles[..., 4]) / unit, pinball / unit])
    for label, rows in (("", np.arange(len(targets))), ("fired_", np.array(fired, dtype=int))):
        for metric, ours, theirs in zip(("mae", "wql"), *scores, strict=True):
            row[label + metric] = np.nanmean(ours[rows]) / np.nanmean(theirs[rows]) if len(rows) else 1.0
    return {**row, "fired": len(fired) / len(targets)}


def main(arguments: list[str] | None = None) -> int:
    """Compare and write the table."""
    parser = argparse.ArgumentParser(prog="python -m studies.zero_shot.anniversaries", description=__doc__)
    parser.add_argument("files", type=Path, nargs="+", help="parquet files of dated series")
    parser.add_argument("--model", default="small")
    parser.add_argument("--most", type=int, default=20, help="series of each set")
    parser.add_argument("--output", type=Path, default=Path("results/zero-shot-held-out/anniversaries.csv"))
    given = parser.parse_args(arguments)
    forecaster, rows = Forecaster.from_pretrained(given.model), []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what is to say of single series
        for path in sorted(given.files):
            if (row := compare(forecaster, path.stem, days_of(path, given.most))) is not None:
                rows.append(row)
                print(row, flush=True)
    table = pd.DataFrame(rows)
    ratios = ["mae", "wql", "fired_mae", "fired_wql"]
    mean = {"set": "mean", **table[["series", "windows"]].sum(), "fired": table["fired"].mean()}
    mean |= dict(np.exp(np.log(table[ratios]).mean()))  # a set without windows that fired counts as 1
    text = pd.concat([table, pd.DataFrame([mean])]).to_csv(index=False, float_format="%.4f", lineterminator="\n")
    write_atomically(given.output, text)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
