"""Launch the kernels of inference: samples, log-probabilities of all bins, quantiles."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from fourier_head.fourier.spectrum import fast_length
from fourier_head.kernels import tables, window
from fourier_head.kernels.inverse import (
    distribution_kernel,
    filter_kernel,
    narrow_grid_kernel,
    ordered_kernel,
    power_kernel,
    solve_kernel,
)
from fourier_head.kernels.launch import INTERPRETED, empty, run
from fourier_head.kernels.matrices import product
from fourier_head.kernels.plan import ceil_div, power_of_two_above
from fourier_head.kernels.points import direct_kernel, four_step_kernel
from fourier_head.kernels.sampling import sample_kernel
from fourier_head.kernels.waves import log_mass_kernel, spread_kernel

# Up to this many harmonics a row of coefficients is one operand of a matrix product.
NARROW = 64
# How matrix units multiply, by the type of the rows: those of bfloat16, 8 bits, with cosines of float16, 11 bits; those
# of float16 with cosines in two parts, exact to 22 bits; those of float32 by three products of TensorFloat-32, as exact
# as one of float32. The entries are the type of the cosines and whether a second part follows.
PRODUCTS: dict[torch.dtype, tuple[torch.dtype, bool]] = {
    torch.bfloat16: (torch.float16, False),
    torch.float16: (torch.float16, True),
    torch.float32: (torch.float32, False),
}
# Tokens that one program transforms in two steps, one after the other.
TRANSFORMED = 8
# The largest table of cosines that is kept, in numbers.
TABLE = 1 << 21
# Up to this many points the grid of a distribution function is one product with the response to each of them.
RESPONSES = 2048
# Entries of the power and of the responses in float16 keep clear of its smallest and largest numbers.
POWER_SCALE = 8.0
# The least points of a grid: a window must not meet its own tail round the circle.
FEWEST = 8
# Steps of Newton's method, or of bisection where that would leave the bracket, within a cell of the grid. Levels are
# then off by 2e-5 in the worst case known, a peak between double zeros; after six steps it would be 3e-4, more than a
# grid of 11-bit products is off itself.
STEPS = 8
# Quantiles that one program finds.
BLOCK = 128


def has_walls(a: Tensor) -> bool:
    """Tell whether coefficients (tokens, halves, N + 1) are those between walls, which have no betas."""
    return a.shape[1] == 1


def drawn(a: Tensor, noise: Tensor, floor: float) -> Tensor:
    """Draw one sample per token digit by digit, of coefficients (tokens, halves, N + 1)."""
    tokens, digits = len(a), noise.shape[0] - 2
    z = empty(a, tokens)
    if tokens == 0:
        return z
    points = 1 << digits
    warps = 1 if 64 < points < 1024 else max(2, points // 1024)
    constants = {
        "WALLS": has_walls(a),
        "APPROX": not INTERPRETED,
        "POINTS": points,
        "LEVELS": digits,
        "ROWS": max(1, min(16, 1024 * warps // points)),
    }
    arguments = (a, noise, z, tokens, a.shape[2], a.stride(1), a.stride(0), floor)
    run(sample_kernel, (ceil_div(tokens, constants["ROWS"]),), arguments, constants, num_warps=warps)
    return z


def log_pmf(a: Tensor, bins: int, floor: float) -> Tensor:
    """Return log-probabilities (tokens, bins) of coefficients, in the way that suits their size and type."""
    tokens, _, harmonics = a.shape
    result = empty(a, tokens, bins)
    if tokens == 0:
        return result
    if harmonics <= NARROW + 1 and bins * harmonics <= TABLE:
        return direct(a, result, floor, log=True)
    if a.dtype != torch.float32 and bins % 16 == 0 and bins >= 256:
        return four_step(a, result, floor, log=True)
    return transformed_bins(a, result, floor)


def direct(
    a: Tensor, result: Tensor, floor: float, log: bool, products: tuple[torch.dtype, bool] | None = None
) -> Tensor:
    """Fill ``result`` (tokens, points) by one product with a table of cosines; at most NARROW + 1 harmonics.

    With log-probabilities of as many bins; or with the density, its floor left out, at points from z = 0 on, times
    POWER_SCALE / points.
    """
    (tokens, points), harmonics = result.shape, a.shape[2]
    dtype, split = products or PRODUCTS[a.dtype]
    length = max(16, power_of_two_above(harmonics - 1))
    tile = min(128, max(16, power_of_two_above(points)))
    # Larger operands than these run out of registers.
    full = dtype == torch.float32
    rows = min(64, (1024 if full else 4096) // length)
    tile = min(tile, 64 if full else 4096 // length)
    constants = {"WALLS": has_walls(a), "SPLIT": split, "LOG": log, "ROWS": rows, "LENGTH": length, "TILE": tile}
    table = tables.direct(points, length, log, dtype, a.device)
    sizes = (tokens, harmonics, a.stride(1), a.stride(0), points, floor, math.log(points), POWER_SCALE / points)
    grid = (ceil_div(tokens, rows), ceil_div(points, tile))
    run(direct_kernel, grid, (a, table, result, *sizes), constants, num_warps=4)
    return result


def inner_length(points: int) -> int:
    """Return the length of the second step of a transform of this many points, a multiple of 16."""
    return next(inner for inner in (64, 32, 16) if points % inner == 0 and (points >= 16 * inner or inner == 16))


def four_step(a: Tensor, result: Tensor, floor: float, log: bool) -> Tensor:
    """Fill ``result`` as ``direct`` does, by a transform in two steps of float16; the points are a multiple of 16."""
    (tokens, points), harmonics = result.shape, a.shape[2]
    inner = inner_length(points)
    length = max(16, power_of_two_above(ceil_div(harmonics, inner)))
    tile = min(64, max(16, power_of_two_above(points // inner)))
    constants = {
        "WALLS": has_walls(a),
        "LOG": log,
        "STEPS": TRANSFORMED,
        "INNER": inner,
        "LENGTH": length,
        "TILE": tile,
    }
    known = tables.four_step(points, inner, length, log, a.device)
    outer = points // inner
    sizes = (tokens, harmonics, a.stride(1), a.stride(0), outer, floor, math.log(points), POWER_SCALE / points)
    grid = (ceil_div(tokens, TRANSFORMED), ceil_div(outer, tile))
    run(four_step_kernel, grid, (a, *known, result, *sizes), constants, num_warps=4)
    return result


def transformed_bins(a: Tensor, result: Tensor, floor: float) -> Tensor:
    """Write log-probabilities by one FFT of length m and a kernel before and after it, in float32."""
    tokens, bins = result.shape
    values, energy = _waves(a, bins, shift=True)
    tile = min(64, power_of_two_above(bins))
    grid = (ceil_div(tokens, 16), ceil_div(bins, tile))
    arguments = (values, energy, result, tokens, bins, floor, math.log(bins))
    run(log_mass_kernel, grid, arguments, {"ROWS": 16, "TILE": tile}, num_warps=4)
    return result


def _waves(a: Tensor, points: int, *, shift: bool) -> tuple[Tensor, Tensor]:
    """Return A (tokens, points, 2) at equally spaced points, by an FFT, and the energy of the coefficients.

    From z = 0 on, or, shifted, at the centres of as many bins; coefficients are scaled to a largest entry of one.
    """
    tokens, _, harmonics = a.shape
    wave, energy = empty(a, tokens, points, 2), empty(a, tokens)
    constants = {"SHIFT": shift, "WALLS": has_walls(a), "ROWS": 16, "TILE": min(64, power_of_two_above(points))}
    arguments = (a, wave, energy, tokens, harmonics, a.stride(1), a.stride(0), points)
    run(spread_kernel, (ceil_div(tokens, 16),), arguments, constants, num_warps=4)
    return torch.view_as_real(torch.fft.fft(torch.view_as_complex(wave))), energy


def quantile(grid: Tensor, levels: Tensor, walls: bool, tails: float = 0.0) -> Tensor:
    """Return quantiles at levels (tokens, V), tails mixed in, of distribution functions interpolated from a grid."""
    z = empty(grid, *levels.shape)
    sizes = (z.numel(), grid.shape[1], levels.shape[1], levels.stride(0), levels.stride(1), tails)
    constants = {"WALLS": walls, "TAILS": tails > 0, **_solving(grid)}
    run(solve_kernel, (ceil_div(z.numel(), BLOCK),), (grid, levels, z, *sizes), constants, num_warps=4)
    return z


def distribution(grid: Tensor, z: Tensor, walls: bool) -> Tensor:
    """Return distribution functions at z (tokens, V) of [-1, 1], interpolated from a grid."""
    result = empty(grid, *z.shape)
    if result.numel():
        sizes = (z.numel(), grid.shape[1], z.shape[1], z.stride(0), z.stride(1))
        constants = {"WALLS": walls, "BLOCK": BLOCK}
        run(distribution_kernel, (ceil_div(z.numel(), BLOCK),), (grid, z, result, *sizes), constants, num_warps=4)
    return result


def ordered_quantiles(
    grid: Tensor, levels: Tensor, low: float, half_width: float, walls: bool = False, tails: float = 0.0,
    loc: Tensor | None = None, width: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Return quantiles at levels (V,), V at most BLOCK, as values (V, tokens); they never cross.

    ``grid`` is what distribution functions are interpolated from; the others are those of ``ordered_kernel``.
    """
    tokens, count = len(grid), len(levels)
    values = empty(grid, count, tokens)
    if not values.numel():
        return values
    arguments = (grid, levels, values, loc, width, tokens, grid.shape[1], count, low, half_width, tails)
    constants = {"WALLS": walls, "TAILS": tails > 0, "PLACED": loc is not None, **_solving(grid)}
    run(ordered_kernel, (ceil_div(tokens, BLOCK // count),), arguments, constants, num_warps=4)
    return values


def grid_of(a: Tensor, floor: float, spectra: bool) -> Tensor:
    """Return what distribution functions are interpolated from: of coefficients (tokens, halves, N + 1), or spectra."""
    if spectra:
        q, harmonics = a.float(), a.shape[2]
        cells = 2 * max(FEWEST, fast_length(2 * harmonics + 1))
        return _filtered(q, (q.stride(0), 1, q.stride(1), -1), harmonics, cells, 1.0, False, has_walls(a))
    if a.dtype != torch.float32 and 2 * a.shape[2] - 1 <= RESPONSES:
        return multiplied_grid(a, floor)
    return distribution_grid(a, floor)


def multiplied_grid(a: Tensor, floor: float, stepped: bool | None = None) -> Tensor:
    """Return what ``distribution_grid`` does, with products of float16: |A|^2 at points, times the response to each."""
    tokens, _, length = a.shape
    if stepped is None:
        stepped = length > NARROW + 1
    unit = 64 if stepped and length > 4 * NARROW else 16
    points = max(256 if stepped else FEWEST, ceil_div(2 * length - 1, unit) * unit)
    power = empty(a, tokens, points, dtype=torch.float16)
    if stepped:
        four_step(a, power, floor, log=False)
    else:
        direct(a, power, floor, False, (torch.float16, False))
    return product(power, tables.responses(length - 1, points, points / POWER_SCALE, a.device))


def distribution_grid(a: Tensor, floor: float, narrow: bool | None = None) -> Tensor:
    """Return what the distribution function is interpolated from, (tokens, cells)."""
    tokens, _, length = a.shape
    if narrow is None:
        narrow = length <= NARROW
    if narrow:
        points = max(16, power_of_two_above(2 * length - 1))
        grid = empty(a, tokens, 2 * points)
        constants = {
            "WALLS": has_walls(a),
            "LENGTH": max(16, power_of_two_above(length)),
            "POINTS": points,
            "APPROX": not INTERPRETED,
            "ROWS": 32,
            "TILE": min(64, 2 * points),
        }
        response = window.response(length - 1, 2 * points, a.device)
        arguments = (a, response, grid, tokens, length, a.stride(0), a.stride(1), 1 - floor)
        # From 128 points on four warps would run out of registers.
        warps = 4 if points < 128 else 8
        run(narrow_grid_kernel, (ceil_div(tokens, 32),), arguments, constants, num_warps=warps)
        return grid
    points = max(FEWEST, fast_length(2 * length - 1))
    values, _ = _waves(a, points, shift=False)
    power = empty(a, tokens, points)
    run(power_kernel, (ceil_div(power.numel(), 1024),), (values, power, power.numel()), {"BLOCK": 1024}, num_warps=4)
    c = torch.view_as_real(torch.fft.rfft(power, norm="forward"))
    return _filtered(c, (c.stride(0), 2, 1, 0), length - 1, 2 * points, 1 - floor, True, has_walls(a))


def _filtered(
    q: Tensor,
    strides: tuple[int, int, int, int],
    harmonics: int,
    cells: int,
    factor: float,
    relative: bool,
    walls: bool,
) -> Tensor:
    tokens, columns = q.shape[0], cells // 2 + 1
    wave = empty(q, tokens, columns, 2)
    gains = window.gains(harmonics, cells, q.device)
    constants = {"WALLS": walls, "RELATIVE": relative, "ROWS": 8, "TILE": 128}
    arguments = (q, gains, wave, tokens, harmonics, columns, *strides, factor)
    run(filter_kernel, (ceil_div(tokens, 8), ceil_div(columns, 128)), arguments, constants, num_warps=4)
    return torch.fft.irfft(torch.view_as_complex(wave), n=cells, norm="forward")


def _solving(grid: Tensor) -> dict[str, int]:
    return {"SEARCH": (grid.shape[1] - 1).bit_length(), "STEPS": STEPS, "BLOCK": BLOCK}
