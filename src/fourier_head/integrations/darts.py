"""A Darts model: the zero-shot forecaster in the backtests, ensembles and metrics of that library."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from fourier_head.errors import needing
from fourier_head.forecasting.forecaster import Forecaster
from fourier_head.forecasting.results import Forecasts
from fourier_head.forecasting.scores import DECILES

with needing("darts"):
    import pandas as pd
    from darts import TimeSeries
    from darts.models.forecasting.forecasting_model import GlobalForecastingModel
    from darts.utils.likelihood_models.base import Likelihood, LikelihoodType, quantile_names

SHORTEST = 8
"""Least length of a past in ``historical_forecasts``."""


class FourierHeadModel(GlobalForecastingModel):
    """Forecast series of any length, each component by itself; ``fit`` learns nothing and remembers the series.

    Point forecasts are medians; ``num_samples`` above 1 draws whole paths, and ``predict_likelihood_parameters=True``
    gives quantiles. Covariates count where past windows gain by them.

    Args:
        forecaster: a `Forecaster`, or the name or folder of one.
        quantiles: levels that ``predict_likelihood_parameters=True`` gives.
        natural: as `Forecaster.predict` has it.

    Example:
        .. code-block:: python

            model = FourierHeadModel().fit(TimeSeries.from_series(sold))
            model.predict(12, num_samples=200).quantile(0.9)
    """

    # What Darts asks of a model before it calls it; the base class has them as properties.
    supports_probabilistic_prediction = True
    supports_multivariate = True
    supports_past_covariates = True
    supports_future_covariates = True
    supports_sample_weight = False
    supports_optimized_historical_forecasts = False
    min_train_samples = 1
    _requires_training = False
    _target_window_lengths = (SHORTEST, 0)
    _model_encoder_settings = (None, None, False, False, None, None)

    def __init__(
        self,
        forecaster: Forecaster | str | Path = "small",
        quantiles: Sequence[float] = tuple(DECILES),
        natural: bool = True,
    ):
        super().__init__()
        self.forecaster = forecaster if isinstance(forecaster, Forecaster) else Forecaster.from_pretrained(forecaster)
        self.quantiles, self.natural = list(quantiles), natural

    def fit(
        self, series: Any, past_covariates: Any = None, future_covariates: Any = None, verbose: bool | None = None
    ) -> FourierHeadModel:
        """Remember the series, where it is one."""
        super().fit(series, past_covariates, future_covariates, verbose)
        return self

    def predict(
        self,
        n: int,
        series: Any = None,
        past_covariates: Any = None,
        future_covariates: Any = None,
        num_samples: int = 1,
        verbose: bool | None = None,
        predict_likelihood_parameters: bool = False,
        show_warnings: bool = True,
        random_state: int | None = None,
    ) -> Any:
        """Return the next ``n`` steps of one series or of each of several.

        Covariates are one series for all, or one or None for each; those of ``fit`` unless given.
        """
        series = self.training_series if series is None else series
        past_covariates = self.past_covariate_series if past_covariates is None else past_covariates
        future_covariates = self.future_covariate_series if future_covariates is None else future_covariates
        settings = (num_samples, verbose, predict_likelihood_parameters, show_warnings, random_state)
        super().predict(n, series, past_covariates, future_covariates, *settings)
        if series is None:
            raise ValueError("series must be given where fit() got several, or the model was saved without its own.")
        every = [series] if isinstance(series, TimeSeries) else list(series)
        covariates = [
            [given] * len(every) if given is None or isinstance(given, TimeSeries) else list(given)
            for given in (past_covariates, future_covariates)
        ]
        for kind, some in zip(("past", "future"), covariates, strict=True):
            if len(some) != len(every):
                raise ValueError(f"{kind}_covariates must be one series or {len(every)}, got {len(some)}.")
        forecasts = self._forecast(n, every, *covariates)
        if predict_likelihood_parameters:
            values = forecasts.quantiles(self.quantiles)
        elif num_samples == 1:
            values = forecasts.median[..., None]
        else:
            generator = None if random_state is None else torch.Generator().manual_seed(random_state)
            values = forecasts.samples(num_samples, generator).swapaxes(1, 2)
        # One row a component, in order, whatever order the names of a table came in.
        place = {name: number for number, name in enumerate(forecasts.ids)}
        out, first = [], 0
        for one in every:
            rows = [place[number] for number in range(first, first + one.n_components)]
            first += one.n_components
            array = values[rows].swapaxes(0, 1)
            if predict_likelihood_parameters:  # the levels of a component beside each other, as components
                array, names = array.reshape(n, -1, 1), self.likelihood.component_names(series=one)
                out.append(self._build_forecast_series(array, one, names, with_static_covs=False, with_hierarchy=False))
            else:
                out.append(self._build_forecast_series(array, one))
        return out[0] if isinstance(series, TimeSeries) else out

    def _forecast(self, n: int, every: Sequence[TimeSeries], past: Sequence[Any], future: Sequence[Any]) -> Forecasts:
        """Return the forecasts of all components, named by their number."""
        columns = [pd.Series(values, one.time_index) for one in every for values in one.values(copy=False).T]
        settings: dict[str, Any] = {"natural": self.natural, "progress": False}
        freqs = {one.freq_str if one.has_datetime_index else None for one in every}
        if len(freqs) == 1:
            settings["freq"] = freqs.pop()
        if all(one is None for one in (*past, *future)):
            return self.forecaster.predict(dict(enumerate(columns)), n, **settings)
        if any(one.has_range_index for one in every):
            raise ValueError("covariates need series with dates, got series with numbered steps.")
        tables, ahead, number = [], [], 0
        for one, before, beside in zip(every, past, future, strict=True):
            table, later = pd.DataFrame(index=one.time_index), pd.DataFrame(index=self._generate_new_dates(n, one))
            if before is not None:
                table = table.join(before.to_dataframe().add_prefix("past "))
            if beside is not None:
                known = beside.to_dataframe().add_prefix("future ")
                table, later = table.join(known), later.join(known)
            for _ in range(one.n_components):
                tables.append(table.assign(series=number, value=columns[number]).rename_axis("time").reset_index())
                ahead.append(later.assign(series=number).rename_axis("time").reset_index())
                number += 1
        # Each series may have covariates of its own; what it lacks is missing, and counts for nothing.
        data, coming = pd.concat(tables), pd.concat(ahead)
        used = [name for name in data if str(name).startswith(("past ", "future "))]
        if any(one is not None for one in future):
            settings["future"] = coming
        return self.forecaster.predict(data, n, id="series", time="time", target="value", covariates=used, **settings)

    def untrained_model(self) -> FourierHeadModel:
        """Return another with the same forecaster, whose weights are not read again for every window of a backtest."""
        return self.__class__(**{**self.model_params, "forecaster": self.forecaster})

    @property
    def likelihood(self) -> Likelihood:
        """Quantiles, as Darts names them."""
        return Likelihood(LikelihoodType.Quantile, quantile_names(self.quantiles))

    @property
    def extreme_lags(self) -> tuple[Any, ...]:
        past = (-1, -1) if self.uses_past_covariates else (None, None)
        future = (-1, 0) if self.uses_future_covariates else (None, None)
        return (-SHORTEST, 0, *past, *future, 0)
