"""Whole paths: the copula over exact marginals, totals, calendar periods, functions of a path, scores of paths."""

import json
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import stats
from studies.joint_paths import choice
from studies.joint_paths.study import Settings, energy_score, run, variogram_score

from fourier_head.errors import UserError
from fourier_head.forecasting.corpora.store import SeriesStore
from fourier_head.forecasting.dependence import FREEDOM, KINDS, Dependence, correlations, student_cdf
from fourier_head.forecasting.inputs import read_series
from fourier_head.forecasting.windows import cut, past_windows
from tests.forecasting.test_forecaster import tiny, walk
from tests.studies.test_zero_shot import sets, waves  # noqa: F401 (a fixture)


def only(kind, series=1, period=7, freedom=FREEDOM, weight=1.0):
    weights = np.zeros((series, len(KINDS)))
    weights[:, KINDS.index(kind)] = weight
    return Dependence(weights, np.full(series, period), freedom)


def drawn(dependence, count=50_000, steps=6, seed=0):
    return dependence.scores(count, steps, torch.Generator().manual_seed(seed))


@pytest.fixture(scope="module")
def forecasts():
    data = {"a": walk(60), "b": walk(45, 1), "c": walk(9, 2)}
    return tiny().predict(data, horizon=20, freq="D", natural=False)


def test_paths_keep_every_marginal(forecasts):
    levels = [0.1, 0.5, 0.9]
    drawn = forecasts.samples(3000, torch.Generator().manual_seed(0))
    assert drawn.shape == (3, 3000, 20)
    below = (drawn[..., None] <= forecasts.quantiles(levels)[:, None]).mean(1)
    np.testing.assert_allclose(below, np.broadcast_to(levels, below.shape), atol=0.03)


def test_paths_are_repeatable_and_neighbours_hang_together(forecasts):
    one, two = (forecasts.samples(300, torch.Generator().manual_seed(3)) for _ in range(2))
    np.testing.assert_array_equal(one, two)
    apart = forecasts.samples(300, torch.Generator().manual_seed(3), joint=False)
    for series in range(3):
        assert np.corrcoef(one[series, :, 4], one[series, :, 5])[0, 1] > 0.2
        assert abs(np.corrcoef(apart[series, :, 4], apart[series, :, 5])[0, 1]) < 0.2


def test_drawn_scores_have_the_correlations_of_their_kind():
    for number, kind in enumerate(KINDS):
        z = only(kind, period=4).scores(20_000, 9, torch.Generator().manual_seed(0))[:, 0]
        np.testing.assert_allclose(np.corrcoef(z.T), correlations(9, 4)[number], atol=0.03, err_msg=kind)


def test_students_law_is_exact_and_wants_even_degrees_of_freedom():
    x = torch.linspace(-40, 40, 2001, dtype=torch.float64)
    for freedom in (2, 4, 8, 30):
        np.testing.assert_allclose(student_cdf(x, freedom), stats.t.cdf(x, freedom), atol=1e-14)
        back = stats.t.ppf(student_cdf(x[900:1101], freedom).numpy(), freedom)
        np.testing.assert_allclose(back, x[900:1101], atol=1e-9)
    for freedom in (0, 3):
        with pytest.raises(ValueError, match="even"):
            student_cdf(x, freedom)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("freedom", [2, 8, None])
def test_scores_of_every_step_are_standard_normal(kind, freedom):
    z = drawn(only(kind, freedom=freedom, weight=0.7))[:, 0]
    assert z.dtype == torch.float32
    assert z.device == torch.Generator().device
    for step in range(6):
        assert stats.kstest(z[:, step].numpy(), "norm").statistic < 0.012


def test_many_degrees_of_freedom_are_a_gaussian_copula():
    plain, many = (drawn(only("walk", freedom=freedom), 500) for freedom in (None, 20_000))
    np.testing.assert_allclose(many, plain, atol=0.1)  # of the same noise, path by path


def test_errors_of_a_path_share_their_size():
    apart, together = (drawn(only("level", freedom=freedom, weight=0.0))[:, 0].numpy() for freedom in (None, 4))
    for z in (apart, together):
        assert abs(np.corrcoef(z[:, 0], z[:, 5])[0, 1]) < 0.02
    sizes = [np.corrcoef(z[:, 0] ** 2, z[:, 5] ** 2)[0, 1] for z in (apart, together)]
    assert abs(sizes[0]) < 0.02
    assert sizes[1] > 0.2
    plain, heavy = (drawn(only("level", freedom=freedom, weight=0.5))[:, 0] for freedom in (None, 4))
    far = [float(((z > 2.3263).sum(-1) >= 2).float().mean()) for z in (plain, heavy)]
    assert far[1] > 1.3 * far[0]  # steps are far out together
    peaked = [np.subtract(*np.quantile(z.sum(-1), [0.75, 0.25])) for z in (plain, heavy)]
    assert peaked[1] < 0.97 * peaked[0]


def test_dependence_of_some_series_is_theirs():
    whole = Dependence(np.eye(5), np.arange(1, 6), 4)
    some = whole[1:3]
    np.testing.assert_array_equal(some.weights, np.eye(5)[1:3])
    assert some.periods.tolist() == [2, 3]
    assert some.freedom == 4


def test_dependence_is_found_in_past_errors_and_the_usual_one_holds_without_any():
    rng = np.random.default_rng(0)
    owner = np.repeat([0, 1], 300)
    independent = rng.standard_normal((300, 12))
    z = np.concatenate([rng.standard_normal((300, 12)).cumsum(1) / np.sqrt(np.arange(1, 13)), independent])
    found = Dependence.fitted(np.array([12, 12, 1]), z, owner).weights
    assert found[0, KINDS.index("walk")] > 0.75
    assert found[1].sum() < 0.2
    np.testing.assert_allclose(found[2], Dependence.usual(np.array([1])).weights[0], atol=0.01)
    assert (found >= 0).all()
    assert (found.sum(1) <= 1 + 1e-9).all()
    missing = np.where(rng.random(z.shape) < 0.3, np.nan, z)
    assert np.isfinite(Dependence.fitted(np.array([12, 12, 12]), missing, owner).weights).all()


def test_totals_are_quantiles_of_summed_paths_and_their_mean_is_exact(forecasts):
    total = forecasts.total()
    assert total.quantiles([0.1, 0.9]).shape == (3, 2)
    np.testing.assert_allclose(total.mean, forecasts.mean.sum(1))
    drawn = forecasts.samples(2000, torch.Generator().manual_seed(1)).sum(-1)
    width = np.ptp(np.quantile(drawn, [0.1, 0.9], axis=1), axis=0)
    np.testing.assert_allclose(np.ptp(total.quantiles([0.1, 0.9]), axis=1), width, rtol=0.12)
    np.testing.assert_array_equal(total.median, forecasts.total().median)  # the seed is the same
    table = total.to_frame([0.5])
    assert list(table.columns) == ["id", "mean", "0.5"]
    assert table["id"].tolist() == ["a", "b", "c"]


def test_totals_over_calendar_periods():
    dates = pd.date_range("2024-01-01", periods=40)
    table = pd.DataFrame({"shop": "x", "day": dates, "sold": walk(40)})
    forecasts = tiny().predict(table, horizon=30)  # 10 February to 10 March
    by_month = forecasts.total("MS")
    frame = by_month.to_frame([0.1, 0.9])
    assert frame["day"].dt.strftime("%Y-%m-%d").tolist() == ["2024-02-01", "2024-03-01"]
    np.testing.assert_allclose(frame["mean"], [forecasts.mean[0, :20].sum(), forecasts.mean[0, 20:].sum()])
    np.testing.assert_allclose(by_month.samples.sum(1), forecasts.total().samples, rtol=1e-9)
    assert len(forecasts.total("W").to_frame()) == 5
    with pytest.raises(ValueError, match="calendar period"):
        forecasts.total("often")
    with pytest.raises(ValueError, match="dates"):
        tiny().predict(walk(40), 5).total("MS")


def test_a_plot_shows_past_and_future(forecasts):
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    matplotlib.rcdefaults()  # other tests draw in styles of their own
    axes = forecasts.plot("b", past=30)
    past, median = (line.get_ydata() for line in axes.get_lines())
    np.testing.assert_array_equal(past, forecasts.series.values[1][-30:])
    np.testing.assert_allclose(median, forecasts.median[1])
    assert len(axes.collections) == 3
    assert axes.get_title() == "b"
    axes.figure.canvas.draw()
    labels = [label.get_window_extent() for label in axes.get_xticklabels() if label.get_text()]
    assert all(left.x1 < right.x0 for left, right in pairwise(labels)), "dates do not run into each other"
    with pytest.raises(ValueError, match="no series 'z'"):
        forecasts.plot("z")


def test_functions_of_paths(forecasts):
    peak = forecasts.of(lambda path: path.max(-1), paths=500)
    assert (peak.quantiles(0.5) > forecasts.median.mean(1)).all()
    with pytest.raises(ValueError, match="one number for each path"):
        forecasts.of(lambda path: path.max())
    with pytest.raises(ValueError, match="levels"):
        peak.quantiles(1.5)


def test_forecasts_of_whole_numbers_have_whole_paths_and_totals():
    counts = np.random.default_rng(0).poisson(3, 60)
    forecasts = tiny().predict(counts, 6, freq="D")
    for drawn in (forecasts.samples(50), forecasts.total(paths=50).samples):
        assert (drawn == np.rint(drawn)).all()
        assert (drawn >= 0).all()


def test_windows_end_where_the_series_does_and_know_their_dates():
    table = pd.DataFrame({"d": pd.date_range("2024-01-31", periods=30, freq="ME"), "v": np.arange(30.0)})
    series = read_series(table)
    windows = past_windows(series, horizon=4, count=3)
    assert windows.targets[:, 0].tolist() == [26, 22, 18]
    assert str(windows.pasts.future(1, 1)[0])[:7] == "2025-11"
    assert cut(series, [0], [0]).values[0].tolist() == list(range(30))
    assert len(past_windows(read_series([walk(9)]), horizon=4, count=3)) == 0


def test_scores_of_paths_prefer_the_truth():
    rng = np.random.default_rng(0)
    truth = rng.standard_normal((400, 6)).cumsum(1)
    right = rng.standard_normal((400, 100, 6)).cumsum(2)
    apart = rng.standard_normal((400, 100, 6)) * np.sqrt(np.arange(1, 7))
    assert energy_score(right, truth).mean() < energy_score(apart, truth).mean()
    assert variogram_score(right, truth).mean() < 0.8 * variogram_score(apart, truth).mean()


def test_the_study_of_joint_paths(tmp_path, sets):  # noqa: F811
    tiny().save_pretrained(tmp_path / "mine")
    summary = run(Settings(tmp_path / "out", evaluation=sets, model=str(tmp_path / "mine"), paths=50, device="cpu"))
    metrics = {(one["dataset"], one["protocol"], one["metric"]) for one in summary.rows}
    assert {("all", "joint", "coverage_80"), ("all", "independent", "interval_error")} < metrics
    assert "joint-paths" in json.loads((tmp_path / "out" / "summary.json").read_text())["command"]
    with pytest.raises(UserError, match="even"):
        run(Settings(tmp_path / "odd", evaluation=sets, freedom=3, device="cpu"))
    corpus = SeriesStore.from_series(waves(30, 120), period=12).save(tmp_path / "corpus.safetensors")
    plain = Settings(tmp_path / "held", corpus=corpus, model=str(tmp_path / "mine"), paths=50, freedom=0, device="cpu")
    summary = run(plain)
    weights = [one["ours"] for one in summary.rows if one["metric"] == "weight"]
    assert len(weights) == len(KINDS)
    assert sum(weights) <= 1 + 1e-6


def test_copulas_are_compared_on_held_out_series(tmp_path):
    tiny().save_pretrained(tmp_path / "mine")
    corpus = SeriesStore.from_series(waves(60, 120), period=12).save(tmp_path / "corpus.safetensors")
    told = ["--model", str(tmp_path / "mine"), "--freedom", "0", "6", "--paths", "50", "--moments", "2"]
    choice.main([str(corpus), *told, "--output", str(tmp_path / "out" / "choice.csv")])
    plain, other = pd.read_csv(tmp_path / "out" / "choice.csv").to_dict("records")
    assert (plain["copula"], other["copula"]) == (0, 6)
    assert plain["sets"] == 2  # months, and months summed to quarters
    assert plain["crps"] == plain["energy"] == plain["variogram"] == 1
    assert plain["lower"] == 0
    assert other["energy"] == pytest.approx(1, abs=0.2)
    assert 0 <= other["miss"] <= 0.5


@pytest.mark.parametrize(("quarters", "periods"), [(24, [4]), (28, [4, 1])])
def test_sums_that_are_too_short_to_forecast_make_no_set(quarters, periods):
    store = SeriesStore.from_series(waves(60, quarters), period=4)
    assert [period for period, _ in choice.held_out_sets(store)] == periods


def test_the_miss_weighs_frequencies_alike():
    groups, weights = np.array([0, 0, 1]), np.array([1.0, 3.0, 9.0])
    right = np.tile(choice.LEVELS, (3, 1))
    assert choice.miss(groups, weights, right) == pytest.approx(0)
    off = right + np.array([[0.04], [0.0], [-0.02]])
    assert choice.miss(groups, weights, off) == pytest.approx((0.01 + 0.02) / 2)
