"""Layout: how the numbers that a projection emits are read as a density over bins."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from fourier_head._arrays import widened
from fourier_head.densities.fourier import FourierDensity
from fourier_head.domains import Boundary, Domain
from fourier_head.domains.maps import ValueMap
from fourier_head.errors import whole_number
from fourier_head.fourier import series, spectrum

Regularizer = Literal["roughness", "paper"]


@dataclass(frozen=True)
class Layout:
    """Describe the outputs of a Fourier head's projection.

    In order: alpha_0..alpha_N, beta_0..beta_N; four rows of K packet parameters (mu, width, logit of the weight,
    tilt), the weight of the free coefficients having logit zero; one logit per atom; the place of an adaptive domain.
    Between reflecting walls the first 2 (N+1) outputs are the real coefficients of half waves, which resolve as much
    as N full ones.

    >>> Layout(num_bins=50, num_frequencies=12, packets=2, num_atoms=1).out_features
    35
    """

    num_bins: int | None
    num_frequencies: int
    floor: float = 0.0
    bin_mass: Literal["midpoint", "exact"] = "midpoint"
    boundary: Boundary = "periodic"
    packets: int = 0
    num_atoms: int = 0
    place_outputs: int = 0

    def __post_init__(self) -> None:
        for name, least in (("num_bins", 1), ("num_frequencies", 0), ("packets", 0), ("num_atoms", 0)):
            if name != "num_bins" or self.num_bins is not None:
                whole_number(name, getattr(self, name), least)
        if not 0 <= self.floor < 1:
            raise ValueError(f"floor must be a share of probability in [0, 1), got {self.floor}")
        if self.bin_mass not in ("midpoint", "exact"):
            raise ValueError(f"bin_mass must be 'midpoint' or 'exact', got {self.bin_mass!r}")
        if self.boundary not in ("periodic", "reflect"):
            raise ValueError(f"boundary must be 'periodic' or 'reflect', got {self.boundary!r}")

    @property
    def walls(self) -> bool:
        return self.boundary == "reflect"

    @property
    def is_plain(self) -> bool:
        """Whether the density is the paper's: one square of free coefficients on a circle, and nothing beside it."""
        return not (self.packets or self.num_atoms or self.walls or self.place_outputs)

    @property
    def num_coefficients(self) -> int:
        return 2 * (self.num_frequencies + 1)

    @property
    def out_features(self) -> int:
        return self.num_coefficients + 4 * self.packets + self.num_atoms + self.place_outputs

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

    def start(self, place: Tensor) -> Tensor:
        """Return what is added to the small random outputs at the start, (out_features,).

        A flat density, as in the paper; on a domain that moves, a bell in its middle that is nothing at the ends.
        """
        start = torch.zeros(self.out_features)
        if self.place_outputs:
            # |1 + e^{-i pi z}|^8; between walls the same wave at twice the frequency, moved to the middle.
            bell = min(4, self.num_frequencies)
            for l in range(bell + 1):
                weight = math.comb(bell, l) / 2**bell
                start[2 * l if self.walls else l] = -weight if self.walls and l % 2 else weight
            start[-self.place_outputs :] = place
        if self.packets:
            # Packets that start at one place stay together for long.
            first = self.num_coefficients
            start[first : first + self.packets] = series.bin_centers(self.packets)
        if self.num_atoms and self.num_bins is not None:
            # An atom starts as likely as one bin.
            first = self.num_coefficients + 4 * self.packets
            start[first : first + self.num_atoms] = -math.log(self.num_bins)
        return start

    def atom_logs(self, outputs: Tensor) -> Tensor:
        """Return log-probabilities (..., 1 + num_atoms): of the continuum first, then of each atom."""
        first = self.num_coefficients + 4 * self.packets
        logits = widened(outputs[..., first : first + self.num_atoms])
        return torch.log_softmax(torch.nn.functional.pad(logits, (1, 0)), dim=-1)

    def density(
        self,
        outputs: Tensor,
        domain: Domain,
        *,
        map: ValueMap | None = None,
        anchor: Tensor | None = None,
        a: Tensor | None = None,
        blur: float = 0.0,
    ) -> FourierDensity:
        """Return the density that outputs stand for; ``a`` are their coefficients, where the caller has them."""
        a = self.coefficients(outputs) if a is None else a
        place = outputs[..., self.out_features - self.place_outputs :]
        placed = domain.at_outputs(place, map=map, anchor=anchor)
        options = {"floor": self.floor, "boundary": self.boundary, "blur": blur}
        return FourierDensity(a, placed, squares=True, validate_args=False, **options)  # type: ignore[arg-type]

    def log_mass(self, d: FourierDensity, index: Tensor) -> Tensor:
        """Return the log-probability of one bin per density; O(N), or O(N log N) for exact masses."""
        bins = self.require_bins()
        edges = d.domain.edges
        if edges is not None:
            edges = edges.to(device=index.device)
            return d.log_mass_between(edges[index], edges[index + 1])
        if self.bin_mass == "exact":
            q = spectrum.bin_average(d.spectrum, bins, self.walls)
            return spectrum.log_bin_mass(q, bins, index.unsqueeze(-1), self.walls).squeeze(-1)
        return series.log_bin_mass(d.coefficients, index, bins, self.floor, True, self.walls)

    def log_masses(self, d: FourierDensity) -> Tensor:
        """Return the log-probabilities of all bins, (..., num_bins)."""
        bins = self.require_bins()
        edges = d.domain.edges
        if edges is not None:
            points = edges.to(d.coefficients.device).reshape(-1, *(1,) * len(d.batch_shape))
            return torch.log_softmax(d.log_mass_between(points[:-1], points[1:]).movedim(0, -1), dim=-1)
        if self.bin_mass == "midpoint" and not d.blur:
            return series.log_pmf(d.coefficients, bins, self.floor, True, self.walls)
        q = spectrum.bin_average(d.spectrum, bins, self.walls) if self.bin_mass == "exact" else d.spectrum
        return torch.log_softmax(spectrum.log_bin_mass(q, bins, walls=self.walls), dim=-1)

    def class_log_prob(self, outputs: Tensor, d: FourierDensity, index: Tensor) -> Tensor:
        """Return the log-probability of one class per density: a bin, or an atom."""
        if not self.num_atoms:
            return self.log_mass(d, index)
        log_mass = self.log_mass(d, (index - self.num_atoms).clamp_min(0))
        is_atom = index < self.num_atoms
        place = torch.where(is_atom, index + 1, 0).unsqueeze(-1)
        of_atom = self.atom_logs(outputs).gather(-1, place).squeeze(-1)
        return torch.where(is_atom, of_atom, of_atom + log_mass)

    def class_log_probs(self, outputs: Tensor, d: FourierDensity) -> Tensor:
        """Return the log-probabilities of all classes, (..., num_atoms + num_bins)."""
        log_masses = self.log_masses(d)
        if not self.num_atoms:
            return log_masses
        logs = self.atom_logs(outputs)
        return torch.cat([logs[..., 1:], logs[..., :1] + log_masses], dim=-1)

    def penalty(self, a: Tensor, regularizer: Regularizer) -> Tensor:
        """Return the regulariser of coefficients: the roughness of their density, or the form printed in the paper."""
        if regularizer == "paper":
            return spectrum.paper_penalty(a, self.require_bins(), self.walls)
        return spectrum.roughness(spectrum.of_coefficients(a, self.floor, squares=True), self.walls)
