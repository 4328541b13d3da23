"""A trained Decision Transformer as a folder: its weights, what it was made as, and what it plays."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from fourier_head._files import recover_folder, write_atomically
from fourier_head.errors import UserError
from fourier_head.training.loop import CHECKPOINT, WEIGHTS
from studies.atari.model import DecisionTransformer, ModelSettings, action_head
from studies.atari.recording import About

ABOUT = "agent.json"


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
