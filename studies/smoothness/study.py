"""Appendix B of the paper: does the smoothness metric grow with every bit of high-frequency content?

Two experiments. Truncated square waves, framed as categoricals, must get less smooth with every sine wave added: the
metric with the L2 norm does, with the L1 norm it falls back from some wave on. And noise from brown to blue must get
less smooth: L2 does, the entropy of the power spectrum does not.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from rich.console import Console
from torch import Tensor

from fourier_head.fourier.quadrature import legendre
from fourier_head.metrics import smoothness
from fourier_head.tasks.engine import Task
from studies.common import options
from studies.common.options import SILENT, option
from studies.common.report.summary import Row, Summary
from studies.common.results import row
from studies.smoothness.charts import noise_chart, shapes_chart, waves_chart
from studies.smoothness.signals import (
    SAMPLES,
    SHOWN,
    coloured_noise,
    first_fall,
    reach,
    spectral_entropy,
    square_waves,
    waves_to_nyquist,
)

NOISE_SAMPLES = 4096
"""Length of a noise signal; the paper does not name it, but its values come out at this one."""

PERIODS = (1.0, 1.5, 2.0, 4.0)
"""Wavelengths in the window; the paper does not say how many it had."""

SEEDS = 10
"""Repetitions of the noise, to tell the signs of small steps."""


@dataclass(frozen=True)
class Noise:
    """A colour of noise: its power goes like frequency^power.

    Of each measure, what the paper prints: mean, deviation, and the step from the colour before. The steps are not the
    differences of the means printed, which are rounded.
    """

    power: float
    l2: tuple[float, float, float | None]
    entropy: tuple[float, float, float | None]


NOISES = {
    "brown": Noise(-2.0, (0.0003, 0.0001, None), (0.4516, 0.0894, None)),
    "pink": Noise(-1.0, (0.0017, 0.0002, 0.0014), (0.3878, 0.0603, -0.0638)),
    "white": Noise(0.0, (0.0034, 0.0003, 0.0016), (0.4266, 0.0614, 0.0388)),
    "blue": Noise(1.0, (0.0038, 0.0003, 0.0005), (0.4191, 0.0583, -0.0076)),
}
PAPER_L1_BREAK = 80  # "undesirable warping when our square-wave multinomial uses over 80 sine waves"


@dataclass(frozen=True)
class Settings(options.TaskStudy):
    """What to measure."""

    study = "smoothness"
    trials: int = option(1000, "Signals of each colour of noise.", low=2)
    seed: int = option(0, "Of the noise.")


def measure_square_waves(count: int, samples: int, periods: float) -> dict[str, list[float]]:
    """Return the smoothness of each truncated square wave for both norms."""
    waves = square_waves(count, samples, periods)
    return {norm: smoothness(waves, discrepancy=norm).tolist() for norm in ("l2", "l1")}


def measure_noise(colour: str, trials: int, samples: int, seed: int) -> dict[str, list[float]]:
    """Return the measures of every trial of one colour of noise."""
    y = coloured_noise(NOISES[colour].power, trials, samples, seed)
    measures = {
        "l2": smoothness(y, max_sigma="released"),
        "l2_full": smoothness(y),
        "spectral_entropy": spectral_entropy(y, base=math.e),
        "spectral_entropy_varying": spectral_entropy(y, dc=False),
    }
    return {name: [float(f"{value:.5g}") for value in values.tolist()] for name, values in measures.items()}


def continuous_smoothness(q: Tensor, least: float) -> list[float]:
    r"""Return the smoothness of equation 1 of :math:`f(z) = \frac12 + \sum_k q_k \sin(\pi k z)`, cut after every k.

    With the weights :math:`\alpha_\sigma = \sigma_0 / \sigma^2` from :math:`\sigma_0` on, whose integral is one, as
    those of the metric sum to one, and the L2 norm, Plancherel's theorem gives

    .. math:: s(f) = \int_0^1 \Big( \sum_k q_k^2 \big(1 - e^{-(\pi k \sigma_0 / u)^2 / 2}\big)^2 \Big)^{1/2} du .

    Every frequency adds to the sum, so that for truncations of a series it cannot fall: no number of samples is
    needed to see that.
    """
    nodes, weights = legendre(400)
    u = torch.from_numpy((nodes + 1) / 2)[:, None]
    k = torch.arange(1, len(q) + 1, dtype=torch.float64)
    lost = -torch.expm1(-((math.pi * k * least / u) ** 2) / 2)
    return (torch.from_numpy(weights / 2) @ (q * lost).square().cumsum(-1).sqrt()).tolist()


def continuous_rows() -> list[Row]:
    """Return the smoothness of equation 1 of the uniform density, of a fast sine, and of truncated square waves."""
    least = 2 / SAMPLES  # as wide as a sample
    fast = torch.zeros(100, dtype=torch.float64)
    fast[-1] = 0.5
    shapes = {"uniform": torch.zeros(1, dtype=torch.float64), "sin(100 pi x)": fast}
    chosen = {"protocol": "equation 1, continuous"}
    rows = [row("l2", continuous_smoothness(q, least)[-1], dataset=name, **chosen) for name, q in shapes.items()]
    count = waves_to_nyquist(1.0)
    odd = torch.zeros(2 * count, dtype=torch.float64)
    odd[::2] = 2 / math.pi / torch.arange(1, 2 * count, 2, dtype=torch.float64)
    values = continuous_smoothness(odd, least)[::2]
    more = {"dataset": "square wave", "sine_waves": count, "falls": sum(a > b for a, b in itertools.pairwise(values))}
    rows.append(row("l2_first_fall", first_fall(values), **chosen, **more))
    return rows + [row("l2", values[n - 1], dataset="square wave", sine_waves=n, **chosen) for n in SHOWN]


def measure_steps(trials: int, samples: int, seed: int) -> dict[str, list[float]]:
    """Return the steps of both measures from each colour of noise to the next, in means over trials of one seed."""
    means: dict[str, list[float]] = {"l2": [], "spectral_entropy": []}
    for i, noise in enumerate(NOISES.values()):
        y = coloured_noise(noise.power, trials, samples, 1000 + seed * len(NOISES) + i)
        means["l2"].append(smoothness(y, max_sigma="released").mean().item())
        means["spectral_entropy"].append(spectral_entropy(y, base=math.e).mean().item())
    return {name: [b - a for a, b in itertools.pairwise(values)] for name, values in means.items()}


def step_rows(steps: Sequence[dict[str, list[float]]]) -> Iterator[Row]:
    """Return the expected steps between colours over seeds, beside the paper's, and in how many seeds they go up."""
    for metric in ("l2", "spectral_entropy"):
        for i, colour in enumerate(list(NOISES)[1:]):
            values = torch.tensor([one[metric][i] for one in steps], dtype=torch.float64)
            noise = NOISES[colour]
            more = {"dataset": f"{colour} noise", "protocol": "from the colour before", "seeds": len(values)}
            more |= {"paper": (noise.l2 if metric == "l2" else noise.entropy)[2], "up": int((values > 0).sum())}
            yield row(f"{metric}_step", values.mean().item(), std=values.std().item(), **more)


def run(settings: Settings, console: Console = SILENT) -> Summary:
    """Run the study and write its folder."""
    trials = min(settings.trials, 100) if settings.quick else settings.trials
    periods = PERIODS[:1] if settings.quick else PERIODS
    tasks = []
    for number in periods:
        count = waves_to_nyquist(number)
        chosen = {"count": count // 3 if settings.quick else count, "samples": SAMPLES, "periods": number}
        tasks.append(Task(measure_square_waves, chosen, f"square waves, {number:g} in the window"))
    for i, colour in enumerate(NOISES):
        drawn = {"colour": colour, "trials": trials, "samples": NOISE_SAMPLES, "seed": settings.seed * len(NOISES) + i}
        tasks.append(Task(measure_noise, drawn, f"{colour} noise"))
    first = len(tasks)
    for seed in range(2 if settings.quick else SEEDS):
        drawn = {"trials": trials, "samples": NOISE_SAMPLES, "seed": seed}
        tasks.append(Task(measure_steps, drawn, f"steps between colours, seed {seed}"))
    results = [result for _, result in settings.finish(tasks, console, "measurements", all_of_them=True)]
    results, steps = results[:first], results[first:]
    waves, noise = dict(zip(periods, results, strict=False)), dict(zip(NOISES, results[len(periods) :], strict=True))
    noises = list(noise_rows(noise))
    return settings.write(
        [*wave_rows(waves), *noises, *step_rows(steps), *continuous_rows()],
        runs=[dict(task.settings) | result for task, result in zip(tasks, results, strict=False)],
        charts=[shapes_chart(), waves_chart(waves[1.0]), noise_chart(noises)],
        notes=notes(waves, noise),
        quick=f"{trials} trials, one wavelength and a third of the sine waves",
    )


def wave_rows(waves: dict[float, dict[str, list[float]]]) -> Iterator[Row]:
    """Return where each norm first falls, for every number of wavelengths, and the curve at a few places."""
    for periods, curves in waves.items():
        for norm, values in curves.items():
            # The paper tells no wavelength; its number goes with the plainest reading, one of them.
            paper = PAPER_L1_BREAK if norm == "l1" and periods == 1 else None
            falls, fall = sum(a > b for a, b in itertools.pairwise(values)), first_fall(values)
            more = {"periods": periods, "sine_waves": len(values), "falls": falls}
            yield row(f"{norm}_first_fall", fall, dataset="square wave", paper=paper, **more)
            if periods == 1:
                for count in SHOWN:
                    if count <= len(values):
                        value = values[count - 1]
                        yield row(norm, value, dataset="square wave", periods=periods, sine_waves=count)


def noise_rows(noise: dict[str, dict[str, list[float]]]) -> Iterator[Row]:
    """Return the noise table: mean and deviation over trials, and the step from the smoother colour before."""
    conventions = {
        "l2_full": ("l2", "all sigma"),
        "l2": ("l2", "sigma to 100"),
        "spectral_entropy": ("spectral_entropy", "nats"),
        "spectral_entropy_varying": ("spectral_entropy", "bits, no constant"),
    }
    for key, (metric, protocol) in conventions.items():
        before: float | None = None
        for colour, measured in noise.items():
            values = torch.tensor(measured[key], dtype=torch.float64)
            noise_type = NOISES[colour]
            published = None if key.endswith("varying") else noise_type.l2 if metric == "l2" else noise_type.entropy
            paper, paper_std, paper_step = published or (None, None, None)
            mean, std = values.mean().item(), values.std().item()
            step = None if before is None else mean - before
            more: dict[str, Any] = {"paper_std": paper_std, "step": step, "paper_step": paper_step}
            more |= {"dataset": f"{colour} noise", "protocol": protocol, "seeds": len(values)}
            yield row(metric, mean, std=std, paper=paper, **more)
            before = mean


def notes(waves: dict[float, dict[str, list[float]]], noise: dict[str, dict[str, list[float]]]) -> list[str]:
    """Return in sentences what came out."""
    l2 = {p: first_fall(curves["l2"]) for p, curves in waves.items()}
    breaks = ", ".join(f"{first_fall(curves['l1']) or 'none'} ({p:g})" for p, curves in waves.items())
    rising = "rises with every wave" if not any(l2.values()) else f"falls at {l2}"
    means = {c: {k: sum(v) / len(v) for k, v in m.items()} for c, m in noise.items()}
    steps = [b["spectral_entropy"] - a["spectral_entropy"] for a, b in itertools.pairwise(means.values())]
    signs = ", ".join("up" if step > 0 else "down" for step in steps)
    varying = ", ".join(f"{c} {m['spectral_entropy_varying']:.2f}" for c, m in means.items())
    return [
        f"L2 {rising} {reach(waves[1.0]['l2'])}. L1 first falls at this sine wave, by wavelengths in the window: "
        f"{breaks}. The paper reports more than 80 at 2048 samples without naming the wavelength.",
        f"Spectral entropy from brown to blue goes {signs}: not monotone, as the paper says. Its printed values come "
        f"out in nats (the formula has bits), on {NOISE_SAMPLES} samples, with the constant term kept. A categorical "
        "is positive, so that term holds most of the power, and the entropy mostly tells how large the variance is "
        "against the squared mean after scaling to [0, 1].",
        f"Without the constant term, in bits, entropy orders all colours but the last: {varying}. White noise is the "
        "flattest spectrum there is, so blue noise cannot exceed it.",
    ]
