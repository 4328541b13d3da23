"""What a model with a head does with its configuration."""

from __future__ import annotations

import copy
import warnings
from typing import Any

from transformers import PretrainedConfig

from fourier_head.integrations.transformers.head import build

TOKENS = [f"{name}_token_id" for name in ("pad", "bos", "eos", "decoder_start", "forced_bos", "forced_eos")]


def own_configuration(model: Any) -> None:
    """Give a model a copy of its configuration, which other models may have been made from.

    Parts of the model that share it, or one inside it such as that of its text, share the copy.
    """
    copies: dict[int, Any] = {}
    copy.deepcopy(model.config, copies)
    for part in model.modules():
        for name, value in list(vars(part).items()):
            if isinstance(value, PretrainedConfig) and id(value) in copies:
                setattr(part, name, copies[id(value)])


def follow_labels(config: Any) -> None:
    """Change the head that a configuration carries to as many classes as it has labels.

    They differ where someone asked for others while loading: ``from_pretrained(folder, num_labels=10)``. A head whose
    weights depend on the number of classes then meets the saved ones as any layer of transformers does: an error, or
    new weights with ``ignore_mismatched_sizes=True``.
    """
    spec, labels = config.fourier_head, config.num_labels
    options = spec["options"]
    classes = build(spec["head"], options, "meta", None).out_features
    if labels == classes:
        return
    bins = labels - options.get("num_atoms", 0)
    if (options["domain"] or {}).get("type") == "Bins":
        raise ValueError(
            f"num_labels is {labels}, but the saved head has {classes} classes, whose Bins cannot become others: "
            "load the model without num_labels and call replace_head(model, domain=...)"
        )
    if bins < 1:
        raise ValueError(f"num_labels is {labels}, which leaves no bin beside the {labels - bins} atoms of the head")
    config.fourier_head = {**spec, "options": {**options, "num_bins": bins}}


def forget_tokens(model: Any, count: int) -> None:
    """Unset the special tokens of a model that its first ``count`` tokens do not include.

    A model whose padding lies beyond its embeddings could be saved but not loaded, nor fill up what it generates.
    """
    config, lost = model.config, {}
    configs = (config, config.get_text_config(), config.get_text_config(decoder=True))
    for place in (*configs, getattr(model, "generation_config", None)):
        for name in TOKENS:
            ids = getattr(place, name, None)
            kept = _below(count, ids)
            if kept != ids:
                setattr(place, name, kept)
                lost[name] = ids
    if lost:
        told = ", ".join(f"{name}={ids}" for name, ids in lost.items())
        warnings.warn(
            f"the model has {count} tokens now, which leaves out {told}: where an atom takes the place of one, say so "
            "in model.config and model.generation_config",
            stacklevel=3,
        )


def _below(count: int, ids: int | list[int] | None) -> int | list[int] | None:
    """Return the ids of tokens below a count; some models have several for the end of a text."""
    if not ids:
        return ids
    if isinstance(ids, list):
        return [i for i in ids if i < count] or None
    return ids if ids < count else None
