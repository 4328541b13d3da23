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

from fourier_head.errors import UserError, whole_number
from studies.atari.environment import SIDE
from studies.atari.games import EMULATOR_ACTIONS, FROM_EMULATOR, find_game
from studies.atari.recording import About, Recording

NAMES = ("observation", "action", "reward", "terminal")


def read_array(path: Path, most: int | None) -> np.ndarray:
    """Return the first rows of a gzipped array; what follows them is not unpacked, and nothing in it is executed."""
    form: Any = np.lib.format
    try:
        with gzip.open(path, "rb") as file:
            old = form.read_magic(file) == (1, 0)
            shape, fortran, dtype = (form.read_array_header_1_0 if old else form.read_array_header_2_0)(file)
            if dtype.hasobject or fortran or not shape:
                raise ValueError(f"an array of {dtype} with shape {shape} is not what this format holds")
            rows = shape[0] if most is None else min(shape[0], most)
            content = file.read(rows * dtype.itemsize * int(np.prod(shape[1:])))
            return np.frombuffer(content, dtype).reshape(rows, *shape[1:])
    except FileNotFoundError:
        raise UserError(f"{path} does not exist; a checkpoint has the files of {', '.join(NAMES)}.") from None
    except (OSError, ValueError, EOFError, zlib.error) as error:
        raise UserError(f"{path} is no gzipped array of numpy: {error}.") from None


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
    if transitions is not None:
        whole_number("transitions", transitions, 1)
    if numbers is None:
        found = (re.fullmatch(r"\$store\$_observation_ckpt\.(\d+)\.gz", path.name) for path in folder.glob("*.gz"))
        numbers = sorted(int(match[1]) for match in found if match)
    if not numbers:
        raise UserError(f"{folder} holds no $store$_observation_ckpt.N.gz of a DQN replay set.")
    share = None if transitions is None else -(-transitions // len(numbers))
    parts = []
    for number in numbers:
        part = [read_array(folder / f"$store$_{name}_ckpt.{number}.gz", share) for name in NAMES]
        frames, actions = part[:2]
        where = f"checkpoint {number} of {folder}"
        if len({len(array) for array in part}) > 1:
            lengths = {name: len(array) for name, array in zip(NAMES, part, strict=True)}
            raise UserError(f"{where} must have arrays of one length, got {lengths}.")
        if frames.shape[1:] != (SIDE, SIDE):
            raise UserError(f"{where} must have frames of {SIDE} by {SIDE}, got {frames.shape[1:]}.")
        if actions.size and not 0 <= actions.min() <= actions.max() < len(EMULATOR_ACTIONS):
            raise UserError(f"{where} has actions outside 0 to {len(EMULATOR_ACTIONS) - 1}.")
        parts.append([*part, number * 1_000_000 + np.arange(len(actions))])
    frames, actions, rewards, ended, moments = (np.concatenate(column) for column in zip(*parts, strict=True))
    return Recording(
        about,
        frames,
        np.asarray(FROM_EMULATOR, dtype=np.uint8)[actions.astype(np.int64)],
        np.rint(rewards).astype(np.int32),
        ended.astype(bool),
        moments,
        np.cumsum([0, *(len(part[1]) for part in parts)]),
    )
