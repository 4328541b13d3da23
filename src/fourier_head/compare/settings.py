"""What a comparison is asked to do, checked before any work begins."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, fields
from pathlib import Path

from fourier_head.errors import UserError, did_you_mean
from fourier_head.pages.style import HEADS

MAX_FREQUENCIES = 4096
MAX_BINS = 65536
EXAMPLES = ("hills", "bimodal")
BODIES = ("network", "boosting", "auto")
OTHER_NAMES = {"mixture": "gmm", "adaptive": "fourier-adaptive", "packets": "fourier-packets"}
"""What heads are called elsewhere in the package."""


@dataclass(frozen=True)
class Settings:
    """Hold the options of ``fourier-head compare`` under the names they have there.

    >>> Settings(target="price", data=Path("homes.csv"), bins=80).command
    'fourier-head compare homes.csv --target price --bins 80'
    """

    data: Path | None = None
    target: str | None = None
    output: Path | None = None
    bins: int = 50
    frequencies: int | None = None
    packets: int = 2
    components: int = 2
    epochs: int | None = None
    seed: int = 0
    seeds: int = 1
    heads: tuple[str, ...] = tuple(HEADS)
    log: bool = False
    example: str = EXAMPLES[0]
    body: str = BODIES[0]
    quick: bool = False

    def __post_init__(self) -> None:
        for name in self.heads:
            if name not in HEADS:
                raise UserError(f"--heads names {name!r}, which is no head; {did_you_mean(name, HEADS)}")
        if not self.heads:
            raise UserError(f"--heads must name at least one head; {did_you_mean('', HEADS)}")
        if not 2 <= self.bins <= MAX_BINS:
            raise UserError(f"--bins must lie between 2 and {MAX_BINS}, got {self.bins}.")
        if self.frequencies is not None and not 1 <= self.frequencies <= MAX_FREQUENCIES:
            raise UserError(
                f"--frequencies must be 'auto' or lie between 1 and {MAX_FREQUENCIES}, got {self.frequencies}."
            )
        for option in ("packets", "components", "seeds"):
            if not 1 <= getattr(self, option) <= 1000:
                raise UserError(f"--{option} must lie between 1 and 1000, got {getattr(self, option)}.")
        if self.epochs is not None and self.epochs < 1:
            raise UserError(f"--epochs must be at least 1, got {self.epochs}.")
        if not 0 <= self.seed < 2**31:
            raise UserError(f"--seed must lie between 0 and {2**31 - 1}, got {self.seed}.")
        if self.example not in EXAMPLES:
            raise UserError(f"--example names no built-in data; {did_you_mean(self.example, EXAMPLES)}")
        if self.body not in BODIES:
            raise UserError(f"--body names no body, got {self.body!r}; {did_you_mean(self.body, BODIES)}")
        if self.data is not None and self.target is None:
            raise UserError(f"--target must name the column of {self.data.name} to predict, got none.")
        if self.data is None and self.target is not None:
            raise UserError(f"--target names a column of a data file, got {self.target!r} but no file.")

    @property
    def folder(self) -> Path:
        """The folder to write: the one asked for, or one named after the data in the current folder."""
        name = self.example if self.data is None else self.data.name.split(".")[0]
        return self.output or Path(f"compare-{name}")

    @property
    def command(self) -> str:
        """The command that repeats this comparison; options at their defaults are left out."""
        words = ["fourier-head", "compare"]
        if self.data is not None:
            words.append(str(self.data))
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name == "data" or value == field.default:
                continue
            words.append(f"--{field.name}")
            if value is not True:
                words.append(",".join(value) if isinstance(value, tuple) else str(value))
        return shlex.join(words)


def parse_frequencies(text: str) -> int | None:
    """Return the number of frequencies, or None where it is to be chosen from the data."""
    if text.strip().lower() == "auto":
        return None
    try:
        return int(text)
    except ValueError:
        raise UserError(f"--frequencies must be 'auto' or a whole number, got {text!r}.") from None


def parse_heads(text: str) -> tuple[str, ...]:
    """Return the names in a list with commas, each once, in the order of the report."""
    names = [name.strip().lower().replace("_", "-") for name in text.split(",") if name.strip()]
    names = [OTHER_NAMES.get(name, name) for name in names]
    known = [name for name in HEADS if name in names]
    return tuple(known + [name for name in names if name not in HEADS])
