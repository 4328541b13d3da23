"""Claims of sections 2.3 and 4.2 and of appendix C.4: language models as random numbers, on a small model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from studies.claims.claim import Claim, Side, decide, joined
from studies.claims.evidence import Figure, Selector, choices, find, one_row, paired, said
from studies.numbers.arms import Recipe
from studies.numbers.tables import PAPER_GAIN

TEXT, BASE = {"head": "linear"}, {"head": "base"}
WHERE = "Section 4.2, appendix C.4"
STUDY, PAPER_START = "numbers-chosen", 1000.0
"""Where all arms are, and by what the paper divides the first weights of a head."""


def chosen(study: str) -> list[Selector]:
    """Return the Fourier heads that were tried on seeds of their own, the best first."""
    rows = [row for row in choices(study) if row["head"] == "fourier"]
    return [{key: row[key] for key in ("head", "frequencies", "init_scale")} for row in rows]


def _times(factor: float) -> float:
    """Return an improvement by a factor as a change in percent."""
    return round(100 / factor - 100, 1)


def mean_score(score: str, group: str) -> Callable[[Mapping[str, Any]], float]:
    """Return what takes the mean of a score over a group of Gaussians from a run."""
    return lambda run: float(np.mean([one[score] for one in run["scores"] if one["group"] == group]))


def compared(
    claim: str,
    arm: Selector,
    other: Selector,
    words: str,
    paper: float | str | None,
    note: str = "",
    *,
    study: str = STUDY,
    score: str = "tvd",
    group: str = "trained",
    side: Side = "below",
    where: str = WHERE,
    own: bool = False,
) -> Claim:
    """Return a claim about two arms: by how many percent a score, the mean over a group of Gaussians, is larger."""
    what = "number" if score == "unique" else "total variation distance"
    measure = f"percent by which the {what} is larger: {words}"
    figure = paired(study, mean_score(score, group), arm, other, ratio=True)
    note = joined("SmolLM2-135M-Instruct in place of Llama.", note)
    return Claim(claim, where, measure, paper, figure, side, note, own=own)


def name(arm: Selector) -> str:
    """Return what a Fourier head is called."""
    return f"Fourier-{arm['frequencies']}"


def against_text(score: str, start: float) -> dict[int, Figure]:
    """Return by how many percent a score of every Fourier head of a start is larger than text's, by N."""
    heads = {"head": "fourier", "init_scale": start}
    return {
        n: paired(STUDY, mean_score(score, "trained"), {**heads, "frequencies": n}, TEXT, ratio=True)
        for n in frequencies(start)
    }


def frequencies(start: float) -> list[int]:
    """Return the numbers of frequencies of the heads of a start."""
    runs = find(f"results/{STUDY}/runs.json", {"head": "fourier", "init_scale": start})
    return sorted({run["frequencies"] for run in runs})


def surely(figures: Mapping[int, Figure], side: Side) -> list[int]:
    """Return the N whose whole interval lies on this side of zero."""
    return [n for n, figure in figures.items() if decide(figure, side)[0] == "confirmed"]


def every_n(start: float) -> Claim:
    """Return what figure 12 says, of the N whose distance is the farthest above text's."""
    by_start = {one: against_text("tvd", one) for one in (start, PAPER_START)}
    worst, figure = max(by_start[start].items(), key=lambda item: item[1].value)
    counted = "; ".join(
        f"first weights divided by {one:.0f}, {_listed(surely(figures, 'below'))} surely below text and "
        f"{_listed(surely(figures, 'above'))} above, the mean below it for {sum(f.value < 0 for f in figures.values())}"
        for one, figures in by_start.items()
    )
    return Claim(
        "The Fourier head consistently has a lower distance than LoRA on text: with every number of frequencies.",
        "Appendix C.4, figure 12",
        f"percent by which the total variation distance is larger: of N = {min(by_start[start])} to "
        f"{max(by_start[start])} the one farthest above text, Fourier-{worst}",
        "below 0",
        figure,
        note=f"SmolLM2-135M-Instruct in place of Llama. Of {len(by_start[start])} N: {counted}.",
    )


def _listed(numbers: list[int]) -> str:
    """Say which numbers of frequencies these are.

    >>> _listed([2, 3]), _listed([])
    ('2 (N = 2, 3)', 'none')
    """
    return f"{len(numbers)} (N = {', '.join(map(str, numbers))})" if numbers else "none"


def different(start: float) -> str:
    """Say for how many of all Fourier heads there are more different answers than text gives."""
    figures = {(one, n): f for one in (start, PAPER_START) for n, f in against_text("unique", one).items()}
    least = min(figures, key=lambda one: figures[one].value)
    more = sum(decide(figure, "above")[0] == "confirmed" for figure in figures.values())
    return (
        f"It is so, surely, for {more} of {len(figures)} heads, all N with either start: least for Fourier-{least[1]}, "
        f"divided by {least[0]:.0f}, with {said(figures[least])}."
    )


def all_n(start: float) -> str:
    """Say how the paper's start does against another over all N together, which no plan asked for."""
    heads = {"head": "fourier", "init_scale": start}
    over = [{"frequencies": n} for n in frequencies(start)]
    mean = mean_score("tvd", "trained")
    figure = paired(STUDY, mean, {**heads, "init_scale": PAPER_START}, heads, ratio=True, over=over)
    return (
        f"Not planned, so that it decides nothing: over all N from {over[0]['frequencies']} to "
        f"{over[-1]['frequencies']} together the distance is larger by {said(figure)}."
    )


def language() -> Iterator[Claim]:
    """Return the claims, total variation distances in percent."""
    best = chosen(STUDY)
    ours, start = best[0], next(arm for arm in best if arm["init_scale"] == PAPER_START)
    eight = {**start, "frequencies": 8}
    usual = {**eight, "init_scale": ours["init_scale"]}
    rates = [find(f"results/{STUDY}/runs.json", arm)[0]["learning_rate"] for arm in (eight, usual)]
    truth = one_row(STUDY, head="truth", dataset="trained", metric="unique")
    free = chosen("numbers-many")[0]
    how = "N, start and learning rates, text's too, were chosen on other seeds."
    text = {row["learning_rate"]: row["tvd"] for row in choices(STUDY) if row["head"] == "linear"}
    rate = (
        f"On the seeds of the choice text's distance is {text[Recipe().lr]:.2f} at the paper's learning rate and "
        f"{min(text.values()):.2f} at its own: most of a lead at one rate for all is text's rate."
    )
    yield compared(
        "LoRA on text learns a better distribution than the base model.",
        TEXT,
        BASE,
        "text against the base model (the paper: 2.07 times better)",
        _times(PAPER_GAIN["linear"]),
    )
    yield compared(
        "LoRA with the Fourier head learns a better distribution than the base model.",
        ours,
        BASE,
        f"{name(ours)} against the base model (the paper: 4.86 times better)",
        _times(PAPER_GAIN["fourier"]),
        how,
    )
    yield compared(
        "The Fourier head learns a better distribution than LoRA on text.",
        ours,
        TEXT,
        f"{name(ours)} against text (the paper: 2.3 times better)",
        _times(PAPER_GAIN["fourier"] / PAPER_GAIN["linear"]),
        joined(how, rate),
    )
    yield compared(
        "It does so with the paper's initialisation, weights divided by 1000.",
        start,
        TEXT,
        f"{name(start)}, divided by 1000, against text",
        _times(PAPER_GAIN["fourier"] / PAPER_GAIN["linear"]),
        joined(how, rate),
    )
    yield every_n(ours["init_scale"])
    yield compared(
        "Dividing the first weights of the head by 1000 improves learning.",
        eight,
        usual,
        f"Fourier-8, divided by 1000 against divided by {usual['init_scale']:.0f}",
        "below 0",
        joined(
            f"Either start has its own learning rate, {rates[0] / rates[1]:.0f} times as high for the smaller one. At "
            "one rate for both it is far behind (`results/numbers-start`): the density depends on the direction of the "
            "weights alone, and a step of one length turns small weights farther, so that the first steps decide.",
            all_n(usual["init_scale"]),
            "The paper's other start, weights that are not divided at all, was not run.",
        ),
        where="Section 2.3",
    )
    yield compared(
        "The Fourier head gives more different answers than LoRA on text.",
        ours,
        TEXT,
        f"unique answers of {name(ours)} against text's",
        "above 0",
        joined(
            different(ours["init_scale"]),
            f"A sampler of the truth has {truth.value:.0f} unique answers of {Recipe().answers}: more are no sign "
            "of a better distribution.",
        ),
        score="unique",
        side="above",
    )
    yield compared(
        "It is better on Gaussians that it was not trained on, too.",
        free,
        TEXT,
        f"{name(free)} against text, on eight other Gaussians",
        None,
        "Every training answer was of a Gaussian of its own. Text copies the numbers in its prompt, which a new "
        "head has to learn to read.",
        study="numbers-many",
        group="unseen",
        own=True,
    )
    yield Claim(
        "These figures with Llama-3.1-8B-Instruct and ten seeds.",
        WHERE,
        "total variation distance",
        "2.07 and 4.86 times better than the base model",
        note="Its weights cannot be had here; `python -m studies numbers --model FOLDER` runs it.",
    )
