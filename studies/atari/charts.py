"""The figures of the study: returns and smoothness against N, next-action distributions, ablations, data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import cycle
from typing import Any

from fourier_head.pages.charts import Chart, Mark, Panel, Series
from studies.atari.games import ACTIONS, find_game
from studies.atari.rows import BEST, FINAL, full_size, is_main
from studies.common.frequency_charts import frequency_panel, saying_hollow
from studies.common.report.summary import Row

CURVES = ("truth", "curve-1", "curve-3", "curve-4", "curve-5")
LETTERS = {"UP": "U", "DOWN": "D", "LEFT": "L", "RIGHT": "R", "FIRE": "f"}
SHORT = tuple(
    name if name in ("NOOP", "FIRE") else "".join(letter for part, letter in LETTERS.items() if part in name)
    for name in ACTIONS
)
"""Names that fit below bars: L is left, UL up and left, ULf the same with the button pressed.

>>> SHORT[2], SHORT[10], SHORT[-1]
('UL', 'ULf', 'FIRE')
"""


def all_charts(
    rows: Sequence[Row], runs: Sequence[Mapping[str, Any]], qualities: Mapping[str, Mapping[str, Any]]
) -> list[Chart]:
    """Return all figures that the rows support."""
    full = full_size(runs)
    main = [one for one in rows if one.get("layers") is not None and is_main(one, full)]
    found = [frequencies_chart(main), epochs_chart([run for run in runs if is_main(run, full)])]
    examples = [examples_chart(game, runs, full) for game in dict.fromkeys(run["game"] for run in runs)]
    found += [chart for chart in examples if chart is not None]
    ablations = ablations_chart(rows, runs, full)
    if ablations is not None:
        found.append(ablations)
    found += [quality_chart(quality) for quality in qualities.values() if quality.get("over_time")]
    return found


def frequencies_chart(rows: Sequence[Row]) -> Chart:
    """Draw returns and smoothness against N, linear as a level, as in the paper's figures."""
    panels = []
    for dataset in dict.fromkeys(one["dataset"] for one in rows):
        for metric, label, protocol in (
            ("normalised_return", "normalised return, best epoch", BEST),
            ("smoothness", "smoothness, last epoch", FINAL),
        ):
            own = [r for r in rows if (r["dataset"], r["metric"], r["protocol"]) == (dataset, metric, protocol)]
            kept = [r for r in own if r["head"] == "linear" or (r["head"] == "fourier" and r["gamma"])]
            panels.append(frequency_panel(kept, dataset, label))
    caption = (
        "Means and deviations over seeds. Returns: higher is better, 0 is random play, 100 a human tester. Smoothness: "
        "lower is smoother."
    )
    title = "Returns and smoothness of next-action distributions against the number of frequencies"
    return Chart("returns-and-smoothness", title, panels, saying_hollow(caption, panels), columns=2)


def epochs_chart(runs: Sequence[Mapping[str, Any]]) -> Chart:
    """Draw the mean return after every epoch."""
    panels = []
    # One colour per N in all panels, as they share a legend.
    colours = dict(zip(sorted({run["frequencies"] for run in runs if run["head"] == "fourier"}), cycle(CURVES)))
    for name in dict.fromkeys(run["game"] for run in runs):
        game, series = find_game(name), []
        own = [run for run in runs if run["game"] == name]
        own = [run for run in own if run["head"] == "linear" or (run["head"] == "fourier" and run["gamma"])]
        kinds = sorted({(run["head"] != "linear", run["frequencies"] or 0) for run in own})
        for fourier, n in kinds:
            group = [run for run in own if (run["head"] != "linear", run["frequencies"] or 0) == (fourier, n)]
            length = min(len(r["evaluations"]) for r in group)
            mean = [
                sum(game.normalise(r["evaluations"][i]["return"]) for r in group) / len(group) for i in range(length)
            ]
            label = f"Fourier-{n}" if fourier else "Linear"
            colour = colours[n] if fourier else "linear"
            series.append(Series(label, list(range(1, length + 1)), mean, colour, dots=True))
        panels.append(Panel(series, game.title, "epoch", "normalised return"))
    return Chart("epochs", "Returns after every epoch", panels, "Means over seeds.", columns=2)


def examples_chart(game: str, runs: Sequence[Mapping[str, Any]], full: tuple[int, int]) -> Chart | None:
    """Draw next-action distributions of both heads at the same held-out steps."""
    own = [run for run in runs if run["game"] == game and is_main(run, full) and run["seed"] == 0]
    linear = next((run for run in own if run["head"] == "linear"), None)
    fourier = [run for run in own if run["head"] == "fourier" and run["gamma"]]
    if linear is None or not fourier:
        return None
    other = min(fourier, key=lambda run: abs(run["frequencies"] - 8))  # the paper's example has 8
    of_both = [run["evaluations"][-1].get("examples") or [] for run in (linear, other)]
    pairs = [(a, b) for a, b in zip(*of_both, strict=False) if a["action"] == b["action"]]
    if not pairs:
        return None
    # Where the linear head is least sure, where it is surest, and one between: few frequencies cannot follow all three.
    pairs = sorted(pairs, key=lambda pair: max(pair[0]["pmf"]))
    pairs = [pairs[i] for i in sorted({0, len(pairs) // 2, len(pairs) - 1})]
    name = f"Fourier-{other['frequencies']}"
    panels = [
        Panel(
            [Series("Linear", SHORT, a["pmf"], "linear", "bars"), Series(name, SHORT, b["pmf"], "fourier", "bars")],
            f"Taken: {ACTIONS[a['action']]}",
            y_label="probability",
        )
        for a, b in pairs
    ]
    title = f"Next-action distributions on {find_game(game).title}"
    caption = "The same held-out steps under both heads. L left, UL up and left, f with the button pressed."
    return Chart(f"actions-{game}", title, panels, caption, columns=1, height=1.9)


def ablations_chart(rows: Sequence[Row], runs: Sequence[Mapping[str, Any]], full: tuple[int, int]) -> Chart | None:
    """Draw returns against the size of the model and of the data."""
    game = next((run["game"] for run in runs if not is_main(run, full)), None)
    if game is None:
        return None
    title, panels = find_game(game).title, []
    own = [r for r in rows if (r["dataset"], r["metric"], r["protocol"]) == (title, "normalised_return", BEST)]
    parameters = {(run["layers"], run["width"]): run["parameters"] for run in runs if run["game"] == game}
    ablated = {r["frequencies"] for r in own if not is_main(r, full) and r["head"] == "fourier"}
    own = [r for r in own if r["head"] == "linear" or (r["frequencies"] in ablated and r["gamma"])]
    for label, place, kept in (
        ("parameters (millions)", lambda r: parameters[r["layers"], r["width"]] / 1e6, lambda r: r["share"] == 1),
        ("share of the data", lambda r: r["share"], lambda r: (r["layers"], r["width"]) == full),
    ):
        series = []
        for n, colour in ((None, "linear"), *zip(sorted(ablated), ("fourier", *CURVES[1:]), strict=False)):
            points = sorted((place(r), r["ours"], r["std"] or 0.0) for r in own if r["frequencies"] == n and kept(r))
            if points:
                x, y, error = zip(*points, strict=True)
                name = "Linear" if n is None else f"Fourier-{n}"
                series.append(Series(name, x, y, colour, error=error, dots=True))
        panels.append(Panel(series, title, label, "normalised return, best epoch"))
    caption = "One seed, but for the full model on all data, which has the main arms' seeds; all trained equally long."
    return Chart("ablations", "Size of the model and of the data", panels, caption, columns=2)


def quality_chart(quality: Mapping[str, Any]) -> Chart:
    """Draw what a recording is worth: returns over the agent's training, its actions early and late."""
    game = find_game(quality["game"])
    rows = quality["over_time"]
    steps = [row["step"] / 1e6 for row in rows]
    band = [row["std"] for row in rows]
    player = "script" if quality.get("source") == "script" else "agent"
    returns = Series(player, steps, [row["mean"] for row in rows], "curve-1", error=band, dots=True)
    marks = [Mark(game.random, "random play", "y")]
    actions = [
        Series("first third", SHORT, quality["first_third"], "truth", "bars"),
        Series("last third", SHORT, quality["last_third"], "curve-1", "bars"),
    ]
    panels = [
        Panel([returns], "Return", "million steps of all environments", "score", marks=marks),
        Panel(actions, "Actions recorded", y_label="share"),
    ]
    counts = quality["transitions"], quality["steps"], quality["episodes"]
    caption = "{} transitions recorded of {} steps; {} whole episodes.".format(*counts)
    return Chart(f"data-{game.name}", f"The recording of {game.title}", panels, caption, columns=1)
