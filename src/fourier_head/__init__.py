"""The Fourier head: a layer for networks that predict numbers, with an exact predictive density."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from fourier_head.errors import needs_extra
from fourier_head.version import __version__

if TYPE_CHECKING:
    from fourier_head.bins import Bins
    from fourier_head.densities.fourier import FourierDensity
    from fourier_head.densities.gaussian_mixture import GaussianMixture
    from fourier_head.densities.histogram import HistogramDensity
    from fourier_head.densities.mixture import MixtureDensity
    from fourier_head.domains import BinnedInterval, Circle, Interval, Line
    from fourier_head.domains.adaptive import Adaptive
    from fourier_head.domains.maps import Affine, Asinh, Log
    from fourier_head.forecasting.forecaster import Forecaster
    from fourier_head.frequencies import recommend_head, suggest_frequencies
    from fourier_head.heads import FourierHead, Head, released_floor
    from fourier_head.heads.baselines import HLGaussHead, LinearHead, MixtureHead, RegressionHead
    from fourier_head.integrations.numbers import NumberLM
    from fourier_head.integrations.scikit_learn import FourierRegressor
    from fourier_head.integrations.transformers import replace_head
    from fourier_head.metrics import smoothness

# What comes from where: torch takes seconds to import, which `fourier-head --help` need not wait for.
_HOMES = {
    name: module
    for module, names in {
        "domains.adaptive": ("Adaptive",),
        "heads.baselines": ("HLGaussHead", "LinearHead", "MixtureHead", "RegressionHead"),
        "bins": ("Bins",),
        "densities.fourier": ("FourierDensity",),
        "domains": ("BinnedInterval", "Circle", "Interval", "Line"),
        "forecasting.forecaster": ("Forecaster",),
        "frequencies": ("recommend_head", "suggest_frequencies"),
        "heads": ("FourierHead", "Head", "released_floor"),
        "densities.histogram": ("HistogramDensity",),
        "integrations.numbers": ("NumberLM",),
        "integrations.scikit_learn": ("FourierRegressor",),
        "integrations.transformers": ("replace_head",),
        "domains.maps": ("Affine", "Asinh", "Log"),
        "metrics": ("smoothness",),
        "densities.gaussian_mixture": ("GaussianMixture",),
        "densities.mixture": ("MixtureDensity",),
    }.items()
    for name in names
}

__all__ = [
    "Adaptive",
    "Affine",
    "Asinh",
    "BinnedInterval",
    "Bins",
    "Circle",
    "Forecaster",
    "FourierDensity",
    "FourierHead",
    "FourierRegressor",
    "GaussianMixture",
    "HLGaussHead",
    "Head",
    "HistogramDensity",
    "Interval",
    "Line",
    "LinearHead",
    "Log",
    "MixtureDensity",
    "MixtureHead",
    "NumberLM",
    "RegressionHead",
    "__version__",
    "recommend_head",
    "released_floor",
    "replace_head",
    "smoothness",
    "suggest_frequencies",
]


def __getattr__(name: str) -> Any:
    """Import what is asked for when it is asked for (PEP 562)."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        module = import_module(f"{__name__}.{_HOMES[name]}")
    except ModuleNotFoundError as error:
        raise needs_extra(error, "forecasting") if name == "Forecaster" else error from None
    value = globals()[name] = getattr(module, name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
