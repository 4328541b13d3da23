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
    """Return the claims as a table whose rows link to the sections of the report that are there."""
    if not claims:
        return ""
    body = ""
    for claim in claims:
        section = str(claim.get("section"))
        link = f' <a href="#{escape(section)}">figures</a>' if section in sections else ""
        mark = f'<span class="key {KEYS[claim["status"]]}">{escape(claim["status"])}</span>'
        ours = f"{escape(number(claim['ours']))}<br>" if claim["ours"] is not None else ""
        body += (
            f"<tr><td>{escape(claim['claim'])}<br><span class='small muted'>{escape(claim['where'])}.{link}</span></td>"
            f"<td>{mark}</td><td>{escape(number(claim['paper']))}</td>"
            f"<td>{ours}<span class='small muted'>{escape(spread(claim))}</span></td>"
            f"<td class='small'>{escape(claim['measure'])}. {escape(claim['why'])}</td></tr>"
        )
    counts = {status: sum(claim["status"] == status for claim in claims) for status in KEYS}
    words = ", ".join(f"{count} {status}" for status, count in counts.items())
    return f"""<h2>The paper's claims</h2>
<p>{words}. A claim is confirmed where the 95 % interval of our number lies on the paper's side.</p>
<div class="scroll"><table><thead><tr><th>claim</th><th>status</th><th>paper</th><th>ours</th>
<th>what is measured, and why</th></tr></thead><tbody>{body}</tbody></table></div>"""


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
