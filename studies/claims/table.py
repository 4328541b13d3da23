"""All claims, and the files they are written to."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from fourier_head._files import write_atomically
from studies.claims import mathematics, synthetic
from studies.claims.audio import audio
from studies.claims.claim import STATUSES, Claim
from studies.claims.evidence import ROOT
from studies.claims.games import games
from studies.claims.language import language
from studies.claims.series import series

CLAIMS, PAGE = Path("results/claims.json"), Path("docs/paper.md")


def all_claims() -> list[Claim]:
    """Return every claim of the paper, in its order."""
    return [
        *mathematics.theorem(),
        *mathematics.metric(),
        *synthetic.against_linear(),
        *synthetic.against_mixtures(),
        *synthetic.curves(),
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
    """Say how many claims have each status."""
    return ", ".join(f"{sum(claim['status'] == status for claim in claims)} {status}" for status in STATUSES)


def ours_text(claim: dict[str, Any]) -> str:
    """Return our number with its interval and seeds."""
    if claim["ours"] is None:
        return ""
    text = f"{claim['ours']:g}"
    if claim["interval"] is not None:
        text += f" ({claim['interval'][0]:g} to {claim['interval'][1]:g})"
    if claim["seeds"]:
        text += f", {claim['seeds']} seed{'s' if claim['seeds'] > 1 else ''}"
    return text


def page(claims: list[dict[str, Any]]) -> str:
    """Return the page of the documentation."""
    rows = []
    for claim in claims:
        evidence = claim["evidence"]
        links = {Path(evidence["file"]).parent.name: evidence["file"]} if evidence else {}
        links |= {"figure": claim["picture"], "plan": claim["plan"]}
        source = ", ".join(f"[{name}](../{path})" for name, path in links.items() if path)
        paper = "" if claim["paper"] is None else str(claim["paper"])
        cells = (claim["where"], claim["claim"], claim["measure"], paper, ours_text(claim), f"**{claim['status']}**")
        rows.append(f"| {' | '.join(cells)} | {claim['why']} | {source} |")
    table = "\n".join(rows)
    text = (
        "Every claim of [the paper](https://arxiv.org/abs/2410.22269) beside what our runs say of it: "
        f"{counts(claims)}. A claim is confirmed where the 95 % interval of our number lies on the paper's side. Not "
        "confirmed may mean that it is wrong, that it does not hold here, or that our runs are too few to tell: the "
        "reason says which, and a plan, written before the runs, what would settle it ([all of them, in order]"
        "(../results/plan.md)). Numbers are "
        "computed from the files in the last column by `python -m studies claims`, which writes this page and "
        "`results/claims.json`."
    )
    header = "| where | claim | measure | paper | ours | status | why | evidence |\n|---|---|---|---|---|---|---|---|"
    return f"# The paper's claims\n\n{text}\n\n{header}\n{table}\n"
