r"""Truncated series whose coefficients decay as 1/k^t, and how their smoothness grows with every frequency kept.

Take the density :math:`f(z) = \frac12 + \sum_k q_k \cos(\pi k z)` with :math:`q_k = B / k^t`, cut it after N
frequencies and read it at m bin centres. Harmonic k < m/2 then adds :math:`2 q_k^2 / m` to the squared norm of y, and
a Gaussian of width :math:`\sigma` bins leaves :math:`1 - G_\sigma(k)` of it:

.. math:: \|y - g_\sigma * y\|^2 = \frac2m \sum_{k \le N} q_k^2 (1 - G_\sigma(k))^2,
          \qquad G_\sigma(k) \approx e^{-(2 \pi k \sigma / m)^2 / 2}.

The theorem's exponent 2t - 1 needs :math:`G_\sigma(k)` to be negligible near the cut, that is
:math:`N \gg m / (2 \pi \sigma)`. Wide kernels do that. Narrow ones do not: below that bound
:math:`1 - G \propto k^2`, so that the sum over all widths, each weighted by :math:`1 / \sigma^2`, has the exponent
2t - 4 for t > 5/2 and t - 3/2 for t < 5/2 as long as N is well below m, and approaches 2t - 1 only as N reaches m/2.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import brentq
from torch import Tensor

from fourier_head._arrays import Numeric, as_tensors
from fourier_head.fourier.smoothness import blocks, one_minus_transfer
from fourier_head.metrics import smoothness

Floats = NDArray[np.float64]


def predicted_smoothness(N: ArrayLike, C1: float, C2: float, t: float) -> Floats:
    """Return the smoothness C1 - C2 / N^(2t - 1) that theorem 3.3 of the paper predicts for N frequencies.

    >>> predicted_smoothness([1, 2, 4], C1=1.0, C2=0.5, t=1.5)
    array([0.5    , 0.875  , 0.96875])
    """
    return C1 - C2 * np.asarray(N, dtype=float) ** -(2 * t - 1)


@dataclass(frozen=True)
class ScalingLaw:
    """The fitted law C1 - C2 / N^(2t - 1), N with what was added to it, and the root mean square of what is left."""

    C1: float
    C2: float
    t: float
    residual: float

    @property
    def exponent(self) -> float:
        """The power 2t - 1 of N."""
        return 2 * self.t - 1


def fit_scaling_law(N: ArrayLike, smoothness: Numeric, *, offset: float = 0.0) -> ScalingLaw:
    r"""Fit C1, C2 and t of the scaling law to measured smoothness by least squares.

    For a given exponent C1 and C2 are a linear regression, so only the exponent is searched, from 0.01 to 64, where the
    derivative of the sum of squares is zero: there is no starting value to get wrong.

    Args:
        N: numbers of frequencies, at least three different ones.
        smoothness: the measured value for each.
        offset: added to N. The coefficients cut off sum to
            :math:`\sum_{k > N} k^{-2t} = (N + \tfrac12)^{1 - 2t} / (2t - 1)` up to :math:`O(N^{-2t-1})`, so 0.5 removes
            the next term of the theorem, :math:`O(N^{-2t})`, where N is small; 0 is the paper's form.

    Example:
        >>> law = fit_scaling_law([2, 4, 8, 16], predicted_smoothness([2, 4, 8, 16], C1=0.05, C2=0.1, t=2.0))
        >>> print(f"{law.C1:.4f} {law.C2:.4f} {law.t:.4f}")
        0.0500 0.1000 2.0000
    """
    x = np.asarray(N, dtype=float).ravel() + offset
    (values,) = as_tensors(smoothness)
    y = values.detach().double().cpu().numpy().ravel()
    if x.shape != y.shape:
        raise ValueError(f"N and smoothness must have the same length, got {x.size} and {y.size}")
    if not (np.isfinite(x).all() and np.isfinite(y).all() and (x > 0).all()):
        raise ValueError("N must be positive and smoothness finite, got values that are not")
    if np.unique(x).size < 3:
        raise ValueError(f"N must hold at least three different values to fit three constants, got {np.unique(x).size}")
    if np.ptp(y) == 0:
        raise ValueError("smoothness must vary with N for an exponent to exist, got one value throughout")
    unit = x.min()
    logs = np.log(x / unit)

    def solve(exponent: float) -> tuple[Floats, float, Floats]:
        """Return the basis, its slope and what the regression leaves."""
        basis = np.exp(-exponent * logs)
        centred = basis - basis.mean()
        slope = float(centred @ (y - y.mean()) / (centred @ centred))
        return basis, slope, (y - y.mean()) - slope * centred

    def derivative(exponent: float) -> float:
        # Of half the squares. What is left is orthogonal to the basis and to constants: only the basis need move.
        basis, slope, rest = solve(exponent)
        return slope * float(rest @ (logs * basis))

    def squares(exponent: float) -> float:
        rest = solve(exponent)[2]
        return float(rest @ rest)

    grid = np.geomspace(0.01, 64.0, 256).tolist()
    falls = [derivative(e) < 0 for e in grid]
    valleys = [brentq(derivative, *ends) for i, ends in enumerate(itertools.pairwise(grid)) if falls[i] > falls[i + 1]]
    exponent = min([*valleys, grid[0], grid[-1]], key=squares)
    basis, slope, _ = solve(exponent)
    C1, C2 = float(y.mean() - slope * basis.mean()), -slope * float(unit) ** exponent
    return ScalingLaw(C1, C2, (exponent + 1) / 2, math.sqrt(squares(exponent) / x.size))


DECAYS = (2, 3, 4)
ZETA = {2: math.pi**2 / 6, 3: 1.2020569031595942, 4: math.pi**4 / 90}


def coefficients(t: int, last: int) -> Tensor:
    """Return q_k = B / k^t for k = 1 .. last; B makes them sum to at most 0.45, so no truncation is ever negative."""
    return 0.45 / ZETA[t] * torch.arange(1, last + 1, dtype=torch.float64) ** -t


def truncations(q: Tensor, num_bins: int, frequencies: Sequence[int], *, exact: bool = False) -> Tensor:
    """Return the categoricals of the series cut after each number of frequencies, shape (len(frequencies), m).

    Values at the bin centres scaled to sum to one, as in the theorem; or with `exact` the integrals over the bins.

    Example:
        >>> truncations(coefficients(2, 8), 20, [1, 8]).shape
        torch.Size([2, 20])
    """
    k = torch.arange(1, max(frequencies) + 1)
    j = torch.arange(num_bins)
    # Phases as integers modulo 2m: exact at any k.
    phase = (k[:, None] * (2 * j + 1 - num_bins)) % (2 * num_bins)
    q = q[: len(k)] * (torch.sinc(k.double() / num_bins) if exact else 1.0)
    waves = torch.cumsum(q[:, None] * torch.cos(phase.double() * (math.pi / num_bins)), 0)
    values = 0.5 + waves[torch.as_tensor(list(frequencies)) - 1]
    return values / values.sum(-1, keepdim=True)


@dataclass(frozen=True)
class Widths:
    """Gaussian widths in bins and their weights in the sum."""

    sigma: Tensor
    weight: Tensor

    @classmethod
    def all_of(cls, num_bins: int) -> Widths:
        """Every integer number of bins: the metric of Definition 3.2."""
        rule = blocks(num_bins, None)
        sigma = torch.as_tensor(np.concatenate([block.sigma for block in rule]))
        return cls(sigma, torch.as_tensor(np.concatenate([block.weight for block in rule])))

    @classmethod
    def of_interval(cls, num_bins: int) -> Widths:
        """Every integer multiple of half the interval instead of one bin, so that no kernel is narrow."""
        step = torch.arange(1, 2001, dtype=torch.float64)
        weight = 6 / (math.pi * step) ** 2
        weight[-1] += 1 - weight.sum()  # the rest of the sum, where the kernel no longer changes
        return cls(step * (num_bins / 2), weight)

    @classmethod
    def single(cls, sigma: float) -> Widths:
        """One width alone."""
        return cls(torch.tensor([float(sigma)], dtype=torch.float64), torch.ones(1, dtype=torch.float64))


def steps(q: Tensor, num_bins: int, widths: Widths) -> Floats:
    r"""Return by how much each harmonic N = 1, 2, ... < m/2 raises the smoothness.

    .. math:: \sum_\sigma \alpha_\sigma \big( \|r_\sigma^{(N)}\| - \|r_\sigma^{(N-1)}\| \big)
              = \sum_\sigma \alpha_\sigma \frac{2 q_N^2 (1 - G_\sigma(N))^2 / m}{\|r^{(N)}\| + \|r^{(N-1)}\|}

    In this form nothing cancels: the last steps are right to all digits, however small they are.
    """
    last = min(len(q), (num_bins - 1) // 2)
    total = torch.zeros(last, dtype=torch.float64)
    for sigma, weight in zip(widths.sigma.split(256), widths.weight.split(256), strict=True):
        power = 2 / num_bins * (q[:last] * one_minus_transfer(num_bins, sigma)[:, :last]) ** 2
        norm = torch.cumsum(power, -1).sqrt()
        before = torch.nn.functional.pad(norm[:, :-1], (1, 0))
        total += weight @ (power / (norm + before))
    return total.numpy()


def main_term_steps(q: Tensor, num_bins: int) -> Floats:
    """Return the steps of the proof's main term, where every kernel removes all harmonics and none of the constant.

    The constant's share is a slip of the proof, harmless for the exponent: g_sigma keeps a constant, so y - g_sigma * y
    has none.
    """
    last = min(len(q), (num_bins - 1) // 2)
    factor = 2 * num_bins / (2 * num_bins - 1)  # the proof's B_1 for wide kernels
    power = 2 / num_bins * (factor * q[:last]) ** 2
    norm = (power.cumsum(0) + 4 / num_bins * (factor * 0.5) ** 2).sqrt()
    before = torch.cat([norm.new_tensor([2 / math.sqrt(num_bins) * factor * 0.5]), norm[:-1]])
    return (power / (norm + before)).numpy()


def remainders(step: Floats) -> Floats:
    """Return how far the smoothness at N = 1, 2, ... is below that at the last N, summed from the small end."""
    return np.append(np.cumsum(step[:0:-1])[::-1], 0.0)


def fit(step: Floats, first: int, last: int) -> ScalingLaw:
    """Fit the law to the smoothness between two numbers of frequencies, about 24 of them evenly in the logarithm.

    C1 is counted from the last harmonic there is, which keeps the small differences free of rounding.
    """
    n = np.unique(np.rint(np.geomspace(first, last, 24)).astype(int))
    return fit_scaling_law(n, -remainders(step)[n - 1], offset=0.5)


def local_exponents(step: Floats) -> tuple[Floats, Floats]:
    """Return N and the exponent e that the law C - C' / N^e would need there, from the ratio of neighbouring steps.

    A pure power law has steps like :math:`(N - 1/2)^{-e-1}` up to relative :math:`O(1/N^2)`.
    """
    n: Floats = np.arange(0.5, len(step), dtype=np.float64)
    slope = np.diff(np.log(step)) / np.diff(np.log(n))
    between: Floats = n[1:]
    exponent: Floats = -slope - 1
    return between, exponent


def narrow_exponent(t: float) -> float:
    """Return the exponent of the full metric for 1 << N << m.

    >>> narrow_exponent(2), narrow_exponent(3), narrow_exponent(4)
    (0.5, 2, 4)
    """
    return 2 * t - 4 if t > 2.5 else t - 1.5


def triangle_coefficients(half_width: float, last: int) -> Tensor:
    """Return the coefficients of the density (1 - |z| / w) / w on [-w, w]: none negative, decaying as 1/k^2."""
    k = torch.arange(1, last + 1, dtype=torch.float64)
    return torch.sinc(k * half_width / 2) ** 2


def fejer(q: Tensor, num_frequencies: int) -> Tensor:
    """Return the first coefficients with the weights 1 - k / (N + 1), under which a density stays one."""
    k = torch.arange(1, num_frequencies + 1, dtype=torch.float64)
    return q[:num_frequencies] * (1 - k / (num_frequencies + 1))


def series_values(q: Tensor, z: Tensor) -> Tensor:
    """Return 1/2 + sum of q_k cos(pi k z)."""
    k = torch.arange(1, len(q) + 1, dtype=torch.float64)
    return 0.5 + torch.cos(math.pi * k * z[:, None]) @ q


def measured(q: Tensor, num_bins: int, frequencies: Sequence[int], *, exact: bool = False) -> Floats:
    """Return the smoothness of the truncations by the metric itself."""
    return smoothness(truncations(q, num_bins, frequencies, exact=exact)).numpy()
