"""Recorded play on disk: a recipe of seeds and actions, from which the emulator makes the frames again.

A recording is a set of streams. A stream is what one environment did from a seed on: frames, actions in the order of
`games.ACTIONS`, raw rewards, ends of episodes. Shards hold a stretch of all streams under way; a new start (the first
one, and every one after an interruption) begins new streams. As the emulator is deterministic, seeds and actions are
the whole recording: the recipe of half a million transitions has a few hundred kilobytes, the frames 3.5 GB.
"""

from __future__ import annotations

import hashlib
import json
import zipfile
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from fourier_head._files import write_atomically
from fourier_head.errors import UserError
from studies.atari.environment import SIDE, Environments
from studies.atari.games import find_game

RECIPE, AGENT = "recipe.npz", "agent"
COLUMNS = ("actions", "rewards", "ended")
BROKEN = (OSError, ValueError, KeyError, TypeError, AttributeError, EOFError, zipfile.BadZipFile, zlib.error)
"""What `numpy.load` raises where a file is damaged or something else."""


@dataclass(frozen=True)
class About:
    """What a recording is of: all that the emulator has to know to play it again."""

    game: str
    sticky: float = 0.0
    max_frames: int = 108_000
    source: str = "PQN"

    def environments(self, seeds: Iterable[int], threads: int = 0, colour: bool = False) -> Environments:
        """Return emulators set as they were."""
        options = {"sticky": self.sticky, "max_frames": self.max_frames}
        return Environments(find_game(self.game), list(seeds), threads=threads, colour=colour, **options)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Shard:
    """A stretch of n streams, (n, length), with the seeds they began from and whether they begin here.

    Args:
        actions, rewards, ended: what was done, and what came of it.
        seeds: of the streams.
        fresh: whether they begin here.
        moment: steps of all environments together that the agent had behind it when the stretch began.
        pace: steps of all environments together in one step of a stream.
    """

    actions: np.ndarray
    rewards: np.ndarray
    ended: np.ndarray
    seeds: np.ndarray
    fresh: bool
    moment: int
    pace: int = 0


def write_recipe(path: Path, about: About, shards: Sequence[Shard]) -> None:
    """Write what a recording is of, and all its shards, into one small file."""
    arrays: dict[str, np.ndarray] = {"about": np.frombuffer(json.dumps(vars(about)).encode(), np.uint8)}
    for number, shard in enumerate(shards):
        arrays |= {f"{name}-{number}": getattr(shard, name) for name in (*COLUMNS, "seeds")}
        arrays[f"about-{number}"] = np.array([shard.fresh, shard.moment, shard.pace], dtype=np.int64)
    write_atomically(path, lambda beside: np.savez_compressed(beside, **arrays))  # type: ignore[arg-type]


def read_recipe(path: Path) -> tuple[About, list[Shard]]:
    """Return what a recording is of, and its shards."""
    try:
        with np.load(path, allow_pickle=False) as file:
            about = About(**json.loads(bytes(file["about"]).decode()))
            shards = []
            for number in range(sum(name.startswith("seeds-") for name in file.files)):
                fresh, moment, pace = file[f"about-{number}"].tolist()
                arrays = {name: file[f"{name}-{number}"] for name in (*COLUMNS, "seeds")}
                shards.append(Shard(**arrays, fresh=bool(fresh), moment=moment, pace=pace))
        if not shards:
            raise ValueError("it has no shards")
    except FileNotFoundError:
        raise UserError(f"{path} does not exist.") from None
    except BROKEN as error:
        raise UserError(f"{path} is no recipe of a recording: {error}.") from None
    return about, shards


@dataclass(frozen=True)
class Recording:
    """All transitions, stream after stream, in time order within each.

    Args:
        about: what was played.
        frames: (M, 84, 84) uint8, what was seen before the action; may lie on disk.
        actions, rewards, ended: (M,), of the same transition.
        moments: (M,), steps the agent had behind it, which tells how far it had learned.
        streams: where each stream begins, and M at the end.
    """

    about: About
    frames: np.ndarray
    actions: np.ndarray
    rewards: np.ndarray
    ended: np.ndarray
    moments: np.ndarray
    streams: np.ndarray

    def __len__(self) -> int:
        return len(self.actions)

    @property
    def fingerprint(self) -> str:
        """What tells recordings apart: a digest of all actions."""
        return hashlib.sha256(self.actions.tobytes()).hexdigest()[:12]


Report = Callable[[float, str], None]


def load_recording(folder: Path, report: Report | None = None) -> Recording:
    """Return the recording of a folder; the first call plays it into a file of frames that later ones map."""
    recipe = _recipe_of(folder)
    if recipe is None:
        raise UserError(f"{folder} holds no recording: make one with python -m studies.atari collect.")
    return _load(recipe, folder, report)


def rebuild(recipe: Path, folder: Path, report: Report | None = None) -> Recording:
    """Return the recording of a recipe, played into a folder of its own; one of another recording is left alone."""
    read_recipe(recipe)
    content, own = recipe.read_bytes(), _recipe_of(folder)
    if own is not None and own.read_bytes() != content:
        raise UserError(f"{folder} holds another recording; choose another folder.")
    folder.mkdir(parents=True, exist_ok=True)
    recording = _load(recipe, folder, report)
    write_atomically(folder / RECIPE, content)
    return recording


def _recipe_of(folder: Path) -> Path | None:
    """Return the recipe of a folder; that of a collection under way lies beside its agent."""
    return next((path for path in (folder / RECIPE, folder / AGENT / RECIPE) if path.exists()), None)


def _load(recipe: Path, folder: Path, report: Report | None) -> Recording:
    about, shards = read_recipe(recipe)
    starts = _joined(shards)
    columns = {name: np.concatenate([getattr(start, name).ravel() for start in starts]) for name in COLUMNS}
    lengths = [(*start.actions.shape, start) for start in starts]
    moments = [np.tile(start.moment + start.pace * np.arange(length), count) for count, length, start in lengths]
    streams = np.cumsum([0, *(length for count, length, _ in lengths for _ in range(count))])
    found = Recording(about, np.empty(0), **columns, moments=np.concatenate(moments), streams=streams)
    path = folder / f"frames-{found.fingerprint}.npy"
    if not path.exists():
        for older in folder.glob("frames-*.npy"):  # of a shorter recording
            older.unlink()
        # No flush at the end: the file may stay in memory until the system finds time to write it.
        write_atomically(path, lambda beside: _play(about, starts, len(found), beside, report))
    return replace(found, frames=np.load(path, mmap_mode="r"))


def _joined(shards: Sequence[Shard]) -> list[Shard]:
    """Return one long shard for every start of a collection."""
    starts: list[list[Shard]] = []
    for shard in shards:
        if shard.fresh or not starts:
            starts.append([])
        starts[-1].append(shard)
    out = []
    for start in starts:
        columns: dict[str, Any] = {
            name: np.concatenate([getattr(one, name) for one in start], axis=1) for name in COLUMNS
        }
        out.append(replace(start[0], **columns))
    return out


def _play(about: About, starts: Sequence[Shard], total: int, path: Path, report: Report | None) -> None:
    """Write the frames of all streams; rewards and ends must come out as recorded, or this is another emulator."""
    frames = np.lib.format.open_memmap(path, mode="w+", dtype=np.uint8, shape=(total, SIDE, SIDE))
    done = 0
    for number, start in enumerate(starts):
        count, length = start.actions.shape
        own = frames[done : done + count * length].reshape(count, length, SIDE, SIDE)
        environments = about.environments(start.seeds.tolist())
        own[:, 0] = environments.reset()
        for t in range(length):
            step = environments.step(start.actions[:, t])
            if not (step.reward == start.rewards[:, t]).all() or not (step.ended == start.ended[:, t]).all():
                raise UserError(
                    f"the recipe does not play as recorded (start {number}, step {t}): it needs the version of ale-py "
                    "it was made with."
                )
            if t + 1 < length:
                own[:, t + 1] = step.frame
            done += count
            if report is not None:
                report(done / total, f"{done} of {total} transitions")
