"""What the paper's own toy runs came out at, seed by seed, as its authors released it: a few numbers to compare with.

Taken, rounded, from the metrics of the toy example that N. Gillman, D. Aggarwal, M. Freeman, S. Singh and C. Sun
released with their implementation (https://nategillman.com/fourier-head), for heads of the paper's tables 1, 5 and 6.
They measured them, not we.
"""

from __future__ import annotations

from collections.abc import Mapping

KL: Mapping[str, Mapping[str, tuple[float, ...]]] = {
    "linear": {
        "gaussian": (0.2071, 0.1546, 0.2144, 0.1020),
        "gmm2": (0.2203, 0.2316, 0.2143, 0.2841),
        "beta": (0.2275, 0.1926, 0.2532, 0.2636),
    },
    "fourier": {
        "gaussian": (0.0902, 0.1809, 0.0942, 0.0998),
        "gmm2": (0.1774, 0.1694, 0.1094, 0.1273),
        "beta": (0.1933, 0.1711, 0.2108, 0.1906),
    },
}
"""Of each head and data set, one value for each of the paper's seeds; the Fourier head has N = 12, no regulariser."""
GAUSSIAN_MSE: Mapping[str, tuple[float, ...]] = {
    "linear": (0.00968, 0.01000, 0.01160, 0.01124),
    "fourier": (0.01150, 0.01355, 0.01204, 0.01264),
}
REGULARISED: Mapping[str, tuple[float, ...]] = {
    "2 to 8": (0.0066, 0.1292, 0.0419, 0.1273),
    "12 to 20": (0.0948, 0.0333, 0.0427, 0.1051),
}
"""Mean logarithm of KL with gamma 1e-6 over KL without, over the three sets and every second N of a range."""
