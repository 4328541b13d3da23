"""Play many episodes at once with a Decision Transformer that is told which return to reach; load one, and film it."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fourier_head._files import recover_folder, write_atomically
from fourier_head.errors import UserError, needing
from fourier_head.training.loop import CHECKPOINT, WEIGHTS
from studies.atari.environment import SEEDS, SIDE, FrameStack, Step
from studies.atari.model import DecisionTransformer, ModelSettings, action_head
from studies.atari.recording import About
from studies.common.recorded import Recorded


class OutOfTime(Exception):
    """Raised where the deadline comes before the end of the episodes."""


@dataclass(frozen=True)
class Played:
    """What came of it, one episode per environment.

    Args:
        returns: (n,), raw scores.
        made: (n,), their positive rewards alone; where the others score, too, this tells play from waiting.
        lengths: (n,), steps.
        cut: how many episodes were still going on when time was up; their scores so far count.
        seeds, actions: what replays the episodes: seeds (n,), actions (steps, n).
        seconds: it took.
    """

    returns: np.ndarray
    made: np.ndarray
    lengths: np.ndarray
    cut: int
    seeds: np.ndarray
    actions: np.ndarray
    seconds: float

    @property
    def steps_per_second(self) -> float:
        """Steps of all environments together."""
        return float(self.lengths.sum()) / max(self.seconds, 1e-9)

    def best(self) -> tuple[int, list[int]]:
        """Return seed and actions of the episode with the highest score."""
        i = int(self.returns.argmax())
        return int(self.seeds[i]), self.actions[: self.lengths[i], i].tolist()


class _Emulators:
    """One emulator for each episode, let go when that is over: emulators cost more than all else."""

    def __init__(self, about: About, seeds: np.ndarray):
        self._single = [about.environments([seed], threads=1) for seed in seeds.tolist()]
        count = len(seeds)
        ended, lost = np.zeros(count, dtype=bool), np.zeros(count, dtype=bool)
        self._last = Step(np.zeros((count, SIDE, SIDE), np.uint8), np.zeros(count, np.float32), ended, lost)

    def reset(self) -> np.ndarray:
        self._last.frame[:] = np.concatenate([emulator.reset() for emulator in self._single])
        return self._last.frame

    def step(self, actions: np.ndarray, going: np.ndarray) -> Step:
        """Step the emulators whose episode is going on; of the others the last step is returned again."""
        under_way = np.flatnonzero(going)
        for i in under_way:
            self._single[i].send(actions[i : i + 1])
        for i in under_way:
            for kept, new in zip(self._last, self._single[i].receive(), strict=True):
                kept[i] = new[0]
        return self._last


class _Reader:
    """The last steps of all environments in memory that stays, read by the model; on a GPU a recorded graph does it.

    The context is always read in full length. What lies behind the present step is not seen by it, as attention
    looks back only.
    """

    def __init__(self, model: DecisionTransformer, first: Tensor, target: float, bfloat16: bool):
        count, length, device = len(first), model.settings.context, first.device
        self.model, self.length, self.bfloat16 = model, length, bfloat16
        self.stack = FrameStack(first)
        self.to_go = torch.full((count,), float(target), device=device)
        self.seen = torch.zeros(count, length, model.settings.width, device=device)
        self.actions = torch.zeros(count, length, dtype=torch.int64, device=device)
        self.hoped = torch.zeros(count, length, device=device)
        self.step = torch.full((1,), -1, dtype=torch.int64, device=device)
        self._places = torch.arange(length, device=device)

    def acted(self, actions: Tensor) -> None:
        """Remember what was done in the present step."""
        self.actions.index_copy_(1, self._place(), actions[:, None])

    def _place(self) -> Tensor:
        return self.step.clamp_max(self.length - 1)

    def look(self) -> Tensor:
        """Go on to the next step and return its distribution of actions, (n, 18)."""
        self.step += 1
        at = self._place()
        moved = (self._places + (self.step >= self.length)).clamp_max(self.length - 1)
        for memory in (self.seen, self.actions, self.hoped):
            memory.copy_(memory.index_select(1, moved))
        self.hoped.index_copy_(1, at, self.to_go[:, None])
        # Cached casts of weights would live in the graph's own memory, so there is no cache.
        with torch.autocast(self.seen.device.type, torch.bfloat16, enabled=self.bfloat16, cache_enabled=False):
            self.seen.index_copy_(1, at, self.model.encode(self.stack.frames).float()[:, None])
            late = self.model.late((self.step - at).expand(len(self.seen)))
            every = self.model.features(self.seen, self.actions, self.hoped, late)
        return self.model.pmf(every.float().index_select(1, at).squeeze(1))


def _drawn(pmf: Tensor, generator: torch.Generator) -> Tensor:
    """Return one sample of each row; unlike ``torch.multinomial`` it never waits for the device.

    >>> _drawn(torch.tensor([[0.0, 1.0, 0.0]]), torch.Generator().manual_seed(0)).tolist()
    [1]
    """
    # The first of exponential clocks that run at the rates p is an outcome with the probabilities p.
    return (pmf / torch.empty_like(pmf).exponential_(generator=generator)).argmax(-1)


def hold_down(pmf: Tensor, most: float) -> Tensor:
    """Return probabilities of which none is above ``most``; what the likeliest action loses, the others share.

    They share by their own probabilities, as a head of few frequencies, which has such a bound, would have to.

    >>> hold_down(torch.tensor([[0.9, 0.1, 0.0]]), 0.8)
    tensor([[0.8000, 0.2000, 0.0000]])
    """
    top, place = pmf.max(-1, keepdim=True)
    others = pmf.scatter(-1, place, 0.0)
    # Where nothing is left to share by, all others get the same.
    alike = torch.ones_like(pmf).scatter(-1, place, 0.0)
    shares = torch.where(others.sum(-1, keepdim=True) > 0, others, alike)
    held = (1 - most) * shares / shares.sum(-1, keepdim=True)
    return torch.where(top > most, held.scatter(-1, place, most), pmf)


@torch.no_grad()
def play(
    model: DecisionTransformer,
    about: About,
    *,
    target: float,
    episodes: int,
    seed: int,
    max_steps: int = 4500,
    bfloat16: bool = False,
    greedy: bool = False,
    most: float = 1.0,
    deadline: float | None = None,
) -> Played:
    """Play one episode in each of ``episodes`` environments with sampled actions.

    Every step the model reads the last ``context`` steps again; only the tokens of frames are kept, as the encoder
    costs more than all else. The return to go falls by every reward, as in training.

    Args:
        model: in evaluation mode or not, it is put back as it was.
        about: what to play, set as the recording was.
        target: return to go at the beginning.
        seed: of environments and actions.
        max_steps: after which all stop.
        bfloat16: whether to compute in it.
        greedy: take the likeliest action instead of a sample.
        most: hold all probabilities down to this.
        deadline: value of ``time.monotonic`` after which ``OutOfTime`` is raised.
    """
    device = next(model.parameters()).device
    was_training = model.training
    model.eval()
    seeds = (500_000_003 + 10_007 * seed + np.arange(episodes)) % SEEDS
    environments = _Emulators(about, seeds)
    generator = torch.Generator(device).manual_seed(seed)
    begin = time.monotonic()
    reader = _Reader(model, torch.from_numpy(environments.reset()).to(device), target, bfloat16)
    look = Recorded(reader.look, device)
    returns, made, lengths = np.zeros(episodes), np.zeros(episodes), np.zeros(episodes, dtype=np.int64)
    going = np.ones(episodes, dtype=bool)
    taken = []
    for _ in range(max_steps):
        if deadline is not None and time.monotonic() > deadline:
            model.train(was_training)
            raise OutOfTime
        pmf = look() if most >= 1 else hold_down(look(), most)
        chosen = pmf.argmax(-1) if greedy else _drawn(pmf, generator)
        reader.acted(chosen)
        host = chosen.cpu().numpy()
        result = environments.step(host, going)
        taken.append(host.astype(np.uint8))
        returns += np.where(going, result.reward, 0)
        made += np.where(going, result.reward.clip(0), 0)
        lengths += going
        going &= ~result.ended
        if not going.any():
            break
        reader.stack.push(torch.from_numpy(result.frame).to(device), torch.from_numpy(result.ended).to(device))
        reader.to_go -= torch.from_numpy(result.reward).to(device)
    model.train(was_training)
    seconds = time.monotonic() - begin
    return Played(returns, made, lengths, int(going.sum()), seeds, np.stack(taken), seconds)


ABOUT = "agent.json"
EVERY = 3
"""Steps between two pictures of a clip; a step is four frames of the sixty a second."""
MOST = 150
"""Pictures of a clip."""


@dataclass(frozen=True)
class Agent:
    """A model, the game it learned, and the return that it was told to reach."""

    model: DecisionTransformer
    about: About
    target: float


def describe_agent(folder: Path, sizes: ModelSettings, head: dict[str, Any], about: About, target: float) -> None:
    """Write beside the checkpoint of a training what ``load_agent`` has to know of the model.

    Args:
        folder: of the training.
        sizes: of the model.
        head: arguments of ``action_head``, but for the width.
        about: the game as it was recorded.
        target: return to condition on.
    """
    content = {"model": asdict(sizes), "head": head, "game": asdict(about), "target": target}
    write_atomically(folder / ABOUT, json.dumps(content, indent=1) + "\n")


def load_agent(folder: Path, device: str | torch.device = "cpu") -> Agent:
    """Return the agent that an arm of the study left in its folder, finished or not."""
    from safetensors.torch import load_model

    recover_folder(folder / CHECKPOINT)
    try:
        content = json.loads((folder / ABOUT).read_text(encoding="utf-8"))
        sizes = ModelSettings(**content["model"])
        model = DecisionTransformer(sizes, action_head(width=sizes.width, **content["head"]))
        about = About(**content["game"])
    except (OSError, ValueError, KeyError, TypeError):
        raise UserError(f"{folder} holds no trained agent: give the folder of an arm that has {ABOUT}.") from None
    if not (folder / CHECKPOINT).is_dir():
        raise UserError(f"{folder} holds no checkpoint yet.")
    load_model(model, str(folder / CHECKPOINT / WEIGHTS))
    return Agent(model.to(device).eval(), about, content["target"])


def replay(about: About, seed: int, actions: Sequence[int]) -> tuple[list[np.ndarray], float]:
    """Return colour frames of an episode played again, and its score."""
    environments = about.environments([seed], threads=1, colour=True)
    frames, score = [environments.reset()[0]], 0.0
    for action in actions:
        step = environments.step(np.array([action]))
        score += float(step.reward[0])
        frames.append(step.frame[0])
    return frames, score


def write_clip(path: Path, about: About, seed: int, actions: Sequence[int]) -> float:
    """Write the last part of an episode, where it scores if it ever does; return the episode's score."""
    with needing("atari"):
        from PIL import Image
    frames, score = replay(about, seed, actions)
    shown = frames[:-1][-EVERY * MOST :: EVERY] or frames
    pictures = [Image.fromarray(frame).quantize(32) for frame in shown]
    write_atomically(
        path,
        lambda beside: pictures[0].save(
            beside, format="GIF", save_all=True, append_images=pictures[1:], duration=67 * EVERY // 2, loop=0
        ),
    )
    return score
