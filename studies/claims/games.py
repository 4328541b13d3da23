"""Claims of section 5: Decision Transformers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from studies.atari.games import GAMES
from studies.claims.claim import Claim, joined
from studies.claims.evidence import Figure, find, objects, paired

LONG, SHORT = "atari-heads", "atari"
"""Studies of heads: of the paper's length with 64 episodes, and a shorter one with 16."""
PLANNED = 20
"""Frequencies of the new ablations."""
AT_RANDOM = "The recorded agent plays at random level, so there is little to learn from."
LENGTHS = {
    SHORT: "120,000 contexts an epoch, 16 episodes.",
    LONG: "Two epochs of 1.1 million contexts, 64 episodes.",
}
RANDOM = {SHORT: ("gravitar", "double_dunk")}
"""Games whose recorded agents play at random level, by study."""
LEVELS = {"gravitar": "Recorded by an agent that plays at 428, random play is 173."}


def games() -> list[Claim]:
    """Return the claims of section 5."""
    return [
        *returns(),
        *curves(),
        *ablations(),
        Claim(
            "These figures on the DQN replay data of the paper.",
            "Section 5",
            "normalised return",
            "+46 % on Seaquest, +377 % on Gravitar",
            note="The bucket of the DQN replay set is closed; `studies.atari.dopamine` reads its files.",
        ),
    ]


def study_of(game: str) -> str:
    """Return the longer study where it has a game, the shorter one elsewhere."""
    path = f"results/{LONG}/runs.json"
    return LONG if any(run["game"] == game for run in objects(path)) else SHORT


def returns() -> list[Claim]:
    """Return the comparisons of table 2, at the last epoch."""
    found = []
    for name, game in GAMES.items():
        study = study_of(name)
        figure, n = chosen_figure(study, name)
        level = AT_RANDOM if name in RANDOM.get(study, ()) else LEVELS.get(name, "")
        found.append(
            Claim(
                f"The Fourier head has the higher returns on {game.title}.",
                "Table 2",
                f"normalised return of Fourier-{n} minus linear's at the last epoch, N chosen "
                "on the episodes of the epoch before",
                round(game.fourier[0] - game.linear[0], 2),
                figure,
                "above",
                joined(level, LENGTHS[study], "Other recordings than the paper's: levels do not compare."),
            )
        )
    return found


def curves() -> list[Claim]:
    """Return what figures 4 and 16 say of the number of frequencies and of smoothness."""
    found = []
    for name in ("seaquest", "gravitar"):
        study = study_of(name)
        old = study == SHORT
        title, few = GAMES[name].title, 8 if old and name == "seaquest" else 14
        fourier = {"game": name, "head": "fourier", "gamma": 1e-6, "layers": 6, "share": 1.0}
        fourier["samples"] = 120_000 if old else 1_100_000
        linear = {key: value for key, value in fourier.items() if key != "gamma"} | {"head": "linear"}
        random = name in RANDOM.get(study, ())
        surer = paired(study, _last_smoothness, fourier | {"frequencies": 32}, linear)
        found += [
            Claim(
                f"Returns on {title} grow with the number of frequencies.",
                "Figure 4",
                f"return of Fourier-32 minus Fourier-{few}'s at the last epoch",
                "above 0",
                paired(study, _last_return, fourier | {"frequencies": 32}, fourier | {"frequencies": few}),
                "above",
                "Recorded at random level: few actions are worth being sure of." if random else "",
            ),
            Claim(
                f"The Fourier agent learns smoother next-action distributions, on {title}.",
                "Figures 4 and 16",
                "smoothness of Fourier-14 minus linear's at the last epoch",
                "below 0",
                paired(study, _last_smoothness, fourier | {"frequencies": 14}, linear),
                note="A head with N = 14 cannot give one of 18 actions more than 83 %; one with N = 32 can, and its "
                f"difference is {surer.value:.3f}.",
            ),
        ]
    return found


def ablations() -> list[Claim]:
    """Return the comparisons over sizes of models and of data, one seed each."""
    path, found = "results/atari-ablations/runs.json", []
    for key, whole, words, drawn in (("layers", 6, "model", "figure 14"), ("share", 1.0, "dataset", "figure 15")):
        changes, rows = [], []
        for run in find(
            path, {"game": "seaquest", "head": "fourier", "frequencies": PLANNED, "gamma": 1e-6, "seed": 0}
        ):
            if run[key] == whole:
                continue
            arm = {name: run[name] for name in ("game", "layers", "share", "samples", "seed")}
            (other,) = find(path, arm | {"head": "linear"})
            changes.append(_last_return(run) - _last_return(other))
            rows += [arm | {"head": "fourier", "frequencies": PLANNED}, arm | {"head": "linear"}]
        ahead = sum(change > 0 for change in changes)
        found.append(
            Claim(
                f"The Fourier head has the higher returns across {words} sizes.",
                f"Section 5, {drawn}",
                f"return of Fourier-{PLANNED} minus linear's on Seaquest, mean over {len(changes)} {words} sizes",
                "above 0",
                Figure(float(np.mean(changes)), None, 1, path, tuple(rows)),
                holds=False,
                before=f"One seed; ahead in {ahead} of {len(changes)} pairs at the last epoch.",
                note="Two trainings of one arm end up to 124 points apart (`results/atari-ablations/again.json`).",
            )
        )
    return found


def _last_return(run: Mapping[str, Any]) -> float:
    return float(run["evaluations"][-1]["return"])


def _last_smoothness(run: Mapping[str, Any]) -> float:
    return float(run["evaluations"][-1]["smoothness"])


def chosen_figure(study: str, game: str) -> tuple[Figure, int]:
    """Return how much more a game's Fourier arm gets than linear at the end, and its N, chosen one epoch earlier."""
    runs = find(f"results/{study}/runs.json", {"game": game, "layers": 6, "share": 1.0})
    runs = [run for run in runs if run["samples"] is not None]
    seeds = {run["seed"] for run in runs if run["head"] == "linear"}
    promises: dict[int, dict[int, float]] = {}
    for run in runs:
        if run["head"] == "fourier" and run["gamma"]:
            promises.setdefault(run["frequencies"], {})[run["seed"]] = float(run["evaluations"][-2]["return"])
    # Among the arms that have most of the linear head's seeds.
    shared = {one: len(seeds & arm.keys()) for one, arm in promises.items()}
    whole = [one for one in promises if shared[one] == max(shared.values())]
    n = max(whole, key=lambda one: np.mean(list(promises[one].values())))
    common = {"game": game, "layers": 6, "share": 1.0, "samples": runs[0]["samples"]}
    fourier, linear = {**common, "head": "fourier", "frequencies": n, "gamma": 1e-6}, {**common, "head": "linear"}
    normalise = GAMES[game].normalise
    return paired(study, lambda run: normalise(_last_return(run)), fourier, linear), n
