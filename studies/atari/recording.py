"""Recorded play on disk: compressed shards of frames, and the recipe that lets the emulator make them again.

A recording is a set of streams. A stream is what one environment did from a seed on: frames, actions in the order of
`games.ACTIONS`, raw rewards, ends of episodes. Shards hold a stretch of all streams under way; a new start (the first
one, and every one after an interruption) begins new streams. As the emulator is deterministic, seeds and actions are
the whole recording: the recipe of half a million transitions has a few hundred kilobytes, the frames 3.5 GB.
"""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fourier_head._files import write_atomically
from fourier_head.errors import UserError
from studies.atari.environment import SIDE, Environments
from studies.atari.games import find_game

RECIPE, ABOUT, CACHE = "recipe.npz", "about.json", "cache"
COLUMNS = ("actions", "rewards", "ended")


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


@dataclass
class Shard:
    """A stretch of n streams: (n, length, ...), with the seeds they began from and whether they begin here."""

    frames: np.ndarray
    actions: np.ndarray
    rewards: np.ndarray
    ended: np.ndarray
    seeds: np.ndarray
    fresh: bool
    moment: int
    """Steps of all environments together that the agent had behind it when the stretch began."""
    pace: int = 0
    """Steps of all environments together in one step of a stream."""


def shard_path(folder: Path, number: int) -> Path:
    """Return where a shard lies."""
    return folder / f"shard-{number:05d}.npz"


def shard_paths(folder: Path) -> list[Path]:
    """Return all shards of a folder in order."""
    return sorted(folder.glob("shard-*.npz"))


def save_arrays(path: Path, arrays: dict[str, np.ndarray], level: int = 1) -> None:
    """Write arrays as `np.load` reads them; the fastest level, as black and repeated frames shrink at any."""

    def write(beside: Path) -> None:
        with zipfile.ZipFile(beside, "w", zipfile.ZIP_DEFLATED, compresslevel=level) as archive:
            for name, array in arrays.items():
                with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                    np.lib.format.write_array(file, np.ascontiguousarray(array), allow_pickle=False)

    write_atomically(path, write)


def load_arrays(path: Path, wanted: Iterable[str] | None = None) -> dict[str, np.ndarray]:
    """Read arrays; a file that is damaged or something else gets one sentence."""
    try:
        with np.load(path, allow_pickle=False) as archive:
            return {name: archive[name] for name in (archive.files if wanted is None else wanted)}
    except FileNotFoundError:
        raise UserError(f"{path} does not exist.") from None
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise UserError(f"{path} is no whole file of recorded play: {error}.") from None


def save_shard(path: Path, shard: Shard) -> None:
    """Write a shard; each frame as its difference, bit by bit, to the one before, most of which is zero."""
    changes = shard.frames.copy()
    changes[:, 1:] ^= shard.frames[:, :-1]
    save_arrays(
        path,
        {
            "changes": changes,
            "actions": shard.actions.astype(np.uint8),
            "rewards": shard.rewards.astype(np.int32),
            "ended": shard.ended,
            "seeds": shard.seeds,
            "about": np.array([shard.fresh, shard.moment, shard.pace], dtype=np.int64),
        },
    )


def load_shard(path: Path, frames: bool = True) -> Shard:
    """Read a shard, its frames only where wanted."""
    names = [*COLUMNS, "seeds", "about", *(["changes"] if frames else [])]
    found = load_arrays(path, names)
    pictures = np.bitwise_xor.accumulate(found["changes"], axis=1) if frames else np.empty((0, 0, SIDE, SIDE), np.uint8)
    fresh, moment, pace = found["about"].tolist()
    actions, rewards, ended = (found[name] for name in COLUMNS)
    return Shard(pictures, actions, rewards, ended, found["seeds"], bool(fresh), moment, pace)


def write_about(folder: Path, about: About) -> None:
    """Say what the shards of a folder are of."""
    write_atomically(folder / ABOUT, json.dumps(vars(about)) + "\n")


def read_about(folder: Path) -> About:
    """Return what the shards of a folder are of."""
    try:
        return About(**json.loads((folder / ABOUT).read_text(encoding="utf-8")))
    except FileNotFoundError:
        raise UserError(f"{folder} holds no recording: make one with python -m studies.atari collect.") from None
    except (OSError, ValueError, TypeError) as error:
        raise UserError(f"{folder / ABOUT} cannot be read: {error}.") from None


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


def load_recording(folder: Path) -> Recording:
    """Return the recording of a folder, its frames unpacked once into a cache on disk that later calls map."""
    about, paths = read_about(folder), shard_paths(folder)
    if not paths:
        raise UserError(f"{folder} holds no shards: make them with python -m studies.atari collect.")
    mark = json.dumps([[path.name, path.stat().st_size] for path in paths])
    cache = folder / CACHE
    if not (cache / "mark.json").exists() or (cache / "mark.json").read_text(encoding="utf-8") != mark:
        _unpack(paths, cache)
        write_atomically(cache / "mark.json", mark)
    columns = load_arrays(cache / "columns.npz")
    return Recording(about, np.load(cache / "frames.npy", mmap_mode="r"), **columns)


def _unpack(paths: list[Path], cache: Path) -> None:
    """Put the stretches of each stream one after the other."""
    heads = [load_shard(path, frames=False) for path in paths]
    runs: list[list[int]] = []
    for number, head in enumerate(heads):
        if head.fresh or not runs:
            runs.append([])
        runs[-1].append(number)
    places: dict[int, list[slice]] = {}
    total, streams = 0, [0]
    for run in runs:
        length = sum(heads[number].actions.shape[1] for number in run)
        before = 0
        for number in run:
            count, own = heads[number].actions.shape
            places[number] = [slice(b := total + j * length + before, b + own) for j in range(count)]
            before += own
        for _ in range(len(heads[run[0]].actions)):
            total += length
            streams.append(total)
    columns: dict[str, np.ndarray] = {
        "actions": np.empty(total, np.uint8),
        "rewards": np.empty(total, np.int32),
        "ended": np.empty(total, bool),
        "moments": np.empty(total, np.int64),
        "streams": np.array(streams, dtype=np.int64),
    }
    for number, head in enumerate(heads):
        for j, place in enumerate(places[number]):
            for name in COLUMNS:
                columns[name][place] = getattr(head, name)[j]
            columns["moments"][place] = head.moment + head.pace * np.arange(head.actions.shape[1])
    cache.mkdir(parents=True, exist_ok=True)

    def write(beside: Path) -> None:
        frames = np.lib.format.open_memmap(beside, mode="w+", dtype=np.uint8, shape=(total, SIDE, SIDE))

        def fill(number: int) -> None:
            for place, stretch in zip(places[number], load_shard(paths[number]).frames, strict=True):
                frames[place] = stretch

        # No flush at the end: a cache may stay in memory until the system finds time to write it.
        with ThreadPoolExecutor(min(16, os.cpu_count() or 1)) as pool:
            list(pool.map(fill, range(len(paths))))

    write_atomically(cache / "frames.npy", write)
    save_arrays(cache / "columns.npz", columns)


# --- recipes: the recording without its frames


def write_recipe(folder: Path) -> Path:
    """Write seeds, actions, rewards and ends of a folder's shards into one small file."""
    arrays: dict[str, np.ndarray] = {"about": np.frombuffer(json.dumps(vars(read_about(folder))).encode(), np.uint8)}
    for number, one in enumerate(shard_paths(folder)):
        head = load_shard(one, frames=False)
        arrays |= {f"{name}-{number}": getattr(head, name) for name in (*COLUMNS, "seeds")}
        arrays[f"about-{number}"] = np.array([head.fresh, head.moment, head.pace], dtype=np.int64)
    save_arrays(folder / RECIPE, arrays, level=9)
    return folder / RECIPE


def recipe_shards(recipe: Path) -> int:
    """Return how many shards a recipe makes."""
    return sum(name.startswith("seeds-") for name in load_arrays(recipe))


def rebuild(recipe: Path, folder: Path, report: Callable[[float, str], None] | None = None, threads: int = 0) -> int:
    """Play a recipe again and write its shards, frames included; return the number of transitions.

    Rewards and ends must come out as recorded, or the emulator is not the one that made the recipe. Shards that are
    already there are played, to get past them, but not written again; the recipe itself is put beside them. A folder
    with shards of another recording is left alone.
    """
    arrays = load_arrays(recipe)
    try:
        about = About(**json.loads(bytes(arrays["about"]).decode()))
        count = sum(name.startswith("seeds-") for name in arrays)
        heads = [[arrays[f"{name}-{i}"] for name in (*COLUMNS, "seeds", "about")] for i in range(count)]
        if not heads:
            raise ValueError("it has no shards")
    except (KeyError, ValueError, TypeError) as error:
        raise UserError(f"{recipe} is no recipe of a recording: {error}.") from None
    _check_own(folder, [head[0] for head in heads])
    write_about(folder, about)
    environments: Environments | None = None
    frame = np.empty(0)
    total = 0
    with ThreadPoolExecutor(1) as writer:
        waiting: list[Any] = []
        for number, (actions, rewards, ended, seeds, (fresh, moment, pace)) in enumerate(heads):
            if fresh or environments is None:
                environments = about.environments(seeds.tolist(), threads)
                frame = environments.reset()
            pictures = np.empty((*actions.shape, SIDE, SIDE), np.uint8)
            for t in range(actions.shape[1]):
                pictures[:, t] = frame
                step = environments.step(actions[:, t])
                if not (step.reward == rewards[:, t]).all() or not (step.ended == ended[:, t]).all():
                    raise UserError(
                        f"{recipe} does not play as recorded (shard {number}, step {t}): it needs the version of "
                        "ale-py it was made with."
                    )
                frame = step.frame
            total += actions.size
            path = shard_path(folder, number)
            if not path.exists():
                shard = Shard(pictures, actions, rewards, ended, seeds, bool(fresh), int(moment), int(pace))
                waiting.append(writer.submit(save_shard, path, shard))
            if len(waiting) > 2:
                waiting.pop(0).result()
            if report is not None:
                report((number + 1) / count, f"shard {number + 1} of {count}")
        for one in waiting:
            one.result()
    if recipe.resolve() != (folder / RECIPE).resolve():
        write_atomically(folder / RECIPE, recipe.read_bytes())
    return total


def _check_own(folder: Path, actions: list[np.ndarray]) -> None:
    """Refuse a folder whose shards are not some of those with the given actions."""
    expected = {shard_path(folder, number): own for number, own in enumerate(actions)}
    for path in shard_paths(folder):
        if path not in expected or not np.array_equal(load_shard(path, frames=False).actions, expected[path]):
            raise UserError(f"{folder} holds another recording ({path.name}); choose another folder.")
