"""Domain: a monotone map between values and z in [-1, 1], and by quadrature whatever has no closed form there."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import torch
from torch import Tensor
from torch.distributions import constraints

from fourier_head._arrays import common_shape
from fourier_head.domains.maps import ValueMap, broadcast_shape
from fourier_head.fourier.quadrature import legendre_pieces, legendre_rows

if TYPE_CHECKING:
    from fourier_head.densities.fourier import FourierDensity


def fine_grid(resolution: int) -> int:
    """Return how many equal parts of [-1, 1] resolve the logarithm of a density of this resolution."""
    return max(2048, 1 << (8 * resolution - 1).bit_length())


Boundary = Literal["periodic", "reflect"]


class Domain:
    """A monotone map between values and z in [-1, 1]; parameters may be tensors that broadcast with the batch.

    What is written here holds for any smooth map, by quadrature; a subclass with closed forms has them instead.
    """

    support: constraints.Constraint = constraints.real
    boundary: ClassVar[Boundary] = "reflect"
    """Whether the two ends are neighbours ("periodic") or not ("reflect"), unless a head is told."""
    tails: float = 0.0
    """Weight of the Laplace density in z that is mixed in and reaches beyond [-1, 1]."""
    place_outputs: int = 0
    """Numbers that a projection emits to place the domain."""
    pieces: int = 1
    """Parts of [-1, 1], equally long, between which the slope of the map jumps."""
    bins: Any = None
    """The ``Bins`` that came with the domain, or None."""
    bounded: bool = False
    """Whether the values have two ends."""
    wraps: bool = False
    """Whether a peak may lie across the ends."""
    wide_nodes: bool = False
    """Whether values at nodes are in a wider type than the density; expectations come back to that of the density."""
    numbers: ClassVar[tuple[str, ...]] = ()
    """Names of the parameters."""

    @property
    def shape(self) -> torch.Size:
        """Batch shape of the parameters."""
        return broadcast_shape(*(getattr(self, name) for name in self.numbers))

    @property
    def affine(self) -> tuple[float, float] | None:
        """The value at z = -1 and the length of a unit of z, where these are the same for all and all there is."""
        return None

    @property
    def affine_of_rows(self) -> tuple[Tensor, Tensor] | None:
        """The value at z = 0 and the length of a unit of z, where these are tensors and all there is to it."""
        return None

    @property
    def formula(self) -> tuple[str, float, float] | None:
        """A name and two numbers for the map to z where kernels know it: u = (value - first) / second, z of u."""
        return None

    def apply(self, function: Callable[[Tensor], Tensor]) -> Domain:
        """Return the domain with a function applied to those of its parameters that are tensors."""
        other = copy.copy(self)
        for name in self.numbers:
            if isinstance(number := getattr(self, name), Tensor):
                setattr(other, name, function(number))
        return other

    @property
    def edges(self) -> Tensor | None:
        """Edges of bins laid over the values, where the bins are not equal parts of z."""
        return None

    def at_outputs(self, outputs: Tensor, map: ValueMap | None = None, anchor: Tensor | None = None) -> Domain:
        """Return the domain in the place that a projection gives it: this one, which does not move."""
        if map is not None or anchor is not None:
            raise ValueError(f"map and anchor are for heads with an Adaptive domain, not {self!r}")
        return self

    def contains(self, value: Tensor) -> Tensor:
        """Tell which values have a density."""
        return torch.isfinite(value)

    def to_unit(self, value: Tensor) -> Tensor:
        """Map values to z; values outside go to the nearest end."""
        raise TypeError(f"{type(self).__name__} does not define to_unit")

    def from_unit(self, z: Tensor) -> Tensor:
        """Map z to values."""
        raise TypeError(f"{type(self).__name__} does not define from_unit")

    def log_slope(self, value: Tensor) -> Tensor:
        """Return log dz/dvalue, which turns a log-density of z into one of the value."""
        raise TypeError(f"{type(self).__name__} does not define log_slope")

    def nearest(self, value: Tensor, map: ValueMap | None = None) -> Tensor:
        """Return values, those outside moved to the nearest end; NaN, which is in no domain, stays NaN."""
        return torch.where(self.contains(value), value, self.from_unit(self.to_unit(value)))

    def middle(self, value: Tensor, map: ValueMap | None = None) -> Tensor:
        """Return a value that is inside, in the shape of others."""
        return self.from_unit(torch.zeros_like(value))

    def start(self) -> Tensor:
        """Return the outputs that place the domain at the start of training, (place_outputs,)."""
        return torch.zeros(0)

    def state(self) -> Tensor | None:
        """Return what a state dict must hold of the domain, where anything was fitted to data."""
        return None

    def with_state(self, state: Tensor) -> Domain:
        """Return the domain as a state dict has it."""
        return self

    def check_bins(self) -> None:
        """Raise an error where bins cannot be laid over the domain without being told their edges."""

    def check_boundary(self, boundary: Boundary) -> None:
        """Raise an error where the ends of this domain cannot have this boundary."""

    def quantile_of_unit(self, z: Tensor) -> Tensor:
        """Map quantiles of z to those of values."""
        return self.from_unit(z)

    def keep_samples(self, sample: Tensor) -> Tensor:
        """Return samples, those that rounding has made infinite moved to where rounding begins."""
        return sample

    # --- quadrature

    def nodes(self, resolution: int) -> Tensor:
        """Return nodes in z and their weights, rows of a tensor, enough for this many harmonics over [-1, 1]."""
        return legendre_pieces((-1.0, 1.0), resolution)

    def values_at_nodes(self, z: Tensor, resolution: int) -> Tensor:
        """Return the values of ``nodes(resolution)``, given as z of shape (points, ...)."""
        return self.from_unit(z)

    def corners(self, count: int) -> Tensor:
        """Return z, in order, between which all densities are smooth: [-1, 1] in ``count`` pieces or a few more."""
        return torch.linspace(-1, 1, self.pieces * math.ceil(count / self.pieces) + 1, dtype=torch.float64)

    def nodes_beyond(self, z: Tensor, upper: Tensor, resolution: int) -> tuple[Tensor, Tensor]:
        """Return nodes (points, ...) between z and the upper end where ``upper``, else the lower one, and weights."""
        node, weight = (row.to(z).reshape(-1, *(1,) * z.dim()) for row in legendre_rows(resolution + 32))
        end = torch.where(upper, 1.0, -1.0).to(z)
        half = (end - z).abs() / 2
        limit = 1 - torch.finfo(z.dtype).eps
        return ((z + end) / 2 + half * node).clamp(-limit, limit), weight * half

    # --- moments and scores

    def mean(self, d: FourierDensity) -> Tensor:
        """Return the mean of a density over this domain."""
        return d.expect(lambda x: x)

    def variance(self, d: FourierDensity) -> Tensor:
        """Return the variance."""
        mean = self.mean(d)
        return d.expect(lambda x: (x - mean) ** 2)

    def entropy(self, d: FourierDensity) -> Tensor:
        """Return the entropy in nats, that of z by the midpoint rule on a grid finer than the harmonics."""
        _, log_prob = d.grid()
        return -(log_prob.exp() * log_prob).mean(0) * 2 - self.mean_log_slope(d)

    def mean_log_slope(self, d: FourierDensity) -> Tensor:
        """Return the expectation of the log-slope."""
        return d.expect(lambda x: self.log_slope(x))

    def crps_of_map(self, d: FourierDensity, value: Tensor) -> Tensor:
        """Return the score in the coordinate that training goes by: values, unless they are mapped first."""
        return self.crps(d, value)

    def crps(self, d: FourierDensity, value: Tensor) -> Tensor:
        r"""Return :math:`E|X - y| - \int F (1 - F)`, the expectation from the tail on the far side of the value."""
        z, weight, x = d.quadrature()
        slope = torch.exp(-self.log_slope(x))
        spread = (weight * slope * d.cdf_at(z) * d.survival_at(z)).sum(0)
        shape = common_shape(value.shape, d.batch_shape)
        value = value.expand(shape)
        end = self.to_unit(value).to(z.dtype)
        upper = end > 0
        inner, weight = self.nodes_beyond(end, upper, d.resolution)
        slope = torch.exp(-self.log_slope(self.from_unit(inner)))
        tail = (weight * slope * torch.where(upper, d.survival_at(inner), d.cdf_at(inner))).sum(0)
        distance = value - self.mean(d)
        return torch.where(upper, distance, -distance) + 2 * tail - spread
