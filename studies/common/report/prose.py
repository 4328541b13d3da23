"""What the report says, from `prose.json`: the parts of the paper, and of each study what was done and why, labels."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path


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


_WRITTEN = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))
STUDIES = {name: About(**one) for name, one in _WRITTEN["studies"].items()}
PARTS = tuple(
    Part(one["title"], one["short"], tuple(one["names"]), tuple(one["headlines"])) for one in _WRITTEN["parts"]
)
LABELS = _WRITTEN["labels"]
"""Of metrics, data sets, settings and models in print, and which metrics are better low or high."""
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
