"""Claims of sections 2 and 3 and of appendices A and B: what can be computed rather than trained."""

from __future__ import annotations

import itertools

from studies.claims.claim import Claim
from studies.claims.evidence import Figure, find, one_row

LAW, METRIC = "results/scaling-law/summary.json", "results/smoothness/summary.json"
TARGETS = ("Gaussian", "two Gaussians", "triangle")


def theorem() -> list[Claim]:
    """Return the claims of theorem 3.3 and its proof."""
    near = [one_row("scaling-law", dataset=name, metric="sup_error", frequencies=128) for name in TARGETS]
    worst = max(one.value for one in near)
    below = {"metric": "exponent", "protocol": "metric, N well below m", "bins": 4096}
    exponents = [one_row("scaling-law", dataset=f"1/k^{t}", **below) for t in (2, 3, 4)]
    proof = {"metric": "exponent", "protocol": "main term of the proof"}
    main = [one_row("scaling-law", dataset=f"1/k^{t}", **proof).value for t in (2, 3, 4)]
    rising = {"dataset": "1/k^2", "metric": "smoothness"}
    curve = sorted(find(LAW, rising), key=lambda row: row["frequencies"])
    rises = min(b["ours"] - a["ours"] for a, b in itertools.pairwise(curve))
    sums = one_row("scaling-law", dataset="triangle", metric="sum_of_midpoints", frequencies=24)
    return [
        Claim(
            "With more frequencies the head can be more densities, and any smooth one in the limit.",
            "Theorem 3.3 (1)",
            "largest distance of a head with 128 frequencies from three densities",
            None,
            Figure(worst, None, None, LAW, tuple(row for one in near for row in one.rows)),
            note="Every head of N frequencies is one of N + 1, to rounding. Fejér means, which are heads, come nearer "
            "with every N measured, from 2 to 128. (The proof cuts Fourier series instead, which need not be "
            "densities.)",
            holds=True,
            exact=True,
        ),
        Claim(
            "Smoothness of a truncated density is C1 - C2 / N^(2t-1) + O(1/N^2t) for coefficients that decay as 1/k^t.",
            "Theorem 3.3 (2)",
            "exponent for t = 2, N well below m (the paper: 3)",
            3.0,
            exponents[0],
            note=f"The exponent is {exponents[0].value:.2f} where the theorem says 3, and for t = 3 and 4 it is "
            f"{exponents[1].value:.2f} and {exponents[2].value:.2f} where it says 5 and 7. The proof drops the "
            "coefficients of kernels narrower than m / (2 pi N) bins, which weigh most; its main term alone has "
            f"{', '.join(f'{one:.2f}' for one in main)}, and the metric's exponent reaches these as N nears m/2.",
            holds=False,
            exact=True,
        ),
        Claim(
            "Increasing N degrades smoothness.",
            "Theorem 3.3 (2)",
            "smallest step in smoothness between the numbers of frequencies measured, t = 2",
            "above 0",
            Figure(rises, None, None, LAW, (rising,)),
            note="Every harmonic below m/2 adds to the norm of what a blur removes; beyond m/2 bin centres alias and "
            "it may fall.",
            holds=rises > 0,
            exact=True,
        ),
        Claim(
            "A truncated Fourier series of a density is non-negative.",
            "Appendix A.1",
            "minimum of a triangle density cut at N = 2",
            "0 or more",
            one_row("scaling-law", dataset="triangle", metric="minimum", frequencies=2),
            note="Cutting a positive definite sequence does not keep it positive definite. Fejér's weights do, and so "
            "does the head, whose density is a square.",
            holds=False,
            exact=True,
        ),
        Claim(
            "The values of a truncated density at m bin centres sum to m/2 when N < m/2.",
            "Lemma A.6",
            "sum at 50 bin centres, N = 24, over m/2",
            1.0,
            sums,
            note="It holds for all N < m; at N = m it does not.",
            holds=abs(sums.value - 1) < 1e-9,
            exact=True,
        ),
    ]


def metric() -> list[Claim]:
    """Return the claims about the smoothness metric."""
    falling = {"metric": "l2_first_fall", "periods": 1.0}
    falls = find(METRIC, falling)[0]["falls"]
    l1, other = (one_row("smoothness", metric="l1_first_fall", periods=periods) for periods in (1.0, 1.5))
    steps = [one_row("smoothness", metric="l2_step", dataset=f"{name} noise") for name in ("pink", "white", "blue")]
    uniform = one_row("smoothness", metric="l2", dataset="uniform")
    fast = one_row("smoothness", metric="l2", dataset="sin(100 pi x)")
    return [
        Claim(
            "The uniform distribution has smoothness 0, and a fast sine more.",
            "Section 3.1, equation 1",
            "smoothness of sin(100 pi x) by equation 1, continuous; that of the uniform density is 0",
            "above 0",
            fast,
            note="With the L2 norm every frequency adds to equation 1, whatever the weights, so truncations cannot "
            "get smoother.",
            holds=uniform.value == 0 < fast.value,
            exact=True,
        ),
        Claim(
            "With the L2 norm smoothness rises with every sine wave of a square wave.",
            "Appendix B, figure 6",
            "falls among 512 truncations",
            0.0,
            Figure(falls, None, None, METRIC, (falling,)),
            note="2048 samples, up to the Nyquist frequency.",
            holds=falls == 0,
            exact=True,
        ),
        Claim(
            "With the L1 norm it does not, from about 80 sine waves on.",
            "Appendix B, figure 6",
            "sine wave at which L1 first falls",
            80.0,
            l1,
            note=f"It falls; where depends on the wavelength, which the paper does not name: {l1.value:.0f} with one "
            f"in the window, {other.value:.0f} with one and a half.",
            holds=True,
            exact=True,
        ),
        Claim(
            "Smoothness (L2) rises from brown over pink and white to blue noise.",
            "Table 4",
            "smallest expected step between colours, from white to blue noise",
            0.0005,
            min(steps, key=lambda step: step.value),
            "above",
        ),
        *(
            Claim(
                f"Spectral entropy is no measure of smoothness: it falls {text}.",
                "Table 4",
                "expected step of spectral entropy",
                paper,
                one_row("smoothness", metric="spectral_entropy_step", dataset=f"{colour} noise"),
            )
            for colour, text, paper in (
                ("pink", "from brown to pink noise", -0.0638),
                ("blue", "from white to blue noise", -0.0076),
            )
        ),
    ]
