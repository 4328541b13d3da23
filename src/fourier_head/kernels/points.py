r"""Values of |A|^2 at many equally spaced points, as log-probabilities of bins or as they are: nothing else is written.

Few harmonics are one matrix product with a table of cosines. Many go through a transform in two steps: with harmonics
:math:`l = Q l_1 + l_2` and points :math:`b = b_1 + P b_2`, m = PQ,

.. math:: e^{-i\theta_l(b)} = e^{-2\pi i l_1 (b_1 + s) / P} \, e^{-2\pi i l_2 (b_1 + s) / m} \, e^{-2\pi i l_2 b_2 / Q},

two small matrix products with a multiplication between them, all of it on the chip.
"""

from __future__ import annotations

import triton
import triton.language as tl

from fourier_head.kernels.phases import power_of_two_below
from fourier_head.kernels.rows import GUARD


@triton.jit
def _inverse_scale(largest):
    """Return a power of two that brings the largest entry of a row below two: nothing is rounded by it."""
    bits = power_of_two_below(largest)
    # 2^-e has the exponent bits 254 - (e + 127).
    return (0x7F000000 - bits).to(tl.float32, bitcast=True)


@triton.jit
def _result(re, im, energy, floor, units, scale, LOG: tl.constexpr):
    """Return log-probabilities, or the density without its floor times ``scale``."""
    power = re * re + im * im
    if LOG:
        return tl.log((1.0 - floor) * power + floor * energy + GUARD) - (tl.log(energy + GUARD) + units)
    return power * ((1.0 - floor) * scale / (energy + GUARD))


@triton.jit(do_not_specialize=["harmonics"])
def direct_kernel(
    y_ptr, table_ptr, result_ptr, tokens, harmonics, half, y_stride, points, floor, units, scale,
    WALLS: tl.constexpr, SPLIT: tl.constexpr, LOG: tl.constexpr, ROWS: tl.constexpr, LENGTH: tl.constexpr,
    TILE: tl.constexpr,
):  # fmt: skip
    """Multiply rows of at most LENGTH + 1 coefficients with a tile of a table, whose type is that of the products.

    SPLIT: with what rounding took from the table, too. The precision asked for is that of float32 tables; it says
    nothing to others.
    """
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    inside = rows < tokens
    y_rows = y_ptr + rows.to(tl.int64) * y_stride
    l = tl.arange(0, LENGTH)
    keep = inside[:, None] & (l + 1 < harmonics)[None, :]
    place = y_rows[:, None] + 1 + l[None, :]
    alpha = tl.load(place, mask=keep, other=0.0).to(tl.float32)
    # The constant wave needs no product: 2^k harmonics beside it fill an operand.
    alpha_0 = tl.load(y_rows, mask=inside, other=0.0).to(tl.float32)
    beta = tl.zeros_like(alpha)
    beta_0 = tl.zeros_like(alpha_0)
    if not WALLS:
        beta = tl.load(place + half, mask=keep, other=0.0).to(tl.float32)
        beta_0 = tl.load(y_rows + half, mask=inside, other=0.0).to(tl.float32)
    largest = tl.max(tl.maximum(tl.abs(alpha), tl.abs(beta)), axis=1)
    inverse = _inverse_scale(tl.maximum(largest, tl.maximum(tl.abs(alpha_0), tl.abs(beta_0))))
    alpha = alpha * inverse[:, None]
    beta = beta * inverse[:, None]
    alpha_0 = alpha_0 * inverse
    beta_0 = beta_0 * inverse
    energy = tl.sum(alpha * alpha + beta * beta, axis=1) + alpha_0 * alpha_0 + beta_0 * beta_0
    bins = tl.program_id(1) * TILE + tl.arange(0, TILE)
    entry = table_ptr + l[:, None] * points + bins[None, :]
    known = (bins < points)[None, :]
    cos = tl.load(entry, mask=known, other=0.0)
    sin = tl.load(entry + LENGTH * points, mask=known, other=0.0)
    a = alpha.to(cos.dtype)
    b = beta.to(cos.dtype)
    re = tl.dot(a, cos, input_precision="tf32x3")
    im = tl.dot(-a, sin, input_precision="tf32x3")
    if not WALLS:
        re = tl.dot(b, sin, re, input_precision="tf32x3")
        im = tl.dot(b, cos, im, input_precision="tf32x3")
    if SPLIT:
        cos = tl.load(entry + 2 * LENGTH * points, mask=known, other=0.0)
        sin = tl.load(entry + 3 * LENGTH * points, mask=known, other=0.0)
        re = tl.dot(a, cos, re, input_precision="tf32x3")
        im = tl.dot(-a, sin, im, input_precision="tf32x3")
        if not WALLS:
            re = tl.dot(b, sin, re, input_precision="tf32x3")
            im = tl.dot(b, cos, im, input_precision="tf32x3")
    value = _result(
        re + alpha_0[:, None], im + beta_0[:, None], energy[:, None], floor, units, scale, LOG
    ).to(result_ptr.dtype.element_ty)  # fmt: skip
    place = result_ptr + rows.to(tl.int64)[:, None] * points + bins[None, :]
    tl.store(place, value, mask=inside[:, None] & known)


@triton.jit(do_not_specialize=["harmonics"])
def four_step_kernel(
    y_ptr, first_ptr, between_ptr, second_ptr, result_ptr, tokens, harmonics, half, y_stride, outer, floor, units,
    scale, WALLS: tl.constexpr, LOG: tl.constexpr, STEPS: tl.constexpr, INNER: tl.constexpr, LENGTH: tl.constexpr,
    TILE: tl.constexpr,
):  # fmt: skip
    """Transform STEPS tokens, one after the other, at the points b_1 of a tile and all b_2."""
    b_1 = tl.program_id(1) * TILE + tl.arange(0, TILE)
    known = (b_1 < outer)[None, :]
    inner = tl.arange(0, INNER)
    length = tl.arange(0, LENGTH)
    entry = first_ptr + length[:, None] * outer + b_1[None, :]
    cos_1 = tl.load(entry, mask=known, other=0.0)
    sin_1 = tl.load(entry + LENGTH * outer, mask=known, other=0.0)
    entry = between_ptr + inner[:, None] * outer + b_1[None, :]
    cos = tl.load(entry, mask=known, other=0.0)
    sin = tl.load(entry + INNER * outer, mask=known, other=0.0)
    entry = second_ptr + inner[:, None] * INNER + inner[None, :]
    cos_2 = tl.load(entry)
    sin_2 = tl.load(entry + INNER * INNER)
    minus_sin_2 = -sin_2
    l = inner[:, None] + INNER * length[None, :]
    for step in tl.range(STEPS):
        token = tl.program_id(0) * STEPS + step
        place = y_ptr + token.to(tl.int64) * y_stride + l
        keep = l < tl.where(token < tokens, harmonics, 0)
        alpha = tl.load(place, mask=keep, other=0.0).to(tl.float32)
        beta = tl.zeros_like(alpha)
        if not WALLS:
            beta = tl.load(place + half, mask=keep, other=0.0).to(tl.float32)
        inverse = _inverse_scale(tl.max(tl.max(tl.maximum(tl.abs(alpha), tl.abs(beta)), axis=1), axis=0))
        alpha = alpha * inverse
        beta = beta * inverse
        energy = tl.sum(tl.sum(alpha * alpha + beta * beta, axis=1), axis=0)
        a = alpha.to(cos_1.dtype)
        re = tl.dot(a, cos_1)
        im = tl.dot(-a, sin_1)
        if not WALLS:
            b = beta.to(cos_1.dtype)
            re = tl.dot(b, sin_1, re)
            im = tl.dot(b, cos_1, im)
        turned_re = (re * cos + im * sin).to(cos_2.dtype)
        turned_im = (im * cos - re * sin).to(cos_2.dtype)
        re = tl.dot(cos_2, turned_re)
        re = tl.dot(sin_2, turned_im, re)
        im = tl.dot(cos_2, turned_im)
        im = tl.dot(minus_sin_2, turned_re, im)
        value = _result(re, im, energy, floor, units, scale, LOG).to(result_ptr.dtype.element_ty)
        place = result_ptr + token.to(tl.int64) * (outer * INNER) + inner[:, None] * outer + b_1[None, :]
        tl.store(place, value, mask=(b_1 < tl.where(token < tokens, outer, 0))[None, :])
