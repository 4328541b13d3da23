"""Metrics against closed forms and gluonts."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fourier_head import metrics

NAN = float("nan")


# ---------------------------------------------------------------- divergences


def test_kl_and_tvd_conventions():
    p, q = torch.tensor([[0.5, 0.5, 0.0], [0.0, 1.0, 0.0]]), torch.tensor([0.25, 0.75, 0.0])
    expected = torch.tensor([0.5 * math.log(2) + 0.5 * math.log(2 / 3), math.log(4 / 3)])
    torch.testing.assert_close(metrics.kl_divergence(p, q), expected)
    assert metrics.kl_divergence([0.5, 0.5], [1.0, 0.0]).item() == math.inf
    assert metrics.kl_divergence([1.0, 0.0], [1.0, 0.0]).item() == 0
    torch.testing.assert_close(metrics.tvd(p, q), torch.tensor([0.25, 0.25]))
    p.requires_grad_()
    metrics.kl_divergence(p, q).sum().backward()
    assert p.grad.isfinite().all()


@settings(max_examples=30, deadline=None)
@given(st.integers(2, 40), st.integers(0, 10**6))
def test_pinsker_bounds_tvd_by_kl(m, seed):
    p, q = np.random.default_rng(seed).dirichlet(np.ones(m), 2)
    assert metrics.tvd(p, q).item() <= math.sqrt(metrics.kl_divergence(p, q).item() / 2) + 1e-12


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: metrics.wql([1.0, 2.0], [0.5], 0.0), "levels on their first axis"),
        (lambda: metrics.wql([1.0], [1.0], 0.0), "strictly between 0 and 1"),
        (lambda: metrics.pit_histogram([0.5, 1.5]), r"pit_values must lie in \[0, 1\]"),
        (lambda: metrics.pit_histogram([NAN]), "at least one value"),
        (lambda: metrics.smoothness(np.log([0.25, 0.75])), "pmf must hold probabilities, .* of logarithms take exp"),
        (lambda: metrics.kl_divergence(np.log([0.25, 0.75]), [0.5, 0.5]), "p must hold probabilities"),
        (lambda: metrics.tvd([0.5, 0.5], np.log([0.25, 0.75])), "q must hold probabilities"),
        (lambda: metrics.pit_histogram([0.5], 0), "num_bins must be a positive integer"),
    ],
)
def test_bad_input_gets_one_clear_sentence(call, words):
    with pytest.raises(ValueError, match=words):
        call()


# ---------------------------------------------------------------- forecasts, as gluonts defines them

LEVELS = [0.1, 0.25, 0.5, 0.9]


def forecast_case(seed, missing):
    """Targets and quantile forecasts, with gaps."""
    rng = np.random.default_rng(seed)
    target = rng.normal(size=(9, 6))
    if missing:
        target[rng.random(target.shape) < 0.3] = NAN
    return target, np.sort(rng.normal(size=(len(LEVELS), 9, 6)), 0)


@pytest.mark.parametrize("missing", [False, True])
def test_wql_equals_gluonts(missing):
    ev = pytest.importorskip("gluonts.ev.metrics")
    for seed in range(5):
        target, quantiles = forecast_case(seed, missing)
        data = {"label": np.ma.masked_invalid(target)}
        data |= {str(level): q for level, q in zip(LEVELS, quantiles, strict=True)}
        expected = ev.MeanWeightedSumQuantileLoss(LEVELS)(axis=None).update(data).get()
        assert metrics.wql(quantiles, LEVELS, target).item() == pytest.approx(float(expected), rel=1e-12)


def test_pinball_loss_is_half_of_what_gluonts_calls_quantile_loss():
    old = pytest.importorskip("gluonts.evaluation.metrics")
    forecast, target = np.random.default_rng(0).normal(size=(2, 7))
    for level in LEVELS:
        got = 2 * metrics.pinball_loss(forecast, target, level).sum().item()
        assert got == pytest.approx(old.quantile_loss(target, forecast, level), rel=1e-12)


def test_wql_leaves_out_what_is_missing_and_nothing_else():
    target = torch.tensor([[1.0, NAN], [1.0, 2.0], [3.0, 4.0]])
    assert metrics.wql(torch.zeros(2, 3, 2), [0.2, 0.5], target).item() == pytest.approx((0.4 + 1.0) / 2)
    assert metrics.wql(torch.full((2, 3, 2), NAN), [0.2, 0.5], target).isnan()


# ---------------------------------------------------------------- calibration


def test_pit_of_a_calibrated_forecast_is_flat_and_of_a_narrow_one_is_not():
    normal = torch.distributions.Normal(0.0, 1.0)
    y = torch.randn(100_000, dtype=torch.float64)
    right, narrow = normal.cdf(y), normal.cdf(2 * y)
    torch.testing.assert_close(
        metrics.pit_histogram(right, 20), torch.full((20,), 0.05, dtype=torch.float64), atol=0.005, rtol=0
    )
    assert metrics.pit_histogram(narrow)[[0, -1]].min() > 0.2
    levels = torch.tensor([0.5, 0.8, 0.95], dtype=torch.float64)
    torch.testing.assert_close(metrics.central_coverage(right, levels), levels, atol=0.01, rtol=0)
    half = normal.icdf((1 + levels) / 2)
    by_interval = (y.abs() <= half[:, None] / 2).double().mean(-1)
    torch.testing.assert_close(metrics.central_coverage(narrow, levels), by_interval, atol=2e-4, rtol=0)
    assert metrics.calibration_error(right).item() < 0.005
    # PIT values of the narrow forecast have cdf Phi(Phi^-1(u) / 2).
    u = torch.arange(1, 100, dtype=torch.float64) / 100
    expected = (normal.cdf(normal.icdf(u) / 2) - u).abs().mean().item()
    assert metrics.calibration_error(narrow).item() == pytest.approx(expected, abs=0.005)


def test_pit_histogram_counts_ends_and_skips_missing_values():
    torch.testing.assert_close(
        metrics.pit_histogram(torch.tensor([[0.0, 0.5], [1.0, NAN]]), 4), torch.tensor([1 / 3, 0.0, 1 / 3, 1 / 3])
    )


def test_numbers_must_be_real():
    with pytest.raises(TypeError, match="expected real numbers"):
        metrics.tvd(torch.ones(2, dtype=torch.complex64), torch.ones(2))


def test_what_is_not_a_number_has_no_score():
    lost = torch.tensor([[NAN] * 4, [0.25] * 4])
    for found in (
        metrics.smoothness(lost),
        metrics.smoothness(lost, discrepancy="l1"),
        metrics.kl_divergence(lost, lost[1]),
        metrics.tvd(lost, lost[1]),
    ):
        assert found.isnan().tolist() == [True, False]


def test_one_forecast_of_many_values_is_scored_against_each():
    values, levels = torch.tensor([0.1, 2.0, -1.0]), [0.2, 0.5, 0.8]
    one = torch.tensor([-0.5, 0.0, 1.0])
    many = one[:, None].expand(3, 3)
    for found, expected in (
        (metrics.wql(one, levels, values), metrics.wql(many, levels, values)),
        (metrics.wql(many, levels, 2.0), metrics.wql(many, levels, torch.full((3,), 2.0))),
    ):
        torch.testing.assert_close(found, expected)
