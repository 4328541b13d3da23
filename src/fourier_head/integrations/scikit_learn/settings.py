"""Settings of a regressor that cannot be, said in one sentence each."""

from __future__ import annotations

import numbers
from collections.abc import Iterable
from typing import Any

from fourier_head.errors import did_you_mean, is_whole

HEADS = ("fourier", "mixture", "hl-gauss", "linear")
MIXTURES = ("mixture", "gmm")
"""The second is what ``fourier-head compare`` calls it."""
CHOICES = {"body": ("auto", "pieces", "smooth", "boosting"), "loss": ("both", "likelihood", "crps")}
LEAST = {"n_members": 1, "num_frequencies": 1, "packets": 0, "num_components": 1, "num_bins": 2}
LEAST_OR_AUTO = {"max_epochs": 1, "batch_size": 1, "patience": 1}
NUMBERS, NUMBERS_OR_AUTO = ("learning_rate", "tails"), ("weight_decay", "validation_fraction")


def check(model: Any) -> None:
    """Raise an error for a setting that cannot be."""
    if model.head not in (*HEADS, *MIXTURES):
        raise ValueError(f"head must name a head, got {model.head!r}; {did_you_mean(str(model.head), HEADS)}")
    for name, choices in CHOICES.items():
        if getattr(model, name) not in choices:
            *others, last = (repr(choice) for choice in choices)
            raise ValueError(f"{name} must be {', '.join(others)} or {last}, got {getattr(model, name)!r}.")
    for name, smallest in {**LEAST, **LEAST_OR_AUTO}.items():
        value = getattr(model, name)
        if (name in LEAST_OR_AUTO and value == "auto") or (name == "patience" and value is None):
            continue
        if not is_whole(value, smallest):
            words = "'auto' or " if name in LEAST_OR_AUTO else ""
            raise ValueError(f"{name} must be {words}a whole number of at least {smallest}, got {value!r}.")
    for name in (*NUMBERS, *NUMBERS_OR_AUTO):
        value = getattr(model, name)
        if not isinstance(value, numbers.Real) and (name in NUMBERS or value != "auto"):
            words = "'auto' or " if name in NUMBERS_OR_AUTO else ""
            raise ValueError(f"{name} must be {words}a number, got {value!r}.")
    sizes = list(model.hidden_sizes) if isinstance(model.hidden_sizes, Iterable) else []
    if model.hidden_sizes != "auto" and not (sizes and all(is_whole(size, 1) for size in sizes)):
        raise ValueError(f"hidden_sizes must be 'auto' or a list of whole numbers above 0, got {model.hidden_sizes!r}.")
    if not model.learning_rate > 0:
        raise ValueError(f"learning_rate must be positive, got {model.learning_rate}.")
    if model.weight_decay != "auto" and not model.weight_decay >= 0:
        raise ValueError(f"weight_decay must be 'auto' or not negative, got {model.weight_decay}.")
    if model.discrete not in (True, False, "auto"):
        raise ValueError(f"discrete must be True, False or 'auto', got {model.discrete!r}.")
    if model.bounds is not None:
        _check_bounds(model.bounds, str(model.head))
    if not 0 < model.tails < 1:
        raise ValueError(f"tails must be a share of probability between 0 and 1, got {model.tails}.")
    if model.validation_fraction != "auto" and not 0 <= model.validation_fraction <= 0.9:
        raise ValueError(f"validation_fraction must lie between 0 and 0.9, got {model.validation_fraction}.")


def check_coverage(coverage: Any) -> None:
    """Raise an error for what is no probability of an interval, such as 90 of percent."""
    if not isinstance(coverage, numbers.Real) or not 0 < float(coverage) < 1:
        raise ValueError(f"coverage must lie between 0 and 1, got {coverage!r}.")


def _check_bounds(bounds: Any, head: str) -> None:
    ends = list(bounds) if isinstance(bounds, Iterable) else []
    known = [end for end in ends if end is not None]
    if len(ends) != 2 or not all(isinstance(end, numbers.Real) for end in known):
        raise ValueError(f"bounds must be a pair of numbers, None for no such end, got {bounds!r}.")
    if len(known) == 2 and not known[0] < known[1]:
        raise ValueError(f"bounds must be the lower one first, got {bounds!r}.")
    if head != "fourier":
        raise ValueError(f"bounds are of the Fourier head, got head={head!r}.")
