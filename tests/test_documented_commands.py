"""Commands of README, docs, results and plans as they are written: all are understood, quick ones do their work."""

import json
import re
import shlex
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import typer
from studies.atari.__main__ import app as atari
from studies.cli import app as studies
from typer.testing import CliRunner

from fourier_head.cli import app as fourier_head

ROOT = Path(__file__).resolve().parents[1]
PROGRAMS = {"fourier-head": fourier_head, "python -m studies": studies, "python -m studies.atari": atari}


def commands():
    """Yield every command of ours in a block of code: where it stands, its program and its words."""
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").glob("**/*.md"))]:
        for kind, block in re.findall(r"^```(\w*)\n(.*?)^```", path.read_text(), re.S | re.M):
            for line in block.splitlines() if kind in ("", "bash", "sh", "console") else ():
                found = re.match(r"(fourier-head|python -m studies(?:\.\w+)?) (.+)", line)
                if found:
                    yield pytest.param(
                        found[1], shlex.split(found[2], comments=True), id=f"{path.stem}: {line.split('  ')[0]}"
                    )


EARLIER = ("zero-shot-variants",)
"""Results of a network that is gone, and with it the options that trained it; their notes say so."""


def recorded():
    """Yield the command beside every result of a study that is there as it was."""
    for path in sorted((ROOT / "results").rglob("summary.json")):
        content = json.loads(path.read_text(encoding="utf-8"))
        command = content["command"].replace("fourier-head study ", "python -m studies ")
        program, _, words = command.partition("python -m studies ")
        if words and not program and path.parent.name not in EARLIER:
            yield pytest.param("python -m studies", shlex.split(words), id=path.parent.name)


def planned():
    """Yield every command of the plans that are put in order, of several lines or between backticks."""
    order = (ROOT / "results" / "plan.md").read_text(encoding="utf-8")
    for path in sorted({ROOT / "results" / link for link in re.findall(r"\((\S+/plan\.md)\)", order)}):
        text = path.read_text(encoding="utf-8").replace("\\\n", " ")
        for program, words in re.findall(r"(python -m studies(?:\.atari)?) ([^`\n]+)", text):
            if "..." not in words:
                yield pytest.param(program, shlex.split(words), id=f"{path.parent.name}: {words[:40]}")


COMMANDS, PLANNED = list(commands()), list(planned())
QUICK = [one for one in COMMANDS if one.values[1][0] == "forecast" and "ray" not in one.values[1]]
QUICK += [one for one in COMMANDS if one.values[1] == ["report"]]


@pytest.mark.parametrize(("program", "words"), [*COMMANDS, *recorded(), *PLANNED])
def test_a_documented_command_is_understood(program, words):
    group = typer.main.get_command(PROGRAMS[program])
    with group.make_context(program, list(words)) as context:
        name, command, rest = group.resolve_command(context, list(words))
        with command.make_context(name, rest, parent=context) as inner:
            assert not inner.args


@pytest.mark.parametrize("study", EARLIER)
def test_results_of_an_earlier_version_say_so(study):
    notes = json.loads((ROOT / "results" / study / "summary.json").read_text(encoding="utf-8"))["notes"]
    assert any("an earlier version" in note for note in notes)


@pytest.mark.parametrize("words", [one.values[1] for one in PLANNED if "cuda" in one.values[1]], ids=" ".join)
def test_a_command_that_is_planned_on_a_card_stops_by_itself(words):
    assert {"--time-limit", "--limit"} & set(words)


@pytest.fixture
def tables(tmp_path, monkeypatch):
    """The files that the examples name, in the working directory."""
    days = pd.date_range("2024-01-01", periods=60)
    rng = np.random.default_rng(0)
    shops = pd.DataFrame(
        {"shop": np.repeat(["a", "b"], 60), "date": np.tile(days, 2), "sold": rng.poisson(20, 120), "price": 1.5}
    )
    monkeypatch.chdir(tmp_path)
    shops[shops["shop"] == "a"][["date", "sold"]].to_csv("sales.csv", index=False)
    shops.to_csv("data.csv", index=False)
    hours = pd.date_range("2024-01-01", periods=100, freq="h")
    pd.DataFrame({"time": hours, "value": rng.normal(size=100)}).to_parquet("data.parquet")
    moments = days.repeat(3) + pd.to_timedelta(np.tile([9, 12, 17], 60), "h")
    pd.DataFrame({"time": moments, "amount": rng.poisson(9, 180)}).iloc[::2].to_excel("receipts.xlsx", index=False)
    (tmp_path / "results").symlink_to(ROOT / "results")
    return tmp_path


@pytest.mark.parametrize(("program", "words"), QUICK)
def test_a_quick_command_does_what_it_says(tables, program, words):
    more = ["--output", "report.html"] if words == ["report"] else ["--charts", "1"]  # not into the checkout; soon done
    done = CliRunner().invoke(PROGRAMS[program], [*words, *more])
    assert done.exit_code == 0, done.output
    written = Path(done.output.split("Wrote ")[-1].split(" (")[0].strip().rstrip("."))
    assert written.stat().st_size > 1000
