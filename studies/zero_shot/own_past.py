"""Whether widths should follow errors of a series' own past: ``python -m studies.zero_shot.own_past CORPUS``.

Windows of held-out series, nine horizons apart, and up to eight pasts before each: what was forecast wrong there makes
a factor of the width about the median. The rule and what came of it are in ``results/zero-shot-held-out/plan.md``.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fourier_head._files import write_atomically
from fourier_head.forecasting.dependence import student_cdf
from fourier_head.forecasting.evaluation import EvaluationSet
from fourier_head.forecasting.forecaster import Forecaster
from fourier_head.forecasting.inputs import read_series
from fourier_head.forecasting.scores import (
    DECILES,
    Forecast,
    central_levels,
    coverages,
    interval_error,
    observed_frequencies,
)
from fourier_head.forecasting.support import Support
from fourier_head.forecasting.validation import moves, validation_sets
from fourier_head.forecasting.windows import SHORTEST, past_windows
from fourier_head.metrics import wql
from studies.zero_shot.views import held_out

LEVELS, MIDDLE = central_levels(), central_levels().index(0.5)
PASTS, DRAWS, BOOTSTRAPS = 8, 3, 2000
BANDS = (4, 16, 64, 256)
"""Steps ahead that stretches with a factor of their own begin at."""
WORTH_BAND = 8
"""Windows that the factor of all steps counts for, beside those of a stretch."""
SIZE = (2 / np.pi) ** 0.5
"""Mean size of a normal number."""
TINY = 1e-6


@dataclass(frozen=True)
class Variant:
    """A way to make a factor of past errors.

    Args:
        mean: of windows: "sum" of squares, their "log", mean "size", "middle" of logarithms, or by their "spread".
        worth: windows that no change counts for; standard errors squared in "spread".
        most: normal score that larger ones are taken for.
        way: "wider" or "narrower" alone, or "both".
        fewest, pasts: windows that must be there, and that are taken at most.
        bands: whether stretches of the horizon have factors of their own.
        limit: largest factor, and one over the least.
    """

    mean: str
    worth: float
    most: float = 3.0
    way: str = "both"
    fewest: int = 1
    pasts: int = PASTS
    bands: bool = False
    limit: float = 1e9

    def __str__(self) -> str:
        plain, given = vars(Variant("", 0)), vars(self)
        others = [f"{key} {value}" for key, value in given.items() if value != plain[key]][2:]
        return " ".join([f"{self.mean} {self.worth:g}", *others])

    def factor(self, squares: np.ndarray, count: float) -> np.ndarray:
        """Return a factor for each step, of squared normal scores (windows, steps) of so many whole windows.

        >>> Variant("log", 8).factor(np.full((8, 2), 4.0), 8.0).round(3).tolist()
        [1.414, 1.414]
        """
        squares = squares[: self.pasts].clip(max=self.most**2)
        out, known = np.ones(squares.shape[1]), np.isfinite(squares)
        count = min(count, len(squares))
        if count < self.fewest or not known.any():
            return out
        count *= known.mean()
        each = np.nanmean(squares[known.any(1)], axis=1)
        square, trust = max(each.mean(), 0.01), count / (count + self.worth)
        if self.mean == "sum":
            out *= (1 + (each.mean() - 1) * trust) ** 0.5
        elif self.mean == "log":
            out *= square ** (trust / 2)
        elif self.mean == "size":
            out *= max(np.nanmean(np.sqrt(squares)) / SIZE, 0.1) ** trust
        elif self.mean == "middle":
            out *= np.exp(np.log(each + 0.1).mean() * trust / 2)
        elif len(each) > 1:
            gain = each.mean() - 1
            error = (each.var(ddof=1) + 0.5) / count
            out *= max(1 + gain**3 / (gain**2 + self.worth * error), 0.01) ** 0.5
        if self.bands:
            for part in np.split(np.arange(len(out)), [begin - 1 for begin in BANDS if begin <= len(out)]):
                if known[:, part].any():
                    own = max(np.nanmean(squares[:, part]), 0.01) / square
                    out[part] *= own ** (count / (count + WORTH_BAND) / 2)
        low, high = (1.0 if self.way == "wider" else 1 / self.limit), (1.0 if self.way == "narrower" else self.limit)
        return out.clip(low, high)


VARIANTS = [Variant(mean, worth) for mean in ("sum", "log", "size", "middle") for worth in (2, 4, 8, 16)]
VARIANTS += [Variant("spread", worth) for worth in (1, 2)]
for changed in (
    {"most": 2.0}, {"fewest": 4}, {"pasts": 4}, {"way": "wider"}, {"way": "narrower"}, {"bands": True}, {"limit": 1.5}
):  # fmt: skip
    VARIANTS += [replace(Variant("log", worth), **changed) for worth in (4, 8, 16)]


@dataclass(frozen=True)
class Seen:
    """What was forecast of a set, what came, and what came after earlier forecasts of the same series.

    Args:
        name: of the set.
        group: of held-out series.
        quantiles: (windows, steps, levels) of densities.
        targets: (windows, steps).
        support: what values are possible.
        squares: of each window, squared normal scores (pasts, steps).
        counts: of each window, how many pasts do not overlap.
    """

    name: str
    group: str
    quantiles: np.ndarray
    targets: np.ndarray
    support: Support
    squares: list[np.ndarray]
    counts: np.ndarray

    @property
    def far(self) -> bool:
        """Whether it is a set of far horizons."""
        return self.name.endswith("/far")

    @property
    def stem(self) -> str:
        """The name of the training set."""
        return self.name.partition("/")[0]

    def scores(self, variant: Variant | None = None) -> tuple[float, float]:
        """Return WQL and the interval error with the factors of a variant, or as forecast."""
        quantiles = torch.from_numpy(self.quantiles)
        if variant is not None:
            factors = [variant.factor(*pair) for pair in zip(self.squares, self.counts, strict=True)]
            middle = quantiles[..., MIDDLE : MIDDLE + 1]
            quantiles = middle + torch.from_numpy(np.stack(factors))[..., None] * (quantiles - middle)
        fitted = self.support.rare.put(self.support.fit(quantiles), np.asarray(LEVELS))
        forecast = Forecast(fitted, LEVELS)
        below = dict(zip(LEVELS, observed_frequencies(forecast, self.targets).tolist(), strict=True))
        loss = wql(np.moveaxis(forecast.at(*DECILES), -1, 0), DECILES, self.targets).item()
        return loss, 100 * (interval_error(coverages(below)) or 0.0)

    def drawn(self, random: np.random.Generator) -> Seen:
        """Return the same forecasts with outcomes drawn from them, half of the errors of a window alike."""

        def scores(count: int, steps: int) -> np.ndarray:
            normal = random.standard_normal((count, 1)) + random.standard_normal((count, steps))
            # A scale for each window: its quantiles are those of Student's t, which normal scores must not be.
            wide = normal / 2**0.5 / (random.chisquare(6, (count, 1)) / 6) ** 0.5
            return torch.special.ndtri(student_cdf(torch.from_numpy(wide), 6)).numpy()

        knots, steps = torch.special.ndtri(torch.tensor(LEVELS, dtype=torch.float64)).numpy(), self.targets.shape[1]
        z = scores(len(self.targets), steps)
        left = (np.searchsorted(knots, z) - 1).clip(0, len(knots) - 2)
        low, high = (np.take_along_axis(self.quantiles, (left + i)[..., None], 2)[..., 0] for i in (0, 1))
        values = low + (z - knots[left]) / (knots[left + 1] - knots[left]) * (high - low)
        squares = [np.where(np.isnan(one), np.nan, scores(len(one), steps) ** 2) for one in self.squares]
        targets = np.where(np.isnan(self.targets), np.nan, values)
        return replace(self, targets=targets, squares=squares, support=Support.unknown(len(targets)))


def squares_between(below: np.ndarray, upto: np.ndarray) -> np.ndarray:
    """Return what squared normal scores are on average between two levels, 1 between 0 and 1.

    Whole numbers and zeros are jumps, of which no middle has the variance of what it stands for.

    >>> squares_between(np.array([0.0, 0.5]), np.array([1.0, 0.5])).round(3).tolist()
    [1.0, 0.0]
    """
    low, high = (torch.from_numpy(one).double().clamp(TINY, 1 - TINY) for one in (below, upto))
    (a, f), (b, g) = (
        (z, torch.exp(-z.square() / 2) / (2 * np.pi) ** 0.5) for z in map(torch.special.ndtri, (low, high))
    )
    share, middle = high - low, ((a + b) / 2).square()
    jump = 1 + (a * f - b * g) / torch.where(share > 1e-3, share, 1.0)
    return torch.where(share > 1e-3, jump, middle).numpy()


def look(forecaster: Forecaster, one: EvaluationSet, group: str, most: int) -> Seen | None:
    """Return what is forecast of some windows of a set, the latest of every series first, None where there is none."""
    ahead, chosen = one.horizon, []
    for back in range(most):
        for values in one.series:
            end = len(values) - back * (PASTS + 1) * ahead
            if end - ahead >= max(SHORTEST, len(values) // 3) and moves(values[:end], ahead):
                chosen.append(values[:end])
    if not (chosen := chosen[:most]):
        return None
    series = read_series([values[:-ahead] for values in chosen], freq=one.freq)
    now = forecaster.predict(series, ahead, progress=False)
    windows = past_windows(series, ahead, PASTS)
    squares, counts = [np.zeros((0, ahead))] * len(chosen), np.zeros(len(chosen))
    if len(windows):
        then = forecaster.predict(windows.pasts, ahead, progress=False)
        half = np.where(then.support.whole, 0.5, 0.0)[:, None]
        edges = (torch.from_numpy(windows.targets + side) for side in (-half, half))
        below, upto = (then.density.cdf(edge).double().cpu().numpy() for edge in edges)
        below[then.support.positive[:, None] & (windows.targets - half <= 0)] = 0.0
        every = np.where(np.isnan(windows.targets), np.nan, squares_between(below, upto))
        for number in np.unique(windows.owner):
            mine = windows.owner == number
            squares[number], counts[number] = every[mine], windows.dropped[mine].max() / ahead
    quantiles = now.density.quantile(torch.tensor(LEVELS, dtype=torch.float64)).movedim(0, -1).double().numpy()
    targets = np.stack([values[-ahead:] for values in chosen]).astype(float)
    return Seen(one.name, group, quantiles, targets, now.support, squares, counts)


def halves(seen: Sequence[Seen]) -> np.ndarray:
    """Return the half of each set: names alternately, those of whole sets first and for themselves."""
    whole = sorted({one.stem for one in seen if one.group == "whole"})
    rest = sorted({one.stem for one in seen} - set(whole))
    half = {name: place % 2 for names in (whole, rest) for place, name in enumerate(names)}
    return np.array([half[one.stem] for one in seen])


Scores = np.ndarray
"""WQL and interval error of each set (sets, 2)."""


def compared(seen: Sequence[Seen], before: Scores, after: Scores) -> dict[str, Any]:
    """Return interval errors and the ratio of WQL, with 95 % of bootstraps over names; sets by root of windows."""
    weight = np.sqrt([len(one.targets) for one in seen])
    with np.errstate(all="ignore"):
        ratio = np.log(after[:, 0] / before[:, 0])
    known = np.isfinite(ratio)
    names, owner = np.unique([one.stem for one in seen], return_inverse=True)
    times = np.random.default_rng(0).multinomial(len(names), np.full(len(names), 1 / len(names)), BOOTSTRAPS)
    drawn = times[:, owner] * weight
    some = drawn[:, known]
    change = drawn @ (after - before)[:, 1] / drawn.sum(1).clip(TINY)
    ratios = np.exp(some @ ratio[known] / some.sum(1).clip(TINY))
    out: dict[str, Any] = {"sets": len(seen), "windows": int(np.square(weight).sum().round())}
    out |= {"before": np.average(before[:, 1], weights=weight), "after": np.average(after[:, 1], weights=weight)}
    out |= dict(zip(("low", "high"), np.percentile(change, (2.5, 97.5)), strict=True))
    out |= {"wql": np.exp(np.average(ratio[known], weights=weight[known])) if known.any() else np.nan}
    return out | dict(zip(("wql_low", "wql_high"), np.percentile(ratios, (2.5, 97.5)), strict=True))


def judge(seen: Sequence[Seen], variants: Sequence[Variant]) -> list[dict[str, Any]]:
    """Return rows: all variants, what each half says of the other's choice, each set, and outcomes that are drawn."""
    half, groups = halves(seen), np.array([one.group for one in seen])
    far, every = np.array([one.far for one in seen]), np.ones(len(seen), dtype=bool)
    before = np.array([one.scores() for one in seen])
    after = {variant: np.array([one.scores(variant) for one in seen]) for variant in variants}
    out: list[dict[str, Any]] = []

    def tell(what: str, kept: np.ndarray, scores: Scores, sets: Sequence[Seen] = seen, plain: Scores = before) -> None:
        for horizon, these in (("near", kept & ~far), ("far", kept & far)):
            if rows := np.flatnonzero(these).tolist():
                found = compared([sets[i] for i in rows], plain[rows], scores[rows])
                out.append({"what": what, "horizon": horizon, **found})

    for variant, scores in after.items():
        tell(str(variant), every, scores)
    choices = [one for side in (0, 1) if (one := _choice(seen, half == side, before, after)) is not None]
    if len(choices) < 2:
        return out
    crossed = np.where(half[:, None] == 0, after[choices[1]], after[choices[0]])
    tell("judged", every, crossed)
    for side, name in enumerate("AB"):
        tell(f"half {name} with {choices[1 - side]}", half == side, crossed)
    for group in dict.fromkeys(groups.tolist()):
        tell(f"judged {group}", groups == group, crossed)
    many = np.array([one.counts.mean() >= 4 for one in seen])
    tell("judged four pasts or more", many, crossed)
    tell("judged fewer pasts", ~many, crossed)
    random = np.random.default_rng(1)
    for draw in range(DRAWS):
        made = [one.drawn(random) for one in seen]
        pair = [np.array([one.scores(variant) for one in made]) for variant in (None, choices[0])]
        tell(f"drawn outcomes {draw + 1}", every, pair[1], made, pair[0])
    for place, own in enumerate(seen):
        tell(f"{own.group} {own.name}", np.arange(len(seen)) == place, crossed)
    return out


def _choice(seen: Sequence[Seen], kept: np.ndarray, before: Scores, after: dict[Variant, Scores]) -> Variant | None:
    """Return the variant with the least interval error of those that leave WQL no worse."""
    sets = [one for one, keep in zip(seen, kept, strict=True) if keep]
    found = {variant: compared(sets, before[kept], scores[kept]) for variant, scores in after.items()} if sets else {}
    return min((v for v in found if found[v]["wql"] <= 1), key=lambda v: found[v]["after"], default=None)


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Return rows as lines of comma-separated values; errors of intervals are points.

    >>> print(table([{"what": "judged", "sets": 2, "wql": 0.5}]))
    what,sets,wql
    judged,2,0.5000
    """

    def write(value: Any) -> str:
        return f"{value:.4f}" if isinstance(value, float) else str(value)

    return "\n".join([",".join(rows[0]), *(",".join(write(value) for value in row.values()) for row in rows)])


def main(arguments: list[str] | None = None) -> None:
    """Compare and write the table."""
    parser = argparse.ArgumentParser(prog="python -m studies.zero_shot.own_past", description=__doc__)
    parser.add_argument("corpus", type=Path, nargs="+", help="packed series, or parquet files")
    parser.add_argument("--model", default="small")
    parser.add_argument("--most", type=int, default=24, help="windows of each set")
    parser.add_argument("--output", type=Path, default=Path("results/zero-shot-held-out/own-past.csv"))
    given = parser.parse_args(arguments)
    forecaster = Forecaster.from_pretrained(given.model)
    groups, seen = held_out(given.corpus), []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # seasons that a past does not show
        for group, held in groups.items():
            longest = forecaster.config.context + 4 * 1024
            for one in validation_sets(held, most=given.most, longest=longest, far=True):
                if (found := look(forecaster, one, group, given.most)) is not None:
                    seen.append(found)
    text = table(judge(seen, VARIANTS))
    write_atomically(given.output, text + "\n")
    print(text)


if __name__ == "__main__":
    main()
