"""Swap the head of a Hugging Face model: causal language models, encoder-decoders and classifiers of anything.

While a swapped model runs its own ``forward``, the head hands its features on unchanged, so the model's own code
selects and pools them (last token, class token, ``logits_to_keep``). What it returns as ``logits`` are then the
features that the head reads, and the loss comes from them in O(N) per token.

The configuration of a swapped model carries its head, and ``AutoModelWithHead`` loads such a model. Nothing of
transformers is changed: importing this module leaves its classes as they are.
"""

from __future__ import annotations

import inspect
from typing import Any

from torch import nn

from fourier_head._arrays import plain
from fourier_head.errors import needing
from fourier_head.heads import FourierHead, Head, as_domain

with needing("transformers"):
    from transformers import PreTrainedModel

from fourier_head.integrations.transformers.head import HEADS, build, domain_to_dict, forget_tokens, own_configuration
from fourier_head.integrations.transformers.loading import AutoModelWithHead
from fourier_head.integrations.transformers.model import ModelWithHead, install, module_at, writes_tokens

__all__ = ["AutoModelWithHead", "find_head", "replace_head"]


def replace_head(
    model: Any,
    num_bins: int | None = None,
    num_frequencies: int | None = None,
    *,
    head: type[Head] = FourierHead,
    name: str | None = None,
    resize_embeddings: bool = False,
    training_logits: bool = False,
    **options: Any,
) -> Any:
    """Replace the linear head of a transformers model, in place, and return the model.

    Its configuration, which carries the head from now on, becomes its own: other models made from the same one stay as
    they are.

    The model's loss becomes that of the head: labels are bin ids (atoms first), -100 does not count, causal language
    models shift them by one, and ``num_items_in_batch`` divides the sum as ``Trainer`` wants it. Logits are normalised
    log-probabilities. Embeddings that were tied to the old head are its own from now on.

    Args:
        model: a ``PreTrainedModel`` that ends in a linear layer.
        num_bins: number of ordered bins; left out, as many classes as the old head has, or those of ``domain=Bins``.
        num_frequencies: the highest harmonic N of a Fourier head, 16 unless given.
        head: FourierHead, or LinearHead, HLGaussHead, MixtureHead, RegressionHead to compare with.
        name: where the head is, such as "classifier.dense"; found by itself unless given.
        resize_embeddings: resize the input embeddings to one per class, so that ``generate`` can read what it writes.
            Special tokens (padding, end, ...) whose ids lie beyond the classes are no longer set, and told.
        training_logits: whether outputs carry logits in training mode when labels are given. They are not needed for
            the loss, and left out (None) they cost nothing.
        options: further options of the head, such as ``floor``, ``boundary``, ``packets``, ``num_atoms``, ``gamma``,
            ``domain`` or ``impl``.

    Example:
        >>> import torch
        >>> from transformers import BertConfig, BertForSequenceClassification
        >>> config = BertConfig(hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16)
        >>> model = replace_head(BertForSequenceClassification(config), num_bins=50, num_frequencies=8)
        >>> output = model.eval()(torch.arange(8)[None], labels=torch.tensor([20]))
        >>> output.logits.shape, torch.allclose(output.loss, -output.logits[0, 20])
        (torch.Size([1, 50]), True)
    """
    if not isinstance(model, PreTrainedModel):
        raise ValueError(
            f"model must be a transformers PreTrainedModel (adapters come after), got {type(model).__name__}"
        )
    if head not in HEADS.values():
        raise ValueError(f"head must be one of {', '.join(HEADS)}, got {head!r}")
    if "labels" not in inspect.signature(model.forward).parameters:
        raise ValueError(f"{type(model).__name__} has no recognisable head: its forward takes no labels")
    path = name or _find_head(model)
    old = module_at(model, path)
    if num_bins is None and as_domain(options.get("domain")).bins is None:
        num_bins = old.out_features - options.get("num_atoms", 0)
    if head is FourierHead:
        options["num_frequencies"] = 16 if num_frequencies is None else num_frequencies
    elif num_frequencies is not None:
        raise ValueError(f"num_frequencies is for a FourierHead, got {num_frequencies} with {head.__name__}")
    options = _written_out(head, old.in_features, num_bins, options)
    # Built once before anything changes: options that do not fit leave the model as it was.
    classes = build(head.__name__, options, "meta", None).out_features
    own_configuration(model)
    model.config.architectures = [type(model).__name__]
    if resize_embeddings:
        model.resize_token_embeddings(classes, mean_resizing=False)
        forget_tokens(model, classes)
    if not writes_tokens(model):
        model.config.num_labels = classes
        model.num_labels = classes  # type: ignore[assignment]
        model.config.problem_type = "single_label_classification"
    told = {"module": path, "head": head.__name__, "training_logits": training_logits, "options": options}
    model.config.fourier_head = told
    install(model)
    return model


def _written_out(head: type[Head], width: int, num_bins: int | None, options: dict[str, Any]) -> dict[str, Any]:
    """Return the options of a head with all of its defaults, as a configuration holds them."""
    try:
        bound = inspect.signature(head).bind(width, num_bins, **options)
    except TypeError as error:
        raise ValueError(f"{head.__name__} does not take these options: {error}") from None
    bound.apply_defaults()
    found = {key: plain(value) for key, value in bound.arguments.items() if key not in ("device", "dtype")}
    return found | {"domain": domain_to_dict(found["domain"])}


def find_head(model: nn.Module) -> Head:
    """Return the head of a swapped model: of the active adapter if there is one, and from inside wrappers such as DDP.

    Its ``density`` takes the features that reach it; ``model.density(**inputs)`` runs the model first.
    """
    for module in model.modules():
        if isinstance(module, ModelWithHead):
            return module._head()
    raise ValueError(f"{type(model).__name__} has no swapped head: call replace_head(model, ...) first")


def _find_head(model: Any) -> str:
    """Return the path of the head: one swapped before, the output embeddings, or the last layer onto the labels."""
    if isinstance(model, ModelWithHead):
        return model._head_path
    output = model.get_output_embeddings()
    labels = getattr(model.config, "num_labels", None)
    # A model without a body of that name has parts of its own beside its head.
    body = f"{model.base_model_prefix}." if model.base_model is not model else None
    last = None
    for path, module in model.named_modules():
        if output is not None and module is output:
            return path
        outside = "." not in path if body is None else not path.startswith(body)
        if isinstance(module, nn.Linear) and module.out_features == labels and outside:
            last = path
    if last is None:
        raise ValueError(
            f"{type(model).__name__} has no recognisable head: expected output embeddings or a linear layer onto "
            f"config.num_labels={labels} classes; use a class that has one (...ForCausalLM, ...ForImageClassification) "
            "or say where it is with name='...'"
        )
    return last
