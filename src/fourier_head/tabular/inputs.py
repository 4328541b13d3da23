"""Rows as networks are given them, and the kinds of networks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fourier_head.tabular.columns import Columns, Floats
from fourier_head.tabular.members import Body

if TYPE_CHECKING:
    from fourier_head.tabular.boosting import Boosting

BODIES: dict[str, tuple[tuple[int, ...], Any]] = {
    "smooth": ((64, 64, 64), nn.SiLU),
    "pieces": ((160, 160), nn.ReLU),
    "boosting": ((160, 160), nn.ReLU),
}
"""Widths of layers, and what stands between them; each gets what the one before it gets, and more."""


class Inputs:
    """Numbers for networks: columns, then columns piece by piece, then what trees say of the row.

    Args:
        X: rows of training (n, columns).
        targets: of size one (n, targets).
        weights: of the rows.
        categorical: which columns hold categories, as codes.
        body: a name of ``BODIES``, or "auto" for all.
        seed: of the trees.
    """

    def __init__(
        self, X: Floats, targets: Floats, weights: Floats, categorical: NDArray[np.bool_] | None, body: str, seed: int
    ):
        self.bodies = list(BODIES) if body == "auto" else [body]
        self._columns = Columns(X, weights, categorical)
        self._trees: list[Boosting] = []
        if "boosting" in self.bodies:
            from fourier_head.tabular.boosting import Boosting  # which needs scikit-learn

            self._trees = [Boosting(X, y, weights, categorical, seed) for y in targets.T]

    def training(self, X: Floats) -> Tensor:
        """Return the inputs of the rows of training, what trees say that have not seen them."""
        return self._joined(X, [trees.out_of_fold[None] for trees in self._trees])[0]

    def __call__(self, X: Floats) -> Tensor:
        """Return the inputs of new rows (versions, n, inputs), which differ in the trees that speak."""
        return self._joined(X, [trees.versions(X) for trees in self._trees])

    def _joined(self, X: Floats, said: Sequence[NDArray[np.float32]]) -> Tensor:
        pieces = self.bodies != ["smooth"]
        columns = self._columns(X, pieces)[None].repeat(len(said[0]) if said else 1, axis=0)
        return torch.from_numpy(np.concatenate([columns, *said], axis=2))

    def plan(self, inputs: int, n_members: int, hidden_sizes: Any) -> dict[str, Body]:
        """Return the bodies to train: of several, half as many members of each."""
        said = sum(trees.out_of_fold.shape[1] for trees in self._trees)
        given = {"smooth": self._columns.plain, "pieces": inputs - said, "boosting": inputs}
        several = len(self.bodies) > 1
        return {
            name: Body(
                max(1, n_members // 2) if several else n_members,
                given[name],
                BODIES[name][0] if isinstance(hidden_sizes, str) else tuple(hidden_sizes),
                BODIES[name][1],
            )
            for name in self.bodies
        }

    def keep(self, bodies: Sequence[str]) -> None:
        """Leave out what only other bodies were given."""
        self.bodies = list(bodies)
        if "boosting" not in bodies:
            self._trees = []
