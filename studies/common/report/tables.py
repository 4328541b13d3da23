"""Rows of a summary as tables: one line per arm, one column per metric, the number of others below ours."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fourier_head.pages.style import look
from fourier_head.pages.words import short
from studies.common.report.prose import LABELS
from studies.common.report.summary import COLUMNS, Row, number

METRICS, DATASETS, WORDS = LABELS["metrics"], LABELS["datasets"], LABELS["settings"]
MODELS: dict[str, str] = {word.lower(): word for word in LABELS["models"].split()}
"""Words in names of published models, as their authors spell them."""
ACRONYMS = set(LABELS["acronyms"].split())
LOWER_IS_BETTER, HIGHER_IS_BETTER = (set(LABELS[f"{side} is better"].split()) for side in ("lower", "higher"))
MOST_COLUMNS = 6  # data sets that fit side by side; more of them become lines
LONG = 30  # lines from which on tables are folded, all but the first
# Told about a measured number rather than naming what was measured.
ABOUT = {"ours", "std", "seeds", "paper", "metric", "paper_std", "step", "paper_step", "residual", "expected"}
ABOUT |= {"published", "t", "from", "to", "fitted", "C1", "C2", "points", "paper_fit", "falls", "seconds"}


def metric_label(name: str) -> str:
    """Return a metric's name in print.

    >>> metric_label("kl"), metric_label("mean_reward"), metric_label("relative_mase")
    ('KL divergence', 'Mean reward', 'Relative MASE')
    """
    return METRICS.get(name) or dataset_label(name)


def model_label(name: str) -> str:
    """Return the name of a published model in print; of a head of ours as everywhere.

    >>> model_label("chronos_bolt_base"), model_label("timesfm_2_0_500m"), model_label("TiRex"), model_label("gmm")
    ('Chronos Bolt base', 'TimesFM 2.0 500m', 'TiRex', 'GMM')
    """
    words = re.split("[_-]", re.sub(r"(?<=\d)_(?=\d)", ".", name, count=1))
    if name != name.lower():
        return name.replace("_", " ")
    return " ".join(MODELS.get(word, word) for word in words) if words[0] in MODELS else look(name).label


def plain(text: str) -> str:
    """Return a sentence with the names that programs have for data sets and metrics in words, and true minus signs.

    >>> plain("lower on tourism_quarterly (-3 %) and m5_partial; `kept_as_is`"), plain("tvd_all counts all")
    ('lower on tourism quarterly (−3 %) and M5, a part; `kept_as_is`', 'TVD of all answers counts all')
    """
    text = re.sub(r"(?<![\w.)\]])-(?=\d)", "−", text)
    names = r"(?<![\w.`/-])[a-z][a-z0-9]*(?:_[a-z0-9]+)+(?![\w.`/])"
    return re.sub(names, lambda found: METRICS.get(found[0]) or _words(found[0]), text)


def _words(name: str) -> str:
    words = [word.upper() if word in ACRONYMS else word for word in name.removesuffix("_partial").split("_")]
    return " ".join(words) + (", a part" if name.endswith("_partial") else "")


def number_text(value: Any, spread: Any = None) -> str:
    """Return a number with three or four significant digits, its deviation to the same decimals, a dash for none.

    >>> number_text(0.11634, 0.0093), number_text(-2.0), number_text(None), number_text(0.0003, 0.0001)
    ('0.1163 ± 0.0093', '−2', '–', '0.000300 ± 0.000100')
    """
    known = number(value)
    if known is None:
        return "–"
    places = 0
    if known == int(known) and abs(known) < 1e6:
        text = f"{known:.0f}"
    elif 1e-5 <= abs(known) < 1e6:
        size = math.floor(math.log10(abs(known)))
        places = max(3 - size, 0) if size >= -1 else 2 - size
        text = f"{known:.{places}f}"
    else:
        text = short(known)
    deviation = number(spread)
    if deviation is not None:
        text += f" ± {deviation:.{places}f}" if places and deviation >= 10**-places else f" ± {short(deviation, 2)}"
    return text.replace("-", "−")


def arm_label(row: Row) -> str:
    """Return what was measured: the head and its settings, then further keys of the study.

    >>> arm_label({"head": "fourier", "frequencies": 12, "packets": 2, "gamma": 1e-6})
    'Fourier, N = 12, 2 packets, γ = 10⁻⁶'
    """
    words = [model_label(str(row["head"]))] if row.get("head") else []
    if row.get("frequencies") is not None:
        words.append(f"N = {row['frequencies']}")
    if row.get("packets"):
        words.append(f"{row['packets']} packet{'s' if row['packets'] != 1 else ''}")
    for key, value in row.items():
        if key in COLUMNS or key in ABOUT or value is None or isinstance(value, (dict, list)):
            continue
        if key == "model" and value == row.get("head"):
            continue
        text = short(value) if number(value) is not None else str(value)
        words.append(f"{WORDS.get(key, key.replace('_', ' '))} = {text}")
    return ", ".join(words)


def dataset_label(name: Any) -> str:
    """Return the name of a data set in print.

    >>> dataset_label("gmm2"), dataset_label("1/k^3"), dataset_label("tourism_quarterly"), dataset_label("nn5_daily")
    ('GMM-2', '1/k³', 'Tourism quarterly', 'NN5 daily')
    """
    if name is None:
        return ""
    text = re.sub(r"\^(\d)", lambda power: "⁰¹²³⁴⁵⁶⁷⁸⁹"[int(power[1])], _words(str(name)))
    return DATASETS.get(str(name)) or text[:1].upper() + text[1:]


def describe(row: Row) -> str:
    """Return all that tells one row from another, metric left out."""
    words = (dataset_label(row.get("dataset")), row.get("protocol"), arm_label(row))
    return ", ".join(str(word) for word in words if word)


@dataclass
class Table:
    """A table of one metric (or, with many data sets, of one protocol): its lines by label, each with its cells."""

    title: str
    columns: list[str]
    lines: dict[str, dict[str, Row]]

    @property
    def size(self) -> int:
        """Number of lines."""
        return len(self.lines)


def tables(rows: Iterable[Row]) -> list[Table]:
    """Return the rows as tables: a few data sets become columns; many become lines, and the metrics columns."""
    rows = list(rows)
    out: list[Table] = []
    for metric in dict.fromkeys(row["metric"] for row in rows):
        chosen = [row for row in rows if row["metric"] == metric]
        if len({row["dataset"] for row in chosen}) > MOST_COLUMNS:
            continue
        named = len({(row["protocol"], arm_label(row)) for row in chosen}) <= 12
        for protocol in [None] if named else list(dict.fromkeys(row["protocol"] for row in chosen)):
            some = [row for row in chosen if named or row["protocol"] == protocol]
            title = metric_label(metric) + (f", {protocol}" if protocol else "")
            out.append(_table(title, some, lambda row: dataset_label(row["dataset"]), named))
    wide = [row for row in rows if metric_label(row["metric"]) not in {t.title.split(", ")[0] for t in out}]
    for protocol in dict.fromkeys(row["protocol"] for row in wide):
        some = [row for row in wide if row["protocol"] == protocol]
        title = str(protocol or "By data set")
        out.append(_table(title[:1].upper() + title[1:], some, lambda row: metric_label(row["metric"]), False, True))
    return out


def _table(
    title: str, rows: Sequence[Row], column: Callable[[Row], str], protocols: bool, datasets: bool = False
) -> Table:
    lines: dict[str, dict[str, Row]] = {}
    arms = list(dict.fromkeys(arm_label(row | {"frequencies": None}) for row in rows))

    def order(row: Row) -> tuple[int, float]:
        return arms.index(arm_label(row | {"frequencies": None})), number(row["frequencies"]) or 0.0

    # Frequencies in their order; everything else as the study wrote it.
    for row in rows if datasets or protocols else sorted(rows, key=order):
        words = [row["protocol"] if protocols else None, dataset_label(row["dataset"]) if datasets else None]
        label = ", ".join(str(word) for word in (*words, arm_label(row)) if word)
        lines.setdefault(label, {})[column(row)] = row
    return Table(title, list(dict.fromkeys(column(row) for row in rows)), lines)


def head_colour(cells: Mapping[str, Row]) -> str | None:
    """Return the colour of the head that a line is about, None where it is about none."""
    first = next(iter(cells.values()))
    return "fourier-packets" if first["head"] == "fourier" and first["packets"] else first["head"]


def beside(row: Row) -> tuple[str, str] | None:
    """Return the paper's number or another published one as it stands below ours, and the difference."""
    theirs = next((known for key in ("paper", "published") if (known := number(row.get(key))) is not None), None)
    if theirs is None:
        return None
    return printed(theirs, number(row.get("paper_std"))), _difference(number(row["ours"]), theirs)


def printed(value: float, spread: float | None) -> str:
    """Return a number of the paper as it stands there, with as many decimals as its deviation.

    >>> printed(0.17, 0.052), printed(0.407, None), printed(0.257, 0.03)
    ('0.170 ± 0.052', '0.407', '0.257 ± 0.030')
    """
    parts = [short(value, 4 if abs(value) >= 0.1 else 3)]
    if spread is not None:
        parts.append(short(spread, 2))
        if all("10" not in part or "." in part for part in parts):  # neither is written as a power of ten
            places = max(len(part.partition(".")[2]) for part in parts)
            parts = [f"{number:.{places}f}".replace("-", "−") for number in (value, spread)]
    return " ± ".join(parts)


def _difference(ours: float | None, theirs: float) -> str:
    """Return by how many per cent our number differs from theirs."""
    if ours is None or not theirs:
        return ""
    share = round(100 * (ours / theirs - 1))
    return f"{share:+d} %".replace("-", "−").replace("+0", "0") if abs(share) < 1000 else ""
