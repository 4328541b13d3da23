"""A trained Decision Transformer: its folder with weights and what it plays, and a short GIF of it at play."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fourier_head._files import recover_folder, write_atomically
from fourier_head.errors import UserError, needing
from fourier_head.training.loop import CHECKPOINT, WEIGHTS
from studies.atari.model import DecisionTransformer, ModelSettings, action_head
from studies.atari.recording import About

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
