"""Square waves and noise framed as densities, their spectral entropy, and where a curve falls."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from fourier_head._arrays import Numeric, as_tensors

SAMPLES = 2048
"""Sample rate of the square waves in the paper."""

SHOWN = (1, 4, 20, 80)
"""Numbers of sine waves that are looked at one by one."""


def spectral_entropy(signal: Numeric, *, base: float = 2.0, dc: bool = True) -> Tensor:
    r"""Return the Shannon entropy of the power spectrum of a signal, samples last.

    .. math:: H = -\sum_n p_n \log p_n, \qquad p_n = |Y_n|^2 / \sum_k |Y_k|^2, \quad n = 0, \dots, \lfloor m/2 \rfloor

    One-sided spectrum without window; a signal without power has entropy 0. The formula of the paper has base 2 and
    every frequency, the default here. The values of its noise table (about 0.4) come out with `base=math.e` on 4096
    samples with the constant term kept: a categorical is positive, so that term has nearly all the power. Without it
    (`dc=False`) the shape of the noise alone is compared.

    >>> print(f"{spectral_entropy([1.0, 0.0, 0.0, 0.0, 0.0, 0.0]).item():.6f}")
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
    return torch.special.entr(share).sum(-1) / math.log(base)


def square_waves(count: int, samples: int = SAMPLES, periods: float = 1.0) -> Tensor:
    r"""Return square waves cut after 1, 2, ..., `count` sine waves as categoricals, shape (count, samples).

    .. math:: f_n(x) = \frac4\pi \sum_{i=1}^n \frac{\sin(2 \pi (2i - 1) x)}{2i - 1}

    set to zero where it is negative and scaled to sum to one.

    Example:
        >>> square_waves(3, samples=16).shape
        torch.Size([3, 16])
    """
    if count < 1 or (2 * count - 1) * periods > samples / 2:
        raise ValueError(f"count must be from 1 to {int((samples / 2 / periods + 1) / 2)} for no alias, got {count}")
    x = torch.arange(samples, dtype=torch.float64) * (periods / samples)
    odd = 2 * torch.arange(count, dtype=torch.float64)[:, None] + 1
    waves = torch.cumsum(torch.sin(2 * math.pi * odd * x) / odd, 0).clamp_min(0)
    return waves / waves.sum(-1, keepdim=True)


def coloured_noise(power: float, trials: int, samples: int, seed: int) -> Tensor:
    r"""Return noise whose power goes like frequency to `power` as categoricals, shape (trials, samples).

    White Gaussian noise, its spectrum multiplied by :math:`F^{power / 2}`, shifted to a minimum of zero and scaled to
    sum to one (scaling the maximum to one before would change nothing).
    """
    generator = torch.Generator().manual_seed(seed)
    white = torch.randn(trials, samples, dtype=torch.float64, generator=generator)
    frequency = torch.arange(samples // 2 + 1, dtype=torch.float64)
    frequency[0] = math.inf if power < 0 else 0.0  # no constant term, whose power would be infinite or lost anyway
    filtered = torch.fft.irfft(torch.fft.rfft(white) * frequency ** (power / 2), n=samples)
    filtered = filtered - filtered.min(-1, keepdim=True).values
    return filtered / filtered.sum(-1, keepdim=True)


def first_fall(values: Sequence[float]) -> int | None:
    """Return the number (from 1) of the first value below the one before it, None where all rise.

    >>> first_fall([1.0, 2.0, 2.0, 1.5, 3.0]), first_fall([1.0, 2.0])
    (4, None)
    """
    return next((i + 1 for i in range(1, len(values)) if values[i] < values[i - 1]), None)


def waves_to_nyquist(periods: float) -> int:
    """Return how many odd harmonics of so many wavelengths in the window the samples can tell apart."""
    return int((SAMPLES / 2 / periods + 1) / 2)


def reach(curve: Sequence[float]) -> str:
    """Say how far the waves of a curve at one wavelength go."""
    whole = len(curve) == waves_to_nyquist(1.0)
    return "up to the Nyquist frequency" if whole else f"up to {len(curve)} sine waves"
