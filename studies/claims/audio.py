"""Claims of appendix C.1: bins of tempos."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from studies.claims.claim import Claim, decide, joined
from studies.claims.evidence import find, first_of, paired


def audio() -> list[Claim]:
    """Return the claims of appendix C.1."""
    study = first_of("tempo-random", "tempo")
    random = study == "tempo-random"
    dataset = "generated, random split" if random else "generated"
    linear = {"head": "linear", "protocol": "released", "dataset": dataset}
    fourier = {"head": "fourier", "frequencies": 1, "protocol": "released", "dataset": dataset}
    short = paired(study, "macro_f1", fourier, linear, ratio=True)
    status, why = decide(short, "above")
    chosen = {"protocol": "chosen on validation" if random else "longer", "dataset": dataset}
    best = _best(study, chosen | {"head": "fourier"}, "validation_f1")
    long = paired(
        study, "macro_f1", chosen | {"head": "fourier", "frequencies": best}, chosen | {"head": "linear"}, ratio=True
    )
    fair, because = decide(long, "above")
    smooth = paired(study, "smoothness", fourier, linear)
    smoother, word = decide(smooth, "below")
    where, limit = (
        "Appendix C.1",
        "Clips are generated and the network is small: AudioSet's weights are not to be had here.",
    )
    return [
        Claim(
            "A Fourier head with one frequency has an F1 118 % above the linear head's.",
            where,
            "percent by which macro F1 is larger, both trained as the paper trains",
            118.0,
            status,
            joined(why, limit),
            short,
            section=study,
        ),
        Claim(
            "The gain is one of the head (learning rate and length chosen for each).",
            where,
            f"percent by which macro F1 of Fourier-{best} is larger than linear's, recipes and N chosen on "
            "validation clips",
            None,
            fair,
            joined(because, "The paper trains both heads in one way, for two epochs."),
            long,
            section=study,
        ),
        Claim(
            "The Fourier head learns smoother distributions than the linear head.",
            where,
            "smoothness of Fourier-1 minus linear's",
            "below 0",
            smoother,
            word,
            smooth,
            section=study,
        ),
        Claim(
            "The same with an Audio Spectrogram Transformer from AudioSet's weights on SynTheory.",
            where,
            "macro F1",
            118.0,
            "cannot be run here",
            "Neither weights nor data can be had here; `python -m studies tempo --model FOLDER --data FOLDER` runs it.",
        ),
    ]


def _best(study: str, selector: Mapping[str, Any], metric: str) -> int:
    """Return the frequencies with the highest mean of a metric among the runs of a study."""
    values: dict[int, list[float]] = {}
    for run in find(f"results/{study}/runs.json", selector):
        values.setdefault(run["frequencies"], []).append(run[metric])
    return max(values, key=lambda n: float(np.mean(values[n])))
