"""Claims of sections 2 and 3 and of appendices A and B: what can be computed rather than trained."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

from studies.claims.claim import Claim
from studies.claims.evidence import Figure, find, one_row
from studies.common.intervals import t_quantile

LAW, METRIC = "results/scaling-law/summary.json", "results/smoothness/summary.json"
TARGETS = ("Gaussian", "two Gaussians", "triangle")
DECAYS = (2, 3, 4)
COLOURS, VARYING = ("pink", "blue"), "bits, no constant"
ROUNDING = 1e-9
"""What numbers that are equal may differ by."""


def theorem() -> list[Claim]:
    """Return the claims of theorem 3.3, its proof and its lemmas."""
    return [expressive(), *law(), *proof()]


def curve(metric: str, dataset: str) -> dict[int, float]:
    """Return a measure of a series by its number of frequencies, in their order."""
    rows = find(LAW, {"metric": metric, "dataset": dataset})
    return {row["frequencies"]: float(row["ours"]) for row in sorted(rows, key=lambda row: row["frequencies"])}


def expressive() -> Claim:
    """Return part 1 of the theorem."""
    near = {name: curve("sup_error", name) for name in TARGETS}
    wider = max(max(curve("embedding_error", name).values()) for name in TARGETS)
    first, *_, last = near[TARGETS[0]]
    falling = all(a > b for errors in near.values() for a, b in itertools.pairwise(errors.values()))
    rows = tuple({"dataset": name, "metric": metric} for name in TARGETS for metric in ("sup_error", "embedding_error"))
    return Claim(
        "With more frequencies the head can be more densities, and any smooth one in the limit.",
        "Theorem 3.3 (1)",
        f"largest distance of a head with {last} frequencies from three densities",
        None,
        Figure(max(errors[last] for errors in near.values()), None, None, LAW, rows),
        note=f"Every head of N frequencies is one of N + 1, to rounding ({wider:.0e}). Fejér means, which are heads, "
        f"come nearer with every N measured, from {first} to {last}. (The proof cuts Fourier series instead, which "
        "need not be densities.)",
        holds=falling and wider < ROUNDING,
        exact=True,
    )


def law() -> Iterator[Claim]:
    """Return part 2 of the theorem and what is said below it."""
    below = {"metric": "exponent", "protocol": "metric, N well below m", "bins": 4096}
    exponents = [one_row("scaling-law", dataset=f"1/k^{t}", **below) for t in DECAYS]
    main = [
        one_row("scaling-law", dataset=f"1/k^{t}", metric="exponent", protocol="main term of the proof").value
        for t in DECAYS
    ]
    curves = [curve("smoothness", f"1/k^{t}") for t in DECAYS]
    rises = min(b - a for a, b in itertools.pairwise(curves[0].values()))
    # By how many percent all frequencies after the first raise smoothness.
    raised = [100 * (list(one.values())[-1] / one[1] - 1) for one in curves]
    apart = min(b.value - a.value for a, b in itertools.pairwise(exponents))
    said = ", ".join(f"{one.value:.2f}" for one in exponents)
    yield Claim(
        "Smoothness of a truncated density is C1 - C2 / N^(2t-1) + O(1/N^2t) for coefficients that decay as 1/k^t.",
        "Theorem 3.3 (2)",
        "exponent for t = 2, N well below m (the paper: 3)",
        3.0,
        exponents[0],
        note=f"The exponent is {exponents[0].value:.2f} where the theorem says 3, and for t = 3 and 4 it is "
        f"{exponents[1].value:.2f} and {exponents[2].value:.2f} where it says 5 and 7. The proof drops the "
        "coefficients of kernels narrower than m / (2 pi N) bins, which weigh most (lemma A.5; lemma A.3 does not "
        f"hold either); its main term alone has {', '.join(f'{one:.2f}' for one in main)}, and the metric's "
        "exponent reaches these as N nears m/2.",
        holds=all(_near(one.value, 2 * t - 1) for one, t in zip(exponents, DECAYS, strict=True)),
        exact=True,
    )
    yield Claim(
        "Increasing N degrades smoothness.",
        "Theorem 3.3 (2)",
        "smallest step in smoothness between the numbers of frequencies measured, t = 2",
        "above 0",
        Figure(rises, None, None, LAW, ({"dataset": "1/k^2", "metric": "smoothness"},)),
        note="Every harmonic below m/2 adds to the norm of what a blur removes; beyond m/2 bin centres alias and "
        "it may fall.",
        holds=rises > 0,
        exact=True,
    )
    yield Claim(
        "If the Fourier spectrum decays quicker, smoothness degrades slower.",
        "Section 3.2, below theorem 3.3",
        "smallest difference between the exponents of t = 2, 3 and 4, N well below m (the paper: 2)",
        2.0,
        Figure(apart, None, None, LAW, tuple(row for one in exponents for row in one.rows)),
        note=f"Exponents of {said}: other than the theorem's, but in its order. All frequencies after the first "
        f"raise smoothness by {', '.join(f'{one:.1f}' for one in raised)} %.",
        holds=apart > 0 and raised == sorted(raised, reverse=True),
        exact=True,
    )


def proof() -> Iterator[Claim]:
    """Return what the proof says on the way, its lemmas among it."""
    negative = one_row("scaling-law", dataset="triangle", metric="minimum", frequencies=2)
    sums = one_row("scaling-law", dataset="triangle", metric="sum_of_midpoints", frequencies=24)
    narrow, wide = ({"metric": "gap_of_blurs", "sigma": sigma} for sigma in (1.0, 20.0))
    gaps = {row["frequencies"]: row["ours"] for row in find(LAW, narrow)}
    first, last = min(gaps), max(gaps)
    least, *_, most = sorted(row["ours"] for row in find(LAW, wide))
    blurred = one_row("scaling-law", dataset="1/k^2", metric="blurred_norm", frequencies=255)
    row, uniform = (find(LAW, {"metric": "blurred_norm", "dataset": name})[-1] for name in ("1/k^2", "uniform"))
    rough = max(find(LAW, {"dataset": "1/k^2", "metric": "smoothness"}), key=lambda row: row["ours"])
    yield Claim(
        "A truncated Fourier series of a density is non-negative.",
        "Appendix A.1",
        "minimum of a triangle density cut at N = 2",
        "0 or more",
        negative,
        note="Cutting a positive definite sequence does not keep it positive definite. Fejér's weights do, and so "
        "does the head, whose density is a square.",
        holds=negative.value >= 0,
        exact=True,
    )
    yield Claim(
        "A discrete blur removes what a continuous one does, but for sqrt(m) O(1/N^(2t+1)).",
        "Lemma A.3",
        f"gap between the norms of what they remove, at N = {last} over that at N = {first}, 50 bins, width 1, "
        "t = 2 (the paper: falls as 1/N^5)",
        float(f"{(first / last) ** 5:.3g}"),
        Figure(gaps[last] / gaps[first], None, None, LAW, (narrow,)),
        note=f"The gap is small ({gaps[first]:.1e} at N = {first}, {gaps[last]:.1e} at N = {last}), but it does "
        f"not shrink; with a width of 20 it is {least:.1e} to {most:.1e} at every N. The proof takes the values of "
        "a blurred density to decay because its coefficients do; they are about 1/2. (N ends at m/2, so that a "
        "constant that depends on m covers any gap; nothing then follows for N.)",
        holds=gaps[last] < gaps[first],
        exact=True,
    )
    yield Claim(
        "The norm of what a blur removes is sqrt(m) (B2 - B1^2 B3^2 / (2t-1) / N^(2t-1) + O(1/N^2t)).",
        "Lemma A.5",
        f"norm at N = {row['frequencies']}, {row['bins']} bins, width {row['sigma']:g}, t = 2",
        float(f"{row['expected']:.4g}"),
        blurred,
        note="The proof takes the coefficients of the blur to be negligible. That of the constant is 1, and those of "
        "harmonics below m / (2 pi sigma) are near it: what it counts as removed is kept. Of a uniform density a blur "
        f"removes {uniform['ours']:g}, by the lemma {uniform['expected']:.2f}. So the C1 of the proof is at least "
        f"1/sqrt(m) for any density, {rough['bins'] ** -0.5:.4f} with {rough['bins']} bins; section 3.1 has 0 for the "
        f"uniform one, and these series reach {rough['ours']:.1e}. (The root's expansion also drops a factor 1/B2.)",
        holds=_near(blurred.value, row["expected"]),
        exact=True,
    )
    yield Claim(
        "The values of a truncated density at m bin centres sum to m/2 when N < m/2.",
        "Lemma A.6",
        "sum at 50 bin centres, N = 24, over m/2",
        1.0,
        sums,
        note="It holds for all N < m; at N = m it does not.",
        holds=abs(sums.value - 1) < ROUNDING,
        exact=True,
    )


def _near(value: float, said: float) -> bool:
    """Tell whether a number is that of a theorem, within a tenth of it."""
    return abs(value / said - 1) < 0.1


def metric() -> Iterator[Claim]:
    """Return the claims about the smoothness metric."""
    falling = {"metric": "l2_first_fall", "periods": 1.0}
    falls = find(METRIC, falling)[0]["falls"]
    l1, other = (one_row("smoothness", metric="l1_first_fall", periods=periods) for periods in (1.0, 1.5))
    bends = [row["falls"] for row in find(METRIC, {"metric": "l1_first_fall"})]
    steps = [one_row("smoothness", metric="l2_step", dataset=f"{name} noise") for name in ("pink", "white", "blue")]
    uniform = one_row("smoothness", metric="l2", dataset="uniform")
    fast = one_row("smoothness", metric="l2", dataset="sin(100 pi x)")
    yield Claim(
        "The uniform distribution has smoothness 0, and a fast sine more.",
        "Section 3.1, equation 1",
        "smoothness of sin(100 pi x) by equation 1, continuous; that of the uniform density is 0",
        "above 0",
        fast,
        note="With the L2 norm every frequency adds to equation 1, whatever the weights, so truncations cannot "
        "get smoother.",
        holds=uniform.value == 0 < fast.value,
        exact=True,
    )
    yield Claim(
        "With the L2 norm smoothness rises with every sine wave of a square wave.",
        "Appendix B, figure 6",
        "falls among 512 truncations",
        0.0,
        Figure(falls, None, None, METRIC, (falling,)),
        note="2048 samples, up to the Nyquist frequency.",
        holds=falls == 0,
        exact=True,
    )
    yield Claim(
        "With the L1 norm it does not, from about 80 sine waves on.",
        "Appendix B, figure 6",
        "sine wave at which L1 first falls",
        80.0,
        l1,
        note=f"It falls; where depends on the wavelength, which the paper does not name: {l1.value:.0f} with one "
        f"in the window, {other.value:.0f} with one and a half.",
        holds=min(bends) > 0,
        exact=True,
    )
    yield Claim(
        "Smoothness (L2) rises from brown over pink and white to blue noise.",
        "Table 4",
        "smallest expected step between colours, from white to blue noise",
        0.0005,
        min(steps, key=lambda step: step.value),
        "above",
    )
    yield from entropy()


def entropy() -> Iterator[Claim]:
    """Return what the paper says against spectral entropy: its numbers, and what is left of them without a constant.

    It prints them in nats, of spectra whose constant term is that of a positive signal; its formula is in bits.
    """
    pink, blue = (one_row("smoothness", metric="spectral_entropy_step", dataset=f"{name} noise") for name in COLOURS)
    bits = {name: colour["ours"] for name, colour in _colours(VARYING).items()}
    rise, fall = _difference(VARYING, "pink", "brown"), _difference(VARYING, "blue", "white")
    white = _difference("nats", "white", "brown")
    printed = {name: colour["paper"] for name, colour in _colours("nats").items()}
    order = ", ".join(f"{name} {value:.2f}" for name, value in bits.items())
    count = _colours(VARYING)["white"]["seeds"]
    yield Claim(
        "Spectral entropy falls from brown to pink noise.",
        "Table 4",
        "expected step of spectral entropy, in nats, with the constant term",
        -0.0638,
        pink,
        note=f"The printed numbers are those with the constant term; without it entropy rises, by {rise.value:.2f} "
        "bits.",
    )
    yield Claim(
        "That fall shows that spectral entropy is no measure of smoothness.",
        "Appendix B, table 4",
        f"step from brown to pink noise without the constant term, in bits, {count} signals of each",
        "below 0",
        rise,
        note="A categorical is positive, so that the constant term holds most of the power and the entropy tells "
        f"how large the variance is against the squared mean. Without it the colours have {order}: all in the "
        "desired order but the last.",
    )
    yield Claim(
        "Spectral entropy is no measure of smoothness: it falls from white to blue noise.",
        "Table 4",
        "expected step of spectral entropy, in nats, with the constant term",
        -0.0076,
        blue,
        note=f"It falls without the constant term, too, by {-fall.value:.2f} bits: white noise has the flattest "
        "spectrum there is.",
    )
    yield Claim(
        "White noise has the highest spectral entropy.",
        "Appendix B",
        f"entropy of white noise minus that of brown, in nats, with the constant term, {count} signals of each",
        round(printed["white"] - printed["brown"], 4),
        white,
        "above",
        note=f"Table 4 itself has {printed['brown']} for brown noise and {printed['white']} for white. Without the "
        f"constant term it is so: {bits['white']:.2f} bits, {bits['white'] - bits['blue']:.2f} above blue.",
    )


def _colours(protocol: str) -> dict[str, dict[str, Any]]:
    """Return the rows of spectral entropy by colour, from brown to blue."""
    rows = find(METRIC, {"metric": "spectral_entropy", "protocol": protocol})
    return {row["dataset"].removesuffix(" noise"): row for row in rows}


def _difference(protocol: str, colour: str, other: str) -> Figure:
    """Return how much higher the entropy of one colour is, with the interval of two means of independent signals."""
    a, b = (_colours(protocol)[name] for name in (colour, other))
    error = math.sqrt(a["std"] ** 2 / a["seeds"] + b["std"] ** 2 / b["seeds"])
    half = t_quantile(min(a["seeds"], b["seeds"]) - 1) * error
    step = a["ours"] - b["ours"]
    chosen = {"metric": "spectral_entropy", "protocol": protocol}
    rows = tuple(chosen | {"dataset": f"{name} noise"} for name in (colour, other))
    return Figure(step, (step - half, step + half), None, METRIC, rows)
