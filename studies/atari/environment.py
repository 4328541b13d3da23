"""Many emulators at once, one frame per step: actions in our order go in, single frames and raw scores come out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fourier_head.errors import needing
from studies.atari.games import TO_EMULATOR, Game

SIDE = 84
STACK = 4
SEEDS = 2**31
"""Seeds lie in 0 to this; the emulator refuses larger ones and takes a negative one for none at all."""
MOST = 128
"""Environments in one vector. With 256 DoubleDunk was seen to hang inside ale-py 0.12.1; with 128 it never did."""


class Step(NamedTuple):
    """What one step of all environments returned; where one ended, its frame is the first of the next episode."""

    frame: np.ndarray  # (n, 84, 84) uint8
    reward: np.ndarray  # (n,) float32, never clipped
    ended: np.ndarray  # (n,) bool
    lost_life: np.ndarray  # (n,) bool; true at the end of an episode, too


class Environments:
    """Emulators of one game stepped together by threads of C++.

    84x84 gray, every action held for four frames, the last two of them max-pooled, all eighteen actions, up to thirty
    idle frames before an episode. The emulator is deterministic: the same seeds and actions give the same frames,
    however many others run beside, which is what lets a recording be kept as its actions alone.

    Args:
        game: which.
        seeds: one per environment.
        threads: of C++; 0 for one per core.
        sticky: probability that the emulator repeats the action before instead of the one given.
        max_frames: emulator frames after which an episode is cut.
        colour: frames as people see them, (210, 160, 3), for pictures of play; the game is the same.
    """

    def __init__(
        self,
        game: Game,
        seeds: Sequence[int],
        *,
        threads: int = 0,
        sticky: float = 0.0,
        max_frames: int = 108_000,
        colour: bool = False,
    ):
        with needing("atari"):
            from ale_py.vector_env import AtariVectorEnv
        if not 1 <= len(seeds) <= MOST:
            raise ValueError(f"seeds must be 1 to {MOST} numbers, one per environment, got {len(seeds)}")
        if not 0 <= min(seeds) <= max(seeds) < SEEDS:
            raise ValueError(f"seeds must lie in 0 to {SEEDS - 1}, got {min(seeds)} to {max(seeds)}")
        self.game, self.seeds = game, np.asarray(seeds, dtype=np.int64)
        self._vector: Any = AtariVectorEnv(
            game.name,
            len(seeds),
            num_threads=min(threads, len(seeds)),
            repeat_action_probability=sticky,
            full_action_space=True,
            max_num_frames_per_episode=max_frames,
            autoreset_mode="SameStep",
            img_height=210 if colour else SIDE,
            img_width=160 if colour else SIDE,
            grayscale=not colour,
            stack_num=1,  # stacks are put together on the device; a quarter of the bytes travel
            frameskip=4,
            noop_max=30,
            reward_clipping=False,
            use_fire_reset=False,
        )
        self._ids = np.asarray(TO_EMULATOR, dtype=np.int64)
        self._lives = np.zeros(len(seeds), dtype=np.int32)

    def __len__(self) -> int:
        return len(self.seeds)

    def reset(self) -> np.ndarray:
        """Start an episode in every environment from its seed; return the first frames."""
        frame, info = self._vector.reset(seed=self.seeds)
        self._lives = np.array(info["lives"])
        return np.array(frame[:, 0])

    def send(self, actions: np.ndarray) -> None:
        """Hand over one action per environment and return while the emulators work."""
        self._vector.send(self._ids[actions])

    def receive(self) -> Step:
        """Wait for the emulators."""
        frame, reward, terminated, truncated, info = self._vector.recv()
        ended = np.logical_or(terminated, truncated)
        lost = ended | (info["lives"] < self._lives)
        self._lives = np.array(info["lives"])
        # The vector may write into the same memory again, so what is kept is a copy.
        return Step(np.array(frame[:, 0]), np.array(reward, dtype=np.float32), ended, lost)

    def step(self, actions: np.ndarray) -> Step:
        """Take one action in every environment, given in the order of ``ACTIONS``."""
        self.send(actions)
        return self.receive()


class FrameStack:
    """The last four frames of every environment on a device; frames before an episode are black.

    Example:
        >>> stack = FrameStack(torch.ones(2, 84, 84, dtype=torch.uint8))
        >>> frames = stack.push(torch.ones(2, 84, 84, dtype=torch.uint8), torch.tensor([False, True]))
        >>> frames[:, :, 0, 0].tolist()
        [[0, 0, 1, 1], [0, 0, 0, 1]]
    """

    def __init__(self, first: Tensor):
        self.frames = torch.zeros(len(first), STACK, *first.shape[1:], dtype=torch.uint8, device=first.device)
        self.frames[:, -1] = first

    def push(self, frame: Tensor, started: Tensor) -> Tensor:
        """Append frames, with nothing behind them where an episode started; return the stacks."""
        older = torch.where(started[:, None, None, None], 0, self.frames[:, 1:])
        # In place: a recorded CUDA graph reads from here.
        self.frames.copy_(torch.cat([older, frame[:, None]], 1))
        return self.frames
