"""Runs of the study as rows, the paper's values beside ours, and what came out in sentences."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import mean
from typing import Any

import torch

from studies.common.report.summary import Row
from studies.common.results import aggregate, row
from studies.numbers.arms import Recipe
from studies.numbers.data import TRAINED, UNSEEN, Gaussian, score

FOURIER_KEYS = ("frequencies", "packets", "init_scale", "gamma", "head_first")
"""What tells one Fourier arm from another."""
METRICS = ("tvd", "tvd_all", "unique", "invalid")
GROUPS = {"trained": TRAINED, "unseen": UNSEEN}

# From the caption of figure rng_qualitative of the paper, on Llama-3.1-8B-Instruct: LoRA improves the distance by a
# factor of about 2.07, the Fourier head by about 4.86. It names neither N nor the number of samples in the prompt; the
# appendix's template has two. All other values of the paper are in figures only.
PAPER_CONTEXT = 2
PAPER_GAIN = {"linear": 2.07, "fourier": 4.86}


def rows(runs: Sequence[Mapping[str, Any]]) -> list[Row]:
    """Return means over seeds: of the four trained and the unseen Gaussians together, of each, and gains over base."""
    by = ("dataset", "head", *FOURIER_KEYS, "in_context")
    together: list[dict[str, Any]] = []
    single: list[dict[str, Any]] = []
    for run in runs:
        arm = {key: run[key] for key in by[1:]}
        for group in GROUPS:
            scores = [s for s in run["scores"] if s["group"] == group]
            together.append({"dataset": group} | arm | {m: mean(s[m] for s in scores) for m in METRICS})
        single += [{"dataset": s["gaussian"]} | arm | {m: s[m] for m in METRICS} for s in run["scores"]]
    answers = _answers(runs)
    exact = [
        {"dataset": group, "head": "truth"} | _exact(GROUPS[group], answers, seed)
        for group in GROUPS
        for seed in range(20)
    ]
    means = aggregate(together, METRICS, by)
    perfect = aggregate(exact, ("tvd", "unique"), by)
    return [*gains(means), *means, *perfect, *aggregate(single, ("tvd", "unique"), by)]


def _answers(runs: Sequence[Mapping[str, Any]]) -> int:
    """Return how many answers a prompt got, the paper's number where not one of them was a number."""
    valid = [s for run in runs for s in run["scores"] if s["invalid"] < 1]
    return max((round(sum(s["histogram"]) / (1 - s["invalid"])) for s in valid), default=Recipe.answers)


def _exact(gaussians: Sequence[Gaussian], answers: int, seed: int) -> dict[str, float]:
    """Return what a sampler of the truth itself gets: so many numbers never fill a histogram exactly."""
    generator = torch.Generator().manual_seed(seed)
    scores = [score([x / 100 for x in g.draw(answers, generator)], g) for g in gaussians]
    return {metric: mean(s[metric] for s in scores) for metric in ("tvd", "unique")}


def find(table: Sequence[Row], metric: str, dataset: str, head: str, context: int | None) -> list[Row]:
    """Return the rows of one metric and kind of arm, by frequencies."""
    wanted = (metric, dataset, head, context)
    found = [r for r in table if (r["metric"], r["dataset"], r["head"], r.get("in_context")) == wanted]
    return sorted(found, key=lambda r: r["frequencies"] or 0)


def contexts(table: Sequence[Row]) -> list[int]:
    """Return the numbers of samples in the prompt that there are results for."""
    return sorted({r["in_context"] for r in table if r.get("in_context") is not None})


def best(table: Sequence[Row], context: int) -> Row | None:
    """Return the row of the Fourier arm with the lowest TVD on the trained Gaussians."""
    return min(find(table, "tvd", "trained", "fourier", context), key=lambda r: r["ours"], default=None)


def same_arm(one: Row, other: Row) -> bool:
    """Tell whether two rows are of the same Fourier head."""
    return all(one[key] == other[key] for key in FOURIER_KEYS)


def gains(means: Sequence[Row]) -> Iterator[Row]:
    """Return how many times smaller than the base model's the TVD of each arm is."""
    for context in contexts(means):
        top = best(means, context)
        for dataset in GROUPS:
            base = find(means, "tvd", dataset, "base", context)
            for head in PAPER_GAIN:
                for arm in find(means, "tvd", dataset, head, context):
                    if not base or not arm["ours"]:
                        continue
                    # The paper gives one factor for the Fourier head; it stands beside our best number of frequencies.
                    shown = head == "linear" or (top is not None and same_arm(arm, top))
                    paper = PAPER_GAIN[head] if shown and dataset == "trained" and context == PAPER_CONTEXT else None
                    more = {key: arm[key] for key in ("dataset", "head", *FOURIER_KEYS, "in_context")}
                    gain = base[0]["ours"] / arm["ours"]
                    yield row("tvd_gain_over_base", gain, paper=paper, seeds=arm["seeds"], **more)


def notes(name: str, size: int, recipe: Recipe, missing: int, many: bool = False) -> list[str]:
    """Return in sentences what rows cannot say: the model, how it was asked, what is measured and what is missing."""
    out = [
        f"Model: {name}, {size / 1e6:.1f} million parameters; the paper's is Llama-3.1-8B-Instruct. All arms sample "
        f"{recipe.answers} answers at temperature 1 with top-p {recipe.top_p:g} and no top-k; the released code cuts "
        "the text arms at top-p 0.95 and the Fourier arm not at all. Each seed draws its own training pairs and "
        "prompts, the same for all arms.",
        "Half the L1 distance over 20 bins of the valid answers, as the released code has it (the paper's text says "
        "L-infinity). tvd_all counts an invalid answer, no number or one outside of [-1, 1], as probability in the "
        "wrong place.",
    ]
    if many:
        out.append(
            "Every training answer comes from a Gaussian of its own, drawn at random; none of those scored here is "
            "among them. What is called trained on are the four of the paper."
        )
    if missing:
        out.append(f"The time limit left out {missing} runs; the same command goes on with them.")
    return out
