"""Section 4.1 and appendix C.2 of the paper: three known conditional densities, learned with every head."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from rich.console import Console

from fourier_head.pages.charts import Chart, Mark, Panel, Series
from fourier_head.pages.style import look
from fourier_head.tasks.engine import Task
from studies.common import options
from studies.common.frequency_charts import frequency_panel, saying_hollow
from studies.common.options import SILENT, option
from studies.common.report.summary import Row, Summary
from studies.common.report.tables import metric_label
from studies.common.results import aggregate, circumstances
from studies.synthetic import arms as arms_of
from studies.synthetic import data, start
from studies.synthetic.arms import TITLES, Arm, Paper, find, with_paper
from studies.synthetic.discrete import PROTOCOLS, train_group

METRICS = ("kl", "smoothness", "mse", "nll")
KEYS = ("dataset", "head", "frequencies", "packets", "gamma", "protocol")
DRAWN = ("fourier", "linear", "gmm", "hl_gauss")
QUICK_FREQUENCIES, QUICK_EPOCHS = (4, 12, 20), 6
CANDIDATES = [Arm("adaptive", (n,), packets) for packets in (0, 4) for n in (4, 12, 24)]
"""Adaptive heads, of which `--arms choice` finds the one with the best likelihood of held-out rows of other seeds."""
ADAPTIVE = Arm("adaptive", (24,), packets=4)
"""The one to report: what `recommend_head` takes at most, and what the choice found (`results/synthetic-choice`)."""

# Tables of section 4.1 and appendix C.2.
PAPER: Paper = {
    ("linear", "kl"): {"gaussian": (0.170, 0.052), "gmm2": (0.238, 0.032), "beta": (0.234, 0.032)},
    ("gmm", "kl"): {"gaussian": (0.026, 0.011), "gmm2": (0.030, 0.006), "beta": (0.407, 0.012)},
    ("fourier", "kl"): {"gaussian": (0.116, 0.043), "gmm2": (0.146, 0.033), "beta": (0.191, 0.016)},
    ("linear", "smoothness"): {"gaussian": (0.116, 0.049), "gmm2": (0.068, 0.022), "beta": (0.127, 0.044)},
    ("gmm", "smoothness"): {"gaussian": (0.068, 0.012), "gmm2": (0.043, 0.009), "beta": (0.061, 0.003)},
    ("fourier", "smoothness"): {"gaussian": (0.057, 0.011), "gmm2": (0.038, 0.007), "beta": (0.076, 0.021)},
    ("regression", "mse"): {"gaussian": (0.010, 0.001), "gmm2": (0.121, 0.004), "beta": (0.275, 0.009)},
    ("linear", "mse"): {"gaussian": (0.013, 0.001), "gmm2": (0.126, 0.004), "beta": (0.276, 0.008)},
    ("gmm", "mse"): {"gaussian": (0.010, 0.001), "gmm2": (0.120, 0.004), "beta": (0.273, 0.009)},
    ("fourier", "mse"): {"gaussian": (0.012, 0.001), "gmm2": (0.123, 0.005), "beta": (0.275, 0.008)},
}


@dataclass(frozen=True)
class Settings(options.TaskStudy):
    """What to run; ``quick`` takes fewer seeds, epochs and frequencies."""

    study = "synthetic"
    protocol: str = option("both", "released, recommended or both.", choices=("released", "recommended", "both"))
    arms: str = option(
        "all",
        "paper: the 276 runs of the paper; all: ours beside them; tables: the heads of its tables; "
        "pair: linear and Fourier-12 alone; start: Fourier-12 from several first weights; choice: how ours was chosen.",
        choices=("paper", "all", "tables", "pair", "start", "choice"),
    )
    seeds: int = option(len(data.SEEDS), "Seeds of data and networks, the paper's four first.", low=1)
    skip: int = option(0, "Seeds before these, which other results have.", low=0)
    device: str = options.device("cpu", told=True)
    workers: int | None = options.workers(None, "Processes.", shown="one per core")


def groups(settings: Settings) -> list[Task]:
    """Return the stacked groups of the study, longest first."""
    protocols = [p for p in PROTOCOLS if settings.protocol in (p, "both")]
    seeds = data.first_seeds(settings.skip + (1 if settings.quick else settings.seeds))[settings.skip :]
    epochs = QUICK_EPOCHS if settings.quick else None
    sweep = arms_of.fourier_arms(QUICK_FREQUENCIES if settings.quick else arms_of.FREQUENCIES)
    if settings.arms == "tables":
        sweep = [Arm("fourier", (arms_of.TABLES,))]
    tasks = []
    if settings.arms == "start":
        return start.tasks(protocols, seeds, epochs, settings.device)
    if settings.arms == "choice":
        more = {"protocol": "recommended", "scored_on": "held-out rows"}
        choice = [arm.tasks(train_group, data.CHOICE_SEEDS, epochs, settings.device, **more) for arm in CANDIDATES]
        return [task for part in choice for task in part]
    for protocol in protocols:
        others = [Arm("gmm"), Arm("linear"), Arm("regression")]
        if settings.arms == "pair":
            sweep, others = [Arm("fourier", (arms_of.TABLES,), regularised=False)], [Arm("linear")]
        ours = []
        if settings.arms == "all":
            ours = [Arm("fourier", (12,), packets=2), Arm("gmm_full"), Arm("hl_gauss")]
            if protocol == "recommended":
                ours = [Arm("recommended"), ADAPTIVE, Arm("fourier", (12,), packets=4), *ours]
        for arm in [*sweep, *ours, *others]:
            tasks += arm.tasks(train_group, seeds, epochs, settings.device, protocol=protocol)
    return tasks


def run(settings: Settings, console: Console = SILENT) -> Summary:
    """Run the study and write its folder."""
    settings, tasks = arms_of.planned(settings, groups)
    finished = settings.finish(tasks, console, "groups")
    missing = arms_of.left_out(len(tasks) - len(finished))
    runs = [
        r | {"protocol": task.settings["protocol"]} | start.told(task.settings) for task, part in finished for r in part
    ]
    # A choice is a table: it has none of the heads that figures compare.
    protocols = [p for p in PROTOCOLS if any(r["head"] in DRAWN for r in find(runs, protocol=p))]
    if settings.arms == "start":  # other starts than the paper's numbers are of
        rows = aggregate(runs, METRICS, start.KEYS)
        drawn = [start.chart(rows, p) for p in protocols]
    else:
        rows = [_beside_paper(one) for one in aggregate(runs, METRICS, KEYS)]
        drawn = [c for p in protocols for c in charts(rows, runs, p)]
    return settings.write(
        rows,
        runs=[{k: v for k, v in r.items() if k not in ("example", "versions")} for r in runs],
        charts=drawn,
        **circumstances(runs),  # they need not be those of here and now
        # `seconds` is this call's; groups finished before an interruption count here.
        core_seconds=round(sum(core_seconds(part) for _, part in finished)),
        keep_runs=bool(missing),
        notes=missing + ([] if settings.quick else notes(rows)),
        quick="trained for too short a time to compare with the paper",
    )


def core_seconds(records: Sequence[dict[str, Any]]) -> float:
    """Return how long one core trained a group, which may hold several stacks."""
    return sum({r.get("chosen_frequencies", 0): r["group_seconds"] for r in records}.values())


def _beside_paper(one: Row) -> Row:
    """Put the paper's number beside ours, which has to be trained as the paper's was."""
    return with_paper(one, PAPER) if one["protocol"] == "released" else one


def notes(rows: Sequence[Row]) -> list[str]:
    """Return in sentences what came out."""
    found = []
    checked = [r for r in rows if r.get("paper") is not None]
    if checked:
        close, near = ([r for r in checked if _agrees(r, deviations)] for deviations in (1, 2))
        found.append(
            f"Released protocol: of {len(checked)} numbers in the paper's tables {len(close)} agree within one of its "
            f"deviations, {len(near)} within two (MSE within 0.005)."
        )
        for r in checked:
            if r not in near:
                found.append(
                    f"Apart from the paper: {metric_label(r['metric'])} of {look(r['head']).label} on "
                    f"{TITLES[r['dataset']]}, "
                    f"ours {r['ours']:.3f}, paper {r['paper']:.3f} ± {r['paper_std']:.3f}."
                )
    return found


def _agrees(one: Row, deviations: int) -> bool:
    """Tell whether a number is within so many of the paper's deviations of its own; errors have none to speak of."""
    return abs(one["ours"] - one["paper"]) <= (0.005 if one["metric"] == "mse" else deviations * one["paper_std"])


def charts(rows: Sequence[Row], runs: Sequence[dict[str, Any]], protocol: str) -> list[Chart]:
    """Draw the paper's figures: KL and smoothness against N, and learned densities side by side."""
    made = []
    for metric, words in (("kl", "KL divergence"), ("smoothness", "Smoothness")):
        panels = []
        for name in data.DATASETS:
            own = find(rows, protocol=protocol, dataset=name, metric=metric, packets=None)
            panels.append(frequency_panel([r for r in own if r["head"] in DRAWN], TITLES[name], words))
        words_below = "Mean and deviation over seeds; lower is better. Dashed: heads without frequencies."
        caption = saying_hollow(words_below, panels)
        made.append(Chart(f"{protocol}-{metric}", f"{words} against frequencies, {protocol} protocol", panels, caption))
    made.append(_densities(runs, protocol))
    if any(r["head"] == "regression" for r in runs):
        made.append(_points(runs, protocol))
    return made


def _points(runs: Sequence[dict[str, Any]], protocol: str) -> Chart:
    """Draw the point that a regression predicts over the true distribution, where that spreads the most."""
    centers = np.array([-1 + (2 * j + 1) / data.NUM_BINS for j in range(data.NUM_BINS)])
    panels = []
    for name in data.DATASETS:
        (run, *_) = find(runs, protocol=protocol, dataset=name, head="regression")
        truth = data.true_pmf(name, data.draw(name, run["seed"]).test_inputs[: len(run["example"])])
        mean = truth @ centers
        widest = int((truth @ centers**2 - mean**2).argmax())
        series = [
            Series("truth", centers, truth[widest], "truth", "area"),
            Series("its mean", [mean[widest]], [0.0], "ink", "points"),
        ]
        marks = [Mark(run["example"][widest], "regression")]
        panels.append(Panel(series, TITLES[name], "z", "probability", marks=marks))
    caption = "That of a few test inputs with the widest distribution. A regression comes out at its mean."
    return Chart(f"{protocol}-regression", f"Points that a regression predicts, {protocol} protocol", panels, caption)


def _densities(runs: Sequence[dict[str, Any]], protocol: str) -> Chart:
    centers = [-1 + (2 * j + 1) / data.NUM_BINS for j in range(data.NUM_BINS)]
    own, panels = find(runs, protocol=protocol), []
    for name in data.DATASETS:
        truth = data.true_pmf(name, data.draw(name, runs[0]["seed"]).test_inputs[:1])[0].tolist()
        panels.append(arms_of.learned_panel(own, name, centers, truth, "probability"))
    title = f"Learned conditional distributions, {protocol} protocol"
    return Chart(f"{protocol}-densities", title, panels, "One test input of each data set; grey is the truth.")
