"""The arms of the study: a language model as it is, fine-tuned on text, and fine-tuned with a Fourier head."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from fourier_head._devices import seeded
from fourier_head.integrations import fine_tuning
from fourier_head.integrations.language_models import lora_settings, tiny_model
from fourier_head.integrations.numbers import NumberLM
from studies.numbers.data import HIGH, LOW, NUM_BINS, hundredths, parse_answer, training_pairs

NEW_TOKENS = 10
"""Of a text answer: a sign, a point, the digits and what ends them."""

ROWS_AT_ONCE = 768


@dataclass(frozen=True)
class Recipe:
    """How all arms are trained and asked; the paper's unless set otherwise."""

    epochs: int = 16
    lr: float = 3e-4
    batch_size: int = 64
    rank: int = 8
    layers: str | None = None
    answers: int = 128
    top_p: float = 1.0
    head_lr: float | None = None

    @property
    def training(self) -> dict[str, Any]:
        """What the training loop is told."""
        return {"epochs": self.epochs, "lr": self.lr, "batch_size": self.batch_size}

    @property
    def adapter(self) -> Any:
        """The LoRA configuration; without names of layers, PEFT knows those of the architecture."""
        # A blank left at a name would leave its layer out, as PEFT is content with the others.
        names = None if self.layers is None else [name.strip() for name in self.layers.split(",")]
        return lora_settings(self.rank, target_modules=names)


@dataclass
class LanguageModel:
    """A causal language model and its tokenizer, loaded once for all runs; every run leaves it as it was."""

    model: Any
    tokenizer: Any

    @property
    def device(self) -> torch.device:
        """Where it is."""
        return self.model.get_input_embeddings().weight.device


def tiny_language(device: str) -> LanguageModel:
    """Return a random model that was taught in seconds how answers look, but not which numbers are likely."""
    model, tokenizer = tiny_model()
    language = LanguageModel(model.to(device), tokenizer)
    generator = torch.Generator().manual_seed(0)
    prompts, _ = training_pairs(512, 2, seed=-1)
    answers = torch.randint(-100, 101, (len(prompts),), generator=generator).tolist()
    train_text(model, language, prompts, answers, 0, Recipe(epochs=6, lr=3e-3, batch_size=32))
    return language


def ask_text(
    language: LanguageModel,
    prompts: Sequence[str],
    answers: Sequence[int],
    tests: Sequence[str],
    seed: int,
    recipe: Recipe,
) -> tuple[list[list[float | None]], list[float]]:
    """Fine-tune on answers written as text, with the model's own head; return answers and the loss of each epoch."""
    from peft import get_peft_model

    with seeded(seed, language.device):
        adapted: Any = get_peft_model(language.model, recipe.adapter)
    try:
        losses = train_text(adapted, language, prompts, answers, seed, recipe)
        return text_answers(adapted, language, tests, seed, recipe), losses
    finally:
        adapted.unload()


def train_text(
    model: Any, language: LanguageModel, prompts: Sequence[str], answers: Sequence[int], seed: int, recipe: Recipe
) -> list[float]:
    """Train on answers in hundredths, written with two decimals and the token that ends a text."""
    asked = language.tokenizer(list(prompts))["input_ids"]
    end = [] if language.tokenizer.eos_token_id is None else [language.tokenizer.eos_token_id]
    written = language.tokenizer([hundredths(x) for x in answers], add_special_tokens=False)["input_ids"]
    pairs = [(prompt, [*answer, *end]) for prompt, answer in zip(asked, written, strict=True)]
    keeps = "logits_to_keep" in inspect.signature(language.model.forward).parameters

    def batch_of(rows: Sequence[int]) -> dict[str, Tensor]:
        return text_batch([pairs[i] for i in rows], language.tokenizer.pad_token_id or 0, keeps)

    return fine_tuning.fine_tune(model, batch_of, len(pairs), seed=seed, loss=text_loss, **recipe.training)


def text_loss(model: Any, input_ids: Tensor, attention_mask: Tensor, labels: Tensor) -> Tensor:
    """Return the loss of a causal model on the tokens of the answers; labels may be those of the last positions only.

    Only their logits are computed then.
    """
    more: dict[str, Any] = {"position_ids": (attention_mask.cumsum(-1) - 1).clamp_min(0), "use_cache": False}
    if labels.shape[-1] < input_ids.shape[-1]:
        more["logits_to_keep"] = labels.shape[-1]
    return model(input_ids=input_ids, attention_mask=attention_mask, labels=labels, **more).loss


def text_batch(pairs: Sequence[tuple[list[int], list[int]]], filler: int, cut: bool) -> dict[str, Tensor]:
    """Return prompts followed by answers, padded on the left; labels are the tokens of the answers.

    With ``cut``, labels cover only the last positions, from the one before the longest answer on: their logits are all
    that the loss needs, and a vocabulary is large.
    """
    rows = [[*prompt, *answer] for prompt, answer in pairs]
    labels = padded([[-100] * len(prompt) + answer for prompt, answer in pairs], -100)
    kept = 1 + max(len(answer) for _, answer in pairs) if cut else labels.shape[1]
    mask = padded([[1] * len(row) for row in rows], 0)
    return {"input_ids": padded(rows, filler), "attention_mask": mask, "labels": labels[:, -kept:]}


def padded(rows: Sequence[Sequence[int]], filler: int) -> Tensor:
    """Return rows as one tensor, filled up on the left.

    >>> padded([[1, 2], [3]], 0)
    tensor([[1, 2],
            [0, 3]])
    """
    return pad_sequence([torch.tensor(row) for row in rows], True, filler, padding_side="left")


@torch.no_grad()
def text_answers(
    model: Any, language: LanguageModel, prompts: Sequence[str], seed: int, recipe: Recipe
) -> list[list[float | None]]:
    """Sample continuations of every prompt and read the number each begins with; None where there is none."""
    ids = language.tokenizer(list(prompts))["input_ids"]
    filler = language.tokenizer.pad_token_id or 0
    model.eval()
    out: list[list[float | None]] = []
    at_once = max(1, ROWS_AT_ONCE // recipe.answers)
    with seeded(seed, language.device):
        for i in range(0, len(ids), at_once):
            part = ids[i : i + at_once]
            asked = padded(part, filler).to(language.device)
            # Every setting is named: the defaults of an instruct model would cut the tails.
            made = model.generate(
                input_ids=asked,
                attention_mask=padded([[1] * len(row) for row in part], 0).to(language.device),
                do_sample=True,
                temperature=1.0,
                top_p=recipe.top_p,
                top_k=0,
                repetition_penalty=1.0,
                num_return_sequences=recipe.answers,
                max_new_tokens=NEW_TOKENS,
                pad_token_id=filler,
            )
            texts = language.tokenizer.batch_decode(made[:, asked.shape[1] :], skip_special_tokens=True)
            numbers = [parse_answer(text) for text in texts]
            out += [numbers[j : j + recipe.answers] for j in range(0, len(numbers), recipe.answers)]
    return out


def ask_fourier(
    language: LanguageModel,
    prompts: Sequence[str],
    answers: Sequence[int],
    tests: Sequence[str],
    seed: int,
    recipe: Recipe,
    *,
    frequencies: int,
    head_first: int = 0,
    **options: Any,
) -> tuple[list[list[float | None]], list[float]]:
    """Fine-tune with a Fourier head in place of the model's own; return answers and the loss of each epoch.

    ``head_first`` are the epochs of the head alone before those with LoRA; ``options`` are those of the head, such as
    ``init_scale`` and ``gamma``.
    """
    half_bin = (HIGH - LOW) / NUM_BINS / 2
    with seeded(seed, language.device):
        given = (language.model, language.tokenizer, LOW, HIGH, NUM_BINS, frequencies)
        numbers = NumberLM(*given, boundary="periodic", **options)
    try:
        # A number of two decimals is the lower edge of its bin, as in the released code; 1.00 has none and joins 0.99.
        centres = [min(x / 100, HIGH - 2 * half_bin) + half_bin for x in answers]
        with seeded(seed, language.device):
            numbers.add_lora(recipe.adapter)
        training = recipe.training | {"head_lr": recipe.head_lr, "head_first": head_first}
        losses = numbers.fine_tune(prompts, centres, seed=seed, **training)
        generator = torch.Generator(language.device).manual_seed(seed)
        drawn = numbers.sample(tests, recipe.answers, generator, on_bins=True, top_p=recipe.top_p)
        found = (drawn.double() - half_bin).cpu().mul(100).round() / 100
        return found.tolist(), losses
    finally:
        numbers.remove_lora()
