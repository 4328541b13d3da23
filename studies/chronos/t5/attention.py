"""Attention with T5's relative positions, in several implementations that must agree."""

from __future__ import annotations

import math
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from fourier_head.errors import UserError

Attention = Literal["plain", "sdpa", "flex", "flex-table", "fused"]
"""plain: matrix products around a softmax. sdpa: torch's kernels, which take the bias as a mask. flex: FlexAttention,
whose kernel adds the bias itself, and so never makes anything of size time x time per sample; compiled only. Its bias
is a matrix, or a table by distance: less to read, but gradients of all pairs of places meet in few numbers. fused: our
kernels, see ``attention_function``; they run on a GPU with Triton, compiled or not."""
ATTENTIONS: tuple[Attention, ...] = ("plain", "sdpa", "flex", "flex-table", "fused")

HIDDEN = -1e9
"""What is added to the score of a key nobody may see; finite, so that not even rows without a key are NaN."""
STEEPEST, FLATTEST = 1.0, 1 / 64
"""How much the score of a key may fall at first with every step away, in the head that looks nearest and farthest."""
BLOCK = 128
"""Keys and queries of a block of FlexAttention's mask."""
FLEX_OPTIONS: dict[str, Any] = {"FORCE_USE_FLEX_ATTENTION": True}
"""Short queries would otherwise go to the kernel for decoding, which is not made for training."""
MARGIN = 128
"""Places at both ends of the table for fused attention, so that blocks may reach over the ends of a sequence."""


class Rules(NamedTuple):
    """What all layers of a stack share in their attention.

    Args:
        kind: of attention.
        bias: what ``PositionBias`` makes for this kind.
        hide: added to the scores of each key, (B, K): 0, or ``HIDDEN`` where there is nothing.
        span: ``attention_function.spans`` of that, for fused attention.
        blocks: of keys that somebody may see, for FlexAttention, see ``visible_blocks``.
        dropout: of attention weights.
    """

    kind: Attention
    bias: Tensor | None = None
    hide: Tensor | None = None
    span: Tensor | None = None
    blocks: Any = None
    dropout: float = 0.0


def position_buckets(distance: Tensor, buckets: int, max_distance: int, two_sided: bool) -> Tensor:
    """Return the bucket of each distance (key minus query): exact ones near by, then logarithmically wider.

    References:
        Raffel et al., Exploring the Limits of Transfer Learning with a Unified Text-to-Text Transformer (2020), 2.1.
    """
    side = torch.zeros_like(distance)
    if two_sided:
        buckets //= 2
        side = (distance > 0).long() * buckets
        distance = distance.abs()
    else:
        distance = (-distance).clamp_min(0)
    exact = buckets // 2
    share = torch.log(distance.clamp_min(1).float() / exact) / math.log(max_distance / exact)
    wide = (exact + (share * (buckets - exact)).long()).clamp_max(buckets - 1)
    return side + torch.where(distance < exact, distance, wide)


class PositionBias(nn.Module):
    """Learn a number to add to attention scores for every head and bucket of distances; all layers share it."""

    def __init__(self, heads: int, buckets: int, max_distance: int, two_sided: bool):
        super().__init__()
        self.buckets, self.max_distance, self.two_sided = buckets, max_distance, two_sided
        self.table = nn.Parameter(torch.zeros(buckets, heads))

    def forward(self, length: int, kind: Attention = "plain") -> Tensor:
        """Return the bias (heads, length, length), keys last; hidden after the query where it looks back only.

        For "flex-table" it is (heads, 2 length), indexed by length + key - query; for "fused" that in units of log2(e),
        with a margin at both ends. The matrix has these numbers along its diagonals, laid out by reshaping: the
        gradient is a sum over rows instead of a scatter into few buckets.
        """
        distance = torch.arange(-length, length, device=self.table.device)
        lines = self._lookup(distance)
        if not self.two_sided:
            lines = torch.where(distance > 0, HIDDEN, lines)
        if kind == "fused":
            return functional.pad(lines * math.log2(math.e), (MARGIN, MARGIN))
        if kind == "flex-table":
            return lines
        # Rows of 2 length, read as rows of 2 length - 1: every row begins one place earlier in the lines.
        tiled = lines.roll(length, 1)[:, None].expand(-1, length, -1).flatten(1)
        tiled = tiled[:, : length * (2 * length - 1)].unflatten(1, (length, 2 * length - 1))
        return tiled[..., :length].contiguous()

    def at(self, place: int) -> Tensor:
        """Return the bias (heads, 1, place + 1) of the query at a place to all keys up to it."""
        distance = torch.arange(place + 1, device=self.table.device) - place
        return self._lookup(distance)[:, None]

    @torch.no_grad()
    def start_near(self) -> None:
        """Let the bias fall with the distance, at paces from ``STEEPEST`` to ``FLATTEST`` over heads.

        References:
            Press et al., Train Short, Test Long: Attention with Linear Biases (2022).
        """
        distance = torch.arange(-self.max_distance, 1 + (self.max_distance if self.two_sided else 0))
        found = position_buckets(distance, self.buckets, self.max_distance, self.two_sided)
        far = distance.abs().float()
        fall = torch.zeros(self.buckets).scatter_reduce(0, found, far, "mean", include_self=False)
        paces = torch.logspace(math.log2(STEEPEST), math.log2(FLATTEST), self.table.shape[1], base=2)
        self.table.copy_(-fall[:, None] * paces)

    def _lookup(self, distance: Tensor) -> Tensor:
        """Return (heads, distances) in float32."""
        found = position_buckets(distance, self.buckets, self.max_distance, self.two_sided)
        one_hot = functional.one_hot(found, self.buckets).to(self.table.dtype)
        with torch.autocast(self.table.device.type, enabled=False):
            return self.table.t() @ one_hot.t()


def rules(
    kind: Attention,
    bias: Tensor | None = None,
    hide: Tensor | None = None,
    dropout: float = 0.0,
    queries: int | None = None,
) -> Rules:
    """Return the rules of a stack of layers, with what follows from the others; see ``Rules``.

    Args:
        queries: how many look at the keys; as many as there are keys unless given.
    """
    if dropout and kind in ("flex", "flex-table", "fused"):
        raise ValueError(f"dropout must be 0 with {kind} attention, got {dropout}; choose 'sdpa'")
    if hide is None:
        return Rules(kind, bias, dropout=dropout)
    if kind == "fused":
        return Rules(kind, bias, hide.float().contiguous(), _functions().spans(hide))
    blocks = visible_blocks(hide == 0, queries or hide.shape[1]) if kind.startswith("flex") else None
    return Rules(kind, bias, hide, blocks=blocks, dropout=dropout)


def visible_blocks(seen: Tensor, queries: int) -> Any:
    """Return the block mask of FlexAttention for keys (B, K) that all queries see, or none does.

    Blocks without a visible key are left out, and blocks of visible keys alone need no mask. Written out because
    ``create_block_mask`` would look at every pair of a query and a key.
    """
    from torch.nn.attention.flex_attention import BlockMask

    missing = -seen.shape[1] % BLOCK
    inside = functional.pad(seen, (0, missing), value=False).unflatten(1, (-1, BLOCK)).any(-1)
    whole = functional.pad(seen, (0, missing), value=True).unflatten(1, (-1, BLOCK)).all(-1)

    def listed(some: Tensor) -> tuple[Tensor, Tensor]:
        """Return how many blocks each sample and block of queries has, and which, those first."""
        rows = (len(seen), 1, -(-queries // BLOCK))
        which = some.int().argsort(dim=-1, descending=True, stable=True).int()
        return (
            some.sum(-1, dtype=torch.int32)[:, None, None].expand(rows).contiguous(),
            which[:, None, None].expand(*rows, -1).contiguous(),
        )

    return BlockMask.from_kv_blocks(
        *listed(inside & ~whole),
        *listed(whole),
        BLOCK_SIZE=BLOCK,
        mask_mod=lambda b, h, q, k: seen[b, k],
        seq_lengths=(queries, seen.shape[1]),
    )


def attend_self(packed: Tensor, given: Rules) -> Tensor:
    """Return what a sequence finds in itself, (B, T, heads, D), from queries, keys and values (B, T, 3, heads, D)."""
    if given.kind == "fused":
        return _functions().self_attention(packed, given.bias, given.hide, given.span)
    query, key, value = packed.transpose(1, 3).unbind(2)
    return _attend_parts(query, key, value, given)


class Contexts:
    """Keys and values of another sequence for all layers, (B, K, layers, 2, heads, D), made by one product.

    With fused attention layers must take their turn: the tensor of their gradients goes from one to the next.
    """

    def __init__(self, packed: Tensor):
        self.packed, self._link, self._next = packed, packed, 0

    def attend(self, query: Tensor, layer: int, given: Rules) -> Tensor:
        """Return what queries (B, Q, 1, heads, D) of a layer find, (B, Q, heads, D)."""
        if given.kind != "fused":
            key, value = self.packed[:, :, layer].transpose(1, 3).unbind(2)
            return _attend_parts(query[:, :, 0].transpose(1, 2), key, value, given)
        if layer != self._next:
            raise ValueError(f"layers must attend in turn, got {layer} instead of {self._next}")
        self._next += 1
        found, self._link = _functions().context_attention(
            query, self.packed, self._link, given.bias, given.hide, given.span, layer
        )
        return found


def _attend_parts(query: Tensor, key: Tensor, value: Tensor, given: Rules) -> Tensor:
    if given.kind.startswith("flex"):
        return _flex(query, key, value, given.bias, given.blocks).transpose(1, 2)
    return attend(query, key, value, given.bias, given.hide, given.kind, given.dropout).transpose(1, 2)


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor | None = None,
    hide: Tensor | None = None,
    kind: Attention = "plain",
    dropout: float = 0.0,
) -> Tensor:
    """Return what queries (B, heads, Q, D) find among keys (B, heads, K, D); scores are not scaled, as in T5.

    Args:
        bias: added to scores, (heads, Q, K), or as a table, see ``PositionBias``.
        hide: added to the scores of each key, (B, K): 0, or ``HIDDEN`` where there is nothing.
        kind: see ``Attention``; fused attention stacks keys and values, which ``attend_self`` and ``Contexts`` spare.
        dropout: of attention weights; FlexAttention and our kernels have none.
    """
    given = rules(kind, bias, hide, dropout, query.shape[2])
    if kind == "fused":
        packed = torch.stack([key, value]).permute(1, 3, 0, 2, 4)[:, :, None]
        return Contexts(packed).attend(query.transpose(1, 2)[:, :, None], 0, given).transpose(1, 2)
    if kind.startswith("flex"):
        return _flex(query, key, value, bias, given.blocks)
    mask = _mask(bias, hide)
    if kind != "plain":
        mask = None if mask is None else mask.to(query.dtype)
        return functional.scaled_dot_product_attention(query, key, value, mask, dropout_p=dropout, scale=1.0)
    scores = (query @ key.transpose(-1, -2)).float()
    scores = scores if mask is None else scores + mask
    weights = functional.dropout(torch.softmax(scores, dim=-1), dropout, dropout > 0)
    return weights.to(value.dtype) @ value


def _mask(bias: Tensor | None, hide: Tensor | None) -> Tensor | None:
    if hide is None:
        return bias
    hide = hide[:, None, None]
    return hide if bias is None else bias + hide


def _functions() -> Any:
    try:
        from studies.chronos.t5 import attention_function
    except ImportError as problem:
        raise UserError(
            "fused attention needs triton: pip install 'fourier-head[kernels]', or choose 'sdpa'"
        ) from problem
    return attention_function


def _flex(query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None, blocks: Any) -> Tensor:
    from torch.nn.attention.flex_attention import flex_attention

    def score(score: Tensor, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        assert bias is not None
        return score + (bias[h, bias.shape[1] // 2 + k - q] if bias.dim() == 2 else bias[h, q, k])

    options: Any = dict(FLEX_OPTIONS)
    mod = None if bias is None else score
    return flex_attention(query, key, value, score_mod=mod, block_mask=blocks, scale=1.0, kernel_options=options)
