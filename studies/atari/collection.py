"""Collect: train an agent on many environments and record a few of them from the first step to the last."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import MISSING, asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fourier_head._devices import chosen_device
from fourier_head._files import recover_folder, replace_folder, write_atomically
from fourier_head.commands import Options, option
from fourier_head.errors import UserError
from studies.atari.agent import AgentSettings, Learner, QNetwork, Rollout
from studies.atari.environment import MOST, SEEDS, FrameStack
from studies.atari.games import ACTIONS, find_game
from studies.atari.recording import AGENT, RECIPE, About, Shard, read_recipe, write_recipe

STATE, LEARNER, QUALITY = "state.json", "learner.pt", "quality.json"
STRETCHES = 50
"""Of training, whose returns are averaged."""


@dataclass(frozen=True, kw_only=True)
class CollectSettings(AgentSettings, Options):
    """What to collect, and how the agent learns; fields with words are options of the command."""

    game: str = option(MISSING, "seaquest, bank_heist, double_dunk or gravitar.", argument=True)
    output: Path | None = option(None, "Folder of the recording.", "--output", "-o", shown="scratch/atari/GAME")
    transitions: int = option(500_000, "To record, evenly over the agent's training.", low=1)
    steps: int = option(5_000_000, "Of all environments together.", low=1)
    # As few as make up the transitions are recorded, each from the first step to the last.
    environments: int = option(MOST, "Played at once.", low=1, high=MOST)
    seed: int = option(0, "Of everything.")
    shard: int = option(20_000, "Transitions of a shard, the most an interruption loses.", low=1)
    limit: float | None = option(None, "Seconds after which to stop; the same command goes on.")
    sticky: float = option(0.0, "Chance that an action is repeated.", low=0, high=1)
    epochs: int = option(2, "Times the agent learns from what it just played.", low=1)
    trace: float = option(0.65, "Lambda of the returns that the agent learns.", low=0, high=1)
    device: str = option("auto", "cpu or cuda.", shown="cuda where there is one")
    max_frames: int = 108_000
    """Emulator frames after which an episode is cut."""

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "game", find_game(self.game).name)
        if self.transitions > self.steps:
            raise UserError(f"transitions must be at most the {self.steps} steps, got {self.transitions}.")

    @property
    def folder(self) -> Path:
        """Of the recording."""
        return self.output or Path("scratch/atari") / self.game

    @property
    def recorded(self) -> int:
        """Environments to record."""
        return min(self.environments, -(-self.transitions * self.environments // self.steps))

    @property
    def identity(self) -> dict[str, Any]:
        """What a continued collection must have in common with its beginning."""
        kept = {k: v for k, v in asdict(self).items() if k not in ("output", "limit", "device")}
        return json.loads(json.dumps(kept))


Progress = Callable[[float, str], None]


class Collection:
    """A collection under way; the same settings on the same folder continue where the last shard ended."""

    def __init__(self, settings: CollectSettings):
        self.settings, self.game = settings, find_game(settings.game)
        self.device = torch.device(chosen_device(settings.device))
        self.generator = torch.Generator(self.device).manual_seed(settings.seed)
        torch.manual_seed(settings.seed)
        network = QNetwork().to(self.device)
        if self.device.type == "cuda":
            network = network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
            torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
            torch.backends.cudnn.benchmark = True  # shapes stay, so a search for the fastest kernels pays
        self.learner = Learner(network, settings, self.generator)
        self.about = About(self.game.name, settings.sticky, settings.max_frames)
        self.shards: list[Shard] = []
        self.step, self.seconds = 0, 0.0
        self.episodes: list[tuple[int, float, int]] = []
        """Step, return and length of every finished episode of every environment."""

    def run(self, report: Progress | None = None) -> bool:
        """Collect until all is recorded or the limit is over; return whether all is."""
        self._resume()
        if not self.done:
            self._loop(report)
        if self.done:
            write_recipe(self.settings.folder / RECIPE, self.about, self.shards)
        self._write_quality()
        return self.done

    @property
    def recorded(self) -> int:
        """Transitions that are kept."""
        return sum(shard.actions.size for shard in self.shards)

    @property
    def done(self) -> bool:
        """Whether every transition is recorded."""
        return self.recorded >= self.settings.transitions

    def _loop(self, report: Progress | None) -> None:
        settings, device, learner = self.settings, self.device, self.learner
        count, log = settings.environments, settings.recorded
        seeds = (settings.seed * 1_000_003 + len(self.shards) * 1009 + np.arange(count)) % SEEDS
        environments = self.about.environments(seeds.tolist())
        stack = FrameStack(torch.from_numpy(environments.reset()).to(device))
        rollouts = [Rollout(settings.rollout, count, device) for _ in range(2)]
        returns, lengths = np.zeros(count), np.zeros(count, dtype=np.int64)
        length = max(1, settings.shard // log)
        kept: list[tuple[np.ndarray, ...]] = []
        fresh, began_at = True, self.step
        begin, first_step, told = time.monotonic(), self.step, 0.0
        position, before = 0, self.seconds
        while not self.done:
            rollout = rollouts[0]
            actions, best = learner.act(stack.frames, settings.epsilon(self.step / settings.steps))
            if position == settings.rollout:
                learner.learn_from(rollout, best)
                rollouts.reverse()
                rollout, position = rollouts[0], 0
            chosen = actions.cpu().numpy()
            environments.send(chosen)
            # While the emulators work: remember what was seen, and learn from the rollout before.
            rollout.states[position], rollout.actions[position], rollout.best[position] = stack.frames, actions, best
            for _ in range(learner.updates_per_step):
                learner.update()
            result = environments.receive()
            kept.append((chosen[:log], result.reward[:log], result.ended[:log]))
            started = torch.from_numpy(result.ended).to(device)
            stack.push(torch.from_numpy(result.frame).to(device, non_blocking=True), started)
            rollout.reward[position] = torch.from_numpy(result.reward).to(device)
            rollout.ended[position] = torch.from_numpy(result.lost_life).to(device)
            position += 1
            self.step += count
            returns += result.reward
            lengths += 1
            for i in np.flatnonzero(result.ended):
                self.episodes.append((self.step, float(returns[i]), int(lengths[i])))
                returns[i] = lengths[i] = 0
            now = time.monotonic()
            self.seconds = before + now - begin
            late = settings.limit is not None and now - begin > settings.limit
            # When time is up a short shard is kept, or a limit shorter than a shard would never get anywhere.
            if late or len(kept) == length or self.recorded + len(kept) * log >= settings.transitions:
                taken, rewards, ended = (np.stack(column, axis=1) for column in zip(*kept, strict=True))
                self._keep(
                    Shard(taken.astype(np.uint8), rewards.astype(np.int32), ended, seeds[:log], fresh, began_at, count)
                )
                kept, fresh, began_at = [], False, self.step
            if report is not None and now - told > 2:
                told = now
                rate = (self.step - first_step) / (now - begin)
                recent = [score for _, score, _ in self.episodes[-100:]]
                score = f"{np.mean(recent):.1f}" if recent else "-"
                report(self.recorded / settings.transitions, f"{rate:.0f} steps/s, return {score}")
            if late:
                break

    # --- checkpoints: all shards and the agent that made them, the old ones or the new ones

    def _keep(self, shard: Shard) -> None:
        self.shards.append(shard)
        replace_folder(self.settings.folder / AGENT, self._write)

    def _write(self, folder: Path) -> None:
        state = {
            "settings": self.settings.identity,
            "step": self.step,
            "seconds": self.seconds,
            "updates": self.learner.updates,
            "episodes": self.episodes,
        }
        learner = {"weights": self.learner.network.state_dict(), "optimizer": self.learner.optimizer.state_dict()}
        write_recipe(folder / RECIPE, self.about, self.shards)
        torch.save(learner, folder / LEARNER)
        (folder / STATE).write_text(json.dumps(state), encoding="utf-8")

    def _resume(self) -> None:
        folder, own = self.settings.folder / AGENT, self.settings.identity
        recover_folder(folder)
        if not (folder / STATE).exists():
            if (self.settings.folder / RECIPE).exists():
                raise UserError(f"{self.settings.folder} holds a recording made elsewhere; choose another folder.")
            return
        state = json.loads((folder / STATE).read_text(encoding="utf-8"))
        if state["settings"] != own:
            other = [k for k in own if state["settings"].get(k) != own[k]]
            raise UserError(
                f"{self.settings.folder} was begun with another {', '.join(other)}; "
                "continue with the same options or choose another folder."
            )
        _, self.shards = read_recipe(folder / RECIPE)
        learner = torch.load(folder / LEARNER, map_location=self.learner.device, weights_only=True)
        self.learner.network.load_state_dict(learner["weights"])
        self.learner.optimizer.load_state_dict(learner["optimizer"])
        self.step, self.seconds, self.learner.updates = state["step"], state["seconds"], state["updates"]
        self.episodes = [(int(s), float(r), int(n)) for s, r, n in state["episodes"]]
        # Other dice than at the beginning, or the same exploration would be repeated.
        self.generator.manual_seed(self.settings.seed + 7919 * len(self.shards))

    def _write_quality(self) -> None:
        content = measure_quality(self.about, self.shards, self.episodes, self.step, self.seconds)
        content["settings"] = self.settings.identity
        write_atomically(self.settings.folder / QUALITY, json.dumps(content, indent=1) + "\n")


# --- how good recorded play is: returns over the agent's training, and which actions it took early and late


def measure_quality(
    about: About, shards: Sequence[Shard], episodes: Sequence[tuple[int, float, int]], steps: int, seconds: float
) -> dict[str, Any]:
    """Return the quality of a recording as plain numbers.

    Args:
        about, shards: of the recording.
        episodes: step, return and length of every finished episode of every environment.
        steps, seconds: of all environments together, and what they took.
    """
    game = find_game(about.game)
    taken = [np.bincount(shard.actions.ravel(), minlength=len(ACTIONS)) for shard in shards]
    third = max(1, len(taken) // 3)
    returns = recorded_returns(shards)
    return {
        "game": game.name,
        "source": about.source,
        "transitions": int(sum(shard.actions.size for shard in shards)),
        "episodes": len(returns),
        "returns": _spread(returns),
        "normalised_mean": game.normalise(float(np.mean(returns))) if len(returns) else None,
        "steps": steps,
        "seconds": round(seconds, 1),
        "steps_per_second": round(steps / seconds, 1) if seconds else None,
        "over_time": over_time(episodes, steps),
        "actions": list(ACTIONS),
        "first_third": _shares(taken[:third]),
        "last_third": _shares(taken[-third:]),
    }


def recorded_returns(shards: Sequence[Shard]) -> np.ndarray:
    """Return the scores of the whole episodes among the recorded ones, in the order in which they ended."""
    found: list[float] = []
    totals = np.zeros(0)
    for shard in shards:
        if shard.fresh:
            totals = np.zeros(len(shard.actions))
        for reward, ended in zip(shard.rewards.T, shard.ended.T, strict=True):
            totals = totals + reward
            found += totals[ended].tolist()
            totals[ended] = 0
    return np.array(found)


def over_time(episodes: Sequence[tuple[int, float, int]], steps: int) -> list[dict[str, float]]:
    """Return mean, deviation and number of returns, and mean length, in equal stretches of training.

    >>> [row["mean"] for row in over_time([(10, 1.0, 5), (90, 3.0, 5)], 100)]
    [1.0, 3.0]
    """
    if not episodes:
        return []
    table = np.array(episodes, dtype=np.float64)
    width = max(1, steps) / STRETCHES
    place = np.minimum((table[:, 0] / width).astype(int), STRETCHES - 1)
    rows = []
    for number in np.unique(place):
        _, returns, lengths = table[place == number].T
        scores = {"mean": float(returns.mean()), "std": float(returns.std()), "episodes": len(returns)}
        rows.append({"step": round((number + 0.5) * width), **scores, "length": float(lengths.mean())})
    return rows


def _spread(values: np.ndarray) -> dict[str, float] | None:
    if not len(values):
        return None
    levels = {"min": 0.0, "q25": 0.25, "median": 0.5, "q75": 0.75, "q95": 0.95, "max": 1.0}
    return {"mean": float(values.mean())} | {name: float(np.quantile(values, level)) for name, level in levels.items()}


def _shares(counts: Sequence[np.ndarray]) -> list[float]:
    total = np.sum(counts, axis=0) if len(counts) else np.zeros(len(ACTIONS))
    return [round(float(value), 5) for value in total / max(1, total.sum())]
