"""Numbers that README and docs quote stand in a committed file of results, which a comment beside them names.

A block of text (a paragraph, a list or a table) with a decimal number has a comment in or after it:

    <!-- from results/synthetic/summary.json metric=kl dataset=gmm2 -->      rows of that file that have these values
    <!-- from results/a/summary.json | results/b/runs.json -->               of several files
    <!-- derived 1.8 = 0.316 / 0.178 -->                                     computed from such numbers
    <!-- settings 0.05 0.3 -->                                               chosen, not measured; all, if none is named

Every decimal of the block, code and links left out, must be a value of such a row, rounded as it is printed; as a
percentage, in millions, or with the other sign will do.
"""

import csv
import json
import math
import re
from functools import lru_cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGES = ["README.md", *(f"docs/{name}.md" for name in ("atari", "numbers", "tempo", "forecasting-t5", "forecasting"))]
NUMBER = re.compile(r"(?<![\w./])\d*\.\d+(?![\w]|\.\d)")
MARK = re.compile(r"<!--\s*(?P<kind>from|derived|settings)\b(?P<rest>.*?)-->", re.S)


def blocks(text):
    """Return first line and text of every block, fenced code left out."""
    text = re.sub(r"^```.*?^```", lambda found: "\n" * found[0].count("\n"), text, flags=re.S | re.M)
    found, lines = [], []
    for number, line in enumerate([*text.split("\n"), ""], 1):
        if line.strip():
            lines.append((number, line))
        elif lines and lines[0][1].startswith(">>>"):
            lines = []  # an example
        elif lines:
            block = "\n".join(line for _, line in lines)
            if found and not MARK.sub("", block).strip():  # comments in a block of their own
                found[-1] = (found[-1][0], f"{found[-1][1]}\n{block}")
            else:
                found.append((lines[0][0], block))
            lines = []
    return found


def decimals(text):
    """Return the decimal numbers of a block as they are printed."""
    text = MARK.sub("", text)
    text = re.sub(r"`[^`]*`", "", text)
    text = re.sub(r"\]\([^)]*\)", "]", text)
    return NUMBER.findall(text)


@lru_cache(maxsize=64)
def rows_of(path):
    """Return the rows of a file as dictionaries: a summary, a list of runs, or a table."""
    text = (ROOT / path).read_text(encoding="utf-8")
    if path.endswith(".csv"):
        return list(csv.DictReader(text.splitlines()))
    content = json.loads(text)
    return (
        content["rows"]
        if isinstance(content, dict) and "rows" in content
        else content
        if isinstance(content, list)
        else [content]
    )


def values(content):
    """Return all numbers inside of a row."""
    if isinstance(content, dict):
        return [number for one in content.values() for number in values(one)]
    if isinstance(content, list):
        return [number for one in content for number in values(one)]
    try:
        number = float(content)
    except (TypeError, ValueError):
        return []
    return [number] if math.isfinite(number) and not isinstance(content, bool) else []


def quoted(sources):
    """Return the numbers that a comment allows."""
    found = []
    for source in sources.split("|"):
        path, *wanted = source.split()
        pairs = [word.split("=", 1) for word in wanted]
        chosen = [row for row in rows_of(path) if all(str(row.get(key)) == value for key, value in pairs)]
        assert chosen, f"{path} has no row with {' '.join(wanted)}"
        found += values(chosen)
    return found


def derived(text):
    """Return the printed result, the operands and the value of "1.8 = 0.316 / 0.178"."""
    found = re.fullmatch(r"([\d.]+) = ([\d.]+) ([-+*/]) ([\d.]+)", text)
    assert found, f"{text!r} is no number computed from two others"
    result, first, sign, second = found.groups()
    a, b = float(first), float(second)
    return result, (first, second), {"+": a + b, "-": a - b, "*": a * b, "/": a / b}[sign]


def stands_in(text, numbers):
    """Tell whether a printed number is one of these, rounded as it is; or a percentage of it."""
    places = len(text.partition(".")[2])
    wanted = float(text)
    close = 0.5000001 * 10**-places
    return any(abs(abs(number) * unit - wanted) <= close for number in numbers for unit in (1, 100, 1e-6))


@pytest.mark.parametrize("page", PAGES)
def test_every_quoted_number_stands_in_a_result_file(page):
    wrong = []
    for line, text in blocks((ROOT / page).read_text(encoding="utf-8")):
        printed = decimals(text)
        if not printed:
            continue
        marks = [(mark["kind"], " ".join(mark["rest"].split())) for mark in MARK.finditer(text)]
        numbers = [number for kind, rest in marks if kind == "from" for number in quoted(rest)]
        known = {word for kind, rest in marks if kind == "settings" for word in rest.split()}
        if ("settings", "") in marks:
            known |= set(printed)
        for result, operands, value in (derived(rest) for kind, rest in marks if kind == "derived"):
            if all(stands_in(one, numbers) for one in operands) and stands_in(result, [value]):
                known.add(result)
        missing = [one for one in printed if one not in known and not stands_in(one, numbers)]
        if missing:
            wrong.append(f"{page}:{line}: nothing beside {', '.join(missing)} says where they stand, or not there")
    assert not wrong, "\n".join(wrong)


def test_the_check_finds_what_is_not_there():
    assert decimals("KL 0.12 (`gamma=0.5`, [here](a/0.7.md)) in 3.11.7 and 1e-3.\n<!-- from x 0.9 -->") == ["0.12"]
    assert stands_in("0.12", [0.1234])
    assert stands_in("12.3", [-0.1234])
    assert not stands_in("0.13", [0.1234])
    assert derived("1.8 = 0.316 / 0.178")[:2] == ("1.8", ("0.316", "0.178"))
