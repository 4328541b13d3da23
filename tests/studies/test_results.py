"""The folder a study writes, and the store of finished runs."""

import csv
import json
import math
import re
import shlex
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from studies.common import options, results
from studies.common.options import option
from studies.common.report.summary import COLUMNS, read_summary
from studies.common.results import aggregate, row, write_results

from fourier_head.errors import UserError
from fourier_head.pages.charts import Chart, Panel, Series
from fourier_head.tasks.runs import RunStore

RESULTS = Path(__file__).parents[2] / "results"


def chart(name="curve"):
    return Chart(name, "A curve", [Panel([Series("a", [1, 2, 3], [1.0, math.nan, 2.0], error=[0.1, None, 0.2])])])


def test_a_study_folder_has_everything_and_reads_back(tmp_path, monkeypatch):
    monkeypatch.setattr(results, "commit", lambda: "0a1b2c3")
    folder = tmp_path / "deep" / "smoothness"
    rows = [row("kl", 0.1, dataset="beta", head="linear", std=0.01, seeds=4, paper=0.2, gamma=1e-6), row("mse", np.nan)]
    runs = [{"seed": 0, "kl": torch.tensor(0.5)}, {"seed": 1, "kl": math.inf}]
    summary = write_results(
        folder, rows, command="python -m studies x", seconds=1.234, runs=runs, charts=[chart()], notes=["{so}"]
    )
    content = json.loads((folder / "summary.json").read_text())
    assert list(content)[:6] == ["command", "date", "commit", "hardware", "versions", "seconds"]
    assert set(content["versions"]) == {"python", "torch", "numpy", "fourier-head"}
    assert content["seconds"] == 1.23
    assert "core" in content["hardware"]
    assert list(content["rows"][0]) == [*COLUMNS, "gamma"]
    assert content["rows"][1]["ours"] is None
    assert content["rows"][1]["paper"] is None
    assert summary.name == "smoothness"
    assert summary.extra == {"notes": ["{so}"]}
    assert [r["ours"] for r in summary.compared] == [0.1]
    table = list(csv.DictReader((folder / "rows.csv").open()))
    assert table[0]["gamma"] == "1e-06"
    assert table[1]["ours"] == ""
    assert json.loads((folder / "runs.json").read_text()) == [{"seed": 0, "kl": 0.5}, {"seed": 1, "kl": None}]
    assert (folder / "curve.png").read_bytes().startswith(b"\x89PNG")
    assert Chart.from_dict(json.loads((folder / "charts.json").read_text())[0]) == chart()
    assert not [p for p in folder.iterdir() if p.name.startswith(".")]


def test_figures_that_are_no_longer_drawn_go_and_other_files_stay(tmp_path):
    folder = tmp_path / "study"

    def write(*names: str) -> set[str]:
        write_results(folder, [row("kl", 1.0)], command="c", seconds=1.0, charts=[chart(name) for name in names])
        return {path.name for path in folder.iterdir()} - {"summary.json", "rows.csv"}

    folder.mkdir()
    (folder / "mine.png").write_bytes(b"mine")
    assert write("one", "two") == {"mine.png", "one.png", "two.png", "charts.json"}
    assert write("two", "three") == {"mine.png", "two.png", "three.png", "charts.json"}
    (folder / "charts.json").write_text("not a list of charts")
    assert write("two") == {"mine.png", "two.png", "three.png", "charts.json"}
    assert write() == {"mine.png", "three.png"}


def test_a_failed_write_leaves_the_old_file_and_no_litter(tmp_path):
    path = tmp_path / "a.txt"
    results.write_atomically(path, "old")

    def fails(beside):
        beside.write_text("half")
        raise RuntimeError("disk on fire")

    with pytest.raises(RuntimeError, match="on fire"):
        results.write_atomically(path, fails)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]
    with pytest.raises(UserError, match="cannot be written"):
        results.write_atomically(path / "below" / "b.txt", "x")
    with pytest.raises(UserError, match=f"cannot be written: {path} is a file"):
        results.write_atomically(path / "b.txt", "x")


def test_store_finds_runs_by_settings_and_forgets_on_success(tmp_path):
    store = RunStore(tmp_path)
    kept = store.put("Fourier, beta", {"n": 4, "gamma": 1e-6}, {"kl": np.float64(0.5), "curve": torch.ones(2)})
    assert kept == {"kl": 0.5, "curve": [1.0, 1.0]}
    assert store.get("Fourier, beta", {"gamma": 1e-6, "n": 4}) == kept
    assert store.get("Fourier, beta", {"gamma": 1e-6, "n": 5}) is None
    assert store.get("Fourier, gmm", {"gamma": 1e-6, "n": 4}) is None
    store.path("Fourier, beta", {"n": 4, "gamma": 1e-6}).write_text('{"result": ')
    assert store.get("Fourier, beta", {"n": 4, "gamma": 1e-6}) is None
    write_results(tmp_path, [row("kl", 1.0)], command="c", seconds=0.0)
    assert not store.folder.exists()


def test_aggregate_averages_over_seeds():
    runs = [{"head": "linear", "n": None, "kl": v, "mse": 1.0} for v in (1.0, 2.0, 3.0)]
    runs += [{"head": "fourier", "n": 4, "kl": math.nan}, {"head": "fourier", "n": 4, "kl": 5.0}]
    got = {(r["head"], r["metric"]): r for r in aggregate(runs, ["kl", "mse"], ["head", "n"])}
    assert set(got) == {("linear", "kl"), ("linear", "mse"), ("fourier", "kl")}
    assert (got["linear", "kl"]["ours"], got["linear", "kl"]["std"], got["linear", "kl"]["seeds"]) == (2.0, 1.0, 3)
    assert (got["fourier", "kl"]["ours"], got["fourier", "kl"]["std"], got["fourier", "kl"]["seeds"]) == (5.0, None, 1)


@dataclass(frozen=True)
class Toy(options.Study):
    study = "toy"
    data: Path | None = option(None, "Where it lies is nobody's concern.")
    model: str = option("small", "A name or a folder.", file=True)
    epochs: int = option(5, "Passes.", min=1)
    ablations: bool = option(True, "Train them, too.")
    device: str = options.device()


def test_a_quick_look_is_written_beside_the_results():
    assert (Toy().output, Toy(quick=True).output) == (Path("results/toy"), Path("results-quick/toy"))
    assert [one.name for one in Toy.options()][:2] == ["output", "data"]
    assert Toy.options()[-1].name == "quick"


def test_settings_know_the_command_that_repeats_a_study(tmp_path):
    assert Toy().command == "python -m studies toy"
    assert Toy(device="cuda").command == "python -m studies toy"  # where it ran is the reader's affair
    assert Toy(model="a b").command == "python -m studies toy --model 'a b'"
    given = Toy(tmp_path / "mine", tmp_path, str(tmp_path), 7, ablations=False, quick=True)
    words = f"--data DATA --model {tmp_path.name} --epochs 7 --no-ablations --quick -o mine"
    assert given.command == f"python -m studies toy {words}"


def test_command_names_the_folder_that_is_not_the_studys_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def folder(output, **more):
        return Toy(output, **more).command.removeprefix("python -m studies toy")

    assert folder(Path("results/toy")) == folder(tmp_path / "results" / "toy") == ""
    assert folder(Path("results-quick/toy"), quick=True) == " --quick"
    assert folder(Path("results/toy"), quick=True) == " --quick -o results/toy"
    assert folder(Path("results/toy-varied")) == folder(tmp_path / "results" / "toy-varied") == " -o results/toy-varied"
    assert folder(tmp_path.parent / "my runs") == " -o 'my runs'"  # where it lies is nobody else's concern


@pytest.mark.parametrize("path", sorted(RESULTS.glob("*/summary.json")), ids=lambda path: path.parent.name)
def test_the_command_beside_committed_results_writes_that_folder(path):
    words = shlex.split(json.loads(path.read_text())["command"])
    if "-o" in words:
        output = words[words.index("-o") + 1]
    else:  # python -m studies NAME, or a module of the studies with a folder of its own
        name = words[3] if words[2] == "studies" else re.sub(r"[._]", "-", words[2].removeprefix("studies."))
        output = f"results/{name}"
    assert output == f"results/{path.parent.name}"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, "holds no summary.json"),
        ("{", "cannot be read as JSON"),
        ("[]", "must hold one JSON object"),
        ('{"rows": []}', "none named command, date"),
        ('{"command":"","date":"","commit":null,"hardware":"","versions":{},"seconds":1,"rows":[{}]}', "with a metric"),
    ],
)
def test_bad_summaries_are_refused_in_a_sentence(tmp_path, text, words):
    if text is not None:
        (tmp_path / "summary.json").write_text(text)
    with pytest.raises(UserError, match=words):
        read_summary(tmp_path)


@pytest.mark.parametrize("said", ["0a1b2c3", "0a1b2c3d4e5f-dirty"])
def test_a_copy_of_the_sources_elsewhere_can_be_told_its_commit(said, tmp_path, monkeypatch):
    monkeypatch.setenv("SOURCE_COMMIT", f"{said}\n")
    assert write_results(tmp_path / "x", [row("kl", 1.0)], command="c", seconds=1.0).commit == said


def test_what_is_no_commit_is_refused(monkeypatch):
    monkeypatch.setenv("SOURCE_COMMIT", "main")
    with pytest.raises(UserError, match="SOURCE_COMMIT"):
        results.commit()


@pytest.mark.parametrize(("commit", "said"), [("0a1b2c3", 0), ("0a1b2c3-dirty", 1), (None, 1)])
def test_results_of_sources_that_no_commit_has_say_so(commit, said, tmp_path, monkeypatch):
    monkeypatch.setattr(results, "commit", lambda: commit)
    summary = write_results(tmp_path, [row("kl", 0.1)], command="x", seconds=1.0, notes=["More."])
    assert summary.extra["notes"] == [*results.sources_note(commit), "More."]
    assert len(summary.extra["notes"]) == 1 + said


@pytest.mark.parametrize("path", sorted(RESULTS.rglob("summary.json")), ids=lambda path: path.parent.name)
def test_committed_results_say_what_sources_they_are_of(path):
    content = json.loads(path.read_text(encoding="utf-8"))
    assert set(results.sources_note(content["commit"])) <= set(content.get("notes", ()))


def test_the_readme_lists_the_results_whose_sources_no_commit_has():
    lines = (RESULTS / "README.md").read_text(encoding="utf-8").splitlines()
    for kind, start in ((True, "| marked `-dirty`"), (False, "| none")):
        (line,) = (line for line in lines if line.startswith(start))
        paths = {path.parent.relative_to(RESULTS).as_posix(): path for path in RESULTS.rglob("summary.json")}
        commits = {name: json.loads(path.read_text(encoding="utf-8"))["commit"] for name, path in paths.items()}
        found = [name for name, commit in commits.items() if results.sources_note(commit) and bool(commit) == kind]
        assert re.findall(r"`([^`]*)`", line.split("|")[2]) == sorted(found)
