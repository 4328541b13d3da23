"""Corpora: futures follow their contexts, and generators have the law they name."""

import math

import numpy as np
import pytest
import torch

from fourier_head.forecasting.corpora import augment, kernel_synth, synthetic
from fourier_head.forecasting.corpora.aggregate import AggregatedSampler
from fourier_head.forecasting.corpora.kernel_synth import SpectralSynth
from fourier_head.forecasting.corpora.mix import BatchStream, Corpus, Part, standard_corpus
from fourier_head.forecasting.corpora.readers import join
from fourier_head.forecasting.corpora.store import SeriesStore
from fourier_head.forecasting.corpora.synthetic import StructuralSynth, ar1
from fourier_head.forecasting.corpora.windows import (
    TSMixup,
    Windows,
    WindowSampler,
    chances,
    dirichlet,
    history,
    mix_windows,
)

NAN = math.nan


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def same(left, right):
    return torch.equal(left.isnan(), right.isnan()) and torch.equal(left.nan_to_num(0), right.nan_to_num(0))


def counting_store(lengths=(200, 30, 12, 5), period=12):
    """Series n counts 1000 n, 1000 n + 1, ...: a value says where it came from."""
    return SeriesStore.from_series([1000.0 * n + np.arange(k) for n, k in enumerate(lengths)], period=period)


# Windows


def test_windows_equal_python_slices():
    store = counting_store()
    sampler = WindowSampler(store, context=16, horizon=6, cut_share=0.0)
    series, cut = sampler.choose(400, seeded())
    windows = sampler.at(series, cut)
    for row in range(400):
        values = store.series(int(series[row])).tolist()
        t = int(cut[row])
        past = values[max(t - 16, 0) : t]
        future = values[t : t + 6]
        assert same(windows.context[row], torch.tensor([NAN] * (16 - len(past)) + past))
        assert same(windows.future[row], torch.tensor(future + [NAN] * (6 - len(future))))
    assert (windows.period == 12).all()
    assert set(series.tolist()) == {0, 1, 2, 3}
    # every series is cut with at least four values before and one after; long ones keep the whole horizon
    assert int(cut.min()) == 4
    assert int((store.lengths[series] - cut).min()) >= 1
    assert not windows.future[series == 0].isnan().any()


def test_futures_follow_contexts_and_cuts_leave_the_newest():
    sampler = WindowSampler(counting_store((500,)), context=64, horizon=8, cut_share=1.0)
    windows = sampler.sample(500, seeded())
    assert torch.equal(windows.future[:, 0] - windows.context[:, -1], torch.ones(500))
    assert torch.equal(windows.future.diff(dim=1), torch.ones(500, 7))
    lengths = history(windows.context)
    assert torch.equal(lengths, (~windows.context.isnan()).sum(1))  # NaN on the left only
    assert int(lengths.min()) >= 4
    # log-uniform: half of the contexts are below the geometric mean of 4 and 64 (a little less, as some start early)
    assert 0.4 < (lengths < 16).float().mean() < 0.65
    whole = WindowSampler(counting_store((500,)), context=64, horizon=8, cut_share=0.0).sample(500, seeded())
    assert (history(whole.context) == 64).float().mean() > 0.8


def test_sets_and_series_come_by_weight():
    big = SeriesStore.from_series([[1.0] * 16] * 64, "big")
    small = SeriesStore.from_series([[2.0] * 256, [3.0] * 16], "small")
    store = join([big, small])
    chance = chances(store)
    sizes = torch.tensor([8 * 16**0.25, 2**0.5 * 136**0.25], dtype=torch.float64)
    assert chance[:64].sum() == pytest.approx(float(sizes[0] / sizes.sum()))
    assert chance[64] / chance[65] == pytest.approx(2.0)  # (256 / 16)^0.25
    assert chance.sum() == pytest.approx(1.0)
    last = WindowSampler(store, 8, 2).sample(20000, seeded()).context[:, -1]
    for value, expected in ((1, chance[:64].sum()), (2, chance[64]), (3, chance[65])):
        assert (last == value).float().mean() == pytest.approx(float(expected), abs=0.02)


def test_window_arguments_are_checked():
    store = counting_store()
    with pytest.raises(ValueError, match=r"context and horizon must .*got 0"):
        WindowSampler(store, 0, 4)
    with pytest.raises(ValueError, match=r"cut_share must lie in \[0, 1\]"):
        WindowSampler(store, 4, 4, cut_share=2)
    with pytest.raises(ValueError, match="two values or more"):
        WindowSampler(SeriesStore.from_series([[1.0]]), 4, 4)
    assert (
        WindowSampler(SeriesStore.from_series([[1.0], [1.0, 2.0]]), 4, 4).sample(9, seeded()).future[:, 0].eq(2).all()
    )


def test_coarser_windows_equal_block_means():
    values = np.random.default_rng(0).normal(size=700).astype(np.float32)
    values[100:110] = NAN
    tiny = (values[:400] * 1e-9).astype(np.float32)
    store = SeriesStore.from_series([values * 1e9, tiny], period=[12, 7])
    sampler = AggregatedSampler(store, context=20, horizon=5, cut_share=0.0)
    series, k, first, cut = sampler.choose(200, seeded())
    thin = torch.arange(200) % 3 == 0
    got = sampler.at(series, k, first, cut, thin)
    assert {(0, 12), (0, 3), (1, 7)} <= set(zip(series.tolist(), k.tolist(), strict=True))
    for row in range(200):
        own = store.series(int(series[row])).double().numpy()[int(first[row]) :]
        size = int(k[row])
        blocks = own[: len(own) // size * size].reshape(-1, size)
        with np.errstate(invalid="ignore"):
            lost = np.isnan(blocks).sum(1) * 2 >= size
            means = np.nansum(blocks, 1) / np.maximum((~np.isnan(blocks)).sum(1), 1)
        wanted = blocks[:, -1] if thin[row] else np.where(lost, NAN, means)
        padded = np.concatenate((np.full(20, NAN), wanted, np.full(5, NAN)))
        t = int(cut[row]) + 20
        scale = np.nanmean(np.abs(own))
        np.testing.assert_allclose(got[row].double() / scale, padded[t - 20 : t + 5] / scale, atol=1e-6)
    windows = sampler.sample(500, seeded())
    assert set(windows.period.tolist()) <= {6, 4, 2, 1, 52, 12}
    with pytest.raises(ValueError, match="long enough"):
        AggregatedSampler(counting_store((20,)), 8, 2)


# TSMixup


def test_mixtures_are_convex_and_cut_to_the_shortest():
    count = torch.tensor([1, 2, 3]).repeat(2000)
    weights = dirichlet(count, 3, 1.5, seeded())
    assert torch.allclose(weights.sum(1), torch.ones(6000))
    assert (weights >= 0).all()
    assert (weights[count == 1, 0] == 1).all()
    three = weights[count == 3]
    assert three.mean(0).tolist() == pytest.approx([1 / 3] * 3, abs=0.02)
    assert three.var(0).tolist() == pytest.approx([(2 / 9) / 5.5] * 3, rel=0.1)  # Dirichlet(1.5, 1.5, 1.5)
    context = torch.tensor([[[NAN, 2.0, 4.0], [6.0, 6.0, 6.0], [NAN, NAN, 1.0]]])
    groups = Windows(context, torch.tensor([[[3.0], [9.0], [NAN]]]), torch.tensor([[12, 12, 7]]))
    mixed = mix_windows(groups, torch.tensor([2]), torch.tensor([[0.25, 0.75, 0.0]]))
    assert same(mixed.context, torch.tensor([[NAN, 0.25 * 2 / 3 + 0.75, 0.25 * 4 / 3 + 0.75]]))
    assert mixed.future.tolist() == [[0.25 + 0.75 * 1.5]]
    assert mixed.period.tolist() == [12]
    assert mix_windows(groups, torch.tensor([3]), torch.tensor([[0.2, 0.3, 0.5]])).period.tolist() == [1]


def test_mixup_stays_within_what_it_mixes():
    store = SeriesStore.from_series(
        [1 + np.sin(np.arange(90) / n) for n in range(1, 30)], period=[4, 7, 12] * 9 + [4, 7]
    )
    windows = TSMixup(WindowSampler(store, 24, 6, cut_share=0.3)).sample(300, seeded())
    assert windows.context.shape == (300, 24)
    assert not windows.future[:, 0].isnan().any()
    assert (windows.context.nan_to_num(0) >= 0).all()
    # mean-scaled parts average to 1, and so does a convex combination of windows of equal length
    whole = ~windows.context.isnan().any(1)
    assert windows.context[whole].mean(1).median() == pytest.approx(1.0, abs=0.02)
    assert (windows.period > 1).float().mean() < 0.8


# KernelSynth


def composition(count):
    """((periodic x linear + rbf) x rational) + white, of which the first `count` are used."""
    return kernel_synth.KernelMix(
        torch.tensor([[0, 1, 2, 3, 4]]),
        torch.tensor([[12.0, 2.0, 0.1, 0.5, 0.3]]),
        torch.tensor([count]),
        torch.tensor([[False, True, False, True, False]]),
    )


@pytest.mark.parametrize("count", [1, 2, 5])
def test_samples_have_the_covariance_of_their_kernel(count):
    kernels = pytest.importorskip("sklearn.gaussian_process.kernels")
    size, draws = 16, 20000
    periodic = kernels.ExpSineSquared(periodicity=12 / kernel_synth.UNIT)
    product = periodic * kernels.DotProduct(2.0)
    whole = (product + kernels.RBF(0.1)) * kernels.RationalQuadratic(alpha=0.5) + kernels.WhiteKernel(0.3)
    kernel = {1: periodic, 2: product, 5: whole}[count]
    wanted = torch.from_numpy(kernel(np.arange(size)[:, None] / kernel_synth.UNIT))
    many = kernel_synth.KernelMix(*(t.expand(draws, *t.shape[1:]) for t in composition(count)))
    values = kernel_synth.draw_spectral(many, size, seeded(1), features=8).double()
    error = values.T @ values / draws - wanted
    assert error.abs().max() < 0.1 * wanted.abs().max()
    assert values.mean(0).abs().max() < 0.06 * wanted.abs().max().sqrt()


def test_harmonics_of_the_periodic_kernel_add_up():
    lag = torch.linspace(0, 1, 33, dtype=torch.float64)
    order = torch.arange(8)
    power = torch.tensor(kernel_synth._DEVIATIONS, dtype=torch.float64) ** 2
    series = (power * torch.cos(2 * math.pi * order * lag[:, None])).sum(1)
    assert torch.allclose(series, torch.exp(-2 * torch.sin(math.pi * lag) ** 2), atol=1e-6)


def test_whole_bank_gives_finite_series_with_periods():
    windows = SpectralSynth(48, 16).sample(300, seeded())
    assert windows.values[~windows.values.isnan()].isfinite().all()
    assert not windows.future.isnan().any()
    assert {4, 12} <= set(windows.period.tolist()) <= {1, 4, 5, 6, 7, 10, 12, 14, 24, 26, 30, 40, 48}


# Structural series and augmentations


def test_ar1_equals_the_loop():
    noise, phi = torch.randn(5, 50), torch.linspace(-0.9, 0.99, 5)[:, None]
    x = torch.zeros(5)
    for step, got in enumerate(ar1(noise, phi).T):
        x = phi[:, 0] * x + noise[:, step]
        assert torch.allclose(got, x, atol=1e-5)


def test_structural_series_have_the_parts_they_name(monkeypatch):
    windows = StructuralSynth(128, 16).sample(2000, seeded())
    values = windows.values
    assert values[~values.isnan()].isfinite().all()
    assert (history(windows.context) == (~windows.context.isnan()).sum(1)).all()
    assert int(history(windows.context).min()) >= 6
    assert not windows.future[:, :8].isnan().any()
    assert (windows.period == 12).float().mean() == pytest.approx(0.28, abs=0.05)
    # seasons repeat: among monthly rows with a long history, the lag of a season explains more than half a season
    monthly = windows.context[(windows.period == 12) & ~windows.context.isnan().any(1)]
    change = monthly.diff(dim=1)
    change = change / change.std(1, keepdim=True).clamp_min(1e-9)
    at = {lag: (change[:, lag:] * change[:, :-lag]).mean(1) for lag in (6, 12)}
    assert (at[12] > at[6]).float().mean() > 0.6
    monkeypatch.setattr(synthetic, "COUNTS", 0.5)
    monkeypatch.setattr(synthetic, "INTERMITTENT", 0.5)
    counts = StructuralSynth(64, 8).sample(400, seeded())
    whole = counts.values.nan_to_num(0)
    assert (whole >= 0).all()
    zeros = (counts.context == 0).sum(1) / history(counts.context)
    assert 0.3 < (zeros > 0.5).float().mean() < 0.7


def plain_windows(rows=400):
    store = SeriesStore.from_series([10 + np.sin(np.arange(120) / 3) + np.arange(120) / 60, np.arange(30)], period=12)
    return WindowSampler(store, 40, 10).sample(rows, seeded(9))


@pytest.mark.parametrize("change", [step.change for step in augment.DEFAULT])
def test_augmentations_touch_their_share_of_rows_only(change):
    windows = plain_windows()
    changed = augment.Augmentation(change, 0.3)(windows, seeded())
    differs = torch.tensor(
        [
            not (same(a, b) and same(c, d) and e == f)
            for a, b, c, d, e, f in zip(
                changed.context, windows.context, changed.future, windows.future, changed.period, windows.period,
                strict=True,
            )
        ]
    )  # fmt: skip
    assert 0.02 < differs.float().mean() < 0.4
    assert torch.equal(changed.future.isnan(), windows.future.isnan())
    assert not changed.context.isnan().all(1).any()
    assert same(augment.Augmentation(change, 0.0)(windows, seeded()).values, windows.values)
    whole = augment.Augmentation(change, 1.0)
    assert same(whole(windows, seeded(2)).values, whole(windows, seeded(2)).values)


def test_augmentations_do_what_they_say():
    windows = plain_windows()
    flipped = augment.sign_flip(windows, seeded())
    assert same(flipped.values, -windows.values)
    shifted = augment.level_shift(windows, seeded()).values - windows.values
    moved = shifted[0][~shifted[0].isnan()]
    assert len(moved.round(decimals=3).unique()) <= 2
    steps = augment.quantise(windows, seeded())
    assert steps.values[0][~steps.values[0].isnan()].unique().numel() < windows.values[0].unique().numel()
    for spoils in (augment.missing, augment.spikes):
        assert same(spoils(windows, seeded()).future, windows.future)
    ratio = (augment.trend(windows, seeded()).values / windows.values).log()
    bend = ratio.diff(dim=1).diff(dim=1).abs()
    assert (bend.nan_to_num(0) > 1e-3).sum(1).float().median() <= 2  # a line, one kink
    assert (augment.hide_period(windows, seeded()).period == 1).all()
    with pytest.raises(ValueError, match=r"share must lie in \[0, 1\]"):
        augment.Augmentation(augment.noise, 1.5)


def test_a_level_may_shift_ahead_and_the_past_stays():
    windows = StructuralSynth(64, 16).sample(64, seeded(2))
    shifted = augment.shift_ahead(windows, seeded())
    assert same(shifted.context, windows.context)
    moved = (shifted.future - windows.future).nan_to_num()
    steps = moved.abs() > 1e-6 * windows.context.abs().nanmean(1, keepdim=True)
    assert steps.any(1).float().mean() > 0.8
    assert (steps[:, :-1] & ~steps[:, 1:] & ~windows.future[:, 1:].isnan()).sum() == 0  # it stays where it went


def test_augmentations_survive_empty_and_constant_contexts():
    context = torch.stack((torch.full((8,), NAN), torch.full((8,), 3.0), torch.zeros(8)))
    windows = Windows(context, torch.ones(3, 4), torch.tensor([1, 4, 12]))
    for step in augment.DEFAULT:
        changed = step.change(windows, seeded())
        assert changed.future.isfinite().all(), step.change.__name__
        assert changed.context[1:][~changed.context[1:].isnan()].isfinite().all()


# The mixture


def make_corpus(**options):
    return standard_corpus(counting_store((300, 90, 80), period=7), 24, 6, **options)


def test_corpus_keeps_proportions():
    real = WindowSampler(counting_store((50,)), 8, 2)
    corpus = Corpus({"a": Part(real, 0.5), "b": (real, 0.3), "c": (real, 0.2), "none": (real, 0.0)})
    rows = [corpus.counts(7) for _ in range(100)]
    assert all(sum(r.values()) == 7 and min(r.values()) >= 0 for r in rows)
    assert {n: sum(r[n] for r in rows) for n in "abc"} == {"a": 350, "b": 210, "c": 140}
    assert list(corpus.parts) == ["a", "b", "c"]
    with pytest.raises(ValueError, match="at least one part"):
        Corpus({"a": (real, 0.0)})
    with pytest.raises(ValueError, match="share of 'a' must be finite"):
        Corpus({"a": (real, -1.0)})
    with pytest.raises(ValueError, match="batch must be at least 1"):
        corpus.sample(0)
    with pytest.raises(ValueError, match="no part 'reel'"):
        make_corpus(shares={"reel": 1.0})
    with pytest.raises(ValueError, match="no recipe 'cronos': did you mean chronos"):
        make_corpus(shares="cronos")
    with pytest.raises(ValueError, match="needs a store"):
        standard_corpus(None, 8, 2)


def test_corpus_is_seeded_by_one_generator():
    first, second, third = (make_corpus().sample(64, seeded(s)) for s in (1, 1, 2))
    assert first.context.shape == (64, 24)
    assert first.future.shape == (64, 6)
    assert first.period.shape == (64,)
    assert same(first.values, second.values)
    assert torch.equal(first.period, second.period)
    assert not same(first.values, third.values)
    assert standard_corpus(None, 8, 2, shares={"kernels": 1, "structural": 1}).sample(5, seeded()).future.shape == (
        5,
        2,
    )


@pytest.mark.parametrize("stop", [0, 1, 3, 4])
def test_stream_resumes_with_the_next_batch(stop):
    def stream():
        pool = SpectralSynth(24, 6)
        real = WindowSampler(counting_store(), 24, 6)
        return BatchStream(
            Corpus({"pool": (pool, 0.3), "real": (real, 0.7)}, steps=augment.DEFAULT), 7, seed=3, chunk=3
        )

    first = stream()
    for _ in range(stop):
        next(first)
    state = first.state_dict()
    wanted = [next(first) for _ in range(5)]
    second = stream()
    second.load_state_dict(state)
    for windows in wanted:
        got = next(second)
        assert len(got.context) == 7
        assert same(got.values, windows.values)
    other = BatchStream(stream().corpus, 7, seed=3, chunk=3, rank=1)
    assert not same(next(other).values, next(stream()).values)
    with pytest.raises(ValueError, match="the state is of batches of 7 in chunks of 3"):
        BatchStream(stream().corpus, 8, chunk=3).load_state_dict(state)


@pytest.mark.gpu
def test_sampling_on_the_gpu_does_not_wait_for_the_host():
    corpus = standard_corpus(counting_store((300, 90, 80), period=7), 64, 16, device="cuda")
    generator = torch.Generator("cuda").manual_seed(0)
    corpus.sample(256, generator)
    torch.cuda.set_sync_debug_mode("error")
    try:
        windows = corpus.sample(256, generator)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert windows.context.is_cuda
