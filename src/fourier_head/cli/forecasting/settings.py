"""What ``fourier-head forecast`` is asked to do, checked before any work begins."""

from __future__ import annotations

import math
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from fourier_head.commands import Options, option, output_folder
from fourier_head.errors import UserError

LEVELS = (0.025, 0.1, 0.25, 0.5, 0.75, 0.9, 0.975)
FARTHEST = 100_000
"""Steps ahead that the command still forecasts: weeks of minutes, and more would take hours without a word."""


def parse_levels(text: str) -> tuple[float, ...]:
    """Return levels of a comma-separated list, ascending.

    >>> parse_levels("0.9, 0.1")
    (0.1, 0.9)
    """
    try:
        return tuple(sorted({float(part) for part in text.split(",") if part.strip()}))
    except ValueError:
        raise UserError(f"--levels must be numbers separated by commas, such as 0.1,0.5,0.9, got {text!r}.") from None


@dataclass(frozen=True)
class Settings(Options):
    """The options of ``fourier-head forecast``; columns and steps are as ``Forecaster.predict`` takes them.

    >>> Settings(example=True, horizon=12, levels=(0.1, 0.9)).command
    'fourier-head forecast --horizon 12 --levels 0.1,0.9 --example'
    """

    data: Path | None = option(None, "CSV, parquet, Excel or JSON file, or a folder of them.", argument=True)
    horizon: int = option(24, "Steps ahead.", low=1, high=FARTHEST)
    freq: str | None = option(None, "Frequency, such as h, D, W, ME, QE.", shown="from the timestamps")
    id: str | None = option(None, "Column that names the series; several with commas.", shown="guessed")
    time: str | None = option(None, "Column of timestamps.", shown="guessed")
    target: str | None = option(None, "Column to forecast.", "--target", "-t", shown="guessed")
    fill: float | None = option(None, "Value of steps without a row, such as 0.", shown="missing")
    aggregate: str | None = option(
        None, "Of several rows for one step: sum or mean.", shown="an error", choices=("sum", "mean")
    )
    backtest: int | None = option(None, "Also forecast so many windows of the past, and say how good that was.", low=1)
    levels: tuple[float, ...] = option(",".join(map(str, LEVELS)), "Levels of the quantiles.", parse=parse_levels)
    output: Path | None = option(
        None, "Folder to write.", "--output", "-o", shown="forecast-<name of the data>", told=False
    )
    model: str = option("small", "Forecaster of the package, or a folder with one.")
    format: str = option("csv", "Of the table: csv or parquet.", choices=("csv", "parquet"), told=False)
    charts: int = option(12, "Fan charts at most.", low=1, told=False)
    device: str | None = option(
        None, "cpu or cuda.", shown="a GPU where there is one", choices=("cpu", "cuda"), told=False
    )
    engine: Literal["local", "ray"] = option(
        "local",
        "Where files of a folder go: local, or ray (cluster named by RAY_ADDRESS).",
        choices=("local", "ray"),
        told=False,
    )
    example: bool = option(False, "Forecast four made-up series.")

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.data is None) != self.example:
            raise UserError("give one file or folder to forecast, or --example.")
        if self.fill is not None and not math.isfinite(self.fill):
            raise UserError(f"--fill must be a finite number, got {self.fill}.")
        if not self.levels or not all(0 < level < 1 for level in self.levels):
            raise UserError(f"--levels must lie strictly between 0 and 1, got {', '.join(map(str, self.levels))}.")
        if self.data is not None and not self.data.exists():
            raise UserError(f"there is no file or folder {self.data}.")

    @property
    def folder(self) -> Path:
        """Where results go."""
        return output_folder(self.output, "forecast", "example" if self.data is None else self.data.name)

    @property
    def command(self) -> str:
        """The command that does the same."""
        return shlex.join(["fourier-head", "forecast", *self.words()])
