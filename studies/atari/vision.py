"""The convolutions of Mnih et al. (2015), their first layer put so that tensor cores like it."""

from __future__ import annotations

import torch
from torch import Tensor, nn

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
