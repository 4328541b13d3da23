"""The command `fourier-head compare`: what it measures, what it writes, and what it says to bad input."""

import json
import math
import re
import shlex
import subprocess
import sys

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from fourier_head.cli import app
from fourier_head.compare import Settings
from fourier_head.compare.results import METRICS
from fourier_head.compare.settings import parse_heads
from fourier_head.errors import UserError
from tests.comparison_table import homes

HEADS = ["linear", "gmm", "hl-gauss", "fourier", "fourier-packets", "fourier-adaptive"]


def invoke(*words):
    return CliRunner().invoke(app, ["compare", *map(str, words)])


# --- a whole run


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """One run of the command on the built-in data, in a folder of its own."""
    folder = tmp_path_factory.mktemp("run")
    return invoke("--example", "bimodal", "--epochs", 1, "--output", folder / "out"), folder


def test_builtin_run_prints_the_table_and_writes_the_folder(report):
    done, folder = report
    assert done.exit_code == 0, done.output
    assert [p.name for p in folder.iterdir()] == ["out"], "nothing but the folder may remain"
    names = {p.name for p in (folder / "out").iterdir()}
    assert names == {"results.json", "index.html", "densities.png", "calibration.png", "validation.png"}
    for label in ["NLL", "CRPS", "KL", "Smoothness", "RMSE", "Parameters", "Seconds"]:
        assert label in done.stdout
    for label in ["Truth", "Linear", "GMM", "HL-Gauss", "Fourier", "Fourier + packets", "Adaptive Fourier"]:
        assert re.search(rf"^{re.escape(label)}\s+−?\d", done.stdout, re.MULTILINE)
    assert "frequencies of the Fourier heads. Rows with similar features" in done.stdout


def test_results_name_command_versions_and_every_head(report):
    _, folder = report
    results = json.loads((folder / "out" / "results.json").read_text())
    assert [row["head"] for row in results["rows"]] == HEADS
    assert results["command"].startswith("fourier-head compare --output")
    assert results["versions"]["torch"] == torch.__version__
    assert results["hardware"]
    assert results["dataset"]["rows"] == {"train": 3400, "validation": 600, "test": 1000}
    for row in results["rows"]:
        assert all(math.isfinite(row[m.key]) for m in METRICS)
        assert sum(row["pit_histogram"]) == pytest.approx(1, abs=1e-3)
        assert row["nll"] > results["truth"]["nll"]
        assert row["kl"] > 0
        assert row["parameters"] > row["head_parameters"] > 0
    fourier, packets = results["rows"][3:5]
    assert packets["packets"] == 2
    assert packets["head_parameters"] == fourier["head_parameters"] + 2 * 4 * 65


def test_page_needs_no_network_and_holds_table_and_figures(report):
    _, folder = report
    page = (folder / "out" / "index.html").read_text()
    results = json.loads((folder / "out" / "results.json").read_text())
    assert not re.search(r"https?://|@import|url\((?!#)", page)
    assert not re.search(r'(?:src|href)="(?!#|data:)', page)
    for title in ("Learned densities", "Calibration", "Training"):
        assert f"<h2>{title}</h2>" in page
    assert "prefers-color-scheme:dark" in page
    assert 'name="viewport"' in page
    assert results["command"] in page.replace("&#x27;", "'")
    ids = re.findall(r'\sid="([^"]+)"', page)
    assert len(ids) == len(set(ids)), "ids of inline figures must not collide"
    used = set(re.findall(r'(?:href="|url\()#([^")]+)', page))
    assert used <= set(ids)
    for variable in re.findall(r"var\((--[a-z-]+)\)", page):
        assert f"{variable}:" in page
    assert not re.findall(r"#(?:d55e00|1c2127)", page.split("</style>")[1]), "figures must follow the colour scheme"


def test_pictures_are_not_blank(report):
    from matplotlib.image import imread

    _, folder = report
    for picture in (folder / "out").glob("*.png"):
        pixels = imread(picture)
        assert pixels.shape[1] > 1000
        assert pixels[..., :3].std() > 0.02


def test_own_table_with_seeds_and_hostile_names(tmp_path):
    target = '<b>price & "tax"</b>'
    path = tmp_path / "homes.csv"
    frame = homes().rename(columns={"price": target})
    frame.loc[:11, target] = np.nan
    frame.to_csv(path, index=False)
    out = tmp_path / "new" / "out"
    words = [path, "--target", target, "--epochs", 2, "--seeds", 2, "--heads", "fourier_packets,linear", "-o", out]
    done = invoke(*words)
    assert done.exit_code == 0, done.output
    said = " ".join(done.stdout.split())
    assert "12 of 240 rows are left out" in said
    assert "Column 'sold' is left out: it holds dates." in said
    results = json.loads((out / "results.json").read_text())
    assert [row["head"] for row in results["rows"]] == ["linear", "fourier-packets"]
    assert results["truth"] is None
    for row in results["rows"]:
        assert row["kl"] is None
        assert row["seeds"] == 2
        assert row["nll_std"] > 0
    page = (out / "index.html").read_text()
    assert "<b>price" not in page
    assert "&lt;b&gt;price &amp; " in page
    assert "± " in page
    head = ["fourier-head", "compare", str(path), "--target", target, "--output", str(out), "--epochs", "2"]
    assert results["command"] == shlex.join([*head, "--seeds", "2", "--heads", "linear,fourier-packets"])


# --- bad input


@pytest.fixture
def files(tmp_path, monkeypatch):
    """A folder of good and bad files, as the current folder."""
    monkeypatch.chdir(tmp_path)
    frame = homes(60)
    frame.to_csv("good.csv", index=False)
    frame.head(0).to_csv("header.csv", index=False)
    frame.head(9).to_csv("short.csv", index=False)
    frame.head(1).to_csv("row.csv", index=False)
    frame.assign(price=2.5).to_csv("constant.csv", index=False)
    frame.assign(price=np.nan).to_csv("missing.csv", index=False)
    frame.astype({"price": object}).assign(price=[1.0] * 59 + ["dear"]).to_csv("words.csv", index=False)
    (tmp_path / "empty.csv").touch()
    (tmp_path / "bytes.csv").write_bytes(bytes(range(256)))
    (tmp_path / "bytes.parquet").write_bytes(b"not parquet")
    (tmp_path / "table.ods").touch()
    (tmp_path / "folder.csv").mkdir()
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.txt").write_text("years of work")
    return tmp_path


BAD = [
    ("good.csv --target Prize", "did you mean price?"),
    ("good.csv --target zzz", "there are size, town, price"),
    ("good.csv --target town", "must hold numbers"),
    ("words.csv --target price", "'dear' in row 60"),
    ("missing.csv --target price", "every row is missing"),
    ("constant.csv --target price", "must vary, got 2.5"),
    ("empty.csv --target price", "is empty"),
    ("header.csv --target price", "no rows"),
    ("short.csv --target price", "at least 30 rows with a target, got 9"),
    ("row.csv --target price", "at least 30 rows with a target, got 1"),
    ("bytes.csv --target price", "cannot be read as csv: it holds bytes that are no text."),
    ("bytes.parquet --target price", "cannot be read as parquet"),
    ("nowhere.csv --target price", "there is no file nowhere.csv"),
    ("folder.csv --target price", "is a folder"),
    ("full --target price", "full is a folder"),
    ("table.ods --target price", "got .ods"),
    ("good.csv", "--target must name the column"),
    ("--target price", "no file"),
    ("--bins 1", "--bins must be at least 2, got 1."),
    ("--frequencies -3", "--frequencies must be at least 1, got -3."),
    ("--frequencies some", "'auto' or a whole number, got 'some'"),
    ("--packets 0", "--packets"),
    ("--epochs 0", "--epochs must be at least 1"),
    ("--seeds 0", "--seeds"),
    ("--seed -1", "--seed"),
    ("--heads linear,forier", "did you mean fourier"),
    ("--heads ,", "at least one head"),
    ("--output good.csv", "is a file"),
    ("--output good.csv/out", "cannot be written"),
    ("--output full", "must be new, empty or an earlier comparison"),
    ("--output .", "a folder of its own"),
]


@pytest.mark.parametrize(("words", "sentence"), BAD, ids=[words for words, _ in BAD])
def test_bad_input_gets_one_sentence_and_writes_nothing(files, words, sentence):
    before = sorted(files.rglob("*"))
    done = invoke(*words.split())
    assert done.exit_code == 2
    assert sentence in done.stderr
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("fourier-head: ")
    assert done.stderr.endswith((".\n", "?\n"))
    assert done.stdout == ""
    assert sorted(files.rglob("*")) == before


def test_settings_tell_python_users_the_same():
    with pytest.raises(UserError, match="--bins must be at least 2"):
        Settings(bins=0)
    assert parse_heads("fourier, LINEAR,hl_gauss,linear") == ("linear", "hl-gauss", "fourier")


@pytest.mark.parametrize("missing", ["matplotlib", "pandas", "rich", "jinja2"])
def test_missing_extra_names_the_command_that_installs_it(monkeypatch, tmp_path, missing):
    monkeypatch.chdir(tmp_path)
    for name in [n for n in sys.modules if n.startswith(("fourier_head.compare", "fourier_head.pages"))]:
        monkeypatch.delitem(sys.modules, name)
    for name in [n for n in sys.modules if n.split(".")[0] == missing]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, missing, None)
    done = invoke("--quick")
    assert done.exit_code == 2
    assert f'needs {missing}: install it with pip install "fourier-head[cli]"' in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_missing_typer_is_told_too():
    code = "import sys; sys.modules['typer'] = None; import fourier_head.cli"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == 'fourier-head: this needs typer: install it with pip install "fourier-head[cli]".\n'


# --- the folder


def test_earlier_comparison_is_replaced_but_not_other_files(tmp_path, monkeypatch):
    from fourier_head.compare import figures, page
    from fourier_head.pages import drawing

    monkeypatch.chdir(tmp_path)
    # Which files are there is asked, not what is drawn in them.
    monkeypatch.setattr(drawing, "save_png", lambda chart, path: path.touch())
    monkeypatch.setattr(page, "build", lambda result, charts: "")
    words = ["--epochs", 1, "--heads", "linear", "--bins", 10]
    assert invoke(*words).exit_code == 0
    out = tmp_path / "compare-hills"
    assert json.loads((out / "results.json").read_text())["settings"]["seed"] == 0

    def interrupt(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(figures, "draw_examples", interrupt)
        stopped = invoke(*words, "--seed", 1)
    assert stopped.exit_code == 130
    assert "interrupted; nothing was written" in stopped.stderr
    assert json.loads((out / "results.json").read_text())["settings"]["seed"] == 0
    assert [p.name for p in tmp_path.iterdir()] == ["compare-hills"]

    assert invoke(*words, "--seed", 2).exit_code == 0
    assert json.loads((out / "results.json").read_text())["settings"]["seed"] == 2
    assert [p.name for p in tmp_path.iterdir()] == ["compare-hills"]

    (out / "notes.txt").write_text("mine")
    refused = invoke(*words)
    assert refused.exit_code == 2
    assert "notes.txt" in refused.stderr
    assert (out / "notes.txt").read_text() == "mine"


def test_help_names_the_command():
    done = CliRunner().invoke(app, ["--help"])
    assert done.exit_code == 0
    assert "compare" in done.stdout
    assert CliRunner().invoke(app, ["--version"]).stdout.startswith("fourier-head 0")
