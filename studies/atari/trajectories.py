"""Recorded play resident on a device, cut into contexts of a Decision Transformer there."""

from __future__ import annotations

import itertools
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fourier_head.errors import UserError
from studies.atari.environment import STACK
from studies.atari.recording import Recording

IGNORED = -100


class Window(NamedTuple):
    """Contexts of T steps within one episode each, and the three frames before that complete the first stack."""

    frames: Tensor  # (B, T + 3, 84, 84) uint8
    actions: Tensor  # (B, T)
    returns: Tensor  # (B, T), to go, in the game's score
    timestep: Tensor  # (B,), of the first step
    target: Tensor  # (B, T), the actions, or IGNORED after the end of a short episode


class Episodes(NamedTuple):
    """Whole episodes of a recording: first and last transition of each."""

    first: np.ndarray
    last: np.ndarray


def find_episodes(ended: np.ndarray, streams: np.ndarray) -> Episodes:
    """Return the whole episodes; what the end of a stream cut off has no known return and is left out.

    Where no episode is whole, the pieces are taken as they are.

    >>> find_episodes(np.array([0, 1, 0, 0, 1, 0], dtype=bool), np.array([0, 4, 6])).last.tolist()
    [1, 4]
    """
    first, last, pieces = [], [], []
    for begin, end in itertools.pairwise(streams.tolist()):
        start = int(begin)
        for stop in np.flatnonzero(ended[begin:end]) + begin:
            first.append(start)
            last.append(int(stop))
            start = int(stop) + 1
        if start < end:
            pieces.append((start, int(end) - 1))
    if not first:
        first, last = [a for a, _ in pieces], [b for _, b in pieces]
    return Episodes(np.array(first, dtype=np.int64), np.array(last, dtype=np.int64))


def returns_to_go(rewards: np.ndarray, episodes: Episodes) -> np.ndarray:
    """Return, for every transition of an episode, the rewards from it to the end.

    >>> returns_to_go(np.array([1, 2, 3]), Episodes(np.array([0]), np.array([2]))).tolist()
    [6.0, 5.0, 3.0]
    """
    out = np.zeros(len(rewards), dtype=np.float32)
    for first, last in zip(*episodes, strict=True):
        out[first : last + 1] = np.cumsum(rewards[first : last + 1][::-1].astype(np.float64))[::-1]
    return out


class Trajectories:
    """All transitions on one device; contexts are drawn there, with no copy from the host.

    Args:
        recording: what was played.
        context: steps of a context.
        device: where to keep it: 3.5 GB for half a million frames.
        share: part of the training episodes to use, evenly spread, for the ablation on the size of the data.
        held_out: every so many episodes one is kept from training.
        frames: those of the recording, where they are on the device already.
    """

    def __init__(
        self,
        recording: Recording,
        context: int,
        device: torch.device | str = "cpu",
        share: float = 1.0,
        held_out: int = 20,
        frames: Tensor | None = None,
    ):
        if not 0 < share <= 1:
            raise ValueError(f"share must lie in (0, 1], got {share}")
        self.context, self.device = context, torch.device(device)
        episodes = find_episodes(recording.ended, recording.streams)
        if len(episodes.first) == 0:
            raise UserError("the recording is empty.")
        moment = recording.moments[episodes.first]
        order = np.argsort(moment, kind="stable")  # by time, so that any even choice is spread over the training
        kept_from = order[held_out // 2 :: held_out] if len(order) > held_out // 2 else order[-1:]
        train = np.setdiff1d(order, kept_from, assume_unique=True) if len(order) > 1 else order
        train = train[np.argsort(moment[train], kind="stable")]
        train = train[np.unique(np.floor(np.arange(0, len(train), 1 / share)).astype(int).clip(0, len(train) - 1))]
        to_go = returns_to_go(recording.rewards, episodes)
        self.episode_returns = to_go[episodes.first]
        """Scores of the whole episodes."""
        self.longest = int((episodes.last - episodes.first).max()) + 1
        self.frames = self._upload(recording.frames) if frames is None else frames
        self.actions = torch.as_tensor(recording.actions).to(self.device, torch.int64)
        self.to_go = torch.as_tensor(to_go).to(self.device)
        self._first = self._table(episodes.first, episodes, len(recording))
        self._last = self._table(episodes.last, episodes, len(recording))
        self.train = self._rows(episodes, train)
        self.held_out = self._rows(episodes, kept_from)
        used = self.to_go[self.train]
        self.return_mean, self.return_std = float(used.mean()), max(1e-3, float(used.std(correction=0)))

    def __len__(self) -> int:
        return len(self.train)

    def _upload(self, frames: np.ndarray) -> Tensor:
        """Copy frames in parts: a mapped file never needs to be in memory as a whole."""
        out = torch.empty(frames.shape, dtype=torch.uint8, device=self.device)
        for start in range(0, len(frames), 1 << 15):
            out[start : start + (1 << 15)] = torch.from_numpy(np.array(frames[start : start + (1 << 15)]))
        return out

    def _table(self, values: np.ndarray, episodes: Episodes, count: int) -> Tensor:
        table = np.zeros(count, dtype=np.int64)
        for value, first, last in zip(values, *episodes, strict=True):
            table[first : last + 1] = value
        return torch.from_numpy(table).to(self.device)

    def _rows(self, episodes: Episodes, chosen: np.ndarray) -> Tensor:
        parts = [np.arange(episodes.first[i], episodes.last[i] + 1) for i in chosen]
        return torch.from_numpy(np.concatenate(parts)).to(self.device)

    def sample(self, batch: int, generator: torch.Generator) -> Window:
        """Return contexts that begin at transitions drawn evenly, moved back where an episode ends too soon."""
        pick = torch.randint(len(self.train), (batch,), generator=generator, device=self.device)
        return self.window(self.train[pick])

    def held_out_windows(self, count: int) -> Window:
        """Return up to so many contexts of episodes that training never sees, evenly spread, always the same."""
        step = max(1, len(self.held_out) // count)
        return self.window(self.held_out[::step][:count])

    def window(self, rows: Tensor) -> Window:
        """Return the contexts around transitions."""
        first, last = self._first[rows], self._last[rows]
        begin = torch.maximum(first, torch.minimum(rows, last - (self.context - 1)))
        steps = begin[:, None] + torch.arange(self.context, device=self.device)
        inside = steps <= last[:, None]
        steps = torch.minimum(steps, last[:, None])
        before = begin[:, None] + torch.arange(1 - STACK, 0, device=self.device)
        frames = self.frames[torch.cat([before.clamp_min(0), steps], 1)]
        frames[:, : STACK - 1] *= (before >= first[:, None])[..., None, None]
        actions = self.actions[steps]
        return Window(frames, actions, self.to_go[steps], begin - first, torch.where(inside, actions, IGNORED))


def stacks(frames: Tensor) -> Tensor:
    """Return the stacks (B, T, 4, 84, 84) of frames (B, T + 3, 84, 84)."""
    return frames.unfold(1, STACK, 1).movedim(-1, 2)
