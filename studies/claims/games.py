"""Claims of section 5: Decision Transformers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from studies.atari.games import ACTIONS, GAMES
from studies.atari.rows import BEST, best_fourier
from studies.claims.claim import Claim, joined
from studies.claims.evidence import Figure, Selector, content, find, objects, paired, said

LONG, SHORT = "atari-heads", "atari"
"""Studies of heads: of the paper's length with 64 episodes, and a shorter one with 16."""
PLANNED = 20
"""Frequencies of the new ablations."""
COMPARED = 14, 32
"""Frequencies that the plan compares to see whether more of them help."""
RANDOM = ("gravitar", "double_dunk")
"""Games whose recorded agents play at random level in the shorter study."""
SCRIPTED, SCRIPT = "double_dunk", "results/atari/recordings/double_dunk-script.json"
"""The game that a script was recorded in for the longer study, and its figures."""
RELEASED_EPISODES = 10
"""Episodes that the paper's released code plays after an epoch."""


def games() -> Iterator[Claim]:
    """Return the claims of section 5."""
    yield from returns()
    yield from curves()
    yield from ablations()
    yield Claim(
        "These figures on the DQN replay data of the paper.",
        "Section 5",
        "normalised return",
        "+46 % on Seaquest, +377 % on Gravitar",
        note=f"By the paper's own table 2 {_gain('seaquest')}, {_gain('gravitar')}: section 5 prints an increase "
        "for the one and a ratio for the other, and abstract and introduction repeat the ratio. "
        "The bucket of the DQN replay set is closed; `studies.atari.dopamine` reads its files.",
    )


def _gain(name: str) -> str:
    """Say how much higher the Fourier head's return is by the paper's table.

    >>> _gain("gravitar")
    'Gravitar has 4.98 and 1.32, 3.77 times as much or 277 % more'
    """
    game = GAMES[name]
    ratio = game.fourier[0] / game.linear[0]
    more = f"{ratio:.2f} times as much or {100 * (ratio - 1):.0f} % more"
    return f"{game.title} has {game.fourier[0]:.2f} and {game.linear[0]:.2f}, {more}"


def study_of(game: str) -> str:
    """Return the longer study where it has a game, the shorter one elsewhere."""
    path = f"results/{LONG}/runs.json"
    return LONG if any(run["game"] == game for run in objects(path)) else SHORT


def returns() -> Iterator[Claim]:
    """Return the comparisons of table 2, at the last epoch."""
    for name, game in GAMES.items():
        study = study_of(name)
        figure, n = chosen_figure(study, name)
        run = find(f"results/{study}/runs.json", arm(study, name))[0]
        length = f"{run['epochs']} epochs of {run['samples']:,} contexts, {run['episodes']} episodes after each."
        yield Claim(
            f"The Fourier head has the higher returns on {game.title}.",
            "Table 2",
            f"normalised return of Fourier-{n} minus linear's at the last epoch, N chosen "
            "on the episodes of the epoch before",
            round(game.fourier[0] - game.linear[0], 2),
            figure,
            "above",
            joined(
                level(study, name),
                length,
                "Other recordings than the paper's: levels do not compare.",
                counted_as_published(name),
            ),
        )


def level(study: str, name: str) -> str:
    """Say how well the recorded agent of a game plays, where a recording of it is at random level."""
    if name not in RANDOM:
        return ""
    if study == LONG and name == SCRIPTED:
        return of_a_script(content(SCRIPT)["play"], find(f"results/{LONG}/runs.json", {"game": name}))
    random = GAMES[name].random
    if study == LONG:
        recordings = find("results/atari/recordings/recordings.json", {"game": name, "finished": True})
        best = max(one["last_million"]["mean"] for one in recordings)
        return f"Recorded by an agent that plays at {best:.0f}, random play is {random:.0f}."
    error, episodes = error_of_return(study, name)
    normalised = GAMES[name].normalise(random + error)
    return (
        f"The recorded agent plays at random level ({_recorded(name)}), so there is little to learn from. The mean of "
        f"{episodes} episodes has a standard error of {error:.1f} points, {normalised:.0f} of the normalised return."
    )


def of_a_script(play: Mapping[str, Mapping[str, float]], runs: Sequence[Mapping[str, Any]]) -> str:
    """Say what a script plays like, and what points agents make that learned from it: who waits scores 0."""
    script, random = play["script"], play["random"]
    made = np.mean([run["evaluations"][-1]["made"] for run in runs])
    return (
        f"Recorded of a script, which has not learned: alone it wins by {script['mean']:.1f}, random play loses by "
        f"{-random['mean']:.1f} and becomes less over the recording. Agents that learned from it make {made:.1f} "
        f"points a game themselves, random play {random['points_for']:.1f}."
    )


def _recorded(name: str) -> str:
    """Say what the agent of the shorter study's recording scores."""
    wanted = {"dataset": GAMES[name].title, "metric": "recorded_return"}
    (recorded,) = find(f"results/{SHORT}/summary.json", wanted)
    return f"{recorded['ours']:.1f}, random play {GAMES[name].random}"


def error_of_return(study: str, name: str) -> tuple[float, int]:
    """Return the standard error of a run's mean return at the last epoch, typical of all runs, and its episodes."""
    runs = [run for run in find(f"results/{study}/runs.json", {"game": name}) if run["samples"] is not None]
    played = [run["evaluations"][-1]["returns"] for run in runs]
    return float(np.sqrt(np.mean([np.var(one, ddof=1) / len(one) for one in played]))), len(played[0])


def counted_as_published(name: str) -> str:
    """Say what the paper's way of counting finds in the shorter study: best epoch, best N, on the episodes reported."""
    game = GAMES[name]
    wanted = {"dataset": game.title, "metric": "normalised_return", "protocol": BEST, "layers": 6, "share": 1.0}
    rows = find(f"results/{SHORT}/summary.json", wanted)
    best = best_fourier(rows, game.title)
    (linear,) = (row for row in rows if row["head"] == "linear")
    assert best is not None
    episodes = find(f"results/{SHORT}/runs.json", arm(SHORT, name))[0]["episodes"]
    text = (
        f"Counted as the paper counts, at the best epoch of each seed and the best N, on the {episodes} episodes that "
        f"are reported (the released code plays {RELEASED_EPISODES}), `results/{SHORT}` has {best['ours']:.2f} for "
        f"Fourier-{best['frequencies']} and {linear['ours']:.2f} for linear"
    )
    if name not in RANDOM:
        return f"{text}."
    text += ": a lead where there is next to nothing to learn"
    if study_of(name) == SHORT:
        return f"{text}."
    figure, n = chosen_figure(SHORT, name)
    return (
        f"{text}, as the agent recorded there plays at random level ({_recorded(name)}). At the last epoch, N chosen "
        f"before it, Fourier-{n} minus linear is {said(figure)} there, too."
    )


def curves() -> Iterator[Claim]:
    """Return what figures 4 and 16 say of the number of frequencies and of smoothness."""
    for name in ("seaquest", "bank_heist", "double_dunk", "gravitar"):
        study = study_of(name)
        if name == "seaquest":
            yield grows(study, name, "return", "Returns on Seaquest grow with the number of frequencies.")
            words = "Next-action distributions on Seaquest become less smooth as frequencies grow in number."
            yield grows(study, name, "smoothness", words)
        yield smoother(study, name)
        if name == "gravitar":
            words = "Returns on Gravitar grow with the number of frequencies."
            yield grows(study, name, "return", words, own=True)


def grows(study: str, name: str, metric: str, claim: str, own: bool = False) -> Claim:
    """Return a claim that something is larger with many frequencies than with few."""
    few, many = COMPARED
    return Claim(
        claim,
        "Figure 16" if own else "Section 5, figure 4",
        f"{metric} of Fourier-{many} minus Fourier-{few}'s at the last epoch",
        None if own else "above 0",
        paired(study, lambda run: _last(run, metric), arm(study, name, many), arm(study, name, few)),
        "above",
        own=own,
    )


def smoother(study: str, name: str) -> Claim:
    """Return the claim that the Fourier head with the chosen N, whose returns are compared, is smoother."""

    def difference(n: int) -> Figure:
        return paired(study, lambda run: _last(run, "smoothness"), arm(study, name, n), arm(study, name))

    chosen = chosen_frequencies(study, name)
    others = [n for n in frequencies(study, name) if n != chosen]
    bounds = ", ".join(f"{sure(n):.0f} % for N = {n}" for n in frequencies(study, name) if sure(n) < 100)
    return Claim(
        f"The Fourier agent learns smoother next-action distributions, on {GAMES[name].title}.",
        "Figure 4" if name == "seaquest" else "Figure 16",
        f"smoothness of Fourier-{chosen} minus linear's at the last epoch, N chosen as for the returns",
        "below 0",
        difference(chosen),
        note=f"With other N: {'; '.join(f'{n} {said(difference(n))}' for n in others)}. A head of N < "
        f"{len(ACTIONS) - 1} frequencies cannot give one of {len(ACTIONS)} actions more than (N + 1) / {len(ACTIONS)} "
        f"({bounds}) and is smooth by that{', as is the chosen one' if sure(chosen) < 100 else ''}.",
    )


def sure(n: int) -> float:
    """Return the percentage of its probability that a head of so many frequencies can give one action at most.

    >>> round(sure(14)), sure(20)
    (83, 100.0)
    """
    return 100 * min(1.0, (n + 1) / len(ACTIONS))


def ablations() -> Iterator[Claim]:
    """Return the comparisons over sizes of models and of data, one seed each."""
    path = "results/atari-ablations/runs.json"
    apart = [
        abs(one["returns"][-1] - _last(find(path, {"label": one["label"]})[0], "return"))
        for one in objects("results/atari-ablations/again.json")
    ]
    head = {"head": "fourier", "frequencies": PLANNED}
    for key, whole, words, drawn in (("layers", 6, "model", "figure 14"), ("share", 1.0, "dataset", "figure 15")):
        changes, rows = [], []
        for run in find(path, {"game": "seaquest", "seed": 0, "gamma": 1e-6} | head):
            if run[key] == whole:
                continue
            pair = {name: run[name] for name in ("game", "layers", "share", "samples", "seed")}
            (other,) = find(path, pair | {"head": "linear"})
            changes.append(_last(run, "return") - _last(other, "return"))
            rows += [pair | head, pair | {"head": "linear"}]
        ahead = sum(change > 0 for change in changes)
        yield Claim(
            f"The Fourier head has the higher returns across {words} sizes.",
            f"Section 5, {drawn}",
            f"return of Fourier-{PLANNED} minus linear's on Seaquest, mean over {len(changes)} {words} sizes",
            "above 0",
            Figure(float(np.mean(changes)), None, 1, path, tuple(rows)),
            "above",
            f"Ahead in {ahead} of {len(changes)} pairs at the last epoch. Two trainings of one arm end up to "
            f"{max(apart):.0f} points apart (`results/atari-ablations/again.json`).",
        )


def _last(run: Mapping[str, Any], metric: str) -> float:
    return float(run["evaluations"][-1][metric])


def main_runs(study: str, game: str) -> list[dict[str, Any]]:
    """Return the runs of a game with the full model and all the data, at the study's own length."""
    runs = find(f"results/{study}/runs.json", {"game": game, "layers": 6, "share": 1.0})
    return [run for run in runs if run["samples"] is not None]


def arm(study: str, game: str, n: int | None = None) -> Selector:
    """Return what selects the runs of the Fourier head with so many frequencies, or of the linear head."""
    common = {"game": game, "layers": 6, "share": 1.0, "samples": main_runs(study, game)[0]["samples"]}
    return common | ({"head": "linear"} if n is None else {"head": "fourier", "frequencies": n, "gamma": 1e-6})


def frequencies(study: str, game: str) -> list[int]:
    """Return the numbers of frequencies of a game's Fourier arms."""
    return sorted({run["frequencies"] for run in main_runs(study, game) if run["head"] == "fourier" and run["gamma"]})


def chosen_frequencies(study: str, game: str) -> int:
    """Return the number of frequencies with the best return one epoch before the last."""
    runs = main_runs(study, game)
    seeds = {run["seed"] for run in runs if run["head"] == "linear"}
    promises: dict[int, dict[int, float]] = {}
    for run in runs:
        if run["head"] == "fourier" and run["gamma"]:
            promises.setdefault(run["frequencies"], {})[run["seed"]] = float(run["evaluations"][-2]["return"])
    # Among the arms that have most of the linear head's seeds.
    shared = {one: len(seeds & ours.keys()) for one, ours in promises.items()}
    whole = [one for one in promises if shared[one] == max(shared.values())]
    return max(whole, key=lambda one: np.mean(list(promises[one].values())))


def chosen_figure(study: str, game: str) -> tuple[Figure, int]:
    """Return how much more a game's Fourier arm gets than linear at the end, and its N, chosen one epoch earlier."""
    n, normalise = chosen_frequencies(study, game), GAMES[game].normalise
    return paired(study, lambda run: normalise(_last(run, "return")), arm(study, game, n), arm(study, game)), n
