"""The inputs whose predicted densities are drawn, and what to draw them against."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from fourier_head.compare.data import Prepared
from fourier_head.compare.training import Trained

POINTS = 401


@dataclass(frozen=True)
class Example:
    """One test row: its name, what was observed there, the truth or the values of similar rows, and each density.

    Curves are heights over ``grid``, densities in units of the target.
    """

    title: str
    observed: float
    grid: np.ndarray
    curves: dict[str, np.ndarray]
    truth: np.ndarray | None
    neighbours: np.ndarray | None


def draw_examples(data: Prepared, arms: list[Trained], count: int = 3) -> list[Example]:
    """Evaluate the densities of a few telling test rows.

    Where the truth is known: rows whose two peaks are near, further and far apart. Otherwise: rows whose targets are
    low, middling and high, with the targets of the training rows most similar to them.
    """
    part = data.test
    truth = data.table.truth
    if truth is None:
        key, levels = part.value.numpy(), np.linspace(0.15, 0.85, count)
    else:
        key, levels = np.abs(np.diff(truth.centers[part.rows], axis=1)[:, 0]), np.linspace(0.25, 0.9, count)
    order = np.argsort(key, kind="stable")
    chosen = order[np.round(levels * (len(order) - 1)).astype(int)]
    z = torch.linspace(-1 + 1e-6, 1 - 1e-6, POINTS)
    grid = data.middle + data.half * z.double().numpy()
    with torch.no_grad():
        x = part.x[torch.from_numpy(chosen)]
        column = z[:, None].expand(-1, len(chosen))
        heights = {
            arm.name: arm.model.head.density(arm.model.body(x)).log_prob(column).double().exp().numpy() / data.half
            for arm in arms
        }
        known = data.truth(part)
        if known is not None:
            whole = z.double()[:, None].expand(-1, len(part))
            true_heights = known.log_prob(whole).exp().numpy()[:, chosen] / data.half
    examples = []
    for i, row in enumerate(chosen):
        examples.append(
            Example(
                title=_title(data, int(row)),
                observed=float(part.value[row]),
                grid=grid,
                curves={name: curve[:, i] for name, curve in heights.items()},
                truth=None if known is None else true_heights[:, i],
                neighbours=None if known is not None else _neighbours(data, int(row)),
            )
        )
    return examples


def _title(data: Prepared, row: int) -> str:
    number = int(data.test.rows[row])
    if data.table.truth is None:
        return f"test row {row + 1}"
    features = data.table.features.iloc[number]
    return ", ".join(f"{name} = {value:.2f}" for name, value in features.items()).replace("-", "−")


def _neighbours(data: Prepared, row: int) -> np.ndarray:
    """Return the targets of the training rows nearest to a test row in the standardised features."""
    distance = torch.cdist(data.test.x[row : row + 1], data.train.x)[0]
    count = min(len(distance), max(30, min(200, len(distance) // 50)))
    return data.train.value[distance.topk(count, largest=False).indices].numpy()
