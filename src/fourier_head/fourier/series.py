r"""Evaluate the Fourier density from its coefficients; `spectrum.py` beside it has the closed forms.

Together the two files hold every formula of the library, as pure functions of real tensors.

The density is the square of a trigonometric polynomial. With complex coefficients
:math:`a_l = \alpha_l + i \beta_l`,

.. math:: p(z) = \frac{|A(z)|^2}{2 \|a\|^2}, \qquad A(z) = \sum_{l=0}^{N} a_l e^{-i \pi l z}, \qquad z \in [-1, 1],

which equals the series :math:`\frac12 + \mathrm{Re} \sum_k q_k e^{i \pi k z}` of the paper with
:math:`q_k = c_k / c_0` the normalised autocorrelation of :math:`a`.

Conventions of this module
    ``a`` has shape (..., 2, L): rows alpha and beta, a density on the circle ("periodic"). With ``walls=True`` it has
    shape (..., 1, L): real coefficients, a density between reflecting walls ("reflect"),
    :math:`p(z) = \tilde p((z + 1) / 2)` with :math:`\tilde p` even, so that the two ends are not neighbours.
    With ``squares=True`` there is one more dimension, (..., R, 2, L) or (..., R, 1, L), and the density is a sum of R
    squares, :math:`\\sum_r |A_r(z)|^2 / (2 \\sum_r \\|a_r\\|^2)`: a mixture of densities of the same kind.
    ``z`` has shape (..., V): V points per density, leading dimensions broadcast with those of the density.

Complex dtypes never leave a function; half precision is computed in float32, also under autocast.

References:
    Gillman et al., Fourier Head: Helping Large Language Models Learn Complex Probability Distributions, ICLR 2025.
    De la Fuente et al., Fourier Basis Density Model, PCS 2024.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor

from fourier_head._arrays import widened


class Phases(Protocol):
    """Give cos and sin of pi k z for k = 0, step, .., step (count - 1), each (..., count, V)."""

    def __call__(self, count: int, step: int = 1) -> tuple[Tensor, Tensor]: ...


F = TypeVar("F", bound=Callable[..., Any])

# Up to this many entries of a basis (harmonics x points) a matrix product beats an FFT, as measured.
GEMM_LIMIT = {"cpu": 1 << 15, "cuda": 1 << 9}


def exporting() -> bool:
    """Say whether torch.export is under way, whose formats lack some operators.

    Up to torch 2.11 code that is compiled is told that it is exported, too.
    """
    return torch.compiler.is_exporting() and not torch.compiler.is_dynamo_compiling()


def full_precision(function: F) -> F:
    """Run a function of tensors with autocast off and half precision widened to float32."""

    @functools.wraps(function)
    def wrapped(a: Tensor, *args: Any, **kwargs: Any) -> Any:
        a = widened(a)
        if a.device.type != "meta" and torch.is_autocast_enabled(a.device.type):
            with torch.autocast(a.device.type, enabled=False):
                return function(a, *args, **kwargs)
        return function(a, *args, **kwargs)

    return wrapped  # type: ignore[return-value]


# --- phases ---------------------------------------------------------------------------------------------------------


def phases_at(z: Tensor, walls: bool) -> Phases:
    """Return the phases of the points ``z``: of pi k z, or of pi k (z+1)/2 between walls."""
    position = ((z + 1) / 2 if walls else z).unsqueeze(-2)

    def phases(count: int, step: int = 1) -> tuple[Tensor, Tensor]:
        if z.dtype == torch.float64 and not z.requires_grad and not torch.compiler.is_compiling():
            return _powers(math.pi * step * position, count)
        k = step * torch.arange(count, dtype=z.dtype, device=z.device).unsqueeze(-1)
        if z.dtype == torch.float32:
            # k * z loses the last bits of a large phase. Split z: k * coarse is exact, so is its remainder.
            coarse = (position.detach() * 4096).round() / 4096
            phase = k * coarse
            phase = (phase - 2 * (phase / 2).round()) + k * (position - coarse)
        else:
            phase = k * position
        return torch.cos(math.pi * phase), torch.sin(math.pi * phase)

    return phases


def _powers(angle: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return cos and sin of the first multiples of an angle (..., 1, V): products of ever higher powers of e^{i angle}.

    In float64 their rounding does not matter, and a product takes a sixth of the time of a cosine.
    """
    factor = torch.polar(torch.ones_like(angle), angle)
    powers = torch.ones_like(factor)
    while powers.shape[-2] < count:
        powers = torch.cat([powers, powers[..., : count - powers.shape[-2], :] * factor], dim=-2)
        factor = factor * factor
    return powers.real, powers.imag


def phases_at_bins(index: Tensor, num_bins: int, walls: bool, dtype: torch.dtype) -> Phases:
    """Return the phases of the centres of the bins ``index``, exact in integers before the cosine is taken."""
    numerator, denominator = (2 * index + 1, 2 * num_bins) if walls else (2 * index + 1 - num_bins, num_bins)
    numerator = numerator.unsqueeze(-2)

    def phases(count: int, step: int = 1) -> tuple[Tensor, Tensor]:
        # The product harmonic x numerator must be exact; floats, where they are, divide far faster than integers.
        exact = torch.float32 if 2 * denominator * step * count < 1 << 24 else torch.int64
        k = step * torch.arange(count, dtype=exact, device=index.device).unsqueeze(-1)
        phase = k * numerator.to(exact)
        if exact == torch.float32:
            phase = phase - 2 * denominator * (phase / (2 * denominator)).round()
        else:
            phase = torch.remainder(phase, 2 * denominator)
            phase = torch.where(phase > denominator, phase - 2 * denominator, phase)
        angle = phase.to(dtype) * (math.pi / denominator)
        return torch.cos(angle), torch.sin(angle)

    return phases


def bin_centers(num_bins: int, dtype: torch.dtype = torch.float32, device: torch.device | None = None) -> Tensor:
    """Return the centres -1 + (2j + 1) / m of m equal bins of [-1, 1]."""
    return (2 * torch.arange(num_bins, dtype=dtype, device=device) + (1 - num_bins)) / num_bins


# --- the square -----------------------------------------------------------------------------------------------------


def normalize(a: Tensor, squares: bool) -> Tensor:
    """Scale coefficients to a largest entry of one, as (..., R, rows, L); zeros stay zeros.

    The density does not depend on the scale of ``a``, so the scale is a constant for the gradient too.
    """
    if not squares:
        a = a.unsqueeze(-3)
    smallest = 1e-30 if a.dtype == torch.float32 else 1e-150
    scale = a.detach().abs().amax(dim=(-3, -2, -1), keepdim=True).clamp_min(smallest)
    return a / scale


def guard(dtype: torch.dtype) -> float:
    """Return the number added to numerator and denominator of the density."""
    # Far below the resolution of |A|^2 for a normalised a; makes a = 0 uniform and keeps the logarithm finite.
    return 1e-12 if dtype == torch.float32 else 1e-28


def energy(a: Tensor) -> Tensor:
    r"""Return :math:`\sum_r \|a_r\|^2` of (..., R, rows, L), shape (...)."""
    return (a * a).sum(dim=(-3, -2, -1))


def _blocks(length: int, longest: int) -> tuple[int, int]:
    """Split ``length`` harmonics into (blocks, block size) with little padding; one block up to ``longest``."""
    if length <= longest:
        return 1, length
    root = math.isqrt(length)
    sizes = range(max(2, root - root // 3), root + root // 2 + 1)
    size = min(sizes, key=lambda b: (-(-length // b) * b, abs(b - root)))
    return -(-length // size), size


def amplitude(a: Tensor, phases: Phases) -> tuple[Tensor, Tensor]:
    r"""Return the real and imaginary part of :math:`A` at V points, each (..., V).

    Many harmonics are taken in blocks, :math:`e^{-i\pi(Bq + r)z} = e^{-i\pi Bqz} e^{-i\pi rz}`: about
    :math:`2\sqrt N` cosines per point instead of N, and no basis of size tokens x N.
    """
    rows, length = a.shape[-2:]
    # One point per density, as in a loss, is a sum of products: thousands of tiny matrix products would be slower.
    single = phases(1)[0].shape[-1] == 1
    blocks, size = _blocks(length, 256 if single else 32)
    cos, sin = phases(size)
    if blocks > 1:
        a = torch.nn.functional.pad(a, (0, blocks * size - length)).unflatten(-1, (blocks, size))
    else:
        a = a.unsqueeze(-2)
    # a is (..., rows, blocks, size), cos and sin are (..., size, V)
    if single:
        cos, sin = cos.mT.unsqueeze(-2), sin.mT.unsqueeze(-2)  # (..., 1, 1, size)
        with_cos, with_sin = (a * cos).sum(-1, keepdim=True), (a * sin).sum(-1, keepdim=True)
    else:
        basis = torch.cat([cos, sin], dim=-1)
        if basis.numel() == math.prod(basis.shape[-2:]):
            basis = basis.reshape(basis.shape[-2:])  # one for all densities: one product of matrices
        product = (a.flatten(-3, -2) @ basis).unflatten(-2, (rows, blocks))
        with_cos, with_sin = product.chunk(2, dim=-1)
    if rows == 1:
        re, im = with_cos.squeeze(-3), -with_sin.squeeze(-3)
    else:
        # Unbound, not selected one by one: the gradient of a selection is an array of zeros first.
        (cos_alpha, cos_beta), (sin_alpha, sin_beta) = with_cos.unbind(-3), with_sin.unbind(-3)
        re, im = cos_alpha + sin_beta, cos_beta - sin_alpha
    if blocks == 1:
        return re.squeeze(-2), im.squeeze(-2)
    cos, sin = phases(blocks, size)
    return (re * cos + im * sin).sum(-2), (im * cos - re * sin).sum(-2)


def amplitude_at_common(a: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Return A at V points that all densities share, (..., 2 V), real parts first, from cos and sin (L, V).

    One product of matrices, and nothing to take apart or to put together for its gradient.
    """
    basis = torch.cat([cos, -sin], dim=-1)
    if a.shape[-2] == 2:
        basis = torch.cat([basis, torch.cat([sin, cos], dim=-1)])
    return a.flatten(-2) @ basis


def _relative_density(a: Tensor, re: Tensor, im: Tensor, floor: float | Tensor) -> Tensor:
    """Return p relative to the uniform density, floor mixed in; one where a = 0."""
    total = energy(a).unsqueeze(-1)
    tiny = guard(a.dtype)
    return ((1 - floor) * (re * re + im * im).sum(-2) + floor * total + tiny) / (total + tiny)


@full_precision
def log_density(a: Tensor, z: Tensor, floor: float = 0.0, squares: bool = False, walls: bool = False) -> Tensor:
    r"""Return :math:`\log((1 - \epsilon) p(z) + \epsilon / 2)` at points (..., V) of [-1, 1].

    >>> log_density(torch.tensor([[1.0, 0.5], [0.0, 0.0]]), torch.tensor([0.0, 1.0])).exp()
    tensor([0.9000, 0.1000])
    """
    a = normalize(a, squares)
    re, im = amplitude(a, phases_at(z.to(a.dtype).unsqueeze(-2), walls))
    return torch.log(_relative_density(a, re, im, floor)) - math.log(2)


# --- bins -----------------------------------------------------------------------------------------------------------


def fold(a: Tensor, num_bins: int, walls: bool = False) -> Tensor:
    """Fold harmonics that the bin centres cannot tell apart (l and l + m) onto one.

    Afterwards at most m harmonics are left, all values at the centres are the same, and they sum to m times the
    energy: the exact normaliser for any N.
    """
    modulus = 2 * num_bins if walls else num_bins
    length = a.shape[-1]
    if length <= modulus:
        return a
    folds = -(-length // modulus)
    a = torch.nn.functional.pad(a, (0, folds * modulus - length)).unflatten(-1, (folds, modulus))
    if modulus % 2 == 0:
        sign = 1 - 2 * (torch.arange(folds, device=a.device) % 2).to(a.dtype)
        a = a * sign.unsqueeze(-1)
    return a.sum(-2)


@full_precision
def log_bin_mass(
    a: Tensor, index: Tensor, num_bins: int, floor: float = 0.0, squares: bool = False, walls: bool = False
) -> Tensor:
    r"""Return the log-probability of one bin per density, :math:`\log(|A(b_t)|^2 / (m \|a\|^2))`, in O(N).

    >>> a = torch.tensor([[1.0, 0.5], [0.0, 0.0]])
    >>> sum(log_bin_mass(a, torch.tensor(t), 4).exp() for t in range(4))
    tensor(1.)
    """
    a = normalize(fold(a, num_bins, walls), squares)
    phases = phases_at_bins(index[..., None, None], num_bins, walls, a.dtype)
    re, im = amplitude(a, phases)
    return torch.log(_relative_density(a, re, im, floor)).squeeze(-1) - math.log(num_bins)


@full_precision
def log_pmf(a: Tensor, num_bins: int, floor: float = 0.0, squares: bool = False, walls: bool = False) -> Tensor:
    """Return the log-probabilities of all bins, (..., m): one matrix product or one FFT."""
    a = normalize(fold(a, num_bins, walls), squares)
    re, im = _amplitude_at_all_bins(a, num_bins, walls)
    return torch.log(_relative_density(a, re, im, floor)) - math.log(num_bins)


def prefer_gemm(a: Tensor, points: int) -> bool:
    """Say whether to take a matrix product rather than an FFT; exporters have no complex numbers, an FFT needs rows."""
    limit = GEMM_LIMIT.get(a.device.type, GEMM_LIMIT["cpu"])
    return a.shape[-1] * points <= limit or exporting() or a.numel() == 0


def _amplitude_at_all_bins(a: Tensor, num_bins: int, walls: bool) -> tuple[Tensor, Tensor]:
    if prefer_gemm(a, num_bins):
        return amplitude(a, phases_at_bins(torch.arange(num_bins, device=a.device), num_bins, walls, a.dtype))
    # At b_j = -1 + (2j+1)/m the phase splits into a twiddle of the harmonic and a plain DFT over j.
    length = a.shape[-1]
    points = 2 * num_bins if walls else num_bins
    cos, sin = phases_at_bins(torch.zeros(1, dtype=torch.long, device=a.device), points, False, a.dtype)(length)
    cos, sin = cos[:, 0], sin[:, 0]
    if walls:
        re, im = a[..., 0, :] * cos, -a[..., 0, :] * sin
    else:
        re, im = a[..., 0, :] * cos + a[..., 1, :] * sin, a[..., 1, :] * cos - a[..., 0, :] * sin
    values = torch.fft.fft(torch.complex(re, im), n=points)
    if walls:
        values = values[..., num_bins:]
    return values.real, values.imag


# --- wave packets ---------------------------------------------------------------------------------------------------


@full_precision
def unit_energy(a: Tensor) -> Tensor:
    """Scale coefficients (..., rows, L) to energy one; zeros become the uniform density, alpha_0 = 1."""
    a = normalize(a, squares=False)
    total = energy(a)[..., None, None]
    uniform = torch.zeros_like(a[..., 0, :, :])
    uniform[..., 0, 0] = 1
    return torch.where(total > 0, a.squeeze(-3) / torch.where(total > 0, total, 1).sqrt(), uniform)


@full_precision
def packets(parameters: Tensor, length: int, walls: bool) -> Tensor:
    r"""Return the coefficients of K wave packets of energy one, (..., K, 2, L), or (..., K, 1, L) between walls.

    .. math:: a_l = (1 + i h u_l) e^{-u_l^2 / 2} e^{i \pi l \mu}, \qquad u_l = (l - N/2) w

    is a Gaussian bump of standard deviation :math:`w / (\pi \sqrt 2)` at mu; h tilts it. ``parameters`` has shape
    (..., 3, K): mu, w and h. Moving a peak takes one number, where free coefficients must turn every phase.
    """
    mu, width, tilt = parameters.unsqueeze(-2).unbind(-3)  # each (..., 1, K)
    index = torch.arange(length, dtype=mu.dtype, device=mu.device).unsqueeze(-1) - (length - 1) / 2
    width = width / 2 if walls else width
    u = index * width
    # Measured from the middle harmonics, so that the narrowest envelope does not underflow.
    middle = 0.5 * width if length % 2 == 0 else torch.zeros_like(width)
    envelope = torch.exp((middle * middle - u * u) / 2)
    slope = tilt * u
    if walls:
        # Real coefficients: the bump and its mirror image beyond the wall.
        angle = math.pi * index * (mu + 1) / 2
        return unit_energy((envelope * (torch.cos(angle) + slope * torch.sin(angle))).movedim(-1, -2).unsqueeze(-2))
    envelope = envelope * ((envelope * envelope * (1 + slope * slope)).sum(-2, keepdim=True)).rsqrt()
    cos, sin = phases_at(mu.squeeze(-2), walls)(length)
    a = torch.stack([envelope * (cos - slope * sin), envelope * (sin + slope * cos)], dim=-1)  # (..., L, K, 2)
    return a.movedim(-3, -1)
