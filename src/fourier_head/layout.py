"""Layout: how the numbers that a projection emits are read as a density over bins."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from fourier_head import series, spectrum
from fourier_head._arrays import widened

Regularizer = Literal["roughness", "paper"]


@dataclass(frozen=True)
class Layout:
    """Describe the outputs of a Fourier head's projection.

    In order: alpha_0..alpha_N, beta_0..beta_N; four rows of K packet parameters (mu, width, logit of the weight,
    tilt), the weight of the free coefficients having logit zero; one logit per atom.
    Between reflecting walls the first 2 (N+1) outputs are the real coefficients of half waves, which resolve as much
    as N full ones.

    >>> Layout(num_bins=50, num_frequencies=12, packets=2, num_atoms=1).out_features
    35
    """

    num_bins: int | None
    num_frequencies: int
    floor: float = 0.0
    bin_mass: Literal["midpoint", "exact"] = "midpoint"
    boundary: Literal["periodic", "reflect"] = "periodic"
    packets: int = 0
    num_atoms: int = 0

    def __post_init__(self) -> None:
        if self.num_bins is not None and self.num_bins < 1:
            raise ValueError(f"num_bins must be at least 1, got {self.num_bins}")
        if self.num_frequencies < 0:
            raise ValueError(f"num_frequencies must not be negative, got {self.num_frequencies}")
        if not 0 <= self.floor < 1:
            raise ValueError(f"floor must be a share of probability in [0, 1), got {self.floor}")
        if self.bin_mass not in ("midpoint", "exact"):
            raise ValueError(f"bin_mass must be 'midpoint' or 'exact', got {self.bin_mass!r}")
        if self.boundary not in ("periodic", "reflect"):
            raise ValueError(f"boundary must be 'periodic' or 'reflect', got {self.boundary!r}")
        if self.packets < 0 or self.num_atoms < 0:
            raise ValueError(
                f"packets and num_atoms must not be negative, got packets={self.packets}, num_atoms={self.num_atoms}"
            )

    @property
    def walls(self) -> bool:
        return self.boundary == "reflect"

    @property
    def num_coefficients(self) -> int:
        return 2 * (self.num_frequencies + 1)

    @property
    def out_features(self) -> int:
        return self.num_coefficients + 4 * self.packets + self.num_atoms

    @property
    def num_classes(self) -> int:
        """Bins and atoms; atoms have the first ids."""
        return self.require_bins() + self.num_atoms

    def require_bins(self) -> int:
        if self.num_bins is None:
            raise ValueError("this head has no bins: pass num_bins to predict or train on them")
        return self.num_bins

    def coefficients(self, outputs: Tensor) -> Tensor:
        """Return the coefficients of the density as squares (..., 1 + K, 2, N+1) or (..., 1 + K, 1, 2N+2).

        The first square is that of the free coefficients, the others are packets; each comes with its weight.
        """
        free = outputs[..., : self.num_coefficients].unflatten(-1, (1 if self.walls else 2, -1))
        if not self.packets:
            return free.unsqueeze(-3)
        parameters = outputs[..., self.num_coefficients : self.num_coefficients + 4 * self.packets]
        # Beyond this lies nothing new: mu has gone round the circle, one wave is left of the packet, or none of it.
        parameters = widened(parameters).clamp(-30, 30)
        mu, width, logit, tilt = parameters.unflatten(-1, (4, self.packets)).unbind(-2)
        weight = torch.softmax(torch.nn.functional.pad(logit, (1, 0)), dim=-1)
        shape = torch.stack([mu, torch.nn.functional.softplus(width), tilt], dim=-2)
        bumps = series.packets(shape, free.shape[-1], self.walls)
        squares = torch.cat([series.unit_energy(free).unsqueeze(-3), bumps], dim=-3)
        return squares * weight.sqrt()[..., None, None]

    def atom_logs(self, outputs: Tensor) -> Tensor:
        """Return log-probabilities (..., 1 + num_atoms): of the continuum first, then of each atom."""
        logits = widened(outputs[..., self.num_coefficients + 4 * self.packets :])
        return torch.log_softmax(torch.nn.functional.pad(logits, (1, 0)), dim=-1)

    def log_mass(self, outputs: Tensor, index: Tensor, a: Tensor | None = None) -> Tensor:
        """Return the log-probability of one class per token; O(N), or O(N log N) for exact bin masses.

        ``a`` are the coefficients of the outputs, where the caller has them already.
        """
        bins = self.require_bins()
        a = self.coefficients(outputs) if a is None else a
        place = (index - self.num_atoms).clamp_min(0) if self.num_atoms else index
        if self.bin_mass == "exact":
            q = spectrum.bin_average(spectrum.of_coefficients(a, self.floor, squares=True), bins)
            log_mass = spectrum.log_bin_mass(q, bins, place.unsqueeze(-1)).squeeze(-1)
        else:
            log_mass = series.log_bin_mass(a, place, bins, self.floor, squares=True)
        if not self.num_atoms:
            return log_mass
        logs = self.atom_logs(outputs)
        is_atom = index < self.num_atoms
        of_atom = logs.gather(-1, torch.where(is_atom, index + 1, 0).unsqueeze(-1)).squeeze(-1)
        return torch.where(is_atom, of_atom, of_atom + log_mass)

    def log_pmf(self, outputs: Tensor, blur: float = 0.0) -> Tensor:
        """Return the log-probabilities of all classes, (..., num_atoms + num_bins)."""
        bins = self.require_bins()
        a = self.coefficients(outputs)
        if self.bin_mass == "exact" or blur:
            q = spectrum.of_coefficients(a, self.floor, squares=True)
            if blur:
                q = spectrum.low_pass(q, blur)
            if self.bin_mass == "exact":
                q = spectrum.bin_average(q, bins)
            log_pmf = torch.log_softmax(spectrum.log_bin_mass(q, bins), dim=-1)
        else:
            log_pmf = series.log_pmf(a, bins, self.floor, squares=True)
        if not self.num_atoms:
            return log_pmf
        logs = self.atom_logs(outputs)
        return torch.cat([logs[..., 1:], logs[..., :1] + log_pmf], dim=-1)

    def penalty(self, a: Tensor, regularizer: Regularizer) -> Tensor:
        """Return the regulariser of coefficients: the roughness of their density, or the form printed in the paper."""
        if regularizer == "paper":
            return spectrum.paper_penalty(a, self.require_bins(), squares=True)
        return spectrum.roughness(spectrum.of_coefficients(a, self.floor, squares=True))
