"""Around the forecaster: fine-tuning, GluonTS, and the command ``fourier-head forecast``."""

import json
import os
import re
import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from typer.testing import CliRunner

from fourier_head.cli import app
from fourier_head.cli.forecasting.example import example
from fourier_head.cli.forecasting.fan import charts, panels
from fourier_head.cli.forecasting.page import build
from fourier_head.errors import UserError
from fourier_head.forecasting.fine_tuning import AHEAD, _split
from fourier_head.forecasting.forecaster import Forecaster
from fourier_head.forecasting.inputs import read_series
from fourier_head.pages.charts import Chart, Series
from fourier_head.pages.drawing import draw, save_png
from tests.forecasting.test_forecaster import CONFIG, tiny, walk
from tests.forecasting.test_trading_days import made_up, months
from tests.studies.test_report import BROWSER, browse

WAVE = 5 + np.sin(2 * np.pi * np.arange(96) / 12)


# --- fine-tuning


@pytest.mark.parametrize("lora", [False, 2])
def test_fine_tuning_learns_a_season_and_leaves_the_first_forecaster_alone(lora, tmp_path):
    if lora:
        pytest.importorskip("peft")
    first = tiny()
    before = first.predict(WAVE[:84], 12, freq="ME").median
    tuned = first.fine_tune([WAVE, 2 * WAVE], steps=60, lora=lora, learning_rate=5e-3, batch=16, horizon=12, freq="ME")
    np.testing.assert_array_equal(first.predict(WAVE[:84], 12, freq="ME").median, before)
    outcome = tuned.history[-1]
    assert outcome.losses[0] == max(outcome.losses)
    assert min(outcome.losses) < 0.7 * outcome.losses[0]
    after = tuned.predict(WAVE[:84], 12, freq="ME").median
    assert np.abs(after - WAVE[84:]).mean() < 0.8 * np.abs(before - WAVE[84:]).mean()
    # Plain weights, with nothing of the low-rank updates left beside them, and kept to the last bit.
    assert set(tuned.model.state_dict()) == set(first.model.state_dict())
    assert len(tuned.fine_tune([WAVE], steps=1, batch=2).history) == 2
    again = Forecaster.from_pretrained(tuned.save_pretrained(tmp_path / "tuned"), "cpu")
    np.testing.assert_array_equal(again.predict(WAVE[:84], 12, freq="ME").median, after)


def test_fine_tuning_never_returns_worse_weights_and_stops_early():
    first = tiny()
    tuned = first.fine_tune([walk(60)], steps=40, learning_rate=3.0, batch=4, every=2, patience=2)
    outcome = tuned.history[-1]
    assert outcome.last < 40
    assert outcome.losses[outcome.steps.index(outcome.best)] == min(outcome.losses)


def test_fine_tuning_is_repeatable_and_may_go_without_validation():
    runs = []
    for noise in range(2):  # what else is drawn in a process changes nothing, nor is it changed
        first = tiny()
        torch.manual_seed(noise)
        runs.append(first.fine_tune({"a": walk(50)}, steps=3, batch=4, validate=False, seed=5))
        following = torch.rand(3)
        torch.manual_seed(noise)
        torch.testing.assert_close(torch.rand(3), following, rtol=0, atol=0)
    for one, other in zip(*(run.model.state_dict().values() for run in runs), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0)
    assert runs[0].history[-1].losses == ()


def test_a_network_that_reaches_far_keeps_few_steps_of_a_series_out():
    far = tiny(replace(CONFIG, horizon=512))
    kept, held = _split(read_series([walk(400)]), AHEAD, far.config.context)
    assert (int(kept.lengths[0]), held.future.shape) == (400 - 64, (1, 64))
    losses = far.fine_tune([walk(400)], steps=2, batch=2, every=1).history[-1].losses
    assert losses == pytest.approx(far.fine_tune([walk(400)], steps=2, batch=2, every=1, horizon=64).history[-1].losses)


@pytest.mark.parametrize(
    ("data", "settings", "message"),
    [
        ([walk(30)], {"steps": 2, "epochs": 1}, "not both"),
        ([walk(30)], {"steps": 0}, "steps must be positive"),
        ([walk(30)], {"steps": 2.5}, "steps must be a whole number, got 2.5"),
        ([walk(30)], {"batch": 1.5}, "batch must be a whole number"),
        ([walk(30)], {"every": -1}, "every must be positive"),
        ([walk(30)], {"epochs": np.inf}, "epochs must be positive, got inf"),
        ([walk(30)], {"learning_rate": 0}, "learning_rate must be positive, got 0"),
        ([walk(30)], {"horizon": 2.5}, "horizon must be from 1"),
        ([walk(30)], {"horizon": 17}, "horizon must be from 1 to the 16"),
        ([[1.0], [np.nan]], {}, "nothing to train on"),
    ],
)
def test_bad_fine_tuning_gets_one_sentence(data, settings, message):
    with pytest.raises(ValueError, match=message):
        tiny().fine_tune(data, **settings)


# --- GluonTS


@pytest.mark.parametrize("kind", ["quantile", "sample"])
def test_gluonts_evaluates_the_predictor(kind, tmp_path):
    pytest.importorskip("gluonts")
    from gluonts.dataset.common import ListDataset
    from gluonts.evaluation import make_evaluation_predictions

    from fourier_head.integrations.gluonts import FourierHeadPredictor

    entries = [{"start": "2020-01-31", "target": walk(n, n), "item_id": str(n)} for n in (40, 25)]
    dataset = ListDataset(entries, freq="ME")
    predictor = FourierHeadPredictor(tiny(), prediction_length=6, kind=kind, num_samples=50)
    forecasts, series = (list(x) for x in make_evaluation_predictions(dataset, predictor, num_samples=50))
    assert [f.item_id for f in forecasts] == ["40", "25"]
    assert [len(s) for s in series] == [40, 25]
    for forecast, one in zip(forecasts, series, strict=True):
        assert forecast.prediction_length == 6
        assert forecast.start_date == one.index[-6]
        assert (forecast.quantile(0.1) < forecast.quantile(0.9)).all()
    want = tiny().predict(entries[0]["target"][:34], 6, freq="ME").quantiles(0.5)[0]
    close = {"rtol": 1e-5} if kind == "quantile" else {"atol": 3 * float(np.ptp(want)) + 3}
    np.testing.assert_allclose(forecasts[0].quantile(0.5), want, **close)
    with pytest.raises(ValueError, match=r"batch_size must .*got 0"):
        FourierHeadPredictor(tiny(), prediction_length=6, batch_size=0)
    predictor.serialize(tmp_path)
    again = FourierHeadPredictor.deserialize(tmp_path, device="cpu")
    got = next(iter(again.predict(dataset)))
    np.testing.assert_array_equal(got.quantile(0.5), next(iter(predictor.predict(dataset))).quantile(0.5))


# --- charts


def test_a_fan_opens_at_the_last_value_and_its_bands_are_nested():
    forecasts = tiny().predict(example(), 5)
    fans = panels(forecasts, 4)
    assert [p.title for p in fans] == forecasts.ids
    for panel in fans:
        wide, middle, narrow, median, observed = panel.series[5:]
        assert wide.name == "95 %"
        assert wide.x[0] == observed.x[-1] == panel.marks[0].value
        assert wide.lower[0] == wide.y[0] == observed.y[-1]
        for outer, inner in ((wide, middle), (middle, narrow)):
            assert all(a <= b <= c <= d for a, b, c, d in zip(outer.lower, inner.lower, inner.y, outer.y, strict=True))
        assert all(a <= b <= c for a, b, c in zip(narrow.lower, median.y, narrow.y, strict=True))
        # The legend lists names as they first come: from what is known to what is least sure.
        assert list(Chart("c", "", [panel]).legend()) == ["observed", "median", "50 %", "80 %", "95 %"]
    # Months show their years on the axis, and so do three years of weeks; days and hours do not.
    assert [p.x_label for p in fans] == ["", "2024", "7 to 10 June 2024", ""]
    name, chart = charts(fans)[0]
    assert name == "Museum-visitors-monthly"
    assert Chart.from_dict(json.loads(json.dumps(chart.as_dict()))) == chart


ABOUT = {"title": "Fans", "table": "f.csv", "model": "A model", "seconds": 1.0, "hardware": "here", "command": "c"}


def test_letters_that_no_font_has_are_drawn_without_a_word(tmp_path):
    (panel,) = panels(tiny().predict({"\U0002f800": walk(30)}, 3), 1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        save_png(Chart("c", "", [panel]), tmp_path / "c.png")
    assert (tmp_path / "c.png").stat().st_size > 1000


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("first", ["2024-03-30", "2024-10-26"])
def test_charts_show_the_time_of_the_zone_across_a_change_of_clocks(first, named, tmp_path):
    hours = pd.date_range(first, periods=72, freq="h", tz="Europe/Berlin")
    times = hours if named else [hour.isoformat() for hour in hours]
    forecasts = tiny().predict(pd.DataFrame({"time": times, "y": walk(72)}), 24)
    (panel,) = panels(forecasts, 1)
    assert panel.series[-1].x == tuple(hour.timestamp() for hour in hours), "hours are equally long"
    assert Chart.from_dict(json.loads(json.dumps(Chart("c", "", [panel]).as_dict()))).panels[0] == panel
    midnights = [hour for hour in hours if hour.hour == 0]
    axis = draw(Chart("c", "", [panel])).axes[0].xaxis
    axis.axes.figure.canvas.draw()
    drawn = dict(zip((text.get_text() for text in axis.get_ticklabels()), axis.get_ticklocs(), strict=True))
    for midnight in midnights:
        assert drawn[f"{midnight:%d %b}"] * 86400 == pytest.approx(midnight.timestamp())
    page = tmp_path / "index.html"
    page.write_text(build(forecasts, [panel], ABOUT), encoding="utf-8")
    assert f"<th>{hours[-1] + pd.Timedelta('1h'):%Y-%m-%d %H:%M}".removesuffix(" 00:00") in page.read_text("utf-8")
    found = re.search(r'"panels": (\[.*\])}</script>', page.read_text("utf-8"))[1]
    when = [stop[0] for stop in json.loads(found)[0]]
    for midnight in midnights:
        assert f"{midnight.day} {midnight:%b %Y, %H:%M}" in when, "a pointer finds the time of the zone"


def test_charts_end_where_dates_do_and_this_is_told(run, tmp_path):
    table = pd.DataFrame({"year": np.arange(2150, 2200), "v": walk(50)})
    with pytest.warns(UserWarning, match="dates end in 2261, so that 8 of the 70 steps to come have none"):
        forecasts = tiny().predict(table, 70)
    (panel,) = panels(forecasts, 1)
    assert len(panel.series[-2].x) == 1 + 62
    assert (np.diff(panel.series[-2].x) > 0).all()
    table.to_csv(tmp_path / "far.csv", index=False)
    assert "dates end in 2261" in run("far.csv", "--horizon", 70).stderr


def test_a_band_needs_both_edges():
    with pytest.raises(ValueError, match="if and only if it is a band"):
        Series("b", [1, 2], [1, 2], kind="band")
    with pytest.raises(ValueError, match="as long as y"):
        Series("b", [1, 2], [1, 2], kind="band", lower=[0])


@pytest.mark.skipif(BROWSER is None, reason="no browser")
def test_the_page_draws_its_fans_and_fetches_nothing(tmp_path):
    forecasts = tiny().predict(example(), 6)
    page = tmp_path / "index.html"
    page.write_text(build(forecasts, panels(forecasts, 4), ABOUT), encoding="utf-8")
    dom = browse(page, tmp_path)[0]
    assert 'data-fetched="0"' in dom
    assert "data-errors" not in dom
    assert dom.count("fill-opacity: 0.38") >= 4
    assert dom.index(">observed<") < dom.index(">median<") < dom.index(">95 %<")
    assert "2024" in dom


# --- the command


def table(count=30, **more):
    return pd.DataFrame({"date": pd.date_range("2024-01-01", periods=count), "sold": walk(count)} | more)


def test_the_example_is_forecast_and_written_whole(run, tmp_path):
    result = run("--example", "--horizon", 20, "--output", "out", "--charts", 2)
    assert result.exit_code == 0, result.output
    out = pd.read_csv(tmp_path / "out" / "forecasts.csv", parse_dates=["timestamp"])
    assert len(out) == 80
    assert (np.diff(out[["0.025", "0.1", "0.25", "0.5", "0.75", "0.9", "0.975"]].to_numpy(), axis=1) >= 0).all()
    assert out["timestamp"].iloc[0] == pd.Timestamp("2024-07-01")
    written = json.loads((tmp_path / "out" / "results.json").read_text())
    assert {p.name for p in (tmp_path / "out").iterdir()} == set(written["files"])
    assert len(list((tmp_path / "out" / "charts").glob("*.png"))) == 2
    page = (tmp_path / "out" / "index.html").read_text()
    assert "Museum visitors" in page
    assert "The other 2 series are in forecasts.csv" in page
    assert "http" not in page.replace("http-equiv", "")
    assert "4 series (monthly, daily, hourly, weekly; 2012-01-01 to 2024-06-10 08:00), 20 steps" in result.stdout
    assert "2012-01-01 to 2024-06-10 08:00" in page
    assert "2026-02-01" in page, "the last month of the first series has a date of its own"
    # Again into the same folder: it is one of ours.
    assert run("--example", "--output", "out", "--charts", 1, "--horizon", 2).exit_code == 0


def test_parquet_in_and_out_with_named_columns(run, tmp_path):
    table(other=1.0, shop="x").to_parquet(tmp_path / "d.parquet")
    result = run(
        "d.parquet", "--horizon", 3, "--target", "sold", "--id", "shop", "--format", "parquet", "--levels", "0.9,0.2"
    )
    assert result.exit_code == 0, result.output
    out = pd.read_parquet(tmp_path / "forecast-d" / "forecasts.parquet")
    assert list(out.columns) == ["shop", "date", "mean", "0.2", "0.9"]
    assert len(out) == 3


@pytest.mark.parametrize(
    ("content", "words", "message"),
    [
        ("date,name\n2024-01-01,x\n", [], "d.csv: there is no numeric column to forecast; the columns are date, name."),
        ("date,y\n2024-01-01,1\nnever,2\n", [], "d.csv: the time column 'date' must hold dates, got 'never' in row 2."),
        ("date,y\n2024-01-01,1\n2024-01-01,2\n", [], "d.csv: series 'y' has several values at 2024-01-01"),
        ("date,y\n2024-01-01,1\n2024-01-02,2\n", ["--horizon", 0], "--horizon must be at least 1, got 0."),
        ("date,y\n2024-01-01,1\n2024-01-02,2\n", ["--horizon", 10**8], "--horizon must be at most 100,000, got"),
        ("date,y\n2024-01-01,1\n2024-01-02,2\n", ["--levels", "0.5,1"], "--levels must lie strictly between 0 and 1"),
        ("date,y\n2024-01-01,1\n2024-01-02,2\n", ["--levels", "half"], "--levels must be numbers"),
        ("date,y\n2024-01-01,1\n2024-01-02,2\n", ["--freq", "often"], "freq must be a pandas frequency"),
        ("date,y\n2024-01-01,1\n2024-01-02,2\n", ["--format", "xls"], "--format must be one of csv, parquet"),
        ("date,y\n", [], "d.csv: there is nothing to forecast: the table has no rows."),
        ("", [], "d.csv is empty."),
        ("2024-01-01,1003.77\n2024-01-02,7\n", [], "d.csv seems to have no header row"),
        (
            "date,y\nweek one,1\nweek two,2\n",
            [],
            "d.csv: the time column 'date' must hold dates, got 'week one' in row 1",
        ),
    ],
)
def test_bad_files_get_one_sentence_and_write_nothing(run, tmp_path, content, words, message):
    (tmp_path / "d.csv").write_text(content)
    result = run("d.csv", *words)
    assert result.exit_code == 2
    assert result.stderr.startswith("fourier-head: ")
    assert message in result.stderr
    assert result.stderr.count("\n") == 1
    assert [p.name for p in tmp_path.iterdir()] == ["d.csv"]


def test_a_folder_that_is_not_ours_is_left_alone(run, tmp_path):
    table().to_csv(tmp_path / "d.csv", index=False)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "letter.txt").write_text("dear")
    result = run("d.csv", "--output", "out")
    assert result.exit_code == 2
    assert "must be new, empty or an earlier forecast" in result.stderr
    assert [p.name for p in (tmp_path / "out").iterdir()] == ["letter.txt"]


def test_a_folder_that_cannot_be_written_is_told_before_anything_is_forecast(run, tmp_path, monkeypatch):
    table().to_csv(tmp_path / "d.csv", index=False)
    monkeypatch.setattr(Forecaster, "predict", None)
    inside = tmp_path / "d.csv" / "out"
    assert run("d.csv", "--output", "d.csv/out").stderr == (
        f"fourier-head: --output {inside} cannot be written: {inside.parent} is a file.\n"
    )
    monkeypatch.setattr(os, "access", lambda path, mode: not mode & os.W_OK)  # tests may run as root
    result = run("d.csv", "--output", "out")
    assert result.exit_code == 2
    assert f"there is no permission to write to {tmp_path}." in result.stderr


def test_nothing_and_a_missing_file_are_named(run):
    assert "give one file or folder to forecast, or --example" in run().stderr
    assert "there is no file or folder none.csv" in run("none.csv").stderr
    assert (
        "--device must be one of cpu, cuda"
        in CliRunner().invoke(app, ["forecast", "--example", "--device", "x"]).stderr
    )


def test_whole_numbers_name_series_and_the_table_is_headed_by_dates(run, tmp_path):
    pd.concat([table(store=number) for number in (1, 2, 3)]).to_csv(tmp_path / "d.csv", index=False)
    result = run("d.csv", "--horizon", 5)
    assert result.exit_code == 0, result.output
    assert "3 series (daily, 2024-01-01 to 2024-01-30), 5 steps" in result.stdout
    guessed = (
        "guessed target 'sold', time 'date', id 'store', frequency D; name others with --target, --time, --id, --freq"
    )
    assert result.stderr.strip() == f"fourier-head: {guessed}."
    options = ("--target", "sold", "--time", "date", "--id", "store", "--freq", "D")
    assert not run("d.csv", "--horizon", 5, *options).stderr.strip()
    page = (tmp_path / "forecast-d" / "index.html").read_text()
    assert "<th>2024-01-31</th><th>2024-02-04</th>" in page
    assert "Read as daily, 2024-01-01 to 2024-01-30." in page
    assert pd.read_csv(tmp_path / "forecast-d" / "forecasts.csv")["store"].unique().tolist() == [1, 2, 3]


def test_a_page_has_no_interval_of_what_is_closed(run, tmp_path):
    days = pd.date_range("2024-01-01", periods=60)  # from a Monday to a Thursday
    table(60).assign(date=days)[days.weekday < 3].to_csv(tmp_path / "shop.csv", index=False)
    run("shop.csv", "--horizon", 1)
    assert "– to –" not in (tmp_path / "forecast-shop" / "index.html").read_text()


def test_what_was_read_in_doubt_or_not_at_all_is_said(run, tmp_path):
    (tmp_path / "none.csv").write_text("sold\n" + "5\n7\n" * 9)
    said = "no dates were found, so steps are numbered and no season is assumed; name the column of dates with --time."
    result = run("none.csv", "--horizon", 2)
    assert said in result.stderr
    assert "Step 2" in (tmp_path / "forecast-none" / "index.html").read_text()
    assert "season" not in run("none.csv", "--horizon", 2, "--freq", "h").stderr
    dates = pd.date_range("2024-01-01", periods=12).strftime("%m/%d/%Y")
    pd.DataFrame({"date": dates, "sold": range(12)}).to_csv(tmp_path / "doubt.csv", index=False)
    assert "'01/02/2024' is read as 2024-01-02" in run("doubt.csv", "--horizon", 2).stderr


def test_a_graphics_card_that_is_not_there_is_one_sentence(run, monkeypatch, model):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(UserError, match="needs a graphics card"):
        Forecaster.from_pretrained(model, device=torch.device("cuda"))
    result = CliRunner().invoke(app, ["forecast", "--example", "--model", model, "--device", "cuda"])
    assert result.exit_code == 2
    assert result.stderr == "fourier-head: --device cuda needs a graphics card that torch can use; there is none.\n"


def test_a_folder_of_files_is_forecast_file_by_file(run, tmp_path):
    data = tmp_path / "data"
    data.mkdir()
    table().to_csv(data / "good.csv", index=False)
    table(12).to_parquet(data / "other.parquet")
    (data / "bad.csv").write_text("date,name\n2024-01-01,x\n")
    (data / "good.csv.bak").write_text("no table")
    result = run(data, "--horizon", 2, "--output", "out")
    assert result.exit_code == 2
    assert "fourier-head: bad.csv: there is no numeric column" in result.stderr
    assert "fourier-head: good.csv and 1 more: guessed target 'sold', time 'date', frequency D" in result.stderr
    assert {p.name for p in (tmp_path / "out").iterdir()} == {"good", "other", "index.html", "results.json"}
    assert len(pd.read_csv(tmp_path / "out" / "good" / "forecasts.csv")) == 2
    page = (tmp_path / "out" / "index.html").read_text()
    assert 'href="good/index.html"' in page
    assert "there is no numeric column" in page
    assert "2 series in 2 files. 1 file failed" in page
    assert "2 files; 1 file failed." in result.stdout
    (data / "bad.csv").unlink()
    assert run(data, "--horizon", 3, "--output", "out").exit_code == 0
    assert len(pd.read_csv(tmp_path / "out" / "other" / "forecasts.csv")) == 3


def test_the_page_says_what_was_done_beside_the_network(run, tmp_path):
    when = months()
    pair = {"month": when.to_timestamp(), "a": made_up(when), "b": [*np.random.default_rng(0).normal(9, 1, 179), 999.0]}
    pd.DataFrame(pair).to_csv(tmp_path / "d.csv", index=False)
    assert run("d.csv", "--horizon", 12).exit_code == 0
    rules = json.loads((tmp_path / "forecast-d" / "results.json").read_text())["rules"]
    assert rules == {"one absurd value left out": 1, "the weekdays of months": 1}
    page = (tmp_path / "forecast-d" / "index.html").read_text()
    assert "Beside the network: one absurd value left out (1 series) and the weekdays of months (1 series)." in page
    table().to_csv(tmp_path / "plain.csv", index=False)
    assert run("plain.csv", "--horizon", 3).exit_code == 0
    assert "Beside the network" not in (tmp_path / "forecast-plain" / "index.html").read_text()
