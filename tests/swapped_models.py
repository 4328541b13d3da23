"""Tiny random models of transformers with swapped heads, for the tests of the integration."""

import copy
import os

import pytest
import torch
from torch.nn import functional as F

transformers = pytest.importorskip("transformers")

from fourier_head.integrations.transformers import replace_head  # noqa: E402

BINS, VOCABULARY, WIDTH = 30, 40, 16
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
transformers.utils.logging.disable_progress_bar()
transformers.utils.logging.set_verbosity_error()

SMALL = {"hidden_size": WIDTH, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}
DROPLESS = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
LLAMA = {**SMALL, "vocab_size": VOCABULARY, "num_key_value_heads": 2, "pad_token_id": 0, "bos_token_id": 1}


class Case:
    """A tiny random model: its classes, configuration, layers for LoRA, where its head is and what it reads."""

    def __init__(self, kind, auto, config, targets, path, reads="tokens", **settings):
        self.kind, self.auto = getattr(transformers, kind), getattr(transformers, auto)
        self.config, self.settings = getattr(transformers, config), settings
        self.targets, self.path, self.reads = targets, path, reads

    def model(self, **options):
        torch.manual_seed(0)
        model = self.kind(self.config(**copy.deepcopy(self.settings)))
        return replace_head(model, **{"num_bins": BINS, "num_frequencies": 5, **options})

    @property
    def per_token(self):
        return "LM" in self.auto.__name__

    def batch(self, rows=4):
        draw = torch.Generator().manual_seed(1)
        labels = torch.randint(BINS, (rows, 7) if self.per_token else (rows,), generator=draw)
        if self.per_token:
            labels[0, 3] = -100
        if self.reads == "pixels":
            return {"pixel_values": torch.randn(rows, 3, 8, 8, generator=draw), "labels": labels}
        if self.reads == "sound":
            return {"input_values": torch.randn(rows, 16, 8, generator=draw), "labels": labels}
        tokens = torch.randint(2, VOCABULARY, (rows, 7), generator=draw)
        return {"input_ids": tokens, "attention_mask": torch.ones_like(tokens), "labels": labels}


CASES = {
    "llama": Case(
        "LlamaForCausalLM", "AutoModelForCausalLM", "LlamaConfig", ["q_proj"], "lm_head",
        **LLAMA, tie_word_embeddings=True,
    ),
    "qwen2": Case(
        "Qwen2ForCausalLM", "AutoModelForCausalLM", "Qwen2Config", ["q_proj"], "lm_head",
        **LLAMA, tie_word_embeddings=True,
    ),
    "gpt2": Case(
        "GPT2LMHeadModel", "AutoModelForCausalLM", "GPT2Config", ["c_attn"], "lm_head",
        n_embd=WIDTH, n_layer=2, n_head=2, vocab_size=VOCABULARY, n_positions=32, pad_token_id=0, bos_token_id=1,
        eos_token_id=1, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
    ),
    "t5": Case(
        "T5ForConditionalGeneration", "AutoModelForSeq2SeqLM", "T5Config", ["q"], "lm_head",
        d_model=WIDTH, d_kv=8, d_ff=24, num_layers=2, num_heads=2, vocab_size=VOCABULARY, dropout_rate=0.0,
        decoder_start_token_id=0, pad_token_id=0,
    ),
    "bert": Case(
        "BertForSequenceClassification", "AutoModelForSequenceClassification", "BertConfig", ["query"], "classifier",
        **SMALL, **DROPLESS, vocab_size=VOCABULARY,
    ),
    "vit": Case(
        "ViTForImageClassification", "AutoModelForImageClassification", "ViTConfig", ["query", "q_proj"], "classifier",
        "pixels", **SMALL, image_size=8, patch_size=4,
    ),
    "ast": Case(
        "ASTForAudioClassification", "AutoModelForAudioClassification", "ASTConfig", ["query", "q_proj"],
        "classifier.dense", "sound", **SMALL, max_length=16, num_mel_bins=8, patch_size=4, frequency_stride=4,
        time_stride=4,
    ),
}  # fmt: skip
WRITERS = ["llama", "qwen2", "gpt2", "t5"]


def same(a, b):
    """Compare what two models predict, in eval mode."""
    torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)


def logits(model, batch):
    with torch.no_grad():
        return model.eval()(**batch).logits


def with_adapter(base, case):
    """Return a model with a LoRA adapter whose weights are no longer those it began with."""
    peft = pytest.importorskip("peft")
    settings = peft.LoraConfig(r=2, target_modules=case.targets, modules_to_save=[case.path])
    adapted = peft.get_peft_model(base, settings)
    with torch.no_grad():
        for weight in adapted.parameters():
            if weight.requires_grad:
                weight += 0.1 * torch.randn_like(weight)
    return adapted


def cross_entropy(output, batch, causal, reduction="mean"):
    """The loss that transformers would compute from all logits."""
    labels = batch["labels"]
    scores = output.logits
    if causal:
        scores, labels = scores[:, :-1], labels[:, 1:]
    return F.cross_entropy(scores.flatten(0, -2).float(), labels.flatten(), reduction=reduction)
