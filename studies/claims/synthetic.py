"""Claims of section 4.1 and appendices C.2 and C.3: known densities learned by small networks."""

from __future__ import annotations

import numpy as np

from studies.claims.claim import Claim, Side, decide
from studies.claims.evidence import Figure, Selector, find, paired
from studies.synthetic import likelihood
from studies.synthetic.arms import TABLES, TITLES, Paper
from studies.synthetic.study import PAPER

SETS = TITLES
EVERY = [{"dataset": name} for name in SETS]
LINEAR = {"head": "linear", "protocol": "released"}
FOURIER = {"head": "fourier", "frequencies": TABLES, "packets": None, "gamma": 0.0, "protocol": "released"}
GMM = {"head": "gmm", "protocol": "released"}
REGRESSION = {"head": "regression", "protocol": "released"}
FOURIER_MLE = {key: FOURIER[key] for key in ("head", "frequencies", "packets", "gamma")}
FRESH, PAIR = "synthetic-fresh", "synthetic-pair"
"""Thirty further seeds, for the two claims that twenty left open, and 120 of two heads, as one stayed open; by plan."""
WORDS = {"kl": "KL divergence", "mse": "MSE"}


def _printed(metric: str, ours: str, other: str, dataset: str, paper: Paper = PAPER) -> float:
    """Return what the paper prints for one head minus what it prints for another."""
    return round(paper[ours, metric][dataset][0] - paper[other, metric][dataset][0], 3)


def _pair(metric: str, ours: Selector, other: Selector, dataset: str, study: str = "synthetic") -> Figure:
    return paired(study, metric, {**ours, "dataset": dataset}, {**other, "dataset": dataset})


def _mean(metric: str, arm: Selector, dataset: str) -> float:
    row = {**arm, "dataset": dataset, "metric": metric}
    return float(find("results/synthetic/summary.json", row)[0]["ours"])


def against_linear() -> list[Claim]:
    """Return the comparisons of tables 1 and 6 with the linear head."""
    found = []
    for metric, table in (("kl", "Table 1"), ("smoothness", "Table 1"), ("mse", "Table 6")):
        words = WORDS.get(metric, metric)
        for name, title in SETS.items():
            ours, theirs = (PAPER[head, metric][name][0] for head in ("fourier", "linear"))
            means = f"Ours {_mean(metric, FOURIER, name):.3f} and {_mean(metric, LINEAR, name):.3f}"
            reason = ""
            if (metric, name) == ("mse", "gaussian"):
                point = _mean(metric, REGRESSION, name)
                reason = (
                    f"Outcomes have a variance of 0.010 given the inputs, which a regression reaches ({point:.3f}) and "
                    "here the linear head too: the paper's stayed above it, and that was what Fourier-12 gained on."
                )
            found.append(
                Claim(
                    f"Fourier-12 has the lower {words} on {title} than the linear head.",
                    table,
                    f"{words} of Fourier-12 minus linear's, same seeds",
                    _printed(metric, "fourier", "linear", name),
                    _pair(metric, FOURIER, LINEAR, name),
                    note=reason,
                    before=f"{means}, the paper {ours} and {theirs}.",
                )
            )
    gain = paired("synthetic", "kl", FOURIER, LINEAR, ratio=True, over=EVERY)
    inside = gain.interval is not None and gain.interval[0] <= -40 <= gain.interval[1]
    status, why = decide(gain, "below")
    less = "It improves, by less: the paper's own table has 32, 39 and 18 % on the three sets, 30 % on average."
    return [
        *found,
        Claim(
            "The Fourier head improves the KL divergence by about 40 % on average.",
            "Table 1",
            "percent by which the KL of Fourier-12 is larger than linear's, geometric mean over the sets",
            -40.0,
            gain,
            note=less if status == "confirmed" and not inside else why,
            holds=inside,
        ),
    ]


def _not_learned(dataset: str, study: str) -> str:
    """Name mixtures that did not learn, whose KL is ten times that of the median seed, and what the others say."""
    fourier, gmm = (
        {run["seed"]: run["kl"] for run in find(f"results/{study}/runs.json", {**arm, "dataset": dataset})}
        for arm in (FOURIER, GMM)
    )
    lost = [seed for seed, kl in gmm.items() if kl > 10 * np.median(list(gmm.values()))]
    if not lost:
        return ""
    lower = sum(gmm[seed] < fourier[seed] for seed in gmm)
    worst = max(gmm[seed] for seed in lost)
    learned = f"{len(lost)} of {len(gmm)} mixtures did not learn (KL {worst:.2f})"
    return f"{learned}; the mixture is the lower one in {lower} of the {len(gmm)} pairs."


def _fresh_gaussian() -> str:
    """Say what the twenty seeds said that the fresh ones replace, one of which was a mixture that did not learn."""
    before = _pair("kl", FOURIER, GMM, "gaussian")
    low, high = before.interval or (before.value, before.value)
    lost = _not_learned("gaussian", FRESH) or "All of these mixtures learned."
    return (
        f"{lost} In the {before.seeds} seeds before these {_not_learned('gaussian', 'synthetic')} "
        f"Their mean was {before.value:.3f} ({low:.3f} to {high:.3f}): one network in twenty can turn it."
    )


def against_mixtures() -> list[Claim]:
    """Return the comparisons with the mixture head, by cross-entropy and by maximum likelihood."""
    sides: dict[str, Side] = {name: "below" if name == "beta" else "above" for name in SETS}
    found = [
        Claim(
            f"The GMM head has the {'higher' if sides[name] == 'below' else 'lower'} KL divergence on {title}.",
            "Table 5",
            "KL of Fourier-12 minus the GMM head's",
            _printed("kl", "fourier", "gmm", name),
            _pair("kl", FOURIER, GMM, name, FRESH if name == "gaussian" else "synthetic"),
            sides[name],
            note=_fresh_gaussian() if name == "gaussian" else _not_learned(name, "synthetic"),
        )
        for name, title in SETS.items()
    ]
    for metric in likelihood.METRICS:
        words = WORDS.get(metric, metric)
        found += [
            Claim(
                f"By maximum likelihood {'Fourier' if name == 'beta' else 'GMM'}-MLE has the lower {words} on {title}.",
                "Table 7",
                f"{words} of Fourier-MLE minus GMM-MLE's",
                _printed(metric, "fourier", "gmm", name, likelihood.PAPER),
                _pair(metric, FOURIER_MLE, {"head": "gmm"}, name, "likelihood"),
                sides[name],
            )
            for name, title in SETS.items()
        ]
    return found


def steadier() -> tuple[Figure, str]:
    """Return by how much the deviation of log KL between seeds is larger than the linear head's, by a bootstrap.

    The words say it of each set, as a mean over them can be one set's.
    """
    path = f"results/{PAIR}/runs.json"
    rows = [arm | {"dataset": name} for name in SETS for arm in (FOURIER, LINEAR)]
    values = [{run["seed"]: run["kl"] for run in find(path, row)} for row in rows]
    seeds = sorted(set.intersection(*(set(one) for one in values)))
    table = np.log([[one[seed] for seed in seeds] for one in values])
    drawn = np.random.default_rng(0).integers(len(seeds), size=(4000, len(seeds)))

    def changes(chosen: np.ndarray) -> np.ndarray:
        """Return the logarithm of the ratio on each set, and their mean."""
        spread = np.log(table[:, chosen].std(axis=1, ddof=1) + 1e-9)
        ratios = spread[::2] - spread[1::2]
        return np.array([*ratios, ratios.mean()])

    found = 100 * np.expm1(changes(np.arange(len(seeds))))
    ends = 100 * np.expm1(np.quantile([changes(one) for one in drawn], [0.025, 0.975], axis=0))
    named = zip(SETS.values(), found[:-1], *ends[:, :-1], strict=True)
    said = ", ".join(f"{value:+.0f} ({low:+.0f} to {high:+.0f}) on {title}" for title, value, low, high in named)
    low, high = ends[:, -1].tolist()
    return Figure(float(found[-1]), (low, high), len(seeds), path, tuple(rows)), f"By set, in percent: {said}."


def curves() -> list[Claim]:
    """Return what the paper says of its curves over N, of the steadiness of heads, and of the regression."""
    steady, by_set = steadier()
    few, many = (FOURIER | {"frequencies": n} for n in (4, 20))
    regularised = paired("synthetic", "kl", FOURIER | {"gamma": 1e-6}, FOURIER, ratio=True, over=EVERY)
    low, high = regularised.interval or (0.0, 0.0)
    found = [
        Claim(
            f"The {'GMM' if name == 'beta' else 'Fourier'} head is the smoothest on {title}.",
            "Table 5",
            "smoothness of Fourier-12 minus the GMM head's",
            _printed("smoothness", "fourier", "gmm", name),
            _pair("smoothness", FOURIER, GMM, name),
            "above" if name == "beta" else "below",
        )
        for name, title in SETS.items()
    ]
    found += [
        Claim(
            "The Fourier head is more stable between seeds than the linear head.",
            "Figure 8",
            "percent by which the deviation of log KL over seeds is larger than linear's, mean over sets, bootstrap",
            "below 0",
            steady,
            note=f"{by_set} It is Beta that decides; on GMM-2 seeds of Fourier-12 differ more.",
        ),
        Claim(
            "As N increases the KL divergence improves until it saturates.",
            "Section 4.1, figure 8",
            "percent by which the KL of Fourier-20 is larger than Fourier-4's, geometric mean over the sets",
            "below 0",
            paired("synthetic", "kl", many, few, ratio=True, over=EVERY),
        ),
        *(
            Claim(
                f"Smoothness degrades as N increases, on {title}.",
                "Figure 8",
                "smoothness of Fourier-20 minus Fourier-4's",
                "above 0",
                _pair("smoothness", many, few, name),
                "above",
            )
            for name, title in SETS.items()
        ),
        Claim(
            "Models with and without regularisation perform similarly.",
            "Figure 8",
            "percent by which the KL of Fourier-12 with gamma 1e-6 is larger than without",
            "about 0",
            regularised,
            note="Similar is taken to mean within 10 %.",
            holds=low > -10 and high < 10,
        ),
    ]
    for name, title in SETS.items():
        figure = _pair("mse", REGRESSION, FOURIER, name)
        found.append(
            Claim(
                f"The MSE of a pointwise regression is roughly that of the Fourier head, on {title}.",
                "Table 6",
                "MSE of the regression minus Fourier-12's",
                _printed("mse", "regression", "fourier", name),
                figure,
                note="Roughly is taken to mean within 0.01: the prediction of either is the mean of the conditional "
                "distribution.",
                holds=max(abs(end) for end in figure.interval or (0.0,)) < 0.01,
            )
        )
    return found
