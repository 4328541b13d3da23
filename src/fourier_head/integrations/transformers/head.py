"""A head inside a model, and what becomes of the model's configuration, which describes it."""

from __future__ import annotations

import contextlib
import copy
import functools
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from transformers import PretrainedConfig

from fourier_head.bins import Bins
from fourier_head.domains import BinnedInterval, Circle, Domain, Interval, Line
from fourier_head.domains.adaptive import Adaptive
from fourier_head.heads import DomainLike, FourierHead, Head, as_domain
from fourier_head.heads.baselines import HLGaussHead, LinearHead, MixtureHead, RegressionHead

HEADS: dict[str, type[Head]] = {
    kind.__name__: kind for kind in (FourierHead, LinearHead, HLGaussHead, MixtureHead, RegressionHead)
}
DOMAINS: dict[str, Any] = {kind.__name__: kind for kind in (Interval, Circle, Line)}


class _State(threading.local):
    """Whether heads hand on features: no attribute of theirs, since adapters keep copies and threads share models."""

    features_only = False


_state = _State()


@contextlib.contextmanager
def passing_features() -> Iterator[None]:
    """Let heads hand on what they are given."""
    before, _state.features_only = _state.features_only, True
    try:
        yield
    finally:
        _state.features_only = before


class HeadInModel(Head):
    """A head that passes features on while its model runs, and otherwise computes logits or, given targets, the loss.

    Both happen in ``forward``, the one entrance that adapters, FSDP and offloading know how to guard.
    """

    def forward(self, x: Tensor, target: Tensor | None = None, reduction: Any = "mean") -> Tensor:
        if _state.features_only:
            return x
        if target is None:
            return super().forward(x)
        if self.proj.weight.is_meta and not x.is_meta:
            # Offloaded: only a call of the projection brings its weight here, so the loss comes from all bins.
            return Head.loss(self, x, target, reduction=reduction)
        return self.loss(x, target, reduction=reduction)

    @property
    def weight(self) -> Tensor:
        """The weight of the projection: models ask their head for its dtype and device."""
        return self.proj.weight

    @property
    def bias(self) -> Tensor | None:
        return self.proj.bias

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        state_dict.pop(f"{prefix}weight", None)  # the empty one that `save_pretrained` writes for other classes
        super()._load_from_state_dict(state_dict, prefix, *args)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return restore, (_in_model, type(self).__name__), self.__dict__


@functools.cache
def _in_model(kind: str) -> Any:
    base = HEADS[kind]
    return type(base.__name__, (HeadInModel, base), {"__module__": base.__module__, "__doc__": base.__doc__})


def build(kind: str, options: dict[str, Any], device: Any, dtype: torch.dtype | None) -> Head:
    """Make a head for a model from what its configuration says."""
    if kind not in HEADS:
        raise ValueError(f"head must be one of {', '.join(HEADS)}, got {kind!r}")
    options = {**options, "domain": domain_from_dict(options.get("domain"))}
    return _in_model(kind)(device=device, dtype=dtype, **options)


def domain_to_dict(domain: DomainLike | None) -> dict[str, Any] | None:
    """Return a dictionary fit for a JSON configuration."""
    if domain is None:
        return None
    match as_domain(domain):
        case BinnedInterval(bins=bins):
            return {"type": "Bins", **bins.to_dict()}
        case Adaptive(bins=bins) as adaptive:
            state = {"tails": adaptive.tails, "anchored": adaptive.anchored, "map": adaptive.state().tolist()}
            return {"type": "Adaptive", **state, "bins": None if bins is None else bins.to_dict()}
        case other if (kind := type(other).__name__) in DOMAINS:
            return {"type": kind, **{key: float(getattr(other, key)) for key in other.numbers}}
    raise ValueError(f"domain must be an Interval, Circle, Line, Adaptive or Bins, got {domain!r}")


def domain_from_dict(state: dict[str, Any] | None) -> Domain | Bins | None:
    """Return what ``domain_to_dict`` described."""
    if state is None:
        return None
    numbers = {key: value for key, value in state.items() if key != "type"}
    if state.get("type") == "Bins":
        return Bins.from_dict(numbers)
    if state.get("type") == "Adaptive":
        bins = None if numbers["bins"] is None else Bins.from_dict(numbers["bins"])
        adaptive = Adaptive(numbers["tails"], anchored=numbers["anchored"], bins=bins)
        return adaptive.with_state(torch.tensor(numbers["map"], dtype=torch.float64))
    if state.get("type") not in DOMAINS:
        raise ValueError(f"the configuration names an unknown domain, {state.get('type')!r}")
    return DOMAINS[state["type"]](**numbers)


def restore(factory: Callable[..., Any], *key: Any) -> Any:
    """Make an empty object of a class made by this module, for pickle and copy."""
    kind = factory(*key)
    return kind.__new__(kind)


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
