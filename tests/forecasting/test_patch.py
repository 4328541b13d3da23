"""The network as the forecaster uses it: scales, its promises, awkward series, batches, and networks on disk."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch

from fourier_head.domains.maps import Affine, Asinh
from fourier_head.errors import UserError
from fourier_head.forecasting.forecaster import Forecaster
from fourier_head.forecasting.patch.multiscale import DITHER, MultiscaleConfig, MultiscaleForecaster
from fourier_head.forecasting.patch.predict import batches
from fourier_head.forecasting.patch.pretrained import load_model, save_model
from fourier_head.forecasting.patch.scaling import fill_forward, scale_of

TINY = {"spans": (32, 96), "horizon": 32, "patch": 8, "width": 24, "layers": 2, "heads": 2, "frequencies": 5}
NAN = math.nan


def tiny(**more: object) -> MultiscaleForecaster:
    torch.manual_seed(0)
    return MultiscaleForecaster(MultiscaleConfig(**{**TINY, **more})).eval()


def quantiles(model: MultiscaleForecaster, context: torch.Tensor, period: torch.Tensor, levels: list) -> torch.Tensor:
    """Return quantiles (B, horizon, levels)."""
    with torch.no_grad():
        return model.density(context, period).quantile(levels).movedim(0, -1)


# --- scales


def test_scales_survive_what_users_send() -> None:
    rows = torch.tensor(
        [
            [NAN, NAN, NAN, NAN],
            [NAN, NAN, NAN, 7.0],
            [3.0, 3.0, 3.0, 3.0],
            [0.0, 0.0, 0.0, 0.0],
            [1e30, 2e30, NAN, 3e30],
            [1e-30, 2e-30, 3e-30, 1e-30],
        ]
    )
    scale = scale_of(rows)
    assert scale.loc.isfinite().all()
    assert (scale.scale > 0).all()
    back = scale.inverse(scale.forward(rows))
    known = ~rows.isnan()
    torch.testing.assert_close(back[known], rows[known], rtol=1e-4, atol=0)
    assert isinstance(scale, Asinh)
    assert isinstance(scale_of(rows, bend=False), Affine)


def test_old_values_count_less_in_a_scale() -> None:
    values = torch.cat([torch.full((1, 900), 100.0), torch.zeros(1, 100)], dim=1)
    assert 0 < float(scale_of(values, recent=10).loc) < 10
    assert float(scale_of(values, recent=10_000).loc) == pytest.approx(90, abs=1)


def test_gaps_are_filled_with_the_value_before() -> None:
    x = torch.tensor([[NAN, 1.0, 2.0, NAN, 4.0], [NAN] * 5])
    expected = torch.tensor([[NAN, 1.0, 2.0, 2.0, 4.0], [NAN] * 5])
    torch.testing.assert_close(fill_forward(x), expected, equal_nan=True)


# --- the network


def test_a_forecast_stretches_with_its_series() -> None:
    model = tiny()
    x = torch.randn(2, 30, generator=torch.Generator().manual_seed(1)).cumsum(-1) - 100
    period = torch.tensor([1, 7])
    before, after = (quantiles(model, y, period, [0.2, 0.5]) for y in (x, 1000 * x))
    torch.testing.assert_close(after, 1000 * before, rtol=1e-3, atol=1.0)


LOSSES = ["crps", "nll", "both"]


def gradients(model: MultiscaleForecaster, *batch: torch.Tensor) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    model.zero_grad()
    torch.manual_seed(0)  # of the noise on outcomes
    loss = model.loss(*batch)
    loss.backward()
    return loss.detach(), {name: weight.grad.clone() for name, weight in model.named_parameters()}


@pytest.mark.parametrize("loss", LOSSES)
def test_gradients_reach_every_weight_whatever_the_series_are(loss: str) -> None:
    g = torch.Generator().manual_seed(0)
    context, future = torch.randn(5, 96, generator=g), torch.randn(5, 32, generator=g)
    context[0], context[1, :90], context[2] = NAN, NAN, 4.0
    future[3, 5:], future[4] = NAN, 1e9
    value, found = gradients(tiny(loss=loss).train(), context, future, torch.tensor([1, 2, 7, 12, 24]))
    assert value.isfinite()
    for name, gradient in found.items():
        assert gradient.isfinite().all(), name
        assert gradient.abs().max() > 1e-5, name


@pytest.mark.parametrize("loss", LOSSES)
def test_outcomes_that_are_missing_change_neither_loss_nor_gradients(loss: str) -> None:
    model, g = tiny(loss=loss), torch.Generator().manual_seed(0)
    context, future = torch.randn(3, 96, generator=g), torch.randn(3, 32, generator=g)
    period = torch.tensor([1, 7, 12])
    value, found = gradients(model, context, future, period)
    unknown = torch.full((1, 32), NAN)
    more_rows = torch.cat([context, 100 * context[:1]]), torch.cat([future, unknown]), torch.tensor([1, 7, 12, 4])
    again, also = gradients(model, *more_rows)
    torch.testing.assert_close(again, value)
    for name, gradient in found.items():
        torch.testing.assert_close(also[name], gradient, rtol=1e-3, atol=1e-5, msg=name)
    future[0, 5:] = NAN
    assert not torch.allclose(gradients(model, context, future, period)[0], value)


@pytest.mark.parametrize("loss", LOSSES)
def test_the_loss_is_that_of_the_density_in_the_coordinate_of_its_map(loss: str, monkeypatch) -> None:
    monkeypatch.setattr("fourier_head.forecasting.patch.multiscale.DITHER", 0.0)
    assert DITHER > 0
    model = tiny(loss=loss, even=0.0)
    g = torch.Generator().manual_seed(0)
    context, future = 50 + torch.randn(3, 64, generator=g), 50 + torch.randn(3, 32, generator=g)
    future[1, 7:] = NAN
    period = torch.tensor([1, 7, 12])
    outputs, naive, map = model(context, period)
    density = model.head.density_of(outputs, anchor=map.forward(naive))  # of u, which is what training goes by
    u = map.forward(future)
    known, safe = ~u.isnan(), u.nan_to_num()
    score = density.crps(safe) if loss != "nll" else 0.0
    if loss != "crps":
        score = score - (1.0 if loss == "nll" else model.config.likelihood) * density.log_prob(safe)
    torch.testing.assert_close(model.loss(context, future, period), score[known].mean(), rtol=1e-4, atol=1e-5)


def test_a_network_with_these_weights_says_what_it_always_said() -> None:
    """So that a change of the code is no change of forecasts: weights of a formula, quantiles of an earlier version."""
    model = tiny(spread=(0.1, -0.1, 0.2))
    with torch.no_grad():
        for number, parameter in enumerate(model.parameters()):
            wave = torch.sin(torch.arange(parameter.numel()) * (1 + 0.1 * number) + number)
            parameter.copy_(wave.view(parameter.shape) / math.sqrt(parameter.shape[-1]) + (parameter.dim() == 1) * 0.5)
    content = json.loads(Path(__file__).with_name("network_quantiles.json").read_text())
    context = torch.tensor([[NAN if x is None else x for x in row] for row in content["context"]])
    found = quantiles(model, context, torch.tensor(content["period"]), content["levels"])
    torch.testing.assert_close(found, torch.tensor(content["quantiles"]), rtol=1e-3, atol=1e-3)


def test_awkward_series_get_finite_forecasts_that_do_not_cross() -> None:
    model = tiny()
    contexts = [
        np.full(10, np.nan),
        np.array([5.0]),
        np.zeros(30),
        np.full(30, 1e-9),
        np.r_[np.zeros(20), 3.0, np.zeros(5)],
        np.linspace(1e11, 2e11, 40),
        np.zeros(0),
        np.arange(500.0),
    ]
    with pytest.warns(UserWarning, match="hold no value"):
        forecast = Forecaster(model)(contexts, 12, "ME")
    assert np.isfinite(forecast.quantiles).all()
    assert (np.diff(forecast.quantiles, axis=-1) >= 0).all()


def test_batches_hold_every_series_once_at_its_right_end() -> None:
    rng = np.random.default_rng(0)
    contexts = [rng.normal(size=n) for n in rng.integers(0, 100, 57)]
    seen = np.zeros(57, dtype=int)
    for chosen, block in batches(contexts, longest=64, patch=8, tokens=40):
        seen[chosen] += 1
        assert block.shape[1] % 8 == 0
        for number, row in zip(chosen, block.numpy(), strict=True):
            values = contexts[number][-64:]
            np.testing.assert_array_equal(row[len(row) - len(values) :], values.astype(np.float32))
            assert np.isnan(row[: len(row) - len(values)]).all()
    assert (seen == 1).all()


# --- on disk


def test_models_are_saved_and_loaded(tmp_path) -> None:
    model = tiny()
    save_model(model, tmp_path / "m", torch.float32)
    x, period = torch.randn(2, 30), torch.tensor([1, 7])
    torch.testing.assert_close(
        quantiles(load_model(tmp_path / "m"), x, period, [0.5]), quantiles(model, x, period, [0.5])
    )
    (tmp_path / "m" / "model.safetensors").write_bytes(b"nothing")
    with pytest.raises(UserError, match="does not hold a forecaster"):
        load_model(tmp_path / "m")
    with pytest.raises(UserError, match="neither a folder"):
        load_model(tmp_path / "nowhere")


def test_networks_of_another_kind_are_refused(tmp_path) -> None:
    save_model(tiny(), tmp_path / "m")
    content = json.loads((tmp_path / "m" / "config.json").read_text())
    (tmp_path / "m" / "config.json").write_text(json.dumps({**content, "kind": "patch-forecaster"}))
    with pytest.raises(UserError, match="'patch-forecaster', not 'multiscale'"):
        load_model(tmp_path / "m")


def test_the_shipped_network_reads_far_and_reaches_far(shipped) -> None:
    assert shipped.config.context >= 2048
    assert shipped.config.horizon >= 256


def test_tails_are_sane_where_the_truth_is_known(shipped) -> None:
    """N(100, 10): deviation, mean of samples, far levels, totals of 14 steps, of which 99 % are below 1487."""
    rng = np.random.default_rng(0)
    forecasts = shipped.predict(rng.normal(100, 10, (20, 200)), 14, freq="D")
    deviation = forecasts.density.stddev.numpy()
    assert 8 < np.median(deviation) < 25
    assert deviation.max() < 60
    far = np.median(forecasts.quantiles([0.001, 0.005, 0.995, 0.999]), axis=(0, 1))
    error = np.abs(far - np.array([69.1, 74.2, 125.8, 130.9]))
    assert (error[1:3] < 60).all()
    assert (error < 250).all()
    samples = forecasts.samples(500, torch.Generator().manual_seed(0))
    assert abs(samples.mean() - 100) < 3
    assert np.quantile(samples.sum(-1), 0.99) < 1750
