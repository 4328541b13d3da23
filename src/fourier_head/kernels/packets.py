r"""The densities of wave packets at one point of each row, with their derivatives, inside a kernel.

Counted from the middle, harmonics j and -j of a packet add up to a real number, so that half of them will do:
:math:`p = C^2 / S` with :math:`C = \sum e^{-u^2/2} (\cos \pi j \delta - h u \sin \pi j \delta)`,
:math:`S = \sum e^{-u^2} (1 + h^2 u^2)`, u = j w and :math:`\delta = \mu - z`. Between walls the coefficients
:math:`c_j = e^{-u^2/2} (\cos \theta + h u \sin \theta)`, :math:`\theta = \pi j (\mu + 1) / 2`, are real themselves.
"""

from __future__ import annotations

import triton
import triton.language as tl

from fourier_head.kernels.phases import cos_sin

PI = tl.constexpr(3.141592653589793)
# Harmonics this far out in the envelope are e^-32 of the middle ones: nothing in float32.
REACH = tl.constexpr(8.0)
STEP = tl.constexpr(16)
# A packet whose harmonics all vanish has no direction to go.
LEAST = tl.constexpr(1e-30)


@triton.jit
def _turns(place, PER_UNIT: tl.constexpr):
    """Return ``place`` in turns of half a harmonic as fixed-point numbers (high, low), a dimension added."""
    fixed = (place * PER_UNIT).to(tl.int64)
    return (fixed >> 16).to(tl.uint32)[:, :, None], (fixed & 65535).to(tl.uint32)[:, :, None]


@triton.jit
def packets(
    mu, width, tilt, z, length, WALLS: tl.constexpr, APPROX: tl.constexpr, ROWS: tl.constexpr, LANES: tl.constexpr
):  # fmt: skip
    """Return (p, dp/dmu, dp/dw, dp/dh, dp/dz) of packets (rows, lanes), p relative to the uniform density; z (rows,).

    As far as envelopes reach: wide packets have few harmonics, whatever N is.
    """
    zero = tl.zeros([ROWS, LANES, STEP], tl.float32)
    c = zero
    s = zero
    c_mu = zero
    s_mu = zero
    c_w = zero
    s_w = zero
    c_h = zero
    s_h = zero
    c_z = zero
    stretch = width * 0.5 if WALLS else width
    at = z[:, None]
    if WALLS:
        high, low = _turns(mu.to(tl.float64) + 1.0, 35184372088832.0)  # 2^45: an eighth of a turn per unit
        z_high, z_low = _turns(at + 1.0, 35184372088832.0)
    else:
        high, low = _turns(mu.to(tl.float64) - at, 70368744177664.0)  # 2^46: a quarter
    even = 1 - length % 2
    half = (length + 1) // 2
    middle = (0.5 * even * stretch)[:, :, None]
    h = tilt[:, :, None]
    narrowest = tl.min(tl.min(stretch, axis=1), axis=0)
    # The tensor first: the interpreter of triton 3.7 keeps what a constant is divided by for a constant.
    last = tl.minimum(1.0 / narrowest * REACH + 2.0, half * 1.0).to(tl.int32)
    for start in tl.range(0, last, STEP):
        index = start + tl.arange(0, STEP)
        twice = 2 * index + even
        j = (0.5 * twice)[None, None, :]
        count = tl.where(index < half, tl.where(twice == 0, 1.0, 2.0), 0.0)[None, None, :]
        u = j * stretch[:, :, None]
        envelope = tl.exp(0.5 * (middle * middle - u * u))
        cos, sin = cos_sin(high, low, twice[None, None, :], APPROX)
        bent = h * u
        if WALLS:
            at_cos, at_sin = cos_sin(z_high, z_low, twice[None, None, :], APPROX)
            wave = envelope * (cos + bent * sin)
            by_mu = envelope * (bent * cos - sin) * j * (0.5 * PI)
            by_w = (h * j * envelope * sin - u * j * wave) * 0.5
            by_h = envelope * u * sin
            once = count * at_cos
            twofold = 2.0 * count * wave
            c += once * wave
            s += count * wave * wave
            c_mu += once * by_mu
            s_mu += twofold * by_mu
            c_w += once * by_w
            s_w += twofold * by_w
            c_h += once * by_h
            s_h += twofold * by_h
            c_z -= count * wave * at_sin * j * (0.5 * PI)
        else:
            once = count * envelope
            twofold = once * envelope
            wave = once * (cos - bent * sin)
            c += wave
            s += twofold * (1.0 + bent * bent)
            c_mu -= once * j * (sin + bent * cos) * PI
            c_w -= j * (u * wave + h * once * sin)
            s_w += 2.0 * j * twofold * (h * bent - u * (1.0 + bent * bent))
            c_h -= once * u * sin
            s_h += 2.0 * twofold * bent * u
    # C^2 / S, and its derivative 2 C C' / S - C^2 S' / S^2.
    energy = tl.sum(s, axis=2) + LEAST
    twice_c = 2.0 * tl.sum(c, axis=2) / energy
    p = 0.25 * twice_c * twice_c * energy
    per_s = p / energy
    by_mu = twice_c * tl.sum(c_mu, axis=2)
    by_z = -by_mu
    if WALLS:
        by_mu -= per_s * tl.sum(s_mu, axis=2)
        by_z = twice_c * tl.sum(c_z, axis=2)
    by_w = twice_c * tl.sum(c_w, axis=2) - per_s * tl.sum(s_w, axis=2)
    by_h = twice_c * tl.sum(c_h, axis=2) - per_s * tl.sum(s_h, axis=2)
    return p, by_mu, by_w, by_h, by_z
