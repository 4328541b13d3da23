"""Adaptive: a domain that the projection itself moves and stretches, for values anywhere on the line."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor
from torch.distributions import constraints
from torch.nn import functional

from fourier_head._arrays import Numeric, as_tensors, widened
from fourier_head.domains.domain import Domain
from fourier_head.domains.maps import MAPS, Affine, Asinh, Log, ValueMap
from fourier_head.domains.placed import Placed

if TYPE_CHECKING:
    from fourier_head.bins import Bins

START_WIDTH = 3.0
"""Raw half width at the start, where the bell has a deviation of about one."""
LEAST_WIDTH = 1e-4
"""Half width, in units of the map, below which no density falls."""
FAR = 30.0
"""How far out infinite values are put, in units of the map, on their side of it."""


class Adaptive(Domain):
    r"""The real line, on an interval whose middle and half width the projection emits beside the coefficients.

    .. math:: p(u) = \frac{1 - \epsilon}{w} \, p_a\!\left(\frac{u - \mu}{w}\right)
        + \frac{\epsilon}{2 w} e^{-|u - \mu| / w}, \qquad u = map(x)

    with the Fourier density :math:`p_a` on [-1, 1]. Two numbers move and stretch the density, the coefficients only
    shape it, and no range of the values has to be known. Laplace tails give every value a finite likelihood.

    Args:
        tails: the weight :math:`\epsilon`, between 0 and 1. As much lies beyond the interval as its share of e^-1, and
            levels farther out than half of that are those of the tails.
        map: what happens to values first: ``Affine(loc, scale)`` (nothing unless given), ``Asinh(loc, scale)``, or
            ``Log(loc, scale)`` for positive values. ``Adaptive.fit`` finds one.
        anchored: whether each row brings a guess of its value, ``anchor=``, of which the projection says how much to
            keep: :math:`\mu = \sigma(r) \, map(anchor) + \ldots`. NaN is no guess, as one in the middle of the map.
        bins: bins laid over the line, for a head with ``num_bins``; the outermost reach to infinity.

    Example:
        >>> domain = Adaptive(tails=0.01).at(torch.tensor([0.0, 100.0]), torch.tensor([1.0, 5.0]))
        >>> domain.to_unit(torch.tensor([0.5, 120.0]))
        tensor([0.5000, 4.0000])
    """

    boundary = "periodic"  # the density starts as a bell that is nothing at the ends

    def __init__(
        self, tails: float = 0.002, *, map: ValueMap | None = None, anchored: bool = False, bins: Bins | None = None
    ):
        if not 0 < tails < 1:
            raise ValueError(f"tails must be a share of probability between 0 and 1, got {tails}")
        if map is not None and map.shape:
            raise ValueError("map must have one loc and scale for all rows; pass others with each call, map=")
        self.tails, self.map, self.anchored, self.bins = tails, Affine() if map is None else map, anchored, bins
        self.place_outputs = 3 if anchored else 2

    @classmethod
    def fit(
        cls, values: Numeric, tails: float = 0.002, *, anchored: bool = False, bins: Bins | None = None
    ) -> Adaptive:
        """Return a domain whose map takes training values to numbers of size one.

        Straight unless that would leave a few values far away from all others: the logarithm where all values are
        positive and their logarithms lie closer together, else asinh.

        >>> Adaptive.fit([2e6, 4e6]).map
        Affine(3000000.0, 1000000.0)
        >>> Adaptive.fit(np.exp(3 * np.random.default_rng(0).normal(size=1000))).map.kind
        'log'
        """
        (given,) = as_tensors(values)
        x = given.detach().double().cpu().flatten().numpy()
        x = x[np.isfinite(x)]
        if not len(x):
            raise ValueError("values must hold at least one finite number to fit a domain to.")
        return cls(tails, map=_fitted_map(x), anchored=anchored, bins=bins)

    @property
    def support(self) -> constraints.Constraint:  # type: ignore[override]
        return self.map.support

    @property
    def formula(self) -> tuple[str, float, float] | None:
        if any(self.map.curved):
            return None
        return "placed", float(self.map.loc), float(self.map.scale)

    def start(self) -> Tensor:
        """Return the outputs that a projection starts with: in the middle, a bell of one unit, anchor kept by half."""
        return torch.tensor([0.0, START_WIDTH, 0.0][: self.place_outputs])

    def at_outputs(self, outputs: Tensor, map: ValueMap | None = None, anchor: Tensor | None = None) -> Placed:
        """Return the domain in the place that outputs (..., place_outputs) of a projection give it."""
        outputs, map = widened(outputs), self.map if map is None else map
        loc = outputs[..., 0]
        width = functional.softplus(outputs[..., 1]) + LEAST_WIDTH
        if self.anchored:
            if anchor is None:
                raise ValueError("this head is anchored: pass anchor=, a guess of each value.")
            guess = map.forward(widened(anchor))
            # A missing guess is none: NaN would reach the gradient even where the value is missing, too.
            loc = loc + torch.sigmoid(outputs[..., 2]) * torch.where(guess.isnan(), 0, guess).to(loc.dtype)
        elif anchor is not None:
            raise ValueError("anchor was given to a head that takes none: its domain is not Adaptive(anchored=True).")
        return Placed(loc, width, self.tails, map, self.bins)

    def at(self, loc: Tensor, width: Tensor, map: ValueMap | None = None) -> Placed:
        """Return the domain with the middle and half width of each row, in units of the map."""
        return Placed(loc, width, self.tails, self.map if map is None else map, self.bins)

    def check_bins(self) -> None:
        if self.bins is None:
            raise ValueError(
                "an adaptive domain has no ends to divide: pass Adaptive(bins=Bins...) instead of num_bins"
            )

    def state(self) -> Tensor:
        """Return the kind, loc and scale of the map."""
        kind = [one.kind for one in MAPS].index(self.map.kind)
        return torch.tensor([kind, float(self.map.loc), float(self.map.scale)], dtype=torch.float64)

    def with_state(self, state: Tensor) -> Adaptive:
        kind, loc, scale = state.tolist()
        return Adaptive(self.tails, map=MAPS[int(kind)](loc, scale), anchored=self.anchored, bins=self.bins)

    # Before it is placed, all it says of values is whether they can occur.

    def contains(self, value: Tensor) -> Tensor:
        return self.map.support.check(value) & torch.isfinite(value)

    def middle(self, value: Tensor, map: ValueMap | None = None) -> Tensor:
        map = self.map if map is None else map
        return map.inverse(torch.zeros_like(value)).to(value.dtype)

    def nearest(self, value: Tensor, map: ValueMap | None = None) -> Tensor:
        map = self.map if map is None else map
        fits = map.support.check(value) & torch.isfinite(value)
        # Only the logarithm has an end, and it lies at zero.
        end = map.inverse(torch.where(value > 0, FAR, -FAR).to(value.dtype)).to(value.dtype)
        return torch.where(fits | value.isnan(), value, end)

    def __repr__(self) -> str:
        more = ", anchored=True" if self.anchored else ""
        more += f", bins={self.bins!r}" if self.bins is not None else ""
        return f"Adaptive(tails={self.tails:g}, map={self.map!r}{more})"


def _fitted_map(x: np.ndarray) -> ValueMap:
    """Return the map that brings the bulk of values to size one and leaves the fewest far out."""

    def loc_and_scale(u: np.ndarray) -> tuple[float, float]:
        low, middle, high = (float(v) for v in np.quantile(u, [0.25, 0.5, 0.75]))
        spread = float(u.std())
        # Half of the deviation at least: counts and rounded values may have quartiles that are one number.
        scale = max((high - low) / 1.349, spread / 100 if high > low else spread, 1e-12 * abs(middle))
        return middle, scale if scale > 0 else 1.0

    def reach(u: np.ndarray, loc: float, scale: float) -> float:
        return float(np.abs((u - loc) / scale).max())

    plain = loc_and_scale(x)
    if reach(x, *plain) <= 12:  # of a million Gaussian values none lies this far out
        mean, spread = float(x.mean()), float(x.std())
        return Affine(mean, spread if spread > 1e-12 * abs(mean) and spread > 0 else plain[1])
    if (x > 0).all():
        logarithmic = loc_and_scale(np.log(x))
        if reach(np.log(x), *logarithmic) < reach(x, *plain) / 2:
            return Log(*logarithmic)
    return Asinh(*plain)
