"""A short GIF of an agent at play, made by playing its recorded actions again in colour."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fourier_head._files import write_atomically
from fourier_head.errors import needs_extra
from studies.atari.recording import About

EVERY = 3
"""Steps between two pictures; a step is four frames of the sixty a second."""
MOST = 150
"""Pictures of a clip."""


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
    try:
        from PIL import Image
    except ImportError as error:
        raise needs_extra(error, "atari") from None
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
