"""Scores of categoricals and forecasts: smoothness, divergences, weighted quantile loss and calibration.

Every function takes tensors, arrays or lists of any leading shape and returns tensors. Categoricals have their bins
on the last axis; samples and quantiles have them on the first, as `Distribution.sample` and `quantile` return them.
"""

from __future__ import annotations

import torch
from torch import Tensor

from fourier_head._arrays import Numeric, as_tensors
from fourier_head.errors import is_whole
from fourier_head.fourier.smoothness import RELEASED_MAX_SIGMA, refuse_logarithms, smoothness

__all__ = [
    "RELEASED_MAX_SIGMA",
    "calibration_error",
    "central_coverage",
    "kl_divergence",
    "pinball_loss",
    "pit_histogram",
    "smoothness",
    "tvd",
    "wql",
]


def _categoricals(p: Numeric, q: Numeric) -> list[Tensor]:
    rows = as_tensors(p, q)
    for name, one in zip("pq", rows, strict=True):
        refuse_logarithms(name, one)
    return rows


def kl_divergence(p: Numeric, q: Numeric) -> Tensor:
    r"""Return the Kullback-Leibler divergence between categoricals, in nats, bins last.

    .. math:: \mathrm{KL}(p \,\|\, q) = \sum_j p_j \log (p_j / q_j)

    with 0 log 0 = 0 and infinity where q vanishes but p does not.

    Example:
        >>> print(f"{kl_divergence([0.5, 0.5, 0.0], [0.25, 0.5, 0.25]).item():.6f}")
        0.346574
    """
    first, second = _categoricals(p, q)
    live = ~(first <= 0)  # NaN is live
    # Masking before the logarithm keeps gradients finite where p vanishes.
    first, second = torch.where(live, first, 1.0), torch.where(live, second, 1.0)
    return torch.where(live, first * (first.log() - second.log()), 0.0).sum(-1)


def tvd(p: Numeric, q: Numeric) -> Tensor:
    r"""Return the total variation distance between categoricals, bins last.

    .. math:: \mathrm{TVD}(p, q) = \tfrac12 \sum_j |p_j - q_j|

    Example:
        >>> tvd([1.0, 0.0], [0.25, 0.75]).item()
        0.75
    """
    first, second = _categoricals(p, q)
    return (first - second).abs().sum(-1) / 2


def pinball_loss(forecast: Numeric, target: Numeric, level: Numeric) -> Tensor:
    r"""Return the quantile loss elementwise; twice this is the `quantile_loss` of gluonts.

    .. math:: \rho_\tau(y - q) = (y - q) (\tau - 1[y < q])

    Example:
        >>> pinball_loss(2.0, [1.0, 3.0], 0.75)
        tensor([0.2500, 0.7500], dtype=torch.float64)
    """
    forecast, target, level = as_tensors(forecast, target, level)
    error = target - forecast
    return torch.maximum(level * error, (level - 1) * error)


def wql(quantiles: Numeric, levels: Numeric, target: Numeric) -> Tensor:
    r"""Return the weighted quantile loss of forecasts, as gluonts defines it (mean weighted sum quantile loss).

    .. math:: \mathrm{WQL} = \frac1K \sum_i \frac{2 \sum \rho_{\tau_i}(y - q_i)}{\sum |y|}

    Both sums run over every observed target; missing (NaN) targets are left out.

    Args:
        quantiles: shape (K, ...).
        levels: shape (K,).
        target: shape (...).

    Example:
        >>> wql([[1.0, 2.0], [2.0, 4.0]], [0.25, 0.75], [2.0, 2.0]).item()
        0.1875
    """
    quantiles, levels, target = as_tensors(quantiles, levels, target)
    if levels.ndim != 1 or quantiles.ndim == 0 or len(quantiles) != len(levels) or len(levels) == 0:
        raise ValueError(
            "quantiles must have the levels on their first axis, "
            f"got shape {tuple(quantiles.shape)} for levels of shape {tuple(levels.shape)}"
        )
    if not bool(((levels > 0) & (levels < 1)).all()):
        raise ValueError(f"levels must lie strictly between 0 and 1, got {levels.tolist()}")
    # The axis of levels is none of those that broadcast with the target.
    more = max(0, target.ndim + 1 - quantiles.ndim)
    quantiles = quantiles.reshape(len(levels), *[1] * more, *quantiles.shape[1:])
    loss = pinball_loss(quantiles, target, levels.reshape(-1, *[1] * (quantiles.ndim - 1)))
    target = target.expand(loss.shape[1:])
    missing = target.isnan()
    total = torch.where(missing, 0.0, target.abs()).sum()
    return 2 * torch.where(missing, 0.0, loss).flatten(1).sum(1).mean() / total


def _pit(values: Numeric) -> Tensor:
    """Return the observed PIT values in one row, or say what is wrong with them."""
    (values,) = as_tensors(values)
    values = values[~values.isnan()]
    if values.numel() == 0:
        raise ValueError("pit_values must hold at least one value that is not NaN, got none")
    if not bool(((values >= 0) & (values <= 1)).all()):
        low, high = values.min().item(), values.max().item()
        raise ValueError(f"pit_values must lie in [0, 1], got a range from {low:g} to {high:g}")
    return values


def pit_histogram(pit_values: Numeric, num_bins: int = 10) -> Tensor:
    r"""Return the shares of PIT values :math:`F(y)` in equal bins of [0, 1]; flat when the forecasts are calibrated.

    Missing (NaN) values are left out.

    References:
        Gneiting, Balabdaoui and Raftery, Probabilistic forecasts, calibration and sharpness (2007).

    Example:
        >>> pit_histogram([0.1, 0.2, 0.7, 1.0], num_bins=2)
        tensor([0.5000, 0.5000], dtype=torch.float64)
    """
    if not is_whole(num_bins, 1):
        raise ValueError(f"num_bins must be a positive integer, got {num_bins!r}")
    values = _pit(pit_values)
    index = (values * num_bins).long().clamp_max(num_bins - 1)
    return torch.bincount(index, minlength=int(num_bins)).to(values.dtype) / len(values)


def central_coverage(pit_values: Numeric, levels: Numeric) -> Tensor:
    r"""Return the share of observations inside the central interval of each level, from PIT values.

    .. math:: \mathrm{mean} \; 1\big[\tfrac{1-c}2 \le F(y) \le \tfrac{1+c}2\big]

    Example:
        >>> central_coverage([0.05, 0.3, 0.5, 0.9], [0.5, 0.9])
        tensor([0.5000, 1.0000], dtype=torch.float64)
    """
    values, levels = as_tensors(_pit(pit_values), levels)
    distance = (2 * values - 1).abs().sort().values
    return torch.searchsorted(distance, levels, right=True).to(values.dtype) / len(values)


def calibration_error(pit_values: Numeric, levels: Numeric | None = None) -> Tensor:
    r"""Return the mean absolute calibration error: how far observed frequencies of quantiles are from their levels.

    .. math:: \mathrm{mean}_\tau \; \big| \mathrm{mean} \, 1[F(y) \le \tau] - \tau \big|

    Args:
        pit_values: :math:`F(y)` of each observation; missing (NaN) ones are left out.
        levels: the levels averaged over, 0.01 to 0.99 if not given.

    Example:
        >>> print(f"{calibration_error([0.5, 0.5], levels=[0.25, 0.75]).item():.2f}")
        0.25
    """
    values = _pit(pit_values).sort().values
    values, grid = as_tensors(values, torch.arange(1, 100).to(values) / 100 if levels is None else levels)
    observed = torch.searchsorted(values, grid, right=True).to(values.dtype) / len(values)
    return (observed - grid).abs().mean()
