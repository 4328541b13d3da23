"""The table of claims at the head of the report."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from fourier_head.errors import UserError
from fourier_head.pages.words import short

CLAIMS = "claims.json"
KEYS = {"confirmed": "close", "not confirmed": "far", "cannot be run here": "none"}
"""Status of a claim, and the mark it gets."""
PARTS = {
    "Theory and metric": ("scaling-law", "smoothness"),
    "Synthetic densities": ("synthetic", "likelihood"),
    "Language models as random numbers": ("numbers", "Section 4.2"),
    "Offline reinforcement learning": ("atari", "Section 5"),
    "Time series": ("forecasting", "spectrum", "Section 6"),
    "Audio": ("tempo", "Appendix C.1"),
}
"""Parts of the paper, by the studies or the sections of their claims."""


def read_claims(results: Path) -> list[dict[str, Any]]:
    """Return the claims beside the results, none where there is no such file."""
    path = results / CLAIMS
    if not path.exists():
        return []
    try:
        claims = json.loads(path.read_text(encoding="utf-8"))
        return [dict(claim) for claim in claims if claim["status"] in KEYS]
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise UserError(f"{path} does not hold claims as python -m studies claims writes them: {error}.") from None


def claims_table(claims: Sequence[Mapping[str, Any]], sections: Sequence[str], figures: Collection[str] = ()) -> str:
    """Return a line for each part of the paper with a dot for each claim; it unfolds to the claims themselves.

    Args:
        claims: what `claims.json` holds.
        sections, figures: what the page has beside, by the names that links use.
    """
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for claim in claims:
        groups.setdefault(title_of(claim), []).append(claim)
    lines = ""
    for title, members in groups.items():
        dots = "".join(
            f'<b class="dot {KEYS[one["status"]]}" data-tip="{escape(one["status"] + ": " + one["claim"])}"></b>'
            for one in members
        )
        confirmed = sum(one["status"] == "confirmed" for one in members)
        body = "".join(_claim(one, sections, figures) for one in members)
        lines += f"""<details class="study"><summary><h2>{escape(title)}</h2><span class="claims">{dots}</span>
<span>{confirmed} of {len(members)} confirmed</span></summary>
<div class="scroll"><table><thead><tr><th>Claim</th><th>Paper</th><th>Ours</th></tr></thead>
<tbody>{body}</tbody></table></div></details>"""
    counts = {status: sum(claim["status"] == status for claim in claims) for status in KEYS}
    words = ", ".join(f'<span class="key {KEYS[status]}">{count} {status}</span>' for status, count in counts.items())
    return f"""<h2 id="claims">The paper's claims</h2>
<p>{words}. A claim is confirmed where the 95 % interval of our number lies on the paper's side. Each line unfolds.</p>
{lines}""" * bool(claims)


def _claim(claim: Mapping[str, Any], sections: Sequence[str], figures: Collection[str]) -> str:
    section = str(claim.get("section"))
    figure = f"{section}-{Path(claim.get('picture') or '').stem}"
    links = [f'<a href="#{escape(figure)}">Figure</a>'] if figure in figures else []
    links += [f'<a href="#{escape(section)}">all figures and numbers</a>'] if section in sections else []
    link = f" {', '.join(links)}." if links else ""
    why = f"{escape(claim['where'])}. Measured: {escape(claim['measure'])}. {escape(claim['why'])}{link}"
    return f"""<tr><td class="words"><span class="key {KEYS[claim["status"]]}">{escape(claim["claim"])}</span>
<span class="theirs">{why}</span></td><td>{escape(number(claim["paper"]))}</td>
<td>{escape(number(claim["ours"]))}<span class="theirs">{escape(spread(claim))}</span></td></tr>"""


def title_of(claim: Mapping[str, Any]) -> str:
    """Return the part of the paper that a claim belongs to."""
    section = str(claim.get("section") or "")
    for title, names in PARTS.items():
        if any(section.startswith(name) for name in names):
            return title
    where = str(claim["where"])
    return next((title for title, names in PARTS.items() if any(where.startswith(name) for name in names)), "Further")


def spread(claim: Mapping[str, Any]) -> str:
    """Return the interval and the seeds of a claim in words."""
    words = []
    if claim["interval"] is not None:
        words.append(" to ".join(short(end, 3) for end in claim["interval"]))
    if claim.get("exact"):
        words.append("exact")
    elif claim["seeds"]:
        words.append(f"{claim['seeds']} seed{'s' if claim['seeds'] > 1 else ''}")
    return ", ".join(words)


def number(value: float | str | None) -> str:
    """Return a number or words as text.

    >>> number(-0.092), number("above 0"), number(None)
    ('−0.092', 'above 0', '')
    """
    return "" if value is None else value if isinstance(value, str) else short(value)
