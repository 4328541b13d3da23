"""What a release needs: whole archives, extras that stand alone, valid files for the forge, a command that starts."""

import importlib.util
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from tools.check_extras import SMOKE

import fourier_head

ROOT = Path(__file__).resolve().parents[1]


def run(*command: object, **options: object) -> str:
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, **options)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


def test_every_extra_has_a_smoke_test():
    declared = set(re.findall(r"^([a-z]+) = \[", section("project.optional-dependencies"), re.M))
    assert set(SMOKE) == {"", *declared} - {"dev"}


def section(name: str) -> str:
    return (ROOT / "pyproject.toml").read_text().split(f"[{name}]")[1].split("\n[")[0]


@pytest.mark.parametrize("name", fourier_head.__all__)
def test_every_public_name_is_where_it_is_said_to_be(name):
    assert getattr(fourier_head, name) is not None


def test_the_version_stands_in_one_place():
    places = [p for pattern in ("*.toml", "*.cff", "*.md", "*.yml") for p in ROOT.glob(pattern)]
    version = re.compile(rf"(?m)^\s*version\W+{re.escape(fourier_head.__version__)}\b")
    assert [p.name for p in places if version.search(p.read_text(encoding="utf-8"))] == []


def test_the_changelog_keeps_its_form():
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    releases = re.findall(r"(?m)^## (.+)$", text)
    assert releases[0] == "[Unreleased]"
    assert all(re.fullmatch(r"\[\d+\.\d+\.\d+\] - \d{4}-\d{2}-\d{2}", name) for name in releases[1:])
    assert set(re.findall(r"(?m)^### (.+)$", text)) <= {
        "Added",
        "Changed",
        "Deprecated",
        "Removed",
        "Fixed",
        "Security",
    }


@pytest.mark.skipif(importlib.util.find_spec("check_jsonschema") is None, reason="needs check-jsonschema")
@pytest.mark.parametrize(
    ("schema", "files"),
    [
        ("github-workflows", ".github/workflows/*.yml"),
        ("github-issue-forms", ".github/ISSUE_TEMPLATE/[!c]*.yml"),
        ("github-issue-config", ".github/ISSUE_TEMPLATE/config.yml"),
        ("citation-file-format", "CITATION.cff"),
    ],
)
def test_files_for_the_forge_are_valid(schema, files):
    found = sorted(ROOT.glob(files))
    assert found
    run(sys.executable, "-m", "check_jsonschema", "--builtin-schema", f"vendor.{schema}", *found)


def test_help_and_version_do_not_wait_for_torch():
    """Importing torch takes seconds, of which neither needs one."""
    code = "import sys; from fourier_head.cli import app; app(sys.argv[1:], standalone_mode=False)"
    code += "; print('torch' in sys.modules)"
    for option in ("--help", "--version"):
        assert run(sys.executable, "-c", code, option).splitlines()[-1] == "False"


def test_the_package_runs_as_the_command_does():
    assert run(sys.executable, "-m", "fourier_head", "--version") == f"fourier-head {fourier_head.__version__}\n"


@pytest.fixture(scope="module")
def archives(tmp_path_factory):
    """Build both archives; the wheel is made from the source distribution, which so has to be complete."""
    folder = tmp_path_factory.mktemp("dist")
    pytest.importorskip("build.__main__", reason="the package build is not installed: pip install '.[release]'")
    run(sys.executable, "-m", "build", "--outdir", folder, ROOT)
    return next(folder.glob("*.whl")), next(folder.glob("*.tar.gz"))


@pytest.mark.slow
def test_archives_hold_what_they_should(archives):
    wheel, source = archives
    run(sys.executable, "-m", "twine", "check", "--strict", wheel, source)
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0].split("-")[0] for name in names} == {"fourier_head"}
    assert "fourier_head/py.typed" in names
    assert "fourier_head/forecasting/weights/small/model.safetensors" in names
    with tarfile.open(source) as tar:
        inside = {name.partition("/")[2] for name in tar.getnames()}
    tracked = run("git", "ls-files", cwd=ROOT).splitlines()
    assert set(tracked) <= inside


@pytest.mark.slow
def test_the_source_distribution_tests_itself(archives, tmp_path):
    with tarfile.open(archives[1]) as tar:
        tar.extractall(tmp_path, filter="data")
    (folder,) = tmp_path.iterdir()
    tests = ["tests/heads/test_heads.py", "tests/studies/test_results.py", "docs/guide.md"]
    run(sys.executable, "-m", "pytest", "-q", *tests, cwd=folder, env={"PYTHONPATH": "src", "OMP_NUM_THREADS": "1"})


@pytest.mark.slow
@pytest.mark.parametrize("extra", [extra or "core" for extra in SMOKE])
def test_each_extra_alone(archives, extra):
    run(sys.executable, ROOT / "tools" / "check_extras.py", archives[0], extra)
