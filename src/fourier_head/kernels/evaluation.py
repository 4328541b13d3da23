"""Launch the kernels of inference: samples, log-probabilities of all bins, quantiles."""

from __future__ import annotations

import torch
from torch import Tensor

from fourier_head.kernels.inference import log_mass_kernel, quantile_kernel, spread_kernel
from fourier_head.kernels.launch import INTERPRETED, empty, pad, product, run
from fourier_head.kernels.plan import Plan, ceil_div, power_of_two_above
from fourier_head.kernels.sampling import sample_kernel

# Digits of a quantile: 2^-24 of the interval, what float32 resolves near its ends.
DIGITS = 25


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


def log_pmf(x: Tensor, weight: Tensor, bias: Tensor | None, plan: Plan) -> Tensor:
    """Return log-probabilities (tokens, m): one matrix product, one FFT, and a kernel before and after it."""
    tokens = x.shape[0]
    bins = plan.num_bins or 1
    harmonics = weight.shape[0] // plan.halves
    result = empty(x, tokens, bins)
    if tokens == 0:
        return result
    y = product(x, pad(weight, plan))
    wave = empty(x, tokens, bins, 2)
    energy = empty(x, tokens)
    tile = min(64, power_of_two_above(bins))
    sizes = (tokens, harmonics, plan.padded(harmonics), y.stride(0), bins)
    constants = {"BIAS": bias is not None, "ROWS": 16, "TILE": tile}
    run(spread_kernel, (ceil_div(tokens, 16),), (y, bias, wave, energy, *sizes), constants, num_warps=4)
    values = torch.view_as_real(torch.fft.fft(torch.view_as_complex(wave)))
    grid = (ceil_div(tokens, 16), ceil_div(bins, tile))
    arguments = (values, energy, result, tokens, bins, plan.floor, plan.units)
    run(log_mass_kernel, grid, arguments, {"ROWS": 16, "TILE": tile}, num_warps=4)
    return result


def quantile(q: Tensor, levels: Tensor, plan: Plan) -> Tensor:
    """Return quantiles (tokens, V) of spectra (tokens, halves, N) at levels (tokens, V), which may be expanded."""
    tokens, _, harmonics = q.shape
    z = empty(q, *levels.shape)
    if z.numel() == 0:
        return z
    length = max(16, power_of_two_above(harmonics))
    constants = {
        "WALLS": plan.walls,
        "LENGTH": length,
        "ROWS": max(1, min(16, 4096 // length)),
        "STEPS": DIGITS,
        "APPROX": not INTERPRETED,
    }
    sizes = (
        tokens,
        harmonics,
        q.stride(1),
        q.stride(0),
        levels.stride(1),
        levels.stride(0),
        levels.shape[1],
        plan.omega,
    )
    grid = (ceil_div(tokens, constants["ROWS"]), levels.shape[1])
    run(quantile_kernel, grid, (q, levels, z, *sizes), constants, num_warps=4)
    return z
