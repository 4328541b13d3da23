"""The scikit-learn regressor: what it learns, what it promises, and what it says about bad input."""

import importlib
import pickle
import sys

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import stats
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from benchmarks import uci
from fourier_head.errors import UserError
from fourier_head.integrations.scikit_learn import FourierRegressor, crps_scorer, log_likelihood_scorer
from fourier_head.integrations.scikit_learn.predictive import PredictiveDistribution
from fourier_head.integrations.scikit_learn.progress import Progress

HEADS = ["fourier", "mixture", "hl-gauss", "linear"]
QUICK = {"max_epochs": 12, "batch_size": 16, "hidden_sizes": (24,), "num_frequencies": 6}
QUICK |= {"n_members": 3, "body": "smooth", "random_state": 0}


def quick(**options):
    return FourierRegressor(**{**QUICK, **options})


def spread_out(rows, seed=0):
    """Targets around 100 + 20 x whose deviation grows from 1 to 5 with x in [-1, 1]."""
    random = np.random.default_rng(seed)
    x = random.uniform(-1, 1, (rows, 1))
    return x, 100 + 20 * x[:, 0] + (3 + 2 * x[:, 0]) * random.standard_normal(rows)


def usual(**options):
    """A model that has time to learn something simple, in large batches."""
    settings = {"max_epochs": 60, "batch_size": 128, "hidden_sizes": (32, 32), "n_members": 3, "body": "smooth"}
    return FourierRegressor(**{**settings, **options}, random_state=0)


@pytest.fixture(scope="module")
def spread_model():
    return usual().fit(*spread_out(1000))


# --- what scikit-learn asks of an estimator


@parametrize_with_checks(
    [FourierRegressor(max_epochs=20, batch_size=64, hidden_sizes=(16,), num_frequencies=4, n_members=2, body="smooth")]
)
def test_is_an_estimator(estimator, check):
    check(estimator)


def test_works_in_pipelines_searches_and_frames():
    x, y = spread_out(120)
    frame = pd.DataFrame({"size": x[:, 0], "noise": np.arange(120.0) % 7})
    model = make_pipeline(StandardScaler().set_output(transform="pandas"), quick())
    model.fit(frame, y)
    assert model[-1].feature_names_in_.tolist() == ["size", "noise"]
    assert model.predict(frame, quantiles=[0.1, 0.9]).shape == (120, 2)
    assert np.isfinite(log_likelihood_scorer(model, frame, y))
    search = GridSearchCV(quick(), {"num_frequencies": [2, 4]}, scoring=log_likelihood_scorer, cv=2).fit(frame, y)
    assert search.best_params_["num_frequencies"] in (2, 4)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    assert (cross_val_score(quick(), frame, y, scoring=crps_scorer, cv=2) < 0).all()
    nested = GridSearchCV(quick(), {"num_frequencies": [2]}, cv=2)
    assert (cross_val_score(nested, frame, y, scoring=crps_scorer, cv=2) < 0).all()


def test_copies_are_the_same_model():
    x, y = spread_out(80)
    model = quick(random_state=3).fit(x, y)
    again = clone(model).fit(x, y)
    back = pickle.loads(pickle.dumps(model))
    for other in (again, back):
        np.testing.assert_array_equal(other.predict_quantiles(x), model.predict_quantiles(x))
    assert not np.array_equal(quick(random_state=4).fit(x, y).predict(x), model.predict(x))


def test_fit_leaves_global_random_state_alone():
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    quick(max_epochs=1).fit(*spread_out(40))
    torch.testing.assert_close(torch.rand(3), expected)


# --- what it learns


def test_known_distribution_is_predicted_calibrated(spread_model):
    x, y = spread_out(2000, seed=1)
    density = spread_model.predict_density(x)
    deviation = 3 + 2 * x[:, 0]
    truth = stats.norm(100 + 20 * x[:, 0], deviation)
    assert abs(np.mean((y - density.mean()) ** 2 / deviation**2) - 1) < 0.1
    assert density.logpdf(y).mean() > truth.logpdf(y).mean() - 0.1
    covered = [np.mean((low <= y) & (y <= high)) for low, high in (density.interval(c).T for c in (0.5, 0.9))]
    np.testing.assert_allclose(covered, [0.5, 0.9], atol=0.06)
    low, high = spread_model.predict_density([[-0.8], [0.8]]).interval(0.9).T
    np.testing.assert_allclose((high - low) / (2 * stats.norm.ppf(0.95)), [1.4, 4.6], rtol=0.15)


def test_two_peaks_are_found():
    random = np.random.default_rng(0)
    x = random.uniform(-1, 1, (1000, 1))
    y = random.choice([-1, 1], 1000) * (1.5 + x[:, 0]) + 0.2 * random.standard_normal(1000)
    density = usual().fit(x, y).predict_density([[0.0]])
    low, valley, high = density.pdf([[-1.5], [0.0], [1.5]])[:, 0]
    assert min(low, high) > 0.6
    assert valley < 0.1
    assert 0.4 < density.cdf(0.0)[0] < 0.6


@pytest.mark.parametrize("without", [False, True])
def test_trees_come_first_where_they_are_asked_for(monkeypatch, without):
    """Steps at many places of one column, which a few small networks do not find in so short a time."""
    if without:
        monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    random = np.random.default_rng(0)
    x = random.uniform(0, 1, (600, 3))
    y = 2.0 * (np.floor(40 * x[:, 0]) % 2) + x[:, 1] + 0.1 * random.normal(size=600)
    model = quick(body="boosting", max_epochs=2 if without else 25).fit(x[:500], y[:500])
    if not without:  # boosting of scikit-learn takes its time
        smooth = quick(body="smooth", max_epochs=25).fit(x[:500], y[:500])
        assert crps_scorer(model, x[500:], y[500:]) > 0.6 * crps_scorer(smooth, x[500:], y[500:])
    assert np.corrcoef(model.predict(x[500:]), y[500:])[0, 1] > 0.5
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict(x[:5]), model.predict(x[:5]))


def test_weights_decide_which_rows_count():
    x = np.zeros((400, 1))
    y = np.repeat([0.0, 10.0], 200) + np.random.default_rng(0).normal(0, 0.3, 400)
    model = quick(max_epochs=40, batch_size=100).fit(x, y, sample_weight=np.repeat([0.9, 0.1], 200))
    assert abs(model.predict_density(x[:1]).cdf(5.0)[0] - 0.9) < 0.08


def test_crps_can_be_what_is_learned():
    x, y = spread_out(400)
    model = usual(loss="crps").fit(x, y)
    assert -crps_scorer(model, x, y) < 1.15 * np.mean(3 + 2 * x[:, 0]) / np.sqrt(np.pi)


# --- what the distributions promise


@pytest.mark.parametrize("head", HEADS)
def test_distribution_is_consistent(head):
    x, y = spread_out(150)
    model = quick(head=head, max_epochs=4).fit(x, y)
    density = model.predict_density(x[:3])
    # The midpoint rule, on all but a billionth.
    low, high = density.quantile([1e-9, 1 - 1e-9]).T
    edges = np.linspace(low.min(), high.max(), 40001)
    points, width = (edges[:-1] + edges[1:]) / 2, edges[1] - edges[0]
    pdf, cdf = density.pdf(points[:, None]), density.cdf(points[:, None])
    np.testing.assert_allclose(width * pdf.sum(0), 1, atol=1e-3)  # histograms jump
    np.testing.assert_allclose(width * np.cumsum(pdf, 0), density.cdf(edges[1:, None]), atol=2e-3)
    mean = (points[:, None] * pdf).sum(0) / pdf.sum(0)
    np.testing.assert_allclose(density.mean(), mean, rtol=1e-4)
    np.testing.assert_array_equal(model.predict(x[:3]), density.mean())
    second = width * ((points[:, None] - mean) ** 2 * pdf).sum(0)
    np.testing.assert_allclose(density.std(), np.sqrt(second), rtol=1e-3)
    entropy = -width * (pdf * np.log(np.maximum(pdf, 1e-300))).sum(0)
    np.testing.assert_allclose(density.entropy(), entropy, atol=2e-3)
    for value in (low.min() + 1.0, *np.quantile(y, [0.2, 0.7]), high.max() - 1.0):
        value = edges[np.abs(edges - value).argmin()]  # a jump inside of a cell would cost half of it
        expected = width * ((cdf - (points[:, None] >= value)) ** 2).sum(0)
        np.testing.assert_allclose(density.crps(value), expected, rtol=2e-3)


@pytest.mark.parametrize("head", HEADS)
def test_quantiles_undo_the_cdf_and_never_cross(head):
    x, y = spread_out(120)
    model = quick(head=head, max_epochs=4).fit(x, y)
    levels = np.array([0.9, 0.001, 0.5, 0.3, 0.999, 1e-5, 1 - 1e-5])
    quantiles = model.predict_quantiles(x, levels)
    assert quantiles.shape == (120, 7)
    assert (np.diff(quantiles[:, np.argsort(levels)], axis=1) >= 0).all()
    np.testing.assert_allclose(model.predict_density(x).cdf(quantiles.T), np.repeat(levels[:, None], 120, 1), atol=2e-4)
    np.testing.assert_allclose(model.predict_quantiles(x, 0.5), quantiles[:, 2], rtol=1e-6)


def test_samples_follow_the_distribution(spread_model):
    samples = spread_model.sample([[0.3], [-0.3]], 4000, random_state=0)
    assert samples.shape == (2, 4000)
    density = spread_model.predict_density([[0.3], [-0.3]])
    for levels in density.cdf(samples.T).T:
        assert stats.kstest(levels, "uniform").pvalue > 0.001
    np.testing.assert_array_equal(samples, spread_model.sample([[0.3], [-0.3]], 4000, random_state=0))


@pytest.mark.parametrize("head", HEADS)
def test_no_finite_value_is_impossible(head):
    x, y = spread_out(60)
    density = quick(head=head, max_epochs=3).fit(x, y).predict_density(x)
    for value in (y.min() - 1e6, y.max() + 1e6, y.mean(), 1e12, -1e12):
        assert np.isfinite(density.logpdf(value)).all()
        assert np.isfinite(density.crps(value)).all()
    assert (density.cdf(-1e6) < 1e-6).all()
    assert (density.cdf(1e6) > 1 - 1e-6).all()


def test_units_of_the_target_change_nothing_else():
    x, y = spread_out(100)
    plain, moved = quick().fit(x, y), quick().fit(x, 1e9 + 1000 * y)
    np.testing.assert_allclose(moved.predict(x), 1e9 + 1000 * plain.predict(x), rtol=1e-9)
    np.testing.assert_allclose(
        moved.predict_density(x).logpdf(1e9 + 1000 * y), plain.predict_density(x).logpdf(y) - np.log(1000), atol=1e-3
    )


def test_many_rows_are_taken_in_portions(monkeypatch):
    x, y = spread_out(50)
    model = quick(max_epochs=2).fit(x, y)
    whole = model.predict_density(x).crps(y)
    monkeypatch.setattr("fourier_head.integrations.scikit_learn.predictive.PORTION", 200)
    np.testing.assert_allclose(model.predict_density(x).crps(y), whole, rtol=1e-5)


@pytest.mark.parametrize("value", [7.0, 0.0])
def test_constant_targets_are_learned(value):
    model = quick(max_epochs=3).fit(np.arange(20.0)[:, None], np.full(20, value))
    np.testing.assert_allclose(model.predict_quantiles([[3.0]], [0.01, 0.5, 0.99]), value, rtol=0, atol=1e-9)


def test_keyboard_ends_training_not_the_program(monkeypatch):
    calls = []

    def interrupting(self, epoch, score):
        calls.append(epoch)
        if epoch == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(Progress, "__call__", interrupting)
    x, y = spread_out(40)
    with pytest.warns(UserWarning, match="interrupted; the weights of epoch"):
        model = quick().fit(x, y)
    assert calls == [1, 1, 2, 2, 3]  # each of two steps in an epoch is looked at
    assert model.n_iter_ == 3
    assert np.isfinite(model.predict(x)).all()


def test_patience_and_progress(capsys):
    x, _ = spread_out(200)
    model = quick(max_epochs=60, patience=3, verbose=1, learning_rate=0.03).fit(
        x, np.random.default_rng(1).normal(size=200)
    )
    assert model.n_iter_ == model.best_epoch_ + 3 < 60
    assert "epoch 6 of 60: validation loss" in capsys.readouterr().out


@pytest.mark.parametrize("patience", [1, None])
def test_a_bar_grows_in_a_terminal_and_its_line_ends(capsys, monkeypatch, patience):
    x, _ = spread_out(60)
    y = np.random.default_rng(1).normal(size=60)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    model = quick(patience=patience, verbose=1, learning_rate=0.1).fit(x, y)
    bars = capsys.readouterr().out.split("\r")[1:]
    assert [bar.count("#") for bar in bars] == sorted(30 * epoch // 12 for epoch, _ in model.validation_scores_)
    assert bars[-1].endswith("]\n")
    assert (model.n_iter_ < 12) == (patience is not None)
    quick(verbose=0).fit(x, y)
    assert capsys.readouterr() == ("", "")


def test_uci_benchmark_scores_the_test_rows():
    x, y = spread_out(80)
    order = np.arange(80)
    table = {"X": x, "y": y, "train_index": order[None, :70], "test_index": order[None, 70:]}
    options = {**QUICK, "max_epochs": 3}
    options.pop("random_state")
    found = uci.score(table, 0, options)
    density = quick(max_epochs=3).fit(x[:70], y[:70]).predict_density(x[70:])
    truth = y[70:]
    expected = [density.logpdf(truth).mean(), density.crps(truth).mean()]
    expected += [np.mean((density.mean() - truth) ** 2) ** 0.5, np.mean(abs(density.cdf(truth) - 0.5) <= 0.45)]
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    row = uci.summary("made up", "fourier", [(1.0, 2.0, 3.0, 0.9), (2.0, 2.0, 5.0, 0.9)], seconds=6.0)
    assert (row["log_likelihood"], row["log_likelihood_error"], row["rmse_error"]) == (1.5, 0.5, 1.0)
    assert row["seconds_per_fit"] == 3.0


# --- bad input


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"head": "furier"}, "did you mean fourier"),
        ({"head": "tree"}, r"got 'tree'; there are fourier, mixture, hl-gauss, linear\.$"),
        ({"device": "abacus"}, "^device must be cpu, cuda or auto, got abacus"),
        ({"loss": "mse"}, "loss must be"),
        ({"num_frequencies": 0}, "num_frequencies must be a whole number of at least 1, got 0"),
        ({"n_members": 1.5}, "n_members must be a whole number of at least 1, got 1.5"),
        ({"body": "tree"}, "body must be 'auto', 'pieces', 'smooth' or 'boosting', got 'tree'"),
        ({"tails": 0.0}, "tails must be a share of probability between 0 and 1"),
        ({"weight_decay": -1.0}, "weight_decay must be 'auto' or not negative"),
        ({"max_epochs": 2.5}, "max_epochs must be 'auto' or a whole number"),
        ({"num_bins": 1}, "num_bins must be a whole number of at least 2, got 1"),
        ({"hidden_sizes": ()}, "hidden_sizes"),
        ({"hidden_sizes": 64}, "hidden_sizes must be 'auto' or a list of whole numbers above 0, got 64"),
        ({"learning_rate": 0.0}, "learning_rate must be positive"),
        ({"learning_rate": "auto"}, "learning_rate must be a number, got 'auto'"),
        ({"weight_decay": None}, "weight_decay must be 'auto' or a number, got None"),
        ({"patience": "never"}, "patience must be 'auto' or a whole number of at least 1, got 'never'"),
        ({"bounds": 0}, "bounds must be a pair of numbers, None for no such end, got 0"),
        ({"bounds": (1, 0)}, "bounds must be the lower one first"),
        ({"bounds": (0, None), "head": "linear"}, "bounds are of the Fourier head, got head='linear'"),
        ({"bounds": (None, 50)}, r"bounds are \(None, 50\), but targets lie between"),
        ({"validation_fraction": 1.0}, "validation_fraction must lie between 0 and 0.9"),
    ],
)
def test_bad_settings_get_a_sentence(options, words):
    with pytest.raises(ValueError, match=words):
        quick(**options).fit(*spread_out(20))


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a graphics card")
def test_a_device_that_is_not_there_gets_a_sentence():
    with pytest.raises(ValueError, match=r"^device cuda needs a graphics card that torch can use"):
        quick(device="cuda").fit(*spread_out(20))


def test_the_mixture_goes_by_both_its_names():
    x, y = spread_out(40)
    same = [quick(head=head, max_epochs=2).fit(x, y).predict(x) for head in ("mixture", "gmm")]
    np.testing.assert_array_equal(*same)


def test_missing_dependency_names_the_extra(monkeypatch):
    for name in [name for name in sys.modules if name.startswith("fourier_head.integrations.scikit_learn")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "sklearn", None)
    with pytest.raises(UserError, match=r'pip install "fourier-head\[sklearn\]"'):
        importlib.import_module("fourier_head.integrations.scikit_learn")


def test_bad_values_get_a_sentence():
    x, y = spread_out(30)
    unknown = np.array([None, *y[1:]], dtype=object)
    for X, targets, words in (
        (np.where(x > 0, np.inf, x), y, "Input X contains infinity"),
        (x, np.where(y > 0, "much", "little"), "y must hold numbers"),
        (x, np.arange(30).astype("datetime64[s]"), "y must hold numbers to predict, got datetime64"),
        (x, unknown, "y contains NaN or infinity: leave out rows whose target is not known"),
        (np.array([["a"]] * 30, dtype=object), y, "'a': X must be a data frame"),
        (x, np.append(y[1:], -1e300), r"y must hold numbers up to 1e\+150 in size, got 1e\+300: divide them"),
    ):
        with pytest.raises(ValueError, match=words):
            quick().fit(X, targets)
    with pytest.raises(ValueError, match=r"(?i)sample.weight.* at least one"):
        quick().fit(x, y, sample_weight=np.zeros(30))
    model = quick(max_epochs=1).fit(x, y)
    density = model.predict_density(x)
    assert isinstance(density, PredictiveDistribution)
    assert repr(density) == "PredictiveDistribution(30 rows)"
    levels = "levels must be one number or a list of numbers above 0 and below 1"
    for call, words in (
        (lambda: model.predict_quantiles(x, [0.5, 1.0]), levels),
        (lambda: density.interval(90), "coverage must lie between 0 and 1"),
        (lambda: model.sample(x, 0), "n_samples must be at least 1"),
        (lambda: density.pdf(np.zeros(7)), "y must have one value for each of the 30 rows"),
    ):
        with pytest.raises(ValueError, match=words):
            call()
    with pytest.raises(TypeError, match=r"n_samples must be a whole number, got 2\.5"):
        model.sample(x, 2.5)


def test_rows_without_weight_change_nothing():
    x, y = spread_out(60)
    far_x, far_y = np.vstack([x, [[50.0]], [[-3.0]]]), np.append(y, [1e6, -1e6])
    weights = np.append(np.linspace(0.5, 2, 60), [0, 0])
    with_them = quick().fit(far_x, far_y, sample_weight=weights)
    without = quick().fit(x, y, sample_weight=weights[:60])
    np.testing.assert_allclose(with_them.predict(x), without.predict(x))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda model, X, y: model.calibrate(X, np.where(y > 0, y, np.nan)), "contains NaN"),
        (lambda model, X, y: model.calibrate(X, np.append(y[1:].astype(object), None)), "contains NaN"),
        (
            lambda model, X, y: model.calibrate(X, (100 * y).astype("datetime64[s]")),
            "must hold numbers to predict, got",
        ),
        (lambda model, X, y: model.calibrate(X, np.c_[y, y]), "y must hold 1 targets as in fit, got 2"),
        (lambda model, X, y: model.calibrate(X, y[:-1]), "inconsistent numbers of samples"),
        (lambda model, X, y: model.predict_interval(X, "90"), "coverage must lie between 0 and 1, got '90'"),
        (
            lambda model, X, y: model.predict_interval(X, 90, conformal=True),
            "coverage must lie between 0 and 1, got 90",
        ),
        (lambda model, X, y: model.predict_distribution(X, num_bins=0), "num_bins must be at least 1, got 0"),
    ],
)
def test_rows_and_coverage_that_cannot_be(call, message):
    X = np.random.default_rng(0).normal(size=(40, 2))
    model = FourierRegressor(body="smooth", max_epochs=1, n_members=2, random_state=0).fit(X, X[:, 0])
    before = [levels.copy() for levels in model.calibration_levels_]
    with pytest.raises(ValueError, match=message):
        call(model, X, X[:, 0])
    np.testing.assert_array_equal(model.calibration_levels_, before)
