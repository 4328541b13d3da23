"""A coarser view counts far ahead in series of minutes and seconds, and nowhere else."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

from fourier_head.forecasting.coarser import BEGIN, LEVELS, SHARE, WHOLE, CoarserView, coarser_step, coarser_views
from fourier_head.forecasting.inputs import read_series
from tests.forecasting.test_forecaster import CONFIG, tiny

FAR = 256
PAST = 20 + 5 * np.sin(np.arange(600) / 40) + np.random.default_rng(0).normal(size=600)


@pytest.fixture(scope="module")
def forecaster():
    return tiny(replace(CONFIG, horizon=FAR // 4))  # four times: paths go on from each other


def view_of(positive):
    past = PAST if positive else PAST - 20
    return coarser_views(read_series([past], freq="1min"), FAR)[0]


def quantiles(level, steps, spread=0.0):
    """Return quantiles (levels, 1, steps) about a level."""
    return torch.tensor([level - spread, level, level + spread]).view(len(LEVELS), 1, 1).expand(-1, 1, steps)


@pytest.mark.parametrize("freq", ["s", "2s", "5s", "10s", "15s", "20s", "30s", "min"])
def test_a_coarser_step_is_a_whole_number_of_steps(freq):
    size, coarse = coarser_step(freq)
    assert pd.Timedelta(pd.tseries.frequencies.to_offset(coarse)) == size * pd.Timedelta(
        pd.tseries.frequencies.to_offset(freq)
    )


def test_levels_that_agree_move_nothing():
    view = view_of(True)
    factor, shift = view.moves(quantiles(20.0, FAR, 3.0), quantiles(20.0, view.steps, 1.0))
    np.testing.assert_allclose(factor, 1.0)
    np.testing.assert_array_equal(shift, 0.0)


@pytest.mark.parametrize("positive", [True, False])
def test_a_third_of_the_way_to_the_other_level_far_ahead(positive):
    view = view_of(positive)
    factor, shift = view.moves(quantiles(20.0, FAR), quantiles(26.0, view.steps))
    moved = 20.0 * factor[0] + shift[0]
    np.testing.assert_allclose(moved[:BEGIN], 20.0)
    np.testing.assert_allclose(moved[WHOLE:], 20.0 + SHARE * 6.0)
    assert (np.diff(moved) >= -1e-9).all()
    assert (factor == 1).all() != positive  # what never was below zero stays so
    assert (shift == 0).all() == positive


def test_a_level_of_nothing_is_no_reason_for_a_factor():
    view = view_of(True)
    factor, shift = view.moves(quantiles(0.0, FAR), quantiles(6.0, view.steps))
    np.testing.assert_array_equal(factor, 1.0)
    assert np.isfinite(shift).all()


def test_forecasts_move_beyond_the_first_steps_only(forecaster):
    with_view = forecaster.predict(PAST, FAR, freq="1min")
    alone = forecaster.predict(PAST, FAR, freq="1min", rules=False)
    assert with_view.rules.coarser == [0]
    many = [0.01, 0.1, 0.5, 0.9, 0.99]
    apart = abs(with_view.quantiles(many) - alone.quantiles(many))
    near, far = apart[:, :BEGIN], apart[:, 96:]
    assert near.max() < 1e-5 < far.min()
    assert (np.diff(with_view.quantiles(many), axis=-1) >= 0).all()


def test_series_of_several_kinds_keep_their_places():
    forecaster = tiny(replace(CONFIG, horizon=FAR))
    table = pd.concat(
        [
            pd.DataFrame({"id": name, "time": pd.date_range("2024", periods=600, freq=freq), "y": factor * PAST})
            for name, freq, factor in (("a", "h", 1.0), ("b", "10s", 1.0), ("c", "min", 1.0), ("d", "min", -1.0))
        ]
    )
    forecasts = forecaster.predict(table, FAR)
    assert sorted(forecasts.rules.coarser) == [1, 2, 3]
    for number, name in enumerate("abcd"):
        alone = forecaster.predict(table[table["id"] == name], FAR)
        np.testing.assert_allclose(forecasts.median[number], alone.median[0], rtol=1e-5)


def test_there_is_none_for_short_horizons_short_pasts_or_hours():
    assert coarser_views(read_series([PAST], freq="1min"), BEGIN) == []
    assert coarser_views(read_series([PAST[:200]], freq="1min"), FAR) == []
    assert coarser_views(read_series([PAST], freq="h"), FAR) == []
    assert coarser_views(read_series([PAST], freq="1min"), FAR, leave_out=[0]) == []
    assert isinstance(coarser_views(read_series([PAST], freq="1min"), BEGIN + 1)[0], CoarserView)


def test_a_past_with_gaps(forecaster):
    gaps = PAST.copy()
    gaps[100:300] = np.nan
    assert np.isfinite(forecaster.predict(gaps, FAR, freq="1min").quantiles([0.1, 0.9])).all()
