"""Bounds of targets, several targets, bodies that are mixed, and a graphics card."""

import pickle
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import integrate
from sklearn.model_selection import cross_val_score
from sklearn.multioutput import MultiOutputRegressor

from fourier_head.integrations.scikit_learn import (
    FourierRegressor,
    crps_scorer,
    log_likelihood_scorer,
    predict_density,
    predict_quantiles,
)
from fourier_head.integrations.scikit_learn.calibration import HeldOut


def quick(**options):
    settings = {"max_epochs": 30, "batch_size": 64, "hidden_sizes": (16,), "n_members": 2, "num_frequencies": 6}
    return FourierRegressor(**{"body": "smooth", **settings, **options}, random_state=0)


def rows(count=300):
    random = np.random.default_rng(0)
    x = random.uniform(-1, 1, (count, 2))
    noise = random.normal(size=(2, count))
    return x, np.column_stack([x[:, 0] + 0.1 * noise[0], np.exp(2 + x[:, 1] + 1.5 * noise[1])]), random


# --- bounds


@pytest.fixture(scope="module")
def bounded():
    x, _, random = rows()
    y = np.clip(0.5 + 0.5 * x[:, 0] + 0.2 * random.normal(size=len(x)), 0, 1)
    return x, y, quick(bounds=(0, 1), discrete=False).fit(x, y), quick(discrete=False).fit(x, y)


def test_nothing_lies_beyond_bounds(bounded):
    x, y, model, free = bounded
    density = model.predict_density(x)
    assert (free.predict_quantiles(x, 0.01) < 0).any()
    found = density.quantile([1e-6, 0.3, 1 - 1e-6])
    assert found.min() >= 0
    assert found.max() <= 1
    assert ((density.sample(50, random_state=0) >= 0) & (density.sample(50, random_state=0) <= 1)).all()
    assert (density.cdf(np.array([[-0.1], [1.0]])) == [[0.0], [1.0]] * np.ones(len(x))).all()
    assert (density.pdf(np.array([[-0.1], [1.1]])) == 0).all()
    # What is known to be impossible makes the rest likelier.
    assert density.logpdf(y).mean() > free.predict_density(x).logpdf(y).mean()


def test_bounded_densities_agree_with_quadrature(bounded):
    x, _, model, _ = bounded
    density = model.predict_density(x[:20])
    grid = np.linspace(0, 1, 20_001)[:, None]
    p, cdf = density.pdf(grid), density.cdf(grid)
    np.testing.assert_allclose(integrate.trapezoid(p, grid[:, 0], axis=0), 1, atol=1e-4)
    np.testing.assert_allclose(cdf[10_000], integrate.trapezoid(p[:10_001], grid[:10_001, 0], axis=0), atol=1e-4)
    mean = integrate.trapezoid(grid * p, grid[:, 0], axis=0)
    np.testing.assert_allclose(density.mean(), mean, atol=1e-4)
    spread = integrate.trapezoid((grid - mean) ** 2 * p, grid[:, 0], axis=0) ** 0.5
    np.testing.assert_allclose(density.std(), spread, atol=1e-4)
    np.testing.assert_allclose(density.cdf(density.quantile([0.2, 0.7]).T), [[0.2], [0.7]] * np.ones(20), atol=1e-6)
    safe = np.where(p > 0, p, 1)
    np.testing.assert_allclose(density.entropy(), -integrate.trapezoid(p * np.log(safe), grid[:, 0], axis=0), atol=1e-3)
    for value in (0.3, 1.2):
        expected = integrate.trapezoid((cdf - (grid >= value)) ** 2, grid[:, 0], axis=0) + max(0.0, value - 1)
        np.testing.assert_allclose(density.crps(value), expected, atol=1e-4)


def test_targets_at_a_bound_do_not_widen_distributions(bounded):
    x, _, model, free = bounded
    assert model.spread_ == free.spread_
    rain = np.maximum(x[:, 0] + 0.3 * np.random.default_rng(1).normal(size=len(x)), 0)  # half of the days are dry
    dry, both = (quick(bounds=ends).fit(x[:200], rain[:200]) for ends in ((0, None), None))
    low, high = dry.predict_interval(x[200:], 0.8, conformal=True).T
    assert low.min() == 0
    assert 0.65 < np.mean((low <= rain[200:]) & (rain[200:] <= high)) < 0.95
    low, wide = dry.calibrate(x[:200], rain[:200]).predict_interval(x[200:], 0.8, conformal=True).T
    assert np.median(wide) < 1.5 * np.median(high)
    assert crps_scorer(dry, x[200:], rain[200:]) > 1.1 * crps_scorer(both, x[200:], rain[200:])


def test_one_bound_is_enough_and_logarithms_keep_theirs():
    x, y, random = rows()
    above = quick(bounds=(-2, None)).fit(x, y[:, 0])
    assert above.predict_quantiles(x, 1e-6).min() >= -2
    quantiles = above.predict_quantiles(x[:20], (np.arange(4000) + 0.5) / 4000)
    np.testing.assert_allclose(above.predict(x[:20]), quantiles.mean(1), atol=1e-3)
    np.testing.assert_allclose(above.predict_density(x[:20]).std(), quantiles.std(1), rtol=0.02)
    positive = np.exp(2 * x[:, 0] + 1.5 * random.normal(size=len(x)))
    assert quick(bounds=(0, None)).fit(x, positive).predict_quantiles(x, 1e-6).min() > 0


# --- several targets


def test_models_of_their_own_for_several_targets_tell_their_distributions():
    x, y, _ = rows()
    model = MultiOutputRegressor(quick(max_epochs=2)).fit(x, y)
    first, second = predict_density(model, x[:5])
    np.testing.assert_allclose(np.column_stack([first.mean(), second.mean()]), model.predict(x[:5]))
    assert predict_quantiles(model, x[:5], [0.1, 0.9]).shape == (5, 2, 2)
    assert np.isfinite(log_likelihood_scorer(model, x, y))


def test_several_targets_share_a_body():
    x, y, _ = rows()
    model = quick(max_epochs=60).fit(x, y)
    assert model.predict(x).shape == (300, 2)
    assert model.predict_quantiles(x, [0.1, 0.5, 0.9]).shape == (300, 2, 3)
    assert model.predict_interval(x, 0.9).shape == model.predict_interval(x, 0.9, conformal=True).shape == (300, 2, 2)
    assert model.sample(x, 4).shape == (300, 2, 4)
    np.testing.assert_array_equal(predict_quantiles(model, x, 0.5), model.predict_quantiles(x, 0.5))
    first, second = model.predict_density(x)
    np.testing.assert_allclose(np.column_stack([first.mean(), second.mean()]), model.predict(x))
    # Each is learned, and each has its own scale: the second is skewed.
    assert np.mean(abs(first.mean() - y[:, 0])) < 0.15
    assert np.mean(abs(np.log(second.quantile(0.5)) - 2 - x[:, 1])) < 0.4
    assert (second.quantile(1e-4) > 0).all()
    expected = (first.crps(y[:, 0]) + second.crps(y[:, 1])).mean() / 2
    assert crps_scorer(model, x, y) == pytest.approx(-expected)
    assert np.isfinite(cross_val_score(quick(max_epochs=2), x, y, cv=2, scoring=log_likelihood_scorer)).all()
    assert quick(max_epochs=2).fit(x, y[:, :1]).predict(x).shape == (300, 1)


# --- what held-out rows decide


def test_bodies_are_mixed_by_what_they_say_of_held_out_rows():
    x, y, _ = rows()
    model = quick(body="auto", n_members=4).fit(x, y[:, 0])
    assert set(model.body_) <= {"smooth", "pieces", "boosting"}
    assert sum(model.body_.values()) == pytest.approx(1)
    assert list(model.network_.bodies) == list(model.body_)
    alone = quick(body="pieces").fit(x, y[:, 0])
    assert alone.body_ == {"pieces": 1.0}


def test_the_spread_makes_held_out_rows_lie_in_distributions_as_these_say():
    random = np.random.default_rng(0)
    x = random.normal(size=(400, 3))
    y = x[:, 0] + random.normal(size=400)
    model = quick(max_epochs=100, hidden_sizes=(64, 64), weight_decay=0.0, patience=None).fit(x, y)
    (target,), spread = model._targets, model.spread_[0]
    # Of equally likely levels this mean is 1/3.
    assert abs(np.mean((2 * model.calibration_levels_[0] - 1) ** 2) - 1 / 3) < 0.02
    # The prediction itself is widened: a multiple of its distance from the middle.
    plain = model.predict_density(x[:5])
    mixing = replace(plain.mixing, left_out=None)
    narrow, wide = (one.distribution(plain.head, plain.outputs, mixing) for one in (target.spread(1.0), target))
    ratio = np.diff(wide.quantile([0.1, 0.9]), axis=1) / np.diff(narrow.quantile([0.1, 0.9]), axis=1)
    np.testing.assert_allclose(ratio, spread, rtol=1e-5)
    assert abs(spread - 1) > 1e-3


def test_networks_that_say_nothing_count_for_little():
    likely, unlikely = np.full(200, -1.0), np.full(200, -3.0)
    seen = object.__new__(HeldOut)
    seen.weights, seen.outputs, logs = np.ones(200), [0, 1], {0: likely, 1: unlikely}

    class Known:
        def __init__(self, log):
            self.log = log

        def logpdf(self, y):
            return self.log

    seen.mixtures = lambda targets, shares: [(Known(logs[int(np.argmax(shares))]), None)]
    np.testing.assert_array_equal(seen.body_weights([None]), [1.0, 0.0])
    logs[1] = likely
    np.testing.assert_allclose(seen.body_weights([None]), [0.5, 0.5])


@pytest.mark.gpu
def test_a_graphics_card_fits_and_predicts_like_a_processor():
    x, y, _ = rows()
    scores = [-crps_scorer(quick(body="auto", n_members=4, device=device).fit(x, y[:, 0]), x, y[:, 0])
              for device in ("cpu", "cuda")]  # fmt: skip
    assert scores[1] == pytest.approx(scores[0], rel=0.2)
    model = quick(device="cuda").fit(x, y)
    assert next(model.network_.parameters()).is_cuda
    assert model.predict_quantiles(x, [0.1, 0.9]).shape == (300, 2, 2)
    assert torch.cuda.memory_allocated() > 0
    # A pickle can be opened where there is no card, and predicts the same.
    back = pickle.loads(pickle.dumps(model))
    assert {p.device.type for p in back.network_.parameters()} == {"cpu"}
    assert next(model.network_.parameters()).is_cuda
    np.testing.assert_allclose(back.predict(x), model.predict(x), rtol=1e-6)
    np.testing.assert_allclose(back.predict_quantiles(x), model.predict_quantiles(x), rtol=1e-5)
    densities = zip(back.predict_density(x), model.predict_density(x), y.T, strict=True)
    for on_processor, on_card, own in densities:
        np.testing.assert_allclose(on_processor.logpdf(own), on_card.logpdf(own), rtol=1e-5, atol=1e-6)
