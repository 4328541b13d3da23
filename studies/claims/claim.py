"""What one claim is, how its figure decides about it, and what is left open where it does not."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from studies.claims.evidence import Figure

Side = Literal["below", "above"]
Status = Literal["confirmed", "not confirmed", "cannot be run here"]
STATUSES: tuple[Status, ...] = ("confirmed", "not confirmed", "cannot be run here")
PLANS = {
    "synthetic-fresh": "synthetic-fresh",
    "synthetic-pair": "synthetic-fresh",
    "synthetic": "synthetic",
    "numbers": "numbers",
    "atari": "atari-heads",
    "forecasting-seeds": "forecasting-seeds",
    "forecasting-fresh": "forecasting-fresh",
    "forecasting-tables": "forecasting-curves",
    "forecasting-curves": "forecasting-curves",
    "tempo": "tempo-random",
}
"""Beginning of a section of the report, and the study whose `plan.md` says which runs settle its claims."""
PICTURES = {
    "scaling-law": {"Theorem 3.3 (1)": "expressivity", "Appendix A.1": "negative", "Lemma A.6": "alias", "": "law"},
    "smoothness": {"Table 4": "noise", "": "smoothness-of-square-waves"},
    "synthetic": {"smoothness": "released-smoothness", "Smoothness": "released-smoothness", "": "released-kl"},
    "likelihood": {"": "likelihood"},
    "numbers-top-p": {"": "histograms"},
    "numbers": {"": "frequencies"},
    "atari": {"figure 1": "ablations", "": "returns-and-smoothness"},
    "forecasting-seeds": {"8 times": "frequencies", "": "paired"},
    "forecasting-fresh": {"": "paired"},
    "forecasting-tables": {"": "frequencies"},
    "forecasting-curves": {"dataset": "by-data", "": "by-sizes"},
    "spectrum": {"": "spectrum"},
    "tempo": {"": "scores"},
}
"""Figures by the beginning of a section and words of a claim, the last where no words are found."""


@dataclass(frozen=True)
class Claim:
    """A claim of the paper beside what came out.

    Args:
        claim: in a sentence.
        where: section or table of the paper.
        measure: what the numbers are.
        paper: the paper's number, or its words; None where it prints none.
        figure: ours; None where it cannot be had here.
        side, bound: where the figure, with its whole interval, must lie.
        note: what else there is to say.
        before: what is said before the reason.
        holds: decides in place of the interval, and `note` is the reason.
        exact: whether it is mathematics, so that seeds do not apply.
    """

    claim: str
    where: str
    measure: str
    paper: float | str | None
    figure: Figure | None = None
    side: Side = "below"
    note: str = ""
    bound: float = 0.0
    before: str = ""
    holds: bool | None = None
    exact: bool = False

    def as_dict(self) -> dict[str, Any]:
        """Return what `claims.json` has of it; where runs could settle it, what is excluded already, and the plan."""
        figure, status, why = self.figure, STATUSES[2], ""
        if self.holds is not None:
            status = STATUSES[not self.holds]
        elif figure is not None:
            status, why = decide(figure, self.side, self.bound)
        # A section of the report is the folder that the figure comes from.
        section = "" if figure is None else Path(figure.file).parent.name
        unsettled = status == "not confirmed" and not self.exact
        interval = None if figure is None or self.exact else figure.interval
        found: dict[str, Any] = {
            "claim": self.claim,
            "where": self.where,
            "measure": self.measure,
            "paper": self.paper,
            "ours": None if figure is None else _rounded(figure.value),
            "interval": None if interval is None else [_rounded(end) for end in interval],
            "seeds": None if figure is None or self.exact else figure.seeds,
            "status": status,
            "why": joined(self.before, why, self.note, open_question(figure, self.paper) if unsettled else ""),
            "evidence": None if figure is None else figure.evidence,
            "section": section,
            "picture": picture_of(section, f"{self.where} {self.claim} {self.measure}"),
            "plan": plan_of(section) if unsettled else None,
        }
        return found | ({"exact": True} if self.exact else {})


def _rounded(value: float) -> float:
    return float(f"{value:.4g}")


def decide(figure: Figure, side: Side, bound: float = 0.0) -> tuple[Status, str]:
    """Return whether the whole interval of a figure lies on one side of a bound, and in words.

    >>> decide(Figure(-0.1, (-0.2, 0.05), 4, "", ()), "below")[0]
    'not confirmed'
    """
    if figure.interval is None:
        return "not confirmed", "One seed has no interval."
    low, high = figure.interval
    if high < bound if side == "below" else low > bound:
        return "confirmed", f"The 95 % interval lies {side} {bound:g}."
    if low <= bound <= high:
        seeds = f"The 95 % interval of {figure.seeds} seeds"
        return "not confirmed", f"{seeds} holds {bound:g}: none or little, they cannot tell."
    return "not confirmed", f"The 95 % interval lies on the other side of {bound:g}."


def joined(*sentences: str) -> str:
    """Return sentences that are not empty as one text."""
    return " ".join(one for one in sentences if one)


def open_question(figure: Figure | None, paper: float | str | None) -> str:
    """Say which effects an interval excludes, and whether the paper's is among them.

    >>> open_question(Figure(-0.02, (-0.04, 0.01), 4, "", ()), -0.092)
    "Excluded is what lies below -0.04 or above 0.01, the paper's -0.092 too."
    """
    if figure is None or figure.interval is None:
        return ""
    low, high = figure.interval
    said = f"Excluded is what lies below {low:.3g} or above {high:.3g}"
    if isinstance(paper, str) or paper is None:
        return f"{said}."
    return f"{said}, not the paper's {paper:g}." if low <= paper <= high else f"{said}, the paper's {paper:g} too."


def plan_of(section: str) -> str | None:
    """Return the plan of what settles the claims of a section.

    >>> plan_of("numbers-start")
    'results/numbers/plan.md'
    """
    study = next((study for start, study in PLANS.items() if section.startswith(start)), None)
    return None if study is None else f"results/{study}/plan.md"


def picture_of(section: str, words: str) -> str | None:
    """Return the figure that shows what a claim says, in these words, in a section."""
    names = next((names for start, names in PICTURES.items() if section.startswith(start)), None)
    if names is None:
        return None
    return f"results/{section}/{next(name for word, name in names.items() if word in words)}.png"
