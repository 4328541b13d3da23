"""The scaling law, fitted to densities whose spectra are known."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from studies.scaling_law.decay import fit_scaling_law, predicted_smoothness

from fourier_head.metrics import smoothness


def truncations(t, counts, m):
    """Midpoint bins of the density with coefficients proportional to k^-t, cut after each number of frequencies."""
    b = -1 + (2 * np.arange(m) + 1) / m
    k = np.arange(1, max(counts) + 1)[:, None]
    size = 0.45 / np.sum(np.arange(1, 10**5, dtype=float) ** -t)
    density = 0.5 + np.cumsum(size * k**-t * np.cos(np.pi * k * b), 0)[np.array(counts) - 1]
    assert (density > 0).all()
    return density * 2 / m


@settings(max_examples=20, deadline=None)
@given(st.floats(0.01, 2.0), st.floats(0.001, 1.0), st.floats(1.0, 5.0), st.sampled_from([0.0, 0.5]))
def test_fit_recovers_exact_constants(C1, C2, t, offset):
    N = np.array([2, 3, 4, 6, 8, 12, 16])
    law = fit_scaling_law(N, predicted_smoothness(N + offset, C1, C2, t), offset=offset)
    np.testing.assert_allclose([law.C1, law.C2, law.t], [C1, C2, t], rtol=1e-4)
    assert law.exponent == 2 * law.t - 1
    fitted = predicted_smoothness(N + offset, law.C1, law.C2, law.t)
    np.testing.assert_allclose(fitted, predicted_smoothness(N + offset, C1, C2, t), atol=1e-11)
    assert law.residual < 1e-10


@pytest.mark.parametrize("t", [2.0, 3.0, 4.0])
def test_fit_finds_the_exponent_of_the_theorem_on_truncated_densities(t):
    counts, m = [16, 20, 24, 32, 40, 50, 64, 80, 100, 128], 1024
    y = truncations(t, counts, m)
    distance = np.linalg.norm(y - 1 / m, axis=-1)  # the limit of wide kernels, where the theorem holds
    assert fit_scaling_law(counts, distance).exponent == pytest.approx(2 * t - 1, rel=0.05)
    assert fit_scaling_law(counts, distance, offset=0.5).exponent == pytest.approx(2 * t - 1, rel=0.01)


@pytest.mark.parametrize(("t", "exponent"), [(2.0, 0.5), (3.0, 2.0), (4.0, 4.0)])
def test_smoothness_summed_over_all_widths_follows_a_lower_exponent(t, exponent):
    counts = [8, 10, 13, 16, 20, 26, 32, 45, 64]
    s = smoothness(truncations(t, counts, 16384))
    assert (s.diff() > 0).all()
    assert fit_scaling_law(counts, s, offset=0.5).exponent == pytest.approx(exponent, rel=0.05)


def test_fit_survives_noise_and_any_order():
    rng = np.random.default_rng(0)
    N = rng.permutation(np.arange(2, 40))
    law = fit_scaling_law(N, predicted_smoothness(N, 0.06, 0.05, 1.5) + rng.normal(0, 1e-5, N.size))
    assert law.t == pytest.approx(1.5, rel=0.01)
    assert law.residual == pytest.approx(1e-5, rel=0.4)


@pytest.mark.parametrize(
    ("N", "s", "words"),
    [
        ([1, 2], [0.1, 0.2], "at least three different values"),
        ([1, 2, 3], [0.1, 0.2], "same length, got 3 and 2"),
        ([0, 1, 2], [0.1, 0.2, 0.3], "N must be positive"),
        ([1, 2, 3], [0.1, math.nan, 0.3], "smoothness finite"),
        ([1, 2, 3], [0.1, 0.1, 0.1], "must vary with N"),
    ],
)
def test_fit_refuses_what_has_no_answer(N, s, words):
    with pytest.raises(ValueError, match=words):
        fit_scaling_law(N, s)
