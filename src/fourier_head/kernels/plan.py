"""Decide how a loss is computed: the options that must not change between the passes, and the sizes of blocks."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

# The widest input whose rows stay on the chip while the weights stream past; wider ones go to the library's product.
RESIDENT_WIDTH = 512
# Up to this many harmonics and numbers in x, a step is bound by launches, and one kernel does a whole backward pass.
NARROW = 32
SMALL = 1 << 20
# Up to this many tokens blocks of 128 rows leave most of a large GPU idle; the library's product splits columns too.
FEW_TOKENS = 8192


@dataclass(frozen=True)
class Score:
    """What is asked of every row.

    Args:
        kind: "nll" of bins or values, "crps" of values.
        target: "bins", or the domain of values: "interval", "circle", "line", "placed".
        length: of the coefficients; 2 (N + 1) between walls, N + 1 on the circle.
        num_bins, ignore_index: of bin ids.
        floor, walls, packets, atoms: of the density.
        places: outputs that place the domain.
        tails: weight of the tails.
        origin, unit: u = (value - origin) / unit is what the target is read from.
        worth: what a ranked score of z counts in units of the values.
        reduction: "none", "mean" or "sum".
        penalty, points: weight of the roughness, and points of its estimate.
    """

    kind: str
    target: str
    length: int
    num_bins: int = 0
    ignore_index: int = -100
    floor: float = 0.0
    walls: bool = False
    packets: int = 0
    atoms: int = 0
    places: int = 0
    tails: float = 0.0
    origin: float = 0.0
    unit: float = 1.0
    worth: float = 1.0
    reduction: str = "mean"
    penalty: float = 0.0
    points: int = 0

    def __hash__(self) -> int:
        # Taken several times in every step.
        known = vars(self).get("_hash")
        if known is None:
            values = (value for name, value in vars(self).items() if name != "_hash")
            known = vars(self)["_hash"] = hash(tuple(values))
        return known

    @property
    def coefficients(self) -> int:
        return self.length if self.walls else 2 * self.length

    @property
    def outputs(self) -> int:
        return self.coefficients + 4 * self.packets + self.atoms + self.places

    @property
    def omega(self) -> float:
        return math.pi / 2 if self.walls else math.pi

    @property
    def units(self) -> float:
        """What is added to every loss: the logarithm of a bin's or a unit's share of [-1, 1]."""
        if self.target == "bins":
            return math.log(self.num_bins)
        per_z = {"interval": 2.0, "circle": 1.0, "line": 2.0, "placed": 1.0}[self.target]
        return math.log(per_z * self.unit)

    @property
    def halves(self) -> int:
        return 1 if self.walls else 2

    @property
    def padded(self) -> int:
        """The harmonics to make room for: whole vectors, which wide loads and matrix products are fast on."""
        unit = 16 // self.halves
        return -(-self.length // unit) * unit

    @property
    def is_free(self) -> bool:
        """Whether the loss is one of free coefficients at a known place, and of nothing beside them."""
        plain = not (self.packets or self.atoms or self.places)
        return plain and self.kind == "nll" and self.target != "line"

    def gain(self, tokens: int) -> float:
        """Return what gradients are kept larger by: with it the mean over all tokens is a division by a power of two.

        Weights times a power of two are not rounded.
        """
        return power_of_two_above(tokens) / tokens if self.reduction == "mean" else 1.0


@dataclass(frozen=True)
class Blocks:
    """Block sizes of one launch."""

    rows: int
    tile: int
    tail: int = 0
    depth: int = 128
    warps: int = 4
    stages: int = 1
    steps: int = 1
    registers: int | None = None
    prefetch: bool = True


def ceil_div(value: int, size: int) -> int:
    """Return how many pieces of ``size`` cover ``value``."""
    return -(-value // size)


def power_of_two_above(value: int) -> int:
    """Return the smallest power of two that is at least ``value``."""
    return 1 << max(value - 1, 0).bit_length()


def is_small(tokens: int, width: int, harmonics: int) -> bool:
    """Tell whether one kernel does the whole backward pass of rows that stay on the chip."""
    return harmonics <= NARROW and width <= RESIDENT_WIDTH and tokens * width <= SMALL


def is_resident(x: Tensor, harmonics: int) -> bool:
    """Tell whether projection and evaluation share one kernel: 16-bit rows that fit the chip and fill the GPU."""
    tokens, width = x.shape
    if x.dtype == torch.float32 or width > RESIDENT_WIDTH:
        return False
    return tokens > FEW_TOKENS or is_small(tokens, width, harmonics)


def _tile(harmonics: int, largest: int) -> int:
    return min(largest, max(16, power_of_two_above(harmonics)))


def project_blocks(tokens: int, width: int, harmonics: int) -> Blocks:
    """Return the blocks of the kernel that projects and evaluates."""
    depth = min(128, max(16, power_of_two_above(width)))
    if is_small(tokens, width, harmonics):
        return Blocks(rows=32, tile=_tile(harmonics, NARROW), depth=depth, prefetch=False)
    # Weights of the next tile find room beside x and those of this tile up to three chunks.
    return Blocks(rows=128, tile=_tile(harmonics, 64), depth=depth, warps=8, prefetch=width <= 3 * depth)


def gradient_blocks(tokens: int, harmonics: int, sums: bool) -> Blocks:
    """Return the blocks of the kernel that turns coefficients into their gradient and, if asked, ``sums`` tokens."""
    return Blocks(rows=16, tile=_tile(harmonics, 128), steps=16 if sums and tokens > FEW_TOKENS else 2)


def narrow_blocks(width: int, harmonics: int) -> Blocks:
    """Return the blocks of the kernel that does the whole backward pass of a narrow head."""
    return Blocks(rows=64, tile=_tile(harmonics, NARROW), depth=min(64, max(16, power_of_two_above(width))))
