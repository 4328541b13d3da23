"""TabulatedMixture: a mixture of Fourier densities whose distribution functions are read from tables."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import torch
from torch import Tensor

from fourier_head._arrays import common_shape
from fourier_head.densities.fourier import FourierDensity
from fourier_head.densities.mixture import MixtureDensity
from fourier_head.domains import Domain
from fourier_head.fourier import spectrum, tails
from fourier_head.fourier.inversion import Curve, invert
from fourier_head.fourier.quadrature import ranked_score

PIECES = 16
"""Pieces of a table for each coefficient: with cubics between them about eight digits of a probability are right."""
TOLERANCE = 1e-9
"""Relative error of the level of a quantile."""

ENDS = 64
"""Places that the search for a quantile begins between, at least."""


@dataclass
class _Table:
    """Distribution functions of densities (K, rows), cubic in each of equally long pieces of [-1, 1].

    Args:
        cubics: coefficients of all pieces of all densities, (K * rows * pieces, 4).
        pieces: of one density.
        first: the first piece of each density, (K, ...).
        domain: of the densities.
    """

    cubics: Tensor
    pieces: int
    first: Tensor
    domain: Domain

    @classmethod
    def of(cls, d: FourierDensity, each: int = PIECES) -> _Table:
        pieces = each * d.spectrum.shape[-1]
        z = torch.linspace(-1, 1, pieces + 1, dtype=d.spectrum.dtype, device=d.spectrum.device)
        cdf, slope = spectrum.cdf_and_density(d.spectrum, z, d.walls)  # one product of matrices
        slope = slope * (2 / pieces)
        rise, start, end = cdf.diff(dim=-1), slope[..., :-1], slope[..., 1:]
        cubics = torch.stack([cdf[..., :-1], start, 3 * rise - 2 * start - end, start + end - 2 * rise], -1)
        first = pieces * torch.arange(d.batch_shape.numel(), device=z.device).reshape(d.batch_shape)
        return cls(cubics.reshape(-1, 4), pieces, first, d.domain)

    def __call__(self, value: Tensor, with_density: bool) -> tuple[Tensor, Tensor]:
        """Return distribution functions at values (..., 1 or K, rows), and densities where they are asked for."""
        v = self.domain.to_unit(value).to(self.cubics.dtype)
        place = (v.clamp(-1, 1) + 1) * (self.pieces / 2)
        piece = place.floor().clamp_max(self.pieces - 1)
        s = place - piece
        which = self.first + piece.nan_to_num().long()  # what is missing stays so in s
        # Three times as fast as an index of more dimensions.
        a, b, c, d = self.cubics.index_select(0, which.reshape(-1)).reshape(*which.shape, 4).unbind(-1)
        cdf, weight = a + s * (b + s * (c + s * d)), self.domain.tails
        if not with_density:
            return tails.mix_cdf(cdf, v, weight), cdf
        density = (b + s * (2 * c + 3 * s * d)).clamp_min(0) * (self.pieces / 2)
        cdf, density = tails.mix_curve(cdf, torch.where(v.abs() <= 1, density, 0), v, weight)
        return cdf, density * self.domain.log_slope(value).exp()

    def part(self, rows: Tensor) -> _Table:
        """Return the tables of some rows, which may be named several times."""
        domain = self.domain.apply(lambda t: t.expand(self.first.shape)[:, rows])
        return _Table(self.cubics, self.pieces, self.first[:, rows], domain)


class TabulatedMixture(MixtureDensity):
    """A mixture of Fourier densities (K, rows) that is asked for many quantiles or probabilities at once.

    The log-density is that of ``MixtureDensity``; distribution functions come from tables, right to about 1e-8, and
    have no gradients. Expanded, it is a ``MixtureDensity``.

    Args:
        components: adaptive densities of batch shape (K, rows).
        weights: as ``MixtureDensity`` takes them.
        pieces: of a table, for each coefficient.

    Example:
        >>> from fourier_head import Adaptive, MixtureDensity
        >>> place = Adaptive(tails=0.01).at(torch.tensor([[0.0], [3.0]]), torch.ones(2, 1))
        >>> members = FourierDensity(torch.tensor([1.0, 0.5, 0.0, 0.0]).reshape(2, 2).expand(2, 1, 2, 2), place)
        >>> levels = torch.tensor([0.1, 0.5, 0.9])
        >>> torch.allclose(TabulatedMixture(members).quantile(levels), MixtureDensity(members).quantile(levels))
        True
    """

    def __init__(
        self,
        components: FourierDensity,
        weights: Tensor | None = None,
        validate_args: bool | None = None,
        pieces: int = PIECES,
    ):
        super().__init__(components, weights, validate_args)
        self._pieces = pieces
        if len(self.batch_shape) != 1 or not components.domain.tails:
            raise ValueError("components must be adaptive densities of rows, of batch shape (K, rows).")

    @functools.cached_property
    def _table(self) -> _Table:
        return _Table.of(self.components, self._pieces)  # type: ignore[arg-type]

    def _cdf_each(self, value: Tensor) -> Tensor:
        return self._table(self._for_each(value), with_density=False)[0]

    def cdf_and_prob(self, value: Tensor) -> tuple[Tensor, Tensor]:
        """Return the distribution function and the density."""
        cdf, prob = self._table(self._for_each(self._value(value)), with_density=True)
        return self._mix(cdf), self._mix(prob)

    def entropy(self) -> Tensor:
        """Return the differential entropy in nats, by quadrature of densities from tables four times as fine."""
        fine = _Table.of(self.components, 4 * PIECES)  # type: ignore[arg-type]

        def part(x: Tensor) -> Tensor:
            prob = self._mix(fine(self._for_each(x), with_density=True)[1])
            return -torch.xlogy(prob, prob)

        return self._integral(part)

    def crps(self, value: Tensor | float) -> Tensor:
        """Return the ranked score; behind a curved map, by its definition, between the panels and the value."""
        if not any(self._table.domain.map.curved):  # type: ignore[attr-defined]
            return super().crps(value)
        return ranked_score(self.cdf, self._panels(), self._value(value))

    @torch.no_grad()
    def _icdf(self, level: Tensor) -> Tensor:
        """Return x with F(x) = level, between two of the places where the densities are known to be smooth."""
        level = level.expand(common_shape(level.shape, self.batch_shape))
        shape, level = level.shape, level.reshape(-1, *self.batch_shape)
        ends = self._panels()
        # Fewer are near enough to begin with.
        ends = torch.cat([ends[: -1 : max(1, len(ends) // ENDS)], ends[-1:]])
        at = self.cdf(ends).cummax(0).values
        place = torch.searchsorted(at.mT.contiguous(), level.mT.contiguous()).mT.clamp(1, len(ends) - 1)
        low, below = ends.gather(0, place - 1), at.gather(0, place - 1)
        span, rise = ends.gather(0, place) - low, at.gather(0, place) - below
        start = ((level - below) / rise.clamp_min(torch.finfo(rise.dtype).tiny)).clamp(0, 1)
        shares = self._shares()

        def curve_of(table: _Table, low: Tensor, span: Tensor, shares: Tensor) -> Curve:
            def curve(share: Tensor) -> tuple[Tensor, Tensor]:
                cdf, prob = table((low + span * share).unsqueeze(-2), with_density=True)
                return (cdf * shares).sum(-2), (prob * shares).sum(-2) * span

            return curve

        def part(where: tuple[Tensor, ...]) -> Curve:
            rows = where[1]
            some = shares if shares.shape[-1] == 1 else shares[:, rows]
            return curve_of(self._table.part(rows), low[where], span[where], some)

        zero, one = torch.zeros_like(level), torch.ones_like(level)
        whole = curve_of(self._table, low, span, shares)
        share = invert(whole, level, zero, one, start, tolerance=TOLERANCE, noise=4e-16, part=part)
        x = torch.where(level >= 1, torch.inf, torch.where(level <= 0, -torch.inf, low + span * share))
        return x.reshape(shape)
