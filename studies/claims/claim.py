"""What one claim is, and how a figure decides about it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from studies.claims.evidence import Figure
from studies.claims.settling import open_question, picture_of, plan_of

Status = Literal["confirmed", "not confirmed", "cannot be run here"]
STATUSES: tuple[Status, ...] = ("confirmed", "not confirmed", "cannot be run here")


@dataclass(frozen=True)
class Claim:
    """A claim of the paper beside what came out.

    Args:
        claim: in a sentence.
        where: section or table of the paper.
        measure: what the numbers are.
        paper: the paper's number, or its words; None where it prints none.
        status, why: what our evidence says, and the reason.
        figure: ours.
        exact: whether it is mathematics, so that seeds do not apply.
        section: of the report, where its figure and numbers are.
    """

    claim: str
    where: str
    measure: str
    paper: float | str | None
    status: Status
    why: str
    figure: Figure | None = None
    exact: bool = False
    section: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Return what `claims.json` has of it; where runs could settle it, what is excluded already, and the plan."""
        figure = self.figure
        unsettled = self.status == "not confirmed" and not self.exact
        found: dict[str, Any] = {
            "claim": self.claim,
            "where": self.where,
            "measure": self.measure,
            "paper": self.paper,
            "ours": None if figure is None else _rounded(figure.value),
            "interval": None,
            "seeds": None if figure is None or self.exact else figure.seeds,
            "status": self.status,
            "why": joined(self.why, open_question(figure, self.paper) if unsettled else ""),
            "evidence": None,
            "section": self.section,
            "picture": picture_of(self.section, f"{self.where} {self.claim} {self.measure}"),
            "plan": plan_of(self.section) if unsettled else None,
        }
        if figure is not None:
            found["evidence"] = {"file": figure.file, "rows": [dict(row) for row in figure.rows]}
            if figure.interval is not None and not self.exact:
                found["interval"] = [_rounded(end) for end in figure.interval]
        return found | ({"exact": True} if self.exact else {})


def _rounded(value: float) -> float:
    return float(f"{value:.4g}")


def decide(
    figure: Figure,
    side: Literal["below", "above"],
    bound: float = 0.0,
    *,
    exact: bool = False,
) -> tuple[Status, str]:
    """Return whether a figure lies on one side of a bound, its whole interval where it is one of seeds, and in words.

    >>> decide(Figure(-0.1, (-0.2, 0.05), 4, "", ()), "below")[0]
    'not confirmed'
    """
    if exact:
        good = figure.value < bound if side == "below" else figure.value > bound
        return ("confirmed", "") if good else ("not confirmed", "")
    if figure.interval is None:
        return "not confirmed", "One seed has no interval."
    low, high = figure.interval
    inside = high < bound if side == "below" else low > bound
    if inside:
        return "confirmed", f"The 95 % interval lies {side} {bound:g}."
    if low <= bound <= high:
        return (
            "not confirmed",
            f"The 95 % interval of {figure.seeds} seeds holds {bound:g}: none or little, they cannot tell.",
        )
    return "not confirmed", f"The 95 % interval lies on the other side of {bound:g}."


def joined(*sentences: str) -> str:
    """Return sentences that are not empty as one text."""
    return " ".join(one for one in sentences if one)
