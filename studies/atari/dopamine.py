"""Read the DQN replay format of Agarwal et al. (2020): what Dopamine's replay buffer writes, gzipped arrays of numpy.

A checkpoint number N has the files `$store$_observation_ckpt.N.gz`, `..._action_...`, `..._reward_...` and
`..._terminal_...`; each holds one array of up to a million transitions, frame and all, in time order. Actions are in
the emulator's order of its full action set and are translated here; rewards may be clipped, as DQN learned from them.
The public set was of one agent's life in fifty checkpoints.
"""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fourier_head.errors import UserError
from studies.atari.environment import SIDE
from studies.atari.games import EMULATOR_ACTIONS, FROM_EMULATOR, find_game
from studies.atari.recording import About, Recording

NAMES = ("observation", "action", "reward", "terminal")


def checkpoints(folder: Path) -> list[int]:
    """Return the numbers of the checkpoints in a folder."""
    found = (re.fullmatch(r"\$store\$_observation_ckpt\.(\d+)\.gz", path.name) for path in folder.glob("*.gz"))
    return sorted(int(match[1]) for match in found if match)


def read_array(path: Path, rows: slice) -> np.ndarray:
    """Return some rows of a gzipped array; what follows them is not unpacked, and nothing in the file is executed."""
    try:
        with gzip.open(path, "rb") as file:
            form: Any = np.lib.format
            old = form.read_magic(file) == (1, 0)
            shape, fortran, dtype = (form.read_array_header_1_0 if old else form.read_array_header_2_0)(file)
            if dtype.hasobject or fortran or not shape:
                raise ValueError(f"an array of {dtype} with shape {shape} is not what this format holds")
            start, stop, _ = rows.indices(shape[0])
            size = dtype.itemsize * int(np.prod(shape[1:]))
            _skip(file, start * size)
            content = file.read((stop - start) * size)
            return np.frombuffer(content, dtype).reshape(-1, *shape[1:])
    except FileNotFoundError:
        raise UserError(f"{path} does not exist; a checkpoint has the files of {', '.join(NAMES)}.") from None
    except (OSError, ValueError, EOFError, zlib.error) as error:
        raise UserError(f"{path} is no gzipped array of numpy: {error}.") from None


def _skip(file: gzip.GzipFile, count: int) -> None:
    while count > 0:
        block = file.read(min(count, 1 << 24))
        if not block:
            raise EOFError("the file ends before the rows asked for")
        count -= len(block)


def read_dopamine(
    folder: Path, game: str, transitions: int | None = 500_000, numbers: Sequence[int] | None = None
) -> Recording:
    """Return transitions spread evenly over the checkpoints of a folder as a recording, one stream per checkpoint.

    Args:
        folder: with the files.
        game: whose play it is.
        transitions: how many in all, None for every one.
        numbers: checkpoints to read, all by default.
    """
    about = About(find_game(game).name, source="DQN replay")  # before anything large is read
    if transitions is not None and transitions < 1:
        raise ValueError(f"transitions must be at least 1, got {transitions}")
    numbers = checkpoints(folder) if numbers is None else list(numbers)
    if not numbers:
        raise UserError(f"{folder} holds no $store$_observation_ckpt.N.gz of a DQN replay set.")
    share = slice(None) if transitions is None else slice(0, -(-transitions // len(numbers)))
    parts: dict[str, list[np.ndarray]] = {name: [] for name in NAMES}
    for number in numbers:
        found = {name: read_array(folder / f"$store$_{name}_ckpt.{number}.gz", share) for name in NAMES}
        lengths = {name: len(array) for name, array in found.items()}
        if len(set(lengths.values())) > 1:
            raise UserError(f"checkpoint {number} of {folder} must have arrays of one length, got {lengths}.")
        if found["observation"].shape[1:] != (SIDE, SIDE):
            shape = found["observation"].shape[1:]
            raise UserError(f"checkpoint {number} of {folder} must have frames of {SIDE} by {SIDE}, got {shape}.")
        if found["action"].size and not 0 <= found["action"].min() <= found["action"].max() < len(EMULATOR_ACTIONS):
            raise UserError(f"checkpoint {number} of {folder} has actions outside 0 to {len(EMULATOR_ACTIONS) - 1}.")
        for name in NAMES:
            parts[name].append(found[name])
    lengths_of = [len(part) for part in parts["action"]]
    actions = np.asarray(FROM_EMULATOR, dtype=np.uint8)[np.concatenate(parts["action"]).astype(np.int64)]
    moments = [number * 1_000_000 + np.arange(length) for number, length in zip(numbers, lengths_of, strict=True)]
    return Recording(
        about,
        np.concatenate(parts["observation"]),
        actions,
        np.rint(np.concatenate(parts["reward"])).astype(np.int32),
        np.concatenate(parts["terminal"]).astype(bool),
        np.concatenate(moments),
        np.concatenate([[0], np.cumsum(lengths_of)]),
    )
