"""Pictures of committed results, and of the forecaster: `python docs/gallery/measured.py` draws all of them."""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from look import BLUE, GREEN, GREY, HERE, ORANGE, SKY, TRUTH, save

ROOT = HERE.parents[1]
sys.path.append(str(ROOT))
from studies.common.report.tables import model_label  # noqa: E402


def rows(study: str) -> list[dict]:
    """Return the rows of a study's summary."""
    return json.loads((ROOT / "results" / study / "summary.json").read_text(encoding="utf-8"))["rows"]


def cost(folder: Path = HERE) -> Path:
    """What more bins cost: time and memory of a loss with its gradients, `benchmarks/results/sweep.csv`."""
    with (ROOT / "benchmarks" / "results" / "sweep.csv").open() as file:
        measured = [row for row in csv.DictReader(file) if row["axis"] == "m"]
    figure, axes = plt.subplots(1, 2)
    for name, label, colour in (("linear + CE", "linear layer", ORANGE), ("fused", "Fourier head, N = 550", BLUE)):
        part = sorted(
            (int(r["m"]), float(r["median_us"]), int(r["peak_extra_bytes"]))
            for r in measured
            if r["implementation"] == name
        )
        bins, time, memory = np.array(part).T
        axes[0].loglog(bins, time / 1000, "o-", ms=4, color=colour, label=label)
        axes[1].loglog(bins, memory / 2**20, "o-", ms=4, color=colour)
    axes[0].set(
        title="Loss and gradients, ms",
        xlabel="bins",
        yticks=[0.1, 0.2, 0.5, 1, 2, 5, 10],
        yticklabels=["0.1", "0.2", "0.5", "1", "2", "5", "10"],
    )
    axes[1].set(title="Peak extra memory, MiB", xlabel="bins")
    axes[0].legend(loc="center right")
    figure.suptitle("16,384 tokens of 384 features, bfloat16, one H200", fontsize=9, color=GREY)
    return save(figure, "cost.png", folder)


def smoothness_law(folder: Path = HERE) -> Path:
    """The smoothness of trained heads against N, with the linear layer's beside it: `results/synthetic`."""
    figure, axes = plt.subplots(1, 3, sharey=True, figsize=(7.2, 3.2))
    found = [r for r in rows("synthetic") if r["metric"] == "smoothness" and r["protocol"] == "recommended"]
    for axis, dataset in zip(axes, ("gaussian", "gmm2", "beta"), strict=True):
        here = [r for r in found if r["dataset"] == dataset]
        curve = {
            r["frequencies"]: r for r in here if r["head"] == "fourier" and not r["packets"] and not r.get("gamma")
        }
        counts = sorted(curve)
        linear = next(r for r in here if r["head"] == "linear")
        axis.errorbar(
            counts,
            [curve[n]["ours"] for n in counts],
            [curve[n]["std"] for n in counts],
            fmt="o-",
            ms=3,
            color=BLUE,
            label="Fourier head",
        )
        axis.axhline(linear["ours"], color=ORANGE, ls="--", label="linear layer")
        axis.set(
            title={"gaussian": "Gaussian", "gmm2": "two Gaussians", "beta": "Beta"}[dataset],
            xlabel="frequencies N",
            xticks=[2, 8, 14, 20],
        )
    axes[0].set_ylabel("roughness of the bins\n(the paper's smoothness metric)")
    axes[0].legend(loc="lower right")
    return save(figure, "smoothness-law.png", folder)


def zero_shot(folder: Path = HERE) -> Path:
    """The forecaster beside published ones on series it never saw: `results/zero-shot`, 15 verified sets."""
    scores: dict[str, dict[str, float]] = {}
    for r in rows("zero-shot"):
        if r["dataset"] == "verified" and r["metric"] in ("relative_mase", "relative_wql"):
            scores.setdefault(r["head"], {})[r["metric"]] = r["ours"] or r["published"]
    best = sorted(scores, key=lambda name: scores[name]["relative_wql"])
    names = ["fourier", *[name for name in best if name != "fourier"][:7]]
    figure, axes = plt.subplots(1, 2, sharey=True, figsize=(7.2, 3.6))
    for axis, metric in zip(axes, ("relative_mase", "relative_wql"), strict=True):
        values = [scores[name][metric] for name in names]
        bars = axis.barh(range(len(names)), values, color=[SKY, *[TRUTH] * (len(names) - 1)])
        axis.bar_label(bars, [f"{v:.3f}" for v in values], padding=-32, color="black", fontsize=8)
        axis.set(title=f"{metric.removeprefix('relative_').upper()} over seasonal naive", xlim=(0, 1))
    axes[0].set_yticks(range(len(names)), ["Fourier, 14 M", *[f"{model_label(n)}, published" for n in names[1:]]])
    axes[0].invert_yaxis()
    return save(figure, "zero-shot.png", folder)


def calibration(folder: Path = HERE) -> Path:
    """How often the truth lay in intervals of the forecaster, set by set: `results/zero-shot`."""
    figure, axis = plt.subplots(figsize=(7.2, 3.4))
    found = [
        r
        for r in rows("zero-shot")
        if r["head"] == "fourier" and r["metric"].startswith("coverage_") and "sets" not in r
    ]
    rng = np.random.default_rng(0)
    for place, (level, colour) in enumerate(((50, SKY), (80, BLUE), (95, GREEN))):
        shares = [100 * r["ours"] for r in found if r["metric"] == f"coverage_{level}"]
        axis.plot(shares, place + rng.uniform(-0.2, 0.2, len(shares)), "o", ms=5, color=colour, alpha=0.8)
        axis.plot([level] * 2, [place - 0.35, place + 0.35], color=ORANGE, lw=2)
    axis.set(title="Share of the truth inside the interval; a dot is a data set", xlabel="%", xlim=(0, 100))
    axis.set_yticks(range(3), ["50 % interval", "80 % interval", "95 % interval"])
    return save(figure, "calibration.png", folder)


def forecast(folder: Path = HERE) -> Path:
    """A forecast is a density for every step."""
    from fourier_head import Forecaster
    from fourier_head.cli.forecasting.example import example

    table = example()
    series = table[table["series"] == "Museum visitors, monthly"]["value"].to_numpy()
    horizon = 24
    forecasts = Forecaster.from_pretrained("small").predict(series[:-horizon], horizon=horizon, freq="MS")
    levels = np.linspace(0.025, 0.975, 39)
    q = forecasts.quantiles(levels)[0]
    if q.shape[0] != len(levels):
        q = q.T
    time = np.arange(len(series))
    figure, axes = plt.subplots(1, 2, width_ratios=(3, 1), sharey=True)
    axes[0].plot(time[-84:-horizon], series[-84:-horizon], color="black", lw=1.2)
    for i in range(len(levels) // 2):
        axes[0].fill_between(time[-horizon:], q[i], q[-1 - i], color=BLUE, alpha=0.055, lw=0)
    axes[0].plot(time[-horizon:], q[len(levels) // 2], color=BLUE, label="median")
    axes[0].plot(time[-horizon:], series[-horizon:], ".", color=ORANGE, label="what came")
    axes[0].set(title="A made-up series, unseen in training: 39 quantiles", xlabel="month", ylabel="visitors")
    axes[0].legend(loc="upper left")
    grid = np.linspace(series[-84:].min() * 0.8, q.max() * 1.05, 300)
    p = np.exp(forecasts.log_prob(np.repeat(grid[:, None, None], horizon, axis=2)))[:, 0]
    for step, colour in ((0, SKY), (11, BLUE), (23, GREEN)):
        axes[1].plot(p[:, step], grid, color=colour, label=f"step {step + 1}")
    axes[1].set(title="densities", xticks=[])
    axes[1].legend(fontsize=8)
    return save(figure, "forecast.png", folder)


PICTURES = (cost, smoothness_law, zero_shot, calibration, forecast)

if __name__ == "__main__":
    for picture in PICTURES:
        if len(sys.argv) == 1 or picture.__name__ in sys.argv[1:]:
            print(picture())
