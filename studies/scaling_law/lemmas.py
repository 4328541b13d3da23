r"""Lemmas A.3 and A.5 of the proof, measured on truncated series.

Of :math:`f(z) = \frac12 + \sum_{k \le N} q_k \cos(\pi k z)` at m bin centres the proof compares two norms: of what the
discrete blur :math:`g_\sigma` removes, and of what the continuous one does, :math:`\|B_1 f - \tilde g_\sigma * f\|`.
Lemma A.3 has them differ by :math:`\sqrt m\, O(1/N^{2t+1})`; lemma A.5 has the second one be
:math:`\sqrt m\, (B_2 - \frac{B_1^2 B_3^2}{2t-1} N^{1-2t} + O(1/N^{2t}))`. Both blurs multiply harmonic k by a number,
so that the norms are sums over harmonics.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import wofz, zeta

from studies.common.report.summary import Row
from studies.common.results import row
from studies.scaling_law import decay
from studies.scaling_law.decay import Floats

DECAY = 2
"""t of the series."""
GAP_BINS, GAP_WIDTHS = 50, (1.0, 20.0)
TERM_BINS, TERM_WIDTH = 512, 5.0


@dataclass(frozen=True)
class Blurs:
    """What both blurs leave of harmonics k = 0, 1, ..., at the bin centres, and the B1 of the proof.

    >>> blurs = Blurs.of(50, 1.0, last=24)
    >>> round(float(blurs.discrete[0]), 12), round(blurs.b1, 12)
    (1.0, 1.0)
    """

    num_bins: int
    discrete: Floats
    continuous: Floats
    b1: float

    @classmethod
    def of(cls, num_bins: int, sigma: float, last: int) -> Blurs:
        """Return the multipliers of a width in bins, for harmonics up to the last."""
        lag = np.arange(1 - num_bins, num_bins)
        taps = np.exp(-0.5 * (lag / sigma) ** 2) / (math.sqrt(2 * math.pi) * sigma)
        angle = 2 * math.pi / num_bins * np.arange(last + 1)
        total = float(taps.sum())
        discrete: Floats = np.cos(angle[:, None] * lag) @ taps / total
        # The integral of the Gaussian times a cosine from -m to m, by the error function of a complex number.
        end, wave = num_bins / (math.sqrt(2) * sigma), angle * sigma / math.sqrt(2)
        cut = np.exp(-(end**2) - 2j * end * wave) * wofz(1j * end - wave)
        continuous: Floats = (np.exp(-(wave**2)) - cut.real) / total
        edge = math.exp(-0.5 * (num_bins / sigma) ** 2) / (math.sqrt(2 * math.pi) * sigma)
        return cls(num_bins, discrete, continuous, 1 + edge / total)

    def norms(self, q: Floats) -> tuple[Floats, Floats]:
        """Return what the discrete and the continuous blur remove, for the series cut after 0, 1, ... frequencies."""
        size = np.append(0.5, q) ** 2 * np.append(self.num_bins, np.full(len(q), self.num_bins / 2))
        removed = (1 - self.discrete, self.b1 - self.continuous)
        discrete, continuous = (np.sqrt(np.cumsum(size * part[: len(size)] ** 2)) for part in removed)
        return discrete, continuous


def main_term(num_bins: int, b1: float, b3: float, t: int, frequencies: float) -> float:
    r"""Return lemma A.5's norm without its last term; ``b3`` is half of B in :math:`q_k = B / k^t`.

    >>> main_term(512, 1.0, 0.0, 2, 20) == math.sqrt(512) / 2
    True
    """
    b2 = b1 * math.sqrt(0.25 + 2 * b3**2 * float(zeta(2 * t)))
    return math.sqrt(num_bins) * (b2 - (b1 * b3) ** 2 / (2 * t - 1) * frequencies ** (1 - 2 * t))


def measure_lemmas() -> dict[str, Any]:
    """Return the gap between the norms for narrow and wide blurs, and the second norm beside its main term."""
    q = decay.coefficients(DECAY, TERM_BINS // 2 - 1).numpy()
    n = list(range(2, GAP_BINS // 2))
    gaps = []
    for sigma in GAP_WIDTHS:
        discrete, continuous = Blurs.of(GAP_BINS, sigma, n[-1]).norms(q[: n[-1]])
        gaps.append({"sigma": sigma, "n": n, "gap": np.abs(discrete - continuous)[n].tolist()})
    blurs = Blurs.of(TERM_BINS, TERM_WIDTH, len(q))
    reach = [2**i for i in range(1, 8)] + [len(q)]
    terms = []
    for name, series, some in (("uniform", 0 * q, reach[-1:]), (f"1/k^{DECAY}", q, reach)):
        _, norm = blurs.norms(series)
        said = [main_term(TERM_BINS, blurs.b1, float(series[0]) / 2, DECAY, n) for n in some]
        terms.append({"dataset": name, "n": some, "norm": norm[some].tolist(), "lemma": said})
    return {"t": DECAY, "gap_bins": GAP_BINS, "gaps": gaps, "term_bins": TERM_BINS, "width": TERM_WIDTH, "terms": terms}


def lemma_rows(found: dict[str, Any]) -> Iterator[Row]:
    """Return gaps and norms as rows; of a norm `expected` is the lemma's main term."""
    for one in found["gaps"]:
        more = {"t": found["t"], "bins": found["gap_bins"], "sigma": one["sigma"], "dataset": f"1/k^{found['t']}"}
        chosen = [(n, gap) for n, gap in zip(one["n"], one["gap"], strict=True) if n in (2, 4, 8, 16, one["n"][-1])]
        yield from (row("gap_of_blurs", gap, protocol="lemma A.3", frequencies=n, **more) for n, gap in chosen)
    for one in found["terms"]:
        more = {"t": found["t"], "bins": found["term_bins"], "sigma": found["width"], "dataset": one["dataset"]}
        for n, norm, said in zip(one["n"], one["norm"], one["lemma"], strict=True):
            yield row("blurred_norm", norm, protocol="lemma A.5", frequencies=n, expected=said, **more)


def lemma_note(found: dict[str, Any]) -> str:
    """Return in a sentence what came out of both."""
    gaps: Sequence[dict[str, Any]] = found["gaps"]
    words = "; ".join(f"{one['gap'][0]:.1e} to {one['gap'][-1]:.1e} for σ = {one['sigma']:g}" for one in gaps)
    last = [(one["dataset"], one["norm"][-1], one["lemma"][-1]) for one in found["terms"]]
    norms = ", ".join(f"{name}: {norm:.3f}, lemma {said:.2f}" for name, norm, said in last)
    first = gaps[0]["n"]
    return (
        f"Lemma A.3: what the discrete and the continuous blur remove differs by {words} from N = {first[0]} to "
        f"{first[-1]} with {found['gap_bins']} bins: little, but it does not shrink with N. Lemma A.5: the norm is not "
        f"near its main term ({found['term_bins']} bins, σ = {found['width']:g}, {norms}), as the blur keeps the "
        "constant and low harmonics, which the proof takes it to remove."
    )
