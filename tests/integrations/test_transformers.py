"""Swapped heads of Hugging Face models: one table of architectures, each trained, saved and loaded."""

import copy

import pytest
import torch
from torch.nn import functional as F

from fourier_head import FourierHead, Interval

transformers = pytest.importorskip("transformers")

from fourier_head.integrations.transformers import AutoModelWithHead, find_head, replace_head  # noqa: E402
from tests.swapped_models import (  # noqa: E402
    BINS,
    CASES,
    LLAMA,
    VOCABULARY,
    WRITERS,
    cross_entropy,
    logits,
    same,
    with_adapter,
)
from tests.two_processes import spawn  # noqa: E402


@pytest.fixture(params=CASES)
def case(request):
    return CASES[request.param]


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

    adapted, batch = with_adapter(swapped(), case), case.batch()
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


def test_initial_scale_survives(case):
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
