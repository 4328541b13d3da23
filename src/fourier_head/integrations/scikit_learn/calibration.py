"""What held-out rows say of trained networks: how much each kind counts, and how wide distributions should be."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from torch import Tensor

from fourier_head.integrations.scikit_learn.predictive import Floats, quiet
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
        parts = []
        with torch.inference_mode(), quiet(inputs.device):
            for part, out in enumerate(held):
                outputs = network.of_rows(inputs[out.to(inputs.device)]).split(counts)
                # As many members of each body as all have that leave out this part.
                parts.append([own[part :: len(held)][: min(counts) // len(held) or 1] for own in outputs])
        self.outputs = [torch.cat(own, 1) for own in zip(*parts, strict=True)]
        """Of each body, (members that left a row out, rows, size)."""

    def body_weights(self, targets: Sequence[Target]) -> Floats:
        """Return the weights of bodies under which held-out rows are likeliest; of those that count little, zero."""
        logs = np.array([sum(d.logpdf(y) for d, y in self._each([own], targets, None)) for own in self.outputs])
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

    def _each(self, outputs: Sequence[Tensor], targets: Sequence[Target], weights: Tensor | None) -> Any:
        per_head = self._network.per_head(torch.cat(list(outputs)))
        return [
            (target.distribution(head, own, weights), y)
            for target, head, own, y in zip(targets, self.heads, per_head, self.y.T, strict=True)
        ]

    def mixtures(self, targets: Sequence[Target], shares: Floats) -> Any:
        """Return for each target the distributions of the held-out rows, and the targets."""
        members = [np.full(len(own), share / len(own)) for own, share in zip(self.outputs, shares, strict=True)]
        weights = torch.from_numpy(np.concatenate(members)).to(self.outputs[0])
        return self._each(self.outputs, targets, weights)

    def spreads(self, targets: Sequence[Target], shares: Floats) -> list[float]:
        """Return for each target how much wider distributions should be for held-out rows to be likeliest."""
        found = []
        for k, target in enumerate(targets):
            if target.head != "fourier":
                found.append(1.0)
                continue

            def loss(log_spread: float, k: int = k) -> float:
                tried = [t.spread(float(np.exp(log_spread))) for t in targets]
                density, y = self.mixtures(tried, shares)[k]
                return -float((self.weights * density.logpdf(y)).sum()) + (log_spread / USUAL_SPREAD) ** 2 / 2

            best = minimize_scalar(loss, bounds=(-MOST_SPREAD, MOST_SPREAD), method="bounded", options={"xatol": 0.01})
            found.append(float(np.exp(best.x)))
        return found
