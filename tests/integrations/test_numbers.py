"""NumberLM: exact reading of padded prompts, losses, adapters, saving, Trainer, and its errors."""

import copy
import json
import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from torch.nn import functional as F

pytest.importorskip("transformers")
pytest.importorskip("peft")

from fourier_head.densities.fourier import FourierDensity
from fourier_head.integrations.language_models import load_model, lora_settings, nucleus, tiny_model
from fourier_head.integrations.numbers import NumberLM
from tests.two_processes import launch

PROMPTS = ["mean 0.55:", "the mean is -0.55 and the rest is silence:", "1"]


def fresh(**options):
    model, tokenizer = tiny_model()
    return NumberLM(model, tokenizer, **options)


@pytest.fixture
def folder(tmp_path):
    """A tiny causal model as a folder, as a hub would give it."""
    model, tokenizer = tiny_model()
    model.save_pretrained(tmp_path / "base")
    tokenizer.save_pretrained(tmp_path / "base")
    return tmp_path / "base"


def gpt2():
    from transformers import GPT2Config, GPT2LMHeadModel

    _, tokenizer = tiny_model()
    config = GPT2Config(vocab_size=len(tokenizer), n_embd=32, n_layer=2, n_head=2, n_positions=64)
    return NumberLM(GPT2LMHeadModel(config), tokenizer)


def opt():
    """A model whose last hidden state is narrower than the ones before it."""
    from transformers import OPTConfig, OPTForCausalLM

    _, tokenizer = tiny_model()
    sizes = {"hidden_size": 32, "word_embed_proj_dim": 16, "ffn_dim": 32, "num_hidden_layers": 1}
    config = OPTConfig(vocab_size=len(tokenizer), num_attention_heads=2, max_position_embeddings=64, **sizes)
    return NumberLM(OPTForCausalLM(config).eval(), tokenizer)


@pytest.mark.parametrize("make", [fresh, gpt2, opt])
def test_padding_on_either_side_changes_nothing(make):
    lm = make().eval()
    right = lm.encode(PROMPTS)
    left = {key: value.clone() for key, value in right.items()}
    for i, length in enumerate(right["attention_mask"].sum(-1).tolist()):
        for key in left:
            left[key][i] = right[key][i].roll(right[key].shape[1] - length)
    assert left["attention_mask"][2, 0] == 0
    with torch.no_grad():
        alone = torch.cat([lm.hidden(**lm.encode([prompt])) for prompt in PROMPTS])
        torch.testing.assert_close(lm.hidden(**right), alone, atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(lm.hidden(**left), alone, atol=1e-5, rtol=1e-5)
    density = lm.predict(PROMPTS, batch_size=2)
    assert isinstance(density, FourierDensity)
    assert density.batch_shape == (3,)
    torch.testing.assert_close(density.mean, lm.head.density(alone).mean, atol=1e-4, rtol=1e-4)


def test_losses_are_those_of_the_bins_and_of_the_density():
    lm = fresh(low=0, high=10, num_bins=20, num_frequencies=3)
    batch = lm.encode(PROMPTS, [0.0, 4.9, 10.0])
    out = lm.eval()(**batch)
    ids = torch.tensor([0, 9, 19])
    torch.testing.assert_close(out.loss, F.cross_entropy(out.logits, ids))
    given = {key: batch[key] for key in ("input_ids", "attention_mask")}
    torch.testing.assert_close(lm(**given, labels=ids).loss, out.loss)
    torch.testing.assert_close(lm(**batch, num_items_in_batch=6).loss, out.loss / 2)
    assert lm.train()(**batch).logits is None
    assert lm(**given).loss is None
    lm.objective = "nll"
    expected = -lm.predict(PROMPTS).log_prob(batch["values"].float()).mean()
    torch.testing.assert_close(lm(**batch).loss, expected, atol=1e-5, rtol=1e-5)


def test_samples_come_from_the_density_or_from_the_bins():
    lm = fresh(num_bins=10, num_frequencies=2)
    lm.head.reset_parameters()
    first = lm.sample(PROMPTS, 200, torch.Generator().manual_seed(1))
    assert first.shape == (3, 200)
    torch.testing.assert_close(first, lm.sample(PROMPTS, 200, torch.Generator().manual_seed(1)))
    assert len(first[0].unique()) > 190
    drawn = lm.sample(PROMPTS, 4000, torch.Generator().manual_seed(1), on_bins=True)
    centres = lm.bins.centers.float()
    share = (drawn[..., None] == centres).float().mean(1)
    torch.testing.assert_close(share, lm.head(lm.features(PROMPTS)).exp().detach(), atol=0.04, rtol=0)
    cut = lm.sample(PROMPTS, 500, torch.Generator().manual_seed(1), on_bins=True, top_p=0.5)
    kept = nucleus(lm.head(lm.features(PROMPTS)).exp(), 0.5) > 0
    assert ((cut[..., None] == centres).any(1) <= kept).all()
    assert lm.sample([], 5).shape == (0, 5)


def test_an_adapter_learns_and_leaves_the_model_as_it_was():
    lm = fresh(num_frequencies=4)
    before = {key: value.clone() for key, value in lm.backbone.state_dict().items()}
    prompts, values = ["low:", "high:"] * 16, [-0.5, 0.5] * 16
    words = []
    history = lm.fine_tune(
        prompts, values, epochs=12, lr=1e-2, batch_size=8, progress=lambda share, text: words.append((share, text))
    )
    assert len(history) == 12
    assert history[-1] < history[0] - 1
    assert words[-1] == (1.0, "epoch 12 of 12")
    low, high = lm.predict(["low:", "high:"]).mean.tolist()
    assert low == pytest.approx(-0.5, abs=0.15)
    assert high == pytest.approx(0.5, abs=0.15)
    trained = {name for name, p in lm.named_parameters() if p.requires_grad}
    assert trained
    assert all("lora_" in name or "head.modules_to_save" in name for name in trained)
    lm.remove_lora()
    after = lm.backbone.state_dict()
    assert before.keys() == after.keys()
    assert all(torch.equal(before[key], after[key]) for key in before)


def test_the_same_seed_gives_the_same_model():
    models = [fresh() for _ in range(2)]
    for lm in models:
        with torch.no_grad():
            lm.head.proj.weight.copy_(models[0].head.proj.weight)
            lm.head.proj.bias.copy_(models[0].head.proj.bias)
    one, two = (lm.fine_tune(PROMPTS, [0.1, 0.2, 0.3], epochs=2, batch_size=2, seed=5) for lm in models)
    assert one == two


def test_adapter_and_head_travel_in_one_folder(folder, tmp_path):
    lm = NumberLM.from_pretrained(folder, low=-2, high=2, num_bins=50, num_frequencies=5, floor=1e-3)
    lm.fine_tune(PROMPTS, [-1.0, 0.5, 1.5], epochs=3, lr=1e-2, lora=lora_settings(rank=2))
    saved = tmp_path / "saved"
    lm.save_pretrained(saved)
    names = {path.name for path in saved.iterdir()}
    assert names >= {"adapter_config.json", "adapter_model.safetensors", "number_lm.json", "tokenizer.json"}
    assert "backbone" not in names
    from safetensors.torch import load_file

    weights = load_file(saved / "adapter_model.safetensors")
    assert sum("head" in key for key in weights) == 2
    assert all("lora_" in key or "head" in key for key in weights)
    expected = lm.predict(PROMPTS)
    again = NumberLM.from_pretrained(saved)
    assert again.settings == lm.settings
    torch.testing.assert_close(again.predict(PROMPTS).coefficients, expected.coefficients)
    assert again.predict(PROMPTS).domain.high == 2
    # the adapter goes on training, and a base that has moved can be named
    assert len(again.fine_tune(PROMPTS, [-1.0, 0.5, 1.5], epochs=1)) == 1
    moved = folder.rename(tmp_path / "moved")
    NumberLM.from_pretrained(saved, base=moved).save_pretrained(tmp_path / "again")
    torch.testing.assert_close(
        NumberLM.from_pretrained(tmp_path / "again").predict(PROMPTS).coefficients, expected.coefficients
    )


def test_a_folder_holds_what_was_saved_last(folder, tmp_path):
    lm = NumberLM.from_pretrained(folder)
    lm.save_pretrained(tmp_path / "saved")
    lm.fine_tune(PROMPTS, [-1.0, 0.5, 1.0], epochs=2, lr=1e-2)
    for _ in range(2):  # an adapter over a whole model, then a whole model over an adapter
        lm.save_pretrained(tmp_path / "saved")
        again = NumberLM.from_pretrained(tmp_path / "saved")
        torch.testing.assert_close(again.predict(PROMPTS).coefficients, lm.predict(PROMPTS).coefficients)
        lm.merge_lora()


def test_columns_of_a_data_frame_are_read_by_their_place():
    frame = pytest.importorskip("pandas").DataFrame({"prompt": ["out", *PROMPTS], "value": [9.0, -0.5, 0.1, 0.9]})[1:]
    assert len(fresh().fine_tune(frame["prompt"], frame["value"], epochs=1)) == 1


def test_limits_from_an_array_can_be_saved(tmp_path):
    values = np.array([3, 9, 12])
    lm = fresh(low=values.min(), high=torch.tensor(12.5), num_bins=np.int64(20), floor=np.float32(0.5))
    lm.save_pretrained(tmp_path)
    again = NumberLM.from_pretrained(tmp_path)
    assert (again.bins.low, again.bins.high, again.head.num_bins, again.head.layout.floor) == (3, 12.5, 20, 0.5)


def test_a_configuration_of_an_adapter_serves_other_models_too():
    config = lora_settings(target_modules=["q_proj"])
    fresh().add_lora(config)
    assert config.modules_to_save is None


def test_a_merged_or_fully_trained_model_is_saved_whole(folder, tmp_path):
    lm = NumberLM.from_pretrained(folder)
    lm.fine_tune(PROMPTS, [-1.0, 0.5, 1.0], epochs=2, lr=1e-2)
    expected = lm.predict(PROMPTS).coefficients
    lm.merge_lora()
    torch.testing.assert_close(lm.predict(PROMPTS).coefficients, expected, atol=1e-5, rtol=1e-4)
    before = next(lm.backbone.parameters()).clone()
    lm.fine_tune(PROMPTS, [-1.0, 0.5, 1.0], epochs=1, lora=False)
    assert not torch.equal(before, next(lm.backbone.parameters()))
    lm.save_pretrained(tmp_path / "whole")
    again = NumberLM.from_pretrained(tmp_path / "whole")
    torch.testing.assert_close(again.predict(PROMPTS).coefficients, lm.predict(PROMPTS).coefficients)
    # the next adapter belongs to these weights, not to those that were there first
    for one in (lm, again):
        one.fine_tune(PROMPTS, [-1.0, 0.5, 1.0], epochs=1, lr=1e-2)
        one.save_pretrained(tmp_path / "next")
        expected = one.predict(PROMPTS).coefficients
        torch.testing.assert_close(NumberLM.from_pretrained(tmp_path / "next").predict(PROMPTS).coefficients, expected)


@pytest.mark.parametrize("more", [{}, {"modules_to_save": ["embed_tokens"]}])
def test_an_adapter_of_a_model_without_a_name_is_saved_with_its_weights(tmp_path, more):
    """Such as one that was made in memory; its folder may move."""
    from safetensors.torch import load_file

    lm = fresh()
    plain = {key: value.clone() for key, value in lm.backbone.state_dict().items()}
    lm.fine_tune(PROMPTS, [-1.0, 0.5, 1.0], epochs=2, lr=1e-2, lora=lora_settings(rank=2, **more))
    lm.save_pretrained(tmp_path / "saved")
    expected = lm.predict(PROMPTS).coefficients
    folder = (tmp_path / "saved").rename(tmp_path / "moved")
    again = NumberLM.from_pretrained(folder)
    torch.testing.assert_close(again.predict(PROMPTS).coefficients, expected)
    again.save_pretrained(folder)
    again = NumberLM.from_pretrained(folder.rename(tmp_path / "moved again"))
    torch.testing.assert_close(again.predict(PROMPTS).coefficients, expected)
    kept = load_file(tmp_path / "moved again" / "backbone" / "model.safetensors")
    assert kept.keys() == plain.keys()
    assert all(torch.equal(kept[key], plain[key]) for key in plain)


@pytest.mark.parametrize("objective", ["cross_entropy", "nll"])
@pytest.mark.parametrize("adapter", [False, True])
def test_trainer_trains_it(tmp_path, objective, adapter):
    pytest.importorskip("accelerate")
    from transformers import Trainer, TrainingArguments

    lm = fresh(objective=objective)
    rows = [{"prompt": prompt, "value": value} for prompt, value in zip(PROMPTS, [-0.5, 0.1, 0.9], strict=True)] * 4
    arguments = TrainingArguments(
        output_dir=str(tmp_path),
        max_steps=3,
        per_device_train_batch_size=2,
        gradient_accumulation_steps=2,
        learning_rate=1e-2,
        remove_unused_columns=False,
        label_names=["labels" if objective == "cross_entropy" else "values"],
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
        gradient_checkpointing=adapter,
    )
    model = lm.add_lora() if adapter else lm
    before = lm.head.proj.weight.detach().clone()
    trainer = Trainer(model=model, args=arguments, train_dataset=rows, eval_dataset=rows, data_collator=lm.collate)
    trainer.train()
    assert not torch.equal(before, lm.head.proj.weight)
    assert np.isfinite(trainer.evaluate()["eval_loss"])
    assert (tmp_path / "checkpoint-3" / ("adapter_model.safetensors" if adapter else "model.safetensors")).exists()


@pytest.mark.filterwarnings("ignore:mkldnn_matmul")  # of processors without bfloat16
def test_bfloat16_models_keep_a_float32_head():
    model, tokenizer = tiny_model()
    lm = NumberLM(model.bfloat16(), tokenizer)
    assert lm.features(PROMPTS).dtype == torch.float32
    assert np.isfinite(lm.fine_tune(PROMPTS, [0.1, 0.2, 0.3], epochs=1)).all()


def test_a_published_model_reads_numbers(shared):
    lm = NumberLM.from_pretrained(shared / "models" / "stories260K", num_frequencies=4)
    prompts = ["Once upon a time there was a small number:", "The big number is:"]
    history = lm.fine_tune(prompts * 8, [-0.6, 0.6] * 8, epochs=8, lr=1e-2, batch_size=8)
    assert history[-1] < history[0]
    small, big = lm.predict(prompts).mean.tolist()
    assert small < big


def test_bad_input_gets_one_clear_sentence(tmp_path):
    lm = fresh()
    with pytest.raises(TypeError, match="put it into a list"):
        lm.predict("a text")
    with pytest.raises(ValueError, match=r"prompts\[1\] is empty"):
        lm.predict(["a", ""])
    with pytest.raises(ValueError, match=r"values must .*got 1.5"):
        lm.fine_tune(["a", "b"], [0.0, 1.5])
    with pytest.raises(ValueError, match="one number for each of 2 prompts"):
        lm.fine_tune(["a", "b"], [0.0])
    for values in ("0.5", ["0.5", "much"], [0.5, None], 0.5):
        with pytest.raises(TypeError, match="values must be one number for each of 2 prompts, got"):
            lm.fine_tune(["a", "b"], values)
    for lora in ("x", None, 8):
        with pytest.raises(TypeError, match=f"lora must be True, False or a LoraConfig, got {lora!r}"):
            lm.fine_tune(["a"], [0.0], lora=lora)
    with pytest.raises(ValueError, match="target must hold bin ids from 0 to 199"):
        lm(**lm.encode(["a"]), labels=torch.tensor([200]))
    with pytest.raises(ValueError, match="pass on_bins=True"):
        lm.sample(["a"], top_p=0.5)
    with pytest.raises(ValueError, match="objective must be one of"):
        fresh(objective="mse")
    with pytest.raises(ValueError, match="is no language model"):
        NumberLM.from_pretrained(tmp_path)
    lm.add_lora()
    with pytest.raises(ValueError, match="an adapter already"):
        lm.add_lora()


PROGRAM = """
import json, os, sys, torch
from fourier_head.integrations.language_models import lora_settings, tiny_model
from fourier_head.integrations.numbers import NumberLM
torch.manual_seed(0)
lm = NumberLM(*tiny_model())
prompts = [f"number {i}:" for i in range(7)]
values = [i / 10 for i in range(7)]
history = lm.fine_tune(prompts, values, epochs=2, batch_size=4, lr=1e-2, head_first=2, lora=lora_settings(dropout=0.0))
if os.environ.get("RANK", "0") == "0":
    json.dump([history, lm.predict(prompts).mean.tolist()], open(sys.argv[1], "w"))
"""


@pytest.mark.slow
def test_two_processes_train_as_one(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    alone, together = tmp_path / "one.json", tmp_path / "two.json"
    environment = os.environ | {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    subprocess.run([sys.executable, str(program), str(alone)], check=True, env=environment, timeout=300)
    launch(str(program), str(together), timeout=300)
    results = [json.loads(path.read_text()) for path in (alone, together)]
    np.testing.assert_allclose(results[0][0], results[1][0], rtol=1e-4)
    np.testing.assert_allclose(results[0][1], results[1][1], atol=2e-3)


def test_a_new_head_may_learn_at_its_own_rate():
    from fourier_head.integrations.language_models import tiny_model

    def moved(head_lr):
        torch.manual_seed(0)
        numbers = NumberLM(*tiny_model(), num_frequencies=3)
        numbers.add_lora()
        head = [p for name, p in numbers.named_parameters() if name.startswith("head.") and p.requires_grad]
        before = [p.detach().clone() for p in head]
        numbers.fine_tune(["a", "b"], [0.1, 0.2], epochs=1, batch_size=2, lr=1e-6, head_lr=head_lr)
        return max(float((p.detach() - q).abs().max()) for p, q in zip(head, before, strict=True))

    assert moved(1e-2) > 1000 * moved(None)


def test_the_head_first_learns_alone_from_the_model_as_it_is():
    prompts, values = ["low:", "high:", "none:"], torch.tensor([-0.5, 0.5, 0.0], dtype=torch.float64)
    lm = fresh(num_frequencies=4)
    head, x, labels = copy.deepcopy(lm.head), lm.features(prompts), lm.bins.encode(values)
    optimizer = torch.optim.AdamW(head.parameters(), lr=1e-2, weight_decay=0.01)
    for step in range(20):
        optimizer.param_groups[0]["lr"] = 1e-2 * (1 - 0.9 * step / 20)
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(head(x), labels).backward()
        optimizer.step()
    # all prompts in one batch, and a head that then stands still: only the epochs alone have moved it
    history = lm.fine_tune(prompts, values, epochs=1, lr=1e-2, head_lr=0.0, head_first=20)
    assert len(history) == 1
    torch.testing.assert_close(lm.head.proj.weight, head.proj.weight, rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(lm.head.proj.bias, head.proj.bias, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("objective", ["cross_entropy", "nll"])
def test_training_starts_better_after_epochs_of_the_head_alone(objective):
    prompts, values = ["low:", "high:"] * 8, [-0.5, 0.5] * 8

    def first_loss(head_first):
        torch.manual_seed(0)
        lm = fresh(num_frequencies=4, objective=objective)
        return lm.fine_tune(prompts, values, epochs=1, lr=1e-2, head_first=head_first)[0]

    assert first_loss(40) < first_loss(0) - 1


def test_a_model_that_cannot_be_fetched_is_told_from_one_that_is_none(monkeypatch):
    def offline(name):
        raise OSError("We couldn't connect to 'https://somewhere' to load the files.\nCheck your connection.")

    monkeypatch.setattr("transformers.AutoTokenizer.from_pretrained", offline)
    with pytest.raises(ValueError, match="some/model is not on this machine"):
        load_model("some/model")
