"""Prompts and their values, checked, as batches that a language model reads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor


def token_ids(tokenizer: Any, prompts: Sequence[str]) -> list[list[int]]:
    """Return the token ids of each prompt, at least one."""
    if isinstance(prompts, str):
        raise TypeError("prompts must be a sequence of texts, got one text: put it into a list")
    for i, prompt in enumerate(prompts):
        if not isinstance(prompt, str):
            raise TypeError(f"prompts[{i}] must be a text, got {type(prompt).__name__}")
    ids = tokenizer(list(prompts))["input_ids"] if len(prompts) else []
    for i, row in enumerate(ids):
        if not len(row):
            raise ValueError(f"prompts[{i}] is empty: there is no last token to answer from")
    return ids


def checked_values(values: Sequence[float] | Tensor, count: int, low: float, high: float) -> Tensor:
    """Return the values of so many prompts in float64, all within limits.

    >>> checked_values([1, 2.5], 2, 0.0, 5.0)
    tensor([1.0000, 2.5000], dtype=torch.float64)
    """
    try:  # a column of a data frame is indexed by its labels, a list of it by places
        tensor = torch.as_tensor(values if isinstance(values, Tensor) else list(values), dtype=torch.float64)
    except (TypeError, ValueError):
        raise TypeError(f"values must be one number for each of {count} prompts, got {values!r:.40}") from None
    if tensor.shape != (count,):
        raise ValueError(f"values must be one number for each of {count} prompts, got shape {tuple(tensor.shape)}")
    outside = tensor[(tensor < low) | (tensor > high)]
    if len(outside):
        limits = f"[{low:g}, {high:g}]"
        raise ValueError(f"values must lie in {limits}, got {outside[0]:g}: widen low and high, or clip them")
    return tensor


def pad_right(ids: Sequence[Sequence[int]], filler: int) -> dict[str, Tensor]:
    """Return rows of token ids as one batch, padded on the right, and the mask of what is no padding.

    >>> pad_right([[5, 6], [7]], 0)["attention_mask"]
    tensor([[1, 1],
            [1, 0]])
    """
    width = max(map(len, ids), default=1)
    padded = [[*row, *[filler] * (width - len(row))] for row in ids]
    mask = [[1] * len(row) + [0] * (width - len(row)) for row in ids]
    return {
        "input_ids": torch.tensor(padded, dtype=torch.long).reshape(len(ids), width),
        "attention_mask": torch.tensor(mask, dtype=torch.long).reshape(len(ids), width),
    }
