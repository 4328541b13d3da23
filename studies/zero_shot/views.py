"""Compare views of a past on series that no weight has seen: ``python -m studies.zero_shot.views CORPUS``.

The eleven sets that are left out of training (`whole`) and the 4 % of series held out of the others (`series`), several
windows of each, as far ahead as people forecast (`near`) and ten times as far in series of hours and finer ones
(`far`). Scores are those of a way to forecast over those of the forecaster without coarser views; deciles are averaged.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fourier_head.forecasting.coarser import coarser_step
from fourier_head.forecasting.corpora.readers import read_store
from fourier_head.forecasting.corpora.store import SeriesStore
from fourier_head.forecasting.evaluation import EvaluationSet
from fourier_head.forecasting.forecaster import Forecaster
from fourier_head.forecasting.rules import Rules
from fourier_head.forecasting.scores import DECILES, Forecast, score
from fourier_head.forecasting.validation import CALIBRATION_SETS, hold_out, hold_out_sets, moves, validation_sets

View = Callable[[Forecaster, EvaluationSet], np.ndarray]


class Alone(Forecaster):
    """The forecaster without coarser views."""

    def _beside_network(self, rolling: Any, ruled: Rules | None, half: bool) -> tuple[None, np.ndarray | None]:
        return None, None if ruled is None else ruled.shift


def _deciles(forecaster: Forecaster, one: EvaluationSet, pasts: list[np.ndarray], natural: bool = True) -> np.ndarray:
    forecasts = forecaster.predict(pasts, one.horizon, freq=one.freq, natural=natural, progress=False)
    return forecasts.quantiles(DECILES)


def alone(forecaster: Forecaster, one: EvaluationSet) -> np.ndarray:
    """Return deciles (series, horizon, 9) without coarser views."""
    return _deciles(Alone(forecaster.model), one, one.contexts())


def coarser(forecaster: Forecaster, one: EvaluationSet) -> np.ndarray:
    """Return those of the forecaster as it is: a coarser view counts far ahead in series of minutes and seconds."""
    return _deciles(forecaster, one, one.contexts())


def upside_down(forecaster: Forecaster, one: EvaluationSet) -> np.ndarray:
    """Return those of the negative series, turned back."""
    return -_deciles(Alone(forecaster.model), one, [-past for past in one.contexts()], natural=False)[..., ::-1]


def half(forecaster: Forecaster, one: EvaluationSet) -> np.ndarray:
    """Return those from the later half of each past."""
    return _deciles(Alone(forecaster.model), one, [past[-max(len(past) // 2, 8) :] for past in one.contexts()])


def logarithms(forecaster: Forecaster, one: EvaluationSet) -> np.ndarray:
    """Return those of the logarithms of series that are positive."""
    pasts = one.contexts()
    positive = [bool(np.nanmin(past) > 0) for past in pasts]
    taken = [np.log(past) if yes else past for past, yes in zip(pasts, positive, strict=True)]
    found = _deciles(Alone(forecaster.model), one, taken, natural=False)
    for number, yes in enumerate(positive):
        if yes:  # no farther beyond the past than it is wide
            most = np.nanmax(taken[number]) + np.ptp(taken[number][~np.isnan(taken[number])]) + 1
            found[number] = np.exp(np.minimum(found[number], most))
    return found


WAYS: dict[str, tuple[View, ...]] = {
    "coarser view": (coarser,),
    "and upside down": (alone, upside_down),
    "and the later half": (alone, half),
    "and logarithms": (alone, logarithms),
}
"""Ways to forecast: means of what views say."""


def windows(held: SeriesStore, count: int, most: int, longest: int) -> list[EvaluationSet]:
    """Return sets of windows of held-out series: so many of each, one horizon after the other, a number in all."""
    out = []
    for one in validation_sets(held, most=most, longest=longest + 12 * 1024, far=True):
        earlier = [(k, past[: len(past) - k * one.horizon]) for past in one.series for k in range(count)]
        kept = [(k, past[-longest - one.horizon :]) for k, past in earlier if len(past) >= 2 * one.horizon + 8]
        kept = [(k, past) for k, past in kept if k == 0 or moves(past, one.horizon)]
        series = [past for _, past in sorted(kept, key=lambda pair: pair[0])][:most]
        out.append(EvaluationSet(one.name, series or list(one.series), one.horizon, one.season, one.freq))
    return out


def compare(forecaster: Forecaster, sets: Sequence[EvaluationSet]) -> dict[str, list[tuple[str, int, float, float]]]:
    """Return of each way the sets, their numbers of windows, and MASE and WQL over those of the forecaster alone."""
    out: dict[str, list[tuple[str, int, float, float]]] = {name: [] for name in WAYS}
    for one in sets:
        deciles: dict[View, np.ndarray] = {}
        for views in [(alone,), *WAYS.values()]:
            for view in views:
                # Where no coarser view is, forecasts are the same.
                if view is not coarser or (coarser_step(one.freq) and one.name.endswith("far")):
                    deciles.setdefault(view, view(forecaster, one))
        target, pasts = one.targets(), one.contexts()
        base = score(Forecast(deciles[alone]), target, pasts, one.season)
        for name, views in WAYS.items():
            if all(view in deciles for view in views):
                own = score(Forecast(np.mean([deciles[view] for view in views], axis=0)), target, pasts, one.season)
                mase, wql = (own[key] / base[key] if base[key] else np.nan for key in ("mase", "wql"))
                if 0 < mase < np.inf and 0 < wql < np.inf:
                    out[name].append((one.name, len(one), mase, wql))
    return out


def table(found: dict[str, dict[str, list[tuple[str, int, float, float]]]]) -> str:
    """Return the comparison as lines of comma-separated values; a set counts by the root of its windows.

    >>> print(table({"whole": {"a way": [("one/24/far", 4, 0.9, 0.8), ("two/12", 9, 1.0, 1.1)]}}))
    held_out,reach,way,sets,windows,mase,wql,sets_ahead
    whole,near,a way,1,9,1.0000,1.1000,0
    whole,far,a way,1,4,0.9000,0.8000,1
    """
    lines = ["held_out,reach,way,sets,windows,mase,wql,sets_ahead"]
    for group, ways in found.items():
        for reach in ("near", "far"):
            for way, rows in ways.items():
                own = [row for row in rows if row[0].endswith("far") == (reach == "far")]
                if own:
                    size, ratios = np.array([row[1] for row in own]), np.array([row[2:] for row in own])
                    mase, wql = np.exp(np.average(np.log(ratios), axis=0, weights=np.sqrt(size)))
                    ahead = int((ratios[:, 1] < 1).sum())
                    lines.append(f"{group},{reach},{way},{len(own)},{size.sum()},{mase:.4f},{wql:.4f},{ahead}")
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    """Compare and write the table."""
    parser = argparse.ArgumentParser(prog="python -m studies.zero_shot.views", description=__doc__)
    parser.add_argument("corpus", type=Path, nargs="+", help="packed series, or parquet files")
    parser.add_argument("--model", default="small")
    parser.add_argument("--windows", type=int, default=8, help="of each series")
    parser.add_argument("--most", type=int, default=36, help="windows of each set")
    parser.add_argument("--output", type=Path, default=Path("results/zero-shot-held-out/views.csv"))
    given = parser.parse_args(arguments)
    forecaster = Forecaster.from_pretrained(given.model)
    store, few = hold_out(read_store(given.corpus))
    _, whole = hold_out_sets(store, CALIBRATION_SETS)
    found = {}
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # seasons that a past does not show
        for group, held in (("whole", whole), ("series", few)):
            sets = windows(held, given.windows, given.most, forecaster.config.context)
            found[group] = compare(forecaster, sets)
    text = table(found)
    given.output.parent.mkdir(parents=True, exist_ok=True)
    given.output.write_text(text + "\n", encoding="utf-8")
    print(text)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
