"""Fine-tune any model with a loss, the same whether one process runs it or many."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor, nn

from fourier_head._devices import seeded
from fourier_head.training.data import Epochs
from fourier_head.training.loop import LossOf, Training
from fourier_head.training.processes import rank_and_world
from fourier_head.training.settings import TrainingSettings

Progress = Callable[[float, str], None]
"""What the loop calls with the fraction done and a few words."""


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
    weight_decay: float = 0.01,
    seed: int = 0,
    progress: Progress | None = None,
    loss: Callable[..., Tensor] = lambda model, **batch: model(**batch).loss,
) -> list[float]:
    """Train the parameters that want gradients with AdamW and a linear decay; return the mean loss of each epoch.

    A batch is one step of all processes together: under ``torchrun`` or ``accelerate launch`` each takes its share of
    the rows, and the gradients are those of one process with the whole batch.

    Args:
        model: what is trained.
        batch_of: makes the batch of the rows with these indices.
        count: number of rows.
        epochs, batch_size, lr, weight_decay: as usual.
        fresh, fresh_lr: parameters that start from nothing, such as a new head's, and their own rate; ``lr`` unless
            given.
        seed: of the order of rows, and of dropout.
        progress: called after every step.
        loss: of the model and of what ``batch_of`` returns, moved to its device, a mean of rows; unless given, the
            ``loss`` of the model's output.
    """
    if count < 1:
        raise ValueError("there is nothing to train on: count must be at least 1")
    if epochs < 1 or batch_size < 1:
        raise ValueError(f"epochs and batch_size must be at least 1, got {epochs} and {batch_size}")
    device = next(model.parameters()).device
    rank, world = rank_and_world()

    def share(chosen: Tensor) -> tuple[dict[str, Tensor], float]:
        # A process left without rows still takes part in the exchange of gradients, with none of its own.
        mine = chosen[rank::world]
        batch = batch_of((mine if len(mine) else chosen[:1]).tolist())
        return {key: value.to(device) for key, value in batch.items()}, len(mine) * world / len(chosen)

    rows = Epochs(count, batch_size, share, seed)
    settings = TrainingSettings(
        batch=world * -(-batch_size // world),
        steps=epochs * rows.steps,
        learning_rate=lr,
        warmup=0.0,
        final=0.1,  # as in the code released with the paper
        betas=(0.9, 0.999),
        decay=weight_decay,
        clip=0.0,
        log_every=1,
    )
    rates = dict.fromkeys(fresh, lr if fresh_lr is None else fresh_lr)
    shared = LossOf(model, lambda model, batch, share: loss(model, **batch) * share)
    run = Training(shared, lambda process: rows, settings, device, rates=rates)

    def tell(line: dict[str, float]) -> None:
        if progress is not None:
            progress(line["progress"], f"epoch {-(-int(line['step']) // rows.steps)} of {epochs}")

    was_training = model.training
    try:
        with seeded(seed * world + rank, device):
            run.run(tell)
    finally:
        model.train(was_training)
    # The last batch of an epoch may have fewer rows, and counts for that less.
    weights = torch.full((rows.steps,), batch_size / count)
    weights[-1] = 1 - batch_size * (rows.steps - 1) / count
    losses = torch.tensor([line["loss"] for line in run.history], device=device).unflatten(0, (epochs, -1))
    return run.accelerator.reduce(losses @ weights.to(device), "mean").tolist()
