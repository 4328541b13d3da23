"""What one claim is, how its figure decides about it, and what is left open where it does not."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from studies.claims.evidence import Figure
from studies.common.intervals import t_quantile

Side = Literal["below", "above"]
Status = Literal["confirmed", "not confirmed", "cannot be run here"]
MANY = 1000
"""Seeds beyond which nobody would run them."""
STATUSES: tuple[Status, ...] = ("confirmed", "not confirmed", "cannot be run here")
PLANS = {
    "synthetic-start": "synthetic-start",
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
    "scaling-law": {
        "Theorem 3.3 (1)": "expressivity",
        "Appendix A.1": "negative",
        "Lemma A.3": "lemmas",
        "Lemma A.5": "lemmas",
        "Lemma A.6": "alias",
        "": "law",
    },
    "smoothness": {"Table 4": "noise", "noise": "noise", "": "smoothness-of-square-waves"},
    "synthetic-start": {"": "released-start"},
    "synthetic": {
        "smoothness": "released-smoothness",
        "Smoothness": "released-smoothness",
        "MSE": "released-regression",
        "": "released-kl",
    },
    "likelihood": {"": "likelihood"},
    "numbers-top-p": {"": "histograms"},
    "numbers": {"": "frequencies"},
    "atari": {"figure 1": "ablations", "": "returns-and-smoothness"},
    "forecasting-seeds": {"smooth": "frequencies", "": "paired"},
    "forecasting-fresh": {"Tourism Monthly": "next-token", "": "paired"},
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
        own: whether it is a question of ours that the paper does not ask; such are not counted among its claims.
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
    own: bool = False

    def as_dict(self) -> dict[str, Any]:
        """Return what `claims.json` has of it; where runs could settle it, what is excluded already, and the plan.

        Not confirmed and ``undecided`` is what our runs are too few to tell.
        """
        figure, status, why = self.figure, STATUSES[2], ""
        if self.holds is not None:
            status = STATUSES[not self.holds]
        elif figure is not None:
            status, why = decide(figure, self.side, self.bound)
        # A section of the report is the folder that the figure comes from.
        section = "" if figure is None else Path(figure.file).parent.name
        interval = None if figure is None or self.exact else figure.interval
        unsettled = status == "not confirmed" and not self.exact
        undecided = unsettled and (interval is None or interval[0] <= self.bound <= interval[1])
        more = "" if figure is None or self.exact else size_of(figure, self.paper, unsettled)
        # Of what is to be small there is no size by which to tell how many.
        needed = seeds_needed(figure, self.bound) if figure and undecided and self.holds is None else None
        if needed is not None:
            more += f" Some {needed} seeds would tell, were it as large as it seems."
        found: dict[str, Any] = {
            "claim": self.claim,
            "where": self.where,
            "measure": self.measure,
            "paper": self.paper,
            "ours": None if figure is None else _rounded(figure.value),
            "interval": None if interval is None else [_rounded(end) for end in interval],
            "seeds": None if figure is None or self.exact else figure.seeds,
            "status": status,
            "why": joined(self.before, why, self.note, more),
            "evidence": None if figure is None else figure.evidence,
            "section": section,
            "picture": picture_of(section, f"{self.where} {self.claim} {self.measure}"),
            "plan": plan_of(section) if unsettled else None,
        }
        marks = {"exact": self.exact, "own": self.own, "undecided": undecided}
        return found | {name: True for name, given in marks.items() if given}


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


def size_of(figure: Figure, paper: float | str | None, unsettled: bool) -> str:
    """Say whether an interval holds the paper's number, and of what is not settled which effects it excludes.

    >>> size_of(Figure(-0.02, (-0.04, 0.01), 4, "", ()), -0.092, unsettled=True)
    "Excluded is what lies below -0.04 or above 0.01, the paper's -0.092 too."
    >>> size_of(Figure(-0.03, (-0.04, -0.02), 4, "", ()), -0.092, unsettled=False)
    "The paper's -0.092 lies outside."
    """
    if figure.interval is None:
        return ""
    low, high = figure.interval
    inside = None if isinstance(paper, str) or paper is None else low <= paper <= high
    if not unsettled:
        return "" if inside is None else f"The paper's {paper:g} lies {'inside' if inside else 'outside'}."
    said = f"Excluded is what lies below {low:.3g} or above {high:.3g}"
    if inside is None:
        return f"{said}."
    return f"{said}, not the paper's {paper:g}." if inside else f"{said}, the paper's {paper:g} too."


def seeds_needed(figure: Figure, bound: float) -> int | None:
    """Return how many seeds would set a figure apart from a bound, if it stayed and varied as it does.

    >>> seeds_needed(Figure(1.0, (-1.0, 3.0), 4, "", ()), 0.0)
    9
    """
    if figure.interval is None or not figure.seeds or figure.seeds < 2 or figure.value == bound:
        return None
    low, high = figure.student or figure.interval
    half = (high - low) / 2
    deviation = half * math.sqrt(figure.seeds) / t_quantile(figure.seeds - 1)
    seeds = figure.seeds
    while t_quantile(seeds - 1) * deviation / math.sqrt(seeds) >= abs(figure.value - bound):
        seeds += max(1, seeds // 20)
        if seeds > MANY:
            return None
    return seeds


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
