"""From single runs to rows: means over seeds at the best epoch of each, as in the paper, and at the last."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from studies.atari.games import find_game
from studies.common.report.summary import Row
from studies.common.results import aggregate, row

ARM = ("dataset", "head", "frequencies", "gamma", "protocol", "layers", "width", "share")
METRICS = ("normalised_return", "return", "smoothness", "heldout_loss")
SPEEDS = ("contexts_per_second", "rollout_steps_per_second", "arm_seconds")
BEST, FINAL = "best epoch", "final epoch"
WHOLE = "one context per transition"


def flatten(run: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return a run as two flat objects: at the epoch of its highest return, and at its last."""
    game = find_game(run["game"])
    shared = {key: run[key] for key in ("head", "frequencies", "gamma", "layers", "width", "share", "seed")}
    shared["dataset"] = game.title
    if run["head"] != "fourier":
        shared["gamma"] = None
    best = max(run["evaluations"], key=lambda epoch: epoch["return"])
    out = []
    for protocol, epoch in ((BEST, best), (FINAL, run["evaluations"][-1])):
        measured = {"return": epoch["return"], "normalised_return": game.normalise(epoch["return"])}
        measured |= {"smoothness": epoch["smoothness"], "heldout_loss": epoch["heldout_loss"]}
        measured |= {"contexts_per_second": run["contexts_per_second"], "arm_seconds": run["seconds"]}
        measured["rollout_steps_per_second"] = epoch["rollout_steps_per_second"]
        out.append(shared | measured | {"protocol": protocol, "epoch": epoch["epoch"]})
    return out


def is_main(run: Mapping[str, Any], full: tuple[int, int]) -> bool:
    """Tell whether a run has the full model and all the data; the others are ablations."""
    return (run["layers"], run["width"]) == full and run["share"] == 1


def full_size(runs: Sequence[Mapping[str, Any]]) -> tuple[int, int]:
    """Return layers and width of the largest model, which the main arms have."""
    return max((run["layers"], run["width"]) for run in runs)


def all_rows(runs: Sequence[Mapping[str, Any]], qualities: Mapping[str, Mapping[str, Any]]) -> list[Row]:
    """Return the rows of all runs, the paper's numbers at the arms they belong to, and of the recordings."""
    flat = [one for run in runs for one in flatten(run)]
    rows = aggregate(flat, METRICS, ARM)
    full = full_size(runs)
    main = [one for one in rows if is_main(one, full)]
    for dataset in dict.fromkeys(one["dataset"] for one in rows):
        published = find_game(dataset)
        for linear in _returns(main, dataset, "linear")[:1]:
            linear |= {"paper": published.linear[0], "paper_std": published.linear[1]}
        best = best_fourier(main, dataset)
        if best is not None:  # the paper prints its Fourier head without saying which N
            best |= {"paper": published.fourier[0], "paper_std": published.fourier[1]}
    final = [one for one in flat if one["protocol"] == FINAL and is_main(one, full)]
    rows += aggregate(final, SPEEDS, ("dataset", "protocol"))
    for name, quality in qualities.items():
        title = find_game(name).title
        more = {"dataset": title, "protocol": "collection"}
        rows.append(row("collect_steps_per_second", quality.get("steps_per_second"), **more))
        returns = quality.get("returns")
        if returns:
            rows.append(row("recorded_return", returns["mean"], **more))
            rows.append(row("recorded_return_q95", returns["q95"], **more))
    return rows


def split(runs: Sequence[dict[str, Any]], shorter: bool) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the study's own runs, and those of the paper's length, where the study's own are shorter."""
    whole = [run for run in runs if shorter and run["samples"] is None]
    return [run for run in runs if run not in whole], whole


def whole_rows(runs: Sequence[Mapping[str, Any]]) -> list[Row]:
    """Return the rows of runs of the paper's length, how long one takes among them."""
    flat = [one | {"protocol": f"{one['protocol']}, {WHOLE}"} for run in runs for one in flatten(run)]
    last = [one for one in flat if one["protocol"].startswith(FINAL)]
    return aggregate(flat, METRICS, ARM) + aggregate(last, SPEEDS, ARM)


def best_fourier(rows: Sequence[Row], dataset: str) -> Row | None:
    """Return the row of normalised returns of the Fourier arm that got the highest mean."""
    found = _returns(rows, dataset, "fourier")
    found = [one for one in found if one["gamma"]] or found  # the paper's arms are regularised
    return max(found, key=lambda one: one["ours"]) if found else None


def _returns(rows: Sequence[Row], dataset: str, head: str) -> list[Row]:
    wanted = (dataset, BEST, "normalised_return", head)
    return [r for r in rows if (r["dataset"], r["protocol"], r["metric"], r["head"]) == wanted]


def notes(runs: Sequence[Mapping[str, Any]], left: int, qualities: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return in sentences what rows cannot say: where the data come from, how arms were trained, what is missing."""
    main = [run for run in runs if is_main(run, full_size(runs))]
    sizes = ", ".join(sorted({f"{run['transitions']}" for run in main}))
    sticky = any(quality.get("settings", {}).get("sticky") for quality in qualities.values())
    told = [
        "The public DQN replay set behind the paper's data is closed. The data here were made with the emulator of "
        "ale-py by a PQN agent (parallel Q-learning) that started from nothing, a few of its environments recorded "
        f"from first to last step ({sizes} training transitions). Another agent"
        f"{' and' if sticky else ','} a shorter training{'' if sticky else ' and no sticky actions'} make other data: "
        "compare arms with each other, not their level with the paper's.",
        "Returns to go are in the game's own score, standardised, not clipped rewards; the return to condition on is "
        f"{target_words(runs)}. Actions are in the circular order for every arm, in training and in play alike. "
        "N was chosen by the best epoch's return, as in the paper's table.",
        training_note(main),
    ]
    for place in sorted({run["taken_from"] for run in runs if "taken_from" in run}):
        count = sum(run.get("taken_from") == place for run in runs)
        told.append(f"{count} of {len(runs)} runs are those of {place}, trained before the others with the same seeds.")
    if left:
        told.append(f"{left} runs of the plan are not finished; what stands here is of those that are.")
    return told


def target_words(runs: Sequence[Mapping[str, Any]]) -> str:
    """Say which return the arms were told to reach, and what that is on each game."""
    kinds = {"data": "that which one in twenty recorded episodes reaches", "paper": "that of the released code"}
    asked = kinds.get(runs[0]["target"], "a chosen number")
    numbers = {find_game(run["game"]).title: run["target_return"] for run in runs}
    return f"{asked} ({', '.join(f'{title} {number:g}' for title, number in numbers.items())})"


def training_note(runs: Sequence[Mapping[str, Any]]) -> str:
    """Say how long arms were trained and how often they played: epochs, contexts of an epoch, batch, episodes."""
    said = []
    for epochs, samples, batch in dict.fromkeys((run["epochs"], run["samples"], run["batch"]) for run in runs):
        count = "one context per transition" if samples is None else f"{samples} contexts"
        said.append(f"{epochs} epochs of {count} in batches of {batch}")
    played = ", ".join(str(number) for number in sorted({run["episodes"] for run in runs}))
    shared = max(run.get("arms_at_once", 1) for run in runs)
    crowd = f" Up to {shared} arms shared the machine; their rates are those of one among them." if shared > 1 else ""
    short = sum(epoch["cut"] for run in runs for epoch in run["evaluations"])
    most = max(run["max_steps"] for run in runs)
    cut = f" {short} episodes were cut at {most} steps and count with their score so far." if short else ""
    return (
        f"Arms of full size were trained for {'; others for '.join(said)}. "
        f"After each epoch they played {played} episodes.{cut}{crowd}"
    )
