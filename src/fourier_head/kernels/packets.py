r"""The density of one wave packet at one point, with its derivatives, inside a kernel.

Counted from the middle, harmonics j and -j of a packet add up to a real number, so that half of them will do:
:math:`p = C^2 / S` with :math:`C = \sum e^{-u^2/2} (\cos \pi j \delta - h u \sin \pi j \delta)`,
:math:`S = \sum e^{-u^2} (1 + h^2 u^2)`, u = j w and :math:`\delta = \mu - z`. Between walls the coefficients
:math:`c_j = e^{-u^2/2} (\cos \theta + h u \sin \theta)`, :math:`\theta = \pi j (\mu + 1) / 2`, are real themselves.
"""

# The arguments of a kernel are what Triton makes of them: no type of the host describes them.
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import triton
import triton.language as tl

from fourier_head.kernels.phases import cos_sin

PI = tl.constexpr(3.141592653589793)


@triton.jit
def _turns(place, PER_UNIT: tl.constexpr):
    """Return ``place`` in turns of half a harmonic as fixed-point numbers (high, low), columns."""
    fixed = (place * PER_UNIT).to(tl.int64)
    return (fixed >> 16).to(tl.uint32)[:, None], (fixed & 65535).to(tl.uint32)[:, None]


@triton.jit
def packet(
    mu, width, tilt, z, length, WALLS: tl.constexpr, APPROX: tl.constexpr, ROWS: tl.constexpr, TILE: tl.constexpr
):  # fmt: skip
    """Return (p, dp/dmu, dp/dw, dp/dh, dp/dz) of rows, p relative to the uniform density; z in float64."""
    c = tl.zeros([ROWS], tl.float32)
    s = c
    c_mu = c
    s_mu = c
    c_w = c
    s_w = c
    c_h = c
    s_h = c
    c_z = c
    stretch = width * 0.5 if WALLS else width
    if WALLS:
        high, low = _turns(mu.to(tl.float64) + 1.0, 35184372088832.0)  # 2^45: an eighth of a turn per unit
        z_high, z_low = _turns(z + 1.0, 35184372088832.0)
    else:
        high, low = _turns(mu.to(tl.float64) - z, 70368744177664.0)  # 2^46: a quarter
    even = 1 - length % 2
    half = (length + 1) // 2
    middle = 0.5 * even * stretch
    for start in tl.range(0, half, TILE):
        index = start + tl.arange(0, TILE)
        twice = 2 * index + even
        j = (0.5 * twice)[None, :]
        count = tl.where(index < half, tl.where(twice == 0, 1.0, 2.0), 0.0)[None, :]
        u = j * stretch[:, None]
        envelope = tl.exp(0.5 * ((middle * middle)[:, None] - u * u))
        cos, sin = cos_sin(high, low, twice[None, :], APPROX)
        bent = tilt[:, None] * u
        if WALLS:
            at_cos, at_sin = cos_sin(z_high, z_low, twice[None, :], APPROX)
            wave = envelope * (cos + bent * sin)
            by_mu = envelope * (bent * cos - sin) * j * (0.5 * PI)
            by_w = (tilt[:, None] * j * envelope * sin - u * j * wave) * 0.5
            by_h = envelope * u * sin
            once = count * at_cos
            twofold = 2.0 * count * wave
            c += tl.sum(once * wave, axis=1)
            s += tl.sum(count * wave * wave, axis=1)
            c_mu += tl.sum(once * by_mu, axis=1)
            s_mu += tl.sum(twofold * by_mu, axis=1)
            c_w += tl.sum(once * by_w, axis=1)
            s_w += tl.sum(twofold * by_w, axis=1)
            c_h += tl.sum(once * by_h, axis=1)
            s_h += tl.sum(twofold * by_h, axis=1)
            c_z -= tl.sum(count * wave * at_sin * j, axis=1) * (0.5 * PI)
        else:
            once = count * envelope
            twofold = once * envelope
            wave = once * (cos - bent * sin)
            c += tl.sum(wave, axis=1)
            s += tl.sum(twofold * (1.0 + bent * bent), axis=1)
            c_mu -= tl.sum(once * j * (sin + bent * cos), axis=1) * PI
            c_w -= tl.sum(j * (u * wave + tilt[:, None] * once * sin), axis=1)
            s_w += tl.sum(2.0 * j * twofold * (tilt[:, None] * bent - u * (1.0 + bent * bent)), axis=1)
            c_h -= tl.sum(once * u * sin, axis=1)
            s_h += tl.sum(2.0 * twofold * bent * u, axis=1)
    if not WALLS:
        c_z = -c_mu
    # C^2 / S, and its derivative 2 C C' / S - C^2 S' / S^2.
    twice_c = 2.0 * c / s
    p = c * c / s
    p_s = p / s
    return p, twice_c * c_mu - p_s * s_mu, twice_c * c_w - p_s * s_w, twice_c * c_h - p_s * s_h, twice_c * c_z
