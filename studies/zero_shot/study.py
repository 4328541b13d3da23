"""The study zero-shot: scores on the evaluation sets and GIFT-Eval, calibration, tails and speed."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from fourier_head._devices import chosen_device
from fourier_head.forecasting.evaluation import ScoreRow, evaluate, evaluate_seasonal_naive
from fourier_head.forecasting.forecaster import Forecaster
from fourier_head.heads import FourierHead
from studies.common import options
from studies.common.benchmark_sets import read_evaluation_sets, read_published_scores, relative_scores
from studies.common.forecast_charts import calibration_chart, overview_chart, relative_chart
from studies.common.forecast_scores import comparable, published_rows, seasonal_naive_rows, summary_rows
from studies.common.options import SILENT, option
from studies.common.report.summary import Row, Summary
from studies.common.report.tables import dataset_label
from studies.common.results import row
from studies.zero_shot import gift_eval as gift
from studies.zero_shot import speed, tails

QUICK_SERIES = 50
COMPARED = ("tirex", "chronos_bolt_base", "chronos-t5-large", "chronos-bolt-base", "chronos-bolt-mini")
"""Published models whose scores on single sets are drawn, as either of two tables calls them."""


@dataclass(frozen=True)
class Settings(options.Study):
    """What to evaluate, and what to set beside it."""

    study = "zero-shot"
    evaluation: Path = option(help="Folder of evaluation sets, parquet files in the Chronos format.")
    horizon: int | None = option(None, "Values held out of sets that are none of the benchmark.", shown="none", low=1)
    published: Path | None = option(None, "CSV of published scores to set beside ours.")
    gift: Path | None = option(None, "Folder of GIFT-Eval: a download of it, or configurations rebuilt.")
    model: str = option("small", "Forecaster of the package, or a folder.", file=True)
    t5: Path | None = option(None, "Folder of a T5 forecaster, to compare scores and speed.")
    device: str = options.device(told=True)


def run(settings: Settings, console: Console = SILENT) -> Summary:
    """Evaluate the forecaster and write the folder."""
    device = chosen_device(settings.device)
    sets = read_evaluation_sets(settings.evaluation, horizon=settings.horizon)
    if settings.quick:
        sets = [one.head(QUICK_SERIES) for one in sets]
    naive = evaluate_seasonal_naive(sets)
    published = comparable(read_published_scores(settings.published), naive) if settings.published else []
    forecasters = _forecasters(settings, device)
    name = next(iter(forecasters))
    about: dict[str, dict[str, Any]] = {name: _about(forecasters[name].model)}
    if "t5" in forecasters:
        about["t5"] = _about_t5(forecasters["t5"])

    def tell(one: ScoreRow) -> None:
        scored = f"{one['model']} on {one['dataset']}"
        console.print(f"{scored}: MASE {one['mase']:.4f}, WQL {one['wql']:.4f}", markup=False)

    scores = [
        one for key, f in forecasters.items() for one in evaluate(f, sets, model=key, dated=key == name, report=tell)
    ]
    rolled, rolled_naive, beside = _gift(settings, forecasters[name], name, tell)
    far = tails.measure(forecasters[name], name, about[name]["head"])
    del forecasters
    times = speed.measure(functools.partial(_forecasters, settings), ["cpu", *([] if device == "cpu" else [device])])
    rows = summary_rows(scores, naive, about)
    rows += seasonal_naive_rows(naive, published) + published_rows(published) + far
    rows += gift.rows(rolled, rolled_naive, beside, about[name])
    for one in times:
        what = {"dataset": f"{one['series']} {one['job'].name} series", "head": about[one["model"]]["head"]}
        what |= {key: one[key] for key in ("model", "device")}
        rows += [row(metric, one[metric], **what) for metric in ("seconds", "per_second")]
    heads = {key: value["head"] for key, value in about.items()}
    theirs = [one for one in published if one["model"] in COMPARED]
    charts = [
        overview_chart(scores, naive, published, heads=heads),
        relative_chart([*scores, *theirs], naive, "mase", heads=heads),
        relative_chart([*scores, *theirs], naive, "wql", heads=heads),
        calibration_chart(scores, heads=heads),
    ]
    summary = settings.write(
        rows,
        runs=[*scores, *rolled],
        charts=charts,
        gpu=device == "cuda",
        notes=_notes([*relative_scores(scores, naive), *gift.relative(rolled, rolled_naive)], far, times),
        quick=f"the first {QUICK_SERIES} series of each set",
    )
    if rolled:
        gift.write_all_results(settings.output / "all_results.csv", rolled)
    return summary


def _forecasters(settings: Settings, device: str) -> dict[str, Any]:
    """Return the forecaster and, where there is one, the T5 beside it, on a device."""
    found: dict[str, Any] = {Path(settings.model).name: Forecaster.from_pretrained(settings.model, device)}
    if settings.t5 is not None:
        from studies.chronos.runs import SAMPLING
        from studies.chronos.t5.predict import load_predictor

        found["t5"] = load_predictor(settings.t5, device, **SAMPLING["trimmed"][1])
    return found


def _about(network: Any) -> dict[str, Any]:
    return {
        "head": "fourier",
        "frequencies": network.config.frequencies,
        "packets": 0,
        "parameters": sum(p.numel() for p in network.parameters()),
    }


def _about_t5(predictor: Any) -> dict[str, Any]:
    head = predictor.model.head
    fourier = isinstance(head, FourierHead)
    return {
        "head": "fourier" if fourier else "linear",
        "frequencies": head.num_frequencies if fourier else None,
        "packets": head.layout.packets if fourier else None,
        "parameters": sum(p.numel() for p in predictor.model.parameters()),
        "protocol": f"{predictor.paths} sample paths",
    }


def _gift(
    settings: Settings, forecaster: Any, name: str, report: Callable[[ScoreRow], None]
) -> tuple[list[ScoreRow], list[ScoreRow], list[ScoreRow]]:
    """Return scores on the configurations of GIFT-Eval, those of seasonal naive, and published ones."""
    if settings.gift is None:
        return [], [], []
    configurations = gift.gift_configurations(settings.gift)
    if settings.quick:
        configurations = configurations[:2]
    scores = gift.evaluate_gift(forecaster, configurations, model=name, report=report)
    return scores, gift.gift_naive(configurations), gift.read_published(settings.gift)


def _notes(relative: list[ScoreRow], far: list[Row], times: list[dict[str, Any]]) -> list[str]:
    notes = [
        "Scores are relative to seasonal naive, geometric means over sets. Verified are the 15 sets on which our "
        "seasonal naive equals the published scores and that the paper uses; two others of the benchmark make 17. Only "
        "these compare with published models; three more sets are partial or reconstructed.",
        "The forecaster may be told the period of a series, which its frequency gives: 12 for months, 7 for days. "
        "Of the published models none is.",
    ]
    for one in relative:
        if one["dataset"] != "all":
            scores = f"relative MASE {one['relative_mase']:.3f}, WQL {one['relative_wql']:.3f}"
            error = 100 * one["interval_error"]
            where = f"{one['model']} on {one['sets']} sets ({dataset_label(one['dataset'])})"
            notes.append(f"{where}: {scores}, intervals off by {error:.1f} points on average.")
    notes += [
        f"Independent days of a known distribution ({one['dataset']}): the 99 % level of totals of {tails.HORIZON} is "
        f"{one['ours']:.0f}, truly {one['truth']:.0f}."
        for one in far
        if one["metric"] == "total_0.99"
    ]
    notes += [
        f"{one['model']} on {'the GPU' if one['device'] == 'cuda' else f'{speed.CORES} cores'}: {one['series']} "
        f"{one['job'].name} series, horizon {one['job'].horizon}, in {one['seconds']:.2f} s ({one['per_second']:.0f} a "
        f"second, median of {speed.REPEATS})."
        for one in times
    ]
    return notes
