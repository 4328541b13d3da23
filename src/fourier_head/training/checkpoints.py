"""Folders that are replaced as a whole or not at all."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

CHECKPOINT = "checkpoint"
"""Folder of a training's checkpoint within that of the training."""
WEIGHTS = "model.safetensors"
"""File of the weights in a checkpoint."""


def replace_folder(folder: Path, write: Callable[[Path], None]) -> None:
    """Write a folder beside its place, then put it there: a reader finds the old one or the new one."""
    recover_folder(folder)
    beside, old = folder.with_name(folder.name + ".new"), folder.with_name(folder.name + ".old")
    shutil.rmtree(beside, ignore_errors=True)
    beside.mkdir(parents=True)
    write(beside)
    shutil.rmtree(old, ignore_errors=True)
    if folder.exists():
        folder.rename(old)
    beside.rename(folder)
    shutil.rmtree(old, ignore_errors=True)


def recover_folder(folder: Path) -> None:
    """Bring the old folder back where ``replace_folder`` was killed between its two renames."""
    old = folder.with_name(folder.name + ".old")
    if old.exists() and not folder.exists():
        old.rename(folder)
