"""Rows and charts of forecasting studies."""

import pytest
from studies.common.forecast_charts import calibration_chart, overview_chart, relative_chart
from studies.common.forecast_scores import comparable, published_rows, seasonal_naive_rows, summary_rows

from fourier_head.forecasting.evaluation import SEASONAL_NAIVE
from fourier_head.pages.charts import Chart
from fourier_head.pages.drawing import save_png

SETS = {"m1_yearly": "verified", "tourism_monthly": "verified", "m5_partial": "partial", "mine": "own"}


def scores(model, mase, wql, seed=None, coverage=None):
    rows = []
    for dataset, status in SETS.items():
        one = {"model": model, "dataset": dataset, "status": status, "mase": mase, "wql": wql, "seconds": 1.0}
        if seed is not None:
            one["seed"] = seed
        if coverage is not None:
            cover = {"coverage_50": 0.5, "coverage_80": 0.8, "coverage_95": coverage}
            one |= cover | {"interval_error": abs(coverage - 0.95) / 3, "pit": [0.1] * 10}
        rows.append(one)
    return rows


NAIVE = scores(SEASONAL_NAIVE, 2.0, 0.5)
PUBLISHED = [
    {"model": model, "dataset": dataset, "status": status, "mase": mase, "wql": wql}
    for dataset, status in {"m1_yearly": "verified", "m5": "published"}.items()
    for model, mase, wql in ((SEASONAL_NAIVE, 2.0, 0.5), ("chronos-t5-mini", 1.8, 0.4), ("chronos-t5-base", 1.7, 0.38))
]
ABOUT = {"fourier-64": {"head": "fourier", "frequencies": 64, "paper": {"relative_mase": 0.875}}}


def only(rows, **keys):
    (found,) = [one for one in rows if all(one.get(key) == value for key, value in keys.items())]
    return found


def test_rows_hold_means_over_seeds_relative_scores_and_what_stands_beside_them():
    runs = scores("fourier-64", 1.0, 0.25, 0, 0.92) + scores("fourier-64", 2.0, 0.5, 1, 0.92) + scores("linear", 2, 0.5)
    rows = summary_rows(runs, NAIVE, ABOUT)
    first = only(rows, head="fourier", dataset="verified", metric="relative_mase")
    assert (first["ours"], first["seeds"], first["sets"], first["frequencies"]) == (pytest.approx(0.75), 2, 2, 64)
    assert first["std"] == pytest.approx(0.5 / 2**0.5)
    assert first["paper"] is None
    assert only(rows, head="fourier", dataset="all", metric="relative_mase")["paper"] == 0.875
    assert only(rows, head="fourier", dataset="all", metric="relative_mase")["sets"] == 4
    assert only(rows, head="fourier", dataset="verified", metric="interval_error")["ours"] == pytest.approx(0.01)
    by_set = only(rows, head="linear", dataset="m5_partial", metric="wql")
    assert (by_set["ours"], by_set["seasonal_naive"], by_set["relative"], by_set["status"]) == (
        0.5,
        0.5,
        1.0,
        "partial",
    )
    assert not [one for one in rows if one["model"] == "linear" and one["metric"].startswith("coverage")]


def test_published_means_are_over_the_sets_that_were_scored_whole():
    both = [*PUBLISHED, *(one | {"dataset": "tourism_monthly", "mase": 9.0} for one in PUBLISHED[:3])]
    assert comparable(both, NAIVE) == both
    cut = [one | {"status": "partial"} if one["dataset"] == "tourism_monthly" else one for one in NAIVE]
    rows = published_rows(comparable(both, cut))
    mini = only(rows, model="chronos-t5-mini", dataset="verified", metric="relative_mase")
    assert (mini["sets"], mini["published"]) == (1, pytest.approx(0.9))
    assert only(rows, model="chronos-t5-mini", dataset="published", metric="relative_mase")["sets"] == 3
    naive = seasonal_naive_rows(cut, comparable(both, cut))
    assert only(naive, dataset="m1_yearly", metric="mase")["published"] == 2.0
    assert only(naive, dataset="tourism_monthly", metric="mase")["published"] is None


def test_seeds_scored_on_different_sets_are_refused():
    with pytest.raises(ValueError, match="same sets, got others for seed 1"):
        summary_rows(scores("m", 1, 1, 0) + scores("m", 1, 1, 1)[:2], NAIVE)


def test_published_models_stand_beside_ours():
    naive = seasonal_naive_rows(NAIVE, PUBLISHED)
    assert only(naive, dataset="m1_yearly", metric="mase")["published"] == 2.0
    assert only(naive, dataset="m5_partial", metric="mase")["published"] is None
    rows = published_rows(PUBLISHED)
    mini = only(rows, head="chronos-t5-mini", dataset="verified", metric="relative_wql")
    assert (mini["published"], mini["ours"], mini["sets"]) == (pytest.approx(0.8), None, 1)
    assert all(one["paper"] is None for one in naive + rows)  # none of this is in the paper
    assert only(rows, head="chronos-t5-mini", dataset="published", metric="relative_mase")["sets"] == 2
    assert {one["dataset"] for one in rows} == {"verified", "published", "m1_yearly"}


def test_charts_show_every_model_and_can_be_drawn(tmp_path):
    ours = scores("fourier-64", 1.0, 0.25, 0, 0.92) + scores("fourier-64", 2.0, 0.5, 1, 0.94) + scores("linear", 2, 0.5)
    mini = [one for one in PUBLISHED if one["model"] == "chronos-t5-mini"]
    heads = {"fourier-64": "fourier", "linear": "linear", "chronos-t5-mini": "truth"}
    bars = relative_chart(ours + mini, NAIVE, "wql", heads=heads)
    assert [panel.title for panel in bars.panels] == ["Yearly", "Monthly", "Weekly, daily, half-hourly", "Others"]
    assert [(one.name, one.colour) for one in bars.panels[0].series] == list(heads.items())
    assert bars.panels[0].series[0].y == (0.75,)
    assert bars.panels[0].series[2].y == (0.8,)
    assert bars.panels[2].series[2].y == (None,)
    assert bars.panels[2].series[0].x == ("M5*",)
    overview = overview_chart(ours, NAIVE, PUBLISHED, heads=heads)
    assert list(overview.legend()) == ["fourier-64", "linear", "Chronos T5, published"]
    assert overview.legend()["Chronos T5, published"].x == (0.85, 0.9)
    calibration = calibration_chart(ours, heads=heads)
    assert list(calibration.legend()) == ["fourier-64"]  # the others have no intervals
    assert calibration.panels[1].series[1].y == (50.0, 80.0, 93.0)
    for chart in (bars, overview, calibration):
        assert Chart.from_dict(chart.as_dict()) == chart
        save_png(chart, tmp_path / f"{chart.name}.png")
        assert (tmp_path / f"{chart.name}.png").stat().st_size > 5000
