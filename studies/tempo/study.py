"""Appendix C.1 of the paper: bins of tempos from clicks, a linear head against Fourier heads of few frequencies."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from fourier_head._devices import chosen_device
from fourier_head.errors import UserError
from fourier_head.tasks.engine import Task, TimeUp
from studies.common import options
from studies.common.options import SILENT, option, parse_counts
from studies.common.report.summary import Row, Summary
from studies.common.results import aggregate, circumstances, row
from studies.tempo.charts import charts, label
from studies.tempo.data import NUM_BINS
from studies.tempo.model import SIZES
from studies.tempo.pretraining import pretrained_file
from studies.tempo.training import PROTOCOLS, recipe_of, train_run

METRICS = ("accuracy", "macro_f1", "bpm_error", "bpm_error_median", "nll", "smoothness", "validation_f1", "train_loss")
KEYS = ("dataset", "head", "frequencies", "protocol")

# Appendix C.1: the best model has one frequency, its F1 is 118 % above that of the linear head. The released code
# measures macro F1 and asks for at least this; absolute values were not published.
PAPER_F1_RATIO = {1: 2.18}

UNLABELLED = 8192
"""Clips without labels that an encoder is pretrained on; a tiny one has an eighth."""
STEPS, QUICK_STEPS = 4000, 300
CHOSEN = "chosen on validation"
BARELY = 2 / NUM_BINS
"""An accuracy below this is as good as guessing."""


@dataclass(frozen=True)
class Settings(options.TaskStudy):
    """What to run; ``quick`` takes a tiny network, fewer clips, one seed and fewer frequencies."""

    study = "tempo"
    model: str = option("small", "small or tiny, untrained; or an AST with weights, by name or folder.", file=True)
    data: Path | None = option(None, "Folder of SynTheory's tempos.", shown="clips are generated")
    split: str = option(
        "tempos", "tempos: learn odd ones, test on even ones; random, as in the paper.", choices=("tempos", "random")
    )
    seeds: int = option(3, "Repetitions, each with its own clips.", low=1)
    frequencies: str = option("1,2,4,8,16", "Frequencies of the Fourier heads.")
    clips: int = option(25, "Clips generated for each tempo.", low=1)
    epochs: int | None = option(None, "Passes over the training clips.", shown="2, longer: 60", low=1)
    batch: int | None = option(None, "Clips in a batch.", shown="8, longer: 32", low=1)
    rate: float | None = option(None, "Learning rate.", shown="5e-5, longer: 1e-3")
    pretrain: int | None = option(None, "Steps on clips without labels, for untrained networks.", shown="4000", low=0)
    protocol: str = option("all", "released, middle, longer, slower, shorter, several with commas, or all.")
    device: str = options.device()
    workers: int | None = options.workers(1, "Processes that share the device.")

    @property
    def dataset(self) -> str:
        """What the clips are called in rows."""
        made = "generated, random split" if self.split == "random" else "generated"
        return made if self.data is None else "syntheory"


def tasks_of(settings: Settings) -> list[Task]:
    """Return one task per head and seed, seed by seed, so that a time limit leaves whole seeds."""
    if settings.split == "random" and settings.data is not None:
        raise UserError("--split random is for generated clips; leave out --data.")
    asked = settings.protocol.split(",")
    # Where recipes are chosen, every head has as many of them.
    left_out = ["released, uniform start"] if settings.split == "random" else ["middle", "slower", "shorter"]
    every = [name for name in PROTOCOLS if name not in left_out]
    protocols = [name for name in PROTOCOLS if (name in every if "all" in asked else name.split(",")[0] in asked)]
    if not protocols:
        names = dict.fromkeys(name.split(",")[0] for name in PROTOCOLS)
        raise UserError(f"--protocol must be {', '.join(names)} or all, got {settings.protocol}.")
    device = chosen_device(settings.device)
    model, clips, seeds = settings.model, settings.clips, settings.seeds
    frequencies = parse_counts(settings.frequencies, "--frequencies", most=NUM_BINS - 1)
    changes: dict[str, Any] = {"epochs": settings.epochs, "batch": settings.batch, "rate": settings.rate}
    if settings.quick:
        model, clips, seeds, frequencies = "tiny", min(clips, 10), 1, frequencies[:2]
        # The released rate teaches a tiny network nothing in a minute.
        protocols = ["longer"]
        changes = {"epochs": settings.epochs or 20, "batch": settings.batch, "rate": settings.rate or 2e-3}
    if model not in SIZES and settings.pretrain:
        raise UserError(f"--pretrain is for untrained networks ({', '.join(SIZES)}); {model} has weights.")
    steps = (QUICK_STEPS if settings.quick else STEPS) if settings.pretrain is None else settings.pretrain
    steps = steps if model in SIZES else 0
    weights = settings.store.folder / f"encoder-{model}-{steps}.safetensors"
    arms: list[tuple[str, int | None]] = [("linear", None), *(("fourier", n) for n in frequencies), ("hl_gauss", None)]
    resources = {"device": device, "deadline": settings.deadline}
    resources["weights"] = str(weights) if steps else None
    tasks = []
    for seed in range(seeds):
        for protocol in protocols:
            for head, number in arms:
                chosen = {
                    "source": settings.dataset if settings.data is None else str(settings.data),
                    "model": model,
                    "head": head,
                    "frequencies": number,
                    "seed": seed,
                    "per_tempo": clips,
                    "start": PROTOCOLS[protocol][1],
                    "recipe": recipe_of(protocol, **changes),
                    "pretrain": steps,
                    "protocol": protocol,
                }
                words = f"{protocol}: {label(head, number)}, seed {seed}"
                gpus = 1.0 if device.startswith("cuda") else 0.0
                # A head that is not Fourier's starts alike everywhere; it need not be trained twice.
                if head == "fourier" or protocol != "released, uniform start":
                    tasks.append(Task(train_run, chosen, words, True, resources, gpus=gpus))
    return tasks


def run(settings: Settings, console: Console = SILENT) -> Summary:
    """Run the study and write its folder; at the time limit, write what is finished and keep it for going on."""
    tasks = tasks_of(settings)
    store, first = settings.store, tasks[0].settings
    weights, device = (tasks[0].resources[name] for name in ("weights", "device"))
    kept = [store.get(task.label, task.settings) is not None for task in tasks]
    if weights is not None and not all(kept):
        clips = UNLABELLED if first["model"] != "tiny" else UNLABELLED // 8
        try:
            steps = first["pretrain"]
            pretrained_file(first["model"], steps, clips, Path(weights), device, console.print, settings.deadline)
        except TimeUp:  # no task is begun then
            if not any(kept) and any(store.folder.glob("encoder-*.unfinished-*")):
                raise UserError(
                    "--time-limit was reached in pretraining, which is kept; the same command goes on with it."
                ) from None
    finished = settings.finish(tasks, console)
    stopped = len(finished) < len(tasks)
    runs = [result | {"dataset": settings.dataset} for _, result in finished]
    if settings.split == "random":
        runs += chosen_runs(runs)
    rows = [*aggregate(runs, METRICS, KEYS), *ratio_rows(runs)]
    said = notes(runs, first)
    if stopped:
        said.insert(0, f"Stopped at the time limit: {len(runs)} of {len(tasks)} runs are in these numbers.")
    return settings.write(
        rows,
        # Of all runs that stand here, made now or before.
        seconds=sum(r["seconds"] for r in runs),
        seconds_of="all runs",
        runs=[{k: v for k, v in r.items() if k not in ("curve", "example", "confusion", "versions")} for r in runs],
        charts=charts(rows, runs),
        **circumstances(runs),
        keep_runs=stopped,
        recipe=first["recipe"] | {k: first[k] for k in ("model", "per_tempo", "start", "pretrain")},
        notes=said,
        quick="a tiny network, few clips, one seed and a short training",
    )


def chosen_runs(runs: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the runs of each head under the recipe with the best mean F1 on validation clips, as one protocol more.

    Recipes are learning rates and lengths, as many for every head; frequencies are not chosen here.
    """
    out = []
    for head in dict.fromkeys((run["head"], run["frequencies"]) for run in runs):
        own = [run for run in runs if (run["head"], run["frequencies"]) == head]
        recipes = dict.fromkeys(run["protocol"] for run in own)
        means = {name: np.mean([run["validation_f1"] for run in own if run["protocol"] == name]) for name in recipes}
        best = max(recipes, key=lambda name: means[name])
        out += [run | {"protocol": CHOSEN, "recipe": best} for run in own if run["protocol"] == best]
    return out


def ratio_rows(runs: Sequence[dict[str, Any]]) -> Iterator[Row]:
    """Return how many times the linear head's F1 and BPM error each other head has, over the same seeds."""
    linear = {(r["protocol"].split(",")[0], r["seed"]): r for r in runs if r["head"] == "linear"}
    others = dict.fromkeys((r["protocol"], r["head"], r["frequencies"]) for r in runs if r["head"] != "linear")
    for arm in others:
        mine = [r for r in runs if (r["protocol"], r["head"], r["frequencies"]) == arm]
        if np.mean([r["accuracy"] for r in mine]) < BARELY:
            continue  # how many times better one guess is than another says nothing
        for metric in ("macro_f1", "bpm_error"):
            bases = [linear.get((arm[0].split(",")[0], r["seed"])) for r in mine]
            pairs = [(r[metric], base[metric]) for r, base in zip(mine, bases, strict=True) if base and base[metric]]
            if not pairs:
                continue
            ratio = [ours / base for ours, base in pairs]
            means = [float(np.mean(side)) for side in zip(*pairs, strict=True)]
            known = arm[0] == "released" and arm[1] == "fourier" and metric == "macro_f1"
            more = {key: mine[0][key] for key in KEYS} | {"paper": PAPER_F1_RATIO.get(arm[2]) if known else None}
            std = float(np.std(ratio, ddof=1)) if len(ratio) > 1 else None
            # Of the means rather than the mean of ratios: a seed on which the linear head fails does not count double.
            yield row(f"{metric}_to_linear", means[0] / means[1], std=std, seeds=len(ratio), **more)


def notes(runs: Sequence[dict[str, Any]], settings: Mapping[str, Any]) -> list[str]:
    """Return in sentences what rows cannot say: the clips, the training, and how both differ from the paper's."""
    said = []
    if all(r["accuracy"] < BARELY for r in runs):
        said.append("No head has learned to tell tempos apart: every accuracy is near that of guessing, 1 in 33.")
    counts = [runs[0][f"{part}_clips"] for part in ("train", "test")]
    same = "the same training for every head of a protocol, the last weights measured"
    if settings["source"] == "generated, random split":
        said.append(f"{counts[0]} generated clips to train on, {counts[1]} to test on, dealt out at random; {same}.")
        recipes = {label(r["head"], r["frequencies"]): r["recipe"] for r in runs if r["protocol"] == CHOSEN}
        words = ", ".join(f"{name} {recipe}" for name, recipe in recipes.items())
        said.append(f"{CHOSEN.capitalize()} clips, head by head, by the mean F1 over seeds: {words}.")
    else:
        source = "generated clips" if settings["source"] == "generated" else "clips of SynTheory"
        said.append(
            f"{counts[0]} {source} of odd tempos to train on, {counts[1]} of even tempos to test on; {same}. The bin "
            "[210] has no odd tempo, so no head is ever trained on it."
        )
    if settings["model"] in SIZES:
        steps = settings["pretrain"]
        before = f"{steps} steps on clips without labels" if steps else "nothing"
        said.append(
            "The paper fine-tunes weights of AudioSet on SynTheory, at random splits, and keeps the checkpoint with "
            f"the best test accuracy; here a small network starts from {before}."
        )
    return said
