"""The synthetic study: the released data to the bit, stacks that equal single runs, records that mean what they say."""

import numpy as np
import pytest
import torch

from fourier_head import FourierHead
from fourier_head.layout import Layout
from fourier_head.studies.synthetic import data
from fourier_head.studies.synthetic.discrete import PROTOCOLS, train_group
from fourier_head.studies.synthetic.kinds import FourierStack, LinearStack, MixtureStack
from fourier_head.studies.synthetic.stack import Schedule, Stack


@pytest.mark.parametrize("name", ["gaussian", "gmm2"])
def test_data_are_those_of_the_released_code(name, shared):
    released = np.load(shared / "reference" / "released_pmfs.npz")[f"{name}_true"]
    triple = data.draw(name, seed=42)
    np.testing.assert_allclose(data.true_pmf(name, triple.test_inputs), released, atol=1e-7)


@pytest.mark.parametrize("name", data.DATASETS)
def test_the_true_density_is_one(name):
    triple = data.draw(name, seed=1, count=50)
    z = np.linspace(-1.6, 1.6, 40_001)
    mass = np.exp(data.log_density(name, triple.test_inputs, z)).sum(axis=1) * (z[1] - z[0])
    np.testing.assert_allclose(mass, 1, atol=1e-3)
    pmf = data.true_pmf(name, triple.test_inputs)
    np.testing.assert_allclose(pmf.sum(axis=1), 1)
    drawn = data.draw(name, seed=1, count=20_000)
    near = np.abs(drawn.train_inputs - drawn.train_inputs[0]).max(axis=1) < 0.1
    expected = data.true_pmf(name, drawn.train_inputs[near]).mean(axis=0)
    seen = np.bincount(data.quantize(drawn.train_outcomes[near]), minlength=50) / near.sum()
    assert np.abs(expected - seen).sum() < 0.5


def _toy(runs=3, rows=96):
    generator = torch.Generator().manual_seed(0)
    return torch.rand(runs, rows, 2, generator=generator), torch.randint(50, (runs, rows), generator=generator)


@pytest.mark.parametrize("kind", ["linear", "gmm", "fourier"])
def test_a_stacked_run_equals_the_same_run_alone(kind):
    """Run 1 of a stack of three, and run 1 by itself: same weights in, same data order, same weights out."""
    x, target = _toy()
    schedule = Schedule(epochs=2, batch=32, rate=1e-2, clip=0.5)

    def head(runs):
        if kind == "linear":
            return LinearStack(50)
        if kind == "gmm":
            return MixtureStack(50, "paper")
        settings = [(4, 0.0), (2, 1e-3), (6, 0.0)]
        chosen = [settings[r] for r in runs]
        return FourierStack(Layout(50, 6, floor=1e-4), [n for n, _ in chosen], [g for _, g in chosen])

    together, alone = Stack(head([0, 1, 2]), [5, 6, 7]), Stack(head([1]), [6])
    together.train(x, target, torch.arange(3), schedule)
    alone.train(x, target, torch.tensor([1]), schedule)
    for both, single in zip(together.parameters, alone.parameters, strict=True):
        torch.testing.assert_close(both[1:2], single, rtol=1e-4, atol=1e-5)


def test_a_masked_run_is_a_head_with_fewer_frequencies():
    stack = Stack(FourierStack(Layout(50, 6, floor=1e-3), [2], [1e-2], regularizer="roughness"), [3])
    outputs = stack.outputs(torch.rand(1, 10, 2))
    head = FourierHead(32, 50, 2, floor=1e-3, gamma=1e-2)
    few = torch.cat([outputs[0, :, :3], outputs[0, :, 7:10]], dim=1)
    target = torch.randint(50, (10,))
    expected = -head.layout.log_mass(few, target) + 1e-2 * head.layout.penalty(
        head.layout.coefficients(few), "roughness"
    )
    torch.testing.assert_close(stack.head.losses(outputs, target[None], [])[0], expected, rtol=1e-4, atol=1e-5)


def test_the_released_penalty_is_that_of_the_released_code():
    stack = FourierStack(Layout(50, 3), [3], [1e-6], regularizer="released")
    outputs = torch.randn(1, 4, 8)
    stack.initialise(torch.zeros(1, 32, 8), torch.zeros(1, 1, 8))
    a = torch.complex(outputs[0, :, :4], outputs[0, :, 4:])
    c = torch.stack([(a[:, : 4 - k] * a[:, k:].conj()).sum(-1) for k in range(4)], dim=-1)
    expected = 1e-6 * 2 * (2 * torch.pi**2 * torch.arange(4) ** 2 * c.abs() ** 2).sum(-1)
    torch.testing.assert_close(stack._penalties(stack.layout.coefficients(outputs))[0], expected, rtol=1e-4, atol=1e-9)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("kind", ["linear", "gmm", "gmm_full", "hl_gauss", "regression", "fourier", "recommended"])
def test_every_kind_trains(protocol, kind):
    records = train_group(protocol, kind, [4], [0.0, 1e-6], 0, ["gaussian"], [1], epochs=1)
    assert len(records) == (2 if kind == "fourier" else 1)
    for record in records:
        assert record["dataset"] == "gaussian"
        assert record["mse"] > 0
        if kind != "regression":
            assert 0 < record["kl"] < 15
            assert record["smoothness"] > 0


def test_the_study_writes_its_folder(tmp_path, monkeypatch):
    from fourier_head.studies.synthetic import study

    monkeypatch.setattr(study, "FREQUENCIES", (2, 4))
    settings = study.Settings(
        output=tmp_path / "synthetic", protocol="recommended", arms="paper", quick=True, workers=1
    )
    summary = study.run(settings)
    heads = {row["head"] for row in summary.rows}
    assert heads == {"fourier", "linear", "gmm", "regression"}
    assert all(row["ours"] is not None for row in summary.rows)
    for name in ("summary.json", "rows.csv", "runs.json", "recommended-kl.png", "recommended-densities.png"):
        assert (tmp_path / "synthetic" / name).stat().st_size > 0
    assert "quick" in summary.command


def test_paper_values_stand_beside_the_released_protocol_only():
    from fourier_head.studies.synthetic.study import _with_paper

    common = {"dataset": "beta", "metric": "kl", "packets": None, "gamma": 0.0, "ours": 0.2}
    assert _with_paper(common | {"head": "fourier", "frequencies": 12, "protocol": "released"})["paper"] == 0.191
    assert "paper" not in _with_paper(common | {"head": "fourier", "frequencies": 10, "protocol": "released"})
    assert "paper" not in _with_paper(common | {"head": "linear", "frequencies": None, "protocol": "recommended"})
