"""The study of spectra of next tokens: what it counts, what it takes off, and the whole of it at toy size."""

import numpy as np
import pytest
import torch
from studies.spectrum.study import KINDS, Settings, count_tokens, holding, run, spectrum


def test_the_spectrum_is_that_of_the_distribution_not_of_its_counts():
    rng = np.random.default_rng(0)
    place = np.arange(64)
    truth = np.exp(-0.5 * ((place - 20) / 6) ** 2)
    truth /= truth.sum()
    exact = np.abs(np.fft.rfft(truth))[1:] ** 2
    found = np.mean([spectrum(rng.multinomial(200, truth).astype(float)) for _ in range(400)], axis=0)
    np.testing.assert_allclose(found, exact, atol=0.003)  # counts alone would add 1/200 everywhere
    assert np.abs(np.fft.rfft(rng.multinomial(200, truth) / 200))[-1] ** 2 > 0


def test_frequencies_hold_a_share_of_the_energy():
    assert holding(np.array([1.0, 1.0, 2.0]), 0.5) == 2
    assert holding(np.array([1.0, 1.0, 2.0]), 0.6) == 3


class Stream:
    """Windows whose next value is 0.1 above the last; every other one is zero or a repetition."""

    def __next__(self):
        from fourier_head.forecasting.corpora.windows import Windows

        context = torch.full((4, 8), 2.0)
        future = torch.tensor([[2.2], [2.0], [0.0], [2.2]])
        return Windows(context, future, torch.zeros(4))


def test_zeros_and_repetitions_are_left_out():
    counts = count_tokens(Stream(), 4)
    for kind in KINDS:
        assert counts[kind, "all"].sum() == counts[kind, "near"].sum() == 2
        middle = len(counts[kind, "near"]) // 2
        (step,) = np.flatnonzero(counts[kind, "near"]) - middle
        assert step == pytest.approx({"uniform": 0.1 / (30 / 4094), "mixed": 0.1 / (11 / 3275)}[kind], abs=1.5)


def test_mixed_bins_narrow_the_spectrum_even_of_artificial_series(tmp_path):
    summary = run(Settings(tmp_path / "spectrum", quick=True))
    few = {
        one["protocol"]: one["ours"]
        for one in summary.rows
        if one["metric"] == "frequencies_50" and one["dataset"].startswith("next tokens about")
    }
    assert few["Mixed bins"] < few["Uniform bins"]
    assert (tmp_path / "spectrum" / "spectrum.png").exists()
