"""Claims of figures 18 and 19: time series over sizes of models and of data."""

from __future__ import annotations

import numpy as np

from studies.claims.claim import Claim, joined
from studies.claims.evidence import Figure, one_row, said
from studies.common.intervals import t_interval

CURVES = "forecasting-curves"
FIGURES = (
    ("model sizes", "sizes", ("", "@size=1m", "@size=3m", "@size=5m", "@size=tiny"), "Figure 19"),
    ("dataset sizes", "data", ("", "@data=0.001", "@data=0.01", "@data=0.1"), "Figure 18"),
)
"""What is varied, in words and in rows; ends of the names of its arms; the paper's figure."""


def curves() -> list[Claim]:
    """Return what the curves say of both heads, and of the power laws through them."""
    return [claim(*given) for given in FIGURES for claim in (ahead, law)]


def ahead(words: str, kind: str, ends: tuple[str, ...], drawn: str) -> Claim:
    """Return whether the Fourier head is ahead at every size."""
    pairs = [
        [
            one_row(CURVES, dataset="all", model=f"{head}{end}", metric="relative_mase")
            for head in ("fourier-550", "linear")
        ]
        for end in ends
    ]
    changes = np.array([100 * (ours.value / linear.value - 1) for ours, linear in pairs])
    mean, interval = t_interval(changes)
    below, seeds = int((changes < 0).sum()), min(one.seeds or 1 for pair in pairs for one in pair)
    rows = tuple(row for pair in pairs for one in pair for row in one.rows)
    few = "one seed each, so the interval is one over sizes, not seeds" if seeds == 1 else "the interval is over sizes"
    return Claim(
        f"The Fourier head has the lower MASE across {words}.",
        f"Section 6, {drawn}",
        f"percent by which MASE of Fourier-550 is larger than linear's, mean over {len(ends)} {words}; interval by "
        "Student's t over sizes",
        "below 0",
        Figure(mean, interval, seeds, pairs[0][0].file, rows),
        note=f"Ahead in {below} of {len(ends)} pairs; {few}. The linear head has weights of its own here, not those of "
        "the embedding as in the released configuration.",
        holds=seeds > 1 and below == len(ends) and interval is not None and interval[1] < 0,
    )


def law(words: str, kind: str, ends: tuple[str, ...], drawn: str) -> Claim:
    """Return how alike the exponents of both heads are."""
    ours, linear = (
        one_row(CURVES, model=head, protocol=f"over {kind}", metric="relative_mase_exponent")
        for head in ("fourier-550", "linear")
    )
    exponents, flat = [], True
    for name, figure in (("Fourier-550", ours), ("linear", linear)):
        low, high = figure.interval or (-np.inf, np.inf)
        flat &= low <= 0 <= high
        exponents.append(f"{said(figure, '.3f')} for {name}")
    return Claim(
        f"MASE follows a similar power law for both heads over {words}.",
        drawn,
        f"exponent of the power law through MASE of Fourier-550 over {len(ends)} {words} minus that through linear's",
        "about 0",
        Figure(ours.value - linear.value, None, ours.seeds, ours.file, ours.rows + linear.rows),
        note=joined(
            f"Exponents {' and '.join(exponents)}, with intervals by how far the {len(ends)} points lie from the law, "
            "not over seeds.",
            "Both hold 0: from these curves not even a law is certain." if flat else "",
        ),
    )
