"""Metrics against brute force, quadrature, gluonts and published scores."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fourier_head import metrics

NAN = float("nan")


# ---------------------------------------------------------------- entropy and divergences


def coloured_noise(power, trials, samples, seed):
    """Noise whose power goes like frequency^power, framed as a categorical (appendix B)."""
    rng = np.random.default_rng(seed)
    spectrum = np.fft.rfft(rng.standard_normal((trials, samples)))
    frequency = np.arange(samples // 2 + 1, dtype=float)
    frequency[0] = np.inf if power < 0 else 0.0
    noise = np.fft.irfft(spectrum * (frequency ** (power / 2) if power else 1.0), samples)
    noise -= noise.min(-1, keepdims=True)
    return noise / noise.sum(-1, keepdims=True)


@pytest.mark.parametrize(
    ("power", "l2", "entropy"),
    [(-2, 0.0003, 0.4516), (-1, 0.0017, 0.3878), (0, 0.0034, 0.4266), (1, 0.0038, 0.4191)],
)
def test_noise_table_of_the_paper(power, l2, entropy):
    y = torch.as_tensor(coloured_noise(power, 300, 4096, seed=1))
    assert metrics.spectral_entropy(y, base=math.e).mean().item() == pytest.approx(entropy, abs=0.015)
    assert metrics.smoothness(y, max_sigma="released").mean().item() == pytest.approx(l2, abs=1e-4)


def test_spectral_entropy_of_known_spectra():
    impulse = np.eye(1, 64)[0]
    assert metrics.spectral_entropy(impulse).item() == pytest.approx(math.log2(33))
    assert metrics.spectral_entropy(impulse, dc=False).item() == pytest.approx(5.0)
    assert metrics.spectral_entropy(impulse, normalised=True, base=3).item() == pytest.approx(1.0)
    wave = np.cos(2 * np.pi * 5 * np.arange(64) / 64)
    assert metrics.spectral_entropy(wave).item() == pytest.approx(0.0, abs=1e-12)
    assert metrics.spectral_entropy(1 + 2 * wave).item() == pytest.approx(1.0)  # powers 64^2 and (64 * 2 / 2)^2
    assert metrics.spectral_entropy(np.zeros((2, 8))).tolist() == [0.0, 0.0]
    with pytest.raises(ValueError, match="at least two samples"):
        metrics.spectral_entropy([1.0])
    with pytest.raises(ValueError, match="base must be greater than 1"):
        metrics.spectral_entropy(impulse, base=1.0)


def test_kl_and_tvd_conventions():
    p, q = torch.tensor([[0.5, 0.5, 0.0], [0.0, 1.0, 0.0]]), torch.tensor([0.25, 0.75, 0.0])
    expected = torch.tensor([0.5 * math.log(2) + 0.5 * math.log(2 / 3), math.log(4 / 3)])
    torch.testing.assert_close(metrics.kl_divergence(p, q), expected)
    torch.testing.assert_close(metrics.kl_divergence(p.log(), q.log(), log_input=True), expected)
    assert metrics.kl_divergence([0.5, 0.5], [1.0, 0.0]).item() == math.inf
    assert metrics.kl_divergence([1.0, 0.0], [1.0, 0.0]).item() == 0
    assert metrics.kl_divergence([0.0, -math.inf], [math.log(0.5)] * 2, log_input=True).item() == pytest.approx(
        math.log(2)
    )
    torch.testing.assert_close(metrics.tvd(p, q), torch.tensor([0.25, 0.25]))
    p.requires_grad_()
    metrics.kl_divergence(p, q).sum().backward()
    assert p.grad.isfinite().all()


@settings(max_examples=30, deadline=None)
@given(st.integers(2, 40), st.integers(0, 10**6))
def test_pinsker_bounds_tvd_by_kl(m, seed):
    p, q = np.random.default_rng(seed).dirichlet(np.ones(m), 2)
    assert metrics.tvd(p, q).item() <= math.sqrt(metrics.kl_divergence(p, q).item() / 2) + 1e-12


# ---------------------------------------------------------------- CRPS


@settings(max_examples=40, deadline=None)
@given(st.integers(2, 30), st.integers(0, 10**6), st.sampled_from([0.0, 1e6]))
def test_crps_from_samples_equals_double_sum(n, seed, shift):
    rng = np.random.default_rng(seed)
    x, y = rng.normal(size=(n, 3)) + shift, rng.normal(size=3) + shift
    first, second = np.abs(x - y).mean(0), np.abs(x[:, None] - x[None]).sum((0, 1))
    got, fair = metrics.crps_from_samples(x, y), metrics.crps_from_samples(x, y, fair=True)
    np.testing.assert_allclose(got, first - second / (2 * n**2), rtol=0, atol=1e-9)
    np.testing.assert_allclose(fair, first - second / (2 * n * (n - 1)), rtol=0, atol=1e-9)


def test_fair_crps_is_unbiased_where_the_plain_one_is_not():
    samples = torch.randn(4, 200_000, dtype=torch.float64)
    truth = 2 * (1 / math.sqrt(2 * math.pi)) - 1 / math.sqrt(math.pi)  # standard normal at its mean
    fair = metrics.crps_from_samples(samples, torch.zeros(200_000), fair=True).mean().item()
    plain = metrics.crps_from_samples(samples, torch.zeros(200_000)).mean().item()
    assert fair == pytest.approx(truth, abs=0.004)
    assert plain == pytest.approx(truth + 1 / math.sqrt(math.pi) / 4, abs=0.004)


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 25), st.integers(0, 10**6))
def test_crps_of_atoms_agrees_between_samples_quantiles_and_pmf(n, seed):
    rng = np.random.default_rng(seed)
    atoms, y = np.sort(rng.normal(size=(n, 4)), 0), rng.normal(size=4) * 2
    expected = metrics.crps_from_samples(atoms, y)
    levels = (np.arange(n) + 0.5) / n
    torch.testing.assert_close(metrics.crps_from_quantiles(atoms, levels, y), expected)
    torch.testing.assert_close(metrics.crps_from_pmf(np.full((4, n), 1 / n), atoms.T, y), expected)


@pytest.mark.parametrize("kind", ["centres", "edges"])
def test_crps_from_pmf_equals_quadrature(kind):
    rng = np.random.default_rng(3)
    pmf = rng.dirichlet(np.ones(6), size=5)
    points = np.sort(rng.uniform(-1, 1, 6 if kind == "centres" else 7))
    values = np.array([-1.5, points[2], 0.05, 0.4, 1.7])
    grid = np.linspace(-2, 2, 400_001)
    middle = (grid[1:] + grid[:-1]) / 2
    for p, y in zip(pmf, values, strict=True):
        if kind == "centres":
            cdf = np.append(0, p.cumsum())[np.searchsorted(points, middle, side="right")]
        else:
            cdf = np.interp(middle, points, np.append(0, p.cumsum()))
        expected = np.sum((cdf - (middle >= y)) ** 2) * (grid[1] - grid[0])
        assert metrics.crps_from_pmf(p, points, y).item() == pytest.approx(expected, abs=2e-5)
    assert metrics.crps_from_pmf(pmf, points, values).shape == (5,)


def test_crps_from_dense_quantiles_of_a_normal_approaches_the_closed_form():
    normal = torch.distributions.Normal(torch.tensor(0.3, dtype=torch.float64), 2.0)
    levels = (torch.arange(2000, dtype=torch.float64) + 0.5) / 2000
    z = (1.0 - 0.3) / 2
    pdf, cdf = math.exp(-z * z / 2) / math.sqrt(2 * math.pi), 0.5 * (1 + math.erf(z / math.sqrt(2)))
    expected = 2 * (z * (2 * cdf - 1) + 2 * pdf - 1 / math.sqrt(math.pi))
    got = metrics.crps_from_quantiles(normal.icdf(levels), levels, 1.0).item()
    assert got == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: metrics.crps_from_samples([], 0.0), "samples must have at least 1"),
        (lambda: metrics.crps_from_samples([1.0], 0.0, fair=True), "samples must have at least 2"),
        (lambda: metrics.crps_from_quantiles([1.0, 2.0], [0.5], 0.0), "levels on their first axis"),
        (lambda: metrics.crps_from_quantiles([1.0], [1.0], 0.0), "strictly between 0 and 1"),
        (lambda: metrics.crps_from_pmf([0.5, 0.5], [0.0, 1.0, 2.0, 3.0], 0.0), "points must have m or m"),
        (lambda: metrics.crps_from_pmf([0.5, 0.5], [1.0, 0.0], 0.0), "strictly increasing"),
        (lambda: metrics.seasonal_error([1.0, 2.0], 0), "season must be a positive integer, got 0"),
        (lambda: metrics.mase([[1.0]], [[1.0]], [[1.0, 2.0]] * 3), "one series for each row"),
        (lambda: metrics.wql([[1.0]], [0.5], [1.0], reduction="sum"), "reduction must be 'mean' or 'none'"),
        (lambda: metrics.pit_histogram([0.5, 1.5]), r"pit_values must lie in \[0, 1\]"),
        (lambda: metrics.pit_histogram([NAN]), "at least one value"),
        (lambda: metrics.pit_histogram([0.5], 0), "num_bins must be a positive integer"),
    ],
)
def test_bad_input_gets_one_clear_sentence(call, words):
    with pytest.raises(ValueError, match=words):
        call()


# ---------------------------------------------------------------- forecasts, as gluonts defines them

LEVELS = [0.1, 0.25, 0.5, 0.9]


def forecast_case(seed, missing):
    """Batch of histories, targets and quantile forecasts, with gaps and one constant history."""
    rng = np.random.default_rng(seed)
    history = [rng.normal(size=rng.integers(5, 40)).cumsum() for _ in range(9)]
    history[3][:] = 2.0
    target = rng.normal(size=(9, 6))
    quantiles = np.sort(rng.normal(size=(len(LEVELS), 9, 6)), 0)
    if missing:
        target[rng.random(target.shape) < 0.3] = NAN
        for series in history[:3]:
            series[rng.integers(0, len(series), 2)] = NAN
    return history, target, quantiles


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("season", [1, 4, 12])
def test_mase_and_wql_equal_gluonts(missing, season):
    ev = pytest.importorskip("gluonts.ev.metrics")
    seasonal = pytest.importorskip("gluonts.ev.ts_stats").seasonal_error
    for seed in range(5):
        history, target, quantiles = forecast_case(seed, missing)
        history = [series for series in history if len(series) != season]  # there gluonts.ev divides by an empty mean
        target, quantiles = target[: len(history)], quantiles[:, : len(history)]
        scale = np.array([seasonal(np.ma.masked_invalid(series), season, time_axis=-1) for series in history])
        data = {"label": np.ma.masked_invalid(target), "seasonal_error": scale}
        data |= {str(level): q for level, q in zip(LEVELS, quantiles, strict=True)}
        with np.errstate(all="ignore"):
            expected_mase = ev.MASE()(axis=None).update(data).get()
            expected_wql = ev.MeanWeightedSumQuantileLoss(LEVELS)(axis=None).update(data).get()
        ours = metrics.seasonal_error(history, season).nan_to_num(0.0)  # gluonts: 0 where no pair is observed
        np.testing.assert_allclose(ours.numpy(), scale[:, 0], rtol=1e-12)
        got = metrics.mase(quantiles[2], target, history, season)
        assert got.item() == pytest.approx(float(expected_mase), rel=1e-12)
        assert metrics.wql(quantiles, LEVELS, target).item() == pytest.approx(float(expected_wql), rel=1e-12)


def test_seasonal_error_and_pinball_equal_the_older_gluonts_functions():
    old = pytest.importorskip("gluonts.evaluation.metrics")
    rng = np.random.default_rng(0)
    series, forecast, target = rng.normal(size=20), rng.normal(size=7), rng.normal(size=7)
    for season in (1, 3, 20, 30):
        expected = old.calculate_seasonal_error(series, seasonality=season)
        assert metrics.seasonal_error(series, season).item() == pytest.approx(expected, rel=1e-12)
    for level in LEVELS:
        expected = old.quantile_loss(target, forecast, level)
        got = 2 * metrics.pinball_loss(forecast, target, level).sum().item()
        assert got == pytest.approx(expected, rel=1e-12)


def test_forecast_scores_leave_out_what_is_missing_and_nothing_else():
    history = torch.tensor([[0.0, 1.0, 3.0], [5.0, 5.0, 5.0], [1.0, NAN, 2.0]])
    target = torch.tensor([[1.0, NAN], [1.0, 2.0], [3.0, 4.0]])
    each = metrics.mase(torch.zeros(3, 2), target, history, reduction="none")
    torch.testing.assert_close(each, torch.tensor([[1 / 1.5, NAN], [NAN, NAN], [NAN, NAN]]), equal_nan=True)
    assert metrics.mase(torch.zeros(3, 2), target, history).item() == pytest.approx(1 / 1.5)
    assert metrics.mase(torch.full((3, 2), NAN), target, history).isnan()
    by_level = metrics.wql(torch.zeros(2, 3, 2), [0.2, 0.5], target, reduction="none")
    torch.testing.assert_close(by_level, torch.tensor([0.4, 1.0]))


@pytest.mark.parametrize(
    ("name", "horizon", "season", "mase", "wql"),
    [
        ("cif_2016", 12, 12, 1.2892905774, 0.0150830409),
        ("nn5_daily", 56, 1, 1.2917285866, 0.4246208075),  # has missing values
        ("tourism_quarterly", 8, 4, 1.6989892627, 0.1193750169),
    ],
)
def test_seasonal_naive_scores_are_the_published_ones(shared, name, horizon, season, mase, wql):
    parquet = pytest.importorskip("pyarrow.parquet")
    table = parquet.read_table(shared / "data" / "eval" / f"{name}.parquet")
    series = [row.values.to_numpy(zero_copy_only=False).astype(np.float64) for row in table["target"]]
    history, target = [s[:-horizon] for s in series], np.stack([s[-horizon:] for s in series])
    naive = np.stack([np.resize(h[-season:], horizon) for h in history])
    naive[np.isnan(naive) & np.isnan(target)] = 0.0
    target[np.isnan(naive)] = NAN  # a gap in the last season leaves nothing to repeat
    naive = np.nan_to_num(naive)
    assert metrics.mase(naive, target, history, season).item() == pytest.approx(mase, rel=5e-5)
    levels = np.arange(1, 10) / 10
    assert metrics.wql(np.stack([naive] * 9), levels, target).item() == pytest.approx(wql, rel=5e-5)


# ---------------------------------------------------------------- calibration


def test_pit_of_a_calibrated_forecast_is_flat_and_of_a_narrow_one_is_not():
    normal = torch.distributions.Normal(0.0, 1.0)
    y = torch.randn(100_000, dtype=torch.float64)
    right, narrow = normal.cdf(y), normal.cdf(2 * y)
    torch.testing.assert_close(
        metrics.pit_histogram(right, 20), torch.full((20,), 0.05, dtype=torch.float64), atol=0.005, rtol=0
    )
    assert metrics.pit_histogram(narrow)[[0, -1]].min() > 0.2
    levels = torch.tensor([0.5, 0.8, 0.95], dtype=torch.float64)
    torch.testing.assert_close(metrics.central_coverage(right, levels), levels, atol=0.01, rtol=0)
    half = normal.icdf((1 + levels) / 2)
    by_interval = torch.stack([metrics.interval_coverage(-h / 2, h / 2, y) for h in half])
    torch.testing.assert_close(metrics.central_coverage(narrow, levels), by_interval, atol=2e-4, rtol=0)
    assert metrics.calibration_error(right).item() < 0.005
    # PIT values of the narrow forecast have cdf Phi(Phi^-1(u) / 2).
    u = torch.arange(1, 100, dtype=torch.float64) / 100
    expected = (normal.cdf(normal.icdf(u) / 2) - u).abs().mean().item()
    assert metrics.calibration_error(narrow).item() == pytest.approx(expected, abs=0.005)


def test_pit_histogram_counts_ends_and_skips_missing_values():
    torch.testing.assert_close(
        metrics.pit_histogram(torch.tensor([[0.0, 0.5], [1.0, NAN]]), 4), torch.tensor([1 / 3, 0.0, 1 / 3, 1 / 3])
    )
    assert metrics.interval_coverage([0.0, 0.0], 1.0, [[0.5, 2.0], [NAN, 1.0]]).item() == pytest.approx(2 / 3)


def test_numbers_must_be_real():
    with pytest.raises(TypeError, match="expected real numbers"):
        metrics.tvd(torch.ones(2, dtype=torch.complex64), torch.ones(2))


def test_what_is_not_a_number_has_no_score():
    lost = torch.tensor([[NAN] * 4, [0.25] * 4])
    for found in (
        metrics.smoothness(lost),
        metrics.smoothness(lost, discrepancy="l1"),
        metrics.kl_divergence(lost, lost[1]),
        metrics.kl_divergence(lost.log(), lost[1].log(), log_input=True),
        metrics.tvd(lost, lost[1]),
    ):
        assert found.isnan().tolist() == [True, False]


def test_one_forecast_of_many_values_is_scored_against_each():
    values, levels = torch.tensor([0.1, 2.0, -1.0]), [0.2, 0.5, 0.8]
    one = torch.tensor([-0.5, 0.0, 1.0])
    many = one[:, None].expand(3, 3)
    for found, expected in (
        (metrics.crps_from_samples(one, values), metrics.crps_from_samples(many, values)),
        (metrics.crps_from_quantiles(one, levels, values), metrics.crps_from_quantiles(many, levels, values)),
        (metrics.wql(one, levels, values), metrics.wql(many, levels, values)),
        (metrics.wql(many, levels, 2.0), metrics.wql(many, levels, torch.full((3,), 2.0))),
    ):
        torch.testing.assert_close(found, expected)
