r"""Tables of cosines and sines that the kernels of inference multiply with: made once per size, kept on the device.

Points are :math:`\theta_l(b) = 2 \pi l (b + s) / m`, b = 0 .. m - 1: with s = 0 equally spaced from z = 0 on, with
s = (1 - m) / 2 the centres of m bins. Phases are reduced in whole numbers, so tables are as exact as their type.
"""

from __future__ import annotations

import functools
import math

import numpy as np
import torch
from torch import Tensor

from fourier_head.kernels import window


def _waves(twice_turns: np.ndarray, denominator: int) -> np.ndarray:
    """Return (cos, sin) of 2 pi times a fraction whose numerator is given twice."""
    angle = np.pi * (twice_turns % (2 * denominator)) / denominator
    return np.stack([np.cos(angle), np.sin(angle)])


def _twice_points(points: int, centred: bool) -> np.ndarray:
    """Return 2 (b + s) of all points, whole numbers."""
    return 2 * np.arange(points) + ((1 - points) if centred else 0)


def _as_tensor(table: np.ndarray, dtype: torch.dtype, device: torch.device) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(table)).to(dtype).to(device)


@functools.lru_cache(maxsize=64)
def direct(points: int, length: int, centred: bool, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return cosines and sines of harmonics 1 .. length at all points, (4, length, points).

    The second pair is what rounding to ``dtype`` took from the first.
    """
    wave = _waves(np.outer(np.arange(1, length + 1), _twice_points(points, centred)), points)
    high = torch.from_numpy(wave).to(dtype)
    low = (torch.from_numpy(wave) - high.double()).to(dtype)
    return torch.cat([high, low]).to(device)


@functools.lru_cache(maxsize=64)
def four_step(
    points: int, inner: int, length: int, centred: bool, device: torch.device
) -> tuple[Tensor, Tensor, Tensor]:
    """Return what a transform in two steps multiplies with, for harmonics l = inner l_1 + l_2, l_1 < length.

    (2, length, outer) of l_1 and b_1; (2, inner, outer) of l_2 and b_1; (2, inner, inner) of b_2 and l_2, where
    b = b_1 + outer b_2. Matrix products take float16; the second multiplies sums, entry by entry, in float32.
    """
    outer = points // inner
    place = _twice_points(points, centred)[:outer]
    first = _waves(np.outer(np.arange(length), place), outer)
    between = _waves(np.outer(np.arange(inner), place), points)
    second = _waves(2 * np.outer(np.arange(inner), np.arange(inner)), inner)
    return (
        _as_tensor(first, torch.float16, device),
        _as_tensor(between, torch.float32, device),
        _as_tensor(second, torch.float16, device),
    )


@functools.lru_cache(maxsize=16)
def responses(harmonics: int, points: int, scale: float, device: torch.device) -> Tensor:
    """Return ``window.response`` to power at each of the points times ``scale``, float16 (2 points, points)."""
    response = window.response(harmonics, 2 * points, torch.device("cpu")).numpy() * scale
    lag = (np.arange(2 * points)[:, None] - 2 * np.arange(points)[None, :]) % (2 * points)
    return _as_tensor(response[lag], torch.float16, device)


@functools.lru_cache(maxsize=16)
def power_points(
    tile: int, points: int, walls: bool, dtype: torch.dtype, device: torch.device
) -> tuple[Tensor, Tensor]:
    """Return cosines and sines (tile, points) of harmonics 0 .. tile - 1 at points whose powers make up a spectrum.

    On the circle these are equally spaced. Between walls the power is even: half of twice as many do, from half a step
    on, so that each has its mirror image.
    """
    place = 2 * np.arange(points) + 1 if walls else 4 * np.arange(points)
    wave = _waves(np.outer(np.arange(tile), place), 2 * points)
    return _as_tensor(wave[0], dtype, device), _as_tensor(wave[1], dtype, device)


@functools.lru_cache(maxsize=16)
def ranked_terms(tile: int, harmonics: int, walls: bool, circular: bool, device: torch.device) -> Tensor:
    """Return the rows S_k, Q_k, D_k, g_k of a ranked score (`ranked.py`), (4, tile), zero from ``harmonics`` on."""
    terms = np.zeros((4, tile))
    k = np.arange(1, harmonics)
    w, sign = k * (math.pi / 2 if walls else math.pi), (-1.0) ** k
    if circular:
        terms[0, 1:harmonics] = terms[1, 1:harmonics] = (1 - sign) / w**2
        return _as_tensor(terms, torch.float32, device)
    # E|V - L| of the core and the Laplace density has these terms, as `spectrum.py` says.
    cos, sin = (np.cos(w), np.sin(w)) if walls else (sign, np.zeros_like(w))
    half = sin / w + (cos - 1) / w**2 + (1 + math.exp(-1) * (w * sin - cos)) / (1 + w**2)
    terms[0, 1:harmonics] = terms[1, 1:harmonics] = 1 / w**2
    terms[2, 1:harmonics] = (sign + 1) / w**2 - 2 * half * cos if walls else 2 * sign / w**2 - 2 * half
    terms[3, 1:harmonics] = 0 if walls else sign / w
    return _as_tensor(terms, torch.float32, device)
