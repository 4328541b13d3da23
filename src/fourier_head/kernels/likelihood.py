"""The likelihood of projected rows and its gradient in one pass: bins or values, circle or walls, packets and tails.

A program reads its rows twice, the second time from cache: first for the sums along them, then for their gradient.
What arrives from above is not known yet, so the gradient is that of a loss of one per row (times ``gain``); the
backward pass has only matrices to multiply.
"""

# The arguments of a kernel are what Triton makes of them: no type of the host describes them.
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import triton
import triton.language as tl

from fourier_head.kernels.packets import packet
from fourier_head.kernels.phases import cos_sin, offset_turns, power_of_two_below
from fourier_head.kernels.places import (
    bin_target,
    column,
    put_losses,
    put_place,
    put_zeros,
    sigmoid,
    softplus,
    value_target,
)
from fourier_head.kernels.rows import GUARD, PER_POINT, SMALLEST, pick


@triton.jit
def load_tile(
    y_rows, bias_ptr, start, harmonics, inside, WALLS: tl.constexpr, BIAS: tl.constexpr, TILE: tl.constexpr
):  # fmt: skip
    """Load a tile of coefficients, alpha and beta."""
    harmonic = start + tl.arange(0, TILE)
    real = harmonic < harmonics
    keep = inside[:, None] & real[None, :]
    alpha = tl.load(y_rows[:, None] + harmonic[None, :], mask=keep, other=0.0).to(tl.float32)
    if BIAS:
        alpha += tl.load(bias_ptr + harmonic, mask=real, other=0.0).to(tl.float32)[None, :]
    beta = tl.zeros_like(alpha)
    if not WALLS:
        beta = tl.load(y_rows[:, None] + harmonics + harmonic[None, :], mask=keep, other=0.0).to(tl.float32)
        if BIAS:
            beta += tl.load(bias_ptr + harmonics + harmonic, mask=real, other=0.0).to(tl.float32)[None, :]
    return alpha, beta


@triton.jit
def _lanes(y_rows, bias_ptr, first, count, inside, BIAS: tl.constexpr, LANES: tl.constexpr):
    """Load a few neighbouring outputs of every row, (rows, LANES)."""
    lane = tl.arange(0, LANES)
    keep = inside[:, None] & (lane < count)[None, :]
    value = tl.load(y_rows[:, None] + first + lane[None, :], mask=keep, other=0.0).to(tl.float32)
    if BIAS:
        value += tl.load(bias_ptr + first + lane, mask=lane < count, other=0.0).to(tl.float32)[None, :]
    return value


@triton.jit
def _put_lanes(
    gradient_rows, sums_row, first, count, inside, value, NEED_BIAS: tl.constexpr, LANES: tl.constexpr
):  # fmt: skip
    """Store the gradients of a few neighbouring outputs."""
    lane = tl.arange(0, LANES)
    keep = inside[:, None] & (lane < count)[None, :]
    place = gradient_rows[:, None] + first + lane[None, :]
    tl.store(place, value.to(gradient_rows.dtype.element_ty), mask=keep)
    if NEED_BIAS:
        tl.store(sums_row + first + lane, tl.sum(value, axis=0), mask=lane < count)


@triton.jit
def _put_packets(
    y_rows, bias_ptr, gradient_rows, sums_row, first, inside, value,
    PACKETS: tl.constexpr, BIAS: tl.constexpr, NEED_BIAS: tl.constexpr, LANES: tl.constexpr,
):  # fmt: skip
    """Store the gradients of one parameter of all packets; beyond 30, where it is cut off, there is none."""
    raw = _lanes(y_rows, bias_ptr, first, PACKETS, inside, BIAS, LANES)
    value = tl.where(tl.abs(raw) <= 30.0, value, 0.0)
    _put_lanes(gradient_rows, sums_row, first, PACKETS, inside, value, NEED_BIAS, LANES)


@triton.jit(
    do_not_specialize=[
        "tokens", "harmonics", "outputs", "y_stride", "gradient_stride", "first_packet", "first_atom", "num_atoms",
        "first_place", "num_bins", "ignore_index",
    ]
)  # fmt: skip
def likelihood_kernel(
    y_ptr, bias_ptr, target_ptr, anchor_ptr, offset_ptr, class_weight_ptr, gradient_ptr, loss_ptr, partial_ptr,
    factor_ptr, sums_ptr, tokens, harmonics, outputs, y_stride, gradient_stride, first_packet, first_atom,
    num_atoms, first_place,
    num_bins, ignore_index, floor, units, origin, unit, tails, penalty, omega, gain, count, rounded,
    TARGET: tl.constexpr, WALLS: tl.constexpr, PLACES: tl.constexpr, PACKETS: tl.constexpr, PACKET_LANES: tl.constexpr,
    ATOM_LANES: tl.constexpr, BIAS: tl.constexpr, WEIGHTED: tl.constexpr, REDUCE: tl.constexpr, MEAN: tl.constexpr,
    GRAD: tl.constexpr, NEED_BIAS: tl.constexpr, POINTS: tl.constexpr, LANES: tl.constexpr, APPROX: tl.constexpr,
    ROWS: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """Reduce every row of y to its loss and write the gradient of that with respect to the row."""
    program = tl.program_id(0)
    rows = program * ROWS + tl.arange(0, ROWS)
    inside = rows < tokens
    y_rows = y_ptr + rows.to(tl.int64) * y_stride
    zero = tl.zeros([ROWS], tl.float32)
    if TARGET == 0:
        high, low, z, counted, wrong, dense, target = bin_target(
            target_ptr, rows, inside, num_bins, num_atoms, ignore_index, WALLS
        )
        extra = zero
    else:
        high, low, z, counted, slope, v, width, pull, guess = value_target(
            target_ptr, anchor_ptr, y_rows, bias_ptr, first_place, rows, inside, origin, unit, TARGET, WALLS, PLACES,
            BIAS,
        )  # fmt: skip
        dense = counted
        extra = -slope
    offset = zero
    if POINTS > 0:
        offset = tl.load(offset_ptr + rows, mask=inside, other=0.0)

    # The sums along the row, of coefficients relative to the largest. Tiles are added up before anything is summed over
    # the threads of a row.
    top = tl.zeros([ROWS, TILE], tl.float32)
    for start in tl.range(0, harmonics, TILE):
        alpha, beta = load_tile(y_rows, bias_ptr, start, harmonics, inside, WALLS, BIAS, TILE)
        top = tl.maximum(top, tl.maximum(tl.abs(alpha), tl.abs(beta)))
    bits = power_of_two_below(tl.max(top, axis=1))
    inverse = (0x7F000000 - bits).to(tl.float32, bitcast=True)
    sum_re = tl.zeros([ROWS, TILE], tl.float32)
    sum_im = sum_re
    sum_square = sum_re
    turn_re = sum_re
    turn_im = sum_re
    sums = tl.zeros([ROWS, LANES], tl.float32)
    for start in tl.range(0, harmonics, TILE):
        alpha, beta = load_tile(y_rows, bias_ptr, start, harmonics, inside, WALLS, BIAS, TILE)
        harmonic = start + tl.arange(0, TILE)
        alpha = alpha * inverse[:, None]
        beta = beta * inverse[:, None]
        cos, sin = cos_sin(high[:, None], low[:, None], harmonic[None, :], APPROX)
        re = alpha * cos + beta * sin
        im = beta * cos - alpha * sin
        sum_re += re
        sum_im += im
        sum_square += alpha * alpha + beta * beta
        l = harmonic.to(tl.float32)[None, :]
        if PLACES > 0 and GRAD:
            turn_re += re * l
            turn_im += im * l
        if POINTS > 0:
            lane = tl.arange(0, LANES)[None, :]
            for point in tl.static_range(POINTS):
                turns = offset_turns(offset, point, POINTS)[:, None]
                c, s = cos_sin(turns, tl.zeros_like(turns), harmonic[None, :], APPROX)
                re = alpha * c + beta * s
                im = beta * c - alpha * s
                base = PER_POINT * point
                sums += tl.where(lane == base, tl.sum(re, axis=1)[:, None], 0.0)
                sums += tl.where(lane == base + 1, tl.sum(im, axis=1)[:, None], 0.0)
                sums += tl.where(lane == base + 2, tl.sum(im * l, axis=1)[:, None], 0.0)
                sums -= tl.where(lane == base + 3, tl.sum(re * l, axis=1)[:, None], 0.0)
    re = tl.sum(sum_re, axis=1)
    im = tl.sum(sum_im, axis=1)
    total = tl.sum(sum_square, axis=1) + GUARD
    free = (re * re + im * im + GUARD) / total
    free_z = zero
    if PLACES > 0 and GRAD:
        free_z = 2.0 * omega * (re * tl.sum(turn_im, axis=1) - im * tl.sum(turn_re, axis=1)) / total

    # The packets beside them.
    share_of_free = zero + 1.0
    mixed = free
    mixed_z = free_z
    if PACKETS > 0:
        lane = tl.arange(0, PACKET_LANES)[None, :]
        density = tl.zeros([ROWS, PACKET_LANES], tl.float32)
        by_mu = density
        by_w = density
        by_h = density
        by_z = density
        for k in tl.static_range(PACKETS):
            mu = column(y_rows, bias_ptr, first_packet + k, inside, BIAS)
            raw = column(y_rows, bias_ptr, first_packet + PACKETS + k, inside, BIAS)
            tilt = column(y_rows, bias_ptr, first_packet + 3 * PACKETS + k, inside, BIAS)
            mu = tl.minimum(tl.maximum(mu, -30.0), 30.0)
            raw = tl.minimum(tl.maximum(raw, -30.0), 30.0)
            tilt = tl.minimum(tl.maximum(tilt, -30.0), 30.0)
            p, p_mu, p_w, p_h, p_z = packet(mu, softplus(raw), tilt, z, harmonics, WALLS, APPROX, ROWS, TILE)
            density = tl.where(lane == k, p[:, None], density)
            by_mu = tl.where(lane == k, p_mu[:, None], by_mu)
            by_w = tl.where(lane == k, p_w[:, None], by_w)
            by_h = tl.where(lane == k, p_h[:, None], by_h)
            by_z = tl.where(lane == k, p_z[:, None], by_z)
        logit = _lanes(y_rows, bias_ptr, first_packet + 2 * PACKETS, PACKETS, inside, BIAS, PACKET_LANES)
        logit = tl.minimum(tl.maximum(logit, -30.0), 30.0)
        top = tl.maximum(tl.max(tl.where(lane < PACKETS, logit, 0.0), axis=1), 0.0)
        share = tl.where(lane < PACKETS, tl.exp(logit - top[:, None]), 0.0)
        share_of_free = tl.exp(-top)
        norm = 1.0 / (share_of_free + tl.sum(share, axis=1))
        share = share * norm[:, None]
        share_of_free = share_of_free * norm
        mixed = share_of_free * free + tl.sum(share * density, axis=1)
        mixed_z = share_of_free * free_z + tl.sum(share * by_z, axis=1)

    # The loss, and what an increase of the mixture's density takes off it.
    relative = (1.0 - floor) * mixed + floor
    pressure = (1.0 - floor) / relative
    if PLACES > 0:
        within = tl.abs(v) <= 1.0
        fade = 0.5 * tails * tl.exp(-tl.abs(v))
        core = tl.where(within, (0.5 - 0.5 * tails) * relative, 0.0)
        loss = tl.where(within, -tl.log(core + fade), tl.abs(v) - tl.log(0.5 * tails)) + tl.log(width) + units
        pressure *= core / (core + fade)
        side = tl.where(within, fade / (core + fade), 1.0) * tl.where(v < 0.0, -1.0, 1.0)
        by_v = side - pressure * mixed_z
    else:
        loss = units + extra - tl.log(relative)
    loss = tl.where(dense, loss, 0.0)
    if TARGET == 0:
        # A target that is no bin must not pass for one: its loss is not a number.
        loss = tl.where(wrong, float("nan"), loss)
    weight = tl.where(counted, 1.0, 0.0)
    if WEIGHTED:
        weight = tl.load(class_weight_ptr + target, mask=counted, other=0.0).to(tl.float32)
    per_row = weight * gain
    pressure = tl.where(dense, pressure * per_row, 0.0)
    gradient_rows = gradient_ptr + rows.to(tl.int64) * gradient_stride
    sums_row = sums_ptr + program.to(tl.int64) * gradient_stride

    if ATOM_LANES > 0:
        atom = tl.arange(0, ATOM_LANES)[None, :]
        atom_logit = _lanes(y_rows, bias_ptr, first_atom, num_atoms, inside, BIAS, ATOM_LANES)
        atom_logit = tl.where(atom < num_atoms, atom_logit, -float("inf"))
        top = tl.maximum(tl.max(atom_logit, axis=1), 0.0)
        chance = tl.exp(atom_logit - top[:, None])
        norm = tl.sum(chance, axis=1) + tl.exp(-top)
        if TARGET == 0:
            chosen = (atom == target[:, None]) & (counted & (wrong == 0) & (target < num_atoms))[:, None]
            log_norm = top + tl.log(norm)
            loss += tl.where(counted, log_norm, 0.0) - tl.sum(tl.where(chosen, atom_logit, 0.0), axis=1)
            chance = (chance / norm[:, None] - tl.where(chosen, 1.0, 0.0)) * per_row[:, None]
        else:  # atoms are no part of the density of values
            chance = tl.zeros_like(chance)
        if GRAD:
            _put_lanes(gradient_rows, sums_row, first_atom, num_atoms, inside, chance, NEED_BIAS, ATOM_LANES)

    rough = zero
    if POINTS > 0:
        spread = tl.where(counted, (1.0 - floor) * omega / total, 0.0)
        point_lane = tl.arange(0, LANES)[None, :]
        for point in tl.static_range(POINTS):
            a_re = pick(sums, point_lane, PER_POINT * point)
            a_im = pick(sums, point_lane, PER_POINT * point + 1)
            b_re = pick(sums, point_lane, PER_POINT * point + 2)
            b_im = pick(sums, point_lane, PER_POINT * point + 3)
            steep = spread * (a_re * b_re + a_im * b_im)
            rough += steep * steep * (2.0 / POINTS)
    if GRAD:
        # Coefficients that are all zero have no scale; one keeps their zero gradient from being zero times infinity.
        scale = tl.where(bits == SMALLEST, 1.0, inverse)
        of_free = 2.0 * pressure * share_of_free / total * scale
        radial = of_free * free
        if POINTS > 0:
            per_rough = penalty * gain * scale
            radial -= 4.0 * rough / total * per_rough
        with_cos = -of_free * re
        with_sin = of_free * im
        for start in tl.range(0, harmonics, TILE):
            alpha, beta = load_tile(y_rows, bias_ptr, start, harmonics, inside, WALLS, BIAS, TILE)
            harmonic = start + tl.arange(0, TILE)
            real = harmonic < harmonics
            cos, sin = cos_sin(high[:, None], low[:, None], harmonic[None, :], APPROX)
            alpha = alpha * inverse[:, None]
            beta = beta * inverse[:, None]
            grad_alpha = alpha * radial[:, None] + with_cos[:, None] * cos + with_sin[:, None] * sin
            grad_beta = beta * radial[:, None] + with_cos[:, None] * sin - with_sin[:, None] * cos
            if POINTS > 0:
                l = harmonic.to(tl.float32)[None, :]
                for point in tl.static_range(POINTS):
                    a_re = pick(sums, point_lane, PER_POINT * point)
                    a_im = pick(sums, point_lane, PER_POINT * point + 1)
                    b_re = pick(sums, point_lane, PER_POINT * point + 2)
                    b_im = pick(sums, point_lane, PER_POINT * point + 3)
                    factor = spread * spread * (a_re * b_re + a_im * b_im) * (4.0 / POINTS) * per_rough
                    turns = offset_turns(offset, point, POINTS)[:, None]
                    c, s = cos_sin(turns, tl.zeros_like(turns), harmonic[None, :], APPROX)
                    on_cos = (factor * b_re)[:, None] - (factor * a_im)[:, None] * l
                    on_sin = -(factor * b_im)[:, None] - (factor * a_re)[:, None] * l
                    grad_alpha += on_cos * c + on_sin * s
                    grad_beta += on_cos * s - on_sin * c
            keep = inside[:, None] & real[None, :]
            place = gradient_rows[:, None] + harmonic[None, :]
            tl.store(place, grad_alpha.to(gradient_ptr.dtype.element_ty), mask=keep)
            if NEED_BIAS:
                tl.store(sums_row + harmonic, tl.sum(tl.where(keep, grad_alpha, 0.0), axis=0), mask=real)
            if not WALLS:
                tl.store(place + harmonics, grad_beta.to(gradient_ptr.dtype.element_ty), mask=keep)
                if NEED_BIAS:
                    tl.store(sums_row + harmonics + harmonic, tl.sum(tl.where(keep, grad_beta, 0.0), axis=0), mask=real)
        if PACKETS > 0:
            taken = pressure[:, None] * share
            raw = _lanes(y_rows, bias_ptr, first_packet + PACKETS, PACKETS, inside, BIAS, PACKET_LANES)
            _put_packets(y_rows, bias_ptr, gradient_rows, sums_row, first_packet, inside,
                         -taken * by_mu, PACKETS, BIAS, NEED_BIAS, PACKET_LANES)  # fmt: skip
            _put_packets(y_rows, bias_ptr, gradient_rows, sums_row, first_packet + PACKETS, inside,
                         -taken * by_w * sigmoid(raw), PACKETS, BIAS, NEED_BIAS, PACKET_LANES)  # fmt: skip
            _put_packets(y_rows, bias_ptr, gradient_rows, sums_row, first_packet + 2 * PACKETS, inside,
                         taken * (mixed[:, None] - density), PACKETS, BIAS, NEED_BIAS, PACKET_LANES)  # fmt: skip
            _put_packets(y_rows, bias_ptr, gradient_rows, sums_row, first_packet + 3 * PACKETS, inside,
                         -taken * by_h, PACKETS, BIAS, NEED_BIAS, PACKET_LANES)  # fmt: skip
        if PLACES > 0:
            of_v = tl.where(counted, by_v * per_row / width, 0.0)
            of_width = tl.where(counted, per_row / width, 0.0) - v * of_v
            put_place(gradient_rows, sums_row, y_rows, bias_ptr, first_place, inside, -of_v, of_width, pull, guess,
                      PLACES, BIAS, NEED_BIAS)  # fmt: skip
        put_zeros(gradient_rows, sums_row, outputs, gradient_stride, inside, NEED_BIAS)
    put_losses(
        loss_ptr, partial_ptr, factor_ptr, rows, inside, loss, weight, rough, counted, penalty, count, rounded, REDUCE,
        MEAN,
    )  # fmt: skip
