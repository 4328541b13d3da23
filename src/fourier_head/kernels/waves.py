"""What comes before and after an FFT: coefficients ready for it, log-probabilities from its values."""

from __future__ import annotations

import triton
import triton.language as tl

from fourier_head.kernels.phases import bin_turns, cos_sin
from fourier_head.kernels.rows import GUARD


@triton.jit(do_not_specialize=["harmonics", "half"])
def spread_kernel(
    y_ptr, wave_ptr, energy_ptr, tokens, harmonics, half, y_stride, points,
    SHIFT: tl.constexpr, WALLS: tl.constexpr, ROWS: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """Write a_l, scaled to a largest entry of one and padded with zeros, ready for an FFT.

    SHIFT: times e^{-i pi l b_0}, which moves the points of the FFT to the centres of as many bins.
    """
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    inside = rows < tokens
    y_rows = y_ptr + rows.to(tl.int64)[:, None] * y_stride
    largest = tl.zeros([ROWS], tl.float32)
    for start in tl.range(0, harmonics, TILE):
        l = start + tl.arange(0, TILE)
        keep = inside[:, None] & (l < harmonics)[None, :]
        alpha = tl.load(y_rows + l[None, :], mask=keep, other=0.0).to(tl.float32)
        beta = tl.zeros_like(alpha)
        if not WALLS:
            beta = tl.load(y_rows + half + l[None, :], mask=keep, other=0.0).to(tl.float32)
        largest = tl.maximum(largest, tl.max(tl.maximum(tl.abs(alpha), tl.abs(beta)), axis=1))
    inverse = 1.0 / tl.where(largest > 0.0, largest, 1.0)
    energy = tl.zeros([ROWS], tl.float32)
    high, low = bin_turns(tl.zeros([ROWS], tl.int32), points, False)
    wave_rows = wave_ptr + rows.to(tl.int64)[:, None] * (2 * points)
    for start in tl.range(0, points, TILE):
        l = start + tl.arange(0, TILE)
        keep = inside[:, None] & (l < harmonics)[None, :]
        alpha = tl.load(y_rows + l[None, :], mask=keep, other=0.0).to(tl.float32)
        beta = tl.zeros_like(alpha)
        if not WALLS:
            beta = tl.load(y_rows + half + l[None, :], mask=keep, other=0.0).to(tl.float32)
        alpha = alpha * inverse[:, None]
        beta = beta * inverse[:, None]
        energy += tl.sum(alpha * alpha + beta * beta, axis=1)
        if SHIFT:
            cos, sin = cos_sin(high[:, None], low[:, None], l[None, :], False)
            pair = tl.join(alpha * cos + beta * sin, beta * cos - alpha * sin)
        else:
            pair = tl.join(alpha, beta)
        pair = tl.reshape(pair, [ROWS, 2 * TILE])
        place = 2 * start + tl.arange(0, 2 * TILE)
        tl.store(wave_rows + place[None, :], pair, mask=inside[:, None] & (place < 2 * points)[None, :])
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
