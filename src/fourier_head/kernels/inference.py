"""Quantiles, samples, distribution functions and log-probabilities of rows, without gradients."""

from __future__ import annotations

import torch
from torch import Tensor

from fourier_head.kernels.devices import on, require
from fourier_head.kernels.plan import Score
from fourier_head.kernels.scores import row_scores

# Up to this many levels are put in order while they are found, up to this many coefficients sampled one by one.
FEW_LEVELS = 32
FEW_COEFFICIENTS = 4096


@torch.no_grad()
def coefficient_sample(a: Tensor, *, floor: float = 0.0, generator: torch.Generator | None = None) -> Tensor:
    """Draw exact samples (tokens,) in [-1, 1] of coefficients (tokens, 2, N + 1), or (tokens, 1, L).

    The latter are those between walls. No bins, no search and no approximation: `sampling.py` explains the method.
    """
    from fourier_head.kernels import evaluation  # triton is optional, and importing it takes a while

    a = _rows(a)
    if a.shape[2] > FEW_COEFFICIENTS:
        raise ValueError(f"a: expected at most {FEW_COEFFICIENTS} coefficients, got {a.shape[2]}")
    # For the floor, the shift and each binary digit.
    digits = max(a.shape[2] - 1, 1).bit_length()
    noise = torch.rand((2 + digits, len(a)), device=a.device, generator=generator)
    with on(a):
        return evaluation.drawn(a, noise, floor)


@torch.no_grad()
def log_pmf(y: Tensor, *, num_bins: int, floor: float = 0.0) -> Tensor:
    """Return log-probabilities of all bins, (tokens, num_bins) in float32, on the circle and without a gradient.

    ``y`` are outputs of a projection, (tokens, 2 (N + 1)). Those of float32 give results of that precision. For those
    of a 16-bit type matrix units multiply numbers of 11 bits, which is as many as the outputs have or more; up to 64
    harmonics nothing of float16 outputs is rounded further.
    """
    from fourier_head.kernels import evaluation

    require("y", y)
    if y.dim() != 2 or y.shape[1] % 2:
        raise ValueError(f"y: expected (tokens, 2 (N + 1)), got {tuple(y.shape)}")
    if y.shape[1] // 2 > num_bins:
        raise ValueError(f"num_bins: {y.shape[1] // 2 - 1} frequencies need more than {num_bins} bins")
    y = y if y.stride(-1) == 1 else y.contiguous()
    with on(y):
        return evaluation.log_pmf(y.unflatten(1, (2, -1)), num_bins, floor)


@torch.no_grad()
def quantile(a: Tensor, levels: Tensor, *, floor: float = 0.0, tails: float = 0.0, spectra: bool = False) -> Tensor:
    """Return the quantiles at levels (tokens, V) of coefficients (tokens, 2, N + 1) or, between walls, (tokens, 1, L).

    With ``spectra``, of spectra (tokens, 2, N) or (tokens, 1, N). The distribution function is interpolated from a grid
    twice as fine as its waves (``window``), coefficients of a 16-bit type being multiplied as such; Laplace tails of a
    weight are mixed in. No gradient flows.
    """
    from fourier_head.kernels import evaluation

    a = _rows(a, levels)
    if not levels.numel():
        return torch.empty(levels.shape, device=a.device)
    with on(a):
        grid = evaluation.grid_of(a, floor, spectra)
        return evaluation.quantile(grid, levels.float(), evaluation.has_walls(a), tails)


@torch.no_grad()
def distribution(a: Tensor, z: Tensor, *, floor: float = 0.0, spectra: bool = False) -> Tensor:
    """Return distribution functions at z (tokens, V) of [-1, 1]: of coefficients, or of ``spectra``; no gradient flows.

    Interpolated as in :func:`quantile`, in float32.
    """
    from fourier_head.kernels import evaluation

    a = _rows(a, z).float()
    if not z.numel():
        return torch.empty(z.shape, device=a.device)
    with on(a):
        return evaluation.distribution(evaluation.grid_of(a, floor, spectra), z.float(), evaluation.has_walls(a))


@torch.no_grad()
def log_density(a: Tensor, z: Tensor, *, floor: float = 0.0) -> Tensor:
    """Return log-densities of coefficients (tokens, 2, N + 1), or (tokens, 1, L) between walls, at z (tokens,)."""
    a = _rows(a)
    score = Score("nll", "interval", a.shape[2], floor=floor, walls=a.shape[1] == 1, origin=-1.0, reduction="none")
    if z.shape != a.shape[:1]:
        raise ValueError(f"z: expected shape ({len(a)},), got {tuple(z.shape)}")
    return -row_scores(a.flatten(1), None, None, z, score)


@torch.no_grad()
def ordered_quantiles(
    a: Tensor,
    levels: Tensor,
    low: float = -1.0,
    half_width: float = 1.0,
    *,
    floor: float = 0.0,
    tails: float = 0.0,
    loc: Tensor | None = None,
    width: Tensor | None = None,
    spectra: bool = False,
) -> Tensor:
    """Return quantiles at levels (V,), the same for all tokens, as values; of shape (V, tokens), they never cross.

    Args:
        a: coefficients or, with ``spectra``, spectra, as for :func:`quantile`.
        levels: at most 32.
        low, half_width: of the interval of values.
        loc, width: middle and half width of the interval of each token, (tokens,), in place of those.
        floor, tails: of the densities.
    """
    from fourier_head.kernels import evaluation

    if levels.dim() != 1 or len(levels) > FEW_LEVELS:
        raise ValueError(f"levels: expected shape (V,), V at most {FEW_LEVELS}, got {tuple(levels.shape)}")
    levels = levels.float().contiguous()
    a = _rows(a)
    if loc is not None and width is not None:
        loc, width, low, half_width = loc.float().contiguous(), width.float().contiguous(), 0.0, 1.0
    if not len(a) or not len(levels):
        return torch.empty(len(levels), len(a), device=a.device)
    with on(a):
        grid = evaluation.grid_of(a, floor, spectra)
        return evaluation.ordered_quantiles(grid, levels, low, half_width, evaluation.has_walls(a), tails, loc, width)


def _rows(a: Tensor, levels: Tensor | None = None) -> Tensor:
    """Check (tokens, halves, length) beside levels (tokens, V) and return it as the kernels read it."""
    require("a", a)
    if a.dim() != 3 or a.shape[1] not in (1, 2):
        raise ValueError(f"a: expected (tokens, 2, N) or, between walls, (tokens, 1, N), got {tuple(a.shape)}")
    if levels is not None and (levels.dim() != 2 or len(levels) != len(a)):
        raise ValueError(f"levels: expected shape ({len(a)}, V), got {tuple(levels.shape)}")
    return a if a.stride(-1) == 1 else a.contiguous()
