"""Bring weights from the T5 of Hugging Face's transformers, such as a Chronos checkpoint, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from studies.chronos.t5.config import T5Config
from torch import Tensor


def config_from_transformers(config: Any, context: int = 512, horizon: int = 64) -> T5Config:
    """Return our shape of a ``transformers.T5Config``, or raise where ours has no such thing."""
    if config.dense_act_fn != "relu" or config.is_gated_act:
        raise ValueError(f"feed_forward_proj must be 'relu', got {config.feed_forward_proj!r}")
    if config.num_layers != config.num_decoder_layers:
        raise ValueError(
            f"encoder and decoder must have as many layers, got {config.num_layers} and {config.num_decoder_layers}"
        )
    return T5Config(
        context,
        horizon,
        config.vocab_size,
        config.d_model,
        config.d_ff,
        config.num_layers,
        config.num_heads,
        config.d_kv,
        config.relative_attention_num_buckets,
        config.relative_attention_max_distance,
        config.initializer_factor,
        epsilon=config.layer_norm_epsilon,
    )


def _names(config: T5Config) -> dict[str, list[str]]:
    """Return for each of our weights their names there; several are stacked along the first dimension."""
    names: dict[str, list[str]] = {
        "embedding.weight": ["shared.weight"],
        "encoder.norm.weight": ["encoder.final_layer_norm.weight"],
        "decoder.norm.weight": ["decoder.final_layer_norm.weight"],
        "decoder.context.weight": [],
    }
    for side in ("encoder", "decoder"):
        names[f"{side}.position.table"] = [f"{side}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"]
        last = 1 if side == "encoder" else 2
        for i in range(config.layers):
            ours, theirs = f"{side}.layers.{i}", f"{side}.block.{i}.layer"
            names[f"{ours}.attention.norm.weight"] = [f"{theirs}.0.layer_norm.weight"]
            names[f"{ours}.attention.qkv.weight"] = [f"{theirs}.0.SelfAttention.{x}.weight" for x in "qkv"]
            names[f"{ours}.attention.out.weight"] = [f"{theirs}.0.SelfAttention.o.weight"]
            names[f"{ours}.feed_forward.norm.weight"] = [f"{theirs}.{last}.layer_norm.weight"]
            names[f"{ours}.feed_forward.up.weight"] = [f"{theirs}.{last}.DenseReluDense.wi.weight"]
            names[f"{ours}.feed_forward.down.weight"] = [f"{theirs}.{last}.DenseReluDense.wo.weight"]
            if side == "decoder":
                names[f"{ours}.cross.norm.weight"] = [f"{theirs}.1.layer_norm.weight"]
                names[f"{ours}.cross.query.weight"] = [f"{theirs}.1.EncDecAttention.q.weight"]
                names[f"{ours}.cross.out.weight"] = [f"{theirs}.1.EncDecAttention.o.weight"]
                names["decoder.context.weight"] += [f"{theirs}.1.EncDecAttention.{x}.weight" for x in "kv"]
    return names


def from_transformers(state: Mapping[str, Tensor], config: T5Config) -> dict[str, Tensor]:
    """Return a state of ``T5Forecaster`` from one of ``T5ForConditionalGeneration``; ``lm_head`` is a linear head's."""
    out = {ours: torch.cat([state[name] for name in theirs]) for ours, theirs in _names(config).items()}
    if "lm_head.weight" in state:
        out["head.proj.weight"] = state["lm_head.weight"]
    return out


def to_transformers(state: Mapping[str, Tensor], config: T5Config) -> dict[str, Tensor]:
    """Return a state of ``T5ForConditionalGeneration`` from ours; a head without a linear weight has no place there."""
    out: dict[str, Tensor] = {}
    for ours, theirs in _names(config).items():
        for name, part in zip(theirs, state[ours].chunk(len(theirs)), strict=True):
            out[name] = part.contiguous()
    for side in ("encoder", "decoder"):
        out[f"{side}.embed_tokens.weight"] = out["shared.weight"]
    if state.get("head.proj.weight", torch.empty(0)).shape == (config.vocabulary, config.width):
        out["lm_head.weight"] = state["head.proj.weight"]
    return out
