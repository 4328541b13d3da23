"""Swapped heads of Hugging Face models: one table of architectures, each trained, saved and loaded."""

import copy
import pickle
import sys

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from fourier_head import Bins, Circle, FourierHead, HLGaussHead, Interval, LinearHead, MixtureHead, RegressionHead

transformers = pytest.importorskip("transformers")

from fourier_head.integrations.transformers import AutoModelWithHead, find_head, replace_head  # noqa: E402
from tests.swapped_models import (  # noqa: E402
    BINS,
    CASES,
    DROPLESS,
    LLAMA,
    SMALL,
    VOCABULARY,
    WIDTH,
    WRITERS,
    logits,
    same,
)
from tests.two_processes import spawn  # noqa: E402


@pytest.fixture(params=CASES)
def case(request):
    return CASES[request.param]


def cross_entropy(output, batch, causal, reduction="mean"):
    """The loss that transformers would compute from all logits."""
    labels = batch["labels"]
    scores = output.logits
    if causal:
        scores, labels = scores[:, :-1], labels[:, 1:]
    return F.cross_entropy(scores.flatten(0, -2).float(), labels.flatten(), reduction=reduction)


# --- the table


def test_loss_and_gradients(case):
    model, batch = case.model(), case.batch()
    assert isinstance(model.get_submodule(case.path), FourierHead)
    assert find_head(model) is model.get_submodule(case.path)
    causal = case.auto is transformers.AutoModelForCausalLM
    seen = model.eval()(**batch)
    assert seen.logits.shape == (*batch["labels"].shape, BINS)
    same(seen.logits.exp().sum(-1), torch.ones(batch["labels"].shape))
    same(seen.loss, cross_entropy(seen, batch, causal))
    parts = model(**batch, num_items_in_batch=torch.tensor(50))
    same(parts.loss, cross_entropy(seen, batch, causal, "sum") / 50)
    loss, first = model(**batch, return_dict=False)[:2]
    same((loss, first), (seen.loss, seen.logits))

    trained = model.train()(**batch)
    assert trained.logits is None
    same(trained.loss, seen.loss)
    trained.loss.backward()
    # Nothing is left over that DDP would wait for.
    assert [name for name, weight in model.named_parameters() if weight.grad is None] == []
    assert all(weight.grad.isfinite().all() for weight in model.parameters())


class Rows(torch.utils.data.Dataset):
    def __init__(self, batch):
        self.batch = batch

    def __len__(self):
        return len(self.batch["labels"])

    def __getitem__(self, i):
        return {key: value[i] for key, value in self.batch.items()}


def train(model, batch, folder):
    arguments = transformers.TrainingArguments(
        output_dir=str(folder), max_steps=3, per_device_train_batch_size=2, learning_rate=0.05, use_cpu=True,
        report_to=[], save_strategy="no", disable_tqdm=True, logging_strategy="no", gradient_accumulation_steps=2,
        dataloader_pin_memory=False,
    )  # fmt: skip
    trainer = transformers.Trainer(model=model, args=arguments, train_dataset=Rows(batch), eval_dataset=Rows(batch))
    before = trainer.evaluate()["eval_loss"]
    trainer.train()
    assert trainer.evaluate()["eval_loss"] < before
    return trainer


def test_train_save_and_load(case, tmp_path):
    model, batch = case.model(boundary="reflect", domain=Interval(50, 210)), case.batch()
    train(model, batch, tmp_path / "run").save_model(str(tmp_path / "model"))
    expected = logits(model, batch)
    for kind in (AutoModelWithHead, type(model)):
        loaded, info = kind.from_pretrained(tmp_path / "model", output_loading_info=True)
        assert not info["missing_keys"]
        assert not info["unexpected_keys"]
        same(logits(loaded, batch), expected)
    head = find_head(loaded)
    assert head.layout == find_head(model).layout
    assert repr(head.domain) == "Interval(50.0, 210.0)"
    assert loaded.config.architectures == [case.kind.__name__]
    same(loaded.density(**batch).mean, model.density(**batch).mean)


def test_train_save_and_load_with_lora(case, tmp_path):
    peft = pytest.importorskip("peft")
    model, batch = case.model(), case.batch()
    model.save_pretrained(tmp_path / "base")
    settings = peft.LoraConfig(r=2, target_modules=case.targets, modules_to_save=[case.path])
    adapted = peft.get_peft_model(model, settings)
    head = find_head(adapted)
    start = head.proj.weight.clone()
    trained = {name for name, weight in adapted.named_parameters() if weight.requires_grad}
    assert all("lora" in name or "modules_to_save" in name for name in trained)
    assert head.proj.weight.requires_grad
    train(adapted, batch, tmp_path / "run").save_model(str(tmp_path / "adapter"))
    assert not torch.equal(find_head(adapted).proj.weight, start)
    expected = logits(adapted, batch)

    base = AutoModelWithHead.from_pretrained(tmp_path / "base")
    assert not torch.allclose(logits(base, batch), expected, atol=1e-3)
    again = peft.PeftModel.from_pretrained(base, tmp_path / "adapter")
    same(logits(again, batch), expected)
    merged = adapted.merge_and_unload()
    merged.save_pretrained(tmp_path / "merged")
    same(logits(AutoModelWithHead.from_pretrained(tmp_path / "merged"), batch), expected)


def test_adapters_load_once_the_plain_model_is_swapped(case, tmp_path):
    """The order that the docs give: an adapter's folder does not say what head its weights belong to."""
    peft = pytest.importorskip("peft")
    torch.manual_seed(0)
    case.kind(case.config(**copy.deepcopy(case.settings))).save_pretrained(tmp_path / "plain")

    def swapped():
        plain = case.auto.from_pretrained(tmp_path / "plain")
        return replace_head(plain, BINS, 5, boundary="reflect", domain=Interval(50, 210))

    settings = peft.LoraConfig(r=2, target_modules=case.targets, modules_to_save=[case.path])
    adapted, batch = peft.get_peft_model(swapped(), settings), case.batch()
    with torch.no_grad():
        for weight in adapted.parameters():
            if weight.requires_grad:
                weight += 0.1 * torch.randn_like(weight)
    adapted.save_pretrained(tmp_path / "adapter")

    base = swapped()
    assert not torch.allclose(logits(base, batch), logits(adapted, batch), atol=1e-3)
    again = peft.PeftModel.from_pretrained(base, tmp_path / "adapter")
    same(logits(again, batch), logits(adapted, batch))
    same(again.density(**batch).mean, adapted.density(**batch).mean)


def test_other_models_of_one_configuration_stay_plain(case, tmp_path):
    """The configuration of a swapped model is its own, and that of its parts."""
    config, batch = case.config(**copy.deepcopy(case.settings)), case.batch()
    model, other = case.kind(config), case.kind(config)
    before = config.to_dict()
    replace_head(model, BINS, 5, resize_embeddings=case.per_token, domain=Interval(0, 1))
    assert config.to_dict() == before
    assert other.config is config
    assert all(part.config is model.config for part in (model, model.base_model))
    assert all(getattr(part, "config", None) is not config for part in model.modules())

    inputs = {key: value for key, value in batch.items() if key != "labels"}
    if case.auto is transformers.AutoModelForSeq2SeqLM:
        inputs["decoder_input_ids"] = batch["input_ids"]
    other.save_pretrained(tmp_path / "other")
    loaded = case.auto.from_pretrained(tmp_path / "other")
    assert type(loaded) is case.kind
    assert not hasattr(loaded.config, "fourier_head")
    same(logits(loaded, inputs), logits(other, inputs))

    inputs = {key: x % BINS if key.endswith("input_ids") else x for key, x in inputs.items()}
    model.save_pretrained(tmp_path / "swapped")
    same(logits(AutoModelWithHead.from_pretrained(tmp_path / "swapped"), inputs), logits(model, inputs))


def test_initial_scale_survives(case, tmp_path):
    """Neither post_init nor a checkpoint without the head touches the head's own initialisation."""
    model = case.model(packets=2)
    small = find_head(model).proj.weight.abs().max()
    assert small < 1e-3
    fresh = type(model)(model.config)
    from_config = AutoModelWithHead.from_config(model.config)
    weights = {key: value for key, value in model.state_dict().items() if not key.startswith(case.path + ".")}
    partial = AutoModelWithHead.from_pretrained(None, config=model.config, state_dict=weights)
    for other in (fresh, from_config, partial):
        head = find_head(other)
        assert 1e-5 < head.proj.weight.abs().max() < 1e-3
        assert head.proj.weight.std() > 1e-5
        assert head.proj.bias.abs().max() > 0.1  # the places of the packets
        assert type(other).__name__ == case.kind.__name__


def test_meta_device(case, tmp_path):
    model, batch = case.model(), case.batch()
    model.save_pretrained(tmp_path)
    with torch.device("meta"):
        empty = type(model)(copy.deepcopy(model.config))
    assert all(weight.is_meta for weight in find_head(empty).parameters())
    if case.reads != "tokens":  # text models of transformers look into their input
        assert empty(**{key: x.to("meta") for key, x in batch.items()}).loss.is_meta
    assert set(empty.state_dict()) == set(model.state_dict())
    loaded = AutoModelWithHead.from_pretrained(tmp_path, device_map={"": "cpu"})
    same(logits(loaded, batch), logits(model, batch))
    with torch.device("meta"):
        swapped = replace_head(case.kind(case.config(**copy.deepcopy(case.settings))), BINS, 5)
    assert find_head(swapped).proj.weight.is_meta


def test_bf16_and_gradient_checkpointing(case):
    model, batch = case.model(), case.batch()
    expected = model.train()(**batch).loss
    expected.backward()
    gradient = find_head(model).proj.weight.grad.clone()
    model.zero_grad()
    model.gradient_checkpointing_enable()
    model(**batch).loss.backward()
    torch.testing.assert_close(find_head(model).proj.weight.grad, gradient, rtol=1e-3, atol=1e-4)

    half = case.model().to(torch.bfloat16)
    inputs = {key: x.bfloat16() if x.is_floating_point() else x for key, x in batch.items()}
    loss = half.train()(**inputs).loss
    loss.backward()
    torch.testing.assert_close(loss.float(), expected, rtol=0.05, atol=0.05)
    swapped = replace_head(case.kind(case.config(**copy.deepcopy(case.settings))).bfloat16(), BINS, 5)
    assert find_head(swapped).proj.weight.dtype == torch.bfloat16
    with torch.autocast("cpu", torch.bfloat16):
        torch.testing.assert_close(model(**batch).loss, expected, rtol=0.05, atol=0.05)


# --- language models


@pytest.mark.parametrize("name", WRITERS)
def test_generate(name, tmp_path):
    case = CASES[name]
    model = case.model(num_bins=BINS - 2, num_atoms=2, resize_embeddings=True).eval()
    assert model.config.vocab_size == BINS == model.get_input_embeddings().num_embeddings
    prompt = torch.randint(2, BINS, (2, 5))
    greedy = model.generate(prompt, max_new_tokens=4, min_new_tokens=4, do_sample=False)
    assert greedy.max() < BINS
    sampled = model.generate(prompt, max_new_tokens=4, min_new_tokens=4, do_sample=True, num_beams=2)
    assert sampled.shape[0] == 2
    model.save_pretrained(tmp_path)
    loaded = AutoModelWithHead.from_pretrained(tmp_path).eval()
    assert torch.equal(loaded.generate(prompt, max_new_tokens=4, min_new_tokens=4, do_sample=False), greedy)
    with pytest.raises(ValueError, match=f"the vocabulary has {VOCABULARY} tokens and the head {BINS} classes"):
        case.model().generate(prompt, max_new_tokens=2)


@pytest.mark.parametrize("name", WRITERS)
def test_embeddings_are_untied(name):
    model = CASES[name].model()
    rows = model.get_input_embeddings().weight
    assert all(rows is not weight for weight in find_head(model).parameters())
    model.tie_weights()
    model.resize_token_embeddings(VOCABULARY + 3)
    assert model.get_input_embeddings().num_embeddings == VOCABULARY + 3
    assert find_head(model).out_features == BINS
    assert model(**CASES[name].batch()).loss.isfinite()
    if name == "t5":
        assert model.encoder.embed_tokens.weight is model.shared.weight
    else:
        assert not model.config.tie_word_embeddings


def test_positions_and_shifted_labels():
    case = CASES["llama"]
    model, batch = case.model().eval(), case.batch()
    full = logits(model, batch)
    labels = batch.pop("labels")
    last = model(**batch, logits_to_keep=1).logits
    same(last, full[:, -1:])
    same(model(batch["input_ids"], batch["attention_mask"]).logits, full)
    shifted = F.pad(labels, (0, 1), value=-100)[:, 1:]
    same(model(**batch, labels=labels).loss, model(**batch, shift_labels=shifted).loss)
    assert model(**batch, labels=torch.full_like(labels, -100)).loss == 0


@pytest.mark.parametrize("end", [VOCABULARY - 2, [2, VOCABULARY - 2]])
def test_special_tokens_beyond_the_classes_are_forgotten(end, tmp_path):
    """A padding that lies beyond the embeddings would keep a saved model from being loaded."""
    settings = {**LLAMA, "pad_token_id": VOCABULARY - 1, "eos_token_id": end}
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**settings))
    with pytest.warns(UserWarning, match=f"has {BINS} tokens now, which leaves out pad_token_id={VOCABULARY - 1}, eos"):
        replace_head(model, BINS, 5, resize_embeddings=True)
    model.save_pretrained(tmp_path)
    loaded = AutoModelWithHead.from_pretrained(tmp_path).eval()
    left = None if isinstance(end, int) else [2]
    for one in (loaded.config, loaded.generation_config):
        assert (one.pad_token_id, one.bos_token_id, one.eos_token_id) == (None, 1, left)
    assert loaded.generate(torch.tensor([[5, 6, 7]]), max_new_tokens=3).max() < BINS


# --- further models and options


def test_models_that_pool_after_the_head():
    model = transformers.LlamaForSequenceClassification(transformers.LlamaConfig(**LLAMA))
    replace_head(model, BINS, 5).eval()
    batch = CASES["bert"].batch()
    batch["input_ids"][1, 4:] = 0
    seen = model(**batch)
    assert seen.logits.shape == (4, BINS)
    same(seen.loss, F.cross_entropy(seen.logits, batch["labels"]))
    cut = model(input_ids=batch["input_ids"][1:2, :4])
    same(cut.logits, seen.logits[1:2])


BERT = {**SMALL, **DROPLESS, "vocab_size": VOCABULARY}
T5 = CASES["t5"].settings
BART = {
    "d_model": WIDTH, "vocab_size": VOCABULARY, "encoder_layers": 1, "decoder_layers": 1, "encoder_ffn_dim": 16,
    "decoder_ffn_dim": 16, "encoder_attention_heads": 2, "decoder_attention_heads": 2, "max_position_embeddings": 32,
    "dropout": 0.0, "pad_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 2,
}  # fmt: skip
CLIP = {"vision_config": {**SMALL, "image_size": 8, "patch_size": 4}, "text_config": BERT}


@pytest.mark.parametrize(
    ("kind", "config", "settings"),
    [
        ("BertForMaskedLM", "BertConfig", BERT),  # adds a bias to its logits
        ("RobertaForMaskedLM", "RobertaConfig", BERT),
        ("BartForConditionalGeneration", "BartConfig", BART),  # so does it, and a part of it ties embeddings
        ("MarianMTModel", "MarianConfig", BART),  # an object, not its class, says which weights are tied
        ("BartForCausalLM", "BartConfig", BART | {"is_decoder": True, "is_encoder_decoder": False}),  # does not shift
        ("XLNetLMHeadModel", "XLNetConfig", {"vocab_size": VOCABULARY, "d_model": WIDTH, "n_layer": 1, "n_head": 2}),
        ("BartForSequenceClassification", "BartConfig", BART),  # an encoder-decoder that writes nothing
        ("T5ForSequenceClassification", "T5Config", T5 | {"eos_token_id": 2}),
        ("CLIPForImageClassification", "CLIPConfig", CLIP),  # has no body of the name that its class gives
    ],
)
def test_further_models(kind, config, settings, tmp_path):
    torch.manual_seed(0)
    model = getattr(transformers, kind)(getattr(transformers, config)(**copy.deepcopy(settings)))
    replace_head(model, BINS, 5).eval()
    batch = CASES["vit" if "Image" in kind else "bert" if "Classification" in kind else "t5"].batch()
    if "input_ids" in batch:
        batch["input_ids"].masked_fill_(batch["input_ids"] == 2, 3)[:, -1] = 2  # they look for the end of the text
    seen = model(**batch)
    assert seen.logits.shape == (*batch["labels"].shape, BINS)
    same(seen.loss, cross_entropy(seen, batch, causal=False))
    model.tie_weights()
    model.save_pretrained(tmp_path)
    loaded, told = type(model).from_pretrained(tmp_path, output_loading_info=True)
    assert not told["missing_keys"]
    same(logits(loaded, batch), seen.logits)
    model.train()(**batch).loss.backward()
    if kind in ("BertForMaskedLM", "BartForConditionalGeneration"):
        assert [name for name, weight in model.named_parameters() if weight.grad is None] == []
    if "LM" in kind or "Generation" in kind:
        model.resize_token_embeddings(VOCABULARY + 3)
        same(logits(model, batch), seen.logits)


def test_a_model_inside_a_model_forgets_that_its_head_was_tied(tmp_path):
    reads, writes = (transformers.BertConfig(**BERT) for _ in range(2))
    config = transformers.EncoderDecoderConfig.from_encoder_decoder_configs(reads, writes)
    config.decoder_start_token_id, config.pad_token_id = 1, 0
    model, batch = replace_head(transformers.EncoderDecoderModel(config=config), BINS, 5), CASES["t5"].batch()
    assert model.decoder.config is model.config.decoder is not config.decoder
    model.tie_weights()
    model.save_pretrained(tmp_path)
    same(logits(AutoModelWithHead.from_pretrained(tmp_path), batch), logits(model, batch))


def test_experts_stay_in_use():
    """A mixture of experts that returns its router's loss adds a share of it to its own."""
    config = transformers.MixtralConfig(**LLAMA, num_local_experts=2, output_router_logits=True)
    model, batch = replace_head(transformers.MixtralForCausalLM(config), BINS, 5).eval(), CASES["llama"].batch()
    seen = model(**batch)
    assert seen.aux_loss > 0
    same(seen.loss, cross_entropy(seen, batch, causal=True) + config.router_aux_loss_coef * seen.aux_loss)


def test_models_that_return_float32_whatever_their_weights_are():
    config = transformers.MambaConfig(vocab_size=VOCABULARY, hidden_size=WIDTH, num_hidden_layers=1, state_size=4)
    model, batch = replace_head(transformers.MambaForCausalLM(config).bfloat16(), BINS, 5), CASES["llama"].batch()
    model.train()(**batch).loss.backward()
    assert model.density(input_ids=batch["input_ids"]).mean.isfinite().all()


@pytest.mark.parametrize("head", [LinearHead, HLGaussHead, MixtureHead, RegressionHead])
def test_other_heads(head, tmp_path):
    case = CASES["vit"]
    model, batch = case.model(head=head, num_frequencies=None, domain=Interval(0, 1)), case.batch()
    model.train()(**batch).loss.backward()
    model.save_pretrained(tmp_path)
    same(logits(AutoModelWithHead.from_pretrained(tmp_path), batch), logits(model, batch))
    assert isinstance(find_head(model), head)
    weights = {key: value for key, value in model.state_dict().items() if not key.startswith("classifier.")}
    partial = AutoModelWithHead.from_pretrained(None, config=model.config, state_dict=weights)
    assert logits(partial, batch).isfinite().all()


@pytest.mark.parametrize("domain", [Bins.mixed(BINS, -15.0, 15.0, dense=(-1.0, 10.0)), Circle(24.0), None])
def test_the_configuration_carries_the_domain(domain, tmp_path):
    case = CASES["bert"]
    model = case.model(num_bins=BINS, domain=domain, gamma=1e-4, impl="reference", floor=0.01)
    model.save_pretrained(tmp_path)
    loaded = AutoModelWithHead.from_pretrained(tmp_path)
    assert repr(find_head(loaded)) == repr(find_head(model))
    assert find_head(loaded).impl == "reference"
    same(loaded.eval().density(**case.batch()).mean, model.eval().density(**case.batch()).mean)


def test_a_pair_is_a_domain_and_so_is_that_of_another_head():
    case = CASES["bert"]
    assert repr(find_head(case.model(domain=(0, 100))).domain) == "Interval(0.0, 100.0)"
    bins = find_head(case.model(num_bins=None, domain=Bins.mixed(BINS, -15.0, 15.0, dense=(-1.0, 10.0))))
    assert find_head(case.model(num_bins=None, domain=bins.domain)).num_bins == BINS


def test_numbers_of_numpy_and_torch_can_be_saved(tmp_path):
    """Such as ``num_bins=labels.max() + 1``."""
    case = CASES["bert"]
    options = {"num_bins": torch.tensor(BINS), "num_frequencies": np.int64(5), "gamma": np.float32(0.5)}
    case.model(**options, domain=Interval(np.float32(0), np.int64(9))).save_pretrained(tmp_path)
    head = find_head(AutoModelWithHead.from_pretrained(tmp_path))
    assert (head.num_bins, head.num_frequencies, head.gamma, head.domain.high) == (BINS, 5, 0.5, 9.0)


@pytest.mark.parametrize("labels", [{"num_labels": 12}, {"id2label": {i: f"star {i}" for i in range(12)}}])
def test_loading_with_other_labels(labels, tmp_path):
    """A density does not depend on bins: with other ones it is read at other places."""
    case = CASES["bert"]
    model, batch = case.model(num_atoms=2, floor=0.0, bin_mass="exact", domain=Interval(0, 1)), case.batch()
    model.save_pretrained(tmp_path / "model")
    loaded, told = AutoModelWithHead.from_pretrained(tmp_path / "model", **labels, output_loading_info=True)
    assert not told["missing_keys"]
    assert not told["mismatched_keys"]
    assert loaded.config.num_labels == loaded.num_labels == find_head(loaded).out_features == 12
    batch["labels"] %= 12
    seen = loaded.eval()(**batch)
    same(seen.loss, F.cross_entropy(seen.logits, batch["labels"]))
    wide, narrow = (logits(one, batch | {"labels": None})[:, 2:].exp() for one in (model, loaded))
    same(narrow, wide.unflatten(-1, (10, 3)).sum(-1))
    loaded.save_pretrained(tmp_path / "again")
    same(logits(AutoModelWithHead.from_pretrained(tmp_path / "again"), batch), seen.logits)


def test_loading_a_linear_head_with_other_labels_is_as_transformers_does_it(tmp_path):
    case = CASES["bert"]
    case.model(head=LinearHead, num_frequencies=None).save_pretrained(tmp_path)
    with pytest.raises(RuntimeError, match="ignore_mismatched_sizes"):
        AutoModelWithHead.from_pretrained(tmp_path, num_labels=12)
    loaded, told = AutoModelWithHead.from_pretrained(
        tmp_path, num_labels=12, ignore_mismatched_sizes=True, output_loading_info=True
    )
    assert {key[0] for key in told["mismatched_keys"]} == {"classifier.proj.weight", "classifier.proj.bias"}
    assert logits(loaded, {"input_ids": case.batch()["input_ids"]}).isfinite().all()
    assert find_head(loaded).out_features == 12


def test_options_of_the_swap():
    case = CASES["bert"]
    model, batch = case.model(training_logits=True), case.batch()
    assert model.train()(**batch).logits.shape == (4, BINS)
    replace_head(model, 12, 3)
    assert model.config.num_labels == 12 == len(model.config.id2label)
    assert logits(model, {"input_ids": batch["input_ids"]}).shape == (4, 12)
    assert find_head(replace_head(model)).num_bins == 12
    assert case.model(resize_embeddings=True).config.num_labels == BINS
    plain = transformers.ASTForAudioClassification(transformers.ASTConfig(**CASES["ast"].settings))
    replace_head(plain, 12, 3, name="classifier.dense")
    assert find_head(plain).num_bins == 12


def test_copies_and_pickles():
    case = CASES["gpt2"]
    model, batch = case.model(), case.batch()
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert type(other) is type(model)
        same(logits(other, batch), logits(model, batch))


def test_adapters_around_a_module_that_holds_the_head():
    peft = pytest.importorskip("peft")
    case = CASES["ast"]
    model, batch = case.model(), case.batch()
    settings = peft.LoraConfig(r=2, target_modules="all-linear", modules_to_save=["classifier"])
    adapted = peft.get_peft_model(model, settings)
    adapted.train()(**batch).loss.backward()
    assert find_head(adapted).proj.weight.grad.abs().sum() > 0
    assert find_head(adapted).proj.__class__ is torch.nn.Linear
    start = logits(adapted, batch)
    with torch.no_grad():
        find_head(adapted).proj.bias += 1
    assert not torch.allclose(logits(adapted, batch), start)
    with adapted.disable_adapter():
        same(logits(adapted, batch), start)


def test_compiles_in_one_graph():
    case = CASES["llama"]
    one_layer = transformers.LlamaConfig(**{**case.settings, "num_hidden_layers": 1})
    model, batch = replace_head(transformers.LlamaForCausalLM(one_layer), BINS, 5), case.batch()
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    same(compiled(**batch).loss, model(**batch).loss)


def test_offloaded_weights(tmp_path):
    """A head whose weights wait on disk comes to life through its forward alone."""
    case = CASES["llama"]
    model, batch = case.model(), case.batch()
    model.save_pretrained(tmp_path / "model")
    places = {"model": "cpu", "lm_head": "disk"}
    loaded = AutoModelWithHead.from_pretrained(
        tmp_path / "model", device_map=places, offload_folder=str(tmp_path / "off")
    )
    assert next(find_head(loaded).parameters()).is_meta
    same(logits(loaded, batch), logits(model, batch))
    with torch.no_grad():
        same(loaded(**batch).loss, model(**batch).loss)
    plain = transformers.LlamaForCausalLM(transformers.LlamaConfig(**LLAMA))
    plain.save_pretrained(tmp_path / "plain")
    dispatched = case.kind.from_pretrained(
        tmp_path / "plain", device_map={"model": "cpu", "lm_head": "disk"}, offload_folder=str(tmp_path / "off2")
    )
    replace_head(dispatched, BINS, 5)
    assert not next(find_head(dispatched).parameters()).is_meta
    assert dispatched(**batch).logits.shape[-1] == BINS


def test_plain_configurations_stay_plain():
    case = CASES["llama"]
    model = case.model()
    plain = type(model)(case.config(**case.settings))
    assert type(plain) is case.kind
    assert isinstance(plain.lm_head, torch.nn.Linear)
    assert type(transformers.LlamaModel(model.config)) is transformers.LlamaModel


# --- errors


def test_errors():
    case = CASES["bert"]
    with pytest.raises(ValueError, match="BertModel has no recognisable head"):
        replace_head(transformers.BertModel(case.config(**case.settings)), BINS, 5)
    with pytest.raises(ValueError, match="has no module 'nowhere' to replace"):
        case.model(name="nowhere")
    with pytest.raises(ValueError, match="must be a linear layer, but"):
        case.model(name="bert.encoder")
    with pytest.raises(ValueError, match="must be a transformers PreTrainedModel"):
        replace_head(torch.nn.Linear(2, 2), 5)
    with pytest.raises(ValueError, match="colour"):
        case.model(colour="red")
    with pytest.raises(ValueError, match="num_frequencies is for a FourierHead"):
        case.model(head=LinearHead)
    with pytest.raises(ValueError, match="no swapped head"):
        find_head(torch.nn.Linear(2, 2))
    batch = case.batch()
    batch["labels"][0] = BINS
    with pytest.raises(ValueError, match=f"labels do not fit the head: .* from 0 to {BINS - 1} .* got {BINS}"):
        case.model()(**batch)
    with pytest.raises(TypeError, match="integer bin ids"):
        case.model()(**{**batch, "labels": torch.rand(4)})
    answers = transformers.BertForQuestionAnswering(case.config(**case.settings))
    with pytest.raises(ValueError, match="forward takes no labels"):
        replace_head(answers, BINS, 5)
    with pytest.raises(ValueError, match=r"bert\.pooler\.dense"):
        case.model(name="bert.pooler.dense")(input_ids=batch["input_ids"])


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (
            {"domain": Bins.uniform(BINS, 0.0, 1.0)},
            f"num_labels is 2, but the saved head has {BINS} classes, whose Bins",
        ),
        ({"num_atoms": 2}, "num_labels is 2, which leaves no bin beside the 2 atoms"),
    ],
)
def test_labels_that_no_head_can_have(options, told, tmp_path):
    case = CASES["bert"]
    case.model(**options).save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=told):
        AutoModelWithHead.from_pretrained(tmp_path, num_labels=2)


def test_options_that_do_not_fit_change_nothing():
    model = CASES["bert"].kind(CASES["bert"].config(**CASES["bert"].settings))
    with pytest.raises(ValueError, match="floor"):
        replace_head(model, BINS, 5, floor=2.0)
    assert type(model) is CASES["bert"].kind
    assert model.config.num_labels == 2


def test_missing_dependency_names_the_extra(monkeypatch):
    for name in [n for n in sys.modules if n.startswith("fourier_head.integrations.transformers")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(ImportError, match=r"pip install \"fourier-head\[transformers\]\""):
        import fourier_head.integrations.transformers  # noqa: F401


# --- two processes


def _gradient_of_share(rank, port, folder):
    torch.distributed.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
    torch.set_num_threads(1)
    case = CASES["gpt2"]
    model = torch.nn.parallel.DistributedDataParallel(case.model().train())
    share = {key: value[2 * rank : 2 * rank + 2] for key, value in case.batch().items()}
    items = int((case.batch()["labels"][:, 1:] != -100).sum())
    # As Trainer does it: sums over all tokens of both processes, times two because DDP averages.
    loss = 2 * model(**share, num_items_in_batch=items).loss
    loss.backward()
    torch.save({name: weight.grad for name, weight in model.module.named_parameters()}, f"{folder}/{rank}.pt")


@pytest.mark.slow
def test_two_processes(tmp_path):
    """Gradients of two halves of a batch, averaged by DDP, are those of the batch."""
    spawn(_gradient_of_share, str(tmp_path))
    case = CASES["gpt2"]
    model = case.model().train()
    model(**case.batch()).loss.backward()
    first, second = (torch.load(tmp_path / f"{rank}.pt") for rank in range(2))
    for name, weight in model.named_parameters():
        assert torch.equal(first[name], second[name])
        torch.testing.assert_close(first[name], weight.grad, rtol=1e-4, atol=1e-6)
