"""A table made ready: which columns serve as inputs, parts to train, choose and test on, and bins of its target."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from fourier_head.bins import Bins
from fourier_head.compare.data import Table
from fourier_head.densities.gaussian_mixture import GaussianMixture
from fourier_head.errors import UserError
from fourier_head.spellings import DATE
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
