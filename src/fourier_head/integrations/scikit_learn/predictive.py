"""The distributions that a regressor predicts, in arrays and in the units of the target."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_random_state
from torch import Tensor

from fourier_head._devices import plain_blas
from fourier_head.densities.tabulated import PIECES, TabulatedMixture
from fourier_head.domains.maps import Affine, ValueMap
from fourier_head.domains.placed import Placed
from fourier_head.errors import whole_number
from fourier_head.heads import Head
from fourier_head.integrations.scikit_learn.settings import check_coverage
from fourier_head.integrations.scikit_learn.truncated import Truncated

Floats = NDArray[np.float64]

# Numbers that a density may lay out at once: rows are taken in portions that keep to it.
PORTION = 1 << 22
BEYOND = 5e-4
"""Probability of what lies beyond the inner bins of `binned`, on either side."""
LEAST_SHARE = 0.25
"""What members disagree in takes no more of a variance than all but this."""


@dataclass(frozen=True)
class Frame:
    """The place and the unit of what a head predicts among the targets: center + scale t."""

    center: float
    scale: float
    values: Floats | None = None
    """All that targets can be, where they are discrete."""
    bounds: tuple[float, float] | None = None
    """Between which targets lie, in t."""
    spread: float = 1.0
    """How many times as wide as networks say distributions are."""

    def standardised(self, y: ArrayLike) -> Floats:
        return (np.asarray(y, dtype=np.float64) - self.center) / self.scale


@dataclass(frozen=True)
class Mixing:
    """How much each member counts, and how wide their mixture is.

    What held-out rows say of the spread is true of mixtures of those few members of each body that left a row out. All
    members together err less, and their mixture is wider: with k members that did and M in all, whose means have the
    variance :math:`s^2` in a body of weight w, the square of the error falls by :math:`w^2 s^2 (1/k - 1/M)`, and the
    variance of the mixture rises by the same. Both are taken back.

    Args:
        weights: of the members (K,).
        members: how many each body has.
        left_out: how many of each left out the rows by which the spread was found; None for those rows themselves.
    """

    weights: Tensor
    members: tuple[int, ...] = ()
    left_out: int | None = None

    def about(self, mean: Tensor, variance: Tensor, spread: float) -> tuple[Tensor, Tensor]:
        """Return the means of mixtures and how many times as wide they should be, (rows,) each.

        Args:
            mean, variance: of members (K, rows).
            spread: how many times as wide distributions of held-out rows should be.
        """
        weights = self.weights[:, None]
        middle = (weights * mean).sum(0)
        whole = (weights * (variance + (mean - middle) ** 2)).sum(0).clamp_min(torch.finfo(mean.dtype).tiny)
        gain = torch.zeros_like(middle)
        if self.left_out is not None:
            for own, share in zip(mean.split(self.members), self.weights.split(self.members), strict=True):
                if len(own) > self.left_out:
                    gain = gain + share.sum() ** 2 * own.var(0) * (1 / self.left_out - 1 / len(own))
        wanted = spread**2 * (whole - gain) - gain
        return middle, (wanted / whole).clamp_min(LEAST_SHARE * spread**2).sqrt()


class PredictiveDistribution:
    """Hold one density per row, a mixture of those of all members: arrays in, arrays out, in the units of the target.

    Values of shape (n,) go with the n rows, one each; those of shape (k, n), or (k, 1) for all rows alike, give (k, n).
    Rows can be picked as of an array.
    """

    _table = 4 * PIECES
    """Numbers for each output in the table that a distribution function is read from."""

    def __init__(self, head: Head, outputs: Tensor, frame: Any, mixing: Mixing):
        self.head, self.outputs, self.frame, self.mixing = head, outputs, frame, mixing

    def __len__(self) -> int:
        return self.outputs.shape[1]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self)} rows)"

    def __getitem__(self, index: Any) -> PredictiveDistribution:
        """Return the distributions of some of the rows: a number, a slice, numbers or a mask."""
        rows = np.atleast_1d(np.arange(len(self))[index])
        outputs = self.outputs[:, torch.from_numpy(rows).to(self.outputs.device)]
        return type(self)(self.head, outputs, self.frame, self.mixing)

    # --- the density and its distribution

    def logpdf(self, y: ArrayLike) -> Floats:
        """Return the log-density; finite for every finite value, where a target can have it."""
        return self._each(lambda d, t: d.log_prob(t), self._values(y)) - math.log(self.frame.scale)

    def pdf(self, y: ArrayLike) -> Floats:
        """Return the density."""
        return np.exp(self.logpdf(y))

    def cdf(self, y: ArrayLike) -> Floats:
        """Return P(Y <= y)."""
        return self._each(lambda d, t: d.cdf(t), self._values(y))

    def quantile(self, levels: float | ArrayLike) -> Floats:
        """Return quantiles at these levels, (n, number of levels), or (n,) for a single one; they never cross."""
        given = levels
        try:
            levels = np.asarray(levels, dtype=np.float64)
        except (TypeError, ValueError):
            levels = np.asarray(np.nan)
        if levels.ndim > 1 or not ((levels > 0) & (levels < 1)).all():
            raise ValueError(f"levels must be one number or a list of numbers above 0 and below 1, got {given!r}.")
        order = np.argsort(levels.reshape(-1))
        points = self._icdf(np.broadcast_to(levels.reshape(-1)[order, None], (levels.size, len(self))))
        # Rounding may swap two quantiles that are equal but for the last bit.
        points = np.maximum.accumulate(points, axis=0)[np.argsort(order)]
        return points.T if levels.ndim else points[0]

    def interval(self, coverage: float = 0.9) -> Floats:
        """Return the central interval of this probability, (n, 2)."""
        check_coverage(coverage)
        return self.quantile([(1 - coverage) / 2, (1 + coverage) / 2])

    def sample(self, n_samples: int = 1, random_state: Any = None) -> Floats:
        """Draw values, (n, n_samples)."""
        size = whole_number("n_samples", n_samples, 1), len(self)
        return self._icdf(check_random_state(random_state).uniform(size=size).clip(1e-12, 1 - 1e-12)).T

    def _to_targets(self, t: Floats) -> Floats:
        return self.frame.center + self.frame.scale * t

    def _icdf(self, levels: Floats) -> Floats:
        return self._to_targets(self._each(lambda d, u: d.icdf(u), levels))

    # --- summaries

    def mean(self) -> Floats:
        """Return the means; behind a logarithm or asinh without the tails, as no row has taught how far these reach."""
        return self._to_targets(self._each(lambda d: d.mean, tails=False))

    def std(self) -> Floats:
        """Return the standard deviations, without tails where the means are."""
        return self.frame.scale * np.sqrt(self._each(lambda d: d.variance, tails=False))

    def entropy(self) -> Floats:
        """Return the differential entropies in nats."""
        return self._each(lambda d: d.entropy()) + math.log(self.frame.scale)

    def crps(self, y: ArrayLike) -> Floats:
        """Return the continuous ranked probability score, in units of the target."""
        return self.frame.scale * self._each(lambda d, t: d.crps(t), self._values(y))

    # --- rows in portions

    def _mixture(self, members: Any) -> Any:
        """Return the density of rows from those of members."""
        members.domain = self._spread(members)
        mixture = TabulatedMixture(members, self.mixing.weights, validate_args=False)
        return mixture if self.frame.bounds is None else Truncated(mixture, *self.frame.bounds)

    def _spread(self, members: Any) -> Placed:
        """Widen the mixture of all members about its mean: each of them, and their distances."""
        place: Placed = members.domain
        # In units of the map, and without the tails: they are there for the few that lie far out.
        plain = copy.copy(members)
        plain.domain = _without_tails(place, Affine())
        middle, spread = self.mixing.about(plain.mean, plain.variance, self.frame.spread)
        loc, width = middle + spread * (place.loc - middle), spread * place.width
        return Placed(loc, width, place.tails, place.map, place.bins)

    def _values(self, y: ArrayLike) -> Floats:
        t = self.frame.standardised(y)
        if t.ndim == 0:
            t = t[None]
        if t.shape[-1] not in (1, len(self)):
            raise ValueError(
                f"y must have one value for each of the {len(self)} rows on its last axis, got shape {t.shape}."
            )
        return np.broadcast_to(t, (*t.shape[:-1], len(self)))

    def _each(self, function: Callable[..., Tensor], values: Floats | None = None, tails: bool = True) -> Floats:
        """Apply a function to the densities of all rows, and to values (..., n), in portions.

        Behind a curved map they may be taken without tails: the exponential of a hundredth moves a mean at will.
        """
        points = 1 if values is None else max(1, values.size // max(1, len(self)))
        if self.outputs.device.type == "cpu":  # what fits into the caches of a processor takes half the time or less
            points = max(points, self._table)
        size = max(1, PORTION // (self.outputs.shape[0] * self.outputs.shape[-1] * points))
        parts = []
        with torch.inference_mode(), quiet(self.outputs.device):
            for start in range(0, max(1, len(self)), size):
                rows = slice(start, start + size)
                members: Any = self.head.density(self.outputs[:, rows])
                place = getattr(members, "domain", None)
                if not tails and isinstance(place, Placed) and any(place.map.curved):
                    members.domain = _without_tails(place, place.map)
                mixture = self._mixture(members)
                given = [] if values is None else [torch.as_tensor(values[..., rows].copy()).to(self.outputs)]
                parts.append(function(mixture, *given).double().cpu().numpy())
        return np.concatenate(parts, axis=-1)


def _without_tails(place: Placed, map: ValueMap) -> Placed:
    """Return the same place behind a map, with tails that weigh nothing."""
    return Placed(place.loc, place.width, torch.finfo(place.loc.dtype).tiny, map, place.bins)


class BinnedPrediction(NamedTuple):
    """Probabilities (n, m) of bins between edges (n, m + 1) with midpoints (n, m), and the means (n,) of rows."""

    probas: Floats
    bin_edges: Floats
    bin_midpoints: Floats
    mean: Floats


def binned(density: PredictiveDistribution, num_bins: int) -> BinnedPrediction:
    """Return the distributions as bins of their own for each row, the outermost with all that lies beyond."""
    num_bins = whole_number("num_bins", num_bins, 1)
    low, high = density.quantile([BEYOND, 1 - BEYOND]).T
    room = 1e-6 * np.maximum(np.abs(low), np.abs(high)) + 1e-12
    low, high = low - room, high + room  # values that can be nothing else
    edges = low[:, None] + (high - low)[:, None] * np.linspace(0, 1, num_bins + 1)
    inner = np.maximum.accumulate(density.cdf(edges[:, 1:-1].T).T, axis=1)
    probas = np.diff(inner, axis=1, prepend=0.0, append=1.0)
    return BinnedPrediction(probas, edges, (edges[:, 1:] + edges[:, :-1]) / 2, density.mean())


def quiet(device: torch.device) -> AbstractContextManager[None]:
    """Compute small products fast on a processor."""
    return plain_blas() if device.type == "cpu" else nullcontext()
