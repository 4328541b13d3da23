"""Columns: inputs of a network from the columns of a table, whatever their scales, outliers, gaps and categories."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

PIECES = 16
"""Stretches of equally many rows that a column of numbers is cut into."""
MOST_INPUTS = 4096
"""With many columns there are fewer pieces of each, so that inputs stay fewer than this."""
MOST_LEVELS = 64
"""Levels of a category that get an input; rarer ones share the lack of any."""
FENCE = 3.0
"""Numbers count as no farther beyond the middle nine tenths of a column than this many times their length."""
NUMBERS = ("integer", "floating", "mixed-integer-float", "decimal")
"""What pandas calls columns of objects that are numbers, as a query of a database or None among numbers leaves them."""
MOMENTS = {"date": "datetime64[us]", "datetime": "datetime64[us]", "timedelta": "timedelta64[us]"}
"""What pandas calls columns of objects that are dates or durations, as databases give them, and their types."""
FARTHEST = 10.0
"""Deviations at which inputs are cut off in any case."""


def weighted_quantiles(x: Floats, weights: Floats, levels: Floats) -> Floats:
    """Return quantiles of weighted values, between whose places in the order it is a straight line.

    >>> weighted_quantiles(np.array([3.0, 1.0, 2.0]), np.array([1.0, 1.0, 1.0]), np.array([0.0, 0.5, 1.0]))
    array([1., 2., 3.])
    """
    order = np.argsort(x, kind="stable")
    x, weights = x[order], weights[order]
    places = np.cumsum(weights) - weights / 2
    return np.interp(levels, places / weights.sum(), x)


@dataclass
class _Numbers:
    """One column of numbers: between which fences it lies, its mean and deviation there, and the ends of its pieces."""

    fences: tuple[float, float]
    mean: float
    unit: float
    ends: Floats
    gaps: bool

    @classmethod
    def fit(cls, x: Floats, weights: Floats, pieces: int) -> _Numbers | None:
        there = ~np.isnan(x)
        gaps = not there.all()
        x, weights = x[there], weights[there]
        if not len(x) or x.min() == x.max():
            # A column that never changes says something by its gaps alone.
            return cls((x[0], x[0]), x[0], 1.0, x[:1], True) if gaps and len(x) else None
        low, high = weighted_quantiles(x, weights, np.array([0.05, 0.95]))
        reach = FENCE * (high - low) if high > low else np.inf
        fences = float(low - reach), float(high + reach)
        near = np.clip(x, *fences)
        mean = float(np.average(near, weights=weights))
        unit = float(np.sqrt(np.average((near - mean) ** 2, weights=weights)))
        ends = np.unique(weighted_quantiles(x, weights, np.linspace(0, 1, pieces + 1)))
        # Pieces shorter than rounding would divide noise by noise.
        keep = np.concatenate([[True], np.diff(ends) > 1e-9 * np.abs(ends).max()])
        return cls(fences, mean, unit, ends[keep], gaps)

    def plain(self, x: Floats) -> list[Floats]:
        missing = np.isnan(x)
        t = (np.clip(np.where(missing, self.mean, x), *self.fences) - self.mean) / self.unit
        inputs = [np.clip(t, -FARTHEST, FARTHEST)]
        return [*inputs, missing.astype(np.float64)] if self.gaps else inputs

    def pieces(self, x: Floats) -> list[Floats]:
        x = np.clip(np.where(np.isnan(x), self.mean, x), self.ends[0], self.ends[-1])
        low, high = self.ends[:-1], self.ends[1:]
        return list(np.clip((x[:, None] - low) / (high - low), 0, 1).T)


@dataclass
class _Levels:
    """One column of categories, given as codes: which of them have an input of their own."""

    codes: Floats

    @classmethod
    def fit(cls, x: Floats, weights: Floats) -> _Levels | None:
        there = ~np.isnan(x)
        codes, place = np.unique(x[there], return_inverse=True)
        if not len(codes) or (len(codes) == 1 and there.all()):
            return None
        weight = np.bincount(place, weights[there])
        return cls(np.sort(codes[np.argsort(-weight, kind="stable")[:MOST_LEVELS]]))

    def plain(self, x: Floats) -> list[Floats]:
        return [(x == code).astype(np.float64) for code in self.codes]

    def pieces(self, x: Floats) -> list[Floats]:
        return []


class Columns:
    """Make inputs of rows: scaled numbers, marks of gaps and levels first, then numbers piece by piece.

    Numbers are standardised between fences far outside of where most of them lie, so that no outlier moves the others
    or decides a prediction. A second coding cuts the range of a column into pieces of equally many rows, each an input
    that rises from 0 to 1 across it: with it a network can bend and jump at any number as trees
    do. Columns that never change are left out. Gaps (NaN) take the mean, and columns that have some in training get a
    mark of them. Levels of a category that were not there in training have none.

    Args:
        X: rows of training (n, columns), categories as codes.
        weights: of the rows.
        categorical: which columns hold categories; none unless given.

    References:
        Gorishniy et al., On Embeddings for Numerical Features in Tabular Deep Learning, NeurIPS 2022.

    Example:
        >>> columns = Columns(np.array([[0.0, 7.0], [1.0, 7.0], [1e6, 7.0]]), np.ones(3))
        >>> columns(np.array([[1.0, 0.0]]))[:, : columns.plain]
        array([[-0.7...]], dtype=float32)
    """

    def __init__(self, X: Floats, weights: Floats, categorical: NDArray[np.bool_] | None = None):
        kinds = np.zeros(X.shape[1], bool) if categorical is None else categorical
        pieces = max(2, min(PIECES, MOST_INPUTS // max(1, X.shape[1])))
        found: list[Any] = [
            _Levels.fit(x, weights) if category else _Numbers.fit(x, weights, pieces)
            for x, category in zip(X.T, kinds, strict=True)
        ]
        self._columns = [(place, column) for place, column in enumerate(found) if column is not None]
        self.plain = self(X[:1], pieces=False).shape[1]
        """Number of inputs without those of pieces."""

    def __call__(self, X: Floats, pieces: bool = True) -> NDArray[np.float32]:
        """Return the inputs (n, inputs) of rows, those of pieces last."""
        inputs = [one for place, column in self._columns for one in column.plain(X[:, place])]
        if pieces:
            inputs += [one for place, column in self._columns for one in column.pieces(X[:, place])]
        return np.ascontiguousarray(np.array(inputs or [np.zeros(len(X))], dtype=np.float32).T)


class Categories:
    """Remember the levels of columns of text, categories or truth values, and replace them by their numbers.

    Levels that were not there are -1, gaps are NaN. Dates and durations become days, numbers kept as objects stay
    numbers. Frames of polars and pyarrow are taken as those of pandas. Anything that is no data frame stays as it is,
    unless levels or dates were seen in one before: then its columns are taken in the order of those.
    """

    def __init__(self, X: Any):
        self._levels: dict[Any, dict[Any, int]] = {}
        self._first: dict[Any, Any] = {}
        self._numbers: set[Any] = set()
        self._names: list[Any] = []
        self.mask: NDArray[np.bool_] | None = None
        X = _frame(X)
        if not hasattr(X, "assign"):
            return
        from pandas.api.types import infer_dtype

        for name, kind in X.dtypes.items():
            letter = getattr(kind, "kind", "O")
            moments = _moments(X[name])
            if moments is not None:
                self._first[name] = moments.min()
            elif letter in "iufc" or (letter == "O" and infer_dtype(X[name], skipna=True) in NUMBERS):
                self._numbers.add(name)
            else:
                # Levels may be of several kinds, which have no order but as text.
                try:
                    levels = X[name].drop_duplicates().dropna().sort_values(key=lambda column: column.astype(str))
                    self._levels[name] = {level: code for code, level in enumerate(levels)}
                except TypeError as error:
                    raise TypeError(f"column {name!r} must hold numbers, dates or categories: {error}.") from None
        self._names = list(X.columns)
        self.mask = np.array([name in self._levels for name in X.columns], dtype=bool)

    def __call__(self, X: Any) -> Any:
        """Return the frame with codes in place of levels, and numbers of days and objects."""
        X = _frame(X)
        if not hasattr(X, "assign"):
            return self._array(X)
        from pandas import to_numeric

        coded = X.copy(deep=False)
        for name, kind in X.dtypes.items():
            letter, held = getattr(kind, "kind", "O"), "numbers"
            try:
                if name in self._levels:
                    column, held = X[name].astype(object), "categories"
                    codes = column.map(self._levels[name]).astype(float)
                    coded[name] = codes.fillna(-1).where(column.notna())
                elif name in self._first or name in self._numbers:
                    held = "dates" if name in self._first else held
                    if letter in "OmM" and X[name].isna().all():  # gaps alone say nothing of what a column holds
                        coded[name] = np.nan
                    elif held == "dates":
                        moments = _moments(X[name])
                        if moments is None:
                            raise TypeError
                        coded[name] = (moments - self._first[name]) / np.timedelta64(1, "D")
                    elif letter in "OmM":
                        coded[name] = to_numeric(X[name]) if letter == "O" else X[name].astype(float)
            except (TypeError, ValueError) as error:
                said = f"its type is {kind}" if held == "dates" or letter != "O" else error
                raise ValueError(f"column {name!r} held {held} when fitted, and does not now: {said}.") from None
        return coded

    def _array(self, X: Any) -> Any:
        """Return the numbers of rows that come without names, where columns of the frame that was fitted have none."""
        if not self._levels and not self._first:
            return X
        from pandas import DataFrame

        rows = np.asarray(X)
        if rows.ndim != 2 or rows.shape[1] != len(self._names):
            raise ValueError(f"X must be a data frame with the columns seen in fit, {self._names}.")
        return self(DataFrame(rows, columns=self._names).infer_objects()).to_numpy(np.float64, na_value=np.nan)


def _frame(X: Any) -> Any:
    """Return a data frame of pandas in place of one of polars or pyarrow; anything else as it is.

    Numbers need no pandas, and polars says that it needs pyarrow for it: without, the frame stays as it is.
    """
    if hasattr(X, "to_pandas") and hasattr(X, "columns"):
        with suppress(ImportError):
            X = X.to_pandas()
    if hasattr(X, "assign") and not X.columns.is_unique:
        twice = X.columns[X.columns.duplicated()][0]
        raise ValueError(f"columns must have names of their own, got several named {twice!r}: rename them.")
    return X


def _moments(column: Any) -> Any:
    """Return a column of dates or durations as pandas counts with them, whatever they are kept as; None of others."""
    from pandas import PeriodDtype
    from pandas.api.types import infer_dtype

    if getattr(column.dtype, "kind", "O") in "mM":
        return column
    if isinstance(column.dtype, PeriodDtype):
        return column.dt.to_timestamp()
    kind = infer_dtype(column, skipna=True) if getattr(column.dtype, "kind", "O") == "O" else ""
    if kind in MOMENTS:
        with suppress(TypeError, ValueError):  # of several time zones, which have no order as they are
            return column.astype(object).astype(MOMENTS[kind])
    return None
