"""A forecaster as an ONNX graph gives the quantiles that it gives itself."""

import numpy as np
import pytest

from fourier_head.forecasting.forecaster import Forecaster
from tests.forecasting.test_forecaster import tiny, walk

LEVELS = [0.01, 0.1, 0.5, 0.9, 0.99]


@pytest.mark.slow  # torch takes minutes to write a graph
@pytest.mark.parametrize("make", [tiny, lambda: Forecaster.from_pretrained("small", "cpu")])
def test_onnx_gives_the_same_quantiles(make, tmp_path):
    pytest.importorskip("onnxscript")
    runtime = pytest.importorskip("onnxruntime")
    forecaster = make()
    path = forecaster.to_onnx(tmp_path / "new" / "forecaster.onnx", 12, LEVELS)
    pasts = [walk(50), 1e9 * walk(20, 1), 1e6 + walk(60, 2), np.full(30, 5.0), walk(9, 3)]
    pasts[0][20:24] = np.nan
    context = np.full((len(pasts), forecaster.config.context), np.nan)
    for row, past in zip(context, pasts, strict=True):
        row[-len(past) :] = past
    period = np.full(len(pasts), 12)
    (found,) = runtime.InferenceSession(str(path)).run(None, {"context": context, "period": period})
    want = forecaster.predict(pasts, 12, freq="MS", natural=False, rules=False).quantiles(LEVELS)
    scale = np.array([max(np.nanstd(past), 1e-3 * np.nanmean(past)) for past in pasts])
    np.testing.assert_allclose(found / scale[:, None, None], want / scale[:, None, None], rtol=1e-4, atol=1e-3)


def test_what_a_graph_cannot_do_is_said(tmp_path):
    forecaster = tiny()
    for horizon, levels, words in (
        (17, [0.5], "from 1 to 16"),
        (4, [0.5, 0.1], "levels must ascend"),
        (4, [], "levels must ascend"),
    ):
        with pytest.raises(ValueError, match=words):
            forecaster.to_onnx(tmp_path / "model.onnx", horizon, levels)
