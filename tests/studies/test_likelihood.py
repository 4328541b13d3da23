"""The continuous study: every kind trains, records are what quadrature says, the folder is written."""

import math

import numpy as np
import pytest
import torch
from studies.synthetic import data, likelihood
from studies.synthetic.stack import draw_network, make_head


@pytest.mark.parametrize(("kind", "packets"), [("fourier", 0), ("fourier", 2), ("gmm", 0), ("gmm_full", 0)])
def test_every_kind_trains(kind, packets, few_rows):
    first, second = likelihood.train_group(kind, [4], [0.0], packets, ["gaussian"], [1, 2], epochs=2)
    assert (first["seed"], second["seed"]) == (1, 2)
    for record in (first, second):
        assert record["head"] == kind
        assert 0 < record["kl"] < 20  # the paper's mixture starts with peaks one bin wide
        assert record["perplexity"] > 0.35


@pytest.mark.parametrize(("kind", "epochs"), [("fourier", 30), ("gmm", 8)])
def test_training_helps(kind, epochs, few_rows):
    before, after = (
        likelihood.train_group(kind, [6], [0.0], 0, ["gaussian"], [1], epochs=count)[0]["kl"] for count in (1, epochs)
    )
    assert after < 0.7 * before


def test_the_record_of_known_coefficients_is_their_divergence():
    """A head whose outputs are constant: a uniform density, whose divergence and perplexity are known."""
    triple = data.draw("gaussian", seed=1)
    network = draw_network(0, make_head("fourier", likelihood.FOURIER, 3))
    torch.nn.init.zeros_(network.head.proj.weight)
    network.head.proj.bias.data = torch.tensor([1.0, *[0.0] * 7])
    record = likelihood.scores(network, triple)
    z = -1 + (2 * np.arange(2000) + 1) / 2000
    truth = np.exp(data.log_density("gaussian", triple.test_inputs, z)) / 1000
    truth /= truth.sum(1, keepdims=True)
    expected = (truth * (np.log(np.maximum(truth, 1e-300)) + math.log(2000))).sum(1).mean()
    assert record["perplexity"] == pytest.approx(2.0)
    assert record["kl"] == pytest.approx(expected, abs=1e-4)


def test_the_study_writes_its_folder(tmp_path, monkeypatch, few_rows):
    monkeypatch.setattr(likelihood, "QUICK_EPOCHS", 1)
    settings = likelihood.Settings(output=tmp_path / "likelihood", quick=True, workers=1)
    summary = likelihood.run(settings)
    assert summary.command == "python -m studies likelihood --quick -o likelihood"
    assert summary.extra["notes"][0] == "A quick look: 1 epochs, one seed and few frequencies."
    assert "200 epochs" not in " ".join(summary.extra["notes"])
    heads = {(row["head"], row["packets"]) for row in summary.rows}
    assert heads == {("fourier", None), ("fourier", 4), ("gmm", None), ("gmm_full", None)}
    beside = {(row["head"], row["frequencies"]) for row in summary.compared}
    assert beside == {("fourier", 12), ("gmm", None)}
    for name in ("summary.json", "rows.csv", "runs.json", "charts.json", "likelihood.png"):
        assert (tmp_path / "likelihood" / name).stat().st_size > 0
