"""What training minimises: the loss of a patch forecaster on windows of the corpus."""

from __future__ import annotations

from torch import Tensor, nn

from fourier_head.forecasting.patch.model import PatchForecaster


class Objective(nn.Module):
    """Return the loss of a batch of windows.

    Args:
        model: the forecaster.
        naive_weighting: how far errors count in units of each series' own naive error, see ``PatchForecaster.loss``.
    """

    def __init__(self, model: PatchForecaster, naive_weighting: float = 0.0):
        super().__init__()
        self.model, self.naive_weighting = model, naive_weighting

    def forward(self, context: Tensor, future: Tensor, period: Tensor) -> Tensor:
        return self.model.loss(context, future, period, self.naive_weighting)
