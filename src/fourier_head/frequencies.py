"""How many frequencies: a proposal from the spectrum of the data."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray

from fourier_head._arrays import Numeric, as_tensors
from fourier_head.domains import Interval

Floats = NDArray[np.float64]


MARGINAL = "; this is the marginal of the values: pass features or conditional_scale for a conditional density"
"""Ends the reason where only values were given; a command, which has no such arguments, leaves it out."""


@dataclass(frozen=True, eq=False)
class Suggestion:
    """A proposed number of frequencies, the reason for it, and the spectrum it was read from.

    `spectrum` estimates :math:`|q_k|^2` for k = 0, 1, ... and `noise` is the level at which a coefficient is no longer
    worth its variance; `capped` says that a limit, not the data, decided.
    """

    num_frequencies: int
    reason: str
    spectrum: Floats = field(repr=False)
    noise: float
    capped: bool


def suggest_frequencies(
    values: Numeric | None = None,
    *,
    pmf: Numeric | None = None,
    features: Numeric | None = None,
    conditional_scale: float | None = None,
    domain: tuple[float, float] | Interval | None = None,
    num_bins: int | None = None,
    num_samples: int = 10_000,
    max_frequencies: int = 1024,
    max_rows: int = 5000,
    seed: int = 0,
) -> Suggestion:
    r"""Propose the number of frequencies of a Fourier head from the spectrum of its targets, and say why.

    With n observations the coefficient :math:`q_k = E\, e^{-i \pi k z}` is known up to a variance
    :math:`(1 - |q_k|^2) / n`. Keeping the first N of them costs that variance and saves their squares, so the expected
    squared error of the density is least at the N that maximises

    .. math:: \sum_{k=1}^N \Big( |q_k|^2 - c\, \frac{1 - |q_k|^2}{n} \Big), \qquad c = 1.

    Where :math:`|q_k|^2` has to be estimated (without bias) from data, c = 2: at c = 1 the maximum of the noisy sum
    wanders far out in one case of twenty.

    A head models a density *given its input*, which is narrower than that of all targets together. With `features` the
    spectrum comes from nearest neighbours: two targets with (nearly) the same input have
    :math:`E \cos(\pi k (z - z')) = E_x |q_k(x)|^2`. What lies below the noise of that mean is continued as a Gaussian.
    Neighbours that are far apart make the density look wider and N too small.

    Args:
        values: targets, any shape.
        pmf: instead of values, probabilities or counts of bins, shape (..., m); the spectrum is averaged over rows.
        features: inputs that go with `values`, shape (n,) or (n, d), for the conditional density.
        conditional_scale: instead of features, the standard deviation of a target given its input.
        domain: interval mapped to [-1, 1]; the range of the values if not given.
        num_bins: number of bins of the head; N stays below half of it.
        num_samples: observations to assume for a `pmf` of probabilities; counts bring their own number.
        max_frequencies: never propose more than this.
        max_rows: rows that look for a neighbour (among ten times as many); more are drawn at random.
        seed: of that draw.

    References:
        Kronmal and Tarter, The estimation of probability densities and cumulatives by Fourier series methods (1968);
        Hart, On the choice of a truncation point in Fourier series density estimation (1985).

    Example:
        >>> values = np.random.default_rng(0).normal(0.0, 0.1, 10_000)
        >>> suggest_frequencies(values, domain=(-1, 1)).num_frequencies
        8
        >>> print(suggest_frequencies(pmf=[0.25, 0.25, 0.25, 0.25]).reason)
        No coefficient stands out from a uniform density at 10000 observations, so the least possible is proposed.
    """
    if (values is None) == (pmf is None):
        raise ValueError("exactly one of values and pmf must be given")
    if max_frequencies < 1 or (num_bins is not None and num_bins < 3):
        raise ValueError(f"max_frequencies must be positive and num_bins at least 3, got {max_frequencies}, {num_bins}")
    if pmf is not None:
        if features is not None or conditional_scale is not None:
            raise ValueError("features and conditional_scale go with values, but pmf was given")
        return _from_pmf(pmf, num_samples, max_frequencies, num_bins)
    if features is not None and conditional_scale is not None:
        raise ValueError("only one of features and conditional_scale can be given")
    raw = as_tensors(values)[0].detach().double().cpu().numpy().ravel()  # type: ignore[arg-type]
    z, half_width = _scaled(raw, domain)
    cap, why = _limit(max_frequencies, num_bins)
    distinct, counts = np.unique(z, return_counts=True)
    if 2 * distinct.size <= z.size:  # repeated values: look for the grid they sit on
        levels = math.floor(2 / np.diff(distinct).min() + 0.5)
        if (levels - 1) // 2 < cap:
            cap, why = max(1, (levels - 1) // 2), f"the values sit on a grid of about {levels} steps"
    if counts.max() > 0.05 * z.size and counts.max() > 10 * np.median(counts):
        why += f"; one value holds {counts.max() / z.size:.0%} of the data and may deserve an atom of its own"
    if conditional_scale is not None:
        if not (math.isfinite(conditional_scale) and conditional_scale > 0):
            raise ValueError(f"conditional_scale must be positive, got {conditional_scale}")
        return _from_scale(conditional_scale / half_width, z.size, cap, why)
    if features is not None:
        return _from_features(z, features, cap, why, max_rows, seed)
    power = np.abs(_characteristic(z, cap)) ** 2
    unbiased = (z.size * power - 1) / (z.size - 1)
    return _least_risk(unbiased, z.size, 2, cap, why, MARGINAL)


def _scaled(raw: Floats, domain: tuple[float, float] | Interval | None) -> tuple[Floats, float]:
    """Return the values on [-1, 1] and half the width of the domain."""
    if raw.size < 2:
        raise ValueError(f"values must hold at least two numbers, got {raw.size}")
    if not np.isfinite(raw).all():
        raise ValueError(
            f"values must be finite, got {np.count_nonzero(~np.isfinite(raw))} NaN or infinite of {raw.size}"
        )
    if np.ptp(raw) == 0:
        raise ValueError(f"values must not be constant, got {raw[0]:g} throughout")
    match domain:
        case None:
            low, high = raw.min(), raw.max()
        case Interval(low=low, high=high) | (low, high):
            low, high = float(low), float(high)
        case _:
            raise TypeError(f"domain must be a pair (low, high) or an Interval, got {domain!r}")
    if not low < high:
        raise ValueError(f"domain must be an interval (low, high) with low < high, got {domain}")
    outside = np.count_nonzero((raw < low) | (raw > high))
    if outside:
        raise ValueError(f"values must lie in the domain [{low:g}, {high:g}], got {outside} of {raw.size} outside")
    z = (2 * raw - low - high) / (high - low)
    if np.ptp(z) == 0:
        raise ValueError(f"values must differ by more than rounding on the domain [{low:g}, {high:g}], got one place")
    return z, (high - low) / 2


def _limit(max_frequencies: int, num_bins: int | None) -> tuple[int, str]:
    """Return the largest N allowed and which limit it is."""
    if num_bins is not None and (num_bins - 1) // 2 <= max_frequencies:
        return (num_bins - 1) // 2, f"N must stay below half of the {num_bins} bins, whose centres tell no more apart"
    return max_frequencies, f"max_frequencies is {max_frequencies}"


def _characteristic(z: Floats, last: int) -> NDArray[np.complex128]:
    """Return the mean of exp(-i pi k z) for k = 0 .. last, by an FFT of a histogram so fine that k sees no bins."""
    size = max(1 << 16, 64 * (last + 1))
    cells = np.rint(z * (size / 2)).astype(np.int64) % size
    return np.fft.rfft(np.bincount(cells, minlength=size) / z.size)[: last + 1]


def _least_risk(spectrum: Floats, n: float, price: int, cap: int, why: str, note: str = "") -> Suggestion:
    """Cut the spectrum where the expected squared error of the truncated series is least."""
    gain = np.cumsum(spectrum[1 : cap + 1] - price * (1 - spectrum[1 : cap + 1]) / n)
    found = int(np.argmax(np.append(0.0, gain)))
    many = f"{n:.0f} observations"
    if found == 0:
        reason = f"No coefficient stands out from a uniform density at {many}, so the least possible is proposed"
    elif found == cap:
        reason = f"Coefficients stand out from the noise of {many} at every frequency up to k = {cap}, where {why}"
    else:
        reason = f"Coefficients up to k = {found} stand out from the noise of {many}"
    return Suggestion(max(1, found), f"{reason}{note}.", spectrum, 1 / n, found == cap)


def _from_pmf(pmf: Numeric, num_samples: int, max_frequencies: int, num_bins: int | None) -> Suggestion:
    rows = as_tensors(pmf)[0].detach().double().cpu().numpy()
    if rows.ndim == 0 or rows.shape[-1] < 3 or rows.size == 0:
        raise ValueError(f"pmf must have at least three bins on its last axis, got shape {rows.shape}")
    if num_bins is not None and num_bins != rows.shape[-1]:
        raise ValueError(f"num_bins must be the number of bins of pmf, got {num_bins} for {rows.shape[-1]}")
    total = rows.sum(-1, keepdims=True)
    if not (np.isfinite(rows).all() and (rows >= 0).all() and (total > 0).all()):
        raise ValueError("pmf must be finite, not negative and not all zero, got rows that are not")
    cap, why = _limit(max_frequencies, rows.shape[-1])
    power = np.abs(np.fft.rfft(rows / total)[..., : cap + 1]) ** 2
    n, price = float(num_samples), 1
    if not np.allclose(total, 1, rtol=1e-3):  # counts: their own noise can be taken out
        if (total < 2).any():
            raise ValueError("pmf as counts must have at least two observations in each row, got fewer")
        power, n, price = (total * power - 1) / (total - 1), float(total.mean()), 2
    return _least_risk(power.reshape(-1, cap + 1).mean(0), n, price, cap, why)


def _gaussian_cut(scale: float, weight: float, n: int) -> int:
    """Return the least k with weight exp(-(pi k scale)^2) <= 1/n."""
    return max(1, math.ceil(math.sqrt(max(0.0, math.log(weight * n))) / (math.pi * scale)))


def _from_scale(scale: float, n: int, cap: int, why: str) -> Suggestion:
    found = _gaussian_cut(scale, 1.0, n)
    spectrum = np.exp(-((np.pi * scale * np.arange(cap + 1)) ** 2))
    reason = (
        f"A bell of deviation {scale:.3g} on [-1, 1] stands out from the noise of {n} observations up to k = {found}"
    )
    if found > cap:
        reason += f", beyond {cap}, where {why}"
    return Suggestion(min(found, cap), reason + ".", spectrum, 1 / n, found > cap)


def _neighbours(features: Numeric, n: int, max_rows: int, seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return pairs (i, j), each once, j being the row nearest to i in the standardised features."""
    x = as_tensors(features)[0].detach().double().cpu()
    x = x[:, None] if x.ndim == 1 else x
    if x.ndim != 2 or len(x) != n:
        raise ValueError(f"features must have shape (n, d) with n = {n} like values, got {tuple(x.shape)}")
    if not bool(x.isfinite().all()):
        raise ValueError("features must be finite, got NaN or infinite entries")
    order = torch.from_numpy(np.random.default_rng(seed).permutation(n)[: 10 * max_rows])  # ties fall at random
    x = x[order]
    x = (x - x.mean(0)) / torch.where(x.std(0) > 0, x.std(0), 1.0)
    nearest = []
    for start in range(0, min(len(x), max_rows), 256):
        distance = torch.cdist(x[start : min(start + 256, max_rows)], x)
        rows = torch.arange(len(distance))
        distance[rows, rows + start] = torch.inf
        nearest.append(distance.argmin(1))
    j = torch.cat(nearest)
    pairs = torch.stack([torch.arange(len(j)), j], 1).sort(1).values.unique(dim=0)
    return order[pairs[:, 0]].numpy(), order[pairs[:, 1]].numpy()


def _from_features(z: Floats, features: Numeric, cap: int, why: str, max_rows: int, seed: int) -> Suggestion:
    i, j = _neighbours(features, z.size, max_rows, seed)
    mean = _characteristic(z[i] - z[j], 2 * cap).real
    spectrum = mean[: cap + 1]
    variance = (1 + mean[::2][: cap + 1]) / 2 - spectrum**2  # of one cosine, by the double-angle formula
    error = np.sqrt(np.maximum(variance, 0) / len(i))
    level, n = 1 / z.size, z.size
    share = math.sqrt(np.mean((z[i] - z[j]) ** 2) / (2 * np.var(z)))
    told = f"Rows with similar features spread {share:.0%} as much as all rows"
    k = np.arange(1, cap + 1)
    unclear = k[spectrum[1:] < np.maximum(3 * error[1:], level)]
    if unclear.size == 0:
        return Suggestion(
            cap, f"{told}; they show detail at every frequency up to {cap}, where {why}.", spectrum, level, True
        )
    first = int(unclear[0])
    seen = np.arange(max(0, min(first // 2, first - 3)), first)
    # Weighted line of log |q_k|^2 in k^2: the variance of the logarithm is (error / spectrum)^2.
    weight = 1 / np.maximum(error[seen] / spectrum[seen], 1e-3)
    slope, height = np.polyfit(seen**2.0, np.log(spectrum[seen]), 1, w=weight) if first > 1 else (0.0, 0.0)
    found = _gaussian_cut(math.sqrt(-slope) / math.pi, math.exp(height), n) if slope < 0 else first
    found = max(found, first)
    reason = (
        f"{told}; they show detail up to frequency {first}, and by extrapolation {n} rows tell detail from noise up to "
        f"{found}"
    )
    if found > cap:
        reason += f", beyond {cap}, where {why}"
    return Suggestion(min(found, cap), reason + ".", spectrum, level, found > cap)


@dataclass(frozen=True)
class Recommendation:
    """Settings for a Fourier head and the reason for them; pass ``as_options()`` to ``FourierHead``."""

    num_frequencies: int
    packets: int
    gamma: float
    reason: str

    def as_options(self) -> dict[str, int | float]:
        """Return the settings as keyword arguments of ``FourierHead``."""
        return {"num_frequencies": self.num_frequencies, "packets": self.packets, "gamma": self.gamma}


def recommend_head(
    values: Numeric,
    *,
    features: Numeric | None = None,
    domain: tuple[float, float] | Interval | None = None,
    num_bins: int | None = None,
) -> Recommendation:
    """Recommend frequencies, packets and regulariser from training data alone.

    One rule: twice the frequencies of `suggest_frequencies`, because a density between neighbours may be sharper than
    their average and the regulariser takes care of the excess; four packets, of which a network leaves unused what it
    does not need; roughness of strength 0.4 / n, which fades as data come in.

    The arguments are those of `suggest_frequencies`.

    >>> import torch
    >>> recommend_head(torch.randn(4000, generator=torch.Generator().manual_seed(0)), num_bins=50).as_options()
    {'num_frequencies': 6, 'packets': 4, 'gamma': 0.0001}
    """
    suggestion = suggest_frequencies(values, features=features, domain=domain, num_bins=num_bins)
    frequencies = max(1, 2 * suggestion.num_frequencies)
    if num_bins is not None:
        frequencies = max(1, min(frequencies, (num_bins - 1) // 2))
    count = as_tensors(values)[0].numel()
    gamma = 0.4 / count
    reason = (
        f"{suggestion.reason} Twice as many frequencies leave room for sharper places, four packets for moving peaks, "
        f"and roughness of strength 0.4 / {count} holds them down."
    )
    return Recommendation(frequencies, 4, gamma, reason)
