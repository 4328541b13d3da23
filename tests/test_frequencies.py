"""The scaling law and the proposal of N, on spectra that are known."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fourier_head import Interval, Line
from fourier_head.frequencies import fit_scaling_law, predicted_smoothness, recommend_head, suggest_frequencies
from fourier_head.metrics import smoothness


def truncations(t, counts, m):
    """Midpoint bins of the density with coefficients proportional to k^-t, cut after each number of frequencies."""
    b = -1 + (2 * np.arange(m) + 1) / m
    k = np.arange(1, max(counts) + 1)[:, None]
    size = 0.45 / np.sum(np.arange(1, 10**5, dtype=float) ** -t)
    density = 0.5 + np.cumsum(size * k**-t * np.cos(np.pi * k * b), 0)[np.array(counts) - 1]
    assert (density > 0).all()
    return density * 2 / m


# ---------------------------------------------------------------- scaling law


@settings(max_examples=20, deadline=None)
@given(st.floats(0.01, 2.0), st.floats(0.001, 1.0), st.floats(1.0, 5.0), st.sampled_from([0.0, 0.5]))
def test_fit_recovers_exact_constants(C1, C2, t, offset):
    N = np.array([2, 3, 4, 6, 8, 12, 16])
    law = fit_scaling_law(N, predicted_smoothness(N + offset, C1, C2, t), offset=offset)
    np.testing.assert_allclose([law.C1, law.C2, law.t], [C1, C2, t], rtol=1e-4)
    assert law.exponent == 2 * law.t - 1
    np.testing.assert_allclose(law.predict(N), predicted_smoothness(N + offset, C1, C2, t), atol=1e-11)
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


# ---------------------------------------------------------------- suggestion


def gaussian(deviation, n, seed=0):
    return np.clip(np.random.default_rng(seed).normal(0, deviation, n), -1, 1)


def resolvable(deviation, n):
    """Where exp(-(pi k s)^2) falls to 1/n."""
    return math.sqrt(math.log(n)) / (math.pi * deviation)


@pytest.mark.parametrize("deviation", [0.2, 0.1, 0.05, 0.02])
def test_a_narrower_gaussian_needs_frequencies_in_proportion(deviation):
    proposals = [
        suggest_frequencies(gaussian(deviation, 5000, seed), domain=(-1, 1)).num_frequencies for seed in range(15)
    ]
    assert np.median(proposals) == pytest.approx(resolvable(deviation, 5000), rel=0.15, abs=1)


def test_trigonometric_density_is_recovered_exactly():
    # 1/2 (1 + 0.8 cos(6 pi z)) = |A|^2 of degree 6, drawn by rejection.
    proposals = []
    for seed in range(9):
        rng = np.random.default_rng(seed)
        z = rng.uniform(-1, 1, 20_000)
        z = z[rng.random(z.size) < (1 + 0.8 * np.cos(6 * np.pi * z)) / 1.8]
        found = suggest_frequencies(torch.as_tensor(z), domain=(-1, 1))
        proposals.append(found.num_frequencies)
        assert f"up to k = {found.num_frequencies} stand out" in found.reason
        assert found.spectrum[6] == pytest.approx(0.16, abs=0.02)
        assert abs(found.spectrum[1:6]).max() < 0.001
        assert not found.capped
    assert np.median(proposals) == 6
    assert min(proposals) == 6


def test_more_data_resolve_more_frequencies():
    z = gaussian(0.05, 100_000)
    proposals = [suggest_frequencies(z[:n], domain=(-1, 1)).num_frequencies for n in (100, 3000, 100_000)]
    assert proposals == sorted(proposals)
    assert proposals[0] < proposals[-1]


def test_pmf_is_cut_at_the_least_true_risk():
    m, n = 256, 10_000
    b = -1 + (2 * np.arange(m) + 1) / m
    y = np.exp(-(b**2) / (2 * 0.03**2))
    found = suggest_frequencies(pmf=y / y.sum(), num_samples=n)
    assert found.num_frequencies == math.floor(resolvable(0.03, n))
    k = np.arange(10)
    np.testing.assert_allclose(found.spectrum[:10], np.exp(-((np.pi * k * 0.03) ** 2)), rtol=1e-6)
    rows = np.stack([np.roll(y, s) for s in range(20)])  # the place of a conditional density does not matter
    assert suggest_frequencies(pmf=rows / rows.sum(-1, keepdims=True)).num_frequencies == found.num_frequencies


def test_counts_bring_their_own_noise():
    m = 128
    b = -1 + (2 * np.arange(m) + 1) / m
    y = np.exp(-(b**2) / (2 * 0.05**2))
    for n in (300, 30_000):
        found = [
            suggest_frequencies(pmf=np.random.default_rng(seed).multinomial(n, y / y.sum())).num_frequencies
            for seed in range(15)
        ]
        assert np.median(found) == pytest.approx(resolvable(0.05, n), rel=0.15)


def test_bins_and_grids_cap_the_proposal_and_say_so():
    z = gaussian(0.01, 3000)
    few = suggest_frequencies(z, domain=(-1, 1), num_bins=50)
    assert (few.num_frequencies, few.capped) == (24, True)
    assert "below half of the 50 bins" in few.reason
    assert suggest_frequencies(z, domain=(-1, 1), max_frequencies=10).num_frequencies == 10
    rounded = np.round(gaussian(0.01, 3000) * 40) / 40  # 80 steps of 1/40 on [-1, 1]
    grid = suggest_frequencies(rounded, domain=(-1, 1))
    assert grid.num_frequencies == 39
    assert "grid of about 80 steps" in grid.reason


def test_uniform_values_and_atoms_are_named():
    rng = np.random.default_rng(0)
    flat = suggest_frequencies(rng.uniform(-1, 1, 5000), domain=(-1, 1))
    assert flat.num_frequencies == 1
    assert "uniform" in flat.reason
    inflated = np.where(rng.random(4000) < 0.6, 0.0, rng.exponential(1.0, 4000))
    atom = suggest_frequencies(inflated)
    assert atom.capped
    assert "one value holds 6" in atom.reason
    assert "atom" in atom.reason


@pytest.mark.parametrize("deviation", [0.1, 0.03])
def test_features_give_the_frequencies_of_the_conditional_density(deviation):
    rng = np.random.default_rng(1)
    x = rng.uniform(-1, 1, (4000, 2))
    z = np.clip(0.4 * np.sin(2 * x[:, 0]) + 0.3 * x[:, 1] + rng.normal(0, deviation, 4000), -1, 1)
    marginal = suggest_frequencies(z, domain=(-1, 1))
    conditional = suggest_frequencies(z, features=torch.as_tensor(x), domain=(-1, 1))
    assert conditional.num_frequencies == pytest.approx(resolvable(deviation, 4000), rel=0.15, abs=1)
    assert marginal.num_frequencies < conditional.num_frequencies
    assert "marginal" in marginal.reason
    k = np.arange(5)
    np.testing.assert_allclose(conditional.spectrum[:5], np.exp(-((np.pi * k * deviation) ** 2)), atol=0.05)
    known = suggest_frequencies(z, conditional_scale=deviation, domain=(-1, 1))
    assert known.num_frequencies == math.ceil(resolvable(deviation, 4000))


def test_uninformative_features_change_little():
    z = gaussian(0.1, 3000)
    noise = np.random.default_rng(5).normal(size=(3000, 3))
    found = suggest_frequencies(z, features=noise, domain=(-1, 1))
    assert found.num_frequencies == pytest.approx(resolvable(0.1, 3000), rel=0.2)
    assert 0.9 < int(found.reason.split("%")[0].split()[-1]) / 100 < 1.1


def test_rows_beyond_the_limit_are_drawn_reproducibly():
    rng = np.random.default_rng(2)
    x = rng.uniform(-1, 1, 6000)
    z = np.clip(0.5 * x + rng.normal(0, 0.05, 6000), -1, 1)
    first = suggest_frequencies(z, features=x, domain=(-1, 1), max_rows=400, seed=3)
    again = suggest_frequencies(z, features=x, domain=(-1, 1), max_rows=400, seed=3)
    np.testing.assert_array_equal(first.spectrum, again.spectrum)
    assert first.num_frequencies == pytest.approx(resolvable(0.05, 6000), rel=0.25)


def test_scale_of_the_values_does_not_matter():
    rng = np.random.default_rng(4)
    z = rng.beta(3, 5, 4000)
    x = z + rng.normal(0, 0.1, 4000)
    for features in (None, x):
        plain = suggest_frequencies(z, features=features)
        moved = suggest_frequencies(1e4 * z - 7, features=None if features is None else 50 * features + 3)
        assert plain.num_frequencies == moved.num_frequencies


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({}, "exactly one of values and pmf"),
        ({"values": [1.0]}, "at least two numbers, got 1"),
        ({"values": [1.0, math.nan, 2.0]}, "values must be finite, got 1 NaN or infinite of 3"),
        ({"values": [2.0, 2.0, 2.0]}, "values must not be constant, got 2 throughout"),
        ({"values": [0.0, 3.0], "domain": (-1, 1)}, "1 of 2 outside"),
        ({"values": [0.0, 0.5], "domain": (1, -1)}, "low < high"),
        ({"values": [0.0, 1e-20, 0.0], "domain": (-1, 1)}, "differ by more than rounding"),
        ({"values": [0.0, 0.5], "max_frequencies": 0}, "max_frequencies must be positive"),
        ({"values": [0.0, 0.5], "num_bins": 2}, "num_bins at least 3"),
        ({"values": [0.0, 0.5], "conditional_scale": 0.0}, "conditional_scale must be positive"),
        ({"values": [0.0, 0.5], "features": [1.0]}, "features must have shape"),
        ({"values": [0.0, 0.5], "features": [1.0, math.inf]}, "features must be finite"),
        ({"values": [0.0, 0.5], "features": [1.0, 2.0], "conditional_scale": 1.0}, "only one of features"),
        ({"pmf": [0.5, 0.5]}, "at least three bins"),
        ({"pmf": [0.5, -0.5, 1.0]}, "pmf must be finite"),
        ({"pmf": [0.2, 0.3, 0.5], "num_bins": 7}, "num_bins must be the number of bins"),
        ({"pmf": [0.2, 0.3, 0.5], "features": [1.0]}, "go with values"),
    ],
)
def test_bad_input_gets_one_clear_sentence(arguments, words):
    with pytest.raises(ValueError, match=words):
        suggest_frequencies(**arguments)


def test_other_domains_and_words_are_refused():
    with pytest.raises(TypeError, match=r"domain must .*got Line"):
        suggest_frequencies([0.0, 0.5], domain=Line())
    with pytest.raises(TypeError, match="expected real numbers"):
        suggest_frequencies(np.array(["low", 1.0], dtype=object))


def test_series_and_intervals_are_taken_as_they_are():
    pandas = pytest.importorskip("pandas")
    values = np.random.default_rng(0).normal(size=500).clip(-4, 4)
    series = pandas.Series(values, index=range(100, 600))
    assert recommend_head(series) == recommend_head(series.astype(object)) == recommend_head(values)
    assert (
        recommend_head(values, domain=Interval(-4, 4)).as_options()
        == recommend_head(values, domain=(-4, 4)).as_options()
    )
