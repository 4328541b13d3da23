"""The patch forecaster: scales, the network's promises, its heads, and what it does with awkward series."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch

from fourier_head.domains.maps import Affine, Asinh
from fourier_head.errors import UserError
from fourier_head.forecasting.forecaster import Forecaster
from fourier_head.forecasting.patch.model import PatchConfig, PatchForecaster, naive_error
from fourier_head.forecasting.patch.predict import batches
from fourier_head.forecasting.patch.pretrained import load_model, save_model, shipped
from fourier_head.forecasting.patch.scaling import fill_forward, scale_of, seasonal_naive

TINY = {"context": 64, "horizon": 32, "patch": 8, "width": 24, "layers": 2, "heads": 2, "frequencies": 5}
NAN = math.nan


def tiny(**more: object) -> PatchForecaster:
    torch.manual_seed(0)
    return PatchForecaster(PatchConfig(**{**TINY, **more})).eval()


def quantiles(model: PatchForecaster, context: torch.Tensor, period: torch.Tensor, levels: list, *horizon: int):
    """Return quantiles (B, horizon, levels)."""
    with torch.no_grad():
        return model.density(context, period, *horizon).quantile(levels).movedim(0, -1)


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


def test_naive_forecasts() -> None:
    x = torch.tensor([[NAN, 1.0, 2.0, NAN, 4.0], [NAN, NAN, NAN, NAN, 9.0], [NAN] * 5])
    torch.testing.assert_close(fill_forward(x)[0], torch.tensor([NAN, 1.0, 2.0, 2.0, 4.0]), equal_nan=True)
    period = torch.tensor([3, 4, 1])
    expected = torch.tensor([[2.0, 2.0, 4.0, 2.0], [9.0] * 4, [NAN] * 4])
    torch.testing.assert_close(seasonal_naive(x, period, 4), expected, equal_nan=True)
    error = naive_error(torch.tensor([[1.0, 2.0, 1.0, 2.0], [NAN] * 4]), torch.tensor([1, 1]))
    torch.testing.assert_close(error, torch.tensor([1.0, 1.0]))


# --- the network


def test_leading_blanks_and_a_shorter_horizon_change_nothing() -> None:
    model = tiny()
    x = torch.randn(3, 20, generator=torch.Generator().manual_seed(1)).cumsum(-1)
    padded = torch.nn.functional.pad(x, (44, 0), value=NAN)
    period = torch.tensor([1, 4, 12])
    levels = [0.1, 0.5, 0.9]
    full = quantiles(model, padded, period, levels)
    torch.testing.assert_close(quantiles(model, x, period, levels), full, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(quantiles(model, x, period, levels, 5), full[:, :5], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("head", ["fourier", "quantile"])
def test_a_forecast_stretches_with_its_series(head: str) -> None:
    model = tiny(head=head)
    x = torch.randn(2, 30, generator=torch.Generator().manual_seed(1)).cumsum(-1) - 100
    period = torch.tensor([1, 7])
    before, after = (quantiles(model, y, period, [0.2, 0.5]) for y in (x, 1000 * x))
    torch.testing.assert_close(after, 1000 * before, rtol=1e-3, atol=1.0)


HEADS = [{}, {"packets": 2}, {"loss": "nll"}, {"loss": "both"}, {"head": "quantile"}]


def gradients(model: PatchForecaster, *batch: torch.Tensor) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    model.zero_grad()
    loss = model.loss(*batch, naive_weighting=0.5)
    loss.backward()
    return loss.detach(), {name: weight.grad.clone() for name, weight in model.named_parameters()}


@pytest.mark.parametrize("more", HEADS)
def test_gradients_reach_every_weight_whatever_the_series_are(more: dict) -> None:
    g = torch.Generator().manual_seed(0)
    context, future = torch.randn(5, 64, generator=g), torch.randn(5, 32, generator=g)
    context[0], context[1, :60], context[2] = NAN, NAN, 4.0
    future[3, 5:], future[4] = NAN, 1e9
    loss, found = gradients(tiny(**more).train(), context, future, torch.tensor([1, 2, 7, 12, 24]))
    assert loss.isfinite()
    for name, gradient in found.items():
        assert gradient.isfinite().all(), name
        assert gradient.abs().max() > 1e-4, name


@pytest.mark.parametrize("more", HEADS)
def test_outcomes_that_are_missing_change_neither_loss_nor_gradients(more: dict) -> None:
    model, g = tiny(**more), torch.Generator().manual_seed(0)
    context, future = torch.randn(3, 64, generator=g), torch.randn(3, 32, generator=g)
    period = torch.tensor([1, 7, 12])
    loss, found = gradients(model, context, future, period)
    unknown = torch.full((1, 32), NAN)
    more_rows = torch.cat([context, 100 * context[:1]]), torch.cat([future, unknown]), torch.tensor([1, 7, 12, 4])
    again, also = gradients(model, *more_rows)
    torch.testing.assert_close(again, loss)
    for name, gradient in found.items():
        torch.testing.assert_close(also[name], gradient, rtol=1e-3, atol=1e-5, msg=name)
    future[0, 5:] = NAN
    assert not torch.allclose(gradients(model, context, future, period)[0], loss)


@pytest.mark.parametrize("loss", ["crps", "nll", "both"])
def test_the_loss_is_that_of_the_density_in_the_coordinate_of_its_map(loss: str) -> None:
    model = tiny(loss=loss)
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
        score = score - (1.0 if loss == "nll" else 0.05) * density.log_prob(safe)
    torch.testing.assert_close(model.loss(context, future, period), score[known].mean())


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


def test_quantile_heads_interpolate_between_their_levels_and_say_nothing_beyond() -> None:
    model = tiny(head="quantile")
    with torch.no_grad():
        model.head.proj.bias.add_(0.1 * torch.randn(model.head.proj.bias.shape))
    x, period = torch.randn(2, 30, generator=torch.Generator().manual_seed(1)), torch.tensor([1, 1])
    with torch.no_grad():
        density = model.density(x, period)
    u = density.map.forward(density.quantile([0.05, 0.1, 0.15, 0.2, 0.5]))
    torch.testing.assert_close(u[2], (u[1] + u[3]) / 2)
    torch.testing.assert_close(u[0], u[1])
    torch.testing.assert_close(density[1:].quantile(0.5), density.quantile(0.5)[1:])
    forecast = Forecaster(model)([x[0].numpy()], 5, None)
    np.testing.assert_allclose(forecast.quantiles[0, :, 6], density.quantile(0.5)[0, :5], rtol=1e-3, atol=1e-3)
    with pytest.raises(ValueError, match="nine quantiles only, of 32 steps, got 33"):
        Forecaster(model).predict([x[0].numpy()], 33)


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


@pytest.mark.skipif("small" not in shipped(), reason="the package has no weights yet")
def test_weights_of_before_give_the_forecasts_of_before() -> None:
    """Quantiles of the release whose network had a head of its own, in deviations of each series."""
    content = json.loads(Path(__file__).with_name("shipped_quantiles.json").read_text())
    forecaster = Forecaster.from_pretrained("small", "cpu")
    for one in content["series"]:
        values = np.array([NAN if value is None else value for value in one["values"]])
        found = forecaster.predict(values, one["horizon"], freq=one["freq"], natural=False).quantiles(content["levels"])
        error = np.abs(found[0, np.array(one["steps"]) - 1] - one["quantiles"]) / np.nanstd(values)
        assert error[np.array(one["steps"]) <= 64].max() < 1e-4, one["name"]
        # Farther steps are mixed from paths, and at 1 % the tails of some, lighter than they were, have a say.
        assert error.max() < 0.01, one["name"]
        assert error[:, 2:-2].max() < 1e-4, one["name"]


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"context": 60}, "context must be a positive multiple of patch=8, got 60"),
        ({"heads": 5}, "width must be a multiple of twice heads=5, got 24"),
        ({"head": "linear"}, "head must be"),
        ({"loss": "mse"}, "loss must be"),
    ],
)
def test_bad_shapes_get_a_sentence(more: dict, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        PatchConfig(**{**TINY, **more})


def test_tails_are_sane_where_the_truth_is_known() -> None:
    """N(100, 10): deviation, mean of samples, far levels, totals of 14 steps; 179, 5e7 and 5606 (true 1487) before."""
    rng = np.random.default_rng(0)
    forecasts = Forecaster.from_pretrained("small", "cpu").predict(rng.normal(100, 10, (20, 200)), 14, freq="D")
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
