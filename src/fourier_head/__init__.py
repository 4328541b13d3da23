"""The Fourier head: a layer for networks that predict numbers, with an exact predictive density."""

from fourier_head import divergence as _divergence  # noqa: F401  (registered with torch)
from fourier_head.adaptive import Adaptive
from fourier_head.baselines import HLGaussHead, LinearHead, MixtureHead, RegressionHead
from fourier_head.bins import Bins
from fourier_head.density import FourierDensity
from fourier_head.domains import BinnedInterval, Circle, Interval, Line
from fourier_head.frequencies import recommend_head, suggest_frequencies
from fourier_head.heads import FourierHead, Head, released_floor
from fourier_head.histogram import HistogramDensity
from fourier_head.maps import Affine, Asinh, Log
from fourier_head.metrics import smoothness
from fourier_head.mixture import GaussianMixture
from fourier_head.version import __version__

__all__ = [
    "Adaptive",
    "Affine",
    "Asinh",
    "BinnedInterval",
    "Bins",
    "Circle",
    "FourierDensity",
    "FourierHead",
    "GaussianMixture",
    "HLGaussHead",
    "Head",
    "HistogramDensity",
    "Interval",
    "Line",
    "LinearHead",
    "Log",
    "MixtureHead",
    "RegressionHead",
    "__version__",
    "recommend_head",
    "released_floor",
    "smoothness",
    "suggest_frequencies",
]
