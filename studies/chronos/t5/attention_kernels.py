"""Attention tile by tile, with a bias by distance: nothing of size time x time leaves the chip going forward.

Going back, the gradients of scores are written once, in the inputs' type: the gradients of queries and of the bias are
sums of them that cost one reading each, less than computing every score again.
"""

# The arguments of a kernel are what Triton makes of them: no type of the host describes them.
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import triton
import triton.language as tl

# Powers of two are what the hardware has: scores are multiplied by log2(e) where a power is taken.
LOG2_E = tl.constexpr(1.4426950408889634)
# Half of what is added to hidden scores: a row whose largest score is below sees nothing, and finds nothing.
NOTHING = tl.constexpr(-5e8)


@triton.jit
def _load(ptr, stride, start, limit, WIDTH: tl.constexpr, DEPTH: tl.constexpr, COUNT: tl.constexpr, EVEN: tl.constexpr):
    """Return COUNT rows of WIDTH numbers from ``start`` on, zeros up to DEPTH and, unless EVEN, beyond ``limit``."""
    rows = start + tl.arange(0, COUNT)
    inner = tl.arange(0, DEPTH)
    pointers = ptr + rows[:, None] * stride + inner[None, :]
    if not EVEN:
        tile = tl.load(pointers, mask=(rows < limit)[:, None] & (inner < WIDTH)[None, :], other=0.0)
    elif DEPTH != WIDTH:
        tile = tl.load(pointers, mask=(inner < WIDTH)[None, :], other=0.0)
    else:
        tile = tl.load(pointers)
    return tile


@triton.jit
def _store(
    ptr, tile, stride, start, limit,
    WIDTH: tl.constexpr, DEPTH: tl.constexpr, COUNT: tl.constexpr, EVEN: tl.constexpr,
):  # fmt: skip
    """Undo ``_load``."""
    rows = start + tl.arange(0, COUNT)
    inner = tl.arange(0, DEPTH)
    pointers = ptr + rows[:, None] * stride + inner[None, :]
    tile = tile.to(ptr.dtype.element_ty)
    if not EVEN:
        tl.store(pointers, tile, mask=(rows < limit)[:, None] & (inner < WIDTH)[None, :])
    elif DEPTH != WIDTH:
        tl.store(pointers, tile, mask=(inner < WIDTH)[None, :])
    else:
        tl.store(pointers, tile)


@triton.jit
def _peek(pointers, ASSEMBLY: tl.constexpr):
    """Return the float32 numbers at pointers, read through the first cache into the registers where they are needed.

    A plain load would be laid out for wide reads, then carried over through shared memory: more than the read costs.
    """
    if ASSEMBLY:
        result = tl.inline_asm_elementwise(
            "ld.global.nc.f32 $0, [$1];", "=f,l", [pointers], dtype=tl.float32, is_pure=True, pack=1
        )
    else:
        result = tl.load(pointers)
    return result


@triton.jit
def forward_kernel(
    q_ptr, k_ptr, v_ptr, table_ptr, hide_ptr, span_ptr, out_ptr, lse_ptr,
    heads, queries, keys, line,
    q_batch, q_head, q_row, k_batch, k_head, k_row, v_batch, v_head, v_row,
    BIAS: tl.constexpr, HIDE: tl.constexpr, WIDTH: tl.constexpr, DEPTH: tl.constexpr, M: tl.constexpr, N: tl.constexpr,
    EVEN_M: tl.constexpr, EVEN_N: tl.constexpr, ASSEMBLY: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Write what M queries of a head find, (B, queries, heads, WIDTH), and log2 of the sum of their powers.

    The bias (heads, line), distance 0 in the middle, is in units of log2(e) and added to products, which need not wait
    for it then, nor it for the product before. Blocks of keys that nobody sees are left out.
    """
    # With a bias scores are in units of log2(e); without, the power takes the factor for nothing.
    UNIT: tl.constexpr = 1.0 if BIAS else LOG2_E.value
    blocks = tl.cdiv(queries, M)
    start_m = (tl.program_id(0) % blocks) * M
    both = tl.program_id(0) // blocks
    sample = (both // heads).to(tl.int64)
    head = both % heads
    k_ptr += sample * k_batch + head * k_head
    v_ptr += sample * v_batch + head * v_head
    q = _load(q_ptr + sample * q_batch + head * q_head, q_row, start_m, queries, WIDTH, DEPTH, M, EVEN_M)
    m = tl.arange(0, M)
    n = tl.arange(0, N)
    low = 0
    high = keys
    if HIDE:
        first = tl.load(span_ptr + 3 * sample)
        low = first // N * N
        high = tl.load(span_ptr + 3 * sample + 1)
        mixed = tl.load(span_ptr + 3 * sample + 2)
        hide_ptr += sample * keys
    if BIAS:
        table_ptr += head * line + line // 2 - start_m
    peak = tl.full([M], -float("inf"), tl.float32)
    total = tl.zeros([M], tl.float32)
    found = tl.zeros([M, DEPTH], tl.float32)
    for start in tl.range(low, high, N):
        k = _load(k_ptr, k_row, start, keys, WIDTH, DEPTH, N, EVEN_N)
        score = tl.dot(q, tl.trans(k), input_precision=PRECISION)
        if BIAS:
            score = score * LOG2_E + _peek((table_ptr + start - m.to(tl.int64))[:, None] + n[None, :], ASSEMBLY)
        if HIDE:  # noqa: SIM102 - one condition holds at compile time, the other on the device
            if (mixed != 0) | (start < first) | (start + N > high):
                hide = _peek(hide_ptr + tl.minimum(start + n, keys - 1), ASSEMBLY)
                score += (hide * (LOG2_E / UNIT))[None, :]
        if not EVEN_N:
            score = tl.where((start + n < keys)[None, :], score, -float("inf"))
        higher = tl.maximum(peak, tl.max(score, 1))
        shrink = tl.exp2((peak - higher) * UNIT)
        weight = tl.exp2(score * UNIT - (higher * UNIT)[:, None])
        total = total * shrink + tl.sum(weight, 1)
        v = _load(v_ptr, v_row, start, keys, WIDTH, DEPTH, N, EVEN_N)
        found = tl.dot(weight.to(v.dtype), v, found * shrink[:, None], input_precision=PRECISION)
        peak = higher
    # What is not a number must not pass for a row that sees nothing.
    some = (peak > NOTHING) | (total != total)
    found *= tl.where(some, 1.0 / tl.where(some, total, 1.0), 0.0)[:, None]
    # An infinite sum makes every weight of the row, and so every gradient through it, zero.
    lse = tl.where(some, peak * UNIT + tl.log2(tl.where(some, total, 1.0)), float("inf"))
    tl.store(lse_ptr + both.to(tl.int64) * queries + start_m + m, lse, mask=start_m + m < queries)
    out_ptr += (sample * queries * heads + head) * WIDTH
    _store(out_ptr, found, heads * WIDTH, start_m, queries, WIDTH, DEPTH, M, EVEN_M)


@triton.jit
def delta_kernel(
    out_ptr, upstream_ptr, delta_ptr, rows, heads, queries, up_batch, up_head, up_row,
    WIDTH: tl.constexpr, DEPTH: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Write the product of each output with its gradient, (B, heads, queries); rows run over (B, queries, heads)."""
    row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inner = tl.arange(0, DEPTH)
    inside = row < rows
    head = row % heads
    query = row // heads % queries
    sample = (row // heads // queries).to(tl.int64)
    mask = inside[:, None] & (inner < WIDTH)[None, :]
    out = tl.load(out_ptr + row.to(tl.int64)[:, None] * WIDTH + inner[None, :], mask=mask, other=0.0)
    upstream_ptr += sample * up_batch + head * up_head + query * up_row
    upstream = tl.load(upstream_ptr[:, None] + inner[None, :], mask=mask, other=0.0)
    delta = tl.sum(out.to(tl.float32) * upstream.to(tl.float32), 1)
    tl.store(delta_ptr + (sample * heads + head) * queries + query, delta, mask=inside)


@triton.jit
def keys_kernel(
    q_ptr, k_ptr, v_ptr, upstream_ptr, table_ptr, hide_ptr, span_ptr, lse_ptr, delta_ptr,
    dk_ptr, dv_ptr, ds_ptr,
    heads, queries, keys, line, wide,
    q_batch, q_head, q_row, k_batch, k_head, k_row, v_batch, v_head, v_row, up_batch, up_head, up_row,
    dk_batch, dk_head, dk_row, dv_batch, dv_head, dv_row,
    BIAS: tl.constexpr, HIDE: tl.constexpr, WIDTH: tl.constexpr, DEPTH: tl.constexpr, M: tl.constexpr, N: tl.constexpr,
    EVEN_M: tl.constexpr, EVEN_N: tl.constexpr, ASSEMBLY: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Write the gradients of N keys and values, and of their scores.

    The latter lie by key, then query: (B heads, key blocks x N, wide), ``wide`` being whole blocks of queries. Blocks
    without a visible key write no scores. Tiles have a row for every key, so that products take them as they are.
    """
    blocks = tl.cdiv(keys, N)
    start_n = (tl.program_id(0) % blocks) * N
    both = (tl.program_id(0) // blocks).to(tl.int64)
    sample = both // heads
    head = both % heads
    n = tl.arange(0, N)
    m = tl.arange(0, M)
    dk = tl.zeros([N, DEPTH], tl.float32)
    dv = tl.zeros([N, DEPTH], tl.float32)
    last = queries
    if HIDE:
        first = tl.load(span_ptr + 3 * sample)
        if (first >= start_n + N) | (tl.load(span_ptr + 3 * sample + 1) <= start_n):
            last = 1
        hide = tl.load(hide_ptr + sample * keys + start_n + n, mask=start_n + n < keys, other=0.0) * LOG2_E
    k = _load(k_ptr + sample * k_batch + head * k_head, k_row, start_n, keys, WIDTH, DEPTH, N, EVEN_N)
    v = _load(v_ptr + sample * v_batch + head * v_head, v_row, start_n, keys, WIDTH, DEPTH, N, EVEN_N)
    q_ptr += sample * q_batch + head * q_head
    upstream_ptr += sample * up_batch + head * up_head
    lse_ptr += both * queries
    delta_ptr += both * queries
    ds_ptr += (both * blocks * N + start_n) * wide
    if BIAS:
        table_ptr += head * line + line // 2 + start_n
    # At least once, which the compiler must know: only then do products run side by side from step to step.
    for start in tl.range(0, tl.maximum(last, 1), M):
        q = _load(q_ptr, q_row, start, queries, WIDTH, DEPTH, M, EVEN_M)
        score = tl.dot(k, tl.trans(q), input_precision=PRECISION)
        if EVEN_M:
            lse = tl.load(lse_ptr + start + m)
            delta = tl.load(delta_ptr + start + m)
        else:
            lse = tl.load(lse_ptr + start + m, mask=start + m < queries, other=float("inf"))
            delta = tl.load(delta_ptr + start + m, mask=start + m < queries, other=0.0)
        added = -lse[None, :]
        if HIDE:
            added += hide[:, None]
        if BIAS:
            added += _peek((table_ptr - start + n)[:, None] - m.to(tl.int64)[None, :], ASSEMBLY)
        weight = tl.exp2(score * LOG2_E + added)
        if not EVEN_N:
            weight = tl.where((start_n + n < keys)[:, None], weight, 0.0)
        upstream = _load(upstream_ptr, up_row, start, queries, WIDTH, DEPTH, M, EVEN_M)
        dv = tl.dot(weight.to(upstream.dtype), upstream, dv, input_precision=PRECISION)
        product = tl.dot(v, tl.trans(upstream), input_precision=PRECISION)
        ds = (weight * (product - delta[None, :])).to(q.dtype)
        dk = tl.dot(ds, q, dk, input_precision=PRECISION)
        tl.store(ds_ptr + n[:, None] * wide + start + m[None, :], ds)
    _store(dk_ptr + sample * dk_batch + head * dk_head, dk, dk_row, start_n, keys, WIDTH, DEPTH, N, EVEN_N)
    _store(dv_ptr + sample * dv_batch + head * dv_head, dv, dv_row, start_n, keys, WIDTH, DEPTH, N, EVEN_N)


@triton.jit
def queries_kernel(
    ds_ptr, k_ptr, span_ptr, dq_ptr, heads, queries, keys, tall, wide,
    k_batch, k_head, k_row, dq_batch, dq_head, dq_row,
    HIDE: tl.constexpr, WIDTH: tl.constexpr, DEPTH: tl.constexpr, M: tl.constexpr, N: tl.constexpr,
    EVEN_M: tl.constexpr, EVEN_N: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Write the gradients of M queries from those of scores (B heads, tall, wide)."""
    blocks = tl.cdiv(queries, M)
    start_m = (tl.program_id(0) % blocks) * M
    both = (tl.program_id(0) // blocks).to(tl.int64)
    sample = both // heads
    head = both % heads
    low = 0
    high = keys
    if HIDE:
        low = tl.load(span_ptr + 3 * sample) // N * N
        high = tl.load(span_ptr + 3 * sample + 1)
    n = tl.arange(0, N)
    m = tl.arange(0, M)
    k_ptr += sample * k_batch + head * k_head
    ds_ptr += both * tall * wide + start_m
    dq = tl.zeros([M, DEPTH], tl.float32)
    for start in tl.range(low, high, N):
        ds = tl.load(ds_ptr + (start + n)[:, None] * wide + m[None, :])
        k = _load(k_ptr, k_row, start, keys, WIDTH, DEPTH, N, EVEN_N)
        dq = tl.dot(tl.trans(ds), k, dq, input_precision=PRECISION)
    _store(dq_ptr + sample * dq_batch + head * dq_head, dq, dq_row, start_m, queries, WIDTH, DEPTH, M, EVEN_M)


@triton.jit
def batch_kernel(
    ds_ptr, span_ptr, sum_ptr, samples, tall, wide,
    ADD: tl.constexpr, HIDE: tl.constexpr, N: tl.constexpr, UNROLL: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Sum the gradients of scores over samples, (heads, tall, wide); N keys of a sample were written, or none."""
    head = tl.program_id(1)
    start = tl.program_id(0).to(tl.int64) * BLOCK
    place = start + tl.arange(0, BLOCK)
    matrix = tall.to(tl.int64) * wide
    block = start // wide // N * N
    total = tl.zeros([BLOCK], tl.float32)
    if ADD:
        total = tl.load(sum_ptr + head * matrix + place)
    for first in tl.range(0, samples, UNROLL):
        sample = first + tl.arange(0, UNROLL)
        written = sample < samples
        if HIDE:
            low = tl.load(span_ptr + 3 * sample, mask=written, other=0)
            written &= low < block + N
            written &= tl.load(span_ptr + 3 * sample + 1, mask=written, other=0) > block
        origin = (sample.to(tl.int64) * tl.num_programs(1) + head) * matrix
        ds = tl.load(ds_ptr + origin[:, None] + place[None, :], mask=written[:, None], other=0.0)
        total += tl.sum(ds.to(tl.float32), 0)
    tl.store(sum_ptr + head * matrix + place, total)


@triton.jit
def diagonal_kernel(sum_ptr, dtable_ptr, queries, keys, line, tall, wide, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """Sum (heads, tall, wide) along diagonals: the gradient of the bias (heads, line), in units of log2(e)."""
    head = tl.program_id(1).to(tl.int64)
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    row = tl.arange(0, ROWS)
    total = tl.zeros([BLOCK], tl.float32)
    for start in tl.range(0, keys, ROWS):
        key = start + row
        query = line // 2 + key[:, None] - place[None, :]
        inside = (query >= 0) & (query < queries) & (key < keys)[:, None]
        total += tl.sum(tl.load(sum_ptr + (head * tall + key[:, None]) * wide + query, mask=inside, other=0.0), 0)
    tl.store(dtable_ptr + head * line + place, total / LOG2_E, mask=place < line)
