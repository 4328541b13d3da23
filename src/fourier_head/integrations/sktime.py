"""An sktime forecaster: the zero-shot forecaster in pipelines, grid searches and backtests of that library."""

from __future__ import annotations

import functools
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from fourier_head.errors import needing
from fourier_head.forecasting.forecaster import Forecaster

with needing("sktime"):
    import pandas as pd
    from sktime.forecasting.base import BaseForecaster


@functools.lru_cache(maxsize=2)
def _loaded(name: str, device: str | None) -> Forecaster:
    return Forecaster.from_pretrained(name, device)


class FourierHeadForecaster(BaseForecaster):
    """Forecast one series, or every column and instance of many; point forecasts are medians.

    Columns of ``X`` count where past windows gain by them: those that ``predict`` is given, too, as known of the
    future, else as known of the past alone. They need a ``y`` with dates.

    Args:
        forecaster: a `Forecaster`, or the name or folder of one.
        freq: pandas frequency, which tells the season; that of the index unless given.
        natural: as `Forecaster.predict` has it.
        device: where to compute; a GPU where there is one unless given.

    Example:
        >>> import numpy as np, pandas as pd
        >>> from fourier_head.integrations.sktime import FourierHeadForecaster
        >>> y = pd.Series(np.arange(30.0), index=pd.period_range("2020-01", periods=30, freq="M"))
        >>> forecaster = FourierHeadForecaster().fit(y)
        >>> forecaster.predict_interval(fh=[1, 2, 3], coverage=0.8).shape
        (3, 2)
    """

    _tags = {  # noqa: RUF012 (so sktime has it)
        "y_inner_mtype": "pd.Series",
        "X_inner_mtype": "pd.DataFrame",
        "capability:multivariate": False,
        "capability:exogenous": True,
        "capability:missing_values": True,
        "capability:insample": False,
        "capability:pred_int": True,
        "capability:pred_int:insample": False,
        "capability:update": True,
        "requires-fh-in-fit": False,
        "python_dependencies": ["torch"],
    }

    _config = {"remember_data": True}  # noqa: RUF012 (as sktime has it today)

    def __init__(
        self, forecaster: Any = "small", freq: str | None = None, natural: bool = True, device: str | None = None
    ) -> None:
        self.forecaster, self.freq, self.natural, self.device = forecaster, freq, natural, device
        with warnings.catch_warnings():  # of another default to come, whatever is chosen here
            warnings.filterwarnings("ignore", ".*remember_data", FutureWarning)
            super().__init__()

    def _fit(self, y: pd.Series, X: Any = None, fh: Any = None) -> FourierHeadForecaster:
        self._past, self._beside = y, None  # there is nothing to learn
        return self._update(y, X)

    def _update(self, y: pd.Series, X: Any = None, update_params: bool = True) -> FourierHeadForecaster:
        self._past = y.combine_first(self._past)
        if X is not None and X.shape[1]:
            self._beside = X if self._beside is None else X.combine_first(self._beside)
        return self

    def _forecast(self, fh: Any, X: Any) -> tuple[Any, np.ndarray, pd.Index]:
        """Return the forecasts, the places of the steps asked for among them, and their index."""
        steps = np.asarray(fh.to_relative(self.cutoff).to_numpy(), dtype=int)
        y = self._past
        timed = isinstance(y.index, (pd.DatetimeIndex, pd.PeriodIndex))
        data = y if timed and len(y) > 1 else y.to_numpy(dtype=float)
        freq = self.freq or (getattr(y.index, "freqstr", None) if timed else None)
        settings: dict[str, Any] = {"freq": freq, "natural": self.natural, "progress": False}
        if self._beside is not None and not timed:
            warnings.warn("X is not used: covariates need a y with dates.", stacklevel=4)
        elif self._beside is not None and len(y) > 1:
            data, names = _table(self._beside.reindex(y.index))
            data["y"] = y.to_numpy(dtype=float)
            settings |= {"time": "time", "target": "y", "covariates": names}
            settings |= {} if X is None else {"future": _table(X[self._beside.columns])[0]}
        model = self.forecaster
        if not isinstance(model, Forecaster):
            model = _loaded(str(Path(model)), self.device)
        found = model.predict(data, int(steps.max()), **settings)
        return found, steps - 1, fh.to_absolute_index(self.cutoff)

    def _predict(self, fh: Any, X: Any = None) -> pd.Series:
        found, steps, index = self._forecast(fh, X)
        return pd.Series(found.median[0, steps], index=index, name=self._past.name)

    def _predict_quantiles(self, fh: Any, X: Any, alpha: Any) -> pd.DataFrame:
        found, steps, index = self._forecast(fh, X)
        columns = pd.MultiIndex.from_product([self._get_varnames(), alpha])
        return pd.DataFrame(found.quantiles(list(alpha))[0, steps], index=index, columns=columns)

    @classmethod
    def get_test_params(cls, parameter_set: str = "default") -> list[dict[str, Any]]:
        """Return settings for sktime's own checks."""
        return [{}, {"natural": False, "freq": "D"}]


def _table(X: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    """Return covariates with their times as a column, and the names they have there."""
    names = [f"x{number}" for number in range(X.shape[1])]
    index = X.index.to_timestamp() if isinstance(X.index, pd.PeriodIndex) else X.index
    return X.set_axis(names, axis=1).set_axis(index.rename("time")).reset_index(), names
