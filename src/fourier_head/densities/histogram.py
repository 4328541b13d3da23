"""HistogramDensity: a density that is constant on each bin, the predictive distribution of a categorical head."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.distributions import Distribution, constraints

from fourier_head._arrays import common_shape, widened
from fourier_head.densities.scalar import Rows, ScalarDensity, Shape


class HistogramDensity(ScalarDensity):
    r"""Represent a density that is constant on each of m bins.

    .. math:: p(x) = p_j / (e_{j+1} - e_j), \quad x \in [e_j, e_{j+1})

    The last bin is closed. This is the predictive density of any head with one probability per bin (linear, HL-Gauss).
    All methods are exact; bins of probability zero give ``-inf`` where they must and never NaN.

    Args:
        logits: unnormalised log-probabilities (..., m), ``-inf`` allowed; or give ``probs``.
        probs: unnormalised probabilities (..., m).
        edges: increasing edges (m + 1,), or (..., m + 1) with a batch of their own. Default: uniform on [low, high].
        low, high: ends of the interval where ``edges`` is not given.

    Example:
        >>> d = HistogramDensity(probs=torch.tensor([1.0, 3.0]), low=0.0, high=4.0)
        >>> d.cdf(torch.tensor([1.0, 3.0])), d.mean, d.mode
        (tensor([0.1250, 0.6250]), tensor(2.5000), tensor(3.))
        >>> d.quantile([0.1, 0.25, 0.625])
        tensor([0.8000, 2.0000, 3.0000])
    """

    arg_constraints: ClassVar[dict[str, constraints.Constraint]] = {"logits": constraints.real_vector}

    def __init__(
        self,
        logits: Tensor | None = None,
        probs: Tensor | None = None,
        edges: Tensor | Sequence[float] | None = None,
        low: float = -1.0,
        high: float = 1.0,
        validate_args: bool | None = None,
    ) -> None:
        if (logits is None) == (probs is None):
            raise ValueError(f"give either logits or probs, got {'neither' if logits is None else 'both'}.")
        given = probs if logits is None else logits
        assert given is not None
        if given.dim() < 1 or given.shape[-1] < 1:
            raise ValueError(f"logits or probs must have shape (..., m) with m >= 1, got {tuple(given.shape)}.")
        given = widened(given)
        validate = Distribution._validate_args if validate_args is None else validate_args
        num_bins = given.shape[-1]
        if edges is None:
            if not -math.inf < low < high < math.inf:
                raise ValueError(f"low must be less than high, both finite, got low={low} and high={high}.")
            edges = torch.linspace(low, high, num_bins + 1, dtype=given.dtype, device=given.device)
        edges = torch.as_tensor(edges, dtype=given.dtype, device=given.device)
        if edges.dim() < 1 or edges.shape[-1] != num_bins + 1:
            raise ValueError(f"edges must have shape (..., {num_bins + 1}), got {tuple(edges.shape)}.")
        if validate and not bool((edges.diff() > 0).all()):
            raise ValueError(f"edges must be strictly increasing in {edges.dtype}, got some that are not.")
        if logits is None:
            if validate and not bool(((given >= 0).all(-1) & given.sum(-1).isfinite() & (given.sum(-1) > 0)).all()):
                raise ValueError("probs must be finite and not negative, with a positive sum, got others.")
            given = given / given.sum(-1, keepdim=True)
            # Below the least normal number 1/p overflows; such a bin is empty, and its gradient zero.
            some = given >= torch.finfo(given.dtype).tiny
            given = torch.where(some, torch.where(some, given, 1).log(), -math.inf)
        batch_shape = common_shape(given.shape[:-1], edges.shape[:-1])
        self.logits = given.log_softmax(-1).expand(*batch_shape, num_bins)
        self.edges = edges if edges.dim() == 1 else edges.expand(*batch_shape, num_bins + 1)
        # torch cannot check the parameters of an empty batch.
        super().__init__(batch_shape, validate_args=validate_args if self.logits.numel() else False)

    def expand(self, batch_shape: Shape, _instance: Distribution | None = None) -> HistogramDensity:
        """Return the same density for a larger batch, without copying."""
        new = self._get_checked_instance(HistogramDensity, _instance)
        batch_shape = torch.Size(batch_shape)
        new.logits = self.logits.expand(batch_shape + self.logits.shape[-1:])
        new.edges = self.edges if self.edges.dim() == 1 else self.edges.expand(batch_shape + self.edges.shape[-1:])
        super(HistogramDensity, new).__init__(batch_shape, validate_args=False)
        new._validate_args = self._validate_args
        return new

    def __getitem__(self, index: Any) -> HistogramDensity:
        """Return the densities of a part of the batch."""
        edges = self.edges if self.edges.dim() == 1 else self.edges[index]
        return HistogramDensity(self.logits[index], edges=edges, validate_args=self._validate_args)

    # --- parts

    @constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self) -> constraints.Constraint:
        """The closed interval between the first and the last edge."""
        return constraints.interval(self.edges[..., 0], self.edges[..., -1])

    @property
    def _like(self) -> Tensor:  # type: ignore[override]
        return self.logits

    def panels(self, count: int) -> Tensor:
        """Return the edges (m + 1, *batch): between them the density is constant."""
        return self.edges.expand(*self.batch_shape, -1).movedim(-1, 0)

    @property
    def num_bins(self) -> int:
        """The number of bins m."""
        return self.logits.shape[-1]

    @property
    def probs(self) -> Tensor:
        """The probabilities of the bins (..., m)."""
        return self.logits.exp()

    @property
    def widths(self) -> Tensor:
        """The widths of the bins."""
        return self.edges.diff()

    @property
    def centers(self) -> Tensor:
        """The centres of the bins."""
        return self.edges[..., :-1] + self.widths / 2

    def _knots(self) -> Tensor:
        """Return the cdf at the edges (..., m + 1), exactly 1 at the last."""
        total = self.probs.cumsum(-1)
        return torch.cat([torch.zeros_like(total[..., :1]), total / total[..., -1:]], -1)

    def _inside(self, value: Tensor) -> tuple[Tensor, Tensor]:
        low, high = self.edges[..., 0], self.edges[..., -1]
        return (value >= low) & (value <= high), value.clamp(low, high)

    # --- density, distribution, quantiles

    def log_prob(self, value: Tensor | float) -> Tensor:
        """Return the log-density, ``-inf`` outside the bins."""
        value = self._supported(value)
        inside, near = self._inside(value)
        rows = Rows(near, self.batch_shape)
        j = rows.find(self.edges, right=True)
        height = rows.take(self.logits, j) - rows.take(self.widths.log(), j)
        return self._outside(value, inside, rows.back(height))

    def cdf(self, value: Tensor | float) -> Tensor:
        """Return P(X <= value), linear on each bin."""
        rows = Rows(self._inside(self._value(value))[1], self.batch_shape)
        j = rows.find(self.edges, right=True)
        knots = self._knots()
        share = (rows.value - rows.take(self.edges, j)) / rows.take(self.widths, j)
        return rows.back(torch.lerp(rows.take(knots, j), rows.take(knots, j + 1), share))

    def _icdf(self, level: Tensor) -> Tensor:
        # Levels of zero look for the first bin that holds anything; ends of flat stretches are found from the left.
        tiny = torch.finfo(level.dtype).tiny
        rows = Rows(level.clamp(tiny, 1), self.batch_shape)
        knots = self._knots()
        j = rows.find(knots, right=False)
        start = rows.take(knots, j)
        share = ((rows.value - start) / (rows.take(knots, j + 1) - start).clamp_min(tiny)).clamp(0, 1)
        return rows.back(torch.lerp(rows.take(self.edges, j), rows.take(self.edges, j + 1), share))

    # --- summaries

    @property
    def mean(self) -> Tensor:
        """The mean, of the bin centres."""
        return (self.probs * self.centers).sum(-1)

    @property
    def variance(self) -> Tensor:
        r"""The variance :math:`\sum_j p_j ((c_j - \mu)^2 + w_j^2 / 12)`."""
        return (self.probs * ((self.centers - self.mean[..., None]) ** 2 + self.widths**2 / 12)).sum(-1)

    @property
    def mode(self) -> Tensor:
        """The centre of the bin with the highest density."""
        best = (self.logits - self.widths.log()).argmax(-1, keepdim=True)
        return self.centers.expand(self.logits.shape).gather(-1, best)[..., 0]

    def entropy(self) -> Tensor:
        r"""Return the differential entropy :math:`-\sum_j p_j \log (p_j / w_j)` in nats."""
        height = self.logits - self.widths.log()
        return -(self.probs * torch.where(self.probs > 0, height, 0)).sum(-1)

    def crps(self, value: Tensor | float) -> Tensor:
        r"""Return the continuous ranked probability score.

        .. math:: \int (F(x) - 1\{x \ge y\})^2 dx

        Exact: on a piece of length w where F goes linearly from f to g, :math:`\int F^2 = w (f^2 + f g + g^2) / 3`.
        For values outside the bins the distance to them is added.
        """
        value = self._value(value)
        near = self._inside(value)[1]
        rows = Rows(near, self.batch_shape)
        j = rows.find(self.edges, right=True)
        below = self._knots()
        above = 1 - below
        # Integrals of F^2 from the left end, and of (1 - F)^2 to the right end, up to each edge.
        before = (self.widths * _mean_square(below[..., :-1], below[..., 1:])).cumsum(-1)
        after = (self.widths * _mean_square(above[..., :-1], above[..., 1:])).flip(-1).cumsum(-1).flip(-1)
        zero = torch.zeros_like(before[..., :1])
        before, after = torch.cat([zero, before], -1), torch.cat([after, zero], -1)
        left, width = rows.take(self.edges, j), rows.take(self.widths, j)
        share = (rows.value - left) / width
        f, g = rows.take(below, j), rows.take(below, j + 1)
        here = torch.lerp(f, g, share)
        score = rows.take(before, j) + width * share * _mean_square(f, here)
        score = score + rows.take(after, j + 1) + width * (1 - share) * _mean_square(1 - here, 1 - g)
        return rows.back(score) + (value - near).abs()

    def __repr__(self) -> str:
        return f"HistogramDensity(num_bins={self.num_bins}, batch_shape={tuple(self.batch_shape)})"


def _mean_square(f: Tensor, g: Tensor) -> Tensor:
    return (f * f + f * g + g * g) / 3
