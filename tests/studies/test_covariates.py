"""The study of covariates: every window of every table once, also after an interruption."""

import numpy as np
import pandas as pd
import pytest
from studies.covariates import study
from studies.covariates.tables import Source

from fourier_head.forecasting.patch.multiscale import MultiscaleConfig, MultiscaleForecaster
from fourier_head.forecasting.patch.pretrained import save_model


@pytest.fixture
def small(tmp_path, monkeypatch):
    """Return options of the study on one short table whose covariate explains half of its series."""
    random = np.random.default_rng(0)
    weather = random.normal(size=130)
    values = {"sales": 20 + 5 * weather + random.normal(size=130), "weather": weather}
    table = pd.DataFrame(
        [{"id": name, "start": "2024-01-01", "freq": "D", "target": list(each)} for name, each in values.items()]
    )
    table.to_parquet(tmp_path / "shop_daily.parquet")
    monkeypatch.setattr(study, "SOURCES", (Source("shop_daily", ["sales"], ["weather"], horizon=7),))
    shape = MultiscaleConfig(spans=(32, 64), horizon=16, patch=8, width=16, layers=1, heads=2)
    model = save_model(MultiscaleForecaster(shape), tmp_path / "tiny")
    return {"data": tmp_path, "model": str(model), "device": "cpu", "output": tmp_path / "covariates"}


def test_windows_are_scored_by_every_method(small):
    summary = study.run(study.Settings(**small, windows=2))
    runs = pd.read_json(small["output"] / "runs.json")
    assert set(zip(runs["window"], runs["method"], strict=True)) == {(w, m) for w in (0, 1) for m in study.METHODS}
    assert {row["metric"] for row in summary.rows if row["dataset"] == "all"} >= {"relative_wql", "worst_mase"}
    assert not (small["output"] / ".partial").exists()


def test_a_run_that_was_stopped_goes_on(small, monkeypatch):
    asked = []
    losses = study.window_losses

    def stops(table, window, **more):
        asked.append(window)
        if len(asked) == 2:
            raise KeyboardInterrupt
        return losses(table, window, **more)

    monkeypatch.setattr(study, "window_losses", stops)
    monkeypatch.setattr(study, "boosted_quantiles", lambda past, future, freq: np.zeros((len(future), 9)))
    with pytest.raises(KeyboardInterrupt):
        study.run(study.Settings(**small, windows=2))
    study.run(study.Settings(**small, windows=2))
    assert asked == [0, 1, 1]
