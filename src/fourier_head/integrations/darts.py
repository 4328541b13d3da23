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
        """Return the next ``n`` steps of one series or of each of several."""
        if series is None:
            series = self.training_series
            past_covariates = self.past_covariate_series if past_covariates is None else past_covariates
            future_covariates = self.future_covariate_series if future_covariates is None else future_covariates
        super().predict(
            n,
            series,
            past_covariates,
            future_covariates,
            num_samples,
            verbose,
            predict_likelihood_parameters,
            show_warnings,
            random_state,
        )
        every = [series] if isinstance(series, TimeSeries) else list(series)
        covariates = [
            [None] * len(every) if given is None else [given] if isinstance(given, TimeSeries) else list(given)
            for given in (past_covariates, future_covariates)
        ]
        forecasts = self._forecast(n, every, *covariates)
        if predict_likelihood_parameters:
            values = forecasts.quantiles(self.quantiles)[:, None]
        elif num_samples == 1:
            values = forecasts.median[:, None, :, None]
        else:
            generator = None if random_state is None else torch.Generator().manual_seed(random_state)
            values = forecasts.samples(num_samples, generator).swapaxes(1, 2)[:, None]
        # One row a component, in order, whatever order the names of a table came in.
        place = {name: number for number, name in enumerate(forecasts.ids)}
        out, first = [], 0
        for one in every:
            rows = [place[number] for number in range(first, first + one.n_components)]
            first += one.n_components
            if predict_likelihood_parameters:  # the levels of a component beside each other, as components
                array = values[rows, 0].swapaxes(0, 1).reshape(n, -1, 1)
                names = self.likelihood.component_names(series=one)
                out.append(self._build_forecast_series(array, one, names, with_static_covs=False, with_hierarchy=False))
            else:
                out.append(self._build_forecast_series(values[rows, 0].swapaxes(0, 1), one))
        return out[0] if isinstance(series, TimeSeries) else out

    def _forecast(self, n: int, every: Sequence[TimeSeries], past: Sequence[Any], future: Sequence[Any]) -> Forecasts:
        """Return the forecasts of all components, named by their number."""
        columns = [(one, column) for one in every for column in one.values(copy=False).T]
        settings: dict[str, Any] = {"natural": self.natural, "progress": False}
        freqs = {one.freq_str for one in every if one.has_datetime_index}
        if len(freqs) == 1:
            settings["freq"] = freqs.pop()
        if any(one.has_range_index for one in every):
            if any(one is not None for one in (*past, *future)):
                raise ValueError("covariates need series with dates, got series with numbered steps.")
            return self.forecaster.predict(dict(enumerate(values for _, values in columns)), n, **settings)
        known, tables, ahead, number = [], [], [], 0
        for one, before, beside in zip(every, past, future, strict=True):
            table, later = pd.DataFrame(index=one.time_index), pd.DataFrame(index=self._generate_new_dates(n, one))
            for kind, given in (("past", before), ("future", beside)):
                if given is None:
                    continue
                frame = given.to_dataframe().add_prefix(f"{kind} ")
                table = table.join(frame)
                if kind == "future":
                    later, known = later.join(frame), list(frame)
            for values in one.values(copy=False).T:
                tables.append(table.assign(series=number, value=values).rename_axis("time").reset_index())
                ahead.append(later.assign(series=number).rename_axis("time").reset_index())
                number += 1
        if known:
            settings["future"] = pd.concat(ahead)
        if columns := [name for name in tables[0] if str(name).startswith(("past ", "future "))]:
            settings["covariates"] = columns
        return self.forecaster.predict(pd.concat(tables), n, id="series", time="time", target="value", **settings)

    @property
    def likelihood(self) -> Likelihood:
        """Quantiles, as Darts names them."""
        return Likelihood(LikelihoodType.Quantile, quantile_names(self.quantiles))

    @property
    def supports_probabilistic_prediction(self) -> bool:
        return True

    @property
    def supports_multivariate(self) -> bool:
        return True

    @property
    def supports_past_covariates(self) -> bool:
        return True

    @property
    def supports_future_covariates(self) -> bool:
        return True

    @property
    def supports_sample_weight(self) -> bool:
        return False

    @property
    def supports_optimized_historical_forecasts(self) -> bool:
        return False

    @property
    def _requires_training(self) -> bool:
        return False

    @property
    def min_train_samples(self) -> int:
        return 1

    @property
    def _target_window_lengths(self) -> tuple[int, int]:
        return SHORTEST, 0

    @property
    def extreme_lags(self) -> tuple[Any, ...]:
        past = (-1, -1) if self.uses_past_covariates else (None, None)
        future = (-1, 0) if self.uses_future_covariates else (None, None)
        return (-SHORTEST, 0, *past, *future, 0)

    @property
    def _model_encoder_settings(self) -> tuple[Any, ...]:
        return None, None, False, False, None, None
