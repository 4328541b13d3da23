"""Evaluation of forecasts: sets, scores equal to gluonts', the published baselines, aggregates and charts."""

import math

import numpy as np
import pytest
import torch
from studies.common.benchmark_sets import (
    BENCHMARK,
    geometric_mean,
    read_evaluation_sets,
    read_published_scores,
    relative_scores,
    verified_names,
)

from fourier_head.errors import UserError
from fourier_head.forecasting.evaluation import SEASONAL_NAIVE, EvaluationSet, evaluate, evaluate_seasonal_naive
from fourier_head.forecasting.scores import (
    DECILES,
    Forecast,
    central_levels,
    observed_frequencies,
    quantiles_of_samples,
    scales,
    score,
)
from fourier_head.forecasting.seasonal_naive import SeasonalNaive, repeat_season
from fourier_head.metrics import pit_histogram


def ragged(rng, lengths, missing=0.0):
    """Return random walks of these lengths with some values missing."""
    out = []
    for n in lengths:
        one = rng.normal(size=n).cumsum() + 10
        one[rng.random(n) < missing] = np.nan
        out.append(one)
    return out


# --- scores


@pytest.mark.parametrize("season", [1, 4, 12])
@pytest.mark.filterwarnings("ignore:Mean of empty slice")
def test_scales_are_mean_changes_over_a_season_or_a_step(season):
    rng = np.random.default_rng(season)
    series = [*ragged(rng, [1, 2, 4, 5, 12, 13, 40, 100], missing=0.2), np.full(20, np.nan), np.full(9, 3.0)]
    lags = [season if season < len(one) else 1 for one in series]
    expected = [np.nanmean(np.abs(one[lag:] - one[:-lag])) for one, lag in zip(series, lags, strict=True)]
    np.testing.assert_allclose(scales(series, season), expected, rtol=1e-12)


@pytest.mark.parametrize("case", range(4))
def test_scores_equal_gluonts(case):
    pd = pytest.importorskip("pandas")
    pytest.importorskip("gluonts")
    from gluonts.dataset.split import split
    from gluonts.ev.metrics import MASE, MeanWeightedSumQuantileLoss
    from gluonts.model import evaluate_forecasts
    from gluonts.model.forecast import QuantileForecast

    rng = np.random.default_rng(case)
    horizon, season, missing = [(6, 1, 0.0), (8, 4, 0.1), (12, 12, 0.3), (5, 24, 0.05)][case]
    lengths = rng.integers(horizon + 3, 60, size=30)
    # gluonts has no scale for a history of exactly one season, where we fall back on season 1; leave it out.
    lengths[lengths - horizon == season] += 1
    series = ragged(rng, lengths, missing)
    series[0][:] = 2.0  # no seasonal error
    series[1][-horizon:] = np.nan  # nothing to predict
    quantiles = np.sort(rng.normal(10, 3, size=(len(series), horizon, 9)), axis=-1)
    one = EvaluationSet("random", series, horizon, season)
    got = score(Forecast(quantiles), one.targets(), one.contexts(), season)

    start = pd.Period("2000-01-01", "D")
    data = [{"start": start, "target": values} for values in series]
    _, template = split(data, offset=-horizon)
    keys = [str(level) for level in DECILES]
    forecasts = [
        QuantileForecast(q.T, start_date=start + (len(s) - horizon), forecast_keys=keys)
        for q, s in zip(quantiles, series, strict=True)
    ]
    wanted = evaluate_forecasts(
        forecasts,
        test_data=template.generate_instances(horizon),
        metrics=[MASE(), MeanWeightedSumQuantileLoss(list(DECILES))],
        seasonality=season,
    ).iloc[0]
    assert got["mase"] == pytest.approx(wanted["MASE[0.5]"], rel=1e-10)
    assert got["wql"] == pytest.approx(wanted["mean_weighted_sum_quantile_loss"], rel=1e-10)


def test_quantiles_of_samples_equal_gluonts():
    pd = pytest.importorskip("pandas")
    pytest.importorskip("gluonts")
    from gluonts.model.forecast import SampleForecast

    samples = np.random.default_rng(0).normal(size=(3, 20, 5))
    got = Forecast.from_samples(torch.from_numpy(samples)).quantiles
    for paths, row in zip(samples, got, strict=True):
        forecast = SampleForecast(paths, start_date=pd.Period("2000", "Y"))
        wanted = np.stack([forecast.quantile(level) for level in DECILES], axis=-1)
        np.testing.assert_array_equal(row, wanted)
    with pytest.raises(ValueError, match="shape"):
        quantiles_of_samples(samples[0])


def test_calibrated_forecasts_have_their_coverage():
    rng = np.random.default_rng(0)
    target = rng.random((400, 50))
    target[:, ::7] = np.nan
    contexts = [rng.random(10) for _ in target]
    levels = central_levels()
    forecast = Forecast(np.broadcast_to(levels, (*target.shape, len(levels))), levels)
    by_quantiles = score(forecast, target, contexts, 1)
    for share in (50, 80, 95):
        assert by_quantiles[f"coverage_{share}"] == pytest.approx(share / 100, abs=0.01)
    np.testing.assert_allclose(by_quantiles["pit"], pit_histogram(target, 10), atol=1e-9)
    np.testing.assert_allclose(by_quantiles["pit"], 0.1, atol=0.01)
    np.testing.assert_allclose(observed_frequencies(forecast, target), levels, atol=0.01)
    assert by_quantiles["interval_error"] < 0.01
    # The coverage of deciles alone is known for one interval only.
    alone = score(Forecast(forecast.at(*DECILES)), target, contexts, 1)
    assert alone["coverage_80"] is not None
    assert alone["coverage_95"] is None
    assert alone["interval_error"] is None


def test_a_missing_forecast_is_refused_unless_allowed():
    target, contexts = np.array([[1.0, 2.0]]), [np.array([0.0, 1.0])]
    quantiles = np.full((1, 2, 9), 1.0)
    quantiles[0, 1, 3] = np.nan
    with pytest.raises(ValueError, match=r"forecasts must .*got 1 of 2"):
        score(Forecast(quantiles), target, contexts, 1)
    row = score(Forecast(quantiles), target, contexts, 1, allow_missing=True)
    assert (row["mase"], row["wql"], row["without_forecast"]) == (0.0, 0.0, 1)


@pytest.mark.parametrize(
    ("quantiles", "levels", "message"),
    [
        (np.zeros((2, 3)), DECILES, "quantiles must have shape"),
        (np.zeros((2, 3, 4)), DECILES, "9 levels"),
        (np.zeros((2, 3, 2)), (0.5, 0.1), "levels must ascend"),
        (np.zeros((2, 3, 2)), (0.5, 1.0), "levels must ascend"),
    ],
)
def test_forecasts_of_the_wrong_shape_get_one_sentence(quantiles, levels, message):
    with pytest.raises(ValueError, match=message):
        Forecast(quantiles, levels)
    with pytest.raises(ValueError, match="must have the levels"):
        Forecast(np.zeros((1, 1, 1)), [0.5]).at(0.1)


# --- evaluating


def test_evaluate_takes_tensors_forecasts_and_reports_as_it_goes():
    rng = np.random.default_rng(1)
    sets = [EvaluationSet(name, ragged(rng, [20, 30]), 4, 1, "YE") for name in ("a", "b")]
    seen, done = [], []

    def median(contexts, horizon, freq):
        seen.append((len(contexts), horizon, freq))
        last = torch.tensor([one[-1] for one in contexts])
        return last[:, None, None].expand(-1, horizon, 9)

    rows = evaluate(median, sets, model="last", report=done.append)
    assert seen == [(2, 4, "YE")] * 2
    assert done == rows
    naive = evaluate_seasonal_naive(sets)
    assert [row["model"] for row in naive] == [SEASONAL_NAIVE] * 2
    for ours, theirs in zip(rows, naive, strict=True):
        assert ours["mase"] == pytest.approx(theirs["mase"])
        assert ours["wql"] == pytest.approx(theirs["wql"])
        assert ours["seconds"] >= 0
        assert theirs["coverage_80"] is None
    with pytest.raises(ValueError, match="forecasts must have shape"):
        evaluate(lambda contexts, horizon, freq: np.zeros((1, horizon, 9)), sets)


def test_seasonal_naive_repeats_whole_and_broken_seasons():
    contexts = [np.arange(10.0), np.array([1.0, np.nan, 3.0]), np.array([5.0, 6.0])]
    got = repeat_season(contexts, 5, 3)
    np.testing.assert_array_equal(got, [[7, 8, 9, 7, 8], [1, np.nan, 3, 1, np.nan], [6, 6, 6, 6, 6]])
    assert SeasonalNaive()(contexts[:1], 24, "ME").quantiles.shape == (1, 24, 9)
    with pytest.raises(ValueError, match="at least one value"):
        repeat_season([np.array([])], 2, 1)


def test_relative_scores_are_geometric_means_of_ratios():
    def row(model, dataset, status, mase, wql, error=None):
        return {"model": model, "dataset": dataset, "status": status, "mase": mase, "wql": wql, "interval_error": error}

    naive = [row("naive", "a", "verified", 2, 1), row("naive", "b", "verified", 1, 1), row("naive", "c", "own", 1, 1)]
    ours = [
        row("m", "a", "verified", 1.0, 0.5, 0.02),
        row("m", "b", "verified", 2.0, 0.5, 0.04),
        row("m", "c", "own", 8.0, 1.0, 0.0),
        row("m", "unknown", "verified", 100.0, 100.0),
    ]
    verified, everything = relative_scores(ours, naive)
    assert (verified["dataset"], verified["sets"], everything["dataset"], everything["sets"]) == (
        "verified",
        2,
        "all",
        3,
    )
    assert verified["relative_mase"] == pytest.approx(1.0)
    assert verified["relative_wql"] == pytest.approx(0.5)
    assert everything["relative_mase"] == pytest.approx(2.0)
    assert verified["interval_error"] == pytest.approx(0.03)
    assert math.isnan(geometric_mean([]))
    assert math.isnan(geometric_mean([1.0, 0.0]))


# --- sets


def write_set(path, **columns):
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    pq.write_table(pa.table(columns), path)


def test_sets_are_read_with_what_the_benchmark_knows_of_them(tmp_path):
    long = np.arange(30.0).tolist()
    write_set(tmp_path / "hospital.parquet", id=["x"], start=["2000-01-01"], freq=["ME"], target=[long])
    write_set(
        tmp_path / "mine.parquet", id=["x", "y"], start=["", ""], freq=["h", "h"], target=[[*long[:-1], None], [1.0]]
    )
    hospital, mine = read_evaluation_sets(tmp_path, horizon=3)
    assert (hospital.horizon, hospital.season, hospital.status, hospital.starts) == (12, 12, "verified", ["2000-01-01"])
    assert (mine.horizon, mine.season, mine.status, len(mine)) == (3, 24, "own", 1)
    assert np.isnan(mine.targets()[0, -1])
    assert mine.series[0].dtype == np.float32
    assert read_evaluation_sets(tmp_path, ["hospital"])[0].name == "hospital"


def test_infinite_values_of_a_set_are_missing(tmp_path):
    write_set(tmp_path / "mine.parquet", freq=["D"], target=[[0.0, math.inf, 2.0, 3.0, 4.0, -math.inf]])
    (naive,) = evaluate_seasonal_naive(read_evaluation_sets(tmp_path, horizon=2))
    assert (naive["mase"], naive["wql"]) == (1.0, 0.25)  # the scale is that of the only step between two values


def test_bad_folders_and_files_get_one_sentence(tmp_path):
    with pytest.raises(UserError, match="must be a folder of parquet files"):
        read_evaluation_sets(tmp_path / "nowhere")
    write_set(tmp_path / "mine.parquet", freq=["h", "D"], target=[[1.0, 2.0], [1.0, 2.0]])
    with pytest.raises(UserError, match="horizon must be given for mine"):
        read_evaluation_sets(tmp_path)
    with pytest.raises(UserError, match="one frequency, got D, h"):
        read_evaluation_sets(tmp_path, horizon=1)
    with pytest.raises(UserError, match="did you mean mine"):
        read_evaluation_sets(tmp_path, ["mime"])
    write_set(tmp_path / "mine.parquet", freq=["h", None], target=[[1.0, 2.0], [1.0, 2.0]])
    with pytest.raises(UserError, match="one frequency, got None, h"):
        read_evaluation_sets(tmp_path, horizon=1)
    write_set(tmp_path / "mine.parquet", freq=["h"], target=["text"])
    with pytest.raises(UserError, match="must be lists of numbers, one series per row, got string"):
        read_evaluation_sets(tmp_path, horizon=1)
    write_set(tmp_path / "mine.parquet", freq=["h"], value=[1.0])
    with pytest.raises(UserError, match="has no column 'target': "):
        read_evaluation_sets(tmp_path, horizon=1)
    write_set(tmp_path / "mine.parquet", freq=["h"], target=[[1.0]])
    with pytest.raises(UserError, match="longer than the horizon of 1, got none"):
        read_evaluation_sets(tmp_path, horizon=1)
    with pytest.raises(ValueError, match="longer than the horizon"):
        EvaluationSet("short", [np.zeros(3)], 3, 1)


def test_a_cut_set_is_no_longer_verified():
    one = EvaluationSet("a", [np.zeros(5), np.zeros(6)], 2, 1, status="verified", starts=["x", "y"])
    assert one.head(2) is one
    assert (one.head(1).status, len(one.head(1)), one.head(1).starts) == ("partial", 1, ["x"])


# --- the published numbers


def test_seasonal_naive_gives_the_published_scores_of_every_verified_set(shared):
    published = {
        row["dataset"]: row for row in read_published_scores(shared / "reference/seasonal_naive_zero_shot.csv")
    }
    sets = read_evaluation_sets(shared / "data/eval", verified_names())
    rows = evaluate_seasonal_naive(sets)
    assert len(rows) == 15
    for row in rows:
        for key in ("mase", "wql"):
            assert row[key] == pytest.approx(published[row["dataset"]][key], rel=1e-5), (row["dataset"], key)


def test_published_models_have_the_aggregates_everyone_quotes(shared):
    rows = read_published_scores(shared / "reference/chronos_published_zero_shot.csv")
    naive = [row for row in rows if row["model"] == SEASONAL_NAIVE]
    assert len(naive) == 20
    assert sum(row["status"] == "verified" for row in naive) == 15
    got = {(row["model"], row["dataset"]): row for row in relative_scores(rows, naive)}
    wanted = {
        "chronos-t5-mini": (0.890, 0.785),
        "chronos-t5-large": (0.827, 0.716),
        "chronos-bolt-mini": (0.883, 0.727),
        "chronos-bolt-base": (0.825, 0.698),
    }
    for model, (mase, wql) in wanted.items():
        row = got[model, "verified"]
        assert row["sets"] == 15
        assert (round(row["relative_mase"], 3), round(row["relative_wql"], 3)) == (mase, wql)
    other = read_published_scores(shared / "reference/seasonal_naive_zero_shot.csv")
    assert {(r["dataset"], r["mase"]) for r in other} == {(r["dataset"], r["mase"]) for r in naive}


def test_bad_tables_of_published_scores_get_one_sentence(tmp_path):
    with pytest.raises(UserError, match="cannot be read"):
        read_published_scores(tmp_path / "none.csv")
    table = tmp_path / "table.csv"
    for text in ("", "a,b\n1,2\n", "dataset,score\nm5,1\n"):
        table.write_text(text)
        with pytest.raises(UserError, match="table of published scores"):
            read_published_scores(table)
    table.write_text("dataset,model,MASE,WQL\nm5,x,1.0,much\n")
    with pytest.raises(UserError, match="got 'much' for x on m5"):
        read_published_scores(table)
    table.write_text("dataset,model,MASE,WQL\nm5,x,1.0\n")
    with pytest.raises(UserError, match="got '' for x on m5"):
        read_published_scores(table)
    table.write_text(",x,x,y,y\nset,MASE,WQL,MASE,WQL\nm5,1.0,0.5,1.0,\n")
    assert [row["model"] for row in read_published_scores(table)] == ["x"]  # y has one of two scores


def test_the_registry_names_every_set_once():
    assert len({known.published for known in BENCHMARK.values()}) == len(BENCHMARK) == 20


def test_intervals_of_counts_are_judged_with_their_jumps():
    """Forecasts that know the distribution of counts are calibrated, though half of the counts are zero."""
    rng = np.random.default_rng(0)
    outcomes = np.sort(rng.poisson(0.7, 200_000)).astype(float)
    levels = tuple(round(0.025 * i, 3) for i in range(1, 40))
    truth = np.quantile(outcomes, levels, method="inverted_cdf")
    target = rng.poisson(0.7, (4000, 5)).astype(float)
    row = score(Forecast(np.tile(truth, (4000, 5, 1)), levels), target, [np.arange(5.0)] * 4000, 1)
    assert row["interval_error"] < 0.02  # jumps are known to half a step of the levels
    np.testing.assert_allclose(row["pit"], 0.1, atol=0.03)
