"""Launch the attention kernels, and offer them to autograd and ``torch.compile`` as operators."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from fourier_head.forecasting.t5 import attention_kernels as kernels
from fourier_head.kernels.launch import INTERPRETED, empty, run
from fourier_head.kernels.plan import ceil_div, power_of_two_above

SCRATCH = 2**30
"""Bytes that gradients of scores may take; larger batches go back in parts."""
SUM_BLOCK, SUM_SAMPLES = 1024, 8
"""Scores of a program that sums over samples, and samples read at once."""


@dataclass(frozen=True)
class Tile:
    """How a kernel cuts its work.

    Args:
        queries, keys: of a block.
        warps, stages: that work on a block, and blocks whose loads are under way.
        registers: the most of a thread; the compiler decides unless given.
        first: whether the bias begins the sum of a product, or is added to it; going forward only.
    """

    queries: int
    keys: int
    warps: int
    stages: int
    registers: int | None = None
    first: bool = False

    @property
    def options(self) -> dict[str, int]:
        limit = {} if self.registers is None else {"maxnreg": self.registers}
        return {"num_warps": self.warps, "num_stages": self.stages, **limit}


@dataclass(frozen=True)
class Tiles:
    """One for each kernel; keys of ``to_keys`` are whole blocks of those of ``to_queries``."""

    forward: Tile = Tile(64, 64, 4, 3)
    to_keys: Tile = Tile(64, 64, 4, 2, 168)
    to_queries: Tile = Tile(128, 64, 4, 4)


STANDARD = Tiles()
DEEP = Tiles(Tile(128, 64, 8, 2), Tile(64, 64, 8, 2), Tile(64, 64, 4, 3))
"""For more than 64 features a head: twice the registers and shared memory."""
EXACT = Tiles(Tile(32, 32, 4, 1), Tile(32, 32, 4, 1), Tile(32, 32, 4, 1))
"""For float32, whose products take no matrix units."""


def tiles_for(query: Tensor) -> Tiles:
    """Return the tiles for queries (..., D)."""
    if query.dtype == torch.float32:
        return EXACT
    return STANDARD if query.shape[-1] <= 64 else DEEP


def _depth(query: Tensor) -> int:
    return max(16, power_of_two_above(query.shape[-1]))


def room_like(like: Tensor) -> Tensor:
    """Return room for (B, heads, T, D) that lies as (B, T, heads, D): heads are merged without a copy."""
    batch, heads, length, width = like.shape
    return like.new_empty((batch, length, heads, width)).transpose(1, 2)


def _strides(*tensors: Tensor) -> tuple[int, ...]:
    return tuple(stride for tensor in tensors for stride in tensor.stride()[:3])


def _table(lines: Tensor | None, tile: Tile, even: bool) -> tuple[Tensor | None, int, int]:
    """Return the bias as a kernel wants it, the place of distance 0, and the numbers of a head."""
    if lines is None:
        return None, 0, 0
    middle = lines.shape[1] // 2
    lines = lines.contiguous() if tile.first else lines.contiguous() * kernels.LOG2_E.value
    if not even:  # blocks reach over the ends
        lines, middle = functional.pad(lines, (tile.queries, tile.keys)), middle + tile.queries
    return lines, middle, lines.shape[1]


def _constants(query: Tensor, key: Tensor, tile: Tile, hide: Tensor | None) -> dict[str, Any]:
    return {
        "HIDE": hide is not None,
        "WIDTH": query.shape[-1],
        "DEPTH": _depth(query),
        "M": tile.queries,
        "N": tile.keys,
        "EVEN_M": query.shape[2] % tile.queries == 0,
        "EVEN_N": key.shape[2] % tile.keys == 0,
        "PRECISION": "ieee" if query.dtype == torch.float32 else "tf32",
    }


def spans(hide: Tensor | None, like: Tensor) -> Tensor:
    """Return what ``span_kernel`` finds, (B, 3); nothing where no key is hidden."""
    if hide is None:
        return empty(like, 0, dtype=torch.int32)
    span = empty(hide, len(hide), 3, dtype=torch.int32)
    run(kernels.span_kernel, (len(hide),), (hide, span, hide.shape[1]), {"BLOCK": power_of_two_above(hide.shape[1])})
    return span


def forward(
    query: Tensor, key: Tensor, value: Tensor, lines: Tensor | None, hide: Tensor | None, span: Tensor,
    tile: Tile | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Return what queries find, and log2 of the sum of their powers (B, heads, Q)."""
    tile = tile or tiles_for(query).forward
    batch, heads, queries, _ = query.shape
    keys = key.shape[2]
    out, lse = room_like(query), empty(query, batch, heads, queries)
    constants = _constants(query, key, tile, hide)
    table, middle, line = _table(lines, tile, constants["EVEN_M"] and constants["EVEN_N"])
    constants |= {"BIAS": lines is not None, "ASSEMBLY": not INTERPRETED, "FIRST": tile.first}
    run(
        kernels.forward_kernel, (ceil_div(queries, tile.queries) * batch * heads,),
        (query, key, value, table, hide, span, out, lse, heads, queries, keys, middle, line,
         *_strides(query, key, value)),
        constants, **tile.options,
    )  # fmt: skip
    return out, lse


def deltas(out: Tensor, upstream: Tensor) -> Tensor:
    """Return the product of each output with its gradient, (B, heads, Q)."""
    batch, heads, queries, width = out.shape
    delta, rows, block = empty(out, batch, heads, queries), batch * heads * queries, 64
    constants = {"WIDTH": width, "DEPTH": power_of_two_above(width), "BLOCK": block}
    arguments = (out, upstream, delta, rows, heads, queries, *_strides(upstream))
    run(kernels.delta_kernel, (ceil_div(rows, block),), arguments, constants)
    return delta


def score_room(query: Tensor, key: Tensor, tiles: Tiles) -> Tensor:
    """Return room for the gradients of scores, (samples, heads, keys, queries) in whole blocks, of up to SCRATCH."""
    block = max(tiles.to_keys.queries, tiles.to_queries.queries)
    tall = ceil_div(key.shape[2], tiles.to_keys.keys) * tiles.to_keys.keys
    shape = (query.shape[1], tall, ceil_div(query.shape[2], block) * block)
    samples = SCRATCH // (math.prod(shape) * query.element_size())
    return query.new_empty((max(1, min(len(query), samples)), *shape))


def key_gradients(
    inputs: tuple[Tensor, Tensor, Tensor, Tensor], lines: Tensor | None, hide: Tensor | None, span: Tensor, lse: Tensor,
    delta: Tensor, grads: tuple[Tensor, Tensor], scores: Tensor, tile: Tile,
) -> None:  # fmt: skip
    """Write the gradients of keys, values and scores from queries, keys, values and what comes from above."""
    query, key, *_ = inputs
    batch, heads, queries, _ = query.shape
    constants = _constants(query, key, tile, hide)
    table, middle, line = _table(lines, tile, constants["EVEN_M"] and constants["EVEN_N"])
    constants |= {"BIAS": lines is not None, "ASSEMBLY": not INTERPRETED}
    run(
        kernels.keys_kernel, (ceil_div(key.shape[2], tile.keys) * batch * heads,),
        (*inputs, table, hide, span, lse, delta, *grads, scores, heads, queries, key.shape[2], middle, line,
         scores.shape[3], *_strides(*inputs)),
        constants, **tile.options,
    )  # fmt: skip


def query_gradients(scores: Tensor, key: Tensor, hide: Tensor | None, span: Tensor, grad: Tensor, tile: Tile) -> None:
    """Write the gradients of queries from those of scores."""
    batch, heads, queries, _ = grad.shape
    run(
        kernels.queries_kernel, (ceil_div(queries, tile.queries) * batch * heads,),
        (scores, key, span, grad, heads, queries, key.shape[2], *scores.shape[2:], *_strides(key)),
        _constants(grad, key, tile, hide), **tile.options,
    )  # fmt: skip


def sum_samples(
    scores: Tensor, samples: int, hide: Tensor | None, span: Tensor, total: Tensor, add: bool, keys: int
) -> None:
    """Write, or add, the sum of gradients of scores over samples; ``keys`` of one were written together, or not."""
    heads, tall, wide = total.shape
    constants = {"ADD": add, "HIDE": hide is not None, "N": keys, "UNROLL": SUM_SAMPLES, "BLOCK": SUM_BLOCK}
    grid = (tall * wide // SUM_BLOCK, heads)
    run(kernels.batch_kernel, grid, (scores, span, total, samples, tall, wide), constants)


def line_gradients(total: Tensor, queries: int, keys: int, length: int) -> Tensor:
    """Return the gradient of the bias by distance, (heads, 2 length), from that of the bias as a matrix."""
    heads, tall, wide = total.shape
    result, block = empty(total, heads, 2 * length), 64
    run(
        kernels.diagonal_kernel, (ceil_div(2 * length, block), heads),
        (total, result, queries, keys, length, tall, wide), {"ROWS": 16, "BLOCK": block},
    )  # fmt: skip
    return result


def backward(
    upstream: Tensor, query: Tensor, key: Tensor, value: Tensor, lines: Tensor | None, hide: Tensor | None,
    out: Tensor, lse: Tensor, span: Tensor, need_lines: bool, tiles: Tiles | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """Return the gradients of queries, keys, values and bias; the last is empty unless needed."""
    tiles = tiles or tiles_for(query)
    upstream = upstream if upstream.stride(-1) == 1 else upstream.contiguous()
    delta = deltas(out, upstream)
    inputs = (query, key, value, upstream)
    grads = (room_like(query), room_like(key), room_like(value))
    scores = score_room(query, key, tiles)
    samples = len(scores)
    need_lines = need_lines and lines is not None
    total = empty(query, *scores.shape[1:]) if need_lines else None
    for start in range(0, len(query), samples):
        part = slice(start, start + samples)
        span_part, hide_part = (span if hide is None else span[part]), (None if hide is None else hide[part])
        key_gradients(
            tuple(x[part] for x in inputs), lines, hide_part, span_part, lse[part], delta[part],  # type: ignore[arg-type]
            (grads[1][part], grads[2][part]), scores, tiles.to_keys,
        )  # fmt: skip
        query_gradients(scores, key[part], hide_part, span_part, grads[0][part], tiles.to_queries)
        if total is not None:
            count = len(query[part])
            sum_samples(scores, count, hide_part, span_part, total, start > 0, tiles.to_keys.keys)
    if total is None or lines is None:
        return *grads, empty(query, 0)
    return *grads, line_gradients(total, query.shape[2], key.shape[2], lines.shape[1] // 2)


_INPUTS = "Tensor query, Tensor key, Tensor value, Tensor? lines, Tensor? hide"


@torch.library.custom_op(
    "fourier_head::t5_attention", mutates_args=(), schema=f"({_INPUTS}) -> (Tensor, Tensor, Tensor)"
)
def _attention(query: Any, key: Any, value: Any, lines: Any, hide: Any) -> Any:
    span = spans(hide, query)
    return *forward(query, key, value, lines, hide, span), span


@_attention.register_fake
def _(query: Any, key: Any, value: Any, lines: Any, hide: Any) -> Any:
    span = query.new_empty(0 if hide is None else (len(hide), 3), dtype=torch.int32)
    return room_like(query), query.new_empty(query.shape[:3], dtype=torch.float32), span


@torch.library.custom_op(
    "fourier_head::t5_attention_backward",
    mutates_args=(),
    schema=f"(Tensor upstream, {_INPUTS}, Tensor out, Tensor lse, Tensor span, bool need_lines) "
    "-> (Tensor, Tensor, Tensor, Tensor)",
)
def _gradients(upstream: Any, *saved: Any) -> Any:
    return backward(upstream, *saved)


@_gradients.register_fake
def _(upstream: Any, query: Any, key: Any, value: Any, lines: Any, *rest: Any) -> Any:
    needed = lines is not None and rest[-1]
    return room_like(query), room_like(key), room_like(value), query.new_empty(
        lines.shape if needed else 0, dtype=torch.float32
    )  # fmt: skip


def _setup(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.save_for_backward(*inputs, *output)


def _backward(ctx: Any, upstream: Tensor, *_: Any) -> tuple[Tensor | None, ...]:
    need_lines = ctx.needs_input_grad[3]
    *grads, lines = _gradients(upstream, *ctx.saved_tensors, need_lines)
    return *grads, lines if need_lines else None, None


_attention.register_autograd(_backward, setup_context=_setup)


def fused_attention(query: Tensor, key: Tensor, value: Tensor, lines: Tensor | None, hide: Tensor | None) -> Tensor:
    """Return what queries (B, heads, Q, D) find among keys (B, heads, K, D); rows that see no key find zeros.

    Arguments:
        lines: the bias by distance, (heads, 2 length), see ``PositionBias``.
        hide: added to the scores of each key, (B, K); below half of ``HIDDEN`` a key is not there.
    """
    if not (query.is_cuda or INTERPRETED):
        raise ValueError(f"fused attention needs a CUDA device, got {query.device}; choose 'sdpa'")
    if query.shape[-1] > 128:
        raise ValueError(f"fused attention takes up to 128 features a head, got {query.shape[-1]}; choose 'sdpa'")
    if lines is not None and (lines.dim() != 2 or lines.shape[1] < 2 * max(query.shape[2], key.shape[2])):
        shape = f"(heads, 2 x {max(query.shape[2], key.shape[2])})"
        raise ValueError(f"fused attention takes its bias by distance, {shape}, got {tuple(lines.shape)}")
    dtype = query.dtype
    # The interpreter's products of bfloat16 treat its bits as integers.
    wide = torch.float32 if INTERPRETED and dtype == torch.bfloat16 else dtype
    query, key, value = (x.to(wide) if x.stride(-1) == 1 else x.to(wide).contiguous() for x in (query, key, value))
    lines = None if lines is None else lines.float()
    hide = None if hide is None else hide.float().contiguous()
    out: Tensor = _attention(query, key, value, lines, hide)[0]
    return out.to(dtype)
