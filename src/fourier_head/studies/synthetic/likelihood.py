"""Appendix C.3 of the paper: the same densities learned from continuous values by maximum likelihood.

Outcomes outside [-1, 1] (about 0.6 % of the Gaussian sets) are moved to the nearest end for training and for the
perplexity, as `FourierHead.nll` does; the truth is renormalised on [-1, 1] for the KL divergence, which is integrated
by the midpoint rule on 500 cells.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from fourier_head._cpu import small_matrices
from fourier_head.density import FourierDensity
from fourier_head.layout import Layout
from fourier_head.metrics import kl_divergence
from fourier_head.mixture import GaussianMixture
from fourier_head.report.charts import Chart, Panel, Series
from fourier_head.report.summary import Row, Summary
from fourier_head.studies.engine import Engine, Task, run_tasks
from fourier_head.studies.results import RunStore, aggregate, command_line, write_results
from fourier_head.studies.synthetic import data
from fourier_head.studies.synthetic.kinds import FourierStack, MixtureStack
from fourier_head.studies.synthetic.stack import Schedule, Stack
from fourier_head.studies.synthetic.study import FREQUENCIES, GAMMAS, TITLES

if TYPE_CHECKING:
    from rich.console import Console

CELLS = 500
# As released: 100 epochs, cosine schedule, gradients of at most 0.1, inputs as they are.
SCHEDULE = Schedule(100, 32, 1e-3, cosine=True, clip=0.1)
METRICS = ("kl", "perplexity")
KEYS = ("dataset", "head", "frequencies", "packets", "gamma")
PAPER: dict[tuple[str, str], dict[str, tuple[float, float]]] = {
    ("gmm", "kl"): {"gaussian": (0.012, 0.002), "gmm2": (0.018, 0.001), "beta": (0.257, 0.03)},
    ("fourier", "kl"): {"gaussian": (0.034, 0.003), "gmm2": (0.072, 0.005), "beta": (0.130, 0.005)},
    ("gmm", "perplexity"): {"gaussian": (0.410, 0.014), "gmm2": (0.702, 0.015), "beta": (0.623, 0.035)},
    ("fourier", "perplexity"): {"gaussian": (0.422, 0.019), "gmm2": (0.740, 0.014), "beta": (0.542, 0.017)},
}


class MixtureLikelihoodStack(MixtureStack):
    """Gaussian mixtures cut off at -1 and 1, trained on values."""

    def density(self, outputs: Tensor, extra: Sequence[Tensor]) -> GaussianMixture:
        return GaussianMixture(*self.components(outputs, extra), low=-1.0, high=1.0, validate_args=False)

    def losses(self, outputs: Tensor, target: Tensor, extra: Sequence[Tensor]) -> Tensor:
        return -self.density(outputs, extra).log_prob(target)


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
    settings = [(n, g) for n in frequencies for g in gammas] if kind == "fourier" else [(0, 0.0)]
    runs = [(d, n, g) for n, g in settings for d in range(len(triples))]
    head: Any
    if kind == "fourier":
        layout = Layout(data.NUM_BINS, max(frequencies), floor=1e-4, packets=packets)
        head = FourierStack(layout, [n for _, n, _ in runs], [g for _, _, g in runs], "released", 100.0)
    else:
        head = MixtureLikelihoodStack(data.NUM_BINS, {"gmm": "paper", "gmm_full": "full"}[kind])

    def stacked(arrays: list[np.ndarray]) -> Tensor:
        return torch.as_tensor(np.stack(arrays), dtype=torch.float32, device=device)

    which = torch.tensor([d for d, _, _ in runs], device=device)
    schedule = Schedule(epochs, SCHEDULE.batch, SCHEDULE.rate, SCHEDULE.cosine, SCHEDULE.clip)
    with small_matrices():
        stack = Stack(head, [triples[d].seed for d, _, _ in runs], device)
        say = None if report is None else lambda share: report(share, f"epoch {round(share * epochs)}")
        stack.train(
            stacked([t.train_inputs for t in triples]),
            stacked([np.clip(t.train_outcomes, -1, 1) for t in triples]),
            which,
            schedule,
            report=say,
        )
        x = stacked([t.test_inputs for t in triples]).index_select(0, which)
        y = stacked([np.clip(t.test_outcomes, -1, 1) for t in triples]).index_select(0, which)
        with torch.no_grad():
            outputs = stack.outputs(x)
        return [
            _record(stack, outputs[r], y[r], triples[d], r, kind, n, g, packets) for r, (d, n, g) in enumerate(runs)
        ]


@torch.no_grad()
def _record(
    stack: Stack,
    outputs: Tensor,
    y: Tensor,
    triple: data.Triples,
    r: int,
    kind: str,
    n: int,
    gamma: float,
    packets: int,
) -> dict[str, Any]:
    head: Any = stack.head
    one = [p[r] for p in stack.extra]
    if kind == "fourier":
        a = head.layout.coefficients(outputs * head.mask[r])
        density: Any = FourierDensity(a, floor=head.layout.floor, squares=True, validate_args=False)
    else:
        density = head.density(outputs, one)
    centers = -1 + (2 * np.arange(CELLS) + 1) / CELLS
    grid = torch.as_tensor(centers, dtype=torch.float32, device=y.device)
    predicted = density.log_prob(grid[:, None].expand(-1, y.shape[0])).exp().T.double().cpu()
    truth = torch.from_numpy(np.exp(data.log_density(triple.name, triple.test_inputs, centers)))
    truth = truth / truth.sum(1, keepdim=True)
    predicted = (predicted / predicted.sum(1, keepdim=True)).clamp_min(1e-10)  # as released
    return {
        "dataset": triple.name,
        "head": kind,
        "frequencies": n or None,
        "packets": packets or None,
        "gamma": gamma,
        "seed": triple.seed,
        "kl": kl_divergence(truth, predicted).mean().item(),
        "perplexity": math.exp(-density.log_prob(y).mean().item()),
    }


@dataclass(frozen=True)
class Settings:
    """What to run; ``quick`` takes fewer seeds, epochs and frequencies."""

    output: Path = Path("results/likelihood")
    quick: bool = False
    engine: Engine = "local"
    device: str = "cpu"
    workers: int | None = None

    @property
    def command(self) -> str:
        return command_line("study likelihood", {"quick": self.quick, "device": self.device}, {"device": "cpu"})


def run(settings: Settings, console: Console | None = None) -> Summary:
    """Run the study and write its folder."""
    begin = time.monotonic()
    frequencies = (4, 12) if settings.quick else FREQUENCIES
    half = len(frequencies) // 2
    tasks = []
    arms: list[tuple[str, Sequence[int], int]] = [
        ("fourier", frequencies[half:], 0),
        ("fourier", frequencies[:half], 0),
    ]
    arms += [("fourier", (12,), 4), ("gmm", (), 0), ("gmm_full", (), 0)]
    for kind, some, packets in arms:
        chosen = {
            "kind": kind,
            "frequencies": list(some),
            "gammas": list(GAMMAS if not packets else GAMMAS[:1]),
            "packets": packets,
            "datasets": list(data.DATASETS),
            "seeds": list(data.SEEDS[:1] if settings.quick else data.SEEDS),
            "epochs": 4 if settings.quick else SCHEDULE.epochs,
        }
        name = kind + (f" {min(some)}-{max(some)}" if some else "") + (f" +{packets} packets" if packets else "")
        tasks.append(Task(train_group, chosen, name, reports=True, resources={"device": settings.device}))
    store = RunStore(settings.output)
    done = run_tasks(tasks, store, engine=settings.engine, console=console, title="groups", workers=settings.workers)
    runs = [r for part in done for r in part]
    rows = [_with_paper(one) for one in aggregate(runs, METRICS, KEYS)]
    return write_results(
        settings.output,
        rows,
        command=settings.command,
        seconds=time.monotonic() - begin,
        runs=runs,
        charts=[chart(rows)],
        gpu=settings.device != "cpu",
        notes=[" ".join((__doc__ or "").split("\n\n")[1].split())],
    )


def _with_paper(one: Row) -> Row:
    known = PAPER.get((one["head"], one["metric"]), {}).get(one["dataset"])
    same = one["head"] != "fourier" or (one["frequencies"] == 12 and not one["packets"] and not one["gamma"])
    return one if known is None or not same else one | {"paper": known[0], "paper_std": known[1]}


def chart(rows: Sequence[Row]) -> Chart:
    """Draw KL and perplexity against the number of frequencies, as the paper does."""
    panels = []
    for metric, words in (("kl", "KL divergence"), ("perplexity", "Perplexity")):
        for name in data.DATASETS:
            mine = [r for r in rows if r["dataset"] == name and r["metric"] == metric]
            series = []
            for gamma, colour, label in (
                (0.0, "fourier", "Fourier"),
                (1e-6, "fourier-packets", "Fourier, regularised"),
            ):
                curve = [r for r in mine if r["head"] == "fourier" and r["gamma"] == gamma and not r["packets"]]
                curve.sort(key=lambda r: r["frequencies"])
                if curve:
                    x, y, e = ([r[k] for r in curve] for k in ("frequencies", "ours", "std"))
                    series.append(Series(label, x, y, colour, error=[v or 0.0 for v in e], dots=True))
            for r in mine:
                if r["head"] == "gmm":
                    series.append(Series("GMM", [2, 20], [r["ours"]] * 2, "gmm", dash="dash"))
            panels.append(Panel(series, TITLES[name], "frequencies", words))
    caption = "Mean and deviation over seeds; lower is better."
    return Chart("likelihood", "Maximum likelihood on continuous values", panels, caption)
