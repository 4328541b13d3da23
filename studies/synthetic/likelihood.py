"""Appendix C.3 of the paper: the same densities learned from continuous values by maximum likelihood.

Outcomes outside [-1, 1] (about 0.6 % of the Gaussian sets) are moved to the nearest end for training and for the
perplexity, as `FourierHead.nll` does; the truth is renormalised on [-1, 1] for the KL divergence, which is integrated
by the midpoint rule on 500 cells.

All heads are trained for 200 epochs, twice as long as in the released code: chosen by the likelihood of a part of the
training rows that was held out for it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from rich.console import Console

from fourier_head._devices import small_matrices
from fourier_head.metrics import kl_divergence
from fourier_head.pages.charts import Chart
from fourier_head.tasks.engine import Task
from fourier_head.tasks.runs import hardware, versions
from studies.common import options
from studies.common.frequency_charts import frequency_panel, saying_hollow
from studies.common.options import SILENT, option
from studies.common.report.summary import Row, Summary
from studies.common.results import aggregate, circumstances
from studies.synthetic import arms as arms_of
from studies.synthetic import data
from studies.synthetic.arms import TITLES, Arm, Paper, find, with_paper
from studies.synthetic.stack import FourierOptions, Network, Schedule, draw_network, make_head, train

CELLS = 500
# As released (cosine schedule, gradients of at most 0.1, inputs as they are) but for twice its 100 epochs: of the
# rates, batches, clips and epochs tried, the best mean likelihood of Fourier-12 on a fifth of the training rows.
SCHEDULE = Schedule(200, 32, 1e-3, cosine=True, clip=0.1)
FOURIER = FourierOptions.released(floor=1e-4)
QUICK_EPOCHS = 4
METRICS = ("kl", "perplexity")
KEYS = ("dataset", "head", "frequencies", "packets", "gamma")
PAPER: Paper = {
    ("gmm", "kl"): {"gaussian": (0.012, 0.002), "gmm2": (0.018, 0.001), "beta": (0.257, 0.03)},
    ("fourier", "kl"): {"gaussian": (0.034, 0.003), "gmm2": (0.072, 0.005), "beta": (0.130, 0.005)},
    ("gmm", "perplexity"): {"gaussian": (0.410, 0.014), "gmm2": (0.702, 0.015), "beta": (0.623, 0.035)},
    ("fourier", "perplexity"): {"gaussian": (0.422, 0.019), "gmm2": (0.740, 0.014), "beta": (0.542, 0.017)},
}


def train_group(
    kind: str,
    frequencies: Sequence[int],
    gammas: Sequence[float],
    packets: int,
    datasets: Sequence[data.DatasetName],
    seeds: Sequence[int],
    epochs: int = SCHEDULE.epochs,
    device: str = "cpu",
    report: Callable[[float, str], None] | None = None,
) -> list[dict[str, Any]]:
    """Train all runs of a kind as one stack on continuous values and return a record per run."""
    triples = [data.draw(name, seed) for name in datasets for seed in seeds]
    runs = arms_of.combinations(kind, frequencies, gammas, len(triples))
    networks = [draw_network(triples[d].seed, make_head(kind, FOURIER, n, g, packets)) for d, n, g in runs]
    x, y = (
        torch.as_tensor(np.stack(arrays), dtype=torch.float32, device=device)
        for arrays in ([t.train_inputs for t in triples], [np.clip(t.train_outcomes, -1, 1) for t in triples])
    )
    with small_matrices():
        progress = None if report is None else lambda share: report(share, f"epoch {round(share * epochs)}")
        train(networks, x, y, [d for d, _, _ in runs], SCHEDULE.shortened(epochs), report=progress)
        where = {"hardware": hardware(device != "cpu"), "versions": versions()}
        return [
            arms_of.record(triples[d], kind, n, packets, g) | scores(network.eval(), triples[d]) | where
            for network, (d, n, g) in zip(networks, runs, strict=True)
        ]


@torch.no_grad()
def scores(network: Network, triple: data.Triples) -> dict[str, Any]:
    """Return the paper's metrics of the densities that a network predicts for the test inputs, and one of them."""
    x, y = (
        torch.as_tensor(array, dtype=torch.float32)
        for array in (triple.test_inputs, np.clip(triple.test_outcomes, -1, 1))
    )
    density = network.head.density(network.body(x))
    centers = -1 + (2 * np.arange(CELLS) + 1) / CELLS
    grid = torch.as_tensor(centers, dtype=torch.float32)
    predicted = density.log_prob(grid[:, None].expand(-1, len(y))).exp().T.double()
    truth = torch.from_numpy(np.exp(data.log_density(triple.name, triple.test_inputs, centers)))
    truth = truth / truth.sum(1, keepdim=True)
    predicted = (predicted / predicted.sum(1, keepdim=True)).clamp_min(1e-10)  # as released
    return {
        "kl": kl_divergence(truth, predicted).mean().item(),
        "perplexity": math.exp(-density.log_prob(y).mean().item()),
        "example": [round(v * CELLS / 2, 4) for v in predicted[0].tolist()],
    }


@dataclass(frozen=True)
class Settings(options.TaskStudy):
    """What to run; ``quick`` takes fewer seeds, epochs and frequencies."""

    study = "likelihood"
    seeds: int = option(len(data.SEEDS), "Seeds of data and networks, the paper's four first.", low=1)
    device: str = options.device("cpu", told=True)
    workers: int | None = options.workers(None, "Processes.", shown="one per core")


def groups(settings: Settings) -> list[Task]:
    """Return the stacked groups of the study."""
    seeds = data.first_seeds(1 if settings.quick else settings.seeds)
    epochs = QUICK_EPOCHS if settings.quick else SCHEDULE.epochs
    others = [Arm("fourier", (12,), packets=4), Arm("gmm"), Arm("gmm_full")]
    arms = [*arms_of.fourier_arms((4, 12) if settings.quick else arms_of.FREQUENCIES), *others]
    return [task for arm in arms for task in arm.tasks(train_group, seeds, epochs, settings.device)]


def run(settings: Settings, console: Console = SILENT) -> Summary:
    """Run the study and write its folder."""
    settings, tasks = arms_of.planned(settings, groups)
    finished = settings.finish(tasks, console, "groups")
    missing = arms_of.left_out(len(tasks) - len(finished))
    runs = [r for _, part in finished for r in part]
    rows = [with_paper(one, PAPER) for one in aggregate(runs, METRICS, KEYS)]
    told = (__doc__ or "").replace("`", "").split("\n\n")[1:]  # what is measured, and how long was trained
    return settings.write(
        rows,
        runs=[{k: v for k, v in r.items() if k not in ("example", "versions")} for r in runs],
        charts=[chart(rows), learned(runs)],
        **circumstances(runs),
        keep_runs=bool(missing),
        notes=[*missing, " ".join(" ".join(told[:1] if settings.quick else told).split())],
        quick=f"{QUICK_EPOCHS} epochs, one seed and few frequencies",
    )


def chart(rows: Sequence[Row]) -> Chart:
    """Draw KL and perplexity against the number of frequencies, as the paper does."""
    panels = []
    for metric, words in (("kl", "KL divergence"), ("perplexity", "Perplexity")):
        for name in data.DATASETS:
            own = find(rows, dataset=name, metric=metric, packets=None)
            panels.append(frequency_panel([r for r in own if r["head"] in ("fourier", "gmm")], TITLES[name], words))
    caption = saying_hollow("Mean and deviation over seeds; lower is better.", panels)
    return Chart("likelihood", "Maximum likelihood on continuous values", panels, caption)


def learned(runs: Sequence[dict[str, Any]]) -> Chart:
    """Draw the densities that heads learned for one test input of each data set."""
    centers = -1 + (2 * np.arange(CELLS) + 1) / CELLS
    panels = []
    for name in data.DATASETS:
        inputs = data.draw(name, runs[0]["seed"]).test_inputs[:1]
        truth = np.exp(data.log_density(name, inputs, centers))[0]
        panels.append(arms_of.learned_panel(runs, name, centers.tolist(), truth.tolist(), "density"))
    caption = "One test input of each data set; grey is the truth."
    return Chart("densities", "Densities learned by maximum likelihood", panels, caption)
