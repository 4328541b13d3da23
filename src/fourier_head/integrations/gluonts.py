"""A GluonTS predictor of a forecaster: evaluate and backtest it with the tools of that library."""

# No postponed annotations here: gluonts checks the arguments of a predictor by the types themselves.
import itertools
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from fourier_head.errors import needing, whole_number
from fourier_head.forecasting.forecaster import Forecaster
from fourier_head.forecasting.scores import DECILES

with needing("gluonts"):
    from gluonts.core.component import validated
    from gluonts.dataset.util import forecast_start
    from gluonts.model.forecast import Forecast, QuantileForecast, SampleForecast
    from gluonts.model.predictor import Predictor, RepresentablePredictor

MODEL = "forecaster"


class FourierHeadPredictor(RepresentablePredictor):
    """Forecast GluonTS data sets.

    Args:
        forecaster: a `Forecaster`, or the name or folder of one.
        prediction_length: steps ahead, any number.
        kind: "quantile" for quantiles and mean, "sample" for sample paths.
        levels: of the quantiles.
        num_samples: of the sample paths; ``predict(..., num_samples=)`` goes before.
        freq: pandas frequency; that of each series unless given.
        batch_size: series forecast together.
        seed: of the samples.

    Example:
        >>> import pandas as pd
        >>> from fourier_head.forecasting.patch.multiscale import MultiscaleConfig, MultiscaleForecaster
        >>> config = MultiscaleConfig(spans=(32,), horizon=16, patch=8, width=16, layers=1, heads=2)
        >>> predictor = FourierHeadPredictor(Forecaster(MultiscaleForecaster(config)), prediction_length=4)
        >>> entry = {"start": pd.Period("2020-01", "M"), "target": np.arange(30.0), "item_id": "a"}
        >>> forecast = next(predictor.predict([entry]))
        >>> forecast.item_id, str(forecast.start_date), forecast.quantile(0.5).shape
        ('a', '2022-07', (4,))
    """

    @validated()
    def __init__(
        self,
        forecaster: Any,
        prediction_length: int,
        kind: Literal["quantile", "sample"] = "quantile",
        levels: Sequence[float] = DECILES,
        num_samples: int = 100,
        freq: str | None = None,
        batch_size: int = 1024,
        seed: int = 0,
    ) -> None:
        super().__init__(prediction_length=prediction_length)
        if kind not in ("quantile", "sample"):
            raise ValueError(f"kind must be 'quantile' or 'sample', got {kind!r}.")
        whole_number("batch_size", batch_size, 1)
        self.forecaster = (
            forecaster if isinstance(forecaster, Forecaster) else Forecaster.from_pretrained(str(forecaster))
        )
        self.kind, self.levels, self.num_samples = kind, tuple(levels), num_samples
        self.freq, self.batch_size, self.seed = freq, batch_size, seed

    def predict(self, dataset: Any, num_samples: int | None = None, **kwargs: Any) -> Iterator[Forecast]:
        """Yield a forecast for each series, in order."""
        count = num_samples or self.num_samples
        generator = torch.Generator().manual_seed(self.seed)
        entries = iter(dataset)
        while batch := list(itertools.islice(entries, self.batch_size)):
            forecasts = self.forecaster.predict(batch, self.prediction_length, freq=self.freq, progress=False)
            places = [{"start_date": forecast_start(one), "item_id": one.get("item_id")} for one in batch]
            if self.kind == "sample":
                for paths, place in zip(forecasts.samples(count, generator), places, strict=True):
                    yield SampleForecast(samples=paths, **place)
                continue
            keys = ["mean", *(f"{level:g}" for level in self.levels)]
            quantiles = forecasts.quantiles(self.levels).swapaxes(1, 2)
            arrays = np.concatenate([forecasts.mean[:, None], quantiles], axis=1)
            for array, place in zip(arrays, places, strict=True):
                yield QuantileForecast(forecast_arrays=array, forecast_keys=keys, **place)

    def predict_item(self, item: Any) -> Forecast:
        """Return the forecast of one series."""
        return next(self.predict([item]))

    def serialize(self, path: Path) -> None:
        """Write the predictor and its forecaster into a folder."""
        Predictor.serialize(self, path)
        self.forecaster.save_pretrained(path / MODEL)
        names = ("prediction_length", "kind", "levels", "num_samples", "freq", "batch_size", "seed")
        settings = {name: getattr(self, name) for name in names}
        (path / "predictor.json").write_text(json.dumps(settings), encoding="utf-8")

    @classmethod
    def deserialize(cls, path: Path, device: str | None = None, **kwargs: Any) -> "FourierHeadPredictor":
        """Read what ``serialize`` wrote."""
        settings = json.loads((path / "predictor.json").read_text(encoding="utf-8"))
        return cls(forecaster=Forecaster.from_pretrained(path / MODEL, device), **settings)
