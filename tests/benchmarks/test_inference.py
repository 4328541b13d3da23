"""What the benchmark of inference asks of densities: every way runs, and gives numbers that can be."""

import torch

from benchmarks import inference

ROWS = 4


def test_every_way_of_a_forecast_runs():
    with torch.no_grad():
        for task, ways in inference.forecasts(ROWS, "cpu").items():
            assert sum("FourierHead" in name for name in ways) == 4
            for name, (count, step) in ways.items():
                found = step()
                assert count == ROWS
                assert found.shape[-1] in (ROWS, 9, 1), (task, name)
                assert found.float().isfinite().all()
                if task == "distribution function":
                    assert ((found >= 0) & (found <= 1)).all()
