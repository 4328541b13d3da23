"""What training minimises: the cross-entropy of the future's tokens, and where it runs fast."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from fourier_head.forecasting.corpora.windows import history
from fourier_head.heads import FourierHead, Head
from fourier_head.heads.baselines import LinearHead
from studies.chronos.t5.model import T5Forecaster, shift
from studies.chronos.tokenizer import ChronosTokenizer

IGNORED = -100
RECOMPILATIONS = 128
PENALTY_STRIDE = 32
"""The regulariser is taken of one window in so many: its mean is the same, its cost that much less."""


class T5Objective(nn.Module):
    """Return the loss of a batch of windows.

    Most windows of a corpus are short, and a batch is as wide as its longest. So rows are sorted by length and cut into
    groups of equal size, each with a fixed number of tokens; the few that are longer than their group lose their oldest
    values, as windows do at random anyway. Shapes stay the same from batch to batch, and nothing waits for the device.

    Args:
        model: the forecaster.
        tokenizer: of its ids.
        lengths: tokens that each group reads, ascending; one group as wide as the context unless given.
        gamma: strength of the head's regulariser.
        compile: whether to compile encoder, decoder and loss, each on its own: what differs between arms of a study is
            the loss, the rest is compiled once.
    """

    def __init__(
        self,
        model: T5Forecaster,
        tokenizer: ChronosTokenizer,
        *,
        lengths: Sequence[int] | None = None,
        gamma: float = 0.0,
        compile: bool = False,
    ):
        super().__init__()
        self.lengths = tuple(lengths or (model.config.context,))
        if list(self.lengths) != sorted(self.lengths) or self.lengths[0] < 2:
            raise ValueError(f"lengths must ascend from at least 2, got {self.lengths}")
        if self.lengths[-1] > model.config.context:
            raise ValueError(f"lengths must not exceed the context of {model.config.context}, got {self.lengths}")
        if gamma and not isinstance(model.head, FourierHead):
            raise ValueError(f"gamma needs a FourierHead, got {type(model.head).__name__}")
        self.model, self.tokenizer, self.gamma = model, tokenizer, gamma
        parts: tuple[Callable[..., Any], ...] = (model.encode, model.decode, self.token_loss)
        if compile:
            # Arms of a study and their lengths go through the same functions. Torch would compile them a few times and
            # then go on without.
            torch._dynamo.config.recompile_limit = max(RECOMPILATIONS, torch._dynamo.config.recompile_limit)
            # A few shapes, known from the first step on: better each on its own than one for all.
            parts = tuple(torch.compile(part, dynamic=False) for part in parts)
        self._encode, self._decode, self._loss = parts

    def forward(self, context: Tensor, future: Tensor, period: Tensor | None = None) -> Tensor:
        states, labels = [], []
        for rows, length in self.groups(context):
            tokens = self.tokenizer.encode_context(context if rows is None else context[rows], length - 1)
            wanted = future if rows is None else future[rows]
            labels.append(self.tokenizer.labels(wanted[:, : self.model.config.horizon], tokens.scale))
            encoded, hide = self._encode(tokens.ids, tokens.mask)
            states.append(self._decode(shift(labels[-1]), encoded, hide))
        return self._loss(torch.cat(states), torch.cat(labels))

    def groups(self, context: Tensor) -> list[tuple[Tensor | None, int]]:
        """Return the rows of each group, None for all, and how many tokens they may have."""
        if len(self.lengths) == 1:
            return [(None, self.lengths[0])]
        order = history(context).argsort()
        return list(zip(order.tensor_split(len(self.lengths)), self.lengths, strict=True))

    def token_loss(self, states: Tensor, labels: Tensor) -> Tensor:
        """Return the mean cross-entropy of labels, plus the regulariser in training mode."""
        head = self.model.head
        loss = cross_entropy(head, states, labels)
        if not self.gamma or not self.training:
            return loss
        assert isinstance(head, FourierHead)
        some, kept = states[::PENALTY_STRIDE].contiguous(), labels[::PENALTY_STRIDE] != IGNORED
        penalty = torch.where(kept, head.penalty(some), 0.0).sum() / kept.sum().clamp_min(1)
        return loss + self.gamma * penalty


def cross_entropy(head: Head, states: Tensor, labels: Tensor) -> Tensor:
    """Return the mean cross-entropy of ids; a linear head's without normalising twice."""
    if not isinstance(head, LinearHead):
        return head.loss(states, labels, ignore_index=IGNORED)
    logits = head.proj(states).float().flatten(0, -2)
    loss = functional.cross_entropy(logits, labels.flatten(), ignore_index=IGNORED, reduction="sum")
    return loss / (labels != IGNORED).sum().clamp_min(1)
