"""Evaluation of forecasts: sets, scores equal to gluonts', the published baselines, aggregates and charts."""

import numpy as np
import pytest
import torch

from fourier_head.forecasting.evaluation import (
    SEASONAL_NAIVE,
    EvaluationSet,
    evaluate,
    evaluate_seasonal_naive,
    repeat_season,
)
from fourier_head.forecasting.scores import (
    DECILES,
    Forecast,
    central_levels,
    observed_frequencies,
    quantiles_of_samples,
    scales,
    score,
)
from fourier_head.metrics import pit_histogram


def ragged(rng, lengths, missing=0.0):
    """Return random walks of these lengths with some values missing."""
    out = []
    for n in lengths:
        one = rng.normal(size=n).cumsum() + 10
        one[rng.random(n) < missing] = np.nan
        out.append(one)
    return out


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


def test_a_forecaster_is_told_when_series_start_where_that_is_known():
    series = [np.arange(9.0), np.arange(7.0), np.arange(8.0)]
    one = EvaluationSet("a", series, 2, 1, "ME", starts=["2023-11-30", "", "1066-10-14"])
    seen = []

    def last(entries, horizon, freq):
        seen.extend(entries)
        return np.zeros((3, horizon, 9))

    assert evaluate(last, [one], dated=True)[0]["mase"] == evaluate(last, [one])[0]["mase"]
    assert seen[0]["start"] == np.datetime64("2023-11-30")
    np.testing.assert_equal(
        [entry["target"] if isinstance(entry, dict) else entry for entry in seen], one.contexts() * 2
    )
    assert [isinstance(entry, dict) for entry in seen] == [True, False, False] + [
        False
    ] * 3  # unknown, and too long ago
    short = one.entries(longest=3)[0]  # of nine months the last two are held out
    np.testing.assert_equal(short["target"], [4.0, 5.0, 6.0])
    assert short["start"] == np.datetime64("2024-03-31")


def test_seasonal_naive_repeats_whole_and_broken_seasons():
    contexts = [np.arange(10.0), np.array([1.0, np.nan, 3.0]), np.array([5.0, 6.0])]
    got = repeat_season(contexts, 5, 3)
    np.testing.assert_array_equal(got, [[7, 8, 9, 7, 8], [1, np.nan, 3, 1, np.nan], [6, 6, 6, 6, 6]])
    with pytest.raises(ValueError, match="at least one value"):
        repeat_season([np.array([])], 2, 1)


def test_a_cut_set_is_no_longer_verified():
    one = EvaluationSet("a", [np.zeros(5), np.zeros(6)], 2, 1, status="verified", starts=["x", "y"])
    assert one.head(2) is one
    assert (one.head(1).status, len(one.head(1)), one.head(1).starts) == ("partial", 1, ["x"])


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
