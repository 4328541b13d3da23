r"""The paper's three synthetic data sets: triples (x, y, z) whose conditional density of z is known.

Gaussian: :math:`y \sim N(x, \sigma^2), z \sim N(y, \sigma^2)`. GMM-2: y uniform, z from two Gaussians at x and y.
Beta: :math:`z \sim \pm Beta(100|x|, 100|y|)`. x is uniform on [-0.8, 0.8] and :math:`\sigma^2 = 0.01`.

The generators draw in the order of the released code, so that a seed means the same data.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

DatasetName = Literal["gaussian", "gmm2", "beta"]
DATASETS: tuple[DatasetName, ...] = ("gaussian", "gmm2", "beta")
SEEDS = (1, 2, 3, 42)  # the paper's
CHOICE_SEEDS = (100, 101)
"""Of choices; no study reports on them."""
SIGMA = 0.1
NUM_BINS = 50


@dataclass(frozen=True)
class Triples:
    """Inputs (n, 2) and outcomes (n,) of the training and the test part, unquantised."""

    name: DatasetName
    seed: int
    train_inputs: np.ndarray
    train_outcomes: np.ndarray
    test_inputs: np.ndarray
    test_outcomes: np.ndarray


def first_seeds(count: int) -> tuple[int, ...]:
    """Return so many seeds, the paper's first, none of them one of choices.

    >>> first_seeds(6)
    (1, 2, 3, 42, 4, 5)
    """
    more = (seed for seed in itertools.count(1) if seed not in (*SEEDS, *CHOICE_SEEDS))
    return (*SEEDS, *itertools.islice(more, count))[:count]


def draw(name: DatasetName, seed: int, count: int = 5000) -> Triples:
    """Draw ``count`` triples and split them 80 to 20.

    >>> draw("gaussian", seed=1).train_inputs.shape
    (4000, 2)
    """
    rng = np.random.default_rng(seed)
    x = rng.uniform(-0.8, 0.8, count)
    if name == "gaussian":
        y = rng.normal(x, SIGMA)
        z = rng.normal(y, SIGMA)
    elif name == "gmm2":
        y = rng.uniform(-0.8, 0.8, count)
        z = np.array([rng.normal(x[i] if rng.uniform() < 0.5 else y[i], SIGMA) for i in range(count)])
    elif name == "beta":
        y = rng.normal(x, SIGMA)
        sign = rng.choice([1, -1], count)
        z = np.array([sign[i] * rng.beta(100 * abs(x[i]), 100 * abs(y[i])) for i in range(count)])
    else:
        raise ValueError(f"name must be one of {', '.join(DATASETS)}, got {name!r}")
    order = np.random.RandomState(42).permutation(count)  # the split of the released code
    test, train = order[: count // 5], order[count // 5 :]
    inputs = np.stack([x, y], axis=1)
    return Triples(name, seed, inputs[train], z[train], inputs[test], z[test])


def held_out(triples: Triples) -> Triples:
    """Return the training rows alone, the last fifth of them as the part to test on: what choices are made by.

    >>> part = held_out(draw("gaussian", seed=1))
    >>> len(part.train_outcomes), len(part.test_outcomes)
    (3200, 800)
    """
    cut = len(triples.train_outcomes) * 4 // 5
    inputs, outcomes = triples.train_inputs, triples.train_outcomes
    return Triples(triples.name, triples.seed, inputs[:cut], outcomes[:cut], inputs[cut:], outcomes[cut:])


def log_density(name: DatasetName, inputs: np.ndarray, z: np.ndarray) -> np.ndarray:
    """Return the true conditional log-density at points z, (n, len(z)); not cut off at -1 and 1."""
    x, y = inputs[:, :1], inputs[:, 1:]
    if name == "beta":
        a, b = 100 * np.abs(x), 100 * np.abs(y)
        size = np.clip(np.abs(z), 1e-12, 1 - 1e-12)
        constant = np.vectorize(math.lgamma)
        log_beta = constant(a) + constant(b) - constant(a + b)
        log_p = (a - 1) * np.log(size) + (b - 1) * np.log1p(-size) - log_beta - math.log(2)
        return np.where(np.abs(z) < 1, log_p, -np.inf)
    gauss = [-((z - centre) ** 2) / (2 * SIGMA**2) - math.log(SIGMA * math.sqrt(2 * math.pi)) for centre in (x, y)]
    return gauss[1] if name == "gaussian" else np.logaddexp(gauss[0], gauss[1]) - math.log(2)


def true_pmf(name: DatasetName, inputs: np.ndarray) -> np.ndarray:
    """Return the true conditional density at the bin centres, normalised over the bins, (n, m)."""
    centers = -1 + (2 * np.arange(NUM_BINS) + 1) / NUM_BINS
    if name != "gmm2":
        return _normalised(np.exp(log_density(name, inputs, centers)))
    # Each of the two Gaussians is normalised over the bins before they are averaged.
    parts = [_normalised(np.exp(-((centers - inputs[:, i : i + 1]) ** 2) / (2 * SIGMA**2))) for i in (0, 1)]
    return (parts[0] + parts[1]) / 2


def _normalised(weights: np.ndarray) -> np.ndarray:
    return weights / weights.sum(axis=1, keepdims=True)


def quantize(values: np.ndarray) -> np.ndarray:
    """Return bin ids on [-1, 1]; values outside go to the first and last bin.

    >>> quantize(np.array([-2.0, -1.0, 0.0, 0.99, 1.0]))
    array([ 0,  0, 25, 49, 49])
    """
    edges = np.linspace(-1, 1, NUM_BINS + 1)
    return np.clip(np.digitize(values, edges) - 1, 0, NUM_BINS - 1)
