"""The site builds without a warning, pictures and tutorials are made by what stands beside them, code blocks parse."""

import ast
import importlib
import re
import subprocess
import sys
from html import unescape
from pathlib import Path

import pytest

from fourier_head.errors import UserError

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
QUICK = {
    "actions": {"steps": 2},
    "forecasting": {"origins": 2},
    "language_model": {"rows": 4, "epochs": 1},
    "regression": {"rows": 80, "epochs": 2},
    "values": {"steps": 2},
    "vision": {"steps": 2},
}


@pytest.fixture
def scripts(monkeypatch):
    """Import scripts of a folder of docs as their own folder does."""
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")

    def get(folder: str, name: str):
        monkeypatch.syspath_prepend(str(DOCS / folder))
        return importlib.import_module(name)

    yield get
    matplotlib.rcdefaults()


def test_the_site_builds_strictly(tmp_path):
    pytest.importorskip("mkdocs")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-f", ROOT / "mkdocs.yml", "-d", tmp_path / "site"]
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    pages = list((tmp_path / "site").rglob("*.html"))
    assert len(pages) > 20
    text = "".join(page.read_text(encoding="utf-8") for page in pages)
    assert "<math" in text
    assert "arithmatex" not in text, "a formula was left as it is written"
    outside = re.findall(r'<(?:script|img)[^>]+src="(?:https?:)?//|<link[^>]+stylesheet[^>]+href="(?:https?:)?//', text)
    outside += [
        one for sheet in (tmp_path / "site").rglob("*.css") for one in re.findall(r"url\(.?https?:", sheet.read_text())
    ]
    assert not outside, "the site has to work without the internet"
    for name in QUICK:
        shown = re.sub(r"<[^>]+>", "", (tmp_path / "site" / "tutorials" / f"{name}.html").read_text(encoding="utf-8"))
        script = (DOCS / "tutorials" / f"{name}.py").read_text(encoding="utf-8").strip()
        assert script in unescape(shown), f"the page of the tutorial {name} does not show its script"


@pytest.mark.parametrize("name", sorted(QUICK))
def test_tutorials_run_and_end_in_a_picture(name, scripts, tmp_path):
    path = DOCS / "tutorials" / f"{name}.py"
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 80
    assert path.with_suffix(".png").stat().st_size < 100_000
    scripts("tutorials", name).main(tmp_path / "picture.png", **QUICK[name])
    assert (tmp_path / "picture.png").stat().st_size > 5_000


def test_every_tutorial_is_tested_and_on_the_site():
    names = {p.stem for p in (DOCS / "tutorials").glob("*.py")}
    assert names == set(QUICK) == {p.stem for p in (DOCS / "tutorials").glob("*.md")} - {"index"}


def test_the_gallery_is_drawn_by_its_scripts(scripts, tmp_path):
    learned, measured, forming = (scripts("gallery", name) for name in ("learned", "measured", "forming"))
    drawn = [picture(tmp_path, steps=2) for picture in learned.PICTURES]
    drawn += [picture(tmp_path) for picture in measured.PICTURES if picture.__name__ != "forecast"]
    drawn.append(forming.forming(tmp_path, frames=2))
    names = {path.name for path in drawn} | {"forecast.png"}
    committed = {p.name for p in (DOCS / "gallery").glob("*.png")} | {"forming.gif"}
    shown = set(re.findall(r"\]\(([\w-]+\.(?:png|gif))\)", (DOCS / "gallery" / "index.md").read_text(encoding="utf-8")))
    assert names == committed == shown
    assert sum((DOCS / "gallery" / name).stat().st_size for name in committed) < 800_000


def blocks(page: str) -> list[str]:
    """Return the Python of a page that is no doctest."""
    text = (ROOT / page).read_text(encoding="utf-8")
    found = re.findall(r"(?ms)^( *)```python\n(.*?)^ *```", text)
    code = ["\n".join(line.removeprefix(indent) for line in block.splitlines()) for indent, block in found]
    return [block for block in code if ">>>" not in block and "--8<--" not in block]


@pytest.mark.parametrize("page", ["README.md", pytest.param("docs/index.md", marks=pytest.mark.slow)])
def test_first_pages_run_as_written(page, tmp_path, monkeypatch):
    """What a new user copies first: every block alone, in a folder that holds nothing but a table of sales."""
    pd = pytest.importorskip("pandas")
    months = pd.date_range("2015-01-01", periods=60, freq="MS")
    pd.DataFrame({"month": months, "sold": range(60)}).to_csv(tmp_path / "sales.csv", index=False)
    monkeypatch.chdir(tmp_path)
    assert len(blocks(page)) == 3
    for block in blocks(page):
        exec(compile(block, page, "exec"), {})


@pytest.mark.parametrize("page", ["README.md", *sorted(p.relative_to(ROOT).as_posix() for p in DOCS.rglob("*.md"))])
def test_code_on_pages_is_python(page):
    """Blocks without prompts are no doctests; they have to parse, and to import only names that exist."""
    for code in blocks(page):
        for node in ast.walk(ast.parse(code)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("fourier_head"):
                try:
                    module = importlib.import_module(node.module)
                except UserError:
                    if node.module.endswith((".fev", ".darts")):  # extras that the development environment lacks
                        continue
                    raise
                for name in node.names:
                    assert hasattr(module, name.name), f"{page}: {node.module} has no {name.name}"
