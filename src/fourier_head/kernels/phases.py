"""Turn targets into phases inside a kernel: fixed-point turns, so no table and no loss of accuracy at high harmonics.

The phase of harmonic l at z is l * z / 2 turns of the circle (l * (z + 1) / 4 between walls). Turns are kept as 32-bit
fixed-point fractions, ``high``, with 16 further bits in ``low``. A product with an integer l then wraps round the
circle by itself, as unsigned integers do, and one conversion gives an angle in [-pi, pi), where cosines are cheap.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def bin_turns(target, num_bins, WALLS: tl.constexpr):
    """Return the turns per harmonic at the centre of bin ``target`` as (high, low), both uint32.

    By real numbers of 53 bits, of which 48 are kept: whole numbers of 64 bits take a hundred instructions to divide.
    """
    m = tl.zeros([1], tl.float64) + num_bins
    twice = 2.0 * target.to(tl.float64) + 1.0
    if WALLS:
        fixed = (twice * (70368744177664.0 / m)).to(tl.int64)  # of 2^48 a turn, which is 4 m
    else:
        twice = tl.where(twice < m, twice + m, twice - m)
        fixed = (twice * (140737488355328.0 / m)).to(tl.int64)  # which is 2 m
    return (fixed >> 16).to(tl.uint32), (fixed & 65535).to(tl.uint32)


@triton.jit
def value_turns(value, WALLS: tl.constexpr):
    """Return the turns per harmonic at a real ``value`` of [-1, 1] as (high, low), both uint32."""
    z = value.to(tl.float64)
    if WALLS:
        fixed = ((z + 1.0) * 70368744177664.0).to(tl.int64)  # 2^46: a quarter turn per unit
    else:
        fixed = (z * 140737488355328.0).to(tl.int64)  # 2^47: half a turn per unit
    return (fixed >> 16).to(tl.uint32), (fixed & 65535).to(tl.uint32)


@triton.jit
def offset_turns(offset, point, POINTS: tl.constexpr):
    """Return the turns of sample ``point`` of a circle cut in POINTS, shifted by ``offset`` in [0, 1) of a piece."""
    piece = 4294967296 // POINTS
    shift = (offset.to(tl.float64) * piece).to(tl.int64)
    return (shift + point * piece).to(tl.uint32)


@triton.jit
def cos_sin(high, low, harmonic, APPROX: tl.constexpr):
    """Return cos and sin of the phases of a tile; ``high``, ``low``: (rows, 1), ``harmonic``: (1, columns)."""
    h = harmonic.to(tl.uint32)
    turns = high * h
    if not APPROX:
        turns += (low * h) >> 16
    angle = turns.to(tl.int32, bitcast=True).to(tl.float32) * 1.4629180792671596e-9  # 2 pi / 2^32
    if APPROX:
        # The hardware's own cosine, absolute error 2^-20.5 on [-pi, pi]: far below the rounding of 16-bit inputs.
        cos = tl.inline_asm_elementwise("cos.approx.ftz.f32 $0, $1;", "=f,f", [angle], tl.float32, is_pure=True, pack=1)
        sin = tl.inline_asm_elementwise("sin.approx.ftz.f32 $0, $1;", "=f,f", [angle], tl.float32, is_pure=True, pack=1)
    else:
        cos = tl.cos(angle)
        sin = tl.sin(angle)
    return cos, sin


@triton.jit
def power_of_two_below(largest):
    """Return the bits of 2^e <= largest < 2^(e+1), e = -126 .. 126: a scale that multiplies without rounding."""
    bits = largest.to(tl.int32, bitcast=True) & 0x7F800000
    # These exponents keep both the scale and its inverse normal numbers; zeros stay zeros whatever the scale.
    return tl.minimum(tl.maximum(bits, 0x00800000), 0x7E800000)
