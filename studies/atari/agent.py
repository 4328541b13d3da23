"""PQN: Q-learning on many environments without replay or target network; the agent whose play becomes data.

References:
    Gallici et al., Simplifying Deep Temporal Difference Learning, ICLR 2025 (arXiv 2407.04811).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from studies.atari.games import ACTIONS
from studies.atari.model import FrameEncoder
from studies.common.recorded import Recorded


@dataclass(frozen=True, kw_only=True)
class AgentSettings:
    """How the agent learns; the defaults are those of the PQN paper for Atari, but for the last epsilon.

    Args:
        rollout: steps of all environments between two sets of targets.
        epochs, minibatches: how often and in how many parts a rollout is learned from.
        learning_rate, clip: of RAdam, and of the gradient's norm.
        discount, trace: gamma and lambda of the returns.
        epsilon_end, epsilon_share: share of random actions in the end, and the share of training in which it falls to
            that; 0.01 as the DQN behind the paper's data, where PQN has 0.001.
    """

    rollout: int = 32
    epochs: int = 2
    minibatches: int = 32
    learning_rate: float = 2.5e-4
    clip: float = 10.0
    discount: float = 0.99
    trace: float = 0.65
    epsilon_end: float = 0.01
    epsilon_share: float = 0.1

    def epsilon(self, progress: float) -> float:
        """Return the share of random actions at a point of training.

        >>> [round(AgentSettings().epsilon(p), 3) for p in (0.0, 0.05, 0.1, 1.0)]
        [1.0, 0.505, 0.01, 0.01]
        """
        return 1 - (1 - self.epsilon_end) * min(1.0, progress / self.epsilon_share)


class QNetwork(nn.Module):
    """Values of all actions of a stack of frames, normalised layer by layer."""

    def __init__(self, width: int = 512):
        super().__init__()
        self.encoder = FrameEncoder(width, norm=True)
        self.values = nn.Linear(width, len(ACTIONS))

    def forward(self, stacks: Tensor) -> Tensor:
        return self.values(torch.relu(self.encoder(stacks)))


def lambda_returns(reward: Tensor, ended: Tensor, best_next: Tensor, discount: float, trace: float) -> Tensor:
    r"""Return Q(lambda) targets of a rollout, time first.

    .. math:: G_t = r_t + \gamma (1 - d_t) [\lambda G_{t+1} + (1 - \lambda) \max_a Q(s_{t+1}, a)]

    with the maximum alone after the last step.

    Args:
        reward, ended: (T, n), of step t.
        best_next: (T, n), the largest value of the state after step t.

    Example:
        >>> one = torch.ones(2, 1)
        >>> lambda_returns(one, torch.zeros(2, 1), 10 * one, 0.5, 0.0).flatten().tolist()
        [6.0, 6.0]
    """
    alive = discount * (1 - ended.float())
    target = torch.empty_like(best_next)
    following = best_next[-1]
    for t in range(len(reward) - 1, -1, -1):
        following = reward[t] + alive[t] * (trace * following + (1 - trace) * best_next[t])
        target[t] = following
    return target


class Rollout:
    """What the agent saw and did in the last steps, on the device."""

    def __init__(self, steps: int, count: int, device: torch.device):
        self.states = torch.zeros(steps, count, 4, 84, 84, dtype=torch.uint8, device=device)
        self.actions = torch.zeros(steps, count, dtype=torch.int64, device=device)
        self.best = torch.zeros(steps, count, device=device)
        self.reward = torch.zeros(steps, count, device=device)
        self.ended = torch.zeros(steps, count, device=device)


class Learner:
    """The network and its updates, one minibatch at a time, so that they fill the time emulators need anyway.

    Acting and learning work on memory that stays, so that on a GPU either is one recorded graph.
    """

    def __init__(self, network: QNetwork, settings: AgentSettings, generator: torch.Generator):
        self.network, self.settings, self.generator = network, settings, generator
        self.device = next(network.parameters()).device
        on_gpu = self.device.type == "cuda"  # steps are then counted there, as a recorded graph needs
        self.optimizer = torch.optim.RAdam(network.parameters(), lr=settings.learning_rate, capturable=on_gpu)
        self._waiting: Iterator[tuple[Tensor, ...]] = iter(())
        self._minibatch: tuple[Tensor, ...] = ()
        self._descent: Recorded[None]
        self._seen: Tensor | None = None
        self.updates = 0

    @torch.no_grad()
    def act(self, stacks: Tensor, epsilon: float) -> tuple[Tensor, Tensor]:
        """Return actions, greedy but for a share epsilon, and the largest value of each state.

        The values lie in memory that the next call writes again.
        """
        if stacks is not self._seen:
            self._seen, self._values = stacks, Recorded(lambda: self.network(stacks).max(-1), self.device)
        best, greedy = self._values()
        dice = torch.rand(len(stacks), generator=self.generator, device=self.device)
        other = torch.randint(len(ACTIONS), greedy.shape, generator=self.generator, device=self.device)
        return torch.where(dice < epsilon, other, greedy), best

    def learn_from(self, rollout: Rollout, best_after: Tensor) -> None:
        """Compute the targets of a finished rollout and queue its minibatches; those left of the last one are done."""
        self.finish()
        settings = self.settings
        best_next = torch.cat([rollout.best[1:], best_after[None]])
        # Only signs of rewards reach the learner, as in DQN; what is recorded keeps the score.
        reward = rollout.reward.sign()
        target = lambda_returns(reward, rollout.ended, best_next, settings.discount, settings.trace).flatten()
        self._waiting = self._minibatches(rollout.states.flatten(0, 1), rollout.actions.flatten(), target)

    def _minibatches(self, *whole: Tensor) -> Iterator[tuple[Tensor, ...]]:
        for _ in range(self.settings.epochs):
            order = torch.randperm(len(whole[0]), generator=self.generator, device=self.device)
            for rows in order.chunk(self.settings.minibatches):
                yield tuple(part[rows] for part in whole)

    def update(self) -> bool:
        """Take one gradient step; return whether there was anything to learn from."""
        drawn = next(self._waiting, None)
        if drawn is None:
            return False
        if [part.shape for part in drawn] != [part.shape for part in self._minibatch]:
            self._minibatch, self._descent = drawn, Recorded(self._descend, self.device)
        else:
            for fixed, part in zip(self._minibatch, drawn, strict=True):
                fixed.copy_(part)
        self._descent()
        self.updates += 1
        return True

    def _descend(self) -> None:
        states, actions, target = self._minibatch
        self.optimizer.zero_grad(set_to_none=True)
        values = self.network(states).gather(-1, actions[:, None]).squeeze(-1)
        (0.5 * (values - target).square().mean()).backward()
        nn.utils.clip_grad_norm_(self.network.parameters(), self.settings.clip)
        self.optimizer.step()

    def finish(self) -> None:
        """Take all gradient steps that are left."""
        while self.update():
            pass

    @property
    def updates_per_step(self) -> int:
        """Gradient steps to take during one step of the environments to be done in time."""
        settings = self.settings
        return -(-settings.epochs * settings.minibatches // settings.rollout)
