"""Play many episodes at once with a Decision Transformer that is told which return to reach."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fourier_head.atari.environment import FrameStack
from fourier_head.atari.model import DecisionTransformer
from fourier_head.atari.recording import About


@dataclass(frozen=True)
class Played:
    """What came of it, one episode per environment.

    Args:
        returns: (n,), raw scores.
        lengths: (n,), steps.
        cut: how many episodes were still going on when time was up; their scores so far count.
        seeds, actions: what replays the episodes: seeds (n,), actions (steps, n).
        seconds: it took.
    """

    returns: np.ndarray
    lengths: np.ndarray
    cut: int
    seeds: np.ndarray
    actions: np.ndarray
    seconds: float

    @property
    def steps_per_second(self) -> float:
        """Steps of all environments together."""
        return self.actions.size / max(self.seconds, 1e-9)

    def best(self) -> tuple[int, list[int]]:
        """Return seed and actions of the episode with the highest score."""
        i = int(self.returns.argmax())
        return int(self.seeds[i]), self.actions[: self.lengths[i], i].tolist()


class _Reader:
    """The last steps of all environments in fixed memory, read by the model; on a GPU as one recorded graph.

    The context is always read in full length. What lies behind the present step is not seen by it, as attention
    looks back only.
    """

    def __init__(self, model: DecisionTransformer, first: Tensor, bfloat16: bool):
        count, length, device = len(first), model.settings.context, first.device
        self.model, self.length, self.bfloat16 = model, length, bfloat16
        self.stack = FrameStack(first)
        self.seen = torch.zeros(count, length, model.settings.width, device=device)
        self.actions = torch.zeros(count, length, dtype=torch.int64, device=device)
        self.hoped = torch.zeros(count, length, device=device)
        self.timestep = torch.zeros(count, dtype=torch.int64, device=device)
        self.place = torch.zeros(1, dtype=torch.int64, device=device)
        self._graph: Any = None
        self._features = torch.empty(0)

    def read(self, step: int, to_go: Tensor) -> Tensor:
        """Return the features of the present step, (n, width)."""
        at = min(step, self.length - 1)
        if step >= self.length:
            for memory in (self.seen, self.actions, self.hoped):
                memory.copy_(memory.roll(-1, 1))
        self.hoped[:, at] = to_go
        self.timestep.fill_(step - at)
        self.place.fill_(at)
        if self.seen.device.type != "cuda":
            return self._forward()
        if self._graph is None:
            self._record()
        self._graph.replay()
        return self._features

    def acted(self, actions: Tensor) -> None:
        """Remember what was done in the present step."""
        self.actions.index_copy_(1, self.place, actions[:, None])

    def _forward(self) -> Tensor:
        # Cached casts of weights would live in the graph's own memory, so there is no cache.
        with torch.autocast(self.seen.device.type, torch.bfloat16, enabled=self.bfloat16, cache_enabled=False):
            self.seen.index_copy_(1, self.place, self.model.encode(self.stack.frames).float()[:, None])
            every = self.model.features(self.seen, self.actions, self.hoped, self.timestep)
        return every.float().index_select(1, self.place).squeeze(1)

    def _record(self) -> None:
        """Record the forward pass, some hundred small kernels, whose launches would cost more than their work."""
        aside = torch.cuda.Stream()
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            for _ in range(3):
                self._forward()
        torch.cuda.current_stream().wait_stream(aside)
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            self._features = self._forward()


@torch.no_grad()
def play(
    model: DecisionTransformer,
    about: About,
    *,
    target: float,
    episodes: int,
    seed: int,
    max_steps: int = 4500,
    threads: int = 0,
    bfloat16: bool = False,
    greedy: bool = False,
) -> Played:
    """Play one episode in each of ``episodes`` environments with sampled actions.

    Every step the model reads the last ``context`` steps again; only the tokens of frames are kept, as the encoder
    costs more than all else. The return to go falls by every reward, as in training.

    Arguments:
        model: in evaluation mode or not, it is put back as it was.
        about: what to play, set as the recording was.
        target: return to go at the beginning.
        seed: of environments and actions.
        max_steps: after which all stop.
        threads: of the emulators; 0 for one per core.
        bfloat16: whether to compute in it.
        greedy: take the likeliest action instead of a sample.
    """
    device = next(model.parameters()).device
    was_training = model.training
    model.eval()
    seeds = 500_000_003 + 10_007 * seed + np.arange(episodes)
    environments = about.environments(seeds.tolist(), threads)
    generator = torch.Generator(device).manual_seed(seed)
    begin = time.monotonic()
    reader = _Reader(model, torch.from_numpy(environments.reset()).to(device), bfloat16)
    to_go = torch.full((episodes,), float(target), device=device)
    returns, lengths = np.zeros(episodes), np.zeros(episodes, dtype=np.int64)
    going = np.ones(episodes, dtype=bool)
    taken = []
    for step in range(max_steps):
        pmf = model.pmf(reader.read(step, to_go))
        chosen = pmf.argmax(-1) if greedy else torch.multinomial(pmf, 1, generator=generator).squeeze(-1)
        reader.acted(chosen)
        host = chosen.cpu().numpy()
        result = environments.step(host)
        taken.append(host.astype(np.uint8))
        returns += np.where(going, result.reward, 0)
        lengths += going
        going &= ~result.ended
        if not going.any():
            break
        reader.stack.push(torch.from_numpy(result.frame).to(device), torch.from_numpy(result.ended).to(device))
        to_go -= torch.from_numpy(result.reward).to(device)
    model.train(was_training)
    return Played(returns, lengths, int(going.sum()), seeds, np.stack(taken), time.monotonic() - begin)
