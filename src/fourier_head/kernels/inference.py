"""Evaluate projected densities without gradients: log-probabilities of all bins, and quantiles."""

# The arguments of a kernel are what Triton makes of them: no type of the host describes them.
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import triton
import triton.language as tl

from fourier_head.kernels.phases import bin_turns, cos_sin
from fourier_head.kernels.rows import GUARD, row_sum


@triton.jit(do_not_specialize=["harmonics", "padded"])
def spread_kernel(
    y_ptr, bias_ptr, wave_ptr, energy_ptr, tokens, harmonics, padded, y_stride, num_bins,
    BIAS: tl.constexpr, ROWS: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """Write a_l e^{-i pi l b_0}, scaled to a largest entry near one and padded with zeros to m, ready for an FFT."""
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    inside = rows < tokens
    y_rows = y_ptr + rows.to(tl.int64)[:, None] * y_stride
    largest = tl.zeros([ROWS], tl.float32)
    for start in tl.range(0, harmonics, TILE):
        l = start + tl.arange(0, TILE)
        keep = inside[:, None] & (l < harmonics)[None, :]
        alpha = tl.load(y_rows + l[None, :], mask=keep, other=0.0)
        beta = tl.load(y_rows + padded + l[None, :], mask=keep, other=0.0)
        if BIAS:
            alpha += tl.load(bias_ptr + l, mask=l < harmonics, other=0.0).to(tl.float32)[None, :]
            beta += tl.load(bias_ptr + harmonics + l, mask=l < harmonics, other=0.0).to(tl.float32)[None, :]
        largest = tl.maximum(largest, tl.max(tl.maximum(tl.abs(alpha), tl.abs(beta)), axis=1))
    inverse = 1.0 / tl.where(largest > 0.0, largest, 1.0)
    energy = tl.zeros([ROWS], tl.float32)
    high, low = bin_turns(tl.zeros([ROWS], tl.int32), num_bins, False)
    wave_rows = wave_ptr + rows.to(tl.int64)[:, None] * (2 * num_bins)
    for start in tl.range(0, num_bins, TILE):
        l = start + tl.arange(0, TILE)
        keep = inside[:, None] & (l < harmonics)[None, :]
        alpha = tl.load(y_rows + l[None, :], mask=keep, other=0.0)
        beta = tl.load(y_rows + padded + l[None, :], mask=keep, other=0.0)
        if BIAS:
            alpha += tl.load(bias_ptr + l, mask=l < harmonics, other=0.0).to(tl.float32)[None, :]
            beta += tl.load(bias_ptr + harmonics + l, mask=l < harmonics, other=0.0).to(tl.float32)[None, :]
        alpha = alpha * inverse[:, None]
        beta = beta * inverse[:, None]
        energy += tl.sum(alpha * alpha + beta * beta, axis=1)
        cos, sin = cos_sin(high[:, None], low[:, None], l[None, :], False)
        pair = tl.reshape(tl.join(alpha * cos + beta * sin, beta * cos - alpha * sin), [ROWS, 2 * TILE])
        place = 2 * start + tl.arange(0, 2 * TILE)
        tl.store(wave_rows + place[None, :], pair, mask=inside[:, None] & (place < 2 * num_bins)[None, :])
    tl.store(energy_ptr + rows, energy, mask=inside)


@triton.jit
def log_mass_kernel(
    wave_ptr, energy_ptr, result_ptr, tokens, num_bins, floor, units, ROWS: tl.constexpr, TILE: tl.constexpr
):
    """Turn the values of A at all bins into log-probabilities."""
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    start = tl.program_id(1) * TILE
    inside = rows < tokens
    pairs = 2 * start + tl.arange(0, 2 * TILE)
    keep = inside[:, None] & (pairs < 2 * num_bins)[None, :]
    wave = tl.load(wave_ptr + rows.to(tl.int64)[:, None] * (2 * num_bins) + pairs[None, :], mask=keep, other=0.0)
    re, im = tl.split(tl.reshape(wave, [ROWS, TILE, 2]))
    energy = tl.load(energy_ptr + rows, mask=inside, other=1.0)
    mixed = (1.0 - floor) * (re * re + im * im) + (floor * energy + GUARD)[:, None]
    bins = start + tl.arange(0, TILE)
    keep = inside[:, None] & (bins < num_bins)[None, :]
    place = result_ptr + rows.to(tl.int64)[:, None] * num_bins + bins[None, :]
    tl.store(place, tl.log(mixed) - (tl.log(energy + GUARD) + units)[:, None], mask=keep)


@triton.jit(do_not_specialize=["harmonics", "half"])
def quantile_kernel(
    q_ptr, level_ptr, z_ptr, tokens, harmonics, half, q_stride, level_stride, token_stride, levels, omega,
    WALLS: tl.constexpr, LENGTH: tl.constexpr, ROWS: tl.constexpr, STEPS: tl.constexpr, APPROX: tl.constexpr,
):  # fmt: skip
    """Find F(z) = u by bisection in fixed point, one binary digit of z a step, for one level of a block of rows.

    F is monotone, so this cannot fail; the spectrum stays in registers, so a step costs four multiply-adds a harmonic.
    """
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    inside = rows < tokens
    k = tl.arange(0, LENGTH) + 1
    keep = inside[:, None] & (k <= harmonics)[None, :]
    place = q_ptr + rows.to(tl.int64)[:, None] * q_stride + (k - 1)[None, :]
    scale = (1.0 / (omega * k.to(tl.float32)))[None, :]
    # F(z) = (z + 1) / 2 + Re sum (alpha + i beta) e^{-i k x}, less its value at the left end.
    beta = tl.load(place, mask=keep, other=0.0) * scale
    if WALLS:
        alpha = tl.zeros_like(beta)
        left = tl.zeros([ROWS], tl.float32)
    else:
        alpha = tl.load(place + half, mask=keep, other=0.0) * scale
        left = tl.sum(alpha * (1.0 - 2.0 * (k % 2).to(tl.float32))[None, :], axis=1)
    level = tl.program_id(1)
    u = tl.load(level_ptr + rows.to(tl.int64) * token_stride + level * level_stride, mask=inside, other=0.5)
    position = tl.zeros([ROWS], tl.uint32)
    step = tl.full([ROWS], 2147483648, tl.uint32)
    for _ in tl.range(STEPS):
        trial = position + step
        turns = (trial >> 1) if WALLS else trial + 2147483648
        re, _im = row_sum(alpha, beta, 1, turns, tl.zeros_like(turns), ROWS, LENGTH, False, APPROX)
        value = trial.to(tl.float32) * 2.3283064365386963e-10 + (re - left)
        position = tl.where(value <= u, trial, position)
        step = step >> 1
    z = (position + step).to(tl.float32) * 4.656612873077393e-10 - 1.0
    z = tl.where(u <= 0.0, -1.0, tl.where(u >= 1.0, 1.0, z))
    tl.store(z_ptr + rows.to(tl.int64) * levels + level, z, mask=inside)
