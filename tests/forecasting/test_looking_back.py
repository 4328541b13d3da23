"""Looking back: backtests of one's own series, values that were not expected, gaps filled from both sides."""

import io

import numpy as np
import pandas as pd
import pytest

from tests.forecasting.test_forecaster import tiny, walk


def weeks(count, seed=0, noise=1.0):
    rng = np.random.default_rng(seed)
    return 50 + 10 * np.sin(2 * np.pi * np.arange(count) / 7) + rng.normal(0, noise, count)


def table(values, name="sold"):
    return pd.DataFrame({"day": pd.date_range("2023-01-02", periods=len(values)), name: values})


# --- backtest


def test_a_backtest_scores_what_predict_would_have_said():
    forecaster, values = tiny(), walk(60)
    result = forecaster.backtest(table(values), 5, windows=3)
    assert repr(result) == "Backtest(1 series, 3 windows of 5 steps)"
    scores, naive = [], []
    for end in (60, 55, 50):
        past, target = values[: end - 5], values[end - 5 : end]
        median = forecaster.predict(table(past), 5).median[0]
        scale = np.abs(past[7:] - past[:-7]).mean()
        scores.append(np.abs(target - median).mean() / scale)
        naive.append(np.abs(target - past[-7:][:5]).mean() / scale)
    assert result.overall["mase"] == pytest.approx(np.mean(scores), rel=1e-6)
    assert result.overall["naive_mase"] == pytest.approx(np.mean(naive), rel=1e-6)
    assert 0 <= result.overall["coverage_80"] <= 1


def test_a_backtest_has_a_row_for_each_series_under_its_own_names():
    rows = [{"shop": s, "item": i, "day": d, "v": v} for s, i, n in (("a", 1, 40), ("b", 2, 60), ("b", 1, 9))
            for d, v in zip(pd.date_range("2024-01-01", periods=n), walk(n), strict=True)]  # fmt: skip
    result = tiny().backtest(pd.DataFrame(rows), 6, windows=2, id=["shop", "item"])
    frame = result.to_frame()
    assert frame[["shop", "item", "windows"]].to_numpy().tolist() == [
        ["a", 1, 2],
        ["b", 2, 2],
    ]  # nine values are too few
    assert list(frame.columns[3:7]) == ["mase", "wql", "naive_mase", "naive_wql"]
    assert "of the series" in result.words


def test_a_backtest_of_a_plain_season_beats_the_naive_one_and_missing_values_do_no_harm(shipped):
    values = weeks(150, noise=3)
    values[[3, 77, 143]] = np.nan
    result = shipped.backtest(table(values), 7, windows=4)
    assert result.overall["mase"] < result.overall["naive_mase"]
    assert "smaller" in result.words


def test_a_backtest_of_what_only_repeats_itself_has_a_sentence_of_its_own():
    still = [5.0] * 60
    for values in (still, np.tile(range(7), 9)):
        said = tiny().backtest(values, 7, windows=2, freq="D").words
        assert "of the past, values only repeated the season before, so that errors have no unit. Intervals" in said
        assert "nan" not in said
    late = [*range(20), *[7.0] * 40]
    assert "repeating the last season made no errors (MASE" in tiny().backtest(late, 7, windows=1, freq="D").words
    both = tiny().backtest([still, walk(60), walk(60)], 10, windows=2, freq="D")
    better = np.mean([row["mase"] <= row["naive_mase"] for row in both.rows[1:]])
    assert f"no larger in {better:.0%} of the series" in both.words


def test_a_backtest_says_what_is_wrong():
    with pytest.raises(ValueError, match="long enough"):
        tiny().backtest(walk(9), 5)
    for wrong in ({"windows": 0}, {"stride": 0}, {"horizon": 2.5}):
        with pytest.raises(ValueError, match="whole number"):
            tiny().backtest(walk(50), **{"horizon": 5, **wrong})


def test_what_only_predict_takes_and_pasts_without_a_value_are_named():
    sold = table(walk(40))
    for ask in (lambda: tiny().backtest(sold, 3, future=sold), lambda: tiny().anomalies(sold, future=sold)):
        with pytest.raises(ValueError, match="future is for predict alone"):
            ask()
    with pytest.raises(ValueError, match="holidays is for predict alone"):
        tiny().impute(sold, holidays="DE")
    with pytest.raises(ValueError, match="hold no value at all"):
        tiny().backtest([np.nan] * 60, 3)


def test_the_command_shows_a_backtest(run, tmp_path):
    table(weeks(80)).to_csv("sales.csv", index=False)
    out = run("sales.csv", "--horizon", 5, "--backtest", 3, "-o", "out")
    assert out.exit_code == 0, out.output
    assert "In 3 windows of 5 steps" in out.output
    page = (tmp_path / "out" / "index.html").read_text()
    assert 'id="trust"' in page
    assert 'href="#trust"' in page
    assert "--backtest 3" in page
    assert pd.read_csv(tmp_path / "out" / "backtest.csv")["windows"].tolist() == [3]


# --- anomalies


def test_an_outlier_is_an_anomaly_and_few_others_are(shipped):
    values = weeks(120)
    values[100] = 90
    found = shipped.anomalies(table(values), last=40)
    assert len(found) == 40
    assert found.loc[found["day"] == pd.Timestamp("2023-04-12"), "anomaly"].tolist() == [True]
    assert found["anomaly"].sum() <= 3
    assert found["day"][found["score"].abs().idxmax()] == pd.Timestamp("2023-04-12")


def test_anomalies_of_several_steps_cost_less_and_end_with_the_series():
    found = tiny().anomalies({"a": walk(40), "b": walk(23)}, steps=8)
    assert found.groupby("id")["step"].agg(["min", "max"]).to_numpy().tolist() == [[12, 39], [12, 22]]
    with pytest.raises(ValueError, match="share"):
        tiny().anomalies(walk(40), share=1.0)
    with pytest.raises(ValueError, match="more than 12 values"):
        tiny().anomalies(walk(10))


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_what_takes_long_shows_how_far_it_is(monkeypatch):
    seen, terminal = [], Terminal()
    tiny().anomalies(walk(40), last=20, progress=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (20, 20)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("sys.stderr", terminal)
    tiny().anomalies(walk(40), last=20)
    assert not terminal.getvalue()  # it was quick
    monkeypatch.setattr("fourier_head.forecasting.progress.SOON", 0.0)
    for look in (lambda f: f.anomalies(walk(40), last=20), lambda f: f.backtest(walk(40), 3, windows=4)):
        terminal.truncate(0)
        look(tiny())
        assert "forecasting" in terminal.getvalue()
    terminal.truncate(0)
    tiny().anomalies(walk(40), last=20, progress=False)
    assert not terminal.getvalue()


# --- imputation


def test_gaps_are_filled_from_both_sides(shipped):
    truth = weeks(140)
    values = truth.copy()
    values[60:74] = values[100] = np.nan
    filled = shipped.impute(table(values))
    gap = filled["filled"].to_numpy()
    assert gap.sum() == 15
    np.testing.assert_array_equal(filled.loc[~gap, "value"], truth[~gap])
    assert np.abs(filled["value"] - truth)[gap].mean() < 2.0  # the season alone would be 6.4 off, were it not seen
    inside = (filled["low"] <= truth) & (truth <= filled["high"])
    assert inside[gap].mean() >= 0.5
    assert (filled["low"] <= filled["value"])[gap].all()


def test_two_sides_of_noise_know_no_more_than_one(shipped):
    truth = np.random.default_rng(0).poisson(20, (30, 200)).astype(float)
    walks = np.random.default_rng(0).normal(size=(30, 200)).cumsum(1)
    for values, least, most in ((truth, 0.7, 0.92), (walks, 0.65, 0.92)):
        gappy = values.copy()
        gappy[:, [60, 100, *range(140, 146)]] = np.nan
        filled = shipped.impute(gappy, freq="D")
        gap = filled["filled"].to_numpy()
        inside = (filled["low"] <= values.ravel()) & (values.ravel() <= filled["high"])
        assert least < inside[gap].mean() < most


def test_gaps_of_counts_are_filled_by_counts():
    values = np.random.default_rng(0).poisson(2, (2, 60)).astype(float)
    values[1] /= 4
    values[:, [0, 20, 21, 22, 45, 59]] = np.nan
    both = {"counts": values[0], "shares": values[1]}
    filled = tiny().impute(both)
    ends = [filled.loc[(filled["id"] == name) & filled["filled"], ["value", "low", "high"]].to_numpy() for name in both]
    assert all(len(one) == 6 and one.min() >= 0 for one in ends)
    np.testing.assert_array_equal(ends[0], np.rint(ends[0]))
    assert (ends[1] % 0.25).any()
    free = tiny().impute(both, natural=False)
    assert (free.loc[free["filled"], "value"] % 1).any()


def test_rows_at_the_end_of_a_table_are_filled_too():
    values = walk(40)
    values[[20, 38, 39]] = np.nan
    filled = tiny().impute(table(values))
    assert len(filled) == 40
    assert filled["value"].notna().all()


def test_gaps_at_the_ends_and_series_without_values_are_left_to_one_side_or_to_themselves():
    values = walk(30)
    values[:3] = values[-2:] = np.nan
    filled = tiny().impute({"a": values, "b": [np.nan, np.nan]})
    a, b = (filled[filled["id"] == name] for name in "ab")
    assert a["value"].notna().all()
    assert b["value"].isna().all()


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda f: f.anomalies(walk(40), last="3"), "last must be a whole number from 1 on, got '3'"),
        (lambda f: f.anomalies(walk(40), last=2.5), "last must be a whole number from 1 on, got 2.5"),
        (lambda f: f.anomalies(walk(40), steps="2"), "steps must be a whole number from 1 on, got '2'"),
        (lambda f: f.anomalies(walk(40), share="0.9"), "share must be a number between 0 and 1, got '0.9'"),
        (lambda f: f.impute(walk(40), share=80), "share must be a number between 0 and 1, got 80"),
        (lambda f: f.predict(walk(40), 3, holidays=5), "holidays must be the code of a country"),
        (lambda f: f.predict(table(walk(40)), 3, id=5), "there is no column 5"),
        (lambda f: f.predict(table(walk(40)), 3, target=["sold"]), "target must be the name of one column"),
        (lambda f: f.predict(table(walk(40)), 3, covariates="price"), "the data has no column 'price'"),
        (lambda f: f.predict(table(walk(40)), 3, fill="0"), "fill must be a finite number, got '0'"),
        (lambda f: f.fine_tune(walk(40), steps="3"), "steps must be a number, got '3'"),
        (lambda f: f.fine_tune(walk(40), horizon="3"), "horizon must be a number, got '3'"),
        (lambda f: f.fine_tune(walk(40), lora="x"), "lora must be True, False or a rank"),
        (lambda f: f.fine_tune(walk(40), seed="0"), "seed must be a whole number, got '0'"),
        (lambda f: f.predict(walk(40), 3).samples("5"), "count must be a whole number, got '5'"),
        (lambda f: f.predict(walk(40), 3).samples(5, 0), "generator must be a torch.Generator"),
        (lambda f: f.predict(walk(40), 3).quantiles([0.5, "a"]), "levels must be numbers between 0 and 1"),
        (
            lambda f: f.predict(walk(40), 3).cdf([1, 2]),
            r"the shape \(series, horizon\), here \(1, 3\), got shape \(2,\)",
        ),
        (lambda f: f.predict(table(walk(40)), 3).total(5), "freq must be a calendar period"),
        (lambda f: f.predict(walk(40), 3).total(paths="5"), "paths must be a whole number, got '5'"),
        (lambda f: f.predict(walk(40), 3).of("max"), "function must take paths"),
        (lambda f: f.predict(walk(40), 3).plot(past="5"), "past must be a whole number, got '5'"),
    ],
)
def test_arguments_that_cannot_be_are_named(ask, message):
    with pytest.raises((TypeError, ValueError), match=message):
        ask(tiny())


def test_counts_may_come_as_floats():
    forecaster, values = tiny(), walk(40)
    pd.testing.assert_frame_equal(
        forecaster.anomalies(values, last=3.0, steps=1.0), forecaster.anomalies(values, last=3, steps=1)
    )
    tuned = forecaster.fine_tune(values, steps=2.0, batch=4.0, horizon=3.0, patience=2.0, every=1.0)
    assert tuned.history[-1].last == 2
