"""Where values live: maps between values and the unit variable z in [-1, 1], with all that depends on the map.

A domain owns its mathematics: support, moments, quadrature, ranked score and tails. `fixed` and `binned` have those
that stay where they are, `adaptive` the one that a network moves and stretches.
"""

from fourier_head.domains.adaptive import Adaptive
from fourier_head.domains.domain import Boundary, Domain, fine_grid
from fourier_head.domains.fixed import BinnedInterval, Circle, Interval, Line
from fourier_head.domains.maps import Affine, Asinh, Log, ValueMap
from fourier_head.domains.placed import Placed

__all__ = [
    "Adaptive",
    "Affine",
    "Asinh",
    "BinnedInterval",
    "Boundary",
    "Circle",
    "Domain",
    "Interval",
    "Line",
    "Log",
    "Placed",
    "ValueMap",
    "fine_grid",
]
