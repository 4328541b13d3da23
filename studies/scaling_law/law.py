"""The scaling law of smoothness (Theorem 3.3 of the paper) and its fit to measurements."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fourier_head._arrays import Numeric, as_tensors

Floats = NDArray[np.float64]


def predicted_smoothness(N: ArrayLike, C1: float, C2: float, t: float) -> Floats:
    r"""Return the smoothness that the scaling law of the paper predicts for N frequencies.

    .. math:: s(y^{(N)}) = C_1 - C_2 / N^{2t - 1}

    for a density whose Fourier coefficients decay like :math:`k^{-t}`, cut after N frequencies. The norm
    :math:`\|y - g_\sigma * y\|` at a width :math:`\sigma` large against m / N follows it. In the sum over all widths
    the narrow kernels see mostly what lies near the cut, and for N well below m / 2 the measured exponent is lower:
    :math:`2t - 4` for :math:`t > 5/2` and :math:`t - 3/2` for :math:`3/2 < t < 5/2`.

    References:
        Gillman et al., Fourier Head (2025), Theorem 3.3.

    Example:
        >>> predicted_smoothness([1, 2, 4], C1=1.0, C2=0.5, t=1.5)
        array([0.5    , 0.875  , 0.96875])
    """
    return C1 - C2 * np.asarray(N, dtype=float) ** -(2 * t - 1)


@dataclass(frozen=True)
class ScalingLaw:
    """The fitted law C1 - C2 / (N + offset)^(2t - 1) and the root mean square of what it leaves over."""

    C1: float
    C2: float
    t: float
    residual: float
    offset: float = 0.0

    @property
    def exponent(self) -> float:
        """The power 2t - 1 of N."""
        return 2 * self.t - 1

    def predict(self, N: ArrayLike) -> Floats:
        """Return the smoothness predicted for N frequencies."""
        return predicted_smoothness(np.asarray(N, dtype=float) + self.offset, self.C1, self.C2, self.t)


def fit_scaling_law(N: ArrayLike, smoothness: Numeric, *, offset: float = 0.0) -> ScalingLaw:
    r"""Fit C1, C2 and t of the scaling law to measured smoothness by least squares.

    For a given exponent C1 and C2 are a linear regression, so only the exponent is searched, from 0.01 to 64: there is
    no starting value to get wrong.

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

    def solve(log_exponent: float) -> tuple[float, float, float]:
        basis = (x / unit) ** -math.exp(log_exponent)
        centred = basis - basis.mean()
        slope = float(centred @ (y - y.mean()) / (centred @ centred))
        rest = (y - y.mean()) - slope * centred
        return float(rest @ rest), float(y.mean() - slope * basis.mean()), -slope

    grid = np.linspace(math.log(0.01), math.log(64.0), 256)
    best = int(np.argmin([solve(g)[0] for g in grid]))
    low, high = grid[max(best - 1, 0)], grid[min(best + 1, len(grid) - 1)]
    golden = (math.sqrt(5) - 1) / 2
    for _ in range(80):  # golden section: the bracket ends at rounding error
        left, right = high - golden * (high - low), low + golden * (high - low)
        if solve(left)[0] < solve(right)[0]:
            high = right
        else:
            low = left
    squares, C1, scaled = solve((low + high) / 2)
    exponent = math.exp((low + high) / 2)
    return ScalingLaw(C1, scaled * unit**exponent, (exponent + 1) / 2, math.sqrt(squares / x.size), offset)
