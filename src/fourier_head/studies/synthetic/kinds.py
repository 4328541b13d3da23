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
from fourier_head.studies.synthetic.stack import HIDDEN


class LinearStack:
    """Linear heads."""

    def __init__(self, num_bins: int):
        self.out_features = num_bins

    def initialise(self, weight: Tensor, bias: Tensor) -> list[Tensor]:
        return []

    def losses(self, outputs: Tensor, target: Tensor, extra: Sequence[Tensor]) -> Tensor:
        return F.cross_entropy(outputs.flatten(0, 1), target.flatten(), reduction="none").view(target.shape)

    def log_pmf(self, outputs: Tensor, extra: Sequence[Tensor]) -> Tensor:
        return torch.log_softmax(outputs, dim=-1)


class HLGaussStack(LinearStack):
    """HL-Gauss heads: linear, with Gaussian histograms as targets."""

    def __init__(self, num_bins: int, sigma: float = 0.75):
        super().__init__(num_bins)
        self.table = HLGaussHead(HIDDEN[-1], num_bins, sigma=sigma).soft_targets(torch.arange(num_bins))

    def losses(self, outputs: Tensor, target: Tensor, extra: Sequence[Tensor]) -> Tensor:
        return -(self.table.to(outputs.device)[target] * self.log_pmf(outputs, extra)).sum(-1)


class MixtureStack:
    """Gaussian mixtures, the paper's constrained one or the full one."""

    def __init__(self, num_bins: int, kind: str, components: int = 2):
        self.template = MixtureHead(HIDDEN[-1], num_bins, components, kind=kind)  # type: ignore[arg-type]
        self.out_features = self.template.proj.out_features

    def initialise(self, weight: Tensor, bias: Tensor) -> list[Tensor]:
        if self.template.kind == "full":
            return []
        raw = self.template.raw_scale.detach().to(weight.device)
        return [raw.expand(weight.shape[0], 1, -1).clone()]

    def components(self, outputs: Tensor, extra: Sequence[Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        return self.template.components_of(outputs, extra[0] if extra else None)

    def log_pmf(self, outputs: Tensor, extra: Sequence[Tensor]) -> Tensor:
        return self.template.bin_log_probs(*self.components(outputs, extra))

    def losses(self, outputs: Tensor, target: Tensor, extra: Sequence[Tensor]) -> Tensor:
        return -self.log_pmf(outputs, extra).gather(-1, target.unsqueeze(-1)).squeeze(-1)


class RegressionStack:
    """One number per token, trained with squared error against the centre of the target bin."""

    out_features = 1

    def __init__(self, num_bins: int):
        self.centers = bin_centers(num_bins)

    def initialise(self, weight: Tensor, bias: Tensor) -> list[Tensor]:
        return []

    def losses(self, outputs: Tensor, target: Tensor, extra: Sequence[Tensor]) -> Tensor:
        return (outputs.squeeze(-1) - self.centers.to(outputs.device)[target]) ** 2


class FourierStack:
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
        if layout.packets and len(set(frequencies)) > 1:
            raise ValueError("runs with packets must have the same number of frequencies to be stacked")
        self.gammas = torch.tensor(gammas, dtype=torch.float32).unsqueeze(1)
        self.penalised = torch.nonzero(self.gammas[:, 0]).flatten()
        self.form: Regularizer = "paper" if regularizer == "released" else regularizer  # type: ignore[assignment]
        self.factor = 2.0 * layout.require_bins() if regularizer == "released" else 1.0

    def initialise(self, weight: Tensor, bias: Tensor) -> list[Tensor]:
        weight.div_(self.init_scale)
        bias.div_(self.init_scale)
        if self.layout.packets:
            first = self.layout.num_coefficients
            bias[..., first : first + self.layout.packets] += bin_centers(self.layout.packets).to(bias)
        for name in ("mask", "gammas", "penalised"):
            setattr(self, name, getattr(self, name).to(weight.device))
        return []

    def _penalties(self, a: Tensor) -> Tensor:
        penalty = self.layout.penalty(a.index_select(0, self.penalised), self.form)
        return self.factor * self.gammas.index_select(0, self.penalised) * penalty

    def losses(self, outputs: Tensor, target: Tensor, extra: Sequence[Tensor]) -> Tensor:
        outputs = outputs * self.mask
        a = self.layout.coefficients(outputs)
        if target.is_floating_point():
            losses = -series.log_density(a, target.unsqueeze(-1), self.layout.floor, squares=True).squeeze(-1)
        else:
            losses = -self.layout.log_mass(outputs, target, a)
        if not len(self.penalised):
            return losses
        return losses.index_add(0, self.penalised, self._penalties(a))

    def log_pmf(self, outputs: Tensor, extra: Sequence[Tensor]) -> Tensor:
        return self.layout.log_pmf(outputs * self.mask)
