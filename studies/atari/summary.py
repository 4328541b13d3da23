"""Write the folder of the study: rows, charts, notes, recipes' quality, and a clip of an agent at play."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from studies.atari import charts
from studies.atari.plan import Settings
from studies.atari.quality import QUALITY
from studies.atari.recording import RECIPE, About
from studies.atari.rows import all_rows, full_size, is_main, notes, split, whole_rows
from studies.atari.trained import write_clip
from studies.common.report.summary import Summary


def write_summary(settings: Settings, runs: Sequence[dict[str, Any]], left: int) -> Summary:
    """Write everything that finished runs support."""
    games = dict.fromkeys(run["game"] for run in runs)
    qualities = read_qualities(settings.data, games)
    own, whole = split(runs, settings.base.samples is not None)
    if not own:
        own, whole = whole, own
    rows = all_rows(own, qualities)
    spent = sum(run["seconds"] / run.get("arms_at_once", 1) for run in runs)
    spent += sum(quality.get("seconds") or 0 for quality in qualities.values())
    drawn = charts.all_charts(rows, own, qualities)
    clips = clip_best(settings.output, own, qualities)
    for game in games:  # with the recipes of the recordings anyone has the same data
        if (recipe := settings.data / game / RECIPE).exists():
            (settings.output / "recipes").mkdir(parents=True, exist_ok=True)
            shutil.copyfile(recipe, settings.output / "recipes" / f"{game}.npz")
    machines = sorted({run["hardware"] for run in runs if "hardware" in run})
    trained_on: dict[str, Any] = {"hardware": "; and ".join(machines)} if machines else {}
    return settings.write(
        rows + whole_rows(whole),
        # Of all runs that stand here, made now or before.
        seconds=max(settings.elapsed, spent),
        runs=[{**run, "evaluations": [_without_pictures(epoch) for epoch in run["evaluations"]]} for run in runs],
        charts=drawn,
        gpu=settings.device.startswith("cuda"),
        notes=notes(own, left, qualities),
        recordings={name: {k: v for k, v in q.items() if k != "over_time"} for name, q in qualities.items()},
        clips=clips,
        unfinished=left,
        quick="a toy network, short recordings and a few rollouts",
        **trained_on,
    )


def read_qualities(data: Path, games: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Return the quality reports of the recordings of games, where they are at hand."""
    found = {}
    for game in games:
        with suppress(OSError, ValueError):
            found[game] = json.loads((data / game / QUALITY).read_text(encoding="utf-8"))
    return found


def _without_pictures(epoch: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in epoch.items() if key not in ("examples", "replay")}


def clip_best(
    output: Path, runs: Sequence[Mapping[str, Any]], qualities: Mapping[str, Mapping[str, Any]]
) -> dict[str, str]:
    """Write a GIF of each game: the best episode of the Fourier arm that scored highest in the end."""
    full, written = full_size(runs), {}
    for game in dict.fromkeys(run["game"] for run in runs):
        own = [r for r in runs if r["game"] == game and r["head"] == "fourier" and is_main(r, full)]
        own = [r for r in own if r["evaluations"][-1].get("replay")]
        if not own:
            continue
        run = max(own, key=lambda r: r["evaluations"][-1]["return"])
        settings = qualities.get(game, {}).get("settings", {})
        about = About(game, **{key: settings[key] for key in ("sticky", "max_frames") if key in settings})
        path, episode = output / f"{game}.gif", run["evaluations"][-1]["replay"]
        write_clip(path, about, episode["seed"], episode["actions"])
        written[game] = path.name
    return written
