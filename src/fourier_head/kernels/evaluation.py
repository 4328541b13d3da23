"""Launch the kernels of inference: samples, log-probabilities of all bins, quantiles."""

from __future__ import annotations

import torch
from torch import Tensor

from fourier_head.kernels import window
from fourier_head.kernels.bins import basis_kernel, narrow_bins_kernel, sort_kernel, wide_bins_kernel
from fourier_head.kernels.inverse import filter_kernel, narrow_grid_kernel, power_kernel, solve_kernel
from fourier_head.kernels.launch import INTERPRETED, empty, pad, product, run
from fourier_head.kernels.plan import Blocks, Plan, ceil_div, power_of_two_above
from fourier_head.kernels.sampling import sample_kernel
from fourier_head.kernels.waves import log_mass_kernel, spread_kernel
from fourier_head.spectrum import fast_length

# Up to this many harmonics a row of coefficients is one operand of a matrix product, in float32 throughout.
NARROW = 64
# How matrix units multiply float32: three products of TensorFloat-32 are as exact as one of float32, and faster.
PRECISION = "tf32x3"
# Blocks of the products for all bins.
NARROW_BLOCKS = Blocks(rows=64, tile=32, warps=4)
WIDE_BLOCKS = Blocks(rows=128, tile=32, depth=32, warps=8, stages=4)
# The least points of a grid: a window must not meet its own tail round the circle.
FEWEST = 8
# Steps of Newton's method, or of bisection where that would leave the bracket, within a cell of the grid.
STEPS = 8


def sample(x: Tensor, weight: Tensor, bias: Tensor | None, noise: Tensor, plan: Plan) -> Tensor:
    """Return samples (samples, tokens) from uniform ``noise`` (2 + digits, samples, tokens)."""
    tokens = x.shape[0]
    harmonics = weight.shape[0] // plan.halves
    padded = plan.padded(harmonics)
    digits, samples = noise.shape[0] - 2, noise.shape[1]
    z = empty(x, samples, tokens)
    if z.numel() == 0:
        return z
    y = product(x, pad(weight, plan))
    points = 1 << digits
    constants = {
        "BIAS": bias is not None,
        "WALLS": plan.walls,
        "POINTS": points,
        "LEVELS": digits,
        "ROWS": max(1, min(16, 4096 // points)),
    }
    arguments = (y, bias, noise, z, tokens, harmonics, padded, y.stride(0), plan.floor)
    run(sample_kernel, (ceil_div(tokens, constants["ROWS"]), samples), arguments, constants, num_warps=4)
    return z


def log_pmf(y: Tensor, plan: Plan) -> Tensor:
    """Return log-probabilities (tokens, m) of outputs of a projection, in the way that suits their size and type."""
    tokens, bins = y.shape[0], plan.num_bins or 1
    result = empty(y, tokens, bins)
    if tokens == 0:
        return result
    if bins % 2:
        return transformed_bins(y, plan, result)
    if y.shape[1] // 2 <= NARROW:
        return narrow_bins(y, plan, result)
    # Products of numbers rounded to 11 bits: more than a 16-bit type can tell, not enough for float32.
    return transformed_bins(y, plan, result) if y.dtype == torch.float32 else wide_bins(y, plan, result)


def narrow_bins(
    y: Tensor, plan: Plan, result: Tensor, precision: str | None = None, blocks: Blocks | None = None
) -> Tensor:
    """Write log-probabilities of a head of few harmonics by one kernel, in float32."""
    tokens, bins = result.shape
    harmonics = y.shape[1] // 2
    blocks = blocks or NARROW_BLOCKS
    constants = {
        "PRECISION": precision or PRECISION,
        "APPROX": _approximate(y),
        "ROWS": blocks.rows,
        "LENGTH": max(16, power_of_two_above(ceil_div(harmonics, 2))),
        "TILE": min(blocks.tile, max(16, power_of_two_above(ceil_div(bins, 4)))),
    }
    arguments = (y, result, tokens, harmonics, y.stride(0), bins, plan.floor, plan.units)
    run(narrow_bins_kernel, (ceil_div(tokens, blocks.rows),), arguments, constants, num_warps=blocks.warps)
    return result


def wide_bins(y: Tensor, plan: Plan, result: Tensor, blocks: Blocks | None = None) -> Tensor:
    """Write log-probabilities by one product with float16 operands and float32 sums."""
    blocks = blocks or WIDE_BLOCKS
    tokens, bins = result.shape
    harmonics = y.shape[1] // 2
    length = ceil_div(ceil_div(harmonics, 2), blocks.depth) * blocks.depth
    tiles = ceil_div(ceil_div(bins, 4), blocks.tile)
    coefficients = empty(y, tokens, 4 * length, dtype=torch.float16)
    energy = empty(y, tokens)
    arguments: tuple[object, ...] = (y, coefficients, energy, tokens, harmonics, y.stride(0), length)
    run(sort_kernel, (ceil_div(tokens, 8),), arguments, {"ROWS": 8, "TILE": 128}, num_warps=4)
    basis = empty(y, tiles * blocks.tile * 2, 2 * length, dtype=torch.float16)
    constants = {"ROWS": 16, "TILE": 128, "APPROX": not INTERPRETED}
    run(basis_kernel, (len(basis) // 16, ceil_div(2 * length, 128)), (basis, bins, length), constants, num_warps=4)
    constants = {"ROWS": blocks.rows, "TILE": blocks.tile, "DEPTH": blocks.depth, "WIDEN": INTERPRETED}
    arguments = (coefficients, basis, energy, result, tokens, length, bins, plan.floor, plan.units)
    grid = (tiles, ceil_div(tokens, blocks.rows))
    run(wide_bins_kernel, grid, arguments, constants, num_warps=blocks.warps, num_stages=blocks.stages)
    return result


def transformed_bins(y: Tensor, plan: Plan, result: Tensor) -> Tensor:
    """Write log-probabilities by one FFT of length m and a kernel before and after it, in float32."""
    tokens, bins = result.shape
    harmonics = y.shape[1] // 2
    values, energy = _waves(y, harmonics, harmonics, bins, shift=True, walls=False)
    tile = min(64, power_of_two_above(bins))
    grid = (ceil_div(tokens, 16), ceil_div(bins, tile))
    arguments = (values, energy, result, tokens, bins, plan.floor, plan.units)
    run(log_mass_kernel, grid, arguments, {"ROWS": 16, "TILE": tile}, num_warps=4)
    return result


def _waves(y: Tensor, harmonics: int, half: int, points: int, *, shift: bool, walls: bool) -> tuple[Tensor, Tensor]:
    """Return A (tokens, points, 2) at equally spaced points, by an FFT, and the energy of the coefficients.

    From z = 0 on, or, shifted, at the centres of as many bins; coefficients are scaled to a largest entry of one.
    """
    tokens = y.shape[0]
    wave = empty(y, tokens, points, 2)
    energy = empty(y, tokens)
    constants = {"SHIFT": shift, "WALLS": walls, "ROWS": 16, "TILE": min(64, power_of_two_above(points))}
    arguments = (y, wave, energy, tokens, harmonics, half, y.stride(0), points)
    run(spread_kernel, (ceil_div(tokens, 16),), arguments, constants, num_warps=4)
    return torch.view_as_real(torch.fft.fft(torch.view_as_complex(wave))), energy


def quantile(q: Tensor, levels: Tensor) -> Tensor:
    """Return quantiles (tokens, V) of spectra (tokens, halves, N) at levels (tokens, V)."""
    _, halves, harmonics = q.shape
    if levels.numel() == 0:
        return empty(q, *levels.shape)
    cells = 2 * max(FEWEST, fast_length(2 * harmonics + 1))
    grid = _filtered(q, (q.stride(0), 1, q.stride(1), -1), harmonics, cells, 1.0, relative=False, walls=halves == 1)
    return _solve(grid, levels, halves == 1)


def coefficient_quantile(a: Tensor, levels: Tensor, floor: float) -> Tensor:
    """Return quantiles (tokens, V) of densities with coefficients (tokens, halves, N + 1) at levels (tokens, V)."""
    if levels.numel() == 0:
        return empty(a, *levels.shape)
    return _solve(distribution_grid(a, floor), levels, a.shape[1] == 1)


def distribution_grid(a: Tensor, floor: float, narrow: bool | None = None, precision: str | None = None) -> Tensor:
    """Return what the distribution function is interpolated from, (tokens, cells)."""
    tokens, halves, length = a.shape
    walls = halves == 1
    if narrow is None:
        narrow = length <= NARROW
    if narrow:
        points = max(16, power_of_two_above(2 * length - 1))
        grid = empty(a, tokens, 2 * points)
        constants = {
            "WALLS": walls,
            "LENGTH": max(16, power_of_two_above(length)),
            "POINTS": points,
            "PRECISION": precision or PRECISION,
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
    values, _ = _waves(a, length, a.stride(1), points, shift=False, walls=walls)
    power = empty(a, tokens, points)
    run(power_kernel, (ceil_div(power.numel(), 1024),), (values, power, power.numel()), {"BLOCK": 1024}, num_warps=4)
    c = torch.view_as_real(torch.fft.rfft(power, norm="forward"))
    return _filtered(c, (c.stride(0), 2, 1, 0), length - 1, 2 * points, 1 - floor, relative=True, walls=walls)


def _filtered(
    q: Tensor, strides: tuple[int, int, int, int], harmonics: int, cells: int, factor: float, *,
    relative: bool, walls: bool,
) -> Tensor:  # fmt: skip
    tokens, columns = q.shape[0], cells // 2 + 1
    wave = empty(q, tokens, columns, 2)
    gains = window.gains(harmonics, cells, q.device)
    constants = {"WALLS": walls, "RELATIVE": relative, "ROWS": 8, "TILE": 128}
    arguments = (q, gains, wave, tokens, harmonics, columns, *strides, factor)
    run(filter_kernel, (ceil_div(tokens, 8), ceil_div(columns, 128)), arguments, constants, num_warps=4)
    return torch.fft.irfft(torch.view_as_complex(wave), n=cells, norm="forward")


def _solve(grid: Tensor, levels: Tensor, walls: bool) -> Tensor:
    z = empty(grid, *levels.shape)
    cells = grid.shape[1]
    constants = {
        "WALLS": walls,
        "SEARCH": (cells - 1).bit_length(),
        "STEPS": STEPS,
        "BLOCK": 128,
    }
    sizes = (z.numel(), cells, levels.shape[1], levels.stride(0), levels.stride(1))
    run(solve_kernel, (ceil_div(z.numel(), 128),), (grid, levels, z, *sizes), constants, num_warps=4)
    return z


def _approximate(x: Tensor) -> bool:
    return x.dtype != torch.float32 and not INTERPRETED
