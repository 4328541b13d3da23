"""What a claim that is not confirmed leaves open: what its interval excludes, which plan settles it; and its figure."""

from __future__ import annotations

from studies.claims.evidence import Figure

PLANS = {
    "synthetic": "synthetic",
    "numbers": "numbers",
    "atari": "atari-heads",
    "forecasting-seeds": "forecasting-seeds",
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
    "forecasting-tables": {"": "frequencies"},
    "forecasting-curves": {"dataset": "by-data", "": "by-sizes"},
    "spectrum": {"": "spectrum"},
    "tempo": {"": "scores"},
}
"""Figures by the beginning of a section and words of a claim, the last where no words are found."""


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
    if low <= paper <= high:
        return f"{said}, not the paper's {paper:g}."
    return f"{said}, the paper's {paper:g} too."


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
