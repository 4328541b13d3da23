"""What a training draws from."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import Tensor


class Stream(Protocol):
    """Batches on the device, tuples of what the loss takes, for ever; see ``corpora.BatchStream``."""

    def __next__(self) -> Any: ...

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: dict[str, Any]) -> None: ...


class RandomStream:
    """Batches that are drawn anew each time.

    Args:
        draw: makes a batch with a generator, from which all of its randomness comes.
        seed: of the generator.
        device: of the generator.
    """

    def __init__(
        self, draw: Callable[[torch.Generator], tuple[Any, ...]], seed: int, device: str | torch.device = "cpu"
    ):
        self.draw, self.generator = draw, torch.Generator(device).manual_seed(seed)

    def __next__(self) -> tuple[Any, ...]:
        return self.draw(self.generator)

    def state_dict(self) -> dict[str, Any]:
        """Return where the draws are."""
        return {"generator": self.generator.get_state()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from there."""
        self.generator.set_state(state["generator"].cpu())


class Epochs:
    """The rows of a table in batches, each row once an epoch, in a new order every time.

    Args:
        count: number of rows.
        batch: rows of a batch; the last one of an epoch has what is left.
        make: turns row numbers (a CPU tensor) into what the loss takes.
        seed: of the order.
    """

    def __init__(self, count: int, batch: int, make: Callable[[Tensor], tuple[Any, ...]], seed: int):
        if count < 1 or batch < 1:
            raise ValueError(
                f"there must be a row to train on and one in a batch, got {count} rows, batches of {batch}"
            )
        self.count, self.batch, self.make, self.place = count, batch, make, count
        self.generator = torch.Generator().manual_seed(seed)
        self.order = torch.empty(0, dtype=torch.long)

    @property
    def steps(self) -> int:
        """Batches of an epoch."""
        return -(-self.count // self.batch)

    def __next__(self) -> tuple[Any, ...]:
        if self.place >= self.count:
            self.order, self.place = torch.randperm(self.count, generator=self.generator), 0
        rows = self.order[self.place : self.place + self.batch]
        self.place += self.batch
        return self.make(rows)

    def state_dict(self) -> dict[str, Any]:
        """Return where the draws are."""
        return {"generator": self.generator.get_state(), "order": self.order, "place": self.place}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from there."""
        self.generator.set_state(state["generator"])
        self.order, self.place = state["order"], state["place"]
