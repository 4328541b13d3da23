"""The report: every study's numbers, figures and circumstances on one page of HTML that needs nothing else."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from html import escape
from pathlib import Path
from typing import Any

from fourier_head._files import write_atomically
from fourier_head.errors import UserError
from fourier_head.pages.charts import Chart
from fourier_head.pages.embed import figure_html
from fourier_head.pages.frame import frame
from fourier_head.pages.words import prose
from studies.common.report.claims import claims_table, dots, headlines, key, read_claims
from studies.common.report.prose import BEYOND, PARTS, STUDIES, Part, about, part_of
from studies.common.report.summary import CHARTS, Row, Summary, number, read_all
from studies.common.report.tables import (
    HIGHER_IS_BETTER,
    LOWER_IS_BETTER,
    describe,
    html,
    metric_label,
    model_label,
    number_text,
    plain,
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


def build(studies: Sequence[Summary], charts: dict[str, list[Chart]], claims: Sequence[Mapping[str, Any]] = ()) -> str:
    """Return the page as text."""
    counted = [study for study in studies if not study.quick]
    repeated = [study for study in counted if about(study.name).repeats]
    lead = [_quick_looks(studies), _lead(repeated, len(counted) - len(repeated)) if counted else ""]
    figures = {f"{name}-{chart.name}" for name, own in charts.items() for chart in own}
    parts, links = "", {"overview": "Overview"}
    for part in (*PARTS, BEYOND):
        own = [study for study in studies if part_of(study.name) == part]
        said = [claim for claim in claims if part_of(claim.get("section") or "", claim["where"]) == part]
        if own or said:
            id = f"part-{part.short.lower().replace(' ', '-')}"
            links[id] = part.short
            table = claims_table(said, list(charts), figures)
            inside = table + "".join(_section(study, charts[study.name]) for study in own)
            parts += f"""<section id="{id}"><details class="study"><summary><h2>{escape(part.title)}</h2>
{dots(said)}{_story(part, said, own)}</summary>{inside}</details></section>"""
    marks = f"<p>{key(claims)}. A claim is confirmed where the 95 % interval of our number lies on its side.</p>"
    main = f"""<div id="overview">
<h1>The Fourier head, measured again</h1>
<p>What the paper <i>Fourier Head</i> (Gillman et al., ICLR 2025) says, and what we measured.</p>
<p class="lead">{escape(" ".join(words for words in lead if words))}</p>
<h2>{"The paper's claims" if claims else "Studies"}</h2>
{marks * bool(claims)}<p class="small muted">Each line opens to its claims, studies, figures and numbers.</p>
</div>
{parts}
{_overview(repeated)}"""
    made = "Written by <code>python -m studies report</code> from <code>results/&lt;study&gt;/summary.json</code>."
    return frame("Fourier head: the paper and our numbers", links, main, made)


def _story(part: Part, claims: Sequence[Mapping[str, Any]], studies: Sequence[Summary]) -> str:
    """Return what a part comes to, in a sentence or two: its headlines, or else ours beside the best published."""
    if told := headlines(claims, part.headlines):
        return told
    words = next(filter(None, map(_beside_published, studies)), "") if part == BEYOND else ""
    return f'<span class="said">{escape(words)}</span>' * bool(words)


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
            sentences.append(f"{texts[0]} on {words} (best published: {who}, {texts[1]})")
    if not sentences:
        return ""
    limits = [plain(note) for note in study.notes if CAVEAT in note]
    return " ".join([f"Our forecaster, MASE and WQL over seasonal naive: {'; '.join(sentences)}.", *limits])


def _quick_looks(studies: Sequence[Summary]) -> str:
    """Return which studies measured less than they should, nothing where all are whole."""
    names = [about(study.name).short for study in studies if study.quick]
    if not names:
        return ""
    one = len(names) == 1
    listed = names[0] if one else f"{', '.join(names[:-1])} and {names[-1]}"
    what = "is a quick look that measures" if one else "are quick looks that measure"
    return f"{listed} {what} less than the study: none of {'its' if one else 'their'} numbers is counted here."


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


def _overview(studies: Sequence[Summary]) -> str:
    """Return a line for each study and metric with a dot for each number: ours divided by the paper's."""
    lines, left_out = "", 0
    for study in studies:
        groups: dict[str, list[Row]] = {}
        for row in study.compared:
            groups.setdefault(row["metric"], []).append(row)
        for metric, rows in groups.items():
            usable = [row for row in rows if row["ours"] * row["paper"] > 0]
            left_out += len(rows) - len(usable)
            dots = "".join(_dot(row) for row in usable)
            close = sum(_close(row) or _better(row) for row in rows)
            name = (
                f'<a href="#{escape(study.name)}">{escape(about(study.name).short)}</a> {escape(metric_label(metric))}'
            )
            lines += f'<div class="ratio"><span>{name}</span><span class="track">{dots}</span>'
            lines += f'<span class="count">{close} of {len(rows)}</span></div>'
    if not lines:
        return ""
    missing = f" {left_out} of them are zero or differ in sign and have no dot." if left_out else ""
    return f"""<h2 id="numbers-of-the-paper">Ours against the paper</h2>
<div class="ratios"><div class="ratio scale"><span></span><span class="track"><i style="left:0">½</i>
<i style="left:50%">equal</i><i style="left:100%">2 ×</i></span><span class="count">close or better</span></div>
{lines}</div>
<p class="small muted">A dot is one number of the paper: ours divided by it, on a scale of factors. Triangles lie
outside the scale. <span class="key close">Close</span>: within 10 % or two standard deviations of the paper.
<span class="key better">Better</span>: a lower error or a higher gain than that. <span class="key far">Apart</span>:
neither.{missing}</p>"""


def _dot(row: Row) -> str:
    place = math.log2(row["ours"] / row["paper"])
    kind = "" if abs(place) <= 1 else " over" if place > 0 else " under"
    text = f"{describe(row)}: {number_text(row['ours'], row.get('std'))}, paper {number_text(row['paper'])}"
    left = 50 * (1 + min(max(place, -1.0), 1.0))
    colour = "" if _close(row) else " better" if _better(row) else " far"
    return f'<b class="dot{kind}{colour}" style="left:{left:.2f}%" tabindex="0" data-tip="{escape(text)}"></b>'


def _section(study: Summary, charts: Sequence[Chart]) -> str:
    """Return a study folded to its title and what there is to see; everything else is behind a click."""
    words = about(study.name)
    # What changed since the commit is said beside it.
    notes = [note for note in study.notes if "-dirty" not in note]
    first, more = (
        "".join(f"<li>{prose(plain(note))}</li>" for note in part) for part in (notes[:NOTES], notes[NOTES:])
    )
    compared = study.compared
    known = set(map(id, compared))
    rest = [row for row in study.rows if id(row) not in known]
    close = sum(_close(row) or _better(row) for row in compared)
    counts = [f"{close} of {len(compared)} numbers as in the paper or better"] if compared else []
    counts += [f"{len(charts)} figure{'s' * (len(charts) != 1)}"] if charts else []
    counts += [f"{len(rest):,} {'further ' * bool(compared)}numbers"] if rest else []
    tables = ""
    if compared:
        tables = (
            f"<h3>Paper and ours</h3>{html(compared)}"
            '<p class="small muted">Ours with the deviation over seeds or trials; below it, in grey, the number of the '
            "paper and the difference.</p>"
        )
    if rest:
        further = html(rest)
        if any(number(row.get("published")) is not None for row in rest):
            further += '<p class="small muted">In grey, below ours: numbers that others than the paper published.</p>'
        tables += f"<details><summary>{len(rest):,} {'further ' * bool(compared)}numbers</summary>{further}</details>"
    return f"""<section id="{escape(study.name)}"><details class="study">
<summary><h2>{escape(words.title + " (a quick look)" * study.quick)}</h2><span>{", ".join(counts)}</span></summary>
{f"<p>{prose(words.text)}</p>" if words.text else ""}
{f"<ul>{first}</ul>" if first else ""}
{f"<details><summary>{len(notes) - NOTES} further notes</summary><ul>{more}</ul></details>" if more else ""}
{"".join(_figure(study.name, chart) for chart in charts)}
{tables}
<pre><code>{escape(study.command)}</code></pre>
<p class="small muted">{escape(_circumstances(study))}</p>
</details></section>
"""


def _figure(study: str, chart: Chart) -> str:
    """Return a figure that links can point to."""
    name = f"{study}-{chart.name}"
    return f'<div id="{escape(name)}">{figure_html(replace(chart, name=name))}</div>'


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
