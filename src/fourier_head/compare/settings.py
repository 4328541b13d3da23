"""What a comparison is asked to do, checked before any work begins."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path

from fourier_head.commands import Options, option, output_folder
from fourier_head.errors import UserError, did_you_mean
from fourier_head.pages.style import HEADS

OTHER_NAMES = {"mixture": "gmm", "adaptive": "fourier-adaptive", "packets": "fourier-packets"}
"""What heads are called elsewhere in the package."""


def parse_frequencies(text: str) -> int | None:
    """Return the number of frequencies, or None where it is to be chosen from the data."""
    try:
        return None if text.strip().lower() == "auto" else int(text)
    except ValueError:
        raise UserError(f"--frequencies must be 'auto' or a whole number, got {text!r}.") from None


def parse_heads(text: str) -> tuple[str, ...]:
    """Return the names in a list with commas, each once, in the order of the report."""
    names = [name.strip().lower().replace("_", "-") for name in text.split(",") if name.strip()]
    names = [OTHER_NAMES.get(name, name) for name in names]
    known = [name for name in HEADS if name in names]
    return tuple(known + [name for name in names if name not in HEADS])


@dataclass(frozen=True)
class Settings(Options):
    """The options of ``fourier-head compare``.

    >>> Settings(target="price", data=Path("homes.csv"), bins=80).command
    'fourier-head compare homes.csv --target price --bins 80'
    """

    data: Path | None = option(None, "CSV, parquet, Excel or JSON file; built-in data if left out.", argument=True)
    target: str | None = option(None, "Column to predict.", "--target", "-t")
    output: Path | None = option(None, "Folder to write.", "--output", "-o", shown="compare-<name of the data>")
    bins: int = option(50, "Number of bins of the target.", low=2, high=65536)
    frequencies: int | None = option(
        "auto", "Frequencies of the Fourier heads, or 'auto'.", parse=parse_frequencies, low=1, high=4096
    )
    packets: int = option(2, "Wave packets of the head that has them.", low=1, high=1000)
    components: int = option(2, "Gaussians of the mixture head.", low=1, high=1000)
    epochs: int | None = option(None, "Passes over the training rows.", shown="from the number of rows", low=1)
    seed: int = option(0, "Of the split, the first weights and the order of rows.", low=0, high=2**31 - 1)
    seeds: int = option(1, "Train this often and report mean and deviation.", low=1, high=1000)
    heads: tuple[str, ...] = option(",".join(HEADS), "Heads to compare, separated by commas.", parse=parse_heads)
    log: bool = option(False, "Predict the logarithm of the target, for skewed ones.")
    example: str = option(
        "hills",
        "Built-in data: 'hills', real heights, or 'bimodal', whose true density is known.",
        choices=("hills", "bimodal"),
    )
    body: str = option(
        "smooth",
        "Network of all heads: 'smooth', 'pieces' (can jump), 'boosting' (trees before it) or 'auto' (the best).",
        choices=("smooth", "pieces", "boosting", "auto"),
    )
    quick: bool = option(False, "Train a tenth as long, for a first look.")

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in self.heads:
            if name not in HEADS:
                raise UserError(f"--heads names {name!r}, which is no head; {did_you_mean(name, HEADS)}")
        if not self.heads:
            raise UserError(f"--heads must name at least one head; {did_you_mean('', HEADS)}")
        if self.data is not None and self.target is None:
            raise UserError(
                f"--target must name the column of {self.data.name} to predict, got none: add --target NAME."
            )
        if self.data is None and self.target is not None:
            raise UserError(f"--target names a column of a data file, got {self.target!r} but no file.")

    @property
    def folder(self) -> Path:
        """The folder to write."""
        return output_folder(self.output, "compare", self.example if self.data is None else self.data.name)

    @property
    def command(self) -> str:
        """The command that repeats this comparison."""
        return shlex.join(["fourier-head", "compare", *self.words()])
