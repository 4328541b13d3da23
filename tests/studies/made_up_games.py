"""Emulators of a game that does not exist, with the promises of `Environments`, which take half a second each to begin.

What happens follows from the seed, the actions so far and nothing else, so a recipe plays back as in the real ones.
"""

import numpy as np
from studies.atari.environment import SIDE, Step


class MadeUpEnvironments:
    """Random frames and scores; an episode ends after so many frames, and a life may be lost before."""

    def __init__(self, game, seeds, *, threads=0, sticky=0.0, max_frames=108_000, colour=False):
        self.seeds, self.most = list(seeds), max_frames // 4
        self.shape = (210, 160, 3) if colour else (SIDE, SIDE)

    def __len__(self):
        return len(self.seeds)

    def _drawn(self):
        """Return frames and scores."""
        drawn = [np.random.default_rng([seed, *past]) for seed, past in zip(self.seeds, self._pasts, strict=True)]
        reward = np.array([one.integers(0, 3) for one in drawn], dtype=np.float32)
        return np.stack([one.integers(0, 255, self.shape, dtype=np.uint8) for one in drawn]), reward

    def reset(self):
        self._pasts = [[0] for _ in self.seeds]  # what is drawn from: episodes so far, and actions of this one
        return self._drawn()[0]

    def send(self, actions):
        self._actions = np.asarray(actions)

    def receive(self):
        for past, action in zip(self._pasts, self._actions, strict=True):
            past.append(int(action) + 1)
        _, reward = self._drawn()
        ended = np.array([len(past) > self.most for past in self._pasts])
        lost = ended | (reward > 1)
        self._pasts = [[past[0] + 1] if end else past for past, end in zip(self._pasts, ended, strict=True)]
        return Step(self._drawn()[0], reward, ended, lost)

    def step(self, actions):
        self.send(actions)
        return self.receive()
