"""Export a forecaster as an ONNX graph: raw values in, quantiles out, for any runtime that has no Python."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

from fourier_head._files import write_atomically
from fourier_head.errors import needs_extra
from fourier_head.forecasting.forecaster import Forecaster
from fourier_head.forecasting.rolling import Rolling, normalise

DECILES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)


class QuantileGraph(nn.Module):
    """Take values (series, context) and periods (series,), give quantiles (series, horizon, levels).

    The same steps as `Forecaster.predict` in one pass; what keeps quantiles to whole numbers or above zero is left to
    the caller.
    """

    levels: Tensor

    def __init__(self, forecaster: Forecaster, horizon: int, levels: Sequence[float]):
        super().__init__()
        self.model, self.horizon = forecaster.model, horizon
        self.rolling = Rolling(self.model, horizon, 1)
        self.register_buffer("levels", torch.tensor(sorted(levels), dtype=torch.float64), persistent=False)

    def forward(self, values: Tensor, periods: Tensor) -> Tensor:
        past, unit, shift = normalise(values)
        outputs, naive, map = self.model(past.float(), periods, self.horizon)
        loc, scale = torch.as_tensor(map.loc), torch.as_tensor(map.scale)
        parts = (outputs.float(), unit * naive.double() + shift, unit * loc.double() + shift, unit * scale.double())
        density = self.rolling._density(*(part.unsqueeze(0) for part in parts))
        return density.quantile(self.levels).permute(1, 2, 0)


def export_onnx(
    forecaster: Forecaster,
    path: str | Path,
    horizon: int = 24,
    levels: Sequence[float] = DECILES,
    context: int | None = None,
) -> Path:
    """Write a graph with the inputs ``values`` and ``periods`` and the output ``quantiles``; the batch is open.

    Shorter series are filled up with NaN in front; missing values are NaN, too. What the graph expects is in the
    metadata of the file: ``horizon``, ``levels``, ``context``.

    Args:
        forecaster: a `Forecaster`, on the CPU.
        path: file to write.
        horizon: steps ahead, at most what the network reaches in one pass.
        levels: of the quantiles.
        context: values of the past that the graph takes, as many as the network reads unless given.
    """
    try:
        import onnx
        import onnxscript  # noqa: F401 (torch needs it)
    except ImportError as error:
        raise needs_extra(error, "export") from None
    config = forecaster.config
    if not 1 <= horizon <= config.horizon:
        raise ValueError(f"horizon must be from 1 to {config.horizon}, what one pass reaches, got {horizon}.")
    if not levels or not all(0 < level < 1 for level in levels):
        raise ValueError(f"levels must lie strictly between 0 and 1, got {list(levels)}.")
    context = config.context if context is None else context
    graph = QuantileGraph(forecaster, horizon, levels).eval()
    values = torch.randn(3, context, dtype=torch.float64).cumsum(-1)
    values[1, : context // 2] = torch.nan
    periods = torch.tensor([1, 7, 12])
    series = torch.export.Dim("series", min=2)
    with torch.no_grad():
        program = torch.export.export(
            graph, (values, periods), dynamic_shapes={"values": {0: series}, "periods": {0: series}}
        )
    made = torch.onnx.export(
        program, dynamo=True, verbose=False, input_names=["values", "periods"], output_names=["quantiles"]
    )
    assert made is not None
    proto = made.model_proto
    about = {"horizon": horizon, "levels": sorted(levels), "context": context}
    onnx.helper.set_model_props(proto, {key: json.dumps(value) for key, value in about.items()})
    write_atomically(Path(path), proto.SerializeToString())
    return Path(path)
