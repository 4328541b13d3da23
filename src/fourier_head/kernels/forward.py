"""Project and evaluate in one kernel."""

from __future__ import annotations

import triton
import triton.language as tl

from fourier_head.kernels.rows import CONSTANTS, PER_POINT, SMALLEST, add_tile, finish_rows, put, row_turns


@triton.jit
def _load_x(x_rows, inner, start, width, EVEN: tl.constexpr, WIDEN: tl.constexpr):
    if EVEN:
        x = tl.load(x_rows + start)
    else:
        x = tl.load(x_rows + start, mask=inner[None, :] < width - start, other=0.0)
    if WIDEN:
        x = x.to(tl.float32)
    return x


@triton.jit
def _load_weight(weight_rows, inner, start, width, EVEN: tl.constexpr, WIDEN: tl.constexpr):
    if EVEN:
        w = tl.load(weight_rows + start)
    else:
        w = tl.load(weight_rows + start, mask=inner[:, None] < width - start, other=0.0)
    if WIDEN:
        w = w.to(tl.float32)
    return w


@triton.jit
def _outputs(start, half, WALLS: tl.constexpr, TILE: tl.constexpr):
    """Return the rows of the weights for a tile: alpha_l, beta_l alternate, so that a pair lies in one thread."""
    if WALLS:
        outputs = tl.minimum(start + tl.arange(0, TILE), half - 1)
    else:
        pair = tl.arange(0, 2 * TILE)
        outputs = tl.minimum(start + pair // 2, half - 1) + (pair % 2) * half
    return outputs


@triton.jit(do_not_specialize=["tokens", "vectors", "num_bins", "ignore_index", "harmonics"])
def project_kernel(
    x_ptr, weight_ptr, bias_ptr, target_ptr, offset_ptr, class_weight_ptr, y_ptr, table_ptr, loss_ptr, partial_ptr,
    x_stride, weight_stride, tokens, width, harmonics, vectors,
    num_bins, ignore_index, floor, units, penalty, omega, origin, unit,
    BIAS: tl.constexpr, TARGET: tl.constexpr, WALLS: tl.constexpr, WEIGHTED: tl.constexpr, REDUCE: tl.constexpr,
    MEAN: tl.constexpr, TABLE: tl.constexpr, POINTS: tl.constexpr, LANES: tl.constexpr, APPROX: tl.constexpr,
    ROWS: tl.constexpr, TILE: tl.constexpr, DEPTH: tl.constexpr, CHUNKS: tl.constexpr, EVEN: tl.constexpr,
    MASK: tl.constexpr, PREFETCH: tl.constexpr, WIDEN: tl.constexpr,
):  # fmt: skip
    """Compute y = x W^T + b a tile of harmonics at a time; sum along rows while the tile is in float32 registers.

    The rows of x stay on the chip (CHUNKS blocks of DEPTH features); the weights, ``harmonics`` rows in each of two
    halves, stream past them. MASK: the last tile is longer than what is left of them. Coefficients are kept for the
    backward pass in float16 relative to the largest entry so far, eleven bits where bfloat16 has eight.
    """
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    inside = rows < tokens
    high, low, counted, wrong, target = row_turns(
        target_ptr, rows, inside, num_bins, ignore_index, origin, unit, TARGET, WALLS
    )
    offset = tl.zeros([ROWS], tl.float32)
    if POINTS > 0:
        offset = tl.load(offset_ptr + rows, mask=inside, other=0.0)
    bits = tl.full([ROWS], SMALLEST, tl.int32)
    re = tl.zeros([ROWS], tl.float32)
    im = tl.zeros([ROWS], tl.float32)
    energy = tl.zeros([ROWS], tl.float32)
    sums = tl.zeros([ROWS, LANES], tl.float32)
    inner = tl.arange(0, DEPTH)
    # Rows past the end read the last row: their sums are dropped, and loads without a mask are the fast ones.
    x_rows = x_ptr + tl.minimum(rows, tokens - 1).to(tl.int64)[:, None] * x_stride + inner[None, :]
    x_0 = _load_x(x_rows, inner, 0, width, EVEN, WIDEN)
    if CHUNKS > 1:
        x_1 = _load_x(x_rows, inner, DEPTH, width, EVEN, WIDEN)
    if CHUNKS > 2:
        x_2 = _load_x(x_rows, inner, 2 * DEPTH, width, EVEN, WIDEN)
    if CHUNKS > 3:
        x_3 = _load_x(x_rows, inner, 3 * DEPTH, width, EVEN, WIDEN)
    padded = vectors * (16 if WALLS else 8)
    y_rows = y_ptr + rows.to(tl.int64)[:, None] * (vectors * 16)
    outputs = _outputs(0, harmonics, WALLS, TILE)
    weight_rows = weight_ptr + outputs.to(tl.int64)[None, :] * weight_stride + inner[:, None]
    if PREFETCH:
        w_0 = _load_weight(weight_rows, inner, 0, width, EVEN, WIDEN)
        if CHUNKS > 1:
            w_1 = _load_weight(weight_rows, inner, DEPTH, width, EVEN, WIDEN)
        if CHUNKS > 2:
            w_2 = _load_weight(weight_rows, inner, 2 * DEPTH, width, EVEN, WIDEN)
        if CHUNKS > 3:
            w_3 = _load_weight(weight_rows, inner, 3 * DEPTH, width, EVEN, WIDEN)
    for start in tl.range(0, harmonics, TILE):
        harmonic = start + tl.arange(0, TILE)
        tile = tl.zeros([ROWS, TILE if WALLS else 2 * TILE], tl.float32)
        if PREFETCH:
            # The weights of the next tile travel while this one is multiplied and summed.
            following = _outputs(start + TILE, harmonics, WALLS, TILE)
            weight_rows = weight_ptr + following.to(tl.int64)[None, :] * weight_stride + inner[:, None]
            v_0 = _load_weight(weight_rows, inner, 0, width, EVEN, WIDEN)
            tile = tl.dot(x_0, w_0, tile)
            w_0 = v_0
            if CHUNKS > 1:
                v_1 = _load_weight(weight_rows, inner, DEPTH, width, EVEN, WIDEN)
                tile = tl.dot(x_1, w_1, tile)
                w_1 = v_1
            if CHUNKS > 2:
                v_2 = _load_weight(weight_rows, inner, 2 * DEPTH, width, EVEN, WIDEN)
                tile = tl.dot(x_2, w_2, tile)
                w_2 = v_2
            if CHUNKS > 3:
                v_3 = _load_weight(weight_rows, inner, 3 * DEPTH, width, EVEN, WIDEN)
                tile = tl.dot(x_3, w_3, tile)
                w_3 = v_3
        else:
            here = _outputs(start, harmonics, WALLS, TILE)
            weight_rows = weight_ptr + here.to(tl.int64)[None, :] * weight_stride + inner[:, None]
            tile = tl.dot(x_0, _load_weight(weight_rows, inner, 0, width, EVEN, WIDEN), tile)
            if CHUNKS > 1:
                tile = tl.dot(x_1, _load_weight(weight_rows, inner, DEPTH, width, EVEN, WIDEN), tile)
            if CHUNKS > 2:
                tile = tl.dot(x_2, _load_weight(weight_rows, inner, 2 * DEPTH, width, EVEN, WIDEN), tile)
            if CHUNKS > 3:
                tile = tl.dot(x_3, _load_weight(weight_rows, inner, 3 * DEPTH, width, EVEN, WIDEN), tile)
        real = harmonic < harmonics
        if WALLS:
            alpha = tile
            beta = tl.zeros_like(alpha)
        else:
            alpha, beta = tl.split(tl.reshape(tile, [ROWS, TILE, 2]))
        if MASK:
            alpha = tl.where(real[None, :], alpha, 0.0)
            beta = tl.where(real[None, :], beta, 0.0)
        if BIAS:
            alpha += tl.load(bias_ptr + harmonic, mask=real, other=0.0).to(tl.float32)[None, :]
            if not WALLS:
                beta += tl.load(bias_ptr + harmonics + harmonic, mask=real, other=0.0).to(tl.float32)[None, :]
        bits, re, im, energy, sums, scaled, scaled_beta = add_tile(
            alpha, beta, start, high, low, offset, bits, re, im, energy, sums, ROWS, TILE, POINTS, LANES, APPROX
        )
        if TABLE:
            keep = inside[:, None] & (harmonic < padded)[None, :]
            tl.store(y_rows + harmonic[None, :], scaled.to(tl.float16), mask=keep)
            if not WALLS:
                tl.store(y_rows + padded + harmonic[None, :], scaled_beta.to(tl.float16), mask=keep)
            put(table_ptr, CONSTANTS + PER_POINT * POINTS + start // TILE, tokens, rows, inside, bits)
    finish_rows(
        table_ptr, loss_ptr, partial_ptr, class_weight_ptr, rows, inside, tokens, high, low, counted, wrong,
        target, bits, re, im, energy, sums, floor, units, penalty, omega, POINTS, LANES, WEIGHTED, REDUCE, MEAN, TABLE,
    )  # fmt: skip
