"""The network: what it reads, how far it reaches, its seasons, its data and its training."""

import json
import math
import time
from dataclasses import replace

import numpy as np
import pytest
import torch

from fourier_head.errors import UserError
from fourier_head.forecasting.corpora.buckets import BUCKETS, BucketStream, without
from fourier_head.forecasting.corpora.fine import FineSynth
from fourier_head.forecasting.corpora.readers import join
from fourier_head.forecasting.corpora.store import SeriesStore
from fourier_head.forecasting.corpora.synthetic import PlainSynth
from fourier_head.forecasting.evaluation import EvaluationSet
from fourier_head.forecasting.forecaster import Forecaster
from fourier_head.forecasting.patch.calibrate import fit_spread
from fourier_head.forecasting.patch.multiscale import MultiscaleConfig, MultiscaleForecaster
from fourier_head.forecasting.patch.pretrain import VARIANTS, Variant, main, start_from
from fourier_head.forecasting.patch.pretrained import load_model, save_model
from fourier_head.forecasting.patch.seasons import found_period, same_phase, seasons_of
from fourier_head.training.loop import seconds_spent
from fourier_head.training.muon import Muon

SHAPE = {"spans": (64, 192, 960), "horizon": 128, "patch": 8, "width": 24, "layers": 2, "heads": 2}


def network(**options):
    torch.manual_seed(0)
    model = MultiscaleForecaster(MultiscaleConfig(**{**SHAPE, **options})).eval()
    with torch.no_grad():  # the guesses are mixed evenly at first, whatever the network says
        model.choose.weight.normal_(std=0.1)
        model.head.proj.weight.normal_(std=0.1)
    return model


def test_a_longer_horizon_and_empty_steps_before_a_series_change_nothing():
    model, period = network(), torch.tensor([1, 12, 24])
    past = torch.randn(3, 700).cumsum(1)
    short, naive, _ = model(past, period, 20)
    assert torch.allclose(short, model(past, period, 128)[0][:, :20], atol=1e-5)
    padded = torch.cat([torch.full((3, 90), torch.nan), past], dim=1)
    assert torch.allclose(short, model(padded, period, 20)[0], atol=1e-4)
    assert torch.allclose(naive, model(padded, period, 20)[1], atol=1e-4)


@pytest.mark.parametrize("place", [3, 100, 400, 900])
def test_every_level_of_the_past_is_read(place):
    model = network()
    past = torch.randn(1, 960)
    before = model(past, torch.ones(1).long(), 8)[0]
    past[0, -place - 8 : -place] += 3.0
    assert (model(past, torch.ones(1).long(), 8)[0] - before).abs().max() > 1e-4


def test_an_empty_series_and_one_value_have_forecasts():
    past = torch.full((2, 5), torch.nan)
    past[1, -1] = 7.0
    density = network().density(past, torch.tensor([1, 12]), 3)
    assert torch.isfinite(density.quantile([0.1, 0.5, 0.9])).all()


def test_series_of_hours_have_a_day_a_week_and_a_year():
    assert seasons_of(torch.tensor([24])).tolist() == [[24, 168, 8736]]
    week = torch.randn(168).repeat(4)[None]
    values, there = same_phase(week, seasons_of(torch.tensor([24])), torch.arange(300))
    truth = week[0, :168].repeat(2)[:300]
    assert torch.equal(values[0, :, 1, 0], truth)
    assert there[0, :, 1].sum(-1).tolist() == [4] * 300


def test_a_period_that_nobody_told_is_found_despite_noise_and_gaps():
    generator = torch.Generator().manual_seed(0)
    time = torch.arange(240.0)
    wave = torch.sin(2 * torch.pi * time / 11) + 0.3 * torch.randn(240, generator=generator)
    wave[::7] = torch.nan
    noise = torch.randn(240, generator=generator)
    assert found_period(torch.stack([wave, noise])).tolist() == [11, 1]


def test_the_loss_of_drawn_patches_is_the_mean_over_them():
    model = network(loss="crps")
    past, future = torch.randn(4, 100), torch.randn(4, 128)
    future[:, 90:] = torch.nan
    period = torch.full((4,), 7)
    each = torch.stack([model.loss(past, future, period, torch.tensor([i])) for i in (0, 3, 15)])
    both = model.loss(past, future, period, torch.tensor([3, 0]))
    assert torch.allclose(both, each[:2].mean(), atol=1e-6)
    assert each[2] == 0  # nothing is known there


def test_it_forecasts_beyond_its_reach_and_survives_saving(tmp_path):
    forecaster = Forecaster(network())
    series = [np.sin(np.arange(n) / 4) + 5 for n in (30, 1500)]
    forecasts = forecaster.predict(series, 200, freq="h")
    quantiles = forecasts.quantiles([0.1, 0.5, 0.9])
    assert quantiles.shape == (2, 200, 3)
    assert (np.diff(quantiles) > 0).all()
    save_model(forecaster.model, tmp_path / "mine", torch.float32)
    again = Forecaster(load_model(tmp_path / "mine")).predict(series, 200, freq="h")
    assert np.allclose(again.quantiles([0.1, 0.5, 0.9]), quantiles)


def test_spread_widens_densities_by_how_far_ahead_they_are():
    past, period = torch.randn(3, 200), torch.tensor([1, 7, 24])
    usual, wide = network(bend=False), network(bend=False, spread=(0.0, 0.0, 0.0, math.log(2)))
    wide.load_state_dict(usual.state_dict())
    size = [model.density(past, period, 128).quantile([0.1, 0.9]).diff(dim=0)[0] for model in (usual, wide)]
    ratio = size[1] / size[0]
    assert torch.allclose(ratio[:, :16], torch.ones(3, 16), atol=1e-3)  # up to 16 steps
    assert torch.allclose(ratio[:, 63:], torch.full((3, 65), 2.0), atol=0.02)  # from 64 on
    assert (ratio[:, 16:63].diff(dim=-1) > 0).all()


def test_the_spread_that_held_out_series_ask_for_is_found():
    rng = np.random.default_rng(0)
    series = rng.normal(size=(16, 328))
    series[:, 216:] *= 4  # the last 128 steps are the outcomes: from the 17th on they lie four times as far apart
    model = network(bend=False)
    spread = fit_spread(model, [EvaluationSet("noise/1", list(series.astype(np.float32)), 128, 1, None)])
    assert model.config.spread == ()
    assert len(spread) == 5
    assert spread[3] > spread[1] + 0.5


def hard_windows():
    """Pasts and futures that a stream of real series may hold one day, by what is odd about them."""
    past, future = torch.sin(torch.arange(200.0) / 5) + 5, torch.randn(16, generator=torch.Generator().manual_seed(0))
    empty, one = torch.full((200,), torch.nan), torch.full((200,), torch.nan)
    one[-1] = 3.0
    odd, broken = past.clone(), past.clone()
    odd[-1], broken[50], broken[-1] = 1e6, torch.inf, -torch.inf
    return {
        "usual": (past, future),
        "far away": (past, 1e6 * future),
        "constant": (torch.full((200,), 5.0), torch.full((16,), 5.0)),
        "constant, then far away": (torch.full((200,), 5.0), torch.full((16,), 1e6)),
        "zeros": (torch.zeros(200), torch.zeros(16)),
        "zeros, then far away": (torch.zeros(200), torch.full((16,), -1e6)),
        "nothing": (empty, future),
        "nothing at all": (empty, torch.full((16,), torch.nan)),
        "one value": (one, future),
        "one value, then far away": (one, 1e30 * future),
        "odd end": (odd, future),
        "largest numbers": (past * 1e37, future * 1e37),
        "smallest numbers": (past * 1e-38, future * 1e-38),
        "infinite values": (broken, torch.where(future > 1, torch.inf, future)),
    }


@pytest.mark.parametrize(
    ("impl", "half", "bend"), [("auto", False, True), ("reference", True, True), ("reference", False, False)]
)
def test_gradients_of_odd_windows_are_finite(impl, half, bend):
    # The width and head of the recipe; large weights stand for those of a trained network, narrow densities included.
    torch.manual_seed(0)
    model = MultiscaleForecaster(MultiscaleConfig(spans=(64, 256), horizon=16, width=384, layers=1, heads=6, bend=bend))
    with torch.no_grad():
        model.head.proj.weight.mul_(100)
        model.head.proj.bias.unflatten(0, (16, -1))[:8, -2] = -20.0
    model.head.impl = impl
    windows = hard_windows()
    rows = []
    for past, future in windows.values():
        with torch.autocast("cpu", torch.bfloat16, enabled=half):
            asked = model.asked(past[None], future[None], torch.tensor([12]), torch.tensor([0]))
            rows.append(model.scores(*asked).sum())
    for name, loss in zip(windows, rows, strict=True):
        gradients = torch.autograd.grad(loss, list(model.parameters()), retain_graph=True, allow_unused=True)
        assert torch.isfinite(loss), name
        assert all(torch.isfinite(g).all() for g in gradients if g is not None), name


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"spans": (64, 100)}, "spans"),
        ({"horizon": 100}, "horizon"),
        ({"loss": "mse"}, "loss"),
        ({"seasons": 9}, "seasons"),
    ],
)
def test_shapes_that_cannot_be_are_refused(options, words):
    with pytest.raises(ValueError, match=words):
        MultiscaleConfig(**{**SHAPE, **options})


@pytest.mark.parametrize("source", [FineSynth(512, 64), PlainSynth(128, 32)])
def test_artificial_series_are_finite_and_the_same_for_a_seed(source):
    first, again = (source.sample(64, torch.Generator().manual_seed(3)) for _ in range(2))
    assert torch.equal(first.values.nan_to_num(), again.values.nan_to_num())
    assert torch.equal(first.period, again.period)
    assert not first.future.isinf().any()
    assert not first.context.isinf().any()
    assert (~first.context.isnan()).any(1).all()
    assert not first.future.isnan().any()
    assert len(first.period.unique()) > 3


def test_buckets_have_their_shapes_and_a_stream_goes_on_where_it_stopped():
    store = SeriesStore.from_series([np.random.default_rng(i).normal(size=1800) for i in range(3)], period=24)
    small = [
        one.__class__(**{**vars(one), "context": one.context // 8, "horizon": one.horizon // 4}) for one in BUCKETS
    ]
    stream = BucketStream(store, 32, seed=1, buckets=small)
    batch = next(stream)
    assert [tuple(t.shape[1:]) for t in batch[::3]] == [(32,), (256,), (1280,)]
    patches = BUCKETS[2].patches(16, torch.device("cpu"))  # of 64
    assert patches[:2].tolist() == [0, 1]
    assert len(patches.unique()) == 16
    assert int(patches.max()) < 64
    state = stream.state_dict()
    expected = next(stream)
    other = BucketStream(store, 32, seed=1, buckets=small)
    other.load_state_dict(state)
    assert all(torch.equal(a.nan_to_num(), b.nan_to_num()) for a, b in zip(next(other), expected, strict=True))


def test_muon_lowers_a_loss_and_moves_matrices_by_equal_amounts_in_all_directions():
    torch.manual_seed(0)
    weight, bias = torch.nn.Parameter(torch.zeros(8, 4)), torch.nn.Parameter(torch.zeros(8))
    optimizer = Muon([{"params": [weight], "orthogonal": True}, {"params": [bias]}], lr=0.1)
    x, truth = torch.randn(64, 4) * torch.tensor([4.0, 2.0, 1.0, 0.7]), torch.randn(8, 4)
    losses = []
    for _ in range(60):
        loss = (x @ (weight - truth).T + bias - 1).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
        if len(losses) == 1:
            singular = torch.linalg.svdvals(weight.detach())
            assert singular.max() / singular.min() < 2.5
    assert losses[-1] < 0.2 * losses[0]


SMALL_BUCKETS = tuple(
    one.__class__(**{**vars(one), "context": one.context // 16, "horizon": one.horizon // 4, "shortest": 2})
    for one in without(BUCKETS, "fine")
)


@pytest.fixture
def command(tmp_path, monkeypatch):
    """The command with a small network and small buckets, on three sets of noise, and where it writes."""
    small = {"spans": (64, 640), "horizon": 256, "width": 24, "heads": 2}
    monkeypatch.setitem(VARIANTS, "recipe", Variant(small, {"log_every": 5}, SMALL_BUCKETS))
    rng = np.random.default_rng(0)
    stores = [
        SeriesStore.from_series([10 + rng.normal(size=900) for _ in range(3)], name, period)
        for name, period in {"aus_retail": 12, "tsdl_monthly": 12, "m3_other": 1}.items()
    ]
    corpus = join(stores).save(tmp_path / "corpus.safetensors")
    usual = ["--corpus", str(corpus), "--size", "tiny", "--layers", "1", "--batch", "16", "--device", "cpu"]

    def run(name, *options):
        assert main([*usual, "--output", str(tmp_path / name), *options]) == 0
        return tmp_path / name

    return run


def test_two_commands_of_half_the_length_are_one_of_the_whole(command, capsys):
    whole = command("whole", "--steps", "20")
    half = command("half", "--steps", "20", "--limit", "0.001")
    assert "goes on from here" in capsys.readouterr().out
    before = load_model(half / "last").state_dict()
    half = command("half", "--steps", "20", "--limit", "1000", "--resume")
    assert "done" in capsys.readouterr().out
    assert any(not torch.equal(before[name], value) for name, value in load_model(half / "last").state_dict().items())
    for kind in ("last", "model"):  # the weights, and their moving average
        one, other = (load_model(place / kind).state_dict() for place in (whole, half))
        assert all(torch.equal(one[name], other[name]) for name in one)
    assert (half / "model" / "model.safetensors").stat().st_size < 3 * sum(
        p.numel() for p in load_model(half / "model").parameters()
    )


def test_a_run_can_end_at_a_moment_and_must_find_what_it_resumes(command):
    with pytest.raises(UserError, match="no checkpoint"):
        command("run", "--steps", "2", "--resume")
    with pytest.raises(UserError, match="one of --steps, --seconds and --until"):
        command("run", "--steps", "2", "--seconds", "2")
    place = command("run", "--until", str(time.time() + 1e6), "--limit", "0.001")
    spent = seconds_spent(place)
    assert spent > 0
    end = time.time()
    place = command("run", "--until", str(end + 3))  # what was spent counts, so this run ends well before 1e6 seconds
    assert spent < seconds_spent(place) < spent + 60
    started = command("other", "--steps", "1", "--learning-rate", "1e-9", "--weights", str(place / "last"))
    one, other = (load_model(folder / "last").state_dict() for folder in (place, started))
    assert all(torch.allclose(one[name], other[name], atol=1e-4) for name in one)


def test_the_mean_of_several_weights_is_saved_without_training(command):
    with pytest.raises(UserError, match="--weights must name"):
        command("none", "--steps", "0")
    first = command("first", "--steps", "2") / "last"
    second = command("second", "--steps", "5", "--learning-rate", "0.02", "--weights", str(first)) / "last"
    mean = command("mean", "--steps", "0", "--weights", str(first), str(second)) / "model"
    one, other = (load_model(folder).state_dict() for folder in (first, second))
    assert any(not torch.equal(one[name], other[name]) for name in one)
    for name, value in load_model(mean).state_dict().items():  # to the rounding of bfloat16
        torch.testing.assert_close(value, (one[name] + other[name]) / 2, rtol=0.01, atol=1e-6)
    small = MultiscaleForecaster(replace(load_model(first).config, layers=2))
    with pytest.raises(UserError, match="differ in shape"):
        command("none", "--steps", "0", "--weights", str(first), str(save_model(small, first.parent / "small")))


def test_a_network_that_starts_from_one_of_fewer_layers_forecasts_the_same_and_learns_in_all(command):
    small, past, period = network(), torch.randn(3, 700).cumsum(1), torch.tensor([1, 12, 24])
    large = MultiscaleForecaster(replace(small.config, layers=4)).eval()
    start_from(large, small.state_dict())
    assert torch.allclose(large(past, period, 20)[0], small(past, period, 20)[0], atol=1e-5)
    large(past, period, 20)[0].square().sum().backward()
    assert all(layer.mix.weight.grad.abs().sum() > 0 for layer in large.layers)
    with pytest.raises(UserError, match="fewer layers"):
        start_from(small, large.state_dict())
    first = command("first", "--steps", "2") / "last"
    grown = load_model(command("grown", "--steps", "3", "--layers", "2", "--weights", str(first)) / "last")
    assert len(grown.layers) == 2
    assert grown.layers[1].down.weight.abs().sum() > 0


def test_the_command_trains_and_scores_on_whole_sets(tmp_path):
    rng = np.random.default_rng(0)
    sets = {"aus_retail": 12, "tsdl_monthly": 12, "m3_other": 1}
    stores = [
        SeriesStore.from_series([10 + rng.normal(size=1600) for _ in range(3)], name, period)
        for name, period in sets.items()
    ]
    corpus = join(stores).save(tmp_path / "corpus.safetensors")
    options = "--size tiny --layers 1 --choose --score --calibrate --steps 2 --batch 16 --device cpu --most 1"
    assert main(["--corpus", str(corpus), "--output", str(tmp_path / "run"), *options.split()]) == 0
    found = json.loads((tmp_path / "run" / "score.json").read_text())
    assert list(found["sets"]) == ["aus_retail/12"]
    assert found["sets"]["aus_retail/12"]["wql"] == pytest.approx(found["all"]["wql"])
    assert found["all"]["mase"] > 0
    assert 0 <= found["monthly"]["coverage_80"] <= 1
    assert json.loads((tmp_path / "run" / "spread" / "score.json").read_text())["variant"] == "spread fitted"
    assert load_model(tmp_path / "run" / "model").config.layers == 1
