"""What may become of a function of whole paths, such as their sum: quantiles, means and a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from fourier_head.forecasting.frequency import parse_frequency


class Outcomes:
    """Hold what paths give under some function, for many series.

    Args:
        samples: drawn values (series, count) or, of several parts, (series, parts, count); NaN where there is none.
        names: a column of a table for each part of the names of series, by its name, of as many entries as series.
        parts: when each part begins (series, parts), datetime64, and what that column is called.
        mean: known better than from samples, (series,) or (series, parts).

    Example:
        >>> outcomes = Outcomes(np.arange(200.0).reshape(2, 100), {"id": ["a", "b"]})
        >>> outcomes.quantiles([0.1, 0.9]).tolist(), outcomes.mean.tolist()
        ([[9.5, 89.5], [109.5, 189.5]], [49.5, 149.5])
    """

    def __init__(
        self,
        samples: np.ndarray,
        names: Mapping[str, Sequence[Any]],
        parts: tuple[str, np.ndarray] | None = None,
        mean: np.ndarray | None = None,
    ):
        self.samples, self._names, self._parts, self._mean = samples, names, parts, mean

    def __len__(self) -> int:
        return len(self.samples)

    def __repr__(self) -> str:
        parts = "" if self.samples.ndim < 3 else f", {self.samples.shape[1]} parts"
        return f"Outcomes({len(self):,} series{parts}, {self.samples.shape[-1]:,} paths)"

    def quantiles(self, levels: Sequence[float] | np.ndarray | float = (0.1, 0.5, 0.9)) -> np.ndarray:
        """Return quantiles (series, levels), or (series, parts, levels); a single level has no dimension of its own."""
        wanted = checked_levels(levels)
        # Ranks at (i - 1/2) / n: no quantile is beyond what was drawn, and none is biased to the middle.
        out = np.moveaxis(np.quantile(self.samples, wanted, axis=-1, method="hazen"), 0, -1)
        return out[..., 0] if np.ndim(levels) == 0 else out

    @property
    def median(self) -> np.ndarray:
        """Medians (series,) or (series, parts)."""
        return self.quantiles(0.5)

    @property
    def mean(self) -> np.ndarray:
        """Means (series,) or (series, parts)."""
        return self.samples.mean(-1) if self._mean is None else self._mean

    def to_frame(self, levels: Sequence[float] | float = (0.1, 0.5, 0.9)) -> pd.DataFrame:
        """Return a table: the names of the series, when a part begins, the mean and a column for each level."""
        wanted = checked_levels(levels)
        count = 1 if self.samples.ndim < 3 else self.samples.shape[1]
        content: dict[str, Any] = {
            column: pd.Series(list(names)).repeat(count).to_numpy() for column, names in self._names.items()
        }
        if self._parts is not None:
            content[self._parts[0]] = self._parts[1].ravel()
        content["mean"] = self.mean.ravel()
        quantiles = self.quantiles(wanted).reshape(-1, len(wanted))
        content |= {f"{level:g}": column for level, column in zip(wanted, quantiles.T, strict=True)}
        table = pd.DataFrame(content)
        return table[table["mean"].notna()].reset_index(drop=True) if self._parts is not None else table


def calendar_parts(times: np.ndarray, freq: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the part (series, steps) of a calendar that each moment lies in, counted from 0, and when parts begin.

    Args:
        times: moments (series, steps), datetime64.
        freq: pandas alias of days, weeks, months, quarters or years.

    Example:
        >>> times = np.array([["2024-01-31", "2024-02-01", "2024-02-02"]], dtype="datetime64[ns]")
        >>> number, begin = calendar_parts(times, "MS")
        >>> number.tolist(), begin.astype("datetime64[D]").astype(str).tolist()
        ([[0, 1, 1]], [['2024-01-01', '2024-02-01']])
    """
    count, unit = parse_frequency(str(freq)) or (0, "")
    alias = {"hour": "h", "day": "D", "week": "W", "month": "M", "quarter": "Q", "year": "Y"}.get(unit)
    if count != 1 or alias is None:
        raise ValueError(f"freq must be a calendar period such as 'h', 'D', 'W', 'MS', 'QS' or 'YS', got {freq!r}.")
    if unit in ("week", "quarter", "year") and "-" in freq:
        alias += freq[freq.index("-") :]
    periods = pd.PeriodIndex(times.ravel(), freq=alias)
    # Consecutive from 0, also where steps are longer than parts.
    numbers = np.stack([np.unique(row, return_inverse=True)[1] for row in periods.asi8.reshape(times.shape)])
    begin = np.full((len(times), int(numbers.max()) + 1), np.datetime64("NaT", "ns"))
    starts = periods.to_timestamp(how="start").to_numpy("datetime64[ns]").reshape(times.shape)
    np.put_along_axis(begin, numbers, starts, axis=1)
    return numbers, begin


def checked_levels(levels: Sequence[float] | np.ndarray | float) -> np.ndarray:
    """Return one level or several as an array; raise unless there are some, all strictly between 0 and 1."""
    try:
        wanted = np.atleast_1d(np.asarray(levels, dtype=np.float64))
    except (TypeError, ValueError):
        raise ValueError(f"levels must be numbers between 0 and 1, got {levels!r:.60}.") from None
    if wanted.ndim != 1 or not wanted.size or not bool(((wanted > 0) & (wanted < 1)).all()):
        raise ValueError(f"levels must lie strictly between 0 and 1, got {wanted.tolist()}.")
    return wanted
