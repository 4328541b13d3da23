"""The study: a recording for each game, arms trained on it and played, and what came of it beside the paper."""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rich.console import Console

from fourier_head._devices import chosen_device
from fourier_head.errors import UserError
from fourier_head.tasks.engine import Report, Task, run_tasks
from fourier_head.tasks.runs import RunStore, hardware
from studies.atari import charts
from studies.atari.collection import QUALITY, Collection
from studies.atari.plan import Settings, arms, rank
from studies.atari.recording import RECIPE, About, Recording, load_recording
from studies.atari.rollouts import write_clip
from studies.atari.rows import all_rows, full_size, is_main, notes, split, whole_rows
from studies.atari.training import ArmSettings, own_device, train_arm
from studies.atari.trajectories import Trajectories
from studies.common.command_line import in_lines
from studies.common.options import SILENT
from studies.common.report.summary import Summary

UNFINISHED: dict[str, Any] = {"unfinished": True}


class KeptRuns(RunStore):
    """Finished arms, kept for good and beside the data: they cost a GPU, and a summary is made of all there are."""

    def __init__(self, data: Path):
        super().__init__(data)
        self.folder = data / "runs"

    def put(self, label: str, settings: Mapping[str, Any], result: Any) -> Any:
        """Keep a result, but for that of an arm which ran out of time."""
        return result if result == UNFINISHED else super().put(label, settings, result)

    def every(self) -> list[dict[str, Any]]:
        """Return settings and results of kept runs in one flat object each, in the order of their labels.

        Where a game was recorded anew, those on the recording of its newest run: arms on other data do not compare.
        """
        found, ages = [], []
        for path in sorted(self.folder.glob("*.json")):
            try:
                content = json.loads(path.read_text(encoding="utf-8"))
                run = {"label": content["label"], **content["settings"], **content["result"]}
                ages.append((path.stat().st_mtime_ns, run["game"], run["recording"]))
            except (OSError, ValueError, KeyError, TypeError):
                continue  # of a process that was killed while it wrote, or something else's
            found.append(run)
        newest = {game: recording for _, game, recording in sorted(ages)}
        return [run for run in found if run["recording"] == newest[run["game"]]]


_resident: dict[tuple[Any, ...], tuple[Recording, dict[float, Trajectories]]] = {}


def _load(folder: Path, context: int, share: float, device: str) -> tuple[Recording, Trajectories]:
    key = (str(folder), context, device)
    if key not in _resident:
        _resident.clear()  # one at a time: each is some gigabytes
        _resident[key] = load_recording(folder), {}
    recording, parts = _resident[key]
    if share not in parts:
        frames = next((part.frames for part in parts.values()), None)  # the same for all parts of the data
        parts[share] = Trajectories(recording, context, own_device(device), share, frames=frames)
    return recording, parts[share]


def run_arm(
    game: str,
    recording: str,
    *,
    data: str,
    device: str,
    compile: bool,
    deadline: float | None,
    lines: bool = False,
    workers: int = 1,
    report: Report | None = None,
    **arm: Any,
) -> dict[str, Any]:
    """Train an arm on a game's recording; the deadline is a value of ``time.monotonic``.

    ``workers`` arms share the machine, which is kept beside the rates. With ``lines`` the arm says how far it is in
    lines of its own: bars need a terminal, and a process of its own has none to share.
    """
    if deadline is not None and time.monotonic() > deadline - 1:
        return UNFINISHED
    settings = ArmSettings(**arm)
    loaded, resident = _load(Path(data) / game, settings.context, settings.share, device)
    name = hashlib.sha256(json.dumps([game, recording, arm], sort_keys=True).encode()).hexdigest()[:16]
    folder = Path(data) / "arms" / f"{game}-{name}"
    usual = ArmSettings()
    result = train_arm(
        loaded,
        settings,
        folder,
        data=resident,
        device=device,
        # Models of other sizes are small and soon trained; compiling each of them would take longer.
        compile=compile and (settings.layers, settings.width) == (usual.layers, usual.width),
        deadline=deadline,
        report=in_lines(f"{game}: {settings.label}") if lines else report,
    )
    if result is None:
        return UNFINISHED
    return result | {"hardware": hardware(device.startswith("cuda")), "arms_at_once": workers}


def run(settings: Settings, console: Console = SILENT) -> Summary | None:
    """Run the study as far as its time limit allows and write its folder.

    Where time is up, or nothing can draw, as on many a machine with a GPU, finished runs are kept and None is returned;
    the command with ``--summarise`` writes the folder then or elsewhere.
    """
    deadline = None if settings.time_limit is None else settings.begun + settings.time_limit
    store, left = KeptRuns(settings.data), 0
    if not settings.summarise:  # which may write here what ran on a GPU elsewhere
        settings = replace(settings, device=chosen_device(settings.device))
        lines = not console.quiet and (settings.workers > 1 or not console.is_terminal)
        ready = [game for game in settings.chosen_games if prepare(settings, game, deadline, console)]
        left = sum(len(arms(settings, game)) for game in settings.chosen_games if game not in ready)
        # All games at once: processes start, and models are compiled, a single time.
        tasks = plan_tasks(settings, ready, deadline, lines)
        if settings.reuse is not None:
            take_over(tasks, settings.reuse, store)
        results = run_tasks(tasks, store, console=console, title="arms", workers=settings.workers)
        left += sum(result == UNFINISHED for result in results)
    runs = matching(settings, store.every())
    if not runs:
        raise UserError(f"{settings.data} holds no finished runs yet; the same command goes on where it stopped.")
    if settings.summarise:
        planned = [{"game": game} | asdict(arm) for game in settings.chosen_games for arm in arms(settings, game)]
        left = sum(not any(arm.items() <= run.items() for run in runs) for arm in planned)
    if left:
        console.print(f"{left} runs are left; the same command goes on with them.", markup=False)
    if left and deadline is not None and time.monotonic() > deadline:
        return None  # time is up for drawing, too
    missing = [name for name in ("matplotlib", "PIL") if find_spec(name) is None]
    if missing and not settings.summarise:
        where = f"{len(runs)} runs are kept in {store.folder}"
        console.print(f"{where}; write their results with --summarise where {missing[0]} is installed.")
        return None
    return write_summary(settings, runs, left)


def matching(settings: Settings, runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the runs that these settings could have made: others, with other epochs say, must not be averaged in.

    Where epochs are shorter than the paper's, runs of its length are kept, too; they get rows of their own.
    """
    varied = ("head", "frequencies", "gamma", "seed", "samples", "layers", "heads", "width", "share")
    common = {key: value for key, value in asdict(settings.base).items() if key not in varied}
    kept = [run for run in runs if all(run.get(key) == value for key, value in common.items())]
    full = settings.base.layers, settings.base.width

    def fits(run: dict[str, Any]) -> bool:
        return run["samples"] == settings.base.samples or (run["samples"] is None and is_main(run, full))

    return [run for run in kept if run["game"] in settings.chosen_games and fits(run)]


def plan_tasks(settings: Settings, games: list[str], deadline: float | None, lines: bool = False) -> list[Task]:
    """Return the arms of games as tasks in the order of the plan; with ``lines`` they print how far they are."""
    cuda = settings.device.startswith("cuda")
    resources = {
        "data": str(settings.data),
        "device": settings.device,
        "compile": cuda if settings.compile is None else settings.compile,
        "deadline": deadline,
        "lines": lines,
        "workers": settings.workers,
    }
    marks = {game: load_recording(settings.data / game).fingerprint for game in games}
    planned = [(game, arm) for game in games for arm in arms(settings, game)]
    return [
        Task(
            run_arm,
            {"game": game, "recording": marks[game], **asdict(arm)},
            f"{game}: {arm.label}",
            reports=True,
            resources=resources,
            gpus=1.0 if cuda else 0.0,
        )
        for game, arm in sorted(planned, key=lambda one: rank(one[1], settings))
    ]


def take_over(tasks: Sequence[Task], path: Path, store: RunStore) -> None:
    """Keep those runs of earlier results that tasks would repeat; each says where it comes from.

    Args:
        tasks: what is planned; a run is taken where the recording and all settings of the arm are the same.
        path: a `runs.json`.
        store: keeps them; what it has already stays.
    """
    try:
        earlier = [dict(run) for run in json.loads(path.read_text(encoding="utf-8"))]
    except (OSError, ValueError, TypeError) as error:
        raise UserError(f"--reuse must name the runs.json of an Atari study, got {path}: {error}.") from None
    for task in tasks:
        for run in earlier:
            if task.settings.items() <= run.items() and store.get(task.label, task.settings) is None:
                result = {key: value for key, value in run.items() if key not in task.settings and key != "label"}
                store.put(task.label, task.settings, result | {"taken_from": path.as_posix()})


def prepare(settings: Settings, game: str, deadline: float | None, console: Console) -> bool:
    """Make sure that a game's recording is there: as it is, or collected; and its frames.

    A recipe comes last when collecting, so that where one is all was collected; it alone is enough to travel. Return
    whether the recording is there; a collection that the deadline stops is continued by the next call.
    """
    folder = settings.data / game

    def tell(what: str) -> Any:  # these stages come before any bar
        return in_lines(f"{game}: {what}", lambda line: console.print(line, markup=False))

    if not (folder / RECIPE).exists():
        limit = None if deadline is None else deadline - time.monotonic()
        if limit is not None and limit < 5:
            return False
        if not Collection(settings.collection(game, limit)).run(tell("collecting")):
            return False
    load_recording(folder, tell("playing the recipe"))
    return True


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
