"""The scaling law: truncations, exact steps, exponents by regime, the caveats, trained heads."""

import json
import math

import numpy as np
import pytest
import torch
from studies.common.results import row, write_results
from studies.scaling_law import decay
from studies.scaling_law.decay import predicted_smoothness
from studies.scaling_law.study import Settings, measure_law, run, scaling_law_of_trained_heads

from fourier_head.metrics import smoothness


def test_truncations_are_the_series_at_the_bin_centres():
    m = 40
    q = decay.coefficients(3, 60)
    centres = torch.tensor([-1 + (2 * j + 1) / m for j in range(m)], dtype=torch.float64)
    for n in (1, 7, 19, 39, 40, 60):
        values = 0.5 + sum(q[k - 1] * torch.cos(math.pi * k * centres) for k in range(1, n + 1))
        torch.testing.assert_close(decay.truncations(q, m, [n])[0], values / values.sum(), rtol=1e-12, atol=1e-15)
    torch.testing.assert_close(decay.series_values(q[:7], centres).sum(), torch.tensor(m / 2, dtype=torch.float64))
    fine = torch.linspace(-1, 1, 40 * 500 + 1, dtype=torch.float64)
    mass = torch.trapezoid(decay.series_values(q[:30], fine)[:501], fine[:501])
    assert decay.truncations(q, m, [30], exact=True)[0, 0].item() == pytest.approx(mass.item(), rel=1e-6)


@pytest.mark.parametrize("t", decay.DECAYS)
@pytest.mark.parametrize("m", [31, 256])
def test_steps_add_up_to_the_metric(t, m):
    q = decay.coefficients(t, m)
    total = np.cumsum(decay.steps(q, m, decay.Widths.all_of(m)))
    n = list(range(1, (m - 1) // 2 + 1))
    np.testing.assert_allclose(total, decay.measured(q, m, n), rtol=1e-11)
    sigma = 3.0
    y = decay.truncations(q, m, n).numpy()
    lag = np.arange(1 - m, m)
    taps = np.exp(-(lag**2) / (2 * sigma**2))
    place = (np.arange(m)[:, None] - lag) % m
    norm = np.linalg.norm(y - y[:, place] @ (taps / taps.sum()), axis=-1)
    np.testing.assert_allclose(np.cumsum(decay.steps(q, m, decay.Widths.single(sigma))), norm, rtol=1e-11)


def test_remainders_and_local_exponents_of_a_pure_power():
    n = np.arange(1, 400)
    law = 2 - 3 * (n + 0.5) ** -2.5
    step = np.diff(law, prepend=2 - 3 * 0.5**-2.5)
    np.testing.assert_allclose(decay.remainders(step), law[-1] - law, atol=1e-13)
    at, exponent = decay.local_exponents(step)
    np.testing.assert_allclose(exponent[at > 20], 2.5, atol=0.1)
    assert decay.fit(step, 8, 200).exponent == pytest.approx(2.5, rel=1e-6)


@pytest.fixture(scope="module", params=decay.DECAYS)
def law(request):
    return measure_law(request.param, [64, 256, 1024])


def test_exponent_of_the_theorem_where_it_holds(law):
    theorem = 2 * law["t"] - 1
    holding = [r for r in law["regimes"] if r["expected"] == theorem]
    names = {r["protocol"] for r in holding}
    assert {"main term of the proof", "widths in units of the interval", "metric, last tenth before m/2"} <= names
    for regime in holding:
        assert regime["exponent"] == pytest.approx(theorem, rel=0.05), regime["protocol"]


def test_exponent_of_the_metric_well_below_the_number_of_bins(law):
    (regime,) = [r for r in law["regimes"] if r["protocol"] == "metric, N well below m"]
    assert regime["exponent"] == pytest.approx(decay.narrow_exponent(law["t"]), abs=0.08)
    assert regime["exponent"] < 0.6 * (2 * law["t"] - 1)  # so the theorem's does not hold for the metric itself
    end = law["local"]["1024"]["exponent"][-1]
    assert end == pytest.approx(2 * law["t"] - 1, rel=0.02)  # it does as N reaches m/2


def test_truncated_densities_can_be_negative_and_fejer_means_cannot():
    z = torch.linspace(-1, 1, 2001, dtype=torch.float64)
    q = decay.triangle_coefficients(0.3, 2000)
    triangle = ((1 - z.abs() / 0.3) / 0.3).clamp_min(0)
    torch.testing.assert_close(decay.series_values(q, z), triangle, atol=2e-3, rtol=0)
    assert (q >= 0).all()
    for n in (2, 4, 8, 16):
        assert decay.series_values(q[:n], z).min() < -0.03
        assert decay.series_values(decay.fejer(q, n), z).min() > 0


def test_bin_centres_alias_beyond_half_their_number():
    m, q = 50, decay.triangle_coefficients(0.06, 100)
    centre = torch.tensor([-1 + (2 * j + 1) / m for j in range(m)], dtype=torch.float64)
    for k in (3, 20):
        torch.testing.assert_close(torch.cos(math.pi * (m - k) * centre), -torch.cos(math.pi * k * centre))
    s = decay.measured(q, m, range(1, m))
    assert (np.diff(s[: m // 2 - 1]) > 0).all()
    assert s[m - 2] < s[m // 2 - 2]
    assert abs(decay.series_values(q[:m], centre).sum().item() / (m / 2) - 1) > 0.05


def synthetic_rows(exponent, dataset="beta", **more):
    n = list(range(2, 21, 2))
    values = predicted_smoothness(n, 0.08, 0.1, (exponent + 1) / 2)
    return [
        row("smoothness", s, dataset=dataset, head="fourier", frequencies=i, packets=0, protocol="released", **more)
        for i, s in zip(n, values, strict=True)
    ]


def test_law_of_trained_heads_finds_the_exponent_of_each_series():
    rows = synthetic_rows(1.5, gamma=0.0) + synthetic_rows(0.8, gamma=1e-6)
    for one in rows[:10]:
        one["paper"] = one["ours"]
    rows += [row("smoothness", 0.1, dataset="beta", head="linear"), row("kl", 0.1, head="fourier", frequencies=4)]
    rows += synthetic_rows(1.0, "short")[:3]
    straight = synthetic_rows(1.0, "straight")
    for one in straight:
        one["ours"] = 0.01 * one["frequencies"]
    got = scaling_law_of_trained_heads(rows + straight)
    found = {(r["dataset"], r.get("gamma")): r for r in got}
    assert set(found) == {("beta", 0.0), ("beta", 1e-6), ("straight", None)}
    assert found["beta", 0.0]["ours"] == pytest.approx(1.5, rel=1e-4)
    assert found["beta", 0.0]["paper_fit"] == pytest.approx(1.5, rel=1e-4)
    assert found["beta", 1e-6]["ours"] == pytest.approx(0.8, rel=1e-4)
    assert found["beta", 1e-6]["std"] < 1e-3
    assert found["beta", 1e-6]["paper_fit"] is None
    assert found["straight", None]["ours"] is None


def test_study_with_and_without_trained_heads(tmp_path, monkeypatch):
    monkeypatch.setattr("studies.scaling_law.study.REACHES", (2, 8, 32))
    measure, measured = Settings.finish, []  # once is enough
    monkeypatch.setattr(
        Settings, "finish", lambda *given, **more: measured or measured.extend(measure(*given, **more)) or measured
    )
    first = run(Settings(output=tmp_path / "a", synthetic=tmp_path / "none", quick=True))
    assert "left out" in first.extra["notes"][-1]
    assert all(r["paper"] == 2 * r["t"] - 1 for r in first.compared)
    assert {r["metric"] for r in first.rows} >= {"exponent", "smoothness", "minimum", "sum_of_midpoints"}
    assert {p.name for p in (tmp_path / "a").glob("*.png")} >= {"law.png", "kernels.png", "negative.png", "alias.png"}
    write_results(tmp_path / "synthetic", synthetic_rows(1.5, gamma=0.0), command="c", seconds=1.0)
    second = run(Settings(output=tmp_path / "b", synthetic=tmp_path / "synthetic", quick=True))
    assert "exponents from 1.50 to 1.50" in second.extra["notes"][-1]
    names = [c["name"] for c in json.loads((tmp_path / "b" / "charts.json").read_text())]
    assert names[-1] == "trained-heads"


def test_measured_smoothness_is_the_public_metric():
    q = decay.coefficients(2, 20)
    torch.testing.assert_close(
        torch.as_tensor(decay.measured(q, 50, [5, 20])), smoothness(decay.truncations(q, 50, [5, 20]))
    )


def test_fejer_means_are_heads_and_come_nearer_with_every_frequency():
    from studies.scaling_law.expressivity import TARGETS, factor, fejer_mean, grid, measure_expressivity

    for target in TARGETS:
        measured = measure_expressivity(target, [2, 8, 32])
        errors = [one["sup_error"] for one in measured]
        assert errors == sorted(errors, reverse=True)
        assert max(one["factoring_error"] + one["embedding_error"] for one in measured) < 1e-12
    # The coefficients are a head's: N + 1 complex numbers, whose square is the density.
    truth = TARGETS["two Gaussians"](grid())
    assert factor(fejer_mean(truth, 8), 8).shape == (2, 9)


@pytest.mark.parametrize(("m", "sigma"), [(50, 1.0), (50, 20.0), (40, 3.0)])
def test_norms_of_the_lemmas_are_those_of_the_blurred_series(m, sigma):
    from studies.scaling_law.lemmas import Blurs

    q = decay.coefficients(2, 12)
    blurs = Blurs.of(m, sigma, 12)
    discrete, continuous = blurs.norms(q.numpy())
    y = decay.truncations(q, m, range(1, 13)) * (m / 2)  # values of the series, not scaled to sum to one
    lost = decay.steps(q, m, decay.Widths.single(sigma))  # of the scaled ones
    np.testing.assert_allclose(discrete[1:], np.cumsum(lost) * (m / 2), rtol=1e-9)
    z = torch.linspace(-m, m, 200_001, dtype=torch.float64)  # the continuous blur by quadrature, in bins
    total = torch.exp(-0.5 * (torch.arange(1 - m, m, dtype=torch.float64) / sigma) ** 2).sum()
    kernel = torch.exp(-0.5 * (z / sigma) ** 2) / total
    left = [torch.trapezoid(kernel * decay.series_values(q, (2 * j + 1) / m - 1 - 2 * z / m), z) for j in range(m)]
    np.testing.assert_allclose((blurs.b1 * y[-1] - torch.stack(left)).norm().item(), continuous[-1], rtol=1e-6)


def test_the_lemmas_of_the_proof_do_not_hold():
    from studies.scaling_law.lemmas import lemma_rows, measure_lemmas

    found = measure_lemmas()
    for one in found["gaps"]:
        assert one["gap"][-1] > one["gap"][0], "it would shrink as 1/N^5"
    uniform, cut = found["terms"]
    assert uniform["norm"] == [pytest.approx(0, abs=1e-12)]  # older numpy rounds the sum of the taps
    assert uniform["lemma"][0] == pytest.approx(math.sqrt(512) / 2)
    assert max(cut["norm"]) < 0.01 * min(cut["lemma"])
    assert {row["protocol"] for row in lemma_rows(found)} == {"lemma A.3", "lemma A.5"}
