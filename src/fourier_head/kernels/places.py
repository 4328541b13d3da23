"""Read a row's target and the place of its domain inside a kernel, and write the gradients of single outputs."""

from __future__ import annotations

import triton
import triton.language as tl

from fourier_head.kernels.phases import bin_turns, value_turns

# What targets are, bin ids or values of a domain, as kernels tell them apart.
KINDS = {"bins": 0, "interval": 1, "circle": 2, "line": 3, "placed": 4}

# Below this no half width falls, as in `adaptive.py`.
LEAST_WIDTH = tl.constexpr(1e-4)
# How far out infinite values are put, in units of the map, as in `adaptive.py`.
FAR = tl.constexpr(30.0)
LN2 = tl.constexpr(0.6931471805599453)


@triton.jit
def softplus(x):
    """Return log(1 + e^x)."""
    return tl.maximum(x, 0.0) + tl.log(1.0 + tl.exp(-tl.abs(x)))


@triton.jit
def sigmoid(x):
    """Return 1 / (1 + e^-x)."""
    return 1.0 / (1.0 + tl.exp(-x))


@triton.jit
def column(y_rows, bias_ptr, index, inside, BIAS: tl.constexpr):
    """Load one output of every row."""
    value = tl.load(y_rows + index, mask=inside, other=0.0).to(tl.float32)
    if BIAS:
        value += tl.load(bias_ptr + index).to(tl.float32)
    return value


@triton.jit
def load_lanes(y_rows, bias_ptr, first, count, inside, BIAS: tl.constexpr, LANES: tl.constexpr):
    """Load a few neighbouring outputs of every row, (rows, LANES)."""
    lane = tl.arange(0, LANES)
    keep = inside[:, None] & (lane < count)[None, :]
    value = tl.load(y_rows[:, None] + first + lane[None, :], mask=keep, other=0.0).to(tl.float32)
    if BIAS:
        value += tl.load(bias_ptr + first + lane, mask=lane < count, other=0.0).to(tl.float32)[None, :]
    return value


@triton.jit
def put_lanes(gradient_rows, first, count, inside, value, LANES: tl.constexpr):
    """Store the gradients of a few neighbouring outputs."""
    lane = tl.arange(0, LANES)
    keep = inside[:, None] & (lane < count)[None, :]
    tl.store(gradient_rows[:, None] + first + lane[None, :], value.to(gradient_rows.dtype.element_ty), mask=keep)


@triton.jit
def put_column(gradient_rows, index, inside, value):
    """Store the gradient of one output of every row."""
    tl.store(gradient_rows + index, value.to(gradient_rows.dtype.element_ty), mask=inside)


@triton.jit
def put_zeros(gradient_rows, first, last, inside):
    """Store zeros for outputs that a loss does not depend on, and after the last one to the end of a whole vector."""
    for start in tl.range(first, last, 8):
        index = start + tl.arange(0, 8)
        keep = inside[:, None] & (index < last)[None, :]
        zeros = tl.where(keep, 0.0, 0.0).to(gradient_rows.dtype.element_ty)
        tl.store(gradient_rows[:, None] + index[None, :], zeros, mask=keep)


@triton.jit
def bin_target(target_ptr, rows, inside, num_bins, num_atoms, ignore_index, WALLS: tl.constexpr):
    """Return (high, low, z, counted, wrong, on_bins, class id) of ids; atoms have the first ids, before the bins."""
    target = tl.load(target_ptr + rows, mask=inside, other=0).to(tl.int64)
    counted = inside & (target != ignore_index)
    wrong = counted & ((target < 0) | (target >= num_atoms + num_bins))
    target = tl.where(counted & (wrong == 0), target, 0)
    on_bins = counted & (target >= num_atoms)
    bins = tl.where(on_bins, target - num_atoms, 0)
    high, low = bin_turns(bins, num_bins, WALLS)
    z = (2 * bins + 1 - num_bins).to(tl.float64) / num_bins
    return high, low, z, counted, wrong, on_bins, target


@triton.jit
def value_target(
    target_ptr, anchor_ptr, y_rows, bias_ptr, first_place, rows, inside, origin, unit,
    TARGET: tl.constexpr, WALLS: tl.constexpr, PLACES: tl.constexpr, BIAS: tl.constexpr,
):  # fmt: skip
    """Return (high, low, z, counted, slope, v, width, pull, guess) of values; those that are missing do not count.

    ``slope``: what the log-density of a value has beside that of z, as far as it differs between rows. Of an adaptive
    domain ``v`` is the value in half widths from the middle, ``pull`` the share of the row's ``guess`` that is kept.
    """
    value = tl.load(target_ptr + rows, mask=inside, other=0.0).to(tl.float64)
    counted = inside & (value == value)
    u = (tl.where(counted, value, 0.0) - origin) / unit
    slope = tl.zeros(u.shape, tl.float32)
    v = slope
    width = slope + 1.0
    pull = slope
    guess = slope
    if TARGET == 1:
        z = u - 1.0
    elif TARGET == 2:
        z = 2.0 * (u - tl.floor(u)) - 1.0
    elif TARGET == 3:
        near = tl.exp(-2.0 * tl.abs(u))
        z = (1.0 - near) / (1.0 + near)
        z = tl.where(u < 0.0, -z, z)
        slope = ((-tl.abs(u) - tl.log(1.0 + near) + LN2) * 2.0).to(tl.float32)
    else:
        u = tl.where(tl.abs(u) < float("inf"), u, tl.where(u > 0.0, FAR, -FAR)).to(tl.float32)
        width = softplus(column(y_rows, bias_ptr, first_place + 1, inside, BIAS)) + LEAST_WIDTH
        loc = column(y_rows, bias_ptr, first_place, inside, BIAS)
        if PLACES == 3:
            pull = sigmoid(column(y_rows, bias_ptr, first_place + 2, inside, BIAS))
            guess = ((tl.load(anchor_ptr + rows, mask=inside, other=0.0).to(tl.float64) - origin) / unit).to(tl.float32)
            guess = tl.where(guess == guess, guess, 0.0)  # a missing guess is none
            loc += pull * guess
        v = (u - loc) / width
        z = v.to(tl.float64)
    z = tl.minimum(tl.maximum(z, -1.0), 1.0)
    high, low = value_turns(z, WALLS)
    return high, low, z, counted, slope, v, width, pull, guess


@triton.jit
def put_place(
    gradient_rows, y_rows, bias_ptr, first_place, inside, of_loc, of_width, pull, guess,
    PLACES: tl.constexpr, BIAS: tl.constexpr,
):  # fmt: skip
    """Store the gradients of the outputs that place a domain, given those of its middle and half width."""
    raw = column(y_rows, bias_ptr, first_place + 1, inside, BIAS)
    put_column(gradient_rows, first_place, inside, of_loc)
    put_column(gradient_rows, first_place + 1, inside, of_width * sigmoid(raw))
    if PLACES == 3:
        put_column(gradient_rows, first_place + 2, inside, of_loc * guess * pull * (1.0 - pull))


@triton.jit
def put_losses(
    loss_ptr, partial_ptr, factor_ptr, rows, inside, loss, weight, rough, counted, penalty, tokens, rounded,
    REDUCE: tl.constexpr, MEAN: tl.constexpr, WEIGHTED: tl.constexpr, ROUGH: tl.constexpr,
):  # fmt: skip
    """Store the losses of rows, or what they sum up to."""
    if REDUCE:
        counts = tl.where(counted, 1.0, 0.0)
        put_sums(
            loss_ptr, partial_ptr, factor_ptr, loss * weight, weight, rough, counts, penalty, tokens, rounded, MEAN,
            WEIGHTED, ROUGH,
        )  # fmt: skip
    else:
        tl.store(loss_ptr + rows, loss * weight + penalty * rough, mask=inside)


@triton.jit
def _sum_of_all(sums_ptr, programs):
    """Add up one number of every program; as many loads at once as a thread has registers for."""
    lane = tl.arange(0, 1024)
    total = tl.zeros([1024], tl.float32)
    for start in tl.range(0, programs, 1024):
        total += tl.load(sums_ptr + start + lane, mask=start + lane < programs, other=0.0, cache_modifier=".cg")
    return tl.sum(total, axis=0)


@triton.jit
def put_sums(
    loss_ptr, partial_ptr, factor_ptr, losses, weights, roughs, counts, penalty, tokens, rounded,
    MEAN: tl.constexpr, WEIGHTED: tl.constexpr, ROUGH: tl.constexpr,
):  # fmt: skip
    """Store the sums of a program, which the last one to finish adds up in a fixed order.

    ``partial_ptr``: a counter, which starts and is left at zero, then up to four sums per program: tokens that are not
    WEIGHTED are counted once, and without a ROUGH there is no sum of it. What is stored at ``factor_ptr`` is what
    gradients, kept rounded / tokens times too large, are to be multiplied with.
    """
    program = tl.program_id(0)
    programs = tl.num_programs(0)
    sums = partial_ptr + 1
    tl.store(sums + program, tl.sum(losses, axis=0))
    if MEAN:
        tl.store(sums + programs + program, tl.sum(weights, axis=0))
        if ROUGH and WEIGHTED:
            tl.store(sums + 3 * programs + program, tl.sum(counts, axis=0))
    if ROUGH:
        tl.store(sums + 2 * programs + program, tl.sum(roughs, axis=0))
    tl.debug_barrier()
    counter = partial_ptr.to(tl.pointer_type(tl.int32))
    if tl.atomic_add(counter, 1, sem="acq_rel") == programs - 1:
        tl.store(counter, 0)
        result = _sum_of_all(sums, programs)
        rest = penalty * 0.0
        if ROUGH:
            rest += _sum_of_all(sums + 2 * programs, programs)
        factor = penalty * 0.0 + 1.0
        if MEAN:
            # The mean over no tokens is zero.
            total = _sum_of_all(sums + programs, programs)
            if ROUGH:
                count = total
                if WEIGHTED:
                    count = _sum_of_all(sums + 3 * programs, programs)
                rest = rest / tl.where(count == 0.0, 1.0, count)
            total = tl.where(total == 0.0, 1.0, total)
            result = result / total
            factor = (tokens / total) / rounded
        # The loss comes last: where nobody asks for the factor, this is its place, too.
        tl.store(factor_ptr, factor)
        tl.store(loss_ptr, result + penalty * rest)
