"""What the report says: the parts of the paper, and of each study a title and what was done and why."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class About:
    """A study in words.

    Args:
        title, short: its name, and one for the margin.
        text: what was done and why.
        repeats: whether it repeats one of the paper; others vary one of these or go beyond it, and their numbers are
            not counted among those that agree with the paper or do not.
    """

    title: str
    short: str
    text: str
    repeats: bool = True


STUDIES = {
    "synthetic": About(
        "Synthetic densities",
        "Synthetic",
        "Section 4.1 and appendix C.2. A small network learns the distribution of a third number from two others, on "
        "three data sets whose truth is known: a Gaussian, a mixture of two, and a Beta. The same body ends in each "
        "head in turn; the divergence from the true conditional distribution, the smoothness of the prediction and the "
        "squared error of its mean are measured on held-out rows.",
    ),
    "likelihood": About(
        "Continuous likelihood",
        "Likelihood",
        "Appendix C.3. The same three data sets without bins: heads are trained on the likelihood of the continuous "
        "value, and the divergence from the true density is an integral.",
    ),
    "smoothness": About(
        "The smoothness metric",
        "Smoothness",
        "Appendix B. A measure of smoothness should rise with every bit of high-frequency content. Two tests: square "
        "waves built from more and more sine waves, and noise from brown, the smoothest, to blue, the sharpest.",
    ),
    "scaling-law": About(
        "The scaling law",
        "Scaling law",
        "Theorem 3.3 says that a density whose Fourier coefficients decay as 1/k^t, cut after N frequencies, has "
        "smoothness C1 − C2 / N^(2t − 1). The exponent is fitted in each regime in which the theorem or its proof can "
        "be read, with the cases that need a caveat beside it.",
    ),
    "numbers": About(
        "Language model, numbers in context",
        "Numbers",
        "A language model predicts a number drawn from a distribution it saw samples of in its prompt; its head is the "
        "original linear one or a Fourier head.",
    ),
    "numbers-top-p": About(
        "Language model, likely answers only",
        "Numbers, top-p 0.95",
        "The same with all arms sampling from the likeliest 95 % of their distributions.",
        repeats=False,
    ),
    "numbers-start": About(
        "Language model, the paper's first weights",
        "Numbers, start",
        "Fourier heads whose first weights are divided by 1000, as in the paper, and by 3; three seeds.",
        repeats=False,
    ),
    "tempo": About("Tempo of clicks", "Tempo", "A network hears clicks and predicts their tempo, an ordered quantity."),
    "tempo-random": About(
        "Tempo of clicks, split at random",
        "Tempo, random split",
        "The same with clips dealt out at random, as in the paper; learning rate and length are chosen for each "
        "head on validation clips.",
        repeats=False,
    ),
    "forecasting": About(
        "Time series forecasting",
        "Forecasting",
        "Models of time series with each head, scored on held-out data sets relative to the seasonal naive forecast: "
        "MASE for the point forecast, WQL for the whole distribution; below one is better than naive.",
    ),
    "spectrum": About(
        "The spectrum of next tokens",
        "Spectrum",
        "Section 2.3. Mixed bins give more of them to the values that are frequent, which spreads next tokens "
        "over more bins and should let their Fourier coefficients fall off faster.",
    ),
    "forecasting-chronos": About(
        "Time series forecasting, paths as published",
        "Forecasting, top-k 50",
        "The same models, their paths drawn as those of the published Chronos models: each by itself, among the 50 "
        "likeliest tokens.",
        repeats=False,
    ),
    "forecasting-tables": About(
        "Time series forecasting, frequencies and ablations",
        "Forecasting, tables",
        "The table of appendix D.2 at a small budget: heads of 64 to 550 frequencies, without the regulariser, with "
        "uniform bins and with the tokenizer as released; ours beside them. All arms start with attention near "
        "by, without which so few windows teach nothing. One seed: arms that hardly differ may lie 0.03 apart in MASE.",
        repeats=False,
    ),
    "forecasting-seeds": About(
        "Time series forecasting, seven arms over seeds",
        "Forecasting, seeds",
        "Heads and ablations at equal windows with two or three seeds, averaged weights, and differences to the linear "
        "head of the same seed with intervals over seeds and series.",
        repeats=False,
    ),
    "forecasting-curves": About(
        "Time series forecasting, sizes and data",
        "Forecasting, curves",
        "Both heads at the same small budget with models of 2 to 22 million parameters, and with a share of the "
        "training series, scored on up to 400 series of each set.",
        repeats=False,
    ),
    "zero-shot": About(
        "Zero-shot forecasting",
        "Zero-shot",
        "Forecasts of data sets never trained on, relative to the seasonal naive forecast.",
        repeats=False,
    ),
    "zero-shot-variants": About(
        "Zero-shot forecasting, variants",
        "Zero-shot, variants",
        "Variants of the recipe of the zero-shot forecaster, scored in the same way.",
        repeats=False,
    ),
    "zero-shot-held-out": About(
        "Zero-shot forecasting, sets held out of training",
        "Zero-shot, held out",
        "Small networks by recipe, scored on whole training sets that none of them was trained on.",
        repeats=False,
    ),
    "joint-paths": About(
        "Forecasts of sums",
        "Joint paths",
        "Whole trajectories drawn from a forecast: how often the truth of a sum over the horizon lies in its interval, "
        "beside steps drawn each by itself.",
        repeats=False,
    ),
    "covariates": About(
        "Forecasts with covariates",
        "Covariates",
        "Tables with weather or holidays, forecast with and without them; windows of the past decide whether they are "
        "used.",
        repeats=False,
    ),
    "first-user": About(
        "What a first user tries",
        "First user",
        "Series that a newcomer is likely to try: an absurd last value, rare demand, several seasons, a straight line.",
        repeats=False,
    ),
    "atari": About("Offline reinforcement learning", "Atari", "Decision models trained on recorded games."),
    "atari-gravitar": About(
        "Offline reinforcement learning, a recorded agent that plays",
        "Atari, Gravitar",
        "Gravitar again, recorded by an agent that has learned to play; heads are trained for the paper's length "
        "and N is chosen on other episodes than those reported.",
        repeats=False,
    ),
}


@dataclass(frozen=True)
class Part:
    """A part of the paper: its claims, and the studies behind them.

    Args:
        title, short: its name, and one for the margin.
        names: how the names of its studies begin, or the sections of claims that no study could be run for.
        headlines: the claims that tell its story, in the words of `results/claims.json`.
    """

    title: str
    short: str
    names: tuple[str, ...]
    headlines: tuple[str, ...] = ()


PARTS = (
    Part(
        "Theory and metric",
        "Theory",
        ("scaling-law", "smoothness", "Theorem", "Section 3"),
        (
            "Smoothness of a truncated density is C1 - C2 / N^(2t-1) + O(1/N^2t) for coefficients that decay as 1/k^t.",
            "Increasing N degrades smoothness.",
        ),
    ),
    Part(
        "Synthetic densities",
        "Synthetic",
        ("synthetic", "likelihood"),
        ("The Fourier head improves the KL divergence by about 40 % on average.",),
    ),
    Part(
        "Language models as random numbers",
        "Numbers",
        ("numbers", "Section 4.2"),
        ("The Fourier head learns a better distribution than LoRA on text.",),
    ),
    Part(
        "Offline reinforcement learning",
        "Atari",
        ("atari", "Section 5"),
        ("The Fourier head has the higher returns on Seaquest.",),
    ),
    Part(
        "Time series",
        "Time series",
        ("forecasting", "spectrum", "Section 6"),
        ("Fourier-550 has a lower MASE than the linear head.", "Fourier-256 has a lower MASE than the linear head."),
    ),
    Part(
        "Audio",
        "Audio",
        ("tempo", "Appendix C.1"),
        (
            "A Fourier head with one frequency has an F1 118 % above the linear head's.",
            "The gain is one of the head (learning rate and length chosen for each).",
        ),
    ),
)
BEYOND = Part("Beyond the paper", "Beyond", ())


def part_of(*names: str) -> Part:
    """Return the part of the paper that a study or a claim belongs to, by the first of its names that is known.

    >>> part_of("numbers-start").title, part_of("", "Section 5, figure 14").short, part_of("my-study").title
    ('Language models as random numbers', 'Atari', 'Beyond the paper')
    """
    found = (part for name in names for part in PARTS if name.startswith(part.names))
    return next(found, BEYOND)


def about(name: str) -> About:
    """Return the words for a study; one that is not known here gets its name for a title.

    >>> about("my-study").title
    'My study'
    """
    words = name.replace("-", " ").replace("_", " ").strip().capitalize()
    return STUDIES.get(name, About(words, words, ""))
