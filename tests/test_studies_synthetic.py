"""The synthetic study: the released data to the bit, stacks that equal single runs, records that mean what they say."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from fourier_head import FourierHead
from fourier_head.layout import Layout
from fourier_head.studies.synthetic import data
from fourier_head.studies.synthetic.discrete import PROTOCOLS, train_group
from fourier_head.studies.synthetic.kinds import (
    FourierStack,
    HLGaussStack,
    LinearStack,
    MixtureStack,
    RegressionStack,
)
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


@pytest.fixture
def few_rows(monkeypatch):
    """Let the study draw 400 triples instead of 5000."""
    draw = data.draw
    monkeypatch.setattr(data, "draw", lambda name, seed: draw(name, seed, count=400))


def _toy(runs=3, rows=96):
    generator = torch.Generator().manual_seed(0)
    return torch.rand(runs, rows, 2, generator=generator), torch.randint(50, (runs, rows), generator=generator)


def _heads(settings):
    """Return stacked heads of every kind by name; settings are those of the Fourier runs, (frequencies, gamma)."""
    frequencies, gammas = [n for n, _ in settings], [g for _, g in settings]
    layout = Layout(50, 6, floor=1e-3)  # runs with fewer frequencies are masked
    same = [6] * len(settings)
    return {
        "linear": LinearStack(50),
        "hl_gauss": HLGaussStack(50),
        "gmm": MixtureStack(50, "paper"),
        "gmm_full": MixtureStack(50, "full"),
        "regression": RegressionStack(50),
        "fourier": FourierStack(layout, frequencies, gammas),
        "fourier_released": FourierStack(layout, frequencies, gammas, "released", 100.0),
        "fourier_packets": FourierStack(Layout(50, 6, floor=1e-3, packets=2), same, gammas, "roughness", 1.0),
    }


SETTINGS = [(4, 0.0)] * 3 + [(2, 1e-3)] * 3 + [(6, 0.0)] * 3
KINDS = list(_heads(SETTINGS))


@pytest.mark.parametrize("kind", ["linear", "gmm", "fourier"])
def test_a_stacked_run_equals_the_same_run_alone(kind):
    """The middle setting on three data sets in a stack of nine, and by itself: same weights out."""
    x, target = _toy()
    schedule = Schedule(epochs=2, batch=40, rate=1e-2, clip=0.5)  # the last batch is smaller
    together = Stack(_heads(SETTINGS)[kind], [5, 6, 7] * 3)
    alone = Stack(_heads(SETTINGS[3:6])[kind], [5, 6, 7])
    together.train(x, target, schedule)
    alone.train(x, target, schedule)
    inputs = torch.rand(3, 10, 2)
    outputs, expected = together.outputs(inputs.repeat(3, 1, 1))[3:6], alone.outputs(inputs)
    torch.testing.assert_close(outputs, expected, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(
    ("kind", "continuous"), [(k, False) for k in KINDS] + [(k, True) for k in KINDS if k.startswith("fourier")]
)
def test_gradients_in_closed_form_are_those_of_autograd(kind, continuous):
    head = _heads(SETTINGS)[kind]
    generator = torch.Generator().manual_seed(1)
    weight, bias = torch.zeros(9, 32, head.out_features), torch.zeros(9, 1, head.out_features)
    extra = head.initialise(weight, bias)
    outputs = torch.randn(9, 5, head.out_features, generator=generator)
    if kind.startswith("fourier_r") or kind == "fourier":
        outputs = outputs * head.mask  # as trained networks have them
    target = torch.randint(50, (3, 5), generator=generator)
    if continuous:
        target = 2 * torch.rand(3, 5, generator=generator) - 1
    leaves = [t.clone().requires_grad_() for t in (outputs, *extra)]
    loss = head.losses(leaves[0], target, leaves[1:])
    assert loss.shape == (9, 5)
    expected = torch.autograd.grad(loss.mean(1).sum(), leaves)
    out = torch.empty_like(outputs)
    found = [out, *head.gradients(outputs, target, extra, out)]
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_training_a_stack_is_training_networks_one_by_one(kind):
    """Against torch's own layers, autograd and Adam, on the second of two data sets."""
    x, target = _toy(runs=2)
    settings = [(6, 1e-3)] * 2
    stack = Stack(_heads(settings)[kind], [5, 6])
    first, second, third = ([layer[1] for layer in stack.layers][i].clone() for i in range(3))
    sizes = [torch.nn.Linear(2, 64), torch.nn.Linear(64, 32), torch.nn.Linear(32, stack.head.out_features)]
    for layer, both in zip(sizes, (first, second, third), strict=True):
        layer.weight.data, layer.bias.data = both[:-1].T.contiguous(), both[-1].clone()
    network = torch.nn.Sequential(sizes[0], torch.nn.ReLU(), sizes[1], torch.nn.ReLU(), sizes[2])
    extra = [t[1:].clone().requires_grad_() for t in stack.extra]
    optimizer = torch.optim.Adam([*network.parameters(), *extra], lr=1e-3)
    stack.train(x, target, Schedule(epochs=2, batch=32, rate=1e-3))
    head = _heads(settings[:1])[kind]
    head.initialise(torch.zeros(1, 32, head.out_features), torch.zeros(1, 1, head.out_features))
    order = torch.Generator().manual_seed(0)
    for _ in range(2):
        rows = torch.rand(2, x.shape[1], generator=order).argsort(1)[1]
        for some in rows.split(32):
            optimizer.zero_grad()
            head.losses(network(x[1, some])[None], target[1:, some], extra).mean().backward()
            optimizer.step()
    inputs = torch.rand(10, 2)
    torch.testing.assert_close(stack.outputs(inputs.expand(2, -1, -1))[1], network(inputs), rtol=1e-3, atol=1e-4)


def test_products_by_torch_and_by_numpy_train_alike(monkeypatch):
    outputs = []
    for torch_multiplies in (False, True):
        monkeypatch.setattr(torch.backends.mkl, "is_available", lambda chosen=torch_multiplies: chosen)
        stack = Stack(_heads(SETTINGS)["fourier"], range(9))
        stack.train(*_toy(), Schedule(epochs=1, batch=40, rate=1e-3))
        outputs.append(stack.outputs(torch.full((9, 1, 2), 0.3)))
    torch.testing.assert_close(outputs[0], outputs[1], rtol=1e-4, atol=1e-6)


def test_inputs_may_be_jittered():
    schedule = Schedule(epochs=1, batch=96, rate=1e-3)
    plain, jittered = Stack(LinearStack(50), [1]), Stack(LinearStack(50), [1])
    x, target = _toy(runs=1)
    before = x.clone()
    plain.train(x, target, schedule)
    jittered.train(x, target, replace(schedule, jitter=0.1))
    assert torch.equal(x, before)
    assert not torch.equal(plain.parameters, jittered.parameters)


def test_the_cost_of_the_papers_runs_is_told():
    from fourier_head.studies.synthetic import study

    groups = [[{"group_seconds": 30.0}] * 120, [{"group_seconds": 10.0}] * 12]
    rows = study.cost_rows(groups)
    assert (rows[0]["ours"], rows[0]["runs"]) == (40.0, 132)
    assert study.notes(rows) == ["The paper's 132 runs took 40 s of a core."]


def test_data_sets_must_share_the_runs_evenly():
    with pytest.raises(ValueError, match="multiple of the data sets"):
        Stack(LinearStack(50), [1, 2]).train(*_toy(), Schedule(1, 32, 1e-3))


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
def test_every_kind_trains(protocol, kind, few_rows):
    records = train_group(protocol, kind, [4], [0.0, 1e-6], 0, ["gaussian"], [1], epochs=1)
    assert len(records) == (2 if kind == "fourier" else 1)
    for record in records:
        assert record["dataset"] == "gaussian"
        assert record["mse"] > 0
        if kind != "regression":
            assert 0 < record["kl"] < 15
            assert record["smoothness"] > 0


def test_the_study_writes_its_folder(tmp_path, monkeypatch, few_rows):
    from fourier_head.studies.synthetic import study

    monkeypatch.setattr(study, "QUICK_FREQUENCIES", (2, 4))
    monkeypatch.setattr(study, "QUICK_EPOCHS", 1)
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
    from fourier_head.studies.synthetic.study import _beside_paper

    common = {"dataset": "beta", "metric": "kl", "packets": None, "gamma": 0.0, "ours": 0.2}
    assert _beside_paper(common | {"head": "fourier", "frequencies": 12, "protocol": "released"})["paper"] == 0.191
    assert "paper" not in _beside_paper(common | {"head": "fourier", "frequencies": 10, "protocol": "released"})
    assert "paper" not in _beside_paper(common | {"head": "linear", "frequencies": None, "protocol": "recommended"})


def test_the_paper_has_276_runs():
    from fourier_head.studies.synthetic import study

    tasks = study.groups(study.Settings(protocol="released", arms="paper"))
    sizes = [
        max(1, len(t.settings["frequencies"]) * len(t.settings["gammas"])) * 3 * len(t.settings["seeds"]) for t in tasks
    ]
    assert sum(sizes) == 276
