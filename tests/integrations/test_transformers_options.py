"""Swapped heads of Hugging Face models: architectures with ways of their own, options of the swap, and errors."""

import copy
import pickle
import sys

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from fourier_head import Bins, Circle, HLGaussHead, Interval, LinearHead, MixtureHead, RegressionHead

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
    cross_entropy,
    logits,
    same,
)

# --- further models


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
    batch, config = case.batch(), case.config(**case.settings)
    batch["labels"][0] = BINS
    for call, words in (
        (lambda: replace_head(transformers.BertModel(config), BINS, 5), "BertModel has no recognisable head"),
        (lambda: replace_head(torch.nn.Linear(2, 2), 5), "must be a transformers PreTrainedModel"),
        (lambda: replace_head(transformers.BertForQuestionAnswering(config), BINS, 5), "forward takes no labels"),
        (lambda: case.model(name="nowhere"), "has no module 'nowhere' to replace"),
        (lambda: case.model(name="bert.encoder"), "must be a linear layer, but"),
        (lambda: case.model(colour="red"), "colour"),
        (lambda: case.model(head=LinearHead), "num_frequencies is for a FourierHead"),
        (lambda: find_head(torch.nn.Linear(2, 2)), "no swapped head"),
        (lambda: case.model()(**batch), f"labels do not fit the head: .* from 0 to {BINS - 1} .* got {BINS}"),
        (lambda: case.model(name="bert.pooler.dense")(input_ids=batch["input_ids"]), r"bert\.pooler\.dense"),
    ):
        with pytest.raises(ValueError, match=words):
            call()
    with pytest.raises(TypeError, match="integer bin ids"):
        case.model()(**{**batch, "labels": torch.rand(4)})


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
