"""Shapes of T5 forecasters, those of the Chronos models among them."""

from __future__ import annotations

from dataclasses import dataclass, replace

from fourier_head.errors import UserError, did_you_mean


@dataclass(frozen=True)
class T5Config:
    """Shape of an encoder-decoder transformer after T5.

    Args:
        context: tokens the encoder reads: up to ``context - 1`` values and EOS.
        horizon: values the decoder learns to predict.
        vocabulary: number of token ids.
        width, inner: of the residual stream and of the layers between.
        layers, heads, head_width: of encoder and decoder alike; heads need not fill the width.
        buckets, max_distance: of relative positions.
        init: factor of all initial deviations; T5-efficient and Chronos have 0.05.
        smooth: whether embeddings start as waves along the bins, so that near values look alike from the first step;
            T5's are noise.
        near: whether attention starts near by: the bias falls with the distance, for each head at a pace of its own;
            T5's is noise.
        epsilon: of the norms.

    Example:
        >>> T5Config.named("mini").width
        384
    """

    context: int = 512
    horizon: int = 64
    vocabulary: int = 4096
    width: int = 384
    inner: int = 1536
    layers: int = 4
    heads: int = 8
    head_width: int = 64
    buckets: int = 32
    max_distance: int = 128
    init: float = 0.05
    smooth: bool = False
    near: bool = False
    epsilon: float = 1e-6

    @property
    def attention_width(self) -> int:
        """Features of all heads together."""
        return self.heads * self.head_width

    @classmethod
    def named(cls, size: str, **changes: float) -> T5Config:
        """Return the shape of a name in ``SIZES``, with some of its numbers changed."""
        if size not in SIZES:
            raise UserError(f"there is no size {size!r}: {did_you_mean(size, SIZES)}")
        return replace(SIZES[size], **changes)  # type: ignore[arg-type]


SIZES: dict[str, T5Config] = {
    "test": T5Config(width=32, inner=64, layers=2, heads=2, head_width=16),
    "1m": T5Config(width=128, inner=512, layers=2, heads=2),
    "3m": T5Config(width=192, inner=768, layers=2, heads=3),
    "5m": T5Config(width=256, inner=1024, layers=2, heads=4),
    "tiny": T5Config(width=256, inner=1024, layers=4, heads=4),
    "mini": T5Config(),
    "small": T5Config(width=512, inner=2048, layers=6, heads=8),
    "base": T5Config(width=768, inner=3072, layers=12, heads=12),
}
"""``tiny`` to ``base`` are the shapes of Chronos-T5 (8, 20, 46 and 200 million parameters)."""
