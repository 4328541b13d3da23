r"""Closed forms of the Fourier density in terms of its spectrum.

.. math:: p(z) = \frac12 + \mathrm{Re} \sum_{k=1}^{K} q_k e^{i \pi k z}, \qquad q_k = c_k / c_0

``q`` has shape (..., 2, K), real and imaginary parts; with ``walls=True`` (..., 1, K), the real coefficients of a
density between reflecting walls, :math:`p(z) = \frac12 + \sum q_k \cos(\pi k (z + 1) / 2)`. Other conventions as in
`series.py`.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from fourier_head.fourier import tails
from fourier_head.fourier.series import (
    Phases,
    amplitude,
    amplitude_at_common,
    energy,
    exporting,
    full_precision,
    guard,
    normalize,
    phases_at,
    phases_at_bins,
    prefer_gemm,
)


@full_precision
def autocorrelation(a: Tensor) -> Tensor:
    r"""Return :math:`c_k = \sum_l a_l \bar a_{l+k}` for k = 0..N, shape (..., 2, N+1) or (..., 1, L)."""
    length, rows = a.shape[-1], a.shape[-2]
    if prefer_gemm(a, 2 * length):
        # |A|^2 is a trigonometric polynomial: 2N+1 samples determine it.
        points = 2 * length - 1
        phases = phases_at_bins(torch.arange(points, device=a.device), points, False, a.dtype)
        cos, sin = phases(length)
        parts = amplitude_at_common(a, cos, sin)
        waves = (torch.cat([cos, -sin]) if rows == 2 else cos).mT / points
        return ((parts * parts) @ torch.cat([waves, waves])).unflatten(-1, (rows, length))
    re, im = (a[..., 0, :], a[..., 1, :]) if rows == 2 else (a[..., 0, :], torch.zeros_like(a[..., 0, :]))
    values = torch.view_as_real(torch.fft.fft(torch.complex(re, im), n=fast_length(2 * length - 1)))
    c = torch.fft.rfft((values * values).sum(-1), norm="forward")[..., :length]
    return torch.stack([c.real, c.imag], dim=-2) if rows == 2 else c.real.unsqueeze(-2)


def fast_length(length: int) -> int:
    """Return the smallest 2^i 3^j 5^k >= length, a size FFTs are quick at."""
    best = 1 << (length - 1).bit_length()
    for five in (1, 5, 25):
        for three in (1, 3, 9):
            odd = five * three
            best = min(best, odd << max(0, (-(-length // odd) - 1).bit_length()))
    return best


@full_precision
def of_coefficients(a: Tensor, floor: float | Tensor = 0.0, squares: bool = False) -> Tensor:
    """Return q_k = c_k / c_0 for k = 1..N with the floor mixed in; zeros (the uniform density) where a = 0."""
    a = normalize(a, squares)
    c = autocorrelation(a).sum(-3)
    return (1 - floor) * c[..., 1:] / (energy(a) + guard(a.dtype))[..., None, None]


def _harmonics(q: Tensor) -> Tensor:
    return torch.arange(1, q.shape[-1] + 1, device=q.device)


def _signs(q: Tensor) -> Tensor:
    """Return (-1)^k."""
    return 1 - 2 * (_harmonics(q) % 2).to(q.dtype)


def _frequency(q: Tensor, walls: bool) -> Tensor:
    """Return the angular frequency of each harmonic in z: pi k on the circle, pi k / 2 between walls."""
    return _harmonics(q).to(q.dtype) * (math.pi / 2 if walls else math.pi)


@full_precision
def low_pass(q: Tensor, scale: float | Tensor, walls: bool = False) -> Tensor:
    r"""Blur by a wrapped (reflected) Gaussian of standard deviation ``scale``: :math:`q_k e^{-(\pi k s)^2 / 2}`."""
    return q * torch.exp(-((_frequency(q, walls) * scale) ** 2) / 2)


@full_precision
def bin_average(q: Tensor, num_bins: int, walls: bool = False) -> Tensor:
    """Average over a bin width: the value of the result at a bin centre is the mean density of that bin."""
    return q * torch.sinc(_frequency(q, walls) / (math.pi * num_bins))


def _series_value(q: Tensor, phases: Phases) -> Tensor:
    """Return Re sum q_k e^{i pi k z} (sum q_k cos between walls) at V points."""
    # A of the conjugate coefficients, with an empty constant term, has this as its real part.
    b = torch.nn.functional.pad(q, (1, 0))
    if q.shape[-2] == 2:
        b = torch.cat([b[..., :1, :], -b[..., 1:, :]], -2)
    return amplitude(b, phases)[0]


@full_precision
def density(q: Tensor, z: Tensor, walls: bool = False) -> Tensor:
    """Return the density 1/2 + Re sum q_k e^{i pi k z}, negative rounding removed."""
    return (0.5 + _series_value(q, phases_at(z.to(q.dtype), walls))).clamp_min(0)


@full_precision
def log_bin_mass(q: Tensor, num_bins: int, index: Tensor | None = None, walls: bool = False) -> Tensor:
    """Return log-masses at bin centres of a spectrum: of the bins ``index`` (..., V), or of all bins."""
    if index is None:
        index = torch.arange(num_bins, device=q.device)
    value = 1 + 2 * _series_value(q, phases_at_bins(index, num_bins, walls, q.dtype))
    return torch.log(value.clamp_min(guard(q.dtype))) - math.log(num_bins)


@full_precision
def cdf(q: Tensor, z: Tensor, walls: bool = False) -> Tensor:
    r"""Return :math:`F(z) = (z+1)/2 + \mathrm{Re} \sum q_k (e^{i \pi k z} - (-1)^k) / (i \pi k)` at points (..., V)."""
    z = z.to(q.dtype)
    return ((z + 1) / 2 + _antiderivative(q, z, walls)).clamp(0, 1)


@full_precision
def cdf_and_density(q: Tensor, z: Tensor, walls: bool = False) -> tuple[Tensor, Tensor]:
    """Return the cdf and the density at points (..., V), sharing their cosines."""
    z = z.to(q.dtype)
    s = q / _frequency(q, walls)
    if walls:
        both = torch.nn.functional.pad(torch.stack([q, s], dim=-3), (1, 0))
        re, im = amplitude(both, phases_at(z.unsqueeze(-2), True))
        wave, integral = re[..., 0, :], -im[..., 1, :]
    else:
        rotated = torch.stack([s[..., 1, :], -s[..., 0, :]], dim=-2)
        both = _series_value(torch.stack([q, rotated], dim=-3), phases_at(z.unsqueeze(-2), False))
        start = (s[..., 1, :] * _signs(q)).sum(-1, keepdim=True)
        wave, integral = both[..., 0, :], both[..., 1, :] - start
    return ((z + 1) / 2 + integral).clamp(0, 1), (0.5 + wave).clamp_min(0)


def _antiderivative(q: Tensor, z: Tensor, walls: bool) -> Tensor:
    s = q / _frequency(q, walls)
    phases = phases_at(z, walls)
    if walls:
        # Im A of real coefficients is minus the sine series.
        return -amplitude(torch.nn.functional.pad(s, (1, 0)), phases)[1]
    start = (s[..., 1, :] * _signs(q)).sum(-1, keepdim=True)
    # Re[(q/i pi k) e^{i pi k z}] = (q_re sin + q_im cos) / pi k.
    rotated = torch.stack([s[..., 1, :], -s[..., 0, :]], dim=-2)
    return _series_value(rotated, phases) - start


@full_precision
def cdf_grid(q: Tensor, points: int, walls: bool = False) -> Tensor:
    """Return the cdf at -1 + 2j/points, j = 0..points, as (..., points + 1), nondecreasing from 0 to 1."""
    z = torch.linspace(-1, 1, points + 1, dtype=q.dtype, device=q.device)
    if prefer_gemm(q, points):
        values = cdf(q, z, walls)
    else:
        # e^{i pi k z_j} = (-1)^k e^{2 pi i k j / points}: one real inverse FFT (twice as long between walls).
        s = q / _frequency(q, walls)
        if walls:
            waves = torch.complex(torch.zeros_like(s[..., 0, :]), -s[..., 0, :])
        else:
            waves = torch.complex(_signs(q) * s[..., 1, :], -_signs(q) * s[..., 0, :])
        waves = torch.nn.functional.pad(waves, (1, 0))
        wave = torch.fft.irfft(waves, n=2 * points if walls else points, norm="forward") / 2
        if not walls:
            wave = wave - wave[..., :1]
        wave = torch.cat([wave[..., :points], wave[..., points : points + 1] if walls else wave[..., :1]], dim=-1)
        values = ((z + 1) / 2 + wave).clamp(0, 1)
    values = torch.cat([torch.zeros_like(values[..., :1]), values[..., 1:-1], torch.ones_like(values[..., :1])], dim=-1)
    # Rounding may make neighbours fall; a count of the entries below a level does not mind, a binary search does.
    return values if exporting() else torch.cummax(values, dim=-1).values


# --- closed forms ---------------------------------------------------------------------------------------------------


@full_precision
def mean(q: Tensor, walls: bool = False) -> Tensor:
    r"""Return :math:`\sum 2 (-1)^k \mathrm{Im}(q_k) / (\pi k)`, or its counterpart between walls."""
    w = _frequency(q, walls)
    if walls:
        return (q[..., 0, :] * (_signs(q) - 1) / w**2).sum(-1)
    return (2 * _signs(q) * q[..., 1, :] / w).sum(-1)


@full_precision
def second_moment(q: Tensor, walls: bool = False) -> Tensor:
    r"""Return :math:`1/3 + \sum 4 (-1)^k \mathrm{Re}(q_k) / (\pi k)^2`, or its counterpart between walls."""
    w = _frequency(q, walls)
    weight = 2 * (_signs(q) + 1) if walls else 4 * _signs(q)
    return 1 / 3 + (q[..., 0, :] * weight / w**2).sum(-1)


@full_precision
def roughness(q: Tensor, walls: bool = False) -> Tensor:
    r"""Return :math:`\int p'^2 = \pi^2 \sum k^2 |q_k|^2`, the total squared variation of the density."""
    return ((_frequency(q, walls) * q) ** 2).sum(dim=(-2, -1))


@full_precision
def paper_penalty(a: Tensor, num_bins: int, walls: bool = False) -> Tensor:
    r"""Return :math:`\frac{2 \pi^2}{m} \sum k^2 |c_k|^2` of unnormalised squares (..., R, 2, N+1), as in the paper."""
    c = autocorrelation(a).sum(-3)
    # With c_0, whose rate is zero: cut off, it would have to be put back for the gradient.
    rate = torch.nn.functional.pad(_frequency(c[..., 1:], walls), (1, 0))
    return (2 / num_bins) * ((rate * c) ** 2).sum(dim=(-2, -1))


@full_precision
def cdf_integral_above(q: Tensor, y: Tensor, walls: bool = False) -> Tensor:
    r"""Return :math:`\int_y^1 F(z) dz` in closed form at points (..., V)."""
    y = y.to(q.dtype)
    w = _frequency(q, walls)
    twice = q / w**2
    ends = -(_signs(q) * twice[..., 0, :]).sum(-1, keepdim=True)
    above = 1 - (y + 1) ** 2 / 4 + ends + _series_value(twice, phases_at(y, walls))
    if walls:
        return above
    return above - (_signs(q) * q[..., 1, :] / w).sum(-1, keepdim=True) * (1 - y)


def _cdf_square(q: Tensor, walls: bool) -> Tensor:
    r"""Return :math:`\int F(z)^2 dz`, shape (..., 1)."""
    w = _frequency(q, walls)
    s = q / w
    ends = -(_signs(q) * s[..., 0, :] / w).sum(-1, keepdim=True)
    square = 2 / 3 + 2 * ends + (s * s).sum(dim=(-2, -1)).unsqueeze(-1)
    if walls:
        return square
    g = (_signs(q) * s[..., 1, :]).sum(-1, keepdim=True)
    return square + 2 * (g * g - g)


@full_precision
def crps(q: Tensor, y: Tensor, walls: bool = False) -> Tensor:
    r"""Return :math:`\int (F(z) - 1\{z \ge y\})^2 dz` on [-1, 1] in closed form, at outcomes (..., V)."""
    y = y.to(q.dtype)
    return _cdf_square(q, walls) - 2 * cdf_integral_above(q, y, walls) + (1 - y)


@full_precision
def crps_with_tails(q: Tensor, y: Tensor, weight: float, walls: bool = False) -> Tensor:
    r"""Return the CRPS of a density with Laplace tails of this weight (`tails.py`), at any outcomes (..., V).

    A mixture of :math:`V` on [-1, 1] and a Laplace :math:`L` with weights :math:`1 - \epsilon` and :math:`\epsilon` has

    .. math:: (1 - \epsilon) E|V - y| + \epsilon E|L - y| - \tfrac12 \bigl((1 - \epsilon)^2 E|V - V'|
        + 2 \epsilon (1 - \epsilon) E|V - L| + \epsilon^2 E|L - L'|\bigr).
    """
    y = y.to(q.dtype)
    inside = y.clamp(-1, 1)
    core = crps(q, inside, walls) + (y - inside).abs()
    if not weight:
        return core
    half_difference = 1 - mean(q, walls).unsqueeze(-1) - _cdf_square(q, walls)
    others = half_difference - _laplace_distance(q, walls)
    score = (1 - weight) * core + weight * tails.absolute_mean(y) + weight * (1 - weight) * others
    return score - weight**2 * tails.ABSOLUTE_DIFFERENCE / 2


def _laplace_distance(q: Tensor, walls: bool) -> Tensor:
    r"""Return :math:`E|V - L| = E(|V| + e^{-|V|})` for a Laplace variable L, shape (..., 1)."""
    w = _frequency(q, walls)
    cos, sin = (torch.cos(w), torch.sin(w)) if walls else (_signs(q), torch.zeros_like(w))
    half = sin / w + (cos - 1) / w**2 + (1 + math.exp(-1) * (w * sin - cos)) / (1 + w**2)
    # Between walls waves are cosines of z + 1; the odd part of them integrates to nothing.
    weight = 2 * half * cos if walls else 2 * half
    return 1.5 - math.exp(-1) + (q[..., 0, :] * weight).sum(-1, keepdim=True)


@full_precision
def circular_crps(q: Tensor, y: Tensor) -> Tensor:
    r"""Return the CRPS with the distance along a circle of length 2, :math:`E\,d(Z, y) - \frac12 E\,d(Z, Z')`.

    The distance has the series :math:`\frac12 - \frac{4}{\pi^2} \sum_{k\ odd} \cos(\pi k z) / k^2`, so both
    expectations are sums over the spectrum.

    References:
        Grimit et al., The continuous ranked probability score for circular variables, QJRMS 2006.
    """
    odd = (1 - _signs(q)) / 2
    weight = 4 * odd / _frequency(q, False) ** 2
    spread = (weight * (q * q).sum(-2)).sum(-1, keepdim=True)
    return 0.25 - _series_value(q * weight, phases_at(y.to(q.dtype), False)) + spread / 2
