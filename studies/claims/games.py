"""Claims of section 5: Decision Transformers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from studies.atari.games import GAMES
from studies.claims.claim import Claim, decide, joined
from studies.claims.evidence import Figure, find, first_of, paired, t_interval

HEADS, GRAVITAR = first_of("atari-heads", "atari"), first_of("atari-heads", "atari-gravitar", "atari")
ABLATIONS = first_of("atari-ablations", "atari")
PLANNED = 20
"""Frequencies where one N was planned: on the new recording of Gravitar alone, and in the new ablations."""


def games() -> list[Claim]:
    """Return the claims of section 5."""
    found = []
    for name, game in GAMES.items():
        linear, fourier = game.paper.linear[0], game.paper.fourier[0]
        study = GRAVITAR if name == "gravitar" else "atari" if name == "double_dunk" else HEADS
        figure, n = returns(study, name)
        status, why = decide(figure, "above")
        level = {
            "gravitar": "Recorded by an agent that plays at 428, random play is 173."
            if GRAVITAR != "atari"
            else "The recorded agent plays at random level, so there is little to learn from.",
            "double_dunk": "The recorded agent plays at random level, so there is little to learn from.",
        }.get(name, "120,000 contexts an epoch, 16 episodes." if HEADS == "atari" else "64 episodes.")
        how = "on other games" if study == "atari-gravitar" else "on the episodes of the epoch before"
        found.append(
            Claim(
                f"The Fourier head has the higher returns on {game.title}.",
                "Table 2",
                f"normalised return of Fourier-{n} minus linear's at the last epoch, N chosen {how}",
                round(fourier - linear, 2),
                status,
                joined(why, level, "Other recordings than the paper's: levels do not compare."),
                figure,
                section=study,
            )
        )
    for name, title in (("seaquest", "Seaquest"), ("gravitar", "Gravitar")):
        study = HEADS
        wide = {"game": name, "head": "fourier", "gamma": 1e-6, "layers": 6, "share": 1.0}
        wide["samples"] = 120_000 if study == "atari" else 1_100_000
        linear_arm = {key: value for key, value in wide.items() if key != "gamma"} | {"head": "linear"}
        random = study == "atari" and name == "gravitar"
        few = 8 if study == "atari" and name == "seaquest" else 14
        level = "Recorded at random level: few actions are worth being sure of." if random else ""
        rise = paired(study, _last_return, wide | {"frequencies": 32}, wide | {"frequencies": few})
        status, why = decide(rise, "above")
        found.append(
            Claim(
                f"Returns on {title} grow with the number of frequencies.",
                "Figure 4",
                f"return of Fourier-32 minus Fourier-{few}'s at the last epoch",
                "above 0",
                status,
                joined(why, level),
                rise,
                section=study,
            )
        )
        smooth = paired(study, _last_smoothness, wide | {"frequencies": 14}, linear_arm)
        status, why = decide(smooth, "below")
        found.append(
            Claim(
                f"The Fourier agent learns smoother next-action distributions, on {title}.",
                "Figures 4 and 16",
                "smoothness of Fourier-14 minus linear's at the last epoch",
                "below 0",
                status,
                joined(why, "A head with N = 14 cannot give one of 18 actions more than 83 %."),
                smooth,
                section=study,
            )
        )
    found += ablations()
    found.append(
        Claim(
            "These figures on the DQN replay data of the paper.",
            "Section 5",
            "normalised return",
            "+46 % on Seaquest, +377 % on Gravitar",
            "cannot be run here",
            "The bucket of the DQN replay set is closed; `studies.atari.dopamine` reads its files.",
        )
    )
    return found


def ablations() -> list[Claim]:
    """Return the comparisons over sizes of models and of data, one seed each."""
    path, found = f"results/{ABLATIONS}/runs.json", []
    n = 14 if ABLATIONS == "atari" else PLANNED
    bound = "With N = 14 no action can be more likely than 83 %, which one agent's recording often asks for."
    for key, whole, words, drawn in (("layers", 6, "model", "figure 14"), ("share", 1.0, "dataset", "figure 15")):
        changes, rows = [], []
        for run in find(path, {"game": "seaquest", "head": "fourier", "frequencies": n, "gamma": 1e-6, "seed": 0}):
            if run[key] == whole:
                continue
            arm = {name: run[name] for name in ("game", "layers", "share", "samples", "seed")}
            (other,) = find(path, arm | {"head": "linear"})
            changes.append(_last_return(run) - _last_return(other))
            rows += [arm | {"head": "fourier", "frequencies": n}, arm | {"head": "linear"}]
        ahead = sum(change > 0 for change in changes)
        found.append(
            Claim(
                f"The Fourier head has the higher returns across {words} sizes.",
                f"Section 5, {drawn}",
                f"return of Fourier-{n} minus linear's on Seaquest, mean over {len(changes)} {words} sizes",
                "above 0",
                "not confirmed",
                joined(
                    f"One seed; ahead in {ahead} of {len(changes)} pairs at the last epoch.", bound if n == 14 else ""
                ),
                Figure(float(np.mean(changes)), None, 1, path, tuple(rows)),
                section=ABLATIONS,
            )
        )
    return found


def _last_return(run: Mapping[str, Any]) -> float:
    return float(run["evaluations"][-1]["return"])


def _last_smoothness(run: Mapping[str, Any]) -> float:
    return float(run["evaluations"][-1]["smoothness"])


def _promise(run: Mapping[str, Any]) -> float:
    """Return what N is chosen by: the return one epoch before the last."""
    return float(run["evaluations"][-2]["return"])


def returns(study: str, game: str) -> tuple[Figure, int]:
    """Return how much more a game's Fourier arm gets than linear at the end, and its N, chosen one epoch earlier."""
    path = f"results/{study}/runs.json"
    runs = [run for run in find(path, {"game": game, "layers": 6, "share": 1.0}) if run["samples"] is not None]
    by_arm: dict[Any, dict[int, Mapping[str, Any]]] = {}
    for run in runs:
        if run["head"] == "linear" or (run["head"] == "fourier" and run["gamma"]):
            by_arm.setdefault(run["frequencies"], {})[run["seed"]] = run
    linear = by_arm.pop(None)
    if study == "atari-gravitar":
        by_arm = {PLANNED: by_arm[PLANNED]}
    seeds = set(linear)
    # All arms on the seeds that most of them have.
    whole = {
        n: arm
        for n, arm in by_arm.items()
        if len(seeds & set(arm)) == max(len(seeds & set(a)) for a in by_arm.values())
    }
    n = max(whole, key=lambda n: np.mean([_promise(run) for run in whole[n].values()])) if len(whole) > 1 else PLANNED
    normalise = GAMES[game].normalise
    pairs = [(whole[n][seed], linear[seed]) for seed in sorted(seeds & set(whole[n]))]
    changes = np.array([normalise(_last_return(a)) - normalise(_last_return(b)) for a, b in pairs])
    mean, interval = t_interval(changes)
    common = {"game": game, "layers": 6, "share": 1.0, "samples": runs[0]["samples"]}
    rows = (common | {"head": "fourier", "frequencies": n, "gamma": 1e-6}, common | {"head": "linear"})
    return Figure(mean, interval, len(pairs), path, rows), n
