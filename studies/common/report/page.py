"""The report: every study's numbers, figures and circumstances on one page of HTML that needs nothing else."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fourier_head._files import write_atomically
from fourier_head.errors import UserError
from fourier_head.pages.charts import Chart
from fourier_head.pages.embed import figure_html
from fourier_head.pages.frame import frame
from fourier_head.pages.templates import template
from fourier_head.pages.words import listed
from studies.common.report.claims import VERDICTS, mark, of_the_paper, read_claims, sentence, spread
from studies.common.report.claims import number as claim_number
from studies.common.report.prose import BEYOND, PARTS, STUDIES, about, part_of
from studies.common.report.summary import CHARTS, Row, Summary, number, read_all
from studies.common.report.tables import (
    HIGHER_IS_BETTER,
    LONG,
    LOWER_IS_BETTER,
    beside,
    describe,
    head_colour,
    metric_label,
    model_label,
    number_text,
    plain,
    tables,
)

GROUPS = {"verified": "15 public sets", "gift": "21 configurations of GIFT-Eval"}
"""Groups of sets on which a forecaster is set beside published ones."""
CAVEAT = "not zero-shot"
"""A note with these words limits a score of the front, and is shown beside it."""
NOTES = 3
"""Sentences of a study that are shown, the others being folded."""


def write_report(results: Path = Path("results"), output: Path | None = None) -> Path:
    """Gather every `results/<study>/summary.json` into one page; return where it was written."""
    studies = read_all(results, list(STUDIES))
    if not studies:
        raise UserError(f"{results} holds no results: run a study first, such as python -m studies smoothness.")
    charts = {study.name: read_charts(results / study.name) for study in studies}
    path = results / "report.html" if output is None else output
    if path.is_dir():
        raise UserError(f"--output must name a file to write, but {path} is a folder.")
    write_atomically(path, build(studies, charts, read_claims(results)))
    return path


def read_charts(folder: Path) -> list[Chart]:
    """Return the charts a study wrote."""
    path = folder / CHARTS
    if not path.exists():
        return []
    try:
        return [_named(Chart.from_dict(one)) for one in json.loads(path.read_text(encoding="utf-8"))]
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise UserError(f"{path} does not hold charts as studies write them: {error}.") from None


def _named(chart: Chart) -> Chart:
    """Return a chart with plain names for data sets."""
    panels = []
    for panel in chart.panels:
        series = [replace(one, name=plain(one.name)) for one in panel.series]
        panels.append(replace(panel, series=series, title=plain(panel.title)))
    return replace(chart, panels=panels, title=plain(chart.title), caption=plain(chart.caption))


def parts() -> Any:
    """Return the macros of `parts.html`."""
    return template("parts.html", __package__, **HELPERS).module


def build(studies: Sequence[Summary], charts: dict[str, list[Chart]], claims: Sequence[Mapping[str, Any]] = ()) -> str:
    """Return the page as text."""
    counted = [study for study in studies if not study.quick]
    repeated = [study for study in counted if about(study.name).repeats]
    lead = [_quick_looks(studies), _lead(repeated, len(counted) - len(repeated)) if counted else ""]
    found, links = [], {"overview": "Overview"}
    for part in (*PARTS, BEYOND):
        own = [study for study in studies if part_of(study.name) == part]
        said = [claim for claim in claims if part_of(claim.get("section") or "", claim["where"]) == part]
        if own or said:
            one: dict[str, Any] = {"id": f"part-{part.short.lower().replace(' ', '-')}", "title": part.title}
            one |= {"claims": said, "headlines": [claim for claim in said if claim["claim"] in part.headlines]}
            one["story"] = next(filter(None, map(_beside_published, own)), "") if part == BEYOND else ""
            one["studies"] = [_section(study, charts[study.name]) for study in own]
            links[one["id"]] = part.short
            found.append(one)
    ratios = _ratios(repeated)
    main = template("report.html", __package__, **HELPERS).render(
        lead=" ".join(words for words in lead if words),
        claims=claims,
        parts=found,
        sections=list(charts),
        figures={f"{name}-{chart.name}" for name, own in charts.items() for chart in own},
        ratios=ratios,
        left_out=sum(len(one["rows"]) - len(one["usable"]) for one in ratios),
        shown=NOTES,
    )
    made = "Written by <code>python -m studies report</code> from <code>results/&lt;study&gt;/summary.json</code>."
    return frame("Fourier head: the paper and our numbers", links, main, made)


def _beside_published(study: Summary) -> str:
    """Return where a forecaster stands beside the best of the published models, nothing for other studies."""
    found: dict[str, dict[str, dict[str, float]]] = {"ours": {}, "published": {}}
    for row in study.rows:
        for whose, scores in found.items():
            known = number(row.get(whose))
            if row["metric"].startswith("relative_") and row["dataset"] in GROUPS and known is not None:
                scores.setdefault(f"{row['dataset']} {row['head']}", {})[row["metric"]] = known
    sentences = []
    for name, words in GROUPS.items():
        ours, theirs = (
            {k: s for k, s in scores.items() if k.startswith(f"{name} ") and len(s) == 2} for scores in found.values()
        )
        if len(ours) == 1 and theirs:
            best = min(theirs, key=lambda key: theirs[key]["relative_wql"])
            (own,) = ours.values()
            texts = [f"{s['relative_mase']:.3f} and {s['relative_wql']:.3f}" for s in (own, theirs[best])]
            who = model_label(best.partition(" ")[2])
            sentences.append(f"{texts[0]} on {words} (best published in WQL: {who}, {texts[1]})")
    if not sentences:
        return ""
    limits = [plain(note) for note in study.notes if CAVEAT in note]
    return " ".join([f"Our forecaster, MASE and WQL over seasonal naive: {'; '.join(sentences)}.", *limits])


def _quick_looks(studies: Sequence[Summary]) -> str:
    """Return which studies measured less than they should, nothing where all are whole."""
    names = [about(study.name).short for study in studies if study.quick]
    if not names:
        return ""
    what, whose = ("are quick looks that measure", "their") if names[1:] else ("is a quick look that measures", "its")
    return f"{listed(names)} {what} less than the study: none of {whose} numbers is counted here."


def _lead(studies: Sequence[Summary], more: int) -> str:
    """Return the first paragraph, on studies of the paper; there are so many more."""
    compared = [row for study in studies for row in study.compared]
    words = f"{len(studies)} studies of the paper, each repeated by one command"
    if len(studies) == 1:
        words = "One study of the paper, repeated by one command"
    if more:
        words += f"; {more} more var{'ies' if more == 1 else 'y'} one of them or go{'es' if more == 1 else ''} beyond"
    if not compared:
        return f"{words}."
    close = sum(_close(row) for row in compared)
    better = sum(_better(row) for row in compared)
    return (
        f"{words}. {len(compared)} numbers have a value in the paper beside them; {close} of these come out within "
        f"10 % of it or within two of its standard deviations{f', {better} better than that' if better else ''}."
    )


def _close(row: Row) -> bool:
    ours, paper = float(row["ours"]), float(row["paper"])
    spread = number(row.get("paper_std")) or 0.0
    return abs(ours - paper) <= max(0.1 * abs(paper), 2 * spread)


def _better(row: Row) -> bool:
    """Say whether ours beats the paper's by more than what counts as close: a lower error, or a higher gain."""
    if row["metric"] in HIGHER_IS_BETTER:
        return row["ours"] > row["paper"] and not _close(row)
    return row["metric"] in LOWER_IS_BETTER and row["ours"] < row["paper"] and not _close(row)


def _ratios(studies: Sequence[Summary]) -> list[dict[str, Any]]:
    """Return each metric of each study with its numbers of the paper; those of another sign have no ratio."""
    found = []
    for study in studies:
        groups: dict[str, list[Row]] = {}
        for row in study.compared:
            groups.setdefault(row["metric"], []).append(row)
        for metric, rows in groups.items():
            one = {"study": study.name, "short": about(study.name).short, "metric": metric_label(metric), "rows": rows}
            one["usable"] = [row for row in rows if row["ours"] * row["paper"] > 0]
            found.append(one | {"close": sum(_close(row) or _better(row) for row in rows)})
    return found


HELPERS = {
    **{one.__name__: one for one in (beside, describe, head_colour, mark, number_text, of_the_paper, sentence, spread)},
    "close": _close,
    "better": _better,
    "number": claim_number,
    "log2": math.log2,
    "verdicts": VERDICTS,
    "long": LONG,
}
"""What templates know."""


def _section(study: Summary, charts: Sequence[Chart]) -> dict[str, Any]:
    """Return what is shown of a study: its title and what there is to see, and all else, which is behind a click."""
    compared = study.compared
    known = set(map(id, compared))
    rest = [row for row in study.rows if id(row) not in known]
    close = sum(_close(row) or _better(row) for row in compared)
    further = f"{len(rest):,} {'further ' * bool(compared)}numbers"
    counts = [f"{close} of {len(compared)} numbers as in the paper or better"] if compared else []
    counts += [f"{len(charts)} figure{'s' * (len(charts) != 1)}"] if charts else []
    counts += [further] if rest else []
    named = [(f"{study.name}-{chart.name}", chart) for chart in charts]
    return {
        "name": study.name,
        "title": about(study.name).title,
        "text": about(study.name).text,
        "quick": study.quick,
        "counts": counts,
        # What changed since the commit is said beside it.
        "notes": [plain(note) for note in study.notes if "-dirty" not in note],
        "figures": {name: figure_html(replace(chart, name=name)) for name, chart in named},
        "compared": tables(compared),
        "rest": tables(rest),
        "further": further,
        "others": any(number(row.get("published")) is not None for row in rest),
        "command": study.command,
        "circumstances": _circumstances(study),
    }


def _duration(seconds: float) -> str:
    minutes = seconds / 60
    if minutes < 2:
        return f"{seconds:.0f} seconds"
    return f"{minutes:.0f} minutes" if minutes < 120 else f"{minutes / 60:.1f} hours"


def _circumstances(study: Summary) -> str:
    lasted = _duration(study.seconds)
    of_cores = number(study.extra.get("core_seconds"))
    if of_cores is not None:  # what was finished before an interruption counts here only
        lasted = f"{_duration(of_cores)} of one core"
    elif whose := study.extra.get("seconds_of"):
        lasted += f", {whose} added up,"
    software = ", ".join(f"{name} {version}" for name, version in study.versions.items())
    commit = f" Commit {study.commit[:12]}" if study.commit else ""
    commit += (
        ", with changes that were not committed." if str(study.commit).endswith("-dirty") else "." if commit else ""
    )
    return f"{study.date[:10]}, {lasted} on {study.hardware}. {software}.{commit}"
