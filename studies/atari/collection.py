"""Collect: train an agent on many environments and record a few of them from the first step to the last."""

from __future__ import annotations

import copy
import json
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fourier_head._files import recover_folder, replace_folder, write_atomically
from fourier_head.errors import UserError
from studies.atari.agent import AgentSettings, Learner, QNetwork, Rollout
from studies.atari.environment import MOST, SEEDS, FrameStack
from studies.atari.games import find_game
from studies.atari.recording import (
    RECIPE,
    About,
    Shard,
    save_shard,
    shard_path,
    shard_paths,
    write_about,
    write_recipe,
)

AGENT, STATE, LEARNER = "agent", "state.json", "learner.pt"


@dataclass(frozen=True)
class CollectSettings:
    """What to collect.

    Args:
        game: whose play.
        output: folder of the recording.
        transitions: how many to record, evenly over training.
        steps: of all environments together.
        environments: played at once; as few as make up the transitions are recorded, each from first to last step.
        seed: of everything.
        shard: transitions of a shard, the most an interruption loses.
        limit: stop after so many seconds, to be continued by the same call.
        sticky: probability that the emulator repeats the action before.
        max_frames: emulator frames after which an episode is cut.
        device: where the agent learns.
        agent: how it learns.
    """

    game: str
    output: Path
    transitions: int = 500_000
    steps: int = 5_000_000
    environments: int = MOST
    seed: int = 0
    shard: int = 20_000
    limit: float | None = None
    sticky: float = 0.0
    max_frames: int = 108_000
    device: str = "cpu"
    agent: AgentSettings = field(default_factory=AgentSettings)

    def __post_init__(self) -> None:
        find_game(self.game)
        for name in ("transitions", "steps", "environments", "shard"):
            if getattr(self, name) < 1:
                raise UserError(f"{name} must be at least 1, got {getattr(self, name)}.")
        if self.environments > MOST:
            raise UserError(f"environments must be at most {MOST}, got {self.environments}.")
        if self.transitions > self.steps:
            raise UserError(f"transitions must be at most the {self.steps} steps, got {self.transitions}.")

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
        self.device = torch.device(settings.device)
        self.generator = torch.Generator(self.device).manual_seed(settings.seed)
        torch.manual_seed(settings.seed)
        network = QNetwork().to(self.device)
        if self.device.type == "cuda":
            network = network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
            torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
            torch.backends.cudnn.benchmark = True  # shapes stay, so a search for the fastest kernels pays
        self.learner = Learner(network, settings.agent, self.generator)
        self.step = self.shards = self.recorded = 0
        self.seconds = 0.0
        self.episodes: list[tuple[int, float, int]] = []
        """Step, return and length of every finished episode of every environment."""

    # --- the loop

    def run(self, report: Progress | None = None) -> bool:
        """Collect until all is recorded or the limit is over; return whether all is."""
        self._resume()
        about = About(self.game.name, self.settings.sticky, self.settings.max_frames)
        write_about(self.settings.output, about)
        if not self.done:
            with ThreadPoolExecutor(1) as writer:
                self._loop(about, report, writer)
        if self.done:
            write_recipe(self.settings.output)
        self._write_quality()
        return self.done

    @property
    def done(self) -> bool:
        """Whether every transition is recorded."""
        return self.recorded >= self.settings.transitions

    def _loop(self, about: About, report: Progress | None, writer: ThreadPoolExecutor) -> None:
        settings, device, learner = self.settings, self.device, self.learner
        count, log = settings.environments, settings.recorded
        seeds = (settings.seed * 1_000_003 + self.shards * 1009 + np.arange(count)) % SEEDS
        environments = about.environments(seeds.tolist())
        frame = environments.reset()
        stack = FrameStack(torch.from_numpy(frame).to(device))
        rollouts = [Rollout(settings.agent.rollout, count, device) for _ in range(2)]
        returns, lengths = np.zeros(count), np.zeros(count, dtype=np.int64)
        length = max(1, settings.shard // log)
        kept = self._empty(log, length)
        filled, fresh, began_at = 0, True, self.step
        begin, first_step, told = time.monotonic(), self.step, 0.0
        pending: Future[None] | None = None
        position, before = 0, self.seconds
        while not self.done:
            rollout = rollouts[0]
            actions, best = learner.act(stack.frames, settings.agent.epsilon(self.step / settings.steps))
            if position == settings.agent.rollout:
                learner.learn_from(rollout, best)
                rollouts.reverse()
                rollout, position = rollouts[0], 0
            chosen = actions.cpu().numpy()
            environments.send(chosen)
            # While the emulators work: remember what was seen, and learn from the rollout before.
            rollout.states[position], rollout.actions[position], rollout.best[position] = stack.frames, actions, best
            kept["frames"][:, filled], kept["actions"][:, filled] = frame[:log], chosen[:log]
            for _ in range(learner.updates_per_step):
                learner.update()
            result = environments.receive()
            frame = result.frame
            kept["rewards"][:, filled], kept["ended"][:, filled] = result.reward[:log], result.ended[:log]
            started = torch.from_numpy(result.ended).to(device)
            stack.push(torch.from_numpy(frame).to(device, non_blocking=True), started)
            rollout.reward[position] = torch.from_numpy(result.reward).to(device)
            rollout.ended[position] = torch.from_numpy(result.lost_life).to(device)
            position, filled = position + 1, filled + 1
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
            if late or filled == length or self.recorded + filled * log >= settings.transitions:
                if pending is not None:
                    pending.result()
                shard = Shard(
                    frames=kept["frames"][:, :filled],
                    actions=kept["actions"][:, :filled],
                    rewards=kept["rewards"][:, :filled],
                    ended=kept["ended"][:, :filled],
                    seeds=seeds[:log],
                    fresh=fresh,
                    moment=began_at,
                    pace=count,
                )
                self.recorded += filled * log
                pending = writer.submit(self._write, self.shards, shard, self._state())
                self.shards += 1
                kept, filled, fresh, began_at = self._empty(log, length), 0, False, self.step
            if report is not None and now - told > 2:
                told = now
                rate = (self.step - first_step) / (now - begin)
                recent = [score for _, score, _ in self.episodes[-100:]]
                score = f"{np.mean(recent):.1f}" if recent else "-"
                report(self.recorded / settings.transitions, f"{rate:.0f} steps/s, return {score}")
            if late:
                break
        if pending is not None:
            pending.result()

    def _empty(self, log: int, length: int) -> dict[str, np.ndarray]:
        return {
            "frames": np.zeros((log, length, 84, 84), np.uint8),
            "actions": np.zeros((log, length), np.uint8),
            "rewards": np.zeros((log, length), np.int32),
            "ended": np.zeros((log, length), bool),
        }

    # --- checkpoints: written after the shard they count, by the same thread

    def _state(self) -> dict[str, Any]:
        state = {
            "settings": self.settings.identity,
            "step": self.step,
            "shards": self.shards + 1,
            "recorded": self.recorded,
            "seconds": self.seconds,
            "updates": self.learner.updates,
            "episodes": list(self.episodes),
        }
        learner = {"weights": self.learner.network.state_dict(), "optimizer": self.learner.optimizer.state_dict()}
        return {"learner": copy.deepcopy(learner), "state": state}  # a copy: learning goes on while it is written

    def _write(self, number: int, shard: Shard, state: dict[str, Any]) -> None:
        save_shard(shard_path(self.settings.output, number), shard)

        def write(folder: Path) -> None:
            torch.save(state["learner"], folder / LEARNER)
            (folder / STATE).write_text(json.dumps(state["state"]), encoding="utf-8")

        replace_folder(self.settings.output / AGENT, write)

    def _resume(self) -> None:
        folder = self.settings.output / AGENT
        recover_folder(folder)
        if (folder / STATE).exists():
            state = json.loads((folder / STATE).read_text(encoding="utf-8"))
            if state["settings"] != self.settings.identity:
                own = self.settings.identity
                other = [k for k in own if state["settings"].get(k) != own[k]]
                raise UserError(
                    f"{self.settings.output} was begun with another {', '.join(other)}; "
                    "continue with the same options or choose another folder."
                )
            learner = torch.load(folder / LEARNER, map_location=self.learner.device, weights_only=True)
            self.learner.network.load_state_dict(learner["weights"])
            self.learner.optimizer.load_state_dict(learner["optimizer"])
            self.step, self.shards, self.recorded = state["step"], state["shards"], state["recorded"]
            self.seconds, self.learner.updates = state["seconds"], state["updates"]
            self.episodes = [(int(s), float(r), int(n)) for s, r, n in state["episodes"]]
            # Other dice than at the beginning, or the same exploration would be repeated.
            self.generator.manual_seed(self.settings.seed + 7919 * self.shards)
        elif (self.settings.output / RECIPE).exists() or len(shard_paths(self.settings.output)) > 1:
            # A collection that was killed before its first checkpoint leaves one shard and no recipe.
            raise UserError(f"{self.settings.output} holds a recording made elsewhere; choose another folder.")
        for path in shard_paths(self.settings.output)[self.shards :]:
            path.unlink()  # written, but its checkpoint was not

    def _write_quality(self) -> None:
        from studies.atari.quality import QUALITY, measure_quality

        content = measure_quality(self.settings.output, self.episodes, self.step, self.seconds)
        content["settings"] = self.settings.identity
        write_atomically(self.settings.output / QUALITY, json.dumps(content, indent=1) + "\n")
