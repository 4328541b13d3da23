"""Numbers that README and docs quote stand in a committed file of results, which a comment beside them names.

A block of text (a paragraph, a list or a table) with a decimal number, one with a comma for thousands, a percentage or
a cell that is a number has comments in or after it; where one of them says `from`, whole numbers of three digits or
more and those after ± count, too:

    <!-- from results/synthetic/summary.json metric=kl dataset=gmm2,beta -->  rows of that file with these values
    <!-- from results/a/summary.json metric=kl | results/b/runs.json seed=0 -->     of several files
    <!-- derived 1.8 = 0.316 / 0.178 -->                                     computed from such numbers
    <!-- ratio 0.9 = a/b.csv seconds set=x method=a / method=b -->           total of a column, by that of other rows
    <!-- settings 0.05 0.3: learning rates -->                               chosen, not measured; and what they are

Every such number, code and links left out, must be a value of such a row, rounded as it is printed; as a percentage, in
millions, or with the other sign will do. So many values that any number would be among them do not count.
"""

import csv
import json
import math
import re
import shlex
from functools import lru_cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
CLAIMS = "docs/paper.md"
"""Written from results as a whole: `test_claims` compares it with what they say."""
PAGES = ["README.md", *sorted(str(p.relative_to(ROOT)) for p in (ROOT / "docs").rglob("*.md"))]
PAGES.remove(CLAIMS)
NUMBER = re.compile(r"(?<![\w./,])(?:\d{1,3}(?:,\d{3})+|\d*\.\d+|\d+(?= ?%))(?![\w]|\.\d)")
WHOLE = re.compile(r"(?<![\w./,])(?<!\w-)(?<!N = )\d{3,}(?![\w/]|[.,]\d|-\d)|(?<=± )\d+(?![\w]|[.,]\d)")
"""Whole numbers that may be results: not N = 550, Fourier-550, dates, 84x84 or parts of other numbers."""
CELL = re.compile(r"[-*(]*\d+[*)]*(?: ± \d+)?[*)]*")
MOST = 300
"""Values of one source; among more, a number of two or three digits is found whether it belongs there or not."""
NOT_MEASURED = {"seeds", "seed", "frequencies", "packets", "gamma", "in_context", "runs", "sets"}
MARK = re.compile(r"<!--\s*(?P<kind>from|derived|ratio|settings)\b(?P<rest>.*?)-->", re.S)


def blocks(text):
    """Return first line and text of every block, fenced code left out."""
    text = re.sub(r"^ *```.*?^ *```", lambda found: "\n" * found[0].count("\n"), text, flags=re.S | re.M)
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
    """Return the numbers of a block that may be results, as they are printed."""
    from_results = any(mark["kind"] == "from" for mark in MARK.finditer(text))
    text = MARK.sub("", text)
    text = re.sub(r"`[^`]*`", "", text)
    text = re.sub(r"\]\([^)]*\)", "]", text)
    found = NUMBER.findall(text)
    body = cells(text)
    if body is not None:  # the first column and the header of a table say what the numbers are
        found += [one for cell in body if CELL.fullmatch(cell) for one in re.findall(r"\d+", cell)]
        text = "\n".join(cell for cell in body if not CELL.fullmatch(cell))
    return found + (WHOLE.findall(text) if from_results else [])


def cells(text):
    r"""Return the cells of a table below its header and beside its first column; None where there is no table.

    >>> cells("| a | b |\n|---|---|\n| 2 | 901 |")
    ['901']
    """
    lines = [line for line in text.split("\n") if line.lstrip().startswith("|")]
    if len(lines) < 3 or len(lines) < len(text.strip().split("\n")):
        return None
    return [cell.strip() for line in lines[2:] for cell in re.split(r"(?<!\\)\|", line.strip().strip("|"))[1:]]


@lru_cache(maxsize=64)
def rows_of(path):
    """Return the rows of a file as dictionaries: a summary, a list of runs, or a table."""
    text = (ROOT / path).read_text(encoding="utf-8")
    if path.endswith(".csv"):
        return list(csv.DictReader(text.splitlines()))
    content = json.loads(text)
    if isinstance(content, dict) and "rows" in content:
        return content["rows"] + content.get("choices", [])
    return content if isinstance(content, list) else [content]


def values(content):
    """Return all numbers inside of a row."""
    if isinstance(content, dict):
        return [number for key, one in content.items() if key not in NOT_MEASURED for number in values(one)]
    if isinstance(content, list):
        return [number for one in content for number in values(one)]
    try:
        number = float(content)
    except (TypeError, ValueError):
        return []
    return [number] if math.isfinite(number) and not isinstance(content, bool) else []


def selected(path, wanted):
    """Return the rows of a file that have one of the values of each of these words: key=a,b."""
    pairs = [word.split("=", 1) for word in wanted]
    found = [
        row for row in rows_of(path) if all(str(row.get(key)) in re.split(r",(?! )", value) for key, value in pairs)
    ]
    assert found, f"{path} has no row with {' '.join(wanted)}"
    return found


def quoted(sources):
    """Return the numbers that a comment allows."""
    found = []
    for source in sources.split("|"):
        path, *wanted = shlex.split(source)
        here = values(selected(path, wanted))
        assert len(here) <= MOST, f"{path} has {len(here)} values with {' '.join(wanted)}: say more"
        found += here
    return found


def ratio(text):
    """Return the printed result and the value of "0.9 = FILE COLUMN key=value key=a / key=b", a total by another."""
    result, _, rest = text.partition(" = ")
    first, _, others = rest.partition(" / ")
    path, column, *wanted = shlex.split(first)
    assert others, f"{text!r} names no other rows"
    totals = [sum(float(row[column]) for row in selected(path, words)) for words in (wanted, changed(wanted, others))]
    return result, totals[0] / totals[1]


def changed(wanted, others):
    """Return words like dataset=a, some of them with other values.

    >>> changed(["dataset=a", "method=b"], "method=c")
    ['dataset=a', 'method=c']
    """
    pairs = dict(word.split("=", 1) for word in (*wanted, *shlex.split(others)))
    return [f"{key}={value}" for key, value in pairs.items()]


def settings(text, printed):
    """Return the numbers of "0.05 0.3: learning rates", each of which must be printed."""
    numbers, _, words = text.partition(":")
    assert numbers.split(), f"settings {text!r} names no number"
    assert len(words.split()) > 1, f"settings {text!r} does not say what they are"
    absent = [one for one in numbers.split() if one not in printed]
    assert not absent, f"settings {text!r} names {', '.join(absent)}, which is not there"
    return set(numbers.split())


def derived(text):
    """Return the printed result, the operands and the value of "1.8 = 0.316 / 0.178"."""
    found = re.fullmatch(r"([\d.,]+) = ([\d.,]+) ([-+*/]) ([\d.,]+)", text)
    assert found, f"{text!r} is no number computed from two others"
    result, first, sign, second = found.groups()
    a, b = number(first), number(second)
    return result, (first, second), {"+": a + b, "-": a - b, "*": a * b, "/": a / b}[sign]


def number(text):
    """Return a printed number.

    >>> number("66,232")
    66232.0
    """
    return float(text.replace(",", ""))


def stands_in(text, numbers):
    """Tell whether a printed number is one of these, rounded as it is; or a percentage of it."""
    places = len(text.partition(".")[2])
    wanted = number(text)
    close = 0.5000001 * 10**-places
    return any(abs(abs(number) * unit - wanted) <= close for number in numbers for unit in (1, 100, 1e-6))


@pytest.mark.parametrize("page", PAGES)
def test_every_quoted_number_stands_in_a_result_file(page):
    wrong = []
    for line, text in blocks((ROOT / page).read_text(encoding="utf-8")):
        printed = decimals(text)
        marks = [(mark["kind"], " ".join(mark["rest"].split())) for mark in MARK.finditer(text)]
        if not printed:
            wrong += [f"{page}:{line}: a comment without numbers"] * bool(marks)
            continue
        numbers = [number for kind, rest in marks if kind == "from" for number in quoted(rest)]
        known = {word for kind, rest in marks if kind == "settings" for word in settings(rest, printed)}
        for result, operands, value in (derived(rest) for kind, rest in marks if kind == "derived"):
            if all(stands_in(one, numbers) for one in operands) and stands_in(result, [value]):
                known.add(result)
        known |= {
            result
            for result, value in (ratio(rest) for kind, rest in marks if kind == "ratio")
            if stands_in(result, [value])
        }
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
    assert decimals("- 1799 and N = 550.\n<!-- from x -->") == ["1799"]
    assert decimals("1799 of 2000 in 2026-11-18, 84x84, Fourier-550, 1,799, 24.5, 358") == ["1,799", "24.5"]
    table = "| 2 of 320 | 842 | a 901 | 7 ± 35 | (57) |"
    assert decimals(f"| | 128 | | | |\n|---|---|---|---|---|\n{table}") == ["842", "7", "35", "57"]
    assert decimals(f"| | 128 | | | |\n|---|---|---|---|---|\n{table}\n<!-- from x -->")[-1] == "901"
    where = "benchmarks/results/table-means.csv processor_seconds dataset=yacht"
    assert ratio(f"1.04 = {where} method=fourier / method=ngboost") == ("1.04", pytest.approx(1.04, abs=0.005))
    assert decimals("66,232 a second, 17 % of 300, 3.1,") == ["66,232", "17", "3.1"]
    assert stands_in("66,232", [66231.7])
    with pytest.raises(AssertionError, match="say more"):
        quoted("results/forecasting-seeds/summary.json")
    with pytest.raises(AssertionError, match="no row"):
        quoted("results/synthetic/summary.json metric=luck")
    for text in ("", "0.5", "0.5: level", "0.7: another level"):
        with pytest.raises(AssertionError):
            settings(text, ["0.5"])
    assert settings("0.5: the median", ["0.5"]) == {"0.5"}
