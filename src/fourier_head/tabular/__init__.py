"""Train small networks with a head on the rows of a table.

`columns.py` makes inputs of the columns of a table; `members.py` and `ensemble.py` train several networks at once, each
leaving out other rows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

__all__ = ["Course"]


@dataclass
class Course:
    """How a training went: epochs and scores where it was checked, the best of them, and the time it took."""

    history: list[tuple[int, float]] = field(default_factory=list)
    best_epoch: int = 0
    best_score: float = math.inf
    seconds: float = 0.0
    interrupted: bool = False
