"""Validation sets: they come from series that are not trained on, and scores are relative to seasonal naive."""

import numpy as np
import pytest

from fourier_head.forecasting.evaluation import EvaluationSet
from fourier_head.forecasting.validation import Validation, group_of, hold_out, validation_sets
from tests.training.test_training import store


def test_validation_sets_come_from_held_out_series_only() -> None:
    kept, held = hold_out(store(50))
    assert len(kept) == 48
    sets = validation_sets(held)
    assert [len(one) for one in sets] == [2]
    assert sets[0].horizon == 18
    assert group_of(sets[0].name) == "monthly"
    trained_on = [kept.series(i).numpy() for i in range(len(kept))]
    for series in sets[0].series:
        assert any(np.array_equal(series, held.series(i).numpy()) for i in range(len(held)))
        assert not any(np.array_equal(series, other) for other in trained_on)


def test_a_validation_score_is_relative_to_seasonal_naive_and_sets_count_by_the_root_of_their_series() -> None:
    rng = np.random.default_rng(0)
    waves = [np.sin(np.arange(120) / 2) + rng.normal(size=120) for _ in range(5)]
    sets = [EvaluationSet("few/12", waves[:1], 18, 12, "ME"), EvaluationSet("many/7", waves[1:], 28, 1, "D")]
    validation = Validation(sets)
    few, many = (dict(validation.naive[one.name]) for one in sets)
    few["mase"], many["mase"], many["wql"] = 8 * few["mase"], many["mase"] / 2, many["wql"] / 3
    scores = validation.scores([few, many])
    assert scores["monthly"] == pytest.approx({"mase": 8, "wql": 1})
    assert scores["daily"] == pytest.approx({"mase": 1 / 2, "wql": 1 / 3})
    assert scores["all"] == pytest.approx({"mase": (8 / 2**2) ** (1 / 3), "wql": (1 / 3) ** (2 / 3)})
