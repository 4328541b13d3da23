"""Claims of appendix C.1: bins of tempos."""

from __future__ import annotations

import numpy as np

from studies.claims.claim import Claim
from studies.claims.evidence import objects, paired
from studies.tempo.study import CHOSEN

WHERE = "Appendix C.1"
LIMIT = "Clips are generated and the network is small: AudioSet's weights are not to be had here."


def audio() -> list[Claim]:
    """Return the claims of appendix C.1."""
    first, wider = "tempo-random", "tempo-recipes"
    linear = {"head": "linear", "protocol": "released"}
    fourier = {"head": "fourier", "frequencies": 1, "protocol": "released"}
    # The recipe of a head, and N of the Fourier head, are those with the best mean F1 on validation clips.
    promises: dict[tuple[str, int | None], dict[tuple[str, str], list[float]]] = {}
    for study in (first, wider):
        for run in objects(f"results/{study}/runs.json"):
            if run["protocol"] != CHOSEN:
                arm = promises.setdefault((run["head"], run["frequencies"]), {})
                arm.setdefault((study, run["protocol"]), []).append(run["validation_f1"])
    best = {
        arm: max((float(np.mean(scores)), *recipe) for recipe, scores in recipes.items())
        for arm, recipes in promises.items()
    }
    n = max((promise, n) for (head, n), (promise, *_) in best.items() if head == "fourier" and n is not None)[1]
    (_, study, recipe), (_, other, other_recipe) = best["fourier", n], best["linear", None]
    ours = {"head": "fourier", "frequencies": n, "protocol": recipe}
    theirs = {"head": "linear", "protocol": other_recipe}
    return [
        Claim(
            "A Fourier head with one frequency has an F1 118 % above the linear head's.",
            WHERE,
            "percent by which macro F1 is larger, both trained as the paper trains",
            118.0,
            paired(first, "macro_f1", fourier, linear, ratio=True),
            "above",
            LIMIT,
        ),
        Claim(
            "The gain is one of the head (learning rate and length chosen for each).",
            WHERE,
            f"percent by which macro F1 of Fourier-{n} ({recipe}) is larger than linear's ({other_recipe}), recipes "
            "and N chosen on validation clips",
            None,
            paired(study, "macro_f1", ours, theirs, ratio=True, beside=other),
            "above",
            "The paper trains both heads in one way, for two epochs, in which the linear head learns next to nothing "
            "here; left to train longer they are level.",
            own=True,
        ),
        Claim(
            "The Fourier head learns smoother distributions than the linear head.",
            WHERE,
            "smoothness of Fourier-1 minus linear's",
            "below 0",
            paired(first, "smoothness", fourier, linear),
        ),
        Claim(
            "The same with an Audio Spectrogram Transformer from AudioSet's weights on SynTheory.",
            WHERE,
            "macro F1",
            118.0,
            note="Neither weights nor data can be had here; `python -m studies tempo --model FOLDER --data FOLDER` "
            "runs it.",
        ),
    ]
