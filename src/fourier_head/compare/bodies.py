"""The body that all heads share: the network alone, or with what boosted trees say of each row among its inputs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from fourier_head.compare.data import Part, Prepared
from fourier_head.compare.settings import Settings
from fourier_head.compare.training import Schedule, train


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
