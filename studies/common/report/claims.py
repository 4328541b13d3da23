"""The claims of the paper as the report words them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from fourier_head.errors import UserError
from fourier_head.pages.words import prose, short
from studies.common.report.tables import plain

CLAIMS = "claims.json"
KEYS = {"confirmed": "close", "not confirmed": "far", "cannot be run here": "none"}
"""Status of a claim, and the mark it gets."""
UNDECIDED = "open"
"""Mark of one that is not confirmed because our runs cannot tell."""
VERDICTS = {
    "close": "confirmed",
    "far": "not confirmed, our runs speak against it",
    UNDECIDED: "not confirmed, our runs cannot tell",
    "none": "cannot be run here",
}
"""Marks in words."""


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


def mark(claim: Mapping[str, Any]) -> str:
    """Return the mark of a claim.

    >>> mark({"status": "not confirmed"}), mark({"status": "not confirmed", "undecided": True})
    ('far', 'open')
    """
    return UNDECIDED if claim.get("undecided") else KEYS[claim["status"]]


def of_the_paper(claims: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the marks of the claims that are the paper's; questions of ours are not counted among them."""
    return [mark(claim) for claim in claims if not claim.get("own")]


def sentence(text: str) -> str:
    """Return a sentence as HTML, its powers raised.

    >>> sentence("C1 - 1/N^(2t-1) + O(1/N^2t)")
    'C1 − 1/N<sup>2t−1</sup> + O(1/N<sup>2t</sup>)'
    """
    text = re.sub(r" - |(?<=\dt)-", lambda minus: minus[0].replace("-", "−"), text)
    return re.sub(r"\^(?:\(([^)]*)\)|(\w+))", lambda power: f"<sup>{power[1] or power[2]}</sup>", prose(plain(text)))


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
