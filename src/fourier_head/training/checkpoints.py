"""Tensors on disk as safetensors, in files of a chosen size, replaced as a whole or not at all."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from torch import Tensor

from fourier_head.errors import UserError, needs_extra

CHECKPOINT = "checkpoint"
"""Folder of a training's checkpoint within that of the training."""


def save_tensors(folder: Path, name: str, tensors: Mapping[str, Tensor], shard: int = 1000) -> list[Path]:
    """Write tensors to ``name-0.safetensors``, ``name-1.safetensors``, ..., each at most ``shard`` MB.

    A tensor larger than that is cut along its first dimension.
    """
    try:
        from safetensors.torch import save_file
    except ImportError as error:
        raise needs_extra(error, "forecasting") from None
    limit = shard * 1_000_000
    files: list[dict[str, Tensor]] = [{}]
    size = 0
    for key, tensor in tensors.items():
        tensor = tensor.detach().cpu().contiguous()
        bytes_of = tensor.numel() * tensor.element_size()
        pieces = -(-bytes_of // limit) if tensor.dim() else 1
        parts = tensor.chunk(pieces) if pieces > 1 else (tensor,)
        for number, part in enumerate(parts):
            weight = part.numel() * part.element_size()
            if files[-1] and size + weight > limit:
                files.append({})
                size = 0
            files[-1][key if len(parts) == 1 else f"{key}@{number}"] = part.clone()
            size += weight
    paths = [folder / f"{name}-{i}.safetensors" for i in range(len(files))]
    for path, content in zip(paths, files, strict=True):
        save_file(content, str(path))
    return paths


def load_tensors(folder: Path, name: str) -> dict[str, Tensor]:
    """Read what ``save_tensors`` wrote."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    paths = sorted(folder.glob(f"{name}-*.safetensors"), key=lambda p: int(p.stem.rsplit("-", 1)[1]))
    if not paths:
        raise UserError(f"{folder} holds no {name}-0.safetensors.")
    whole: dict[str, Tensor] = {}
    cut: dict[str, list[Tensor]] = {}
    for path in paths:
        try:
            content = load_file(str(path))
        except (SafetensorError, OSError) as error:
            raise UserError(f"{path} cannot be read: {error}.") from None
        for key, tensor in content.items():
            base, _, number = key.partition("@")
            if number:
                pieces = cut.setdefault(base, [])
                pieces.extend([torch.empty(0)] * (int(number) + 1 - len(pieces)))
                pieces[int(number)] = tensor
            else:
                whole[key] = tensor
    return whole | {key: torch.cat(pieces) for key, pieces in cut.items()}


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
