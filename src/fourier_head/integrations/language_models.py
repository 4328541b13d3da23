"""Language models by name, folder or GGUF file, the adapters they are fine-tuned with, and how they are sampled."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from fourier_head._devices import seeded
from fourier_head.errors import needing

if TYPE_CHECKING:
    from peft import LoraConfig, PeftModel

MAGIC = b"GGUF"


def is_gguf(name: str | Path) -> bool:
    """Tell whether a name means a GGUF file rather than a folder or a model on a hub.

    >>> is_gguf("SmolLM2-135M-Instruct.Q4_1.gguf"), is_gguf("HuggingFaceTB/SmolLM2-135M-Instruct")
    (True, False)
    """
    return str(name).lower().endswith(".gguf")


def load_gguf(path: str | Path, dtype: torch.dtype = torch.float32) -> tuple[Any, Any]:
    """Return the causal language model and the tokenizer that a GGUF file holds, weights dequantised to ``dtype``.

    Transformers marks what it reads from GGUF as quantised and refuses to save it. The weights are floats by then, so
    they move into a plain model of the same class, which has no such limits.
    """
    path = Path(path)
    try:
        with path.open("rb") as file:
            magic = file.read(len(MAGIC))
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}") from None
    if magic != MAGIC:
        raise ValueError(f"{path} is not a GGUF file: it begins with {magic!r}")
    with needing("transformers"):
        import gguf  # noqa: F401 - what transformers reads the file with
        from transformers import AutoModelForCausalLM, AutoTokenizer
    tokenizer = AutoTokenizer.from_pretrained(str(path.parent), gguf_file=path.name)
    read = AutoModelForCausalLM.from_pretrained(str(path.parent), gguf_file=path.name, dtype=dtype)
    settings = read.config.to_dict()
    settings.pop("quantization_config", None)
    model = type(read)(type(read.config).from_dict(settings))
    model.load_state_dict(read.state_dict(), assign=True)
    model.tie_weights()
    model.generation_config = read.generation_config
    model.requires_grad_(True)
    return model.eval(), tokenizer


def load_model(
    name: str,
    dtype: torch.dtype = torch.float32,
    options: Mapping[str, Any] | None = None,
    *,
    causal: bool = False,
    tokenizer: bool = True,
) -> tuple[Any, Any]:
    """Return a language model and its tokenizer.

    Args:
        name: of a model on a hub, a folder, or a GGUF file.
        dtype: of the weights.
        options: for the ``from_pretrained`` of transformers.
        causal: whether with the head that predicts tokens, or without.
        tokenizer: whether to load the tokenizer; None takes its place.
    """
    if is_gguf(name):
        model, words = load_gguf(name, dtype)
        return model if causal else model.base_model, words
    with needing("transformers"):
        from transformers import AutoModel, AutoModelForCausalLM, AutoTokenizer
    try:
        words = AutoTokenizer.from_pretrained(name) if tokenizer else None
        kind = AutoModelForCausalLM if causal else AutoModel
        return kind.from_pretrained(name, dtype=dtype, **(options or {})).eval(), words
    except (OSError, ValueError) as error:
        if _not_fetched(error):
            raise ValueError(
                f"{name} is not on this machine and could not be fetched: name a folder or .gguf file, or connect"
            ) from None
        first = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise ValueError(f"{name} is no language model by name, folder or .gguf file: {first}") from None


def _not_fetched(error: BaseException | None) -> bool:
    """Tell whether a model could not be loaded for want of a network; transformers says so in words only."""
    while error is not None:
        if isinstance(error, ConnectionError) or "couldn't connect" in str(error).lower():
            return True
        error = error.__cause__ or error.__context__
    return False


def lora_settings(rank: int = 8, alpha: int = 32, dropout: float = 0.05, **more: Any) -> LoraConfig:
    """Return the LoRA configuration of the paper's released code, which took the defaults of llama-recipes."""
    with needing("transformers"):
        from peft import LoraConfig
    return LoraConfig(r=rank, lora_alpha=alpha, lora_dropout=dropout, **more)


def with_adapter(model: Any, config: LoraConfig | None, trained: str) -> PeftModel:
    """Freeze a model, add a LoRA adapter to it, by default that of ``lora_settings``, and train one module whole."""
    config = lora_settings() if config is None else copy.deepcopy(config)  # the caller may have other models for it
    config.modules_to_save = sorted({*(config.modules_to_save or ()), trained})
    with needing("transformers"):
        from peft import get_peft_model
    try:
        return get_peft_model(model, config)
    except ValueError as error:
        if "target_modules" not in str(error):
            raise
        kind = getattr(model.config, "model_type", "this")
        raise ValueError(
            f"PEFT knows no default LoRA layers for {kind} models: pass lora=LoraConfig(target_modules=[...])"
        ) from None


def without_adapter(model: nn.Module, adapter: PeftModel) -> dict[str, Tensor]:
    """Return the weights of a model under their own names, leaving out what an adapter in it has added."""
    added = (str(adapter.base_model.prefix), "modules_to_save.")
    kept = {key: x for key, x in model.state_dict().items() if not any(part in key for part in added)}
    return {key.replace(".base_layer.", ".").replace(".original_module.", "."): x for key, x in kept.items()}


def hidden_size(config: Any) -> int:
    """Return the width of the last hidden state by the configuration of a model."""
    text = config.get_text_config()
    # The first is OPT's: one of its sizes projects the last hidden state down.
    names = ("word_embed_proj_dim", "hidden_size", "n_embd")
    return next(size for size in (getattr(text, name, None) for name in names) if size)


def last_hidden_state(model: Any, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
    """Return the hidden state of each row's last token, (batch, features).

    Padding may be on either side: positions count attended tokens, and the last of them is the one taken.
    """
    mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask
    options = {"position_ids": (mask.long().cumsum(-1) - 1).clamp_min(0), "use_cache": False}
    accepted = inspect.signature(model.forward).parameters
    options = {name: value for name, value in options.items() if name in accepted}
    states = model(input_ids=input_ids, attention_mask=mask, **options).last_hidden_state
    places = torch.arange(mask.shape[-1], device=mask.device)
    last = (places * (mask != 0)).argmax(-1).to(states.device)
    return states[torch.arange(len(states), device=states.device), last]


SENTENCE = "The following is a list of normally distributed random numbers in the interval with mean and std"


def tiny_model(seed: int = 0, width: int = 64, layers: int = 2, text: str = SENTENCE) -> tuple[Any, Any]:
    """Return a random Llama and a tokenizer that knows the words of ``text``, single digits and all bytes.

    Nothing is downloaded, and it answers in milliseconds: for trying things out.
    """
    with needing("transformers"):
        from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
        from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    core.decoder = decoders.ByteLevel()
    bytes_ = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(
        vocab_size=512, special_tokens=["<pad>", "<s>", "</s>"], initial_alphabet=bytes_, show_progress=False
    )
    core.train_from_iterator([text] * 2, trainer)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core, bos_token="<s>", eos_token="</s>", pad_token="<pad>", clean_up_tokenization_spaces=False
    )
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=width,
        intermediate_size=2 * width,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=512,
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=0,
    )
    with seeded(seed):
        return LlamaForCausalLM(config).eval(), tokenizer


def nucleus(probability: Tensor, top_p: float) -> Tensor:
    """Set to zero all but the most probable classes that together reach ``top_p``; the rest keeps its proportions.

    >>> nucleus(torch.tensor([0.1, 0.6, 0.3]), 0.8)
    tensor([0.0000, 0.6000, 0.3000])
    """
    if top_p >= 1:
        return probability
    ordered, place = probability.sort(-1, descending=True)
    before = ordered.cumsum(-1) - ordered
    return torch.zeros_like(probability).scatter(-1, place, ordered.masked_fill(before >= top_p, 0.0))
