"""Claims of appendix C.1: bins of tempos."""

from __future__ import annotations

import numpy as np

from studies.claims.claim import Claim
from studies.claims.evidence import find, first_of, paired

WHERE = "Appendix C.1"
LIMIT = "Clips are generated and the network is small: AudioSet's weights are not to be had here."


def audio() -> list[Claim]:
    """Return the claims of appendix C.1."""
    study = first_of("tempo-random", "tempo")
    random = study == "tempo-random"
    dataset = {"dataset": "generated, random split" if random else "generated"}
    linear = {"head": "linear", "protocol": "released"} | dataset
    fourier = {"head": "fourier", "frequencies": 1, "protocol": "released"} | dataset
    chosen = {"protocol": "chosen on validation" if random else "longer"} | dataset
    scores: dict[int, list[float]] = {}
    for run in find(f"results/{study}/runs.json", chosen | {"head": "fourier"}):
        scores.setdefault(run["frequencies"], []).append(run["validation_f1"])
    best = max(scores, key=lambda n: float(np.mean(scores[n])))
    ours = chosen | {"head": "fourier", "frequencies": best}
    return [
        Claim(
            "A Fourier head with one frequency has an F1 118 % above the linear head's.",
            WHERE,
            "percent by which macro F1 is larger, both trained as the paper trains",
            118.0,
            paired(study, "macro_f1", fourier, linear, ratio=True),
            "above",
            LIMIT,
        ),
        Claim(
            "The gain is one of the head (learning rate and length chosen for each).",
            WHERE,
            f"percent by which macro F1 of Fourier-{best} is larger than linear's, recipes and N chosen on "
            "validation clips",
            None,
            paired(study, "macro_f1", ours, chosen | {"head": "linear"}, ratio=True),
            "above",
            "The paper trains both heads in one way, for two epochs, in which the linear head learns next to nothing "
            "here; left to train longer it is ahead.",
        ),
        Claim(
            "The Fourier head learns smoother distributions than the linear head.",
            WHERE,
            "smoothness of Fourier-1 minus linear's",
            "below 0",
            paired(study, "smoothness", fourier, linear),
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
