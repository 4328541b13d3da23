"""Find quantiles: make a grid of the distribution function, then look levels up in it."""

from __future__ import annotations

import triton
import triton.language as tl

from fourier_head.kernels import window
from fourier_head.kernels.phases import cos_sin
from fourier_head.kernels.rows import GUARD

STEEPNESS = tl.constexpr(window.STEEPNESS)
AT_1 = tl.constexpr(window.value(1))
AT_2 = tl.constexpr(window.value(2))
AT_3 = tl.constexpr(window.value(3))


@triton.jit
def power_kernel(wave_ptr, power_ptr, total, BLOCK: tl.constexpr):
    """Turn values of A (re, im alternate) into their squares."""
    index = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    pairs = tl.program_id(0).to(tl.int64) * (2 * BLOCK) + tl.arange(0, 2 * BLOCK)
    wave = tl.load(wave_ptr + pairs, mask=pairs < 2 * total, other=0.0)
    re, im = tl.split(tl.reshape(wave * wave, [BLOCK, 2]))
    tl.store(power_ptr + index, re + im, mask=index < total)


@triton.jit(do_not_specialize=["harmonics"])
def filter_kernel(
    q_ptr, gain_ptr, wave_ptr, tokens, harmonics, columns, q_stride, q_step, q_half, first, factor,
    WALLS: tl.constexpr, RELATIVE: tl.constexpr, ROWS: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """Write the waves (re, im alternate) of a grid of the distribution function from a spectrum q_k, k = 1 ..

    Its real part lies at ``first + k q_step``, its imaginary part ``q_half`` further on. RELATIVE: the spectrum is yet
    to be divided by its constant term, which lies before it.
    """
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    inside = rows < tokens
    q_rows = q_ptr + rows.to(tl.int64) * q_stride
    scale = tl.zeros([ROWS], tl.float32) + factor
    if RELATIVE:
        scale = factor / (tl.load(q_rows, mask=inside, other=1.0) + GUARD)
    k = tl.program_id(1) * TILE + tl.arange(0, TILE)
    real = (k >= 1) & (k <= harmonics)
    keep = inside[:, None] & real[None, :]
    place = q_rows[:, None] + first + k[None, :] * q_step
    gain = tl.load(gain_ptr + k - 1, mask=real, other=0.0)[None, :] * scale[:, None]
    # The integral divides by i: (re + i im) / i = im - i re.
    im = -tl.load(place, mask=keep, other=0.0) * gain
    re = tl.zeros_like(im)
    if not WALLS:
        re = tl.load(place + q_half, mask=keep, other=0.0) * gain
    pair = tl.reshape(tl.join(re, im), [ROWS, 2 * TILE])
    column = tl.program_id(1) * (2 * TILE) + tl.arange(0, 2 * TILE)
    keep = inside[:, None] & (column < 2 * columns)[None, :]
    tl.store(wave_ptr + rows.to(tl.int64)[:, None] * (2 * columns) + column[None, :], pair, mask=keep)


@triton.jit(do_not_specialize=["harmonics"])
def narrow_grid_kernel(
    a_ptr, response_ptr, grid_ptr, tokens, harmonics, a_stride, a_half, factor,
    WALLS: tl.constexpr, LENGTH: tl.constexpr, POINTS: tl.constexpr, APPROX: tl.constexpr,
    ROWS: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """Make the grid (2 POINTS per row) from few coefficients: two matrix products with |A|^2 at POINTS between them."""
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    inside = rows < tokens
    l = tl.arange(0, LENGTH)
    keep = inside[:, None] & (l < harmonics)[None, :]
    place = a_ptr + rows.to(tl.int64)[:, None] * a_stride + l[None, :]
    alpha = tl.load(place, mask=keep, other=0.0).to(tl.float32)
    beta = tl.zeros_like(alpha)
    if not WALLS:
        beta = tl.load(place + a_half, mask=keep, other=0.0).to(tl.float32)
    largest = tl.max(tl.maximum(tl.abs(alpha), tl.abs(beta)), axis=1)
    inverse = (1.0 / tl.where(largest > 0.0, largest, 1.0))[:, None]
    alpha = alpha * inverse
    beta = beta * inverse
    energy = tl.sum(alpha * alpha + beta * beta, axis=1)
    point = tl.arange(0, POINTS).to(tl.uint32) * (4294967296 // POINTS)
    cos, sin = cos_sin(point[None, :], tl.zeros_like(point)[None, :], l[:, None], APPROX)
    re = tl.dot(alpha, cos, input_precision="tf32x3")
    im = tl.dot(alpha, -sin, input_precision="tf32x3")
    if not WALLS:
        re = tl.dot(beta, sin, re, input_precision="tf32x3")
        im = tl.dot(beta, cos, im, input_precision="tf32x3")
    power = (re * re + im * im) * (factor / (energy + GUARD))[:, None]
    # A tile at a time: the response as a whole matrix would not fit the chip.
    for start in tl.range(0, 2 * POINTS, TILE):
        cells = start + tl.arange(0, TILE)
        lag = (cells[None, :] - 2 * tl.arange(0, POINTS)[:, None]) & (2 * POINTS - 1)
        grid = tl.dot(power, tl.load(response_ptr + lag), input_precision="tf32x3")
        tl.store(grid_ptr + rows.to(tl.int64)[:, None] * (2 * POINTS) + cells[None, :], grid, mask=inside[:, None])


@triton.jit
def _window(x):
    """Return the window at x, |x| <= 4, and its logarithmic derivative."""
    root = tl.sqrt(tl.maximum(1.0 - x * x * 0.0625, 1e-12))
    return tl.exp((root - 1.0) * STEEPNESS), x * -0.0625 * STEEPNESS / root


@triton.jit
def _take(grid_rows, cell, cells, inside):
    """Return entries of the grid, which closes to a circle."""
    cell = tl.where(cell < 0, cell + cells, tl.where(cell >= cells, cell - cells, cell))
    return tl.load(grid_rows + cell, mask=inside, other=0.0)


@triton.jit
def _edge(grid_rows, cell, cells, inside):
    """Return the function that the grid stands for at one of its points."""
    total = _take(grid_rows, cell, cells, inside)
    total += (_take(grid_rows, cell - 1, cells, inside) + _take(grid_rows, cell + 1, cells, inside)) * AT_1
    total += (_take(grid_rows, cell - 2, cells, inside) + _take(grid_rows, cell + 2, cells, inside)) * AT_2
    total += (_take(grid_rows, cell - 3, cells, inside) + _take(grid_rows, cell + 3, cells, inside)) * AT_3
    return total


@triton.jit
def _laplace(z, tails):
    """Return the distribution function and density of Laplace tails of this weight."""
    density = 0.5 * tails * tl.exp(-tl.abs(z))
    return tl.where(z < 0.0, density, tails - density), density


@triton.jit
def _solved(
    grid_rows, u, cells, inside, tails, WALLS: tl.constexpr, TAILS: tl.constexpr, SEARCH: tl.constexpr,
    STEPS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Return z with F(z) = u: a binary search among the cells of the grid, then Newton steps kept inside the cell.

    F = t + W(t) - W(0) with t = (z + 1) / 2 on the circle; between walls it is twice that from t = 1/2 on. With TAILS a
    Laplace density of this weight is mixed in, which alone reaches beyond -1 and 1.
    """
    low = tl.zeros([BLOCK], tl.int32)
    if WALLS:
        low += cells // 2
    first = low
    high = tl.zeros([BLOCK], tl.int32) + cells
    start = _edge(grid_rows, low, cells, inside)
    size = 1.0 / cells
    rest = 1.0 - tails if TAILS else 1.0
    factor = 2.0 * rest if WALLS else rest
    unit = 4.0 * size if WALLS else 2.0 * size  # of z, per cell
    base = 3 * cells if WALLS else cells
    per_cell = 4 if WALLS else 2
    below = tl.zeros([BLOCK], tl.float32)
    above = tl.full([BLOCK], 1.0, tl.float32)
    for _ in tl.range(SEARCH):
        middle = (low + high) // 2
        wave = _edge(grid_rows, middle, cells, inside) - start
        value = factor * ((middle - first).to(tl.float32) * size + wave)
        if TAILS:
            value += _laplace((per_cell * middle - base).to(tl.float32) * size, tails)[0]
        open = high - low > 1
        up = open & (value <= u)
        down = open & (value > u)
        low = tl.where(up, middle, low)
        below = tl.where(up, value, below)
        high = tl.where(down, middle, high)
        above = tl.where(down, value, above)
    left = tl.zeros([BLOCK], tl.float32)
    right = tl.full([BLOCK], 1.0, tl.float32)
    x = tl.minimum(tl.maximum((u - below) / tl.maximum(above - below, 1e-30), 0.0), 1.0)
    for _ in tl.range(STEPS):
        value = (low - first).to(tl.float32) * size + (x * size - start)
        slope = tl.zeros([BLOCK], tl.float32) + size
        for tap in tl.static_range(-3, 5):
            weight, relative = _window(x - tap)
            part = _take(grid_rows, low + tap, cells, inside) * weight
            value += part
            slope += part * relative
        error = factor * value - u
        slope *= factor
        if TAILS:
            far, density = _laplace((per_cell * low - base).to(tl.float32) * size + unit * x, tails)
            error += far
            slope += density * unit
        left = tl.where(error < 0.0, x, left)
        right = tl.where(error > 0.0, x, right)
        # A Newton step that leaves the bracket gives way to bisection.
        newton = x - error / tl.maximum(slope, 1e-30)
        good = (newton >= left) & (newton <= right)
        x = tl.where(error == 0.0, x, tl.where(good, newton, 0.5 * (left + right)))
    # The distance of the cell from the nearer end, so that no digits cancel there.
    z = (per_cell * low - base).to(tl.float32) * size + unit * x
    z = tl.minimum(tl.maximum(z, -1.0), 1.0)
    if TAILS:
        nearer = tl.minimum(u, 1.0 - u)
        outside = tl.log(2.0 * nearer / tails)  # below minus one where only tails are left
        z = tl.where(outside < -1.0, tl.where(u < 0.5, outside, -outside), z)
    else:
        z = tl.where(u <= 0.0, -1.0, tl.where(u >= 1.0, 1.0, z))
    return tl.where(u == u, z, u)


@triton.jit(do_not_specialize=["cells", "points"])
def distribution_kernel(
    grid_ptr, z_ptr, result_ptr, total, cells, points, token_stride, point_stride,
    WALLS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Write the distribution function of every row at its points z of [-1, 1]."""
    index = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = index < total
    row = index // points
    z = tl.load(z_ptr + row * token_stride + (index - row * points) * point_stride, mask=inside, other=0.0)
    grid_rows = grid_ptr + row * cells
    # In cells from the point where the function is zero; between walls that is half way round the circle.
    place = (z + 1.0) * (0.25 * cells if WALLS else 0.5 * cells)
    low = tl.minimum(place.to(tl.int32), cells - 1)
    x = place - low.to(tl.float32)
    first = (cells // 2 if WALLS else 0) + tl.zeros([BLOCK], tl.int32)
    value = place / cells - _edge(grid_rows, first, cells, inside)
    for tap in tl.static_range(-3, 5):
        weight, _ = _window(x - tap)
        value += _take(grid_rows, first + low + tap, cells, inside) * weight
    value = value * 2.0 if WALLS else value
    tl.store(result_ptr + index, tl.minimum(tl.maximum(value, 0.0), 1.0), mask=inside)


@triton.jit(do_not_specialize=["cells", "levels"])
def solve_kernel(
    grid_ptr, level_ptr, z_ptr, total, cells, levels, token_stride, level_stride, tails,
    WALLS: tl.constexpr, TAILS: tl.constexpr, SEARCH: tl.constexpr, STEPS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Write quantiles at levels that every row has of its own."""
    index = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = index < total
    row = index // levels
    u = tl.load(level_ptr + row * token_stride + (index - row * levels) * level_stride, mask=inside, other=0.5)
    z = _solved(grid_ptr + row * cells, u, cells, inside, tails, WALLS, TAILS, SEARCH, STEPS, BLOCK)
    tl.store(z_ptr + index, z, mask=inside)


@triton.jit(do_not_specialize=["cells", "levels"])
def ordered_kernel(
    grid_ptr, level_ptr, value_ptr, loc_ptr, width_ptr, tokens, cells, levels, low, half_width, tails,
    WALLS: tl.constexpr, TAILS: tl.constexpr, PLACED: tl.constexpr, SEARCH: tl.constexpr, STEPS: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Write quantiles at levels that all rows share as values of an interval, level by level.

    The interval starts at ``low`` and is twice ``half_width`` long; PLACED: that of a row lies around its loc, in units
    of its width, and ``low`` is the origin, ``half_width`` the unit of both.

    A program owns all levels of its rows, and none of its quantiles lies below that of a lower level: rounding may swap
    two that are equal but for the last bits.
    """
    lane = tl.arange(0, BLOCK)
    own = BLOCK // levels
    local = lane // levels
    level = lane - local * levels
    row = tl.program_id(0) * own + local
    inside = (local < own) & (row < tokens)
    u = tl.load(level_ptr + level)
    z = _solved(grid_ptr + row.to(tl.int64) * cells, u, cells, inside, tails, WALLS, TAILS, SEARCH, STEPS, BLOCK)
    highest = z
    for other in tl.range(levels):
        # Lanes behind the last whole row own nothing; they only must not reach beyond the block.
        theirs = tl.gather(z, tl.minimum(local * levels + other, BLOCK - 1), 0)
        highest = tl.where(tl.load(level_ptr + other) <= u, tl.maximum(highest, theirs), highest)
    if PLACED:
        loc = tl.load(loc_ptr + row, mask=inside, other=0.0)
        width = tl.load(width_ptr + row, mask=inside, other=1.0)
        value = low + half_width * (loc + width * highest)
    else:
        value = low + (highest + 1.0) * half_width
    tl.store(value_ptr + level.to(tl.int64) * tokens + row, value, mask=inside)
