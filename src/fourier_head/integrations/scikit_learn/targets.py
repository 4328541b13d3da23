"""What is predicted: rows and units of targets, the head, what it learns by, and its distributions."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fourier_head.bins import Bins
from fourier_head.domains import Affine, Interval, ValueMap
from fourier_head.domains.adaptive import Adaptive
from fourier_head.heads import FourierHead, Head
from fourier_head.heads.baselines import HLGaussHead, LinearHead
from fourier_head.integrations.scikit_learn import settings
from fourier_head.integrations.scikit_learn.discrete import DiscreteDistribution, values_seen
from fourier_head.integrations.scikit_learn.interval import FlooredMixtureHead, IntervalDistribution, IntervalFrame
from fourier_head.integrations.scikit_learn.predictive import Floats, Frame, Mixing, PredictiveDistribution
from fourier_head.tabular.columns import weighted_quantiles

FARTHEST = 30.0
"""Targets count as no farther out than so many times the length of the middle 96 %."""
LARGEST = 1e150
"""Size of targets whose squares are finite in float64."""
LEVELS = 4096
"""Quantiles that stand for weighted targets."""


def checked_targets(y: Any) -> Floats:
    """Return targets as numbers; an error where they are none, unknown or too large to be squared."""
    if y.dtype.kind in "mM":
        raise ValueError(f"y must hold numbers to predict, got {y.dtype}: convert them, to days for example.")
    try:
        y = (y.astype(object) if y.dtype.kind in "US" else y).astype(np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"y must hold numbers to predict: {error}.") from None
    if not np.isfinite(y).all():  # of objects, which scikit-learn lets pass
        raise ValueError("Input y contains NaN or infinity: leave out rows whose target is not known.")
    if np.abs(y).max() > LARGEST:
        raise ValueError(f"y must hold numbers up to {LARGEST:g} in size, got {np.abs(y).max():g}: divide them.")
    return y


def merged(X: Floats, y: Floats, weights: Floats) -> tuple[Floats, Floats, Floats]:
    """Return rows of positive weight in an order of their own, equal ones made one of their common weight.

    So a weight of two is the same as two equal rows, no row has a twin among those held out, and the order in which
    rows were given does not matter.

    >>> merged(np.array([[1.0], [0.0], [1.0]]), np.array([[5.0], [4.0], [5.0]]), np.ones(3))[1:]
    (array([[4.],
           [5.]]), array([0.66666667, 1.33333333]))
    """
    kept = weights > 0
    # Adding zero makes minus zero zero; NaN is equal to itself, bit by bit.
    rows = np.ascontiguousarray(np.column_stack([X[kept], y[kept]]) + 0.0)
    bits = rows.view(f"V{rows.itemsize * rows.shape[1]}").ravel()
    _, first, place = np.unique(bits, return_index=True, return_inverse=True)
    weight = np.bincount(place.ravel(), weights[kept])
    columns = X.shape[1]
    return rows[first, :columns], rows[first, columns:], weight / weight.mean()


def target_frame(y: Floats, weights: Floats, tails: float) -> tuple[Frame, Adaptive]:
    """Return the middle and unit of targets, and a domain of them measured so, behind a map if they need one.

    The head sees numbers of size one in float32, wherever the targets lie.
    """
    if np.ptp(weights) > 0:
        levels = (np.arange(LEVELS) + 0.5) / LEVELS
        y = np.concatenate([[y.min()], weighted_quantiles(y, weights, levels), [y.max()]])
    # A few targets, however far out, have no say in the unit of all others; that they are there still counts.
    low, high = np.quantile(y, [0.02, 0.98])
    reach = FARTHEST * (high - low) if high > low else np.inf
    map = Adaptive.fit(np.clip(y, low - reach, high + reach)).map
    # Zeros alone have no size; of any other constant the unit is as small.
    loc, scale = float(map.loc), float(map.scale) if y.any() else 1e-12
    if map.kind == "log":  # of a number without a unit
        return Frame(0.0, math.exp(loc)), Adaptive(tails, map=type(map)(0.0, scale))
    return Frame(loc, scale), Adaptive(tails, map=type(map)())


CRPS_WEIGHT = 10.0
"""How much the CRPS of a standardised target counts beside its likelihood, where both are learned."""


class Target:
    """One number to predict.

    Args:
        model: the regressor, for its settings.
        y: the targets of training (n,).
        weights: of the rows.
    """

    def __init__(self, model: Any, y: Floats, weights: Floats):
        self.head, self.loss, self.num_bins = str(model.head), str(model.loss), int(model.num_bins)
        self.map: ValueMap = Affine()
        self.make_head: Callable[[int], Head]
        self.frame: Frame
        if self.head == "fourier":
            frame, adaptive = target_frame(y, weights, model.tails)
            self.map = adaptive.map
            values = values_seen(y, model.discrete)
            self.frame = replace(frame, values=values, bounds=_standard_bounds(model.bounds, y, frame, self.map))
            options: dict[str, Any] = {"num_frequencies": int(model.num_frequencies), "packets": int(model.packets)}
            self.make_head = lambda size: FourierHead(size, domain=adaptive, **options)
            return
        self.frame = frame = IntervalFrame.fit(y)
        domain = Interval(frame.low, frame.high)
        if self.head in settings.MIXTURES:
            components = int(model.num_components)
            self.make_head = lambda size: FlooredMixtureHead(size, self.num_bins, components, domain=domain)
        else:
            kind = HLGaussHead if self.head == "hl-gauss" else LinearHead
            self.make_head = lambda size: kind(size, self.num_bins, domain=domain)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "make_head": None}  # a fitted model makes none

    def mapped(self, y: Floats) -> Floats:
        """Return targets as numbers of size one whose distribution is not far from a bell."""
        return self.map.forward(torch.from_numpy(self.frame.standardised(y))).numpy()

    def losses(self, head: Any, outputs: Tensor, value: Tensor) -> Tensor:
        """Return the loss of each row, from outputs of its projection."""
        if isinstance(head, FourierHead):
            kind = {"likelihood": "nll", "crps": "crps", "both": "both"}[self.loss]
            options: dict[str, Any] = {"kind": kind, "crps_weight": CRPS_WEIGHT, "mapped": True}
            return head.values_loss_of(outputs, value, **options)
        density = head.density(outputs)
        if self.loss == "crps":
            return density.crps(value)
        if self.head in settings.MIXTURES or not head.training:
            likelihood = -density.log_prob(value)
        else:
            frame: Any = self.frame
            bins = Bins.uniform(self.num_bins, frame.low, frame.high)
            likelihood = head.loss(outputs, bins.encode(value), reduction="none")
        return likelihood if self.loss == "likelihood" else likelihood + CRPS_WEIGHT * density.crps(value)

    def distribution(self, head: Any, outputs: Tensor, mixing: Mixing) -> PredictiveDistribution:
        """Return the distributions of rows, from outputs (members, rows, size) and how members are mixed."""
        kind: type[PredictiveDistribution] = IntervalDistribution
        if self.head == "fourier":
            kind = PredictiveDistribution if self.frame.values is None else DiscreteDistribution
        return kind(head, outputs, self.frame, mixing)

    def spread(self, spread: float) -> Target:
        """Return the same target with distributions so many times as wide as the networks say."""
        return self._with(spread=spread)

    def unbounded(self) -> Target:
        """Return the same target with distributions that reach as far as the networks say."""
        return self._with(bounds=None)

    def within(self, y: Floats) -> Floats:
        """Return values of the target moved to the nearer bound where they lie beyond."""
        low, high = self.frame.bounds or (-np.inf, np.inf)
        return y.clip(self.frame.center + self.frame.scale * low, self.frame.center + self.frame.scale * high)

    def _with(self, **changes: Any) -> Target:
        other = object.__new__(Target)
        other.__dict__ = {**self.__dict__, "frame": replace(self.frame, **changes)}
        return other


def _standard_bounds(bounds: Any, y: Floats, frame: Frame, map: ValueMap) -> tuple[float, float] | None:
    """Return bounds in units of the frame, infinite where there is none; an error where targets lie beyond."""
    if bounds is None:
        return None
    low, high = (side * np.inf if end is None else float(end) for side, end in zip((-1, 1), bounds, strict=True))
    if y.min() < low or y.max() > high:
        raise ValueError(f"bounds are {bounds!r}, but targets lie between {y.min():g} and {y.max():g}.")
    if map.kind == "log" and low <= 0:
        low = -np.inf  # nothing lies below zero there
    found = frame.standardised([low, high])
    return (float(found[0]), float(found[1])) if np.isfinite(found).any() else None
