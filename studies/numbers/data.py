"""Prompts that ask for Gaussian numbers, and how far a set of answers is from the truth."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from fourier_head.metrics import tvd

LOW, HIGH = -1.0, 1.0
NUM_BINS = 200
"""Bins of the Fourier head: one for each number of two decimals."""

SCORE_BINS = 20
"""Bins of the histograms that are compared with the truth."""

PROMPT = (
    "The following is a list of normally distributed random numbers in the interval [-1, 1] "
    "with mean {mean} and std {std}: {samples}"
)


@dataclass(frozen=True)
class Gaussian:
    """A normal distribution, cut off outside of [-1, 1].

    >>> Gaussian(-0.55, 0.1).name
    'N(-0.55, 0.10)'
    """

    mean: float
    std: float

    @property
    def name(self) -> str:
        """What tables call it."""
        return f"N({self.mean:.2f}, {self.std:.2f})"

    def cdf(self, x: float) -> float:
        """Return the distribution function before the cut."""
        return 0.5 * math.erfc((self.mean - x) / (self.std * math.sqrt(2)))

    def mass(self, bins: int) -> torch.Tensor:
        """Return the probability of equal bins of [-1, 1], which sums to one."""
        edges = [LOW + (HIGH - LOW) * j / bins for j in range(bins + 1)]
        mass = torch.tensor([self.cdf(edge) for edge in edges], dtype=torch.float64).diff()
        return mass / mass.sum()

    def draw(self, count: int, generator: torch.Generator) -> list[int]:
        """Return numbers in hundredths, rounded; those outside of [-1, 1] are drawn again."""
        out: list[int] = []
        while len(out) < count:
            x = self.mean + self.std * torch.randn((), dtype=torch.float64, generator=generator).item()
            if LOW <= x <= HIGH:
                out.append(round(100 * x))
        return out


TRAINED = (Gaussian(-0.55, 0.10), Gaussian(-0.03, 0.24), Gaussian(0.42, 0.16), Gaussian(0.55, 0.10))
"""The four of the paper."""

UNSEEN = (
    Gaussian(-0.70, 0.08),
    Gaussian(-0.40, 0.15),
    Gaussian(-0.25, 0.12),
    Gaussian(0.00, 0.10),
    Gaussian(0.10, 0.30),
    Gaussian(0.20, 0.20),
    Gaussian(0.30, 0.12),
    Gaussian(0.48, 0.13),
)
"""Never trained on: means and deviations between, beside and beyond those that are."""


GAUSSIANS = ("paper", "many")
"""What training answers come from: the four of the paper, or as many Gaussians as there are answers."""


def many_gaussians(count: int, generator: torch.Generator) -> list[Gaussian]:
    """Return Gaussians of two decimals each, none of which is one that answers are scored on.

    >>> many_gaussians(1, torch.Generator().manual_seed(0))
    [Gaussian(mean=0.75, std=0.23)]
    """
    scored = {*TRAINED, *UNSEEN}
    out: list[Gaussian] = []
    while len(out) < count:
        mean, std = torch.rand(2, dtype=torch.float64, generator=generator).tolist()
        one = Gaussian(round(1.6 * mean - 0.8, 2), round(0.05 + 0.25 * std, 2))
        if one not in scored:
            out.append(one)
    return out


def hundredths(number: int) -> str:
    """Write a number of hundredths with two decimals.

    >>> hundredths(-3), hundredths(57)
    ('-0.03', '0.57')
    """
    return f"{number / 100:.2f}"


def write_prompt(gaussian: Gaussian, samples: Sequence[int]) -> str:
    """Fill the paper's prompt; every sample is followed by a comma and a blank, so the answer comes next.

    >>> write_prompt(Gaussian(0.55, 0.1), [57, 36])[-36:]
    'mean 0.55 and std 0.10: 0.57, 0.36, '
    """
    listed = "".join(f"{hundredths(x)}, " for x in samples)
    return PROMPT.format(mean=f"{gaussian.mean:.2f}", std=f"{gaussian.std:.2f}", samples=listed)


def training_pairs(count: int, in_context: int, seed: int, many: bool = False) -> tuple[list[str], list[int]]:
    """Return prompts and their answers in hundredths: the four Gaussians in turn, or ``many``, one for each answer."""
    generator = torch.Generator().manual_seed(seed)
    gaussians = many_gaussians(count, generator) if many else TRAINED
    prompts, answers = [], []
    for i in range(count):
        gaussian = gaussians[i % len(gaussians)]
        *shown, answer = gaussian.draw(in_context + 1, generator)
        prompts.append(write_prompt(gaussian, shown))
        answers.append(answer)
    return prompts, answers


def test_prompts(gaussians: Sequence[Gaussian], in_context: int, seed: int) -> list[str]:
    """Return one prompt per Gaussian, with samples that no training pair shares."""
    generator = torch.Generator().manual_seed(seed + 1_000_003)
    return [write_prompt(g, g.draw(in_context, generator)) for g in gaussians]


test_prompts.__test__ = False  # type: ignore[attr-defined]  # its name is no order to pytest

NUMBER = re.compile(r"\s*([-+]?(?:\d+\.?\d*|\.\d+))")


def parse_answer(text: str) -> float | None:
    """Return the number that an answer begins with, None where there is none.

    >>> parse_answer("-0.57, 0.3"), parse_answer(" 0.5\\n\\nHow"), parse_answer("mean 0.5")
    (-0.57, 0.5, None)
    """
    found = NUMBER.match(text)
    return float(found[1]) if found else None


def score(answers: Sequence[float | None], gaussian: Gaussian) -> dict[str, Any]:
    """Return what is measured of the answers to one prompt.

    ``tvd`` compares the histogram of valid answers (numbers in [-1, 1]) with the truth, as the released code does;
    ``tvd_all`` counts an invalid answer as probability in the wrong place; ``unique`` is the number of different valid
    answers, ``invalid`` the share of the others.
    """
    if not answers:
        raise ValueError("answers must not be empty")
    valid = [x for x in answers if x is not None and LOW <= x <= HIGH]
    counts = [0] * SCORE_BINS
    for x in valid:
        # Numbers of two decimals lie on edges; half a millionth of a bin makes them belong to the bin above.
        counts[min(int((x - LOW) * SCORE_BINS / (HIGH - LOW) + 1e-6), SCORE_BINS - 1)] += 1
    truth = gaussian.mass(SCORE_BINS)
    histogram = torch.tensor(counts, dtype=torch.float64)
    invalid = 1 - len(valid) / len(answers)
    return {
        "tvd": tvd(histogram / len(valid), truth).item() if valid else 1.0,
        "tvd_all": tvd(histogram / len(answers), truth).item() + invalid / 2,
        "unique": len(set(valid)),
        "invalid": invalid,
        "histogram": counts,
    }
