"""Views of the last values count near ahead in series of minutes and seconds, and nowhere else."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from studies.zero_shot.views import Alone

from fourier_head.forecasting.inputs import read_series
from fourier_head.forecasting.recent import END, LEVELS, VALUES, WHOLE, moves, recent_views
from tests.forecasting.test_forecaster import CONFIG, tiny

HORIZON = 128
PAST = 20 + 5 * np.sin(np.arange(3000) / 40) + np.random.default_rng(0).normal(size=3000)
QUANTILES = [0.01, 0.1, 0.5, 0.9, 0.99]


@pytest.fixture(scope="module")
def forecaster():
    return tiny(replace(CONFIG, horizon=HORIZON, spans=(512, 4096)))


def test_views_have_the_last_values_of_longer_pasts():
    views = recent_views(read_series([PAST, PAST[:1500], PAST[:900]], freq="1min"))
    assert [len(numbers) for numbers, _ in views] == [2, 1]
    for (numbers, series), count in zip(views, VALUES, strict=True):
        for number, values in zip(numbers, series.values, strict=True):
            np.testing.assert_array_equal(values, [PAST, PAST[:1500]][number][-count:])


def test_there_is_none_of_hours_of_short_pasts_or_where_left_out():
    assert recent_views(read_series([PAST], freq="h")) == []
    assert recent_views(read_series([PAST])) == []
    assert recent_views(read_series([PAST[: VALUES[0]]], freq="s")) == []
    assert recent_views(read_series([PAST], freq="s"), leave_out=[0]) == []


def test_all_views_and_the_whole_past_count_alike_near_and_not_far():
    def quantiles(level, spread):
        return torch.tensor([level - spread, level, level + spread]).view(len(LEVELS), 1, 1).expand(-1, 1, END)

    one, other = (np.array([0]), quantiles(26.0, 3.0)), (np.array([0]), quantiles(20.0, 6.0))
    factor, shift = moves(quantiles(20.0, 3.0), [one, other], HORIZON)
    low, middle, high = (factor[0] * level + shift[0] for level in (17.0, 20.0, 23.0))
    np.testing.assert_allclose(middle[:WHOLE], 22.0)
    np.testing.assert_allclose((high - low)[:WHOLE], 8.0)
    np.testing.assert_allclose(middle[END - 1 :], 20.0)
    assert (np.diff(middle) <= 1e-9).all()


def test_densities_without_width_are_shifted_alone():
    level = torch.full((len(LEVELS), 1, 4), 20.0)
    factor, shift = moves(level, [(np.array([0]), level + 6)], 4)
    np.testing.assert_array_equal(factor, 1.0)
    np.testing.assert_allclose(shift, 3.0)


def test_forecasts_of_the_first_steps_alone_move(forecaster):
    with_views = forecaster.predict(PAST, HORIZON, freq="30s")
    alone = forecaster.predict(PAST, HORIZON, freq="30s", rules=False)
    assert with_views.rules.recent == [0]
    apart = abs(with_views.quantiles(QUANTILES) - alone.quantiles(QUANTILES))[:, : WHOLE // 2]
    assert apart.max() > 1e-3
    assert (np.diff(with_views.quantiles(QUANTILES), axis=-1) >= 0).all()
    hours = forecaster.predict(PAST, HORIZON, freq="h")
    assert hours.rules.recent == []


def test_a_forecast_does_not_depend_on_what_else_is_forecast(forecaster):
    table = pd.concat(
        [
            pd.DataFrame({"id": name, "time": pd.date_range("2024", periods=len(past), freq=freq), "y": past})
            for name, freq, past in (("a", "h", PAST), ("b", "min", PAST), ("c", "min", -PAST[:1500]))
        ]
    )
    forecasts = forecaster.predict(table, 12)
    assert forecasts.rules.recent == [1, 2]
    for number, name in enumerate("abc"):
        alone = forecaster.predict(table[table["id"] == name], 12)
        np.testing.assert_allclose(forecasts.median[number], alone.median[0], rtol=1e-4)


def test_the_study_compares_with_a_forecaster_without_views(forecaster):
    alone = Alone(forecaster.model).predict(PAST, HORIZON, freq="30s")
    assert (alone.rules.recent, alone.rules.coarser) == ([], [])
    np.testing.assert_array_equal(
        alone.quantiles(QUANTILES), forecaster.predict(PAST, HORIZON, freq="30s", rules=False).quantiles(QUANTILES)
    )
