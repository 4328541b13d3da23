"""The log of a training run."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any


@contextmanager
def training_log(folder: Path | None) -> Iterator[Callable[[dict[str, float]], None]]:
    """Yield what writes a line to ``log.jsonl`` of a folder, if any, and to TensorBoard, if that is installed."""
    if folder is None:
        yield lambda line: None
        return
    folder.mkdir(parents=True, exist_ok=True)
    board: Any = None
    with suppress(ImportError):
        from torch.utils.tensorboard import SummaryWriter

        board = SummaryWriter(str(folder / "tensorboard"))

    def write(line: dict[str, float]) -> None:
        with (folder / "log.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        for key in ("loss", "learning_rate", "samples_per_second") if board is not None else ():
            board.add_scalar(key, line[key], int(line["step"]))

    with board or nullcontext():
        yield write


def print_line(line: dict[str, float]) -> None:
    """Print how far a run is: step, loss, windows a second and the share of the budget that is spent."""
    print(
        f"step {line['step']:.0f}  loss {line['loss']:.4f}  {line['samples_per_second']:.0f} windows/s  "
        f"{100 * line['progress']:.1f} %",
        flush=True,
    )
