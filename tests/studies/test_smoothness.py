"""The study of the smoothness metric: its signals, its table, its folder."""

import json
import math

import numpy as np
import pytest
import torch
from studies.cli import app
from studies.common.report.summary import read_summary
from studies.smoothness.study import NOISES, coloured_noise, first_fall, spectral_entropy, square_waves
from typer.testing import CliRunner

from fourier_head.metrics import smoothness


def test_square_waves_are_categoricals_with_the_harmonics_asked_for():
    y = square_waves(5, samples=256)
    torch.testing.assert_close(y.sum(-1), torch.ones(5, dtype=torch.float64))
    assert (y >= 0).all()
    x = np.arange(256) / 256
    wave = sum(np.sin(2 * np.pi * n * x) / n for n in (1, 3, 5)).clip(0)
    np.testing.assert_allclose(y[2].numpy(), wave / wave.sum(), atol=1e-15)
    with pytest.raises(ValueError, match=r"count must .*got 65"):
        square_waves(65, samples=256)


@pytest.mark.parametrize("colour", NOISES)
def test_noise_has_the_power_its_colour_names(colour):
    y = coloured_noise(NOISES[colour].power, 400, 512, seed=0)
    torch.testing.assert_close(y.sum(-1), torch.ones(400, dtype=torch.float64))
    assert y.min() == 0
    power = torch.fft.rfft(y - y.mean(-1, keepdim=True)).abs().square()
    power = (power / power.sum(-1, keepdim=True)).mean(0)[1:-1]
    slope = np.polyfit(np.log(np.arange(1, 256)), np.log(power.numpy()), 1)[0]
    assert slope == pytest.approx(NOISES[colour].power, abs=0.1)


def test_first_fall():
    assert first_fall([3.0]) is None
    assert first_fall([1.0, 1.0, 0.5]) == 3


@pytest.fixture(scope="module")
def looked(tmp_path_factory):
    """What a quick look says, and where it was taken: beside results of the full study."""
    place = tmp_path_factory.mktemp("work")
    full = place / "results" / "smoothness" / "summary.json"
    full.parent.mkdir(parents=True)
    full.write_text("full")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        return CliRunner().invoke(app, ["smoothness", "--quick"]), place


def test_quick_study_reproduces_appendix_b(looked):
    folder = looked[1] / "results-quick" / "smoothness"
    content = json.loads((folder / "summary.json").read_text())
    rows = content["rows"]
    assert content["command"] == "python -m studies smoothness --quick"
    l2 = [r for r in rows if (r["metric"], r["protocol"]) == ("l2", "all sigma")]
    assert [r["dataset"] for r in l2] == ["brown noise", "pink noise", "white noise", "blue noise"]
    assert all(r["step"] > 0 for r in l2[1:])
    released = [r for r in rows if (r["metric"], r["protocol"]) == ("l2", "sigma to 100")]
    for r in l2:  # the paper prints one or two digits
        assert r["ours"] == pytest.approx(r["paper"], rel=0.1), r["dataset"]
    for r in released:
        assert r["ours"] == pytest.approx(r["paper"], abs=1e-4), r["dataset"]
    entropy = [r for r in rows if (r["metric"], r["protocol"]) == ("spectral_entropy", "nats")]
    # As printed, from means that are not rounded.
    assert [r["paper_step"] for r in l2] == [None, 0.0014, 0.0016, 0.0005]
    assert [r["paper_step"] for r in entropy] == [None, -0.0638, 0.0388, -0.0076]
    for r in entropy:
        assert r["ours"] == pytest.approx(r["paper"], abs=2 * r["paper_std"] / math.sqrt(r["seeds"]))
    varying = {r["dataset"]: r["ours"] for r in rows if r["protocol"] == "bits, no constant"}
    assert varying["white noise"] == max(varying.values())
    falls = {(r["metric"], r.get("periods")): r["ours"] for r in rows if r["metric"].endswith("first_fall")}
    assert falls["l2_first_fall", 1.0] is None
    assert falls["l1_first_fall", 1.0] == 128
    assert {p.name for p in folder.iterdir()} >= {"noise.png", "square-waves.png", "rows.csv", "runs.json"}
    assert not (folder / ".partial").exists()


def test_a_quick_look_says_where_it_is_and_leaves_full_results_alone(looked):
    got, place = looked
    assert got.exit_code == 0, got.output
    assert "A quick look: 100 trials" in got.output
    assert "spectral_entropy" in got.output
    assert "Wrote results-quick/smoothness/" in got.output
    assert (place / "results" / "smoothness" / "summary.json").read_text() == "full"
    assert read_summary(place / "results-quick" / "smoothness").quick


def test_the_continuous_smoothness_grows_with_every_frequency_and_is_of_the_size_of_the_metric():
    """Equation 1 with widths counted in bins and their sum in place of the integral is the metric, up to its norm."""
    from studies.smoothness.study import continuous_smoothness

    assert continuous_smoothness(torch.zeros(3, dtype=torch.float64), 0.01) == [0, 0, 0]
    wave = torch.tensor([0.2, 0.0, 0.1], dtype=torch.float64)
    assert continuous_smoothness(wave, 1.0)[-1] < float(wave.square().sum().sqrt())
    more = torch.tensor([0.2, 0.0, 0.1, 0.05], dtype=torch.float64)
    assert continuous_smoothness(more, 0.01)[:3] == pytest.approx(continuous_smoothness(wave, 0.01))
    assert continuous_smoothness(more, 0.01)[3] > continuous_smoothness(wave, 0.01)[2]
    m = 256
    z = -1 + (2 * torch.arange(m, dtype=torch.float64) + 1) / m
    values = 0.5 + sum(q * torch.sin(torch.pi * (k + 1) * z) for k, q in enumerate(wave.tolist()))
    metric = float(smoothness(values / values.sum())) / (2 / m) ** 0.5
    # The metric has more weight at its narrowest width, so it is smaller; both are of one size.
    assert 0.3 < metric / continuous_smoothness(wave, 2 / m)[-1] < 1.1


def test_steps_between_colours_have_their_signs_in_every_seed():
    from studies.smoothness.study import measure_steps, step_rows

    rows = step_rows([measure_steps(60, 1024, seed) for seed in range(2)])
    up = {(one["metric"], one["dataset"]): one["up"] for one in rows}
    assert all(up["l2_step", f"{colour} noise"] == 2 for colour in ("pink", "white", "blue"))


@pytest.mark.parametrize(
    ("power", "l2", "entropy"), [(-2, 0.0003, 0.4516), (-1, 0.0017, 0.3878), (0, 0.0034, 0.4266), (1, 0.0038, 0.4191)]
)
def test_noise_table_of_the_paper(power, l2, entropy):
    y = coloured_noise(power, 300, 4096, seed=1)
    assert spectral_entropy(y, base=math.e).mean().item() == pytest.approx(entropy, abs=0.015)
    assert smoothness(y, max_sigma="released").mean().item() == pytest.approx(l2, abs=1e-4)


def test_spectral_entropy_of_known_spectra():
    impulse = np.eye(1, 64)[0]
    assert spectral_entropy(impulse).item() == pytest.approx(math.log2(33))
    assert spectral_entropy(impulse, dc=False).item() == pytest.approx(5.0)
    assert spectral_entropy(impulse, base=3).item() == pytest.approx(math.log(33, 3))
    wave = np.cos(2 * np.pi * 5 * np.arange(64) / 64)
    assert spectral_entropy(wave).item() == pytest.approx(0.0, abs=1e-12)
    assert spectral_entropy(1 + 2 * wave).item() == pytest.approx(1.0)  # powers 64^2 and (64 * 2 / 2)^2
    assert spectral_entropy(np.zeros((2, 8))).tolist() == [0.0, 0.0]
    with pytest.raises(ValueError, match="at least two samples"):
        spectral_entropy([1.0])
    with pytest.raises(ValueError, match="base must be greater than 1"):
        spectral_entropy(impulse, base=1.0)
