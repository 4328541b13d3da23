r"""Part 1 of theorem 3.3, measured: heads of more frequencies can be more densities, and come nearer to any.

The proof of the paper cuts Fourier series, which may make them negative; no head is such a function. The Fejér mean
:math:`\frac12 + Re \sum_k (1 - \frac{k}{N + 1}) q_k e^{i \pi k z}` of a density is never negative, and by the theorem
of Fejér and Riesz it is the square of a polynomial, that is, a head with N frequencies. Its coefficients are found
here, given to the library's density, and compared with the density that was to be reached.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from fourier_head.densities.fourier import FourierDensity
from studies.common.report.summary import Row
from studies.common.results import row
from studies.scaling_law.decay import fejer

GRID = 1 << 14
"""Points of a period, on which densities are sampled and factored."""


def _bump(z: Tensor, centre: float, deviation: float) -> Tensor:
    away = torch.remainder(z - centre + 1, 2) - 1
    return torch.exp(-0.5 * (away / deviation) ** 2) / (deviation * math.sqrt(2 * math.pi))


TARGETS: dict[str, Callable[[Tensor], Tensor]] = {
    "Gaussian": lambda z: _bump(z, 0.3, 0.15),
    "two Gaussians": lambda z: (_bump(z, -0.5, 0.1) + _bump(z, 0.3, 0.2)) / 2,
    "triangle": lambda z: ((1 - z.abs() / 0.3) / 0.3).clamp_min(0),
}


def grid() -> Tensor:
    """Return the points -1, ..., just below 1."""
    return 2 * torch.arange(GRID, dtype=torch.float64) / GRID - 1


def coefficients(values: Tensor, num_frequencies: int) -> Tensor:
    r"""Return :math:`q_k = \int f(z) e^{-i \pi k z} dz` of a density on the grid, k = 0, ..., N."""
    k = torch.arange(num_frequencies + 1)
    return torch.fft.fft(values)[: num_frequencies + 1] * (2 / GRID) * (1 - 2 * (k % 2))


def fejer_mean(values: Tensor, num_frequencies: int) -> Tensor:
    """Return the Fejér mean of a density on the grid; it is one, too."""
    q = fejer(coefficients(values, num_frequencies)[1:], num_frequencies)
    phase = math.pi * grid()[:, None] * torch.arange(1, num_frequencies + 1)
    return 0.5 + (q.real * torch.cos(phase) - q.imag * torch.sin(phase)).sum(-1)


def factor(values: Tensor, num_frequencies: int) -> Tensor:
    r"""Return coefficients (2, N + 1) of the head whose density a positive trigonometric polynomial of degree N is.

    Half of the logarithm's Fourier series, that of frequencies from 0 up, is the logarithm of a polynomial whose
    square the density is (Kolmogorov's way to factor a spectrum).
    """
    cepstrum = torch.fft.ifft(values.log())
    cepstrum[0] /= 2
    cepstrum[GRID // 2] /= 2
    cepstrum[GRID // 2 + 1 :] = 0
    taps = torch.fft.ifft(torch.exp(torch.fft.fft(cepstrum)))[: num_frequencies + 1]
    taps = taps * (1 - 2 * (torch.arange(num_frequencies + 1) % 2))  # the grid begins at -1
    return torch.stack([taps.real, taps.imag])


def measure_expressivity(target: str, frequencies: Sequence[int]) -> list[dict[str, Any]]:
    """Return how near heads of each number of frequencies come to a density, and how exactly they are found."""
    z = grid()
    truth = TARGETS[target](z)
    truth = truth * (GRID / 2) / truth.sum()
    out = []
    for n in frequencies:
        mean = fejer_mean(truth, n)
        a = factor(mean, n)
        head = FourierDensity(a).log_prob(z).exp()
        wider = FourierDensity(torch.nn.functional.pad(a, (0, 1))).log_prob(z).exp()
        kl = torch.where(truth > 0, truth * (truth / head).log(), 0.0).mean() * 2
        pairs = {"sup_error": (head, truth), "factoring_error": (head, mean), "embedding_error": (wider, head)}
        far = {name: float((a - b).abs().max()) for name, (a, b) in pairs.items()}
        out.append({"frequencies": n, "kl": float(kl), **far})
    return out


def expressivity_rows(target: str, measured: Sequence[dict[str, Any]]) -> list[Row]:
    """Return the distances of one target as rows."""
    chosen = {"dataset": target, "protocol": "Fejér mean as a head"}
    return [
        row(metric, one[metric], frequencies=one["frequencies"], **chosen)
        for one in measured
        for metric in ("sup_error", "kl", "factoring_error", "embedding_error")
    ]
