"""The patch forecaster: scales, densities, the network's promises, and what it does with awkward series."""

import itertools
import math

import numpy as np
import pytest
import torch

from fourier_head.errors import UserError
from fourier_head.forecasting.patch.density import ForecastDensity, mixed_entropy
from fourier_head.forecasting.patch.model import PatchConfig, PatchForecaster, naive_error
from fourier_head.forecasting.patch.output import FourierOutput, QuantileOutput
from fourier_head.forecasting.patch.predict import PatchPredictor, batches
from fourier_head.forecasting.patch.pretrained import load_model, save_model
from fourier_head.forecasting.patch.scaling import Scale, fill_forward, scale_of, seasonal_naive

TINY = {"context": 64, "horizon": 32, "patch": 8, "width": 24, "layers": 2, "heads": 2, "frequencies": 5}
NAN = math.nan


def tiny(**more: object) -> PatchForecaster:
    torch.manual_seed(0)
    return PatchForecaster(PatchConfig(**{**TINY, **more})).eval()


def some_density(count: int = 6) -> ForecastDensity:
    g = torch.Generator().manual_seed(3)
    draw = torch.randn(count, 1, 2, 6, generator=g, dtype=torch.float64)
    loc, width = torch.randn(2, count, generator=g, dtype=torch.float64)
    scale = Scale(torch.full((count,), 5.0, dtype=torch.float64), torch.full((count,), 2.0, dtype=torch.float64))
    return ForecastDensity(draw, loc, 0.2 + width.abs(), 0.02, scale)


# --- the density


def grid(d: ForecastDensity, points: int = 40001) -> torch.Tensor:
    """Values whose u are evenly spaced over almost all of the probability."""
    ends = d.loc + d.width * torch.tensor([[-18.0], [18.0]], dtype=torch.float64)
    u = ends[0] + torch.linspace(0, 1, points, dtype=torch.float64)[:, None] * (ends[1] - ends[0])
    return d.scale.from_unit(u.clamp(-29, 29))


def test_the_density_integrates_to_one_and_the_distribution_function_is_its_integral() -> None:
    d = some_density()
    x = grid(d)
    p = d.log_prob(x).exp()
    mass = torch.cumulative_trapezoid(p, x, dim=0)
    # The density jumps at the ends of its interval, so the trapezoid rule is off by half a cell there.
    torch.testing.assert_close(mass[-1], torch.ones(6, dtype=torch.float64), atol=2e-3, rtol=0)
    torch.testing.assert_close(mass, d.cdf(x)[1:] - d.cdf(x[0]), atol=2e-3, rtol=0)


def test_quantiles_invert_the_distribution_function_far_into_the_tails() -> None:
    d = some_density()
    level = torch.tensor([1e-5, 0.002, 0.01, 0.1, 0.5, 0.77, 0.99, 0.9999], dtype=torch.float64)
    torch.testing.assert_close(d.cdf(d.quantile(level)), level[:, None].expand(-1, 6), atol=1e-7, rtol=1e-6)


def test_scores_and_summaries_agree_with_quadrature() -> None:
    d = some_density()
    x = grid(d)
    cdf, outcome = d.cdf(x), torch.tensor(6.0, dtype=torch.float64)
    score = torch.trapezoid((cdf - (x >= outcome).double()) ** 2, x, dim=0)
    # The tails beyond 99.9 % are not part of the score.
    torch.testing.assert_close(d.crps(outcome), score, rtol=0.05, atol=1e-3)
    assert (d.prob(d.mode) >= d.log_prob(x).exp().amax(0) * 0.97).all()


def with_zeros(frequencies: int, tails: float) -> ForecastDensity:
    """Densities of many shapes, one of them zero once in every wave of its highest harmonic."""
    g = torch.Generator().manual_seed(3)
    draw = torch.randn(4, 1, 2, frequencies + 1, generator=g, dtype=torch.float64)
    draw[0] = 0
    draw[0, 0, 0, [0, -1]] = 1
    loc, width = torch.randn(2, 4, generator=g, dtype=torch.float64)
    scale = Scale(torch.full((4,), 5.0, dtype=torch.float64), torch.full((4,), 2.0, dtype=torch.float64))
    return ForecastDensity(draw, loc, 0.2 + width.abs(), tails, scale)


def integrals(d: ForecastDensity, ends: tuple = (-45.0, 45.0)):
    """Return many midpoints u between two places and the corners of d, the log-density there, and how to integrate."""
    low, high = (torch.as_tensor(x, dtype=torch.float64).expand(d.batch_shape) for x in ends)
    corners = [low, *(torch.tensor(x, dtype=torch.float64).clamp(low, high) for x in (-1.0, 0.0, 1.0)), high]
    lengths = [(end - start) * d.width for start, end in itertools.pairwise(corners)]
    share = (torch.arange(20_000, dtype=torch.float64)[:, None] + 0.5) / 20_000
    pieces = [d.loc + d.width * start + length * share for start, length in zip(corners[:-1], lengths, strict=True)]
    log_p = torch.stack([d.log_prob_of_unit(u) for u in pieces])

    def integral(values: torch.Tensor) -> torch.Tensor:
        return (values.mean(1) * torch.stack(lengths)).sum(0)

    return torch.stack(pieces), log_p, integral


@pytest.mark.parametrize("frequencies", [0, 5, 15, 40])
@pytest.mark.parametrize("tails", [0.02, 0.001])  # the central 99.9 % end in the tails, and inside of the interval
def test_moments_and_entropy_are_those_of_quadrature(frequencies: int, tails: float) -> None:
    d = with_zeros(frequencies, tails)
    ends = d.quantile(torch.tensor([0.0005, 0.9995], dtype=torch.float64))
    ends = tuple((d.scale.to_unit(ends) - d.loc) / d.width)
    u, log_p, integral = integrals(d, ends)
    mass = integral(log_p.exp())
    torch.testing.assert_close(mass, torch.full_like(mass, 0.999), rtol=0, atol=1e-6)
    mean = integral(log_p.exp() * d.scale.from_unit(u)) / mass
    square = integral(log_p.exp() * (d.scale.from_unit(u) - mean) ** 2) / mass
    torch.testing.assert_close((d.mean - mean) / square.sqrt(), torch.zeros(4, dtype=torch.float64), rtol=0, atol=1e-6)
    torch.testing.assert_close(d.variance, square, rtol=1e-6, atol=0)
    u, log_p, integral = integrals(d)
    entropy = integral(-log_p.exp() * (log_p - d.scale.log_slope(u)))
    torch.testing.assert_close(d.entropy(), entropy, rtol=0, atol=3e-4)
    narrow = d.to(torch.float32)
    assert narrow.mean.dtype == narrow.variance.dtype == narrow.entropy().dtype == torch.float32
    torch.testing.assert_close(narrow.entropy().double(), entropy, rtol=0, atol=3e-4)


def test_the_entropy_of_a_mixture_is_that_of_quadrature() -> None:
    d, weights = with_zeros(15, 0.01), torch.tensor([0.6, 0.2, 0.1, 0.1], dtype=torch.float64)

    def log_mixture(u: torch.Tensor) -> torch.Tensor:
        return (d.log_prob(d[:1].scale.from_unit(u)) + weights.log()).logsumexp(-1, keepdim=True)

    # Cells of so fine a grid may hold a corner of any part.
    u = torch.linspace(-28, 28, 200_001, dtype=torch.float64)[:, None]
    log_p = log_mixture(u)
    entropy = -torch.trapezoid((log_p + d[:1].scale.log_slope(u)).exp() * log_p, u, dim=0)
    torch.testing.assert_close(mixed_entropy(d.expand((4,))[:, None], weights), entropy, rtol=0, atol=3e-4)


def test_samples_follow_the_density() -> None:
    d = some_density()
    draws = d.sample((20_000,), generator=torch.Generator().manual_seed(0))
    levels = d.cdf(draws).sort(0).values
    uniform = (torch.arange(20_000, dtype=torch.float64)[:, None] + 0.5) / 20_000
    assert (levels - uniform).abs().max() < 1.95 / math.sqrt(20_000)  # Kolmogorov-Smirnov at 0.1 %


def test_indexing_and_expanding_keep_the_numbers() -> None:
    d = some_density()
    torch.testing.assert_close(d[2:4].quantile(0.3), d.quantile(0.3)[2:4])
    assert d.expand((4, 6)).quantile([0.1, 0.9]).shape == (2, 4, 6)


def test_the_training_score_is_the_score_of_the_density_without_tails() -> None:
    output = FourierOutput(frequencies=5, tails=1e-9)
    raw = torch.randn(7, output.size, generator=torch.Generator().manual_seed(0)).double()
    naive, u = torch.randn(2, 7, generator=torch.Generator().manual_seed(1)).double()
    a, loc, width = output.parts(raw, naive)
    v = torch.linspace(-1, 1, 20001, dtype=torch.float64)[:, None]
    from fourier_head import spectrum

    q = spectrum.of_coefficients(a.double(), squares=True)
    cdf = spectrum.cdf(q, v.T.expand(7, -1)).T
    place = (u - loc.double()) / width.double()
    score = torch.trapezoid((cdf - (v >= place).double()) ** 2, v, dim=0)
    score = (score + (place.abs() - 1).clamp_min(0)) * width.double()
    torch.testing.assert_close(output.loss(raw, naive, u).double(), score, rtol=1e-3, atol=1e-3)


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
    back = scale.from_unit(scale.to_unit(rows))
    known = ~rows.isnan()
    torch.testing.assert_close(back[known], rows[known], rtol=1e-4, atol=0)


def test_naive_forecasts() -> None:
    x = torch.tensor([[NAN, 1.0, 2.0, NAN, 4.0], [NAN, NAN, NAN, NAN, 9.0], [NAN] * 5])
    torch.testing.assert_close(fill_forward(x)[0], torch.tensor([NAN, 1.0, 2.0, 2.0, 4.0]), equal_nan=True)
    period = torch.tensor([3, 4, 1])
    expected = torch.tensor([[2.0, 2.0, 4.0, 2.0], [9.0] * 4, [0.0] * 4])
    torch.testing.assert_close(seasonal_naive(x, period, 4), expected)
    error = naive_error(torch.tensor([[1.0, 2.0, 1.0, 2.0], [NAN] * 4]), torch.tensor([1, 1]))
    torch.testing.assert_close(error, torch.tensor([1.0, 1.0]))


# --- the network


def test_leading_blanks_and_a_shorter_horizon_change_nothing() -> None:
    model = tiny()
    x = torch.randn(3, 20, generator=torch.Generator().manual_seed(1)).cumsum(-1)
    padded = torch.nn.functional.pad(x, (44, 0), value=NAN)
    period = torch.tensor([1, 4, 12])
    levels = torch.tensor([0.1, 0.5, 0.9])
    with torch.no_grad():
        full = model.quantiles(padded, period, levels)
        torch.testing.assert_close(model.quantiles(x, period, levels), full, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(model.quantiles(x, period, levels, 5), full[:, :5], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("head", ["fourier", "quantile"])
def test_a_forecast_moves_and_stretches_with_its_series(head: str) -> None:
    model = tiny(head=head)
    x = torch.randn(2, 30, generator=torch.Generator().manual_seed(1)).cumsum(-1) - 100
    period, levels = torch.tensor([1, 7]), torch.tensor([0.2, 0.5])
    with torch.no_grad():
        before, after = (model.quantiles(y, period, levels) for y in (x, 1000 * x))
    torch.testing.assert_close(after, 1000 * before, rtol=1e-3, atol=1.0)


HEADS = [{}, {"packets": 2}, {"loss": "nll"}, {"loss": "both"}, {"head": "quantile"}]


def gradients(model: PatchForecaster, *batch: torch.Tensor) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    model.zero_grad()
    loss = model.loss(*batch, even=0.5)
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
    forecast = PatchPredictor(model)(contexts, 12, "ME")
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


def test_quantile_heads_interpolate_between_their_levels() -> None:
    model = tiny(head="quantile")
    assert isinstance(model.output, QuantileOutput)
    x, period = torch.randn(2, 30, generator=torch.Generator().manual_seed(1)), torch.tensor([1, 1])
    with torch.no_grad():
        q = model.quantiles(x, period, torch.tensor([0.1, 0.15, 0.2, 0.5]))
    assert (q.diff(dim=-1) >= 0).all()
    with pytest.raises(ValueError, match="quantiles only"):
        model.density(x, period)


def test_models_are_saved_and_loaded(tmp_path) -> None:
    model = tiny()
    save_model(model, tmp_path / "m", torch.float32)
    x, period, levels = torch.randn(2, 30), torch.tensor([1, 7]), torch.tensor([0.5])
    with torch.no_grad():
        torch.testing.assert_close(
            load_model(tmp_path / "m").quantiles(x, period, levels), model.quantiles(x, period, levels)
        )
    (tmp_path / "m" / "model.safetensors").write_bytes(b"nothing")
    with pytest.raises(UserError, match="does not hold a forecaster"):
        load_model(tmp_path / "m")
    with pytest.raises(UserError, match="neither a folder"):
        load_model(tmp_path / "nowhere")


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
