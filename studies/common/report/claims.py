"""The table of claims at the head of the report."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from fourier_head.errors import UserError

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


def claims_table(claims: Sequence[Mapping[str, Any]], sections: Sequence[str]) -> str:
    """Return the claims as lines that unfold, with links to the sections of the report that are there."""
    if not claims:
        return ""
    groups: dict[str, str] = {}
    for claim in claims:
        section = str(claim.get("section"))
        link = f' <a href="#{escape(section)}">Figures and numbers</a>.' if section in sections else ""
        numbers = [f"paper {number(claim['paper'])}" if claim["paper"] is not None else ""]
        if claim["ours"] is not None:
            numbers.append(f"ours {number(claim['ours'])}{f' ({spread(claim)})' if spread(claim) else ''}")
        beside = "; ".join(one for one in numbers if one)
        line = (
            f'<details><summary><span class="key {KEYS[claim["status"]]}">{escape(claim["status"])}</span>: '
            f'{escape(claim["claim"])} <span class="small muted">{escape(claim["where"])}. {escape(beside)}</span>'
            "</summary>"
            f'<p class="small">Measured: {escape(claim["measure"])}. {escape(claim["why"])}{link}</p></details>'
        )
        groups[title_of(claim)] = groups.get(title_of(claim), "") + line
    counts = {status: sum(claim["status"] == status for claim in claims) for status in KEYS}
    words = ", ".join(f"{count} {status}" for status, count in counts.items())
    listed = "".join(f"<h3>{escape(title)}</h3>{lines}" for title, lines in groups.items())
    return f"""<h2 id="claims">The paper's claims</h2>
<p>{words}. A claim is confirmed where the 95 % interval of our number lies on the paper's side; each line unfolds.</p>
{listed}"""


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
        words.append(f"{claim['interval'][0]:g} to {claim['interval'][1]:g}")
    if claim.get("exact"):
        words.append("exact")
    elif claim["seeds"]:
        words.append(f"{claim['seeds']} seed{'s' if claim['seeds'] > 1 else ''}")
    return ", ".join(words)


def number(value: float | str | None) -> str:
    """Return a number or words as text.

    >>> number(-0.092), number("above 0"), number(None)
    ('-0.092', 'above 0', '')
    """
    return "" if value is None else value if isinstance(value, str) else f"{value:g}"
