"""Smoothness against the literal sum, scipy's filters and published values."""

import importlib
import json
import math

import numpy as np
import pytest
import torch

from fourier_head import metrics
from fourier_head.fourier.smoothness import blocks, integer_gauss


def pmf_examples(m):
    """Categoricals of every kind: rough, peaked, smooth, sparse."""
    rng = np.random.default_rng(m)
    b = -1 + (2 * np.arange(m) + 1) / m
    rows = [rng.random(m), np.exp(-((b - 0.1) ** 2) / 0.005) + 1e-9, 1 + 0.5 * np.cos(np.pi * b + 1)]
    rows.append(rng.dirichlet(np.full(m, 0.05)))
    return np.stack([row / row.sum() for row in rows])


def direct_smoothness(y, order, last):
    """Sum norms over sigma = 1 .. last with the literal wrapped kernel; return the sum and the last norm."""
    m = len(y)
    offsets, sigma = np.arange(1 - m, m), np.arange(1, last + 1)
    place = (np.arange(m)[:, None] - offsets) % m
    taps = np.exp(-(offsets[:, None] ** 2) / (2.0 * sigma**2))
    norms = np.linalg.norm(y[:, None] - y[place] @ (taps / taps.sum(0)), order, axis=0)
    return 6 / math.pi**2 * math.fsum(norms / sigma**2), norms[-1]


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("m", [2, 3, 7, 16, 50])
def test_smoothness_equals_brute_force_sum_to_infinity(m, order):
    last = 4000
    for y in pmf_examples(m):
        total, norm = direct_smoothness(y, order, last)
        # As sigma grows the kernel becomes 2m - 1 equal taps, which leaves 2m / (2m - 1) of y - 1/m.
        limit = 2 * m / (2 * m - 1) * np.linalg.norm(y - 1 / m, order)
        zeta2 = 1 / last - 1 / (2 * last**2) + 1 / (6 * last**3)
        expected = total + 6 / math.pi**2 * (limit * zeta2 + (norm - limit) * last**2 / (3 * last**3))
        got = metrics.smoothness(y, discrepancy=f"l{order}").item()
        assert got == pytest.approx(expected, rel=1e-12, abs=1e-16)


def test_smoothness_of_many_bins_equals_direct_sum_over_widths():
    m, last = 4096, 700
    y = torch.as_tensor(pmf_examples(m))
    lag, spectrum, total = torch.arange(m, dtype=torch.float64), torch.fft.rfft(y), {1: 0.0, 2: 0.0}
    for sigma in range(1, last + 1):
        kernel = torch.exp(-(lag**2) / (2.0 * sigma**2)) + (lag > 0) * torch.exp(-((m - lag) ** 2) / (2.0 * sigma**2))
        rest = y - torch.fft.irfft(spectrum * torch.fft.rfft(kernel / kernel.sum()), n=m)
        for order in total:
            total[order] += 6 / (math.pi * sigma) ** 2 * torch.linalg.vector_norm(rest, order, dim=-1)
    for order, expected in total.items():
        got = metrics.smoothness(y, discrepancy=f"l{order}", max_sigma=last)
        torch.testing.assert_close(got, expected, rtol=1e-11, atol=0)


def test_smoothness_tail_is_what_is_left_at_a_far_cut():
    y = pmf_examples(32)
    for discrepancy in ("l1", "l2"):
        whole = metrics.smoothness(y, discrepancy=discrepancy)
        cut = metrics.smoothness(y, discrepancy=discrepancy, max_sigma=10**7)
        limit = 64 / 63 * np.linalg.norm(y - 1 / 32, int(discrepancy[1]), axis=-1)
        np.testing.assert_allclose((whole - cut).numpy(), 6 / math.pi**2 * 1e-7 * limit, rtol=1e-5)


def test_released_truncation_equals_scipy_filters(shared):
    ndimage = pytest.importorskip("scipy.ndimage")
    arrays = np.load(shared / "reference" / "released_pmfs.npz")
    for name in arrays:
        given = np.atleast_2d(arrays[name])[:60]
        rows, m = given.astype(np.float64), given.shape[-1]
        expected = {1: 0.0, 2: 0.0}
        for sigma in range(1, 101):
            rest = rows - ndimage.gaussian_filter1d(rows, sigma, axis=-1, mode="wrap", radius=min(m - 1, 10 * sigma))
            for order in expected:
                expected[order] += 6 / (math.pi * sigma) ** 2 * np.linalg.norm(rest, order, axis=-1)
        for order, values in expected.items():
            got = metrics.smoothness(given, discrepancy=f"l{order}", max_sigma="released")
            assert got.dtype == torch.float32
            np.testing.assert_allclose(got.numpy(), values, atol=1e-6, rtol=1e-6, err_msg=name)


def test_released_truncation_gives_the_published_smoothness(shared):
    published = json.loads((shared / "reference" / "toy_released_metrics.json").read_text())
    arrays = np.load(shared / "reference" / "released_pmfs.npz")
    for dataset in ("gaussian", "gmm2"):
        (row,) = [
            r
            for r in published
            if (r["dataset"], r["head"], r["frequencies"], r["gamma"]) == (dataset, "fourier", 12, 0.0)
        ]
        got = metrics.smoothness(arrays[f"{dataset}_fourier"], max_sigma=metrics.RELEASED_MAX_SIGMA)
        # The arrays come from one of the four seeds behind the published mean.
        assert got.mean().item() == pytest.approx(row["smoothness"]["mean"], rel=0.05)


def test_smoothness_of_edge_cases():
    assert metrics.smoothness([1.0]).item() == 0
    assert metrics.smoothness(torch.full((50,), 0.02)).item() < 1e-8
    assert metrics.smoothness(torch.zeros(0, 5)).shape == (0,)
    assert metrics.smoothness(torch.rand(2, 3, 9)).shape == (2, 3)
    assert metrics.smoothness(torch.rand(2, 9, dtype=torch.bfloat16)).dtype == torch.float32
    y = torch.rand(4, 33, dtype=torch.float64)
    torch.testing.assert_close(metrics.smoothness(3 * y.roll(5, -1)), 3 * metrics.smoothness(y))


@pytest.mark.parametrize("discrepancy", ["l1", "l2"])
def test_smoothness_has_finite_and_right_gradients(discrepancy):
    uniform = torch.full((2, 16), 1 / 16, dtype=torch.float64, requires_grad=True)
    metrics.smoothness(uniform, discrepancy=discrepancy).sum().backward()
    assert uniform.grad.isfinite().all()
    y = torch.rand(2, 12, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda v: metrics.smoothness(v, discrepancy=discrepancy), y, atol=1e-6)


def test_smoothness_batches_larger_than_a_pass_equal_single_rows(monkeypatch):
    module = importlib.import_module("fourier_head.fourier.smoothness")
    y = torch.rand(37, 20, dtype=torch.float64)
    for discrepancy in ("l1", "l2"):
        whole = metrics.smoothness(y, discrepancy=discrepancy)
        monkeypatch.setattr(module, "_ROWS", 100)
        monkeypatch.setattr(module, "_ELEMENTS", 300)
        torch.testing.assert_close(metrics.smoothness(y, discrepancy=discrepancy), whole, rtol=1e-13, atol=0)
        monkeypatch.undo()


def test_square_waves_get_less_smooth_with_every_harmonic():
    x = torch.arange(2048, dtype=torch.float64) / 2048
    harmonics = 2 * torch.arange(40, dtype=torch.float64) + 1
    waves = torch.cumsum(torch.sin(2 * math.pi * harmonics[:, None] * x) / harmonics[:, None], 0).clamp_min(0)
    s = metrics.smoothness(waves / waves.sum(-1, keepdim=True))
    assert (s.diff() > 0).all()


def test_integer_gauss_rule_sums_polynomials_exactly():
    for first, count, order in [(33, 33, 16), (5, 100, 4), (1000, 1000, 16), (1, 7, 16)]:
        nodes, weights = integer_gauss(first, count, order)
        x = (np.arange(first, first + count) - first) / count
        for degree in range(2 * order):
            value = weights @ ((nodes - first) / count) ** degree
            assert value == pytest.approx(np.sum(x**degree), rel=1e-12)


def test_rule_weights_add_up_to_one():
    for m in (1, 50, 4096):
        assert sum(block.weight.sum() for block in blocks(m, None)) == pytest.approx(1.0, rel=1e-14)
    expected = sum(6 / (math.pi * k) ** 2 for k in range(1, 101))
    assert sum(block.weight.sum() for block in blocks(50, 100)) == pytest.approx(expected, rel=1e-14)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"pmf": torch.zeros(3, 0)}, "pmf must have at least one bin"),
        ({"pmf": [0.5, 0.5], "discrepancy": "l3"}, "discrepancy must be 'l2' or 'l1', got 'l3'"),
        ({"pmf": [0.5, 0.5], "max_sigma": 0}, "max_sigma must be a positive integer"),
        ({"pmf": [0.5, 0.5], "max_sigma": 2.5}, "got 2.5"),
    ],
)
def test_smoothness_refuses_bad_input(arguments, words):
    with pytest.raises(ValueError, match=words):
        metrics.smoothness(**arguments)
