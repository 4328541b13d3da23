"""What the discrete and the continuous study share: the arms, the paper's numbers beside ours, curves over N."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from fourier_head._devices import chosen_device
from fourier_head.pages.charts import Panel, Series
from fourier_head.tasks.engine import Task
from studies.common.report.summary import Row
from studies.synthetic import data

FREQUENCIES = tuple(range(2, 21, 2))
TABLES = 12
"""The frequencies of the paper's tables."""
GAMMAS = (0.0, 1e-6)
LARGEST_STACK = {"cpu": 120, "cuda": 600}
"""Networks trained at once. From there on a core's cache is full; a GPU takes as long for one as for hundreds."""
TITLES = {"gaussian": "Gaussian", "gmm2": "GMM-2", "beta": "Beta"}
SHOWN = (
    ("linear", None, "Linear", "linear"),
    ("gmm", None, "GMM (paper)", "gmm"),
    ("fourier", 12, "Fourier-12", "fourier"),
    ("recommended", None, "Recommended", "fourier-packets"),
)
"""Heads whose densities are drawn: frequencies, name and colour of each."""

Paper = Mapping[tuple[str, str], Mapping[str, tuple[float, float]]]
"""Mean and deviation by head and metric, then by data set; of a Fourier head, with 12 frequencies, no regulariser."""


@dataclass(frozen=True)
class Arm:
    """A kind of head and, where it has them, its numbers of frequencies and packets: the runs of one stack.

    A paper's Fourier head is trained with its regulariser and without, unless it is not to be ``regularised``.
    """

    kind: str
    frequencies: tuple[int, ...] = ()
    packets: int = 0
    regularised: bool = True

    @property
    def name(self) -> str:
        """Return the arm in words.

        >>> Arm("fourier", (12,), packets=2).name
        'fourier 12 +2 packets'
        """
        ends = sorted({*self.frequencies[:1], *self.frequencies[-1:]})
        span = " " + "-".join(str(n) for n in ends) if ends else ""
        return self.kind + span + (f" +{self.packets} packets" if self.packets else "")

    @property
    def gammas(self) -> tuple[float, ...]:
        """Return the weights of the regulariser: the paper's two for its own heads."""
        return GAMMAS if self.kind == "fourier" and not self.packets and self.regularised else GAMMAS[:1]

    def tasks(
        self, function: Callable[..., Any], seeds: Sequence[int], epochs: int | None, device: str, **more: Any
    ) -> list[Task]:
        """Return the tasks of training the arm on all data sets with these seeds, a stack each."""
        runs = len(data.DATASETS) * max(1, len(self.frequencies)) * len(self.gammas)
        size = max(1, LARGEST_STACK["cuda" if device.startswith("cuda") else "cpu"] // runs)
        found = []
        for first in range(0, len(seeds), size):
            some = list(seeds[first : first + size])
            settings = {
                **more,
                "kind": self.kind,
                "frequencies": list(self.frequencies),
                "gammas": list(self.gammas),
                "packets": self.packets,
                "datasets": list(data.DATASETS),
                "seeds": some,
                "epochs": epochs,
            }
            label = ": ".join([*(str(v) for v in more.values()), self.name])
            if len(some) < len(seeds):
                label += f", seeds {', '.join(str(seed) for seed in some)}"
            found.append(Task(function, settings, label, reports=True, resources={"device": device}))
        return found


def fourier_arms(frequencies: Sequence[int]) -> list[Arm]:
    """Return the sweep over frequencies as two stacks of like cost, so that two cores share it."""
    half = len(frequencies) // 2
    return [Arm("fourier", tuple(frequencies[half:])), Arm("fourier", tuple(frequencies[:half]))]


def combinations(
    kind: str, frequencies: Sequence[int], gammas: Sequence[float], datasets: int
) -> list[tuple[int, int, float]]:
    """Return the runs of a stack as (data set, frequencies, gamma), those with the same gamma together."""
    sized = kind in ("fourier", "adaptive")
    settings = [(n, g) for g in gammas for n in frequencies] if sized else [(0, 0.0)]
    return [(d, n, g) for n, g in settings for d in range(datasets)]


def record(triple: data.Triples, kind: str, frequencies: int, packets: int, gamma: float) -> dict[str, Any]:
    """Return what names a run."""
    return {
        "dataset": triple.name,
        "head": kind,
        "frequencies": frequencies or None,
        "packets": packets or None,
        "gamma": gamma if frequencies else None,
        "seed": triple.seed,
    }


Planned = TypeVar("Planned", bound=Any)


def planned(settings: Planned, groups: Callable[[Planned], list[Task]]) -> tuple[Planned, list[Task]]:
    """Return the settings with the device that is there, and their tasks.

    Where all tasks are finished none is needed: what was trained on a GPU may be written down elsewhere.
    """
    if settings.device != "auto":
        tasks = groups(settings)
        if all(settings.store.get(task.label, task.settings) is not None for task in tasks):
            return settings, tasks
    settings = replace(settings, device=chosen_device(settings.device))
    return settings, groups(settings)


def left_out(count: int) -> list[str]:
    """Say in words how many groups the time limit left out, if any."""
    return [f"The time limit left out {count} groups of runs; the same command goes on with them."] * (count > 0)


def with_paper(one: Row, paper: Paper) -> Row:
    """Put the paper's number beside ours where the paper has one."""
    known = paper.get((one["head"], one["metric"]), {}).get(one["dataset"])
    same = one["head"] != "fourier" or (one["frequencies"] == TABLES and not one["packets"] and not one["gamma"])
    return one if known is None or not same else one | {"paper": known[0], "paper_std": known[1]}


def find(rows: Sequence[Mapping[str, Any]], **wanted: Any) -> list[Any]:
    """Return the rows with these values."""
    return [r for r in rows if all(r.get(k) == v for k, v in wanted.items())]


def learned_panel(
    runs: Sequence[Mapping[str, Any]], name: str, centers: Sequence[float], truth: Sequence[float], unit: str
) -> Panel:
    """Draw what heads learned for the first test input of one seed of a data set, over the truth."""
    series = [Series("truth", centers, truth, "truth", "area")]
    for head, frequencies, label, colour in SHOWN:
        found = find(runs, dataset=name, seed=runs[0]["seed"], head=head, frequencies=frequencies)
        found = [r for r in found if head != "fourier" or (not r["packets"] and not r["gamma"])]
        series += [Series(label, centers, r["example"], colour) for r in found[:1]]
    return Panel(series, TITLES[name], "z", unit)
