"""The synthetic study: the released data to the bit, stacks that equal single runs, records that mean what they say."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from studies.synthetic import arms, data, likelihood, released, study
from studies.synthetic.discrete import PROTOCOLS, train_group
from studies.synthetic.stack import FourierOptions, Schedule, draw_network, make_head, train

from fourier_head.errors import UserError
from fourier_head.tasks.runs import RunStore

KINDS = ("linear", "fourier", "gmm", "regression")


def test_quoted_numbers_of_the_paper_are_those_released(shared):
    rows = json.loads((shared / "reference" / "toy_released_metrics.json").read_text())

    def values(metric, **wanted):
        (row,) = [row for row in rows if all(row[key] == value for key, value in wanted.items())]
        return np.array([row[metric][str(seed)] for seed in data.SEEDS])

    heads = {"linear": {"head": "linear"}, "fourier": {"head": "fourier", "frequencies": arms.TABLES, "gamma": 0.0}}
    for head, wanted in heads.items():
        for name, quoted in released.KL[head].items():
            np.testing.assert_allclose(values("kl", dataset=name, **wanted), quoted, atol=6e-5)
        np.testing.assert_allclose(values("mse", dataset="gaussian", **wanted), released.GAUSSIAN_MSE[head], atol=6e-6)
    for span, quoted in released.REGULARISED.items():
        first, last = (int(end) for end in span.split(" to "))
        logs = [
            np.log(values("kl", **chosen, gamma=1e-6) / values("kl", **chosen, gamma=0.0))
            for name in data.DATASETS
            for n in range(first, last + 1, 2)
            for chosen in [{"head": "fourier", "dataset": name, "frequencies": n}]
        ]
        np.testing.assert_allclose(np.mean(logs, axis=0), quoted, atol=6e-5)


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


def _toy(datasets=2, rows=72):
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(datasets, rows, 2, generator=generator)
    return x, torch.randint(50, x.shape[:2], generator=generator), 2 * torch.rand(x.shape[:2], generator=generator) - 1


OPTIONS = {
    "ours": FourierOptions(1e-3, init_scale=10.0),
    "released": PROTOCOLS["released"].fourier,
    "likelihood": likelihood.FOURIER,
}
# Of Fourier heads the frequencies, gamma and packets of the networks in a stack.
SWEEP = [(6, 0.0, 0), (3, 0.0, 0), (6, 1e-3, 0), (3, 1e-2, 0)]
PACKETS = [(4, 0.0, 2), (4, 1e-3, 2)]
OTHERS = [(0, 0.0, 0)] * 2
BINS = [("fourier", "ours", SWEEP), ("fourier", "released", SWEEP), ("fourier", "ours", PACKETS)]
BINS += [(kind, "ours", OTHERS) for kind in ("linear", "hl_gauss", "gmm", "gmm_full", "regression")]
BINS += [("adaptive", "ours", [(4, 0.0, 2)] * 2)]
VALUES = [("fourier", "likelihood", SWEEP), ("fourier", "likelihood", PACKETS)]
VALUES += [(kind, "likelihood", OTHERS) for kind in ("gmm", "gmm_full")]


def _networks(kind, options, settings, dtype=torch.float32):
    return [draw_network(seed, make_head(kind, OPTIONS[options], *s)).to(dtype) for seed, s in enumerate(settings)]


@pytest.mark.parametrize(
    ("kind", "options", "settings", "values"), [(*c, False) for c in BINS] + [(*c, True) for c in VALUES]
)
def test_training_together_is_training_one_by_one(kind, options, settings, values):
    """Against the library's head at the end of a plain network, its own loss and torch's Adam.

    In double precision, as Adam makes steps of gradients that are nothing but rounding.
    """
    x, ids, numbers = _toy()
    x, target = x.double(), numbers.double() if values else ids
    schedule = Schedule(epochs=2, batch=32, rate=1e-3, cosine=True, clip=0.1 if values else None)
    start, together, alone = (_networks(kind, options, settings, torch.float64) for _ in range(3))
    which = [r % 2 for r in range(len(settings))]
    train(together, x, target, which, schedule)
    for r, network in enumerate(alone):
        head, d = network.head, which[r]
        optimizer = torch.optim.Adam(network.parameters(), lr=1e-3)
        order = torch.Generator().manual_seed(0)
        for epoch in range(2):
            rows = torch.rand(2, x.shape[1], generator=order).argsort(1)[d]
            for step, some in enumerate(rows.split(32)):  # the last batch is smaller
                for group in optimizer.param_groups:
                    group["lr"] = schedule.rate_at((epoch + step * 32 / len(rows)) / 2)
                optimizer.zero_grad()
                (head.nll if values else head.loss)(network.body(x[d, some]), target[d, some]).backward()
                if schedule.clip is not None:
                    torch.nn.utils.clip_grad_norm_(network.parameters(), schedule.clip)
                optimizer.step()
        for found, expected, first in zip(*(n.parameters() for n in (together[r], network, start[r])), strict=True):
            assert not torch.equal(found, first)
            torch.testing.assert_close(found, expected, rtol=1e-7, atol=1e-9)


def test_a_network_starts_from_its_seed_alone():
    """The body from the seed, whatever the head; the head as the library draws it."""
    linear, fourier = (draw_network(7, make_head(kind, OPTIONS["ours"], 4)) for kind in ("linear", "fourier"))
    assert torch.equal(linear.body[2].weight, fourier.body[2].weight)
    torch.manual_seed(7)
    torch.nn.Linear(2, 64), torch.nn.Linear(64, 32)
    assert torch.equal(make_head("fourier", OPTIONS["ours"], 4)(32).proj.weight, fourier.head.proj.weight)


def test_heads_with_packets_are_stacked_only_with_as_many_frequencies():
    x, ids, _ = _toy()
    with pytest.raises(ValueError, match="same number of frequencies"):
        train(_networks("fourier", "ours", [(4, 0.0, 2), (6, 0.0, 2)]), x, ids, [0, 1], Schedule(1, 32, 1e-3))


def test_inputs_may_be_jittered():
    schedule = Schedule(epochs=1, batch=96, rate=1e-3)
    (plain,), (jittered,) = (_networks("linear", "ours", OTHERS[:1]) for _ in range(2))
    x, ids, _ = _toy(datasets=1)
    before = x.clone()
    train([plain], x, ids, [0], schedule)
    train([jittered], x, ids, [0], replace(schedule, jitter=0.1))
    assert torch.equal(x, before)
    assert not torch.equal(plain.body[0].weight, jittered.body[0].weight)


def test_the_released_penalty_is_that_of_the_released_code():
    head = make_head("fourier", OPTIONS["released"], 3, 1e-6)(5)
    x = torch.randn(4, 5)
    a = torch.complex(*head.proj(x).unflatten(-1, (2, 4)).unbind(-2))
    c = torch.stack([(a[:, : 4 - k] * a[:, k:].conj()).sum(-1) for k in range(4)], dim=-1)
    expected = 1e-6 * 2 * (2 * torch.pi**2 * torch.arange(4) ** 2 * c.abs() ** 2).sum(-1)
    torch.testing.assert_close(head.gamma * head.penalty(x), expected, rtol=1e-4, atol=1e-14)


def test_the_cost_of_a_group_is_that_of_its_stacks():
    from studies.synthetic.study import core_seconds

    assert core_seconds([{"group_seconds": 30.0}] * 120) == 30.0
    two = [{"chosen_frequencies": n, "group_seconds": 10.0} for n in (4, 4, 12)]
    assert core_seconds(two) == 20.0


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize(
    "kind", ["linear", "gmm", "gmm_full", "hl_gauss", "regression", "fourier", "adaptive", "recommended"]
)
def test_every_kind_trains(protocol, kind, few_rows):
    gammas = [0.0, 1e-6] if kind == "fourier" else [0.0]
    records = train_group(protocol, kind, [4], gammas, 0, ["gaussian"], [1], epochs=1)
    assert len(records) == (2 if kind == "fourier" else 1)
    for record in records:
        assert record["dataset"] == "gaussian"
        assert record["mse"] > 0
        if kind != "regression":
            assert 0 < record["kl"] < 15
            assert record["smoothness"] > 0


def test_agreement_with_the_paper_is_counted_by_its_deviations():
    row = {"metric": "kl", "dataset": "beta", "head": "linear", "paper": 0.2, "paper_std": 0.01, "protocol": "released"}
    rows = [row | {"ours": ours} for ours in (0.205, 0.215, 0.23)]
    assert (
        "of 3 numbers in the paper's tables 1 agree within one of its deviations, 2 within two" in study.notes(rows)[0]
    )
    assert study.notes(rows)[1].endswith("ours 0.230, paper 0.200 ± 0.010.")


def test_more_seeds_make_more_stacks():
    tasks = study.groups(study.Settings(protocol="released", arms="paper", seeds=20))
    assert all(len(t.settings["seeds"]) == 4 for t in tasks if t.settings["kind"] == "fourier")
    for kind, count in (("fourier", 10), ("linear", 1)):
        mine = [t for t in tasks if t.settings["kind"] == kind]
        assert len(mine) == len({t.label for t in mine}) == count
        assert sorted({seed for t in mine for seed in t.settings["seeds"]}) == [*range(1, 20), 42]
    on_gpu = study.groups(study.Settings(protocol="released", arms="paper", seeds=20, device="cuda"))
    assert len([t for t in on_gpu if t.settings["kind"] == "fourier"]) == 2


def test_fresh_seeds_are_those_after_the_ones_that_were_skipped_and_tables_have_one_n():
    first = study.groups(study.Settings(protocol="released", arms="tables", seeds=20))
    fresh = study.groups(study.Settings(protocol="released", arms="tables", seeds=30, skip=20))
    seeds = {kind: [s for t in fresh if t.settings["kind"] == kind for s in t.settings["seeds"]] for kind in KINDS}
    assert all(len(set(own)) == len(own) == 30 for own in seeds.values())
    assert not {s for t in first for s in t.settings["seeds"]} & set(seeds["linear"])
    assert {t.settings["kind"] for t in fresh} == set(KINDS)
    assert {n for t in fresh for n in t.settings["frequencies"]} == {arms.TABLES}
    pair = study.groups(study.Settings(protocol="released", arms="pair", seeds=120, skip=50))
    assert {(t.settings["kind"], *t.settings["frequencies"], *t.settings["gammas"]) for t in pair} == {
        ("linear", 0.0),
        ("fourier", arms.TABLES, 0.0),
    }
    latest = [s for t in pair if t.settings["kind"] == "linear" for s in t.settings["seeds"]]
    assert len(set(latest)) == 120
    assert not set(latest) & {s for t in [*first, *fresh] for s in t.settings["seeds"]}


def test_starts_differ_in_the_scale_of_first_weights_alone(tmp_path, monkeypatch, few_rows):
    tasks = study.groups(study.Settings(protocol="released", arms="start", seeds=16, skip=170))
    assert {(t.settings["init_scale"], t.settings["epochs"]) for t in tasks} == {
        (scale, epochs) for scale in (1.0, 100.0, 1000.0) for epochs in (500, 25)
    }
    rest = [{k: v for k, v in t.settings.items() if k not in ("init_scale", "epochs")} for t in tasks]
    assert all(one == rest[0] for one in rest)
    assert rest[0]["frequencies"] == [arms.TABLES]
    monkeypatch.setattr(study, "QUICK_EPOCHS", 2)
    settings = study.Settings(tmp_path / "s", "released", "start", quick=True, workers=1)
    summary = study.run(settings)
    assert {(row["init_scale"], row["epochs"]) for row in summary.rows} == {
        (scale, epochs) for scale in (1.0, 100.0, 1000.0) for epochs in (1, 2)
    }
    assert all(row["paper"] is None for row in summary.rows)
    kl = {row["ours"] for row in summary.rows if row["metric"] == "kl" and row["epochs"] == 2}
    assert len(kl) == 9
    assert (tmp_path / "s" / "released-start.png").exists()


def test_the_adaptive_arm_is_one_of_the_candidates_and_chosen_on_rows_nobody_reports():
    tasks = study.groups(study.Settings(arms="choice"))
    assert all(not set(t.settings["seeds"]) & set(data.first_seeds(200)) for t in tasks)
    assert {t.settings["scored_on"] for t in tasks} == {"held-out rows"}
    assert study.ADAPTIVE in study.CANDIDATES
    own = [t for t in study.groups(study.Settings()) if t.settings["kind"] == "adaptive"]
    assert [t.settings["protocol"] for t in own] == ["recommended"]
    triple = data.draw("beta", seed=3)
    part = data.held_out(triple)
    assert not set(part.test_outcomes) & (set(triple.test_outcomes) | set(part.train_outcomes))


def test_the_adaptive_arm_is_the_one_that_was_chosen():
    path = Path(study.__file__).parents[2] / "results" / "synthetic-choice" / "summary.json"
    rows = [r for r in json.loads(path.read_text(encoding="utf-8"))["rows"] if r["metric"] == "nll"]
    tried = {(r["frequencies"], r["packets"]) for r in rows}
    assert tried == {(arm.frequencies[0], arm.packets or None) for arm in study.CANDIDATES}
    mean = {one: np.mean([r["ours"] for r in rows if (r["frequencies"], r["packets"]) == one]) for one in tried}
    assert min(mean, key=mean.get) == (study.ADAPTIVE.frequencies[0], study.ADAPTIVE.packets)


def test_a_choice_has_a_folder_without_figures(tmp_path, monkeypatch, few_rows):
    monkeypatch.setattr(study, "CANDIDATES", study.CANDIDATES[:1])
    monkeypatch.setattr(study, "QUICK_EPOCHS", 1)
    study.run(study.Settings(tmp_path / "s", arms="choice", quick=True, workers=1))
    assert (tmp_path / "s" / "summary.json").exists()
    assert not list((tmp_path / "s").glob("*.png"))


def test_a_time_limit_keeps_what_is_finished_and_all_of_it_is_a_folder(tmp_path, monkeypatch, few_rows):
    monkeypatch.setattr(study, "QUICK_FREQUENCIES", (2, 4))
    monkeypatch.setattr(study, "QUICK_EPOCHS", 1)
    settings = study.Settings(tmp_path / "s", "recommended", "paper", quick=True, workers=1, time_limit=-1.0)
    with pytest.raises(UserError, match="before the first of the groups"):
        study.run(settings)
    begun = []
    monkeypatch.setattr("fourier_head.tasks.engine.is_over", lambda deadline: begun.append(deadline) or len(begun) > 2)
    summary = study.run(replace(settings, time_limit=1.0))
    assert "left out 3 groups" in summary.extra["notes"][1]
    monkeypatch.setattr("fourier_head.tasks.engine.is_over", lambda deadline: False)
    whole = study.run(settings)
    assert {row["head"] for row in summary.rows} < {"fourier", "linear", "gmm", "regression"}
    assert {row["head"] for row in whole.rows} == {"fourier", "linear", "gmm", "regression"}
    assert len(whole.extra["notes"]) == 1
    assert all(row["ours"] is not None for row in whole.rows)
    for name in ("summary.json", "rows.csv", "runs.json", "recommended-kl.png", "recommended-densities.png"):
        assert (tmp_path / "s" / name).stat().st_size > 0
    assert "quick" in whole.command


def test_paper_values_stand_beside_the_released_protocol_only():
    common = {"dataset": "beta", "metric": "kl", "packets": None, "gamma": 0.0, "ours": 0.2}
    for head, frequencies, protocol, paper in (
        ("fourier", 12, "released", 0.191),
        ("fourier", 10, "released", None),
        ("linear", None, "recommended", None),
    ):
        one = study._beside_paper(common | {"head": head, "frequencies": frequencies, "protocol": protocol})
        assert one.get("paper") == paper


def test_the_paper_has_276_runs():
    tasks = study.groups(study.Settings(protocol="released", arms="paper"))
    sizes = [
        max(1, len(t.settings["frequencies"]) * len(t.settings["gammas"])) * 3 * len(t.settings["seeds"]) for t in tasks
    ]
    assert sum(sizes) == 276


def test_what_a_gpu_has_finished_is_written_down_without_one(tmp_path):
    settings = study.Settings(tmp_path, protocol="released", arms="paper", seeds=1, device="cuda")
    store = RunStore(tmp_path)
    for task in study.groups(settings):
        store.put(task.label, task.settings, [{"kl": 0.1}])
    kept, tasks = arms.planned(settings, study.groups)
    assert kept.device == "cuda"
    assert all(store.get(task.label, task.settings) for task in tasks)
