"""Densities of a number z in [-1, 1] that a domain carries to values: their expectations, mode and scores."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.distributions import constraints

from fourier_head.densities.scalar import ScalarDensity
from fourier_head.domains import Domain
from fourier_head.fourier.inversion import highest


class UnitDensity(ScalarDensity):
    """Share what follows from the density of z and the domain that carries it; a subclass writes the methods below."""

    domain: Domain

    @property
    def resolution(self) -> int:
        """How finely to look at the density: twice its harmonics."""
        raise TypeError(f"{type(self).__name__} must define resolution")

    def log_prob_at(self, z: Tensor) -> Tensor:
        """Return the log-density of z."""
        raise TypeError(f"{type(self).__name__} must define log_prob_at")

    def grid(self) -> tuple[Tensor, Tensor]:
        """Return centres z (points, *batch) of [-1, 1], fine enough for this density, and the log-density there."""
        raise TypeError(f"{type(self).__name__} must define grid")

    @constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self) -> constraints.Constraint:
        """The values that have a density."""
        return self.domain.support

    def quadrature(self, finer: bool = False) -> tuple[Tensor, Tensor, Tensor]:
        """Return nodes z, weights and values, (points, *batch) or 1 for all, fit for this domain and these harmonics.

        A logarithm of the density, which has no end of harmonics, needs the finer ones.
        """
        resolution = 4 * self.resolution + 64 if finer else self.resolution
        nodes, weights = map(self._column, self.domain.nodes(resolution))
        return nodes, weights, self.domain.values_at_nodes(nodes, resolution)

    def expect(self, function: Callable[[Tensor], Tensor], nodes: Tensor | None = None) -> Tensor:
        """Return E f(X) by quadrature; with nodes in z and their weights, rows of a tensor, over these alone."""
        if nodes is None:
            z, weight, value = self.quadrature()
        else:
            z, weight = map(self._column, nodes)
            value = self.domain.from_unit(z)
        return self._integral(weight * self.log_prob_at(z).exp(), function(value))

    def expect_of_log(self, function: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
        """Return E f(X, log p(X)) by quadrature, p the density of values."""
        z, weight, value = self.quadrature(finer=True)
        log_prob = self.log_prob_at(z)
        result = function(value, log_prob + self.domain.log_slope(value).to(log_prob))
        return self._integral(weight * log_prob.exp(), result)

    def _integral(self, mass: Tensor, result: Tensor) -> Tensor:
        if self.domain.wide_nodes:
            result = result.to(mass.dtype)
        # Far out mass may round to zero, which counts as nothing even where the function is infinite.
        return torch.where(mass > 0, mass * result, 0).sum(0)

    def _column(self, points: Tensor) -> Tensor:
        return self._cast(points).reshape(-1, *(1,) * len(self.batch_shape))

    @property
    def mode(self) -> Tensor:
        """The value of the highest density: the best grid point, refined by golden-section search."""
        with torch.no_grad():
            pieces = self.domain.pieces
            z, log_prob = self.grid()
            best = (log_prob + self._log_slope_at(z)).argmax(0, keepdim=True)
            middle = z.gather(0, best)[0]
            cell = 2 / len(z)
            low, high = middle - cell, middle + cell
            if not self.domain.wraps:
                # The height jumps from piece to piece, so the search stays within one.
                left = 2 * (best[0] * pieces // len(z)).to(z.dtype) / pieces - 1
                low, high = low.maximum(left), high.minimum(left + 2 / pieces)
            return self.domain.from_unit(highest(self._height, low, high))

    def _log_slope_at(self, z: Tensor) -> Tensor:
        return self.domain.log_slope(self.domain.from_unit(z)).to(z.dtype)

    def _height(self, z: Tensor) -> Tensor:
        return self.log_prob_at(z) + self._log_slope_at(z)
