r"""Gradients of losses in closed form, for heads of many runs at once.

Training by autograd passes over the outputs some forty times; written out, the same gradients take a handful. What is
differentiated here is the loss that the heads themselves have (`layout.py`, `baselines.py`): tests compare the two.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from fourier_head.series import phases_at, phases_at_bins

# A square of coefficients below this counts as none: the density is uniform and pushes nowhere.
_TINY = 1e-30


def basis_at_bins(num_bins: int, num_frequencies: int) -> Tensor:
    r"""Return what gives :math:`A` at the bin centres, (m, 2, 2 (N+1)).

    The inner product of [alpha, beta] with row 0 is the real part of :math:`A(b_j)`, with row 1 the imaginary part.
    """
    phases = phases_at_bins(torch.arange(num_bins), num_bins, False, torch.float32)
    return _basis(*phases(num_frequencies + 1))


def basis_at(z: Tensor, num_frequencies: int) -> Tensor:
    """Return what gives A at points z (...), shape (..., 2, 2 (N+1))."""
    return _basis(*phases_at(z.flatten(), False)(num_frequencies + 1)).unflatten(0, z.shape)


def _basis(cos: Tensor, sin: Tensor) -> Tensor:
    cos, sin = cos.mT, sin.mT
    return torch.stack([torch.cat([cos, sin], dim=-1), torch.cat([-sin, cos], dim=-1)], dim=-2)


def fourier_likelihood(a: Tensor, basis: Tensor, floor: float, weight: float, out: Tensor) -> None:
    r"""Write the gradient of :math:`-\log((1 - \epsilon) |A(z)|^2 / \|a\|^2 + \epsilon)`, times ``weight``.

    Args:
        a: coefficients [alpha, beta], (S, T, 2 (N+1)).
        basis: of the point z of each of the T tokens, (T, 2, 2 (N+1)).
        out: like ``a``.
    """
    real, imaginary = basis.unbind(-2)
    re = torch.linalg.vecdot(a, real).unsqueeze_(-1)
    im = torch.linalg.vecdot(a, imaginary).unsqueeze_(-1)
    energy = torch.linalg.vecdot(a, a).unsqueeze_(-1).clamp_min_(_TINY)
    mixed = ((1 - floor) * (re * re + im * im)).add_(energy, alpha=floor)
    factor = (-2 * weight * (1 - floor)) / mixed
    torch.mul(a, 2 * weight / energy - 2 * weight * floor / mixed, out=out)
    out.addcmul_(re.mul_(factor), real).addcmul_(im.mul_(factor), imaginary)


class FourierPenalty:
    r"""Gradients of :math:`g \sum_k k^2 |c_k|^2`, or of the same over :math:`\|a\|^4`, in the coefficients.

    The spectrum c of the square of A is that of its values at 2N + 1 points, so the sum is a quadratic form of those
    values: three products of matrices, for all runs together.
    """

    def __init__(self, num_frequencies: int, normalised: bool):
        points = 2 * num_frequencies + 1
        z = 2 * torch.arange(points, dtype=torch.float64) / points - 1
        # Real parts at all points first, then imaginary parts.
        self.basis = basis_at(z.float(), num_frequencies).transpose(0, 1).flatten(0, 1).mT.contiguous()
        k = torch.arange(1, num_frequencies + 1, dtype=torch.float64)
        waves = torch.cos(math.pi * k * (z[:, None, None] - z[None, :, None]))
        self.form = ((k * k * waves).sum(-1) / points**2).float()
        self.normalised = normalised

    def to(self, device: torch.device) -> None:
        """Move the constants."""
        self.basis, self.form = self.basis.to(device), self.form.to(device)

    def __call__(self, a: Tensor, weight: Tensor) -> Tensor:
        """Return the gradient in coefficients (n, 2 (N+1)), each row times its weight (n, 1)."""
        values = (a @ self.basis).unflatten(-1, (2, -1))  # (n, 2, points)
        square = torch.linalg.vecdot(values, values, dim=-2)
        slope = square @ self.form
        if not self.normalised:
            weight = 4 * weight
            return ((values * slope.unsqueeze(-2)).flatten(1) @ self.basis.mT).mul_(weight)
        energy = torch.linalg.vecdot(a, a).unsqueeze_(-1).clamp_min_(_TINY)
        total = torch.linalg.vecdot(square, slope).unsqueeze_(-1)
        gradient = (values * slope.unsqueeze(-2)).flatten(1) @ self.basis.mT
        return gradient.addcmul_(a, total / energy, value=-1).mul_(4 * weight / energy**2)


def mixture_likelihood(
    logits: Tensor, loc: Tensor, scale: Tensor, target: Tensor, centers: Tensor, floor: float, weight: float
) -> tuple[Tensor, Tensor, Tensor]:
    r"""Return gradients, in logits, locations and deviations (..., K), of the cross-entropy of binned mixtures.

    The loss is :math:`-\log((1 - \epsilon) y_t + \epsilon / m)`, where y are the values of the mixture at the m bin
    centres, normalised; the gradients come times ``weight``.
    """
    bins = len(centers)
    at = centers.view(*(1,) * loc.dim(), bins)
    steps = (at - loc.unsqueeze(-1)).div_(scale.unsqueeze(-1))  # (..., K, m)
    heights = (logits - scale.log()).unsqueeze(-1).addcmul(steps, steps, value=-0.5)
    values = heights.sub_(heights.amax((-2, -1), keepdim=True)).exp_()
    total = values.sum((-2, -1), keepdim=True)
    index = target[..., None, None].expand(*loc.shape, 1)
    there = values.gather(-1, index)
    mass = there.sum(-2, keepdim=True)
    share = mass / total
    pull = weight * (1 - floor) * share / ((1 - floor) * share + floor / bins)
    # d loss / d log-height: softmax over all bins and components, less the posterior of components at the target.
    values.mul_(pull / total)
    values.scatter_add_(-1, index, -pull * there / mass.clamp_min(1e-30))
    of_logits = values.sum(-1)
    of_loc = torch.linalg.vecdot(values, steps) / scale
    of_scale = (torch.linalg.vecdot(values, steps.square_()) - of_logits) / scale
    return of_logits, of_loc, of_scale
