"""All claims, and the files they are written to."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from fourier_head._files import write_atomically
from studies.claims import curves, mathematics, synthetic
from studies.claims.audio import audio
from studies.claims.claim import STATUSES, Claim
from studies.claims.evidence import ROOT
from studies.claims.games import games
from studies.claims.language import language
from studies.claims.series import series
from studies.common.report.claims import number, spread
from studies.common.report.prose import part_of

CLAIMS, PAGE = Path("results/claims.json"), Path("docs/paper.md")
MARKS = {"confirmed": "✓", "not confirmed": "✗", "cannot be run here": "–"}


def all_claims() -> list[Claim]:
    """Return every claim of the paper, in its order."""
    return [
        *mathematics.theorem(),
        *mathematics.metric(),
        *synthetic.against_linear(),
        *synthetic.against_mixtures(),
        *synthetic.smoothest(),
        *synthetic.regressions(),
        *curves.curves(),
        *language(),
        *games(),
        *series(),
        *audio(),
    ]


def write(root: Path = ROOT) -> list[dict[str, Any]]:
    """Write `results/claims.json` and `docs/paper.md`; return the claims."""
    claims = [claim.as_dict() for claim in all_claims()]
    lines = ",\n".join(json.dumps(claim, ensure_ascii=False) for claim in claims)
    write_atomically(root / CLAIMS, f"[\n{lines}\n]\n")
    write_atomically(root / PAGE, page(claims))
    return claims


def counts(claims: list[dict[str, Any]]) -> str:
    """Say how many claims of the paper have each status, and how many questions of ours stand beside them.

    >>> counts([{"status": "confirmed"}, {"status": "not confirmed", "undecided": True}])
    '1 confirmed, 1 not confirmed (0 against it, 1 that our runs cannot tell), 0 cannot be run here'
    """
    theirs = [claim for claim in claims if not claim.get("own")]
    number = {status: sum(claim["status"] == status for claim in theirs) for status in STATUSES}
    open = sum(claim.get("undecided", False) for claim in theirs)
    split = f" ({number['not confirmed'] - open} against it, {open} that our runs cannot tell)"
    words = [f"{number[status]} {status}{split if status == 'not confirmed' else ''}" for status in STATUSES]
    own = len(claims) - len(theirs)
    return ", ".join(words) + (f"; beside them {own} questions of ours" if own else "")


def page(claims: list[dict[str, Any]]) -> str:
    """Return the page of the documentation: a table for each part of the paper."""
    parts: dict[str, list[str]] = {}
    for claim in claims:
        title = part_of(claim["section"], claim["where"]).title
        parts.setdefault(title, []).append(_row(claim))
    header = "| Claim | Paper | Ours |\n|---|---|---|"
    tables = "".join(f"\n## {title}\n\n{header}\n{chr(10).join(rows)}\n" for title, rows in parts.items())
    text = (
        "Every claim of [the paper](https://arxiv.org/abs/2410.22269) beside what our runs say of it: "
        f"{counts(claims)}. A claim is confirmed (✓) where the 95 % interval of our number lies on the paper's side. "
        "Not confirmed (✗) may mean that it is wrong, that it does not hold here, or (?) that our runs are too few to "
        "tell: the reason says which, and a plan, written before the runs, what was or is to be run for it "
        "([all of them, in order](../results/plan.md)). Where the paper has a number, the reason says whether our "
        "interval holds it. What cannot be run here has a dash. Numbers are computed by "
        "`python -m studies claims` from the files named with each claim; it writes this page and "
        "`results/claims.json`."
    )
    return f"# The paper's claims\n\n{text}\n{tables}"


def _row(claim: dict[str, Any]) -> str:
    """Return a line of a table: the claim, below it in small how it was measured and why it is said to hold or not."""
    evidence = claim["evidence"]
    files = [part["file"] for part in (evidence, evidence.get("beside")) if part] if evidence else []
    links = {file: file for file in files}
    links |= {"figure": claim["picture"], "plan": claim["plan"]}
    source = ", ".join(f"[{name}](../{path})" for name, path in links.items() if path)
    why = f"{claim['where']}. Measured: {claim['measure']}. {claim['why']}{f' Evidence: {source}.' if source else ''}"
    ours = number(claim, "ours") + (f"<br><small>{text}</small>" if (text := spread(claim)) else "")
    mark = "?" if claim.get("undecided") else MARKS[claim["status"]]
    words = f"{mark} **{claim['claim']}**{' (our question)' * claim.get('own', False)}<br><small>{why}</small>"
    return f"| {words} | {number(claim, 'paper')} | {ours} |"
