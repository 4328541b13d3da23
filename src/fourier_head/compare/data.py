"""The data of a comparison: a built-in set or the user's own table."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from fourier_head.densities.gaussian_mixture import GaussianMixture
from fourier_head.errors import UserError, did_you_mean
from fourier_head.spellings import is_index, numbers, read_units
from fourier_head.table_files import read_frame

LEAST_ROWS = 30


@dataclass(frozen=True)
class Table:
    """Features, one finite target per row, what was left out and why, and where it is known the truth.

    ``log`` says that the target is the logarithm of what the user asked for; ``about`` is a sentence on built-in data.
    """

    name: str
    target_name: str
    features: pd.DataFrame
    target: np.ndarray
    notes: tuple[str, ...] = ()
    truth: Truth | None = None
    log: bool = False
    about: str = ""

    def logarithm(self) -> Table:
        """Return the table with the logarithm of its target."""
        if (low := float(self.target.min())) <= 0:
            raise UserError(f"--log needs a target above zero, but {self.target_name!r} goes down to {low:g}.")
        if self.truth is not None:
            raise UserError(
                "--log is for files and for --example hills: the truth of the bimodal data has no logarithm."
            )
        return replace(self, target=np.log(self.target), target_name=f"log {self.target_name}", log=True)


@dataclass(frozen=True)
class Truth:
    """The two centres of each row's true density, an even mixture of Gaussians of one deviation."""

    centers: np.ndarray
    deviation: float

    def density(self, rows: np.ndarray, middle: float, half: float) -> GaussianMixture:
        """Return the true densities of some rows in z = (value - middle) / half, cut to [-1, 1]."""
        loc = torch.from_numpy((self.centers[rows] - middle) / half)
        scale = torch.full_like(loc, self.deviation / half)
        return GaussianMixture(torch.zeros_like(loc), loc, scale, low=-1.0, high=1.0, validate_args=False)


def bimodal(rows: int = 5000, seed: int = 0, deviation: float = 0.1) -> Table:
    r"""Draw z from two Gaussians centred at the inputs x and y, the paper's GMM-2.

    .. math:: p(z \mid x, y) = \tfrac12 N(z; x, \sigma^2) + \tfrac12 N(z; y, \sigma^2), \quad x, y \sim U(-0.8, 0.8)

    The expected value, (x + y) / 2, is where z is least likely: only a head that knows two peaks can do well.

    >>> table = bimodal(rows=100)
    >>> list(table.features), table.target.shape
    (['x', 'y'], (100,))
    """
    random = np.random.default_rng(seed)
    centers = random.uniform(-0.8, 0.8, (rows, 2))
    chosen = np.take_along_axis(centers, random.integers(0, 2, (rows, 1)), 1)[:, 0]
    target = chosen + deviation * random.standard_normal(rows)
    features = pd.DataFrame({"x": centers[:, 0], "y": centers[:, 1]})
    about = "There are two peaks wherever x and y differ, and the mean lies between them, where z hardly ever is."
    return Table("bimodal data", "z", features, target, truth=Truth(centers, deviation), about=about)


def hills(rows: int = 6000, seed: int = 0) -> Table:
    """Draw places from a real relief: their height, and the heights a kilometre to the north, south, west and east.

    The grid, from the Shuttle Radar Topography Mission, shows the Jacksboro fault in Tennessee: a plateau, a valley and
    slopes between them. It comes with matplotlib.
    """
    import matplotlib

    path = Path(matplotlib.get_data_path(), "sample_data", "jacksboro_fault_dem.npz")
    if not path.exists():
        raise UserError("this matplotlib came without its sample data: give a file, or --example bimodal.")
    height = np.load(path)["elevation"].astype(np.float64)
    down, right = 11, 13  # cells of three seconds of arc in a kilometre, at 36.6 degrees north
    inner = np.zeros(height.shape, dtype=bool)
    inner[down:-down, right:-right] = True
    i, j = np.random.default_rng(seed).permutation(np.argwhere(inner))[:rows].T
    around = {"north": (-down, 0), "south": (down, 0), "west": (0, -right), "east": (0, right)}
    features = pd.DataFrame({name: height[i + di, j + dj] for name, (di, dj) in around.items()})
    about = f"{rows:,} places along the Jacksboro fault in Tennessee: height in metres, from those a kilometre away."
    return Table("the hills of Tennessee", "height", features, height[i, j], about=about)


def read_table(path: Path, target: str) -> Table:
    """Read a table from a file; rows without a target are left out and counted."""
    frame = read_frame(path)
    frame.columns = [str(name).strip() for name in frame.columns]
    if target not in frame.columns:
        raise UserError(f"{path.name} has no column {target!r}; {did_you_mean(target, frame.columns)}")
    if list(frame.columns).count(target) > 1:
        raise UserError(f"{path.name} has several columns named {target!r}, so --target is not clear.")
    if len(frame) == 0:
        raise UserError(f"{path.name} is empty: it has columns but no rows.")
    frame = frame.loc[:, ~frame.columns.duplicated()]
    notes = [f"{note[0].upper()}{note[1:]}" for note in frame.attrs.get("notes", ())]
    for name in [name for name in frame.columns if name != target and _row_numbers(name, frame[name])]:
        notes.append(f"Column {name!r} is left out: row numbers.")
        frame = frame.drop(columns=name)
    if not pd.api.types.is_numeric_dtype(frame[target]):
        # Elsewhere "500 ml" may be a name; what is to be predicted is a number.
        goal = frame[[target]].copy()
        notes += [f"The numbers of {target!r} are in {unit}." for unit in read_units(goal).values()]
        frame[target] = goal[target]
    try:
        values = numbers(frame[target], f"the target {target!r} of {path.name}")
    except ValueError as error:
        raise UserError(str(error)) from None
    known = np.isfinite(values)
    if not known.any():
        raise UserError(f"the target {target!r} of {path.name} must hold numbers, got none: every row is missing.")
    if not known.all():
        gone = int((~known).sum())
        rows = "row is" if gone == 1 else "rows are"
        notes.append(f"{gone} of {len(values)} {rows} left out: the target {target!r} is missing or infinite there.")
    values, frame = values[known], frame[known].reset_index(drop=True).drop(columns=target)
    if len(values) < LEAST_ROWS:
        raise UserError(f"{path.name} must have at least {LEAST_ROWS} rows with a target, got {len(values)}.")
    if values.min() == values.max():
        raise UserError(f"the target {target!r} of {path.name} must vary, got {values[0]:g} in every row.")
    return Table(path.name, target, frame, values, tuple(notes))


def _row_numbers(name: str, column: pd.Series) -> bool:
    """Tell whether a column counts rows, as the index of pandas does; in a sorted table it gives the target away."""
    values = column.to_numpy()
    counter = is_index(name) or re.fullmatch(r"(?i)(row[ _]?)?(id|no\.?|nr\.?|number)|row|#", name)
    if not counter or values.dtype.kind not in "iuf":
        return False
    return any(np.array_equal(values, np.arange(first, first + len(values))) for first in (0, 1))
