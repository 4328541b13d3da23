"""What happens to a tile of coefficients: sums along the row going forward, stored constants, gradients going back."""

from __future__ import annotations

import triton
import triton.language as tl

from fourier_head.kernels.phases import cos_sin, offset_turns, power_of_two_below
from fourier_head.kernels.places import bin_target, put_losses, value_target

# Rows of the table of constants kept per token (int32, floats by their bits), each as long as there are tokens.
# After these come four per point of the roughness, then the scale of every tile of stored coefficients.
ENERGY = tl.constexpr(0)
COS = tl.constexpr(1)
SIN = tl.constexpr(2)
SCALE = tl.constexpr(3)
HIGH = tl.constexpr(4)
LOW = tl.constexpr(5)
WEIGHT = tl.constexpr(6)
ROUGH = tl.constexpr(7)
FACTOR = tl.constexpr(8)  # one number for all: what gradients are multiplied with
CONSTANTS = tl.constexpr(9)
PER_POINT = tl.constexpr(4)

# Added to energies of coefficients scaled to a largest entry in [1, 2): makes a = 0 uniform, keeps logarithms finite.
GUARD = tl.constexpr(1e-12)
SMALLEST = tl.constexpr(0x00800000)


@triton.jit
def row_turns(
    target_ptr, rows, inside, num_bins, ignore_index, origin, unit, TARGET: tl.constexpr, WALLS: tl.constexpr
):
    """Return (high, low, counted, wrong, target) of a block of rows; ignored ids and missing values do not count."""
    if TARGET == 0:
        high, low, _, counted, wrong, _, target = bin_target(target_ptr, rows, inside, num_bins, 0, ignore_index, WALLS)
    else:
        high, low, _, counted, _, _, _, _, _ = value_target(
            target_ptr, target_ptr, target_ptr, target_ptr, 0, rows, inside, origin, unit, TARGET, WALLS, 0, False
        )
        wrong = rows < 0
        target = tl.zeros_like(rows)
    return high, low, counted, wrong, target


@triton.jit
def _arrange(values, ROWS: tl.constexpr, TILE: tl.constexpr):
    """Return (rows, groups, members) of a tile so that the members of a group lie in one thread.

    Group g has the harmonics l = 4 j + g, the way matrix units hand out results.
    """
    return tl.permute(tl.reshape(values, [ROWS, TILE // 4, 4]), (0, 2, 1))


@triton.jit
def row_sum(alpha, beta, start, high, low, ROWS: tl.constexpr, TILE: tl.constexpr, APPROX: tl.constexpr):
    """Return the real and imaginary part of sum_l (alpha_l + i beta_l) e^{-i l x} over a tile.

    Neighbours are added two by two, a_2k + a_2k+1 e^{-i x}, then x is doubled: four multiply-adds per harmonic, and
    only the few sums left at the end need a cosine of their own.
    """
    GROUPS: tl.constexpr = 4
    MEMBERS: tl.constexpr = TILE // GROUPS
    LEVELS: tl.constexpr = 2 if MEMBERS == 4 else (3 if MEMBERS == 8 else 4)
    re = _arrange(alpha, ROWS, TILE)
    im = _arrange(beta, ROWS, TILE)
    one = tl.full([1], 1, tl.int32)
    for level in tl.static_range(LEVELS):
        cos, sin = cos_sin(high, low, one * (GROUPS << level), APPROX)
        cos = cos[:, None, None]
        sin = sin[:, None, None]
        re_0, re_1 = tl.split(tl.reshape(re, [ROWS, GROUPS, MEMBERS >> (level + 1), 2]))
        im_0, im_1 = tl.split(tl.reshape(im, [ROWS, GROUPS, MEMBERS >> (level + 1), 2]))
        re = re_0 + re_1 * cos + im_1 * sin
        im = im_0 + im_1 * cos - re_1 * sin
    re = tl.reshape(re, [ROWS, GROUPS])
    im = tl.reshape(im, [ROWS, GROUPS])
    harmonic = start + tl.arange(0, GROUPS)
    cos, sin = cos_sin(high[:, None], low[:, None], harmonic[None, :], APPROX)
    return tl.sum(re * cos + im * sin, axis=1), tl.sum(im * cos - re * sin, axis=1)


@triton.jit
def add_tile(
    alpha, beta, start, high, low, offset, bits, re, im, energy, sums,
    ROWS: tl.constexpr, TILE: tl.constexpr, POINTS: tl.constexpr, LANES: tl.constexpr, APPROX: tl.constexpr,
):  # fmt: skip
    """Add (rows, harmonics) tiles to the running sums; the energy is kept relative to the largest entry seen so far."""
    part_re, part_im = row_sum(alpha, beta, start, high, low, ROWS, TILE, APPROX)
    re += part_re
    im += part_im
    largest = tl.max(tl.maximum(tl.abs(alpha), tl.abs(beta)), axis=1)
    new_bits = tl.maximum(power_of_two_below(largest), bits)
    inverse = (0x7F000000 - new_bits).to(tl.float32, bitcast=True)
    shrink = bits.to(tl.float32, bitcast=True) * inverse
    scaled = alpha * inverse[:, None]
    scaled_beta = beta * inverse[:, None]
    energy = energy * shrink * shrink + tl.sum(scaled * scaled + scaled_beta * scaled_beta, axis=1)
    if POINTS > 0:
        lane = tl.arange(0, LANES)[None, :]
        l = (start + tl.arange(0, TILE)).to(tl.float32)[None, :]
        by_harmonic = alpha * l
        by_harmonic_beta = beta * l
        for point in tl.static_range(POINTS):
            turns = offset_turns(offset, point, POINTS)
            none = tl.zeros_like(turns)
            a_re, a_im = row_sum(alpha, beta, start, turns, none, ROWS, TILE, APPROX)
            b_re, b_im = row_sum(by_harmonic, by_harmonic_beta, start, turns, none, ROWS, TILE, APPROX)
            base = PER_POINT * point
            sums += tl.where(lane == base, a_re[:, None], 0.0)
            sums += tl.where(lane == base + 1, a_im[:, None], 0.0)
            sums += tl.where(lane == base + 2, b_im[:, None], 0.0)
            sums -= tl.where(lane == base + 3, b_re[:, None], 0.0)
    return new_bits, re, im, energy, sums, scaled, scaled_beta


@triton.jit
def pick(sums, lane, index):
    """Return one column of a few."""
    return tl.sum(tl.where(lane == index, sums, 0.0), axis=1)


@triton.jit
def put(table_ptr, index, tokens, rows, inside, value):
    """Store one constant per token."""
    tl.store(table_ptr + tokens * index + rows, value.to(tl.int32, bitcast=True), mask=inside)


@triton.jit
def get(table_ptr, index, tokens, rows, inside):
    """Load one constant per token as a column."""
    return tl.load(table_ptr + tokens * index + rows, mask=inside, other=0).to(tl.float32, bitcast=True)[:, None]


@triton.jit
def finish_rows(
    table_ptr, loss_ptr, partial_ptr, class_weight_ptr, rows, inside, tokens, high, low, counted, wrong,
    target, bits, re, im, energy, sums, floor, units, penalty, omega,
    POINTS: tl.constexpr, LANES: tl.constexpr, WEIGHTED: tl.constexpr, REDUCE: tl.constexpr, MEAN: tl.constexpr,
    TABLE: tl.constexpr,
):  # fmt: skip
    """Turn sums into losses, per token or as one partial sum per program, and into the constants of the gradient."""
    inverse = (0x7F000000 - bits).to(tl.float32, bitcast=True)
    re *= inverse
    im *= inverse
    total = energy + GUARD
    mixed = (1.0 - floor) * (re * re + im * im) + floor * energy + GUARD
    loss = tl.where(counted, units + tl.log(total) - tl.log(mixed), 0.0)
    # A target that is no bin must not pass for one: its loss is not a number.
    loss = tl.where(wrong, float("nan"), loss)
    one = tl.where(counted, 1.0, 0.0)
    weight = one
    if WEIGHTED:
        weight = tl.load(class_weight_ptr + target, mask=counted, other=0.0).to(tl.float32)
    if TABLE:
        put(table_ptr, ENERGY, tokens, rows, inside, one * 2.0 * (1.0 / total - floor / mixed))
        put(table_ptr, COS, tokens, rows, inside, one * -2.0 * (1.0 - floor) * re / mixed)
        put(table_ptr, SIN, tokens, rows, inside, one * 2.0 * (1.0 - floor) * im / mixed)
        # Coefficients that are all zero have no scale; one keeps their zero gradient from becoming zero times infinity.
        put(table_ptr, SCALE, tokens, rows, inside, tl.where(bits == SMALLEST, 1.0, inverse))
        put(table_ptr, HIGH, tokens, rows, inside, high)
        put(table_ptr, LOW, tokens, rows, inside, low)
        put(table_ptr, WEIGHT, tokens, rows, inside, weight)
    rough = tl.zeros_like(loss)
    if POINTS > 0:
        lane = tl.arange(0, LANES)[None, :]
        sums = sums * inverse[:, None]
        gain = one * (1.0 - floor) * omega / total
        for point in tl.static_range(POINTS):
            a_re = pick(sums, lane, PER_POINT * point)
            a_im = pick(sums, lane, PER_POINT * point + 1)
            b_re = pick(sums, lane, PER_POINT * point + 2)
            b_im = pick(sums, lane, PER_POINT * point + 3)
            slope = gain * (a_re * b_re + a_im * b_im)
            rough += slope * slope * (2.0 / POINTS)
            if TABLE:
                factor = slope * gain * (4.0 / POINTS)
                base = CONSTANTS + PER_POINT * point
                put(table_ptr, base, tokens, rows, inside, factor * b_re)
                put(table_ptr, base + 1, tokens, rows, inside, -factor * a_im)
                put(table_ptr, base + 2, tokens, rows, inside, -factor * b_im)
                put(table_ptr, base + 3, tokens, rows, inside, -factor * a_re)
        if TABLE:
            put(table_ptr, ROUGH, tokens, rows, inside, -4.0 * rough / total)
    if TABLE:
        factor_ptr = (table_ptr + tokens * FACTOR).to(tl.pointer_type(tl.float32))
    else:
        factor_ptr = loss_ptr  # nobody asks for it
    put_losses(
        loss_ptr, partial_ptr, factor_ptr, rows, inside, loss, weight, rough, counted, penalty, tokens * 1.0,
        tokens * 1.0, REDUCE, MEAN, WEIGHTED, POINTS > 0,
    )  # fmt: skip


@triton.jit
def row_gradients(upstream_ptr, table_ptr, tokens, upstream_stride, rows, inside, penalty, REDUCED: tl.constexpr):
    """Return what arrives from above for the loss and for the roughness of every row."""
    if REDUCED:
        # Where there is a roughness all tokens that count weigh the same.
        factor = tl.load(table_ptr + tokens * FACTOR).to(tl.float32, bitcast=True)
        both = tl.where(inside, tl.load(upstream_ptr).to(tl.float32) * factor, 0.0)
        return both, both * penalty
    grad = tl.load(upstream_ptr + rows.to(tl.int64) * upstream_stride, mask=inside, other=0.0).to(tl.float32)
    return grad, grad * penalty


@triton.jit
def tile_gradient(
    alpha, beta, start, harmonics, table_ptr, offset_ptr, rows, inside, tokens, grad_loss, grad_rough,
    WALLS: tl.constexpr, POINTS: tl.constexpr, APPROX: tl.constexpr, TILE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Return the gradients of (rows, BLOCK) tiles, which were stored with a scale per TILE harmonics."""
    local = tl.arange(0, BLOCK)
    harmonic = start + local
    high = tl.load(table_ptr + tokens * HIGH + rows, mask=inside, other=0).to(tl.uint32, bitcast=True)[:, None]
    low = tl.load(table_ptr + tokens * LOW + rows, mask=inside, other=0).to(tl.uint32, bitcast=True)[:, None]
    cos, sin = cos_sin(high, low, harmonic[None, :], APPROX)
    scale = get(table_ptr, SCALE, tokens, rows, inside)
    weight = get(table_ptr, WEIGHT, tokens, rows, inside) * grad_loss[:, None] * scale
    radial = get(table_ptr, ENERGY, tokens, rows, inside) * weight
    with_cos = get(table_ptr, COS, tokens, rows, inside) * weight
    with_sin = get(table_ptr, SIN, tokens, rows, inside) * weight
    grad_rough = grad_rough[:, None] * scale
    if POINTS > 0:
        radial += get(table_ptr, ROUGH, tokens, rows, inside) * grad_rough
    line = CONSTANTS + PER_POINT * POINTS + start // TILE
    shrink = get(table_ptr, line, tokens, rows, inside) * scale
    for part in tl.static_range(1, BLOCK // TILE):
        there = rows < tl.where(start + part * TILE < harmonics, tokens, 0)
        other = get(table_ptr, line + part, tokens, rows, there) * scale
        shrink = tl.where(local[None, :] < part * TILE, shrink, other)
    radial = radial * shrink
    grad_alpha = alpha * radial + with_cos * cos + with_sin * sin
    grad_beta = beta
    if not WALLS:
        grad_beta = beta * radial + with_cos * sin - with_sin * cos
    if POINTS > 0:
        l = harmonic.to(tl.float32)[None, :]
        offset = tl.load(offset_ptr + rows, mask=inside, other=0.0)
        for point in tl.static_range(POINTS):
            turns = offset_turns(offset, point, POINTS)[:, None]
            c, s = cos_sin(turns, tl.zeros_like(turns), harmonic[None, :], APPROX)
            base = CONSTANTS + PER_POINT * point
            on_cos = (
                get(table_ptr, base, tokens, rows, inside) + get(table_ptr, base + 1, tokens, rows, inside) * l
            ) * grad_rough
            on_sin = (
                get(table_ptr, base + 2, tokens, rows, inside) + get(table_ptr, base + 3, tokens, rows, inside) * l
            ) * grad_rough
            grad_alpha += on_cos * c + on_sin * s
            if not WALLS:
                grad_beta += on_cos * s - on_sin * c
    return grad_alpha, grad_beta
