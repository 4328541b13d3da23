"""The claims of the paper as the report shows them: dots, headlines, tables."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from fourier_head.errors import UserError
from fourier_head.pages.words import prose, short
from studies.common.report.tables import plain

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


def key(claims: Sequence[Mapping[str, Any]]) -> str:
    """Return how many claims have each status, as the key of the dots."""
    counts = {status: sum(claim["status"] == status for claim in claims) for status in KEYS}
    return ", ".join(f'<span class="key {KEYS[status]}">{count} {status}</span>' for status, count in counts.items())


def dots(claims: Sequence[Mapping[str, Any]]) -> str:
    """Return a dot for each claim, and how many are confirmed."""
    if not claims:
        return ""
    marks = "".join(
        f'<b class="dot {KEYS[one["status"]]}" data-tip="{escape(one["status"] + ": " + one["claim"])}"></b>'
        for one in claims
    )
    confirmed = sum(one["status"] == "confirmed" for one in claims)
    return f'<span class="claims">{marks}</span><span>{confirmed} of {len(claims)} confirmed</span>'


def headlines(claims: Sequence[Mapping[str, Any]], wanted: Collection[str]) -> str:
    """Return the claims that tell the story of a part; with the number of the paper and ours where it has one."""
    return "".join(_headline(one) for one in claims if one["claim"] in wanted)


def _headline(claim: Mapping[str, Any]) -> str:
    words = f'<span class="key {KEYS[claim["status"]]}">{_words(claim["claim"])}</span>'
    if isinstance(claim["paper"], (int, float)):
        words += f" Paper: {number(claim, 'paper', 3)}; ours: {number(claim, 'ours', 3)}"
        words += f" ({escape(text)})." if (text := spread(claim)) else "."
    return f'<span class="said">{words}</span>'


def _words(text: str) -> str:
    """Return a sentence as HTML, its powers raised.

    >>> _words("C1 - 1/N^(2t-1) + O(1/N^2t)")
    'C1 − 1/N<sup>2t−1</sup> + O(1/N<sup>2t</sup>)'
    """
    text = re.sub(r" - |(?<=\dt)-", lambda minus: minus[0].replace("-", "−"), text)
    return re.sub(r"\^(?:\(([^)]*)\)|(\w+))", lambda power: f"<sup>{power[1] or power[2]}</sup>", prose(plain(text)))


def claims_table(claims: Sequence[Mapping[str, Any]], sections: Sequence[str], figures: Collection[str] = ()) -> str:
    """Return claims as a table: each with how it was measured and why it is said to hold or not.

    Args:
        claims: what `claims.json` holds, or some of it.
        sections, figures: what the page has beside, by the names that links use.
    """
    body = "".join(_claim(one, sections, figures) for one in claims)
    head = "<thead><tr><th>Claim</th><th>Paper</th><th>Ours</th></tr></thead>"
    return f'<div class="scroll"><table>{head}<tbody>{body}</tbody></table></div>' * bool(claims)


def _claim(claim: Mapping[str, Any], sections: Sequence[str], figures: Collection[str]) -> str:
    section = str(claim.get("section"))
    figure = f"{section}-{Path(claim.get('picture') or '').stem}"
    links = [f'<a href="#{escape(figure)}">Figure</a>'] if figure in figures else []
    links += [f'<a href="#{escape(section)}">all figures and numbers</a>'] if section in sections else []
    link = f" {', '.join(links)}." if links else ""
    why = _words(f"{claim['where']}. Measured: {claim['measure']}. {claim['why']}") + link
    return f"""<tr><td class="words"><span class="key {KEYS[claim["status"]]}">{_words(claim["claim"])}</span>
<span class="theirs">{why}</span></td><td>{escape(number(claim, "paper"))}</td>
<td>{escape(number(claim, "ours"))}<span class="theirs">{escape(spread(claim))}</span></td></tr>"""


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


def number(claim: Mapping[str, Any], whose: str, digits: int = 4) -> str:
    """Return the paper's number or ours as text; in per cent where that is what was measured.

    >>> number({"measure": "percent by which", "ours": -3.14159}, "ours", 3), number({"paper": "above 0"}, "paper")
    ('−3.14 %', 'above 0')
    """
    value = claim[whose]
    if value is None or isinstance(value, str):
        return value or ""
    return short(value, digits) + " %" * str(claim.get("measure")).startswith("percent")
