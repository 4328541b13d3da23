"""Section 6 and appendix D.2 of the paper: forecasters after Chronos with linear and Fourier heads.

All arms of a seed start from the same encoder and decoder, see the same windows in the same order, and train for the
same number of seconds, compiling left out, or of steps. Each is then scored by sampling on every evaluation set. What
is trained is kept in a folder of checkpoints: the same command, or one with more arms, goes on from there; where that
is gone, runs that stand in the folder of results are not made again.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from rich.console import Console

from fourier_head._devices import chosen_device
from fourier_head.errors import UserError
from fourier_head.forecasting.corpora.mix import RECIPES
from fourier_head.forecasting.evaluation import EvaluationSet, ScoreRow, evaluate_seasonal_naive
from fourier_head.tasks.runs import RunStore
from fourier_head.training.processes import agreed, rank_and_world
from studies.chronos.arms import Arm, parse_arms
from studies.chronos.charts import charts, notes, rows
from studies.chronos.paired import FILE, Errors, paired_charts, paired_rows
from studies.chronos.runs import SAMPLING, Protocol, artificial_sets, errors_path, read_corpus, read_sets, run_arm
from studies.chronos.t5 import SIZES
from studies.common import options
from studies.common.benchmark_sets import read_published_scores
from studies.common.command_line import in_lines
from studies.common.forecast_scores import comparable
from studies.common.options import SILENT, option
from studies.common.report.summary import Summary
from studies.common.results import circumstances

SCORING, COMPILING = 45.0, 60.0
"""Seconds of this run's limit kept for scoring an arm and, on a GPU, for compiling the first."""
ARMS, QUICK_ARMS = "paper", "linear,fourier-16"
"""What is trained unless arms are named."""
LEAST = 20.0
"""Seconds of training below which starting an arm is not worth it."""


@dataclass(frozen=True)
class Settings(options.Study):
    """What to train and on what to score it."""

    study = "forecasting"
    arms: str | None = option(
        None,
        "Groups (paper, ablations, ours, sizes, data) and arms such as linear, fourier-550, fourier-64-free, "
        "fourier-550@size=tiny, linear@data=0.1; separated by commas.",
        shown=f"{ARMS}; with --quick, {QUICK_ARMS}",
    )
    corpus: Path | None = option(
        None, "Packed series, or a folder of parquet and arrow files.", shown="artificial series only"
    )
    evaluation: Path | None = option(None, "Folder of evaluation sets.")
    horizon: int | None = option(None, "Values held out of sets that are none of the benchmark.", shown="none", low=1)
    published: Path | None = option(None, "Table of published scores to stand beside ours.", shown="none")
    checkpoints: Path = option(
        Path("scratch/forecasting"), "Folder of models and finished runs, to go on from.", told=False
    )
    seconds: float = option(480.0, "Of training, for each arm.", low=1)
    steps: int | None = option(None, "Of training, for each arm, in place of seconds.", shown="none", low=1)
    limit: float | None = options.time_limit()
    size: str = option("mini", "Of the models: 1m, 3m, 5m, tiny, mini, small or base.", choices=tuple(SIZES))
    context: int = option(512, "Tokens that a model reads: values and EOS.", low=2, high=8192)
    batch: int = option(512, "Windows of a step.", low=2)
    learning_rate: float = option(1e-3, "At its peak.")
    recipe: str = option("standard", "Mixture of the corpus: standard, chronos or plain.", choices=tuple(RECIPES))
    average: float = option(
        0.0, "Score an average of the weights that forgets half in this share of the steps; 0 for the last ones."
    )
    embedding: str = option(
        "smooth",
        "How embeddings of tokens start: smooth along the bins, or noise as in T5.",
        choices=("smooth", "noise"),
    )
    positions: str = option(
        "near", "Where attention looks at the start: near by, or anywhere (noise) as in T5.", choices=("near", "noise")
    )
    init: float = option(0.15, "Factor of the deviations of all weights at the start, 1 in T5 and 0.05 in Chronos.")
    sampling: str = option(
        "trimmed",
        "How sample paths are drawn: spread over what may happen, trimmed (the same without the outermost percent on "
        "either side), plain, or chronos (the 50 likeliest ids).",
        choices=tuple(SAMPLING),
    )
    seeds: int = option(1, "Repetitions of every arm.", low=1)
    first_seed: int = option(0, "Seed of the first of them.", low=0)
    max_series: int | None = option(None, "Series of each evaluation set.", shown="all", low=1)
    # Several graphics cards are shared out among processes, not named one by one.
    device: str = options.device(choices=("cpu", "cuda", "auto"))
    summarise: bool = options.summarise()

    @property
    def place(self) -> str:
        """The device."""
        return chosen_device(self.device)

    @property
    def protocol(self) -> Protocol:
        """What all arms have in common."""
        for name, number in (("init", self.init), ("learning-rate", self.learning_rate)):
            if not 0 < number < math.inf:
                raise UserError(f"--{name} must be positive, got {number:g}.")
        if not 0 <= self.average < 1:
            raise UserError(f"--average must be a share of the steps below 1, got {self.average:g}.")
        own = {one.name: getattr(self, one.name) for one in fields(Protocol) if hasattr(self, one.name)}
        del own["horizon"]  # that of one's own evaluation sets, not what models learn to predict
        protocol = Protocol(
            **own,
            lengths=tuple(sorted({min(128, self.context), self.context})),
            smooth=self.embedding == "smooth",
            near=self.positions == "near",
        )
        if not self.quick:
            return protocol
        return replace(
            protocol,
            size="test",
            context=48,
            horizon=8,
            ids=258,
            lengths=(24, 48),
            seconds=min(self.seconds, 4.0),
            batch=32,
            learning_rate=5e-3,
            probes=4,
        )


def run(settings: Settings, console: Console = SILENT) -> Summary | None:
    """Train and score all arms that fit into the limit, and write the folder from those that are finished.

    Returns None where nothing is finished yet, and in the processes of a distributed run beside the first.
    """
    main = rank_and_world()[0] == 0
    usual = QUICK_ARMS if settings.quick else ARMS
    arms = parse_arms(usual if settings.arms is None else settings.arms)
    protocol = settings.protocol
    # A summary may be written here of what was trained on a GPU elsewhere.
    device = "cpu" if settings.summarise else settings.place
    store = read_corpus(settings.corpus)
    sets = (
        artificial_sets()
        if settings.quick and settings.evaluation is None
        else read_sets(settings.evaluation, settings.max_series, settings.horizon)
    )
    sets, naive = _scorable(sets, console)
    published = comparable(read_published_scores(settings.published), naive) if settings.published else []
    corpus = "artificial" if store is None else f"{len(store)} series, {store.values.numel()} values"
    keep, before = RunStore(settings.checkpoints), _finished_before(settings.output)
    results: list[dict[str, Any]] = []
    errors: dict[tuple[str, int], Path] = {}
    missing, fresh = 0, True

    def report(name: str) -> tuple[Callable[..., None], Callable[..., None]]:
        """Return what tells now and then how far a training is, and the scores of each set."""
        told = in_lines(name, console.print if main else SILENT.print, max(protocol.seconds / 20, 1.0))

        def trained(line: dict[str, float]) -> None:
            speed = f"{line['samples_per_second']:.0f} samples/s"
            told(line["progress"], f"step {line['step']:.0f}, loss {line['loss']:.4f}, {speed}")

        def scored(row: dict[str, Any]) -> None:
            told(1.0, f"{row['dataset']} MASE {row['mase']:.4f}, WQL {row['wql']:.4f}, {row['seconds']:.1f} s")

        return trained, scored

    # Seeds outermost: whenever time is up, all arms have had about equally many.
    for seed in range(settings.first_seed, settings.first_seed + settings.seeds):
        for arm in arms:
            name = f"{arm.label}, seed {seed}"
            trained = protocol.training(arm, seed, corpus)
            key = trained | protocol.scoring | {"sets": [_key_of(one) for one in sets]}
            mark = keep.path(name, key).stem
            result = keep.get(name, key) or before.get(mark)
            left = math.inf if settings.limit is None else settings.limit - settings.elapsed - SCORING
            if device == "cuda":
                left -= COMPILING / (1 if fresh else 4)
            wanted = result is None and not settings.summarise
            left = agreed(left if wanted else -math.inf, device)
            folder = settings.checkpoints / keep.path(name, trained).stem
            if left > LEAST:
                limit = left if left < math.inf else None
                result = run_arm(arm, protocol, store, sets, seed, folder, *report(name), device=device, limit=limit)
                fresh = False
                if result is not None:
                    result = keep.put(name, key, result)
            if result is None:
                missing += 1
            else:
                results.append(result | {"key": mark})
                errors[arm.label, seed] = errors_path(folder, protocol)
    if not main:
        return None
    if missing:
        console.print(f"{missing} runs are not finished; {_how_to_go_on(settings)}.", markup=False)
    return _write(settings, arms, results, naive, published, missing, errors) if results else None


def _finished_before(output: Path) -> dict[str, dict[str, Any]]:
    """Return the runs of an earlier summary by what they are known by."""
    try:
        runs = json.loads((output / "runs.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return {run["key"]: run for run in runs if "key" in run}


def _key_of(one: EvaluationSet) -> list[Any]:
    """Return how a set is known among kept runs; the horizon of one's own set is a matter of choice."""
    return [one.name, len(one), *([one.horizon] if one.status == "own" else [])]


def _scorable(sets: Sequence[EvaluationSet], console: Console) -> tuple[list[EvaluationSet], list[ScoreRow]]:
    """Return the sets on which seasonal naive has scores, and these: few series of a set may be all missing or zero."""
    naive = evaluate_seasonal_naive(sets)
    good = [0 < row["mase"] < math.inf and 0 < row["wql"] < math.inf for row in naive]
    for one in itertools.compress(sets, [not kept for kept in good]):
        console.print(f"{one.name} is left out: seasonal naive has no score there.", markup=False)
    if not any(good):
        raise UserError("--evaluation has no set on which seasonal naive has a score.")
    return list(itertools.compress(sets, good)), list(itertools.compress(naive, good))


def _write(
    settings: Settings,
    arms: Sequence[Arm],
    results: list[dict[str, Any]],
    naive: Sequence[ScoreRow],
    published: Sequence[ScoreRow],
    missing: int,
    errors: Mapping[tuple[str, int], Path],
) -> Summary:
    table = rows(results, arms, naive, published)
    figures = charts(results, arms, naive, published, table)
    few = f", on at most {settings.max_series} series of each set" if settings.max_series is not None else ""
    averaged = "; they are of averaged weights" if settings.average else ""
    drawn = f"{settings.protocol.paths} {SAMPLING[settings.sampling][0]}{few}{averaged}"
    said = notes(results, missing, drawn)
    by_series = Errors.read(errors, settings.output / FILE)
    if settings.seeds > 1 and by_series is not None:
        by_series.save(settings.output / FILE)
        paired = paired_rows(by_series, naive, {arm.label: arm.about for arm in arms})
        table = table + paired
        figures += paired_charts(paired)
    # Of all arms that stand here, made now or before.
    spent = sum(one["training_seconds"] + sum(score["seconds"] for score in one["scores"]) for one in results)
    return settings.write(
        table,
        seconds=max(spent, settings.elapsed),
        # Of pictures one of each arm is drawn.
        runs=[{k: one[k] for k in one if k != "picture" or one["seed"] == settings.first_seed} for one in results],
        keep_runs=True,  # they are in the folder of checkpoints, which may be this one, for other arms to join
        charts=figures,
        # Where and with what the arms were trained, which need not be here and now.
        **circumstances(results),
        notes=said,
        quick="a tiny network with few bins and a short training",
    )


def _how_to_go_on(settings: Settings) -> str:
    if settings.summarise:
        return "the same command without --summarise goes on from there"
    least = SCORING + LEAST + (COMPILING if settings.place == "cuda" else 0.0)
    if settings.limit is not None and settings.limit <= least:
        return f"--limit must be above {least:.0f} to leave time for training, got {settings.limit:g}"
    return "the same command goes on from there"
