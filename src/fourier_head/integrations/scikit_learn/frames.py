"""Categories: columns of a data frame that are no numbers, as codes."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


class Categories:
    """Remember the levels of columns of text, categories or truth values, and replace them by their numbers.

    Levels that were not there are -1, gaps are NaN. Anything that is no data frame stays as it is.
    """

    def __init__(self, X: Any):
        self._levels: dict[Any, dict[Any, int]] = {}
        self.mask: NDArray[np.bool_] | None = None
        if not _is_frame(X):
            return
        self._levels = {
            name: {
                level: code for code, level in enumerate(X[name].drop_duplicates().dropna().sort_values(key=_as_text))
            }
            for name, kind in X.dtypes.items()
            if not _is_number(kind)
        }
        self.mask = np.array([name in self._levels for name in X.columns], dtype=bool)

    def __call__(self, X: Any) -> Any:
        """Return the frame with codes in place of levels."""
        if not self._levels or not _is_frame(X):
            return X
        codes = {name: self._codes(X[name], levels) for name, levels in self._levels.items() if name in X.columns}
        return X.assign(**{str(name): column for name, column in codes.items()})

    @staticmethod
    def _codes(column: Any, levels: dict[Any, int]) -> NDArray[np.float64]:
        missing = column.isna().to_numpy()
        return np.array(
            [np.nan if gap else levels.get(x, -1) for x, gap in zip(column, missing, strict=True)], dtype=float
        )


def _as_text(column: Any) -> Any:
    """Levels may be of several kinds, which have no order but as text."""
    return column.astype(str)


def _is_frame(X: Any) -> bool:
    return hasattr(X, "dtypes") and hasattr(X, "columns") and hasattr(X, "assign")


def _is_number(kind: Any) -> bool:
    return getattr(kind, "kind", "O") in "iuf"
