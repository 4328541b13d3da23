"""Algorithm 1 of the paper, taken literally in float64: the reference that every fast path must equal."""

import math

import torch
from torch import Tensor


def log_probabilities(outputs: Tensor, num_bins: int, floor: float = 0.0) -> Tensor:
    """Return log y (tokens, m) from projection outputs (tokens, 2 (N+1)), by loops over lags and exponentials."""
    outputs = outputs.double()
    alpha, beta = outputs.chunk(2, dim=-1)
    a = torch.complex(alpha, beta)
    highest = a.shape[-1] - 1
    lags = [(a[..., : highest + 1 - k] * a[..., k:].conj()).sum(-1) for k in range(highest + 1)]
    centers = torch.tensor([-1 + (1 + 2 * j) / num_bins for j in range(num_bins)], dtype=torch.float64)
    density = torch.full((*a.shape[:-1], num_bins), 0.5, dtype=torch.float64)
    for k in range(1, highest + 1):
        ratio = lags[k] / lags[0].real
        wave = torch.exp(1j * math.pi * k * centers)
        density = density + (ratio[..., None] * wave).real
    y = density / density.sum(-1, keepdim=True)
    return torch.log((1 - floor) * y + floor / num_bins)
