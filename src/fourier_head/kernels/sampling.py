r"""Draw exact samples in O(N), one binary digit after the other.

Shift K >= N + 1 equally spaced points by a random part of their distance. Whatever the shift, the values of
:math:`|A|^2` there add up to :math:`K \|a\|^2`, so it remains to choose one of K points, the squares of a discrete
Fourier transform. Its even and odd entries are the transforms of :math:`a_l + a_{l + K/2}` and
:math:`(a_l - a_{l + K/2}) e^{-2\pi i l / K}`; by Parseval's theorem the energies of these two are the chances of the
last binary digit, and the one drawn is half as long. Uniform noise, (2 + log2 K, tokens), decides on the floor, the
shift and each digit.
"""

from __future__ import annotations

import triton
import triton.language as tl

from fourier_head.kernels.phases import cos_sin


@triton.jit
def _halves(values, ROWS: tl.constexpr, HALF: tl.constexpr):
    return tl.split(tl.permute(tl.reshape(values, [ROWS, 2, HALF]), (0, 2, 1)))


@triton.jit
def _turn(re, im, high, LENGTH: tl.constexpr, APPROX: tl.constexpr):
    """Return (re + i im) e^{-i l x}, x in turns of 2^-32."""
    cos, sin = cos_sin(high[:, None], tl.zeros_like(high)[:, None], tl.arange(0, LENGTH)[None, :], APPROX)
    return re * cos + im * sin, im * cos - re * sin


@triton.jit(do_not_specialize=["harmonics", "padded"])
def sample_kernel(
    y_ptr, noise_ptr, z_ptr, tokens, harmonics, padded, y_stride, floor,
    WALLS: tl.constexpr, APPROX: tl.constexpr, POINTS: tl.constexpr, LEVELS: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """Draw a block of rows digit by digit."""
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    inside = rows < tokens
    noise = noise_ptr + rows
    l = tl.arange(0, POINTS)
    place = y_ptr + rows.to(tl.int64)[:, None] * y_stride + l[None, :]
    keep = inside[:, None] & (l < harmonics)[None, :]
    re = tl.load(place, mask=keep, other=0.0).to(tl.float32)
    im = tl.zeros_like(re)
    if not WALLS:
        im = tl.load(place + padded, mask=keep, other=0.0).to(tl.float32)
    largest = tl.max(tl.maximum(tl.abs(re), tl.abs(im)), axis=1)
    inverse = 1.0 / tl.where(largest > 0.0, largest, 1.0)
    re = re * inverse[:, None]
    im = im * inverse[:, None]
    shift = tl.load(noise + tokens, mask=inside, other=0.0)
    high = ((shift.to(tl.float64) / POINTS + 0.5) * 4294967296.0).to(tl.int64).to(tl.uint32)
    re, im = _turn(re, im, high, POINTS, APPROX)
    index = tl.zeros([ROWS], tl.float32)
    for level in tl.static_range(LEVELS):
        re_0, re_1 = _halves(re, ROWS, POINTS >> (level + 1))
        im_0, im_1 = _halves(im, ROWS, POINTS >> (level + 1))
        sum_re, sum_im = re_0 + re_1, im_0 + im_1
        other_re, other_im = re_0 - re_1, im_0 - im_1
        even = tl.sum(sum_re * sum_re + sum_im * sum_im, axis=1) + 1e-30
        odd = tl.sum(other_re * other_re + other_im * other_im, axis=1) + 1e-30
        digit = tl.load(noise + (2 + level) * tokens, mask=inside, other=0.0) * (even + odd) >= even
        re = tl.where(digit[:, None], other_re, sum_re)
        im = tl.where(digit[:, None], other_im, sum_im)
        step = tl.where(digit, 4294967296 // (POINTS >> level), 0).to(tl.uint32)
        re, im = _turn(re, im, step, POINTS >> (level + 1), APPROX)
        index += tl.where(digit, 1.0, 0.0) * (1 << level)
    z = 2.0 * (index + shift) / POINTS - 1.0
    z = tl.where(tl.load(noise, mask=inside, other=1.0) < floor, 2.0 * shift - 1.0, z)
    if WALLS:
        z = 2.0 * tl.abs(z) - 1.0
    tl.store(z_ptr + rows, z, mask=inside)
