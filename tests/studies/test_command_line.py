"""What the commands of all studies have in common: where they write, which device, and what must be installed."""

import os
import subprocess
import sys

import pytest
import torch

typer = pytest.importorskip("typer")
testing = pytest.importorskip("typer.testing")
from studies.cli import STUDIES, app  # noqa: E402


def invoke(*words):
    return testing.CliRunner().invoke(app, list(words), env={"COLUMNS": "200"})


@pytest.mark.parametrize("study", STUDIES)
def test_help_says_where_a_quick_look_is_written(study):
    shown = " ".join(invoke(study, "--help").output.split())
    assert f"results/{study}; with --quick, results-quick/{study}" in shown


@pytest.mark.parametrize("study", STUDIES)
def test_a_folder_that_cannot_be_written_is_told_before_anything_runs(study, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "letter.txt").write_text("dear")
    needed = {"zero-shot": "--evaluation", "joint-paths": "--evaluation", "covariates": "--data"}
    words = [study, "--quick", *([needed[study], "."] if study in needed else [])]
    got = invoke(*words, "--output", "letter.txt/out")
    assert got.exit_code == 2
    assert got.stderr == "fourier-head: --output letter.txt/out cannot be written: letter.txt is a file.\n"
    monkeypatch.setattr(os, "access", lambda path, mode: not mode & os.W_OK)  # tests may run as root
    got = invoke(*words, "--output", "out")
    assert got.stderr.startswith("fourier-head: --output out cannot be written: there is no permission to write to ")
    assert [path.name for path in tmp_path.iterdir()] == ["letter.txt"]


def test_a_report_without_results_points_to_quick_looks(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert "is no folder of results" in invoke("report").output
    (tmp_path / "results-quick").mkdir()
    got = invoke("report")
    assert got.exit_code == 2
    assert "python -m studies report results-quick" in got.output


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a graphics card")
@pytest.mark.parametrize("study", ["synthetic", "likelihood", "atari"])
def test_a_device_that_is_not_there_gets_one_sentence(study, tmp_path):
    got = invoke(study, "--quick", "--device", "cuda", "-o", str(tmp_path / "out"))
    assert got.exit_code == 2
    assert got.output.startswith("fourier-head: --device cuda needs a graphics card")
    assert len(got.output.splitlines()) == 1


WITHOUT = """
import sys

for name in ("transformers", "tokenizers", "safetensors"):
    sys.modules[name] = None
from studies.cli import app

for study in ("tempo", None, "tempo", "numbers"):
    if study is None:
        del sys.modules["transformers"]
        continue
    try:
        app([study, "--quick", "-o", sys.argv[1]])
    except SystemExit as end:
        print(end.code)
"""


def test_a_missing_extra_is_named_before_any_work(tmp_path):
    command = [sys.executable, "-c", WITHOUT, str(tmp_path / "out")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.stdout.split() == ["2"] * 3, done.stderr
    assert done.stderr.splitlines() == [
        f'fourier-head: this needs {missing}: install it with pip install "fourier-head[transformers]".'
        for missing in ("transformers", "safetensors", "tokenizers")
    ]
    assert not (tmp_path / "out").exists()


def test_listing_the_commands_loads_nothing_that_only_running_them_needs():
    """Beyond what the package itself imports."""
    program = (
        "import sys, fourier_head; old = set(sys.modules); import fourier_head.cli; print(*set(sys.modules) - old)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=True)
    loaded = {name.split(".")[0] for name in done.stdout.split()}
    assert "typer" in loaded
    assert not loaded & {"accelerate", "matplotlib", "numpy", "pandas", "rich", "scipy", "torch", "transformers"}
