"""Launch the attention kernels: tensors in, tensors out, no autograd here and no wait for the device."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fourier_head.kernels.launch import INTERPRETED, empty, run
from fourier_head.kernels.plan import ceil_div, power_of_two_above
from studies.chronos.t5 import attention_kernels as kernels

Three = tuple[Tensor, Tensor, Tensor]
"""Queries, keys and values, or their gradients: (B, heads, T, D)."""
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
    """

    queries: int
    keys: int
    warps: int
    stages: int
    registers: int | None = None

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


def cut(own: Tensor, other: Tensor | None = None) -> Three:
    """Return queries, keys and values (B, heads, T, D) of three parts, or of one and the two of another sequence."""
    query, *rest = own.transpose(1, 3).unbind(2)
    key, value = rest if other is None else other.transpose(1, 3).unbind(2)
    return query, key, value


def room_like(like: Tensor) -> Tensor:
    """Return room for (B, heads, T, D) that lies as (B, T, heads, D): heads are merged without a copy."""
    batch, heads, length, width = like.shape
    return like.new_empty((batch, length, heads, width)).transpose(1, 2)


def _strides(*tensors: Tensor) -> tuple[int, ...]:
    return tuple(stride for tensor in tensors for stride in tensor.stride()[:3])


def _width(table: Tensor | None) -> int:
    return 0 if table is None else table.shape[1]


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


def forward(
    query: Tensor, key: Tensor, value: Tensor, table: Tensor | None, hide: Tensor | None, span: Tensor | None,
    tile: Tile | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Return what queries find, and log2 of the sum of their powers (B, heads, Q); see ``attention_function``."""
    tile = tile or tiles_for(query).forward
    batch, heads, queries, _ = query.shape
    keys = key.shape[2]
    out, lse = room_like(query), empty(query, batch, heads, queries)
    constants = _constants(query, key, tile, hide) | {"BIAS": table is not None, "ASSEMBLY": not INTERPRETED}
    run(
        kernels.forward_kernel, (ceil_div(queries, tile.queries) * batch * heads,),
        (query, key, value, table, hide, span, out, lse, heads, queries, keys, _width(table),
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
    inputs: tuple[Tensor, ...], table: Tensor | None, hide: Tensor | None, span: Tensor | None, lse: Tensor,
    delta: Tensor, grads: tuple[Tensor, Tensor], scores: Tensor, tile: Tile,
) -> None:  # fmt: skip
    """Write the gradients of keys, values and scores from queries, keys, values and what comes from above."""
    query, key, *_ = inputs
    batch, heads, queries, _ = query.shape
    constants = _constants(query, key, tile, hide) | {"BIAS": table is not None, "ASSEMBLY": not INTERPRETED}
    run(
        kernels.keys_kernel, (ceil_div(key.shape[2], tile.keys) * batch * heads,),
        (*inputs, table, hide, span, lse, delta, *grads, scores, heads, queries, key.shape[2], _width(table),
         scores.shape[3], *_strides(*inputs, *grads)),
        constants, **tile.options,
    )  # fmt: skip


def query_gradients(
    scores: Tensor, key: Tensor, hide: Tensor | None, span: Tensor | None, grad: Tensor, tile: Tile
) -> None:
    """Write the gradients of queries from those of scores."""
    batch, heads, queries, _ = grad.shape
    run(
        kernels.queries_kernel, (ceil_div(queries, tile.queries) * batch * heads,),
        (scores, key, span, grad, heads, queries, key.shape[2], *scores.shape[2:], *_strides(key, grad)),
        _constants(grad, key, tile, hide), **tile.options,
    )  # fmt: skip


def sum_samples(
    scores: Tensor, samples: int, hide: Tensor | None, span: Tensor | None, total: Tensor, add: bool, keys: int
) -> None:
    """Write, or add, the sum of gradients of scores over samples; ``keys`` of one were written together, or not."""
    heads, tall, wide = total.shape
    constants = {"ADD": add, "HIDE": hide is not None, "N": keys, "UNROLL": SUM_SAMPLES, "BLOCK": SUM_BLOCK}
    grid = (tall * wide // SUM_BLOCK, heads)
    run(kernels.batch_kernel, grid, (scores, span, total, samples, tall, wide), constants)


def table_gradients(total: Tensor, queries: int, keys: int, line: int) -> Tensor:
    """Return the gradient of the bias by distance, (heads, line), from that of the bias as a matrix."""
    heads, tall, wide = total.shape
    result, block = empty(total, heads, line), 64
    run(
        kernels.diagonal_kernel, (ceil_div(line, block), heads),
        (total, result, queries, keys, line, tall, wide), {"ROWS": 16, "BLOCK": block},
    )  # fmt: skip
    return result


def backward(
    upstream: Tensor, inputs: Three, table: Tensor | None, hide: Tensor | None, span: Tensor | None, out: Tensor,
    lse: Tensor, grads: Three, need_table: bool, tiles: Tiles | None = None,
) -> Tensor:  # fmt: skip
    """Write the gradients of queries, keys and values; return that of the bias, empty unless needed."""
    query, key, _ = inputs
    tiles = tiles or tiles_for(query)
    upstream = upstream if upstream.stride(-1) == 1 else upstream.contiguous()
    delta = deltas(out, upstream)
    scores = score_room(query, key, tiles)
    samples = len(scores)
    total = empty(query, *scores.shape[1:]) if need_table else None
    for start in range(0, len(query), samples):
        part = slice(start, start + samples)
        some = tuple(x[part] for x in (*inputs, upstream))
        dq, dk, dv = (x[part] for x in grads)
        unseen, seen = (None if x is None else x[part] for x in (hide, span))
        key_gradients(some, table, unseen, seen, lse[part], delta[part], (dk, dv), scores, tiles.to_keys)
        query_gradients(scores, some[1], unseen, seen, dq, tiles.to_queries)
        if total is not None:
            sum_samples(scores, len(dq), unseen, seen, total, start > 0, tiles.to_keys.keys)
    if total is None:
        return empty(query, 0)
    return table_gradients(total, query.shape[2], key.shape[2], _width(table))
