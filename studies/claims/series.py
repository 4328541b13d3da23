"""Claims of section 6 and appendix D.2: time series."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from studies.chronos.arms import PAPER
from studies.chronos.paired import TIED
from studies.chronos.tokenizer import ChronosTokenizer
from studies.claims.claim import Claim, joined
from studies.claims.evidence import Figure, objects, one_row, paired
from studies.claims.series_curves import curves
from studies.synthetic.data import NUM_BINS
from studies.synthetic.stack import FourierOptions

PAIRS, SEEDS, TABLES = "forecasting-fresh", "forecasting-seeds", "forecasting-tables"
STEPS, BATCH, SETS = 200_000, 256, 20
"""Of the paper: steps of training and evaluation sets (appendix D.2), windows of a step (32 on
each of 8 GPUs in the released configuration)."""
NUMBERS = (64, 128, 256, 550)
"""Frequencies of the Fourier heads in table 8."""
BOOTSTRAP, STUDENT = "interval by a bootstrap over seeds and series", "interval by Student's t over seeds"
"""How intervals were made: by what was planned where there is a plan, else by Student's t."""


def series() -> Iterator[Claim]:
    """Return the claims of section 6 and appendix D.2."""
    yield from against_linear()
    yield from smoothness()
    yield parameters()
    yield from variants()
    yield from frequencies()
    yield from curves()
    yield bins()
    yield Claim(
        f"These figures on the Chronos corpus, with Traffic and Weather, after {STEPS:,} steps.",
        "Section 6",
        "relative MASE and WQL",
        f"{PAPER['fourier-550']['relative_mase']} and {PAPER['fourier-550']['relative_wql']}",
        note=f"Corpus and the two sets cannot be had here, and {STEPS * BATCH / 1e6:.0f} million windows take "
        "days; the study runs them where they are.",
    )


def _change(ours: str, theirs: str, metric: str = "relative_mase") -> float:
    """Return by how many percent the first arm's number is larger, as the paper prints both."""
    return round(100 * (PAPER[ours][metric] / PAPER[theirs][metric] - 1), 1)


def _score(metric: str) -> Callable[[Mapping[str, Any]], float]:
    """Return what computes the geometric mean of a score over sets; what it is relative to is the same for all arms."""
    return lambda run: float(np.exp(np.mean([np.log(one[metric]) for one in run["scores"]])))


def _difference(study: str, arm: str, other: str, metric: str) -> Figure:
    """Return by how many percent an arm's score over all sets is larger than another's, as the plans would have it."""
    return one_row(study, dataset="all", model=arm, against=other, metric=f"{metric}_difference")


def _by_t(figure: Figure) -> str:
    """Return in words the interval by Student's t beside one of a bootstrap."""
    if figure.student is None:
        return ""
    low, high = figure.student
    return f"By Student's t over the {figure.seeds} seeds alone: {low:+.3g} to {high:+.3g}."


def _without_electricity(study: str, arm: str, other: str, metric: str) -> str:
    """Return in words the difference over all sets but the one whose end dates were fitted."""
    name = "australian_electricity"
    few = next(one["series"] for one in objects(f"results/{study}/runs.json")[0]["scores"] if one["dataset"] == name)
    left = {"dataset": f"without {name}", "model": arm, "against": other}
    figure = one_row(study, metric=f"{metric}_difference", **left)
    (low, high), (t_low, t_high) = figure.interval or (0.0, 0.0), figure.student or (0.0, 0.0)
    by_t = f"by t {t_low:+.1f} to {t_high:+.1f}"
    return f"Without Australian Electricity ({few} series): {figure.value:+.1f} ({low:+.1f} to {high:+.1f}, {by_t})."


def _budget() -> str:
    """Return in words how much less than the paper's our training and evaluation are."""
    run = objects(f"results/{PAIRS}/runs.json")[0]
    steps, windows = run["steps"], run["samples"]
    return (
        f"{steps:,} steps of {windows // steps} windows, {len(run['scores'])} of the paper's {SETS} sets; the paper "
        f"trains {STEPS * BATCH / windows:.0f} times as long on other data."
    )


def _by_released_code(metric: str, ours: str, theirs: str) -> str:
    """Say that the released code has no regulariser in training, and what that makes of a difference of the paper."""
    name, change = f"relative_{metric}", abs(_change(ours, theirs, f"relative_{metric}"))
    noise = abs(_change("fourier-550-free", "fourier-550", name))
    size = f": {change:g} % is {'no more' if change <= noise else 'more'} than that"
    return (
        "The released Chronos training adds no regulariser (its trainer looks for `l_reg`, its head has "
        "`loss_regularization`); the authors may have run other code. By it the paper's Fourier-550 with and without "
        f"are two runs of one model, {noise:g} % apart in {metric.upper()}{'' if ours == 'fourier-550-free' else size}."
    )


def _strengths() -> str:
    """Say how much stronger the regulariser of the released head is than the printed one."""
    m, synthetic = ChronosTokenizer().num_bins, FourierOptions.released(floor=0.0).gamma_unit
    return (
        f"Ours is the form that the paper prints; that of the released head is 2m = {2 * m:,} times as strong at {m:,} "
        f"bins, and {synthetic:g} times at the {NUM_BINS} bins of our synthetic study, which has that one."
    )


def against_linear() -> Iterator[Claim]:
    """Return the comparisons of scores with the linear head, that of the released configuration and one of its own."""
    for n, metric in ((550, "mase"), (550, "wql"), (256, "mase")):
        arm, name, study = f"fourier-{n}", metric.upper(), PAIRS if n == 550 else SEEDS
        where = "Table 3" if n == 550 else "Table 8"
        planned = f"{BOOTSTRAP}, as planned"
        if n == 550:
            figure, method = _difference(study, arm, TIED, metric), planned
            left_out = _without_electricity(study, arm, TIED, metric)
        else:
            figure, method = paired(study, _score(metric), {"model": arm}, {"model": TIED}, ratio=True), STUDENT
            left_out = ""
        yield Claim(
            f"Fourier-{n} has a lower {name} than the linear head.",
            where,
            f"percent by which {name} is larger than that of the linear head of the released configuration, tied to "
            f"the embedding; {method}",
            _change(arm, "linear", f"relative_{metric}"),
            figure,
            note=joined(
                _by_t(figure),
                left_out,
                _smooth_start(),
                _by_released_code(metric, arm, "linear") if metric == "wql" else "",
                _budget(),
            ),
        )
        apart = _difference(study, arm, "linear", metric)
        yield Claim(
            f"Fourier-{n} has a lower {name} than a linear head with weights of its own.",
            where,
            f"percent by which {name} is larger than that of a linear head that is not tied; {planned}",
            None,
            apart,
            note=joined(_by_t(apart), _without_electricity(study, arm, "linear", metric)),
            own=True,
        )


def _smooth_start() -> str:
    """Say what speaks for the tied head here."""
    return (
        "Embeddings start smooth along the bins here (`--embedding smooth`), and with them the rows of a tied head: "
        "how the two compare from the start of T5, which is noise, is planned and not known."
    )


def smoothness() -> Iterator[Claim]:
    """Return what is said of smoothness against the linear head."""

    def on_tourism(run: Mapping[str, Any]) -> float:
        return next(float(one["smoothness"]) for one in run["scores"] if one["dataset"] == "tourism_monthly")

    def against(model: str, measure: str | Callable[[Mapping[str, Any]], float]) -> Figure:
        return paired(PAIRS, measure, {"model": "fourier-550"}, {"model": model}, ratio=True)

    def smoother(model: str, measure: str | Callable[[Mapping[str, Any]], float]) -> str:
        return f"{1 / (1 + against(model, measure).value / 100):.1f} times"

    times = {n: PAPER["linear"]["smoothness"] / PAPER[f"fourier-{n}"]["smoothness"] for n in NUMBERS}
    yield Claim(
        "Next-token distributions are at least 8 times smoother than the linear head's, for all N.",
        "Section 6, table 8",
        "percent by which the smoothness of Fourier-550, the least smooth, is larger than that of the tied linear "
        f"head (8 times: {100 / 8 - 100:g}); {STUDENT}",
        _change("fourier-550", "linear", "smoothness"),
        against(TIED, "smoothness"),
        note=f"{smoother(TIED, 'smoothness')}; {smoother('linear', 'smoothness')} where the linear head has weights "
        f"of its own. The paper's own table has {times[550]:.1f} times for Fourier-550 and {times[256]:.0f} to "
        f"{times[64]:.0f} times for fewer frequencies.",
        bound=100 / 8 - 100,
    )
    yield Claim(
        "On Tourism Monthly the next-token distribution is smoother with the Fourier head, about 4 times.",
        "Appendix D.2, figure 17",
        "percent by which the smoothness of Fourier-550 is larger than that of the tied linear head (4 times: "
        f"{100 / 4 - 100:g}); {STUDENT}",
        100 / 4 - 100,
        against(TIED, on_tourism),
        note=f"{smoother(TIED, on_tourism)}, and {smoother('linear', on_tourism)} where the linear head has weights "
        "of its own, in the mean over distributions of that set; the paper's figure has one of them.",
    )


def parameters() -> Claim:
    """Return the comparison of the number of parameters."""
    small, large, tied = (
        one_row(TABLES, model=name, metric="parameters") for name in ("fourier-550", "linear", "linear-tied")
    )
    return Claim(
        "The Fourier head has fewer parameters than the linear head.",
        "Section 6",
        "parameters of the model with Fourier-550 minus those with the linear head",
        "below 0",
        Figure(small.value - large.value, None, None, small.file, small.rows + large.rows),
        note="A linear head tied to the embedding, as in the released configuration, has fewer still: with it the "
        f"difference is {small.value - tied.value:+,.0f}.",
        holds=small.value < large.value,
        exact=True,
    )


def variants() -> Iterator[Claim]:
    """Return what regularisation and mixed bins are worth by table 8."""
    for name, other, words in (
        ("free", "no regulariser", "Regularisation"),
        ("uniform", "uniform bins", "Mixed-precision bins"),
    ):
        arm, verb = f"fourier-550-{name}", "improves" if name == "free" else "improve"
        mase, wql = (_difference(SEEDS, arm, "fourier-550", metric) for metric in ("mase", "wql"))
        gain = _change(arm, "fourier-550")
        if name == "free":
            why = {metric: _by_released_code(metric, arm, "fourier-550") for metric in ("mase", "wql")}
            why["smoothness"] = _strengths()
        else:
            beyond = [_beyond("next tokens about the last one", kind) for kind in ("Uniform", "Mixed")]
            why = {
                "mase": "Mixed bins hardly change what 550 frequencies leave out of next tokens about the last one: "
                f"{beyond[0]:.1f} % of the energy with uniform bins, {beyond[1]:.1f} % with mixed ones.",
                "wql": "That the kind of bins does nothing to the linear head, as the caption says, was not run.",
                "smoothness": "",
            }
        most = max(abs(end) for end in wql.interval or (0.0,))
        yield Claim(
            f"{words} {verb} MASE of Fourier-550.",
            "Section 6, table 8",
            f"percent by which MASE without it ({other}) is larger; {BOOTSTRAP}, as planned",
            gain,
            mase,
            "above",
            joined(
                _by_t(mase),
                _without_electricity(SEEDS, arm, "fourier-550", "mase"),
                why["mase"],
                _strengths() if name == "free" else "",
                _budget(),
            ),
        )
        yield Claim(
            f"{words} {verb} smoothness of Fourier-550.",
            "Section 6, table 8",
            f"percent by which smoothness without it ({other}) is larger; {STUDENT}",
            _change(arm, "fourier-550", "smoothness"),
            paired(SEEDS, "smoothness", {"model": arm}, {"model": "fourier-550"}, ratio=True),
            "above",
            why["smoothness"],
        )
        yield Claim(
            f"{words} {'has' if name == 'free' else 'have'} minimal effect on WQL of Fourier-550.",
            "Table 8",
            f"percent by which WQL without it ({other}) is larger; {BOOTSTRAP}, as planned",
            _change(arm, "fourier-550", "relative_wql"),
            wql,
            note=joined(
                f"Minimal is taken to mean less than what the paper has in MASE, {gain:g} %; the interval reaches "
                f"{most:.1f}.",
                _by_t(wql),
                why["wql"],
            ),
            holds=most < gain,
        )


def frequencies() -> Iterator[Claim]:
    """Return what table 8 says of the number of frequencies."""
    ours, theirs = {"model": "fourier-550"}, {"model": "fourier-256"}
    for metric in ("mase", "wql"):
        few, many = (
            one_row(SEEDS, dataset="all", model=f"fourier-{n}", metric=f"relative_{metric}") for n in (256, 550)
        )
        yield Claim(
            f"More frequencies improve {metric.upper()}: 550 is better than 256.",
            "Section 6, table 8",
            f"percent by which {metric.upper()} of Fourier-550 is larger than that of Fourier-256; {STUDENT}",
            _change("fourier-550", "fourier-256", f"relative_{metric}"),
            paired(SEEDS, _score(metric), ours, theirs, ratio=True),
            before=f"Means {many.value:.3f} and {few.value:.3f}.",
            note=_by_released_code(metric, "fourier-550", "fourier-256"),
        )
    arms = [one_row(TABLES, dataset="all", model=f"fourier-{n}", metric="relative_mase") for n in NUMBERS]
    linear, tied, free = (
        one_row(TABLES, dataset="all", model=name, metric="relative_mase")
        for name in ("linear", TIED, "fourier-550-free")
    )
    worst = 100 * (max(arm.value for arm in arms) / tied.value - 1)
    below, below_own = (sum(arm.value < one.value for arm in arms) for one in (tied, linear))
    rows = tuple(row for arm in (*arms, tied) for row in arm.rows)
    smooth = [one_row(TABLES, dataset="all", model=f"fourier-{n}", metric="smoothness").value for n in NUMBERS]
    yield Claim(
        f"Fourier heads of all N ({NUMBERS[0]} to {NUMBERS[-1]}) have a lower MASE than the linear head.",
        "Section 6, table 8",
        f"percent by which the highest MASE among the {len(arms)} N is larger than that of the tied linear head",
        _change("fourier-64", "linear"),
        Figure(worst, None, tied.seeds, tied.file, rows),
        note=f"{below} of {len(arms)} are below it there, {below_own} below a linear head with weights of its own; "
        f"Fourier-550 with and without regulariser are {abs(arms[-1].value - free.value):.3f} apart. "
        "Over more seeds see 256 and 550.",
    )
    yield Claim(
        "Fewer frequencies give smoother next-token distributions.",
        "Section 6, table 8",
        f"percent by which the smoothness of Fourier-550 is larger than that of Fourier-256; {STUDENT}",
        _change("fourier-550", "fourier-256", "smoothness"),
        paired(SEEDS, "smoothness", ours, theirs, ratio=True),
        "above",
        f"One seed of every N ({', '.join(map(str, NUMBERS))}) has {', '.join(f'{value:.4f}' for value in smooth)} "
        f"(`results/{TABLES}`): {smooth[-1] / smooth[0]:.1f} times from the first to the last, "
        f"{PAPER['fourier-550']['smoothness'] / PAPER['fourier-64']['smoothness']:.1f} times in the paper.",
    )


def _beyond(dataset: str, kind: str) -> float:
    """Return which percentage of the energy lies beyond 550 frequencies."""
    return 100 * one_row("spectrum", dataset=dataset, protocol=f"{kind} bins", metric="energy_beyond").value


def bins() -> Claim:
    """Return what mixed bins do to the spectrum of next tokens."""
    about, every = "next tokens about the last one", "all next tokens"
    mixed, uniform = ({"dataset": about, "protocol": f"{kind} bins"} for kind in ("Mixed", "Uniform"))
    counts = [
        one_row("spectrum", dataset=every, protocol=f"{kind} bins", metric="frequencies_90").value
        for kind in ("Uniform", "Mixed")
    ]
    return Claim(
        "More bins where values are dense localise the Fourier spectrum of next tokens.",
        "Section 2.3",
        f"percent by which the number of frequencies that hold 90 % of the energy is larger with mixed bins; {STUDENT}",
        "below 0",
        paired("spectrum", "frequencies_90", mixed, uniform, ratio=True),
        note="Next tokens about the last one read, of training windows. The energy beyond 550 frequencies goes from "
        f"{_beyond(about, 'Uniform'):.1f} to {_beyond(about, 'Mixed'):.1f} % there. Of all next tokens taken together "
        f"it goes from {_beyond(every, 'Uniform'):.1f} to {_beyond(every, 'Mixed'):.1f} %, while 90 % of the energy "
        f"needs {counts[1]:.0f} frequencies in place of {counts[0]:.0f}.",
    )
