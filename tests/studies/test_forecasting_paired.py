"""Paired differences between arms: what they are of, and what their intervals hold."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from studies.chronos.paired import FILE, Bootstrap, Errors, blocks, groups_of_sets, paired_charts, paired_rows
from studies.chronos.study import Settings, run

RESULTS = Path(__file__).resolve().parents[2] / "results" / "forecasting-seeds"


def made(arms: dict[str, float], seeds: int = 3, series: int = 200, noise: float = 0.0) -> Errors:
    """Return errors of two sets where each arm is so many times the error of the first, but for noise by seed."""
    rng = np.random.default_rng(0)
    runs = [(arm, seed) for arm in arms for seed in range(seeds)]
    factors = np.array([arms[arm] * np.exp(noise * rng.standard_normal()) for arm, _ in runs])[:, None]
    sets = {}
    for name in ("a", "b"):
        own = rng.exponential(size=series)
        count = rng.integers(1, 4, series).astype(float)
        sets[name] = {"scaled": factors * own, "loss": factors * own, "count": count, "size": 10 * count}
    return Errors(tuple(runs), sets)


def test_arms_that_differ_by_a_factor_everywhere_differ_by_exactly_that():
    # Both arms get the same series in every draw, so how series differ does not widen the interval.
    found = Bootstrap(made({"linear": 1.0, "fourier-8": 0.9}), 50).compare("fourier-8", "linear", "mase", ["a", "b"])
    assert found["ours"] == pytest.approx(-10)
    assert (found["low"], found["high"]) == pytest.approx((-10, -10))
    assert (found["seeds"], found["ahead"], found["pairs"]) == (3, 6, 6)
    assert found["std"] == pytest.approx(0, abs=1e-9)


def test_noise_between_seeds_is_part_of_the_interval():
    found = Bootstrap(made({"linear": 1.0, "fourier-8": 1.0}, noise=0.05), 500).compare(
        "fourier-8", "linear", "wql", ["a"]
    )
    assert found["low"] < found["ours"] < found["high"]
    assert found["high"] - found["low"] > 1
    # Draws of three seeds know less of how seeds vary than Student's t says one can.
    assert found["t_low"] < found["low"] < found["high"] < found["t_high"]


def test_series_that_differ_are_part_of_the_interval():
    errors, rng = made({"linear": 1.0, "fourier-8": 1.0}, seeds=1), np.random.default_rng(1)
    for own in errors.sets.values():
        own["scaled"][1] *= rng.exponential(size=200)
    found = Bootstrap(errors, 500).compare("fourier-8", "linear", "mase", ["a", "b"])
    assert found["std"] is None
    assert (found["t_low"], found["t_high"]) == (None, None)
    assert 5 < found["high"] - found["low"] < 60


def test_scores_are_the_quotients_of_sums_also_of_blocks():
    values, count = np.arange(25.0), np.ones(25)
    assert blocks(values, 10).sum() / blocks(count, 10).sum() == values.mean()
    assert len(blocks(values, 10)) == 10
    assert blocks(values).tolist() == values.tolist()


def test_rows_compare_with_linear_and_with_the_head_that_is_varied():
    naive = [{"dataset": "a", "status": "reconstructed"}, {"dataset": "b", "status": "verified"}]
    assert groups_of_sets(naive) == {
        "all": ["a", "b"], "without a": ["b"], "verified": ["b"], "a": ["a"], "b": ["b"],
    }  # fmt: skip
    arms = {"linear": 1.0, "fourier-8": 0.9, "fourier-8-free": 1.2}
    rows = paired_rows(made(arms), naive, {"fourier-8": {"head": "fourier", "paper": {"x": 1}}}, draws=20)
    found = {(one["model"], one["against"], one["dataset"], one["metric"]): one["ours"] for one in rows}
    assert found["fourier-8", "linear", "all", "mase_difference"] == pytest.approx(-10)
    assert found["fourier-8-free", "fourier-8", "b", "wql_difference"] == pytest.approx(100 / 3)
    assert ("linear", "fourier-8", "all", "mase_difference") not in found
    assert all(one["paper"] is None for one in rows)
    (chart,) = paired_charts(rows)
    assert [series.name for series in chart.panels[0].series] == ["all"]  # of groups of one set there is no mean
    bars, own = (
        chart.panels[0].series[0],
        [one for one in rows if one["dataset"] == "all" and one["against"] == "linear"],
    )
    mase = [one for one in own if one["metric"] == "mase_difference"]
    assert bars.y == pytest.approx([one["ours"] for one in mase])  # not the middle of the interval
    assert np.subtract(bars.y, bars.below) == pytest.approx([one["low"] for one in mase])
    assert np.add(bars.y, bars.error) == pytest.approx([one["high"] for one in mase])


def test_errors_are_written_and_read(tmp_path):
    errors = made({"linear": 1.0, "linear-tied": 0.5})
    errors.save(tmp_path / FILE)
    again = Errors.load(tmp_path / FILE)
    assert again.runs == errors.runs
    assert {name: set(own) for name, own in again.sets.items()} == {name: set(own) for name, own in errors.sets.items()}
    np.testing.assert_allclose(again.sets["a"]["scaled"], errors.sets["a"]["scaled"], rtol=1e-6)


def test_a_study_of_two_seeds_says_how_arms_differ(tmp_path):
    settings = Settings(
        output=tmp_path / "out",
        checkpoints=tmp_path / "models",
        quick=True,
        steps=10,
        seeds=2,
        average=0.1,
        device="cpu",
    )
    summary = run(settings)
    assert summary is not None
    found = [one for one in summary.rows if one["metric"] == "mase_difference" and one["dataset"] == "all"]
    assert [(one["model"], one["against"], one["seeds"]) for one in found] == [("fourier-16", "linear", 2)]
    relative = {}
    for one in json.loads((settings.output / "runs.json").read_text()):
        relative.setdefault(one["model"], []).append(np.mean([np.log(score["mase"]) for score in one["scores"]]))
    change = np.mean(relative["fourier-16"]) - np.mean(relative["linear"])
    assert found[0]["ours"] == pytest.approx(100 * np.expm1(change), rel=1e-4)
    assert (settings.output / "paired.png").exists()
    assert any("they are of averaged weights" in note for note in summary.extra["notes"])
    # The folder of results alone is enough to go on from.
    shutil.move(settings.checkpoints, tmp_path / "gone")
    again = run(replace(settings, summarise=True))
    assert again is not None
    assert [(one["metric"], one["model"]) for one in again.rows] == [
        (one["metric"], one["model"]) for one in summary.rows
    ]
    changed = [abs(a["ours"] - b["ours"]) for a, b in zip(again.rows, summary.rows, strict=True) if a["ours"]]
    assert max(changed) < 1e-3  # sums are kept as single floats
    # Arms that were scored before errors by series were kept have no intervals.
    shutil.move(tmp_path / "gone", settings.checkpoints)
    (settings.output / FILE).unlink()
    for path in settings.checkpoints.rglob("errors-*.npz"):
        path.unlink()
    without = run(replace(settings, summarise=True))
    assert without is not None
    assert not [one for one in without.rows if one["metric"] == "mase_difference"]


def test_the_committed_differences_are_those_of_the_committed_errors():
    rows = json.loads((RESULTS / "summary.json").read_text())["rows"]
    bootstrap = Bootstrap(Errors.load(RESULTS / FILE), 1)
    checked = 0
    for one in rows:
        if one["metric"] in ("mase_difference", "wql_difference") and one["dataset"] in ("all", *bootstrap.sets):
            sets = bootstrap.sets if one["dataset"] == "all" else [one["dataset"]]
            found = bootstrap.compare(one["model"], one["against"], one["metric"].partition("_")[0], sets)
            assert found["ours"] == pytest.approx(one["ours"], abs=1e-3)
            assert one["low"] < one["high"]
            assert (found["t_low"], found["t_high"]) == pytest.approx((one["t_low"], one["t_high"]), abs=5e-3)
            checked += 1
    assert checked > 100
