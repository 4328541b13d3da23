"""Train one body with each head, all treated alike; its inputs may have what boosted trees say of each row."""

from __future__ import annotations

import copy
import itertools
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn
from torch.distributions import Distribution

from fourier_head.bins import Bins
from fourier_head.compare.data import Part, Prepared
from fourier_head.compare.scores import CHUNK, EDGE, Scores, score_model
from fourier_head.compare.settings import Settings
from fourier_head.domains.adaptive import Adaptive
from fourier_head.heads import FourierHead, Head
from fourier_head.heads.baselines import HLGaussHead, LinearHead, MixtureHead

if TYPE_CHECKING:
    from typing_extensions import Self

ADAPTIVE_FREQUENCIES = 8
WIDTHS = (64, 64, 32)
LEARNING_RATE = 3e-3
FEWEST_STEPS, MOST_STEPS = 1600, 8000
USUAL_EPOCHS, MOST_EPOCHS = 20, 200

Progress = Callable[[str, int, int, float], None]
"""Called with head, epochs done, epochs in all and the last validation score."""


@dataclass(frozen=True)
class Schedule:
    """How long and in what portions to train."""

    epochs: int
    batch: int
    check_every: int

    @classmethod
    def for_rows(cls, rows: int, epochs: int | None = None, quick: bool = False) -> Self:
        """Aim for some thousands of steps: few epochs of much data, many of little."""
        batch = min(128, max(16, 1 << int(math.log2(max(1, rows / 20)))))
        if epochs is None:
            per_epoch = math.ceil(rows / batch)
            steps = min(max(FEWEST_STEPS, USUAL_EPOCHS * per_epoch), MOST_STEPS)
            epochs = min(MOST_EPOCHS, max(3, math.ceil(steps / per_epoch)))
            epochs = max(2, epochs // 10) if quick else epochs
        return cls(epochs, batch, max(1, epochs // 50))


class Arm(nn.Module):
    """The common body, layers with SiLU between them, and one head."""

    def __init__(self, num_features: int, make_head: Callable[[int], Head]):
        super().__init__()
        layers: list[nn.Module] = []
        for inner, outer in itertools.pairwise((num_features, *WIDTHS)):
            layers += [nn.Linear(inner, outer), nn.SiLU()]
        self.body = nn.Sequential(*layers)
        self.head = make_head(WIDTHS[-1])

    def forward(self, x: Tensor) -> tuple[Distribution, Tensor]:
        """Return the predictive density in z and the log-probabilities of the bins."""
        features = self.body(x)
        return self.head.density(features), self.head(features)


def head_maker(name: str, settings: Settings, frequencies: int, data: Prepared) -> Callable[[int], Head]:
    """Return a function that makes the head of this name for features of some size."""
    bins = settings.bins
    line = Adaptive.fit(data.train.z, bins=Bins.uniform(bins, -1.0, 1.0))
    makers: dict[str, Callable[[int], Head]] = {
        "linear": lambda size: LinearHead(size, bins),
        "gmm": lambda size: MixtureHead(size, bins, settings.components, kind="full"),
        "hl-gauss": lambda size: HLGaussHead(size, bins),
        # The two ends of a table's target are no neighbours.
        "fourier": lambda size: FourierHead(size, bins, frequencies, boundary="reflect"),
        "fourier-packets": lambda size: FourierHead(
            size, bins, frequencies, boundary="reflect", packets=settings.packets
        ),
        "fourier-adaptive": lambda size: FourierHead(size, None, adaptive_frequencies(settings), domain=line),
    }
    return makers[name]


def adaptive_frequencies(settings: Settings) -> int:
    """Return N of the adaptive head: it stretches with the density, whose shape alone is left to the coefficients."""
    return settings.frequencies or ADAPTIVE_FREQUENCIES


@dataclass
class Trained:
    """A head after training: its model with the best validation score, its scores, and how it got there."""

    name: str
    model: Arm
    scores: Scores
    history: list[tuple[int, float]] = field(default_factory=list)
    best_epoch: int = 0
    seconds: float = 0.0

    @property
    def parameters(self) -> tuple[int, int]:
        """The number of parameters in all, and of the head alone."""
        return _count(self.model), _count(self.model.head)


def _count(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


def train(
    name: str, data: Prepared, settings: Settings, frequencies: int, seed: int, schedule: Schedule, progress: Progress
) -> Trained:
    """Train with Adam and a cosine schedule; keep the weights with the best likelihood on the validation part.

    The seed fixes the initial weights of the body and the order of the rows, so heads with the same seed differ in
    the head alone.
    """
    torch.manual_seed(seed)
    model = Arm(data.num_features, head_maker(name, settings, frequencies, data))
    exact = name == "fourier-adaptive"  # it has no ends, and learns from values; the others from their bins
    loss, target = (model.head.nll, data.train.z) if exact else (model.head.loss, data.train.ids)
    optimizer = torch.optim.Adam(model.parameters(), lr=LEARNING_RATE, fused=True)
    random = torch.Generator().manual_seed(seed)
    total = schedule.epochs * math.ceil(len(target) / schedule.batch)
    decay = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: (1 + math.cos(math.pi * step / total)) / 2)
    best, best_epoch, history = copy.deepcopy(model.state_dict()), 0, list[tuple[int, float]]()
    lowest, last, start = math.inf, math.nan, time.perf_counter()
    for epoch in range(1, schedule.epochs + 1):
        model.train()
        for rows in torch.randperm(len(target), generator=random).split(schedule.batch):
            optimizer.zero_grad()
            loss(model.body(data.train.x[rows]), target[rows]).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            decay.step()
        if epoch % schedule.check_every == 0 or epoch == schedule.epochs:
            last = _validation_nll(model.eval(), data)
            history.append((epoch, last))
            if last < lowest:
                best, lowest, best_epoch = copy.deepcopy(model.state_dict()), last, epoch
        progress(name, epoch, schedule.epochs, last)
    model.load_state_dict(best)
    seconds = time.perf_counter() - start
    return Trained(name, model, score_model(model.eval(), data), history, best_epoch, seconds)


@torch.no_grad()
def _validation_nll(model: Arm, data: Prepared) -> float:
    part = data.validation
    total = 0.0
    for x, z in zip(part.x.split(CHUNK), part.z.split(CHUNK), strict=True):
        total -= float(model.head.density(model.body(x)).log_prob(z.clamp(-EDGE, EDGE)).double().sum())
    return total / len(part) + math.log(data.half) + (float(part.value.mean()) if data.table.log else 0.0)


def with_body(data: Prepared, settings: Settings, frequencies: int) -> Prepared:
    """Return the data as the body asked for is given them, with a note; "auto" goes by the validation rows.

    Rows of training get what trees say that have not seen them, as in ``FourierRegressor(body="boosting")``.
    """
    if settings.body == "network":
        return data
    boosted = _boosted(data, settings.seed)
    if settings.body == "boosting":
        return boosted
    short, head = replace(settings, quick=True), settings.heads[0]
    schedule = Schedule.for_rows(len(data.train), short.epochs, quick=True)

    def score(tried: Prepared) -> float:
        done = train(head, tried, short, frequencies, settings.seed, schedule, lambda *_: None)
        return min(score for _, score in done.history)

    alone, with_trees = score(data), score(boosted)
    words = f"({with_trees:.3f} against {alone:.3f} nats on the validation rows, a short training of {head})"
    if with_trees < alone:
        return replace(boosted, notes=(*boosted.notes, f"They are better than without {words}."))
    return replace(data, notes=(*data.notes, f"Boosted trees were tried among the inputs and left out {words}."))


def _boosted(data: Prepared, seed: int) -> Prepared:
    from fourier_head.integrations.scikit_learn.boosting import Boosting

    X, z = data.train.x.numpy().astype(np.float64), data.train.z.numpy().astype(np.float64)
    trees = Boosting(X, z, np.ones(len(z)), None, seed)

    def more(part: Part, said: np.ndarray) -> Part:
        return replace(part, x=torch.cat([part.x, torch.from_numpy(said)], 1))

    note = "The inputs have what boosted trees and a forest say of each row that they have not seen."
    return replace(
        data,
        train=more(data.train, trees.out_of_fold),
        validation=more(data.validation, trees(data.validation.x.numpy().astype(np.float64))),
        test=more(data.test, trees(data.test.x.numpy().astype(np.float64))),
        notes=(*data.notes, note),
    )
