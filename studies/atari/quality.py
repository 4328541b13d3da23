"""How good recorded play is: returns over the agent's training, and which actions it took early and late."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from studies.atari.games import ACTIONS, find_game
from studies.atari.recording import About, Shard

QUALITY = "quality.json"
STRETCHES = 50


def measure_quality(
    about: About,
    shards: Sequence[Shard],
    episodes: Sequence[tuple[int, float, int]],
    steps: int,
    seconds: float,
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
        own = table[place == number]
        rows.append(
            {
                "step": round((number + 0.5) * width),
                "mean": float(own[:, 1].mean()),
                "std": float(own[:, 1].std()),
                "episodes": len(own),
                "length": float(own[:, 2].mean()),
            }
        )
    return rows


def _spread(values: np.ndarray) -> dict[str, float] | None:
    if not len(values):
        return None
    levels = {"min": 0.0, "q25": 0.25, "median": 0.5, "q75": 0.75, "q95": 0.95, "max": 1.0}
    return {"mean": float(values.mean())} | {name: float(np.quantile(values, level)) for name, level in levels.items()}


def _shares(counts: Sequence[np.ndarray]) -> list[float]:
    total = np.sum(counts, axis=0) if len(counts) else np.zeros(len(ACTIONS))
    return [round(float(value), 5) for value in total / max(1, total.sum())]
