"""The log of a training run."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any


class TrainingLog:
    """Lines go to a list and, where there is a folder, to ``log.jsonl`` and TensorBoard, if that is installed."""

    def __init__(self, folder: Path | None, history: list[dict[str, float]], active: bool):
        self.folder, self.history, self.active = folder, history, active
        self.writer: Any = None

    def __enter__(self) -> Callable[[dict[str, float]], None]:
        if self.active and self.folder is not None:
            self.folder.mkdir(parents=True, exist_ok=True)
            try:
                from torch.utils.tensorboard import SummaryWriter

                self.writer = SummaryWriter(str(self.folder / "tensorboard"))
            except ImportError:
                self.writer = None
        return self._write

    def _write(self, line: dict[str, float]) -> None:
        self.history.append(line)
        if not self.active or self.folder is None:
            return
        with (self.folder / "log.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        if self.writer is not None:
            for key in ("loss", "learning_rate", "samples_per_second"):
                self.writer.add_scalar(key, line[key], int(line["step"]))

    def __exit__(self, *error: object) -> None:
        if self.writer is not None:
            self.writer.close()


def print_line(line: dict[str, float], unit: str) -> None:
    """Print how far a run is: step, loss, speed in these units and the share of the budget that is spent."""
    print(
        f"step {line['step']:.0f}  loss {line['loss']:.4f}  {line['samples_per_second']:.0f} {unit}/s  "
        f"{100 * line['progress']:.1f} %",
        flush=True,
    )
