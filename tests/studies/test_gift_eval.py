"""GIFT-Eval: configurations of a download and of rebuilt files, scores equal to gluonts', the table of results."""

import csv
import json

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from studies.zero_shot import gift_eval as gift
from studies.zero_shot.gift_eval import COLUMNS, evaluate_gift, gift_configurations, gift_naive, write_all_results

from fourier_head.errors import UserError
from fourier_head.forecasting.evaluation import evaluate, evaluate_seasonal_naive
from fourier_head.forecasting.scores import Forecast, central_levels


class Wide:
    """Forecast the last value, give or take ten units of level."""

    def predict(self, contexts, horizon, freq=None, progress=False):
        del freq, progress
        last = np.array([context[~np.isnan(context)][-1] for context in contexts])
        self.mean = np.repeat(last[:, None], horizon, axis=1)
        return self

    def quantiles(self, levels):
        return self.mean[..., None] + 10 * (np.asarray(levels) - 0.5)


def wide_quantiles(contexts, horizon, freq):
    return Forecast(Wide().predict(contexts, horizon, freq).quantiles(central_levels()), central_levels())


def download(folder):
    """Write data sets as the benchmark has them: streams of arrow, one of several columns."""
    rng = np.random.default_rng(0)
    sets = {
        "hospital": ("M", [rng.normal(50, 5, 84).tolist() for _ in range(3)]),
        "bizitobs_l2c/H": ("H", [[rng.normal(9, 2, 800).tolist() for _ in range(2)]]),
        "m4_weekly": ("W-SUN", [rng.normal(50, 5, 90).tolist() for _ in range(2)]),
    }
    for name, (freq, target) in sets.items():
        (folder / name).mkdir(parents=True)
        table = pa.table(
            {"item_id": [str(i) for i in range(len(target))], "freq": [freq] * len(target), "target": target}
        )
        with pa.ipc.new_stream(str(folder / name / "data-00000-of-00001.arrow"), table.schema) as writer:
            writer.write_table(table)
    return folder


def test_a_download_has_its_horizons_terms_and_windows(tmp_path):
    found = {one.name: one.read() for one in gift_configurations(download(tmp_path))}
    assert sorted(found) == [
        "bizitobs_l2c/H/long", "bizitobs_l2c/H/medium", "bizitobs_l2c/H/short", "hospital/M/short", "m4_weekly/W/short",
    ]  # fmt: skip
    short, columns = found["bizitobs_l2c/H/short"]
    assert (short.horizon, short.season, len(short), columns) == (48, 24, 4, 2)  # two columns, two windows
    assert [len(one) for one in short.series] == [752, 800, 752, 800]
    hospital = found["hospital/M/short"][0]
    assert (hospital.horizon, len(hospital)) == (12, 3)
    assert found["m4_weekly/W/short"][0].horizon == 13
    with pytest.raises(UserError, match=r"configs\.json"):
        gift_configurations(tmp_path / "nothing")


def test_scores_are_those_of_a_plain_evaluation_and_the_table_is_the_benchmarks(tmp_path):
    configurations = [one for one in gift_configurations(download(tmp_path)) if one.term == "short"]
    rows = evaluate_gift(Wide(), configurations, model="wide")
    for one, got in zip(configurations, rows, strict=True):
        data = one.read()[0]
        plain = evaluate(wide_quantiles, [data])[0]
        for key in ("mase", "wql", "coverage_50", "coverage_80", "coverage_95", "interval_error"):
            assert got[key] == pytest.approx(plain[key], rel=1e-6), key
        target, mean = data.targets(), Wide().predict(data.contexts(), data.horizon).mean
        assert got["gift"]["MSE[mean]"] == pytest.approx(np.mean((target - mean) ** 2), rel=1e-6)
        share = 2 * np.abs(target - mean) / (np.abs(target) + np.abs(mean))
        assert got["gift"]["sMAPE[0.5]"] == pytest.approx(share.mean(), rel=1e-6)
    path = write_all_results(tmp_path / "all_results.csv", rows)
    with path.open(encoding="utf-8") as file:
        table = list(csv.DictReader(file))
    assert tuple(table[0]) == COLUMNS
    assert len(table) == 3
    by = {one["dataset"]: one for one in table}
    assert by["bizitobs_l2c/H/short"]["num_variates"] == "2"
    assert by["hospital/M/short"]["domain"] == "Healthcare"


def test_every_window_is_forecast_with_its_dates(tmp_path):
    start = ["2020-02-28", ""]
    pd.DataFrame(
        {"id": ["a", "b"], "start": start, "freq": "D", "target": [np.arange(9.0), np.arange(8.0)]}
    ).to_parquet(tmp_path / "x.parquet")
    known = {"config": "x/D/short", "file": f"{tmp_path.name}/x.parquet", "freq": "D", "horizon": 3, "season": 1,
             "windows": 2}  # fmt: skip
    (tmp_path / "configs.json").write_text(json.dumps([known]))
    data, _ = gift_configurations(tmp_path)[0].read()
    told = [entry["start"] if isinstance(entry, dict) else None for entry in data.entries(longest=2)]
    # Windows end 6 and 3 days before the end, and two days are kept: the second and third, or the fifth and sixth.
    assert told == [np.datetime64("2020-02-29"), np.datetime64("2020-03-03"), None, None]


def test_rebuilt_configurations_divide_by_the_published_seasonal_naive(tmp_path):
    folder = tmp_path / "gift"
    folder.mkdir()
    series = [np.arange(40.0) % 7, np.arange(90.0) % 5]
    pd.DataFrame({"id": ["a", "b"], "start": "", "freq": "D", "target": series}).to_parquet(folder / "x.parquet")
    known = {"config": "us_births/D/short", "file": "gift/x.parquet", "freq": "D", "horizon": 5, "season": 1,
             "windows": 2, "longest": 50, "published_seasonal_naive": [2.0, 0.5]}  # fmt: skip
    (folder / "configs.json").write_text(json.dumps([known]))
    (folder / "published.csv").write_text("config,model,mase,wql\nus_births/D/short,other,1.0,0.1\n")
    configurations = gift_configurations(folder)
    assert len(configurations[0].read()[0]) == 2  # one series of two is short enough, in two windows
    rows, naive = evaluate_gift(Wide(), configurations, model="wide"), gift_naive(configurations)
    means = gift.rows(rows, naive, gift.read_published(folder), {"head": "none"})
    by = {(one["dataset"], one["model"], one["metric"]): one for one in means}
    assert by["gift", "wide", "relative_mase"]["ours"] == pytest.approx(rows[0]["mase"] / 2.0)
    assert by["gift_short", "other", "relative_wql"]["published"] == pytest.approx(0.2)
    assert ("gift_long", "wide", "relative_mase") not in by


def test_seasonal_naive_gives_the_published_scores_of_rebuilt_configurations(shared):
    configurations = gift_configurations(shared / "data/gift")
    assert len(configurations) == 21
    for one in configurations:
        if one.name != "m4_yearly/A/short":
            row = evaluate_seasonal_naive([one.read()[0]])[0]
            assert row["mase"] == pytest.approx(one.known["published_seasonal_naive"][0], rel=1e-5), one.name
