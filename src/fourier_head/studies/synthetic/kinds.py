"""The kinds of heads in the synthetic studies, stacked: the library's own functions on projections of many runs."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from fourier_head import series
from fourier_head.baselines import HLGaussHead, MixtureHead
from fourier_head.layout import Layout, Regularizer
from fourier_head.series import bin_centers
from fourier_head.studies.synthetic.gradients import (
    FourierPenalty,
    basis_at,
    basis_at_bins,
    fourier_likelihood,
    mixture_likelihood,
)
from fourier_head.studies.synthetic.stack import HIDDEN


class _Head:
    """What kinds share: gradients by autograd, which kinds with a closed form replace."""

    out_features: int

    def initialise(self, weight: Tensor, bias: Tensor) -> list[Tensor]:
        return []

    def losses(self, outputs: Tensor, target: Tensor, extra: Sequence[Tensor]) -> Tensor:
        """Return the loss of every token, (R, batch), regulariser included; targets are (D, batch)."""
        raise NotImplementedError

    def gradients(self, outputs: Tensor, target: Tensor, extra: Sequence[Tensor], out: Tensor) -> list[Tensor]:
        """Write the gradient of the loss in the outputs into ``out``, and return those in each extra parameter."""
        with torch.enable_grad():
            leaves = [t.detach().requires_grad_() for t in (outputs, *extra)]
            loss = self.losses(leaves[0], target, leaves[1:])
            found = torch.autograd.grad(loss.sum() / target.shape[-1], leaves)
        out.copy_(found[0])
        return list(found[1:])


def for_runs(target: Tensor, runs: int) -> Tensor:
    """Repeat the targets of D data sets, (D, batch), for runs whose data sets take turns, (R, batch)."""
    return target.repeat(runs // len(target), 1)


class LinearStack(_Head):
    """Linear heads."""

    def __init__(self, num_bins: int):
        self.out_features = num_bins

    def losses(self, outputs: Tensor, target: Tensor, extra: Sequence[Tensor]) -> Tensor:
        target = for_runs(target, len(outputs))
        return F.cross_entropy(outputs.flatten(0, 1), target.flatten(), reduction="none").view(target.shape)

    def gradients(self, outputs: Tensor, target: Tensor, extra: Sequence[Tensor], out: Tensor) -> list[Tensor]:
        torch.softmax(outputs, dim=-1, out=out)
        self._subtract_goal(out, for_runs(target, len(outputs)))
        out.div_(target.shape[-1])
        return []

    def _subtract_goal(self, out: Tensor, target: Tensor) -> None:
        """Subtract the target probabilities in place."""
        out.scatter_add_(-1, target.unsqueeze(-1), torch.full_like(out[..., :1], -1))

    def log_pmf(self, outputs: Tensor, extra: Sequence[Tensor]) -> Tensor:
        return torch.log_softmax(outputs, dim=-1)


class HLGaussStack(LinearStack):
    """HL-Gauss heads: linear, with Gaussian histograms as targets."""

    def __init__(self, num_bins: int, sigma: float = 0.75):
        super().__init__(num_bins)
        self.table = HLGaussHead(HIDDEN[-1], num_bins, sigma=sigma).soft_targets(torch.arange(num_bins))

    def losses(self, outputs: Tensor, target: Tensor, extra: Sequence[Tensor]) -> Tensor:
        return -(self._goal(for_runs(target, len(outputs))) * self.log_pmf(outputs, extra)).sum(-1)

    def _goal(self, target: Tensor) -> Tensor:
        return self.table.to(target.device)[target]

    def _subtract_goal(self, out: Tensor, target: Tensor) -> None:
        out.sub_(self._goal(target))


class MixtureStack(_Head):
    """Gaussian mixtures, the paper's constrained one or the full one."""

    def __init__(self, num_bins: int, kind: str, components: int = 2):
        self.template = MixtureHead(HIDDEN[-1], num_bins, components, kind=kind)  # type: ignore[arg-type]
        self.out_features = self.template.proj.out_features
        self.centers = bin_centers(num_bins)

    def initialise(self, weight: Tensor, bias: Tensor) -> list[Tensor]:
        self.centers = self.centers.to(weight.device)
        if self.template.kind == "full":
            return []
        raw = self.template.raw_scale.detach().to(weight.device)
        return [raw.expand(weight.shape[0], 1, -1).clone()]

    def components(self, outputs: Tensor, extra: Sequence[Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        return self.template.components_of(outputs, extra[0] if extra else None)

    def log_pmf(self, outputs: Tensor, extra: Sequence[Tensor]) -> Tensor:
        return self.template.bin_log_probs(*self.components(outputs, extra))

    def losses(self, outputs: Tensor, target: Tensor, extra: Sequence[Tensor]) -> Tensor:
        target = for_runs(target, len(outputs))
        return -self.log_pmf(outputs, extra).gather(-1, target.unsqueeze(-1)).squeeze(-1)

    def gradients(self, outputs: Tensor, target: Tensor, extra: Sequence[Tensor], out: Tensor) -> list[Tensor]:
        if target.is_floating_point():
            return super().gradients(outputs, target, extra, out)
        # In closed form from the loss to the components, which is all but a little of the work.
        with torch.enable_grad():
            leaves = [t.detach().requires_grad_() for t in (outputs, *extra)]
            components = self.components(leaves[0], leaves[1:])
        target = for_runs(target, len(outputs))
        floor, weight = self.template.floor, 1 / target.shape[-1]
        seen = [c.detach() for c in components]
        found = mixture_likelihood(seen[0], seen[1], seen[2], target, self.centers, floor, weight)
        known = [(c, g) for c, g in zip(components, found, strict=True) if c.requires_grad]
        of_outputs, *of_extra = torch.autograd.grad([c for c, _ in known], leaves, [g for _, g in known])
        out.copy_(of_outputs)
        return of_extra


class RegressionStack(_Head):
    """One number per token, trained with squared error against the centre of the target bin."""

    out_features = 1

    def __init__(self, num_bins: int):
        self.centers = bin_centers(num_bins)

    def losses(self, outputs: Tensor, target: Tensor, extra: Sequence[Tensor]) -> Tensor:
        return self._errors(outputs, target).squeeze(-1) ** 2

    def gradients(self, outputs: Tensor, target: Tensor, extra: Sequence[Tensor], out: Tensor) -> list[Tensor]:
        torch.mul(self._errors(outputs, target), 2 / target.shape[-1], out=out)
        return []

    def _errors(self, outputs: Tensor, target: Tensor) -> Tensor:
        return outputs - self.centers.to(outputs.device)[for_runs(target, len(outputs))].unsqueeze(-1)


class FourierStack(_Head):
    """Fourier heads; runs with fewer frequencies have their higher coefficients held at zero.

    Args:
        layout: of the run with the most frequencies.
        frequencies, gammas: one per run.
        regularizer: "released" is the penalty of the released code, 2m times the one printed in the paper.
        init_scale: divides the first weights of the projection.
    """

    def __init__(
        self,
        layout: Layout,
        frequencies: Sequence[int],
        gammas: Sequence[float],
        regularizer: str = "roughness",
        init_scale: float = 1000.0,
    ):
        self.layout = layout
        self.out_features = layout.out_features
        self.init_scale = init_scale
        index = torch.arange(layout.num_frequencies + 1)
        kept = (index <= torch.tensor(frequencies).unsqueeze(1)).float()
        rest = torch.ones(len(frequencies), layout.out_features - layout.num_coefficients)
        self.mask = torch.cat([kept, kept, rest], dim=1).unsqueeze(1)
        self.masked = bool((self.mask == 0).any())
        if layout.packets and self.masked:
            raise ValueError("runs with packets must have the same number of frequencies to be stacked")
        self.gammas = torch.tensor(gammas, dtype=torch.float32).unsqueeze(1)
        self.penalised = torch.nonzero(self.gammas[:, 0]).flatten()
        self.form: Regularizer = "paper" if regularizer == "released" else regularizer  # type: ignore[assignment]
        self.factor = 2.0 * layout.require_bins() if regularizer == "released" else 1.0
        self.basis = basis_at_bins(layout.require_bins(), layout.num_frequencies)
        self.penalty = FourierPenalty(layout.num_frequencies, normalised=self.form == "roughness")

    def initialise(self, weight: Tensor, bias: Tensor) -> list[Tensor]:
        weight.div_(self.init_scale)
        bias.div_(self.init_scale)
        if self.layout.packets:
            first = self.layout.num_coefficients
            bias[..., first : first + self.layout.packets] += bin_centers(self.layout.packets).to(bias)
        for name in ("mask", "gammas", "penalised", "basis"):
            setattr(self, name, getattr(self, name).to(weight.device))
        self.penalty.to(weight.device)
        # Held at zero from the start, coefficients beyond a run's own stay there: their gradient is zero too.
        weight.mul_(self.mask)
        bias.mul_(self.mask)
        return []

    def _penalties(self, a: Tensor) -> Tensor:
        penalty = self.layout.penalty(a.index_select(0, self.penalised), self.form)
        return self.factor * self.gammas.index_select(0, self.penalised) * penalty

    def losses(self, outputs: Tensor, target: Tensor, extra: Sequence[Tensor]) -> Tensor:
        target = for_runs(target, len(outputs))
        outputs = outputs * self.mask
        a = self.layout.coefficients(outputs)
        if target.is_floating_point():
            losses = -series.log_density(a, target.unsqueeze(-1), self.layout.floor, squares=True).squeeze(-1)
        else:
            losses = -self.layout.log_mass(outputs, target, a)
        if not len(self.penalised):
            return losses
        return losses.index_add(0, self.penalised, self._penalties(a))

    def gradients(self, outputs: Tensor, target: Tensor, extra: Sequence[Tensor], out: Tensor) -> list[Tensor]:
        if self.layout.packets:
            return super().gradients(outputs, target, extra, out)
        last = self.layout.num_frequencies
        basis = basis_at(target, last) if target.is_floating_point() else self.basis[target]
        batch = target.shape[-1]
        by_data = (-1, target.numel(), self.out_features)
        fourier_likelihood(outputs.view(by_data), basis.flatten(0, 1), self.layout.floor, 1 / batch, out.view(by_data))
        if len(self.penalised):
            weight = self.gammas.index_select(0, self.penalised) * (self._penalty_factor() / batch)
            some = outputs.index_select(0, self.penalised).flatten(0, 1)
            found = self.penalty(some, weight.expand(-1, batch).reshape(-1, 1))
            out.index_add_(0, self.penalised, found.view(-1, *outputs.shape[1:]))
        if self.masked:
            out.mul_(self.mask)
        return []

    def _penalty_factor(self) -> float:
        """Return what stands before the sum of k^2 |c_k|^2."""
        if self.form == "paper":
            return self.factor * 2 * torch.pi**2 / self.layout.require_bins()
        return self.factor * torch.pi**2 * (1 - self.layout.floor) ** 2

    def log_pmf(self, outputs: Tensor, extra: Sequence[Tensor]) -> Tensor:
        return self.layout.log_pmf(outputs * self.mask)
