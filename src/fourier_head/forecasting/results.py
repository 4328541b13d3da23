"""Forecasts: what a forecaster returns, as quantiles, means, samples, densities or a table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch

from fourier_head.errors import did_you_mean, needing, whole_number
from fourier_head.forecasting.dependence import Dependence
from fourier_head.forecasting.outcomes import Outcomes, calendar_parts, checked_levels
from fourier_head.forecasting.path_density import PathDensity
from fourier_head.forecasting.series_set import SeriesSet
from fourier_head.forecasting.support import Support

if TYPE_CHECKING:
    from fourier_head.forecasting.effects import Effects
    from fourier_head.forecasting.rules import Rules

LEVELS = (0.1, 0.5, 0.9)
AT_ONCE = 1 << 24
"""Values of sampled paths that are held at one time while totals are taken."""
FARTHEST, KNOTS = 4.5, 73
"""Normal scores between which paths for totals and other functions go through quantiles at so many knots."""

Predict = Callable[[SeriesSet, int], "Forecasts"]
"""Gives the forecasts of series for a horizon."""


class Forecasts:
    """Hold the forecasts of many series: a density for every series and step, all else computed when asked for.

    Args:
        density: of batch shape (series, horizon).
        series: what was forecast.
        support: what quantiles, samples and means keep to; the density itself is continuous and goes everywhere.
        dependence: how steps hang together, or what finds it out when it is first asked for; as is usual for series
            of their frequency unless given.
        effects: what covariates do to each series, None where there were none.
        rules: what was done beside the network, None where nothing was to be.
    """

    def __init__(
        self,
        density: PathDensity,
        series: SeriesSet,
        support: Support,
        dependence: Dependence | Callable[[], Dependence] | None = None,
        effects: Effects | None = None,
        rules: Rules | None = None,
    ):
        self.density, self.series, self.support, self._dependence = density, series, support, dependence
        self.effects, self.rules = effects, rules

    def __len__(self) -> int:
        return len(self.series)

    def __repr__(self) -> str:
        return f"Forecasts({len(self):,} series, {self.horizon} steps)"

    def __getitem__(self, name: Any) -> Forecasts:
        """Return the forecasts of one series by its name; ``effects`` and ``rules`` are of all series together."""
        try:
            return self._only(self._number(name))
        except ValueError as error:
            raise KeyError(str(error)) from None

    def _only(self, number: int) -> Forecasts:
        rows = slice(number, number + 1)
        dependence = partial(self._dependence_of, rows)
        return Forecasts(self.density[rows], self.series.only(number), self.support[rows], dependence)

    def _dependence_of(self, rows: slice) -> Dependence:
        return self.dependence[rows]

    def __iter__(self) -> Iterator[Any]:
        """Go through the names, as a dictionary does."""
        return iter(self.ids)

    def _number(self, name: Any) -> int:
        try:
            return list(self.ids).index(name)
        except ValueError:
            raise ValueError(f"there is no series {name!r}: {did_you_mean(str(name), map(str, self.ids))}") from None

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
        wanted = checked_levels(levels)
        out = self.support.fit(self.density.quantile(torch.as_tensor(wanted)).movedim(0, -1))
        out = self.support.rare.put(out, wanted)
        out[self.closed] = np.nan
        return out[..., 0] if np.ndim(levels) == 0 else out

    @property
    def median(self) -> np.ndarray:
        """Medians (series, horizon)."""
        return self.quantiles(0.5)

    @property
    def mean(self) -> np.ndarray:
        """Means (series, horizon), NaN of a series that holds no value at all."""
        with torch.no_grad():
            out = self.support.mean(self.density.mean)
        out[self.closed] = np.nan
        return out

    @cached_property
    def closed(self) -> np.ndarray:
        """Which steps (series, horizon) are at times of the week or day that never had a value: they are NaN."""
        return self.series.closed_ahead(self.density.batch_shape[0], self.horizon)

    @property
    def dependence(self) -> Dependence:
        """How the steps of each series hang together."""
        if self._dependence is None:
            self._dependence = Dependence.usual(self.series.periods[: len(self)])
        elif not isinstance(self._dependence, Dependence):
            self._dependence = self._dependence()
        return self._dependence

    @torch.no_grad()
    def samples(self, count: int = 100, generator: torch.Generator | None = None, joint: bool = True) -> np.ndarray:
        """Draw whole paths (series, count, horizon).

        Every step has the distribution that its quantiles show. Neighbouring steps err alike as they did in the past of
        the series, so that sums and extremes of a path are as uncertain as they should be; with ``joint=False`` steps
        are drawn independently of each other.
        """
        count = whole_number("count", count, 1)
        if not (generator is None or isinstance(generator, torch.Generator)):
            raise TypeError(
                f"generator must be a torch.Generator, such as torch.Generator().manual_seed(0), got {generator!r}"
            )
        if joint:
            z = self.dependence.scores(count, self.horizon, generator)
        else:
            device = "cpu" if generator is None else generator.device
            z = torch.randn(count, len(self), self.horizon, generator=generator, device=device)
        level = torch.special.ndtr(z.double())
        drawn = self.support.fit(self.density.icdf(level).movedim(0, 1))
        drawn = self.support.rare.put(drawn, level.movedim(0, 1).cpu().numpy())
        drawn.swapaxes(1, 2)[self.closed] = np.nan
        return drawn

    def total(self, freq: str | None = None, paths: int = 2000, seed: int = 0) -> Outcomes:
        """Return what the sum over the horizon may be, or the sums over calendar periods; closed steps add nothing.

        Args:
            freq: "W", "MS", "QS", "YS" and the like for a sum over the steps of each such period that the horizon
                reaches; the first and the last may not be whole.
            paths: drawn for the quantiles; means are exact.
            seed: of the paths.
        """
        means, names = np.where(self.closed, 0.0, self.mean), self.series.names_by_column()
        if freq is None:
            sums = [some.sum(-1, dtype=np.float64) for some in self._paths(paths, seed, closed=0.0)]
            return Outcomes(np.concatenate(sums), names, mean=means.sum(-1))
        if not self.series.timed:
            raise ValueError("series without dates have no calendar periods; leave freq out for the whole horizon.")
        times = self.timestamps
        numbers, begin = calendar_parts(self.series.local(times.ravel()).reshape(times.shape), freq)
        share = (numbers[:, None] == np.arange(begin.shape[1])[:, None]).astype(float)  # (series, parts, steps)
        absent = np.where(share.any(-1), 0.0, np.nan)
        out, at = [], 0
        for paths_of in self._paths(paths, seed, closed=0.0):
            rows = slice(at, at + len(paths_of))
            out.append(share[rows] @ paths_of.swapaxes(1, 2) + absent[rows, :, None])
            at = rows.stop
        mean = (share @ means[..., None])[..., 0] + absent
        return Outcomes(np.concatenate(out), names, (self.series.time_column, begin), mean)

    def of(
        self,
        function: Callable[[np.ndarray], np.ndarray],
        paths: int = 2000,
        seed: int = 0,
        mean: np.ndarray | None = None,
    ) -> Outcomes:
        """Return what a function of whole paths may give, such as their maximum.

        Args:
            function: takes paths (series, paths, horizon), returns a number for each (series, paths); many series are
                taken some at a time. Closed steps are NaN, which ``np.nanmax`` and the like leave out.
            paths, seed: how many are drawn of each series, and from which seed.
            mean: of the outcome, where it is known better than from the paths.

        Example:
            >>> from fourier_head.forecasting.forecaster import Forecaster
            >>> from fourier_head.forecasting.patch.multiscale import MultiscaleConfig, MultiscaleForecaster
            >>> config = MultiscaleConfig(spans=(32, 64), horizon=16, patch=8, width=16, layers=1, heads=2)
            >>> forecasts = Forecaster(MultiscaleForecaster(config)).predict(range(40), horizon=6, freq="D")
            >>> peak = forecasts.of(lambda path: path.max(-1))
            >>> bool((peak.median >= forecasts.median.max(1)).all())
            True
        """
        if not callable(function):
            raise TypeError(f"function must take paths, such as lambda path: path.max(-1), got {function!r}")
        parts = []
        for some in self._paths(paths, seed):
            value = np.asarray(function(some), dtype=np.float64)
            if value.shape != some.shape[:2]:
                raise ValueError(
                    f"function must return one number for each path, shape {some.shape[:2]}, got {value.shape}."
                )
            parts.append(value)
        return Outcomes(np.concatenate(parts), self.series.names_by_column(), mean=mean)

    @torch.no_grad()
    def _paths(self, count: int, seed: int, closed: float = np.nan) -> Iterator[np.ndarray]:
        """Yield paths (some series, count, horizon), half of them mirror images of the others; closed steps as said.

        Quantiles at knots, straight lines of normal scores between them: a hundred times cheaper than to invert every
        value, and as good as exact for sums.
        """
        count, seed = whole_number("paths", count, 2), whole_number("seed", seed, 0)
        knots = torch.linspace(-FARTHEST, FARTHEST, KNOTS, dtype=torch.float64)
        generator = torch.Generator().manual_seed(seed)
        at_once = max(1, AT_ONCE // (count * self.horizon))
        for start in range(0, len(self), at_once):
            rows = slice(start, start + at_once)
            table = self.density[rows].quantile(torch.special.ndtr(knots)).movedim(0, -1).cpu().double()
            z = self.dependence[rows].scores(-(-count // 2), self.horizon, generator)
            z = torch.cat([z, -z])[:count].double().permute(1, 2, 0)  # (series, steps, paths)
            place = (z + FARTHEST) / (2 * FARTHEST) * (KNOTS - 1)
            left = place.floor().clamp(0, KNOTS - 2).long()
            low, high = table.gather(-1, left), table.gather(-1, left + 1)
            some = self.support[rows]
            drawn = some.fit(torch.lerp(low, high, (place - left).clamp(0, 1)).transpose(1, 2))
            if some.rare:
                drawn = some.rare.put(drawn, torch.special.ndtr(z).transpose(1, 2).numpy())
            drawn.swapaxes(1, 2)[self.closed[rows]] = closed
            yield drawn

    def normal_scores(self, values: Any) -> np.ndarray:
        """Return where outcomes (series, horizon) lie, as standard normal numbers; NaN where a value is.

        Of whole numbers, bounds and what is usual where other values are rare, the middle of their jump counts.
        """
        values = np.asarray(values, dtype=np.float64)
        half = np.where(self.support.whole, 0.5, 0.0)[:, None]
        with torch.no_grad():
            below, upto = (self.density.cdf(self._at(end)).cpu() for end in (values - half, values + half))
        levels = torch.from_numpy(self.support.levels(values, below.numpy(), upto.numpy()))
        return torch.special.ndtri(levels.clamp(1e-6, 1 - 1e-6)).numpy()

    def cdf(self, values: Any) -> np.ndarray:
        """Return the probability of outcomes up to values (series, horizon), NaN where a value is.

        Outcomes are what quantiles and samples show: of whole numbers what is rounded to a value or below it counts,
        and nothing is below zero where the past never was, or beyond a bound that it hit. ``density.cdf`` is that of
        the density beneath.
        """
        values = self._at(values).numpy()
        with torch.no_grad():
            level = self.density.cdf(torch.from_numpy(self.support.edges(values))).double().cpu().numpy()
        out = self.support.upto(np.broadcast_to(values, level.shape), level)
        out[..., self.closed] = np.nan
        return out

    def log_prob(self, values: Any) -> np.ndarray:
        """Return the log-density at values (series, horizon)."""
        with torch.no_grad():
            return self.density.log_prob(self._at(values)).double().cpu().numpy()

    def _at(self, values: Any) -> torch.Tensor:
        values = np.asarray(values, dtype=np.float64)
        series, steps = np.broadcast_shapes((1, 1), values.shape)[-2:]
        if series not in (1, len(self)) or steps not in (1, self.horizon):
            want = f"(series, horizon), here {(len(self), self.horizon)}"
            raise ValueError(f"values must be one number or of the shape {want}, got shape {values.shape}.")
        return torch.as_tensor(values)

    @property
    def timestamps(self) -> np.ndarray:
        """Moments of the forecasts (series, horizon), datetime64; NaT where time is not known."""
        return np.stack([self.series.future(i, self.horizon) for i in range(len(self))])

    def plot(self, name: Any = None, past: int | None = None, ax: Any = None) -> Any:
        """Draw the past of a series, the median of what may follow and its 50, 80 and 95 % intervals; return the axes.

        Args:
            name: of the series, the first one unless given.
            past: values of the past that are drawn, three horizons or at least 48 unless given.
            ax: axes of matplotlib to draw on, new ones unless given.
        """
        with needing("cli"):
            import matplotlib.pyplot as plt
        one = self._only(0 if name is None else self._number(name))
        past = None if past is None else whole_number("past", past, 0)
        series, (title,), (values,) = one.series, one.ids, one.series.values
        count = min(len(values), max(48, 3 * self.horizon) if past is None else past)
        before: Any = np.arange(1 - count, 1)
        after: Any = np.arange(1, self.horizon + 1)
        if series.timed and count:
            before, after = series.local(series.past(0, count)), series.local(series.future(0, self.horizon))
        quantiles = one.quantiles([0.025, 0.1, 0.25, 0.5, 0.75, 0.9, 0.975])[0]
        after, quantiles = (each[~one.closed[0]] for each in (after, quantiles))
        ax = plt.subplots(figsize=(8, 3), layout="constrained")[1] if ax is None else ax
        for place, opacity in ((0, 0.2), (1, 0.3), (2, 0.4)):
            band = quantiles[:, place], quantiles[:, -1 - place]
            ax.fill_between(after, *band, color="C0", alpha=opacity, linewidth=0)
        ax.plot(before, values[len(values) - count :], color="0.2", linewidth=1)
        ax.plot(after, quantiles[:, 3], color="C0")
        ax.set_title(", ".join(map(str, title)) if isinstance(title, tuple) else str(title))
        if series.timed:
            from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

            # Whole dates at every tick run into each other.
            locator = AutoDateLocator(maxticks=8)
            ax.xaxis.set_major_locator(locator)
            ax.xaxis.set_major_formatter(ConciseDateFormatter(locator))
        else:
            ax.set_xlabel("steps ahead")
        return ax

    def to_frame(self, levels: Sequence[float] | float = LEVELS, mean: bool = True) -> pd.DataFrame:
        """Return a long table: the names of the series, the timestamp, the mean and a column for each level.

        Timestamps are in the time zone that the series were given in. Series without a time have the number of the step
        instead.
        """
        horizon, series = self.horizon, self.series
        wanted = checked_levels(levels)
        columns = [f"{level:g}" for level in wanted]
        own = {*series.name_columns, series.time_column if series.timed else "step"}
        taken = own & {*columns, *(["mean"] if mean else [])}
        if taken:
            raise ValueError(f"the table has a column {taken.pop()!r} of its own; name the one of the data otherwise.")
        quantiles = self.quantiles(wanted)
        content: dict[str, Any] = {
            column: pd.Series(names).repeat(horizon).to_numpy()
            for column, names in self.series.names_by_column().items()
        }
        if series.timed:
            content[series.time_column] = series.zoned(pd.DatetimeIndex(self.timestamps.ravel()))
        else:
            content["step"] = np.tile(np.arange(1, horizon + 1), len(self))
        if mean:
            content["mean"] = self.mean.ravel()
        for i, column in enumerate(columns):
            content[column] = quantiles[..., i].ravel()
        return pd.DataFrame(content)
