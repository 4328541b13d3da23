"""Metrics of predictive distributions for torchmetrics: summed over batches and processes, logged like any other."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from fourier_head import metrics
from fourier_head._arrays import common_shape
from fourier_head.errors import needing

with needing("lightning"):
    from torchmetrics import Metric


class _Mean(Metric):
    """A mean over everything seen; sums are kept in double precision, so that their order does not matter."""

    full_state_update = False
    higher_is_better = False
    total: Tensor
    count: Tensor

    def __init__(self, **options: Any):
        super().__init__(**options)
        self.add_state("total", torch.zeros((), dtype=torch.float64), dist_reduce_fx="sum")
        self.add_state("count", torch.zeros((), dtype=torch.float64), dist_reduce_fx="sum")

    def _add(self, values: Tensor) -> None:
        # New tensors: states that were made in inference mode must not change outside of it.
        self.total = self.total + values.double().sum()
        self.count = self.count + values.numel()

    def compute(self) -> Tensor:
        """Return the mean so far."""
        return (self.total / self.count).float()

    # Double precision is on purpose: `module.half()` and its like must not shorten the sums.
    def set_dtype(self, dst_type: Any) -> _Mean:
        return self


class NegativeLogLikelihood(_Mean):
    """The mean negative log-likelihood of values, in nats; missing values (NaN) do not count.

    Example:
        >>> from fourier_head import FourierHead
        >>> metric, head = NegativeLogLikelihood(), FourierHead(4, num_frequencies=3)
        >>> x, value = torch.randn(2, 4), torch.tensor([0.1, float("nan")])
        >>> metric.update(head.density(x), value)
        >>> torch.allclose(metric.compute(), head.nll(x, value))
        True
    """

    def update(self, density: Any, value: Tensor) -> None:
        """Take in predictive distributions and what came of them."""
        value, seen = _seen(density, value)
        self._add(-density.log_prob(value)[seen])


class CRPS(_Mean):
    """The mean continuous ranked probability score of values, in their units; missing values (NaN) do not count."""

    def update(self, density: Any, value: Tensor) -> None:
        """Take in predictive distributions and what came of them."""
        value, seen = _seen(density, value)
        self._add(density.crps(value)[seen])


class Smoothness(_Mean):
    """The mean smoothness of probabilities of ordered bins, the paper's; lower is smoother."""

    def update(self, log_probs: Tensor) -> None:
        """Take in log-probabilities (..., bins), as a head returns them; atoms must be left out."""
        self._add(metrics.smoothness(torch.softmax(log_probs.double(), dim=-1)))


class CalibrationError(Metric):
    r"""How far observed frequencies of quantiles are from their levels 0.01 to 0.99, on average.

    .. math:: \mathrm{mean}_\tau \; \big| \mathrm{mean} \, 1[F(y) \le \tau] - \tau \big|

    What is kept is a histogram of :math:`F(y)` in hundredths, so memory does not grow. Missing values do not count.

    Example:
        >>> metric = CalibrationError()
        >>> metric.update(torch.distributions.Uniform(0.0, 1.0), torch.rand(1000))
        >>> bool(metric.compute() < 0.05)
        True
        >>> metric.update(torch.distributions.Uniform(0.0, 100.0), torch.rand(1000))  # far too wide, and off
        >>> bool(metric.compute() > 0.2)
        True
    """

    full_state_update = False
    higher_is_better = False
    counts: Tensor

    def __init__(self, **options: Any):
        super().__init__(**options)
        self.add_state("counts", torch.zeros(100, dtype=torch.float64), dist_reduce_fx="sum")

    def update(self, density: Any, value: Tensor) -> None:
        """Take in predictive distributions and what came of them."""
        value, seen = _seen(density, value)
        level = density.cdf(value)[seen].double()
        # At most its level: a value that lies on one belongs below it.
        place = (100 * level.clamp(0, 1)).ceil().long().clamp(1, 100) - 1
        self.counts = self.counts + torch.bincount(place, minlength=100).to(self.counts)

    def compute(self) -> Tensor:
        """Return the error so far."""
        observed = self.counts.cumsum(0)[:-1] / self.counts.sum()
        level = torch.arange(1, 100, dtype=observed.dtype, device=observed.device) / 100
        return (observed - level).abs().mean().float()

    def set_dtype(self, dst_type: Any) -> CalibrationError:
        return self


def _seen(density: Any, value: Tensor) -> tuple[Tensor, Tensor]:
    """Return values with one of them in place of each missing one, and which were there."""
    try:
        shape = common_shape(value.shape, density.batch_shape)
    except RuntimeError:  # they do not go together at all
        shape = torch.Size([-1])
    if shape not in (value.shape, density.batch_shape):
        # A column beside a row of distributions would be a table of all pairs.
        raise ValueError(
            f"value must have the shape {tuple(density.batch_shape)} of the distributions, got {tuple(value.shape)}"
        )
    value = value.expand(shape)
    seen = ~torch.isnan(value)
    some = value[seen][:1] if bool(seen.any()) else torch.zeros_like(value)
    return torch.where(seen, value, some), seen
