"""One loop that fine-tunes any model with a loss, the same whether one process runs it or many."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from fourier_head.training.processes import leave_at_exit

Progress = Callable[[float, str], None]
"""What the loop calls with the fraction done and a few words."""


@contextmanager
def seeded(seed: int, device: torch.device) -> Iterator[None]:
    """Seed the global generators inside, for dropout and libraries that know no other; restore them after."""
    devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        torch.manual_seed(seed)
        yield


def fine_tune(
    model: nn.Module,
    batch_of: Callable[[Sequence[int]], Mapping[str, Tensor]],
    count: int,
    *,
    epochs: int = 16,
    batch_size: int = 64,
    lr: float = 3e-4,
    fresh: Sequence[nn.Parameter] = (),
    fresh_lr: float | None = None,
    final_share: float = 0.1,
    weight_decay: float = 0.01,
    seed: int = 0,
    progress: Progress | None = None,
) -> list[float]:
    """Train the parameters that want gradients with AdamW and a linear decay; return the mean loss of each epoch.

    A batch is one step of all processes together: under ``torchrun`` or ``accelerate launch`` each takes its share of
    the rows, and the gradients are those of one process with the whole batch.

    Args:
        model: called with what ``batch_of`` returns, moved to its device; its output has a ``loss``, a mean of rows.
        batch_of: makes the batch of the rows with these indices.
        count: number of rows.
        epochs, batch_size, lr, weight_decay: as usual.
        fresh, fresh_lr: parameters that start from nothing, such as a new head's, and their own rate; ``lr`` unless
            given.
        final_share: what is left of ``lr`` at the end (0.1 in the code released with the paper).
        seed: of the order of rows, and of dropout.
        progress: called after every step.
    """
    if count < 1:
        raise ValueError("there is nothing to train on: count must be at least 1")
    if epochs < 1 or batch_size < 1:
        raise ValueError(f"epochs and batch_size must be at least 1, got {epochs} and {batch_size}")
    rank, world, wrapped, backward = _processes(model)
    device = next(model.parameters()).device
    trained = [p for p in model.parameters() if p.requires_grad]
    if not trained:
        raise ValueError("no parameter of the model wants a gradient: add an adapter or unfreeze some")
    per_epoch = -(-count // batch_size)
    steps = epochs * per_epoch
    new = {id(p) for p in fresh}
    groups = [
        {"params": [p for p in trained if id(p) not in new], "lr": lr},
        {"params": [p for p in trained if id(p) in new], "lr": lr if fresh_lr is None else fresh_lr},
    ]
    optimizer = torch.optim.AdamW([group for group in groups if group["params"]], lr=lr, weight_decay=weight_decay)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - (1 - final_share) * step / steps)
    order = torch.Generator().manual_seed(seed)
    was_training = model.training
    model.train()
    history = []
    try:
        with seeded(seed * world + rank, device):
            for epoch in range(epochs):
                total = torch.zeros((), device=device)
                rows = torch.randperm(count, generator=order).tolist()
                for i in range(per_epoch):
                    chosen = rows[i * batch_size : (i + 1) * batch_size]
                    mine = chosen[rank::world]
                    # A process left without rows still takes part in the exchange of gradients, with none of its own.
                    share = len(mine) * world / len(chosen)
                    batch = {key: value.to(device) for key, value in batch_of(mine or chosen[:1]).items()}
                    loss = wrapped(**batch).loss * share
                    backward(loss)
                    optimizer.step()
                    schedule.step()
                    optimizer.zero_grad(set_to_none=True)
                    total += loss.detach() * (len(chosen) / count)
                    if progress is not None:
                        progress((epoch * per_epoch + i + 1) / steps, f"epoch {epoch + 1} of {epochs}")
                history.append(total)
    finally:
        model.train(was_training)
    return _mean_of_processes(torch.stack(history), world).tolist()


class OnFeatures(nn.Module):
    """A head as a model of its own, which ``fine_tune`` can train on features that were computed once.

    Args:
        head: the module to train.
        loss: its loss on features and values, a mean of rows.
    """

    def __init__(self, head: nn.Module, loss: Callable[[Tensor, Tensor], Tensor]):
        super().__init__()
        self.head = head
        self._loss = loss

    def forward(self, features: Tensor, values: Tensor) -> Any:
        """Return an output with the loss."""
        return SimpleNamespace(loss=self._loss(features, values))


def _processes(model: nn.Module) -> tuple[int, int, nn.Module, Callable[[Tensor], Any]]:
    """Return this process's number, how many there are, the model to call and the way to go backward."""
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        return 0, 1, model, torch.Tensor.backward
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=next(model.parameters()).device.type == "cpu")
    leave_at_exit()
    wrapped = accelerator.prepare_model(model)
    return accelerator.process_index, accelerator.num_processes, wrapped, accelerator.backward


def _mean_of_processes(values: Tensor, world: int) -> Tensor:
    if world > 1:
        torch.distributed.all_reduce(values)
        values = values / world
    return values
