"""Claims of appendix C.1: bins of tempos."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from studies.claims.claim import Claim
from studies.claims.evidence import Figure, Selector, objects, paired, said
from studies.tempo.study import CHOSEN

WHERE = "Appendix C.1"
LIMIT = "Clips are generated and the network is small: AudioSet's weights are not to be had here."
FIRST, WIDER, RELEASED = "tempo-random", "tempo-recipes", "released"
"""Studies of three recipes and of two more, and the recipe of the paper's code."""
Recipe = tuple[str, str]
"""A study and one of its recipes."""
Head = tuple[str, int | None]
"""The name of a head and its number of frequencies."""


def audio() -> Iterator[Claim]:
    """Return the claims of appendix C.1."""
    best = chosen()
    linear, n = ("linear", None), max((score, n) for (head, n), (score, _) in best.items() if head == "fourier")[1]
    ours, theirs = (best[head][1] for head in (("fourier", n), linear))
    recipes = f"Fourier-{n} ({ours[1]}) is larger than linear's ({theirs[1]}), recipes and N chosen on validation clips"
    short = "; ".join(
        f"Fourier-{one} {said(against('smoothness', ('fourier', one), (FIRST, RELEASED), linear))}"
        for one in frequencies()
    )
    yield Claim(
        "A Fourier head with one frequency has an F1 118 % above the linear head's.",
        WHERE,
        "percent by which macro F1 is larger, both trained as the paper trains",
        118.0,
        against("macro_f1", ("fourier", 1), (FIRST, RELEASED), linear, ratio=True),
        "above",
        LIMIT,
    )
    yield one_is_best(best[("fourier", 1)][1])
    yield Claim(
        "The gain is one of the head (learning rate and length chosen for each).",
        WHERE,
        f"percent by which macro F1 of {recipes}",
        None,
        against("macro_f1", ("fourier", n), ours, linear, theirs, ratio=True),
        "above",
        "The paper trains both heads in one way, for two epochs, in which the linear head learns next to nothing "
        "here; left to train longer they are level.",
        own=True,
    )
    yield Claim(
        "The Fourier head's likeliest tempo is nearer to the truth (learning rate and length chosen for each).",
        WHERE,
        f"percent by which the mean error of the likeliest tempo of {recipes}",
        None,
        against("bpm_error", ("fourier", n), ours, linear, theirs, ratio=True),
        note="The error of the median of the distribution, which the plan does not name, is larger by "
        f"{said(against('bpm_error_median', ('fourier', n), ours, linear, theirs, ratio=True))}.",
        own=True,
    )
    yield Claim(
        "The Fourier head learns smoother distributions than the linear head.",
        f"{WHERE}, figure 7",
        f"smoothness of Fourier-{n} ({ours[1]}) minus linear's ({theirs[1]}), recipes and N chosen on validation clips",
        "below 0",
        against("smoothness", ("fourier", n), ours, linear, theirs),
        note=f"As the paper trains, where the linear head is hardly better than guessing: {short}.",
    )
    yield Claim(
        "The same with an Audio Spectrogram Transformer from AudioSet's weights on SynTheory.",
        WHERE,
        "macro F1",
        "+118 %",
        note="Neither weights nor data can be had here; `python -m studies tempo --model FOLDER --data FOLDER` "
        "runs it.",
    )


def chosen() -> dict[Head, tuple[float, Recipe]]:
    """Return the best mean F1 on validation clips of every head, and the recipe that has it."""
    promises: dict[Head, dict[Recipe, list[float]]] = {}
    for study in (FIRST, WIDER):
        for run in objects(f"results/{study}/runs.json"):
            if run["protocol"] != CHOSEN:
                arm = promises.setdefault((run["head"], run["frequencies"]), {})
                arm.setdefault((study, run["protocol"]), []).append(run["validation_f1"])
    return {
        head: max((float(np.mean(scores)), recipe) for recipe, scores in recipes.items())
        for head, recipes in promises.items()
    }


def frequencies() -> list[int]:
    """Return the numbers of frequencies of the Fourier heads."""
    return sorted({run["frequencies"] for run in objects(f"results/{FIRST}/runs.json") if run["head"] == "fourier"})


def against(
    metric: str, ours: Head, recipe: Recipe, theirs: Head, its_recipe: Recipe | None = None, *, ratio: bool = False
) -> Figure:
    """Return how much larger a metric of the first head is, both trained by one recipe or each by its own."""

    def selector(head: Head, recipe: Recipe) -> Selector:
        return {"head": head[0], "protocol": recipe[1]} | ({} if head[1] is None else {"frequencies": head[1]})

    other = its_recipe or recipe
    arms = selector(ours, recipe), selector(theirs, other)
    return paired(recipe[0], metric, *arms, ratio=ratio, beside=other[0] if other[0] != recipe[0] else None)


def one_is_best(longer: Recipe) -> Claim:
    """Return the claim that one frequency is best, against the other N that it leads least surely."""

    def lead(n: int, recipe: Recipe) -> Figure:
        return against("macro_f1", ("fourier", 1), recipe, ("fourier", n), ratio=True)

    others = [n for n in frequencies() if n != 1]
    leads = {n: lead(n, (FIRST, RELEASED)) for n in others}
    nearest = min(leads, key=lambda n: (leads[n].interval or (leads[n].value,))[0])
    far = " ".join(f"Over Fourier-{n} it is {said(leads[n])}." for n in others if n != nearest)
    level = ", ".join(f"over Fourier-{n} {said(lead(n, longer))}" for n in others)
    return Claim(
        "The best model uses only one frequency.",
        WHERE,
        f"percent by which macro F1 of Fourier-1 is larger than Fourier-{nearest}'s, the nearest of those tried, all "
        "trained as the paper trains",
        "above 0",
        leads[nearest],
        "above",
        f"{far} Where all train by the recipe that validation clips choose for Fourier-1 ({longer[1]}): "
        f"{level}. {LIMIT}",
    )
