"""What held-out rows say of trained networks: how much each kind counts, how wide distributions and intervals are."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from torch import Tensor

from fourier_head.integrations.scikit_learn.predictive import Floats, Mixing, PredictiveDistribution, quiet
from fourier_head.integrations.scikit_learn.settings import check_coverage
from fourier_head.integrations.scikit_learn.targets import Target
from fourier_head.tabular.members import MemberNetwork

PRIOR_ROWS = 5.0
"""Rows that speak for each kind of network before any are seen."""
LEAST_WEIGHT = 0.05
"""A kind of network that would count less is left out."""
ROUNDS = 200
USUAL_SPREAD, MOST_SPREAD = 0.2, 0.7
"""Logarithms of the spread: its deviation before rows are seen, and the farthest that it goes."""


class HeldOut:
    """The predictions for rows that some networks left out, by those networks alone.

    Args:
        network: the trained networks.
        inputs: of all rows (n, inputs).
        y: targets (n, targets).
        weights: of the rows.
        held: parts of the rows, left out by one member of each body after the other.
    """

    def __init__(self, network: MemberNetwork, inputs: Tensor, y: Floats, weights: Floats, held: Sequence[Tensor]):
        rows = torch.cat(list(held)).numpy()
        self.y, self.weights, self.heads, self._network = y[rows], weights[rows], list(network.heads), network
        counts = network.members
        self.left_out = min(counts) // len(held) or 1
        """Members of each body that left a row out: as many as all bodies have."""
        parts = []
        with torch.inference_mode(), quiet(inputs.device):
            for part, out in enumerate(held):
                outputs = network.of_rows(inputs[out.to(inputs.device)]).split(counts)
                parts.append([own[part :: len(held)][: self.left_out] for own in outputs])
        self.outputs = [torch.cat(own, 1) for own in zip(*parts, strict=True)]
        """Of each body, (members that left a row out, rows, size)."""

    def body_weights(self, targets: Sequence[Target]) -> Floats:
        """Return the weights of bodies under which held-out rows are likeliest; of those that count little, zero."""
        alone = [np.eye(len(self.outputs))[b] for b in range(len(self.outputs))]
        logs = np.array([sum(d.logpdf(y) for d, y in self.mixtures(targets, shares)) for shares in alone])
        each = np.exp(logs - logs.max(0))
        share = np.full(len(each), 1 / len(each))
        for _ in range(ROUNDS):
            mine = share[:, None] * each
            found = (mine / mine.sum(0) * self.weights).sum(1) + PRIOR_ROWS
            share = found / found.sum()
        share[share < LEAST_WEIGHT] = 0
        return share / share.sum()

    def keep(self, bodies: NDArray[np.bool_]) -> None:
        """Forget what other bodies predict."""
        self.outputs = [own for own, kept in zip(self.outputs, bodies, strict=True) if kept]

    def mixture(self, target: Target, k: int, shares: Floats) -> PredictiveDistribution:
        """Return the distributions of the k-th target for the held-out rows, bodies having these shares."""
        used = [(own, share) for own, share in zip(self.outputs, shares, strict=True) if share]
        outputs = torch.cat([self._network.per_head(own)[k] for own, _ in used])
        weights = np.concatenate([np.full(len(own), share / len(own)) for own, share in used])
        return target.distribution(self.heads[k], outputs, Mixing(torch.from_numpy(weights).to(outputs)))

    def mixtures(self, targets: Sequence[Target], shares: Floats) -> list[tuple[PredictiveDistribution, Floats]]:
        """Return for each target the distributions of the held-out rows, and the targets."""
        return [(self.mixture(target, k, shares), self.y[:, k]) for k, target in enumerate(targets)]

    def spreads(self, targets: Sequence[Target], shares: Floats) -> list[float]:
        """Return for each target how much wider distributions should be for held-out rows to lie in them as they say.

        Then the levels P(Y <= y) are as far from 1/2 as equally likely ones are, by their mean square: most rows decide
        that, where the likelihood would go by the few that lie far out. Of discrete targets there are too few levels
        for that, and the likelihood is taken. Bounds, which networks know nothing of, are left out: targets that lie
        at one would all be as far out as can be.
        """

        def loss(log_spread: float, target: Target, k: int) -> float:
            density, y = self.mixture(target.spread(float(np.exp(log_spread))), k, shares), self.y[:, k]
            prior = (log_spread / USUAL_SPREAD) ** 2 / 2
            if target.frame.values is not None:
                return prior - float((self.weights * density.logpdf(y)).sum())
            # Of equally likely levels (2 level - 1)^2 has mean 1/3 and variance 4/45.
            square = float(np.average((2 * density.cdf(y) - 1) ** 2, weights=self.weights))
            return prior + len(y) * (square - 1 / 3) ** 2 * 45 / 8

        options: dict[str, Any] = {"bounds": (-MOST_SPREAD, MOST_SPREAD), "options": {"xatol": 0.01}}
        pairs = [(target.unbounded(), k) for k, target in enumerate(targets)]
        found = [minimize_scalar(loss, args=pair, method="bounded", **options) for pair in pairs]
        return [float(np.exp(best.x)) for best in found]


SMALLEST_LEVEL = 1e-9


def conformal_levels(levels: Floats, coverage: float) -> Floats:
    """Return the two levels, equally far from 1/2, between which enough calibration rows lie for this coverage.

    Of n rows drawn like new ones the (n + 1) coverage-th in order of their distance from 1/2 gives new ones at least
    this coverage, whatever their distribution is.

    References:
        Chernozhukov et al., Distributional conformal prediction, PNAS 2021.

    >>> conformal_levels(np.linspace(0.3, 0.7, 99), 0.5).round(2)
    array([0.4, 0.6])
    """
    check_coverage(coverage)
    distance = np.sort(np.abs(levels - 0.5))
    place = math.ceil((len(distance) + 1) * coverage)
    if place <= len(distance):
        half = distance[place - 1]
    else:  # none is far enough out to promise so much
        half, needed = 0.5, math.ceil(coverage / (1 - coverage) - 1e-9)
        warnings.warn(
            f"{len(distance)} rows to calibrate by cannot promise a coverage of {coverage:g}, which takes {needed}: "
            "the intervals are as wide as the distributions reach.",
            stacklevel=3,
        )
    return np.clip([0.5 - half, 0.5 + half], SMALLEST_LEVEL, 1 - SMALLEST_LEVEL)
