"""A forecaster as an ONNX graph: values of the past in, quantiles of the steps to come out, without torch."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

from fourier_head.errors import needing
from fourier_head.forecasting.patch.multiscale import MultiscaleForecaster
from fourier_head.forecasting.rolling import normalise


class Quantiles(nn.Module):
    """What the graph computes: scaling, one pass of the network, quantiles of its densities, scaling back.

    Args:
        model: the network.
        horizon: steps ahead, at most the reach of the network.
        levels: of the quantiles.
    """

    def __init__(self, model: MultiscaleForecaster, horizon: int, levels: Sequence[float]):
        super().__init__()
        self.model, self.horizon, self.levels = model, horizon, list(levels)

    def forward(self, context: Tensor, period: Tensor) -> Tensor:
        """Return quantiles (series, horizon, levels), float64, of contexts (series, values) of periods (series,)."""
        past, unit, shift = normalise(context)
        density = self.model.density(past.float(), period, self.horizon)
        quantiles = density.quantile(self.levels).movedim(0, -1).double()
        return unit.unsqueeze(-1) * quantiles + shift.unsqueeze(-1)


def write_onnx(model: MultiscaleForecaster, path: str | Path, horizon: int | None, levels: Sequence[float]) -> Path:
    """Write the graph, weights included; see `Forecaster.to_onnx`."""
    reach = model.config.horizon
    horizon = reach if horizon is None else horizon
    if not 1 <= horizon <= reach:
        raise ValueError(f"horizon must be from 1 to {reach}, which one pass of the network reaches, got {horizon}.")
    if not levels or not all(0 < level < 1 for level in levels) or list(levels) != sorted(levels):
        raise ValueError(f"levels must ascend and lie strictly between 0 and 1, got {list(levels)}.")
    with needing("export"):
        import onnxscript  # noqa: F401
    Path(path).parent.mkdir(parents=True, exist_ok=True)  # better now than after the minute that follows
    module = Quantiles(model.eval(), horizon, levels)
    past = torch.randn(3, model.config.context, dtype=torch.float64, device=next(model.parameters()).device)
    period = torch.tensor([1, 7, 12], device=past.device)
    series = torch.export.Dim("series", min=1)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch, about its own ways
        shapes = {"context": {0: series}, "period": {0: series}}
        program = torch.export.export(module, (past, period), dynamic_shapes=shapes)
        torch.onnx.export(
            program,
            f=str(path),
            input_names=["context", "period"],
            output_names=["quantiles"],
            dynamo=True,
            verbose=False,
            external_data=False,
            optimize=False,  # which takes longer than all else, and runtimes do it themselves
        )
    return Path(path)
