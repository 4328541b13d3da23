"""Forecaster: series in, a density for every future step out, with the weights of the package or your own."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch

from fourier_head._devices import best_device, chosen_device
from fourier_head.forecasting.backtest import Backtest, backtest
from fourier_head.forecasting.covariates import read_covariates, target_beside
from fourier_head.forecasting.dates import DateWarning
from fourier_head.forecasting.dependence import Dependence
from fourier_head.forecasting.effects import find_effects
from fourier_head.forecasting.export import write_onnx
from fourier_head.forecasting.inputs import read_series
from fourier_head.forecasting.patch.multiscale import MultiscaleConfig, MultiscaleForecaster
from fourier_head.forecasting.patch.predict import batches, fast_arithmetic
from fourier_head.forecasting.patch.pretrained import load_model, save_model
from fourier_head.forecasting.path_density import PathDensity
from fourier_head.forecasting.progress import Progress, counting
from fourier_head.forecasting.repair import anomalies, impute
from fourier_head.forecasting.results import Forecasts
from fourier_head.forecasting.rolling import Rolling
from fourier_head.forecasting.rules import Rules, apply_rules, without_absurd
from fourier_head.forecasting.scores import DECILES, Forecast, central_levels
from fourier_head.forecasting.series_set import SeriesSet, in_print
from fourier_head.forecasting.support import Support
from fourier_head.forecasting.views import moved_by_views
from fourier_head.forecasting.windows import past_windows

if TYPE_CHECKING:
    from fourier_head.forecasting.fine_tuning import FineTuning

TOKENS = {"cpu": 4096, "cuda": 1 << 17}
"""Patches in one pass: enough to keep the arithmetic busy, few enough for the caches and for a moving bar."""
COLUMNS = ("freq", "id", "time", "target", "fill", "aggregate")
"""What says how a table is read."""
WINDOWS = 8
"""Windows of the past of a series that tell how its steps hang together."""


class Forecaster:
    """Forecast series of any kind without training: one pass gives a density for every step.

    Args:
        model: the network.

    Example:
        >>> config = MultiscaleConfig(spans=(32, 64), horizon=16, patch=8, width=16, layers=1, heads=2)
        >>> forecaster = Forecaster(MultiscaleForecaster(config))
        >>> forecasts = forecaster.predict({"a": range(40), "b": [3.0]}, horizon=6, freq="ME")
        >>> forecasts.quantiles([0.1, 0.5, 0.9]).shape
        (2, 6, 3)
        >>> forecasts
        Forecasts(2 series, 6 steps)
    """

    def __init__(self, model: MultiscaleForecaster):
        self.model = model.eval()
        self.history: list[FineTuning] = []

    @classmethod
    def from_pretrained(
        cls, name_or_folder: str | Path = "small", device: str | torch.device | None = None
    ) -> Forecaster:
        """Load a forecaster that comes with the package, by its name, or one that ``save_pretrained`` wrote.

        Nothing is fetched. Without a device it goes to a GPU where there is one.
        """
        where = best_device() if device is None else chosen_device(str(device), "device")
        return cls(load_model(name_or_folder, where))

    def save_pretrained(self, folder: str | Path, dtype: torch.dtype = torch.float32) -> Path:
        """Write the forecaster into a folder, whole or not at all; bfloat16 halves it and rounds to three digits."""
        return save_model(self.model, folder, dtype)

    def to_onnx(self, path: str | Path, horizon: int | None = None, levels: Sequence[float] = tuple(DECILES)) -> Path:
        """Write an ONNX graph, weights included, that gives quantiles without torch; needs ``fourier-head[export]``.

        Its inputs are ``context`` (series, ``config.context``), float64, oldest value first and NaN before the first,
        and ``period`` (series,), int64, steps per season or 1; its output is ``quantiles`` (series, horizon, levels).
        Scaling is part of the graph; ``rules`` and ``natural`` of ``predict`` are not.

        Args:
            path: file to write.
            horizon: steps ahead, ``config.horizon`` at most and unless given.
            levels: of the quantiles, ascending.
        """
        return write_onnx(self.model, path, horizon, list(levels))

    @property
    def config(self) -> MultiscaleConfig:
        """The shape of the network."""
        return self.model.config

    @property
    def device(self) -> torch.device:
        """Where the network is."""
        return next(self.model.parameters()).device

    def to(self, device: str | torch.device) -> Forecaster:
        """Move the network."""
        self.model.to(device)
        return self

    def __repr__(self) -> str:
        count = sum(p.numel() for p in self.model.parameters())
        return f"Forecaster({count / 1e6:.1f} M parameters, {self.device})"

    def predict(
        self,
        data: Any,
        horizon: int,
        *,
        freq: str | None = None,
        id: str | Sequence[str] | None = None,
        time: str | None = None,
        target: str | None = None,
        fill: float | None = None,
        aggregate: str | None = None,
        future: pd.DataFrame | None = None,
        covariates: Sequence[str] | None = None,
        holidays: str | None = None,
        paths: int = 9,
        natural: bool = True,
        rules: bool = True,
        precision: str = "auto",
        progress: bool | Progress | None = None,
    ) -> Forecasts:
        """Return the forecasts of the next steps of every series.

        Args:
            data: a long DataFrame (name, time and value columns), a wide one (a column for each series), an array
                (time,) or (series, time), a list or dictionary of arrays or pandas Series, or a GluonTS data set.
                Missing values are NaN, missing moments are found.
            horizon: steps ahead, any number; beyond ``config.horizon`` possible pasts are followed on.
            freq: pandas frequency of the series; found from timestamps where there are any.
            id, time, target: names of the columns, guessed unless given.
            fill: value of steps without a row, such as 0 where a table holds days with a sale only; else missing.
            aggregate: "sum" or "mean" of several rows for one step, which are an error unless given.
            future: a table like the data, of the steps to come, with what is known of them: prices, promotions, weather
                forecasts, numbers or words. Past windows decide whether a series gains by it. Unless given, rows of the
                data after the last value of all, where ``covariates`` names what is known there.
            covariates: which columns count; those that both tables have unless given. What only the data has is known
                of the past alone, and counts with a delay of the horizon.
            holidays: code of a country ("DE", "US-CA") whose holidays count as covariates; needs the package holidays.
            paths: possible pasts that are followed beyond ``config.horizon``.
            natural: keep quantiles, samples and means to values that a series can take, as ten or more past values
                show: whole numbers where all were, none below zero where none was, none beyond a bound that was hit
                again and again; rare demand, and rare dips from the largest value, by their rate and sizes.
            rules: leave out one absurd value, take seasons that the network does not read from the whole past,
                holidays and other days of the calendar from past years, and from months what their weekdays and Easter
                do, go on along a line of few values, each where the past of a series says so, and in series of minutes
                and seconds let views of the last values count near ahead and coarser ones far ahead, leave times of
                the week or day empty that never had a value; ``forecasts.rules`` tells.
            precision: of the network: "float32", "bf16", or "auto", which is bf16 on a GPU.
            progress: whether to show a bar, or what to call; shown in a terminal after two seconds unless given.
        """
        horizon, paths = check_count("horizon", horizon, " of steps"), check_count("paths", paths)
        if precision not in ("auto", "bf16", "float32"):
            raise ValueError(f"precision must be 'auto', 'bf16' or 'float32', got {precision!r}.")
        covariates = [covariates] if isinstance(covariates, str) else covariates
        if future is not None and target is None:
            target = target_beside(data, future, covariates)
        series = read_series(data, freq=freq, id=id, time=time, target=target, fill=fill, aggregate=aggregate)
        settings = {"paths": paths, "natural": natural, "rules": rules, "precision": precision}
        quietly = functools.partial(self._quietly, settings)
        effects = None
        if not (future is None and covariates is None and holidays is None):
            _, features = read_covariates(series, horizon, data, future, covariates, holidays)
            used = set(map(str, getattr(future, "columns", ()) if covariates is None else covariates))
            series.ignored = tuple(column for column in series.ignored if column not in used)
            effects = find_effects(quietly, series, features, horizon)
        rolling = Rolling(self.model, horizon, paths)
        self.model.eval()
        half = precision == "bf16" or (precision == "auto" and self.device.type == "cuda")
        plain = effects.remainders if effects else series
        ruled = apply_rules(plain, horizon, self.config) if rules else None
        if ruled and (words := ruled.words(self.config.context)):
            warnings.warn(words, stacklevel=2)
        if ruled is None:
            series = replace(series, closed=[])
        elif (closed := series.closed_ahead(len(series), horizon)).any():
            ruled.closed.extend(np.flatnonzero(closed.any(1)).tolist())
            warnings.warn(_words_of(closed, series), stacklevel=2)
        # What values a series can take is seen in itself, not in what effects or rules leave of it.
        as_given = effects is None and not (ruled and ruled.changed)
        empty, support = torch.zeros((), dtype=torch.int64, device=self.device), Support.unknown(len(series))
        with counting(progress, len(series)) as advance, fast_arithmetic(self.device, half):
            for numbers, contexts, periods in self._batches(ruled.series if ruled else plain, rolling):
                empty += contexts.isnan().all(-1).sum()
                if natural and as_given:
                    support.read(numbers, contexts, periods)
                if ruled:
                    contexts, absurd = without_absurd(contexts)
                    ruled.absurd.extend(numbers[absurd.cpu().numpy()].tolist())
                rolling.add(numbers, contexts, periods)
                advance(len(numbers))
        if empty:
            warnings.warn(
                f"{int(empty)} of {len(series)} series hold no value at all; what is forecast of them says nothing.",
                stacklevel=2,
            )
        if undated := series.undated_ahead(horizon):
            warnings.warn(
                f"dates end in 2261, so that {undated} of the {horizon} steps to come have none; a smaller horizon "
                "does not reach that far.",
                DateWarning,
                stacklevel=2,
            )
        if natural and not as_given:
            for numbers, contexts, periods in self._batches(series, rolling):
                support.read(numbers, contexts, periods)
        if ruled:
            ruled.rare.extend(sorted(support.rare))
            ruled.bounds.extend(np.flatnonzero(np.isfinite(support.bounds).any(0)).tolist())
        factor, shift = self._moved(ruled, rolling, half) if ruled else (None, None)
        density = rolling.density(factor, shift)
        if effects:
            times, plus = effects.lead_back(density.quantile(0.5).cpu().numpy())
            plus = plus if shift is None else plus + times * shift
            density = rolling.density(times if factor is None else times * factor, plus)
        dependence = functools.partial(self._dependence, series, horizon, quietly)
        return Forecasts(density, series, support, dependence, effects, ruled)

    def _moved(self, ruled: Rules, rolling: Rolling, half: bool) -> tuple[np.ndarray | None, np.ndarray | None]:
        """Return the factor and shift (series, horizon) that views and rules ask for, None where there is none."""
        ask = functools.partial(self._view, paths=rolling.paths, half=half)
        return moved_by_views(ruled, rolling.horizon, rolling.density, ask)

    def _view(self, series: SeriesSet, steps: int, paths: int, half: bool) -> PathDensity:
        """Return what the network says of series as they are."""
        rolling = Rolling(self.model, steps, paths)
        with fast_arithmetic(self.device, half):
            for numbers, contexts, periods in self._batches(series, rolling):
                rolling.add(numbers, contexts, periods)
        return rolling.density()

    def backtest(
        self, data: Any, horizon: int, windows: int = 5, *, stride: int | None = None, **settings: Any
    ) -> Backtest:
        """Return how good forecasts of one's own series would have been: MASE, WQL and coverage beside seasonal naive.

        Args:
            data: as in ``predict``.
            horizon: steps of each window; the last window of a series ends where the series does.
            windows: at most so many of each series; at least a third of it, or 8 values, lie before each.
            stride: steps from one window to the next, ``horizon`` unless given, or fewer where a series is short.
            settings: ``freq``, ``id``, ``time``, ``target``, ``fill``, ``aggregate`` and others of ``predict``.

        Example:
            >>> config = MultiscaleConfig(spans=(32, 64), horizon=16, patch=8, width=16, layers=1, heads=2)
            >>> Forecaster(MultiscaleForecaster(config)).backtest({"a": range(60)}, horizon=6, freq="ME")
            Backtest(1 series, 5 windows of 6 steps)
        """
        horizon, windows = check_count("horizon", horizon), check_count("windows", windows)
        stride = None if stride is None else check_count("stride", stride)
        series, predict = self._looking_back(data, settings)
        return backtest(predict, series, horizon, windows, stride)

    def anomalies(
        self, data: Any, share: float = 0.99, *, last: int | None = None, steps: int = 1, **settings: Any
    ) -> pd.DataFrame:
        """Return what was expected of past values, and which of them lie outside of their interval.

        Every value is forecast from those before it. The table has the value, what was ``expected`` (the median), the
        ends ``low`` and ``high`` of the interval, a ``score``, which is standard normal where all is as expected, and
        whether the value is an ``anomaly``.

        Args:
            data: as in ``predict``.
            share: of outcomes that the interval should hold.
            last: values at the end of each series that are looked at, all unless given.
            steps: values forecast from one moment; 1 sees most, 8 cost an eighth.
            settings: of ``predict``; ``progress`` counts the moments.
        """
        last, steps = None if last is None else check_count("last", last), check_count("steps", steps)
        series, predict = self._looking_back(data, settings)
        return anomalies(predict, series, share, last, steps)

    def impute(self, data: Any, share: float = 0.8, **settings: Any) -> pd.DataFrame:
        """Return every step of the series, those that were missing filled in from before and after.

        Args:
            data: as in ``predict``; missing values are NaN or have no row.
            share: of outcomes that the interval from ``low`` to ``high`` of filled values should hold.
            settings: of ``predict``.
        """
        series, predict = self._looking_back(data, settings, trim=False, without=("future", "covariates", "holidays"))
        return impute(predict, series, share)

    def _looking_back(
        self, data: Any, settings: dict[str, Any], trim: bool = True, without: Sequence[str] = ("future", "covariates")
    ) -> tuple[SeriesSet, Callable[..., Forecasts]]:
        """Return the series, and what forecasts their pasts without a word."""
        if given := [one for one in without if settings.get(one) is not None]:
            raise ValueError(f"{given[0]} is for predict alone; here series are looked at by themselves.")
        columns = {key: settings.pop(key) for key in COLUMNS if key in settings}
        return read_series(data, trim=trim, **columns), functools.partial(self._quietly, {"progress": None, **settings})

    def _quietly(self, settings: dict[str, Any], pasts: SeriesSet, horizon: int) -> Forecasts:
        """Return forecasts of pasts without a word; a method, so that forecasts that know of it can be pickled."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # said of the series themselves
            return self.predict(pasts, horizon, **{"progress": False, **settings})

    def _dependence(self, series: SeriesSet, horizon: int, predict: Callable[..., Forecasts]) -> Dependence:
        """Return how steps hang together, from what was forecast wrong at earlier moments of the same series."""
        windows = past_windows(series, min(horizon, self.config.horizon), WINDOWS)
        if not len(windows):
            return Dependence.usual(series.periods)
        past = predict(windows.pasts, windows.targets.shape[1])
        return Dependence.fitted(series.periods, past.normal_scores(windows.targets), windows.owner)

    def __call__(self, contexts: list[np.ndarray], horizon: int, freq: str | None) -> Forecast:
        """Return central quantiles, as `fourier_head.forecasting.evaluation.evaluate` asks forecasters for them."""
        levels = central_levels()
        return Forecast(self.predict(contexts, horizon, freq=freq, progress=False).quantiles(levels), levels)

    def _batches(self, series: SeriesSet, rolling: Rolling) -> Iterator[tuple[np.ndarray, torch.Tensor, torch.Tensor]]:
        """Yield numbers, contexts (B, C) and periods, series of like length together so that little is padded."""
        patch, longest = self.config.patch, self.config.context

        def cost(past: np.ndarray) -> np.ndarray:
            # The patches of a series in its costliest pass: rolled on, the past grows and there are several of it.
            if len(rolling.sizes) == 1:
                return past + -(-rolling.sizes[0] // patch)
            return (np.minimum(past * patch + rolling.horizon, longest) + rolling.sizes[0]) // patch * rolling.paths

        periods, limit = series.periods, TOKENS.get(self.device.type, TOKENS["cpu"])
        for chosen, block in batches(series.values, longest, patch, limit, cost, np.float64, self.device):
            yield chosen, block, torch.from_numpy(periods[chosen]).to(self.device)

    def fine_tune(self, data: Any, **settings: Any) -> Forecaster:
        """Return a forecaster trained further on one's own series; this one stays as it is.

        See `fourier_head.forecasting.fine_tuning.fine_tune` for the settings: ``steps`` or ``epochs``, ``lora``,
        ``learning_rate``, ``horizon``, ``freq``, ``id``, ``time``, ``target`` and others.
        """
        from fourier_head.forecasting.fine_tuning import fine_tune

        return fine_tune(self, data, **settings)


def _words_of(closed: np.ndarray, series: SeriesSet) -> str:
    """Return what a user should know of closed steps (series, horizon)."""
    number, step = np.argwhere(closed)[0]
    when = series.local(series.future(int(number), closed.shape[1]))[step]
    steps, many = f"{closed.sum(1).max()} of {closed.shape[1]} steps", f"{closed.any(1).sum()} of {len(series)} series"
    return (
        f"no value ever was at such times of the week or day as {pd.Timestamp(when).day_name()} {in_print(when)}: "
        f"there {steps} of {many} are NaN, and totals leave them out; fill=0 takes what has no row for 0, rules=False "
        "forecasts it all the same."
    )


def check_count(what: str, value: Any, of: str = "") -> int:
    """Return a whole number from 1 on, or say what is wrong with it."""
    number = float(value) if isinstance(value, Real) and not isinstance(value, bool) else 0.0
    if not (number >= 1 and number % 1 == 0):
        raise ValueError(f"{what} must be a whole number{of} from 1 on, got {value!r}.")
    return int(number)
