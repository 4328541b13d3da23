"""The proposal of N, on spectra that are known."""

import math

import numpy as np
import pytest
import torch

from fourier_head import Interval, Line
from fourier_head.frequencies import recommend_head, suggest_frequencies

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
