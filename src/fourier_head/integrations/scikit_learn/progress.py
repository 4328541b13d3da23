"""How far a fit is: a bar in a terminal, lines elsewhere."""

from __future__ import annotations

import sys

from fourier_head.tabular.ensemble import Plan

LINES, LENGTH = 10, 30


class Progress:
    """Say after each look at the held-out rows how far training is and what the look found.

    Args:
        plan: the course of the training.
        verbose: 0 says nothing; 1 draws a bar, or prints ten lines where there is no terminal; 2 prints every look.
    """

    def __init__(self, plan: Plan, verbose: int):
        self._last, self._verbose, self._looks = plan.epochs, verbose, 0
        self._every = 1 if verbose > 1 else max(1, plan.steps // plan.check_every // LINES)
        self._bar, self._open = verbose == 1 and sys.stdout.isatty(), False

    def __call__(self, epoch: int, score: float) -> None:
        if not self._verbose:
            return
        self._looks += 1
        words = f"[FourierRegressor] epoch {epoch} of {self._last}: validation loss {score:.4f}"
        if self._bar:
            print(f"\r{words} [{'#' * (LENGTH * epoch // self._last):<{LENGTH}}]", end="", flush=True)
            self._open = True
        elif self._looks % self._every == 0 or epoch == self._last:
            print(words, flush=True)

    def close(self) -> None:
        """End the line of the bar, however far it came: early stopping and the keyboard end a fit, too."""
        if self._open:
            print(flush=True)
        self._open = False
