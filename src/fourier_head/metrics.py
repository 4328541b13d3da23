"""Scores of categoricals, densities and forecasts: smoothness, divergences, CRPS, MASE, WQL and calibration.

Every function takes tensors, arrays or lists of any leading shape and returns tensors. Categoricals have their bins
on the last axis; samples and quantiles have them on the first, as `Distribution.sample` and `quantile` return them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from fourier_head._arrays import Numeric, as_tensors
from fourier_head.fourier.smoothness import RELEASED_MAX_SIGMA, smoothness

__all__ = [
    "RELEASED_MAX_SIGMA",
    "calibration_error",
    "central_coverage",
    "crps_from_pmf",
    "crps_from_quantiles",
    "crps_from_samples",
    "interval_coverage",
    "kl_divergence",
    "mase",
    "pinball_loss",
    "pit_histogram",
    "seasonal_error",
    "smoothness",
    "spectral_entropy",
    "tvd",
    "wql",
]


def spectral_entropy(signal: Numeric, *, base: float = 2.0, dc: bool = True, normalised: bool = False) -> Tensor:
    r"""Return the Shannon entropy of the power spectrum of a signal, samples last.

    .. math:: H = -\sum_n p_n \log p_n, \qquad p_n = |Y_n|^2 / \sum_k |Y_k|^2, \quad n = 0, \dots, \lfloor m/2 \rfloor

    One-sided spectrum without window; a signal without power has entropy 0. The formula of the paper has base 2 and
    every frequency, the default here. The values of its noise table (about 0.4) come out with `base=math.e` on 4096
    samples with the constant term kept: a categorical is positive, so that term has nearly all the power. To compare
    the shape of the noise alone use `dc=False`.

    Args:
        signal: real samples.
        base: base of the logarithm.
        dc: whether the constant term n = 0 counts.
        normalised: divide by the entropy of a flat spectrum, so that the result lies in [0, 1].

    References:
        Gillman et al., Fourier Head (2025), appendix B.

    Example:
        >>> impulse = [1.0, 0.0, 0.0, 0.0, 0.0, 0.0]
        >>> print(f"{spectral_entropy(impulse).item():.6f}")
        2.000000
    """
    (signal,) = as_tensors(signal)
    if signal.ndim == 0 or signal.shape[-1] < 2:
        raise ValueError(f"signal must have at least two samples on its last axis, got shape {tuple(signal.shape)}")
    if not base > 1:
        raise ValueError(f"base must be greater than 1, got {base}")
    spectrum = torch.fft.rfft(signal)[..., 0 if dc else 1 :]
    power = spectrum.real**2 + spectrum.imag**2
    total = power.sum(-1, keepdim=True)
    share = power / torch.where(total > 0, total, 1.0)
    entropy = torch.special.entr(share).sum(-1) / math.log(base)
    return entropy / math.log(max(power.shape[-1], 2), base) if normalised else entropy


def kl_divergence(p: Numeric, q: Numeric, *, log_input: bool = False) -> Tensor:
    r"""Return the Kullback-Leibler divergence between categoricals, in nats, bins last.

    .. math:: \mathrm{KL}(p \,\|\, q) = \sum_j p_j \log (p_j / q_j)

    with 0 log 0 = 0 and infinity where q vanishes but p does not.

    Args:
        p, q: probabilities, or log-probabilities with `log_input=True`.

    Example:
        >>> print(f"{kl_divergence([0.5, 0.5, 0.0], [0.25, 0.5, 0.25]).item():.6f}")
        0.346574
    """
    first, second = as_tensors(p, q)
    live = ~(first <= (-torch.inf if log_input else 0))  # NaN is live
    # Masking before the logarithm keeps gradients finite where p vanishes.
    first, second = torch.where(live, first, 1.0), torch.where(live, second, 1.0)
    terms = first.exp() * (first - second) if log_input else first * (first.log() - second.log())
    return torch.where(live, terms, 0.0).sum(-1)


def tvd(p: Numeric, q: Numeric) -> Tensor:
    r"""Return the total variation distance between categoricals, bins last.

    .. math:: \mathrm{TVD}(p, q) = \tfrac12 \sum_j |p_j - q_j|

    Example:
        >>> tvd([1.0, 0.0], [0.25, 0.75]).item()
        0.75
    """
    first, second = as_tensors(p, q)
    return (first - second).abs().sum(-1) / 2


def _beside(first: Tensor, value: Tensor) -> Tensor:
    """Return samples or quantiles (n, ...) whose first axis is none of those that broadcast with ``value``."""
    more = value.ndim + 1 - first.ndim
    return first.reshape(len(first), *[1] * more, *first.shape[1:]) if more > 0 else first


def crps_from_samples(samples: Numeric, value: Numeric, *, fair: bool = False) -> Tensor:
    r"""Return the CRPS of the empirical distribution of samples (first axis), in O(n log n).

    .. math:: \frac1n \sum_i |x_i - y| - \frac1{2 n^2} \sum_{i,j} |x_i - x_j|

    Args:
        samples: shape (n, ...).
        value: the observation, shape (...).
        fair: divide the second sum by 2 n (n - 1): an unbiased estimate of the CRPS of what the samples came from.

    References:
        Ferro, Fair scores for ensemble forecasts (2014).

    Example:
        >>> crps_from_samples([0.0, 1.0], 0.0).item()
        0.25
        >>> crps_from_samples([0.0, 1.0], 0.0, fair=True).item()
        0.0
    """
    samples, value = as_tensors(samples, value)
    n = samples.shape[0] if samples.ndim else 0
    if n < 1 + fair:
        raise ValueError(f"samples must have at least {1 + fair} on the first axis, got shape {tuple(samples.shape)}")
    error = (_beside(samples, value) - value).sort(0).values  # differences first: no cancellation far from zero
    rank = 2 * torch.arange(n, dtype=error.dtype, device=error.device) - (n - 1)
    spread = torch.tensordot(rank, error, dims=1) / (n * (n - 1 if fair else n))
    return error.abs().mean(0) - spread


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


def _by_level(quantiles: Numeric, levels: Numeric, target: Numeric) -> Tensor:
    """Return the pinball losses, shape (levels, ...), after checking that the first axis is that of the levels."""
    quantiles, levels, target = as_tensors(quantiles, levels, target)
    if levels.ndim != 1 or quantiles.ndim == 0 or len(quantiles) != len(levels) or len(levels) == 0:
        raise ValueError(
            "quantiles must have the levels on their first axis, "
            f"got shape {tuple(quantiles.shape)} for levels of shape {tuple(levels.shape)}"
        )
    if not bool(((levels > 0) & (levels < 1)).all()):
        raise ValueError(f"levels must lie strictly between 0 and 1, got {levels.tolist()}")
    quantiles = _beside(quantiles, target)
    return pinball_loss(quantiles, target, levels.reshape(-1, *[1] * (quantiles.ndim - 1)))


def crps_from_quantiles(quantiles: Numeric, levels: Numeric, value: Numeric) -> Tensor:
    r"""Return the CRPS approximated from quantiles: twice the mean pinball loss.

    .. math:: 2 \int_0^1 \rho_\tau(y - F^{-1}(\tau)) \, d\tau \approx \frac2K \sum_i \rho_{\tau_i}(y - q_i)

    With levels (i - 1/2) / K it is the exact CRPS of K equal atoms at the quantiles; with 0.1, ..., 0.9 it is the
    quantity that WQL sums. Levels should be evenly spread.

    Args:
        quantiles: shape (K, ...).
        levels: shape (K,).
        value: the observation, shape (...).

    Example:
        >>> crps_from_quantiles([0.0, 1.0], [0.25, 0.75], 0.0).item()
        0.25
    """
    return 2 * _by_level(quantiles, levels, value).mean(0)


def crps_from_pmf(pmf: Numeric, points: Numeric, value: Numeric) -> Tensor:
    r"""Return the exact CRPS of a categorical over atoms or of a histogram.

    .. math:: \mathrm{CRPS}(F, y) = \int (F(x) - 1[x \ge y])^2 \, dx

    Args:
        pmf: probabilities of the m bins, shape (..., m).
        points: increasing; m centres (all mass sits on them) or m + 1 edges (mass is spread evenly in each bin).
        value: the observation, shape (...).

    Example:
        >>> crps_from_pmf([0.5, 0.5], [0.0, 1.0], 0.0).item()
        0.25
        >>> print(f"{crps_from_pmf([1.0], [0.0, 1.0], 0.0).item():.6f}")
        0.333333
    """
    pmf, points, value = as_tensors(pmf, points, value)
    m = pmf.shape[-1] if pmf.ndim else 0
    if m == 0 or points.ndim == 0 or points.shape[-1] not in (m, m + 1):
        raise ValueError(f"points must have m or m + 1 = {m} or {m + 1} entries, got shape {tuple(points.shape)}")
    width = points.diff()
    if not bool((width > 0).all()):
        raise ValueError("points must be strictly increasing")
    after = pmf.cumsum(-1)
    before = after - pmf
    if points.shape[-1] == m:  # between two centres the cdf is flat
        before = after = after[..., :-1]
    y = value[..., None]
    share = ((y - points[..., :-1]) / width).clamp(0, 1)
    here = before + share * (after - before)
    below = share * (before**2 + before * here + here**2)
    above = (1 - share) * ((1 - here) ** 2 + (1 - here) * (1 - after) + (1 - after) ** 2)
    outside = (points[..., 0] - value).clamp_min(0) + (value - points[..., -1]).clamp_min(0)
    return (width * (below + above)).sum(-1) / 3 + outside


def seasonal_error(history: Numeric | Sequence[Numeric], season: int = 1) -> Tensor:
    r"""Return the mean absolute change over a season, the scale of MASE.

    .. math:: \mathrm{mean}_t \, |x_t - x_{t-s}|

    As in gluonts, pairs with a missing (NaN) value are skipped and a history no longer than the season uses season 1.

    Args:
        history: shape (..., time), or a list of series of different lengths, which gives one number for each.
        season: steps per season.

    Example:
        >>> seasonal_error([1.0, 2.0, 4.0, 6.0], season=2).item()
        3.5
        >>> seasonal_error([[1.0, 2.0], [0.0, 3.0, 1.0]])
        tensor([1.0000, 2.5000], dtype=torch.float64)
    """
    if isinstance(season, bool) or not isinstance(season, int) or season < 1:
        raise ValueError(f"season must be a positive integer, got {season!r}")
    if isinstance(history, (list, tuple)) and len(history) and np.ndim(history[0]) > 0:
        return torch.stack([seasonal_error(series, season) for series in history])
    (series,) = as_tensors(history)  # type: ignore[arg-type]
    if series.ndim == 0:
        raise ValueError("history must have time on its last axis, got a single number")
    lag = season if season < series.shape[-1] else 1
    return (series[..., lag:] - series[..., :-lag]).abs().nanmean(-1)


def mase(
    forecast: Numeric,
    target: Numeric,
    history: Numeric | Sequence[Numeric],
    season: int = 1,
    *,
    reduction: Literal["mean", "none"] = "mean",
) -> Tensor:
    r"""Return the mean absolute scaled error of point forecasts, as gluonts defines it.

    .. math:: \mathrm{MASE} = \mathrm{mean} \; |y - f| / \mathrm{mean}_t |x_t - x_{t-s}|

    The mean runs over every observed target of every series; missing (NaN) targets and series whose scale is 0 or
    unknown are left out.

    Args:
        forecast: medians, shape (..., horizon).
        target: shape (..., horizon).
        history: what came before, shape (..., time) or a list with one series for each row of `target`.
        season: steps per season.
        reduction: `"none"` returns every scaled error, NaN where it is left out.

    References:
        Hyndman and Koehler, Another look at measures of forecast accuracy (2006).

    Example:
        >>> mase([2.0, 2.0], [3.0, float("nan")], history=[0.0, 2.0, 4.0]).item()
        0.5
    """
    _check_reduction(reduction)
    forecast, target, scale = as_tensors(forecast, target, seasonal_error(history, season))
    if scale.ndim and scale.shape != target.shape[:-1]:
        shapes = f"{tuple(scale.shape)} for {tuple(target.shape[:-1])}"
        raise ValueError(f"history must hold one series for each row of target, got {shapes}")
    scale = torch.where(scale > 0, scale, torch.nan)[..., None]
    error = (target - forecast).abs()
    missing = target.isnan() | scale.isnan()
    if reduction == "none":
        return torch.where(missing, torch.nan, error / scale)
    # A NaN forecast of an observed target must show, so only what is missing is masked.
    return torch.where(missing, 0.0, error / scale).sum() / (~missing).expand_as(error).sum()


def wql(quantiles: Numeric, levels: Numeric, target: Numeric, *, reduction: Literal["mean", "none"] = "mean") -> Tensor:
    r"""Return the weighted quantile loss of forecasts, as gluonts defines it (mean weighted sum quantile loss).

    .. math:: \mathrm{WQL} = \frac1K \sum_i \frac{2 \sum \rho_{\tau_i}(y - q_i)}{\sum |y|}

    Both sums run over every observed target; missing (NaN) targets are left out.

    Args:
        quantiles: shape (K, ...).
        levels: shape (K,).
        target: shape (...).
        reduction: `"none"` returns one number for each level.

    Example:
        >>> wql([[1.0, 2.0], [2.0, 4.0]], [0.25, 0.75], [2.0, 2.0]).item()
        0.1875
    """
    _check_reduction(reduction)
    loss = _by_level(quantiles, levels, target)
    target = as_tensors(target)[0].to(loss).expand(loss.shape[1:])
    missing = target.isnan()
    total = torch.where(missing, 0.0, target.abs()).sum()
    by_level = 2 * torch.where(missing, 0.0, loss).flatten(1).sum(1) / total
    return by_level if reduction == "none" else by_level.mean()


def _check_reduction(reduction: str) -> None:
    if reduction not in ("mean", "none"):
        raise ValueError(f"reduction must be 'mean' or 'none', got {reduction!r}")


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
    if isinstance(num_bins, bool) or not isinstance(num_bins, int) or num_bins < 1:
        raise ValueError(f"num_bins must be a positive integer, got {num_bins!r}")
    values = _pit(pit_values)
    index = (values * num_bins).long().clamp_max(num_bins - 1)
    return torch.bincount(index, minlength=num_bins).to(values.dtype) / len(values)


def interval_coverage(lower: Numeric, upper: Numeric, value: Numeric) -> Tensor:
    """Return the share of observed (not NaN) values inside [lower, upper].

    Example:
        >>> interval_coverage(0.0, 1.0, [0.5, 1.0, 2.0, float("nan")]).item()
        0.6666666666666666
    """
    lower, upper, value = as_tensors(lower, upper, value)
    inside = (lower <= value) & (value <= upper)
    return inside.to(value.dtype)[~value.isnan().expand_as(inside)].mean()


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
