"""The forecaster people use: any data in, a proper distribution for every step out."""

import pickle
import warnings

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch

from fourier_head.errors import UserError
from fourier_head.forecasting.forecaster import Forecaster
from fourier_head.forecasting.patch.multiscale import MultiscaleConfig, MultiscaleForecaster
from fourier_head.forecasting.rolling import normalise

CONFIG = MultiscaleConfig(spans=(32, 64), horizon=16, patch=8, width=16, layers=1, heads=2)
LEVELS = [0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99]


def tiny(config=CONFIG, seed=0):
    torch.manual_seed(seed)
    model = MultiscaleForecaster(config)
    with torch.no_grad():
        # Away from the start: densities of many shapes rather than one bell.
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return Forecaster(model)


def walk(count, seed=0):
    return 20 + np.random.default_rng(seed).standard_normal(count).cumsum()


# --- a proper distribution, near and far


@pytest.mark.parametrize("horizon", [1, 5, 16, 17, 40])
def test_quantiles_never_cross_and_agree_with_the_cdf(forecaster, horizon):
    forecasts = forecaster.predict([walk(50), walk(7, 1)], horizon, freq="D", natural=False)
    quantiles = forecasts.quantiles(LEVELS)
    assert quantiles.shape == (2, horizon, len(LEVELS))
    assert np.isfinite(quantiles).all()
    assert (np.diff(quantiles, axis=-1) > 0).all()
    for i, level in enumerate(LEVELS):
        np.testing.assert_allclose(forecasts.cdf(quantiles[..., i]), level, atol=2e-5)
    np.testing.assert_allclose(forecasts.median, quantiles[..., 3], rtol=1e-5)


def test_forecasts_keep_to_values_that_a_series_can_take(forecaster):
    counts = np.random.default_rng(0).poisson(0.7, 60).astype(float)
    counts[5] = np.nan
    series = [counts, counts / 3, np.random.default_rng(1).poisson(9, 60) - 6.0, counts[:5]]
    free, held = (forecaster.predict(series, 40, freq="W", natural=natural) for natural in (False, True))
    before, after = free.quantiles(LEVELS), held.quantiles(LEVELS)
    assert (before[:2] < 0).any()
    np.testing.assert_array_equal(after[0], np.rint(before[0]).clip(0))
    np.testing.assert_array_equal(after[1], before[1].clip(0))
    np.testing.assert_array_equal(after[2], np.rint(before[2]))
    np.testing.assert_array_equal(after[3], before[3])  # five values say nothing about what is possible
    drawn = held.samples(50)
    assert (drawn[0] == np.rint(drawn[0])).all()
    assert drawn.shape == (4, 50, 40)
    assert drawn[:2].min() == 0
    assert drawn[2].min() < -4
    np.testing.assert_array_equal(held.mean[:2], free.mean[:2].clip(0))
    middle = torch.from_numpy(before[..., 3])
    assert torch.equal(held.density.cdf(middle), free.density.cdf(middle))


def test_the_cdf_is_that_of_the_outcomes(forecaster):
    rng = np.random.default_rng(0)
    counts, rare = rng.poisson(3, 60), np.where(rng.random(60) < 0.1, rng.integers(1, 4, 60), 0)
    forecasts = forecaster.predict([counts, counts / 3.0, rare, walk(60)], 5, freq="W")
    assert list(forecasts.support.rare) == [2]
    drawn = forecasts.samples(4000, torch.Generator().manual_seed(0), joint=False)
    for value in (-0.5, 0.0, 0.4, 1.0, 2.7):
        np.testing.assert_allclose(forecasts.cdf(value), (drawn <= value).mean(1), atol=0.04)
    reached = forecasts.cdf(forecasts.quantiles(0.3))
    assert (reached[:3] > 0.2999).all()  # an outcome of some probability may go beyond
    np.testing.assert_allclose(reached[3], 0.3, atol=2e-5)
    several = forecasts.cdf(np.array([1.0, 2.0, np.nan])[:, None, None])
    np.testing.assert_allclose(several[0], forecasts.cdf(1.0), rtol=1e-5)
    assert np.isnan(several[2]).all()


def test_a_longer_horizon_keeps_the_first_steps(forecaster):
    short, long = (forecaster.predict([walk(50)], h, freq="D").quantiles(LEVELS) for h in (16, 40))
    np.testing.assert_allclose(long[:, :16], short, rtol=1e-5)


def test_a_far_density_is_the_mixture_over_its_paths(forecaster):
    density = forecaster.predict([walk(50)], 20, freq="D").density
    near, far = density.blocks
    assert near.batch_shape == (1, 16)
    assert far.components.batch_shape == (9, 1, 4)
    assert density.paths == 9
    assert float(far.weights.sum()) == pytest.approx(1)
    x = density.quantile(0.3)[:, 16:]
    mixed = (far.weights[:, None, None] * far.components.cdf(x)).sum(0)
    torch.testing.assert_close(mixed, torch.full_like(mixed, 0.3))
    torch.testing.assert_close(density.mean[:, 16:], far.mean)


def test_samples_follow_the_density_and_their_seed(forecaster):
    forecasts = forecaster.predict([walk(50), walk(30, 2)], 20, freq="D")
    np.testing.assert_array_equal(*(forecasts.samples(50, torch.Generator().manual_seed(3)) for _ in range(2)))
    draw = forecasts.samples(3000, torch.Generator().manual_seed(3))
    assert draw.shape == (2, 3000, 20)
    levels = [0.1, 0.5, 0.9]
    below = (draw[..., None] < forecasts.quantiles(levels)[:, None]).mean(1)
    np.testing.assert_allclose(below, np.broadcast_to(levels, below.shape), atol=0.03)


def test_forecasts_survive_a_pickle(forecaster):
    forecasts = forecaster.predict([walk(60), walk(40, 1)], 20, freq="D")
    again = pickle.loads(pickle.dumps(forecasts))
    draws = (one.samples(5, torch.Generator().manual_seed(0)) for one in (again, forecasts))
    np.testing.assert_array_equal(*draws)


def test_one_series_is_taken_by_its_name(forecaster):
    dates = pd.date_range("2024-01-01", periods=60)
    wide = pd.DataFrame({"a": walk(60), "b": np.arange(60) % 7 + 100, "c": walk(60, 2)}, dates)
    forecasts = forecaster.predict(wide, 20)
    assert list(forecasts) == forecasts.ids == ["a", "b", "c"]
    assert "b" in forecasts
    assert "d" not in forecasts
    for number, name in enumerate(forecasts):
        one = forecasts[name]
        assert (len(one), one.ids, one.horizon) == (1, [name], 20)
        np.testing.assert_allclose(one.quantiles(), forecasts.quantiles()[number : number + 1], rtol=1e-6)
        np.testing.assert_array_equal(one.timestamps, forecasts.timestamps[number : number + 1])
        np.testing.assert_array_equal(one.dependence.weights, forecasts.dependence.weights[number : number + 1])
        rows = forecasts.to_frame().query("id == @name").reset_index(drop=True)
        pd.testing.assert_frame_equal(one.to_frame(), rows, rtol=1e-6)
        np.testing.assert_allclose(one.total().mean, forecasts.total().mean[number : number + 1], rtol=1e-6)
    assert (forecasts["b"].quantiles() % 1 == 0).all()
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(forecasts["c"])).median, forecasts["c"].median)
    with pytest.raises(KeyError, match="no series 'north': there are a, b, c"):
        forecasts["north"]
    with pytest.raises(KeyError, match="no series 0"):
        forecasts[0]


def test_the_densities_of_single_series_are_gone_through_and_end(forecaster):
    density = forecaster.predict([walk(20), walk(30)], 3).density
    each = [one.quantile(0.5) for one in density]
    torch.testing.assert_close(torch.cat(each), density.quantile(0.5))
    torch.testing.assert_close(density[-1].quantile(0.5), each[1])
    for wrong, message in ((2, "there are 2 series, got the number 2"), ((0, 0), "by its series alone")):
        with pytest.raises(IndexError, match=message):
            density[wrong]


def test_the_mean_is_that_of_the_quantiles(forecaster):
    forecasts = forecaster.predict([walk(50)], 20, freq="D")
    levels = (np.arange(4000) + 0.5) / 4000
    np.testing.assert_allclose(forecasts.mean, forecasts.quantiles(levels).mean(-1), rtol=2e-3)


# --- series as they come


STRANGE = {
    "one value": [3.0],
    "two values": [1.0, 2.0],
    "constant": np.full(40, 5.0),
    "zeros": np.zeros(40),
    "tiny": 1e-12 * walk(60),
    "huge": 1e12 * walk(60),
    "level": 1e12 + walk(60),
    "largest": np.array([1e307, 2e307, 1.5e307]),
    "smallest": np.array([1e-310, 2e-310, 3e-310]),
    "intermittent": np.where(np.arange(60) % 9 == 0, 4.0, 0.0),
    "missing": np.where(np.arange(60) % 3 == 0, np.nan, walk(60)),
    "infinite": np.array([1.0, np.inf, 2.0, -np.inf, 3.0]),
    "all missing": np.full(20, np.nan),
    "empty": np.array([]),
}


@pytest.mark.parametrize("horizon", [4, 20])
def test_strange_series_have_finite_forecasts_that_do_not_cross(forecaster, horizon):
    with pytest.warns(UserWarning, match="2 of 14 series hold no value at all"):
        forecasts = forecaster.predict(STRANGE, horizon, freq="ME")
    quantiles = forecasts.quantiles(LEVELS)
    assert np.isfinite(quantiles).all()
    assert (np.diff(quantiles, axis=-1) >= 0).all()
    nothing = np.isin(list(STRANGE), ["all missing", "empty"])
    assert (np.isfinite(forecasts.mean).all(1) != nothing).all()
    assert np.isnan(forecasts["empty"].total().mean).all()
    assert np.isfinite(forecasts.samples(5)).all()


def test_forecasts_do_not_depend_on_the_unit_or_on_other_series(forecaster):
    alone = forecaster.predict(walk(60), 20, freq="ME").quantiles(LEVELS)
    many = forecaster.predict([1e-9 * walk(60), walk(60), 1e9 * walk(60), walk(300)], 20, freq="ME").quantiles(LEVELS)
    np.testing.assert_allclose(many[1:2], alone, rtol=1e-4)
    np.testing.assert_allclose(1e9 * many[:1], alone, rtol=1e-3)
    np.testing.assert_allclose(1e-9 * many[2:3], alone, rtol=1e-3)


@pytest.mark.parametrize("count", [24, 120])
def test_the_level_of_a_series_does_not_matter(forecaster, count):
    """However small the variation is beside it; where the network's scale would hide it, the level is taken off."""
    season = np.sin(np.arange(count) * np.pi / 6) + 0.3 * np.random.default_rng(0).standard_normal(count)
    levels = [1e3, 1e4, 1e5, 1e6, 1e9]
    forecasts = forecaster.predict([level + season for level in levels], 12, freq="ME").quantiles([0.1, 0.5, 0.9])
    found = forecasts - np.array(levels)[:, None, None]
    np.testing.assert_allclose(found[1:], np.broadcast_to(found[-1], found[1:].shape), atol=0.1)
    np.testing.assert_allclose(found[0], found[-1], atol=0.5)


@pytest.mark.parametrize("horizon", [12, 20])
def test_forecasts_move_and_stretch_with_their_series(forecaster, horizon):
    """Where zero is so far away that a series says nothing about it."""
    x = 500 + np.random.default_rng(0).standard_normal(64)
    series = [x, 1000 + 2 * x, -3 * x]
    plain, moved, turned = forecaster.predict(series, horizon, freq="ME", natural=False).quantiles(LEVELS)
    np.testing.assert_allclose(moved, 1000 + 2 * plain, atol=1e-3)
    assert turned.max() < 0  # the sign of a series is its own


def test_a_level_of_a_thousand_costs_nothing(shipped):
    """The forecaster that is scored is the one that people call, and it takes levels off."""
    t, random = np.arange(140), np.random.default_rng(0)
    x = np.sin(2 * np.pi * t / 12) + 0.3 * random.standard_normal((20, 140))
    at_zero, at_thousand = (
        shipped.predict(level + unit * x[:, :128], 12, freq="ME").density.crps(torch.tensor(level + unit * x[:, 128:]))
        for level, unit in ((0, 1), (1000, 2))
    )
    assert at_thousand.mean() / 2 < 1.05 * at_zero.mean()
    levels = (0.1, 0.5, 0.9)
    scored = shipped([*(1000 + 2 * x[:, :128])], 12, "ME")
    asked = shipped.predict(1000 + 2 * x[:, :128], 12, freq="ME").quantiles(levels)
    # Products of matrices of other sizes round otherwise.
    found = scored.quantiles[..., [scored.levels.index(level) for level in levels]]
    np.testing.assert_allclose(found, asked, rtol=1e-8)


def test_a_small_variation_on_a_large_level_is_seen(forecaster):
    # Float32 would make all of these values the same.
    quantiles = forecaster.predict(1e12 + walk(60), 5, freq="ME").quantiles([0.1, 0.9]) - 1e12
    assert quantiles[..., 0].min() > -1000
    assert quantiles[..., 1].max() < 1000
    assert (quantiles[..., 1] > quantiles[..., 0]).all()


def test_normalising_is_undone_exactly():
    x = torch.tensor([[3.1, -70.0, torch.nan], [1e300, 2e300, 0.0], [0.0, 0.0, 0.0]], dtype=torch.float64)
    y, unit, shift = normalise(x)
    torch.testing.assert_close(y * unit + shift, x, rtol=0, atol=0, equal_nan=True)
    assert float(y.nan_to_num().abs().max()) <= 2


# --- errors are one sentence


@pytest.mark.parametrize(
    ("data", "settings", "message"),
    [
        ([[1.0, 2.0]], {"horizon": 0}, "horizon must be a whole number of steps from 1 on, got 0."),
        ([[1.0, 2.0]], {"horizon": 2.5}, "horizon must be a whole number"),
        ([], {}, "nothing to forecast"),
        (pd.DataFrame({"time": [], "y": []}), {}, "the table has no rows"),
        ("sales", {}, "data must be a table or numbers, got 'sales'"),
        ({"a": ["x", "y"]}, {}, "series 'a' must hold numbers"),
        (np.zeros((2, 3, 4)), {}, "must have shape"),
        ([[1.0, 2.0]], {"freq": "often"}, "freq must be a pandas frequency"),
        ([[1.0, 2.0]], {"target": "y"}, "the data is none"),
        ([[1.0, 2.0]], {"precision": "half"}, "precision must be"),
        ([[1.0, 2.0]], {"paths": 0}, "paths must be a whole number from 1 on"),
        ([[1.0, 2.0]], {"paths": 2.5}, "paths must be a whole number"),
        ([[1.0, 2.0]], {"horizon": None}, "horizon must be a whole number"),
        ([[1.0, 2.0]], {"horizon": np.inf}, "horizon must be a whole number"),
        ([{"start": "2024", "values": [1.0]}], {}, "must be numbers or have a 'target', got only start, values"),
        (np.array([1 + 2j, 3]), {}, "must hold numbers, got complex128"),
        (pa.table({"y": [1.0, 2.0]}), {}, "got a pyarrow Table; use to_pandas"),
    ],
)
def test_bad_input_gets_one_sentence(forecaster, data, settings, message):
    settings = {"horizon": 3, **settings}
    with pytest.raises(ValueError, match=message) as error:
        forecaster.predict(data, **settings)
    assert "\n" not in str(error.value)


def test_levels_outside_are_refused(forecaster):
    forecasts = forecaster.predict([walk(20)], 3)
    with pytest.raises(ValueError, match="strictly between 0 and 1"):
        forecasts.quantiles([0.5, 1.0])
    with pytest.raises(ValueError, match="count must be at least 1"):
        forecasts.samples(0)


def test_a_table_may_have_one_level_and_no_column_twice(forecaster):
    assert list(forecaster.predict([walk(20)], 3).to_frame(0.5, mean=False).columns) == ["id", "step", "0.5"]
    frame = pd.DataFrame({"mean": ["a"] * 6, "date": pd.date_range("2024", periods=6), "y": range(6)})
    with pytest.raises(ValueError, match="a column 'mean' of its own"):
        forecaster.predict(frame, 3, id="mean").to_frame()


def test_timestamps_come_back_in_their_zone(forecaster):
    # Hours before, in and after the night when clocks change, and days as they are there.
    for freq in ("h", "D"):
        dates = pd.date_range("2024-03-28", periods=80, freq=freq, tz="Europe/Berlin")
        out = forecaster.predict(pd.DataFrame({"ds": dates[:70], "y": walk(70)}), 10).to_frame()
        assert out["ds"].tolist() == dates[70:].tolist()
    # Offsets without the name of a zone: what clocks showed last goes on.
    written = [date.isoformat() for date in pd.date_range("2024-03-29", periods=80, freq="h", tz="Europe/Berlin")]
    out = forecaster.predict(pd.DataFrame({"ds": written[:70], "y": walk(70)}), 10).to_frame()
    assert [date.isoformat() for date in out["ds"]] == written[70:]
    zones = [pd.Series(walk(5), pd.date_range("2024", periods=5, tz=zone)) for zone in ("Asia/Tokyo", "UTC")]
    assert forecaster.predict(zones, 2).to_frame()["timestamp"].dt.tz is None


def test_progress_counts_every_series(forecaster):
    seen = []
    forecaster.predict([walk(n) for n in (5, 40, 64, 100)], 3, progress=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (4, 4)


# --- on disk


def test_save_and_load_give_the_same_forecasts(forecaster, tmp_path):
    folder = forecaster.save_pretrained(tmp_path / "model")
    again = Forecaster.from_pretrained(folder, "cpu")
    want, got = (f.predict([walk(40)], 20, freq="h").quantiles(LEVELS) for f in (forecaster, again))
    np.testing.assert_array_equal(want, got)


def test_saving_leaves_the_files_of_others_alone(forecaster, tmp_path):
    forecaster.save_pretrained(forecaster.save_pretrained(tmp_path / "own"))
    (tmp_path / "thesis.txt").write_text("years of work")
    for place, reason in ((tmp_path, "holds own"), (tmp_path / "thesis.txt", "is a file")):
        with pytest.raises(UserError, match=f"a folder of its own, but .* {reason}"):
            forecaster.save_pretrained(place)
    assert (tmp_path / "thesis.txt").read_text() == "years of work"


def test_an_unknown_model_is_named(tmp_path):
    with pytest.raises(UserError, match=r"neither a folder with config\.json"):
        Forecaster.from_pretrained(tmp_path / "nothing")


def test_the_shipped_forecaster_follows_a_season_and_knows_what_it_knows(shipped):
    t = np.arange(120)
    random = np.random.default_rng(0)
    values = 100 + 20 * np.sin(2 * np.pi * t / 12) + random.standard_normal(120)
    truth = 100 + 20 * np.sin(2 * np.pi * np.arange(120, 138) / 12)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        forecasts = shipped.predict(values, 18, freq="ME")
    low, middle, high = np.moveaxis(forecasts.quantiles([0.05, 0.5, 0.95])[0], -1, 0)
    assert np.abs(middle - truth).mean() < 4
    assert ((low < truth) & (truth < high)).mean() > 0.8
    assert (high - low).mean() < 20
