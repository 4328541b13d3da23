"""Scores over sizes of models and of data: power laws that were put in come out, committed ones fit their scores."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import numpy as np
import pytest
from studies.chronos.arms import parse_arm
from studies.chronos.curves import curve_charts, curves, law_rows, power_law

RESULTS = Path(__file__).resolve().parents[2] / "results" / "forecasting-curves"
SIZES = {"@size=1m": 1.5, "@size=3m": 3.0, "@size=tiny": 9.0, "": 21.0}
EXPONENTS = {"linear": -0.05, "fourier-64": -0.1}
NAIVE = [{"model": "seasonal-naive", "dataset": "a", "status": "verified", "mase": 2.0, "wql": 0.5}]


def made(seeds: int, noise: float = 0.0) -> list[dict]:
    """Return runs whose MASE falls by a power law of the number of parameters, and whose WQL does not change."""
    rng = np.random.default_rng(0)
    found = []
    for (head, exponent), (end, size), seed in itertools.product(EXPONENTS.items(), SIZES.items(), range(seeds)):
        score = {"model": head, "mase": 1.6 * size**exponent * np.exp(noise * rng.standard_normal())}
        about = {"model": f"{head}{end}", "seed": seed, "parameters": round(1e6 * size), "share": 1.0}
        found.append({**about, "scores": [NAIVE[0] | score]})
    return found


@pytest.mark.parametrize(("factor", "exponent"), [(0.9, -0.03), (2.0, 0.5), (1.0, 0.0)])
def test_a_power_law_that_was_put_in_comes_out(factor, exponent):
    x = np.array([0.3, 1.0, 4.0, 20.0])
    law = power_law(x, factor * x**exponent)
    assert (law.factor, law.exponent) == pytest.approx((factor, exponent))
    assert law.interval == pytest.approx((exponent, exponent), abs=1e-6)


def test_the_interval_holds_the_exponent_as_often_as_it_says():
    rng, x = np.random.default_rng(0), np.array([1.0, 2.0, 5.0, 9.0, 20.0])
    laws = [power_law(x, 0.9 * x**-0.02 * np.exp(0.01 * rng.standard_normal(5))) for _ in range(1000)]
    held = [law.interval[0] <= -0.02 <= law.interval[1] for law in laws if law.interval]
    assert len(held) == 1000
    assert np.mean(held) == pytest.approx(0.95, abs=0.02)


def test_two_points_have_a_line_but_no_interval_and_one_has_none():
    assert power_law([1.0, 2.0], [2.0, 1.0]) == (pytest.approx(2.0), pytest.approx(-1.0), None)
    with pytest.raises(ValueError, match="points at two places, got 2"):
        power_law([1.0, 1.0], [2.0, 1.0])


def test_rows_have_the_exponents_of_both_heads():
    runs = made(seeds=1)
    arms = {one["model"]: parse_arm(one["model"]) for one in runs}
    assert list(curves(runs, arms)) == ["sizes"]  # the data were not varied
    rows = {(one["model"], one["metric"]): one for one in law_rows(runs, arms, NAIVE)}
    for head, exponent in EXPONENTS.items():
        row = rows[head, "relative_mase_exponent"]
        assert (row["ours"], row["factor"]) == pytest.approx((exponent, 0.8))  # over that of seasonal naive
        assert (row["points"], row["seeds"], row["protocol"], row["paper"]) == (4, 1, "over sizes", None)
        assert rows[head, "relative_wql_exponent"]["ours"] == pytest.approx(0, abs=1e-12)
    assert not list(law_rows(runs[:2], arms, NAIVE))  # a line through two points is none


def test_of_several_seeds_the_interval_is_one_over_seeds():
    runs = made(seeds=3, noise=0.01)
    rows = law_rows(runs, {one["model"]: parse_arm(one["model"]) for one in runs}, NAIVE)
    for row in rows:
        if row["metric"] == "relative_mase_exponent":
            assert row["seeds"] == 3
            assert row["high"] - row["low"] == pytest.approx(2 * 4.3027 * row["std"] / np.sqrt(3), rel=1e-3)


def test_the_law_is_drawn_through_the_points():
    runs = made(seeds=1)
    arms = {one["model"]: parse_arm(one["model"]) for one in runs}
    laws = list(law_rows(runs, arms, NAIVE))
    means = [
        {"dataset": "all", "model": one["model"], "metric": f"relative_{metric}", "ours": one["scores"][0][metric]}
        for one in runs
        for metric in ("mase", "wql")
    ]
    (chart,) = curve_charts(runs, arms, means + laws, "steps")
    assert chart.name == "by-sizes"
    names = [series.name for series in chart.panels[0].series]
    assert names == ["Linear", "Linear, power law", "Fourier", "Fourier, power law"]
    points, law = chart.panels[0].series[:2]
    assert (points.x[0], points.x[-1]) == (law.x[0], law.x[-1]) == (1.5, 21.0)
    assert [2 * law.y[0], 2 * law.y[-1]] == pytest.approx([points.y[0], points.y[-1]], rel=1e-5)


def test_the_committed_exponents_are_those_of_the_committed_scores():
    rows = json.loads((RESULTS / "summary.json").read_text(encoding="utf-8"))["rows"]
    runs = json.loads((RESULTS / "runs.json").read_text(encoding="utf-8"))
    arms = {one["model"]: parse_arm(one["model"]) for one in runs}
    scores = {one["model"]: one["ours"] for one in rows if one["dataset"] == "all" and one["metric"] == "relative_mase"}
    laws = [one for one in rows if one["metric"] == "relative_mase_exponent"]
    assert len(laws) == 4
    for one in laws:
        places = curves(runs, arms)[one["protocol"].removeprefix("over ")][one["model"]]
        law = power_law(list(places.values()), [scores[name] for name in places])
        assert (law.factor, law.exponent) == pytest.approx((one["factor"], one["ours"]))
        assert law.interval == pytest.approx((one["low"], one["high"]))
