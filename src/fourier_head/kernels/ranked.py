r"""The continuous ranked probability score of projected rows and its gradient in one pass, up to 64 frequencies.

The score is a sum over the spectrum. Its q come from :math:`|A|^2` at as many points as determine it: a product of the
coefficients with a table of cosines, squares, and a product back; the gradient goes the same way once more. All of it
stays on the chip. What differs between domains stands in a few rows of a table (`tables.ranked_terms`): with
:math:`\epsilon` the weight of the tails, y the outcome clamped to [-1, 1], y' before,

.. math:: (1 - \epsilon) \bigl(c + b \tfrac{y^2}{2} - 2 g y + (1 - \epsilon)(Q + 2 g^2) - 2 S(y) + |y' - y|\bigr)
    + \epsilon (|y'| + e^{-|y'|}) + \epsilon (1 - \epsilon) D + const

with :math:`Q = \sum Q_k |q_k|^2`, :math:`g = \sum g_k \mathrm{Im}\, q_k`, :math:`D = \sum D_k \mathrm{Re}\, q_k` and
:math:`S = \mathrm{Re} \sum S_k q_k e^{i \omega_k y}`: `spectrum.crps_with_tails` with its terms collected.
"""

from __future__ import annotations

import triton
import triton.language as tl

from fourier_head.kernels.likelihood import load_rows, put_rows
from fourier_head.kernels.phases import cos_sin
from fourier_head.kernels.places import put_losses, put_place, put_zeros, value_target
from fourier_head.kernels.rows import GUARD


@triton.jit
def product(a, b, HALF: tl.constexpr):
    """Multiply matrices in float32; HALF: of float16 numbers, whose eleven bits are three more than inputs have."""
    if HALF:
        result = tl.dot(a.to(tl.float16), b.to(tl.float16))
    else:
        result = tl.dot(a, b, input_precision="ieee")
    return result


@triton.jit(do_not_specialize=["tokens", "harmonics", "outputs", "y_stride", "gradient_stride", "first_place"])
def ranked_kernel(
    y_ptr, bias_ptr, target_ptr, anchor_ptr, cos_ptr, sin_ptr, terms_ptr, gradient_ptr, loss_ptr, partial_ptr,
    factor_ptr, tokens, harmonics, outputs, y_stride, gradient_stride, first_place, floor, origin,
    unit, tails, omega, gain, length, constant, bow, count, rounded,
    TARGET: tl.constexpr, WALLS: tl.constexpr, PLACES: tl.constexpr, BIAS: tl.constexpr, REDUCE: tl.constexpr,
    MEAN: tl.constexpr, GRAD: tl.constexpr, APPROX: tl.constexpr, HALF: tl.constexpr,
    ROWS: tl.constexpr, TILE: tl.constexpr, POINTS: tl.constexpr,
):  # fmt: skip
    """Reduce every row of y to its score and write the gradient of that; ``length`` is what a unit of z is worth."""
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    inside = rows < tokens
    y_rows = y_ptr + rows.to(tl.int64) * y_stride
    high, low, z, counted, _, v, width, pull, guess = value_target(
        target_ptr, anchor_ptr, y_rows, bias_ptr, first_place, rows, inside, origin, unit, TARGET, WALLS, PLACES, BIAS
    )
    y = z.to(tl.float32)
    far = v if PLACES > 0 else y

    alpha, beta, scale = load_rows(y_rows, bias_ptr, harmonics, inside, WALLS, BIAS, TILE)
    per_energy = 1.0 / (tl.sum(alpha * alpha + beta * beta, axis=1) + GUARD)

    # The spectrum, from the power at points.
    k = tl.arange(0, TILE)
    point = tl.arange(0, POINTS)
    table = k[:, None] * POINTS + point[None, :]
    cosine = tl.load(cos_ptr + table)
    sine = tl.load(sin_ptr + table)
    re = product(alpha, cosine, HALF)
    im = -product(alpha, sine, HALF)
    if not WALLS:
        re += product(beta, sine, HALF)
        im += product(beta, cosine, HALF)
    share = (1.0 - floor) / POINTS
    mix = share * per_energy[:, None]
    power = (re * re + im * im) * per_energy[:, None]
    q_re = product(power, tl.trans(cosine), HALF) * share
    q_im = tl.zeros_like(q_re)
    if not WALLS:
        q_im = -product(power, tl.trans(sine), HALF) * share

    # The score.
    series = tl.load(terms_ptr + k)[None, :]
    square = tl.load(terms_ptr + TILE + k)[None, :]
    linear = tl.load(terms_ptr + 2 * TILE + k)[None, :]
    means = tl.load(terms_ptr + 3 * TILE + k)[None, :]
    cos, sin = cos_sin(high[:, None], low[:, None], k[None, :], APPROX)
    wave = tl.sum(series * (q_re * cos - q_im * sin), axis=1)
    quadratic = tl.sum(square * (q_re * q_re + q_im * q_im), axis=1)
    others = tl.sum(linear * q_re, axis=1)
    g = tl.sum(means * q_im, axis=1)
    rest = 1.0 - tails
    away = tl.abs(far)
    fade = tl.exp(-away)
    # Less the distance from the middle, far beyond which a score would be lost in the rounding of that distance.
    core = bow * 0.5 * y * y - 2.0 * g * y + rest * (quadratic + 2.0 * g * g) - 2.0 * wave
    excess = rest * (core - tl.abs(y)) + tails * (fade + rest * others) + constant
    worth = length * width
    loss = tl.where(counted, (away + excess) * worth, 0.0)
    weight = tl.where(counted, 1.0, 0.0)

    if GRAD:
        gradient_rows = gradient_ptr + rows.to(tl.int64) * gradient_stride
        per_row = weight * gain * worth * rest
        of_g = (4.0 * rest * g - 2.0 * y)[:, None] * means
        of_re = 2.0 * rest * square * q_re - 2.0 * series * cos + tails * linear
        of_im = 2.0 * rest * square * q_im + 2.0 * series * sin + of_g
        along = tl.sum(of_re * q_re + of_im * q_im, axis=1)
        of_power = product(of_re, cosine, HALF)
        if not WALLS:
            of_power -= product(of_im, sine, HALF)
        re = re * of_power
        im = im * of_power
        grad_alpha = product(re, tl.trans(cosine), HALF)
        grad_alpha -= product(im, tl.trans(sine), HALF)
        per_row *= 2.0 * scale
        along = (along * per_energy)[:, None]
        grad_alpha = (grad_alpha * mix - alpha * along) * per_row[:, None]
        grad_beta = beta
        if not WALLS:
            grad_beta = product(re, tl.trans(sine), HALF) + product(im, tl.trans(cosine), HALF)
            grad_beta = (grad_beta * mix - beta * along) * per_row[:, None]
        put_rows(gradient_rows, 0, harmonics, inside, grad_alpha, grad_beta, WALLS, False, TILE)
        if PLACES > 0:
            turned = tl.sum(series * k[None, :] * (q_re * sin + q_im * cos), axis=1) * omega
            side = tl.where(v < 0.0, -1.0, 1.0)
            by_v = rest * tl.where(away <= 1.0, y - 2.0 * g + 2.0 * turned - side, 0.0) - tails * side * fade
            per_unit = weight * gain * length
            of_width = tl.where(counted, (excess - v * by_v) * per_unit, 0.0)
            of_loc = tl.where(counted, -(side + by_v) * per_unit, 0.0)
            put_place(gradient_rows, y_rows, bias_ptr, first_place, inside, of_loc, of_width, pull, guess, PLACES, BIAS)
        # Between the coefficients and the place there are atoms, which are no part of the density.
        coefficients = harmonics if WALLS else 2 * harmonics
        put_zeros(gradient_rows, coefficients, first_place, inside)
        put_zeros(gradient_rows, outputs, gradient_stride, inside)
    put_losses(
        loss_ptr, partial_ptr, factor_ptr, rows, inside, loss, weight, tl.zeros_like(loss), counted, 0.0, count,
        rounded, REDUCE, MEAN, False, False,
    )  # fmt: skip
