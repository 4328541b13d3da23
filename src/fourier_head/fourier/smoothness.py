"""The smoothness metric and its sum over Gaussian widths; public as :func:`fourier_head.metrics.smoothness`.

Definition 3.2 of the paper adds up the norms :math:`h(\\sigma) = \\|y - g_\\sigma * y\\|` over all integers
:math:`\\sigma \\ge 1` with weights :math:`6 / (\\pi^2 \\sigma^2)`. Three facts make the infinite sum cheap:

- the wrapped kernel is symmetric, so convolving is a real multiplier on the spectrum of y;
- :math:`h` is smooth on the scale of :math:`\\sigma` itself, so on each octave the sum over integers is a Gauss rule:
  the nodes and weights of the uniform measure on M consecutive integers (discrete Chebyshev polynomials), exact for
  polynomials of degree 31, wherever M > 16;
- the kernel has radius m - 1, so it tends to a fixed one as :math:`\\sigma \\to \\infty` and
  :math:`h(\\sigma) = h_\\infty + c / \\sigma^2 + O(m^4 / \\sigma^4)`. Beyond :math:`1024\\,m` one node, exact for the
  first two terms, stands for the rest of the series with relative error below :math:`1024^{-5} \\approx 10^{-15}`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from fourier_head._arrays import Numeric, as_tensors, needs_sync
from fourier_head.errors import is_whole

RELEASED_MAX_SIGMA = 100
"""Where the released experiments of the paper cut the sum over sigma."""

_HEAD = 32  # widths summed one by one: h changes most here
_ORDER = 16  # Gauss nodes per octave: error about 4^(-32), limited by where h stops being analytic (45 degrees)
_REACH = 1024  # the tail node takes over at this multiple of the number of bins
_FINE = 2048  # points per octave that resolve the kinks of the absolute value
_ELEMENTS = 1 << 22  # largest temporary, in numbers
_ROWS = 1 << 23  # numbers of a batch worked on at a time


def smoothness(
    pmf: Numeric, *, discrepancy: Literal["l2", "l1"] = "l2", max_sigma: int | Literal["released"] | None = None
) -> Tensor:
    r"""Return how much of a categorical a Gaussian blur removes, averaged over blurs; 0 for the uniform one.

    .. math:: s(y) = \sum_{\sigma \ge 1} \frac{6}{\pi^2 \sigma^2} \|y - g_\sigma * y\|

    with the Gaussian kernel of radius m - 1 and circular convolution. The infinite sum is exact to machine precision
    (L1: to about 1e-12) in float64 work whatever the dtype of `pmf`. A batch costs one FFT and one small matrix
    product for L2; L1 needs an inverse FFT for each of some hundred widths.

    Args:
        pmf: probabilities, bins last.
        discrepancy: the norm, `"l2"` as in the paper's experiments or `"l1"`.
        max_sigma: last width of the sum; `None` for no end, `"released"` for 100, where the released code stops.

    References:
        Gillman et al., Fourier Head (2025), Definition 3.2.

    Example:
        >>> smoothness([0.25, 0.25, 0.25, 0.25]).item()
        0.0
        >>> print(f"{smoothness([0.0, 1.0, 0.0, 0.0]).item():.6f}")
        0.798572
        >>> print(f"{smoothness([0.0, 1.0, 0.0, 0.0], max_sigma='released').item():.6f}")
        0.792585
    """
    (rows,) = as_tensors(pmf)
    if rows.ndim == 0 or rows.shape[-1] == 0:
        raise ValueError(f"pmf must have at least one bin on its last axis, got shape {tuple(rows.shape)}")
    refuse_logarithms("pmf", rows)
    if discrepancy not in ("l2", "l1"):
        raise ValueError(f"discrepancy must be 'l2' or 'l1', got {discrepancy!r}")
    last = RELEASED_MAX_SIGMA if max_sigma == "released" else max_sigma
    if last is not None and not is_whole(last, 1):
        raise ValueError(f"max_sigma must be a positive integer, 'released' or None, got {max_sigma!r}")
    norm_sum = sum_l2 if discrepancy == "l2" else sum_l1
    work = torch.float32 if rows.device.type == "mps" else torch.float64
    flat = rows.reshape(-1, rows.shape[-1])
    step = max(1, _ROWS // rows.shape[-1])
    parts = [norm_sum(part.to(work), last) for part in flat.split(step)] if len(flat) else [flat.new_zeros(0)]
    return torch.cat(parts).to(rows.dtype).reshape(rows.shape[:-1])


def refuse_logarithms(name: str, rows: Tensor) -> None:
    """Raise a clear error where a row has no entry that is not negative, as log-probabilities have none."""
    if rows.numel() and not needs_sync(rows) and bool((rows.amax(-1) < 0).any()):
        raise ValueError(f"{name} must hold probabilities, got a row of negative numbers: of logarithms take exp()")


@dataclass(frozen=True)
class Block:
    """Nodes, weights and, where nodes are no integers, the interpolation to points that follow the integers."""

    sigma: np.ndarray  # (n,)
    weight: np.ndarray  # (n,)
    fine: np.ndarray | None = None  # (points, n)
    fine_weight: np.ndarray | None = None  # (points,)


def alpha(sigma: np.ndarray) -> np.ndarray:
    """Return the weight 6 / (pi sigma)^2 of each width."""
    return 6 / (math.pi * sigma) ** 2


def integer_gauss(first: int, count: int, order: int) -> tuple[np.ndarray, np.ndarray]:
    """Return nodes and weights of the Gauss rule for a sum over `count` consecutive integers from `first` on."""
    if count <= order:
        return first + np.arange(count, dtype=float), np.ones(count)
    k = np.arange(1, order, dtype=float)
    off = 0.5 * k * np.sqrt((1 - (k / count) ** 2) / (4 * k**2 - 1))  # Jacobi matrix in units of count
    nodes, vectors = np.linalg.eigh(np.diag(off, 1) + np.diag(off, -1))
    return first + (count - 1) / 2 + count * nodes, count * vectors[0] ** 2


def interpolation(nodes: np.ndarray, points: np.ndarray) -> np.ndarray:
    """Return the matrix that takes values at the nodes to values at the points (barycentric Lagrange form)."""
    scale = 4 / (nodes.max() - nodes.min())
    gaps = (nodes[:, None] - nodes[None, :]) * scale
    np.fill_diagonal(gaps, 1.0)
    distance = points[:, None] - nodes[None, :]
    hit = distance == 0
    terms = 1 / gaps.prod(1) / np.where(hit, 1.0, distance)
    matrix = terms / terms.sum(1, keepdims=True)
    return np.where(hit.any(1, keepdims=True), hit.astype(float), matrix)


@lru_cache(maxsize=64)
def blocks(num_bins: int, max_sigma: int | None) -> tuple[Block, ...]:
    """Return the rule for the sum over sigma = 1, 2, ..., max_sigma (None: without end)."""
    last = _REACH * num_bins if max_sigma is None else max_sigma
    head = np.arange(1, min(_HEAD, last) + 1, dtype=float)
    out = [Block(head, alpha(head))]
    first = _HEAD + 1
    while first <= last:
        count = min(first, last - first + 1)
        sigma, weight = integer_gauss(first, count, _ORDER)
        if count <= _ORDER:
            out.append(Block(sigma, weight * alpha(sigma)))
        else:
            step = max(1.0, count / _FINE)  # above _FINE integers one point stands for a run of them
            points = first - 0.5 + step * (0.5 + np.arange(min(count, _FINE)))
            out.append(Block(sigma, weight * alpha(sigma), interpolation(sigma, points), step * alpha(points)))
        first += count
    if max_sigma is None:
        # sum of sigma^-2 and of sigma^-4 from `first` on (Euler-Maclaurin; the terms left out are below 1e-16)
        two = 1 / first + 1 / (2 * first**2) + 1 / (6 * first**3) - 1 / (30 * first**5)
        four = 1 / (3 * first**3) + 1 / (2 * first**4) + 1 / (3 * first**5) - 1 / (6 * first**7)
        out.append(Block(np.array([math.sqrt(two / four)]), np.array([two * 6 / math.pi**2])))
    return tuple(out)


def one_minus_transfer(num_bins: int, sigma: Tensor) -> Tensor:
    """Return 1 - G_sigma(k) for k = 1 .. m // 2, the multiplier of y - g_sigma * y, shape (len(sigma), m // 2)."""
    lag = torch.arange(num_bins, dtype=sigma.dtype, device=sigma.device)
    rate = (0.5 / sigma**2)[:, None]
    # A tap at distance d and the one at d - m fall on the same bin; lag 0 has the central tap alone.
    kernel = torch.exp(-rate * lag**2) + torch.exp(-rate * (num_bins - lag) ** 2) * (lag > 0)
    return 1 - torch.fft.rfft(kernel / kernel.sum(-1, keepdim=True)).real[:, 1:]


def sum_l2(pmf: Tensor, max_sigma: int | None) -> Tensor:
    """Return the weighted sum of Euclidean norms for rows of `pmf` (batch, m), by Parseval."""
    m = pmf.shape[-1]
    spectrum = torch.fft.rfft(pmf)[:, 1:]
    power = (spectrum.real**2 + spectrum.imag**2) * (2 / m)
    if m % 2 == 0:  # the Nyquist term has no mirror image
        power = torch.cat([power[:, :-1], power[:, -1:] / 2], -1)
    rule = blocks(m, max_sigma)
    sigma = pmf.new_tensor(np.concatenate([block.sigma for block in rule]))
    weight = pmf.new_tensor(np.concatenate([block.weight for block in rule]))
    total = pmf.new_zeros(len(pmf))
    step = max(1, _ELEMENTS // m)
    for nodes, weights in zip(sigma.split(step), weight.split(step), strict=True):
        square = power @ one_minus_transfer(m, nodes).square().T
        positive = ~(square <= 0)  # keeps the gradient of the root finite for a uniform pmf, and NaN NaN
        total = total + (torch.where(positive, square, 1.0).sqrt() * positive) @ weights
    return total


def sum_l1(pmf: Tensor, max_sigma: int | None) -> Tensor:
    """Return the weighted sum of absolute-value norms for rows of `pmf` (batch, m)."""
    m = pmf.shape[-1]
    totals = [pmf.new_zeros(0)]
    for rows in pmf.split(max(1, _ELEMENTS // (m * _HEAD))):
        spectrum = torch.fft.rfft(rows)
        total = rows.new_zeros(len(rows))
        for block in blocks(m, max_sigma):
            total = total + _block_l1(spectrum, m, block, rows)
        totals.append(total)
    return torch.cat(totals)


def _block_l1(spectrum: Tensor, m: int, block: Block, like: Tensor) -> Tensor:
    weight = like.new_tensor(block.weight)
    multiplier = torch.nn.functional.pad(one_minus_transfer(m, like.new_tensor(block.sigma)), (1, 0))
    if block.fine is None or block.fine_weight is None:
        total = like.new_zeros(len(like))
        for factors, weights in zip(multiplier.split(_HEAD), weight.split(_HEAD), strict=True):
            rest = torch.fft.irfft(spectrum[:, None] * factors, n=m)
            total = total + rest.abs().sum(-1) @ weights
        return total
    rest = torch.fft.irfft(spectrum[:, None] * multiplier, n=m).transpose(1, 2)  # (batch, m, nodes)
    total = (rest @ weight).abs().sum(-1)
    # So far right for entries that keep their sign over the octave, where they are smooth and the Gauss rule holds. The
    # others are followed from integer to integer through their interpolant: |f| sums to |sum f| and twice the part of
    # the rarer sign.
    low, high = rest.detach().aminmax(dim=-1)
    kinked = (low < 0.1 * high) & (high > 0.1 * low)  # also those that come so near to zero that they might touch it
    fine, fine_weight = like.new_tensor(block.fine).T, like.new_tensor(block.fine_weight)
    row = kinked.nonzero()[:, 0]
    step = max(1, _ELEMENTS // fine.shape[1])
    for where, values in zip(row.split(step), rest[kinked].split(step), strict=True):
        curve = values @ fine
        rarer = torch.minimum(curve.clamp_min(0) @ fine_weight, (-curve).clamp_min(0) @ fine_weight)
        total = total.index_add(0, where, 2 * rarer)
    return total
