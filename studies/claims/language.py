"""Claims of sections 2.3 and 4.2 and of appendix C.4: language models as random numbers, on a small model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from studies.claims.claim import Claim, Side, joined
from studies.claims.evidence import Selector, choices, paired
from studies.numbers.arms import Recipe
from studies.numbers.tables import PAPER_GAIN

TEXT, BASE = {"head": "linear"}, {"head": "base"}
WHERE = "Section 4.2, appendix C.4"


def chosen(study: str) -> list[Selector]:
    """Return the Fourier heads that were tried on seeds of their own, the best first."""
    rows = [row for row in choices(study) if row["head"] == "fourier"]
    return [{key: row[key] for key in ("head", "frequencies", "init_scale")} for row in rows]


def _times(factor: float) -> float:
    """Return an improvement by a factor as a change in percent."""
    return round(100 / factor - 100, 1)


def compared(
    claim: str,
    arm: Selector,
    other: Selector,
    words: str,
    paper: float | str | None,
    note: str = "",
    *,
    study: str = "numbers-chosen",
    score: str = "tvd",
    group: str = "trained",
    side: Side = "below",
    where: str = WHERE,
    own: bool = False,
) -> Claim:
    """Return a claim about two arms: by how many percent a score, the mean over a group of Gaussians, is larger."""

    def measured(run: Mapping[str, Any]) -> float:
        return float(np.mean([one[score] for one in run["scores"] if one["group"] == group]))

    what = "number" if score == "unique" else "total variation distance"
    measure = f"percent by which the {what} is larger: {words}"
    figure = paired(study, measured, arm, other, ratio=True)
    note = joined("SmolLM2-135M-Instruct in place of Llama.", note)
    return Claim(claim, where, measure, paper, figure, side, note, own=own)


def name(arm: Selector) -> str:
    """Return what a Fourier head is called."""
    return f"Fourier-{arm['frequencies']}"


def language() -> list[Claim]:
    """Return the claims, total variation distances in percent."""
    best = chosen("numbers-chosen")
    ours, start = best[0], next(arm for arm in best if arm["init_scale"] == 1000.0)
    eight = {**start, "frequencies": 8}
    free = chosen("numbers-many")[0]
    how = "N, start and learning rates, text's too, were chosen on other seeds."
    text = {row["learning_rate"]: row["tvd"] for row in choices("numbers-chosen") if row["head"] == "linear"}
    rate = (
        f"On the seeds of the choice text's distance is {text[Recipe().lr]:.2f} at the paper's learning rate and "
        f"{min(text.values()):.2f} at its own: most of a lead at one rate for all is text's rate."
    )
    return [
        compared(
            "LoRA on text learns a better distribution than the base model.",
            TEXT,
            BASE,
            "text against the base model (the paper: 2.07 times better)",
            _times(PAPER_GAIN["linear"]),
        ),
        compared(
            "LoRA with the Fourier head learns a better distribution than the base model.",
            ours,
            BASE,
            f"{name(ours)} against the base model (the paper: 4.86 times better)",
            _times(PAPER_GAIN["fourier"]),
            how,
        ),
        compared(
            "The Fourier head learns a better distribution than LoRA on text.",
            ours,
            TEXT,
            f"{name(ours)} against text (the paper: 2.3 times better)",
            _times(PAPER_GAIN["fourier"] / PAPER_GAIN["linear"]),
            joined(how, rate),
        ),
        compared(
            "It does so with the paper's initialisation, weights divided by 1000.",
            start,
            TEXT,
            f"{name(start)}, divided by 1000, against text",
            _times(PAPER_GAIN["fourier"] / PAPER_GAIN["linear"]),
            joined(how, rate),
        ),
        compared(
            "Dividing the first weights of the head by 1000 improves learning.",
            eight,
            eight | {"init_scale": 3.0},
            "Fourier-8, divided by 1000 against divided by 3",
            "below 0",
            "Either start has its own learning rate, three times as high for the smaller one. At one rate for both it "
            "is far behind (`results/numbers-start`): the density depends on the direction of the weights alone, and a "
            "step of one length turns small weights farther, so that the first steps decide.",
            where="Section 2.3",
        ),
        compared(
            "The Fourier head gives more different answers than LoRA on text.",
            ours,
            TEXT,
            f"unique answers of {name(ours)} against text's",
            "above 0",
            "A sampler of the truth has 51 unique answers of 128: more are no sign of a better distribution.",
            score="unique",
            side="above",
        ),
        compared(
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
        ),
        Claim(
            "These figures with Llama-3.1-8B-Instruct and ten seeds.",
            WHERE,
            "total variation distance",
            "2.07 and 4.86 times better than the base model",
            note="Its weights cannot be had here; `python -m studies numbers --model FOLDER` runs it.",
        ),
    ]
