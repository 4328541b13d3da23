"""The forecaster in other libraries: sktime with its own checks, fev and Darts."""

import shutil
import warnings

import numpy as np
import pandas as pd
import pytest
import torch

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


@pytest.mark.parametrize("freq", ["M", "D"])
def test_sktime_covariates_are_those_of_a_table(freq):
    pytest.importorskip("sktime")
    from fourier_head.integrations.sktime import FourierHeadForecaster

    index = pd.period_range("2019-01", periods=80, freq=freq, name="month")
    rng = np.random.default_rng(1)
    X = pd.DataFrame({3: rng.random(80) < 0.25, "y": rng.normal(size=80)}, index=index)
    y = pd.Series(100 + np.random.default_rng(0).normal(size=80) + 50 * X[3], index=index, name="sold")
    forecaster = tiny()
    theirs = FourierHeadForecaster(forecaster).fit(y[:50], X=X[:50]).update(y[50:70], X=X[50:70])
    found = theirs.predict(fh=range(1, 11), X=X[70:])
    assert found[X[3]].mean() - found[~X[3]].mean() > 40
    table = X.set_axis(["promo", "noise"], axis=1).assign(time=index.to_timestamp()).reset_index(drop=True)
    ours = forecaster.predict(table[:70].assign(y=y.to_numpy()[:70]), 10, target="y", future=table[70:])
    np.testing.assert_allclose(found, ours.median[0], rtol=1e-6)
    interval = theirs.predict_interval(fh=[2, 4], X=X[70:], coverage=0.8).to_numpy()
    ours = forecaster.predict(table[:70].assign(y=y.to_numpy()[:70]), 4, target="y", future=table[70:])
    np.testing.assert_allclose(interval, ours.quantiles([0.1, 0.9])[0, [1, 3]], rtol=1e-6)
    # Without X of the steps to come it is known of the past alone.
    ours = forecaster.predict(table[:70].assign(y=y.to_numpy()[:70]), 4, target="y", covariates=["promo", "noise"])
    np.testing.assert_allclose(theirs.predict(fh=range(1, 5)), ours.median[0], rtol=1e-6)


def test_sktime_covariates_need_dates():
    pytest.importorskip("sktime")
    from fourier_head.integrations.sktime import FourierHeadForecaster

    y, X = pd.Series(walk(30)), pd.DataFrame({"x": walk(33, 1)})
    theirs = FourierHeadForecaster(tiny()).fit(y, X=X[:30])
    with pytest.warns(UserWarning, match="X is not used: covariates need a y with dates"):
        found = theirs.predict(fh=[1, 2, 3], X=X[30:])
    np.testing.assert_allclose(found, tiny().predict(y.to_numpy(), 3).median[0])


def test_sktime_has_nothing_to_warn_of():
    pytest.importorskip("sktime")
    from fourier_head.integrations.sktime import FourierHeadForecaster

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        FourierHeadForecaster().clone()


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


# --- Darts


def darts_series(values, start="2019-01-01", freq="MS", name="sold"):
    darts = pytest.importorskip("darts")
    values = np.asarray(values, dtype=float)
    index = pd.date_range(start, periods=len(values), freq=freq)
    return darts.TimeSeries.from_times_and_values(index, values, columns=None if values.ndim > 1 else [name])


def test_darts_forecasts_are_those_of_the_forecaster():
    one = darts_series(walk(60))
    from fourier_head.integrations.darts import FourierHeadModel

    forecaster = tiny()
    ours = forecaster.predict(pd.Series(walk(60), index=one.time_index), 6)
    model = FourierHeadModel(forecaster, quantiles=[0.1, 0.9]).fit(one)
    found = model.predict(6)
    np.testing.assert_allclose(found.values()[:, 0], ours.median[0])
    assert (str(found.start_time().date()), found.freq_str, list(found.components)) == ("2024-01-01", "MS", ["sold"])
    quantiles = model.predict(6, predict_likelihood_parameters=True)
    assert list(quantiles.components) == ["sold_q0.100", "sold_q0.900"]
    np.testing.assert_allclose(quantiles.values(), ours.quantiles([0.1, 0.9])[0])
    paths = model.predict(6, num_samples=40, random_state=3).all_values()
    np.testing.assert_allclose(paths[:, 0].T, ours.samples(40, torch.Generator().manual_seed(3))[0])


def test_darts_forecasts_each_component_of_each_series():
    two, other = darts_series(np.stack([walk(60), walk(60, 1)], axis=1)), darts_series(walk(40, 2), "2020-01-01", "W")
    from fourier_head.integrations.darts import FourierHeadModel

    forecaster = tiny()
    found = FourierHeadModel(forecaster).fit([two, two]).predict(3, series=[two, other])
    assert [one.values().shape for one in found] == [(3, 2), (3, 1)]
    alone = [forecaster.predict([walk(60, i)], 3, freq="MS").median[0] for i in (0, 1)]
    np.testing.assert_allclose(found[0].values().T, alone, rtol=1e-5)
    np.testing.assert_allclose(found[1].values().T, forecaster.predict([walk(40, 2)], 3, freq="W").median, rtol=1e-5)


def test_darts_covariates_are_those_of_a_table():
    promo = darts_series(np.arange(70) % 5 == 0, name="promo")
    one = darts_series(100 + np.random.default_rng(0).normal(size=60) + 50 * promo.values()[:60, 0])
    from fourier_head.integrations.darts import FourierHeadModel

    found = FourierHeadModel(tiny()).fit(one, future_covariates=promo).predict(10)
    with_promo = promo.values()[60:, 0] > 0
    assert found.values()[with_promo].mean() - found.values()[~with_promo].mean() > 40
    numbered = one.from_values(one.values())
    with pytest.raises(ValueError, match="covariates need series with dates"):
        FourierHeadModel(tiny()).fit(numbered, future_covariates=numbered).predict(3)
    assert FourierHeadModel(tiny()).fit(numbered).predict(3).start_time() == 60


def test_darts_covariates_belong_to_their_series():
    promo = darts_series(np.arange(70) % 5 == 0, name="promo")
    one = darts_series(100 + np.random.default_rng(0).normal(size=60) + 50 * promo.values()[:60, 0])
    other = darts_series(np.random.default_rng(1).normal(size=70), name="noise")
    from fourier_head.integrations.darts import FourierHeadModel

    model = FourierHeadModel(tiny()).fit(one)
    alone = model.predict(10).values()
    with_promo = promo.values()[60:, 0] > 0
    for kind in ("past_covariates", "future_covariates"):
        for first in (None, other):
            found = [each.values() for each in model.predict(10, [one, one], **{kind: [first, promo]})]
            if first is None:
                np.testing.assert_allclose(found[0], alone, rtol=1e-5)
            assert found[1][with_promo].mean() - found[1][~with_promo].mean() > 40
    for each in model.predict(10, [one, one], future_covariates=promo):  # one for all
        assert each.values()[with_promo].mean() - each.values()[~with_promo].mean() > 40
    with pytest.raises(ValueError, match="future_covariates must be one series or 2, got 1"):
        model.predict(10, [one, one], future_covariates=[promo])
    fitted = FourierHeadModel(tiny()).fit(one, future_covariates=promo)
    np.testing.assert_allclose(fitted.predict(10, one).values(), fitted.predict(10).values())


def test_darts_series_keep_their_own_calendar():
    dated, numbered = darts_series(walk(60)), darts_series(walk(40, 1))
    numbered = numbered.from_values(numbered.values())
    from fourier_head.integrations.darts import FourierHeadModel

    model = FourierHeadModel(tiny()).fit([dated, numbered])
    found = model.predict(6, [dated, numbered])
    for one, alone in zip(found, (model.predict(6, dated), model.predict(6, numbered)), strict=True):
        np.testing.assert_allclose(one.values(), alone.values(), rtol=1e-5)
        assert one.time_index.equals(alone.time_index)
    with pytest.raises(ValueError, match="series must be given"):
        model.predict(6)


def test_darts_backtests_without_training():
    one = darts_series(walk(40))
    from fourier_head.integrations.darts import FourierHeadModel

    model = FourierHeadModel(tiny()).fit(one)
    found = model.historical_forecasts(one, start=0.8, forecast_horizon=2, retrain=False)
    alone = tiny().predict([walk(40)[:31]], 2, freq="MS").median[0, 1]
    np.testing.assert_allclose(found.first_value(), alone)
    assert np.isfinite(model.backtest(one, start=0.8, forecast_horizon=2, retrain=False))


def test_darts_reads_weights_once(tmp_path):
    one = darts_series(walk(40))
    from fourier_head.integrations.darts import FourierHeadModel

    model = FourierHeadModel(tiny().save_pretrained(tmp_path / "tiny"), natural=False)
    found = model.fit(one).backtest(one, start=0.8, forecast_horizon=2, retrain=False)
    shutil.rmtree(tmp_path / "tiny")
    np.testing.assert_allclose(model.backtest(one, start=0.8, forecast_horizon=2), found)  # "trained" for each window
    assert not model.untrained_model().natural
