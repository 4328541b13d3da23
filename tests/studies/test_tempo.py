"""The tempo study: bins, splits and networks, runs that are fair."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from studies.tempo import data, pretraining, study, training
from studies.tempo.charts import distances
from studies.tempo.model import SIZES, build, grid, time_waves
from studies.tempo.study import Settings, ratio_rows, run, tasks_of

from fourier_head import FourierHead
from fourier_head.errors import UserError
from fourier_head.tasks.engine import TimeUp

pytest.importorskip("transformers")


@pytest.fixture
def silent(monkeypatch):
    """Clips without sound: a split is a matter of their tempos."""

    def generated(bpm, per_tempo, *more):
        bpm = bpm.repeat_interleave(per_tempo)
        return data.Heard(torch.zeros(len(bpm), 1, 1), bpm)

    monkeypatch.setattr(data, "generated", generated)


def test_bins_and_splits_are_the_papers(silent):
    assert data.NUM_BINS == 33
    every = torch.arange(50, 211)
    label = data.bin_of(every)
    assert label.bincount().tolist() == [5] * 32 + [1]
    centre = data.DOMAIN.from_unit(-1 + (2 * label + 1) / 33)
    torch.testing.assert_close(centre, data.bin_centre(label))
    split = data.generated_split.__wrapped__(0, 1, 16, "cpu")
    assert set(split.train.bpm.tolist()) == set(range(51, 211, 2)) == set(split.validation.bpm.tolist())
    assert set(split.test.bpm.tolist()) == set(range(50, 211, 2))
    # With 25 clips of each tempo: as many as SynTheory has, and every timbre as often as the others.
    assert (25 * len(data.tempos(odd=True)), 25 * len(data.tempos(odd=False))) == (2000, 2025)


def test_scores_equal_those_of_scikit_learn():
    metrics = pytest.importorskip("sklearn.metrics")
    label = torch.randint(20, (200,))
    predicted = torch.where(torch.rand(200) < 0.5, label, torch.randint(25, (200,)))
    assert training.macro_f1(predicted, label) == pytest.approx(metrics.f1_score(label, predicted, average="macro"))
    table = training.confusion(predicted, label, 25)
    np.testing.assert_array_equal(table, metrics.confusion_matrix(label, predicted, labels=range(25)))
    bpm = 50 + 5 * label.double()
    log_probs = torch.nn.functional.one_hot(predicted, 33).double().add(1e-9).log().log_softmax(-1)
    scores = training.measure(log_probs, bpm, label)
    assert scores["accuracy"] == pytest.approx(metrics.accuracy_score(label, predicted))
    assert scores["bpm_error"] == pytest.approx((52 + 5 * predicted - bpm).abs().mean().item())
    assert scores["bpm_error_median"] == scores["bpm_error"]


def test_distances_are_signed_predicted_minus_true():
    table = np.zeros((33, 33))
    table[4, 6], table[9, 9] = 1, 3
    shares = distances([table])
    assert shares[10 + 2] == 0.25
    assert shares[10] == 0.75


@pytest.fixture
def nano(monkeypatch):
    """A network that trains in a moment, on clips of every fifth tempo."""
    monkeypatch.setattr(data, "tempos", lambda odd: torch.arange(50 + odd, 211, 10))
    small = {"num_mel_bins": 16, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    small |= {"intermediate_size": 16, "patch_size": 16, "frequency_stride": 16, "time_stride": 32, "max_length": 398}
    monkeypatch.setitem(SIZES, "nano", small)
    return "nano"


def test_heads_of_a_seed_share_their_encoder_and_start_uniform(nano):
    networks = {
        arm: build(nano, arm[0], arm[1], seed=1) for arm in (("linear", None), ("hl_gauss", None), ("fourier", 3))
    }
    heard = torch.randn(4, 398, 16)
    states = []
    for network in networks.values():
        states.append(network.audio_spectrogram_transformer.state_dict())
        pmf = network.eval()(heard).logits.exp()
        torch.testing.assert_close(pmf, torch.full((4, 33), 1 / 33), atol=0.03, rtol=0)
    for name, value in states[0].items():
        assert all(torch.equal(value, other[name]) for other in states[1:])
    head = networks["fourier", 3].classifier.dense
    assert isinstance(head, FourierHead)
    assert head.proj.out_features == 8
    other = build(nano, "fourier", 3, seed=2).audio_spectrogram_transformer.state_dict()
    assert not torch.equal(states[0]["embeddings.position_embeddings"], other["embeddings.position_embeddings"])
    small = build(nano, "fourier", 3, seed=1, start="paper").classifier.dense.proj
    assert small.weight.abs().max() < 1e-3


def test_positions_tell_time_apart(nano):
    from transformers import ASTConfig

    rows, columns = grid(ASTConfig(**SIZES["small"]))
    assert (rows, columns) == (8, 39)
    waves = time_waves(rows, columns, 128).view(rows, columns, -1)
    close = (waves[0, 10] - waves[0, 11]).norm()
    assert close < (waves[0, 10] - waves[0, 30]).norm()
    torch.testing.assert_close(waves[0, 10] - waves[0, 11], waves[5, 10] - waves[5, 11], atol=1e-5, rtol=0)


def test_hidden_stretches_are_half_of_a_clip_and_zero():
    whole = torch.rand(200, 398, 16) + 1
    seen, hidden = pretraining.hide(whole, torch.Generator().manual_seed(0))
    assert hidden.float().mean().item() == pytest.approx(0.5, abs=0.06)
    assert bool((seen[hidden] == 0).all())
    assert torch.equal(seen[~hidden], whole[~hidden])
    ends = hidden[:, 1:] != hidden[:, :-1]
    assert ends.sum(1).max() <= 10


def test_patches_are_what_tokens_cover(nano):
    """A convolution that picks one point of each patch gives tokens in the order of the patches."""
    network = build("small", "linear", None, 0)
    embed, config = network.audio_spectrogram_transformer.embeddings.patch_embeddings, network.config
    heard = torch.randn(2, 398, 128)
    weight = torch.zeros_like(embed.projection.weight)
    weight[:, 0, 3, 5] = 1
    embed.projection.weight.data, embed.projection.bias.data = weight, torch.zeros(config.hidden_size)
    torch.testing.assert_close(embed(heard)[..., 0], pretraining.patches(heard, config)[..., 3 * 16 + 5])


def test_pretraining_teaches_the_encoder_and_is_done_once(nano, tmp_path):
    said = []
    path = pretraining.pretrained_file(nano, 60, 64, tmp_path / "a" / "encoder.safetensors", "cpu", said.append)
    losses = [float(words.rsplit(" ", 1)[1]) for words in said]
    assert len(losses) == 10
    assert losses[-1] < 0.8 * losses[0]
    made = path.stat().st_mtime_ns
    assert pretraining.pretrained_file(nano, 60, 64, path, "cpu").stat().st_mtime_ns == made
    recipe = training.recipe_of("longer", epochs=1, batch=80, rate=1e-9)
    common = {"source": "generated", "seed": 0, "per_tempo": 1, "start": "uniform", "recipe": recipe, "model": nano}
    taught = training.train_run(head="linear", frequencies=None, pretrain=60, weights=str(path), **common)
    fresh = training.train_run(head="linear", frequencies=None, **common)
    assert taught["pretraining_steps"] == 60
    assert taught["example"]["pmf"] != fresh["example"]["pmf"]


@pytest.fixture
def time_for_clips(monkeypatch):
    """Let clips be drawn after any deadline: time is up in training alone."""
    monkeypatch.setattr(pretraining, "is_over", lambda deadline: False)


def test_pretraining_stops_at_the_limit_and_goes_on_to_the_same_weights(nano, tmp_path, time_for_clips):
    whole = pretraining.pretrained_file(nano, 12, 16, tmp_path / "whole.safetensors", "cpu")
    path, said = tmp_path / "parts.safetensors", []
    with pytest.raises(TimeUp):
        pretraining.pretrained_file(nano, 12, 16, path, "cpu", said.append, deadline=0.0)
    assert not path.exists()
    assert 0 < len(said) < 12
    pretraining.pretrained_file(nano, 12, 16, path, "cpu", said.append)
    assert len(said) == 12
    assert {p.name for p in tmp_path.iterdir()} == {"whole.safetensors", "parts.safetensors"}
    assert path.read_bytes() == whole.read_bytes()


def test_a_limit_within_pretraining_is_told_and_what_is_learned_kept(nano, tmp_path, monkeypatch, time_for_clips):
    settings = Settings(tmp_path, nano, seeds=1, frequencies="2", clips=1, epochs=1, pretrain=20, device="cpu")
    monkeypatch.setattr(study, "UNLABELLED", 16)
    with pytest.raises(UserError, match="in pretraining, which is kept"):
        run(replace(settings, time_limit=0.0))
    assert [p.name for p in (tmp_path / ".partial").iterdir()] == ["encoder-nano-20.unfinished-cpu"]


def test_a_saved_ast_is_fine_tuned_as_released(nano, tmp_path):
    from transformers import ASTConfig, ASTForAudioClassification, BertConfig

    ASTForAudioClassification(ASTConfig(**SIZES[nano] | {"max_length": 500, "num_labels": 7})).save_pretrained(tmp_path)
    assert training.recipe_of("released")["rate"] == 5e-5
    assert training.recipe_of("released", rate=1e-3, epochs=None)["epochs"] == 2
    recipe = training.recipe_of("released", epochs=1, batch=64)
    common = {"source": "generated", "seed": 0, "per_tempo": 1, "start": "paper", "recipe": recipe}
    result = training.train_run(model=str(tmp_path), head="fourier", frequencies=1, **common)
    assert result["head_parameters"] == 4 * 17
    assert sum(result["example"]["pmf"]) == pytest.approx(1, abs=1e-4)
    BertConfig().save_pretrained(tmp_path / "bert")
    with pytest.raises(UserError, match="is a bert"):
        build(str(tmp_path / "bert"), "linear", None, 0)
    with pytest.raises(UserError, match="small, tiny, nano or an AST"):
        build(str(tmp_path / "nothing"), "linear", None, 0)


def test_the_study_runs_stops_at_its_limit_and_goes_on(nano, tmp_path):
    settings = Settings(tmp_path, nano, seeds=1, frequencies="2", clips=1, epochs=2, batch=40, pretrain=0, device="cpu")
    with pytest.raises(UserError, match="before the first of the runs"):
        run(replace(settings, time_limit=0.0))
    tasks = tasks_of(settings)
    assert [task.label for task in tasks] == [
        "released: Linear, seed 0",
        "released: Fourier-2, seed 0",
        "released: HL-Gauss, seed 0",
        "released, uniform start: Fourier-2, seed 0",
        "longer: Linear, seed 0",
        "longer: Fourier-2, seed 0",
        "longer: HL-Gauss, seed 0",
    ]
    from fourier_head.tasks.runs import RunStore

    first = tasks[0].call()
    RunStore(tmp_path).put(tasks[0].label, tasks[0].settings, first)
    partial = run(replace(settings, time_limit=0.0))
    assert any("1 of 7 runs" in note for note in partial.extra["notes"])
    assert RunStore(tmp_path).get(tasks[0].label, tasks[0].settings) is not None
    summary = run(settings)
    assert not (tmp_path / ".partial").exists()
    found = {(r["protocol"], r["head"], r["frequencies"], r["metric"]) for r in summary.rows}
    assert {
        ("released", "linear", None, "macro_f1"),
        ("released, uniform start", "fourier", 2, "bpm_error"),
        ("longer", "hl_gauss", None, "smoothness"),
    } <= found
    runs = json.loads((tmp_path / "runs.json").read_text())
    assert runs[0]["macro_f1"] == first["macro_f1"]
    assert {path.stem for path in tmp_path.glob("*.png")} == {"pmfs", "scores", "training", "distances"}
    options = "--model nano --seeds 1 --frequencies 2 --clips 1 --epochs 2 --batch 40 --pretrain 0"
    assert summary.command == f"python -m studies tempo {options} -o {tmp_path.name}"
    assert summary.seconds == pytest.approx(sum(r["seconds"] for r in runs), abs=0.01)  # the first is an earlier call's


def test_ratios_are_of_the_same_seeds():
    about = {"dataset": "generated", "protocol": "released", "accuracy": 0.3}
    runs = [
        about | dict(zip(("head", "frequencies", "seed", "macro_f1", "bpm_error"), one, strict=True))
        for one in (
            ("linear", None, 0, 0.2, 10.0),
            ("linear", None, 1, 0.4, 6.0),
            ("fourier", 1, 0, 0.5, 4.0),
            ("fourier", 1, 1, 0.7, 4.0),
            ("fourier", 1, 2, 0.9, 1.0),
        )
    ]
    better, closer = ratio_rows(runs)
    assert (better["ours"], better["seeds"], better["paper"]) == (pytest.approx(2.0), 2, 2.18)
    assert not list(ratio_rows([r | {"accuracy": 0.04} for r in runs]))
    assert (closer["metric"], closer["ours"]) == ("bpm_error_to_linear", pytest.approx(0.5))


def test_options_are_checked(tmp_path):
    for changes, words in (
        *(({"frequencies": wrong}, "--frequencies") for wrong in ("", "a", "0", "33")),
        ({"seeds": 0}, "--seeds"),
        ({"protocol": "x"}, "--protocol"),
        ({"device": "abacus"}, "--device"),
    ):
        with pytest.raises(UserError, match=words):
            tasks_of(Settings(tmp_path, **changes))
    with pytest.raises(UserError, match="has weights"):
        tasks_of(Settings(tmp_path, model="some/ast", pretrain=5))
    quick = tasks_of(Settings(tmp_path, quick=True, device="cpu"))
    assert {task.settings["protocol"] for task in quick} == {"longer"}
    assert {task.settings["model"] for task in quick} == {"tiny"}
    if not torch.cuda.is_available():
        with pytest.raises(UserError, match="needs a graphics card"):
            tasks_of(Settings(tmp_path, device="cuda"))


def test_a_random_split_deals_out_every_clip_once(silent):
    parts, other = (data.random_split.__wrapped__(seed, 2, 16, "cpu") for seed in (3, 4))
    assert [len(part) for part in vars(parts).values()] == [160, 80, 82]
    bpm = torch.cat([parts.train.bpm, parts.validation.bpm, parts.test.bpm])
    assert sorted(bpm.tolist()) == sorted([*range(50, 211)] * 2)
    assert {0, 1} == set((parts.test.bpm % 2).tolist())  # odd and even tempos in each part
    assert not torch.equal(parts.train.bpm, other.train.bpm)


def test_recipes_are_chosen_on_validation_clips_alone():
    from studies.tempo.study import CHOSEN, chosen_runs

    runs = [
        {"head": "linear", "frequencies": None, "seed": s, "protocol": p, "validation_f1": v, "macro_f1": t}
        for s in (0, 1)
        for p, v, t in (("released", 0.1, 0.9), ("longer", 0.2, 0.3))
    ]
    chosen = chosen_runs(runs)
    assert {(r["protocol"], r["recipe"], r["macro_f1"]) for r in chosen} == {(CHOSEN, "longer", 0.3)}
    assert [r["seed"] for r in chosen] == [0, 1]
