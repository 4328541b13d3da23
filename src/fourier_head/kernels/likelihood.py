"""The likelihood of projected rows and its gradient in one pass: bins or values, circle or walls, packets and tails.

A program holds a few whole rows in registers: they are read once, and cosines that sums along a row have used are still
there for its gradient. What arrives from above is not known yet, so the gradient is that of a loss of one per row
(times ``gain``); the backward pass has only matrices to multiply.
"""

from __future__ import annotations

import triton
import triton.language as tl

from fourier_head.kernels.packets import packets
from fourier_head.kernels.phases import cos_sin, offset_turns, power_of_two_below
from fourier_head.kernels.places import (
    bin_target,
    load_lanes,
    put_lanes,
    put_place,
    put_sums,
    put_zeros,
    sigmoid,
    softplus,
    value_target,
)
from fourier_head.kernels.rows import GUARD, SMALLEST

# Beyond this lies nothing new for a parameter of a packet, as in `layout.py`.
MOST = tl.constexpr(30.0)


@triton.jit
def _load(
    y_rows, bias_ptr, start, harmonics, inside,
    WALLS: tl.constexpr, BIAS: tl.constexpr, FULL: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """Load a tile of coefficients, and the largest of every row; FULL: all of them are there."""
    harmonic = start + tl.arange(0, TILE)
    real = harmonic >= 0 if FULL else harmonic < harmonics
    keep = inside[:, None] & real[None, :]
    alpha = tl.load(y_rows[:, None] + harmonic[None, :], mask=keep, other=0.0).to(tl.float32)
    if BIAS:
        alpha += tl.load(bias_ptr + harmonic, mask=real, other=0.0).to(tl.float32)[None, :]
    largest = tl.abs(alpha)
    beta = tl.zeros_like(alpha)
    if not WALLS:
        beta = tl.load(y_rows[:, None] + harmonics + harmonic[None, :], mask=keep, other=0.0).to(tl.float32)
        if BIAS:
            beta += tl.load(bias_ptr + harmonics + harmonic, mask=real, other=0.0).to(tl.float32)[None, :]
        largest = tl.maximum(largest, tl.abs(beta))
    return alpha, beta, tl.max(largest, axis=1)


@triton.jit
def _scales(largest):
    """Return the power of two that coefficients are multiplied with, and what their gradients are to be."""
    bits = power_of_two_below(largest)
    inverse = (0x7F000000 - bits).to(tl.float32, bitcast=True)
    # Coefficients that are all zero have no scale; one keeps their zero gradient from being zero times infinity.
    return inverse[:, None], tl.where(bits == SMALLEST, 1.0, inverse)


@triton.jit
def load_rows(y_rows, bias_ptr, harmonics, inside, WALLS: tl.constexpr, BIAS: tl.constexpr, TILE: tl.constexpr):
    """Load the coefficients of rows relative to a power of two, and what their gradients are to be multiplied with."""
    alpha, beta, largest = _load(y_rows, bias_ptr, 0, harmonics, inside, WALLS, BIAS, False, TILE)
    inverse, scale = _scales(largest)
    return alpha * inverse, beta * inverse, scale


@triton.jit
def _sums(alpha, beta, start, high, low, APPROX: tl.constexpr, TURNED: tl.constexpr, TILE: tl.constexpr):
    """Return cosines and sines, and of the wave of a tile (re, im, energy); TURNED: of l times the wave, too."""
    harmonic = (start + tl.arange(0, TILE))[None, :]
    cos, sin = cos_sin(high[:, None], low[:, None], harmonic, APPROX)
    wave_re = alpha * cos + beta * sin
    wave_im = beta * cos - alpha * sin
    re = tl.sum(wave_re, axis=1)
    im = tl.sum(wave_im, axis=1)
    energy = tl.sum(alpha * alpha + beta * beta, axis=1)
    by_re = re
    by_im = im
    if TURNED:
        l = harmonic.to(tl.float32)
        by_re = tl.sum(wave_re * l, axis=1)
        by_im = tl.sum(wave_im * l, axis=1)
    return cos, sin, re, im, energy, by_re, by_im


@triton.jit
def _gradients(alpha, beta, cos, sin, re, im, radial):
    """Return the gradients of a tile: of an amplitude that grows, and of a scale that does not matter."""
    grad_alpha = alpha * radial[:, None] - (re[:, None] * cos - im[:, None] * sin)
    grad_beta = beta * radial[:, None] - (re[:, None] * sin + im[:, None] * cos)
    return grad_alpha, grad_beta


@triton.jit
def put_rows(
    gradient_rows, start, harmonics, inside, alpha, beta, WALLS: tl.constexpr, FULL: tl.constexpr, TILE: tl.constexpr
):
    """Store the gradients of a tile of coefficients of rows."""
    harmonic = start + tl.arange(0, TILE)
    keep = inside[:, None] & (harmonic >= 0 if FULL else harmonic < harmonics)[None, :]
    place = gradient_rows[:, None] + harmonic[None, :]
    tl.store(place, alpha.to(gradient_rows.dtype.element_ty), mask=keep)
    if not WALLS:
        tl.store(place + harmonics, beta.to(gradient_rows.dtype.element_ty), mask=keep)


@triton.jit
def _project(
    x_ptr, weight_ptr, y_ptr, tokens, width, outputs, x_stride, weight_stride, y_stride,
    ROWS: tl.constexpr, OUTPUTS: tl.constexpr, DEPTH: tl.constexpr, STAGES: tl.constexpr, WIDEN: tl.constexpr,
):  # fmt: skip
    """Multiply a block of rows with the weights; the program reads its outputs once all threads have written theirs."""
    first = tl.program_id(0) * ROWS
    row = tl.arange(0, ROWS)
    inside = first + row < tokens
    output = tl.arange(0, OUTPUTS)
    feature = tl.arange(0, DEPTH)
    # Where the program's rows begin takes 64 bits, the way from there 32.
    x_rows = x_ptr + first.to(tl.int64) * x_stride
    y_rows = y_ptr + first.to(tl.int64) * y_stride
    x_place = row[:, None] * x_stride + feature[None, :]
    weight_place = output[None, :] * weight_stride + feature[:, None]
    sums = tl.zeros([ROWS, OUTPUTS], tl.float32)
    for start in tl.range(0, width, DEPTH, num_stages=STAGES):
        some = feature < width - start
        x = tl.load(x_rows + start + x_place, mask=inside[:, None] & some[None, :], other=0.0)
        weight = tl.load(weight_ptr + start + weight_place, mask=some[:, None] & (output < outputs)[None, :], other=0.0)
        if WIDEN:
            x, weight = x.to(tl.float32), weight.to(tl.float32)
        sums = tl.dot(x, weight, sums)
    y_place = row[:, None] * y_stride + output[None, :]
    tl.store(y_rows + y_place, sums, mask=inside[:, None] & (output < outputs)[None, :])
    tl.debug_barrier()


@triton.jit
def _block(
    rows, inside, y_ptr, bias_ptr, target_ptr, anchor_ptr, offset_ptr, class_weight_ptr, gradient_ptr,
    harmonics, outputs, y_stride, gradient_stride, first_packet, first_atom, num_atoms, first_place,
    num_bins, ignore_index, floor, units, origin, unit, tails, penalty, omega, gain,
    TARGET: tl.constexpr, WALLS: tl.constexpr, PLACES: tl.constexpr, PACKETS: tl.constexpr, PACKET_LANES: tl.constexpr,
    ATOM_LANES: tl.constexpr, BIAS: tl.constexpr, WEIGHTED: tl.constexpr, GRAD: tl.constexpr, POINTS: tl.constexpr,
    APPROX: tl.constexpr, ROWS: tl.constexpr, TILE: tl.constexpr, TAIL: tl.constexpr,
):  # fmt: skip
    """Return (loss, weight, roughness, whether they count) of a block of rows; write the gradient of these."""
    y_rows = y_ptr + rows.to(tl.int64) * y_stride
    gradient_rows = gradient_ptr + rows.to(tl.int64) * gradient_stride
    # Asked for first, so that nothing waits for it that need not.
    alpha, beta, largest = _load(y_rows, bias_ptr, 0, harmonics, inside, WALLS, BIAS, TAIL > 0, TILE)
    if TAIL > 0:
        tail_alpha, tail_beta, more = _load(y_rows, bias_ptr, TILE, harmonics, inside, WALLS, BIAS, False, TAIL)
        largest = tl.maximum(largest, more)
    inverse, scale = _scales(largest)
    alpha, beta = alpha * inverse, beta * inverse
    if TARGET == 0:
        high, low, z, counted, wrong, dense, target = bin_target(
            target_ptr, rows, inside, num_bins, num_atoms, ignore_index, WALLS
        )
    else:
        high, low, z, counted, slope, v, width, pull, guess = value_target(
            target_ptr, anchor_ptr, y_rows, bias_ptr, first_place, rows, inside, origin, unit, TARGET, WALLS, PLACES,
            BIAS,
        )  # fmt: skip
        dense = counted

    # The free coefficients: their wave at the target, relative to its mean.
    TURNED: tl.constexpr = PLACES > 0 and GRAD
    cos, sin, re, im, total, by_re, by_im = _sums(alpha, beta, 0, high, low, APPROX, TURNED, TILE)
    if TAIL > 0:
        tail_alpha, tail_beta = tail_alpha * inverse, tail_beta * inverse
        tail_cos, tail_sin, tail_re, tail_im, energy, tail_by_re, tail_by_im = _sums(
            tail_alpha, tail_beta, TILE, high, low, APPROX, TURNED, TAIL
        )
        re, im, total = re + tail_re, im + tail_im, total + energy
        by_re, by_im = by_re + tail_by_re, by_im + tail_by_im
    total += GUARD
    free = (re * re + im * im + GUARD) / total
    mixed = free
    if TURNED:
        mixed_z = 2.0 * omega * (re * by_im - im * by_re) / total

    # The packets beside them.
    of_free = 1.0
    if PACKETS > 0:
        mu = load_lanes(y_rows, bias_ptr, first_packet, PACKETS, inside, BIAS, PACKET_LANES)
        raw = load_lanes(y_rows, bias_ptr, first_packet + PACKETS, PACKETS, inside, BIAS, PACKET_LANES)
        logit = load_lanes(y_rows, bias_ptr, first_packet + 2 * PACKETS, PACKETS, inside, BIAS, PACKET_LANES)
        tilt = load_lanes(y_rows, bias_ptr, first_packet + 3 * PACKETS, PACKETS, inside, BIAS, PACKET_LANES)
        density, by_mu, by_w, by_h, by_z = packets(
            tl.clamp(mu, -MOST, MOST), softplus(tl.clamp(raw, -MOST, MOST)), tl.clamp(tilt, -MOST, MOST), z, harmonics,
            WALLS, APPROX, ROWS, PACKET_LANES,
        )  # fmt: skip
        there = tl.arange(0, PACKET_LANES)[None, :] < PACKETS
        chosen = tl.where(there, tl.clamp(logit, -MOST, MOST), -float("inf"))
        top = tl.maximum(tl.max(chosen, axis=1), 0.0)
        share = tl.exp(chosen - top[:, None])
        norm = 1.0 / (tl.exp(-top) + tl.sum(share, axis=1))
        of_free = tl.exp(-top) * norm
        share = share * norm[:, None]
        mixed = of_free * free + tl.sum(share * density, axis=1)
        if TURNED:
            mixed_z = of_free * mixed_z + tl.sum(share * by_z, axis=1)

    # The loss, and what an increase of the mixture's density takes off it.
    relative = (1.0 - floor) * mixed + floor
    pressure = (1.0 - floor) / relative
    loss = units - tl.log(relative)
    if PLACES > 0:
        within = tl.abs(v) <= 1.0
        core = (0.5 - 0.5 * tails) * relative
        fade = 0.5 * tails * tl.exp(-tl.abs(v))
        loss = units + tl.log(width) + tl.where(within, -tl.log(core + fade), tl.abs(v) - tl.log(0.5 * tails))
        # Beyond the ends there are tails alone, also where they round to nothing.
        of_core = tl.where(within, core / (core + fade), 0.0)
        pressure = pressure * of_core
    elif TARGET != 0:
        loss -= slope
    loss = tl.where(dense, loss, 0.0)
    if TARGET == 0:
        # A target that is no bin must not pass for one: its loss is not a number.
        loss = tl.where(wrong, float("nan"), loss)
    weight = tl.where(counted, 1.0, 0.0)
    if WEIGHTED:
        weight = tl.load(class_weight_ptr + target, mask=counted, other=0.0).to(tl.float32)
    per_row = weight * gain
    pressure = tl.where(dense, pressure * per_row, 0.0)

    if ATOM_LANES > 0:
        atom = tl.arange(0, ATOM_LANES)[None, :]
        logits = load_lanes(y_rows, bias_ptr, first_atom, num_atoms, inside, BIAS, ATOM_LANES)
        logits = tl.where(atom < num_atoms, logits, -float("inf"))
        of_atom = tl.zeros_like(logits)  # atoms are no part of the density of values
        if TARGET == 0:
            top = tl.maximum(tl.max(logits, axis=1), 0.0)
            chance = tl.exp(logits - top[:, None])
            norm = tl.sum(chance, axis=1) + tl.exp(-top)
            hit = (atom == target[:, None]) & (counted & (wrong == 0) & (target < num_atoms))[:, None]
            loss += tl.where(counted, top + tl.log(norm), 0.0) - tl.sum(tl.where(hit, logits, 0.0), axis=1)
            of_atom = (chance / norm[:, None] - tl.where(hit, 1.0, 0.0)) * per_row[:, None]
        if GRAD:
            put_lanes(gradient_rows, first_atom, num_atoms, inside, of_atom, ATOM_LANES)

    rough = tl.zeros([ROWS], tl.float32)
    push = 2.0 * pressure * of_free / total * scale
    radial = push * free
    if POINTS > 0:
        harmonic = tl.arange(0, TILE)[None, :]
        l = harmonic.to(tl.float32)
        rough_alpha = tl.zeros_like(alpha)
        rough_beta = tl.zeros_like(alpha)
        offset = tl.load(offset_ptr + rows, mask=inside, other=0.0)
        spread = tl.where(counted, (1.0 - floor) * omega / total, 0.0)
        for point in tl.static_range(POINTS):
            turns = offset_turns(offset, point, POINTS)
            c, s, a_re, a_im, _, b_im, b_re = _sums(alpha, beta, 0, turns, tl.zeros_like(turns), APPROX, True, TILE)
            steep = spread * (a_re * b_re - a_im * b_im)
            rough += steep * steep * (2.0 / POINTS)
            if GRAD:
                per_point = spread * steep * (4.0 / POINTS) * penalty * gain * scale
                on_cos = (per_point * b_re)[:, None] - (per_point * a_im)[:, None] * l
                on_sin = (per_point * b_im)[:, None] - (per_point * a_re)[:, None] * l
                rough_alpha += on_cos * c + on_sin * s
                rough_beta += on_cos * s - on_sin * c
        radial -= 4.0 * rough / total * penalty * gain * scale
    if GRAD:
        grad_alpha, grad_beta = _gradients(alpha, beta, cos, sin, push * re, push * im, radial)
        if POINTS > 0:
            grad_alpha, grad_beta = grad_alpha + rough_alpha, grad_beta + rough_beta
        put_rows(gradient_rows, 0, harmonics, inside, grad_alpha, grad_beta, WALLS, TAIL > 0, TILE)
        if TAIL > 0:
            grad_alpha, grad_beta = _gradients(tail_alpha, tail_beta, tail_cos, tail_sin, push * re, push * im, radial)
            put_rows(gradient_rows, TILE, harmonics, inside, grad_alpha, grad_beta, WALLS, False, TAIL)
        if PACKETS > 0:
            taken = pressure[:, None] * share
            of_mu = tl.where(tl.abs(mu) <= MOST, -taken * by_mu, 0.0)
            of_raw = tl.where(tl.abs(raw) <= MOST, -taken * by_w * sigmoid(raw), 0.0)
            of_logit = tl.where(tl.abs(logit) <= MOST, taken * (mixed[:, None] - density), 0.0)
            of_tilt = tl.where(tl.abs(tilt) <= MOST, -taken * by_h, 0.0)
            put_lanes(gradient_rows, first_packet, PACKETS, inside, of_mu, PACKET_LANES)
            put_lanes(gradient_rows, first_packet + PACKETS, PACKETS, inside, of_raw, PACKET_LANES)
            put_lanes(gradient_rows, first_packet + 2 * PACKETS, PACKETS, inside, of_logit, PACKET_LANES)
            put_lanes(gradient_rows, first_packet + 3 * PACKETS, PACKETS, inside, of_tilt, PACKET_LANES)
        if PLACES > 0:
            side = tl.where(v < 0.0, -1.0, 1.0)
            of_v = tl.where(counted, ((1.0 - of_core) * side * per_row - pressure * mixed_z) / width, 0.0)
            of_width = tl.where(counted, per_row / width, 0.0) - v * of_v
            put_place(gradient_rows, y_rows, bias_ptr, first_place, inside, -of_v, of_width, pull, guess, PLACES, BIAS)
        put_zeros(gradient_rows, outputs, gradient_stride, inside)
    return loss, weight, rough, counted


@triton.jit(
    do_not_specialize=[
        "tokens", "harmonics", "outputs", "y_stride", "gradient_stride", "first_packet", "first_atom", "num_atoms",
        "first_place", "num_bins", "ignore_index",
    ]
)  # fmt: skip
def likelihood_kernel(
    y_ptr, bias_ptr, target_ptr, anchor_ptr, offset_ptr, class_weight_ptr, gradient_ptr, loss_ptr, partial_ptr,
    factor_ptr, x_ptr, weight_ptr,
    tokens, harmonics, outputs, y_stride, gradient_stride, first_packet, first_atom, num_atoms, first_place,
    num_bins, ignore_index, width, x_stride, weight_stride,
    floor, units, origin, unit, tails, penalty, omega, gain, count, rounded,
    TARGET: tl.constexpr, WALLS: tl.constexpr, PLACES: tl.constexpr, PACKETS: tl.constexpr, PACKET_LANES: tl.constexpr,
    ATOM_LANES: tl.constexpr, BIAS: tl.constexpr, WEIGHTED: tl.constexpr, REDUCE: tl.constexpr, MEAN: tl.constexpr,
    GRAD: tl.constexpr, POINTS: tl.constexpr, APPROX: tl.constexpr, ROWS: tl.constexpr, TILE: tl.constexpr,
    TAIL: tl.constexpr, STEPS: tl.constexpr, OUTPUTS: tl.constexpr, DEPTH: tl.constexpr, STAGES: tl.constexpr,
    WIDEN: tl.constexpr,
):  # fmt: skip
    """Reduce every row of y to its loss and write the gradient of that: STEPS blocks of ROWS rows one by one.

    The harmonics of a row are held in one tile, or in one and a short TAIL where that is less. OUTPUTS, if not 0: y is
    not known yet, and made here.
    """
    if OUTPUTS > 0:
        _project(
            x_ptr, weight_ptr, y_ptr, tokens, width, outputs, x_stride, weight_stride, y_stride,
            ROWS * STEPS, OUTPUTS, DEPTH, STAGES, WIDEN,
        )  # fmt: skip
    losses = tl.zeros([ROWS], tl.float32)
    weights = tl.zeros([ROWS], tl.float32)
    roughs = tl.zeros([ROWS], tl.float32)
    counts = tl.zeros([ROWS], tl.float32)
    for step in tl.range(STEPS):
        rows = (tl.program_id(0) * STEPS + step) * ROWS + tl.arange(0, ROWS)
        inside = rows < tokens
        loss, weight, rough, counted = _block(
            rows, inside, y_ptr, bias_ptr, target_ptr, anchor_ptr, offset_ptr, class_weight_ptr, gradient_ptr,
            harmonics, outputs, y_stride, gradient_stride, first_packet, first_atom, num_atoms, first_place,
            num_bins, ignore_index, floor, units, origin, unit, tails, penalty, omega, gain,
            TARGET, WALLS, PLACES, PACKETS, PACKET_LANES, ATOM_LANES, BIAS, WEIGHTED, GRAD, POINTS, APPROX, ROWS, TILE,
            TAIL,
        )  # fmt: skip
        if REDUCE:
            losses += loss * weight
            weights += weight
            roughs += rough
            counts += tl.where(counted, 1.0, 0.0)
        else:
            tl.store(loss_ptr + rows, loss * weight + penalty * rough, mask=inside)
    if REDUCE:
        put_sums(
            loss_ptr, partial_ptr, factor_ptr, losses, weights, roughs, counts, penalty, count, rounded, MEAN, WEIGHTED,
            POINTS > 0,
        )  # fmt: skip
