"""Claims of section 4.1 and appendices C.2 and C.3: known densities learned by small networks."""

from __future__ import annotations

import numpy as np

from studies.claims.claim import Claim, decide, joined
from studies.claims.evidence import Figure, Selector, find, paired

SETS = {"gaussian": "Gaussian", "gmm2": "GMM-2", "beta": "Beta"}
LINEAR = {"head": "linear", "protocol": "released"}
FOURIER = {"head": "fourier", "frequencies": 12, "packets": None, "gamma": 0.0, "protocol": "released"}
GMM = {"head": "gmm", "protocol": "released"}
RECOMMENDED = {"protocol": "recommended"}
PAPER = {
    "kl": {"gaussian": (0.116, 0.170, 0.026), "gmm2": (0.146, 0.238, 0.030), "beta": (0.191, 0.234, 0.407)},
    "smoothness": {"gaussian": (0.057, 0.116, 0.068), "gmm2": (0.038, 0.068, 0.043), "beta": (0.076, 0.127, 0.061)},
    "mse": {"gaussian": (0.012, 0.013, 0.010), "gmm2": (0.123, 0.126, 0.120), "beta": (0.275, 0.276, 0.273)},
}
"""Fourier-12, linear and GMM as the paper prints them."""


def against_linear() -> list[Claim]:
    """Return the comparisons of tables 1 and 6 with the linear head."""
    found = []
    for metric, words, table in (
        ("kl", "KL divergence", "Table 1"),
        ("smoothness", "smoothness", "Table 1"),
        ("mse", "MSE", "Table 6"),
    ):
        for name, title in SETS.items():
            figure = paired("synthetic", metric, FOURIER | {"dataset": name}, LINEAR | {"dataset": name})
            status, why = decide(figure, "below")
            ours, theirs, _ = PAPER[metric][name]
            means = _means(metric, name)
            reason = ""
            if (metric, name) == ("mse", "gaussian"):
                point = _mean(metric, {"head": "regression", "protocol": "released", "dataset": name})
                reason = (
                    f"Outcomes have a variance of 0.010 given the inputs, which a regression reaches ({point:.3f}) and "
                    "here the linear head too: the paper's stayed above it, and that was what Fourier-12 gained on."
                )
            found.append(
                Claim(
                    f"Fourier-12 has the lower {words} on {title} than the linear head.",
                    table,
                    f"{words} of Fourier-12 minus linear's, same seeds",
                    round(ours - theirs, 3),
                    status,
                    joined(f"Ours {means[0]:.3f} and {means[1]:.3f}, the paper {ours} and {theirs}.", why, reason),
                    figure,
                    section="synthetic",
                )
            )
    every = [{"dataset": name} for name in SETS]
    gain = paired("synthetic", "kl", FOURIER, LINEAR, ratio=True, over=every)
    inside = gain.interval is not None and gain.interval[0] <= -40 <= gain.interval[1]
    status, why = decide(gain, "below")
    found.append(
        Claim(
            "The Fourier head improves the KL divergence by about 40 % on average.",
            "Table 1",
            "percent by which the KL of Fourier-12 is larger than linear's, geometric mean over the sets",
            -40.0,
            "confirmed" if inside else "not confirmed",
            joined(
                "It improves, by less: the paper's own table has 32, 39 and 18 % on the three sets, 30 % on average."
                if status == "confirmed" and not inside
                else why,
            ),
            gain,
            section="synthetic",
        )
    )
    return found


def _means(metric: str, dataset: str) -> tuple[float, float]:
    return _mean(metric, FOURIER | {"dataset": dataset}), _mean(metric, LINEAR | {"dataset": dataset})


def _mean(metric: str, arm: Selector) -> float:
    return float(find("results/synthetic/summary.json", {**arm, "metric": metric})[0]["ours"])


def against_mixtures() -> list[Claim]:
    """Return the comparisons with the mixture head, by cross-entropy and by maximum likelihood."""
    found = []
    for name, title in SETS.items():
        side = "below" if name == "beta" else "above"
        figure = paired("synthetic", "kl", FOURIER | {"dataset": name}, GMM | {"dataset": name})
        status, why = decide(figure, "below" if name == "beta" else "above")
        ours, _, theirs = PAPER["kl"][name]
        found.append(
            Claim(
                f"The GMM head has the {'higher' if side == 'below' else 'lower'} KL divergence on {title}.",
                "Table 5",
                "KL of Fourier-12 minus the GMM head's",
                round(ours - theirs, 3),
                status,
                why,
                figure,
                section="synthetic",
            )
        )
    printed = {
        "kl": {"gaussian": (0.034, 0.012), "gmm2": (0.072, 0.018), "beta": (0.130, 0.257)},
        "perplexity": {"gaussian": (0.422, 0.410), "gmm2": (0.740, 0.702), "beta": (0.542, 0.623)},
    }
    fourier, gmm = {key: FOURIER[key] for key in ("head", "frequencies", "packets", "gamma")}, {"head": "gmm"}
    for metric, values in printed.items():
        for name, title in SETS.items():
            figure = paired("likelihood", metric, fourier | {"dataset": name}, gmm | {"dataset": name})
            status, why = decide(figure, "below" if name == "beta" else "above")
            better = "Fourier-MLE" if name == "beta" else "GMM-MLE"
            words = "KL divergence" if metric == "kl" else metric
            found.append(
                Claim(
                    f"By maximum likelihood {better} has the lower {words} on {title}.",
                    "Table 7",
                    f"{words} of Fourier-MLE minus GMM-MLE's",
                    round(values[name][0] - values[name][1], 3),
                    status,
                    why,
                    figure,
                    section="likelihood",
                )
            )
    return found


def smoothest() -> list[Claim]:
    """Return which of Fourier and GMM heads is the smoother, by table 5."""
    found = []
    for name, title in SETS.items():
        ours, _, theirs = PAPER["smoothness"][name]
        figure = paired("synthetic", "smoothness", FOURIER | {"dataset": name}, GMM | {"dataset": name})
        status, why = decide(figure, "above" if name == "beta" else "below")
        found.append(
            Claim(
                f"The {'GMM' if name == 'beta' else 'Fourier'} head is the smoothest on {title}.",
                "Table 5",
                "smoothness of Fourier-12 minus the GMM head's",
                round(ours - theirs, 3),
                status,
                why,
                figure,
                section="synthetic",
            )
        )
    return found


def steadier() -> Claim:
    """Return whether the linear head varies more between seeds, by a bootstrap over them."""
    path = "results/synthetic/runs.json"
    rows = [arm | {"dataset": name} for name in SETS for arm in (FOURIER, LINEAR)]
    values = [{run["seed"]: run["kl"] for run in find(path, row)} for row in rows]
    seeds = sorted(set.intersection(*(set(one) for one in values)))
    table = np.log([[one[seed] for seed in seeds] for one in values])
    drawn = np.random.default_rng(0).integers(len(seeds), size=(4000, len(seeds)))

    def change(chosen: np.ndarray) -> float:
        spread = table[:, chosen].std(axis=1, ddof=1) + 1e-9
        return float(100 * np.expm1(np.mean(np.log(spread[::2] / spread[1::2]))))

    ends = np.quantile([change(one) for one in drawn], [0.025, 0.975])
    figure = Figure(change(np.arange(len(seeds))), (float(ends[0]), float(ends[1])), len(seeds), path, tuple(rows))
    status, why = decide(figure, "below")
    return Claim(
        "The Fourier head is more stable between seeds than the linear head.",
        "Figure 8",
        "percent by which the deviation of log KL over seeds is larger than linear's, mean over sets, bootstrap",
        "below 0",
        status,
        why,
        figure,
        section="synthetic",
    )


def curves() -> list[Claim]:
    """Return what the paper says of its curves over N, and of the regression."""
    found = [*smoothest(), steadier()]
    sets = [{"dataset": name} for name in SETS]
    gain = paired("synthetic", "kl", FOURIER | {"frequencies": 20}, FOURIER | {"frequencies": 4}, ratio=True, over=sets)
    status, why = decide(gain, "below")
    found.append(
        Claim(
            "As N increases the KL divergence improves until it saturates.",
            "Section 4.1, figure 8",
            "percent by which the KL of Fourier-20 is larger than Fourier-4's, geometric mean over the sets",
            "below 0",
            status,
            why,
            gain,
            section="synthetic",
        )
    )
    for name, title in SETS.items():
        few, many = (FOURIER | {"frequencies": n, "dataset": name} for n in (4, 20))
        figure = paired("synthetic", "smoothness", many, few)
        status, why = decide(figure, "above")
        found.append(
            Claim(
                f"Smoothness degrades as N increases, on {title}.",
                "Figure 8",
                "smoothness of Fourier-20 minus Fourier-4's",
                "above 0",
                status,
                why,
                figure,
                section="synthetic",
            )
        )
    regularised = FOURIER | {"gamma": 1e-6}
    figure = paired("synthetic", "kl", regularised, FOURIER, ratio=True, over=[{"dataset": name} for name in SETS])
    low, high = figure.interval or (0.0, 0.0)
    found.append(
        Claim(
            "Models with and without regularisation perform similarly.",
            "Figure 8",
            "percent by which the KL of Fourier-12 with gamma 1e-6 is larger than without",
            "about 0",
            "confirmed" if low > -10 and high < 10 else "not confirmed",
            "Similar is taken to mean within 10 %.",
            figure,
            section="synthetic",
        )
    )
    for name, title in SETS.items():
        arm = {"head": "regression", "protocol": "released", "dataset": name}
        figure = paired("synthetic", "mse", arm, FOURIER | {"dataset": name})
        low, high = figure.interval or (0.0, 0.0)
        found.append(
            Claim(
                f"The MSE of a pointwise regression is roughly that of the Fourier head, on {title}.",
                "Table 6",
                "MSE of the regression minus Fourier-12's",
                round({"gaussian": 0.010, "gmm2": 0.121, "beta": 0.275}[name] - PAPER["mse"][name][0], 3),
                "confirmed" if max(abs(low), abs(high)) < 0.01 else "not confirmed",
                "Roughly is taken to mean within 0.01: the prediction of either is the mean of the conditional "
                "distribution.",
                figure,
                section="synthetic",
            )
        )
    return found
