"""The data of a comparison: a built-in set or the user's own table, and which of its columns serve as inputs."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from fourier_head.bins import Bins
from fourier_head.densities.gaussian_mixture import GaussianMixture
from fourier_head.errors import UserError, did_you_mean
from fourier_head.table_files import DATE, is_index, numbers, read_frame
from fourier_head.tabular.columns import MOST_LEVELS, Categories, Columns


class Encoder:
    """Turn columns into inputs as ``FourierRegressor`` does; everything it knows comes from the rows it is made with.

    Dates, constants and columns that name each row are left out, with a note.
    """

    def __init__(self, frame: pd.DataFrame):
        self.notes: list[str] = []
        self._are_levels: dict[str, bool] = {}
        for name in frame.columns:
            reason, levels = _purpose(frame[name])
            if reason:
                self.notes.append(f"Column {name!r} is left out: {reason}.")
                continue
            self._are_levels[name] = levels > 0
            if levels > MOST_LEVELS:
                self.notes.append(f"Column {name!r} has {levels} categories: the {MOST_LEVELS} most frequent count.")
        self._categories = Categories(self._chosen(frame))
        codes = self._categories(self._chosen(frame)).to_numpy(np.float64)
        self._columns = Columns(codes, np.ones(len(frame)), self._categories.mask)

    @property
    def categorical(self) -> np.ndarray | None:
        """Which of the columns of codes hold categories."""
        return self._categories.mask if self._are_levels else None

    def codes(self, frame: pd.DataFrame) -> np.ndarray:
        """Return the columns that serve as numbers (rows, columns), categories as codes; zeros where none serves."""
        if not self._are_levels:
            return np.zeros((len(frame), 1))
        return self._categories(self._chosen(frame)).to_numpy(np.float64)

    def __call__(self, frame: pd.DataFrame) -> np.ndarray:
        """Return the inputs of rows, (rows, inputs), none where no column serves."""
        if not self._are_levels:
            return np.zeros((len(frame), 0), dtype=np.float32)
        return self._columns(self.codes(frame), pieces=False)

    def _chosen(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Return the columns that serve, as finite numbers or text, missing where one is neither."""
        columns = {
            name: frame[name].map(str).astype(object).where(frame[name].notna()) if levels else _finite(frame[name])
            for name, levels in self._are_levels.items()
        }
        return pd.DataFrame(columns, index=frame.index)


def _purpose(column: pd.Series) -> tuple[str, int]:
    """Return why a column does not serve, else nothing, and how many levels it has, 0 for numbers."""
    there = column.dropna()
    if not len(there):
        return "it has no values", 0
    if pd.api.types.is_datetime64_any_dtype(column) or isinstance(column.dtype, pd.PeriodDtype):
        return "it holds dates", 0
    if pd.api.types.is_timedelta64_dtype(column) or pd.api.types.is_complex_dtype(column):
        return f"{column.dtype} is neither a number nor a category", 0
    if not there.map(pd.api.types.is_hashable).all():
        return "its entries are neither numbers nor text", 0
    counts = there.map(str).value_counts()
    constant = "it is constant" if len(counts) == 1 and len(there) == len(column) else ""
    # Text that is all numbers, and decimal numbers from parquet, which pandas keeps as objects, are numbers.
    if not isinstance(column.dtype, pd.CategoricalDtype) and pd.to_numeric(there, errors="coerce").notna().all():
        return constant if np.isfinite(_finite(there)).any() else "it has no finite values", 0
    if all(re.match(DATE, value.strip()) for value in counts.index[:200]):
        return "it holds dates", 0
    if len(counts) > max(MOST_LEVELS, len(column) / 2):
        return f"nearly every row has its own text ({len(counts)} of {len(column)})", 0
    return constant, len(counts)


def _finite(column: pd.Series) -> np.ndarray:
    """Return a column as float64, NaN where it holds no finite number."""
    numbers = pd.to_numeric(column, errors="coerce").to_numpy(dtype=np.float64, na_value=np.nan)
    return np.where(np.isfinite(numbers), numbers, np.nan)


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


# --- reading files


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
    try:
        values = numbers(frame[target], f"the target {target!r} of {path.name}")
    except ValueError as error:
        raise UserError(str(error)) from None
    known = np.isfinite(values)
    if not known.any():
        raise UserError(f"the target {target!r} of {path.name} must hold numbers, got none: every row is missing.")
    if not known.all():
        gone = int((~known).sum())
        notes.append(f"{gone} of {len(values)} rows are left out: their target {target!r} is missing or infinite.")
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


# --- parts to train, choose and test on


@dataclass(frozen=True)
class Part:
    """Some rows: their numbers in the table, inputs, values, z (outside [-1, 1] where the bins end) and bin ids."""

    rows: np.ndarray
    x: Tensor
    value: Tensor
    z: Tensor
    ids: Tensor

    def __len__(self) -> int:
        return len(self.rows)


@dataclass(frozen=True)
class Prepared:
    """A table cut into parts and brought to scale; features and bins are fitted on the training part alone."""

    table: Table
    bins: Bins
    train: Part
    validation: Part
    test: Part
    notes: tuple[str, ...]
    num_inputs: int
    """Features of the table; without any, the network is fed a single zero."""
    codes: np.ndarray
    """Columns of all rows as numbers, categories as codes."""
    categorical: np.ndarray | None
    """Which of them hold categories."""
    body: str = "smooth"
    """Whose inputs the parts have."""

    @property
    def middle(self) -> float:
        return (self.bins.low + self.bins.high) / 2

    @property
    def half(self) -> float:
        """Half the width of the interval: values are middle + half z."""
        return (self.bins.high - self.bins.low) / 2

    @property
    def inputs_in_words(self) -> str:
        return f"{self.num_inputs or 'no'} input{'s' if self.num_inputs != 1 else ''}"

    @property
    def num_features(self) -> int:
        return self.train.x.shape[-1]

    def truth(self, part: Part) -> GaussianMixture | None:
        """Return the true densities of a part's rows in z, where they are known."""
        return None if self.table.truth is None else self.table.truth.density(part.rows, self.middle, self.half)


def prepare(table: Table, num_bins: int, seed: int, margin: float = 0.05) -> Prepared:
    """Keep a fifth of the rows to test, 15 % of the others to choose the epoch, and fit features and bins without test.

    The bins span the range of the training values and a margin on either side, so that few test values lie outside.
    """
    order = np.random.default_rng(seed).permutation(len(table.target))
    tested = max(1, len(order) // 5)
    chosen = max(1, round(0.15 * (len(order) - tested)))
    known = order[tested:]
    if np.ptp(table.target[known]) == 0:
        raise UserError(f"the target {table.target_name!r} must vary, got one value in every row to train on.")
    encoder = Encoder(table.features.iloc[known])
    try:
        bins = Bins.fit(table.target[known], num_bins, margin=margin)
    except ValueError:
        span = f"{table.target[known].min():g} to {table.target[known].max():g}"
        raise UserError(
            f"the target {table.target_name!r} must fit {num_bins} bins of 64-bit numbers, got values from {span}."
        ) from None
    features = encoder(table.features)
    notes = [*table.notes, *encoder.notes]
    num_inputs = features.shape[1]
    if not num_inputs:
        notes.append(
            "There are no columns to predict the target from: every head learns its density as a whole, and more "
            "columns in the table would give one for each row."
        )
        features = np.zeros((len(order), 1), dtype=np.float32)
    outside = bins.clip_rate(table.target[order[:tested]])
    if outside:
        notes.append(
            f"{outside:.1%} of the test values lie outside the bins; for the likelihood they count as the nearest end."
        )
    notes += _shape_notes(table.target[known], bins)

    def part(rows: np.ndarray) -> Part:
        value = table.target[rows]
        z = (value - (bins.low + bins.high) / 2) / ((bins.high - bins.low) / 2)
        return Part(
            rows,
            torch.from_numpy(features[rows]),
            torch.from_numpy(value),
            torch.from_numpy(z.astype(np.float32)),
            bins.encode(value),
        )

    train, validation = known[chosen:], known[:chosen]
    parts = part(train), part(validation), part(order[:tested])
    return Prepared(table, bins, *parts, tuple(notes), num_inputs, encoder.codes(table.features), encoder.categorical)


def _shape_notes(values: np.ndarray, bins: Bins) -> list[str]:
    """Say where equal bins and a continuous density fit a target badly."""
    distinct = len(np.unique(values))
    if distinct <= max(2, min(bins.num_bins, len(values) // 10)):
        return [
            f"The target takes only {distinct} values: the likelihood of a density then rewards narrow spikes, so "
            "compare CRPS."
        ]
    counts = np.bincount(bins.encode(values).numpy(), minlength=bins.num_bins)
    crowded = int(np.searchsorted(np.cumsum(np.sort(counts)[::-1]), 0.9 * len(values))) + 1
    if crowded <= bins.num_bins / 10:
        return [
            f"90 % of the target's values share {crowded} of {bins.num_bins} bins: "
            f"{'--log or ' if values.min() > 0 else ''}more bins may do better."
        ]
    return []
