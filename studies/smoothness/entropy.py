"""The entropy of the power spectrum, which appendix B of the paper holds against its own metric of smoothness."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from fourier_head._arrays import Numeric, as_tensors


def spectral_entropy(signal: Numeric, *, base: float = 2.0, dc: bool = True) -> Tensor:
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
    return torch.special.entr(share).sum(-1) / math.log(base)
