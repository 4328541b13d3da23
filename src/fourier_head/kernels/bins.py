r"""Log-probabilities of all bins by matrix products that write nothing but the result.

With harmonics split into even and odd ones, :math:`A = A_0 + A_1`, four bins share their cosines: at the centres
:math:`b, b + 1, -b, -b - 1` the sums :math:`\sum \alpha_l \cos \pi l b` and its like differ in signs only. So a quarter
of the bins is multiplied out, and each product with half of the harmonics.
"""

# The arguments of a kernel are what Triton makes of them: no type of the host describes them.
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import triton
import triton.language as tl

from fourier_head.kernels.phases import bin_turns, cos_sin
from fourier_head.kernels.rows import GUARD


@triton.jit
def _store(
    place, bins, keep, num_bins, re_even, im_even, re_odd, im_odd, floor, energy, shift,
):  # fmt: skip
    """Store the log-probabilities at a bin and half the circle away from it."""
    re = re_even + re_odd
    im = im_even + im_odd
    tl.store(
        place + bins[None, :], tl.log((1.0 - floor) * (re * re + im * im) + floor * energy + GUARD) - shift, mask=keep
    )
    re = re_even - re_odd
    im = im_even - im_odd
    there = tl.where(bins < num_bins // 2, bins + num_bins // 2, bins - num_bins // 2)
    # In the middle of a quarter two of the four bins are one: the first to claim it writes it.
    keep = keep & (there != num_bins - 1 - bins)[None, :]
    tl.store(
        place + there[None, :], tl.log((1.0 - floor) * (re * re + im * im) + floor * energy + GUARD) - shift, mask=keep
    )


@triton.jit
def _store_four(
    result_ptr, rows, inside, bins, num_bins, floor, energy, units,
    alpha_even_cos, alpha_even_sin, beta_even_cos, beta_even_sin,
    alpha_odd_cos, alpha_odd_sin, beta_odd_cos, beta_odd_sin,
):  # fmt: skip
    place = result_ptr + rows.to(tl.int64)[:, None] * num_bins
    quarter = (num_bins + 3) // 4
    keep = inside[:, None] & (bins < quarter)[None, :]
    energy = energy[:, None]
    shift = tl.log(energy + GUARD) + units
    _store(
        place, bins, keep, num_bins, alpha_even_cos + beta_even_sin, beta_even_cos - alpha_even_sin,
        alpha_odd_cos + beta_odd_sin, beta_odd_cos - alpha_odd_sin, floor, energy, shift,
    )  # fmt: skip
    _store(
        place, num_bins - 1 - bins, keep, num_bins, alpha_even_cos - beta_even_sin, beta_even_cos + alpha_even_sin,
        alpha_odd_cos - beta_odd_sin, beta_odd_cos + alpha_odd_sin, floor, energy, shift,
    )  # fmt: skip


@triton.jit
def _outputs(y_rows, output, keep):
    return tl.load(y_rows + output[None, :], mask=keep, other=0.0).to(tl.float32)


@triton.jit(do_not_specialize=["harmonics"])
def narrow_bins_kernel(
    y_ptr, result_ptr, tokens, harmonics, y_stride, num_bins, floor, units,
    PRECISION: tl.constexpr, APPROX: tl.constexpr, ROWS: tl.constexpr, LENGTH: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """Do everything in float32 for a head of at most 2 LENGTH harmonics."""
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    inside = rows < tokens
    y_rows = y_ptr + rows.to(tl.int64)[:, None] * y_stride
    even = 2 * tl.arange(0, LENGTH)
    odd = even + 1
    keep_even = inside[:, None] & (even < harmonics)[None, :]
    keep_odd = inside[:, None] & (odd < harmonics)[None, :]
    alpha_even = _outputs(y_rows, even, keep_even)
    alpha_odd = _outputs(y_rows, odd, keep_odd)
    beta_even = _outputs(y_rows, harmonics + even, keep_even)
    beta_odd = _outputs(y_rows, harmonics + odd, keep_odd)
    largest = tl.maximum(
        tl.maximum(tl.abs(alpha_even), tl.abs(alpha_odd)), tl.maximum(tl.abs(beta_even), tl.abs(beta_odd))
    )
    largest = tl.max(largest, axis=1)
    inverse = (1.0 / tl.where(largest > 0.0, largest, 1.0))[:, None]
    alpha_even = alpha_even * inverse
    alpha_odd = alpha_odd * inverse
    beta_even = beta_even * inverse
    beta_odd = beta_odd * inverse
    energy = alpha_even * alpha_even + alpha_odd * alpha_odd + beta_even * beta_even + beta_odd * beta_odd
    energy = tl.sum(energy, axis=1)
    for start in tl.range(0, (num_bins + 3) // 4, TILE):
        bins = start + tl.arange(0, TILE)
        high, low = bin_turns(bins, num_bins, False)
        cos_even, sin_even = cos_sin(high[None, :], low[None, :], even[:, None], APPROX)
        cos_odd, sin_odd = cos_sin(high[None, :], low[None, :], odd[:, None], APPROX)
        _store_four(
            result_ptr, rows, inside, bins, num_bins, floor, energy, units,
            tl.dot(alpha_even, cos_even, input_precision=PRECISION),
            tl.dot(alpha_even, sin_even, input_precision=PRECISION),
            tl.dot(beta_even, cos_even, input_precision=PRECISION),
            tl.dot(beta_even, sin_even, input_precision=PRECISION),
            tl.dot(alpha_odd, cos_odd, input_precision=PRECISION),
            tl.dot(alpha_odd, sin_odd, input_precision=PRECISION),
            tl.dot(beta_odd, cos_odd, input_precision=PRECISION),
            tl.dot(beta_odd, sin_odd, input_precision=PRECISION),
        )  # fmt: skip


@triton.jit(do_not_specialize=["harmonics"])
def sort_kernel(
    y_ptr, sorted_ptr, energy_ptr, tokens, harmonics, y_stride, length, ROWS: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """Write coefficients in float16, scaled to a largest entry of one, as (tokens, 4, length).

    In order: even alphas, odd alphas, even betas, odd betas, each with zeros behind it.
    """
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    inside = rows < tokens
    y_rows = y_ptr + rows.to(tl.int64)[:, None] * y_stride
    largest = tl.zeros([ROWS], tl.float32)
    for start in tl.range(0, harmonics, TILE):
        l = start + tl.arange(0, TILE)
        keep = inside[:, None] & (l < harmonics)[None, :]
        alpha = _outputs(y_rows, l, keep)
        beta = _outputs(y_rows, harmonics + l, keep)
        largest = tl.maximum(largest, tl.max(tl.maximum(tl.abs(alpha), tl.abs(beta)), axis=1))
    inverse = 1.0 / tl.where(largest > 0.0, largest, 1.0)
    energy = tl.zeros([ROWS], tl.float32)
    out_rows = sorted_ptr + rows.to(tl.int64)[:, None] * (4 * length)
    for start in tl.range(0, 2 * length, TILE):
        l = start + tl.arange(0, TILE)
        keep = inside[:, None] & (l < harmonics)[None, :]
        alpha = _outputs(y_rows, l, keep)
        beta = _outputs(y_rows, harmonics + l, keep)
        alpha = alpha * inverse[:, None]
        beta = beta * inverse[:, None]
        energy += tl.sum(alpha * alpha + beta * beta, axis=1)
        even, odd = tl.split(tl.reshape(alpha.to(tl.float16), [ROWS, TILE // 2, 2]))
        place = start // 2 + tl.arange(0, TILE // 2)
        keep = inside[:, None] & (place < length)[None, :]
        tl.store(out_rows + place[None, :], even, mask=keep)
        tl.store(out_rows + length + place[None, :], odd, mask=keep)
        even, odd = tl.split(tl.reshape(beta.to(tl.float16), [ROWS, TILE // 2, 2]))
        tl.store(out_rows + 2 * length + place[None, :], even, mask=keep)
        tl.store(out_rows + 3 * length + place[None, :], odd, mask=keep)
    tl.store(energy_ptr + rows, energy, mask=inside)


@triton.jit
def basis_kernel(basis_ptr, num_bins, length, ROWS: tl.constexpr, TILE: tl.constexpr, APPROX: tl.constexpr):
    """Write cos (even rows) and sin (odd rows) of a quarter of the bins: even harmonics, then odd ones, in float16."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.program_id(1) * TILE + tl.arange(0, TILE)
    harmonic = tl.where(column < length, 2 * column, 2 * (column - length) + 1)
    high, low = bin_turns(row // 2, num_bins, False)
    cos, sin = cos_sin(high[:, None], low[:, None], harmonic[None, :], APPROX)
    value = tl.where((row % 2 == 0)[:, None], cos, sin)
    # Padded bins are multiplied like any other and never stored.
    place = basis_ptr + row.to(tl.int64)[:, None] * (2 * length) + column[None, :]
    tl.store(place, value.to(tl.float16), mask=(column < 2 * length)[None, :])


@triton.jit
def wide_bins_kernel(
    sorted_ptr, basis_ptr, energy_ptr, result_ptr, tokens, length, num_bins, floor, units,
    ROWS: tl.constexpr, TILE: tl.constexpr, DEPTH: tl.constexpr, WIDEN: tl.constexpr,
):  # fmt: skip
    """Multiply sorted coefficients with the basis; sines and cosines of a bin lie beside each other, in one thread."""
    rows = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    inside = rows < tokens
    inner = tl.arange(0, DEPTH)
    a = sorted_ptr + tl.minimum(rows, tokens - 1).to(tl.int64)[:, None] * (4 * length) + inner[None, :]
    column = tl.program_id(0) * (2 * TILE) + tl.arange(0, 2 * TILE)
    b = basis_ptr + column.to(tl.int64)[None, :] * (2 * length) + inner[:, None]
    alpha_even = tl.zeros([ROWS, 2 * TILE], tl.float32)
    alpha_odd = tl.zeros([ROWS, 2 * TILE], tl.float32)
    beta_even = tl.zeros([ROWS, 2 * TILE], tl.float32)
    beta_odd = tl.zeros([ROWS, 2 * TILE], tl.float32)
    for start in tl.range(0, length, DEPTH):
        even = tl.load(b + start)
        odd = tl.load(b + length + start)
        a_0 = tl.load(a + start)
        a_1 = tl.load(a + length + start)
        b_0 = tl.load(a + 2 * length + start)
        b_1 = tl.load(a + 3 * length + start)
        if WIDEN:
            even = even.to(tl.float32)
            odd = odd.to(tl.float32)
            a_0 = a_0.to(tl.float32)
            a_1 = a_1.to(tl.float32)
            b_0 = b_0.to(tl.float32)
            b_1 = b_1.to(tl.float32)
        alpha_even = tl.dot(a_0, even, alpha_even)
        beta_even = tl.dot(b_0, even, beta_even)
        alpha_odd = tl.dot(a_1, odd, alpha_odd)
        beta_odd = tl.dot(b_1, odd, beta_odd)
    energy = tl.load(energy_ptr + rows, mask=inside, other=1.0)
    alpha_even_cos, alpha_even_sin = tl.split(tl.reshape(alpha_even, [ROWS, TILE, 2]))
    beta_even_cos, beta_even_sin = tl.split(tl.reshape(beta_even, [ROWS, TILE, 2]))
    alpha_odd_cos, alpha_odd_sin = tl.split(tl.reshape(alpha_odd, [ROWS, TILE, 2]))
    beta_odd_cos, beta_odd_sin = tl.split(tl.reshape(beta_odd, [ROWS, TILE, 2]))
    bins = tl.program_id(0) * TILE + tl.arange(0, TILE)
    _store_four(
        result_ptr, rows, inside, bins, num_bins, floor, energy, units, alpha_even_cos, alpha_even_sin, beta_even_cos,
        beta_even_sin, alpha_odd_cos, alpha_odd_sin, beta_odd_cos, beta_odd_sin,
    )  # fmt: skip
