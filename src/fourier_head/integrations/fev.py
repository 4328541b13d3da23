"""A model for fev, the evaluation library of fev-bench and of the Chronos benchmarks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from fourier_head.errors import needing
from fourier_head.forecasting.forecaster import Forecaster

with needing("fev"):
    import fev
    from fev.model import ForecastingModel

SQUARED = ("MSE", "RMSE", "RMSSE")
"""Metrics whose best point forecast is the mean; that of all others is the median."""


class FourierHeadModel(ForecastingModel):
    """Forecast every window of a task, all targets one by one.

    Args:
        forecaster: a `Forecaster`, or the name or folder of one.
        covariates: whether columns that are known of the future are used, where past windows gain by them.

    Example:
        .. code-block:: python

            model = FourierHeadModel()
            predictions = model.fit_predict(task)
            task.evaluation_summary(predictions, model_name="fourier-head", inference_time_s=model.inference_time)
    """

    model_name = "fourier-head"

    def __init__(self, forecaster: Forecaster | str | Path = "small", covariates: bool = True):
        super().__init__()
        self.forecaster = forecaster if isinstance(forecaster, Forecaster) else Forecaster.from_pretrained(forecaster)
        self.covariates = covariates

    def _fit_predict(self, task: Any) -> list[Any]:
        return [self._window(task, window) for window in task.iter_windows()]

    def _window(self, task: Any, window: Any) -> dict[str, list[dict[str, Any]]]:
        """Return the forecasts of one window by target: a dictionary for each series, as fev takes them."""
        past, future, _ = fev.convert_input_data(window, adapter="pandas")
        key, time = task.id_column, task.timestamp_column
        known = list(task.known_dynamic_columns) if self.covariates else []
        order = list(dict.fromkeys(past[key]))
        out = {}
        for target in task.target_columns:
            beside: dict[str, Any] = {"future": future[[key, time, *known]]} if known else {}
            with self._record_inference_time():
                forecasts = self.forecaster.predict(
                    past[[key, time, target, *known]],
                    task.horizon,
                    id=key,
                    time=time,
                    target=target,
                    freq=task.freq,
                    progress=False,
                    **beside,
                )
                forecasts.series.closed = []  # every step is scored
                columns = {"predictions": forecasts.mean if task.eval_metric in SQUARED else forecasts.median}
                if task.quantile_levels:
                    quantiles = np.moveaxis(forecasts.quantiles(task.quantile_levels), -1, 0)
                    columns |= dict(zip(map(str, task.quantile_levels), quantiles, strict=True))
            place = {name: number for number, name in enumerate(forecasts.ids)}
            out[target] = [{key: values[place[name]].tolist() for key, values in columns.items()} for name in order]
        return out
