"""Train one network with each head, all treated alike: the bodies and the training of ``FourierRegressor``."""

from __future__ import annotations

import importlib.util
import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.distributions import Distribution

from fourier_head.bins import Bins
from fourier_head.compare.parts import Part, Prepared
from fourier_head.compare.scores import EDGE, Scores, score_model
from fourier_head.compare.settings import Settings
from fourier_head.domains.adaptive import Adaptive
from fourier_head.errors import UserError
from fourier_head.heads import FourierHead, Head
from fourier_head.heads.baselines import HLGaussHead, LinearHead, MixtureHead
from fourier_head.tabular import ensemble
from fourier_head.tabular.inputs import BODIES, Inputs
from fourier_head.tabular.members import Body, MemberNetwork

ADAPTIVE_FREQUENCIES = 8
ABOUT = {
    "smooth": "The network is the one that FourierRegressor calls smooth.",
    "pieces": "The network also has each column cut into pieces, so that it can jump as trees do.",
    "boosting": "The network also has each column cut into pieces, and what boosted trees and a forest say of each row "
    "that they have not seen.",
}

Progress = Callable[[str, int, int, float], None]
"""Called with head, epochs done, epochs in all and the last validation score."""


def planned(settings: Settings, rows: int) -> ensemble.Plan:
    """Return how long and in what portions to train; a tenth as long for a first look."""
    plan = ensemble.Plan.for_rows(rows, settings.epochs)
    if settings.quick and settings.epochs is None:
        plan = replace(plan, steps=max(2, plan.steps // 10))
    return plan


class Arm(nn.Module):
    """A network of one kind and one head, whose projection is the last layer of the network."""

    def __init__(self, body: str, num_features: int, make_head: Callable[[int], Head]):
        super().__init__()
        widths, activation = BODIES[body]
        self.network = MemberNetwork({body: Body(1, num_features, widths, activation)}, [make_head])

    @property
    def head(self) -> Head:
        """The head, which takes outputs of the network."""
        found: Any = self.network.heads[0]
        head: Head = found
        return head

    @property
    def layers(self) -> list[nn.Module]:
        """The layers of the network, the projection last."""
        body: Any = next(iter(self.network.bodies.values()))
        return list(body)

    def body(self, x: Tensor) -> Tensor:
        """Return the outputs of the network (rows, size)."""
        return self.network.of_rows(x)[0]

    def forward(self, x: Tensor) -> tuple[Distribution, Tensor]:
        """Return the predictive density in z and the log-probabilities of the bins."""
        outputs = self.body(x)
        return self.head.density(outputs), self.head(outputs)


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
    history: list[tuple[float, float]] = field(default_factory=list)
    best_epoch: int = 0
    seconds: float = 0.0

    @property
    def best_score(self) -> float:
        """The lowest validation score."""
        return min((score for _, score in self.history), default=math.nan)

    @property
    def parameters(self) -> tuple[int, int]:
        """The number of parameters in all, and of the head alone."""
        return _count(self.model), _count(self.model.layers[-1])


def _count(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


def train(
    name: str, data: Prepared, settings: Settings, frequencies: int, seed: int, plan: ensemble.Plan, progress: Progress
) -> Trained:
    """Train as ``FourierRegressor`` does; keep the weights with the best likelihood on the validation part.

    The seed fixes the initial weights of the network and the order of the rows, so heads with the same seed differ in
    the head alone.
    """
    torch.manual_seed(seed)
    model = Arm(data.body, data.num_features, head_maker(name, settings, frequencies, data))
    head: Any = model.head
    parts = data.train, data.validation
    # Of the likelihood of z, that of the value.
    units = math.log(data.half) + (float(data.validation.value.mean()) if data.table.log else 0.0)

    def loss(outputs: Tensor, z: Tensor, ids: Tensor) -> Tensor:
        if not head.training:
            found: Tensor = -head.density(outputs).log_prob(z.clamp(-EDGE, EDGE))
        elif name == "fourier-adaptive":  # it has no ends, and learns from values; the others from their bins
            found = head.values_loss_of(outputs, z, kind="nll")
        else:
            found = head.loss(outputs, ids, reduction="none")
        return found

    course = ensemble.fit(
        model.network,
        [torch.cat([getattr(part, key) for part in parts]) for key in ("x", "z", "ids")],
        torch.ones(sum(map(len, parts))),
        [torch.arange(len(data.train), sum(map(len, parts)))],
        loss,
        plan,
        seed=seed,
        learning_rate=ensemble.LEARNING_RATE,
        weight_decay=ensemble.usual_decay(len(data.train)),
        progress=lambda epoch, score: progress(name, epoch, plan.epochs, score + units),
    )
    looks = (min(step, plan.steps) for step in itertools.count(plan.check_every, plan.check_every))
    history = [(step / plan.per_epoch, score + units) for step, (_, score) in zip(looks, course.history, strict=False)]
    progress(name, plan.epochs, plan.epochs, history[-1][1])  # it may have ended earlier
    return Trained(name, model, score_model(model, data), history, course.best_epoch, course.seconds)


def with_body(data: Prepared, settings: Settings, frequencies: int) -> Prepared:
    """Return the data as the body asked for is given them, with a note; "auto" goes by the validation rows.

    Rows of training get what trees say that have not seen them, as in ``FourierRegressor(body="boosting")``.
    """
    if settings.body != "auto":
        return _for_body(data, settings.body, settings.seed)
    head, plan = settings.heads[0], planned(replace(settings, quick=True), len(data.train))
    tried = {body: _for_body(data, body, settings.seed) for body in BODIES}
    scores = {}
    for body, given in tried.items():
        done = train(head, given, settings, frequencies, settings.seed, plan, lambda *_: None)
        scores[body] = min(score for _, score in done.history)
    best, *others = sorted(scores, key=scores.__getitem__)
    words = ", ".join(f"{body} {scores[body]:.3f}" for body in (best, *others))
    note = f"Of three networks the best on validation rows was taken, after a short training of {head}: {words} nats."
    return replace(tried[best], notes=(*tried[best].notes, note))


def _for_body(data: Prepared, body: str, seed: int) -> Prepared:
    if body == "smooth":
        return data
    if body == "boosting" and not importlib.util.find_spec("sklearn"):
        raise UserError("--body boosting and auto need scikit-learn: pip install 'fourier-head[tables]'.")
    X, z = data.codes[data.train.rows], data.train.z.numpy().astype(np.float64)
    inputs = Inputs(X, z[:, None], np.ones(len(z)), data.categorical, body, seed)

    def new(part: Part) -> Part:
        return replace(part, x=inputs(data.codes[part.rows]).mean(0))

    return replace(
        data,
        train=replace(data.train, x=inputs.training(X)),
        validation=new(data.validation),
        test=new(data.test),
        notes=(*data.notes, ABOUT[body]),
        body=body,
    )
