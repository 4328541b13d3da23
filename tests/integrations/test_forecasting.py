"""The forecaster in other libraries: sktime with its own checks, and fev."""

import numpy as np
import pandas as pd
import pytest

from tests.forecasting.test_forecaster import tiny, walk

# --- sktime

QUICK = ["test_constructor", "test_clone", "test_predict_quantiles", "test_update_predict_single"]


def checked(tmp_path, **which):
    pytest.importorskip("sktime")
    from sktime.utils.estimator_checks import check_estimator

    from fourier_head.integrations.sktime import FourierHeadForecaster

    tiny().save_pretrained(tmp_path / "tiny")
    estimator = FourierHeadForecaster(str(tmp_path / "tiny"), device="cpu")
    results = check_estimator(estimator, verbose=False, **which)
    return len(results), {name: result for name, result in results.items() if result != "PASSED"}


@pytest.mark.filterwarnings("ignore")
def test_checks_of_sktime(tmp_path):
    count, failed = checked(tmp_path, tests_to_run=QUICK)
    assert count > 4
    assert not failed


@pytest.mark.slow  # 385 of them
@pytest.mark.filterwarnings("ignore")
def test_all_checks_of_sktime(tmp_path):
    count, failed = checked(tmp_path)
    assert count > 300
    assert not failed


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_sktime_forecasts_are_those_of_the_forecaster():
    pytest.importorskip("sktime")
    from fourier_head.integrations.sktime import FourierHeadForecaster

    y = pd.Series(walk(60), index=pd.period_range("2019-01", periods=60, freq="M"), name="sold")
    forecaster = tiny()
    ours = forecaster.predict(y, 6)
    theirs = FourierHeadForecaster(forecaster).fit(y[:50]).update(y[50:])
    found = theirs.predict(fh=[1, 3, 6])
    np.testing.assert_allclose(found, ours.median[0, [0, 2, 5]])
    assert [str(one) for one in found.index] == ["2024-01", "2024-03", "2024-06"]
    interval = theirs.predict_interval(fh=[2], coverage=0.8)
    np.testing.assert_allclose(interval.to_numpy()[0], ours.quantiles([0.1, 0.9])[0, 1])


# --- fev


def test_a_task_of_fev(tmp_path):
    fev = pytest.importorskip("fev")
    from fourier_head.integrations.fev import FourierHeadModel

    time = pd.date_range("2024-01-01", periods=60).to_numpy()
    rows = [{"id": f"s{i}", "timestamp": time, "target": walk(60, i), "promo": np.arange(60) % 5.0} for i in range(3)]
    pd.DataFrame(rows).to_parquet(tmp_path / "x.parquet")
    task = fev.Task(
        dataset_path=str(tmp_path / "x.parquet"),
        horizon=6,
        num_windows=2,
        eval_metric="MASE",
        extra_metrics=["WQL"],
        quantile_levels=[0.1, 0.5, 0.9],
        known_dynamic_columns=["promo"],
    )
    forecaster = tiny()
    model = FourierHeadModel(forecaster, covariates=False)
    predictions = model.fit_predict(task)
    summary = task.evaluation_summary(predictions, model_name="fourier-head", inference_time_s=model.inference_time)
    assert summary["num_forecasts"] == 6
    assert np.isfinite([summary["MASE"], summary["WQL"]]).all()
    median = forecaster.predict([walk(54, i) for i in range(3)], 6, freq="D").median
    np.testing.assert_allclose([row["predictions"] for row in predictions[1]["target"]], median)
