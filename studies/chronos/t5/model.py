"""The network: T5's encoder and decoder over tokens of time series, ending in any of our heads."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from fourier_head.heads import Head
from fourier_head.heads.baselines import LinearHead
from studies.chronos.t5.attention import HIDDEN, PositionBias, attend
from studies.chronos.t5.config import T5Config
from studies.chronos.tokenizer import NUM_SPECIAL, PAD

Pair = tuple[Tensor, Tensor]
"""Keys and values (B, heads, T, D)."""


class Norm(nn.RMSNorm):
    """Divide by the root of the mean square; written out where a compiler can fuse it with its neighbours."""

    def forward(self, x: Tensor) -> Tensor:
        if not torch.compiler.is_compiling():
            return super().forward(x)
        wide = x.float()
        return wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + (self.eps or 0.0)) * self.weight


class FeedForward(nn.Module):
    """Two layers with a ReLU between, normalised before."""

    def __init__(self, config: T5Config):
        super().__init__()
        self.norm = Norm(config.width, config.epsilon)
        self.up = nn.Linear(config.width, config.inner, bias=False)
        self.down = nn.Linear(config.inner, config.width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(functional.relu(self.up(self.norm(x))))


class SelfAttention(nn.Module):
    """Attention of a sequence to itself; queries, keys and values are one product."""

    def __init__(self, config: T5Config):
        super().__init__()
        self.heads = config.heads
        self.norm = Norm(config.width, config.epsilon)
        self.qkv = nn.Linear(config.width, 3 * config.attention_width, bias=False)
        self.out = nn.Linear(config.attention_width, config.width, bias=False)

    def project(self, x: Tensor) -> tuple[Tensor, ...]:
        """Return queries, keys and values (B, heads, T, D)."""
        return self.qkv(self.norm(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4).unbind()

    def add(self, x: Tensor, found: Tensor) -> Tensor:
        """Return x with what attention found (B, heads, T, D)."""
        return x + self.out(found.transpose(1, 2).flatten(2))

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        query, key, value = self.project(x)
        return self.add(x, attend(query, key, value, mask))


class CrossAttention(nn.Module):
    """Attention to the encoder, whose keys and values come from outside: the decoder makes those of all its layers."""

    def __init__(self, config: T5Config):
        super().__init__()
        self.heads = config.heads
        self.norm = Norm(config.width, config.epsilon)
        self.query = nn.Linear(config.width, config.attention_width, bias=False)
        self.out = nn.Linear(config.attention_width, config.width, bias=False)

    def forward(self, x: Tensor, context: Pair, hide: Tensor) -> Tensor:
        found = attend(self.query(self.norm(x)).unflatten(-1, (self.heads, -1)).transpose(1, 2), *context, hide)
        return x + self.out(found.transpose(1, 2).flatten(2))


class EncoderLayer(nn.Module):
    """Attention to itself, then a feed-forward layer."""

    def __init__(self, config: T5Config):
        super().__init__()
        self.attention, self.feed_forward = SelfAttention(config), FeedForward(config)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        return self.feed_forward(self.attention(x, mask))


class DecoderLayer(nn.Module):
    """Attention to itself, to the encoder, then a feed-forward layer."""

    def __init__(self, config: T5Config):
        super().__init__()
        self.attention, self.cross = SelfAttention(config), CrossAttention(config)
        self.feed_forward = FeedForward(config)

    def forward(self, x: Tensor, context: Pair, bias: Tensor, hide: Tensor) -> Tensor:
        return self.feed_forward(self.cross(self.attention(x, bias), context, hide))

    def step(self, x: Tensor, context: Pair, bias: Tensor, hide: Tensor, own: Pair, place: int) -> Tensor:
        """Return x (series, paths, width) after one token of every path; its keys and values go into ``own``.

        All paths of a series look at the same context, so they are queries of one attention: its keys are read once.
        """
        series, paths, _ = x.shape
        query, key, value = self.attention.project(x.view(series * paths, 1, -1))
        own[0][:, :, place], own[1][:, :, place] = key[:, :, 0], value[:, :, 0]
        found = attend(query, own[0][:, :, : place + 1], own[1][:, :, : place + 1], bias)
        x = self.attention.add(x, found.reshape(series, paths, *found.shape[1::2]).transpose(1, 2))
        return self.feed_forward(self.cross(x, context, hide))


class Encoder(nn.Module):
    """Turn embedded tokens (B, T, width) into states of the same shape."""

    def __init__(self, config: T5Config):
        super().__init__()
        self.position = PositionBias(config.heads, config.buckets, config.max_distance, two_sided=True)
        self.layers = nn.ModuleList(EncoderLayer(config) for _ in range(config.layers))
        self.norm = Norm(config.width, config.epsilon)

    def forward(self, x: Tensor, hide: Tensor) -> Tensor:
        mask = self.position(x.shape[1]) + hide
        for layer in self.layers:
            x = layer(x, mask)
        return narrow(self.norm(x))


@dataclass
class Memory:
    """What decoding keeps: keys and values of the context by layer, and of the tokens decoded so far.

    Args:
        cross: of the context, (series, heads, T, D).
        hide: what hides its missing values, (series, 1, 1, T).
        own: room for one pair (series x paths, heads, steps, D) for each layer.
    """

    cross: list[Pair]
    hide: Tensor
    own: list[Pair]


class Decoder(nn.Module):
    """Turn embedded tokens (B, L, width) and the states of the encoder into states that a head reads."""

    def __init__(self, config: T5Config):
        super().__init__()
        self.config = config
        self.position = PositionBias(config.heads, config.buckets, config.max_distance, two_sided=False)
        self.layers = nn.ModuleList(DecoderLayer(config) for _ in range(config.layers))
        # Keys and values of all layers in one product: the states are read once.
        self.context = nn.Linear(config.width, 2 * config.layers * config.attention_width, bias=False)
        self.norm = Norm(config.width, config.epsilon)

    def contexts(self, states: Tensor) -> list[Pair]:
        """Return keys and values of the encoder's states for each layer."""
        config = self.config
        packed = self.context(states).unflatten(-1, (config.layers, 2, config.heads, config.head_width))
        keys, values = packed.permute(3, 2, 0, 4, 1, 5).unbind()
        return list(zip(keys.unbind(), values.unbind(), strict=True))

    def forward(self, x: Tensor, states: Tensor, hide: Tensor) -> Tensor:
        bias = self.position(x.shape[1])
        for layer, context in zip(self.layers, self.contexts(states), strict=True):
            x = layer(x, context, bias, hide)
        return self.norm(x)

    def remember(self, states: Tensor, hide: Tensor, paths: int, steps: int) -> Memory:
        """Return the memory for decoding ``paths`` sequences of each series, ``steps`` tokens long."""
        config = self.config
        cross = self.contexts(states)
        shape = (len(states) * paths, config.heads, steps, config.head_width)
        own = [(key.new_empty(shape), value.new_empty(shape)) for key, value in cross]
        return Memory(cross, hide, own)

    def step(self, x: Tensor, memory: Memory, place: int) -> Tensor:
        """Return the states (series, paths, width) of the tokens x, same shape, at one place of all sequences."""
        bias = self.position.at(place)
        for layer, context, own in zip(self.layers, memory.cross, memory.own, strict=True):
            x = cast(DecoderLayer, layer).step(x, context, bias, memory.hide, own, place)
        return self.norm(x)


class T5Forecaster(nn.Module):
    """Predict the next token of series from those before it.

    Args:
        config: the shape.
        head: reads the decoder's states and predicts ids; see ``build_head``.
        tied: whether a linear head shares its weight with the embedding, scaled as in T5.

    Example:
        >>> from fourier_head import FourierHead
        >>> config = T5Config.named("test", vocabulary=34, context=8, horizon=4)
        >>> model = T5Forecaster(config, FourierHead(config.width, 32, 4, num_atoms=2))
        >>> ids = torch.randint(2, 34, (3, 8))
        >>> states = model(ids, torch.ones_like(ids, dtype=torch.bool), torch.randint(2, 34, (3, 5)))
        >>> model.head(states).shape
        torch.Size([3, 5, 34])
    """

    def __init__(self, config: T5Config, head: Head, tied: bool = False):
        super().__init__()
        if head.out_features != config.vocabulary or head.in_features != config.width:
            raise ValueError(
                f"head must turn {config.width} features into {config.vocabulary} ids, "
                f"got {head.in_features} and {head.out_features}"
            )
        self.config, self.head = config, head
        self.embedding = nn.Embedding(config.vocabulary, config.width)
        self.encoder, self.decoder = Encoder(config), Decoder(config)
        self.scale = 1.0
        self.reset_parameters()
        if tied:
            if not isinstance(head, LinearHead) or head.proj.bias is not None:
                raise ValueError("tied needs a LinearHead without bias")
            head.proj.weight = self.embedding.weight
            self.scale = config.width**-0.5

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Draw weights as T5 does, times ``config.init``; a head other than a linear one keeps its own start."""
        config = self.config
        wide, narrow, inner = (n**-0.5 for n in (config.width, config.attention_width, config.inner))
        deviation = {
            "embedding.weight": 1.0,
            "position.table": wide,
            "query.weight": wide * config.head_width**-0.5,
            "context.weight": wide,
            "out.weight": narrow,
            "up.weight": wide,
            "down.weight": inner,
        }
        for name, parameter in self.named_parameters():
            for ending, std in deviation.items():
                if name.endswith(ending):
                    nn.init.normal_(parameter, std=std * config.init)
            if name.endswith("qkv.weight"):
                nn.init.normal_(parameter, std=wide * config.init)
                parameter[: config.attention_width] *= config.head_width**-0.5
        if config.near:
            for stack in (self.encoder, self.decoder):
                stack.position.start_near()
        if config.smooth:
            values = self.embedding.weight[NUM_SPECIAL:]
            values.copy_(config.init * waves(*values.shape).to(values))
        if isinstance(self.head, LinearHead):
            nn.init.normal_(self.head.proj.weight, std=config.init)
            if self.head.proj.bias is not None:
                nn.init.zeros_(self.head.proj.bias)

    def encode(self, ids: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Return the states (B, T, width) of contexts, and what hides their missing values, (B, 1, 1, T)."""
        hide = torch.where(mask, 0.0, HIDDEN)[:, None, None]
        return self.encoder(self.embedding(ids), hide), hide

    def decode(self, inputs: Tensor, states: Tensor, hide: Tensor) -> Tensor:
        """Return what the head reads, (B, L, width), for the ids that come before each place."""
        return self.decoder(self.embedding(inputs), states, hide) * self.scale

    def forward(self, ids: Tensor, mask: Tensor, labels: Tensor) -> Tensor:
        """Return what the head reads to predict labels (B, L), each from the context and the labels before it."""
        states, hide = self.encode(ids, mask)
        return self.decode(shift(labels), states, hide)

    def next_state(self, tokens: Tensor, memory: Memory, place: int) -> Tensor:
        """Return what the head reads after one more token (series, paths) of every sequence."""
        return self.decoder.step(self.embedding(tokens), memory, place) * self.scale


def narrow(x: Tensor) -> Tensor:
    """Return x as products read it under autocast: less to carry from one compiled part to the next."""
    place = x.device.type
    return x.to(torch.get_autocast_dtype(place)) if torch.is_autocast_enabled(place) else x


def waves(bins: int, width: int) -> Tensor:
    """Return features (bins, width) of deviation 1: cosines, from half a wave over all bins to a quarter of one a bin.

    >>> features = waves(500, 64)
    >>> bool((features[1:] - features[:-1]).square().mean() < (features[250:] - features[:250]).square().mean())
    True
    """
    place = torch.arange(bins, dtype=torch.float64)[:, None] / bins
    count = 0.5 * (bins / 2) ** torch.rand(width, dtype=torch.float64)
    return (2**0.5 * torch.cos(2 * math.pi * (count * place + torch.rand(width, dtype=torch.float64)))).float()


def shift(labels: Tensor) -> Tensor:
    """Return the decoder's inputs: PAD to start, then the labels but the last; missing ones are PAD.

    >>> shift(torch.tensor([[5, -100, 7]]))
    tensor([[0, 5, 0]])
    """
    return functional.pad(labels[:, :-1], (1, 0), value=PAD).clamp_min(PAD)
