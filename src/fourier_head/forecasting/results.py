"""Forecasts: what a forecaster returns, as quantiles, means, samples, densities or a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from fourier_head._clocks import Clock
from fourier_head.errors import needs_extra
from fourier_head.forecasting.inputs import SeriesSet
from fourier_head.forecasting.path_density import PathDensity
from fourier_head.forecasting.support import Support

if TYPE_CHECKING:
    import pandas as pd

LEVELS = (0.1, 0.5, 0.9)


class Forecasts:
    """Hold the forecasts of many series: a density for every series and step, all else computed when asked for.

    Args:
        density: of batch shape (series, horizon).
        series: what was forecast.
        support: what quantiles, samples and means keep to; the density itself is continuous and goes everywhere.
    """

    def __init__(self, density: PathDensity, series: SeriesSet, support: Support):
        self.density, self.series, self.support = density, series, support

    def __len__(self) -> int:
        return len(self.series)

    def __repr__(self) -> str:
        return f"Forecasts({len(self):,} series, {self.horizon} steps)"

    @property
    def horizon(self) -> int:
        """Steps ahead."""
        return self.density.batch_shape[1]

    @property
    def ids(self) -> list[Any]:
        """Names of the series, numbers where they have none."""
        return self.series.names

    @torch.no_grad()
    def quantiles(self, levels: Sequence[float] | np.ndarray | float = LEVELS) -> np.ndarray:
        """Return quantiles (series, horizon, levels) at any levels between 0 and 1; they never cross.

        A single level gives (series, horizon).
        """
        wanted = np.atleast_1d(np.asarray(levels, dtype=np.float64))
        check_levels(wanted)
        out = self.density.quantile(torch.as_tensor(wanted)).movedim(0, -1).cpu().numpy()
        out = self.support.fit(out)
        return out[..., 0] if np.ndim(levels) == 0 else out

    @property
    def median(self) -> np.ndarray:
        """Medians (series, horizon)."""
        return self.quantiles(0.5)

    @property
    def mean(self) -> np.ndarray:
        """Means (series, horizon)."""
        with torch.no_grad():
            mean = self.density.mean.cpu().numpy()
        return self.support.cut(mean)

    def samples(self, count: int = 100, generator: torch.Generator | None = None) -> np.ndarray:
        """Draw samples (series, count, horizon); every step is drawn on its own, given the path beyond the reach."""
        if count < 1:
            raise ValueError(f"count must be at least 1, got {count}.")
        drawn = self.density.sample((count,), generator).movedim(0, 1).cpu().numpy()
        return self.support.fit(drawn)

    def cdf(self, values: Any) -> np.ndarray:
        """Return the probability of outcomes up to values (series, horizon), NaN where a value is."""
        with torch.no_grad():
            return self.density.cdf(self._at(values)).double().cpu().numpy()

    def log_prob(self, values: Any) -> np.ndarray:
        """Return the log-density at values (series, horizon)."""
        with torch.no_grad():
            return self.density.log_prob(self._at(values)).double().cpu().numpy()

    @staticmethod
    def _at(values: Any) -> torch.Tensor:
        return torch.as_tensor(np.asarray(values, dtype=np.float64))

    @property
    def timestamps(self) -> np.ndarray:
        """Moments of the forecasts (series, horizon), datetime64; NaT where time is not known."""
        return np.stack([self.series.future(i, self.horizon) for i in range(len(self))])

    def to_frame(self, levels: Sequence[float] | float = LEVELS, mean: bool = True) -> pd.DataFrame:
        """Return a long table: the names of the series, the timestamp, the mean and a column for each level.

        Timestamps are in the time zone that the series were given in. Series without a time have the number of the step
        instead.
        """
        try:
            import pandas as pd
        except ImportError as error:
            raise needs_extra(error, "forecasting") from None
        horizon, series = self.horizon, self.series
        wanted = np.atleast_1d(np.asarray(levels, dtype=np.float64))
        columns = [f"{level:g}" for level in wanted]
        own = {*series.name_columns, series.time_column if series.timed else "step"}
        taken = own & {*columns, *(["mean"] if mean else [])}
        if taken:
            raise ValueError(f"the table has a column {taken.pop()!r} of its own; name the one of the data otherwise.")
        quantiles = self.quantiles(wanted)
        content: dict[str, Any] = {}
        for place, column in enumerate(series.name_columns):
            names = [name[place] if len(series.name_columns) > 1 else name for name in series.names]
            content[column] = pd.Series(names).repeat(horizon).to_numpy()
        if series.timed:
            content[series.time_column] = self._zoned(pd.DatetimeIndex(self.timestamps.ravel()))
        else:
            content["step"] = np.tile(np.arange(1, horizon + 1), len(self))
        if mean:
            content["mean"] = self.mean.ravel()
        for i, column in enumerate(columns):
            content[column] = quantiles[..., i].ravel()
        return pd.DataFrame(content)

    def _zoned(self, times: pd.DatetimeIndex) -> pd.DatetimeIndex:
        """Return timestamps in the zone of the series."""
        zone = self.series.zone
        if zone is None:
            return times
        if isinstance(zone, Clock):
            zone = zone.last  # whether and when it will be set again, past offsets do not say
        if self.series.universal:
            return times.tz_localize("UTC").tz_convert(zone)
        # Where clocks change, a time of day may come twice, or not at all.
        twice = np.ones(len(times), dtype=bool)
        return times.tz_localize(zone, ambiguous=twice, nonexistent="shift_forward")


def check_levels(levels: np.ndarray) -> None:
    """Raise unless there are levels, all strictly between 0 and 1."""
    if levels.ndim != 1 or not levels.size or not bool(((levels > 0) & (levels < 1)).all()):
        raise ValueError(f"levels must lie strictly between 0 and 1, got {levels.tolist()}.")
