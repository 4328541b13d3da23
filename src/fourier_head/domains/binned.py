"""The interval of bins of any widths, warped so that all have the same width in z."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor
from torch.distributions import constraints

from fourier_head.domains.domain import Domain
from fourier_head.fourier import spectrum
from fourier_head.fourier.quadrature import legendre_pieces

if TYPE_CHECKING:
    from fourier_head.bins import Bins
    from fourier_head.densities.fourier import FourierDensity


class BinnedInterval(Domain):
    """The interval covered by ``Bins`` of any widths, warped so that every bin has the same width in z."""

    bounded = True

    def __init__(self, bins: Bins):
        self.bins = bins
        self.low, self.high = float(bins.edges[0]), float(bins.edges[-1])
        self.pieces = bins.num_bins
        edges = np.asarray(bins.edges, dtype=np.float64)
        widths = np.diff(edges)
        kinked = np.concatenate([[True], np.abs(np.diff(widths)) > 1e-9 * widths[1:], [True]])
        self.kinks: tuple[float, ...] = tuple(np.linspace(-1, 1, len(edges))[kinked].tolist())
        """The z where the slope of the warp changes; neighbouring bins of one width have none between them."""

    @property
    def support(self) -> constraints.Constraint:  # type: ignore[override]
        return constraints.interval(self.low, self.high)

    def contains(self, value: Tensor) -> Tensor:
        return (value >= self.low) & (value <= self.high)

    def to_unit(self, value: Tensor) -> Tensor:
        return self.bins.to_unit(value)

    def from_unit(self, z: Tensor) -> Tensor:
        return self.bins.from_unit(z)

    def log_slope(self, value: Tensor) -> Tensor:
        return self.bins.log_slope(value)

    def nodes(self, resolution: int) -> Tensor:
        return legendre_pieces(self.kinks, resolution)

    def crps(self, d: FourierDensity, value: Tensor) -> Tensor:
        """Integrate in the stretches where the warp is linear; all that depends on the value is closed form."""
        z, weight, x = d.quadrature()
        value = value.to(z.dtype).expand(torch.broadcast_shapes(value.shape, d.batch_shape))

        def integral_above(points: Tensor) -> Tensor:
            return d.at_points(lambda q, y: spectrum.cdf_integral_above(q, y, d.walls), d.spectrum, points)

        def slope(at: Tensor) -> Tensor:
            return torch.exp(-self.log_slope(at))

        square = (weight * slope(x) * d.cdf_at(z) ** 2).sum(0)
        corners = torch.tensor(self.kinks, dtype=z.dtype, device=z.device)
        corner = corners.reshape(-1, *(1,) * len(d.batch_shape)).expand(-1, *d.batch_shape)
        beyond = integral_above(corner)
        parts = slope(self.from_unit((corner[1:] + corner[:-1]) / 2)) * (beyond[:-1] - beyond[1:])
        rest = torch.cat([parts.flip(0).cumsum(0).flip(0), torch.zeros_like(parts[:1])])  # from each corner upwards
        place = self.to_unit(value)
        inside = self.from_unit(place)
        piece = torch.searchsorted(corners, place.contiguous(), right=True).clamp(1, len(corners) - 1)
        batch = value.shape[value.dim() - len(d.batch_shape) :]
        flat = piece.reshape(math.prod(value.shape[: value.dim() - len(batch)]), *batch)
        at_corner, above_corner = (t.expand(-1, *batch).gather(0, flat).reshape(value.shape) for t in (beyond, rest))
        above = above_corner + slope(inside) * (integral_above(place) - at_corner)
        return square - 2 * above + (self.high - inside) + (value - inside).abs()

    def __repr__(self) -> str:
        return f"BinnedInterval({self.bins!r})"
