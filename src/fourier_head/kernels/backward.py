"""Turn stored coefficients into their gradient, and for narrow heads go on to the gradients of inputs and weights."""

from __future__ import annotations

import triton
import triton.language as tl

from fourier_head.kernels.rows import row_gradients, tile_gradient


@triton.jit(do_not_specialize=["harmonics"])
def gradient_kernel(
    y_ptr, gradient_ptr, table_ptr, offset_ptr, upstream_ptr, bias_gradient_ptr,
    tokens, harmonics, vectors, upstream_stride, penalty,
    NEED_BIAS: tl.constexpr, REDUCED: tl.constexpr, WALLS: tl.constexpr, POINTS: tl.constexpr,
    APPROX: tl.constexpr, TILE: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr, STEPS: tl.constexpr,
):  # fmt: skip
    """Write dL/dy, over y if asked, for STEPS x ROWS tokens of a block of harmonics; sum over tokens for the bias."""
    group = tl.program_id(0)
    start = tl.program_id(1) * BLOCK
    harmonic = start + tl.arange(0, BLOCK)
    real = harmonic < harmonics
    padded = vectors * (16 if WALLS else 8)
    stride = vectors * 16
    room = harmonic < padded
    total = tl.zeros([ROWS, BLOCK], tl.float32)
    total_beta = tl.zeros([ROWS, BLOCK], tl.float32)
    for step in tl.range(STEPS):
        rows = (group * STEPS + step) * ROWS + tl.arange(0, ROWS)
        inside = rows < tokens
        place = rows.to(tl.int64)[:, None] * stride + harmonic[None, :]
        keep = inside[:, None] & room[None, :]
        alpha = tl.load(y_ptr + place, mask=keep, other=0.0).to(tl.float32)
        beta = alpha
        if not WALLS:
            beta = tl.load(y_ptr + place + padded, mask=keep, other=0.0).to(tl.float32)
        grad_loss, grad_rough = row_gradients(
            upstream_ptr, table_ptr, tokens, upstream_stride, rows, inside, penalty, REDUCED
        )
        grad_alpha, grad_beta = tile_gradient(
            alpha, beta, start, harmonics, table_ptr, offset_ptr, rows, inside, tokens, grad_loss, grad_rough,
            WALLS, POINTS, APPROX, TILE, BLOCK,
        )  # fmt: skip
        grad_alpha = tl.where(real[None, :], grad_alpha, 0.0)
        tl.store(gradient_ptr + place, grad_alpha.to(gradient_ptr.dtype.element_ty), mask=keep)
        if not WALLS:
            grad_beta = tl.where(real[None, :], grad_beta, 0.0)
            tl.store(gradient_ptr + place + padded, grad_beta.to(gradient_ptr.dtype.element_ty), mask=keep)
        if NEED_BIAS:
            total += grad_alpha
            total_beta += grad_beta
    if NEED_BIAS:
        line = bias_gradient_ptr + group.to(tl.int64) * stride + harmonic
        tl.store(line, tl.sum(total, axis=0), mask=room)
        if not WALLS:
            tl.store(line + padded, tl.sum(total_beta, axis=0), mask=room)


@triton.jit(do_not_specialize=["harmonics"])
def narrow_kernel(
    x_ptr, weight_ptr, y_ptr, table_ptr, offset_ptr, upstream_ptr, x_gradient_ptr, partial_ptr,
    tokens, width, harmonics, vectors, x_stride, weight_stride, upstream_stride, penalty,
    NEED_X: tl.constexpr, NEED_WEIGHT: tl.constexpr, NEED_BIAS: tl.constexpr, REDUCED: tl.constexpr,
    WALLS: tl.constexpr, POINTS: tl.constexpr, APPROX: tl.constexpr, TILE: tl.constexpr, ROWS: tl.constexpr,
    STEPS: tl.constexpr, WIDTH: tl.constexpr, WIDEN: tl.constexpr,
):  # fmt: skip
    """Do a whole backward pass where all harmonics fit one tile: one program per STEPS x ROWS tokens, WIDTH features.

    Sums over tokens go to ``partial_ptr``: a matrix (outputs, width + 1) per group of tokens, the bias as last column.
    """
    group = tl.program_id(0)
    harmonic = tl.arange(0, TILE)
    real = harmonic < harmonics
    padded = vectors * (16 if WALLS else 8)
    stride = vectors * 16
    room = harmonic < padded
    feature = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    some = feature < width
    weights = weight_ptr + harmonic.to(tl.int64)[:, None] * weight_stride + feature[None, :]
    fits = real[:, None] & some[None, :]
    weight = tl.load(weights, mask=fits, other=0.0)
    weight_beta = weight
    if not WALLS:
        weight_beta = tl.load(weights + harmonics * weight_stride, mask=fits, other=0.0)
    if WIDEN:
        weight, weight_beta = weight.to(tl.float32), weight_beta.to(tl.float32)
    sums = tl.zeros([TILE, WIDTH], tl.float32)
    sums_beta = tl.zeros([TILE, WIDTH], tl.float32)
    total = tl.zeros([ROWS, TILE], tl.float32)
    total_beta = tl.zeros([ROWS, TILE], tl.float32)
    for step in tl.range(STEPS):
        rows = (group * STEPS + step) * ROWS + tl.arange(0, ROWS)
        inside = rows < tokens
        place = rows.to(tl.int64)[:, None] * stride + harmonic[None, :]
        keep = inside[:, None] & room[None, :]
        alpha = tl.load(y_ptr + place, mask=keep, other=0.0).to(tl.float32)
        beta = alpha
        if not WALLS:
            beta = tl.load(y_ptr + place + padded, mask=keep, other=0.0).to(tl.float32)
        grad_loss, grad_rough = row_gradients(
            upstream_ptr, table_ptr, tokens, upstream_stride, rows, inside, penalty, REDUCED
        )
        grad_alpha, grad_beta = tile_gradient(
            alpha, beta, 0, harmonics, table_ptr, offset_ptr, rows, inside, tokens, grad_loss, grad_rough,
            WALLS, POINTS, APPROX, TILE, TILE,
        )  # fmt: skip
        grad_alpha = tl.where(real[None, :], grad_alpha, 0.0)
        grad_beta = tl.where(real[None, :], grad_beta, 0.0)
        total += grad_alpha
        total_beta += grad_beta
        grad_alpha = grad_alpha.to(x_ptr.dtype.element_ty)
        grad_beta = grad_beta.to(x_ptr.dtype.element_ty)
        if WIDEN:
            grad_alpha, grad_beta = grad_alpha.to(tl.float32), grad_beta.to(tl.float32)
        wanted = inside[:, None] & some[None, :]
        if NEED_WEIGHT:
            x = tl.load(x_ptr + rows.to(tl.int64)[:, None] * x_stride + feature[None, :], mask=wanted, other=0.0)
            if WIDEN:
                x = x.to(tl.float32)
            sums = tl.dot(tl.trans(grad_alpha), x, sums)
            if not WALLS:
                sums_beta = tl.dot(tl.trans(grad_beta), x, sums_beta)
        if NEED_X:
            grad_x = tl.dot(grad_alpha, weight)
            if not WALLS:
                grad_x = tl.dot(grad_beta, weight_beta, grad_x)
            grad_x = grad_x.to(x_gradient_ptr.dtype.element_ty)
            tl.store(x_gradient_ptr + rows.to(tl.int64)[:, None] * width + feature[None, :], grad_x, mask=wanted)
    outputs = harmonics if WALLS else 2 * harmonics
    matrix = partial_ptr + group.to(tl.int64) * outputs * (width + 1)
    line = matrix + harmonic[:, None] * (width + 1)
    if NEED_WEIGHT:
        tl.store(line + feature[None, :], sums, mask=fits)
        if not WALLS:
            tl.store(line + harmonics * (width + 1) + feature[None, :], sums_beta, mask=fits)
    if NEED_BIAS:
        first = harmonic < tl.where(tl.program_id(1) == 0, harmonics, 0)
        last = matrix + harmonic * (width + 1) + width
        tl.store(last, tl.sum(total, axis=0), mask=first)
        if not WALLS:
            tl.store(last + harmonics * (width + 1), tl.sum(total_beta, axis=0), mask=first)


@triton.jit(do_not_specialize=["outputs"])
def gather_kernel(
    partial_ptr, weight_gradient_ptr, bias_gradient_ptr, groups, outputs, width,
    NEED_WEIGHT: tl.constexpr, NEED_BIAS: tl.constexpr, GROUPS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Add the partial sums of ``narrow_kernel`` over groups, always in the same order."""
    size = outputs * (width + 1)
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros([GROUPS, BLOCK], tl.float32)
    for start in tl.range(0, groups, GROUPS):
        group = start + tl.arange(0, GROUPS)
        keep = (group < groups)[:, None] & (place < size)[None, :]
        total += tl.load(partial_ptr + group.to(tl.int64)[:, None] * size + place[None, :], mask=keep, other=0.0)
    value = tl.sum(total, axis=0)
    output = place // (width + 1)
    feature = place % (width + 1)
    if NEED_WEIGHT:
        result = value.to(weight_gradient_ptr.dtype.element_ty)
        tl.store(weight_gradient_ptr + output * width + feature, result, mask=(place < size) & (feature < width))
    if NEED_BIAS:
        result = value.to(bias_gradient_ptr.dtype.element_ty)
        tl.store(bias_gradient_ptr + output, result, mask=(place < size) & (feature == width))


@triton.jit(do_not_specialize=["harmonics", "vectors"])
def bias_kernel(
    sums_ptr, result_ptr, groups, harmonics, vectors, WALLS: tl.constexpr, GROUPS: tl.constexpr, BLOCK: tl.constexpr
):
    """Add the sums of ``gradient_kernel`` over groups of tokens, and leave out what was padded."""
    padded = vectors * (16 if WALLS else 8)
    output = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    real = output < (harmonics if WALLS else 2 * harmonics)
    place = tl.where(output >= harmonics, output - harmonics + padded, output)
    total = tl.zeros([GROUPS, BLOCK], tl.float32)
    for start in tl.range(0, groups, GROUPS):
        group = start + tl.arange(0, GROUPS)
        keep = (group < groups)[:, None] & real[None, :]
        total += tl.load(sums_ptr + group.to(tl.int64)[:, None] * (vectors * 16) + place[None, :], mask=keep, other=0.0)
    tl.store(result_ptr + output, tl.sum(total, axis=0).to(result_ptr.dtype.element_ty), mask=real)
