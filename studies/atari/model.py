"""The Decision Transformer: returns to go, frames and actions in, a distribution of the next action out.

References:
    Mnih et al., Human-level control through deep reinforcement learning, Nature 2015: the convolutions.
    Chen et al., Decision Transformer: Reinforcement Learning via Sequence Modeling, NeurIPS 2021.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fourier_head.heads import FourierHead, Head, released_floor
from fourier_head.heads.baselines import LinearHead
from studies.atari.games import ACTIONS
from studies.atari.trajectories import IGNORED, stacks


@dataclass(frozen=True)
class ModelSettings:
    """Size of the model; the defaults are the paper's, about 2 million parameters with a game's usual timesteps."""

    layers: int = 6
    heads: int = 8
    width: int = 128
    context: int = 30
    dropout: float = 0.1
    timesteps: int = 2719
    return_mean: float = 0.0
    return_std: float = 1.0


PACKETS = 4


def action_head(kind: str, width: int, frequencies: int | None = None, gamma: float = 0.0) -> Head:
    """Return a head over the circular actions: linear, the paper's Fourier head, or one that has packets, too.

    The paper's is periodic, with the released floor and the printed regulariser.
    """
    if kind == "linear":
        return LinearHead(width, len(ACTIONS))
    if kind not in ("fourier", "fourier_packets") or frequencies is None:
        expected = "linear, or fourier or fourier_packets with frequencies"
        raise ValueError(f"kind must be {expected}, got {kind!r} and {frequencies}")
    return FourierHead(
        width,
        len(ACTIONS),
        frequencies,
        floor=released_floor(len(ACTIONS)),
        boundary="periodic",
        packets=PACKETS if kind == "fourier_packets" else 0,
        gamma=gamma,
        regularizer="paper",
        impl="reference",
    )


FEATURES = 64 * 7 * 7


class FrameEncoder(nn.Module):
    """Encode stacks of four 84x84 frames, uint8, into feature vectors.

    Three convolutions (32 of 8x8 by steps of 4, 64 of 4x4 by 2, 64 of 3x3) and a linear layer. The first one is
    computed as 2x2 convolutions of 64 channels, each channel one place of a 4x4 block: the same function of the same
    256 weights per filter, with enough channels for fast kernels.

    Args:
        out_features: size of the vectors.
        norm: whether each layer is followed by a layer norm, which value learning without a target network needs.

    Example:
        >>> FrameEncoder(128)(torch.zeros(2, 4, 84, 84, dtype=torch.uint8)).shape
        torch.Size([2, 128])
    """

    def __init__(self, out_features: int, norm: bool = False):
        super().__init__()
        layers: list[nn.Module] = []
        for conv in (nn.Conv2d(64, 32, 2), nn.Conv2d(32, 64, 4, 2), nn.Conv2d(64, 64, 3)):
            layers += [conv, nn.GroupNorm(1, conv.out_channels), nn.ReLU()] if norm else [conv, nn.ReLU()]
        self.convolutions = nn.Sequential(*layers)
        self.linear = nn.Linear(FEATURES, out_features)
        self.norm = nn.LayerNorm(out_features) if norm else nn.Identity()

    def forward(self, stacks: Tensor) -> Tensor:
        low = torch.get_autocast_dtype(stacks.device.type) if torch.is_autocast_enabled(stacks.device.type) else None
        x = nn.functional.pixel_unshuffle(stacks.to(low or self.linear.weight.dtype).div(255), 4)
        x = self.convolutions(x.contiguous(memory_format=torch.channels_last))
        return self.norm(self.linear(x.flatten(1)))


class Block(nn.Module):
    """A layer of GPT: causal attention and a perceptron, each behind a layer norm and beside a shortcut."""

    def __init__(self, settings: ModelSettings):
        super().__init__()
        width = settings.width
        self.heads, self.dropout = settings.heads, settings.dropout
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attend, self.merge = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.widen, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.attend(self.norm_1(x)).unflatten(-1, (3, self.heads, -1)).movedim(-3, 0).transpose(-2, -3)
        drop = self.dropout if self.training else 0.0
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=drop)
        x = x + F.dropout(self.merge(mixed.transpose(-2, -3).flatten(-2)), self.dropout, self.training)
        return x + F.dropout(self.narrow(F.gelu(self.widen(self.norm_2(x)))), self.dropout, self.training)


class DecisionTransformer(nn.Module):
    """GPT over (return to go, frames, action) of each step; ``forward`` is the loss of the actions.

    Tokens of a step carry the embedding of their place in the context, and all tokens that of the timestep at which
    the context begins. The action of a step is read from its frames' token, which sees the return to go and all
    steps before.

    Args:
        settings: sizes.
        head: any head over the actions.
        compile: whether to compile all but the head; one compiled graph serves models of one size in one process.
    """

    return_mean: Tensor
    return_std: Tensor

    def __init__(self, settings: ModelSettings, head: Head, compile: bool = False):
        super().__init__()
        width = settings.width
        if head.out_features != len(ACTIONS) or head.in_features != width:
            raise ValueError(
                f"head must map {width} features to {len(ACTIONS)} actions, "
                f"got {head.in_features} to {head.out_features}"
            )
        self.settings, self.compile_trunk = settings, compile
        self.encoder = FrameEncoder(width)
        self.of_return = nn.Linear(1, width)
        self.of_action = nn.Embedding(len(ACTIONS), width)
        self.of_place = nn.Parameter(torch.zeros(3 * settings.context, width))
        self.of_timestep = nn.Parameter(torch.zeros(settings.timesteps, width))
        self.blocks = nn.ModuleList(Block(settings) for _ in range(settings.layers))
        self.norm = nn.LayerNorm(width)
        self.register_buffer("return_mean", torch.tensor(settings.return_mean))
        self.register_buffer("return_std", torch.tensor(settings.return_std))
        for module in self.blocks.modules():
            if isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, std=0.02)
                nn.init.zeros_(module.bias)
        nn.init.normal_(self.of_action.weight, std=0.02)
        self.head = head

    def encode(self, frames: Tensor) -> Tensor:
        """Return the tokens (n, width) of stacks (n, 4, 84, 84)."""
        return torch.tanh(self.encoder(frames))

    def late(self, timestep: Tensor) -> Tensor:
        """Return the embedding (B, width) of the timesteps at which contexts begin."""
        return self.of_timestep[timestep.clamp_max(self.settings.timesteps - 1)]

    def features(self, seen: Tensor, actions: Tensor, returns: Tensor, late: Tensor) -> Tensor:
        """Return what predicts the action of each step, (B, T, width).

        Args:
            seen: tokens of the frames, (B, T, width).
            actions: (B, T); the action of a step is seen by later steps only.
            returns: (B, T), to go, in the game's score.
            late: what ``late`` returns of the first steps.
        """
        scaled = ((returns - self.return_mean) / self.return_std).unsqueeze(-1)
        hoped = torch.tanh(self.of_return(scaled.to(self.of_return.weight.dtype)))
        done = torch.tanh(self.of_action(actions))
        tokens = torch.stack([hoped.to(seen.dtype), seen, done.to(seen.dtype)], 2).flatten(1, 2)
        x = tokens + self.of_place[: tokens.shape[1]] + late[:, None]
        x = F.dropout(x, self.settings.dropout, self.training)
        for block in self.blocks:
            x = block(x)
        return self.norm(x)[:, 1::3]

    def read(self, frames: Tensor, actions: Tensor, returns: Tensor, timestep: Tensor) -> Tensor:
        """Return the features of contexts whose frames come as in a ``Window``."""
        return self._read(frames, actions, returns, self.late(timestep))

    def _read(self, frames: Tensor, actions: Tensor, returns: Tensor, late: Tensor) -> Tensor:
        whole = stacks(frames)
        seen = self.encode(whole.flatten(0, 1)).unflatten(0, whole.shape[:2])
        return self.features(seen, actions, returns, late)

    def forward(self, frames: Tensor, actions: Tensor, returns: Tensor, timestep: Tensor, target: Tensor) -> Tensor:
        read = _compiled_read if self.compile_trunk else DecisionTransformer._read
        x = read(self, frames, actions, returns, self.late(timestep))
        # The head works in float32 outside autocast: its sums are short, and its logarithms deserve the digits.
        with torch.autocast(x.device.type, enabled=False):
            return self.head.loss(x.float(), target, ignore_index=IGNORED)

    def pmf(self, features: Tensor) -> Tensor:
        """Return the probabilities of all actions."""
        with torch.autocast(features.device.type, enabled=False):
            return self.head(features.float()).exp()


# Compiled once for the class: arms of a study differ in their heads and games in their timesteps, both of which stay
# outside, and compiling again would cost more than training.
_compiled_read = torch.compile(DecisionTransformer._read, dynamic=False)
